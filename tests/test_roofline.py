"""The roofline: intensities from counts, bounds from ceilings, and whose figures they are."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from helpers import roofline as module
from helpers.cards import CARDS
from helpers.ceilings import Ceilings
from helpers.kernels import BY_TILE, KERNELS
from helpers.recorded import Record, h200
from helpers.roofline import LEVELS, bytes_at, of, recorded_roofline, roofline

CEILINGS = Ceilings(60e12, 4e12, 5.5e12, 300.0, 700.0, "gpu")
H200 = CARDS["H200"]
COUNTS = {c["launch"]: c for c in json.loads(
    (Path(__file__).parent / "counters/h200.json").read_text())["counts"]}  # fmt: skip


@pytest.mark.parametrize("name", BY_TILE)
def test_bytes_near_the_units_are_those_that_the_hardware_counted(name: str) -> None:
    theirs = COUNTS[f"{name} 1024 1024 1024"]
    wavefronts = sum(theirs.get(f"shared {o} wavefronts", 0) for o in ("load", "store"))
    sectors = sum(theirs[f"global {o} sectors"] for o in ("load", "store"))
    assert bytes_at(KERNELS[name], 1024, H200)["L1 and shared"] == 128 * wavefronts + 32 * sectors


def test_intensity_and_bound() -> None:
    n = 1024
    found = of("a card, now", False, n, H200, CEILINGS, {"tiled": 0.25}, [KERNELS["tiled"]])
    by_level = {p.level: p for p in found.points}
    assert tuple(by_level) == LEVELS
    assert by_level["memory"].intensity == pytest.approx(2 * n**3 / (3 * 4 * n * n))
    assert by_level["L2 cache"].intensity == pytest.approx(2 * n / 4 / 65)
    for point in found.points:
        assert point.flops == pytest.approx(2 * n**3 / 0.25e-3)
    assert found.bound(by_level["memory"]) == 60e12
    assert found.bound(by_level["L2 cache"]) == pytest.approx(5.5e12 * 2 * n / 4 / 65)
    near = 128 * 132 * 1.98e9
    assert found.rates["L1 and shared"] == pytest.approx(near)
    assert found.title == "Measured on a card, now; N = 1,024"


def test_no_kernel_on_record_is_above_its_bound() -> None:
    """With data sheet ceilings or measured ones: only the caches' own levels can bound here."""
    for n in h200().sizes:
        found = recorded_roofline(h200(), n)
        assert found.points
        for point in found.points:
            assert point.flops <= found.bound(point) * 1.02, point


def test_a_record_is_labelled_as_recorded() -> None:
    found = recorded_roofline(h200(), 2048)
    assert found.recorded
    assert found.title.startswith(f"Recorded on {h200()}")
    assert "Recorded on NVIDIA H200" in str(found).splitlines()[0]
    assert "Recorded on NVIDIA H200" in found.picture().alt


def test_a_record_without_ceilings_says_whose_they_are_and_has_no_l2() -> None:
    content = dict(h200().content) | {"ceilings": None}
    found = recorded_roofline(Record(content))
    assert "ceilings of the data sheet" in found.title
    assert set(found.rates) == {"L1 and shared", "memory"}
    content["ceilings"] = CEILINGS.to_dict()
    found = recorded_roofline(Record(content))
    assert "data sheet" not in found.title
    assert set(found.rates) == set(LEVELS)
    assert found.peak == 60e12


@pytest.mark.parametrize("level", [None, *LEVELS])
def test_the_picture(level: str | None) -> None:
    times = {name: h200().ms(name, 1024) for name in BY_TILE}
    found = of("a card", False, 1024, H200, CEILINGS, times, list(BY_TILE.values()))
    picture = found.picture(level)
    assert picture.png().startswith(b"\x89PNG")
    for name in BY_TILE:
        assert name in picture.alt
    data, _ = found._repr_mimebundle_()
    assert set(data) == {"image/png", "text/plain"}
    with pytest.raises(ValueError, match="level='L3' is none of L1 and shared, L2 cache, memory"):
        found.picture("L3")


def test_the_table() -> None:
    found = of("a card", False, 1024, H200, CEILINGS, {"tiled": 0.25}, [KERNELS["tiled"]])
    lines = str(found).splitlines()
    assert lines[:2] == ["Measured on a card; N = 1,024", "FP32 units: 60.0 TFLOP/s"]
    assert lines[-1].split() == ["tiled", "memory", "170.67", "8.59", "14%"]


def test_without_a_gpu_it_is_the_recorded_one(autoinit: Any) -> None:
    found = roofline(1024)
    assert found.recorded == (autoinit.backend == "cpu")
    assert {p.kernel for p in found.points} >= {"naive", "tiled"}


def test_on_a_gpu_it_is_measured_now(autoinit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if autoinit.backend != "cpu":
        pytest.skip("the other test measures")
    monkeypatch.setattr(module, "backend", lambda: "gpu")
    monkeypatch.setattr(module, "measure_ceilings", lambda: CEILINGS)
    monkeypatch.setattr(module, "this_card", lambda: dataclasses.replace(H200, name="X"))
    found = roofline(64, [KERNELS["naive"]])
    assert (found.recorded, found.title) == (False, "Measured on X, now; N = 64")
    assert found.points[0].flops > 0
    given = roofline(64, [KERNELS["naive"]], times_ms={"naive": 1.0})
    assert given.points[0].flops == pytest.approx(2 * 64**3 / 1e-3)


@pytest.mark.usefixtures("autoinit")
def test_wrong_arguments_are_told() -> None:
    with pytest.raises(TypeError, match="n='x' is a str: give an integer"):
        roofline("x")
    with pytest.raises(TypeError, match=r"kernels='tiled' is no list: write \['tiled'\]"):
        roofline(1024, "tiled")
    with pytest.raises(ValueError, match="no kernel 'tilde'"):
        roofline(1024, ["tilde"])
    with pytest.raises(ValueError, match="its blocks share all tiles of C"):
        roofline(1024, [KERNELS["best"]])
    content = dict(h200().content) | {"ceilings": None}
    found = recorded_roofline(Record(content), 1024, [KERNELS["tiled"]])
    with pytest.raises(ValueError, match="level='L2 cache' has no measured rate here: there are L"):
        found.picture("L2 cache")
    with pytest.raises(KeyError, match="no time of kernel 'mine' on record: there are those of"):
        recorded_roofline(h200(), 1024, [dataclasses.replace(KERNELS["tiled"], name="mine")])
