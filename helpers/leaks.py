"""Device memory that a block of Python allocates and does not free, by the line that allocated it.

    with leaks() as found:
        dA = upload(A)
        with upload(B) as dB:
            ...
    print(found)    # 1 allocation (4,096 bytes) is not freed: 4,096 bytes, line 2: dA = upload(A)

What is still there when the block ends counts, held by a variable or not. So it is the same with a
GPU and without: at the end the driver is asked whether the memory is still allocated.

Seen: memory of `pycuda.driver` (mem_alloc, mem_alloc_pitch, to_device, managed_empty and the
like), of GPUArray, and all that is made of these, such as `helpers.memory`. Not seen: page-locked
host memory, memory pools, CUDA arrays, what another thread or a library written in C allocates, and
a function of `pycuda.driver` that was imported by name before the block.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from helpers.memory import driver

_DEVICE = ("mem_alloc", "mem_alloc_pitch")
_MANAGED = ("managed_empty", "managed_zeros", "managed_empty_like", "managed_zeros_like")
_CELLS = "ipykernel_", "<ipython-input", "<stdin>", "<string>"


@dataclass(frozen=True)
class Leak:
    """What one line has allocated: `count` allocations of `nbytes` in all; code: its text."""

    nbytes: int
    count: int
    file: str
    line: int
    code: str

    def __str__(self) -> str:
        times = f" in {self.count:,} allocations" if self.count > 1 else ""
        # A cell of a notebook is a file with another name each time.
        cell = any(name in self.file for name in _CELLS)
        where = f"line {self.line}" if cell else f"{Path(self.file).name}:{self.line}"
        return f"{self.nbytes:,} bytes{times}, {where}" + (f": {self.code}" if self.code else "")


@dataclass
class Leaks:
    """What `leaks` has found; it is there when the block has ended."""

    leaks: tuple[Leak, ...] = ()  # the largest first
    ended: bool = False
    _made: dict[int, tuple[int, str, int]] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the block has ended and everything it allocated is freed."""
        return self.ended and not self.leaks

    def __str__(self) -> str:
        if not self.ended:
            return "the block has not ended yet"
        if not self.leaks:
            return "all device memory that was allocated is freed"
        count, total = (sum(getattr(one, n) for one in self.leaks) for n in ("count", "nbytes"))
        many = f"{count:,} allocation{'s' if count > 1 else ''}"
        head = f"{many} ({total:,} bytes) {'are' if count > 1 else 'is'} not freed:"
        return "\n".join([head, *(f"    {one}" for one in self.leaks)])

    __repr__ = __str__

    def _add(self, address: int, nbytes: int) -> None:
        frame = _caller()
        self._made[address] = nbytes, frame.f_code.co_filename, frame.f_lineno

    def _end(self) -> None:
        gc.collect()  # what only waits for that is no leak
        by_line: dict[tuple[str, int], tuple[int, int]] = {}
        for address, (nbytes, *line) in self._made.items():
            if _is_allocated(address, nbytes):
                count, total = by_line.get(tuple(line), (0, 0))
                by_line[tuple(line)] = count + 1, total + nbytes
        found = [
            Leak(total, count, file, line, linecache.getline(file, line).strip())
            for (file, line), (count, total) in by_line.items()
        ]
        self.leaks = tuple(sorted(found, key=lambda one: (-one.nbytes, one.file, one.line)))
        self.ended = True
        self._made.clear()


@contextlib.contextmanager
def leaks() -> Iterator[Leaks]:
    """A `with` block at whose end the device memory is reported that it allocated and did not free.

    See the module for what is seen. An exception of the block is raised as ever; the report is
    made nonetheless.
    """
    cuda, found = driver(), Leaks()
    gpuarray = importlib.import_module("pycuda.gpuarray").GPUArray
    places: list[tuple[Any, str, Callable]] = [
        *((cuda, name, _device) for name in _DEVICE),
        *((cuda, name, _managed) for name in _MANAGED if hasattr(cuda, name)),
        (gpuarray, "__init__", _array),
    ]
    before = [getattr(owner, name) for owner, name, _ in places]
    for (owner, name, how), original in zip(places, before, strict=True):
        setattr(owner, name, how(found, original))
    try:
        yield found
    finally:
        for (owner, name, _), original in zip(places, before, strict=True):
            setattr(owner, name, original)
        found._end()


def _device(found: Leaks, original: Callable) -> Callable:
    @functools.wraps(original)
    def allocate(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        allocation = result[0] if isinstance(result, tuple) else result
        if not found.ended:
            nbytes = result[1] * arguments[1] if isinstance(result, tuple) else arguments[0]
            found._add(int(allocation), int(nbytes))
        return result

    return allocate


def _managed(found: Leaks, original: Callable) -> Callable:
    @functools.wraps(original)
    def allocate(*arguments: Any, **options: Any) -> Any:
        array = original(*arguments, **options)
        if not found.ended:
            found._add(array.ctypes.data, array.nbytes)
        return array

    return allocate


def _array(found: Leaks, original: Callable) -> Callable:
    @functools.wraps(original)
    def initialise(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        made = self.base is None and type(self.gpudata).__name__ == "DeviceAllocation"
        if made and not found.ended and int(self.gpudata) not in found._made:
            found._add(int(self.gpudata), self.nbytes)

    return initialise


def _caller() -> FrameType:
    """The frame of the Python that called into PyCUDA or the helpers."""
    inside = {str(Path(__file__).parent), str(Path(sys.modules["pycuda"].__file__).parent)}
    frame = sys._getframe(1)
    while frame.f_back is not None and str(Path(frame.f_code.co_filename).parent) in inside:
        frame = frame.f_back
    return frame


def _is_allocated(address: int, nbytes: int) -> bool:
    cuda = driver()
    try:
        start, size = cuda.mem_get_address_range(address)
    except cuda.Error:
        return False
    return int(start) == address and int(size) >= nbytes
