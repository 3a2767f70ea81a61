"""Predictions are answered, and a reader's kernel is checked as the lesson's own cell does it."""

import nbformat
import pytest

from helpers import lesson
from helpers.checker import Result, check
from helpers.lesson import answer, recorded_times
from helpers.recorded import Record
from tests.notebooks.regenerate import NOTEBOOKS

BENCHMARKS = "05-benchmarking.ipynb"  # its exercise is in Python: tests/test_paper_gpu.py
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb") if path.name != BENCHMARKS)
NOT_BEGUN = {
    "01-naive.ipynb": "nothing written",
    "02-tiling.ipynb": "only zeros written",
    "03-bank-conflicts.ipynb": "bank conflicts",
    "04-syncthreads.ipynb": "missing second barrier",
}


def kernel_of(path) -> str:
    """The CUDA C of a notebook's %%cuda cell."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.source.startswith("%%cuda"):
            return cell.source.partition("\n")[2]
    raise AssertionError(f"{path} has no %%cuda cell")


def solution(lesson: str) -> str:
    return kernel_of(NOTEBOOKS / "solutions" / lesson)


def checked(lesson: str, source: str) -> Result:
    """What the lesson's own check says of a kernel."""
    for cell in nbformat.read(NOTEBOOKS / lesson, as_version=4).cells:
        if cell.source.startswith("check("):
            return eval(cell.source, {"check": check, "matmul_nt": (source, "matmul_nt")})
    raise AssertionError(f"{lesson} has no check")


@pytest.mark.parametrize("prediction, text", [
    (None, "Answer: 5,288. (You made no prediction.)\n"),
    (5288, "Answer: 5,288, as you predicted.\n"),
    (1000, "Answer: 5,288. You predicted 1,000.\n")])
def test_answer_stands_beside_the_prediction(prediction, text, capsys):
    answer(prediction, 5288)
    assert capsys.readouterr().out == text


def test_an_answer_that_is_a_truth_value_reads_as_one(capsys):
    answer(False, True)
    assert capsys.readouterr().out == "Answer: True. You predicted False.\n"


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_exercise_as_it_is_handed_out_is_not_done_yet(lesson):
    result = checked(lesson, kernel_of(NOTEBOOKS / lesson))
    assert result.diagnosis == NOT_BEGUN[lesson]


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_solution_passes(lesson):
    assert checked(lesson, solution(lesson))


WRONG_ANSWERS = [
    ("01-naive.ipynb", "row < M && ", "", "reads outside A"),
    ("01-naive.ipynb", "col * K", "row * K", "wrong result"),
    ("01-naive.ipynb", "B[(size_t)col * K + k]", "B[(size_t)k * N + col]",
     "a factor is transposed"),
    ("01-naive.ipynb", "k < K", "k < K - 1", "K loop too short"),
    ("01-naive.ipynb", "k < K", "k <= K", "K loop too long"),
    ("01-naive.ipynb", "sum;", "sum", "does not compile"),
    ("01-naive.ipynb", "matmul_nt", "mine", "no such kernel"),
    ("01-naive.ipynb", "int K)", "int K, int L)", "wrong signature"),
    ("02-tiling.ipynb", "Bs[tx][k]", "Bs[k][tx]", "a factor is transposed"),
    ("02-tiling.ipynb", "b_row < N && k0 + tx < K", "true", "reads outside B"),
    ("02-tiling.ipynb", "int b_row = blockIdx.x * TILE + ty", "int b_row = blockIdx.y * TILE + ty",
     "wrong result"),
    ("03-bank-conflicts.ipynb", "Bs[ty * ROW", "Bs[ty * TILE",
     "read where nothing is stored"),
    ("03-bank-conflicts.ipynb", "TILE + 1", "TILE + 2", "bank conflicts"),
    ("03-bank-conflicts.ipynb", "row < M && col", "col", "writes outside C"),
    ("04-syncthreads.ipynb", "{\n    __shared__",
     "{\n    if (threadIdx.y > 8) return;\n    __shared__",
     "return before a barrier"),
    ("04-syncthreads.ipynb", "[tx][k];\n        __syncthreads();", "[tx][k];",
     "missing second barrier"),
    ("04-syncthreads.ipynb", "    if (row < M && col < N) C", "    C", "writes outside C"),
]  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("lesson, old, new, diagnosis", WRONG_ANSWERS)
def test_a_wrong_answer_gets_its_diagnosis(lesson, old, new, diagnosis):
    source = solution(lesson)
    assert old in source
    result = checked(lesson, source.replace(old, new))
    assert result.diagnosis == diagnosis, f"\n{result}"


def test_exercise_3_without_shared_memory_is_not_done():
    result = checked("03-bank-conflicts.ipynb", solution("01-naive.ipynb"))
    assert result.diagnosis == "bank conflicts"
    assert "nothing goes through shared memory" in str(result)


def test_recorded_times_are_shown_if_all_are_on_record(monkeypatch, capsys):
    rows = [
        {"kernel": k, "M": 1024, "N": 1024, "K": 1024, "mode": "queued", "median_ms": ms}
        for k, ms in (("two", 0.4), ("one", 0.32))
    ]
    record = Record({"card": "a card", "date": "2026-11-30", "times": rows})
    monkeypatch.setattr(lesson, "h200", lambda: record)
    recorded_times(1024, "two", "one")
    assert capsys.readouterr().out.splitlines() == [
        "two: 0.400 ms (a card, 2026-11-30)",
        "one: 0.320 ms (a card, 2026-11-30), 1.25 times as fast",
    ]
    recorded_times(1024, "two", "half")
    assert capsys.readouterr().out == "There is no recorded time of half.\n"
