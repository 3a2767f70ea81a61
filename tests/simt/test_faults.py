"""What the engine refuses: bad accesses, barriers not reached, what it cannot run."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

pytestmark = pytest.mark.engine

SOURCE = r"""
extern "C" {
__global__ void past_the_end(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 1.0f;                                    // line 5
}
__global__ void read_before(const float *x, float *out, int shift) {
    out[threadIdx.x] = x[(int)threadIdx.x - shift]; // line 8
}
__global__ void gather(const int *at, const float *x, float *out) {
    out[threadIdx.x] = x[at[threadIdx.x]];          // line 11
}
__global__ void from_null(float *out, const float *nothing) {
    out[threadIdx.x] = nothing[threadIdx.x];        // line 14
}
__global__ void shared_past_the_end(float *out, int n) {
    __shared__ float s[32];
    s[threadIdx.x + n] = 1.0f;                      // line 18
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
__global__ void misaligned(const char *x, float *out, int shift) {
    out[threadIdx.x] = *(const float *)(x + 4 * threadIdx.x + shift);  // line 23
}
__global__ void atomic_outside(int *x, int n) {
    if (threadIdx.x == 37) atomicAdd(&x[n], 1);     // line 26
}
__global__ void half_a_warp_waits(int *x) {
    if (threadIdx.x < 16) __syncthreads();          // line 29
    x[threadIdx.x] = 1;
}
__global__ void for_ever(int *x, int n) {
    while (n) { if (x[0] == 12345) n = 0; }
    x[1] = 1;
}
__global__ void traps(int *x) {
    if (threadIdx.x == 3) __trap();                 // line 37
    x[threadIdx.x] = 1;
}
__global__ void last_column(const float *b, float *out, int rows, int n) {
    float s = 0;
    int j = threadIdx.x;
    for (int k = 0; k < rows; ++k) s += b[k * n + j];   // line 43
    out[j] = s;
}
__global__ void far_past_a_small_array(float *small, const float *other) {
    small[threadIdx.x + 1000] = other[threadIdx.x];
}
__global__ void odd_neighbours(const char *x, float *out) {
    out[threadIdx.x] = *(const float *)(x + 8) + *(const float *)(x + 14);
}
__global__ void vector_outside(const float4 *x, float4 *out) {
    out[threadIdx.x] = x[threadIdx.x];              // line 53
}
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE))


def fault(device, *arguments, **options) -> simt.Fault:
    with pytest.raises(simt.Fault) as caught:
        device.launch(*arguments, **options)
    return caught.value


def test_a_write_past_the_end_names_the_first_thread_that_does_it(device):
    x = np.zeros(100, np.float32)
    f = fault(device, "past_the_end", 4, 32, x, np.int32(100))
    assert (f.kind, f.kernel, f.file, f.line) == ("out of bounds", "past_the_end", "kernel.cu", 5)
    assert (f.block, f.thread) == ((3, 0, 0), (4, 0, 0))
    assert "write of 4 bytes of global memory" in str(f)
    assert "just past the end of the 400-byte allocation" in str(f)


def test_the_fault_of_the_lowest_block_is_reported_whatever_the_order(device):
    x = np.zeros(10, np.float32)
    for _ in range(20):
        f = fault(device, "past_the_end", 64, 32, x, np.int32(10))
        assert (f.block, f.thread) == ((0, 0, 0), (10, 0, 0))


def test_a_read_before_the_start(device):
    f = fault(
        device,
        "read_before",
        1,
        32,
        np.zeros(64, np.float32),
        np.zeros(32, np.float32),
        np.int32(3),
    )
    assert (f.line, f.thread) == (8, (0, 0, 0))
    assert "12 bytes before the start of the 256-byte allocation" in str(f)


def test_one_bad_lane_of_a_gather(device):
    at = np.arange(32, dtype=np.int32)
    at[21] = 500
    f = fault(device, "gather", 1, 32, at, np.zeros(64, np.float32), np.zeros(32, np.float32))
    assert (f.line, f.thread) == (11, (21, 0, 0))
    assert "1,744 bytes past the end of the 256-byte allocation" in str(f)


def test_null_and_wild_pointers(device):
    f = fault(device, "from_null", 1, 32, np.zeros(32, np.float32), np.uint64(0))
    assert f.line == 14 and "null pointer" in str(f)
    for wild in (0xDEADBEEF, 1 << 47, 1 << 63, 2**64 - 4, 64):
        f = fault(device, "from_null", 1, 32, np.zeros(32, np.float32), np.uint64(wild))
        assert f.kind == ("out of bounds" if wild % 4 == 0 else "misaligned")


def test_freed_memory_is_named_as_such(device):
    out, address = (device.upload(np.zeros(32, np.float32)) for _ in range(2))
    device.memory.free(address)
    f = fault(device, "from_null", 1, 32, np.uint64(out), np.uint64(address))
    assert "byte 0 of a 128-byte allocation that has been freed" in str(f)
    device.memory.free(out)


def test_shared_memory_past_its_end(device):
    f = fault(device, "shared_past_the_end", 1, 32, np.zeros(32, np.float32), np.int32(4))
    assert (f.kind, f.line, f.thread) == ("out of bounds", 18, (28, 0, 0))
    assert "byte 128 of the block's 128 bytes of shared memory" in str(f)


def test_misaligned_access(device):
    f = fault(
        device, "misaligned", 1, 32, np.zeros(256, np.uint8), np.zeros(32, np.float32), np.int32(2)
    )
    assert (f.kind, f.line, f.thread) == ("misaligned", 23, (0, 0, 0))


def test_atomic_operation_outside(device):
    f = fault(device, "atomic_outside", 1, 64, np.zeros(8, np.int32), np.int32(8))
    assert (f.line, f.thread) == (26, (37, 0, 0)) and "atomic" in str(f)


def test_a_barrier_that_half_a_warp_does_not_reach(device):
    f = fault(device, "half_a_warp_waits", 1, 32, np.zeros(32, np.int32))
    assert (f.kind, f.line) == ("barrier", 29)


def test_trap(device):
    f = fault(device, "traps", 1, 32, np.zeros(32, np.int32))
    assert (f.kind, f.line, f.thread) == ("trap", 37, (3, 0, 0))


def test_the_last_row_may_end_at_the_end_of_the_allocation(device):
    """Lanes beyond the last column are not active: their addresses do not count."""
    b = np.random.default_rng(0).standard_normal((9, 40)).astype(np.float32)
    out = np.zeros(40, np.float32)
    device.launch("last_column", 1, 40, b, out, np.int32(9), np.int32(40))
    np.testing.assert_allclose(out, b.sum(0), rtol=1e-5)
    f = fault(device, "last_column", 1, 40, b, out, np.int32(10), np.int32(40))
    assert (f.line, f.thread) == (43, (0, 0, 0))


def test_a_vector_access_that_is_only_partly_inside(device):
    f = fault(
        device, "vector_outside", 1, 32, np.zeros(126, np.float32), np.zeros((32, 4), np.float32)
    )
    assert (f.line, f.thread) == (53, (31, 0, 0))
    assert "8 bytes past its end" in str(f)


def test_the_pointers_own_allocation_is_named_not_the_nearest_one(device):
    neighbour = device.upload(np.zeros(100, np.float32))
    small, other = np.zeros(5, np.float32), np.zeros(32, np.float32)
    f = fault(device, "far_past_a_small_array", 1, 32, small, other)
    device.memory.free(neighbour)
    assert "3,980 bytes past the end of the 20-byte allocation" in str(f)
    assert f.allocation[1] == 20 and f.address == f.allocation[0] + 4000


def test_each_of_several_neighbouring_accesses_must_be_aligned(device):
    f = fault(device, "odd_neighbours", 1, 32, np.zeros(64, np.uint8), np.zeros(32, np.float32))
    assert f.kind == "misaligned"


def test_the_next_launch_works_after_a_fault(device):
    fault(device, "past_the_end", 4, 32, np.zeros(100, np.float32), np.int32(100))
    x = np.zeros(128, np.float32)
    device.launch("past_the_end", 4, 32, x, np.int32(128))
    assert (x == 1).all()


def interrupted(launch):
    """Runs launch, which must end in a KeyboardInterrupt soon after half a second."""
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch()
    assert time.monotonic() - start < 2


def test_an_endless_kernel_is_stopped_by_an_interrupt(device):
    interrupted(lambda: device.launch("for_ever", 4, 64, np.zeros(2, np.int32), np.int32(1)))
    x = np.zeros(2, np.int32)
    device.launch("for_ever", 4, 64, x, np.int32(0))
    assert x[1] == 1


@pytest.mark.parametrize("barrier", ["__syncthreads()", 'asm volatile("bar.sync 1, 64;")'])
def test_an_endless_loop_around_a_barrier_is_stopped_by_an_interrupt(barrier):
    device = Device(ptx_of(f'extern "C" __global__ void f() {{ for (;;) {barrier}; }}'))
    interrupted(lambda: device.launch("f", 4, 64))


def test_recursion_without_an_end_in_sight_is_stopped_by_an_interrupt():
    fib = "__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }"
    kernel = 'extern "C" __global__ void f(int *x) { *x = fib(*x); }'
    device = Device(ptx_of(f"{fib}\n{kernel}"))
    interrupted(lambda: device.launch("f", 1, 1, np.full(1, 70, np.int32)))


def test_an_interrupt_does_not_wait_for_the_compiler(monkeypatch):
    device = Device(ptx_of('extern "C" __global__ void f(int *x) { x[threadIdx.x] += 12345; }'))
    compile_ = simt.module.jit.object_code

    def slowly(ir: str) -> bytes:
        time.sleep(3)
        return compile_(ir)

    monkeypatch.setattr(simt.module.jit, "object_code", slowly)
    monkeypatch.setattr(simt.module.cache, "load", lambda key: None)
    x = np.zeros(32, np.int32)
    interrupted(lambda: device.launch("f", 1, 32, x))
    assert not x.any()
    device.launch("f", 1, 32, x)
    assert set(x) == {12345}


def test_an_instruction_without_a_row_is_named_with_its_line():
    device = Device(
        ptx_of(
            """extern "C" __global__ void f(float *x) {
        unsigned short y = x[threadIdx.x];
        asm("fma.rn.oob.f16 %0, %0, %0, %0;" : "+h"(y));
        x[threadIdx.x] = y;
    }"""
        )
    )
    with pytest.raises(simt.Unsupported) as caught:
        device.launch("f", 1, 32, np.zeros(32, np.float32))
    assert "'fma.rn.oob.f16'" in str(caught.value) and "kernel.cu:3" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        ".version 9.0\n.target sm_80\n.entry f() { foo",
        ".version 9.0\n.entry f() { bra nowhere; }",
        ".version 9.0\n.entry f() { ld.global.u32 %r1, [ ; }",
        ".version 9.0\n.wrong thing;",
        ".version 9.0\n.entry f() { .reg .b32 %r<999999999>; ret; }",
        ".version 9.0\n.entry f() { .shared .b8 s[99999999999]; ret; }",
        "\0\1\2 .version",
    ],
)
def test_text_that_is_not_ptx(text):
    with pytest.raises((simt.InvalidPtx, simt.Unsupported)):
        module = simt.Module(text, simt.Memory(1 << 20))
        for function in module.functions.values():
            function.launch((1, 1, 1), (1, 1, 1), b"")
        raise AssertionError("accepted")
