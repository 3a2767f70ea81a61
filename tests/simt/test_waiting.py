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
__global__ void each_lane_takes_it_in_a_loop_of_its_own(int *lock, int *total) {
    while (atomicCAS(lock, 0, 1) != 0) { }
    *(volatile int *)total += threadIdx.x;
    __threadfence();
    atomicExch(lock, 0);
}
__global__ void lets_go_by_a_store(int *lock, int *total) {
    bool mine;
    do {
        mine = atomicCAS(lock, 0, 1) == 0;
        if (!mine) __nanosleep(10);
    } while (!mine);
    *(volatile int *)total += threadIdx.x;
    __threadfence();
    *(volatile int *)lock = 0;
}
__global__ void a_lock_for_each_bin(int *locks, int *bins, const int *x, int n) {
    for (int k = threadIdx.x; k < n; k += blockDim.x) {
        int b = x[k] % 5;
        while (atomicCAS(&locks[b], 0, 1)) { }
        volatile int *bin = bins + b;
        *bin = *bin * 3 % 1000003 + 1;
        __threadfence();
        atomicExch(&locks[b], 0);
    }
}
__global__ void a_lock_between_barriers(int *out, int n) {
    __shared__ int lock, sum;
    if (threadIdx.x == 0) lock = sum = 0;
    __syncthreads();
    for (int k = 0; k < n; ++k) {
        while (atomicCAS(&lock, 0, 1) != 0) { }
        volatile int *p = &sum;
        *p = *p + threadIdx.x;
        __threadfence_block();
        atomicExch(&lock, 0);
        __syncthreads();
        out[threadIdx.x] = out[threadIdx.x] * 2 % 10007 + sum;
        __syncthreads();
    }
}
__global__ void tickets(int *next, volatile int *now, volatile int *sum) {
    int mine = atomicAdd(next, 1);
    while (*now != mine) { }
    *sum = *sum * 2 % 10007 + mine;
    __threadfence();
    *now = mine + 1;
}
__global__ void arms_wait_for_each_other(int *out) {
    __shared__ volatile int there, back;
    if (threadIdx.x == 0) there = back = 0;
    __syncthreads();
    int v;
    if (threadIdx.x % 2 == 0) {
        while (there == 0) { }
        v = there;
        if (threadIdx.x == 4) back = 7;
    } else {
        if (threadIdx.x == 5) there = 3;
        while (back == 0) { }
        v = back * 2;
    }
    out[threadIdx.x] = v;
}
__global__ void set_after_the_arms_join(volatile int *flag, int *out) {
    int t = threadIdx.x, v = 1;
    if (t == 3) {
        while (*flag == 0) { }
        v = *flag;
    }
    v += t;
    if (t == 20) *flag = 100;
    out[t] = v;
}
__global__ void one_waits_for_all(volatile int *flag, int *out) {
    int t = threadIdx.x, v = 0;
    if (t < 32) {
        if (t == 0) {
            while (*flag == 0) { }
            v = *flag;
        }
        v = __shfl_sync(0xffffffff, v, 0);
        out[t] = v + t;
    } else if (t == 40) *flag = 55;
}
__global__ void syncwarp_in_both_arms(int *out, int n) {
    __shared__ int a[16], b[16];
    int t = threadIdx.x, v = 0;
    if (t < 16) {
        for (int k = 0; k < n; ++k) {
            a[t] = v + 1 + t;
            __syncwarp();
            v += b[t];
            __syncwarp();
        }
    } else {
        for (int k = 0; k < n; ++k) {
            b[t - 16] = v + 2 * t;
            __syncwarp();
            v += a[t - 16] + 1;
            __syncwarp();
        }
    }
    out[t] = v;
}
__global__ void both_locks(int *locks, int *out) {  // taken in different orders
    int first = threadIdx.x % 2;
    while (atomicCAS(&locks[first], 0, 1)) { }
    while (atomicCAS(&locks[1 - first], 0, 1)) { }
    out[threadIdx.x] = 1;
    atomicExch(&locks[1 - first], 0);
    atomicExch(&locks[first], 0);
}
__global__ void largest(float *x, const float *a) {  // retries, but does not wait
    int *p = (int *)x, old = *p, seen;
    do {
        seen = old;
        old = atomicCAS(p, seen, __float_as_int(fmaxf(a[threadIdx.x], __int_as_float(seen))));
    } while (old != seen);
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


@pytest.mark.parametrize(
    "kernel", ["each_lane_takes_it_in_a_loop_of_its_own", "lets_go_by_a_store"]
)
def test_a_lock_that_each_lane_waits_for(device, kernel):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    device.launch(kernel, 5, 64, lock, total)
    assert (total[0], lock[0]) == (5 * 63 * 64 // 2, 0)


def test_several_locks_taken_in_a_loop(device):
    x = np.random.default_rng(0).integers(0, 99, 500, dtype=np.int32)
    bins = np.zeros(5, np.int32)
    device.launch("a_lock_for_each_bin", 1, 64, np.zeros(5, np.int32), bins, x, np.int32(500))

    def times(n: int) -> int:
        value = 0
        for _ in range(n):
            value = value * 3 % 1000003 + 1
        return value

    assert list(bins) == [times((x % 5 == b).sum()) for b in range(5)]


def test_a_lock_between_barriers(device):
    out = np.zeros(96, np.int32)
    device.launch("a_lock_between_barriers", 1, 96, out, np.int32(4))
    expected, each = 0, 95 * 96 // 2
    for k in range(4):
        expected = expected * 2 % 10007 + each * (k + 1)
    assert set(out) == {expected}


def test_tickets_are_served_in_order(device):
    total = np.zeros(1, np.int32)
    device.launch("tickets", 2, 64, np.zeros(1, np.int32), np.zeros(1, np.int32), total)
    expected = 0
    for k in range(128):
        expected = (expected * 2 % 10007) + k
    assert total[0] == expected


def test_lanes_in_two_arms_wait_for_each_other(device):
    out = np.zeros(64, np.int32)
    device.launch("arms_wait_for_each_other", 1, 64, out)
    assert list(out) == [3, 14] * 32


def test_a_lane_waits_for_one_that_is_further_on(device):
    out = np.zeros(32, np.int32)
    device.launch("set_after_the_arms_join", 1, 32, np.zeros(1, np.int32), out)
    assert list(out) == [t + (100 if t == 3 else 1) for t in range(32)]


def test_lanes_meet_again_after_one_has_waited(device):
    out = np.zeros(32, np.int32)
    device.launch("one_waits_for_all", 1, 64, np.zeros(1, np.int32), out)
    assert list(out) == [55 + t for t in range(32)]


def test_syncwarp_in_both_arms_of_a_branch(device):
    out = np.zeros(32, np.int32)
    device.launch("syncwarp_in_both_arms", 1, 32, out, np.int32(5))
    low, high = np.zeros(16, int), np.zeros(16, int)
    for _ in range(5):
        a, b = low + 1 + np.arange(16), high + 2 * np.arange(16, 32)
        low, high = low + b, high + a + 1
    np.testing.assert_array_equal(out, [*low, *high])


@pytest.mark.engine
def test_two_locks_in_different_orders_are_a_deadlock(device):
    with pytest.raises(simt.Fault) as caught:
        device.launch("both_locks", 1, 32, np.zeros(2, np.int32), np.zeros(32, np.int32))
    assert caught.value.kind == "deadlock"


def test_lanes_that_retry_a_compare_and_swap(device):
    a = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    x = np.full(1, -100, np.float32)
    device.launch("largest", 1, 64, x, a)
    assert x[0] == a.max()


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


@pytest.mark.engine
@pytest.mark.parametrize("body", ["while (1);", "while (1) a[0] += 1;", "for (;;) if (!a) return;"])
def test_an_endless_loop_without_any_instruction_is_a_deadlock(body):
    source = f'extern "C" __global__ void forever(int *a) {{ {body} }}\n'
    with pytest.raises(simt.Fault, match="deadlock") as caught:
        Device(ptx_of(source)).launch("forever", 1, 64, np.zeros(1, np.int32))
    assert (caught.value.kernel, caught.value.line) == ("forever", 1)
