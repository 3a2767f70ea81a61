"""Barriers beyond __syncthreads(): votes, numbered barriers, producers and consumers."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

SOURCE = r"""
__device__ __forceinline__ void sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory");
}
__device__ __forceinline__ void arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory");
}
extern "C" {
__global__ void votes(const int *x, int *count, int *all, int *any) {
    int t = threadIdx.x;
    count[t] = __syncthreads_count(x[t] > 5);
    all[t] = __syncthreads_and(x[t] >= 0);
    any[t] = __syncthreads_or(x[t] > 98);
    for (int i = 0; i < 3; ++i) count[t] += 1000 * __syncthreads_count(x[t] == i);
}
__global__ void halves(int *out) {
    __shared__ int s[128];
    int t = threadIdx.x, half = t / 64;
    s[t] = t;
    for (int i = 0; i < 5; ++i) {
        sync(1 + half, 64);
        int v = s[half * 64 + (t + 33) % 64];
        sync(1 + half, 64);
        s[t] = v + 1;
    }
    __syncthreads();
    out[t] = s[127 - t];
}
__global__ void producer_and_consumer(const int *x, int *out, int n) {
    __shared__ int box[32];
    int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int i = 0; i < n; ++i) {
            sync(1, 64);                    // empty
            box[lane] = x[32 * i + lane];
            arrive(2, 64);                  // full
        }
    } else {
        int sum = 0;
        arrive(1, 64);
        for (int i = 0; i < n; ++i) {
            sync(2, 64);
            sum = sum * 3 + box[31 - lane];
            if (i + 1 < n) arrive(1, 64);
        }
        out[lane] = sum;
    }
}
__global__ void one_warp_too_few(int *x) {
    if (threadIdx.x < 64) sync(3, 96);
    x[threadIdx.x] = 1;
}
__global__ void some_have_ended(int *x, int n) {
    if (threadIdx.x >= n) return;
    x[threadIdx.x] = __syncthreads_count(1);
}
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE))


def test_barriers_that_vote(device):
    x = np.random.default_rng(0).integers(0, 99, 96, dtype=np.int32)
    count, all_, any_ = (np.zeros(96, np.int32) for _ in range(3))
    device.launch("votes", 2, 96, x, count, all_, any_)
    assert set(count) == {(x > 5).sum() + 1000 * sum((x == i).sum() for i in range(3))}
    assert set(all_) == {1} and set(any_) == {0}
    x[77] = 99
    device.launch("votes", 1, 96, x, count, all_, any_)
    assert set(any_) == {1}
    x[3] = -1
    device.launch("votes", 1, 96, x, count, all_, any_)
    assert set(all_) == {0}


def test_two_halves_of_a_block_with_barriers_of_their_own(device):
    out = np.zeros(128, np.int32)
    device.launch("halves", 1, 128, out)
    s = np.arange(128)
    for _ in range(5):
        s = np.concatenate([h[(np.arange(64) + 33) % 64] + 1 for h in (s[:64], s[64:])])
    np.testing.assert_array_equal(out, s[::-1])


def test_a_producer_warp_and_a_consumer_warp(device):
    x = np.random.default_rng(1).integers(0, 99, (9, 32), dtype=np.int32)
    out = np.zeros(32, np.int32)
    device.launch("producer_and_consumer", 1, 64, x, out, np.int32(9))
    total = np.zeros(32, np.int64)
    for row in x:
        total = total * 3 + row[::-1]
    np.testing.assert_array_equal(out, total.astype(np.int32))


@pytest.mark.engine
def test_a_barrier_that_never_gets_its_threads_is_a_deadlock(device):
    with pytest.raises(simt.Fault) as caught:
        device.launch("one_warp_too_few", 1, 96, np.zeros(96, np.int32))
    assert caught.value.kind == "deadlock" and "2 warps" in str(caught.value)


@pytest.mark.engine
def test_blocks_that_are_all_stuck_at_barriers_all_end(device):
    """The first one that is found stops the others, none of whose warps would run again."""
    for _ in range(5):
        with pytest.raises(simt.Fault) as caught:
            device.launch("one_warp_too_few", 64, 96, np.zeros(96, np.int32))
        assert caught.value.kind == "deadlock"


def test_threads_that_have_ended_do_not_vote(device):
    x = np.zeros(96, np.int32)
    device.launch("some_have_ended", 1, 96, x, np.int32(40))
    assert list(x) == [40] * 40 + [0] * 56
