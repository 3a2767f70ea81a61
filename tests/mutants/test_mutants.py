"""`check` rejects every wrong kernel with its diagnosis, and accepts every right one."""

import pytest

from helpers.checker import check
from helpers.checker.diagnosis import HINTS, Diagnosis
from tests.mutants import kernels
from tests.mutants.wrong import WRONG, wrong

GOALS = {"bank conflicts", "too many sectors", "too many wavefronts", "too many barriers",
         "too much shared memory", "local memory", "card not filled"}  # fmt: skip # test_checker
NOT_IN_THE_ENGINE = {"wrong on the GPU only", "cannot be checked"}
RARE = {"assertion failed", "outside a local array"}  # see test_checker

SAMPLE = list({mutant.diagnosis: name for name, mutant in reversed(WRONG.items())}.values())
STYLES = ["naive", "tiled_32", "float4_tails", "grid_stride", "dynamic_shared", "transposed_b"]


def rejected(name: str) -> None:
    case = wrong(name)
    result = check(case.kernel, **case.arguments)
    assert result.diagnosis == WRONG[name].diagnosis, f"\n{result}"
    assert not result and result.evidence and result.hint
    assert str(result).startswith(("FAIL: ", "Not done yet: "))


def accepted(name: str, full: bool) -> None:
    case = kernels.right(name)
    result = check(case.kernel, full=full, **case.arguments)
    assert result.passed, f"\n{result}"
    assert str(result).startswith("PASS: matmul")


def test_there_are_enough_of_both():
    assert len(WRONG) >= 60 and len(kernels.NAMES) >= 25


def test_every_diagnosis_has_a_wrong_kernel():
    named = {Diagnosis(mutant.diagnosis, ()).key for mutant in WRONG.values()}
    assert named == set(HINTS) - GOALS - NOT_IN_THE_ENGINE - RARE


@pytest.mark.engine
@pytest.mark.parametrize("name", SAMPLE)
def test_a_wrong_kernel_of_the_sample_gets_its_diagnosis(name):
    rejected(name)


@pytest.mark.engine
@pytest.mark.parametrize("name", STYLES)
def test_a_right_kernel_of_the_sample_passes(name):
    accepted(name, full=False)


@pytest.mark.mutants
@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_kernel_gets_its_diagnosis(name):
    rejected(name)


@pytest.mark.mutants
@pytest.mark.parametrize("name", kernels.NAMES)
def test_each_right_kernel_passes_with_every_size_and_order(name):
    accepted(name, full=True)
