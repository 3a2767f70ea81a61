"""What a kernel takes is read from its source, whatever way that is written."""

import numpy as np
import pytest

from helpers.signature import signatures

PRODUCT = "const float *A, const float *B, float *C, int M, int N, int K"


def only(source, options=()):
    (signature,) = signatures(source, options)
    return signature


def kinds(source, options=()):
    return [
        (p.name, p.pointer, None if p.dtype is None else p.dtype.name)
        for p in only(source, options).parameters
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        PRODUCT,
        "float const * A, const float* __restrict__ B, float *const C, int M, int N, int K",
        "const float A[], const float *B,\n   // a comment, with a comma\n float *C, int M,"
        " /* , */\n int N, const int K",
        "const float *A, const float *B, float *C, int, int, int",
        "const float *A, const float *B, float *C, int32_t M, signed N, std::int32_t K",
    ],
)
def test_a_product_is_recognised(parameters):
    assert only(f"__global__ void matmul({parameters}) {{ }}").is_product


@pytest.mark.parametrize(
    "parameters",
    [
        "const float *A, const float *B, float *C, int M, int N",
        "const float *A, const float *B, double *C, int M, int N, int K",
        "const float *A, const float *B, float *C, int M, int N, long K",
        "float A, const float *B, float *C, int M, int N, int K",
    ],
)
def test_what_is_no_product(parameters):
    assert not only(f"__global__ void matmul({parameters}) {{ }}").is_product


def test_types():
    source = """__global__ void k(unsigned n, unsigned long long m, size_t s, char c, short int h,
        half x, const double *d, float4 *v, bool b, int **pp, Thing t, float4 f) {}"""
    numbers = {"n": "uint32", "m": "uint64", "s": "uint64", "c": "int8", "h": "int16",
               "x": "float16", "b": "bool", "t": None, "f": "float32"}  # fmt: skip
    pointers = {"d": "float64", "v": "float32", "pp": "uint64"}
    found = kinds(source)
    assert {name: kind for name, pointer, kind in found if not pointer} == numbers
    assert {name: kind for name, pointer, kind in found if pointer} == pointers


def test_names_that_stand_for_types():
    source = """typedef unsigned int word; using real = float;
    #define ELEMENT real
    #define ARGS const ELEMENT *x, \\
                 word n
    __global__ void k(ARGS, KIND z) {}"""
    assert kinds(source, ("-DKIND=double",)) == [
        ("x", True, "float32"), ("n", False, "uint32"), ("z", False, "float64")]  # fmt: skip


def test_all_kernels_of_a_source_and_nothing_else():
    source = """// __global__ void commented(int x) {}
    /* __global__ void out(int x) {} */
    const char *text = "__global__ void quoted(int x) {}";
    __global__ void declared(int);
    __device__ int helper(int x) { return x; }
    extern "C" __global__ void __launch_bounds__(256, 2) bounds(int x) {}
    static void __global__ other() { helper(1); }
    template <typename T> __global__ void made(T *x) {}
    template __global__ void made<float>(float *x);"""
    assert [(s.name, s.template, s.line) for s in signatures(source)] == [
        ("bounds", False, 6), ("other", False, 7), ("made", True, 8)]  # fmt: skip


def test_what_cannot_be_read_is_said_so():
    assert only("__global__ void k(float (*f)(int), int n) {}").parameters is None
    assert only("#define P(n) float *n\n__global__ void k(P(x)) {}").parameters is None


def test_it_is_told_on_one_line_without_comments():
    told = str(only("__global__ void k(const float*  A, // in\n  int   n = 3)\n{ }"))
    assert told == "k(const float *A, int n)"


def test_parameters_of_the_lessons_kernels_are_what_ptx_says():
    from helpers.kernels import KERNELS
    from helpers.sandbox import ptx_of
    from helpers.simt import ptx

    for kernel in KERNELS.values():
        compiled = ptx.parse(ptx_of(kernel.source, kernel.options)).kernels
        found = {s.name: s for s in signatures(kernel.source)}
        assert set(found) == set(compiled)
        sizes = [8 if p.pointer else np.dtype(p.dtype).itemsize
                 for p in found[kernel.entry].parameters]  # fmt: skip
        assert sizes == [p.nbytes for p in compiled[kernel.entry].parameters]
