"""The tuner: its candidates, what it chooses, and that it goes on where it stopped."""

from __future__ import annotations

import pytest

from helpers import tune
from helpers.best import SAFE, Constants, recorded
from helpers.errors import WrongType, WrongValue

H200_SHARED = 228 * 1024


def test_candidates_are_what_a_multiprocessor_can_hold() -> None:
    found = tune.candidates(H200_SHARED)
    assert SAFE in found and Constants() in found
    assert len(found) == len(set(found)) > 30
    for one in found:
        assert one.RESIDENT * (one.shared_bytes + 1024) <= H200_SHARED
    few = tune.candidates(100 * 1024)
    assert set(few) < set(found) and SAFE in few


def test_constants_suit_sizes_of_their_kind() -> None:
    thin = Constants(BM=16, BN=128, BK=64, TM=8, LANES_M=2, STAGES=3, SLICES=8)
    assert tune.suits(thin, (16, 16384, 4096))
    assert not tune.suits(Constants(), (16, 16384, 4096))  # seven of eight rows would lie outside
    assert not tune.suits(thin, (8192, 8192, 8192))
    assert tune.suits(Constants(), (4096, 4096, 4096))


def row(size, ms, **constants):
    return {"size": list(size), "ms": ms, "constants": tune._dict(Constants(**constants)),
            "share": 1.0}  # fmt: skip


def test_of_what_is_as_fast_the_most_slices_are_chosen() -> None:
    sliced = {"BM": 128, "BN": 128, "BK": 16, "STAGES": 3, "SLICES": 2}
    size, other = (64, 64, 64), (96, 96, 96)
    rows = [row(size, 1.0), row(size, 1.004, **sliced),
            row(other, 1.0), row(other, 1.006, **sliced)]  # fmt: skip
    assert [c["constants"]["SLICES"] for c in tune.choices(rows)] == [2, 1]


def test_what_errs_more_than_cublas_is_not_chosen_where_there_is_something_else() -> None:
    size, other = (64, 64, 64), (96, 96, 96)
    rows = [
        row(size, 1.0) | {"error": 1.2},
        row(size, 1.1, STAGES=3) | {"error": 1.0},
        row(other, 1.0) | {"error": 1.2},
        row(other, 1.1, STAGES=3) | {"error": 1.1},
    ]
    assert [c["constants"]["STAGES"] for c in tune.choices(rows)] == [3, 4]


def test_a_record_of_the_same_source_and_compiler_is_gone_on_with() -> None:
    origin = {"card": "a card", "nvcc": "13.0", "date": "2026-01-02", "source": "abc"}
    kept = {**origin, "date": "2026-01-01", "left_out": [1], "times": [2], "chosen": [3]}
    assert tune.begun(kept, origin) == kept
    assert tune.begun({**kept, "nvcc": "12.9"}, origin)["times"] == []
    assert tune.begun({**kept, "source": "abd"}, origin)["times"] == []
    assert tune.begun(None, origin) == {**origin, "left_out": [], "times": [], "chosen": []}


def test_a_size_that_has_its_times_is_not_timed_again() -> None:
    rows = [row((64, 64, 64), 1.0)]
    tune._time_all((64, 64, 64), {Constants(): None}, None, rows)
    assert len(rows) == 1


def test_the_record_says_of_which_source_and_compiler_it_is_and_chooses_by_its_times() -> None:
    record = recorded()["NVIDIA H200"]
    assert len(record["source"]) == 16 and record["nvcc"] == "13.0.88"
    assert record["chosen"] == tune.choices(record["times"])


def test_the_table_names_what_was_chosen() -> None:
    text = tune.table(recorded()["NVIDIA H200"])
    assert text.startswith("NVIDIA H200, nvcc 13.0")
    assert text.count("<- chosen") == 16
    assert "% of cuBLAS" in text


@pytest.mark.parametrize("size, error, said", [
    ((64, 64), WrongType, "give M, N and K"),
    ("64", WrongType, "give M, N and K"),
    (64, WrongType, "give M, N and K"),
    ((64, 64.0, 64), WrongType, "N=64.0"),
    ((64, 64, 0), WrongValue, "K=0"),
    ((2**40, 64, 64), WrongValue, "M=1099511627776"),
])  # fmt: skip
def test_what_is_no_size_is_named(size, error, said) -> None:
    with pytest.raises(error, match=said):
        tune.tune([size])


@pytest.mark.parametrize("text, said", [
    ("{", "Expecting"),
    ("[]", "no records by card"),
    ('{"card": "NVIDIA H200", "times": []}', "'card' has no lists"),  # helpers.benchmark's
])  # fmt: skip
def test_a_file_that_holds_something_else_is_not_gone_on_with(tmp_path, text, said) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(WrongValue, match=f"other.json is no record of helpers.tune.*{said}"):
        tune.tune([(1024, 1024, 1024)], file)
    assert file.read_text() == text


@pytest.mark.usefixtures("autoinit")
def test_a_size_that_no_constants_suit_is_told_before_anything_is_compiled(monkeypatch) -> None:
    monkeypatch.setattr(tune, "build", None)
    with pytest.raises(WrongValue, match="size 64x64x64: no constants suit it"):
        tune.tune([(64, 64, 64)])


def test_some_constants_suit_each_of_the_usual_sizes() -> None:
    for size in tune.SIZES:
        assert any(tune.suits(one, size) for one in tune.candidates(H200_SHARED))


def test_there_is_no_tuning_on_the_cpu_driver(autoinit, capsys) -> None:
    if autoinit.backend == "gpu":
        pytest.skip("a GPU is there")
    assert tune.main(["--sizes", "64"]) == 1
    assert "this is the CPU driver" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [
    {"size": [64, 64]}, {"size": [64, 64, 0]}, {"ms": -1.0}, {"ms": "fast"}, {"constants": None},
    {"constants": {"BM": 100}}, {"constants": {}}, {"error": "none"}, {"share": "half"},
])  # fmt: skip
def test_a_row_of_a_record_that_cannot_be_read_is_named(tmp_path, wrong) -> None:
    good = row((64, 64, 64), 1.0)
    tune.check_rows({"times": [good]}, tmp_path)
    with pytest.raises(WrongValue, match="in the row") as error:
        tune.check_rows({"times": [good, good | wrong]}, tmp_path / "mine.json")
    assert "mine.json" in str(error.value)
    lacking = {name: value for name, value in good.items() if name not in wrong}
    if not {"error", "share"} & set(wrong):
        with pytest.raises(WrongValue, match="KeyError"):
            tune.check_rows({"times": [lacking]}, tmp_path)
