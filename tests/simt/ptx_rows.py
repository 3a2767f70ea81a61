"""The rows: every lane-wise instruction of PTX 9.0 for sm_80, in every type and modifier, each
with an oracle that knows nothing of the engine (exact fractions, Python integers, mpmath).

Section numbers are the PTX ISA's. Forms that ptxas refuses for sm_80 are no rows.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
from ptx_oracle import (
    FORMATS,
    NAN,
    Near,
    bits_of,
    compute,
    decode,
    encode,
    flush,
    integer,
    integral,
    negative,
    round_to,
    saturate,
    signed,
    to_integer,
)
from ptx_run import Row

ROWS: list[Row] = []
WORDS = ("u16", "s16", "u32", "s32", "u64", "s64")
LONG = ("u32", "s32", "u64", "s64")
ROUNDINGS = ("rn", "rz", "rm", "rp")


def row(name, operands, results, oracle, form="", cases="") -> None:
    operands = tuple(operands.split()) if isinstance(operands, str) else tuple(operands)
    results = tuple(results.split()) if isinstance(results, str) else tuple(results)
    ROWS.append(Row(name, operands, results, oracle, form, cases))


def options(*choices) -> list[tuple[str, ...]]:
    """All selections of one of each: options(("", "ftz")) -> [(""), ("ftz")]."""
    return list(itertools.product(*choices))


def dotted(*parts: str) -> str:
    return ".".join(p for p in parts if p)


def word(kind: str, value: int) -> int:
    """An integer as the bits of a type."""
    return value & (1 << bits_of(kind)) - 1


def on_integers(kind: str, function):
    """An oracle on numbers of one integer type, made of a function on Python's integers."""
    return lambda *v: word(kind, function(*(integer(kind, x) for x in v)))


# -- integers (9.7.1) ----------------------------------------


def limits(kind: str) -> tuple[int, int]:
    n = bits_of(kind)
    return (-(1 << n - 1), (1 << n - 1) - 1) if kind[0] == "s" else (0, (1 << n) - 1)


def clamp(value: int, kind: str) -> int:
    low, high = limits(kind)
    return max(low, min(high, value))


def quotient(kind: str):
    """Towards zero; PTX leaves division by zero open, all ones here."""
    return lambda a, b: -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(kind: str):
    """All ones by zero, as the quotient."""
    return lambda a, b: -1 if b == 0 else a - b * quotient(kind)(a, b)


for T in WORDS:
    n = bits_of(T)
    wide = T[0] + str(2 * n)
    for op, f in {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul.lo": lambda a, b: a * b,
        "mul.hi": lambda a, b, n=n: a * b >> n,
        "div": quotient(T),
        "rem": remainder(T),
        "min": min,
        "max": max,
    }.items():
        row(f"{op}.{T}", (T, T), (T,), on_integers(T, f))
    row(f"mad.lo.{T}", (T, T, T), (T,), on_integers(T, lambda a, b, c: a * b + c))
    row(f"mad.hi.{T}", (T, T, T), (T,), on_integers(T, lambda a, b, c, n=n: (a * b >> n) + c))
    row(f"sad.{T}", (T, T, T), (T,), on_integers(T, lambda a, b, c: c + abs(a - b)))
    if n < 64:
        product = lambda a, b, T=T: integer(T, a) * integer(T, b)  # noqa: E731
        row(f"mul.wide.{T}", (T, T), (wide,), lambda a, b, p=product, w=wide: word(w, p(a, b)))
        row(
            f"mad.wide.{T}",
            (T, T, wide),
            (wide,),
            lambda a, b, c, p=product, w=wide: word(w, p(a, b) + c),
        )
    if T[0] == "s":
        row(f"abs.{T}", (T,), (T,), on_integers(T, abs))
        row(f"neg.{T}", (T,), (T,), on_integers(T, lambda a: -a))
for op, f in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b)):
    row(
        f"{op}.sat.s32",
        "s32 s32",
        "s32",
        on_integers("s32", lambda a, b, f=f: clamp(f(a, b), "s32")),
    )
row(
    "mad.hi.sat.s32",
    "s32 s32 s32",
    "s32",
    on_integers("s32", lambda a, b, c: clamp((a * b >> 32) + c, "s32")),
)


def product24(kind: str, part: str, a: int, b: int) -> int:
    cut = (lambda v: signed(v, 24)) if kind == "s32" else (lambda v: v & 0xFFFFFF)
    return signed(cut(a) * cut(b) >> (16 if part == "hi" else 0), 32)


for T, part in options(("u32", "s32"), ("lo", "hi")):
    row(f"mul24.{part}.{T}", (T, T), (T,), lambda a, b, T=T, p=part: word(T, product24(T, p, a, b)))
    row(
        f"mad24.{part}.{T}",
        (T, T, T),
        (T,),
        lambda a, b, c, T=T, p=part: word(T, product24(T, p, a, b) + c),
    )
row(
    "mad24.hi.sat.s32",
    "s32 s32 s32",
    "s32",
    lambda a, b, c: word("s32", clamp(product24("s32", "hi", a, b) + signed(c, 32), "s32")),
)


def part_of(value: int, kind: str, at: int, n: int) -> int:
    """n bits of a word from bit `at` on, with or without a sign."""
    bits = value >> at & (1 << n) - 1
    return signed(bits, n) if kind == "s32" else bits


def dot(a_kind: str, b_kind: str, n: int, first: int):
    """n parts of a times as many bytes of b, from bit `first` on, plus c."""
    size = 32 // n

    def oracle(a, b, c):
        for k in range(n):
            c += part_of(a, a_kind, size * k, size) * part_of(b, b_kind, first + 8 * k, 8)
        return word("b32", c)

    return oracle


for A, B in options(("u32", "s32"), ("u32", "s32")):
    row(f"dp4a.{A}.{B}", "b32 b32 b32", "b32", dot(A, B, 4, 0))
    row(f"dp2a.lo.{A}.{B}", "b32 b32 b32", "b32", dot(A, B, 2, 0))
    row(f"dp2a.hi.{A}.{B}", "b32 b32 b32", "b32", dot(A, B, 2, 16))


def differences(kind: str, n: int, adds: bool):
    """|a - b| of n parts of a word, side by side or added up and to c."""
    size = 32 // n

    def oracle(a, b, c):
        parts = [
            abs(part_of(a, kind, at, size) - part_of(b, kind, at, size))
            for at in range(0, 32, size)
        ]
        if adds:
            return word("b32", c + sum(parts))
        return sum((part & (1 << size) - 1) << size * k for k, part in enumerate(parts))

    return oracle


for T, n, adds in options(("u32", "s32"), (2, 4), (False, True)):
    name = f"vabsdiff{n}.{T}.{T}.{T}" + (".add" if adds else "")
    row(name, "b32 b32 b32", "b32", differences(T, n, adds))


def highest(kind: str, a: int, shift: bool) -> int:
    """bfind: the highest bit that differs from the sign."""
    value = integer(kind, a)
    place = (value if value >= 0 else ~value).bit_length() - 1
    if place < 0:
        return 0xFFFFFFFF
    return bits_of(kind) - 1 - place if shift else place


for n in (32, 64):
    T = f"b{n}"
    row(f"popc.{T}", (T,), ("u32",), lambda a: a.bit_count())
    row(f"clz.{T}", (T,), ("u32",), lambda a, n=n: n - a.bit_length())
    row(f"brev.{T}", (T,), (T,), lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2))
for T, shift in options(LONG, ("", "shiftamt")):
    row(dotted("bfind", shift, T), (T,), ("u32",), lambda a, T=T, s=shift: highest(T, a, bool(s)))


def field(n: int, pos: int, length: int) -> tuple[int, int]:
    """PTX allows 0 to 255; of others an H200 takes 8 bits where words have 32, else all."""
    return (pos & 255, length & 255) if n == 32 else (pos, min(length, n))


def extract(kind: str):
    def oracle(a, pos, length):
        top = bits_of(kind) - 1
        pos, length = field(top + 1, pos, length)
        fill = 0 if kind[0] == "u" or length == 0 else a >> min(pos + length - 1, top) & 1
        bit = lambda k: a >> pos + k & 1 if k < length and pos + k <= top else fill  # noqa: E731
        return sum(bit(k) << k for k in range(top + 1))

    return oracle


def insert(n: int):
    def oracle(a, b, pos, length):
        pos, length = field(n, pos, length)
        for k in range(length):
            if pos + k < n:
                b = b & ~(1 << pos + k) | (a >> k & 1) << pos + k
        return b

    return oracle


for T in LONG:
    row(f"bfe.{T}", (T, "u32", "u32"), (T,), extract(T), cases=f"extract{bits_of(T)}")
for n in (32, 64):
    row(f"bfi.b{n}", (f"b{n}", f"b{n}", "u32", "u32"), (f"b{n}",), insert(n), cases=f"fields{n}")


def nth_set_bit(mask, base, n):
    n = signed(n, 32)
    if n == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    if n == -(1 << 31) and base < 32:
        return 0  # an H200
    left, place = abs(n), signed(base, 32)
    while 0 <= place < 32:
        left -= mask >> place & 1
        if left == 0:
            return place
        place += 1 if n > 0 else -1
    return 0xFFFFFFFF


row("fns.b32", "b32 b32 s32", "b32", nth_set_bit, cases="nth")


def field_mask(mode: str):
    def oracle(a, b):
        if mode == "clamp":
            a, b = min(a, 32), min(b, 32)
        else:
            a, b = a & 31, b & 31
        return ((1 << b) - 1) << a & 0xFFFFFFFF

    return oracle


def extend(mode: str, kind: str):
    def oracle(a, b):
        if b >= 32 and mode == "clamp":
            return a
        b &= 31
        low = a & (1 << b) - 1
        return word("b32", signed(low, b)) if kind == "s32" and b else low

    return oracle


for mode in ("clamp", "wrap"):
    row(f"bmsk.{mode}.b32", "b32 b32", "b32", field_mask(mode), cases="pairs")
    for T in ("u32", "s32"):
        row(f"szext.{mode}.{T}", (T, "u32"), (T,), extend(mode, T), cases="pairs")

# -- carry (9.7.2): two instructions, the second using the flag of the first ---------------------


def carried(kind: str, first, second, borrow: bool):
    """d = first(a, b) giving a carry, e = second(b, c) with it, f = addc/subc 0, 0 after that."""

    def oracle(a, b, c):
        n = bits_of(kind)
        low = first(integer(kind, a), integer(kind, b), integer(kind, c), n)
        flag = low >> n & 1
        high = second(a, b, c, flag, n)
        flag = high >> n & 1
        return word(kind, low), word(kind, high), word(kind, -flag if borrow else flag)

    return oracle


def part(kind: str, which: str, a: int, b: int) -> int:
    p = integer(kind, a) * integer(kind, b)
    n = bits_of(kind)
    return word(kind, p >> (n if which == "hi" else 0))


for T in LONG:
    full = (1 << bits_of(T)) - 1
    row(
        f"add.cc.{T}",
        (T, T, T),
        (T, T, T),
        carried(
            T,
            lambda a, b, c, n: (a & (1 << n) - 1) + (b & (1 << n) - 1),
            lambda a, b, c, flag, n: b + c + flag,
            False,
        ),
        f"add.cc.{T} {{d}}, {{a}}, {{b}}; addc.cc.{T} {{e}}, {{b}}, {{c}}; addc.{T} {{g}}, 0, 0",
    )
    row(
        f"sub.cc.{T}",
        (T, T, T),
        (T, T, T),
        carried(
            T,
            lambda a, b, c, n: (a & (1 << n) - 1) - (b & (1 << n) - 1),
            lambda a, b, c, flag, n: b - c - flag,
            True,
        ),
        f"sub.cc.{T} {{d}}, {{a}}, {{b}}; subc.cc.{T} {{e}}, {{b}}, {{c}}; subc.{T} {{g}}, 0, 0",
    )
    for which in ("lo", "hi"):
        row(
            f"mad.{which}.cc.{T}",
            (T, T, T),
            (T, T, T),
            carried(
                T,
                lambda a, b, c, n, T=T, w=which: part(T, w, a, b) + (c & (1 << n) - 1),
                lambda a, b, c, flag, n, T=T, w=which: part(T, w, b, c) + a + flag,
                False,
            ),
            f"mad.{which}.cc.{T} {{d}}, {{a}}, {{b}}, {{c}}; "
            f"madc.{which}.cc.{T} {{e}}, {{b}}, {{c}}, {{a}}; madc.lo.{T} {{g}}, 0, 0, 0",
        )


def mixed(kind: str, subtracts_first: bool):
    """sub.cc, addc.cc, subc; or add.cc, subc.cc, addc: a - b is a + ~b + 1 for the flag."""

    def oracle(a, b, c):
        n = bits_of(kind)
        full = (1 << n) - 1
        a, b, c = a & full, b & full, c & full
        low = a + (full - b) + 1 if subtracts_first else a + b
        high = b + (c if subtracts_first else full - c) + (low >> n)
        last = (full if subtracts_first else 0) + (high >> n)
        return word(kind, low), word(kind, high), word(kind, last)

    return oracle


for T in LONG:
    for first, second in (("sub", "add"), ("add", "sub")):
        row(
            f"{first}.cc {second}c.cc.{T}",
            (T, T, T),
            (T, T, T),
            mixed(T, first == "sub"),
            f"{first}.cc.{T} {{d}}, {{a}}, {{b}}; {second}c.cc.{T} {{e}}, {{b}}, {{c}}; "
            f"{first}c.{T} {{g}}, 0, 0",
        )

# -- logic and shifts (9.7.8) ----------------------------------------

LOGIC = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
for op, f in LOGIC.items():
    for T in ("b16", "b32", "b64", "pred"):
        row(f"{op}.{T}", (T, T), (T,), f)
for T in ("b16", "b32", "b64"):
    row(f"not.{T}", (T,), (T,), lambda a, T=T: word(T, ~a))
    row(f"cnot.{T}", (T,), (T,), lambda a: int(a == 0))
    n = bits_of(T)
    row(f"shl.{T}", (T, "u32"), (T,), lambda a, b, T=T: word(T, a << min(b, 64)))
for T in ("b16", "b32", "b64", *WORDS):
    row(f"shr.{T}", (T, "u32"), (T,), lambda a, b, T=T: word(T, integer(T, a) >> min(b, 64)))
row("not.pred", "pred", "pred", lambda a: 1 - a)


def funnel(side: str, mode: str):
    def oracle(lo, hi, n):
        n = min(n, 32) if mode == "clamp" else n & 31
        both = hi << 32 | lo
        return both << n >> 32 & 0xFFFFFFFF if side == "l" else both >> n & 0xFFFFFFFF

    return oracle


for side, mode in options(("l", "r"), ("wrap", "clamp")):
    row(f"shf.{side}.{mode}.b32", "b32 b32 u32", "b32", funnel(side, mode), cases="amounts")


def any_function(table: int, a: int, b: int, c: int) -> int:
    value = 0
    for k in range(8):
        if table >> k & 1:
            value |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return value & 0xFFFFFFFF


for table in (0, 0x80, 0xC0, 0x96, 0xE8, 0xCA, 0xFE, 0x01, 0x3C, 0x6A, 0x7F, 0xFF, 0x1E, 0xB1):
    row(
        f"lop3.b32 {table:#x}",
        "b32 b32 b32",
        "b32",
        lambda a, b, c, t=table: any_function(t, a, b, c),
        f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table:#x}",
    )
for logic in ("and", "or"):
    row(
        f"lop3.{logic}.b32",
        "b32 b32 b32 pred",
        "b32 pred",
        lambda a, b, c, q, g=LOGIC[logic]: (
            any_function(0xC0, a, b, c),
            g(int(any_function(0xC0, a, b, c) != 0), q),
        ),
        f"lop3.{logic}.b32 {{d}}|{{e}}, {{a}}, {{b}}, {{c}}, 0xc0, {{f}}",
    )


def permutation(mode: str):
    """prmt (9.7.9.7), the byte orders written as the manual's tables have them."""
    orders = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }

    def oracle(a, b, c):
        pool = (b << 32 | a).to_bytes(8, "little")
        if mode:
            chosen = [int(x) for x in reversed(orders[mode][c & 3])]
            return int.from_bytes(bytes(pool[k] for k in chosen), "little")
        out = []
        for k in range(4):
            selector = c >> 4 * k & 15
            byte = pool[selector & 7]
            out.append((255 if byte & 128 else 0) if selector & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    return oracle


for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
    row(dotted("prmt", "b32", mode), "b32 b32 b32", "b32", permutation(mode))

# -- floating point (9.7.3) ----------------------------------------


def in_format(kind: str, function, how: str):
    """An oracle of a float instruction: function(*numbers) -> bits, with .ftz and .sat."""

    def oracle(*values):
        if "ftz" in how:
            values = [flush(kind, v) for v in values]
        bits = function(*(decode(kind, v) for v in values))
        if "ftz" in how:
            bits = flush(kind, bits)
        return saturate(kind, bits) if "sat" in how else bits

    return oracle


for kind, ftz, sat in [*options(("f32",), ("", "ftz"), ("", "sat")), ("f64", "", "")]:
    for op, mode in options(("add", "sub", "mul", "fma", "mad"), ("", *ROUNDINGS)):
        count = 3 if op in ("fma", "mad") else 2
        if count == 3 and not mode:
            continue
        how = op if op != "mad" else "fma"
        row(
            dotted(op, mode, ftz, sat, kind),
            (kind,) * count,
            (kind,),
            in_format(
                kind,
                lambda *v, o=how, k=kind, m=mode, z=bool(ftz): compute(o, k, m or "rn", *v, ftz=z),
                (ftz, sat),
            ),
        )
    if sat:
        continue
    for op, mode in options(("div", "rcp", "sqrt"), ROUNDINGS):
        if op == "rcp":
            f = lambda a, k=kind, m=mode, z=bool(ftz): compute("div", k, m, 1.0, a, ftz=z)  # noqa: E731
        else:
            f = lambda *v, o=op, k=kind, m=mode, z=bool(ftz): compute(o, k, m, *v, ftz=z)  # noqa: E731
        operands = (kind,) * (2 if op == "div" else 1)
        row(dotted(op, mode, ftz, kind), operands, (kind,), in_format(kind, f, (ftz,)))
    row(
        dotted("abs", ftz, kind),
        (kind,),
        (kind,),
        in_format(kind, lambda a, k=kind: encode(k, abs(a)), (ftz,)),
    )
    row(
        dotted("neg", ftz, kind),
        (kind,),
        (kind,),
        in_format(kind, lambda a, k=kind: encode(k, -a), (ftz,)),
    )


def extreme(kind: str, op: str, nan: bool):
    def choose(a: float, b: float) -> int:
        if math.isnan(a) or math.isnan(b):
            value = (
                math.nan if nan or math.isnan(a) and math.isnan(b) else b if math.isnan(a) else a
            )
        else:
            key = lambda x: (x, 0 if negative(x) else 1)  # noqa: E731
            value = (min if op == "min" else max)(a, b, key=key)
        return encode(kind, value)

    return choose


def half_pairs(kind: str, oracle):
    """An oracle on both halves of packed operands."""
    half = kind.removesuffix("x2")
    if half == kind:
        return oracle
    return lambda *v: tuple(oracle(*(x >> s & 0xFFFF for x in v)) for s in (0, 16))


HALVES = ("f16", "f16x2", "bf16", "bf16x2")
for kind, op, ftz, nan in options(  # .xorsign.abs is for sm_86
    ("f32", "f64", *HALVES), ("min", "max"), ("", "ftz"), ("", "NaN")
):
    if ftz and kind in ("f64", "bf16", "bf16x2") or kind == "f64" and nan:
        continue
    base = kind.removesuffix("x2")
    oracle = in_format(base, extreme(base, op, bool(nan)), (ftz,))
    name = dotted(op, ftz, nan, kind)
    row(name, (kind, kind), (kind,), half_pairs(kind, oracle))

for kind in ("f32", "f64"):
    sign = FORMATS[kind].sign
    row(
        f"copysign.{kind}",
        (kind, kind),
        (kind,),
        lambda a, b, k=kind, s=sign: NAN if math.isnan(decode(k, b)) else a & s | b & s - 1,
    )
    for test, f in {
        "finite": math.isfinite,
        "infinite": math.isinf,
        "number": lambda x: not math.isnan(x),
        "notanumber": math.isnan,
    }.items():
        row(f"testp.{test}.{kind}", (kind,), ("pred",), lambda a, k=kind, f=f: int(f(decode(k, a))))
    small = 2.0 ** FORMATS[kind].lowest
    row(
        f"testp.normal.{kind}",
        (kind,),
        ("pred",),
        lambda a, k=kind, s=small: int(
            math.isfinite(decode(k, a)) and (abs(decode(k, a)) >= s or decode(k, a) == 0)
        ),
    )
    row(
        f"testp.subnormal.{kind}",
        (kind,),
        ("pred",),
        lambda a, k=kind, s=small: int(0 < abs(decode(k, a)) < s),
    )

# -- approximations (9.7.3): true values by mpmath, and the bounds the manual states --------------

mpmath.mp.prec = 100


def approximately(kind: str, function, ftz: str, relative=0.0, absolute=0.0, turns=False):
    """An oracle within bounds; one ulp of the result's format is always allowed.

    turns: the bound is for operands in [-pi, pi]; from larger ones turns are taken off in f32.
    """
    f = FORMATS[kind]

    def oracle(*values):
        if ftz:
            values = [flush(kind, v) for v in values]
        numbers = [decode(kind, v) for v in values]
        if any(math.isnan(x) for x in numbers):
            return NAN
        exact = function(*numbers)
        if exact != exact or mpmath.isinf(exact):
            return encode(kind, float(exact))
        if exact == 0:
            return encode(kind, float(exact))
        size = abs(exact)
        if size >= mpmath.mpf(2) ** (2 - f.lowest):
            return f.infinity | (f.sign if exact < 0 else 0)
        if ftz and size < mpmath.mpf(2) ** f.lowest * (1 - 2.0**-12):
            return f.sign if exact < 0 else 0
        spacing = 2.0 ** (max(f.lowest, int(mpmath.floor(mpmath.log(size, 2)))) - f.digits + 1)
        if ftz and size < mpmath.mpf(2) ** f.lowest * (1 + 2.0**-12):
            spacing = 2.0**f.lowest  # zero or the smallest normal number
        extra = abs(numbers[0]) * 2.0**-22 if turns and abs(numbers[0]) > math.pi else 0.0
        return Near(float(exact), relative, min(2.0, absolute + spacing + extra))

    return oracle


def mp(name: str):
    """A function of mpmath with the special values of 9.7.3."""

    def function(x: float):
        if name == "lg2":
            if x == 0:
                return -math.inf
            return math.nan if x < 0 else math.inf if x == math.inf else mpmath.log(x, 2)
        if name in ("sin", "cos"):
            if math.isinf(x):
                return math.nan
            return x if x == 0 and name == "sin" else getattr(mpmath, name)(x)
        if name == "ex2":
            return math.inf if x > 2000 else 0.0 if x < -2000 else mpmath.mpf(2) ** mpmath.mpf(x)
        if name == "tanh":
            return x if x == 0 else math.copysign(1.0, x) if abs(x) > 100 else mpmath.tanh(x)
        if name == "sqrt":
            return math.nan if x < 0 else x if x == 0 or math.isinf(x) else mpmath.sqrt(x)
        if x == 0:
            return math.copysign(math.inf, x)
        if name == "rcp":
            return math.copysign(0.0, x) if math.isinf(x) else 1 / mpmath.mpf(x)
        return math.nan if x < 0 else 0.0 if math.isinf(x) else 1 / mpmath.sqrt(x)  # rsqrt

    return function


BOUNDS = {  # relative, absolute (9.7.3.13-22)
    "rcp": (2.0**-23, 0.0),
    "sqrt": (2.0**-23, 0.0),
    "rsqrt": (2.0**-22.9, 0.0),
    "ex2": (2.0**-22, 0.0),
    "lg2": (2.0**-22, 2.0**-22),
    "tanh": (2.0**-11, 0.0),
}
for op, ftz in options(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), ("", "ftz")):
    if op == "tanh" and ftz:
        continue
    bounds = BOUNDS.get(op, (0.0, 2.0**-20.5))
    oracle = approximately("f32", mp(op), ftz, *bounds, turns=op in ("sin", "cos"))
    row(dotted(op, "approx", ftz, "f32"), "f32", "f32", oracle, cases="angles")
row("rsqrt.approx.f64", "f64", "f64", approximately("f64", mp("rsqrt"), "", 2.0**-51))


def upper_word(function):
    """rcp and rsqrt.approx.ftz.f64: the upper words of operand and result alone (9.7.3.14)."""

    def oracle(a):
        a = flush("f64", a & ~0xFFFFFFFF)
        result = approximately("f64", function, "ftz", 2.0**-19)(a)
        return result

    return oracle


for op in ("rcp", "rsqrt"):
    row(f"{op}.approx.ftz.f64", "f64", "f64", upper_word(mp(op)))
    row(
        f"{op}.approx.ftz.f64 low word",
        "f64",
        "b64",
        lambda a: 0,
        f"{op}.approx.ftz.f64 {{d}}, {{a}}; and.b64 {{d}}, {{d}}, 0xffffffff",
    )


def fast_quotient(a: float, b: float):
    """div.approx.f32 (9.7.3.8): divisors over 2^126 give 0, and NaN for an infinite dividend."""
    if 2.0**126 < abs(b):
        return math.nan if math.isinf(a) else a * 0.0 * math.copysign(1, b)
    if b == 0 or math.isinf(a):
        minus = negative(a) != negative(b)
        return math.nan if a == 0 else -math.inf if minus else math.inf
    return mpmath.mpf(a) / mpmath.mpf(b) if a else a * math.copysign(1, b)


def full_quotient(a: float, b: float):
    if math.isinf(b):
        return math.nan if math.isinf(a) else a * 0.0 * math.copysign(1, b)
    if b == 0 or math.isinf(a):
        minus = negative(a) != negative(b)
        return math.nan if a == 0 else -math.inf if minus else math.inf
    return mpmath.mpf(a) / mpmath.mpf(b) if a else a * math.copysign(1, b)


for ftz in ("", "ftz"):
    row(
        dotted("div.approx", ftz, "f32"), "f32 f32", "f32",
        approximately("f32", fast_quotient, ftz, 2.0**-22),
    )  # fmt: skip
    row(
        dotted("div.full", ftz, "f32"), "f32 f32", "f32",
        approximately("f32", full_quotient, ftz, 2.0**-22),
    )  # fmt: skip

# -- halves (9.7.4) ----------------------------------------


def relu(kind: str, oracle):
    def clipped(*v):
        bits = oracle(*v)
        return 0 if bits != NAN and bits & FORMATS[kind].sign else bits

    return clipped


for kind, op, mode, ftz, sat in options(
    ("f16", "f16x2"), ("add", "sub", "mul", "fma"), ("", "rn"), ("", "ftz"), ("", "sat", "relu")
):
    if sat == "relu" and op != "fma" or op == "fma" and not mode:
        continue
    oracle = in_format(
        "f16", lambda *v, o=op, z=bool(ftz): compute(o, "f16", "rn", *v, ftz=z), (ftz, sat)
    )
    oracle = relu("f16", oracle) if sat == "relu" else oracle
    operands = (kind,) * (3 if op == "fma" else 2)
    row(dotted(op, mode, ftz, sat, kind), operands, (kind,), half_pairs(kind, oracle))
for kind, clip in options(("bf16", "bf16x2"), ("", "relu")):
    oracle = in_format("bf16", lambda *v: compute("fma", "bf16", "rn", *v), ())
    oracle = relu("bf16", oracle) if clip else oracle
    row(dotted("fma.rn", clip, kind), (kind,) * 3, (kind,), half_pairs(kind, oracle))
for kind, ftz in [*options(("f16", "f16x2"), ("", "ftz")), ("bf16", ""), ("bf16x2", "")]:
    base = kind.removesuffix("x2")
    for op, f in (("abs", abs), ("neg", lambda a: -a)):
        oracle = in_format(base, lambda a, f=f, k=base: encode(k, f(a)), (ftz,))
        row(dotted(op, ftz, kind), (kind,), (kind,), half_pairs(kind, oracle))
for kind in ("f16", "f16x2"):
    row(
        f"tanh.approx.{kind}", (kind,), (kind,),
        half_pairs(kind, approximately("f16", mp("tanh"), "", 0.0, 2.0**-10.987)),
    )  # fmt: skip
    row(
        f"ex2.approx.{kind}", (kind,), (kind,),
        half_pairs(kind, approximately("f16", mp("ex2"), "", 2.0**-9.9)),
    )  # fmt: skip

# -- comparison and selection (9.7.6, 9.7.7) ----------------------------------------

FLOAT_TESTS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a == a and b == b and a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "equ": lambda a, b: not (a < b or a > b),
    "neu": lambda a, b: a != b,
    "ltu": lambda a, b: not a >= b,
    "leu": lambda a, b: not a > b,
    "gtu": lambda a, b: not a <= b,
    "geu": lambda a, b: not a < b,
    "num": lambda a, b: a == a and b == b,
    "nan": lambda a, b: a != a or b != b,
}
ORDER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def test_of(kind: str, how: str, ftz: str = ""):
    f = FLOAT_TESTS[ORDER.get(how, how)]
    if kind in FORMATS:
        cut = (lambda v: flush(kind, v)) if ftz else (lambda v: v)
        return lambda a, b: int(f(decode(kind, cut(a)), decode(kind, cut(b))))
    return lambda a, b: int(f(integer(kind, a), integer(kind, b)))


def tests_of_type(kind: str) -> list[str]:
    if kind[0] == "b" and kind != "bf16":
        return ["eq", "ne"]
    if kind[0] == "u":
        return ["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"]
    return ["eq", "ne", "lt", "le", "gt", "ge"] if kind[0] == "s" else list(FLOAT_TESTS)


COMPARED = ("b16", "b32", "b64", *WORDS, "f32", "f64", "f16")
for kind in COMPARED:
    for how, ftz in options(tests_of_type(kind), ("", "ftz") if kind in ("f32", "f16") else ("",)):
        test = test_of(kind, how, ftz)
        if kind != "f16":
            row(
                dotted("setp", how, ftz, kind), (kind, kind), ("pred", "pred"),
                lambda a, b, t=test: (t(a, b), 1 - t(a, b)),
                "{op} {d}|{e}, {a}, {b}",
            )  # fmt: skip
        else:
            row(dotted("setp", how, ftz, kind), (kind, kind), ("pred",), test)
            row(dotted("set", how, ftz, "f16.f16"), "f16 f16", "f16",
                lambda a, b, t=test: 0x3C00 * t(a, b))  # fmt: skip
            continue
        for to in ("u32", "s32", "f32"):
            one = encode("f32", 1.0) if to == "f32" else 0xFFFFFFFF
            row(
                dotted("set", how, ftz, to, kind), (kind, kind), (to,),
                lambda a, b, t=test, one=one: one * t(a, b),
            )  # fmt: skip
for kind, how, logic, bang in options(
    ("s32", "f32", "f64", "u64", "f16"), ("lt", "ne"), LOGIC, ("", "!")
):
    test, g = test_of(kind, how), LOGIC[logic]
    q = (lambda c: 1 - c) if bang else (lambda c: c)
    name = dotted("setp", how, logic, kind)
    if kind == "f16":  # one destination alone
        row(
            name + bang, (kind, kind, "pred"), ("pred",),
            lambda a, b, c, t=test, g=g, q=q: g(t(a, b), q(c)),
            f"{name} {{d}}, {{a}}, {{b}}, {bang}{{c}}",
        )  # fmt: skip
    else:
        row(
            name + bang, (kind, kind, "pred"), ("pred", "pred"),
            lambda a, b, c, t=test, g=g, q=q: (g(t(a, b), q(c)), g(1 - t(a, b), q(c))),
            f"{name} {{d}}|{{e}}, {{a}}, {{b}}, {bang}{{c}}",
        )  # fmt: skip
        name = dotted("set", how, logic, "u32", kind)
        row(
            name + bang, (kind, kind, "pred"), ("u32",),
            lambda a, b, c, t=test, g=g, q=q: 0xFFFFFFFF * g(t(a, b), q(c)),
            f"{name} {{d}}, {{a}}, {{b}}, {bang}{{c}}",
        )  # fmt: skip
for how, ftz in options(FLOAT_TESTS, ("", "ftz")):
    test = test_of("f16", how, ftz)
    both = lambda a, b, t=test: (t(a & 0xFFFF, b & 0xFFFF), t(a >> 16, b >> 16))  # noqa: E731
    row(
        dotted("setp", how, ftz, "f16x2"),
        "f16x2 f16x2",
        "pred pred",
        both,
        "{op} {d}|{e}, {a}, {b}",
    )
    row(
        dotted("set", how, ftz, "f16x2.f16x2"), "f16x2 f16x2", "f16x2",
        lambda a, b, f=both: tuple(0x3C00 * v for v in f(a, b)),
    )  # fmt: skip
    row(
        dotted("set", how, ftz, "u32.f16x2"), "f16x2 f16x2", "u32",
        lambda a, b, f=both: 0xFFFF * f(a, b)[0] | 0xFFFF0000 * f(a, b)[1],
    )  # fmt: skip
for T in ("b16", "b32", "b64", *WORDS, "f32", "f64"):
    row(f"selp.{T}", (T, T, "pred"), (T,), lambda a, b, c, T=T: quiet(T, a if c else b))
    row(
        f"slct.{T}.s32", (T, T, "s32"), (T,), lambda a, b, c, T=T: quiet(T, a if c < 1 << 31 else b)
    )
    for ftz in ("", "ftz"):
        row(
            dotted("slct", ftz, T, "f32"), (T, T, "f32"), (T,),
            lambda a, b, c, T=T, z=ftz: quiet(
                T, a if decode("f32", flush("f32", c) if z else c) >= 0 else b
            ),
        )  # fmt: skip


def quiet(kind: str, bits: int) -> int:
    """A NaN's payload does not matter."""
    return NAN if kind in FORMATS and math.isnan(decode(kind, bits)) else bits


# -- moves and conversions (9.7.9) ----------------------------------------

for T in ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "pred"):
    row(f"mov.{T}", (T,), (T,), lambda a, T=T: quiet(T, a))
for whole, part_, count in (("b32", "b16", 2), ("b64", "b32", 2), ("b64", "b16", 4)):
    size = bits_of(part_)
    places = "abcf"[:count]
    row(
        f"mov.{whole} pack {part_}", (part_,) * count, (whole,),
        lambda *v, s=size: sum(x << s * k for k, x in enumerate(v)),
        f"mov.{whole} {{d}}, {{{{" + ", ".join(f"{{{p}}}" for p in places) + "}}",
    )  # fmt: skip
    row(
        f"mov.{whole} unpack {part_}", (whole,), (part_,) * count,
        lambda a, s=size, c=count: tuple(a >> s * k & (1 << s) - 1 for k in range(c)),
        f"mov.{whole} {{{{" + ", ".join(f"{{{p}}}" for p in "degh"[:count]) + "}}, {a}",
    )  # fmt: skip
row(
    "mov.b128", "b64 b64", "b64 b64", lambda a, b: (b, a),
    ".reg .b128 x; mov.b128 x, {{{b}, {a}}}; mov.b128 {{{d}, {e}}}, x",
)  # fmt: skip
row("mov.b64 sink", "b64", "b32", lambda a: a >> 32, "mov.b64 {{_, {d}}}, {a}")


def extended(kind: str, value: int) -> int:
    """An integer in its register: 8-bit types fill 32 bits."""
    bits = max(16, bits_of(kind)) if kind[1:] != "8" else 32
    return value & (1 << bits) - 1


INTEGERS = ("u8", "s8", *WORDS)
for to, source, sat in options(INTEGERS, INTEGERS, ("", "sat")):
    if sat and limits(to)[0] <= limits(source)[0] and limits(source)[1] <= limits(to)[1]:
        continue  # refused, as it could clamp nothing

    def oracle(a, to=to, source=source, sat=sat):
        value = integer(source, a)
        return extended(to, clamp(value, to) if sat else integer(to, value))

    row(dotted("cvt", sat, to, source), (source,), (to,), oracle)


def to_integer_oracle(to: str, source: str, how: str, ftz: str):
    """NaN (9.7.9.21): 0, but the smallest number's bits where one type has 64 bits."""

    def oracle(a):
        x = decode(source, flush(source, a) if ftz else a)
        if math.isnan(x):
            value = 1 << bits_of(to) - 1 if 64 in (bits_of(to), bits_of(source)) else 0
        else:
            value = to_integer(to, x, how)
        return extended(to, integer(to, value))

    return oracle


for to, source, how, sat in options(
    INTEGERS, ("f16", "f32", "f64"), ("rni", "rzi", "rmi", "rpi"), ("", "sat")
):
    for ftz in ("", "ftz") if source == "f32" else ("",):
        row(
            dotted("cvt", how, ftz, sat, to, source), (source,), (to,),
            to_integer_oracle(to, source, how, ftz),
        )  # fmt: skip
for to, source, mode, sat in options(("f16", "f32", "f64"), INTEGERS, ROUNDINGS, ("", "sat")):

    def oracle(a, to=to, source=source, mode=mode, sat=sat):
        bits = round_to(to, integer(source, a), mode)
        return saturate(to, bits) if sat else bits

    row(dotted("cvt", mode, sat, to, source), (source,), (to,), oracle)


def to_float_oracle(to: str, source: str, mode: str, ftz: str, sat: str):
    """float -> float, with a rounding to an integer (rni, ...) or to the format (rn, ...)."""

    def oracle(a):
        if ftz and source == "f32" and to != "f16":  # an H200 ignores it there
            a = flush(source, a)
        x = decode(source, a)
        if mode.endswith("i") and math.isfinite(x):
            value = integral(Fraction(x), mode)
            bits = round_to(to, Fraction(value), "rn", negative(x))
        else:
            bits = encode(to, x, mode if mode in ROUNDINGS else "rn", bool(ftz) and to == "f32")
        return saturate(to, bits) if sat else bits

    return oracle


CONVERTED = ("f16", "f32", "f64")
for to, source, sat in options(CONVERTED, CONVERTED, ("", "sat")):
    narrowing = bits_of(to) < bits_of(source)
    modes = ROUNDINGS if narrowing else ("", "rni", "rzi", "rmi", "rpi") if to == source else ("",)
    for mode, ftz in options(modes, ("", "ftz") if "f32" in (to, source) else ("",)):
        row(
            dotted("cvt", mode, ftz, sat, to, source), (source,), (to,),
            to_float_oracle(to, source, mode, ftz, sat),
        )  # fmt: skip
row("cvt.f32.bf16", "bf16", "f32", to_float_oracle("f32", "bf16", "", "", ""))


def clipped(to: str, mode: str, clip: str):
    """f32 -> a 16-bit format, negative numbers to 0 with .relu."""
    oracle = to_float_oracle(to, "f32", mode, "", "")
    return relu(to, oracle) if clip else oracle


for to, mode, clip in options(("f16", "bf16"), ("rn", "rz"), ("", "relu")):
    oracle = clipped(to, mode, clip)
    if to == "bf16" or clip:
        row(dotted("cvt", mode, clip, to, "f32"), "f32", to, oracle)
    row(
        dotted("cvt", mode, clip, to + "x2", "f32"), "f32 f32", to + "x2",
        lambda a, b, o=oracle: (o(b), o(a)),
    )  # fmt: skip


def tf32(a):
    """The upper 19 bits of an f32, ties away from zero."""
    bits = encode("tf32", decode("f32", a), "rna")
    return bits if bits == NAN else bits << 13


row("cvt.rna.tf32.f32", "f32", "b32", tf32)


def packed(kind: str):
    def oracle(a, b, c=0):
        n = int(kind[1:])
        low, high = (-(1 << n - 1), (1 << n - 1) - 1) if kind[0] == "s" else (0, (1 << n) - 1)
        cut = lambda v: max(low, min(high, signed(v, 32))) & (1 << n) - 1  # noqa: E731
        return (c << 2 * n | cut(a) << n | cut(b)) & 0xFFFFFFFF

    return oracle


for T in ("u16", "s16"):
    row(f"cvt.pack.sat.{T}.s32", "s32 s32", "b32", packed(T))
for T in ("u8", "s8", "u4", "s4", "u2", "s2"):
    row(f"cvt.pack.sat.{T}.s32.b32", "s32 s32 b32", "b32", packed(T))
