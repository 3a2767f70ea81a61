"""How long a kernel takes, by CUDA events, and what that makes in FLOP/s.

    timing = time_kernel(lambda: kernel.launch(dA, dB, dC, M, N, K))
    print(timing, f"{gflops(M, N, K, timing.median_ms):,.0f} GFLOP/s")

An event is a time stamp that the device takes when it reaches it in the stream, to about half a
microsecond (CUDA Runtime API, cudaEventElapsedTime). On the CPU driver the same events measure how
long the CPU took, which says nothing about any GPU; `Timing.backend` tells the two apart.
"""

from __future__ import annotations

import numbers
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helpers.memory import DeviceArray, driver


@dataclass(frozen=True, repr=False)
class Timing:
    """Times of the repeats of one launch, in milliseconds."""

    times_ms: tuple[float, ...]
    warmup: int  # launches before the first one that counts
    l2_flushed: bool  # whether the L2 cache was overwritten before each repeat
    backend: str  # "gpu" or "cpu"

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
        """Number of launches timed."""
        return len(self.times_ms)

    @property
    def clock(self) -> str:
        """What was timed, in words."""
        return "GPU time" if self.backend == "gpu" else "CPU time, not GPU time"

    def __str__(self) -> str:
        spread = f"{_digits(self.min_ms)} to {_digits(self.max_ms)}"
        cache = ", L2 flushed" if self.l2_flushed else ""
        return (
            f"{_digits(self.median_ms)} ms ({self.clock}; "
            f"median of {self.repeats}, {spread}{cache})"
        )

    __repr__ = __str__


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
            raise ValueError(f"{name}={count!r} must be an integer >= {least}")
    if not callable(launch):
        raise TypeError(
            f"launch is a {type(launch).__name__}; give a function: "
            "time_kernel(lambda: kernel.launch(dA, dB, dC, M, N, K))"
        )
    cuda = driver()
    for _ in range(warmup):
        launch()
    flush = _L2Flush(cuda, stream) if flush_l2 else None
    pairs = [_queue_timed(cuda, launch, flush, stream) for _ in range(repeats)]
    pairs[-1][1].synchronize()
    times = tuple(float(start.time_till(end)) for start, end in pairs)
    return Timing(times, warmup, flush_l2, backend())


def gflops(M: int, N: int, K: int, ms: float) -> float:
    """Billions of floating-point operations a second of an M x K times K x N product in `ms`.

    One product takes 2*M*N*K: a multiplication and an addition for each of M*N*K pairs.
    """
    if not ms > 0:
        raise ValueError(f"{ms} ms is no time: it must be more than 0")
    return 2 * int(M) * int(N) * int(K) / (ms * 1e6)


def backend() -> str:
    """What the current context runs on: "gpu", or "cpu" for the CPU driver."""
    driver()
    cpu_driver = sys.modules.get("helpers.cpu_driver")
    return "cpu" if cpu_driver is not None and cpu_driver.is_loaded() else "gpu"


class _L2Flush:
    """Overwrites a buffer twice the size of the L2 cache, on the stream."""

    def __init__(self, cuda: Any, stream: Any) -> None:
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


def _digits(ms: float) -> str:
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"
