"""cp.async, its groups and zero fill; mbarrier; the pipelines of CUDA C++ built on them."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

__device__ unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
#define COMMIT() asm volatile("cp.async.commit_group;")
#define WAIT(n) asm volatile("cp.async.wait_group " #n ";")
#define WAIT_ALL() asm volatile("cp.async.wait_all;")

// Every thread copies `size` bytes from place from[t] to place to[t] of a shared array.
#define PLACES(name, how, T) __global__ void name(const T *x, const int *from, const int *to, \
        T *out, int n) { \
    __shared__ T s[256]; int t = threadIdx.x; \
    for (int i = t; i < 256; i += blockDim.x) s[i] = T(); \
    __syncthreads(); \
    if (t < n) COPY(how, sizeof(T), &s[to[t]], x + from[t]); \
    WAIT_ALL(); __syncthreads(); \
    for (int i = t; i < 256; i += blockDim.x) out[i] = s[i]; }
struct alignas(8) Two { unsigned a, b; };
struct alignas(16) Four { unsigned a, b, c, d; };
#define COPY(how, size, to, from) copy<size>(how, to, from)
#define CP(text) asm volatile("cp.async." text ";" :: "r"(at(to)), "l"(from))
template <int size> __device__ void copy(char how, void *to, const void *from) {
    if (size == 4) CP("ca.shared.global [%0], [%1], 4");
    if (size == 8) CP("ca.shared.global [%0], [%1], 8");
    if (size == 16 && how == 'a') CP("ca.shared::cta.global [%0], [%1], 16");
    if (size == 16 && how == 'g') CP("cg.shared.global.L2::128B [%0], [%1], 16");
}

extern "C" {
PLACES(places4, 'a', unsigned) PLACES(places8, 'a', Two) PLACES(places16, 'a', Four)
PLACES(places16g, 'g', Four)

__global__ void straight(const Four *x, Four *out) {
    __shared__ Four s[128];
    int t = threadIdx.x;
    COPY('g', 16, &s[t], x + t);
    WAIT_ALL(); __syncthreads();
    out[t] = s[127 - t];
}
__global__ void one_row(const unsigned *x, unsigned *out) {  // the same source for all lanes
    __shared__ unsigned s[128];
    int t = threadIdx.x;
    COPY('a', 4, &s[127 - t], x + 3);
    WAIT_ALL();
    out[t] = s[127 - t];
}
__global__ void zero_fill(const unsigned char *x, const int *sizes, unsigned *out) {
    __shared__ Four s[32];
    int t = threadIdx.x;
    s[t] = Four{~0u, ~0u, ~0u, ~0u};
    const void *from = sizes[t] ? x + 16 * t : nullptr;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at(&s[t])), "l"(from), "r"(sizes[t]));
    WAIT_ALL();
    ((Four *)out)[t] = s[t];
}
#define FIXED(n) asm volatile("cp.async.ca.shared.global [%0], [%1], 8, " #n ";" \
        :: "r"(at(&s[t])), "l"(x + t)); WAIT_ALL(); out[k] = s[t]; k += 32;
__global__ void fixed_fill(const Two *x, Two *out) {
    __shared__ Two s[32];
    int t = threadIdx.x, k = t;
    s[t] = Two{~0u, ~0u};
    FIXED(8) FIXED(5) FIXED(4) FIXED(1) FIXED(0)
}
__global__ void ignored(const unsigned *x, const int *ignore, unsigned *out) {
    __shared__ unsigned s[32];
    int t = threadIdx.x;
    s[t] = 7;
    const unsigned *from = ignore[t] ? nullptr : x + t;
    asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0;"
                 "cp.async.ca.shared.global [%0], [%1], 4, p;}"
                 :: "r"(at(&s[t])), "l"(from), "r"(ignore[t]));
    WAIT_ALL();
    out[t] = s[t];
}
__global__ void guarded(const unsigned *x, const int *yes, unsigned *out) {
    __shared__ unsigned s[32];
    int t = threadIdx.x;
    s[t] = 7;
    asm volatile("{.reg .pred p; .reg .b64 policy; setp.ne.s32 p, %2, 0;"
                 "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
                 "@p cp.async.ca.shared.global.L2::cache_hint [%0+0], [%1], 4, policy;}"
                 :: "r"(at(&s[t])), "l"(yes[t] ? x + t : nullptr), "r"(yes[t]));
    WAIT_ALL();
    out[t] = s[t];
}
__global__ void groups(const unsigned *x, unsigned *out) {
    __shared__ unsigned s[4][32];
    int t = threadIdx.x, k = t;
    for (int g = 0; g < 4; ++g) s[g][t] = 0;
    for (int g = 0; g < 3; ++g) { COPY('a', 4, &s[g][t], x + 32 * g + t); COMMIT(); }
    COPY('a', 4, &s[3][t], x + 96 + t);
#define SHOW() for (int g = 0; g < 4; ++g) { out[k] = s[g][t]; k += 32; }
    WAIT(2); SHOW() WAIT(0); SHOW() WAIT_ALL(); SHOW()
}
__global__ void own_groups(const unsigned *x, unsigned *out) {
    __shared__ unsigned s[2][32];
    int t = threadIdx.x;
    s[0][t] = s[1][t] = 0;
    COPY('a', 4, &s[0][t], x + t); COMMIT();
    if (t % 3 == 0) { COPY('a', 4, &s[1][t], x + 32 + t); COMMIT(); }
    WAIT(1);  // for the lanes with two groups the first one, for the others none
    out[t] = s[0][t]; out[32 + t] = s[1][t];
    if (t % 2) WAIT(0);
    out[64 + t] = s[0][t]; out[96 + t] = s[1][t];
}
__global__ void no_wait(const unsigned *x, unsigned *out) {
    __shared__ unsigned s[32];
    int t = threadIdx.x;
    s[t] = 7;
    COPY('a', 4, &s[t], x + t); COMMIT();
    __syncthreads();
    out[t] = s[t];
}
__global__ void many(const unsigned *x, unsigned *out, int n) {
    extern __shared__ unsigned s[];
    int t = threadIdx.x;
    for (int k = 0; k < n; ++k) { COPY('a', 4, &s[32 * k + t], x + 32 * k + t); COMMIT(); }
    WAIT(0);
    for (int k = 0; k < n; ++k) out[32 * k + t] = s[32 * k + t];
}
__global__ void blocks(const unsigned *x, unsigned *out) {  // nothing is left from block to block
    __shared__ unsigned s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = 0;
    if (blockIdx.x % 2) COPY('a', 4, &s[t], x + i); else COPY('a', 4, &s[t], x);
    COMMIT();
    if (blockIdx.x % 2) WAIT(0);
    __syncthreads();
    out[i] = s[63 - t];
}
__global__ void read_outside(const unsigned *x) {
    __shared__ unsigned s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], x + threadIdx.x, 4);
    WAIT_ALL();
}
__global__ void write_outside(const unsigned *x, int past) {
    __shared__ unsigned s[32];
    __pipeline_memcpy_async(&s[threadIdx.x] + past, x + threadIdx.x, 4);
    WAIT_ALL();
}
__global__ void misaligned(const unsigned *x, int more) {
    __shared__ Four s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], x + 4 * threadIdx.x + more, 16);
    WAIT_ALL();
}

// -- mbarrier
__global__ void phases(int *out) {
    __shared__ unsigned long long b;
    unsigned p = at(&b), done;
    unsigned long long state;
    int t = threadIdx.x, k = t;
#define TEST(s) asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2;" \
        "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(p), "l"(s) : "memory"); out[k] = done; k += 64;
#define PARITY(n) asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], " #n \
        "; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(p) : "memory"); out[k] = done; k += 64;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(p) : "memory");
    __syncthreads();
#define ARRIVE(how) asm volatile("mbarrier." how : "=l"(state) : "r"(p) : "memory");
    if (t < 32) ARRIVE("arrive.shared.b64 %0, [%1];")
    __syncthreads();
    PARITY(0) PARITY(1)
    if (t >= 32) ARRIVE("arrive.shared.b64 %0, [%1];")
    __syncthreads();
    TEST(state) PARITY(0) PARITY(1)
    unsigned pending;
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(state));
    out[k] = pending; k += 64;
    // The next phase: half leave for good, the other half arrive twice.
    if (t < 32) ARRIVE("arrive_drop.shared.b64 %0, [%1];")
    else ARRIVE("arrive.shared.b64 %0, [%1];")
    __syncthreads();
    PARITY(1)
    if (t == 40) ARRIVE("arrive.noComplete.shared.b64 %0, [%1], 31;")
    __syncthreads();
    PARITY(0)
    if (t == 41) ARRIVE("arrive.shared.b64 %0, [%1];")
    __syncthreads();
    PARITY(0)
    asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(p));
}
__global__ void without_increment(const unsigned *x, unsigned *out) {
    __shared__ unsigned s[64];
    __shared__ unsigned long long b;
    int t = threadIdx.x;
    unsigned p = at(&b), done = 0;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(p) : "memory");
    __syncthreads();
    COPY('a', 4, &s[t], x + t);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(p) : "memory");
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0;"
                     "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(p) : "memory");
    out[t] = s[63 - t];
}

// -- CUDA C++
__global__ void primitives(const float *x, float *out) {
    __shared__ alignas(16) float s[3][256];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[0][t], x + t, 4); __pipeline_commit();
    if (t < 64) __pipeline_memcpy_async(&s[1][4 * t], x + 4 * t, 16);
    __pipeline_commit();
    if (t < 128) __pipeline_memcpy_async(&s[2][2 * t], x + 2 * t, 8, 4);
    __pipeline_commit();
    __pipeline_wait_prior(2); __syncthreads();
    out[t] = s[0][255 - t];
    __pipeline_wait_prior(0); __syncthreads();
    out[256 + t] = s[1][255 - t]; out[512 + t] = s[2][255 - t];
}
__global__ void thread_pipeline(const float *x, float *out) {
    __shared__ float s[2][256];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[k][t], x + 256 * k + t, sizeof(float), pipe);
        pipe.producer_commit();
    }
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    out[t] = s[0][t]; pipe.consumer_release();
    pipe.consumer_wait();
    out[256 + t] = s[1][t]; pipe.consumer_release();
}
__global__ void block_pipeline(const float *x, float *out, int n) {
    __shared__ float s[2][256];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int i = 0, f = 0; i < n; ++i) {
        for (; f < n && f < i + 2; ++f) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[f % 2], x + 256 * f, cuda::aligned_size_t<16>(1024), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[256 * i + threadIdx.x] = s[i % 2][255 - threadIdx.x];
        pipe.consumer_release();
    }
}
__global__ void roles(const float *x, float *out, int n) {  // one warp copies, three compute
    __shared__ float s[2][96];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    bool copies = threadIdx.x < 32;
    auto role = copies ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    int t = threadIdx.x % 32;
    for (int i = 0; i < n; ++i) {
        if (copies) {
            pipe.producer_acquire();
            for (int k = 0; k < 96; k += 32)
                cuda::memcpy_async(&s[i % 2][k + t], x + 96 * i + k + t, 4, pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            out[96 * i + threadIdx.x - 32] = s[i % 2][127 - threadIdx.x];
            pipe.consumer_release();
        }
    }
}
__global__ void barrier_copy(const float *x, float *out) {
    __shared__ float s[256];
    __shared__ cuda::barrier<cuda::thread_scope_block> b;
    auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&b, block.size());
    block.sync();
    cuda::memcpy_async(block, s, x, 1024, b);
    b.arrive_and_wait();
    out[threadIdx.x] = s[255 - threadIdx.x];
    auto token = b.arrive();
    b.wait(std::move(token));
    if (threadIdx.x < 100) s[threadIdx.x] = -1;
    b.arrive_and_wait();
    out[256 + threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void group_copy(const float *x, float *out) {
    __shared__ float4 s[2][64];
    auto block = cg::this_thread_block();
    const float4 *from = (const float4 *)x;
    cg::memcpy_async(block, s[0], from, cuda::aligned_size_t<16>(1024));
    cg::memcpy_async(block, s[1], from + 64, cuda::aligned_size_t<16>(1024));
    cg::wait_prior<1>(block);
    out[threadIdx.x] = ((float *)s[0])[255 - threadIdx.x];
    cg::wait(block);
    out[256 + threadIdx.x] = ((float *)s[1])[255 - threadIdx.x];
}

// C = A B with tiles that arrive while the tile before is used: three stages.
__global__ void product(const float *A, const float *B, float *C, int n) {
    __shared__ alignas(16) float As[3][16][17 + 3], Bs[3][16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, tid = ty * 16 + tx;
    auto load = [&](int tile, int stage) {
        __pipeline_memcpy_async(&As[stage][ty][tx], &A[row * n + tile * 16 + tx], 4);
        if (tid < 64)
            __pipeline_memcpy_async(&Bs[stage][tid / 4][tid % 4 * 4],
                                    &B[(tile * 16 + tid / 4) * n + blockIdx.x * 16 + tid % 4 * 4],
                                    16);
    };
    int tiles = n / 16;
    float sum = 0;
    for (int k = 0; k < 2; ++k) { if (k < tiles) load(k, k); __pipeline_commit(); }
    for (int k = 0; k < tiles; ++k) {
        __pipeline_wait_prior(1);
        __syncthreads();
        if (k + 2 < tiles) load(k + 2, (k + 2) % 3);
        __pipeline_commit();
        for (int j = 0; j < 16; ++j) sum += As[k % 3][ty][j] * Bs[k % 3][j][tx];
    }
    C[row * n + blockIdx.x * 16 + tx] = sum;
}
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE, "-std=c++17"))


def words(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(1, 1 << 32, n, dtype=np.uint32)


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("cache", ["", "g"])
@pytest.mark.parametrize(("threads", "n"), [(128, 128), (40, 40), (96, 77), (32, 0)])
def test_copies_between_any_places(device, size, cache, threads, n):
    if cache and size < 16:
        cache = ""
    rng = np.random.default_rng(n)
    x = words(256 * size // 4).reshape(256, -1)
    source, target = (rng.permutation(256)[:threads].astype(np.int32) for _ in range(2))
    out = np.ones_like(x)
    device.launch(f"places{size}{cache}", 1, threads, x, source, target, out, np.int32(n))
    expected = np.zeros_like(x)
    expected[target[:n]] = x[source[:n]]
    np.testing.assert_array_equal(out, expected)


def test_neighbouring_lanes_copy_neighbouring_words(device):
    x = words(512)
    out = np.zeros_like(x)
    device.launch("straight", 1, 128, x, out)
    np.testing.assert_array_equal(out.reshape(128, 4), x.reshape(128, 4)[::-1])


def test_all_lanes_copy_the_same_word(device):
    x, out = words(4), np.zeros(128, np.uint32)
    device.launch("one_row", 1, 128, x, out)
    assert (out == x[3]).all()


def test_bytes_past_the_source_size_are_zeros(device):
    x = np.random.default_rng(1).integers(1, 256, (32, 16), dtype=np.uint8)
    sizes = np.array([0, 16, 4, 1, 15, 8, 12, 16] * 4, np.int32)
    out = np.ones((32, 4), np.uint32)
    device.launch("zero_fill", 1, 32, x, sizes, out)
    expected = np.where(np.arange(16) < sizes[:, None], x, 0)
    np.testing.assert_array_equal(out.view(np.uint8), expected)


def test_source_sizes_known_to_the_compiler(device):
    x = np.random.default_rng(1).integers(1, 256, (32, 8), dtype=np.uint8)
    out = np.ones((5, 32, 8), np.uint8)
    device.launch("fixed_fill", 1, 32, x, out)
    for k, n in enumerate((8, 5, 4, 1, 0)):
        np.testing.assert_array_equal(out[k], np.where(np.arange(8) < n, x, 0))


@pytest.mark.engine
def test_only_bytes_that_are_read_must_exist(device):
    sizes = np.full(32, 16, np.int32)
    sizes[-1] = 8
    x = np.ones(31 * 16 + 8, np.uint8)
    device.launch("zero_fill", 1, 32, x, sizes, np.zeros(128, np.uint32))
    with pytest.raises(simt.Fault) as caught:
        device.launch("zero_fill", 1, 32, x[:-1].copy(), sizes, np.zeros(128, np.uint32))
    assert caught.value.thread == (31, 0, 0)


def test_an_ignored_source_gives_zeros(device):
    x, out = words(32), np.ones(32, np.uint32)
    ignore = (np.arange(32) % 3 == 0).astype(np.int32)
    device.launch("ignored", 1, 32, x, ignore, out)
    np.testing.assert_array_equal(out, np.where(ignore, 0, x))


def test_a_guarded_copy_with_a_cache_policy(device):
    x, out = words(32), np.ones(32, np.uint32)
    yes = (np.arange(32) % 5 < 2).astype(np.int32)
    device.launch("guarded", 1, 32, x, yes, out)
    np.testing.assert_array_equal(out, np.where(yes, x, 7))


@pytest.mark.engine
def test_waiting_for_a_group_completes_it_and_all_before_it(device):
    """And none after it: what has not been waited for is not there yet."""
    x, out = words(128).reshape(4, 32), np.ones((3, 4, 32), np.uint32)
    device.launch("groups", 1, 32, x, out)
    for shown, there in zip(out, (1, 3, 4), strict=True):
        np.testing.assert_array_equal(shown[:there], x[:there])
        assert not shown[there:].any()


@pytest.mark.engine
def test_each_thread_counts_its_own_groups(device):
    x, out = words(64).reshape(2, 32), np.ones((2, 2, 32), np.uint32)
    device.launch("own_groups", 1, 32, x, out)
    third, odd = np.arange(32) % 3 == 0, np.arange(32) % 2 == 1
    np.testing.assert_array_equal(out[0, 0], np.where(third, x[0], 0))
    assert not out[0, 1].any()
    np.testing.assert_array_equal(out[1, 0], np.where(third | odd, x[0], 0))
    np.testing.assert_array_equal(out[1, 1], np.where(third & odd, x[1], 0))


@pytest.mark.engine
def test_without_a_wait_old_data_is_read(device):
    out = np.zeros(32, np.uint32)
    device.launch("no_wait", 1, 32, words(32), out)
    assert (out == 7).all()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_any_number_of_copies_may_be_under_way(device, n):
    x, out = words(32 * n), np.zeros(32 * n, np.uint32)
    device.launch("many", 1, 32, x, out, np.int32(n), shared_bytes=128 * n)
    np.testing.assert_array_equal(out, x)


def test_copies_nobody_waited_for_end_with_their_block(device):
    x, out = words(64 * 20), np.ones((20, 64), np.uint32)
    device.launch("blocks", 20, 64, x, out)
    expected = x.reshape(20, 64)[:, ::-1].copy()
    expected[::2] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("kernel", "arguments", "kind", "said"),
    [
        ("read_outside", (words(31),), "out of bounds", "read of 4 bytes of global memory"),
        ("write_outside", (words(32), np.int32(1)), "out of bounds", "write of 4 bytes of shared"),
        ("misaligned", (words(256), np.int32(2)), "misaligned", "read of 16 bytes of global"),
    ],
)
@pytest.mark.engine
def test_addresses_are_checked_where_the_copy_starts(device, kernel, arguments, kind, said):
    with pytest.raises(simt.Fault) as caught:
        device.launch(kernel, 1, 32, *arguments)
    fault = caught.value
    assert fault.kind == kind and said in str(fault) and fault.kernel == kernel
    assert fault.thread == ((0, 0, 0) if kind == "misaligned" else (31, 0, 0))
    assert (
        fault.line
        == next(n for n, text in enumerate(SOURCE.splitlines(), 1) if f"void {kernel}(" in text) + 2
    )


# -- mbarrier ----------------------------------------


def test_phases_of_an_mbarrier(device):
    out = np.full((9, 64), -1, np.int32)
    device.launch("phases", 1, 64, out)
    expected = [0, 1, 1, 1, 0, None, 1, 0, 1]
    for k, value in enumerate(expected):
        if value is not None:
            assert (out[k] == value).all(), (k, out[k])
    # Arrivals still missing before each one: in any order, and a GPU may count a warp's at once.
    assert out[5].max() == 64 and out[5].min() >= 1


def test_an_mbarrier_completes_when_all_copies_have(device):
    x, out = words(64), np.zeros(64, np.uint32)
    device.launch("without_increment", 1, 64, x, out)
    np.testing.assert_array_equal(out, x[::-1])


# -- CUDA C++ ----------------------------------------


def test_pipeline_primitives(device):
    x, out = np.arange(1, 257, dtype=np.float32), np.zeros((3, 256), np.float32)
    device.launch("primitives", 1, 256, x, out)
    np.testing.assert_array_equal(out[:2], [x[::-1]] * 2)
    filled = np.where(np.arange(256) % 2 == 0, x, 0)  # 4 of each 8 bytes are zeros
    np.testing.assert_array_equal(out[2], filled[::-1])


@pytest.mark.parametrize(
    ("kernel", "backwards"),
    [("thread_pipeline", False), ("block_pipeline", True), ("group_copy", True)],
)
def test_pipelines(device, kernel, backwards):
    n = 7 if kernel == "block_pipeline" else 2
    x = np.arange(256 * n, dtype=np.float32).reshape(n, 256)
    out = np.zeros_like(x)
    more = (np.int32(n),) if n == 7 else ()
    device.launch(kernel, 1, 256, x, out, *more)
    np.testing.assert_array_equal(out, x[:, ::-1] if backwards else x)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_pipeline_with_warps_that_copy_and_warps_that_compute(device, n):
    x = np.arange(96 * n, dtype=np.float32).reshape(n, 96)
    out = np.zeros_like(x)
    device.launch("roles", 1, 128, x, out, np.int32(n))
    np.testing.assert_array_equal(out, x[:, ::-1])


def test_a_barrier_that_waits_for_a_copy(device):
    x, out = np.arange(256, dtype=np.float32), np.zeros((2, 256), np.float32)
    device.launch("barrier_copy", 1, 256, x, out)
    np.testing.assert_array_equal(out[0], x[::-1])
    np.testing.assert_array_equal(out[1], np.where(np.arange(256) < 100, -1, x)[::-1])


def test_a_product_in_three_stages(device):
    n = 80
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 10, (n, n)).astype(np.float32) for _ in range(2))
    out = np.zeros_like(a)
    device.launch("product", (n // 16, n // 16), (16, 16), a, b, out, np.int32(n))
    np.testing.assert_array_equal(out, a @ b)
