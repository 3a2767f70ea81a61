"""Warps and blocks that wait for one another by polling memory."""

from __future__ import annotations

import time

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

SOURCE = r"""
extern "C" {
__global__ void warp_waits_for_a_later_warp(int *out) {
    __shared__ volatile int flag, value;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x >= 96) {
        int sum = 0;
        for (int i = 0; i < 1000; ++i) sum += i * (threadIdx.x - 95) % 7;
        if (threadIdx.x == 96) { value = sum; __threadfence_block(); flag = 1; }
    } else {
        while (flag == 0) { }
        __threadfence_block();
        out[threadIdx.x] = value;
    }
}
__global__ void block_waits_for_the_next(volatile int *flags, int *out) {
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        if (b + 1 < gridDim.x) while (flags[b + 1] == 0) { }
        out[b] = b + 1 < gridDim.x ? out[b + 1] + b : b;
        __threadfence();
        flags[b] = 1;
    }
}
__global__ void locked(int *lock, int *total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) { }
        int seen = *(volatile int *)total;
        __threadfence();
        *(volatile int *)total = seen + blockIdx.x;
        __threadfence();
        atomicExch(lock, 0);
    }
}
__global__ void each_lane_takes_the_lock(int *lock, int *total) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *(volatile int *)total += threadIdx.x;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
__global__ void nobody_sets_it(volatile int *flag, int *out) {
    if (threadIdx.x == 33) while (*flag == 0) { }
    __syncthreads();
    out[0] = 1;
}
__global__ void counts_in_memory(int *x, int n) {
    while (atomicAdd(x, 1) < n) { }
}
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE))


def test_a_warp_may_spin_on_a_flag_of_a_later_warp(device):
    out = np.zeros(96, np.int32)
    device.launch("warp_waits_for_a_later_warp", 1, 128, out)
    assert set(out) == {sum(i % 7 for i in range(1000))}


@pytest.mark.parametrize("blocks", [2, 7, 132])
def test_blocks_may_spin_on_flags_of_later_blocks_that_a_gpu_holds_at_once(device, blocks):
    flags, out = np.zeros(blocks, np.int32), np.zeros(blocks, np.int32)
    device.launch("block_waits_for_the_next", blocks, 64, flags, out)
    np.testing.assert_array_equal(out, np.arange(blocks)[::-1].cumsum()[::-1])


def test_a_lock_between_blocks(device):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    device.launch("locked", 200, 32, lock, total)
    assert total[0] == 199 * 200 // 2


def test_a_lock_between_lanes(device):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    device.launch("each_lane_takes_the_lock", 3, 64, lock, total)
    assert total[0] == 3 * 63 * 64 // 2


@pytest.mark.engine
def test_a_deadlock_is_reported_with_the_line_that_waits(device):
    line = SOURCE.split("threadIdx.x == 33")[0].count("\n") + 1
    start = time.monotonic()
    with pytest.raises(simt.Fault) as caught:
        device.launch("nobody_sets_it", 3, 64, np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert (caught.value.kind, caught.value.line) == ("deadlock", line)
    assert caught.value.thread[0] == 33
    assert time.monotonic() - start < 10


def test_a_loop_whose_only_progress_is_in_memory_is_no_deadlock(device):
    x = np.zeros(1, np.int32)
    device.launch("counts_in_memory", 1, 64, x, np.int32(2_000_000))
    assert x[0] >= 2_000_000
