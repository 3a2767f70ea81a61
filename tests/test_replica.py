"""helpers.replica: what of a launch is copied, what is refused, with a sentence that says why."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helpers import simt
from helpers.kernels import KERNELS
from helpers.memory import driver, upload
from helpers.profile import profile
from helpers.replica import DoesNotFit
from helpers.sandbox import CompileFailed

ADD = """\
__global__ void add(float *a, int n)
{
    if (threadIdx.x < n)
        a[threadIdx.x] += 1.0f;
}
"""
SHAPE = {"grid": 1, "block": 32}


def zeros(n: int = 64) -> np.ndarray:
    return np.zeros(n, np.float32)


def read_only() -> np.ndarray:
    array = zeros()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (zeros(0), "argument 0 has shape (0,): there is nothing in it"),
        (np.zeros((4, 5), np.float32, order="F"), "write np.ascontiguousarray"),
        (np.array([None]), "dtype object"),
        (np.array(["a"]), "dtype <U1"),
        (np.zeros(64, ">f4"), "dtype >f4, which a kernel cannot read"),
        (np.ma.zeros(64, np.float32), "write .filled(0)"),
        (np.str_("ab"), "is no number"),
        (np.datetime64("2020"), "is no number"),
        ([1, 2], "argument 0 is [1, 2], which is neither"),
        (b"ab", "argument 0 is b'ab', which is neither"),
        ("12", "argument 0 is '12', which is neither"),
        (list(range(1000)), "…, which is neither"),
        (2**40, "write np.int64(1099511627776)"),
        (np.int32(3), "argument 0 of kernel add is int32 (4 bytes), the kernel takes 8 bytes"),
    ],
    ids=str,
)
def test_what_is_no_argument(autoinit, argument, text):
    with pytest.raises(DoesNotFit, match=re.escape(text)):
        profile((ADD, "add"), argument, np.int32(3), **SHAPE)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"block": 2048}, "block=2048: block.x is at most 1,024"),
        ({"block": (1, 1, 65)}, "block.z is at most 64"),
        ({"block": (32, 33)}, "1,056 threads, more than 1024"),
        ({"grid": (1, 65536)}, "grid.y is at most 65,535"),
        ({"grid": 2**31}, "grid.x is at most 2,147,483,647"),
        ({"grid": (1, 1, 1, 1)}, "4 dimensions"),
        ({"grid": ()}, "0 dimensions"),
        ({"grid": "1"}, "grid='1': write integers"),
        ({"shared": -1}, "shared=-1: write the bytes"),
        ({"shared": 1.5}, "shared=1.5: write the bytes"),
        ({"shared": 10**6}, "a block at most 232,448"),
    ],
    ids=str,
)
def test_what_is_no_shape(shape, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        profile((ADD, "add"), zeros(), np.int32(3), **(SHAPE | shape))


def test_launch_bounds_are_kept():
    source = ADD.replace("void add", "void __launch_bounds__(64) add")
    with pytest.raises(ValueError, match=r"128 threads, kernel add is compiled for at most 64"):
        profile((source, "add"), zeros(), np.int32(3), grid=1, block=128)


@pytest.mark.parametrize(
    ("kernel", "error", "text"),
    [
        ((ADD, "add", "-O3"), TypeError, "write a tuple of words"),
        ((ADD, "add", ("-nonsense",)), CompileFailed, "-nonsense"),
        ((None, "add"), TypeError, "the source is a NoneType"),
        ((ADD, 5), TypeError, "tuple is no kernel"),
        (("x" * 5000, "add"), FileNotFoundError, "there is no file 'xxx"),
        (("\n", "add"), DoesNotFit, "there is no kernel add in the source, nor any other"),
    ],
)
def test_what_is_no_kernel(kernel, error, text):
    with pytest.raises(error, match=re.escape(text)) as raised:
        profile(kernel, zeros(), np.int32(3), **SHAPE)
    assert len(str(raised.value)) < 800


def test_a_source_that_chooses_its_linkage():
    for headers in ('#include <cuda_fp16.h>\nextern "C" ', "#include <cuda_fp16.h>\n"):
        p = profile((headers + ADD, "add"), zeros(), np.int32(3), **SHAPE)
        assert p.line(5).text == "a[threadIdx.x] += 1.0f;"
    two = 'extern "C" {}\n' + ADD + ADD.replace("void add", "void addadd")
    for name in ("add", "addadd"):
        assert profile((two, name), zeros(), np.int32(3), **SHAPE).instructions
    with pytest.raises(DoesNotFit, match="no kernel dd in the source, only _Z3addPfi"):
        profile((two, "dd"), zeros(), np.int32(3), **SHAPE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((zeros(), zeros(), zeros(), 3, 3), "takes 6 arguments (A, B, C, M, N, K), 5 are given"),
        ((np.zeros(9), zeros(), zeros(), 3, 3, 3), "A has dtype float64"),
        ((zeros(), zeros(), zeros(), 2**40, 3, 3), "M=1099511627776 is outside"),
        ((zeros(), zeros(), zeros(), 3, 3, 3.0), "K=3.0 is a float"),
        ((zeros(), zeros(), zeros(), 3, True, 3), "N=True is a bool"),
    ],
)
def test_what_our_kernels_do_not_take(arguments, text):
    with pytest.raises(DoesNotFit, match=re.escape(text)):
        profile(KERNELS["tiled"], *arguments)


def test_sizes_may_be_any_integers():
    sizes = np.int64(3), np.int16(3), 3
    p = profile(KERNELS["tiled"], zeros(), zeros(), zeros(), *sizes)
    assert p.total("global", "store").lanes == 9


def test_a_read_only_array_is_never_written_to():
    out = read_only()
    assert profile((ADD, "add"), out, np.int32(3), **SHAPE).instructions
    with pytest.raises(ValueError, match="argument 0 is a read-only array"):
        profile((ADD, "add"), out, np.int32(3), write=True, **SHAPE)
    assert not out.any()
    A, C = read_only(), zeros()
    profile(KERNELS["naive"], A, A, C, 8, 8, 8, write=True)  # read-only inputs are fine


TWO = """\
__global__ void two(const float *a, float *b)
{
    b[threadIdx.x] = a[threadIdx.x % 16] + 1.0f;
}
"""


def test_arrays_that_begin_at_one_place():
    for first, second in ((16, 64), (64, 32)):
        whole = zeros()
        profile((TWO, "two"), whole[:first], whole[:second], write=True, **SHAPE)
        assert (whole[:32] == 1).all() and not whole[32:].any()


def test_a_pointer_into_the_middle_and_an_address_as_a_numpy_integer(autoinit):
    with upload(np.arange(64, dtype=np.float32)) as d:
        for pointer in (int(d) + 128, np.uintp(int(d) + 128), np.int64(int(d) + 128)):
            profile((ADD, "add"), pointer, np.int32(32), write=True, **SHAPE)
        expected = np.arange(64) + 3 * (np.arange(64) >= 32)
        assert (d.download() == expected).all()
        with pytest.raises(simt.Fault, match=r"just past the end of a \(256 bytes\)"):
            profile((ADD, "add"), int(d) + 132, np.int32(32), **SHAPE)


def test_what_pycuda_copies_by_itself(autoinit):
    a = zeros()
    profile((ADD, "add"), driver().InOut(a), np.int32(3), write=True, **SHAPE)
    assert a.sum() == 3


def test_memory_that_has_been_freed(autoinit):
    from pycuda.gpuarray import to_gpu

    array, raw, gpuarray = upload(zeros()), driver().mem_alloc(256), to_gpu(zeros())
    array.free()
    raw.free()
    gpuarray.gpudata.free()
    for argument in (array, raw, gpuarray):
        name = type(argument).__name__
        text = rf"argument 0 is a {name} whose memory has been freed \(use after free\)"
        with pytest.raises(DoesNotFit, match=text):
            profile((ADD, "add"), argument, np.int32(3), **SHAPE)
    with pytest.raises(DoesNotFit, match="argument 0 is "):
        profile((ADD, "add"), int(raw), np.int32(3), **SHAPE)


def test_the_address_of_freed_memory_as_a_number(autoinit):
    if autoinit.backend == "gpu":
        pytest.skip("nobody on a GPU knows what a mere address has been")
    raw = driver().mem_alloc(256)
    address = int(raw) + 4
    raw.free()
    for argument in (address, np.uint64(address)):
        with pytest.raises(DoesNotFit, match="has been freed"):
            profile((ADD, "add"), argument, np.int32(3), **SHAPE)


POINTERS = """\
struct Pair { int n; float *p; };
__global__ void array(float **a) { a[1][threadIdx.x] += 1.0f; }
__global__ void structure(Pair s) { s.p[threadIdx.x] += 1.0f; }
"""


def pair(pointer: int) -> np.void:
    found = np.zeros(1, np.dtype([("n", np.int32), ("p", np.uint64)], align=True))
    found["p"] = pointer
    return found[0]


def test_what_pointers_in_arguments_point_to_is_copied(autoinit):
    with upload(zeros()) as d, upload(np.array([0, int(d) + 128], np.uint64)) as table:
        host = np.array([5, int(d) + 128], np.uint64)
        for times, (name, argument) in enumerate(
            [("array", table), ("array", host), ("structure", pair(int(d) + 128))], 1
        ):
            before = d.download()
            profile((POINTERS, name), argument, **SHAPE)
            assert (d.download() == before).all()
            profile((POINTERS, name), argument, write=True, **SHAPE)
            assert (d.download() == times * (np.arange(64) >= 32)).all()
        assert host.tolist() == [5, int(d) + 128]
        assert table.download().tolist() == [0, int(d) + 128]


def test_pointers_that_a_kernel_moves_are_the_device_s_again(autoinit):
    swap = "__global__ void swap(float **a) { float *p = a[0]; a[0] = a[1]; a[1] = p; }\n"
    with upload(zeros()) as d, upload(zeros()) as e:
        table = np.array([int(d), int(e) + 256], np.uint64)
        profile((swap, "swap"), table, grid=1, block=1, write=True)
        assert table.tolist() == [int(e) + 256, int(d)]


def test_a_list_whose_end_points_to_its_start(autoinit):
    follow = """\
struct Node { Node *next; long value; };
__global__ void follow(Node *n, long *sum)
{
    for (Node *at = n->next; at != n; at = at->next)
        *sum += at->value;
}
"""
    nodes = [driver().mem_alloc(16) for _ in range(3)]
    for k, node in enumerate(nodes):
        driver().memcpy_htod(node, np.array([int(nodes[(k + 1) % 3]), 10 + k], np.uint64))
    total = np.zeros(1, np.int64)
    profile((follow, "follow"), nodes[0], total, grid=1, block=1, write=True)
    assert total[0] == 11 + 12


def test_an_address_that_the_kernel_makes_of_numbers_is_an_error(autoinit):
    made = "__global__ void made(long half) { ((float *)(2 * half))[threadIdx.x] = 1.0f; }\n"
    with upload(zeros()) as d, pytest.raises(simt.Fault, match="only copies of arrays"):
        profile((made, "made"), np.int64(int(d) // 2), **SHAPE)


def test_a_pointer_in_an_argument_to_freed_memory(autoinit):
    if autoinit.backend == "gpu":
        pytest.skip("nobody on a GPU knows what a mere address has been")
    d = upload(zeros())
    table, structure = np.array([0, int(d)], np.uint64), pair(int(d))
    d.free()
    for name, argument in (("array", table), ("structure", structure)):
        text = r"use after free: .* at \*\(argument 0\+8\)\+0, which was freed before the launch"
        with pytest.raises(simt.Fault, match=text):
            profile((POINTERS, name), argument, **SHAPE)


VARIABLES = """\
__device__ int n = 3;
__device__ int *q = &n;
__constant__ float c[4];
__device__ float *p;
__device__ struct { int k, m; int *at; int more[2]; } s = {1, 2, &n, {3, 4}};
extern __shared__ float reversed[];
__global__ void sums(float *a)
{
    for (int k = 0; k < *q + s.more[1] + *s.at; ++k)
        a[threadIdx.x] += c[k % 4] + s.k;
}
__global__ void through() { p[threadIdx.x] = 1.0f; }
__global__ void reverse(float *a)
{
    reversed[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = reversed[31 - threadIdx.x];
}
"""


@pytest.fixture
def module(autoinit):
    if autoinit.backend == "gpu":
        pytest.skip("a compiled function no longer knows its PTX on a GPU")
    from pycuda.compiler import SourceModule

    return SourceModule(VARIABLES)


def test_a_module_s_variables_are_as_they_are_now(module):
    cuda = driver()
    cuda.memcpy_htod(module.get_global("n")[0], np.int32(7))
    cuda.memcpy_htod(module.get_global("c")[0], np.array([2, 2, 2, 2], np.float32))
    a, expected = zeros(), zeros()
    function = module.get_function("sums")
    p = profile(function, a, write=True, **SHAPE)
    assert p.total("global", "store").requests == 18 and (a[:32] == 18 * 3).all()  # 7 + 4 + 7 times
    with upload(expected) as d:
        function(d, grid=(1, 1), block=(32, 1, 1))
        assert (d.download() == a).all()


def test_what_a_pointer_in_a_variable_points_to_is_copied(module):
    with upload(zeros()) as d:
        driver().memcpy_htod(module.get_global("p")[0], np.uint64(int(d)))
        profile(module.get_function("through"), write=True, **SHAPE)
        assert (d.download() == (np.arange(64) < 32)).all()
    with pytest.raises(simt.Fault, match=r"use after free: .* at \*\(p\+0\)\+0, which was freed"):
        profile(module.get_function("through"), **SHAPE)


def test_dynamic_shared_memory(module):
    a = np.arange(32, dtype=np.float32)
    p = profile(module.get_function("reverse"), a, shared=128, write=True, **SHAPE)
    assert (a == np.arange(32)[::-1]).all() and p.total("shared").requests == 2
    with pytest.raises(simt.Fault, match="0 bytes of shared memory"):
        profile(module.get_function("reverse"), a, **SHAPE)


def test_vectors_of_pycuda_are_values(autoinit):
    import pycuda.gpuarray as gpuarray

    source = "__global__ void f(float4 v, float *x) { x[0] = v.x + 10 * v.w; }"
    x = np.zeros(1, np.float32)
    profile((source, "f"), gpuarray.vec.make_float4(1, 2, 3, 4), x, grid=1, block=1, write=True)
    assert x[0] == 41
