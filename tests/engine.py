"""Compiling CUDA C and running it in the engine, for the engine's tests."""

from __future__ import annotations

import ctypes
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


class Device:
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


def _dim(value) -> tuple[int, int, int]:
    value = (value,) if isinstance(value, int) else tuple(value)
    return value + (1,) * (3 - len(value))
