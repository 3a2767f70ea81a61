"""Each planted fault is found with its kind and lines, and nothing else, in any order of warps."""

from __future__ import annotations

import pytest

from tests.sanitize import table
from tests.sanitize.cases import CASES, FAULTY, RIGHT, Case, Expected
from tests.sanitize.table import findings

ORDERS = ("forward", "reversed", 1, 2)
RECORDED = table.record()


def placed(case: Case, expected: tuple[Expected, ...]) -> set[tuple[str, tuple[int, ...]]]:
    """Kinds and line numbers of what is expected."""
    return {(e.kind, tuple(case.line(mark) for mark in e.lines)) for e in expected}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_what_is_planted_is_found_and_nothing_else(case: Case, order: str | int) -> None:
    found = findings(case, order)
    assert len(set(found)) == len(found), "one finding for each kind and pair of lines"
    expected = placed(case, case.expected)
    assert expected <= set(found)
    assert set(found) <= expected | placed(case, case.besides)


@pytest.mark.parametrize("kernel, advised", [
    ("matmul_tiled_no_first_barrier", ["__syncwarp()", "__syncthreads()"]),  # As, Bs
    ("matmul_tiled_no_second_barrier", ["__syncwarp()", "__syncthreads()"]),
    ("smooth_in_place", ["No barrier orders blocks"]),
])  # fmt: skip
def test_advice_is_for_the_threads_that_share_least(kernel: str, advised: list[str]) -> None:
    """A row of As is stored and read by one warp, a tile of Bs by all warps of the block."""
    (case,) = (case for case in FAULTY if case.kernel == kernel)
    for order in ORDERS:
        report = table.sanitized(case, order)
        for finding, advice in zip(report.findings, advised, strict=True):
            assert advice in finding.advice


def test_half_of_the_corpus_is_right() -> None:
    assert len(CASES) >= 44
    assert abs(len(FAULTY) - len(RIGHT)) <= 0.1 * len(CASES)
    assert not any(case.right for case in FAULTY)
    assert all(case.right for case in RIGHT)
    assert len({case.kernel for case in CASES}) == len(CASES)


def test_the_committed_table_is_that_of_today() -> None:
    assert table.README.read_text(encoding="utf-8") == table.page(), (
        "write it anew: python -m tests.sanitize.table"
    )


@pytest.mark.parametrize("case", CASES if RECORDED else [], ids=lambda case: case.kernel)
def test_a_difference_to_compute_sanitizer_has_its_reason(case: Case) -> None:
    if table.differs(RECORDED, case):
        assert table.why(case)
