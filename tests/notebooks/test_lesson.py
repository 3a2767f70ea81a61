"""Predictions are answered, and a reader's kernel is checked without harm."""

import nbformat
import pytest

from helpers.lesson import answer, check_conflicts, check_kernel, check_races
from tests.notebooks.regenerate import NOTEBOOKS

BENCHMARKS = "05-benchmarking.ipynb"  # its exercise is in Python: tests/test_paper_gpu.py
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb") if path.name != BENCHMARKS)


def kernel_of(path) -> str:
    """The CUDA C of a notebook's %%cuda cell."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.source.startswith("%%cuda"):
            return cell.source.partition("\n")[2]
    raise AssertionError(f"{path} has no %%cuda cell")


def solution(lesson: str) -> str:
    return kernel_of(NOTEBOOKS / "solutions" / lesson)


def check(source: str, capsys, checked_by=check_kernel) -> str:
    checked_by(source, "matmul_nt", b_transposed=True)
    return capsys.readouterr().out


def check_of(lesson: str):
    """The check that the lesson itself runs."""
    own = {"03-bank-conflicts.ipynb": check_conflicts, "04-syncthreads.ipynb": check_races}
    return own.get(lesson, check_kernel)


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
def test_the_exercise_as_it_is_handed_out_is_not_done_yet(lesson, capsys):
    found = check(kernel_of(NOTEBOOKS / lesson), capsys, check_of(lesson))
    assert found.startswith("not done yet")


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_solution_passes_in_the_engine_and_on_the_device(lesson, capsys):
    found = check(solution(lesson), capsys, check_of(lesson))
    assert found.count("PASS") == 3 and "on the device" in found


def test_exercise_3_as_it_is_handed_out_computes_the_right_product(capsys):
    source = kernel_of(NOTEBOOKS / "03-bank-conflicts.ipynb")
    assert check(source, capsys).count("PASS") == 3
    assert check(source, capsys, check_conflicts) == (
        "not done yet: the product is right, but its 380,160 shared accesses take 6,094,080 "
        "wavefronts, 5,713,920 too many\n")


def test_the_solution_of_exercise_3_has_no_conflicts(capsys):
    found = check(solution("03-bank-conflicts.ipynb"), capsys, check_conflicts)
    assert found.endswith("no bank conflicts: 380,160 shared accesses take 380,160 wavefronts\n")


@pytest.mark.parametrize("old, new, finding", [
    ("Bs[ty * ROW", "Bs[ty * TILE", "FAIL"),
    ("Bs[tx * ROW", "Bs[tx * TILE", "FAIL"),
    ("TILE + 1", "TILE + 2", "not done yet: the product is right"),
    ("sum;", "sum", "FAIL: it does not compile"),
    ("row < M && ", "", "out-of-bounds"),
])
def test_wrong_versions_of_exercise_3_do_not_reach_the_device(old, new, finding, capsys):
    source = solution("03-bank-conflicts.ipynb")
    assert old in source
    found = check(source.replace(old, new), capsys, check_conflicts)
    assert finding in found and "on the device" not in found


def test_exercise_3_without_shared_memory_is_not_done(capsys):
    found = check(solution("01-naive.ipynb"), capsys, check_conflicts)
    assert found == ("not done yet: the product is right, but nothing goes through shared memory\n")


@pytest.mark.parametrize("old, new, finding", [
    ("row < M && ", "", " at A["),
    ("col < N", "true", " at B["),
    ("k < K", "k <= K", "out-of-bounds read"),
    ("col * K", "row * K", "FAIL"),
    ("k < K", "k < K - 1", "FAIL"),
    ("sum;", "sum", "FAIL: it does not compile.\nkernel.cu(1"),
    ("matmul_nt", "mine", "FAIL: there is no kernel matmul_nt in the source, only mine"),
    ("int M, int N, int K", "int M, int N, int K, int L", "FAIL: kernel matmul_nt takes 7 argum"),
])
def test_wrong_versions_of_exercise_1_are_found_in_the_engine(old, new, finding, capsys):
    source = solution("01-naive.ipynb")
    assert old in source
    found = check(source.replace(old, new), capsys)
    assert finding in found and "on the device" not in found


def test_an_endless_loop_is_stopped(capsys, monkeypatch):
    monkeypatch.setattr("helpers.lesson.PATIENCE", 1)
    found = check(solution("01-naive.ipynb").replace("++k)", "k += 0)"), capsys)
    assert "FAIL, in the engine: kernel matmul_nt was stopped after 1 s" in found


def test_a_kernel_that_only_fails_at_larger_sizes_does_not_reach_the_device(capsys):
    source = solution("01-naive.ipynb").replace("col < N", "(col < N || blockIdx.x == 8)")
    found = check(source, capsys)
    assert "in the engine, M=35, N=19, K=7: PASS" in found
    assert "FAIL" in found and "on the device" not in found


@pytest.mark.parametrize("old, new", [
    ("Bs[tx][k]", "Bs[k][tx]"),
    ("b_row < N && k0 + tx < K", "true"),
    ("b_row < N && k0 + tx < K", "b_row < N"),
    ("int b_row = blockIdx.x * TILE + ty", "int b_row = blockIdx.y * TILE + ty"),
])
def test_wrong_versions_of_exercise_2_are_found_in_the_engine(old, new, capsys):
    source = solution("02-tiling.ipynb")
    assert old in source
    found = check(source.replace(old, new), capsys)
    assert "FAIL" in found and "on the device" not in found


def test_exercise_4_is_mended_one_finding_at_a_time(capsys):
    """Each step of the solution undone by itself is found."""
    source = solution("04-syncthreads.ipynb")
    second = "[tx][k];\n        __syncthreads();"
    assert second in source
    steps = {
        source.replace(second, "[tx][k];"): "not done yet: write-after-read race",
        source.replace("{\n    __shared__", "{\n    if (threadIdx.y > 8) return;\n    __shared__"):
            "not done yet: uninitialised read",
        source.replace("    if (row < M && col < N) C", "    C"): "not done yet: out of bounds",
    }
    for faulty, finding in steps.items():
        assert check(faulty, capsys, check_races).startswith(finding)


def test_a_kernel_without_races_is_not_right_for_that(capsys):
    source = solution("04-syncthreads.ipynb").replace("* Bs[tx][k]", "+ Bs[tx][k]")
    found = check(source, capsys, check_races)
    assert "FAIL" in found and "sanitize" not in found
