"""Small whole kernels: shared memory and barriers, warps working together, atomics, all spaces."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

SOURCE = r"""
#include <cassert>
#include <cstdio>
struct Point { float x; int n; double w; };
__constant__ float table[5] = {1.5f, -2.0f, 3.0f, 0.25f, 8.0f};
__device__ int counter = 40;
__device__ float field[64];

struct Parts { float a; int b[3]; signed char c; };
__device__ __noinline__ float grow(float x, int n) {
    for (int i = 0; i < n; ++i) { x = x * 1.5f + 1; if (x > 100) return -x; }
    return x;
}
__device__ __noinline__ Parts change(Parts p, int k) {
    p.a += k; p.b[k % 3] = (int)grow(p.a, k); p.c -= k;
    return p;
}

extern "C" {

__global__ void calls(float *x, int n) {
    int t = threadIdx.x;
    Parts p = {x[t], {1, 2, 3}, (signed char)-t};
    p = change(p, t % 7);
    x[t] = grow(p.a, n) + p.b[t % 3] + p.c;
}

__global__ void prints(int n) {
    if (threadIdx.x < n)
        printf("%d/%d: %5.2f %s|%-4d|%x %lld %c %%\n", blockIdx.x, threadIdx.x,
               1.5f * threadIdx.x, "text", -7, 255u, 1ll << 40, 'q');
}

__global__ void lists(int *out, int n) {
    struct Node { int v; Node *next; } *head = nullptr;
    for (int i = 0; i < n; ++i) {
        Node *node = new Node;
        node->v = i * threadIdx.x;
        node->next = head;
        head = node;
    }
    int s = 0;
    while (head) {
        s = s * 3 + head->v;
        Node *next = head->next;
        delete head;
        head = next;
    }
    out[threadIdx.x] = s;
}

__global__ void allocates(int *out, unsigned bytes) {
    void *p = malloc(bytes);
    out[threadIdx.x] = p != nullptr;
    free(p);
}

__global__ void frees(int *x) { free(x); }

__global__ void asserts(int n) { assert(threadIdx.x < n && "too many"); }

__global__ void reduce(const float *x, float *out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

__global__ void warp_sum(const int *x, int *out) {
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = v;
}

__global__ void shuffles(int *xor_, int *up, int *idx, int *narrow) {
    int t = threadIdx.x, v = t * 10;
    xor_[t] = __shfl_xor_sync(0xffffffff, v, 5);
    up[t] = __shfl_up_sync(0xffffffff, v, 3);
    idx[t] = __shfl_sync(0xffffffff, v, (t * 7) & 31);
    narrow[t] = __shfl_down_sync(0xffffffff, v, 2, 8);
}

__global__ void votes(const int *x, unsigned *ballot, int *any, int *all) {
    int t = threadIdx.x;
    ballot[t] = __ballot_sync(0xffffffff, x[t] > 5);
    any[t] = __any_sync(0xffffffff, x[t] > 98);
    all[t] = __all_sync(0xffffffff, x[t] >= 0);
}

__global__ void histogram(const int *x, int n, int *bins, float *sum) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[x[i] % 7], 1);
        if (x[i] % 2) atomicAdd(sum, 1.0f);
    }
}

__global__ void atomics(int *a, unsigned *u, unsigned long long *l) {
    int t = threadIdx.x;
    atomicMax(&a[0], t * 3 % 50); atomicMin(&a[1], -t); atomicAnd(&u[0], ~(1u << (t & 7)));
    atomicOr(&u[1], 1u << (t & 31)); atomicXor(&u[2], t); atomicAdd(&l[0], 1ull << 33);
    atomicInc(&u[3], 9); atomicSub(&a[2], 2);
    while (atomicCAS(&u[4], t, t + 1) != t) { if (t > 0) break; }
}

__global__ void local_array(const int *x, int *out) {
    int buffer[16];
    int t = threadIdx.x;
    for (int i = 0; i < 16; ++i) buffer[i] = x[(t + i) & 63];
    int s = 0;
    for (int i = 0; i < 16; ++i) s = s * 3 + buffer[(i * x[t]) & 15];
    out[t] = s;
}

__global__ void by_value(Point p, float *out) {
    out[threadIdx.x] = p.x * p.n + (float)p.w + table[threadIdx.x % 5];
}

__global__ void module_variables(float *out) {
    int t = threadIdx.x;
    field[t] = t * 0.5f;
    atomicAdd(&counter, 1);
    __syncthreads();
    out[t] = field[63 - t];
}

__global__ void which_space(int *out, float *x, int where) {
    __shared__ float s[64];
    float l[4] = {1, 2, 3, (float)where};
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    float *p = threadIdx.x % 3 == 0 ? x + threadIdx.x
             : threadIdx.x % 3 == 1 ? s + threadIdx.x : l + where;
    out[threadIdx.x] = __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) + 8 * (*p > 50.0f);
    float *q = where ? s : x;
    out[32 + threadIdx.x] = __isGlobal(q) + 2 * __isShared(q) + 4 * __isLocal(q);
}
__global__ void dynamic(const float *x, float *out) {
    extern __shared__ float s[];
    __shared__ int shift;
    if (threadIdx.x == 0) shift = 5;
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[(threadIdx.x + shift) % blockDim.x];
}

__global__ void wide(const float4 *x, float4 *out, const float2 *y, double *z) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = x[t];
    out[t] = make_float4(v.w, v.z + 1, v.y, v.x);
    float2 w = y[t];
    z[t] = (double)w.x - w.y;
}

__global__ void bytes(const unsigned char *x, signed char *y, short *z) {
    int t = threadIdx.x;
    y[2 * t] = x[t] - 100; y[2 * t + 1] = x[t] >> 1; z[t] = x[31 - t] * -3;
}

__global__ void grid3d(int *out) {
    int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[b * blockDim.x * blockDim.y * blockDim.z + t] =
        threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z
        + 1000 * (blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
}

__global__ void transpose(const float *x, float *out, int n) {
    __shared__ float tile[32][33];
    int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    for (int k = 0; k < 32; k += 8)
        if (i + k < n && j < n) tile[threadIdx.y + k][threadIdx.x] = x[(i + k) * n + j];
    __syncthreads();
    i = blockIdx.x * 32 + threadIdx.y; j = blockIdx.y * 32 + threadIdx.x;
    for (int k = 0; k < 32; k += 8)
        if (i + k < n && j < n) out[(i + k) * n + j] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void stencil(const unsigned *x, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) out[i] = x[i - 1] + x[i + 1];
}

__global__ void after_return(const int *x, int *out, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    out[t] = s[n - 1 - t];
}

__global__ void known_and_negative(const int *x, int *out) {
    out[threadIdx.x] = (x + 100)[1 - (int)blockDim.x];  // a constant here, negative, widened
}

__global__ void odd_formats(int width) {
    printf("[%*d|%-*d|%.*f]\n", 5, 42, width, 7, -1, 1.5);
}

__global__ void taken_apart(unsigned *out) {
    unsigned long long t = threadIdx.x * 0x100000002ull;
    unsigned low, high;
    asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(t));
    out[low + (high & 1) * 0] = high * 1000 + low;
}

__global__ void asm_scope(const unsigned *x, unsigned *out) {
    unsigned t = threadIdx.x, y = x[t], z;
    asm("{ .reg .u32 p; mul.lo.u32 p, %1, 3; add.u32 %0, p, 1; }" : "=r"(z) : "r"(y));
    asm("{ .reg .u32 p; .reg .pred q; setp.gt.u32 q, %1, 50; mov.u32 p, %0;"
        "@q add.u32 p, p, 7; @!q sub.u32 p, p, 2; mov.u32 %0, p; }" : "+r"(z) : "r"(y));
    out[t] = z;
}
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE))


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.mark.parametrize("block", [32, 64, 256])
def test_tree_reduction_in_shared_memory(device, rng, block):
    x = rng.standard_normal(1000).astype(np.float32)
    blocks = -(-1000 // block)
    out = np.zeros(blocks, np.float32)
    device.launch("reduce", blocks, block, x, out, np.int32(1000))
    padded = np.pad(x, (0, blocks * block - 1000)).reshape(blocks, block)
    while padded.shape[1] > 1:  # the same order of additions
        half = padded.shape[1] // 2
        padded = padded[:, :half] + padded[:, half:]
    np.testing.assert_array_equal(out, padded[:, 0])


def test_sum_by_shuffles(device, rng):
    x = rng.integers(-1000, 1000, 256, dtype=np.int32)
    out = np.zeros(8, np.int32)
    device.launch("warp_sum", 2, 128, x, out)
    np.testing.assert_array_equal(out, x.reshape(8, 32).sum(1))


def test_shuffle_modes(device):
    out = [np.zeros(32, np.int32) for _ in range(4)]
    device.launch("shuffles", 1, 32, *out)
    t = np.arange(32)
    np.testing.assert_array_equal(out[0], (t ^ 5) * 10)
    np.testing.assert_array_equal(out[1], np.where(t >= 3, t - 3, t) * 10)
    np.testing.assert_array_equal(out[2], (t * 7 % 32) * 10)
    np.testing.assert_array_equal(out[3], np.where(t % 8 < 6, t + 2, t) * 10)


def test_votes(device, rng):
    x = rng.integers(0, 100, 32, dtype=np.int32)
    x[9] = 99
    ballot, any_, all_ = (np.zeros(32, t) for t in (np.uint32, np.int32, np.int32))
    device.launch("votes", 1, 32, x, ballot, any_, all_)
    assert set(ballot) == {sum(1 << i for i in range(32) if x[i] > 5)}
    assert set(any_) == {1} and set(all_) == {1}


def test_atomics_of_many_blocks_lose_nothing(device, rng):
    x = rng.integers(0, 1000, 100_000, dtype=np.int32)
    bins, total = np.zeros(7, np.int32), np.zeros(1, np.float32)
    device.launch("histogram", 9, 96, x, np.int32(len(x)), bins, total)
    np.testing.assert_array_equal(bins, np.bincount(x % 7, minlength=7))
    assert total[0] == (x % 2).sum()


def test_every_atomic_operation(device):
    a = np.array([-5, 5, 0], np.int32)
    u = np.array([0xFFFFFFFF, 0, 0, 0, 0], np.uint32)
    long = np.zeros(1, np.uint64)
    device.launch("atomics", 1, 64, a, u, long)
    t = np.arange(64)
    assert list(a) == [(t * 3 % 50).max(), -63, -128]
    assert list(u[:3]) == [0xFFFFFF00, 0xFFFFFFFF, np.bitwise_xor.reduce(t)]
    assert u[3] == 64 % 10
    assert long[0] == 64 << 33


def test_local_arrays_with_computed_indices(device, rng):
    x = rng.integers(0, 100, 64, dtype=np.int32)
    out = np.zeros(64, np.int32)
    device.launch("local_array", 1, 64, x, out)
    expected = []
    for t in range(64):
        buffer = [int(x[(t + i) & 63]) for i in range(16)]
        s = 0
        for i in range(16):
            s = s * 3 + buffer[(i * int(x[t])) & 15]
        expected.append(s)
    np.testing.assert_array_equal(out, np.array(expected).astype(np.int32))


def test_structures_by_value_and_constant_memory(device):
    point = np.zeros(1, np.dtype([("x", "f4"), ("n", "i4"), ("w", "f8")], align=True))
    point[0] = (1.5, 7, 0.125)
    out = np.zeros(10, np.float32)
    device.launch("by_value", 1, 10, point[0], out)
    np.testing.assert_array_equal(out, 10.625 + np.array([1.5, -2, 3, 0.25, 8] * 2, np.float32))


def test_module_variables_keep_their_values_between_launches(device):
    out = np.zeros(64, np.float32)
    device.launch("module_variables", 1, 64, out)
    device.launch("module_variables", 1, 64, out)
    np.testing.assert_array_equal(out, (63 - np.arange(64)) * 0.5)
    assert device.variable("counter") == (168).to_bytes(4, "little")


def test_which_space_a_generic_address_is_in(device):
    out = np.zeros(64, np.int32)
    device.launch("which_space", 1, 32, out, np.full(32, 99, np.float32), np.int32(1))
    assert list(out) == [(9, 2, 4)[t % 3] for t in range(32)] + [2] * 32


def test_dynamic_shared_memory(device, rng):
    x = rng.standard_normal(50).astype(np.float32)
    out = np.zeros(50, np.float32)
    device.launch("dynamic", 1, 50, x, out, shared_bytes=200)
    np.testing.assert_array_equal(out, np.roll(x, -5))


def test_vector_accesses(device, rng):
    x = rng.standard_normal((192, 4)).astype(np.float32)
    y = rng.standard_normal((192, 2)).astype(np.float32)
    out, z = np.zeros_like(x), np.zeros(192)
    device.launch("wide", 2, 96, x, out, y, z)
    np.testing.assert_array_equal(out, x[:, ::-1] + np.array([0, 1, 0, 0], np.float32))
    np.testing.assert_array_equal(z, y[:, 0].astype(np.float64) - y[:, 1])


def test_bytes_and_shorts(device, rng):
    x = rng.integers(0, 256, 32, dtype=np.uint8)
    y, z = np.zeros(64, np.int8), np.zeros(32, np.int16)
    device.launch("bytes", 1, 32, x, y, z)
    np.testing.assert_array_equal(y[::2], (x.astype(int) - 100).astype(np.int8))
    np.testing.assert_array_equal(y[1::2], x >> 1)
    np.testing.assert_array_equal(z, x[::-1].astype(int) * -3)


def test_grids_and_blocks_of_three_dimensions(device):
    grid, block = (3, 2, 2), (5, 4, 3)
    out = np.zeros(12 * 60, np.int32)
    device.launch("grid3d", grid, block, out)
    axes = np.indices((2, 2, 3, 3, 4, 5))
    bz, by, bx, tz, ty, tx = (a.ravel() for a in axes)
    np.testing.assert_array_equal(out, tx + 10 * ty + 100 * tz + 1000 * (bx + 10 * by + 100 * bz))


def test_transpose_through_padded_shared_memory(device, rng):
    x = rng.standard_normal((75, 75)).astype(np.float32)
    out = np.zeros_like(x)
    device.launch("transpose", (3, 3), (32, 8), x, out, np.int32(75))
    np.testing.assert_array_equal(out, x.T)


def test_unsigned_index_minus_one_behind_a_guard(device, rng):
    x = rng.integers(0, 1000, 100, dtype=np.uint32)
    out = np.zeros(100, np.uint32)
    device.launch("stencil", 2, 64, x, out, np.uint32(100))
    np.testing.assert_array_equal(out[1:-1], x[:-2] + x[2:])
    assert out[0] == out[-1] == 0


@pytest.mark.parametrize("n", [1, 5, 32, 33, 63, 64])
def test_threads_that_returned_are_not_waited_for_at_a_barrier(device, rng, n):
    x = rng.integers(0, 1000, 64, dtype=np.int32)
    out = np.zeros(64, np.int32)
    device.launch("after_return", 1, 64, x, out, np.int32(n))
    np.testing.assert_array_equal(out[:n], x[:n][::-1])
    assert not out[n:].any()


def test_scoped_registers_and_predicates_of_inline_assembly(device, rng):
    x = rng.integers(0, 100, 32, dtype=np.uint32)
    out = np.zeros(32, np.uint32)
    device.launch("asm_scope", 1, 32, x, out)
    z = x * 3 + 1
    np.testing.assert_array_equal(out, np.where(x > 50, z + 7, z - 2).astype(np.uint32))


def test_functions_that_are_not_inlined(device):
    x = np.arange(32, dtype=np.float32)
    before = x.copy()

    def grow(v, n):
        for _ in range(n):
            v = np.float32(np.float64(v) * 1.5 + 1)
            if v > 100:
                return -v
        return v

    device.launch("calls", 1, 32, x, np.int32(4))
    for t in range(32):
        k, b = t % 7, [1, 2, 3]
        a = np.float32(before[t] + k)
        b[k % 3] = int(grow(a, k))
        assert x[t] == grow(a, 4) + b[t % 3] + (-t - k)


@pytest.mark.engine
def test_printf_comes_in_the_order_of_the_blocks(device, capsys):
    device.launch("prints", 3, 32, np.int32(2))
    assert capsys.readouterr().out == "".join(
        f"{b}/{t}: {1.5 * t:5.2f} text|-7  |ff 1099511627776 q %\n"
        for b in range(3)
        for t in range(2)
    )


@pytest.mark.engine
def test_a_failed_assertion_is_a_fault_with_its_text(device):
    with pytest.raises(simt.Fault) as caught:
        device.launch("asserts", 1, 64, np.int32(50))
    assert caught.value.kind == "assert" and caught.value.thread == (50, 0, 0)
    assert 'threadIdx.x < n && "too many"' in str(caught.value)
    device.launch("asserts", 1, 50, np.int32(50))


def test_a_64_bit_value_taken_apart(device):
    out = np.zeros(64, np.uint32)
    device.launch("taken_apart", 1, 32, out)
    np.testing.assert_array_equal(out[::2], np.arange(32) * 1000 + np.arange(32) * 2)


def test_new_delete_and_malloc_in_a_kernel(device):
    out = np.zeros(64, np.int32)
    for _ in range(3):  # what is freed can be had again
        device.launch("lists", 1, 64, out, np.int32(500))
        expected = np.zeros(64, np.int64)
        for i in reversed(range(500)):
            expected = (expected * 3 + i * np.arange(64)) & 0xFFFFFFFF
        np.testing.assert_array_equal(out, expected.astype(np.uint32).view(np.int32))
    device.launch("allocates", 1, 32, out, np.uint32(1 << 30))
    assert not out[:32].any()
    device.launch("allocates", 1, 32, out, np.uint32(1000))
    assert out[:32].all()


@pytest.mark.engine
def test_memory_that_malloc_has_not_returned_cannot_be_freed(device):
    with pytest.raises(simt.Fault, match="has not returned"):
        device.launch("frees", 1, 1, np.zeros(64, np.int32))


def test_a_known_negative_index(device):
    x, out = np.arange(200, dtype=np.int32), np.zeros(32, np.int32)
    device.launch("known_and_negative", 1, 32, x, out)
    assert set(out) == {100 + 1 - 32}


@pytest.mark.engine
def test_widths_given_as_arguments(device, capsys):
    device.launch("odd_formats", 1, 1, np.int32(-4))
    device.launch("odd_formats", 1, 1, np.int32(2_000_000_000))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[   42|7   |1.500000]" and len(lines[1]) < 10_000


@pytest.mark.parametrize("align", [16, 32, 128])
def test_dynamic_shared_memory_begins_at_its_alignment(align):
    """As ptxas lays it out, which reports so many bytes of static shared memory."""
    device = Device(ptx_of(f"""
        extern "C" __global__ void place(unsigned *out)
        {{
            extern __shared__ __align__({align}) float4 moved[];
            __shared__ int first;
            first = threadIdx.x;
            __syncthreads();
            moved[0].x = first;
            out[0] = (unsigned)__cvta_generic_to_shared(moved);
            out[1] = (unsigned)__cvta_generic_to_shared(&first);
        }}"""))
    out = np.ones(2, np.uint32)
    device.launch("place", 1, 1, out, shared_bytes=64)
    assert out.tolist() == [align, 0]
