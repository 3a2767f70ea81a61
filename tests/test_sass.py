"""The disassembly, against nvdisasm's own JSON, and against code that is known."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from engine import ptx_of

from helpers.kernels import KERNELS
from helpers.sass import SassError, disassemble, sass_of_line
from helpers.simt import ptx
from helpers.toolkit import find_nvdisasm, require_toolkit

SOURCE = r"""
extern "C" __global__ void steps(const float *a, float *o, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    float d = 0;
    #pragma unroll 1
    for (int k = 0; k < n; k++)
        d += a[k * n + i];
    o[i] = d;
}
extern "C" __global__ void division(float *o, float d) {
    o[threadIdx.x] = o[threadIdx.x + 1] / d;
}
extern "C" __global__ void choice(float *o, int n) {
    switch (n) {
        case 0: o[0] = 1; break;
        case 1: o[1] = o[2]; break;
        case 2: o[2] = o[threadIdx.x]; break;
        case 3: o[7] = sinf(o[3]); break;
        case 4: o[9] = o[5] / o[6]; break;
        case 5: atomicAdd(o, 3.0f); break;
    }
}
"""


@pytest.fixture(scope="module")
def text() -> str:
    return ptx_of(SOURCE)


def function(text, name, arch="sm_80"):
    (found,) = (f for f in disassemble(text, arch) if f.name == name)
    return found


def lesson(name: str) -> str:
    return ptx_of(f'extern "C" {{\n{KERNELS[name].source}\n}}')


def assemble(text: str, folder: Path, arch: str, *options: str) -> Path:
    """The cubin that ptxas makes of PTX."""
    source, cubin = folder / "image.ptx", folder / f"cubin{len(options)}"
    source.write_text(text)
    subprocess.run(
        [require_toolkit().ptxas, f"-arch={arch}", *options, source, "-o", cubin], check=True
    )
    return cubin


def nvdisasm(*arguments) -> str:
    command = [find_nvdisasm(require_toolkit()), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_instructions_are_those_that_nvdisasm_lists_as_json(text, arch, tmp_path):
    """JSON has a kernel's subroutines as functions of their own."""
    listed = json.loads(nvdisasm("-json", assemble(text, tmp_path, arch, "-lineinfo")))[1]
    kernels = [entry for entry in listed if not entry["function-name"].startswith("$")]
    ours = {f.name: f for f in disassemble(text, arch)}
    assert set(ours) == {entry["function-name"] for entry in kernels}
    for entry in kernels:
        rows = [
            (row.get("predicate", "").removeprefix("@") or None, row["opcode"])
            for row in entry["sass-instructions"]
        ]
        found = [(i.predicate, i.opcode) for i in ours[entry["function-name"]].instructions]
        shorter = min(len(rows), len(found))
        assert shorter > 5 and found[:shorter] == rows[:shorter]
        assert {opcode for _, opcode in rows[shorter:]} <= {"BRA", "NOP"}  # the padding


def test_each_instruction_has_its_address(text):
    addresses = [i.address for i in function(text, "steps").instructions]
    assert addresses == list(range(0, 16 * len(addresses), 16))  # 128 bits each


@pytest.mark.parametrize("name", ["naive", "tiled"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_line_information_does_not_change_the_code(name, arch, tmp_path):
    """So what is shown is what runs: PyCUDA compiles without it."""
    text = lesson(name)
    plain = "\n".join(row for row in text.splitlines() if not re.match(r"\s*\.(loc|file)\b", row))
    with_lines = nvdisasm("-c", "-hex", assemble(text, tmp_path, arch, "-lineinfo"))
    without = nvdisasm("-c", "-hex", assemble(plain, tmp_path, arch))
    assert "LDG" in without and without == with_lines


def test_every_access_bears_the_line_of_a_ptx_access(text):
    rows = text.splitlines()
    for i in function(text, "steps").instructions:
        if i.opcode.startswith("LDG"):
            assert "ld.global" in rows[i.ptx_line - 1]
        if i.opcode.startswith("STG"):
            assert "st.global" in rows[i.ptx_line - 1]


def test_lines_are_those_of_the_source(text):
    found = function(text, "steps")
    rows = SOURCE.splitlines()
    (load,) = (i for i in found.instructions if i.opcode.startswith("LDG"))
    (store,) = (i for i in found.instructions if i.opcode.startswith("STG"))
    assert "d += a[k * n + i]" in rows[load.line - 1] and load.file.endswith("kernel.cu")
    assert "o[i] = d" in rows[store.line - 1]


def test_a_loop_and_the_condition_around_it_are_found(text):
    found = function(text, "steps")
    (load,) = (i for i in found.instructions if i.opcode.startswith("LDG"))
    (store,) = (i for i in found.instructions if i.opcode.startswith("STG"))
    assert found.flow.depth(load.block) == 1
    assert found.flow.depth(store.block) == 0
    assert len(found.flow.conditions(store.block)) == 1  # i >= n


def test_predicates_and_operands_are_apart():
    found = function(lesson("tiled"), "matmul_tiled", "sm_90")
    guarded = [i for i in found.instructions if i.opcode == "LDG.E"]
    assert all(re.fullmatch(r"!?P\d", i.predicate) for i in guarded)
    (store,) = (i for i in found.instructions if i.opcode == "STG.E")
    assert store.predicate is None and len(store.operands) == 2
    assert store.text == f"STG.E {store.operands[0]}, {store.operands[1]}"


def test_a_subroutine_returns_to_what_follows_the_call(text):
    found = function(text, "division")
    (call,) = (i for i in found.instructions if i.opcode.startswith("CALL"))
    assert found.successors[call.block] == (call.block + 1,) or call.predicate
    (store,) = (i for i in found.instructions if i.opcode.startswith("STG"))
    assert found.flow.conditions(store.block) == frozenset()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_case_of_a_switch_can_be_reached(text, arch):
    found = function(text, "choice", arch)
    stores = [i for i in found.instructions if i.opcode.startswith(("STG", "RED", "ATOM"))]
    assert len({i.line for i in stores}) == 6
    assert all(found.flow.conditions(i.block) for i in stores)


def test_sass_of_a_line_shows_its_instructions_only():
    found = function(lesson("tiled"), "matmul_tiled", "sm_90")
    rows = KERNELS["tiled"].file.read_text().splitlines()
    line = next(n for n, row in enumerate(rows, 1) if "As[ty][k]" in row)
    shown = sass_of_line(found, line, "02_tiled.cu").splitlines()
    assert len(shown) == 8
    row = r"[0-9a-f]{4}  LDS\.128 R\d+, \[R\d+(\+0x[0-9a-f]+)?\]"
    assert all(re.fullmatch(row, text) for text in shown)
    assert sass_of_line(found, line, "01_naive.cu") == ""
    assert sass_of_line(found, 1) == ""


def test_ptxas_refusing_the_ptx_is_an_error_with_its_words(text):
    with pytest.raises(SassError, match="ptxas failed"):
        disassemble(text, "sm_70x")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_an_ffma_waits_four_cycles_for_the_one_whose_result_it_needs(arch) -> None:
    """Four: measured by Jia et al. (arXiv:1804.06826) on Volta, and the same since."""
    chain = "x = x * a + b; " * 8
    source = f"""extern "C" __global__ void chain(float *o, float a, float b)
    {{ float x = o[threadIdx.x]; {chain} o[threadIdx.x] = x; }}"""
    found = function(ptx_of(source), "chain", arch).instructions
    waits = [i.wait for i in found if i.opcode == "FFMA"]
    assert waits[:-1] == [4] * 7  # the last one's result is stored, which may wait longer
    assert {i.wait for i in found} <= set(range(1, 16))


def test_without_nvdisasm_the_error_says_what_to_do(text, monkeypatch):
    monkeypatch.setattr("helpers.toolkit.find_nvdisasm", lambda toolkit: None)
    with pytest.raises(SassError, match="make setup"):
        disassemble(text, "sm_86")


def test_the_parser_knows_the_line_of_each_instruction():
    text = "\n".join([
        ".version 8.0", ".target sm_80", ".address_size 64", "/* a comment", "of two lines */",
        ".visible .entry k(.param .u64 out) {", "  .reg .b32 %r<4>; // mov", "  mov.u32 %r1, 5;",
        "  mov.u32", "    %r2, 6; mov.u32 %r3, 7;", "  ret;", "}",
    ])  # fmt: skip
    body = ptx.parse(text).kernels["k"].body
    assert [i.ptx_line for i in body] == [8, 9, 10, 11]
