"""What PTX arithmetic gives, bit by bit, in exact rational arithmetic: no floating-point rounding
but `round_to`'s own. Values go in and come out as bits (unsigned integers)."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: digits of the significand, exponents, bits in all."""

    name: str
    digits: int
    lowest: int  # exponent of the smallest normal number
    bits: int

    @property
    def infinity(self) -> int:
        return (1 << self.bits - 1) - (1 << self.digits - 1)

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1


FORMATS = {
    "f16": Format("f16", 11, -14, 16),
    "bf16": Format("bf16", 8, -126, 16),
    "tf32": Format("tf32", 11, -126, 19),
    "f32": Format("f32", 24, -126, 32),
    "f64": Format("f64", 53, -1022, 64),
}
NAN = -1  # stands for every NaN


@dataclass(frozen=True)
class Near:
    """An approximate result: its true value and how far off it may be."""

    value: float
    relative: float = 0.0
    absolute: float = 0.0

    def allows(self, x: float) -> bool:
        if self.value != self.value or x != x:
            return self.value != self.value and x != x
        if self.value == x:
            return True
        return abs(x - self.value) <= self.absolute + self.relative * abs(self.value)


def bits_of(kind: str) -> int:
    """Bits of a PTX type; 32 for a predicate, which travels as 0 or 1 in a register."""
    if kind == "pred":
        return 32
    return int(kind.removesuffix("x2").lstrip("busft")) * (2 if kind.endswith("x2") else 1)


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def integer(kind: str, bits: int) -> int:
    """The number that the low bits of a register mean as an integer type."""
    n = bits_of(kind)
    return signed(bits, n) if kind[0] == "s" else bits & (1 << n) - 1


def decode(kind: str, bits: int) -> float:
    """The number that bits mean; every format's numbers are doubles."""
    if kind == "f64":
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if kind == "bf16":
        bits, kind = bits << 16, "f32"
    if kind == "f16":
        return struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]


def negative(x: float) -> bool:
    return math.copysign(1, x) < 0


def round_to(
    kind: str, x: Fraction, mode: str = "rn", zero: bool = False, ftz: bool = False
) -> int:
    """The bits of x rounded to a format; `zero`: the sign of an exact 0.

    mode: rn (ties to even), rna (ties away from zero), rz, rm (down), rp (up). ftz: zero instead of
    what would be subnormal with all digits of a normal number, and exponents without end.
    """
    f = FORMATS[kind]
    if x == 0:
        return f.sign if zero else 0
    minus, n, d = x < 0, abs(x.numerator), x.denominator
    e = n.bit_length() - d.bit_length()
    if (n < d << e) if e >= 0 else (n << -e < d):
        e -= 1
    if ftz and e < f.lowest:
        larger = round_to(kind, x * Fraction(2) ** (f.lowest - e), mode) & ~f.sign
        carried = larger == 2 << f.digits - 1  # up to the next power of two
        return (f.sign if minus else 0) | (
            1 << f.digits - 1 if carried and e == f.lowest - 1 else 0
        )
    e = max(e, f.lowest)
    q = e - (f.digits - 1)  # the result is a multiple of 2^q
    if q >= 0:
        d <<= q
    else:
        n <<= -q
    whole, rest = divmod(n, d)
    up = {
        "rn": 2 * rest > d or 2 * rest == d and whole & 1,
        "rna": 2 * rest >= d,
        "rz": False,
        "rm": minus and rest,
        "rp": not minus and rest,
    }[mode]
    whole += bool(up)
    bits = whole
    if whole >= 1 << f.digits - 1:
        bits += (e - f.lowest) << f.digits - 1
    if bits >= f.infinity:
        inward = mode == "rz" or mode == ("rp" if minus else "rm")
        bits = f.infinity - 1 if inward else f.infinity
    return bits | (f.sign if minus else 0)


def encode(kind: str, x: float | Fraction, mode: str = "rn", ftz: bool = False) -> int:
    """round_to for any float, NaN, infinities and signed zeros too."""
    if isinstance(x, float):
        f = FORMATS[kind]
        if math.isnan(x):
            return NAN
        if math.isinf(x):
            return f.infinity | (f.sign if x < 0 else 0)
        return round_to(kind, Fraction(x), mode, negative(x), ftz)
    return round_to(kind, x, mode, ftz=ftz)


def flush(kind: str, bits: int) -> int:
    """.ftz: a subnormal becomes the zero of its sign."""
    f = FORMATS[kind]
    return bits if bits == NAN or bits & f.infinity else bits & f.sign


def saturate(kind: str, bits: int) -> int:
    """.sat: to [0, 1]; NaN to 0."""
    f = FORMATS[kind]
    one = encode(kind, 1.0)
    if bits == NAN or bits & f.sign:
        return 0
    return min(bits, one)


def compute(op: str, kind: str, mode: str, *values: float, ftz: bool = False) -> int:
    """add, sub, mul, fma, div, sqrt of numbers of one format, rounded once."""
    a, *more = values
    if op == "sub":
        return compute("add", kind, mode, a, -more[0], ftz=ftz)
    if op == "sqrt":
        return square_root(kind, mode, a)
    b = more[0]
    if not all(map(math.isfinite, values)):
        return encode(kind, _special(op, *values))
    if op == "div":
        if b == 0:
            return encode(kind, math.nan if a == 0 else math.copysign(math.inf, _sign(a, b)))
        return round_to(kind, Fraction(a) / Fraction(b), mode, _sign(a, b) < 0, ftz)
    if op == "mul":
        return round_to(kind, Fraction(a) * Fraction(b), mode, _sign(a, b) < 0, ftz)
    first = Fraction(a) if op == "add" else Fraction(a) * Fraction(b)
    c = b if op == "add" else more[1]
    minus = negative(a) if op == "add" else _sign(a, b) < 0
    total = first + Fraction(c)
    both = minus and negative(c)
    zero = both if minus == negative(c) else mode == "rm"  # of an exact 0
    return round_to(kind, total, mode, zero, ftz)


def _sign(a: float, b: float) -> float:
    return math.copysign(1, a) * math.copysign(1, b)


def _special(op: str, a: float, b: float, c: float = 0.0) -> float:
    """The result where an operand is infinite or NaN."""
    if op == "add":
        return a + b
    if op == "div":
        if math.isinf(b):
            return math.nan if math.isinf(a) or math.isnan(a) else 0.0 * _sign(a, b)
        return math.copysign(a, _sign(a, b)) if not math.isnan(a + b) else math.nan
    product = a * b
    if op == "mul":
        return product
    if math.isfinite(a) and math.isfinite(b):
        return c
    return product + c


def square_root(kind: str, mode: str, a: float) -> int:
    if math.isnan(a) or a < 0:
        return NAN
    if a == 0 or math.isinf(a):
        return encode(kind, a)
    x = Fraction(a)
    scale = 1 << 1200  # enough digits that what is cut off only says "more"
    root = math.isqrt(x.numerator * x.denominator * scale * scale)
    exact = root * root == x.numerator * x.denominator * scale * scale
    value = Fraction(2 * root + (not exact), 2 * x.denominator * scale)
    return round_to(kind, value, mode)


def to_integer(kind: str, x: float, how: str) -> int:
    """float -> integer: rounded (rni, rzi, rmi, rpi), clamped. NaN is for the caller."""
    n = bits_of(kind)
    low, high = (-(1 << n - 1), (1 << n - 1) - 1) if kind[0] == "s" else (0, (1 << n) - 1)
    if math.isinf(x):
        return (low if x < 0 else high) & (1 << n) - 1
    value = integral(Fraction(x), how)
    return max(low, min(high, value)) & (1 << n) - 1


def integral(x: Fraction, how: str) -> int:
    return {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[how](x)
