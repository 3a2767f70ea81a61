"""Runs rows of PTX instructions (see ptx_rows) on the engine or on a GPU.

    MATMUL_BACKEND=gpu python tests/simt/ptx_run.py [part of a name]

runs all rows on the GPU with PyCUDA and prints where it and the oracle differ; with
MATMUL_BACKEND=cpu, on the engine. Rows whose operands have the same types share their cases and a
kernel, which stores what each row gives for each case. Each kernel comes twice: with a case for
each lane, and with one case for a whole warp (what is the same in all lanes takes another way
through the engine).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[n]) for n in (0, 1, 2)]

import ptx_cases  # noqa: E402
import ptx_oracle  # noqa: E402
from engine import Device  # noqa: E402

LARGEST = 24  # rows in a kernel: the compiler takes more than twice the time for twice the code
BLOCK = 64


@dataclass(frozen=True)
class Row:
    """One form of one instruction.

    name: opcode and modifiers; operands, results: PTX types ("pred" for a predicate);
    oracle(*bits) -> bits, NAN, a Near, or a tuple of those; form: how it is written, {d} {e} are
    results and {a} {b} {c} {f} operands.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    oracle: Callable
    form: str = ""
    cases: str = ""  # a set of cases of its own (see ptx_cases)

    def text(self, results: list[str], operands: list[str]) -> str:
        form = self.form or "{op} {d}" + "".join(f", {{{n}}}" for n in "abcf"[: len(operands)])
        given = dict(zip("abcf", operands, strict=False)) | dict(zip("degh", results, strict=False))
        return form.format(op=self.name, **given) + ";"


@dataclass
class Group:
    """Rows that share a kernel."""

    name: str
    operands: tuple[str, ...]
    rows: list[Row]
    cases: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        return sum(len(r.results) for r in self.rows)

    @cached_property
    def expected(self) -> list[list[tuple]]:
        """What the oracle says, for each row and case: a tuple with an item for each result."""
        every = [[row.oracle(*case) for case in self.cases] for row in self.rows]
        return [
            [(x,) for x in xs] if len(row.results) == 1 else xs
            for row, xs in zip(self.rows, every, strict=True)
        ]


def groups(rows: list[Row]) -> list[Group]:
    """The rows in groups of at most LARGEST."""
    by_signature: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        by_signature[row.operands, row.cases].append(row)
    found = []
    for (operands, special), members in by_signature.items():
        cases = ptx_cases.cases(operands, special)
        for k in range(0, len(members), LARGEST):
            name = "_".join([special, *operands]).strip("_") + f"_{k // LARGEST}"
            found.append(Group(name, operands, members[k : k + LARGEST], cases))
    return found


# -- kernels ----------------------------------------


def _register(kind: str) -> str:
    """The register type that holds a type: nvcc's choice."""
    if kind in ("f32", "f64"):
        return kind
    return f"b{max(16, ptx_oracle.bits_of(kind)) if kind[1:] != '8' else 32}"


def kernel(group: Group, one_case_a_warp: bool) -> str:
    """PTX of a kernel (operand arrays of 64-bit cells..., output array)."""
    count = len(group.operands)
    name = f"{group.name}_{'warp' if one_case_a_warp else 'lane'}"
    lines = [
        f".visible .entry {name}(",
        ",\n".join(f"  .param .u64 p{k}" for k in range(count + 1)),
        ") {",
        "  .reg .pred q<9>; .reg .b32 i<9>; .reg .b64 w<20>;",
        "  mov.u32 i0, %ctaid.x;",
    ]
    if not one_case_a_warp:
        lines += ["  mov.u32 i1, %ntid.x;", "  mov.u32 i2, %tid.x;"]
        lines += ["  mad.lo.s32 i0, i0, i1, i2;"]
    lines.append("  mul.wide.u32 w0, i0, 8;")
    given = []
    for k, kind in enumerate(group.operands):
        register = _register(kind)
        lines += [
            f"  .reg .{register} a{k};",
            f"  ld.param.u64 w1, [p{k}];",
            "  cvta.to.global.u64 w1, w1;",
            "  add.s64 w1, w1, w0;",
            f"  ld.global.{register} a{k}, [w1];",
        ]
        if kind == "pred":
            lines += [f"  .reg .pred p_{k};", f"  setp.ne.b32 p_{k}, a{k}, 0;"]
        given.append(f"p_{k}" if kind == "pred" else f"a{k}")
    lines += [
        f"  ld.param.u64 w2, [p{count}];",
        "  cvta.to.global.u64 w2, w2;",
        "  add.s64 w2, w2, w0;",
    ]
    place = 0
    for row in group.rows:
        lines.append("  {")
        results = []
        for k, kind in enumerate(row.results):
            results.append(f"d{k}")
            lines.append(f"  .reg .{'pred' if kind == 'pred' else _register(kind)} d{k};")
        lines.append("  " + row.text(results, given))
        for k, kind in enumerate(row.results):
            at = f"[w2+{place * 8 * len(group.cases)}]"
            if kind == "pred":
                lines += [f"  selp.u32 i3, 1, 0, d{k};", f"  st.global.u32 {at}, i3;"]
            else:
                lines.append(f"  st.global.{_register(kind)} {at}, d{k};")
            place += 1
        lines.append("  }")
    return "\n".join([*lines, "  ret;", "}"])


HEADER = ".version 9.0\n.target sm_80\n.address_size 64\n"


# -- running ----------------------------------------


def results(group: Group, one_case_a_warp: bool) -> np.ndarray:
    """What the rows give: uint64 [outputs, cases]."""
    n = len(group.cases)
    inputs = [np.array([c[k] for c in group.cases], np.uint64) for k in range(len(group.operands))]
    output = np.zeros((group.outputs, n), np.uint64)
    text = HEADER + kernel(group, one_case_a_warp)
    name = f"{group.name}_{'warp' if one_case_a_warp else 'lane'}"
    grid, block = (n, 32) if one_case_a_warp else (n // BLOCK, BLOCK)
    Device(text, 1 << 26).launch(name, grid, block, *inputs, output)
    return output


# -- comparing ----------------------------------------


def _is(kind: str, got: int, expected) -> bool:
    if isinstance(expected, ptx_oracle.Near):
        return expected.allows(ptx_oracle.decode(kind, got))
    if kind in ("f16x2", "bf16x2") and isinstance(expected, tuple):
        half = kind[:-2]
        return _is(half, got & 0xFFFF, expected[0]) and _is(half, got >> 16, expected[1])
    if expected == ptx_oracle.NAN:
        x = ptx_oracle.decode(kind, got)
        return x != x
    return got == expected


def mismatches(group: Group, output: np.ndarray) -> Iterator[tuple[Row, tuple, list, object]]:
    """(row, operands, got, expected) of each result that is not the oracle's."""
    place = 0
    for row, expected_of_row in zip(group.rows, group.expected, strict=True):
        got_of_row = output[place : place + len(row.results)].T.tolist()
        place += len(row.results)
        for case, got, expected in zip(group.cases, got_of_row, expected_of_row, strict=True):
            if tuple(got) != expected and not all(map(_is, row.results, got, expected)):
                yield row, case, got, expected


def describe(row: Row, case: tuple, got: list, expected) -> str:
    show = lambda v: f"{v:#x}" if isinstance(v, int) and v >= 0 else str(v)  # noqa: E731
    listed = ", ".join(show(v) for v in case)
    return f"{row.name} ({listed}): {[show(g) for g in got]}, not {[show(x) for x in expected]}"


def run_rows(part: str = "") -> list[str]:
    """Runs all rows whose names contain `part`; what differs from the oracle, a line for each row
    (with the first case)."""
    import ptx_rows

    found = []
    for group in groups([r for r in ptx_rows.ROWS if part in r.name]):
        for one_case_a_warp in (False, True):
            output = results(group, one_case_a_warp)
            first: dict[str, list[str]] = {}
            for wrong in mismatches(group, output):
                first.setdefault(wrong[0].name, []).append(describe(*wrong))
            found += [f"{len(texts)} cases: {' | '.join(texts[:3])}" for texts in first.values()]
    return found


def main() -> int:
    lines = run_rows(*sys.argv[1:])
    print("\n".join(lines) or "no difference")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
