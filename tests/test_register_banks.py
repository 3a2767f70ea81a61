"""Register banks: the rule on code made by hand, and on the lessons' kernels."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from helpers import sass
from helpers.best import Constants
from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS, last_percent
from helpers.register_banks import Loop, cycles_of, hot_loops, reads_of, register_banks
from helpers.sass import SassInstruction
from helpers.toolkit import find_nvdisasm, require_toolkit


def code(*texts: str, block: int = 0) -> list[SassInstruction]:
    """Instructions as nvdisasm writes them."""
    parts = [text.partition(" ") for text in texts]
    return [
        SassInstruction(
            16 * n, opcode, tuple(o.strip() for o in operands.split(",")), None, 0, "", 0, block
        )
        for n, (opcode, _, operands) in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("FFMA R9, R0, R1, R2", (2, 1)),
        ("FFMA R9, R0, R2, R4", (3, 0)),
        ("FFMA R9, R1, R3, R5", (0, 3)),
        ("FFMA R8, R2, R2, R8", (2, 0)),  # named twice, read once
        ("FFMA R8, R2, 2, R8", (2, 0)),  # a number is in no bank
        ("FFMA R8, R2, UR4, RZ", (1, 0)),  # nor are a uniform register and zero
        ("FFMA R8, -R3, c[0x0][0x210], R8", (1, 1)),
        ("FFMA.FTZ R8, |R3|, R5.reuse, R8", (1, 2)),
    ],
)
def test_operands_that_are_read(text: str, reads: tuple[int, int]) -> None:
    assert reads_of(code(text)) == [reads]


def test_a_reused_operand_is_not_read_again() -> None:
    kept = code("FFMA R10, R0, R4.reuse, R10", "FFMA R11, R1, R4.reuse, R11")
    assert reads_of(kept) == [(3, 0), (0, 2)]
    other_place = code("FFMA R10, R4.reuse, R0, R10", "FFMA R11, R1, R4, R11")
    assert reads_of(other_place)[1] == (1, 2)
    not_said = code("FFMA R10, R0, R4, R10", "FFMA R11, R1, R4, R11")
    assert reads_of(not_said)[1] == (1, 2)
    between = code("FFMA R10, R0, R4.reuse, R10", "LDS R20, [R30]", "FFMA R11, R1, R4, R11")
    assert reads_of(between) == [(3, 0), None, (1, 2)]
    one_later = code("FFMA R10, R0, R4.reuse, R10", "FFMA R11, R1, R6, R11", "FFMA R9, R1, R4, R9")
    assert reads_of(one_later)[2] == (1, 2)
    next_block = [*code("FFMA R10, R0, R4.reuse, R10"), *code("FFMA R11, R1, R4, R11", block=1)]
    assert reads_of(next_block)[1] == (1, 2)


def test_cycles_are_those_that_were_measured() -> None:
    """Of long chains on an H200: 1, 1.5 to 2, and 3 cycles for each FFMA."""
    free = code("FFMA R10, R0, R4.reuse, R11") + code("FFMA R11, R3, R4.reuse, R10") * 399
    assert cycles_of(free) / 400 == pytest.approx(1, abs=0.01)
    uneven = code("FFMA R10, R0, R2, R11") * 400
    assert cycles_of(uneven) / 400 == pytest.approx(2, abs=0.01)
    even = code("FFMA R10, R0, R2, R11", "FFMA R10, R1, R2, R11") * 200
    assert cycles_of(even) / 400 == pytest.approx(1.5, abs=0.01)
    one_bank = code("FFMA R10, R0, R2, R4") * 400
    assert cycles_of(one_bank) / 400 == pytest.approx(3, abs=0.01)
    assert cycles_of(code("LDS R20, [R30]", "BAR.SYNC 0x0") * 5) == 10


def test_figures_of_a_loop() -> None:
    loop = Loop(tuple(code("FFMA R10, R0, R4.reuse, R10", "FFMA R11, R0, R4, R11",
                           "LDS R20, [R30]", "FFMA R9, R1, 2, R8")))  # fmt: skip
    assert (loop.instructions, loop.ffma, loop.reused, loop.conflicts) == (4, 3, 1, 1)
    assert loop.share == 0.75 and loop.held == 0
    waits = [dataclasses.replace(i, wait=n) for n, i in enumerate(loop.code, 1)]
    assert Loop(tuple(waits)).held == 1 + 2 + 3


def test_the_code_is_what_nvcc_makes_for_the_card(tmp_path: Path) -> None:
    """From the source to a cubin in one go, without the PTX for the engine on the way."""
    kernel = KERNELS["double_buffered"]
    source, cubin = tmp_path / "kernel.cu", tmp_path / "cubin"
    source.write_text(f'extern "C" {{\n{kernel.source}\n}}')
    toolkit = require_toolkit()
    subprocess.run([toolkit.nvcc, "-arch=sm_90", "-cubin", "-o", cubin, source], check=True)
    listing = subprocess.run([find_nvdisasm(toolkit), "-c", cubin], check=True, text=True,
                             capture_output=True).stdout  # fmt: skip
    (theirs,) = (f for f in sass._functions(listing, "sm_90", {}) if f.name == kernel.entry)
    ours = register_banks(kernel)
    assert [[i.text for i in loop.code] for loop in hot_loops(theirs)] == [
        [i.text for i in loop.code] for loop in ours.loops
    ]


@pytest.fixture(scope="module")
def pipelined():
    return register_banks("pipelined")


def test_the_pipeline(pipelined) -> None:
    assert len(pipelined.loops) == 3  # inner blocks, blocks at the edge, rows of B that are odd
    assert pipelined.ffma == 16 * 16 * 8  # K of a tile, rows and columns of a thread
    assert pipelined.share == max(loop.share for loop in pipelined.loops) > 0.9
    assert pipelined.reused > 0.9 * pipelined.ffma
    assert 1 < pipelined.cycles_per_ffma < 1.2
    lines = str(pipelined).splitlines()
    assert lines[0] == "pipelined, machine code for sm_90" and len(lines) == 5
    assert [line for line in lines if line.endswith("<-")] == [
        line for line in lines if f"{pipelined.instructions:,}" in line
    ]


def test_the_listing_marks_conflicts(pipelined) -> None:
    lines = pipelined.listing(first=pipelined.ffma).splitlines()
    assert len(lines) == pipelined.ffma
    assert sum("of one bank" in line for line in lines) == pipelined.conflicts
    assert all(re.match(r"[0-9a-f]{4,}  FFMA R\d+, ", line) for line in lines)
    assert pipelined.listing(2, start=3).splitlines() == lines[3:5]
    with pytest.raises(ValueError, match="the loop has FFMAs 0 to 2047"):
        pipelined.listing(start=2048)
    for wrong in ({"first": None}, {"first": "1"}, {"start": 2.5}):
        with pytest.raises(WrongType, match="give an integer"):
            pipelined.listing(**wrong)


@pytest.mark.parametrize("arch", [None, 90, "90", "sm_xx", "sm_90; rm"])
def test_what_is_no_compute_capability_is_named(arch) -> None:
    with pytest.raises(WrongValue, match="is no compute capability: write 'sm_90'"):
        register_banks("tiled", arch)


def test_rows_there_and_back_have_fewer_conflicts(tmp_path: Path, pipelined) -> None:
    """Measured on an H200, of cuBLAS at 4096: 105% there and back, 99% with plain rows."""
    kernel = KERNELS["pipelined"]
    text = kernel.file.read_text()
    order = "int jj = i % 2 ? TN - 1 - j : j;"
    assert order in text
    (tmp_path / "plain.cu").write_text(text.replace(order, "int jj = j;"))
    plain = register_banks(dataclasses.replace(kernel, file=tmp_path / "plain.cu"))
    assert plain.ffma == pipelined.ffma
    assert pipelined.conflicts < plain.conflicts
    assert pipelined.cycles_per_ffma < plain.cycles_per_ffma


def test_sums_one_element_further_on_have_fewer_conflicts(tmp_path: Path) -> None:
    best = last_percent(Constants(), blocks=132)  # of a file with templates: its name is mangled
    in_place = best.source.replace("(i + 1) % (TM * TN)", "i")
    assert in_place != best.source
    (tmp_path / "in_place.cu").write_text(in_place)
    before = register_banks(dataclasses.replace(best, file=tmp_path / "in_place.cu"))
    after = register_banks(best)
    assert after.ffma == before.ffma == 16 * 16 * 8
    assert after.conflicts < 0.3 * after.ffma < 0.7 * before.ffma < before.conflicts


def test_what_has_no_such_loop_is_told(tmp_path: Path) -> None:
    (tmp_path / "none.cu").write_text("""
__global__ void none(const float *A, const float *B, float *C, int M, int N, int K) {
    C[threadIdx.x] = A[threadIdx.x];
}""")
    kernel = dataclasses.replace(KERNELS["naive"], file=tmp_path / "none.cu", entry="none")
    with pytest.raises(ValueError, match="kernel 'naive' has no loop with an FFMA"):
        register_banks(kernel)
