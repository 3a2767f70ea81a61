"""Planted frauds are refused, each for its own reason, and honest results are not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from helpers import cards
from helpers.cards import CARDS, FP32_UNITS, card, this_card
from helpers.check import check_product
from helpers.kernels import KERNELS, MEASURED
from helpers.memory import allocate, upload
from helpers.nvml import Meter
from helpers.plausible import (
    DoesNotGrow,
    Impossible,
    NeverWritten,
    TooManyBytes,
    TooManyFlops,
    Unchecked,
    Watched,
    check_growth,
    check_product_rate,
    check_rate,
    compulsory_bytes,
    fills,
)
from helpers.recorded import h200

H200 = CARDS["H200"]
RIGHT = check_product(np.ones((1, 1), np.float32), *(np.ones((1, 1), np.float32),) * 2)
WRONG = check_product(np.zeros((1, 1), np.float32), *(np.ones((1, 1), np.float32),) * 2)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [("H200", 67), ("H100", 67), ("A100", 19.5), ("L4", 30.3), ("T4", 8.1), ("RTX 3090", 35.6),
     ("RTX 4090", 82.6)],
)  # fmt: skip
def test_units_and_clocks_make_the_flops_of_the_data_sheet(name: str, teraflops: float) -> None:
    assert CARDS[name].flops / 1e12 == pytest.approx(teraflops, rel=0.01)
    assert CARDS[name].source
    assert (CARDS[name].l2_latency is None) == (CARDS[name].latency_source == "")


def test_a_card_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(KeyError, match="H200, H100, A100, L4, T4, RTX 3090, RTX 4090"):
        card("GTX 480")


def test_the_clock_of_nvml_counts_where_it_is_higher(
    autoinit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_nvml import FakeNvml

    def faster(mhz: int) -> float:
        meter = Meter("0000:17:00.0", FakeNvml())
        reading = dataclasses.replace(meter.read(), highest_sm_mhz=mhz)
        monkeypatch.setattr(meter, "read", lambda: reading)
        monkeypatch.setattr(cards.Meter, "of_context", lambda: meter)
        return this_card().clock_hz

    attribute = this_card().clock_hz
    assert faster(50_000) == 50e9
    assert faster(1) == faster(0) == attribute or autoinit.backend == "gpu"


def test_a_cold_product_may_leave_c_in_the_l2_cache() -> None:
    size, rate = (1 << 24, 1, 1), H200.memory_rate * 1.02
    read = 4 * ((1 << 24) + 1)
    check_product_rate(*size, read / rate * 1.01e3, H200, verdict=RIGHT, cold=True)
    with pytest.raises(TooManyBytes):
        check_product_rate(*size, read / rate * 0.99e3, H200, verdict=RIGHT, cold=True)


@pytest.mark.usefixtures("autoinit")
def test_the_device_tells_its_own_figures() -> None:
    found = this_card()
    assert found.capability in FP32_UNITS
    if found.name.startswith("CPU driver"):
        assert found.flops == pytest.approx(CARDS["A100"].flops)
        assert found.memory_rate == pytest.approx(1.555e12, rel=1e-3)  # an A100 of 40 GB
    assert 1e11 < found.flops < 1e15
    assert 1e10 < found.memory_rate < 1e14


@pytest.mark.parametrize("row", h200()["times"], ids=lambda r: f"{r['kernel']} {r['median_ms']}")
def test_what_was_measured_is_possible(row: dict[str, Any]) -> None:
    size = (row["M"], row["N"], row["K"])
    check_product_rate(*size, row["median_ms"], H200, verdict=RIGHT)


def test_recorded_times_grow() -> None:
    tiles = {name: kernel.tile for name, kernel in (KERNELS | MEASURED).items()}
    queued = [row for row in h200()["times"] if row["mode"] == "queued"]
    for kernel in h200().kernels:
        times = [((row["M"], row["N"], row["K"]), row["median_ms"])
                 for row in queued if row["kernel"] == kernel]  # fmt: skip
        check_growth(times, H200, tiles.get(kernel, (1, 1)))


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(TypeError, match=r"card='H200' is no Card: write CARDS\['H200'\]"):
        check_rate(1, 1, 1.0, "H200")
    with pytest.raises(TypeError, match=r"size=1024: write \(\(M, N, K\), milliseconds\)"):
        check_growth([(1024, 3.0)], H200)
    with pytest.raises(Impossible, match="0.0 ms is no time"):
        check_growth([((1024,) * 3, 0.0)], H200)
    with pytest.raises(TypeError, match="the output is a ndarray: give the device's array"):
        Watched(np.zeros(4, np.float32))


def test_more_flops_than_the_card_has_units_for() -> None:
    with pytest.raises(TooManyFlops, match=r"H200 does 66\.9 at most \(132 multiproc.* 1,980 MHz"):
        check_product_rate(4096, 4096, 4096, 0.005, H200, verdict=RIGHT)  # the clock of a call
    limit = 2 * 4096**3 / H200.flops * 1e3
    check_product_rate(4096, 4096, 4096, limit, H200, verdict=RIGHT)
    with pytest.raises(TooManyFlops):
        check_product_rate(4096, 4096, 4096, limit * 0.97, H200, verdict=RIGHT)


def test_a_card_is_refused_by_its_own_peak() -> None:
    ms = 2 * 4096**3 / 50e12 * 1e3  # 50 TFLOP/s: cuBLAS on an H200
    check_product_rate(4096, 4096, 4096, ms, H200, verdict=RIGHT)
    with pytest.raises(TooManyFlops, match="A100"):
        check_product_rate(4096, 4096, 4096, ms, CARDS["A100"], verdict=RIGHT)


def test_more_bytes_than_the_memory_moves() -> None:
    nbytes = 1 << 30
    with pytest.raises(TooManyBytes, match=r"beyond the 60 MiB of its L2.*4,800 at most"):
        check_rate(0, nbytes, 0.1, H200)
    check_rate(0, nbytes, 0.23, H200)
    small = compulsory_bytes(1024, 1024, 1024)  # 12 MiB: may come from the L2 cache
    check_rate(0, small, 0.001, H200)
    with pytest.raises(TooManyBytes):
        check_rate(0, small, 0.001, H200, cold=True)


@pytest.mark.parametrize("ms", [0, -1, float("nan"), float("inf")])
def test_no_time_at_all(ms: float) -> None:
    with pytest.raises(Impossible, match="is no time"):
        check_rate(1, 1, ms, H200)


def test_a_kernel_that_was_not_checked_or_is_wrong() -> None:
    with pytest.raises(Unchecked, match="timed but not checked"):
        check_product_rate(1, 1, 1, 1.0, H200, verdict=None)
    with pytest.raises(Unchecked, match="is wrong: FAIL"):
        check_product_rate(1, 1, 1, 1.0, H200, verdict=WRONG)


def square(n: int) -> tuple[int, int, int]:
    return (n, n, n)


def test_time_that_does_not_grow() -> None:
    flat = [(square(n), 0.006) for n in (1024, 2048, 4096)]
    with pytest.raises(DoesNotGrow, match=r"2048, 2048, 2048 is 8 times the work.*1\.00 times as"):
        check_growth(flat, H200)
    check_growth([(square(1024), 1.0), (square(2048), 2.1)], H200)
    with pytest.raises(DoesNotGrow):  # in any order
        check_growth([(square(2048), 1.9), (square(1024), 1.0)], H200)
    check_growth([(square(1024), 1.0), (square(1448), 1.0)], H200)  # not eight times the work


def test_a_card_that_is_not_full_may_take_as_long() -> None:
    assert not fills(256, 256, H200)
    assert fills(1024, 1024, H200)
    # 32 blocks of 128 x 256 leave most of 132 multiprocessors idle.
    check_growth([(square(1024), 0.17), (square(2048), 0.33)], H200, tile=(128, 256))
    check_growth([(square(64), 0.006), (square(128), 0.006), (square(256), 0.006)], H200)
    check_growth([(square(256), 0.02), (square(1024), 0.03)], H200)


@pytest.mark.usefixtures("autoinit")
class TestWatched:
    def test_a_kernel_that_runs_is_let_through(self) -> None:
        ones = np.ones((40, 40), np.float32)
        with upload(ones) as dA, upload(ones) as dB, allocate((40, 40)) as dC:
            with Watched(dC):
                KERNELS["naive"].launch(dA, dB, dC, 40, 40, 40)
            assert (dC.download() == 40).all()

    def test_a_kernel_that_is_never_launched(self) -> None:
        with allocate((40, 40)) as dC:
            with pytest.raises(NeverWritten, match="all 1,600 elements.*never launched"):
                with Watched(dC):
                    pass

    def test_a_kernel_that_writes_elsewhere(self) -> None:
        ones = np.ones((40, 40), np.float32)
        with upload(ones) as dA, upload(ones) as dB, allocate((40, 40)) as dC:
            with allocate((40, 40)) as other, pytest.raises(NeverWritten):
                with Watched(dC):
                    KERNELS["naive"].launch(dA, dB, other, 40, 40, 40)

    def test_a_grid_that_is_too_small(self) -> None:
        ones = np.ones((40, 40), np.float32)
        kernel = KERNELS["naive"]
        with upload(ones) as dA, upload(ones) as dB, allocate((40, 40)) as dC:
            sizes = (np.int32(40),) * 3
            with pytest.raises(NeverWritten, match="576 of 1,600 .* leaves out a part"):
                with Watched(dC):
                    kernel.function()(dA, dB, dC, *sizes, block=(32, 32, 1), grid=(1, 1))

    def test_nan_that_a_kernel_computes_counts_as_written(self) -> None:
        nan = np.full((8, 8), np.nan, np.float32)
        with upload(nan) as dA, upload(nan) as dB, allocate((8, 8)) as dC:
            with Watched(dC):
                KERNELS["tiled"].launch(dA, dB, dC, 8, 8, 8)

    def test_an_error_in_the_block_comes_through(self) -> None:
        with allocate((8, 8)) as dC, pytest.raises(ZeroDivisionError):
            with Watched(dC):
                raise ZeroDivisionError

    def test_only_floats_can_be_watched(self) -> None:
        with allocate((8,), "int32", fill=0) as counts, pytest.raises(TypeError, match="int32"):
            Watched(counts)
