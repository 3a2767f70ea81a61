"""A launch repeated in the engine: the same kernel, arguments and shape, on copies of the data.

`helpers.profile` looks at such a replica instead of the launch itself. So what it reports is the
same on a machine with a GPU and without, and the caller's arrays stay as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from helpers import simt
from helpers.kernels import CUDA_FOLDER, Kernel
from helpers.memory import driver
from helpers.sandbox import FILE, DoesNotFit, ptx_of

SPARE = 1 << 26  # bytes of the engine's memory beside the copies, for what kernels allocate


@dataclass(frozen=True)
class Program:
    """A kernel to be run in the engine. `source` is its CUDA C, where that is known."""

    entry: str
    ptx: str
    source: str | None = None

    @property
    def file(self) -> str:
        """What the compiler calls the source."""
        first = (self.source or "").partition("\n")[0].split('"')
        return first[1] if first[0].startswith("#line") and len(first) > 1 else FILE

    def line(self, number: int) -> str:
        """A line of the source; empty where there is none."""
        lines = (self.source or "").splitlines()
        if lines and lines[0].startswith("#line"):
            del lines[0]
        return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True)
class _Pointer:
    """A place in one of the copied allocations."""

    start: int  # of the allocation, on the device or in host memory
    offset: int


@dataclass
class Replica:
    """A launch that can be repeated any number of times, each time on the same data."""

    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  # dynamic shared memory, bytes
    arguments: list[_Pointer | np.generic]
    data: dict[int, np.ndarray] = field(default_factory=dict)  # bytes of each allocation
    on_host: dict[int, np.ndarray] = field(default_factory=dict)  # of those, the caller's arrays

    def prepare(self) -> Run:
        """A run of its own, on fresh copies. Raises simt.Unsupported, DoesNotFit."""
        return Run(self)

    def write_back(self, run: Run) -> None:
        """Gives the caller's arrays what a run has left in the copies."""
        for start, array in self.data.items():
            result = run.result(start)
            if start in self.on_host:
                ctypes.memmove(start, result.ctypes.data, array.nbytes)
            else:
                driver().memcpy_htod(start, result)


class Run:
    """One run of a replica: the engine's kernel, and where the copies of the data lie."""

    def __init__(self, replica: Replica):
        needed = sum(array.nbytes + 4096 for array in replica.data.values())
        self.replica, self.memory = replica, simt.Memory(needed + SPARE)
        module = simt.Module(replica.program.ptx, self.memory)
        self.function = _function(module, replica.program.entry)
        self.addresses = {}
        for start, array in replica.data.items():
            address = self.addresses[start] = self.memory.allocate(array.nbytes)
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
        self.parameters = self._packed()

    def _packed(self) -> bytes:
        given, wanted = self.replica.arguments, self.function.parameters
        if len(given) != len(wanted):
            raise DoesNotFit(
                f"kernel {self.function.name} takes {len(wanted)} arguments, {len(given)} are given"
            )
        packed = bytearray(self.function.parameter_bytes)
        for k, (value, (_, offset, nbytes)) in enumerate(zip(given, wanted, strict=True)):
            if isinstance(value, _Pointer):
                value = np.uint64(self.addresses[value.start] + value.offset)
            if value.nbytes != nbytes:
                raise DoesNotFit(
                    f"argument {k} of kernel {self.function.name} is {type(value).__name__} "
                    f"({value.nbytes} bytes), the kernel takes {nbytes} bytes there"
                )
            packed[offset : offset + nbytes] = value.tobytes()
        return bytes(packed)

    @property
    def launch(self) -> tuple[tuple[int, int, int], tuple[int, int, int], bytes, int]:
        """What the engine's launches take: grid, block, parameters, dynamic shared bytes."""
        return self.replica.grid, self.replica.block, self.parameters, self.replica.shared

    def result(self, start: int) -> np.ndarray:
        """The bytes of an allocation after the run."""
        array = np.empty_like(self.replica.data[start])
        ctypes.memmove(array.ctypes.data, self.addresses[start], array.nbytes)
        return array


def replica(
    kernel: Any,
    *arguments: Any,
    grid: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
    shared: int | None = None,
) -> Replica:
    """The launch of a kernel, copied.

    kernel: a `helpers.kernels.Kernel`, whose launch shape is the default; (source, name) with the
    CUDA C as text or as the path of a file, in cuda/ or anywhere; or on the CPU driver any PyCUDA
    function. arguments: as for the launch: NumPy scalars, arrays on the device (DeviceArray,
    GPUArray, DeviceAllocation, an address) and C-contiguous NumPy arrays, which are copied as if
    they were on the device. A kernel of ours takes sizes as Python ints too.

    Raises TypeError for a kernel or an argument that is none of these, DoesNotFit, CompileFailed,
    ValueError for a shape no launch has.
    """
    program = program_of(kernel)
    if isinstance(kernel, Kernel):
        arguments = tuple(np.int32(a) if isinstance(a, int) and k > 2 else a
                          for k, a in enumerate(arguments))  # fmt: skip
        block = kernel.block if block is None else block
        shared = kernel.shared_bytes if shared is None else shared
        if grid is None and len(arguments) == 6:
            grid = kernel.grid(int(arguments[3]), int(arguments[4]))
    if grid is None or block is None:
        raise TypeError(f"kernel {program.entry} has no launch shape: write grid=(…), block=(…)")
    found = Replica(program, _shape("grid", grid), _shape("block", block), shared or 0, [])
    if np.prod(found.block) > 1024:
        raise ValueError(f"block={tuple(block)} has more than 1024 threads")
    for k, argument in enumerate(arguments):
        found.arguments.append(_copied(found, k, argument))
    return found


def program_of(kernel: Any) -> Program:
    """The kernel's PTX, and its source where that is known."""
    if isinstance(kernel, Kernel):
        return Program(kernel.entry, ptx_of(kernel.source, kernel.options), kernel.source)
    if isinstance(kernel, tuple) and len(kernel) in (2, 3):
        source = _text(kernel[0])
        return Program(str(kernel[1]), ptx_of(source, tuple(*kernel[2:])), source)
    if type(kernel).__module__.startswith("pycuda"):
        from helpers.cpu_driver import is_loaded, module

        if not is_loaded():
            raise TypeError(
                "a compiled PyCUDA function no longer knows its PTX on a GPU: give the kernel as "
                "(source, name), or one of helpers.kernels"
            )
        function = module.behind(kernel)
        return Program(function.name, function.ptx)
    raise TypeError(
        f"{type(kernel).__name__} is no kernel: give one of helpers.kernels, (source or path, "
        "name), or a PyCUDA function"
    )


def _text(source: str | Path) -> str:
    """The CUDA C of a source given as text or as a path."""
    if isinstance(source, str) and "\n" in source:
        return source
    path = Path(source)
    found = next((p for p in (path, CUDA_FOLDER / path) if p.is_file()), None)
    if found is None:
        if isinstance(source, str) and "__global__" in source:
            return source
        raise FileNotFoundError(f"there is no file {source}, here or in cuda/")
    return f'#line 1 "{found.name}"\n{found.read_text(encoding="utf-8")}'


def _function(module: simt.Module, entry: str) -> Any:
    """The engine's kernel of that name; C++ names may be given as they are in the source."""
    names = [name for name in module.functions if name == entry]
    names = names or [name for name in module.functions if f"{len(entry)}{entry}" in name]
    if len(names) != 1:
        raise DoesNotFit(f"there is no one kernel {entry}, only {', '.join(module.functions)}")
    return module.functions[names[0]]


def _shape(name: str, extent: Any) -> tuple[int, int, int]:
    sizes = tuple(extent) if isinstance(extent, (tuple, list)) else (extent,)
    for size in sizes:
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name}={extent!r}: write integers >= 1, e.g. -(-N // 32) for blocks")
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"{name}={extent!r} has {len(sizes)} dimensions, not 1 to 3")
    return (*(int(size) for size in sizes), 1, 1)[:3]


def _copied(found: Replica, k: int, argument: Any) -> _Pointer | np.generic:
    if isinstance(argument, np.generic):
        return argument
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise DoesNotFit(f"argument {k} is not C-contiguous: write np.ascontiguousarray(…)")
        start = argument.ctypes.data
        found.data[start] = argument.reshape(-1).view(np.uint8).copy()
        found.on_host[start] = argument
        return _Pointer(start, 0)
    if isinstance(argument, (bool, float)):
        raise DoesNotFit(f"argument {k} is the Python {type(argument).__name__} {argument!r}, "
                         "which has no fixed size: write np.float32(…) or np.int32(…)")
    cuda = driver()
    try:
        address = int(getattr(argument, "gpudata", argument))
        start, nbytes = cuda.mem_get_address_range(address)
    except (cuda.Error, TypeError, ValueError, OverflowError):
        hint = f": for a number write np.int32({argument})" if isinstance(argument, int) else ""
        raise DoesNotFit(f"argument {k} is {argument!r}, which is neither an array nor an address "
                         f"on the device{hint}") from None
    start = int(start)
    if start not in found.data:
        found.data[start] = np.empty(nbytes, np.uint8)
        cuda.memcpy_dtoh(found.data[start], start)
    return _Pointer(start, address - start)
