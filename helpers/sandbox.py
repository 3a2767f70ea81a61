"""Run a kernel that may be wrong, on any machine, in the engine: no GPU, no driver, no harm.

A bad access makes a GPU give up the whole context, and with it everything the notebook has there.
The lessons therefore run kernels that are wrong on purpose, and a reader's first attempts, here.
What it reports is the same on every machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers import simt
from helpers.toolkit import require_toolkit

FAR = 2**36  # bytes; what is farther from an array was not meant to be an element of it
FILE = "kernel.cu"  # what the compiler calls the source, unless it begins with a #line


class CompileFailed(Exception):
    """The source does not compile; the text is the compiler's."""


class DoesNotFit(TypeError):
    """The kernel asked for is not in the source, or takes other arguments."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `print` it; `fault` is None if the kernel came to its end."""

    kernel: str
    fault: str | None

    def __str__(self) -> str:
        return self.fault or f"kernel {self.kernel} ran to its end, no fault found"


def run_in_engine(
    source: str,
    entry: str,
    arguments: Mapping[str, np.ndarray | np.generic],
    *,
    grid: Sequence[int],
    block: Sequence[int],
    options: Sequence[str] = (),
    seconds: float = 10,
) -> Outcome:
    """Compile `source` and run its kernel `entry` in the engine.

    `arguments` has a name and a value for each parameter, in order: C-contiguous arrays, which are
    copied in and, fault or not, copied back; and NumPy scalars of the parameter's size. A run
    longer than `seconds` is stopped and counts as a fault.

    Raises CompileFailed with the compiler's words; DoesNotFit for an unknown kernel or arguments it
    does not take; simt.Unsupported for an instruction the engine does not know.
    """
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    memory = simt.Memory(2**28 + sum(array.nbytes for array in arrays.values()))
    module = simt.Module(ptx_of(source, words(options)), memory)
    if entry not in module.functions:
        only = f"only {', '.join(module.functions)}" if module.functions else "nor any other"
        raise DoesNotFit(f"there is no kernel {entry}, {only}")
    function = module.functions[entry]
    addresses = {name: _copy_in(memory, name, array) for name, array in arrays.items()}
    fault = None
    try:
        with _time_limit(seconds):
            function.launch(_three(grid), _three(block), _pack(function, arguments, addresses))
    except simt.Fault as found:
        fault = _describe(found, arrays, addresses)
    except _TimeIsUp:
        fault = f"kernel {entry} was stopped after {seconds:g} s: does every loop in it end?"
    for name, array in arrays.items():
        ctypes.memmove(array.ctypes.data, addresses[name], array.nbytes)
    return Outcome(entry, fault)


def words(options: Sequence[str] = ()) -> tuple[str, ...]:
    """Options for nvcc as a tuple. TypeError for one string, which would become its letters."""
    if isinstance(options, str) or not all(isinstance(o, str) for o in options):
        raise TypeError(f"options={options!r}: write a tuple of words, e.g. ('-DTILE=16',)")
    return tuple(options)


@functools.lru_cache(maxsize=32)
def ptx_of(source: str, options: tuple[str, ...] = ()) -> str:
    """nvcc's PTX, with line information, for the class of device that the engine models.

    Kernels keep their names, as under SourceModule: a source that does not say extern "C" itself
    is compiled inside it. Raises CompileFailed.
    """
    options = words(options)
    command = [str(require_toolkit().nvcc), "--ptx", "-lineinfo", "-arch=sm_80", *options]
    with tempfile.TemporaryDirectory() as folder:
        text = source if source.startswith("#line") else f'#line 1 "{FILE}"\n{source}'
        if 'extern "C"' not in source:
            text = f'extern "C" {{\n{text}\n}}\n'
        Path(folder, FILE).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, FILE, "-o", "kernel.ptx"], cwd=folder, text=True, errors="replace",
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise CompileFailed(_told(done.stdout.strip()))
        return Path(folder, "kernel.ptx").read_text(encoding="utf-8")


def _told(output: str) -> str:
    """What the compiler says; of the flood that a C++ header causes inside extern "C" the start."""
    if 'C" linkage' not in output:
        return output
    return ('C++ headers and templates cannot be compiled inside extern "C" { }. Write extern "C" '
            "in front of each kernel, then the source is taken as it is.\n"
            + "\n".join(output.splitlines()[:3]))  # fmt: skip


def _three(extent: Sequence[int]) -> tuple[int, int, int]:
    return (*(int(n) for n in extent), 1, 1)[:3]


def _copy_in(memory: Any, name: str, array: np.ndarray) -> int:
    if not array.flags.c_contiguous:
        raise DoesNotFit(f"argument {name} is not C-contiguous: write np.ascontiguousarray({name})")
    address = memory.allocate(array.nbytes)
    ctypes.memmove(address, array.ctypes.data, array.nbytes)
    return address


def _pack(function: Any, arguments: Mapping[str, Any], addresses: Mapping[str, int]) -> bytes:
    """The parameters as the kernel reads them, each at its offset."""
    if len(arguments) != len(function.parameters):
        raise DoesNotFit(f"kernel {function.name} takes {len(function.parameters)} arguments, "
                         f"{len(arguments)} are given: {', '.join(arguments)}")
    packed = bytearray(function.parameter_bytes)
    slots = zip(arguments.items(), function.parameters, strict=True)
    for (name, value), (_, offset, nbytes) in slots:
        value = np.uint64(addresses[name]) if name in addresses else value
        if not isinstance(value, np.generic) or value.nbytes != nbytes:
            raise DoesNotFit(f"argument {name} is a {type(value).__name__}, the kernel takes "
                             f"{nbytes} bytes there: for an int write np.int32({name})")
        packed[offset : offset + nbytes] = value.tobytes()
    return bytes(packed)


def _describe(
    fault: simt.Fault, arrays: Mapping[str, np.ndarray], addresses: Mapping[str, int]
) -> str:
    """The finding in words that are the same on every run: elements of arrays, no addresses."""
    where = f"kernel {fault.kernel}, {Path(fault.file).name}:{fault.line}"
    if fault.block is not None:
        where += f", block {fault.block}, thread {fault.thread}"
    what, _, place = fault.detail.partition(" at ")
    if "0x" in place:  # an address, which is another one in every run
        what += f" at {_element(fault.address, arrays, addresses)}"
    else:
        what = fault.detail
    return f"{where}:\n  {what}"


def _element(
    address: int, arrays: Mapping[str, np.ndarray], addresses: Mapping[str, int]
) -> str:
    """The address as an element of the array it is nearest to, and where that array ends."""
    distance = {name: max(addresses[name] - address, address - addresses[name] - array.nbytes)
                for name, array in arrays.items()}
    name = min(distance, key=distance.__getitem__, default="")
    if not name or distance[name] > FAR:
        return "an address far from every array"
    index, rest = divmod(address - addresses[name], arrays[name].itemsize)
    element = f"{name}[{index:,}]" + (f" and {rest} bytes" if rest else "")
    limit = f"begins at {name}[0]" if index < 0 else f"ends at {name}[{arrays[name].size - 1:,}]"
    return f"{element}; {name} {limit}"


class _TimeIsUp(KeyboardInterrupt):
    """The engine stops its workers for a KeyboardInterrupt, so the time limit is one."""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise _TimeIsUp in the body after some seconds. Only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number, frame):
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
