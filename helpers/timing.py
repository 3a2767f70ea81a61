"""How long a kernel takes, by CUDA events, and what that makes in FLOP/s.

    timing = time_kernel(lambda: kernel.launch(dA, dB, dC, M, N, K))
    print(timing, f"{gflops(M, N, K, timing.median_ms):,.0f} GFLOP/s")

    benchmark(launch)                       # as long as it takes to be sure
    benchmark(launch, cold=True)            # with an L2 cache that holds none of the data
    benchmark(launch, alone=True)           # one launch at a time, as a program that waits for each
    launch_overhead()                       # what a launch costs besides the kernel
    three_clocks(launch)                    # event time, host time, and a clock stopped too early

`time_kernel` runs a given number of launches. `benchmark` warms up until the times have settled,
makes its samples long enough for the clock, and takes enough of them.

An event is a time stamp that the device takes when it reaches it in the stream, to about half a
microsecond (CUDA Runtime API, cudaEventElapsedTime). On the CPU driver the same events measure how
long the CPU took, which says nothing about any GPU; `Timing.backend` tells the two apart.
"""

from __future__ import annotations

import math
import numbers
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.errors import WrongType, WrongValue
from helpers.memory import DeviceArray, driver

#: Milliseconds that an event's time may be off by.
EVENT_RESOLUTION_MS = 0.5e-3
#: A sample is at least this many times as long: it is then off by half a percent at most.
RESOLUTIONS_A_SAMPLE = 200
MOST_LAUNCHES_A_SAMPLE = 1000
#: Warm-up ends when the median of this many samples differs from that of as many before by less
#: than SETTLED, or after the given time, but not before there are two such medians.
WINDOW = 3
SETTLED = 0.01
LEAST_SAMPLES, MOST_SAMPLES = 11, 301  # LEAST_SAMPLES unless the caller says otherwise
RESAMPLES = 2000  # of the bootstrap
SEED = 1


@dataclass(frozen=True, repr=False)
class Timing:
    """Times of the repeats of one launch, in milliseconds."""

    times_ms: tuple[float, ...]
    warmup: int  # launches before the first one that counts
    l2_flushed: bool  # whether the L2 cache was overwritten before each repeat
    backend: str  # "gpu" or "cpu"
    batch: int = 1  # launches between the two events of a repeat; its time is divided by them
    alone: bool = False  # whether each launch waited until the one before was done
    settled: bool = True  # whether the times stopped changing during the warm-up

    @property
    def median_ms(self) -> float:
        """The middle one; half of the repeats were faster."""
        return statistics.median(self.times_ms)

    @property
    def min_ms(self) -> float:
        """The fastest repeat."""
        return min(self.times_ms)

    @property
    def max_ms(self) -> float:
        """The slowest repeat."""
        return max(self.times_ms)

    @property
    def repeats(self) -> int:
        """Number of repeats timed."""
        return len(self.times_ms)

    @property
    def clock(self) -> str:
        """What was timed, in words."""
        return "GPU time" if self.backend == "gpu" else "CPU time, not GPU time"

    @property
    def how(self) -> str:
        """How the launches were queued, in words."""
        if self.alone:
            return "one at a time"
        return "queued, L2 flushed" if self.l2_flushed else "queued back to back"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the median lies with that confidence, in milliseconds: see `median_interval`."""
        return median_interval(self.times_ms, confidence)

    def __str__(self) -> str:
        spread = f"{_digits(self.min_ms)} to {_digits(self.max_ms)}"
        each = f" of {self.batch} launches each" if self.batch > 1 else ""
        cache = ", L2 flushed" if self.l2_flushed else ""
        waits = ", one launch at a time" if self.alone else ""
        unsettled = "; still changing after the warm-up" if not self.settled else ""
        return (
            f"{_digits(self.median_ms)} ms ({self.clock}; "
            f"median of {self.repeats}{each}, {spread}{cache}{waits}{unsettled})"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class Overhead:
    """What a launch costs besides the kernel: that of a kernel that does nothing, in milliseconds.

    queued_ms: of the device, from one launch to the next when many are queued; alone_ms: between
    two events around a launch on an idle device; call_ms: of the host, until `launch` returns;
    round_trip_ms: of the host, until the launch is done and the host knows.
    """

    queued_ms: float
    alone_ms: float
    call_ms: float
    round_trip_ms: float
    backend: str

    def __str__(self) -> str:
        host, device = self.call_ms * 1e3, self.queued_ms * 1e3
        note = "" if self.backend == "gpu" else " (CPU times, not GPU times)"
        return (
            f"an empty kernel{note}: {device:.1f} µs each when queued back to back, "
            f"{self.alone_ms * 1e3:.1f} µs alone; the host spends {host:.1f} µs on the call, "
            f"{self.round_trip_ms * 1e3:.1f} µs if it waits"
        )


@dataclass(frozen=True)
class Clocks:
    """One launch by three clocks, in milliseconds."""

    event_ms: float  # between two events on the device
    host_ms: float  # the host's clock, stopped when the device was done
    unsynchronised_ms: float  # the host's clock, stopped when the call returned: not the kernel's
    backend: str

    def __str__(self) -> str:
        note = "" if self.backend == "gpu" else (
            "\nThe CPU driver runs a kernel before the call returns, so no clock is fooled here."
        )  # fmt: skip
        return (
            f"events around the launch            {_digits(self.event_ms):>10} ms\n"
            f"host clock, synchronised            {_digits(self.host_ms):>10} ms\n"
            f"host clock, forgot to synchronise   {_digits(self.unsynchronised_ms):>10} ms" + note
        )


def time_kernel(
    launch: Callable[[], object],
    *,
    repeats: int = 10,
    warmup: int = 3,
    flush_l2: bool = False,
    stream: Any = None,
) -> Timing:
    """Time what `launch()` queues on `stream` (None: the default stream), each launch by itself.

    First `warmup` launches that do not count: they bring the clocks up and the data into the
    caches. With `flush_l2` a buffer of twice the L2 cache is overwritten before every repeat, so
    each starts with none of its data there; without, it finds what the launch before it left.

    All is queued without waiting in between, so a GPU that is still busy with the launch before
    never waits for Python, and the events are around the kernel alone. That holds for kernels that
    take longer than `launch()` itself, some ten microseconds.
    """
    for name, count, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < least:
            raise WrongValue(f"{name}={count!r} must be an integer >= {least}")
    _check_callable(launch)
    cuda = driver()
    for _ in range(warmup):
        launch()
    flush = L2Flush(cuda, stream) if flush_l2 else None
    pairs = [_queue_timed(cuda, launch, flush, stream) for _ in range(repeats)]
    pairs[-1][1].synchronize()
    times = tuple(float(start.time_till(end)) for start, end in pairs)
    return Timing(times, warmup, flush_l2, backend())


def benchmark(
    launch: Callable[[], object],
    *,
    cold: bool = False,
    alone: bool = False,
    seconds: float = 0.5,
    least: int = LEAST_SAMPLES,
    stream: Any = None,
    while_busy: Callable[[], object] | None = None,
) -> Timing:
    """Time `launch()` as carefully as `seconds` allow, the warm-up not counted.

    Samples are batches of launches between two events, as many as make 200 times the resolution
    of an event. They begin when their median has settled to 1%, or after as long a warm-up as
    `seconds`; `Timing.settled` says which. There are `least` samples, and up to 301.

    cold: the L2 cache is overwritten before each sample, which is then a single launch. alone: a
    sample is a single launch on an idle device, so that its time has the launch in it. Neither:
    launches queued back to back, each finding in the caches what the last one left.

    while_busy is called once while samples are being run, e.g. to read clocks (helpers.nvml).
    """
    _check_callable(launch)
    _check_seconds(seconds)
    if isinstance(least, bool) or not isinstance(least, numbers.Integral) or least < 1:
        raise WrongValue(f"least={least!r} must be an integer >= 1")
    cuda = driver()
    sampler = _Sampler(cuda, launch, stream, L2Flush(cuda, stream) if cold else None, alone)
    settled = sampler.warm_up(seconds)
    each = max(sampler.last_ms * sampler.batch, 1e-6)
    count = max(int(least), min(int(seconds * 1e3 / each), MOST_SAMPLES))
    warmup = sampler.launches
    times = sampler.samples(count, while_busy)
    return Timing(tuple(times), warmup, cold, backend(), sampler.batch, alone, settled)


class _Sampler:
    """Takes samples of a launch, and counts the launches."""

    def __init__(self, cuda: Any, launch: Any, stream: Any, flush: Any, alone: bool) -> None:
        self.cuda, self.launch, self.stream, self.flush = cuda, launch, stream, flush
        self.alone, self.single = alone, alone or flush is not None
        self.batch = 1
        self.launches = 0
        self.last_ms = 0.0

    def warm_up(self, seconds: float) -> bool:
        """Sets the size of a batch, then samples until the times have settled, or time is up."""
        self.sample()  # the first launch of all may compile, load code or wake the device up
        end = time.perf_counter() + seconds
        if not self.single:
            self._size_batch()
        history: list[float] = []
        while True:
            history.append(self.sample())
            if len(history) < 2 * WINDOW:
                continue
            now = statistics.median(history[-WINDOW:])
            before = statistics.median(history[-2 * WINDOW : -WINDOW])
            if abs(now - before) <= SETTLED * now:
                return True
            if time.perf_counter() > end:
                return False

    def _size_batch(self) -> None:
        """Doubles the batch until it is long enough for the clock."""
        long_enough = RESOLUTIONS_A_SAMPLE * EVENT_RESOLUTION_MS
        while self.sample() * self.batch < long_enough and self.batch < MOST_LAUNCHES_A_SAMPLE:
            self.batch = min(2 * self.batch, MOST_LAUNCHES_A_SAMPLE)

    def sample(self) -> float:
        """One sample, waited for: milliseconds of a launch."""
        if self.alone:
            self.cuda.Context.synchronize()
        start, end = self._queue()
        end.synchronize()
        self.last_ms = float(start.time_till(end)) / self.batch
        return self.last_ms

    def samples(self, count: int, while_busy: Callable[[], object] | None) -> list[float]:
        """That many samples; queued without waiting in between, unless each is to be alone."""
        if self.alone:
            times = [self.sample() for _ in range(count // 2)]
            if while_busy:
                self._queue()
                while_busy()
            return times + [self.sample() for _ in range(count - len(times))]
        pairs = [self._queue() for _ in range(count)]
        if while_busy:
            while_busy()
        pairs[-1][1].synchronize()
        return [float(start.time_till(end)) / self.batch for start, end in pairs]

    def _queue(self) -> Any:
        start, end = self.cuda.Event(), self.cuda.Event()
        if self.flush:
            self.flush()
        start.record(self.stream)
        for _ in range(self.batch):
            self.launch()
        end.record(self.stream)
        self.launches += self.batch
        return start, end


def median_interval(
    times: tuple[float, ...], confidence: float = 0.95, *, seed: int = SEED
) -> tuple[float, float]:
    """Where the median lies, with that confidence, by the bootstrap; the same for the same times.

    As many times as there are, drawn from them with replacement, have a median of their own; of
    2,000 such medians the middle share is the interval (B. Efron, Bootstrap methods: another look
    at the jackknife, Ann. Statist. 7 (1979) 1-26; the percentile interval). It tells of the scatter
    between the repeats, not of what is wrong with all of them.
    """
    if not times:
        raise WrongValue("no times: an interval needs at least one")
    if not 0 < confidence < 1:
        raise WrongValue(f"confidence={confidence!r} must be between 0 and 1, e.g. 0.95")
    drawn = np.random.default_rng(seed).integers(0, len(times), (RESAMPLES, len(times)))
    medians = np.median(np.asarray(times)[drawn], axis=1)
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


_EMPTY = 'extern "C" __global__ void empty() {}'


def launch_overhead(*, seconds: float = 0.2, stream: Any = None) -> Overhead:
    """What a launch costs besides the kernel. Shown beside times, never taken off them."""
    _check_seconds(seconds)
    cuda = driver()
    from pycuda.compiler import SourceModule

    function = SourceModule(_EMPTY, no_extern_c=True).get_function("empty")

    def launch() -> None:
        function(block=(1, 1, 1), grid=(1, 1), stream=stream)

    queued = benchmark(launch, seconds=seconds, stream=stream)
    alone = benchmark(launch, alone=True, seconds=seconds, stream=stream)
    calls, trips = [], []
    for _ in range(50):
        cuda.Context.synchronize()
        begin = time.perf_counter()
        launch()
        called = time.perf_counter()
        cuda.Context.synchronize()
        calls.append((called - begin) * 1e3)
        trips.append((time.perf_counter() - begin) * 1e3)
    median = statistics.median
    return Overhead(queued.median_ms, alone.median_ms, median(calls), median(trips), backend())


def three_clocks(launch: Callable[[], object], *, stream: Any = None) -> Clocks:
    """The same launch by events, by the host's clock, and by a host that forgot to synchronise.

    A launch returns as soon as it is queued, so the last clock shows the length of a call.
    """
    _check_callable(launch)
    cuda = driver()
    launch()
    cuda.Context.synchronize()
    begin = time.perf_counter()
    launch()
    returned = time.perf_counter()
    cuda.Context.synchronize()
    done = time.perf_counter()
    start, end = _queue_timed(cuda, launch, None, stream)
    end.synchronize()
    return Clocks(
        float(start.time_till(end)), (done - begin) * 1e3, (returned - begin) * 1e3, backend()
    )


def gflops(M: int, N: int, K: int, ms: float) -> float:
    """Billions of floating-point operations a second of an M x K times K x N product in `ms`.

    One product takes 2*M*N*K: a multiplication and an addition for each of M*N*K pairs.
    """
    if isinstance(ms, bool) or not isinstance(ms, numbers.Real):
        raise WrongType(f"ms={ms!r} is a {type(ms).__name__}: give a number of milliseconds")
    if not ms > 0:
        raise WrongValue(f"{ms} ms is no time: it must be more than 0")
    if min(M, N, K) < 1:
        raise WrongValue(f"M={M}, N={N}, K={K}: sizes are at least 1")
    return 2 * int(M) * int(N) * int(K) / (ms * 1e6)


def backend() -> str:
    """What the current context runs on: "gpu", or "cpu" for the CPU driver."""
    driver()
    cpu_driver = sys.modules.get("helpers.cpu_driver")
    return "cpu" if cpu_driver is not None and cpu_driver.is_loaded() else "gpu"


class L2Flush:
    """Called, it overwrites a buffer twice the size of the L2 cache, on the stream."""

    def __init__(self, cuda: Any, stream: Any = None) -> None:
        size = cuda.Context.get_device().get_attribute(cuda.device_attribute.L2_CACHE_SIZE)
        if size <= 0:
            raise RuntimeError("this device does not say how large its L2 cache is: no flush")
        self.buffer = DeviceArray(2 * size, "uint8")
        self.cuda, self.stream = cuda, stream

    def __call__(self) -> None:
        arguments = (self.buffer.gpudata, 0, self.buffer.nbytes)
        if self.stream is None:
            self.cuda.memset_d8(*arguments)
        else:
            self.cuda.memset_d8_async(*arguments, self.stream)


def _queue_timed(cuda: Any, launch: Callable[[], object], flush: Any, stream: Any) -> Any:
    start, end = cuda.Event(), cuda.Event()
    if flush:
        flush()
    start.record(stream)
    launch()
    end.record(stream)
    return start, end


def _check_callable(launch: object) -> None:
    if not callable(launch):
        raise WrongType(
            f"launch is a {type(launch).__name__}, which cannot be called; give a function: "
            "lambda: kernel.launch(dA, dB, dC, M, N, K)"
        )


def _check_seconds(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise WrongType(f"seconds={seconds!r} is a {type(seconds).__name__}: give a number, 0.5")
    if not 0 < seconds < math.inf:
        raise WrongValue(f"seconds={seconds!r} must be more than 0, and not without an end")


def _digits(ms: float) -> str:
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"
