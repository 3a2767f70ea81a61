"""Comparison and selection (PTX ISA 9.7.6, 9.7.7): set, setp, selp, slct."""

from __future__ import annotations

from . import floats, halves, ptx
from .emitter import Emitter, llvm_type
from .shapes import LANES, width
from .table import halves as is_half
from .table import only, operation, sign_of

_INTEGER = {
    "eq": "eq",
    "ne": "ne",
    "lt": "{}lt",
    "le": "{}le",
    "gt": "{}gt",
    "ge": "{}ge",
    "lo": "ult",
    "ls": "ule",
    "hi": "ugt",
    "hs": "uge",
}
_FLOAT = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
_LOGIC = {"and", "or", "xor"}


def _compare(e: Emitter, i: ptx.Instruction, kind: str) -> list[str]:
    """a CmpOp b as an i1; two of them for packed halves, the lower first."""
    how = i.modifiers[0]
    if set(i.modifiers[1:]) - _LOGIC - {"ftz"} - set(ptx.SIZES):
        raise e.unsupported()
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    table = _FLOAT if is_half(kind) or kind in floats.FLOATS else _INTEGER
    if how not in table:
        raise e.unsupported()
    if kind in floats.FLOATS:
        if kind == "f32":
            a, b = floats.flush(e, i, a), floats.flush(e, i, b)
        return [e.calc(f"fcmp {_FLOAT[how]}", llvm_type(kind), a, b)]
    if not is_half(kind):
        return [e.calc(f"icmp {_INTEGER[how].format(sign_of(kind))}", llvm_type(kind), a, b)]
    found: list[str] = []

    def row(half: str, *values: str) -> str:
        values = [halves.widen(e, half, halves.flush(e, i, v)) for v in values]
        found.append(e.calc(f"fcmp {_FLOAT[how]}", "float", *values))
        return e.value("i16", 0)

    halves.each(e, kind, [a, b], row)
    return found


def _combine(e: Emitter, i: ptx.Instruction, value: str) -> str:
    """`value`, or `value` and/or/xor the third operand."""
    logic = _LOGIC & set(i.modifiers[1:])
    return e.calc(logic.pop(), "i1", value, e.get(i.operands[3], "pred")) if logic else value


@operation("setp")
def _setp(e, i):
    """p|q: the comparison and its opposite, or those of the two halves, each combined with c."""
    found = _compare(e, i, i.modifiers[-1])
    if len(found) == 1 and isinstance(i.operands[0], tuple):
        found.append(e.calc("xor", "i1", found[0], True))
    return [("pred", _combine(e, i, v)) for v in found]


@operation("set")
def _set(e, i):
    """All ones or zero; for a floating-point destination 1.0 or 0.0; packed: in each half."""
    to, kind = i.modifiers[-2:]
    found = [_combine(e, i, v) for v in _compare(e, i, kind)]
    if is_half(to):
        one = 0x3F80 if to.startswith("bf16") else 0x3C00
        values = [e.pick(v, "i16", one, 0) for v in found]
        return to, halves.pack(e, *values) if len(values) == 2 else values[0]
    ty = llvm_type(to)
    if len(found) == 2:
        if ty != "i32":
            raise e.unsupported()
        return to, halves.pack(e, *(e.cast("sext", "i1", "i16", v) for v in found))
    return to, e.cast("uitofp" if to == "f32" else "sext", "i1", ty, found[0])


@operation("selp")
def _selp(e, i):
    kind = only(e, i)
    ty = llvm_type(kind)
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    return kind, e.pick(e.get(i.operands[3], "pred"), ty, a, b)


@operation("slct")
def _slct(e, i):
    """slct d, a, b, c: a if c >= 0 (-0 is, NaN is not), else b."""
    kind, test = i.modifiers[-2:]
    if set(i.modifiers[:-2]) - {"ftz"} or test not in ("s32", "f32") or width(kind) < 16:
        raise e.unsupported()
    a, b, c = e.get(i.operands[1], kind), e.get(i.operands[2], kind), e.get(i.operands[3], test)
    if test == "f32":
        p = e.calc("fcmp oge", "float", floats.flush(e, i, c), 0.0)
    else:
        p = e.calc("icmp sge", "i32", c, 0)
    return kind, e.pick(p, llvm_type(kind), a, b)


@operation("isspacep")
def _is_space(e, i):
    """Whether a generic address is in a space (9.7.9.18): shared and local memory are the block's,
    all else is global."""
    address = e.get(i.operands[1], "b64")

    def inside(start: str, nbytes: str) -> str:
        start, nbytes = (e.splat("i64", v) if e.wide else v for v in (start, nbytes))
        return e.calc("icmp ult", "i64", e.calc("sub", "i64", address, start), nbytes)

    shared = inside("%shared_address", "%shared_bytes")
    local = inside("%local_start", str(LANES * e.layout.local_stride))
    found = {"shared": shared, "local": local}.get(i.modifiers[-1])
    return "pred", found or e.calc("xor", "i1", e.calc("or", "i1", shared, local), 1)
