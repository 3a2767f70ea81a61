"""What compute-sanitizer prints is read as findings, and the program it runs compiles."""

from __future__ import annotations

import subprocess

import pytest

from tests.sanitize.cases import CASES
from tests.sanitize.compute_sanitizer import compiled, read

PRINTED = {
    "racecheck": ("""\
========= COMPUTE-SANITIZER
========= Error: Potential RAW hazard detected at __shared__ 0x10 in block (0,0,0) :
=========     Write Thread (4,0,0) at store_then_read(const float *, float *)+0x90 in races.cu:7
=========     Read Thread (123,0,0) at store_then_read(const float *, float *)+0xd0 in races.cu:8
=========     Current Value : 0, Incoming Value : 4
=========
========= Error: Race reported between Write access at store_then_read(float *)+0x90 in races.cu:7
=========     and Read access at store_then_read(float *)+0xd0 in races.cu:8 [64 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)

ended: 0
""", [("Potential RAW hazard detected at __shared__", [7, 8]),
      ("Race reported: Write, Read", [7, 8])], "0"),
    "memcheck": ("""\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at read_past_the_end(const float *, float *, int)+0x70 in memory.cu:6
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f0000000100 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: run_3() in corpus.cu:140 [0x1] in corpus
=========
========= ERROR SUMMARY: 1 error

ended: 0
""", [("Invalid __global__ read of size 4 bytes", [6])], "0"),
    "hanging": ("========= COMPUTE-SANITIZER\n\nended: timeout\n", [], "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("tool", PRINTED)
def test_messages_become_kinds_and_lines(tool: str) -> None:
    text, findings, ended = PRINTED[tool]
    result = read(text)
    assert [(f["kind"], f["lines"]) for f in result["findings"]] == findings
    assert result["ended"] == ended


def test_the_program_of_all_cases_compiles(tmp_path) -> None:
    binary = compiled(tmp_path, "sm_90")
    symbols = subprocess.run(["nm", "-C", binary], text=True, capture_output=True).stdout
    for number in range(len(CASES)):
        assert f"run_{number}()" in symbols
