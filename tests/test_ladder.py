"""The ladder's numbers are the record's, its rungs the lessons', its picture says both in words."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import ladder as module
from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS
from helpers.ladder import ladder, steps
from helpers.recorded import Record, h200
from helpers.speeds import share_of_cublas


def record(n: int = 64, **tflops: float) -> Record:
    rows = [{"kernel": name, "M": n, "N": n, "K": n, "mode": "queued", "tflops": rate,
             "median_ms": 2 * n**3 / rate / 1e9} for name, rate in tflops.items()]  # fmt: skip
    return Record({"card": "a card", "date": "2026-11-30", "times": rows})


def test_shares_are_those_of_the_record() -> None:
    found = ladder(live=False)
    assert found.rungs
    for rung in found.rungs:
        assert round(rung.share) == share_of_cublas(h200(), rung.kernel, 4096)
        assert rung.tflops == pytest.approx(h200().row(rung.kernel, 4096)["tflops"], rel=1e-3)
        assert rung.live_share is None
    assert found.share("tiled") == found.rungs[1].share


def test_rungs_are_steps_in_the_order_of_the_lessons() -> None:
    assert steps(5) == ["naive", "tiled"]
    assert steps(6) == ["naive", "tiled", "register_column", "register_tile"]
    assert steps()[:4] == steps(6)
    assert [KERNELS[name].lesson for name in steps()] == sorted(
        KERNELS[name].lesson for name in steps()
    )
    assert [rung.kernel for rung in ladder(upto=6, live=False).rungs] == steps(6)


def test_kernels_can_be_asked_for_by_name() -> None:
    found = ladder(1024, ["padded", "tiled"], live=False)
    assert [rung.kernel for rung in found.rungs] == ["padded", "tiled"]


def test_a_step_that_is_not_on_record_is_left_out_unless_asked_for() -> None:
    short = record(naive=1, cublas=4)
    assert [rung.kernel for rung in ladder(64, live=False, record=short).rungs] == ["naive"]
    with pytest.raises(WrongValue, match="no time of kernel 'tiled' at n=64 on record"):
        ladder(64, ["tiled"], live=False, record=short)


def test_what_was_measured_stands_beside_the_record() -> None:
    live = {"card": "another", "date": "2026-12-01"}
    live |= {"times": record(naive=1, tiled=2, cublas=8)["times"]}
    found = ladder(64, live=live, record=record(naive=1, tiled=3, cublas=4), upto=2)
    assert [(r.share, r.live_share) for r in found.rungs] == [
        (pytest.approx(25), pytest.approx(12.5)), (pytest.approx(75), pytest.approx(25)),
    ]  # fmt: skip
    assert str(found).splitlines() == [
        "Share of cuBLAS at N = 64, recorded on a card, 2026-11-30; and on another, 2026-12-01",
        "1 · naive               25%    1.0 TFLOP/s     12%    1.0 TFLOP/s",
        "2 · tiled               75%    3.0 TFLOP/s     25%    2.0 TFLOP/s",
    ]
    assert "tiled (lesson 2) 75%, now 25%" in found.alt


def test_without_a_cublas_there_nothing_stands_beside_it() -> None:
    live = {"card": "another", "date": "2026-12-01", "times": record(naive=1)["times"]}
    found = ladder(64, live=live, record=record(naive=1, cublas=4))
    assert found.rungs[0].live_share is None and not found.live_card


def test_on_a_gpu_the_rungs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def sweep(kernels, sizes, modes):
        asked.append((kernels, sizes, modes))
        return {"card": "another", "date": "2026-12-01",
                "times": record(naive=2, cublas=8)["times"]}  # fmt: skip

    monkeypatch.setattr(module, "backend", lambda: "gpu")
    monkeypatch.setattr("helpers.benchmark.sweep", sweep)
    found = ladder(64, record=record(naive=1, cublas=4))
    assert asked == [(["naive", "cublas"], [64], ["queued"])]
    assert found.rungs[0].live_share == 25


def test_the_picture_names_card_date_and_every_share() -> None:
    found = ladder(upto=6, live=False)
    assert found.alt.startswith("Bars of the kernels' shares of cuBLAS's speed at N = 4,096, "
                                f"recorded on {h200()}: naive (lesson 1) ")  # fmt: skip
    (axes,) = found.figure.axes
    drawn = [text.get_text() for text in axes.texts]
    for rung in found.rungs:
        assert f"{rung.share:.0f}% · {rung.tflops:.1f} TFLOP/s" in drawn
    assert found.png().startswith(b"\x89PNG") and len(found.png()) < 40_000


@pytest.mark.parametrize("arguments, error, said", [
    ({"n": 100}, WrongValue, "n=100: cuBLAS's time is not on record"),
    ({"kernels": "tiled"}, WrongType, r"write \['tiled'\]"),
    ({"kernels": ["tilde"]}, WrongValue, "there is no kernel 'tilde'"),
    ({"upto": 0}, WrongValue, "there is no lesson 0"),
    ({"upto": 99}, WrongValue, "there is no lesson 99; the last one is 9"),
    ({"live": True}, WrongType, "what helpers.benchmark.sweep returns"),
    ({"live": 3}, WrongType, "not what helpers.benchmark.sweep returns"),
    ({"live": {"times": [{}]}}, WrongType, "not what helpers.benchmark.sweep returns"),
    ({"n": 4096.0}, WrongType, "n=4096.0 is a float"),
    ({"n": None}, WrongType, "n=None"),
    ({"upto": "6"}, WrongType, "upto='6' is a str"),
    ({"upto": 6.5}, WrongType, "upto=6.5 is a float"),
    ({"kernels": 3}, WrongType, "kernels=3 is no list"),
    ({"kernels": [[]]}, WrongValue, r"there is no kernel \[\]"),
    ({"kernels": []}, WrongValue, r"kernels=\[\] names none"),
    ({"record": {}}, WrongType, "give a helpers.recorded.Record"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments: dict, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        ladder(**({"live": False} | arguments))


def test_numpys_integers_are_numbers_too() -> None:
    assert ladder(np.int64(4096), upto=np.int32(6), live=False).rungs == ladder(
        4096, upto=6, live=False
    ).rungs


def test_a_share_of_what_is_no_rung_is_refused() -> None:
    with pytest.raises(WrongValue, match="'padded' is no rung of this ladder: there are naive"):
        ladder(live=False).share("padded")
