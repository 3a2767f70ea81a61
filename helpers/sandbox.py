"""Run a kernel that may be wrong, on any machine, in the engine: no GPU, no driver, no harm.

A bad access makes a GPU give up the whole context, and with it everything the notebook has there.
The lessons therefore run kernels that are wrong on purpose, and a reader's first attempts, here.
What it reports is the same on every machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers import nvcc_messages, simt
from helpers.errors import KernelInterrupted, TimeIsUp, Told, WrongType, WrongValue
from helpers.nvcc_messages import FILE
from helpers.signature import blanked
from helpers.toolkit import require_toolkit

FAR = 2**36  # bytes; what is farther from an array was not meant to be an element of it


class CompileFailed(Told, RuntimeError):
    """The source does not compile; the text is the compiler's, with the source's own lines."""


class DoesNotFit(WrongType):
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
    function = function_named(module, entry)
    addresses = {name: _copy_in(memory, name, array) for name, array in arrays.items()}
    fault = None
    try:
        with time_limit(seconds, entry):
            function.launch(_three(grid), _three(block), _pack(function, arguments, addresses))
    except simt.Fault as found:
        fault = _describe(found, arrays, addresses)
    except TimeIsUp as stopped:
        fault = str(stopped)
    for name, array in arrays.items():
        ctypes.memmove(array.ctypes.data, addresses[name], array.nbytes)
    return Outcome(entry, fault)


def words(options: Sequence[str] = ()) -> tuple[str, ...]:
    """Options for nvcc as a tuple. TypeError for one string, which would become its letters."""
    if isinstance(options, str) or not all(isinstance(o, str) for o in options):
        raise WrongType(f"options={options!r}: write a tuple of words, e.g. ('-DTILE=16',)")
    return tuple(options)


def ptx_of(source: str, options: tuple[str, ...] = ()) -> str:
    """nvcc's PTX, with line information, for the class of device that the engine models.

    Kernels keep their names, as under SourceModule, but for a source that is `cpp`: there
    `function_named` finds them. Raises CompileFailed.
    """
    options = words(options)
    return _known_ptx.get((source, options)) or _compiled(source, options)


_known_ptx: dict[tuple[str, tuple[str, ...]], str] = {}


def remember_ptx(source: str, options: tuple[str, ...], ptx: str) -> None:
    """Saves `ptx_of` a compilation: this is what nvcc has made of the source."""
    if len(_known_ptx) >= 32:
        del _known_ptx[next(iter(_known_ptx))]
    _known_ptx[source, options] = ptx


def is_cpp(source: str) -> bool:
    """Whether a source cannot stand inside the extern "C" { } that PyCUDA puts around it.

    Headers and templates cannot; and a source that says extern "C" itself needs none.
    """
    text = blanked(source)
    return bool(re.search(r'^\s*#\s*include\b|\bextern\s+"\s*"|\btemplate\s*<', text, re.MULTILINE))


@functools.lru_cache(maxsize=32)
def _compiled(source: str, options: tuple[str, ...]) -> str:
    command = [str(require_toolkit().nvcc), "--ptx", "-lineinfo", "-arch=sm_80", *options]
    with tempfile.TemporaryDirectory() as folder:
        text = source if source.startswith("#line") else f'#line 1 "{FILE}"\n{source}'
        if not is_cpp(source):
            text = f'extern "C" {{\n{text}\n}}\n'
        Path(folder, FILE).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, FILE, "-o", "kernel.ptx"], cwd=folder, text=True, errors="replace",
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise CompileFailed(nvcc_messages.errors(done.stdout, source))
        return Path(folder, "kernel.ptx").read_text(encoding="utf-8")


def function_named(module: simt.Module, entry: str) -> simt.Function:
    """The engine's kernel of that name; C++ names may be given as they are in the source."""
    names = [name for name in module.functions if name == entry]
    names = names or [
        name for name in module.functions if nvcc_messages.plain_name(name) == entry
    ]
    if not names:
        only = f"only {', '.join(module.functions)}" if module.functions else "nor any other"
        raise DoesNotFit(f"there is no kernel {entry} in the source, {only}")
    if len(names) > 1:
        raise DoesNotFit(f"there are {len(names)} kernels {entry} in the source: "
                         f"{', '.join(names)}; name one of these")
    return module.functions[names[0]]


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


def checked_seconds(seconds: float) -> float:
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:
        raise WrongValue(f"seconds={seconds!r}: write a number of seconds, e.g. seconds=60")
    return seconds


class _Alarm(KeyboardInterrupt):
    """The engine stops its workers for a KeyboardInterrupt, so the time limit is one."""


@contextlib.contextmanager
def interrupts_told(kernel: str) -> Iterator[None]:
    """A run in the engine that the reader interrupts raises KernelInterrupted."""
    try:
        yield
    except _Alarm:
        raise
    except KeyboardInterrupt:
        raise KernelInterrupted(f"kernel {kernel} was interrupted") from None


@contextlib.contextmanager
def time_limit(seconds: float, kernel: str) -> Iterator[None]:
    """Stop a run in the engine after some seconds and raise TimeIsUp.

    A run that the reader interrupts raises KernelInterrupted. Only the main thread can be
    interrupted: in another one there is no limit.
    """
    checked_seconds(seconds)
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number, frame):
        raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with interrupts_told(kernel):
            yield
    except _Alarm:
        raise TimeIsUp(
            f"kernel {kernel} was stopped after {seconds:g} s: does every loop in it end?"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
