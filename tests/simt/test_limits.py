"""What a caller can limit: time, which blocks run; and what unset memory and registers hold."""

import ctypes
import struct
import time

import numpy as np
import pytest

from helpers import simt
from tests.engine import ptx_of

pytestmark = pytest.mark.engine

SOURCE = r"""
extern "C" __global__ void number(int *out) { out[blockIdx.x] = blockIdx.x + 1; }

extern "C" __global__ void endless(int *out)
{
    int k = threadIdx.x;
    while (k >= 0)
        k = (k * 5 + 1) & 1023;
    out[0] = k;
}

extern "C" __global__ void unset_register(float *out, int n)
{
    float sum;
    for (int k = 0; k < n; ++k) sum += out[k];
    out[0] = sum;
}

extern "C" __global__ void unset_shared(float *out)
{
    __shared__ float values[32];
    if (threadIdx.x < 16) values[threadIdx.x] = 1.0f;
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = values[threadIdx.x];
}
"""


class Arena:
    """An array in the engine's memory, and the module."""

    def __init__(self, array: np.ndarray):
        self.memory = simt.Memory(1 << 20)
        self.functions = simt.Module(ptx_of(SOURCE), self.memory).functions
        self.array, self.address = array, self.memory.allocate(array.nbytes)
        ctypes.memmove(self.address, array.ctypes.data, array.nbytes)
        self.pointer = struct.pack("<Q", self.address)

    def read(self) -> np.ndarray:
        ctypes.memmove(self.array.ctypes.data, self.address, self.array.nbytes)
        return self.array


def test_only_the_blocks_asked_for_run():
    arena = Arena(np.zeros(8, np.int32))
    arena.functions["number"].launch((8, 1, 1), (1, 1, 1), arena.pointer, blocks=range(3, 5))
    assert arena.read().tolist() == [0, 0, 0, 4, 5, 0, 0, 0]


@pytest.mark.parametrize("how", ["launch", "sanitize"])
def test_an_endless_kernel_is_a_fault_of_time_with_its_line(how):
    arena = Arena(np.zeros(8, np.int32))
    started = time.monotonic()
    launch = getattr(arena.functions["endless"], how)
    if how == "launch":
        with pytest.raises(simt.Fault) as raised:
            launch((4, 1, 1), (64, 1, 1), arena.pointer, seconds=0.2)
        fault = raised.value
    else:
        fault = launch((4, 1, 1), (64, 1, 1), arena.pointer, seconds=0.2).fault
    assert fault.kind == "time" and "stopped after 0.2 s" in fault.detail
    assert fault.line in (7, 8) and fault.block is not None
    assert time.monotonic() - started < 60


def test_a_kernel_within_its_time_is_not_disturbed():
    arena = Arena(np.zeros(8, np.int32))
    arena.functions["number"].launch((8, 1, 1), (1, 1, 1), arena.pointer, seconds=60)
    assert arena.read().tolist() == list(range(1, 9))


def test_under_the_sanitizer_an_unset_register_is_nan():
    arena = Arena(np.ones(4, np.float32))
    packed = arena.pointer + struct.pack("<i", 3)
    arena.functions["unset_register"].sanitize((1, 1, 1), (1, 1, 1), packed)
    assert np.isnan(arena.read()[0])


def test_under_the_sanitizer_shared_memory_is_nan_until_a_block_writes_it():
    arena = Arena(np.zeros(64, np.float32))
    arena.functions["unset_shared"].sanitize((2, 1, 1), (32, 1, 1), arena.pointer, workers=1)
    for block in arena.read().reshape(2, 32):
        assert (block[:16] == 1).all() and np.isnan(block[16:]).all()


def test_which_words_of_shared_memory_were_stored_is_told():
    arena = Arena(np.zeros(64, np.float32))
    seen = arena.functions["unset_shared"].sanitize((2, 1, 1), (32, 1, 1), arena.pointer)
    assert seen.stored_words.tolist() == [True] * 16 + [False] * 16


def test_a_wider_guard_keeps_allocations_apart():
    memory = simt.Memory(1 << 20, guard=1 << 16)
    first, second = memory.allocate(4), memory.allocate(4)
    assert second - first >= 1 << 16
    with pytest.raises(simt.Fault):
        memory.check(first + 5000, 4)


def test_small_pages_hold_an_array_of_which_little_is_touched():
    memory = simt.Memory(20 << 30, huge_pages=False)
    start = memory.allocate(16 << 30)
    ctypes.memset(start + (15 << 30), 1, 8)
    assert ctypes.string_at(start + (15 << 30), 2) == b"\1\1"
