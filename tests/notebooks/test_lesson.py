"""Predictions are answered, and a reader's kernel is checked as the lesson's own cell does it."""

import re
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers import lesson
from helpers.checker import Result, check
from helpers.kernels import register_tile
from helpers.lesson import answer, recorded_times
from helpers.recorded import Record
from helpers.wave_exercises import check_split, check_useful
from tests.notebooks.regenerate import NOTEBOOKS

BENCHMARKS = "05-benchmarking.ipynb"  # its exercise is in Python: tests/test_paper_gpu.py
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb") if path.name != BENCHMARKS)
# What the check of each exercise says before it is begun.
NOT_BEGUN = {
    ("01-naive.ipynb", 1): "nothing written",
    ("01-naive.ipynb", 2): "nothing written",
    ("01-naive.ipynb", 3): "nothing written",
    ("02-tiling.ipynb", 1): "only zeros written",
    ("02-tiling.ipynb", 2): "too many sectors",
    ("02-tiling.ipynb", 3): "nothing written",
    ("03-bank-conflicts.ipynb", 1): "bank conflicts",
    ("03-bank-conflicts.ipynb", 2): "bank conflicts",
    ("03-bank-conflicts.ipynb", 3): "nothing written",
    ("04-syncthreads.ipynb", 1): "missing second barrier",
    ("04-syncthreads.ipynb", 2): "missing __syncwarp",
    ("04-syncthreads.ipynb", 3): "nothing written",
    ("06-register-tile.ipynb", 1): "too many wavefronts",
    ("06-register-tile.ipynb", 2): "local memory",
    ("06-register-tile.ipynb", 3): "card not filled",
    ("07-vectorized.ipynb", 1): "too many sectors",
    ("07-vectorized.ipynb", 2): "bank conflicts",
    ("07-vectorized.ipynb", 3): "nothing written",
    ("08-pipeline.ipynb", 1): "copy not waited for",
    ("08-pipeline.ipynb", 2): "missing zero fill",
    ("08-pipeline.ipynb", 3): "nothing written",
    ("09-last-percent.ipynb", 1): "nothing returned",
    ("09-last-percent.ipynb", 2): "not even",
    ("09-last-percent.ipynb", 3): "card not filled",
}


def cell(path: Path, cell_id: str) -> str:
    """The text of a notebook's cell."""
    for found in nbformat.read(path, as_version=4).cells:
        if found.id == cell_id:
            return found.source
    raise AssertionError(f"{path.name} has no cell {cell_id}")


def exercise(lesson: str, number: int) -> str:
    """The cell of an exercise as it is handed out."""
    return cell(NOTEBOOKS / lesson, f"exercise-{number}-kernel")


def solution(lesson: str, number: int) -> str:
    """The cell that solves it."""
    return cell(NOTEBOOKS / "solutions" / lesson, f"kernel-{number}")


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Runs the cell and the check of an exercise, as the notebook does."""
    monkeypatch.setattr("helpers.magics.WORK_FOLDER", tmp_path)
    shell = InteractiveShell()
    shell.extension_manager.load_extension("helpers")
    shell.push({"check": check, "check_split": check_split, "check_useful": check_useful,
                "register_tile": register_tile})

    def run(lesson: str, number: int, source: str) -> Result:
        options, _, code = source.partition("\n")
        if options.startswith("%%cuda "):
            shell.run_cell_magic("cuda", options.removeprefix("%%cuda "), code + "\n")
        else:
            shell.run_cell(source).raise_error()
        return shell.ev(cell(NOTEBOOKS / lesson, f"exercise-{number}-check"))

    yield run
    InteractiveShell.clear_instance()


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


def test_every_exercise_is_known():
    ids = {(path, c.id) for path in LESSONS
           for c in nbformat.read(NOTEBOOKS / path, as_version=4).cells}  # fmt: skip
    assert {(path, f"exercise-{n}-kernel") for path, n in NOT_BEGUN} == {
        (path, i) for path, i in ids if i.startswith("exercise-") and i.endswith("-kernel")
    }


@pytest.mark.parametrize("lesson, number", NOT_BEGUN)
def test_the_exercise_as_it_is_handed_out_is_not_done_yet(checked, lesson, number):
    result = checked(lesson, number, exercise(lesson, number))
    assert result.diagnosis == NOT_BEGUN[lesson, number]


@pytest.mark.parametrize("lesson, number", NOT_BEGUN)
def test_the_solution_passes(checked, lesson, number):
    result = checked(lesson, number, solution(lesson, number))
    assert result, f"\n{result}"


# (lesson, exercise, what of the solution is replaced, by what, diagnosis)
WRONG_ANSWERS = [
    ("01-naive.ipynb", 1, "row < M && ", "", "reads outside A"),
    ("01-naive.ipynb", 1, "col * K", "row * K", "wrong result"),
    ("01-naive.ipynb", 1, "B[(size_t)col * K + k]", "B[(size_t)k * N + col]",
     "a factor is transposed"),
    ("01-naive.ipynb", 1, "k < K", "k < K - 1", "K loop too short"),
    ("01-naive.ipynb", 1, "k < K", "k <= K", "K loop too long"),
    ("01-naive.ipynb", 1, "int K)", "int K, int L)", "wrong signature"),
    ("01-naive.ipynb", 2, "row < M && col + 32 < N", "first", "reads outside B"),
    ("01-naive.ipynb", 2, "blockIdx.x * 64", "blockIdx.x * 32", "elements never written"),
    ("01-naive.ipynb", 2, "row * N + col + 32] = sum1", "row * N + col + 32] = sum0",
     "wrong result"),
    ("01-naive.ipynb", 2, "row < M && col < N, ", "true, ", "reads outside B"),
    ("01-naive.ipynb", 3, "if (row + 8 * i < M) sum", "sum", "reads outside A"),
    ("01-naive.ipynb", 3, "if (row + 8 * i < M) C", "if (row + 24 < M) C",
     "last partial tile not written"),
    ("01-naive.ipynb", 3, "sum[ROWS] = {}", "sum[ROWS]", "accumulator not initialised"),
    ("02-tiling.ipynb", 1, "Bs[tx][k]", "Bs[k][tx]", "a factor is transposed"),
    ("02-tiling.ipynb", 1, "b_row < N && k0 + tx < K", "true", "reads outside B"),
    ("02-tiling.ipynb", 1, "int b_row = blockIdx.x * TILE + ty",
     "int b_row = blockIdx.y * TILE + ty", "wrong result"),
    ("02-tiling.ipynb", 2, "    if (low < M && col < N) C", "    C", "writes outside C"),
    ("02-tiling.ipynb", 2, "(low < M && k0 + tx < K)", "(row < M && k0 + tx < K)",
     "reads outside A"),
    ("02-tiling.ipynb", 2, "sum1 += As[ty + TILE][k]", "sum1 += As[ty + 1][k]", "wrong result"),
    ("02-tiling.ipynb", 2, "As[ty + TILE][tx] = ", "As[ty][tx] = ",
     "read where nothing is stored"),
    ("02-tiling.ipynb", 3, "--tile 64,64", "--tile 64,32", "too many sectors"),
    ("02-tiling.ipynb", 3, "        __syncthreads();\n    }", "    }", "missing second barrier"),
    ("02-tiling.ipynb", 3, "As[2 * T][T],", "As[2 * T][T + 1],", "too much shared memory"),
    ("03-bank-conflicts.ipynb", 1, "Bs[ty * ROW", "Bs[ty * TILE",
     "read where nothing is stored"),
    ("03-bank-conflicts.ipynb", 1, "TILE + 1", "TILE + 2", "bank conflicts"),
    ("03-bank-conflicts.ipynb", 1, "row < M && col", "col", "writes outside C"),
    ("03-bank-conflicts.ipynb", 2, "k ^ tx", "k ^ ty", "wrong result"),
    ("03-bank-conflicts.ipynb", 2, "tx ^ ty", "tx", "wrong result"),
    ("03-bank-conflicts.ipynb", 2, "tx ^ ty", "tx + ty", "outside shared memory"),
    ("03-bank-conflicts.ipynb", 3, "[T + 1]", "[T]", "bank conflicts"),
    ("03-bank-conflicts.ipynb", 3, "blockIdx.x * 2 * T + ty + i", "blockIdx.x * 2 * T + ty",
     "wrong result"),
    ("03-bank-conflicts.ipynb", 3, "row + i / 2 * T < M && ", "", "writes outside C"),
    ("04-syncthreads.ipynb", 1, "{\n    __shared__",
     "{\n    if (threadIdx.y > 8) return;\n    __shared__", "return before a barrier"),
    ("04-syncthreads.ipynb", 1, "[tx][k];\n        __syncthreads();", "[tx][k];",
     "missing second barrier"),
    ("04-syncthreads.ipynb", 1, "    if (row < M && col < N) C", "    C", "writes outside C"),
    ("04-syncthreads.ipynb", 2, "__syncwarp();", "__threadfence_block();", "missing __syncwarp"),
    ("04-syncthreads.ipynb", 2, "if (lane < i) s", "s", "outside shared memory"),
    ("04-syncthreads.ipynb", 2, "i = 16", "i = 8", "wrong result"),
    ("04-syncthreads.ipynb", 3, "now ^= 1;", "", "missing second barrier"),
    ("04-syncthreads.ipynb", 3, "        __syncthreads();\n", "", "missing first barrier"),
    ("04-syncthreads.ipynb", 3, "now ^= 1;", "__syncthreads();", "too many barriers"),
    ("06-register-tile.ipynb", 1, "--tile 32,64", "--tile 32,32", "too many wavefronts"),
    ("06-register-tile.ipynb", 1, " && col + T * j < N)", ")", "writes outside C"),
    ("06-register-tile.ipynb", 1, "Bs[T][2 * T]", "Bs[T][T]", "outside shared memory"),
    ("06-register-tile.ipynb", 2, "[ty + 16 * i][k]", "[ty * 4 + i][k]", "wrong result"),
    ("06-register-tile.ipynb", 2, "            for (int i = 0; i < 4; ++i)\n                for",
     "            for (int i = 0; i < min(M - row0 - ty + 15, 64) / 16; ++i)\n                for",
     "local memory"),
    ("06-register-tile.ipynb", 2, "[64][16]", "[64][17]", "bank conflicts"),
    ("06-register-tile.ipynb", 3, "64, 64, 8, 4, 8", "64, 64, 8, 8, 8", "card not filled"),
    ("06-register-tile.ipynb", 3, "64, 64, 8, 4, 8", "32, 32, 8, 4, 4", "too many sectors"),
    ("06-register-tile.ipynb", 3, "64, 64, 8, 4, 8", "64, 64, 16, 4, 8", "bank conflicts"),
    ("07-vectorized.ipynb", 1, "fits && col < N", "col < N", "misaligned access"),
    ("07-vectorized.ipynb", 1, "fits && col < N", "fits", "reads outside B"),
    ("07-vectorized.ipynb", 1, "fits && col < N", "false", "too many sectors"),
    ("07-vectorized.ipynb", 1, "if (col + j < N) c[j]", "c[j]", "writes outside C"),
    ("07-vectorized.ipynb", 2, "[row ^ k * 4]", "[row]", "wrong result"),
    ("07-vectorized.ipynb", 2, "i / 8 ^ i % 8 * 4", "i / 8 ^ i % 8", "wrong result"),
    ("07-vectorized.ipynb", 2, "i / 8 ^ i % 8 * 4", "i / 8 + i % 8 * 4", "outside shared memory"),
    ("07-vectorized.ipynb", 2, "As[8][64],", "As[8][72],", "too much shared memory"),
    ("07-vectorized.ipynb", 3, "thread / 2 % 2", "thread % 2", "elements never written"),
    ("07-vectorized.ipynb", 3, "thread / 32 * 2", "thread / 32", "elements never written"),
    ("07-vectorized.ipynb", 3, "(thread / 32 * 2 + thread / 2 % 2) * 4, col = (thread % 32 / 4 * 2"
     " + thread % 2) * 4", "thread / 16 * 4, col = thread % 16 * 4", "too many wavefronts"),
    ("08-pipeline.ipynb", 1, "(STAGES - 2)", "(STAGES - 1)", "copy not waited for"),
    ("08-pipeline.ipynb", 1, "        __syncthreads();", "", "missing __syncwarp"),
    ("08-pipeline.ipynb", 1, "if (t + STAGES - 1 < tiles) copy(t + STAGES - 1);\n"
     "        __pipeline_commit();", "if (t + STAGES - 1 < tiles) copy(t + STAGES - 1), "
     "__pipeline_commit();", "copy not waited for"),
    ("08-pipeline.ipynb", 1, "[t % STAGES][k][tx];", "[t % STAGES][k][tx];\n"
     "        __syncthreads();", "too many barriers"),
    ("08-pipeline.ipynb", 2, "t < tiles; t += 2", "t + 1 < tiles; t += 2", "K loop too short"),
    ("08-pipeline.ipynb", 2, "if (t + 2 < tiles) load(t + 2, 0);", "load(t + 2, 1);",
     "missing first barrier"),
    ("08-pipeline.ipynb", 2, "        __syncthreads();\n        if (t + 2", "        if (t + 2",
     "missing first barrier"),
    ("08-pipeline.ipynb", 3, "copy(t + 1);\n", "copy(t + 1);\n        __pipeline_wait_prior(0);\n"
     "        __syncthreads();\n", "too many barriers"),
    ("08-pipeline.ipynb", 3, "        __syncthreads();\n", "", "copy not waited for"),
    ("08-pipeline.ipynb", 3, "wait_prior(0)", "wait_prior(1)", "copy not waited for"),
    ("09-last-percent.ipynb", 1, "-(-M // BM) * -(-N // BN)", "M // BM * (N // BN)",
     "an exception"),
    ("09-last-percent.ipynb", 1, "-(-tiles // places)", "tiles / places", "wrong share"),
    ("09-last-percent.ipynb", 1, "M * N / (", "tiles * BM * BN / (", "wrong share"),
    ("09-last-percent.ipynb", 2, "max(begin - tile * depth, 0)", "0", "step done twice"),
    ("09-last-percent.ipynb", 2, "steps * (b + 1) // places", "steps // places * (b + 1)",
     "step left out"),
    ("09-last-percent.ipynb", 2, "return blocks", "return [part[::-1] for part in blocks]",
     "waits for sums"),
    ("09-last-percent.ipynb", 3, "(s ? total[i][t] : 0) + sum[i]", "sum[i]",
     "wrong result"),
    ("09-last-percent.ipynb", 3, ", __syncthreads())", ")", "missing first barrier"),
    ("09-last-percent.ipynb", 3, "r < M && ", "", "writes outside C"),
    ("09-last-percent.ipynb", 3, "--block 256", "--block 64",
     "elements never written"),
]  # fmt: skip


def test_there_are_three_wrong_answers_to_each_exercise():
    for which in NOT_BEGUN:
        assert sum(wrong[:2] == which for wrong in WRONG_ANSWERS) >= 3


@pytest.mark.engine
@pytest.mark.parametrize("lesson, number, old, new, diagnosis", WRONG_ANSWERS)
def test_a_wrong_answer_gets_its_diagnosis(checked, lesson, number, old, new, diagnosis):
    source = solution(lesson, number)
    assert old in source
    result = checked(lesson, number, source.replace(old, new))
    assert result.diagnosis == diagnosis, f"\n{result}"


@pytest.mark.parametrize("lesson, number, other, diagnosis", [
    ("01-naive.ipynb", 3, ("01-naive.ipynb", 2), "too many sectors"),
    ("02-tiling.ipynb", 3, ("02-tiling.ipynb", 2), "too many sectors"),
    ("03-bank-conflicts.ipynb", 1, ("01-naive.ipynb", 1), "bank conflicts"),
    ("03-bank-conflicts.ipynb", 2, ("03-bank-conflicts.ipynb", 1), "too much shared memory"),
    ("03-bank-conflicts.ipynb", 3, ("03-bank-conflicts.ipynb", 2), "too many wavefronts"),
    ("04-syncthreads.ipynb", 3, ("01-naive.ipynb", 3), "too many sectors"),
    ("08-pipeline.ipynb", 3, ("04-syncthreads.ipynb", 3), "too many wavefronts"),
    ("07-vectorized.ipynb", 2, ("07-vectorized.ipynb", 1), "bank conflicts"),
    ("07-vectorized.ipynb", 3, ("07-vectorized.ipynb", 2), "too many wavefronts"),
])
def test_the_kernel_of_another_exercise_does_not_reach_the_goal(
    checked, lesson, number, other, diagnosis
):
    wanted = cell(NOTEBOOKS / lesson, f"exercise-{number}-check").split("(")[1].split(",")[0]
    own = re.search(r"void (\w+)", solution(*other))[1]
    assert checked(lesson, number, solution(*other).replace(own, wanted)).diagnosis == diagnosis


@pytest.mark.parametrize("old, new, said", [
    ("sum;", "sum", 'my_nt.cu(12): error: expected a ";"'),
    ("matmul_nt", "mine", "name 'matmul_nt' is not defined"),
])
def test_a_cell_that_does_not_compile_or_has_another_name_says_so(checked, old, new, said):
    source = solution("01-naive.ipynb", 1)
    with pytest.raises(Exception, match=re.escape(said)):
        checked("01-naive.ipynb", 1, source.replace(old, new))


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
