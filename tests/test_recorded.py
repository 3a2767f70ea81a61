"""The record of the H200: complete, consistent, and the same bits as this machine's."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from oracle import fma_product

from helpers import recorded
from helpers.benchmark import RESULT_SIZES, recorded_results
from helpers.errors import NotOnRecord, WrongValue
from helpers.kernels import KERNELS, MEASURED
from helpers.recorded import fingerprint, h200, seeded_matrices
from helpers.roofline import recorded_roofline

RECORDED = {**KERNELS, **MEASURED}
MISSING = [name for name in RECORDED if name not in h200().kernels]  # newer than the record


def test_the_record_says_where_it_comes_from() -> None:
    record = h200()
    assert "H200" in record.card
    assert str(record) == f"{record.card}, {record.date}"
    assert record["source"] == "python -m helpers.benchmark"
    for key in ("source", "driver", "method"):
        assert record[key]


def test_times_and_rates_agree() -> None:
    record = h200()
    assert {1024, 2048, 4096} <= set(record.sizes)
    for row in record["times"]:
        flops = 2 * row["M"] * row["N"] * row["K"]
        assert row["tflops"] == pytest.approx(1e-9 * flops / row["median_ms"], rel=0.02)
    assert record.gflops("tiled", 1024) == pytest.approx(2147.483648 / record.ms("tiled", 1024))
    assert record.speedup("tiled", "naive", 1024) == pytest.approx(
        record.ms("naive", 1024) / record.ms("tiled", 1024)
    )


def test_every_kernel_is_on_record() -> None:
    if MISSING:
        pytest.skip(f"record the H200 again: it has no {', '.join(MISSING)}")
    assert set(RECORDED) == set(h200().kernels) - {"cublas"}


def test_the_lessons_story_holds_on_the_card() -> None:
    record = h200()
    for n in (1024, 2048, 4096):
        assert 1.2 < record.speedup("tiled", "naive", n) < 2
        assert 8 < record.speedup("naive", "naive_uncoalesced", n) < 20


def test_the_story_of_lesson_3_holds_on_the_card() -> None:
    record = h200()
    for n in (1024, 2048, 4096):
        assert 4 < record.speedup("tiled", "tiled_conflict", n) < 7
        for mended in ("padded", "swizzled"):
            assert record.speedup(mended, "tiled_conflict", n) > 3


def test_the_story_of_lesson_4_holds_on_the_card() -> None:
    """One barrier a step costs no more than two, and saves less than the multiplying takes."""
    if MISSING:
        pytest.skip(f"record the H200 again: it has no {', '.join(MISSING)}")
    for n in (1024, 2048, 4096):
        assert 0.8 < h200().speedup("two_buffers_16", "tiled_16", n) < 2


def test_a_time_that_is_not_there_is_an_error_that_says_what_is() -> None:
    with pytest.raises(KeyError, match="kernel 'tiled' at n=7 .*1024 x 1024 x 1024, 2048"):
        h200().ms("tiled", 7)
    with pytest.raises(KeyError, match=r"\(warm\) on record: there are those queued, alone"):
        h200().ms("tiled", 1024, "warm")
    with pytest.raises(KeyError, match="'fastest'.*there are those of naive"):
        h200().ms("fastest", 1024)


def test_what_is_not_on_record_is_told_without_a_traceback() -> None:
    with pytest.raises(NotOnRecord) as error:
        h200().ms("best", np.int64(7))
    assert isinstance(error.value, KeyError)
    assert str(error.value).startswith("no time of kernel 'best' at ")
    assert h200().ms("tiled", np.int64(1024)) == h200().ms("tiled", 1024)


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"card": "a card"}', None])
def test_a_broken_record_is_named(tmp_path, monkeypatch, text) -> None:
    if text is not None:
        (tmp_path / "h200.json").write_text(text)
    monkeypatch.setattr(recorded, "DATA_FOLDER", tmp_path)
    with pytest.raises(WrongValue, match="h200.json is no record of helpers.benchmark: .*again"):
        recorded.h200.__wrapped__()


def test_seeded_matrices_are_the_same_everywhere() -> None:
    A, B = seeded_matrices(35, 19, 79)
    assert (A.shape, B.shape, A.dtype) == ((35, 79), (79, 19), np.float32)
    assert fingerprint(A) == "d127fbd04a4ca5b77dd1811d5333ca4831089d459303f9d53759455f96239943"
    assert fingerprint(B) == "fe98a0b8cefb092f8b4c3bdcb95359dd933797fb18766fb75fe98baed43dfd96"
    A, B = seeded_matrices(300, 300, 300)
    assert not np.array_equal(A, B)
    for matrix in (A, B):
        assert abs(matrix.mean()) < 0.01
        assert abs(matrix.std() - 1) < 0.01


def test_a_fingerprint_is_of_the_bits() -> None:
    assert fingerprint(np.zeros((1, 1), np.float32)) != fingerprint(-np.zeros((1, 1), np.float32))
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert fingerprint(np.asfortranarray(matrix)) == fingerprint(matrix)


@functools.cache
def chain(M: int, N: int, K: int) -> str:
    return fingerprint(fma_product(*seeded_matrices(M, N, K)))


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize("name", RECORDED)
def test_this_machine_computes_the_bits_that_the_card_did(name: str) -> None:
    """Whichever backend runs here: its results, those of the H200 and the oracle's are the same."""
    here = list(recorded_results([RECORDED[name]]))
    if name != "best":  # which has slices of K at some sizes, each with a sum of its own
        assert [row["sha256"] for row in here] == [chain(*size) for size in RESULT_SIZES]
    if name in MISSING:
        pytest.skip(f"record the H200 again: it has no {name}")
    assert on_the_card(name) == here


def on_the_card(name: str) -> list[dict[str, object]]:
    return [row for row in h200()["results"] if row["kernel"] == name]


def test_the_story_of_lesson_5_holds_on_the_card() -> None:
    record = h200()
    naive_without_caches = 5 * 1024**3 / 4.8e12 * 1e3  # milliseconds: 5 sectors a step of a warp
    assert 3 < naive_without_caches / record.ms("tiled", 1024) < 8
    for n in (1024, 4096):
        assert record.speedup("tiled", "naive_uncoalesced", n) > 8 * record.speedup(
            "tiled", "naive", n
        )
        assert record.speedup("tiled", "tiled_16", n) > 1
    found = recorded_roofline(record, 1024)
    reached = {(p.kernel, p.level): p.flops / found.bound(p) for p in found.points}
    assert all(share < 0.5 for (_, level), share in reached.items() if level == "memory")
    for kernel in ("tiled", "tiled_conflict"):
        assert reached[kernel, "L1 and shared"] > 0.8
