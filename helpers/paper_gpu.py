"""A GPU of paper: a queue and two clocks, to practise benchmarking where every answer is known.

    gpu = PaperGpu()
    start, end = gpu.event(), gpu.event()
    start.record()
    gpu.launch("tiled", blocks=(32, 32))      # returns at once, as on a real device
    end.record()
    end.synchronize()
    start.time_till(end)                      # milliseconds, by the device's clock
    gpu.clock()                               # milliseconds, by the host's clock

It computes nothing; it only adds up times, so it says the same on every machine. What it does as a
real device does: a launch returns before the kernel has run, and jobs run one after another; a copy
from the host makes the host wait; the first launch of a kernel loads its code; an idle device runs
at half its clock and is at its highest after WARM_MS of work. Its times are round numbers and those
of no card. `check_benchmarks` runs a reader's benchmarks on several such GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from helpers.errors import WrongType, WrongValue
from helpers.timing import gflops

N = 1024  # its matrices are N x N
TILE = 32  # a block computes TILE x TILE elements of C
ALL_BLOCKS = (N // TILE, N // TILE)
CALL_MS = 0.005  # of the host, for each call
LOAD_MS = 0.5  # of the device, to load the code of a kernel
COPY_MS = 0.2  # for one matrix from host to device
WARM_MS = 5.0  # of work until the clock is at its highest
TOLERANCE = 0.04  # of a reader's result: with the launch in it or without
KERNELS_MS = {"naive": 0.32, "tiled": 0.25}  # at the highest clock, all of C


@dataclass
class PaperGpu:
    """One paper GPU. kernels_ms: the time of each kernel at the highest clock, for all of C."""

    kernels_ms: dict[str, float] = field(default_factory=lambda: dict(KERNELS_MS))
    _host: float = 0.0  # the host's clock
    _free: float = 0.0  # when the device is done with what is queued
    _worked: float = 0.0
    _loaded: set[str] = field(default_factory=set)
    _written: int = 0  # elements of C that the last launch wrote

    def clock(self) -> float:
        """The host's clock in milliseconds."""
        return self._host

    def launch(self, kernel: str, blocks: tuple[int, int] = ALL_BLOCKS) -> None:
        """Queue a kernel, in a grid of `blocks` along x and y, and return at once.

        KeyError for a kernel that is not in `kernels_ms`, TypeError or ValueError for a grid that
        is none.
        """
        if kernel not in self.kernels_ms:
            known = ", ".join(self.kernels_ms)
            raise KeyError(f"this paper GPU has no kernel {kernel!r}: it has {known}")
        if not _is_pair(blocks):
            raise WrongType(f"blocks={blocks!r}: a grid has two integers, along x and y: (32, 32)")
        x, y = blocks
        if min(x, y) < 1:
            raise WrongValue(f"blocks={blocks}: a grid has at least one block along x and y")
        share = min(x, ALL_BLOCKS[0]) * min(y, ALL_BLOCKS[1]) / (ALL_BLOCKS[0] * ALL_BLOCKS[1])
        slow = 2 - min(self._worked, WARM_MS) / WARM_MS
        ms = self.kernels_ms[kernel] * share * slow
        if kernel not in self._loaded:
            ms += LOAD_MS
            self._loaded.add(kernel)
        self._written = int(share * N * N)
        self._queue(ms)

    def upload(self) -> None:
        """Copy a matrix from host to device; the host waits until it is there."""
        self._queue(COPY_MS)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until the device is done with all that is queued."""
        self._host = max(self._host, self._free)

    def event(self) -> PaperEvent:
        """A time stamp that the device takes when it comes to it."""
        return PaperEvent(self)

    @property
    def unwritten(self) -> int:
        """Elements of C that the last launch left as they were."""
        return N * N - self._written

    def _queue(self, ms: float) -> None:
        self._host += CALL_MS
        self._free = max(self._free, self._host) + ms
        self._worked += ms


@dataclass
class PaperEvent:
    """An event of a paper GPU."""

    gpu: PaperGpu
    at: float | None = None

    def record(self) -> None:
        """Queue the time stamp."""
        self.at = max(self.gpu._free, self.gpu._host)

    def synchronize(self) -> None:
        """Wait until the device has come to it."""
        self.gpu._host = max(self.gpu._host, self._taken())

    def time_till(self, end: PaperEvent) -> float:
        """Milliseconds from this time stamp to `end`."""
        return end._taken() - self._taken()

    def _taken(self) -> float:
        if self.at is None:
            raise RuntimeError("this event was never recorded: call its record() first")
        return self.at


def _is_pair(blocks: object) -> bool:
    return isinstance(blocks, (tuple, list)) and [type(side) for side in blocks] == [int, int]


# -- the exercise ----------------------------------------


@dataclass(frozen=True)
class _Task:
    """What a benchmark of the exercise is to return."""

    unit: str
    right: Callable[[dict[str, float]], float]


_TASKS = {
    "one": _Task("ms", lambda ms: ms["tiled"]),
    "two": _Task("times as fast", lambda ms: ms["naive"] / ms["tiled"]),
    "three": _Task("TFLOP/s", lambda ms: gflops(N, N, N, ms["tiled"]) / 1e3),
}
#: The last ones are there so that no fixed number passes.
_GPUS_MS = (KERNELS_MS, {"naive": 0.9, "tiled": 0.3}, {"naive": 0.1, "tiled": 0.16})


def check_benchmarks(*benchmarks: Callable[[PaperGpu], float]) -> None:
    """Run a reader's benchmarks `one`, `two` and `three` on paper GPUs; print what was found.

    Each is known by its function's name, and is given a PaperGpu. The first one that is wrong ends
    the check: "Not done yet", what it says, and what it should.
    """
    names = [getattr(benchmark, "__name__", "?") for benchmark in benchmarks]
    if names != list(_TASKS):
        print(f"FAIL: give the functions one, two and three, not {', '.join(names) or 'nothing'}")
        return
    for name, benchmark in zip(names, benchmarks, strict=True):
        said = ""
        for kernels_ms in _GPUS_MS:
            gpu = PaperGpu(dict(kernels_ms))
            try:
                found = benchmark(gpu)
            except Exception as error:  # whatever a reader's code raises
                print(f"FAIL: {name} raises {type(error).__name__}: {error}")
                return
            wrong = _wrong(_TASKS[name], found, gpu)
            if wrong:
                print(f"Not done yet: {name} {wrong}")
                return
            said = said or f"{found:.3g} {_TASKS[name].unit}"
        print(f"{name}: PASS, {said}")


def _wrong(task: _Task, found: object, gpu: PaperGpu) -> str:
    """What is wrong with a result, "" if nothing is."""
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return f"returns {found!r}, not a number"
    right = task.right(gpu.kernels_ms)
    if gpu.unwritten:
        return (f"says {found:.3g} {task.unit}, but its last launch left {gpu.unwritten:,} of "
                f"{N * N:,} elements of C as they were")  # fmt: skip
    if not abs(found - right) <= TOLERANCE * right:
        return f"says {found:.3g} {task.unit}; on this paper GPU {right:.3g} is right"
    return ""
