"""What the schedulers issue, by counts of the PTX: on code made by hand."""

from __future__ import annotations

import pytest

from helpers.issue import issue
from helpers.sass import SassFunction, SassInstruction

#: PTX line, block, instruction: a loop that loads, stores, and multiplies twice.
LOOP = (
    (1, 0, "MOV R1, R2"),
    (2, 1, "LDG.E.64 R4, [R2.64]"),
    (3, 1, "FFMA R10, R0, 2, R11"),
    (4, 1, "STS [R9], R5"),
    (5, 1, "FFMA R11, R0, R2, R10"),
    (6, 1, "BRA `(.L_x_0)"),
    (7, 2, "EXIT"),
)
RUNS = {1: 8, 2: 80, 3: 80, 4: 80, 5: 80, 6: 80, 7: 8}


def function(rows=LOOP) -> SassFunction:
    code = []
    for n, (line, block, text) in enumerate(rows):
        opcode, _, operands = text.partition(" ")
        names = tuple(o.strip() for o in operands.split(",") if o)
        code.append(SassInstruction(16 * n, opcode, names, None, line, "", 0, block))
    return SassFunction("f", "sm_90", tuple(code), ((1,), (1, 2), (-1,)))


def test_each_instruction_takes_a_cycle_and_a_conflict_more() -> None:
    found = issue(function(), RUNS, 160)
    assert found is not None
    # The last FFMA reads three even registers: with one cycle ahead that costs one.
    assert found.cycles == 8 + 80 * (5 + 1) + 8


def test_a_load_is_waited_for_where_its_value_is_used() -> None:
    found = issue(function(), RUNS, 160)
    assert found is not None
    assert (found.waits, found.hiding) == (1, 0.5)  # one of two FFMAs stands before the store
    nothing_used = tuple(row for row in LOOP if not row[2].startswith("STS"))
    found = issue(function(nothing_used), RUNS, 160)
    assert found is not None
    assert (found.waits, found.hiding) == (0, 0)


def test_an_unrolled_loop_is_scaled_to_the_fmas_that_were_counted() -> None:
    twice = [row for row in LOOP if row[1] == 1][:-1]
    rows = (LOOP[0], *twice, *LOOP[1:])
    found = issue(function(rows), RUNS, 160)
    assert found is not None
    assert found.cycles == pytest.approx(8 + 40 * (9 + 2) + 8, rel=0.03)  # half as many rounds
    assert (found.waits, found.hiding) == (1, 0)


def test_without_fmas_nothing_is_known() -> None:
    assert issue(function(LOOP[:1] + LOOP[-1:]), RUNS, 0) is None
