"""f16, bf16 and pairs of them (PTX ISA 9.7.4): kept as 16 bits, computed in f32 or f64.

Every result is rounded once. Where f32 cannot hold an exact intermediate value, that value is
rounded to odd first (the last bit set if anything was cut off), after which rounding to the
16-bit format gives what rounding the exact value would (Boldo and Melquiond, "When double
rounding is odd", 2005). LLVM's own `half` is not used: without F16C or AVX512-FP16 it calls
functions that the process may not have.
"""

from __future__ import annotations

from collections.abc import Callable

from . import floats, ptx
from .emitter import Emitter
from .table import Value, only

TYPES = ("f16", "f16x2", "bf16", "bf16x2")
_CANONICAL_NAN = 0x7FFF


def each(e: Emitter, kind: str, values: list[str], row: Callable[..., str]) -> str:
    """`row(half type, values)` on 16-bit values, or on both halves of packed ones."""
    half = kind.removesuffix("x2")
    if half == kind:
        return row(half, *values)
    low = row(half, *[e.cast("trunc", "i32", "i16", v) for v in values])
    upper = [e.cast("trunc", "i32", "i16", e.calc("lshr", "i32", v, 16)) for v in values]
    return pack(e, low, row(half, *upper))


def pack(e: Emitter, low: str, high: str) -> str:
    """Two i16 as an i32."""
    high = e.calc("shl", "i32", e.cast("zext", "i16", "i32", high), 16)
    return e.calc("or", "i32", high, e.cast("zext", "i16", "i32", low))


# -- to and from f32 ----------------------------------------


def widen(e: Emitter, half: str, value: str) -> str:
    """A 16-bit float as f32, exactly."""
    word = e.cast("zext", "i16", "i32", value)
    if half == "bf16":
        return e.cast("bitcast", "i32", "float", e.calc("shl", "i32", word, 16))
    size = e.calc("shl", "i32", e.calc("and", "i32", word, 0x7FFF), 13)
    number = e.calc("fmul", "float", e.cast("bitcast", "i32", "float", size), 2.0**112)
    number = e.cast("bitcast", "float", "i32", number)
    special = e.calc("icmp uge", "i32", size, 0x7C00 << 13)
    number = e.pick(special, "i32", e.calc("or", "i32", size, 0x7F800000), number)
    sign = e.calc("shl", "i32", e.calc("and", "i32", word, 0x8000), 16)
    return e.cast("bitcast", "i32", "float", e.calc("or", "i32", number, sign))


def narrow(e: Emitter, half: str, value: str, mode: str = "rn") -> str:
    """An f32 rounded to a 16-bit float. NaN becomes 0x7fff."""
    word = e.cast("bitcast", "float", "i32", value)
    size = e.calc("and", "i32", word, 0x7FFFFFFF)
    cut = 16 if half == "bf16" else 13
    last = e.calc("and", "i32", e.calc("lshr", "i32", size, cut), 1)
    up = e.calc("add", "i32", size, e.calc("add", "i32", last, (1 << cut - 1) - 1))
    if half == "f16":
        up = e.calc("sub", "i32", up, 112 << 23)
    bits = e.calc("lshr", "i32", up, cut)
    if half == "f16":
        # Adding 1/2 rounds a number below 2^-14 to a multiple of 2^-24, the subnormals' step.
        sum_ = e.calc("fadd", "float", e.cast("bitcast", "i32", "float", size), 0.5)
        low = e.calc("sub", "i32", e.cast("bitcast", "float", "i32", sum_), 0x3F000000)
        bits = e.pick(e.calc("icmp ult", "i32", size, 0x38800000), "i32", low, bits)
        bits = e.pick(e.calc("icmp uge", "i32", size, 0x477FF000), "i32", 0x7C00, bits)
    sign = e.calc("and", "i32", e.calc("lshr", "i32", word, 16), 0x8000)
    bits = e.calc("or", "i32", bits, sign)
    bits = e.pick(e.calc("icmp ugt", "i32", size, 0x7F800000), "i32", _CANONICAL_NAN, bits)
    bits = e.cast("trunc", "i32", "i16", bits)
    return bits if mode == "rn" else _directed(e, half, value, bits, mode)


def _directed(e: Emitter, half: str, value: str, bits: str, mode: str) -> str:
    """The nearest 16-bit float, moved to its neighbour if it lies on the wrong side."""
    back = widen(e, half, bits)
    if mode == "rz":
        wide = e.calc(
            "fcmp ogt",
            "float",
            floats.magnitude(e, "float", back),
            floats.magnitude(e, "float", value),
        )
        return e.pick(wide, "i16", e.calc("sub", "i16", bits, 1), bits)
    wrong = e.calc("fcmp ogt" if mode == "rm" else "fcmp olt", "float", back, value)
    negative = e.calc("icmp slt", "i16", bits, 0)
    larger, smaller = e.calc("add", "i16", bits, 1), e.calc("sub", "i16", bits, 1)
    step = (larger, smaller) if mode == "rm" else (smaller, larger)
    return e.pick(wrong, "i16", e.pick(negative, "i16", *step), bits)


def to_odd(e: Emitter, value: str) -> str:
    """An f64 as f32, rounded to odd."""
    near = e.cast("fptrunc", "double", "float", value)
    back = e.cast("fpext", "float", "double", near)
    size = floats.magnitude(e, "double", value)
    outward = e.calc("fcmp ogt", "double", size, floats.magnitude(e, "double", back))
    inexact = e.calc("fcmp one", "double", back, value)
    return _make_odd(e, "float", near, inexact, outward)


def _make_odd(e: Emitter, ty: str, near: str, inexact: str, outward: str) -> str:
    """The nearest float, or if it is even and not exact, its neighbour on the exact value's side
    (`outward`: further from zero)."""
    word_type = {"float": "i32", "double": "i64"}[ty]
    word = e.cast("bitcast", ty, word_type, near)
    even = e.calc("icmp eq", word_type, e.calc("and", word_type, word, 1), 0)
    step = e.pick(outward, word_type, 1, -1)
    move = e.calc("and", "i1", even, inexact)
    word = e.pick(move, word_type, e.calc("add", word_type, word, step), word)
    return e.cast("bitcast", word_type, ty, word)


def _odd_sum(e: Emitter, ty: str, a: str, b: str) -> str:
    """a + b rounded to odd, by way of the exact error (Knuth's two-sum)."""
    total = e.calc("fadd", ty, a, b)
    part = e.calc("fsub", ty, total, a)
    rest = e.calc("fsub", ty, a, e.calc("fsub", ty, total, part))
    error = e.calc("fadd", ty, rest, e.calc("fsub", ty, b, part))
    word_type = {"float": "i32", "double": "i64"}[ty]
    signs = e.calc(
        "xor",
        word_type,
        e.cast("bitcast", ty, word_type, total),
        e.cast("bitcast", ty, word_type, error),
    )
    outward = e.calc("icmp sge", word_type, signs, 0)
    return _make_odd(e, ty, total, e.calc("fcmp one", ty, error, 0.0), outward)


def _fma(e: Emitter, half: str, a: str, b: str, c: str) -> str:
    """a * b + c of 16-bit floats held as f32, as an f32 that may be rounded on to 16 bits.

    Two f16 have an exact product in f32; the product of two bf16 may be too small for that.
    """
    if half == "f16":
        return _odd_sum(e, "float", e.calc("fmul", "float", a, b), c)
    a, b, c = (e.cast("fpext", "float", "double", v) for v in (a, b, c))
    return to_odd(e, _odd_sum(e, "double", e.calc("fmul", "double", a, b), c))


# -- arithmetic ----------------------------------------


def flush(e: Emitter, i: ptx.Instruction, bits: str) -> str:
    """.ftz on a 16-bit float of type f16."""
    if "ftz" not in i.modifiers:
        return bits
    tiny = e.calc("icmp eq", "i16", e.calc("and", "i16", bits, 0x7C00), 0)
    return e.pick(tiny, "i16", e.calc("and", "i16", bits, -0x8000), bits)


def relu(e: Emitter, i: ptx.Instruction, bits: str) -> str:
    """.relu: a negative result becomes +0."""
    if "relu" not in i.modifiers:
        return bits
    return e.pick(e.calc("icmp slt", "i16", bits, 0), "i16", 0, bits)


def arithmetic(e: Emitter, i: ptx.Instruction) -> Value:
    """add, sub, mul and fma, rounded to nearest."""
    kind = only(e, i, "rn", "ftz", "sat", "relu", types=TYPES)
    count = 3 if i.opcode == "fma" else 2

    def row(half: str, *values: str) -> str:
        values = [widen(e, half, flush(e, i, v)) for v in values]
        if i.opcode == "fma":
            value = _fma(e, half, *values)
        elif i.opcode == "mul" and half == "bf16":
            value = _fma(e, half, *values, e.value("float", -0.0))
        else:  # 24 bits are enough to round twice: 24 >= 2 * 11 + 2 (Figueroa, 1995)
            value = e.calc(
                {"add": "fadd", "sub": "fsub", "mul": "fmul"}[i.opcode], "float", *values
            )
        if "ftz" in i.modifiers:  # decided on 11 digits, not on the fewer of a subnormal (an H200)
            size = floats.magnitude(e, "float", value)
            tiny = e.calc("fcmp olt", "float", size, 2.0**-14 * (1 - 2.0**-12))
            value = e.pick(tiny, "float", floats.with_sign(e, "float", 0.0, value), value)
        value = floats.saturate(e, i, "float", value)
        return relu(e, i, narrow(e, half, value))

    values = [e.get(o, kind) for o in i.operands[1 : 1 + count]]
    return kind, each(e, kind, values, row)


def minimum(e: Emitter, i: ptx.Instruction) -> Value:
    kind = only(e, i, "ftz", "NaN", "xorsign", "abs", types=TYPES)

    def row(half: str, *values: str) -> str:
        values = [widen(e, half, flush(e, i, v)) for v in values]
        return narrow(e, half, floats.lesser(e, i, "float", *values))

    return kind, each(e, kind, [e.get(o, kind) for o in i.operands[1:3]], row)


def absolute(e: Emitter, i: ptx.Instruction) -> Value:
    """abs and neg: the sign bit alone."""
    kind = only(e, i, "ftz", types=TYPES)

    def row(half: str, a: str) -> str:
        a = flush(e, i, a)
        return (
            e.calc("xor", "i16", a, -0x8000)
            if i.opcode == "neg"
            else e.calc("and", "i16", a, 0x7FFF)
        )

    return kind, each(e, kind, [e.get(i.operands[1], kind)], row)


def in_single(e: Emitter, kind: str, a: str, function: Callable[[str], str]) -> str:
    """A function of f32 applied to 16-bit floats."""
    return each(e, kind, [a], lambda half, v: narrow(e, half, function(widen(e, half, v))))
