"""Programs, found by fuzzing or made smaller by hand, that the engine once got wrong."""

from __future__ import annotations

import numpy as np
from engine import Device, ptx_of

from tests.fuzz.campaign import try_programs

SOURCE = r"""
extern "C" {
__global__ void left_neighbours(const int *a, int *out, int n) {
    unsigned t = threadIdx.x, sum = 0;
    for (int k = 0; k < n; ++k)
        if (t >= 5u) sum += a[t - 5u] * k;  // t - 5u is widened before the loop, for all lanes
    out[t] = sum;
}
}
static __device__ __noinline__ int descend(short a, unsigned char b, int k) {
    if (k <= 0) return a * 3 + b;
    return descend(a + 1, b + 1, k - 1) + a;
}
extern "C" __global__ void small_arguments(int *out, int n) {
    out[threadIdx.x] = descend((short)(threadIdx.x * 2000), (unsigned char)(threadIdx.x * 9), n);
}
"""


def test_an_unsigned_index_that_wraps_only_in_lanes_that_do_not_use_it():
    a, out = np.arange(100, 164, dtype=np.int32), np.zeros(64, np.int32)
    Device(ptx_of(SOURCE)).launch("left_neighbours", 1, 64, a, out, np.int32(4))
    np.testing.assert_array_equal(out, [6 * a[t - 5] if t >= 5 else 0 for t in range(64)])


def test_a_recursive_function_takes_short_and_char_arguments():
    out = np.zeros(32, np.int32)
    Device(ptx_of(SOURCE)).launch("small_arguments", 1, 32, out, np.int32(3))

    def short(v: int) -> int:
        return (v + 0x8000) % 0x10000 - 0x8000

    def descend(a: int, b: int, k: int) -> int:
        return a * 3 + b if k <= 0 else descend(short(a + 1), (b + 1) % 256, k - 1) + a

    expected = [descend(short(2000 * t), 9 * t % 256, 3) for t in range(32)]
    np.testing.assert_array_equal(out, expected)


def test_random_programs_that_once_failed():
    """204: lanes that return while others wait. 211: a branch whose join has a region of its own.

    4, 5: unsigned indices below zero. 213, 232, 249, 265: barriers after recursion.
    """
    assert try_programs([4, 5, 204, 211, 213, 232, 249, 265], 1) == []
