"""What students include: CUB, Thrust, libcu++, cooperative groups, half and eighth-byte floats.

Their headers are the toolkit's own; the code they make has forms that plain kernels have not.
"""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/mdspan>
#include <cuda/std/tuple>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void
#define T threadIdx.x
template <class Block, class V> __device__ void four(V *x, void (*f)(Block, V (&)[4])) {
    __shared__ typename Block::TempStorage space;
    V v[4];
    for (int i = 0; i < 4; ++i) v[i] = x[4 * T + i];
    f(Block(space), v);
    for (int i = 0; i < 4; ++i) x[4 * T + i] = v[i];
}
using Reduce = cub::BlockReduce<float, 128>;
using Scan = cub::BlockScan<int, 128>;
using RadixSort = cub::BlockRadixSort<unsigned, 128, 4>;
using MergeSort = cub::BlockMergeSort<int, 128, 4>;
using Exchange = cub::BlockExchange<int, 128, 4>;
using Histogram = cub::BlockHistogram<unsigned char, 128, 4, 256>;
KERNEL block_reduce(const float *x, float *sums) {
    __shared__ Reduce::TempStorage space;
    float sum = Reduce(space).Sum(x[blockIdx.x * 128 + T]);
    if (T == 0) sums[blockIdx.x] = sum;
}
KERNEL block_scan(int *x) {
    __shared__ Scan::TempStorage space;
    int v = x[T];
    Scan(space).ExclusiveSum(v, v);
    x[T] = v;
}
KERNEL radix_sort(unsigned *x) {
    four<RadixSort>(x, +[](RadixSort block, unsigned (&v)[4]) { block.Sort(v); });
}
struct Less { __device__ bool operator()(int a, int b) const { return a < b; } };
KERNEL merge_sort(int *x) {
    four<MergeSort>(x, +[](MergeSort block, int (&v)[4]) { block.Sort(v, Less()); });
}
KERNEL exchange(int *x) {
    four<Exchange>(x, +[](Exchange block, int (&v)[4]) { block.BlockedToStriped(v); });
}
KERNEL histogram(const unsigned char *x, unsigned *counts) {
    __shared__ Histogram::TempStorage space;
    __shared__ unsigned s[256];
    unsigned char v[4];
    for (int i = 0; i < 4; ++i) v[i] = x[4 * T + i];
    Histogram(space).Histogram(v, s);
    __syncthreads();
    for (int i = T; i < 256; i += 128) counts[i] = s[i];
}
KERNEL thrust_sort(int *x, int n) { thrust::sort(thrust::seq, x + T * n, x + (T + 1) * n); }
KERNEL atomics(int *x) {
    cuda::atomic_ref<int, cuda::thread_scope_device> a(x[0]), b(x[1]);
    a.fetch_add(T, cuda::memory_order_relaxed);
    b.fetch_max(T * 7 % 64);
}
KERNEL barriers(int *x) {
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    __shared__ int s[128];
    if (T == 0) init(&ready, blockDim.x);
    __syncthreads();
    for (int k = 0; k < 3; ++k) {
        s[T] = x[T] + k;
        ready.arrive_and_wait();
        x[T] = s[(T + 1) % blockDim.x];
        ready.arrive_and_wait();
    }
}
KERNEL complex_numbers(float *x) {
    cuda::std::complex<float> z(x[2 * T], x[2 * T + 1]);
    z = z * z + cuda::std::complex<float>(1, 2);
    x[2 * T] = z.real();
    x[2 * T + 1] = z.imag();
}
KERNEL group_scan(int *x) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    int v = cg::inclusive_scan(tile, x[T]);
    if (T % 3 == 0) v += 10000 * cg::coalesced_threads().thread_rank();
    x[T] = v;
}
KERNEL transposed(const float *from, float *to, int rows, int columns) {
    using Shape = cuda::std::dextents<int, 2>;
    cuda::std::mdspan<const float, Shape> a(from, rows, columns);
    cuda::std::mdspan<float, Shape> b(to, columns, rows);
    for (int row = 0; row < rows; ++row)
        for (int k = T; k < columns; k += blockDim.x) b(k, row) = a(row, k);
}
KERNEL bits(unsigned *x) {
    unsigned v = x[T];
    auto [ones, turned] = cuda::std::make_tuple(cuda::std::popcount(v), cuda::std::rotl(v, 5));
    x[T] = ones ^ turned ^ cuda::std::countl_zero(v);
}
struct Shape { int k; __device__ virtual int area(int x) const { return x; } };
struct Square : Shape { __device__ int area(int x) const override { return x * k; } };
KERNEL virtual_functions(int *x) {
    Square square; square.k = 3;
    Shape shape; shape.k = 0;
    const Shape *which = x[T] & 1 ? &square : &shape;
    x[T] = which->area(x[T]);
}
KERNEL wide_product(__int128 *x) { x[T] = x[T] * x[T + 32]; }
KERNEL wide_quotient(__int128 *x) { x[T] = x[T] / x[T + 32]; }
KERNEL wide_remainder(unsigned __int128 *x) { x[T] = x[T] % x[T + 32]; }
KERNEL halves(const float *x, float *out) {
    __half a = __float2half(x[T]);
    __nv_bfloat16 b = __float2bfloat16(x[T]);
    out[3 * T] = __half2float(hsqrt(__habs(a)));
    out[3 * T + 1] = __half2float(a * a);
    out[3 * T + 2] = __bfloat162float(b * b);
}
KERNEL eighths(const float *x, float *out) {
    out[2 * T] = float(__nv_fp8_e4m3(x[T]));
    out[2 * T + 1] = float(__nv_fp8_e5m2(x[T]));
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE, "-std=c++17"))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


def test_block_reduce(device, random):
    x, sums = random.standard_normal((3, 128), dtype=np.float32), np.zeros(3, np.float32)
    device.launch("block_reduce", 3, 128, x, sums)
    exact = x.sum(1, dtype=np.float64)
    assert (abs(sums - exact) <= 128 * 2.0**-24 * abs(x).sum(1)).all()


def test_block_scan(device, random):
    x = random.integers(-99, 99, 128, dtype=np.int32)
    expected = np.cumsum(x) - x
    device.launch("block_scan", 1, 128, x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("name, dtype", [("radix_sort", np.uint32), ("merge_sort", np.int32)])
def test_sorts_of_a_block(device, random, name, dtype):
    bounds = np.iinfo(dtype)
    x = random.integers(bounds.min, bounds.max, 512, dtype=dtype, endpoint=True)
    expected = np.sort(x)
    device.launch(name, 1, 128, x)
    np.testing.assert_array_equal(x, expected)


def test_exchange(device):
    x = np.arange(512, dtype=np.int32)
    device.launch("exchange", 1, 128, x)
    np.testing.assert_array_equal(x.reshape(128, 4), np.arange(512).reshape(4, 128).T)


def test_histogram(device, random):
    x, counts = random.integers(0, 256, 512, dtype=np.uint8), np.zeros(256, np.uint32)
    device.launch("histogram", 1, 128, x, counts)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


def test_each_thread_sorts_a_row_with_thrust(device, random):
    x = random.integers(-500, 500, (32, 37), dtype=np.int32)
    expected = np.sort(x)
    device.launch("thrust_sort", 1, 32, x, np.int32(37))
    np.testing.assert_array_equal(x, expected)


def test_atomic_ref(device):
    x = np.zeros(2, np.int32)
    device.launch("atomics", 3, 100, x)
    assert list(x) == [3 * 4950, 63]


def test_barrier_objects(device, random):
    x = random.integers(0, 99, 128, dtype=np.int32)
    expected = x
    for k in range(3):
        expected = np.roll(expected + k, -1)
    device.launch("barriers", 1, 128, x)
    np.testing.assert_array_equal(x, expected)


def test_complex_numbers(device, random):
    x = random.standard_normal(64, dtype=np.float32)
    z = x.view(np.complex64).astype(np.complex128)
    device.launch("complex_numbers", 1, 32, x)
    np.testing.assert_allclose(x.view(np.complex64), z * z + (1 + 2j), rtol=1e-5)


def test_scan_of_a_tile_and_a_coalesced_group(device, random):
    x = random.integers(0, 99, 64, dtype=np.int32)
    expected = np.cumsum(x.reshape(4, 16), axis=1).ravel()
    for t in range(0, 64, 3):
        expected[t] += 10000 * sum(s % 3 == 0 for s in range(t // 32 * 32, t))
    device.launch("group_scan", 1, 64, x)
    np.testing.assert_array_equal(x, expected)


def test_mdspan(device, random):
    a = random.standard_normal((13, 7), dtype=np.float32)
    b = np.zeros((7, 13), np.float32)
    device.launch("transposed", 1, 32, a, b, np.int32(13), np.int32(7))
    np.testing.assert_array_equal(b, a.T)


def test_bits_and_tuples(device, random):
    x = random.integers(0, 2**32, 64, dtype=np.uint32)
    x[:2] = 0, 2**32 - 1
    words = x.tolist()
    device.launch("bits", 1, 64, x)
    assert x.tolist() == [
        v.bit_count() ^ (v << 5 | v >> 27) & 0xFFFFFFFF ^ 32 - v.bit_length() for v in words
    ]


def test_virtual_functions(device):
    x = np.arange(64, dtype=np.int32)
    device.launch("virtual_functions", 1, 64, x)
    assert list(x) == [3 * v if v % 2 else v for v in range(64)]


def integers_of(x: np.ndarray, signed: bool) -> list[int]:
    """Integers of 128 bits."""
    return [int.from_bytes(v.tobytes(), "little", signed=signed) for v in x.reshape(-1, 2)]


@pytest.mark.parametrize("name", ["wide_product", "wide_quotient", "wide_remainder"])
def test_integers_of_128_bits(device, random, name):
    """nvcc's division reads the carry of an addition after a subtraction."""
    signed = name != "wide_remainder"
    x = random.integers(0, 2**64, 128, dtype=np.uint64)
    x[65::2] >>= random.integers(0, 64, 32, dtype=np.uint64)  # divisors of every length
    x[85::4], x[93:113:2] = 0, 0
    both = integers_of(x, signed)
    device.launch(name, 1, 32, x)
    for a, b, got in zip(both[:32], both[32:], integers_of(x[:64], signed), strict=True):
        if name == "wide_product":
            expected = int.from_bytes(
                (a * b % 2**128).to_bytes(16, "little"), "little", signed=True
            )
        elif name == "wide_quotient":
            expected = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        else:
            expected = a % b
        assert got == expected, (a, b)


def bfloat(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 to each float, ties to even, as a float."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def test_half_types(device, random):
    x = (random.standard_normal(64) * 50).astype(np.float32)
    out = np.zeros((64, 3), np.float32)
    device.launch("halves", 1, 64, x, out)
    half = x.astype(np.float16)
    np.testing.assert_array_equal(out[:, 0], np.sqrt(abs(half)).astype(np.float32))
    np.testing.assert_array_equal(out[:, 1], (half * half).astype(np.float32))
    np.testing.assert_array_equal(out[:, 2], bfloat(bfloat(x) * bfloat(x)))


def eighth(v: float, digits: int, smallest: int, largest: float) -> float:
    """The nearest number of that many digits, ties to even, clamped to +-largest (OCP OFP8)."""
    exponent = max(int(np.floor(np.log2(abs(v)))), smallest)
    unit = 2.0 ** (exponent - digits + 1)
    return float(np.copysign(min(abs(np.round(v / unit)) * unit, largest), v))


def test_floats_of_eight_bits(device, random):
    x = (random.standard_normal(64) * np.exp(random.uniform(-12, 12, 64))).astype(np.float32)
    out = np.zeros((64, 2), np.float32)
    device.launch("eighths", 1, 64, x, out)
    assert list(out[:, 0]) == [eighth(v, 4, -6, 448.0) for v in x.tolist()]
    assert list(out[:, 1]) == [eighth(v, 3, -14, 57344.0) for v in x.tolist()]
