"""The table of lane-wise instructions, and what its rows share.

A row is a function (e: Emitter, i: Instruction) -> (type, value), or a list of those where the
instruction has several destinations. The type is a PTX or a scalar LLVM type; the value is made
of `e.get(operand, type)` and of what `e.calc`, `e.pick` and `e.cast` emit. A row is called with
`e.wide` False where all operands are scalars and True where any is a vector; it need not care.
"""

from __future__ import annotations

from collections.abc import Callable

from . import ptx
from .emitter import Emitter

Value = tuple[str, str]
Row = Callable[[Emitter, ptx.Instruction], "Value | list[Value]"]
TABLE: dict[str, Row] = {}


def operation(*opcodes: str):
    """Enters a row under its opcodes."""

    def enter(row: Row) -> Row:
        for opcode in opcodes:
            TABLE[opcode] = row
        return row

    return enter


def only(e: Emitter, i: ptx.Instruction, *allowed: str, types: tuple[str, ...] = ()) -> str:
    """The type, which is the last modifier; refuses any modifier besides it and the allowed ones,
    and any type that is none of `types` (if given)."""
    kind = i.modifiers[-1] if i.modifiers else ""
    if set(i.modifiers[:-1]) - set(allowed) or kind not in (types or ptx.SIZES):
        raise e.unsupported()
    return kind


def halves(kind: str) -> bool:
    """Whether a type is a 16-bit float, or two of them in one register."""
    return kind in ("f16", "f16x2", "bf16", "bf16x2")


def sign_of(kind: str) -> str:
    """ "s" for a signed integer type, else "u"."""
    return "s" if kind[0] == "s" else "u"
