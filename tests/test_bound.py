"""A student's kernel as a Python object: what it refuses says what to write instead.

The inputs that public reports say newcomers stumble over, as far as they concern arguments, launch
shapes and resources, are marked `reported`.
"""

from __future__ import annotations

import os
import re
import signal
import threading

import numpy as np
import pytest

from helpers.bound import NoKernel, bind
from helpers.check import check_product
from helpers.errors import KernelInterrupted, LaunchFailed, Told
from helpers.kernels import KERNELS
from helpers.memory import allocate, upload
from helpers.profile import profile
from helpers.sandbox import CompileFailed
from helpers.sanitize import sanitize
from helpers.timing import time_kernel

NAIVE = KERNELS["naive"].file.read_text()
M, N, K = (np.int32(size) for size in (35, 79, 19))


@pytest.fixture(scope="module")
def matmul(autoinit):
    return bind(NAIVE, "mine.cu", block=(32, 32))["matmul_naive"]


@pytest.fixture(scope="module")
def bare(autoinit):
    """The same without a launch shape."""
    return bind(NAIVE, "mine.cu")["matmul_naive"]


@pytest.fixture
def arrays(autoinit):
    random = np.random.default_rng(1)
    A, B = random.random((M, K), np.float32), random.random((K, N), np.float32)
    return A, B, upload(A), upload(B), allocate((M, N))


def test_a_launch_as_pycuda_has_it(bare, arrays):
    A, B, dA, dB, dC = arrays
    bare(dA, dB, dC, M, N, K, grid=(3, 2), block=(32, 32, 1))
    assert check_product(dC.download(), A, B)


def test_block_and_grid_of_a_product_may_be_left_out(matmul, arrays):
    A, B, dA, dB, dC = arrays
    matmul(dA, dB, dC, M, N, K)
    assert check_product(dC.download(), A, B)
    assert check_product(matmul(A, B), A, B)


def test_it_takes_what_pycuda_takes(bare, arrays):
    import pycuda.driver as cuda
    import pycuda.gpuarray as gpuarray

    A, B, dA, dB, _ = arrays
    C = np.zeros((M, N), np.float32)
    shape = {"grid": (3, 2), "block": (32, 32, 1)}
    bare(cuda.In(A), cuda.In(B), cuda.Out(C), M, N, K, **shape)
    assert check_product(C, A, B)
    gC = gpuarray.zeros((M, N), np.float32)
    bare(gpuarray.to_gpu(A), np.uintp(dB.gpudata), gC, M, N, K, **shape)
    assert check_product(gC.get(), A, B)
    memory = cuda.mem_alloc(C.nbytes)
    bare(dA, dB, memory, M, N, np.uint32(K), **shape)
    cuda.memcpy_dtoh(C, memory)
    assert check_product(C, A, B)


@pytest.mark.parametrize("block", [(16, 16), (8, 4), 32])
def test_with_another_block_the_grid_covers_c_all_the_same(matmul, arrays, block):
    A, B, *_ = arrays
    assert check_product(matmul(A, B, block=block), A, B)


def test_vectors_and_structures_as_values(arrays):
    import pycuda.gpuarray as gpuarray

    source = """struct Pair { int first; float second; };
    __global__ void k(float *x, int2 v, Pair p) { x[0] = v.x + v.y + p.first + p.second; }"""
    k, x = bind(source, block=1)["k"], allocate(1)
    dtype = np.dtype([("first", np.int32), ("second", np.float32)], align=True)
    vector, pair = gpuarray.vec.make_int2(1, 20), np.array((300, 0.5), dtype)
    for structure in pair, pair[()]:
        k(x, vector, structure, grid=1)
        assert x.download()[0] == 321.5
    float3 = gpuarray.vec.make_float3(1, 2, 3)
    for wrong in np.int64(3), (1, 2), np.array([1, 2], np.int32), float3:
        with pytest.raises(TypeError, match=r"takes 2 numbers .*vec\.make_int2\(x, y\)"):
            k(x, wrong, pair, grid=1)
    for wrong in None, b"12345678", (300, 0.5):
        with pytest.raises(TypeError, match=r"write a structure as np\.array"):
            k(x, vector, wrong, grid=1)
    with pytest.raises(Told, match="takes"):
        k(x, vector, np.int32(3), grid=1)


def test_vectors_and_structures_lie_where_c_puts_them(arrays):
    """What PyCUDA packs has no gaps before them."""
    import pycuda.gpuarray as gpuarray

    source = """struct Mixed { char c; double d; };
    __global__ void k(char a, float4 f, char b, Mixed m, short s, int2 i, char e, float3 g,
                      double *x)
    {
        x[0] = a; x[1] = f.x + f.w; x[2] = b; x[3] = m.c + m.d; x[4] = s; x[5] = i.x + i.y;
        x[6] = e; x[7] = g.x + g.z;
    }"""
    k, x = bind(source, block=1)["k"], allocate(8, np.float64)
    mixed = np.array((1, 0.25), np.dtype([("c", np.int8), ("d", np.float64)], align=True))
    make = gpuarray.vec
    k(np.int8(1), make.make_float4(2, 0, 0, 3), np.int8(4), mixed[()], np.int16(5),
      make.make_int2(6, 7), np.int8(8), make.make_float3(9, 0, 10), x, grid=1)  # fmt: skip
    assert x.download().tolist() == [1, 5, 4, 1.25, 5, 13, 8, 19]


def test_what_cannot_be_packed_is_told_where_the_types_are_not_known(arrays):
    k = bind("#define ARGUMENT(t) t x\n__global__ void k(ARGUMENT(int)) { }", block=1)["k"]
    with pytest.raises(TypeError, match=r"invalid type on parameter #0|write np\.int32\(3\)"):
        k(3, grid=1)


def test_an_array_of_addresses(arrays):
    k = bind("__global__ void k(float **x) { x[1][0] = 7; }", block=1)["k"]
    x, y = allocate(1), allocate(1)
    k(upload(np.array([x.gpudata, y.gpudata], np.uint64)), grid=1)
    assert y.download()[0] == 7
    with pytest.raises(TypeError, match=r"reads addresses there.*np\.array\(\[x\.gpudata"):
        k(x, grid=1)


def test_profile_sanitize_and_timing_take_it(matmul, arrays):
    A, B, dA, dB, dC = arrays
    C = np.full((M, N), np.nan, np.float32)
    assert profile(matmul, A, B, C, M, N, K).file == "mine.cu"
    assert sanitize(matmul, dA, dB, dC, M, N, K).ok
    assert time_kernel(lambda: matmul(dA, dB, dC, M, N, K), repeats=2, warmup=0).repeats == 2


# reported: argument
WRONG = [
    ("float64 array", lambda a, d: [upload(a[0].astype(float)), *d[1:], M, N, K],
     "argument 1 of kernel matmul_naive (const float *A) has dtype float64, and the kernel reads "
     "its bytes as float32: write A.astype(np.float32), and upload that"),
    ("bare array", lambda a, d: [a[0], *d[1:], M, N, K],
     "argument 1 of kernel matmul_naive (const float *A) is a NumPy array, in host memory, where a "
     "GPU does not look: write upload(A)"),
    ("bare transposed float64 array", lambda a, d: [a[0].T.astype(float), *d[1:], M, N, K],
     "write upload(np.ascontiguousarray(A).astype(np.float32))"),
    ("Python int", lambda a, d: [*d, 35, N, K],
     "argument 4 of kernel matmul_naive (int M) is the Python int 35, which does not say how many "
     "bytes it has: write np.int32(35)"),
    ("Python float", lambda a, d: [*d, M, N, 19.0],
     "argument 6 of kernel matmul_naive (int K) is the Python float 19.0"),
    ("np.int64", lambda a, d: [*d, M, np.int64(79), K],
     "argument 5 of kernel matmul_naive (int N) is np.int64(79), 8 bytes, and the kernel takes 4 "
     "bytes there (int32): write np.int32(79)"),
    ("np.float32 for int", lambda a, d: [*d, M, N, np.float32(19)],
     "4 bytes, and the kernel takes them as int32, which is another number: write np.int32(19)"),
    ("too few", lambda a, d: [*d, M, N],
     "takes 6 arguments, 5 are given: after the first 5, int K is missing"),
    ("too many", lambda a, d: [*d, M, N, K, K], "takes 6 arguments, 7 are given: 1 too many"),
    ("none", lambda a, d: [], "0 are given: none"),
    ("another order", lambda a, d: [M, N, K, *d],
     "argument 1 of kernel matmul_naive (const float *A) is a pointer, and is given the number"),
    ("too large", lambda a, d: [*d, M, 2**40, K],
     "1099511627776 is no int32, which is a whole number from -2147483648 to 2147483647"),
    ("not a number", lambda a, d: [*d, M, N, float("nan")], "nan is no int32"),
    ("infinite", lambda a, d: [*d, M, N, float("-inf")], "-inf is no int32"),
    ("no whole number", lambda a, d: [*d, M, N, 18.7], "write np.int32(round(18.7))"),
    ("complex", lambda a, d: [*d, M, N, np.complex64(19)], "(19+0j) is no int32"),
    ("bool", lambda a, d: [*d, M, N, np.bool_(True)], "1 byte, and the kernel takes 4"),
    ("an object", lambda a, d: [memoryview(a[0]), *d[1:], M, N, K], "is a memoryview, which is no"),
    ("array for a number", lambda a, d: [*d, d[0], N, K], "(int M) is a number, and is given"),
    ("None", lambda a, d: [None, *d[1:], M, N, K], "is the NoneType None, which is no memory"),
    ("list", lambda a, d: [[1.0], *d[1:], M, N, K], "is the list [1.0], which is no memory"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_an_argument_that_does_not_fit_is_refused_with_what_to_write(matmul, arrays, make, text):
    A, B, *device = arrays
    with pytest.raises(Told, match=re.escape(text)) as raised:
        matmul(*make((A, B), device))
    assert isinstance(raised.value, (TypeError, ValueError))


def test_fortran_order_strides_and_transposes(matmul, arrays):  # reported
    import pycuda.driver as cuda
    import pycuda.gpuarray as gpuarray

    A, B, dA, dB, dC = arrays
    fortran = np.asfortranarray(A)
    for array in (cuda.In(fortran), cuda.In(A[:, ::2])):
        with pytest.raises(ValueError, match=r"np\.ascontiguousarray\(A\)"):
            matmul(array, dB, dC, M, N, K)
    for array in (gpuarray.to_gpu(fortran), gpuarray.to_gpu(A)[::2], gpuarray.to_gpu(A).T):
        with pytest.raises(ValueError, match=r"np\.ascontiguousarray\(A\.get\(\)\)"):
            matmul(array, dB, dC, M, N, K)
    with pytest.raises(ValueError, match=r"argument 2 .* is in Fortran order"):
        matmul(dA, cuda.In(np.ascontiguousarray(B.T).T), dC, M, N, K)


# reported: launch shape
SHAPES = [
    ({"grid": (79 / 32, 2)}, "2.46875 is a float; / makes one even of two integers. Write "
                             "-(-N // 32)"),
    ({"block": (33, 33, 1)}, "block=(33, 33, 1) has 1,089 threads, more than 1024"),
    ({"block": (1, 1, 100)}, "block.z is at most 64"),
    ({"grid": (3, 0)}, "grid=(3, 0): write integers >= 1"),
    ({"grid": (3, -2)}, "grid=(3, -2): write integers >= 1"),
    ({"grid": (1, 70000)}, "grid.y is at most 65,535"),
    ({"grid": (1, 1, 1, 1)}, "has 4 dimensions, not 1 to 3"),
    ({"grid": "3"}, "grid='3': write integers >= 1"),
    ({"grid": (N / 32, M / 32)}, "grid=(2.46875, 1.09375): 2.46875 is a float"),
    ({"block": (32.0, 32)}, "32.0 is a float; / makes one even of two integers. Write the threads"),
    ({"block": (0, 1, 1)}, "block=(0, 1, 1): write integers >= 1. Write the threads"),
    ({"stream": 0}, "stream=0: write stream=pycuda.driver.Stream()"),
    ({"shared": -1}, "shared=-1: write the bytes"),
    ({"shared": 10**6}, "are more than the"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "text"), SHAPES)
def test_a_shape_that_no_launch_has(bare, arrays, shape, text):
    *_, dA, dB, dC = arrays
    with pytest.raises(Told, match=re.escape(text)):
        bare(dA, dB, dC, M, N, K, **{"grid": (3, 2), "block": (32, 32, 1)} | shape)


def test_a_missing_shape_is_asked_for(bare, arrays):
    *_, dA, dB, dC = arrays
    with pytest.raises(TypeError, match=r"has no block: write block=\(32, 32, 1\)"):
        bare(dA, dB, dC, M, N, K, grid=(3, 2))
    fill = bind("__global__ void fill(float *x) { x[0] = 1; }", block=32)["fill"]
    with pytest.raises(TypeError, match="kernel fill has no grid"):
        fill(dC)


def test_too_many_registers_are_explained(arrays):  # reported
    source = """__global__ void hungry(float *x, int n)
    {
        float v[200];
        #pragma unroll
        for (int i = 0; i < 200; ++i) v[i] = x[i * n + threadIdx.x];
        #pragma unroll
        for (int i = 0; i < 200; ++i) x[i * n + threadIdx.x] = v[i] * v[(i * 7 + 3) % 200];
    }"""
    hungry = bind(source)["hungry"]
    *_, dC = arrays
    with pytest.raises(LaunchFailed, match=r"registers a thread.*LAUNCH_OUT_OF_RESOURCES.*smaller"):
        hungry(dC, np.int32(1), grid=1, block=1024)


def test_launch_bounds_are_told_as_what_they_are(arrays):
    *_, dC = arrays
    small = bind("__global__ void __launch_bounds__(64) small(float *x) { x[threadIdx.x] = 1; }")
    small["small"](dC, grid=1, block=64)
    with pytest.raises(LaunchFailed, match=r"at most 64 .* by its __launch_bounds__, .*96"):
        small["small"](dC, grid=1, block=96)


def test_errors_of_arrays_are_short(matmul, arrays):
    """As all others are: Told is shown without a traceback."""
    A, B, *_ = arrays
    for call in (lambda: matmul(A.astype(float), B), lambda: matmul(A.T, B),
                 lambda: matmul(A[0], B), lambda: matmul(A, A), lambda: upload(A.T),
                 lambda: upload([1.0]), lambda: allocate(0), lambda: allocate(3, object),
                 lambda: allocate(2**50), lambda: allocate(3, np.int32),
                 lambda: matmul.grid(35.0, 79),
                 lambda: KERNELS["naive"](A, A)):  # fmt: skip
        with pytest.raises(Told):
            call()


def test_50_KiB_of_static_shared_memory_are_explained(autoinit):  # reported
    source = """__global__ void big(float *x)
    {
        __shared__ float s[12800];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = s[31 - threadIdx.x];
    }"""
    with pytest.raises(
        CompileFailed, match="kernel big declares 51,200 bytes of __shared__ arrays"
    ):
        bind(source)


def test_more_than_48_KiB_of_dynamic_shared_memory_need_no_ceremony(arrays):
    source = """__global__ void dynamic(float *x, int n)
    {
        extern __shared__ float s[];
        s[n - 1 - threadIdx.x] = threadIdx.x;
        __syncthreads();
        x[threadIdx.x] = s[n - 32 + threadIdx.x];
    }"""
    out = allocate(32)
    bind(source)["dynamic"](out, np.int32(15000), grid=1, block=32, shared=60000)
    assert (out.download() == np.arange(32)[::-1]).all()


def test_headers_and_templates_need_no_extern_c(arrays):
    source = """#include <cuda_fp16.h>
    template <typename T> __device__ T twice(T x) { return x + x; }
    __global__ void both(const half *x, float *y)
    {
        y[threadIdx.x] = twice(__half2float(x[threadIdx.x]));
    }
    template <typename T> __global__ void made(T *y) { y[threadIdx.x] = 3; }
    template __global__ void made<float>(float *);
    """
    kernels = bind(source)
    assert set(kernels) == {"both", "made"}
    y = allocate(32)
    kernels["both"](upload(np.arange(32, dtype=np.float16)), y, grid=1, block=32)
    assert (y.download() == 2 * np.arange(32)).all()
    kernels["made"](y, grid=1, block=32)
    assert (y.download() == 3).all()
    assert profile(kernels["made"], y, grid=1, block=32).instructions


def test_a_source_without_a_kernel(autoinit):
    with pytest.raises(NoKernel, match="write one as __global__ void"):
        bind("__device__ int f() { return 1; }")
    with pytest.raises(NoKernel, match="made is not bound: it is a template"):
        bind("template <typename T> __global__ void made(T *y) { }")


@pytest.mark.engine
def test_a_bad_access_names_the_argument(matmul, arrays):
    A, B, dA, dB, dC = arrays
    with pytest.raises(LaunchFailed, match=r"mine\.cu:\d+, block .*past the end of A \(2,660"):
        matmul(dA, dB, dC, np.int32(36), N, K)
    with pytest.raises(Told, match=r"mine\.cu:\d+, block .*past the end of A \(2,660"):
        profile(matmul, A, B, dC, np.int32(36), N, K)


@pytest.mark.engine
def test_an_endless_loop_is_stopped_where_a_launch_is_repeated(arrays):
    source = "__global__ void forever(volatile float *x)\n{\n    while (x[0] >= 0) x[1] = 1;\n}"
    forever = bind(source)["forever"]
    zeros = np.zeros(2, np.float32)
    for look in (profile, sanitize):
        with pytest.raises(Told, match=r"forever.*stopped after 0\.5 s.*seconds=600"):
            look(forever, zeros, grid=1, block=1, seconds=0.5)
    with pytest.raises(ValueError, match="seconds=0"):
        profile(forever, zeros, grid=1, block=1, seconds=0)


@pytest.mark.engine
@pytest.mark.parametrize("way", ["launch", "profile", "sanitize"])
def test_an_interrupt_is_told_in_a_line_and_the_next_launch_works(arrays, way):
    source = "__global__ void forever(volatile float *x) { while (x[0] == 0) x[1] = 1; }"
    forever = bind(source, block=1)["forever"]
    run = {
        "launch": lambda x: forever(upload(x), grid=1),
        "profile": lambda x: profile(forever, x, grid=1),
        "sanitize": lambda x: sanitize(forever, x, grid=1),
    }[way]
    run(np.ones(2, np.float32))  # everything is compiled then
    alarm = threading.Timer(1.5, os.kill, [os.getpid(), signal.SIGINT])
    alarm.start()
    with pytest.raises(KernelInterrupted, match="^kernel forever was interrupted$"):
        run(np.zeros(2, np.float32))
    alarm.join()
    x = upload(np.ones(2, np.float32))
    forever(x, grid=1)
    assert (x.download() == 1).all()


@pytest.mark.engine
def test_a_kernel_of_a_cpp_source_is_called_by_its_name(arrays):
    source = """#include <cuda_fp16.h>
    namespace mine { __global__ void wild(float *x, int n) { x[n + threadIdx.x] = 1; } }"""
    wild, zeros = bind(source, "mine.cu", block=1)["wild"], np.zeros(2, np.float32)
    for call in (lambda: wild(upload(zeros), np.int32(2), grid=1),
                 lambda: profile(wild, zeros, np.int32(2), grid=1)):  # fmt: skip
        with pytest.raises(Told, match=r"^kernel wild, mine\.cu:2, block .* end of x \(8 bytes\)$"):
            call()


@pytest.mark.engine
def test_sanitize_names_the_argument_and_no_address(arrays):
    source = """__global__ void wild(float *x, int n) { x[n] = 1; }
    __global__ void odd(float *x) { *(float4 *)(x + 1) = make_float4(0, 0, 0, 0); }"""
    kernels, zeros = bind(source, block=1), np.zeros(8, np.float32)
    (found,) = sanitize(kernels["wild"], zeros, np.int32(8), grid=1).findings
    assert found.text.endswith("of global memory, just past the end of x (32 bytes).")
    (found,) = sanitize(kernels["odd"], zeros, grid=1).findings
    assert found.text.endswith("of global memory at an address which is no multiple of 16.")


class TestOnAGpu:
    """What goes before a launch on a GPU, and what is said when one is lost; on any machine."""

    @pytest.fixture(autouse=True)
    def gpu(self, monkeypatch):
        monkeypatch.setattr("helpers.bound.backend", lambda: "gpu")

    def test_a_bad_access_is_found_in_the_engine_before_the_launch(self, matmul, arrays):
        *_, dA, dB, dC = arrays
        before = dC.download()
        with pytest.raises(Told, match=r"Fault|mine\.cu:\d+, block .* out-of-bounds"):
            matmul(dA, dB, dC, np.int32(36), N, K)
        assert np.array_equal(dC.download(), before, equal_nan=True)

    def test_an_endless_loop_does_not_reach_it(self, arrays, monkeypatch):
        monkeypatch.setattr("helpers.bound.PATIENCE", 0.5)
        source = "__global__ void forever(volatile float *x) { while (x[0] >= 0) x[1] = 1; }"
        with pytest.raises(LaunchFailed, match=r"did not go to the GPU.*check=False"):
            bind(source)["forever"](upload(np.zeros(2, np.float32)), grid=1, block=1)

    def test_only_the_first_launch_with_given_sizes_is_tried(self, arrays, monkeypatch):
        *_, dA, dB, dC = arrays
        matmul = bind(NAIVE, block=(32, 32))["matmul_naive"]
        tried = []
        monkeypatch.setattr(type(matmul), "_try", lambda self, *given: tried.append(given))
        for sizes in ((M, N, K), (M, N, K), (np.int32(34), N, K), (M, N, K)):
            matmul(dA, dB, dC, *sizes)
        matmul(dA, dB, dC, np.int32(33), N, K, check=False)
        assert len(tried) == 2

    def test_what_decides_about_accesses_is_tried_anew(self, arrays, monkeypatch):
        """The value of every number, and the room around every address."""
        import pycuda.driver as cuda
        import pycuda.gpuarray as gpuarray

        source = """struct Part { int from, to; };
        __global__ void k(float *x, size_t n, float f, int2 v, Part p) { }"""
        k = bind(source, block=1)["k"]
        tried = []
        monkeypatch.setattr(type(k), "_try", lambda self, *given: tried.append(given))
        part = np.dtype([("from", np.int32), ("to", np.int32)], align=True)
        two, three = gpuarray.vec.make_int2(1, 2), gpuarray.vec.make_int2(1, 3)
        small, large, view = allocate(8), cuda.mem_alloc(64), gpuarray.zeros(16, np.float32)
        first = [small, np.uint64(3), np.float32("nan"), two, np.array((1, 2), part)]
        host = cuda.InOut(np.zeros(3, np.float32))
        other = {0: [large, np.uintp(int(large) + 4), view[4:], host],
                 1: [np.uint64(4)], 2: [np.float32(1)], 3: [three],
                 4: [np.array((1, 3), part), np.array((1, 4), part)[()]]}  # fmt: skip
        launches = [first, *([*first[:n], value, *first[n + 1 :]]
                             for n, values in other.items() for value in values)]  # fmt: skip
        for _ in range(2):  # the second time all are known
            for launch in launches:
                k(*launch, grid=1)
            assert len(tried) == len(launches)

    def test_a_lost_context_is_told_with_the_way_on(self, matmul):
        said = matmul._in_words("cuCtxSynchronize failed: an illegal memory access was "
                                "encountered", ())  # fmt: skip
        assert "kernel matmul_naive: an illegal memory access" in said
        assert "restart the notebook's kernel" in said and "MATMUL_BACKEND=cpu" in said
