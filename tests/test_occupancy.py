"""Occupancy: known values, the rules' edges, and what a GPU's own driver says."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from helpers.cards import FP32_UNITS
from helpers.kernels import BY_TILE, KERNELS, tiled
from helpers.occupancy import LIMITS, Resources, limits_of, occupancy, resources_of
from helpers.plots import Picture

H200 = (9, 0)


def blocks(capability, threads, registers, shared=0, dynamic=0) -> int:
    needs = Resources(registers, shared, 0)
    return occupancy(needs, capability, block=threads, shared=dynamic).blocks


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "expected"),
    [
        # CUDA C++ Programming Guide, "Multiprocessor Level": on 64 Ki registers, blocks of 512
        # threads with 64 registers are 2 resident ones; one register more leaves only 1.
        ((9, 0), 512, 64, 0, 2),
        ((9, 0), 512, 65, 0, 1),
        ((8, 0), 512, 64, 0, 2),
        # the most threads, warps and blocks
        ((9, 0), 1024, 32, 0, 2),
        ((8, 6), 1024, 32, 0, 1),
        ((8, 9), 512, 32, 0, 3),
        ((7, 5), 1024, 32, 0, 1),
        ((9, 0), 32, 16, 0, 32),
        ((8, 6), 32, 16, 0, 16),
        ((8, 9), 32, 16, 0, 24),
        ((7, 5), 32, 16, 0, 16),
        # registers go to warps in units of 256, 8 for each thread
        ((9, 0), 1024, 33, 0, 1),
        ((9, 0), 256, 33, 0, 6),
        ((9, 0), 256, 40, 0, 6),
        ((9, 0), 256, 41, 0, 5),
        ((9, 0), 256, 255, 0, 1),
        ((9, 0), 1024, 65, 0, 0),
        # a quarter of the multiprocessor has 16,384 registers: 9 warps of 56, not 9.14
        ((9, 0), 128, 56, 0, 9),
        ((9, 0), 32, 56, 0, 32),
        # shared memory, with the 1,024 bytes that the system keeps of each block since 8.0
        ((9, 0), 64, 16, 227 * 1024, 1),
        ((9, 0), 64, 16, 227 * 1024 + 1, 0),
        ((8, 0), 64, 16, 163 * 1024, 1),
        ((8, 6), 64, 16, 99 * 1024, 1),
        ((8, 9), 64, 16, 49 * 1024, 2),
        ((8, 9), 64, 16, 49 * 1024 + 1, 1),
        ((7, 5), 64, 16, 32 * 1024, 2),
        ((7, 5), 64, 16, 32 * 1024 + 1, 1),
        ((9, 0), 64, 16, 56 * 1024, 4),
    ],
)
def test_known_values(capability, threads, registers, shared, expected) -> None:
    assert blocks(capability, threads, registers, shared) == expected


def test_static_and_dynamic_shared_memory_count_together() -> None:
    assert blocks(H200, 64, 16, 28 * 1024, 28 * 1024) == blocks(H200, 64, 16, 56 * 1024) == 4


def test_what_limits_is_named() -> None:
    def limited_by(threads, registers, shared=0):
        return occupancy(Resources(registers, shared, 0), H200, block=threads).limited_by

    assert limited_by(1024, 16) == ("threads",)
    assert limited_by(32, 16) == ("blocks",)
    assert limited_by(256, 128) == ("registers",)
    assert limited_by(64, 16, 100_000) == ("shared memory",)
    assert limited_by(1024, 32) == ("threads", "registers")


def test_the_text_and_the_picture() -> None:
    found = occupancy(Resources(56, 8192, 16), H200, block=(32, 32))
    assert str(found) == (
        "1 block of 1024 threads, 32 of 64 warps (50%); limited by registers; 56 registers a "
        "thread, 8,192 bytes of shared memory a block, 16 bytes of local memory (compute "
        "capability 9.0)"
    )
    picture = found.picture()
    assert isinstance(picture, Picture)
    assert picture.png().startswith(b"\x89PNG")
    assert "64 places for warps of a multiprocessor, 32 of them taken by 1 blocks" in picture.alt
    for capability in LIMITS:
        occupancy(Resources(24, 0, 0), capability, block=96).picture()


@pytest.mark.parametrize(
    ("capability", "block", "message"),
    [((6, 1), 32, r"\(6, 1\) are not known, only those of 7.5, 8.0, 8.6, 8.7, 8.9, 9.0"),
     (H200, 2048, "block=2048: block.x is at most 1,024"),
     (H200, 0, "block=0: write integers >= 1"), ((9.0, 0), (64, 64), "4,096 threads")],
)  # fmt: skip
def test_what_no_device_has(capability, block, message) -> None:
    with pytest.raises(ValueError, match=message):
        occupancy(Resources(16, 0, 0), capability, block=block)
    with pytest.raises(TypeError, match="write block="):
        occupancy(Resources(16, 0, 0), H200)


@pytest.mark.parametrize("kernel", [*BY_TILE.values(), tiled(16)], ids=lambda k: k.name)
def test_the_lessons_kernels(kernel) -> None:
    found = occupancy(kernel, H200)
    assert found.blocks == {"swizzled": 1, "tiled_16": 8, "pipelined": 1}.get(kernel.name, 2)
    assert found.resources.shared == _static_shared(kernel)
    assert found.resources.local == 0
    for capability in LIMITS:
        if kernel.file.name == "08_pipeline.cu" and capability < (8, 0):
            with pytest.raises(RuntimeError, match="Feature 'cp.async' requires .target sm_80"):
                occupancy(kernel, capability)
        else:
            assert occupancy(kernel, capability).blocks >= 1


def _static_shared(kernel) -> int:
    """Bytes: a tile of A and one of B, as the sources declare them."""
    rows, columns = kernel.tile
    if kernel.lesson == 1 or kernel.shared_bytes:
        return 0
    if kernel.lesson < 6:  # square tiles
        return 8 * rows * rows + (4 * rows if kernel.name == "padded" else 0)
    pad = 4 if kernel.lesson > 6 else 0
    buffers = 2 if kernel.name == "double_buffered" else 1
    return buffers * 4 * 8 * (rows + pad + columns)


@pytest.mark.usefixtures("autoinit")
def test_a_compiled_function_says_its_figures_itself() -> None:
    kernel = KERNELS["tiled"]
    function = kernel.function()
    assert resources_of(function) == Resources(
        function.num_regs, function.shared_size_bytes, function.local_size_bytes
    )
    here = occupancy(function, block=kernel.block)
    assert here.capability in LIMITS
    if here.capability == (8, 0):
        assert here == occupancy(kernel, (8, 0))


SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float *x) {
    float a[64];
    for (int i = 0; i < 64; ++i) a[i] = x[i * 1024 + threadIdx.x];
    for (int k = 0; k < 3; ++k)
        for (int i = 0; i < 64; ++i) a[i] += a[(i * 5 + k) % 64] * a[63 - i];
    for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = a[i];
}
"""


def test_spilled_registers_are_local_memory() -> None:
    found = resources_of((SPILLS, "spills"), H200)
    assert found.registers == 32
    assert found.local > 0


def test_the_driver_of_a_gpu_says_the_same(autoinit: Any) -> None:
    """cuOccupancyMaxActiveBlocksPerMultiprocessor, for every kernel and many blocks."""
    if autoinit.backend == "cpu":
        pytest.skip("asks a GPU's driver")
    capability = autoinit.device.compute_capability()
    limits_of(capability)
    from pycuda.compiler import DEFAULT_NVCC_FLAGS, compile

    cuda = ctypes.CDLL("libcuda.so.1")
    for kernel in [*BY_TILE.values(), tiled(16)]:
        cubin = compile(kernel.source, options=[*DEFAULT_NVCC_FLAGS, *kernel.options])
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuModuleLoadData(ctypes.byref(module), cubin) == 0
        name = kernel.entry.encode()
        assert cuda.cuModuleGetFunction(ctypes.byref(function), module, name) == 0
        needs = resources_of(kernel.function())
        for threads in (32, 64, 96, 128, 192, 256, 480, 512, 768, 1024):
            for dynamic in (0, 1000, 8192, 20_000):
                theirs = ctypes.c_int()
                asked = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    ctypes.byref(theirs), function, threads, ctypes.c_size_t(dynamic)
                )
                assert asked == 0
                ours = occupancy(needs, capability, block=threads, shared=dynamic)
                assert ours.blocks == theirs.value, (kernel.name, threads, dynamic, str(ours))
        cuda.cuModuleUnload(module)


def test_numpy_integers_are_threads_too() -> None:
    assert occupancy(Resources(16, 0, 0), H200, block=np.int64(64)).threads == 64


@pytest.mark.parametrize("capability", FP32_UNITS)
def test_every_card_that_can_be_measured_has_limits_and_code(capability) -> None:
    assert occupancy("tiled", capability).blocks >= 1
