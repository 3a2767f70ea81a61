"""ex2, lg2, sin, cos, tanh .approx (PTX ISA 9.7.3.18-22, 9.7.4.9-10), computed in f64.

PTX states how far a result may be off; these are the true values to some 40 bits, rounded to
f32. Polynomials on vectors, because a call of the C library for each lane is slow.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from . import floats, halves, ptx
from .emitter import Emitter, vector
from .shapes import LANES
from .table import halves as is_half
from .table import only, operation

_MAGIC = 1.5 * 2.0**52  # added to a double, leaves it rounded to an integer in the low bits
_PI = Fraction(
    314159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534,
    10**92,
)


def _round(e: Emitter, x: str) -> tuple[str, str]:
    """The nearest integer n of a small double: as a double, and as an i64 whose low bits are n."""
    shifted = e.calc("fadd", "double", x, _MAGIC)
    return e.calc("fsub", "double", shifted, _MAGIC), e.cast("bitcast", "double", "i64", shifted)


def _polynomial(e: Emitter, x: str, coefficients: list[float]) -> str:
    """Horner's scheme; the constant term comes first."""
    total = e.value("double", coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = e.calc("fadd", "double", e.calc("fmul", "double", total, x), c)
    return total


def _clamp(e: Emitter, x: str, limit: float) -> str:
    """To [-limit, limit]; NaN stays."""
    x = e.pick(e.calc("fcmp ogt", "double", x, limit), "double", limit, x)
    return e.pick(e.calc("fcmp olt", "double", x, -limit), "double", -limit, x)


def _keep_nan(e: Emitter, x: str, value: str) -> str:
    return e.pick(e.calc("fcmp uno", "double", x, x), "double", x, value)


def exp2(e: Emitter, x: str) -> str:
    """2^x = 2^n * e^(f ln 2), f in [-1/2, 1/2]."""
    bounded = _clamp(e, x, 300.0)
    whole, word = _round(e, bounded)
    f = e.calc("fsub", "double", bounded, whole)
    terms = [math.log(2) ** k / math.factorial(k) for k in range(12)]
    value = e.cast("bitcast", "double", "i64", _polynomial(e, f, terms))
    value = e.calc("add", "i64", value, e.calc("shl", "i64", word, 52))
    return _keep_nan(e, x, e.cast("bitcast", "i64", "double", value))


def log2(e: Emitter, x: str) -> str:
    """n + log2(m), m in [sqrt(1/2), sqrt(2)): log m = 2 artanh((m - 1) / (m + 1))."""
    root = int.from_bytes(bytes.fromhex("3fe6a09e667f3bcd"), "big")
    word = e.cast("bitcast", "double", "i64", x)
    n = e.calc("ashr", "i64", e.calc("sub", "i64", word, root), 52)
    m = e.calc("sub", "i64", word, e.calc("shl", "i64", n, 52))
    m = e.cast("bitcast", "i64", "double", m)
    f = e.calc("fsub", "double", m, 1.0)
    s = e.calc("fdiv", "double", f, e.calc("fadd", "double", f, 2.0))
    series = _polynomial(e, e.calc("fmul", "double", s, s), [2 / (2 * k + 1) for k in range(10)])
    part = e.calc("fmul", "double", e.calc("fmul", "double", series, s), 1 / math.log(2))
    n = e.cast("sitofp", "i32", "double", e.cast("trunc", "i64", "i32", n))
    value = e.calc("fadd", "double", n, part)
    infinite = e.calc("fcmp oeq", "double", x, math.inf)
    value = e.pick(infinite, "double", x, value)
    value = e.pick(e.calc("fcmp oeq", "double", x, 0.0), "double", -math.inf, value)
    negative = e.calc("fcmp ult", "double", x, 0.0)
    return e.pick(negative, "double", math.nan, value)


def tanh(e: Emitter, x: str) -> str:
    """1 - 2 / (e^2x + 1), or near 0, x * (1 - x^2 / 3)."""
    twice = e.calc("fmul", "double", x, 2 / math.log(2))
    power = e.calc("fadd", "double", exp2(e, _clamp(e, twice, 200.0)), 1.0)
    value = e.calc("fsub", "double", 1.0, e.calc("fdiv", "double", 2.0, power))
    square = e.calc("fmul", "double", x, x)
    factor = e.calc("fsub", "double", 1.0, e.calc("fmul", "double", square, 1 / 3))
    near = e.calc("fcmp olt", "double", square, 2.0**-20)
    return e.pick(near, "double", e.calc("fmul", "double", x, factor), value)


def _split(x: Fraction) -> tuple[float, float]:
    """x as the sum of two doubles."""
    high = float(x)
    return high, float(x - Fraction(high))


_POWERS = [_split(2**k % (2 * _PI)) if k else (1.0, 0.0) for k in range(105)]
_HALF_PI = _split(_PI / 2)


def _look_up(e: Emitter, part: int, index: str) -> str:
    """Entry `index` (an i64) of the table of 2^k mod 2 pi."""
    name = f"@two_pi.{part}"
    numbers = ", ".join(f"double 0x{struct.pack('>d', p[part]).hex()}" for p in _POWERS)
    text = f"{name} = internal constant [{len(_POWERS)} x double] [{numbers}]"
    if text not in e.constants:
        e.constants.append(text)
    if not e.wide:
        return e.op(f"load double, ptr {e.op(f'getelementptr double, ptr {name}, i64 {index}')}")
    v, pointers, i1 = vector("double"), vector("ptr"), vector("i1")
    place = e.op(f"getelementptr double, ptr {name}, {vector('i64')} {index}")
    gather = f"@llvm.masked.gather.v{LANES}f64.v{LANES}p0"
    e.declarations.add(f"declare {v} {gather}({pointers}, i32, {i1}, {v})")
    return e.op(
        f"call {v} {gather}({pointers} {place}, i32 8, {i1} splat (i1 true), {v} zeroinitializer)"
    )


def sine(e: Emitter, x: str, quarter: int) -> str:
    """sin(x + quarter * pi/2) of a double that holds an f32.

    x = m * 2^k with |m| < 2^24 (k = 0 for small x), so x = m * (2^k mod 2 pi) modulo 2 pi.
    """
    word = e.cast("bitcast", "double", "i64", x)
    k = e.calc("and", "i64", e.calc("lshr", "i64", word, 52), 0x7FF)
    k = e.intrinsic("usub.sat", "i64", [("i64", k), ("i64", e.value("i64", 1023 + 23))])
    k = e.intrinsic("umin", "i64", [("i64", k), ("i64", e.value("i64", len(_POWERS) - 1))])
    m = e.calc("sub", "i64", word, e.calc("shl", "i64", k, 52))
    m = e.cast("bitcast", "i64", "double", m)
    fma = lambda *v: e.intrinsic("fma", "double", [("double", e.value("double", p)) for p in v])  # noqa: E731
    high, low = _look_up(e, 0, k), _look_up(e, 1, k)
    angle = e.calc("fmul", "double", m, high)
    rest = fma(m, low, fma(m, high, e.calc("fneg", "double", angle)))
    whole, count = _round(e, e.calc("fmul", "double", angle, float(2 / _PI)))
    whole = e.calc("fneg", "double", whole)
    r = fma(whole, _HALF_PI[0], angle)
    r = e.calc("fadd", "double", fma(whole, _HALF_PI[1], r), rest)
    square = e.calc("fmul", "double", r, r)
    terms = [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(8)]
    odd = e.calc("fmul", "double", r, _polynomial(e, square, terms))
    even = _polynomial(e, square, [(-1.0) ** n / math.factorial(2 * n) for n in range(9)])
    count = e.calc("add", "i64", count, quarter)
    cosine = e.calc("icmp ne", "i64", e.calc("and", "i64", count, 1), 0)
    minus = e.calc("icmp ne", "i64", e.calc("and", "i64", count, 2), 0)
    value = e.pick(cosine, "double", even, odd)
    value = e.pick(minus, "double", e.calc("fneg", "double", value), value)
    if not quarter:  # the sign of zero
        value = e.pick(e.calc("fcmp oeq", "double", x, 0.0), "double", x, value)
    finite = e.calc("fcmp olt", "double", floats.magnitude(e, "double", x), math.inf)
    return e.pick(finite, "double", value, math.nan)


_FUNCTIONS = {
    "ex2": exp2,
    "lg2": log2,
    "tanh": tanh,
    "sin": lambda e, x: sine(e, x, 0),
    "cos": lambda e, x: sine(e, x, 1),
}


@operation(*_FUNCTIONS)
def _approximate(e: Emitter, i: ptx.Instruction):
    def function(a: str) -> str:
        value = _FUNCTIONS[i.opcode](e, e.cast("fpext", "float", "double", a))
        return e.cast("fptrunc", "double", "float", value)

    if is_half(i.modifiers[-1]) and i.opcode in ("ex2", "tanh"):
        kind = only(e, i, "approx", "ftz", types=halves.TYPES)
        return kind, halves.in_single(e, kind, e.get(i.operands[1], kind), function)
    kind = only(e, i, "approx", "ftz", types=("f32",))
    (a,) = floats.operands(e, i, kind, 1)
    return floats.result(e, i, kind, function(a))
