"""Operands to try PTX instructions on: the awkward ones of each type, and random ones."""

from __future__ import annotations

import itertools
import random
import struct

from ptx_oracle import FORMATS, bits_of, decode, encode

COUNTS = {1: 320, 2: 576, 3: 576, 4: 576}  # cases for a number of operands; multiples of 64

_NUMBERS = [0.0, 1.0, 1.5, 0.5, 2.5, 3.0, 0.49999997, 1e-3, 127.5, 128.0, 255.5, 65504.0, 65519.0]
_NUMBERS += [65520.0, 2.0**-14, 2.0**-24, 2.0**-25, 1.25 * 2.0**-25, 2.0**31, 2.0**32, 2.0**63]
_NUMBERS += [2.0**64, 2.0**-126, 2.0**126, 1.9 * 2.0**126, 2.0**-133, 2.0**-149, 2.0**24, 3.14159]
_NUMBERS += [2.0**31 - 128, 2.0**31 - 0.5, 2.0**32 - 256, 2.0**63 - 2.0**39, 127.49, 32767.5, 0.999]
_NUMBERS += [2.0**-126 * (1 - 2.0**-24), 2.0**-126 * (1 - 2.0**-25), 2.0**-126 * (1 - 2.0**-26)]
_NUMBERS += [2.0**-14 * (1 - 2.0**-11), 2.0**-14 * (1 - 2.0**-12), 2.0**-14 * (1 - 2.0**-13)]
_NUMBERS += [2.0**-1022, 2.0**-1074, 2.0**1023, 2.0**-150, 1 + 2.0**-24, 1 + 2.0**-11, 2.0**127]
_NUMBERS += [2.0**126 * (1 + 2.0**-23)]


def float_specials(kind: str) -> list[int]:
    """Bits of the awkward numbers of a format: signed zeros, subnormals, limits, NaN, ties."""
    f = FORMATS[kind]
    one = encode(kind, 1.0)
    smallest = 1 << f.digits - 1
    bits = [0, f.infinity, one, f.infinity - 1, 1, smallest, smallest - 1, one + 1]
    bits += [f.infinity + (smallest >> 1), one - 1]
    bits += [b for x in _NUMBERS if (b := encode(kind, x)) < f.infinity]
    bits = list(dict.fromkeys(bits))
    return [b | s for b in bits for s in (0, f.sign)]


def integer_specials(kind: str) -> list[int]:
    n = bits_of(kind)
    top = 1 << n
    values = [0, 1, top - 1, top >> 1, (top >> 1) - 1, 2, 3, top - 2, 7, 8, 31, 32, 33, 63, 64]
    values += [(top >> 1) + 1, 0xFF, 0x80, 0x7F, 0x5555555555555555 % top, 0xFFFF % top, 0x8000]
    return list(dict.fromkeys(v % top for v in values))


def specials(kind: str) -> list[int]:
    if kind == "pred":
        return [0, 1]
    if kind.endswith("f16x2"):
        half = float_specials(kind[:-2])
        return [a | half[(7 * k + 3) % len(half)] << 16 for k, a in enumerate(half)]
    if kind in FORMATS:
        return float_specials(kind)
    return integer_specials(kind)


def random_float(kind: str, r: random.Random) -> int:
    """Any bits; moderate numbers; and numbers on or beside the ties of narrower formats."""
    f = FORMATS[kind]
    way = r.random()
    if way < 0.3:
        return r.getrandbits(f.bits)
    if way < 0.6:
        return encode(kind, r.uniform(-8, 8) * 2.0 ** r.randint(-12, 12))
    if way < 0.75:
        return encode(kind, r.randint(-(1 << 20), 1 << 20) / 2 * 2.0 ** r.randint(-4, 45))
    narrower = r.choice(
        ["f16", "bf16", "tf32", "f32"] if kind == "f64" else ["f16", "bf16", "tf32"]
    )
    g = FORMATS[narrower]
    x = r.getrandbits(g.digits) + r.choice([0, 0.5]) + (1 << g.digits)
    bits = encode(kind, x * 2.0 ** r.randint(g.lowest - 14, min(14, 2 - g.lowest)))
    bits = max(0, min(f.infinity - 1, bits + r.choice([-1, 0, 0, 1])))
    return bits | (f.sign if r.random() < 0.5 else 0)


def random_value(kind: str, r: random.Random) -> int:
    if kind == "pred":
        return r.getrandbits(1)
    if kind.endswith("f16x2"):
        return random_float(kind[:-2], r) | random_float(kind[:-2], r) << 16
    if kind in FORMATS:
        return random_float(kind, r)
    n = bits_of(kind)
    value = r.getrandbits(n)
    return value >> r.randrange(n) if r.random() < 0.5 else value


def _near_cancellation(kinds: tuple[str, ...], case: list[int], r: random.Random) -> list[int]:
    """For three floats of one format: c about -a * b; for two: b about a."""
    kind = kinds[0]
    x = decode(kind, case[0])
    if len(kinds) == 3:
        x *= -decode(kind, case[1])
    if x != x or abs(x) == float("inf"):
        return case
    near = encode(kind, x)
    f = FORMATS[kind]
    case[-1] = max(0, min((1 << f.bits) - 1, near + r.choice([-1, 0, 0, 1])))
    return case


def cases(kinds: tuple[str, ...], special: str = "") -> list[tuple[int, ...]]:
    """The cases for operands of some types, always the same; each an int for each operand.

    Operands narrower than their register get random bits above.
    """
    r = random.Random(repr((kinds, special)))
    if special:
        listed = SETS[special](r)
    else:
        listed = _general(kinds, r)
    filled = []
    for case in listed:
        junk = [r.getrandbits(24) << 8 if k[1:] == "8" else 0 for k in kinds]
        filled.append(tuple(v | j for v, j in zip(case, junk, strict=True)))
    return filled


def _around_the_smallest(kinds: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Results next to the smallest normal number, where .ftz decides before or after rounding."""
    half = kinds[0].removesuffix("x2")
    f = FORMATS[half]
    smallest, below_one = 1 << f.digits - 1, encode(half, 1.0) - 1
    little, half_a_step = encode(half, 2.0**-f.digits), encode(half, 2.0 ** -(f.digits + 1))
    third = [(c,) for c in (0, f.sign, 1, f.sign | 1)] if len(kinds) == 3 else [()]
    pairs = [(smallest, below_one), (below_one - 1, smallest), (smallest + 1, below_one - 1)]
    root = 2.0 ** (f.lowest // 2)  # and their quotients
    pairs += [(encode(half, root) - 1, encode(half, 1 / root)), (smallest, encode(half, 1.0) + 1)]
    found = [(a, b | s, *c) for a, b in pairs for s in (0, f.sign) for c in third]
    if len(kinds) == 3:
        for b, s in itertools.product((little, half_a_step), (0, f.sign)):
            found.append((smallest, b | s, smallest | f.sign & ~s))
    if half != kinds[0]:
        found = [
            tuple(x | y << 16 for x, y in zip(case, other, strict=True))
            for case, other in zip(found, found[1:] + found[:1], strict=True)
        ]
    return found


def _general(kinds: tuple[str, ...], r: random.Random) -> list[tuple[int, ...]]:
    count = COUNTS[len(kinds)]
    lists = [specials(k) for k in kinds]
    if len(kinds) == 1:
        chosen = [(v,) for v in lists[0]]
    else:
        product = list(itertools.islice(itertools.product(*lists), 200_000))
        chosen = r.sample(product, min(len(product), count * 2 // 3))
    chosen = chosen[: count * 4 // 5]
    alike = len(kinds) in (2, 3) and len(set(kinds)) == 1 and kinds[0] in FORMATS
    if len(kinds) in (2, 3) and len(set(kinds)) == 1 and "f" in kinds[0]:
        chosen = _around_the_smallest(kinds) + chosen[: count // 2]
    while len(chosen) < count:
        case = [random_value(k, r) for k in kinds]
        if r.random() < 0.3:
            k = r.randrange(len(kinds))
            case[k] = r.choice(lists[k])
        elif alike and r.random() < 0.5:
            case = _near_cancellation(kinds, case, r)
        chosen.append(tuple(case))
    return chosen


def _fields(bits: int):
    """Operands of bfe and bfi: positions and lengths that matter."""

    def build(r: random.Random) -> list[tuple[int, ...]]:
        ends = [0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 128, 255, 256, 0xFFFFFFFF]
        near = lambda: r.choice(ends) if r.random() < 0.4 else r.randrange(70)  # noqa: E731
        return [(r.getrandbits(bits), r.getrandbits(bits), near(), near()) for _ in range(576)]

    return build


def _three_fields(bits: int):
    return lambda r: [(a, p, n) for a, _, p, n in _fields(bits)(r)]


def _nth_bit(r: random.Random) -> list[tuple[int, ...]]:
    base = lambda: r.choice([*range(32), 32, 0xFFFFFFFF])  # noqa: E731
    counts = [*range(-9, 10), 0x7FFFFFFF, -0x80000000, 32, 33, -32, -33]
    masks = lambda: r.getrandbits(32) & r.choice([0xFFFFFFFF, r.getrandbits(32)])  # noqa: E731
    return [(masks(), base(), r.choice(counts) & 0xFFFFFFFF) for _ in range(576)]


def _amounts(r: random.Random) -> list[tuple[int, ...]]:
    """Two words and an amount up to a little over 32."""
    amounts = [*range(40), 63, 64, 255, 256, 0x80000000, 0xFFFFFFFF]
    words = lambda: r.choice([r.getrandbits(32), 0xFFFFFFFF, 0x80000001])  # noqa: E731
    return [(words(), words(), r.choice(amounts)) for _ in range(576)]


def _two_amounts(r: random.Random) -> list[tuple[int, ...]]:
    amounts = [*range(40), 63, 64, 0x80000000, 0xFFFFFFFF]
    words = [0xFFFFFFFF, 0x80000001, 0x40, 3]
    pick = lambda: r.choice(amounts + words)  # noqa: E731
    return [
        (pick() if r.random() < 0.5 else r.getrandbits(32), r.choice(amounts)) for _ in range(576)
    ]


def _angles(r: random.Random) -> list[tuple[int, ...]]:
    """f32 of moderate size, some large."""
    word = lambda x: struct.unpack("<I", struct.pack("<f", x))[0]  # noqa: E731
    listed = [(v,) for v in float_specials("f32")]
    while len(listed) < 320:
        size = r.choice([3.2, 3.2, 100.0, 1e6, 1e15])
        listed.append((word(r.uniform(-size, size)),))
    return listed


SETS = {
    "fields32": _fields(32),
    "fields64": _fields(64),
    "extract32": _three_fields(32),
    "extract64": _three_fields(64),
    "nth": _nth_bit,
    "amounts": _amounts,
    "pairs": _two_amounts,
    "angles": _angles,
}
