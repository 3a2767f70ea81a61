"""Timing: how often a launch runs, and what the numbers are called."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from helpers.kernels import KERNELS
from helpers.memory import allocate, upload
from helpers.timing import Timing, gflops, time_kernel

needs_device = pytest.mark.usefixtures("autoinit")


class Counter:
    def __init__(self, seconds: float = 0) -> None:
        self.calls = 0
        self.seconds = seconds

    def __call__(self) -> None:
        self.calls += 1
        time.sleep(self.seconds)


def test_median_min_and_max_are_those_of_the_repeats() -> None:
    timing = Timing((3.0, 1.0, 2.0, 10.0), 3, False, "gpu")
    assert (timing.median_ms, timing.min_ms, timing.max_ms, timing.repeats) == (2.5, 1, 10, 4)


def test_the_text_says_what_was_timed() -> None:
    gpu, cpu = Timing((0.25,) * 5, 3, False, "gpu"), Timing((85.4,) * 3, 1, True, "cpu")
    assert str(gpu) == "0.250 ms (GPU time; median of 5, 0.250 to 0.250)"
    assert str(cpu) == ("85.4 ms (CPU time, not GPU time; median of 3, 85.4 to 85.4, L2 flushed)")


def test_a_product_is_two_flops_for_each_pair() -> None:
    assert gflops(1024, 1024, 1024, 1.0) == pytest.approx(2147.483648)
    assert gflops(2, 3, 5, 1e-3) == pytest.approx(0.06)
    assert gflops(np.int32(65536), np.int32(65536), np.int32(65536), 1.0) > 0  # no overflow


def test_what_is_no_time_or_size_is_an_error() -> None:
    with pytest.raises(TypeError, match="ms='2' is a str: give a number of milliseconds"):
        gflops(1, 1, 1, "2")
    with pytest.raises(ValueError, match="M=-1, N=1, K=1: sizes are at least 1"):
        gflops(-1, 1, 1, 2.0)


@pytest.mark.parametrize("ms", [0, -1, float("nan")])
def test_no_time_makes_no_rate(ms: float) -> None:
    with pytest.raises(ValueError, match="is no time"):
        gflops(1, 1, 1, ms)


@needs_device
class TestTimeKernel:
    def test_warm_up_and_repeats_are_counted(self, autoinit: Any) -> None:
        launch = Counter()
        timing = time_kernel(launch, repeats=5, warmup=2)
        assert launch.calls == 7
        assert (timing.repeats, timing.warmup, timing.l2_flushed) == (5, 2, False)
        assert timing.backend == autoinit.backend
        assert all(ms >= 0 for ms in timing.times_ms)

    def test_numpy_integers_are_counts_too(self) -> None:
        assert time_kernel(Counter(), repeats=np.int64(2), warmup=np.int32(0)).repeats == 2

    def test_no_warm_up_is_allowed(self) -> None:
        launch = Counter()
        time_kernel(launch, repeats=1, warmup=0)
        assert launch.calls == 1

    def test_the_l2_cache_can_be_flushed(self) -> None:
        assert time_kernel(Counter(), repeats=2, flush_l2=True).l2_flushed

    def test_a_stream_can_be_given(self, autoinit: Any) -> None:
        import pycuda.driver as cuda

        stream = cuda.Stream()
        timing = time_kernel(Counter(), repeats=3, flush_l2=True, stream=stream)
        assert timing.repeats == 3

    def test_a_larger_product_takes_longer(self) -> None:
        def median_ms(n: int) -> float:
            ones = np.ones((n, n), np.float32)
            with upload(ones) as dA, upload(ones) as dB, allocate((n, n)) as dC:
                return time_kernel(
                    lambda: KERNELS["tiled"].launch(dA, dB, dC, n, n, n), repeats=3
                ).median_ms

        assert median_ms(768) > 2 * median_ms(128)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"repeats": 0}, "repeats=0 must be an integer >= 1"),
            ({"repeats": 2.5}, "repeats=2.5 must be"),
            ({"repeats": True}, "repeats=True must be"),
            ({"warmup": -1}, "warmup=-1 must be an integer >= 0"),
        ],
    )
    def test_counts_out_of_range_are_errors(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            time_kernel(Counter(), **arguments)

    def test_what_cannot_be_called_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="give a function"):
            time_kernel(KERNELS["naive"].launch.__name__)  # type: ignore[arg-type]

    def test_an_error_in_the_launch_comes_through(self) -> None:
        def launch() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            time_kernel(launch, flush_l2=True)
