"""Compiling CUDA C and running it in the engine, for the engine's tests.

With MATMUL_BACKEND=gpu the same tests run on a GPU, save those marked `engine`, which ask for what
only the engine does (faults as exceptions, deadlocks found, the order of warps).
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from helpers import simt
from helpers.toolkit import require_toolkit


def ptx_of(source: str, *options: str) -> str:
    """The PTX nvcc makes of CUDA C, with line numbers of a file called kernel.cu."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cu")
        path.write_text(source)
        out = Path(folder, "kernel.ptx")
        done = subprocess.run(
            [
                require_toolkit().nvcc,
                "--ptx",
                "-lineinfo",
                "-arch=sm_80",
                *options,
                path,
                "-o",
                out,
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return out.read_text()


class EngineDevice:
    """A device memory with a module in it; launches on NumPy arrays."""

    def __init__(self, ptx: str, capacity: int = 1 << 28):
        self.memory = simt.Memory(capacity)
        self.module = simt.Module(ptx, self.memory)

    def upload(self, array: np.ndarray) -> int:
        address = self.memory.allocate(array.nbytes)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        return address

    def launch(self, name: str, grid, block, *arguments, shared_bytes: int = 0) -> None:
        """Arrays are copied in and back; NumPy scalars are passed by value."""
        packed, arrays = b"", []
        for a in arguments:
            if isinstance(a, np.ndarray):
                arrays.append((a, self.upload(a)))
                value = struct.pack("<Q", arrays[-1][1])
            else:
                value = a.tobytes()
            packed += b"\0" * (-len(packed) % len(value)) + value
        try:
            self.module.functions[name].launch(_dim(grid), _dim(block), packed, shared_bytes)
        finally:
            for a, address in arrays:
                ctypes.memmove(a.ctypes.data, address, a.nbytes)
                self.memory.free(address)

    def variable(self, name: str) -> bytes:
        """The bytes of a variable of the module."""
        return ctypes.string_at(*self.module.globals[name])


class GpuDevice:
    """The same on a GPU, through PyCUDA."""

    def __init__(self, ptx: str, capacity: int = 0):
        import pycuda.autoinit  # noqa: F401
        from pycuda import driver

        self.driver = driver
        self.module = driver.module_from_buffer(ptx.encode() + b"\0")

    def launch(self, name: str, grid, block, *arguments, shared_bytes: int = 0) -> None:
        given = [self.driver.InOut(a) if isinstance(a, np.ndarray) else a for a in arguments]
        function = self.module.get_function(name)
        function.set_attribute(
            self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes
        )
        function(*given, grid=_dim(grid), block=_dim(block), shared=shared_bytes)
        self.driver.Context.synchronize()

    def variable(self, name: str) -> bytes:
        return bytes(self.driver.from_device(*self.module.get_global(name), np.uint8))


Device = GpuDevice if os.environ.get("MATMUL_BACKEND") == "gpu" else EngineDevice


def _dim(value) -> tuple[int, int, int]:
    value = (value,) if isinstance(value, int) else tuple(value)
    return value + (1,) * (3 - len(value))
