"""The picture of a sweep: its numbers, and whose they are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from helpers import plots
from helpers.recorded import h200
from helpers.speeds import _spread, rates, share_of_cublas, speeds


def row(kernel: str, n: int, ms: float, **more: float) -> dict:
    return {"kernel": kernel, "M": n, "N": n, "K": n, "mode": "queued", "median_ms": ms,
            "tflops": 2e-9 * n**3 / ms, **more}  # fmt: skip


FOUND = {
    "card": "X",
    "date": "2026-01-02",
    "backend": "cpu",
    "times": [row("a", 1024, 2.0), row("a", 2048, 16.0), row("b", 1024, 1.0),
              {**row("b", 1024, 1.0), "K": 5}, {**row("b", 2048, 3.0), "mode": "alone"}],
}  # fmt: skip


def test_rates_are_in_the_picture_and_its_words() -> None:
    picture = speeds(FOUND)
    assert picture.png().startswith(b"\x89PNG")
    assert picture.alt.endswith("a at 1024: 1.07 TFLOP/s; a at 2048: 1.07 TFLOP/s; "
                                "b at 1024: 2.15 TFLOP/s.")  # fmt: skip
    assert "b at 2048: 5.73" in speeds(FOUND, ["b"], mode="alone").alt


def test_cpu_times_and_records_are_called_so() -> None:
    assert "Measured on X, 2026-01-02 (CPU time, not GPU time)." in speeds(FOUND).alt
    kept = speeds(h200().content, ["naive", "tiled"], recorded=True).alt
    assert f"Recorded on {h200()}." in kept
    assert "CPU" not in kept


def test_the_interval_of_a_time_is_one_of_the_rate() -> None:
    low, high = _spread(row("a", 1024, 2.0, low_ms=1.0, high_ms=4.0), 1)
    rate = 2e-9 * 1024**3 / 2
    assert (rate - low, rate + high) == pytest.approx((rate / 2, rate * 2))
    assert _spread(row("a", 1024, 2.0), 1) == (0, 0)


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no time of a square product \(cold\) of a"):
        speeds(FOUND, ["a"], mode="cold")
    with pytest.raises(TypeError, match=r"kernels='tiled' is no list: write \['tiled'\]"):
        speeds(FOUND, "tiled")


def test_a_record_is_always_called_recorded() -> None:
    assert f"Recorded on {h200()}." in speeds(h200(), ["naive"]).alt
    assert rates(h200(), ["naive"]).startswith(f"Recorded on {h200()}: TFLOP/s")


def test_what_was_not_measured_is_left_out() -> None:
    assert "cublas" not in speeds(FOUND, ["a", "cublas"]).alt
    assert rates(FOUND, ["a", "cublas"]).endswith("cuBLAS was not measured.")
    assert share_of_cublas(FOUND, "a", 1024) == "not measured"


def test_shares_are_those_of_cublas_at_the_same_size() -> None:
    times = [*FOUND["times"], row("cublas", 1024, 0.5), row("cublas", 4096, 1.0)]
    found = FOUND | {"times": times}
    assert share_of_cublas(found, "a", 1024) == 25
    assert share_of_cublas(found, "a", 4096) == "not measured"
    assert rates(found).splitlines()[1:] == [
        "n                    1,024         2,048         4,096",
        "a                     1.07 (25%)    1.07             -",
        "b                     2.15 (50%)       -             -",
        "cublas                4.29 (100%)      -        137.44 (100%)",
    ]


def test_slow_times_are_in_smaller_units() -> None:
    slow = FOUND | {"times": [row("a", 256, 10.0)]}
    assert speeds(slow).alt.endswith("a at 256: 3.36 GFLOP/s.")


def test_kernels_keep_their_colours_in_the_picture(tmp_path: Path) -> None:
    names = ["naive", "naive_uncoalesced", "tiled", "tiled_conflict", "padded"]
    speeds(h200(), names).save(tmp_path / "x.png")
    pixels = Image.open(tmp_path / "x.png").convert("RGB")
    drawn = [colour for count, colour in pixels.getcolors(1 << 20) if count > 200]
    for wanted in (plots.BLUE, plots.VERMILION, plots.GREEN, plots.ORANGE, plots.SKY):
        rgb = tuple(bytes.fromhex(wanted[1:]))
        assert any(max(abs(a - b) for a, b in zip(rgb, c, strict=True)) < 8 for c in drawn), wanted
