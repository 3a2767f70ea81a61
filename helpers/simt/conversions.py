"""Moves and conversions (PTX ISA 9.7.9): mov with vectors, cvt, cvt.pack."""

from __future__ import annotations

from . import floats, halves, ptx
from .emitter import Emitter, llvm_type
from .shapes import is_integer, width
from .table import Value, operation, sign_of

# -- mov ----------------------------------------


@operation("mov")
def _mov(e, i):
    """A move; {a, b, ...} are parts of a larger register, the lowest first."""
    kind = i.modifiers[-1]
    if isinstance(i.operands[0], ptx.Vector):
        return _unpack(e, i, kind)
    if isinstance(i.operands[1], ptx.Vector):
        return kind, _pack(e, i.operands[1].elements, kind)
    return kind, e.get(i.operands[1], kind)


def _pack(e: Emitter, parts: tuple, kind: str) -> str:
    n = width(kind)
    each = n // len(parts)
    result = e.value(f"i{n}", 0)
    for k, part in enumerate(parts):
        piece = e.cast("zext", f"i{each}", f"i{n}", e.get(part, f"b{each}"))
        result = e.calc("or", f"i{n}", result, e.calc("shl", f"i{n}", piece, each * k))
    return result


def _unpack(e: Emitter, i: ptx.Instruction, kind: str) -> list[Value]:
    parts = i.operands[0].elements
    n, each = width(kind), width(kind) // len(parts)
    a = e.get(i.operands[1], f"b{n}")
    pieces = [e.calc("lshr", f"i{n}", a, each * k) for k in range(len(parts))]
    return [(f"b{each}", e.cast("trunc", f"i{n}", f"i{each}", p)) for p in pieces]


# -- cvt ----------------------------------------

_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_MODIFIERS = {"rn", "rz", "rm", "rp", "rna", *_TO_INTEGER, "ftz", "sat", "relu", "satfinite"}
_HALVES = ("f16", "bf16")


@operation("cvt")
def _cvt(e, i):
    if "pack" in i.modifiers:
        return _cvt_pack(e, i)
    to, source = i.modifiers[-2:]
    if set(i.modifiers[:-2]) - _MODIFIERS or source not in ptx.SIZES:
        raise e.unsupported()
    if to == "tf32":
        return "b32", _to_tf32(e, i, e.get(i.operands[1], "f32"))
    if to in ("f16x2", "bf16x2"):  # the first operand becomes the upper half
        if source != "f32":
            raise e.unsupported()
        high, low = (_to_half(e, i, to[:-2], e.get(o, "f32")) for o in i.operands[1:3])
        return "b32", halves.pack(e, low, high)
    if to not in ptx.SIZES or source in ("f16x2", "bf16x2", "pred"):
        raise e.unsupported()
    a = e.get(i.operands[1], source)
    if is_integer(source):
        return to, _integer_to_integer(e, i, a, source, to) if is_integer(to) else _from_integer(
            e, i, a, source, to
        )
    if is_integer(to):
        return to, _to_integer(e, i, a, source, to)
    return to, _float_to_float(e, i, a, source, to)


def _is_double(kind: str) -> bool:
    return kind == "f64"


def _as_float(e: Emitter, i: ptx.Instruction, a: str, source: str) -> tuple[str, str]:
    """A value of any floating-point type as f32, or f64 if it is one; and its LLVM type."""
    if source in _HALVES:
        return halves.widen(e, source, a), "float"
    return (a, "double") if _is_double(source) else (floats.flush(e, i, a), "float")


def _to_integer(e: Emitter, i: ptx.Instruction, a: str, source: str, to: str) -> str:
    """Rounded, then clamped to the integer's range (9.7.9.21). NaN gives 0, but the smallest
    number, as bits, where one of the two types has 64."""
    a, ty = _as_float(e, i, a, source)
    out = llvm_type(to)
    rounding = next((_TO_INTEGER[m] for m in i.modifiers if m in _TO_INTEGER), None)
    if rounding is None:
        raise e.unsupported()
    value = e.intrinsic(rounding, ty, [(ty, a)])
    name = "fptosi.sat" if to[0] == "s" else "fptoui.sat"
    value = e.intrinsic(name, out, [(ty, value)], extra=ty)
    if 64 not in (width(source), width(to)):
        return value
    return e.pick(e.calc("fcmp uno", ty, a, a), out, -1 << width(to) - 1, value)


def _from_integer(e: Emitter, i: ptx.Instruction, a: str, source: str, to: str) -> str:
    mode = floats.direction(i)
    verb, ty = f"{sign_of(source)}itofp", llvm_type(source)
    if to in _HALVES:
        if to == "bf16":
            raise e.unsupported()
        # f32 holds all integers an f16 can be near; larger ones are rounded, but stay larger
        value = floats.saturate(e, i, "float", e.cast(verb, ty, "float", a))
        return halves.narrow(e, "f16", value, mode)
    out = llvm_type(to)
    if width(source) < 32:  # exact
        value = e.cast(verb, ty, out, a)
    elif mode == "rn":
        value = e.cast(verb, ty, out, a)
    else:
        value = floats.rounded(e, mode, verb, out, a, source=ty)
        # LLVM may make -0 of 0 when rounding down
        value = e.pick(e.calc("icmp eq", ty, a, 0), out, 0.0, value)
    return floats.saturate(e, i, out, value)


def _float_to_float(e: Emitter, i: ptx.Instruction, a: str, source: str, to: str) -> str:
    if source == "f32" and to in _HALVES:
        return _to_half(e, i, to, a)
    a, ty = _as_float(e, i, a, source)
    rounding = next((_TO_INTEGER[m] for m in i.modifiers if m in _TO_INTEGER), None)
    if rounding:
        a = e.intrinsic(rounding, ty, [(ty, a)])
    if to in _HALVES:
        return _to_half(e, i, to, halves.to_odd(e, a) if ty == "double" else a)
    out, mode = llvm_type(to), floats.direction(i)
    if out == "double" and ty == "float":
        a = e.cast("fpext", ty, out, a)
    elif out != ty:

        def narrower(value: str) -> str:
            if mode == "rn":
                return e.cast("fptrunc", ty, out, value)
            return floats.rounded(e, mode, "fptrunc", out, value, source=ty)

        larger = lambda: narrower(e.calc("fmul", ty, a, floats.LARGER))  # noqa: E731
        a = floats.flush_result(e, i, narrower(a), larger)
    elif to == "f32":
        a = floats.flush(e, i, a)
    return floats.saturate(e, i, out, a)


def _to_half(e: Emitter, i: ptx.Instruction, half: str, value: str) -> str:
    """An f32 (or an f64 rounded to odd) as f16 or bf16, with .sat, .relu, .satfinite.

    .ftz changes nothing: a subnormal f32 still rounds up to the smallest f16 (an H200).
    """
    value = floats.saturate(e, i, "float", value)
    bits = halves.narrow(e, half, value, floats.direction(i))
    if "satfinite" in i.modifiers:
        infinite = 0x7F80 if half == "bf16" else 0x7C00
        size = e.calc("and", "i16", bits, 0x7FFF)
        bits = e.pick(
            e.calc("icmp eq", "i16", size, infinite), "i16", e.calc("sub", "i16", bits, 1), bits
        )
    return halves.relu(e, i, bits)


def _to_tf32(e: Emitter, i: ptx.Instruction, value: str) -> str:
    """cvt.rna.tf32.f32: to 10 bits after the point, ties away from zero; an f32's low 13 bits 0."""
    if set(i.modifiers[:-2]) != {"rna"}:
        raise e.unsupported()
    word = e.cast("bitcast", "float", "i32", value)
    near = e.calc("and", "i32", e.calc("add", "i32", word, 0x1000), -0x2000)
    return e.pick(e.calc("fcmp ord", "float", value, value), "i32", near, 0x7FFFFFFF)


def _integer_to_integer(e: Emitter, i: ptx.Instruction, a: str, source: str, to: str) -> str:
    if "sat" in i.modifiers:
        a = _clamp(e, a, source, width(to), to[0] == "s")
    if width(to) == width(source):
        return a
    how = "trunc" if width(to) < width(source) else "sext" if source[0] == "s" else "zext"
    return e.cast(how, llvm_type(source), llvm_type(to), a)


def _clamp(e: Emitter, a: str, source: str, bits: int, signed: bool) -> str:
    """An integer of type `source` clamped to the range of integers of `bits` bits."""
    ty, n, prefix = llvm_type(source), width(source), sign_of(source)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    least, most = (-(1 << n - 1), (1 << n - 1) - 1) if prefix == "s" else (0, (1 << n) - 1)
    if low > least:
        a = e.intrinsic(prefix + "max", ty, [(ty, a), (ty, e.value(ty, low))])
    if high < most:
        a = e.intrinsic(prefix + "min", ty, [(ty, a), (ty, e.value(ty, high))])
    return a


def _cvt_pack(e: Emitter, i: ptx.Instruction) -> Value:
    """cvt.pack.sat (9.7.9.24): a and b clamped to 2..16 bits, a above b, and c above both."""
    to = next(m for m in i.modifiers if m not in ("pack", "sat"))
    if "s32" not in i.modifiers or to[1:] not in ("2", "4", "8", "16"):
        raise e.unsupported()
    n = int(to[1:])
    a, b = (
        e.calc("and", "i32", _clamp(e, e.get(o, "s32"), "s32", n, to[0] == "s"), (1 << n) - 1)
        for o in i.operands[1:3]
    )
    value = e.calc("or", "i32", e.calc("shl", "i32", a, n), b)
    if n < 16:
        c = e.calc("shl", "i32", e.get(i.operands[3], "b32"), 2 * n)
        value = e.calc("or", "i32", value, c)
    return "b32", value
