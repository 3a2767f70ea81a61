"""Every lane-wise PTX instruction, type and modifier against exact arithmetic (see ptx_rows)."""

from __future__ import annotations

import subprocess

import pytest
from ptx_rows import ROWS
from ptx_run import HEADER, describe, groups, kernel, mismatches, results

from helpers.toolkit import require_toolkit

GROUPS = groups(ROWS)


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_instructions_give_what_exact_arithmetic_gives(group):
    wrong: dict[str, str] = {}
    for one_case_a_warp in (False, True):
        output = results(group, one_case_a_warp)
        for found in mismatches(group, output):
            wrong.setdefault(found[0].name, describe(*found))
    assert not wrong, "\n".join(wrong.values())


def test_no_two_rows_are_the_same():
    names = [r.name for r in ROWS]
    assert len(set(names)) == len(names)


def test_ptxas_accepts_every_row_for_sm_80(tmp_path):
    text = HEADER + "\n".join(kernel(g, False) for g in GROUPS)
    (tmp_path / "rows.ptx").write_text(text)
    ptxas = require_toolkit().ptxas
    done = subprocess.run(
        [ptxas, "-arch=sm_80", "-O0", tmp_path / "rows.ptx", "-o", tmp_path / "rows.cubin"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
