"""helpers.timing beyond time_kernel: batches, warm-up, intervals, overhead, the three clocks."""

from __future__ import annotations

import itertools
import statistics
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda

from helpers import timing
from helpers.kernels import KERNELS
from helpers.memory import allocate
from helpers.timing import Clocks, Overhead, benchmark, median_interval, three_clocks


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a FakeCuda in the place of the device, and its clock in that of the host's."""

    def install(**how: float) -> FakeCuda:
        cuda = FakeCuda(**how)
        monkeypatch.setattr(timing, "driver", lambda: cuda)
        monkeypatch.setattr(timing, "backend", lambda: "gpu")
        monkeypatch.setattr(timing.time, "perf_counter", cuda.perf_counter)
        monkeypatch.setattr(
            timing, "DeviceArray", lambda size, kind: SimpleNamespace(gpudata=1, nbytes=size)
        )
        return cuda

    return install


@pytest.mark.parametrize("kernel_ms", [0.001, 0.02, 0.09, 3.0])
def test_a_sample_is_two_hundred_times_as_long_as_the_clock_is_coarse(fake, kernel_ms) -> None:
    cuda = fake(kernel_ms=kernel_ms)
    found = benchmark(cuda.launch)
    assert found.median_ms == pytest.approx(kernel_ms)
    sample = found.batch * kernel_ms
    assert sample >= 200 * 0.5e-3 * (1 - 1e-9)
    assert found.batch == 1 or sample < 2 * 200 * 0.5e-3
    assert cuda.launches == found.warmup + found.repeats * found.batch
    assert (found.backend, found.settled, found.how) == ("gpu", True, "queued back to back")


def test_a_longer_limit_gives_more_samples_and_none_gives_fewer_than_the_least(fake) -> None:
    cuda = fake(kernel_ms=10)
    assert benchmark(cuda.launch, seconds=0.5).repeats == 50
    assert benchmark(cuda.launch, seconds=1e-3).repeats == timing.LEAST_SAMPLES
    assert benchmark(cuda.launch, seconds=1e-3, least=3).repeats == 3
    assert benchmark(cuda.launch, seconds=1e3).repeats == timing.MOST_SAMPLES


def test_times_begin_when_the_device_has_warmed_up(fake) -> None:
    cuda = fake()
    cooling = itertools.chain((5.0 * 0.8**i + 1 for i in range(40)), itertools.repeat(1.0))

    def launch() -> None:
        cuda.kernel_ms = next(cooling)
        cuda.launch()

    found = benchmark(launch, seconds=5)
    assert found.settled
    assert found.max_ms < 1.05
    assert found.warmup >= 15


def test_a_kernel_that_is_slower_than_the_limit_can_settle_too(fake) -> None:
    found = benchmark(fake(kernel_ms=500).launch, seconds=0.1, least=2)
    assert (found.settled, found.repeats) == (True, 2)
    assert found.warmup == 2 + 2 * timing.WINDOW  # one to wake up, one to size the batch


def test_what_never_settles_is_said(fake) -> None:
    cuda = fake()

    def launch() -> None:
        cuda.kernel_ms *= 1.05
        cuda.launch()

    found = benchmark(launch, seconds=0.2)
    assert not found.settled
    assert "still changing after the warm-up" in str(found)


def test_cold_overwrites_the_cache_before_every_single_launch(fake) -> None:
    cuda = fake(kernel_ms=0.01)
    found = benchmark(cuda.launch, cold=True, seconds=0.01)
    assert (found.batch, found.l2_flushed, found.how) == (1, True, "queued, L2 flushed")
    assert cuda.flushes == cuda.launches
    assert found.median_ms == pytest.approx(0.01)  # the flush is not in it


def test_alone_has_the_launch_in_its_time_and_queued_has_not(fake) -> None:
    cuda = fake(kernel_ms=0.05, call_ms=0.01)
    queued, alone = benchmark(cuda.launch), benchmark(cuda.launch, alone=True)
    assert queued.median_ms == pytest.approx(0.05, rel=0.06)
    assert alone.median_ms == pytest.approx(0.06)
    assert (alone.batch, alone.how) == (1, "one at a time")
    assert "one launch at a time" in str(alone)


@pytest.mark.parametrize("how", [{}, {"alone": True}, {"cold": True}])
def test_clocks_are_read_once_while_the_device_has_work(fake, how) -> None:
    cuda = fake(kernel_ms=1)
    busy = []
    found = benchmark(
        cuda.launch, seconds=0.05, while_busy=lambda: busy.append(cuda.device > cuda.host), **how
    )
    assert busy == [True]
    assert found.median_ms == pytest.approx(1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"seconds": 0}, "seconds=0 must be more than 0"),
        ({"seconds": float("nan")}, "seconds=nan"),
        ({"seconds": float("inf")}, "seconds=inf must be more than 0, and not without an end"),
        ({"seconds": "1"}, "seconds='1' is a str: give a number"),
        ({"least": 0}, "least=0 must be an integer >= 1"),
        ({"least": True}, "least=True"),
    ],
)
def test_limits_that_make_no_sense_are_errors(fake, how, message) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        benchmark(fake().launch, **how)


def test_what_cannot_be_called_is_an_error(fake) -> None:
    fake()
    for function in (benchmark, three_clocks):
        with pytest.raises(TypeError, match="give a function"):
            function("launch")


def test_an_interval_is_the_same_for_the_same_times_and_holds_the_median() -> None:
    times = tuple(np.random.default_rng(0).exponential(1, 41))
    low, high = median_interval(times)
    assert median_interval(times) == (low, high)
    assert min(times) <= low <= statistics.median(times) <= high <= max(times)
    wide, narrow = median_interval(times, 0.99), median_interval(times, 0.5)
    assert wide[0] <= low <= narrow[0] <= narrow[1] <= high <= wide[1]
    assert median_interval((2.0,) * 5) == (2, 2)


def test_an_interval_holds_the_true_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    true, rounds = np.log(2), 300
    inside = 0
    for _ in range(rounds):
        low, high = median_interval(tuple(random.exponential(1, 31)), 0.95)
        inside += low <= true <= high
    assert 0.90 < inside / rounds < 0.99


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_is_a_share(confidence) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        median_interval((1.0, 2.0), confidence)
    with pytest.raises(ValueError, match="no times"):
        median_interval(())


def test_the_clock_that_was_stopped_too_early_shows_the_call(fake) -> None:
    cuda = fake(kernel_ms=4, call_ms=0.01)
    found = three_clocks(cuda.launch)
    assert found.event_ms == pytest.approx(4.01)
    assert found.host_ms == pytest.approx(4.01)
    assert found.unsynchronised_ms == pytest.approx(0.01)
    lines = str(found).splitlines()
    assert lines[2] == "host clock, forgot to synchronise        0.010 ms"
    assert "no clock is fooled here" in str(Clocks(1, 1, 1, "cpu"))


@pytest.mark.usefixtures("autoinit")
class TestOnThisDevice:
    def test_an_empty_kernel_shows_what_a_launch_costs(self, autoinit: Any) -> None:
        found = timing.launch_overhead(seconds=0.02)
        assert found.backend == autoinit.backend
        assert 0 < found.call_ms <= found.round_trip_ms < 100
        assert 0 < found.queued_ms < 100
        assert 0 < found.alone_ms < 100
        assert ("CPU times" in str(found)) == (autoinit.backend == "cpu")

    def test_a_real_kernel_by_every_way(self, autoinit: Any) -> None:
        n = 128
        with allocate((n, n), fill=1) as dA, allocate((n, n), fill=1) as dB:
            with allocate((n, n)) as dC:

                def launch() -> None:
                    KERNELS["tiled"].launch(dA, dB, dC, n, n, n)

                for how in ({}, {"cold": True}, {"alone": True}):
                    found = benchmark(launch, seconds=0.02, least=3, **how)
                    assert found.median_ms > 0
                    assert found.backend == autoinit.backend
                clocks = three_clocks(launch)
        assert clocks.host_ms >= clocks.unsynchronised_ms > 0


def test_overhead_is_written_in_microseconds() -> None:
    text = str(Overhead(0.0021, 0.0046, 0.005, 0.0123, "gpu"))
    assert "2.1 µs each when queued back to back, 4.6 µs alone" in text
    assert "5.0 µs on the call, 12.3 µs if it waits" in text
