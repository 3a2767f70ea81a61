"""The record of the forms of lesson 9's loop: the fit is that of its rows, the counts are those of
the kernel as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.best import Constants
from helpers.kernels import last_percent
from helpers.register_banks import register_banks

RECORD = json.loads(
    (Path(__file__).parents[1] / "helpers/data/loop_forms.json").read_text(encoding="utf-8")
)
COEFFICIENTS = ("base", "per_other", "per_held", "per_four_lanes")


def fit(forms: list[dict]) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients, and the share of cuBLAS that they tell for each form."""
    terms = np.array([
        (1, form["other"] / 1e3, form["held"] / 1e3, form["lanes_along_A"] == 4) for form in forms
    ], float)  # fmt: skip
    found = np.linalg.lstsq(terms, np.array([1 / form["share_8192"] for form in forms]))[0]
    return found, 1 / (terms @ found)


def test_the_fit_is_that_of_the_forms() -> None:
    forms = RECORD["forms"]
    found, told = fit(forms)
    assert found == pytest.approx([RECORD["fit"][name] for name in COEFFICIENTS], abs=0.001)
    assert told == pytest.approx([form["share_8192"] for form in forms], rel=0.04)


def test_what_was_expected_is_told_by_the_forms_before() -> None:
    """It came within 2.5%; that is no more than they differ from each other."""
    before = [form for form in RECORD["forms"] if form["expected"] is None]
    after = [form for form in RECORD["forms"] if form["expected"] is not None]
    assert (len(before), len(after)) == (31, 23)
    found, _ = fit(before)
    for form in after:
        terms = (1, form["other"] / 1e3, form["held"] / 1e3, form["lanes_along_A"] == 4)
        assert form["expected"] == pytest.approx(1 / np.dot(found, terms), abs=0.002)
        assert form["share_8192"] == pytest.approx(form["expected"], rel=0.025)


def test_the_kernel_is_one_of_the_forms() -> None:
    banks = register_banks(last_percent(Constants(STAGES=3, COPY_AT=8), blocks=132))
    counts = {
        "other": banks.instructions - banks.ffma, "conflicts": banks.conflicts, "held": banks.held
    }  # fmt: skip
    (same,) = (
        form for form in RECORD["forms"]
        if (form["BK"], form["STAGES"], form["copies"], form["loads"]) == (16, 3, [8, 2], "A B")
        and form["order"] == "rows; 0 4 1 5 2 6 3 7" and form["advance"] == [14, "select"]
        and not form["comparison"] and form["source"] == 5
    )  # fmt: skip
    assert {name: round(1e3 * n / banks.ffma) for name, n in counts.items()} == {
        name: same[name] for name in counts
    }
