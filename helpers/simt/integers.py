"""Integer arithmetic (PTX ISA 9.7.1), extended precision (9.7.2), logic and shifts (9.7.8)."""

from __future__ import annotations

from . import ptx
from .emitter import Emitter, llvm_type
from .shapes import width
from .table import Value, only, operation, sign_of

_WORDS = ("u16", "s16", "u32", "s32", "u64", "s64")


def _values(e: Emitter, i: ptx.Instruction, kind: str, count: int) -> list[str]:
    return [e.get(o, kind) for o in i.operands[1 : 1 + count]]


# -- add, sub, mul, mad ----------------------------------------


def add(e: Emitter, i: ptx.Instruction) -> Value | list[Value]:
    """add and sub; .sat (s32 only) clamps, .cc also gives the carry (see `ptx.carry`)."""
    if "cc" in i.modifiers:
        return _add_with_carry(e, i)
    kind = only(e, i, "sat", types=_WORDS)
    ty = llvm_type(kind)
    a, b = _values(e, i, kind, 2)
    if "sat" in i.modifiers:
        return kind, e.intrinsic(f"s{i.opcode}.sat", ty, [(ty, a), (ty, b)])
    return kind, e.calc(i.opcode, ty, a, b)


def product(e: Emitter, i: ptx.Instruction, kind: str) -> Value:
    """The .lo, .hi or .wide part of a * b, and its type."""
    ty, n = llvm_type(kind), width(kind)
    a, b = _values(e, i, kind, 2)
    if "lo" in i.modifiers:
        return kind, e.calc("mul", ty, a, b)
    how, twice = "sext" if kind[0] == "s" else "zext", f"i{2 * n}"
    full = e.calc("mul", twice, e.cast(how, ty, twice, a), e.cast(how, ty, twice, b))
    if "wide" in i.modifiers:
        return f"{kind[0]}{2 * n}", full
    return kind, e.cast("trunc", twice, ty, e.calc("lshr", twice, full, n))


def mul(e: Emitter, i: ptx.Instruction) -> Value:
    return product(e, i, only(e, i, "lo", "hi", "wide", types=_WORDS))


def mad(e: Emitter, i: ptx.Instruction) -> Value | list[Value]:
    if "cc" in i.modifiers:
        return _add_with_carry(e, i)
    kind, value = product(e, i, only(e, i, "lo", "hi", "wide", "sat", types=_WORDS))
    ty, c = llvm_type(kind), e.get(i.operands[3], kind)
    if "sat" in i.modifiers:  # mad.hi.sat.s32
        return kind, e.intrinsic("sadd.sat", ty, [(ty, value), (ty, c)])
    return kind, e.calc("add", ty, value, c)


@operation("addc", "subc", "madc")
def _add_with_carry(e, i):
    """add.cc, addc, sub.cc, subc, mad.cc, madc (9.7.2). The carry flag is an ordinary predicate
    here: with .cc the second destination, and for addc, subc and madc the last operand.

    a - b is a + ~b + 1, so that the flag after a subtraction is 1 if nothing was borrowed. PTX
    calls the flag a borrow and leaves open what addc makes of it, but nvcc's division of 128-bit
    integers has addc after sub.cc; this is what an H200 does.
    """
    kind = only(e, i, "cc", "lo", "hi", types=_WORDS[2:])
    ty = llvm_type(kind)
    if i.opcode in ("mad", "madc"):
        a, b = product(e, i, kind)[1], e.get(i.operands[3], kind)
    else:
        a, b = _values(e, i, kind, 2)
    if i.opcode in ("sub", "subc"):
        b = e.calc("xor", ty, b, -1)
    total = e.calc("add", ty, a, b)
    carry = e.calc("icmp ult", ty, total, a)
    if i.opcode.endswith("c"):
        more = e.cast("zext", "i1", ty, e.get(i.operands[-1], "pred"))
    else:
        more = 1 if i.opcode == "sub" else 0
    if more:
        first, total = total, e.calc("add", ty, total, more)
        carry = e.calc("or", "i1", carry, e.calc("icmp ult", ty, total, first))
    return [(kind, total), ("pred", carry)] if "cc" in i.modifiers else (kind, total)


@operation("mul24", "mad24")
def _mul24(e, i):
    """The .lo 32 bits, or .hi bits 47..16, of the product of the operands' 24 low bits."""
    kind = only(e, i, "lo", "hi", "sat", types=("u32", "s32"))
    shift = "ashr" if kind == "s32" else "lshr"
    extend = "sext" if kind == "s32" else "zext"
    a, b = (
        e.cast(extend, "i32", "i64", e.calc(shift, "i32", e.calc("shl", "i32", v, 8), 8))
        for v in _values(e, i, kind, 2)
    )
    value = e.calc("mul", "i64", a, b)
    if "hi" in i.modifiers:
        value = e.calc("lshr", "i64", value, 16)
    value = e.cast("trunc", "i64", "i32", value)
    if i.opcode == "mul24":
        return kind, value
    c = e.get(i.operands[3], kind)
    if "sat" in i.modifiers:
        return kind, e.intrinsic("sadd.sat", "i32", [("i32", value), ("i32", c)])
    return kind, e.calc("add", "i32", value, c)


def divide(e: Emitter, i: ptx.Instruction) -> Value:
    """div and rem. PTX leaves division by zero open: all ones from both, as on an H200.

    The smallest number by -1 wraps.
    """
    kind = only(e, i, types=_WORDS)
    ty = llvm_type(kind)
    a, b = _values(e, i, kind, 2)
    zero = e.calc("icmp eq", ty, b, 0)
    safe = e.pick(zero, ty, 1, b)
    if kind[0] == "s":
        minus = e.calc("icmp eq", ty, safe, -1)
        quotient = e.calc("sdiv", ty, a, e.pick(minus, ty, 1, safe))
        quotient = e.pick(minus, ty, e.calc("sub", ty, 0, a), quotient)
    else:
        quotient = e.calc("udiv", ty, a, safe)
    value = quotient
    if i.opcode == "rem":
        value = e.calc("sub", ty, a, e.calc("mul", ty, quotient, b))
    return kind, e.pick(zero, ty, -1, value)


def minimum(e: Emitter, i: ptx.Instruction) -> Value:
    kind = only(e, i, types=_WORDS)
    ty = llvm_type(kind)
    name = sign_of(kind) + i.opcode
    return kind, e.intrinsic(name, ty, [(ty, v) for v in _values(e, i, kind, 2)])


def absolute(e: Emitter, i: ptx.Instruction) -> Value:
    """abs and neg of signed integers; the smallest number stays itself."""
    kind = only(e, i, types=("s16", "s32", "s64"))
    ty = llvm_type(kind)
    (a,) = _values(e, i, kind, 1)
    return kind, e.calc("sub", ty, 0, a) if i.opcode == "neg" else e.intrinsic("abs", ty, [(ty, a)])


@operation("sad")
def _sad(e, i):
    """c + |a - b|."""
    kind = only(e, i, types=_WORDS)
    ty = llvm_type(kind)
    a, b, c = _values(e, i, kind, 3)
    less = e.calc(f"icmp {sign_of(kind)}lt", ty, a, b)
    size = e.pick(less, ty, e.calc("sub", ty, b, a), e.calc("sub", ty, a, b))
    return kind, e.calc("add", ty, c, size)


@operation("dp4a")
def _dp4a(e, i):
    """c plus the four products of a's and b's bytes."""
    return _dot(e, i, [(8 * k, 8, 8 * k) for k in range(4)])


@operation("dp2a")
def _dp2a(e, i):
    """c plus the products of a's two 16-bit halves and b's two lower (.lo) or upper bytes."""
    first = 16 if i.modifiers[0] == "hi" else 0
    return _dot(e, i, [(16 * k, 16, first + 8 * k) for k in range(2)])


def _dot(e: Emitter, i: ptx.Instruction, parts: list[tuple[int, int, int]]) -> Value:
    """c + the sum of products of (bits at, size) of a and the byte at a place of b."""
    a_kind, b_kind = i.modifiers[-2:]
    if {a_kind, b_kind} - {"u32", "s32"}:
        raise e.unsupported()
    a, b, total = (e.get(o, "b32") for o in i.operands[1:4])
    for a_at, size, b_at in parts:
        pair = _part(e, a_kind, a, a_at, size), _part(e, b_kind, b, b_at, 8)
        total = e.calc("add", "i32", total, e.calc("mul", "i32", *pair))
    return "b32", total


def _part(e: Emitter, kind: str, value: str, at: int, size: int) -> str:
    """`size` bits of a word from bit `at` on, widened with or without a sign."""
    top = e.calc("shl", "i32", value, 32 - size - at)
    return e.calc("ashr" if kind == "s32" else "lshr", "i32", top, 32 - size)


@operation("vabsdiff2", "vabsdiff4")
def _parts_differ(e, i):
    """|a - b| of 2 or 4 parts of a word: side by side, or (.add) their sum and c (9.7.17).

    nvcc makes it of __vabsdiffu4, __vsadu4 and the like; the other video instructions it does not
    emit.
    """
    kind, adds = i.modifiers[0], i.modifiers[-1] == "add"
    size = 16 if i.opcode == "vabsdiff2" else 8
    a, b, total = (e.get(o, "b32") for o in i.operands[1:4])
    total = total if adds else 0
    for at in range(0, 32, size):
        x, y = _part(e, kind, a, at, size), _part(e, kind, b, at, size)
        difference = e.intrinsic("abs", "i32", [("i32", e.calc("sub", "i32", x, y))])
        if not adds:
            low = e.calc("and", "i32", difference, (1 << size) - 1)
            difference = e.calc("shl", "i32", low, at)
        total = e.calc("add", "i32", total, difference)
    return "b32", total


# -- bits (9.7.1.14 - 9.7.1.22) ----------------------------------------


@operation("popc", "clz", "brev")
def _count_bits(e, i):
    kind = only(e, i, types=("b32", "b64"))
    ty = llvm_type(kind)
    name = {"popc": "ctpop", "clz": "ctlz", "brev": "bitreverse"}[i.opcode]
    value = e.intrinsic(name, ty, [(ty, e.get(i.operands[1], kind))])
    if i.opcode == "brev":
        return kind, value
    return "u32", value if ty == "i32" else e.cast("trunc", ty, "i32", value)


@operation("bfind")
def _bfind(e, i):
    """The highest bit that differs from the sign, counted from bit 0, or with .shiftamt from the
    top; -1 if there is none."""
    kind = only(e, i, "shiftamt", types=_WORDS[2:])
    ty, n = llvm_type(kind), width(kind)
    (a,) = _values(e, i, kind, 1)
    if kind[0] == "s":
        a = e.calc("xor", ty, a, e.calc("ashr", ty, a, n - 1))
    place = e.intrinsic("ctlz", ty, [(ty, a)])
    if "shiftamt" not in i.modifiers:
        place = e.calc("sub", ty, n - 1, place)
    value = e.pick(e.calc("icmp eq", ty, a, 0), ty, -1, place)
    return "u32", value if n == 32 else e.cast("trunc", ty, "i32", value)


@operation("fns")
def _fns(e, i):
    """fns.b32 d, mask, base, n: the place of the n-th set bit from `base` on, upwards for n > 0,
    downwards for n < 0; for n = 0 base itself if it is set. -1 if there is none; but for the
    smallest n, from a base below 32, an H200 gives 0."""
    only(e, i, types=("b32",))
    mask, base, n = (e.get(o, "b32") for o in i.operands[1:4])
    down = e.calc("icmp slt", "i32", n, 0)  # mirrored, it is upwards
    mirrored = e.intrinsic("bitreverse", "i32", [("i32", mask)])
    bits = e.pick(down, "i32", mirrored, mask)
    start = e.pick(down, "i32", e.calc("sub", "i32", 31, base), base)
    inside = e.calc("icmp ult", "i32", start, 32)
    start = e.calc("and", "i32", start, 31)
    bits = e.calc("and", "i32", bits, e.calc("shl", "i32", -1, start))
    still = e.calc("icmp eq", "i32", n, 0)
    bits = e.pick(still, "i32", e.calc("and", "i32", bits, e.calc("shl", "i32", 1, start)), bits)
    rank = e.calc("sub", "i32", e.intrinsic("abs", "i32", [("i32", n)]), 1)
    rank = e.pick(still, "i32", 0, rank)
    total = e.intrinsic("ctpop", "i32", [("i32", bits)])
    found = e.calc("and", "i1", inside, e.calc("icmp ult", "i32", rank, total))
    place = e.value("i32", 0)
    for step in (16, 8, 4, 2, 1):  # skip the lower half while it holds too few bits
        low = e.calc("and", "i32", bits, (1 << step) - 1)
        count = e.intrinsic("ctpop", "i32", [("i32", low)])
        skip = e.calc("icmp uge", "i32", rank, count)
        rank = e.pick(skip, "i32", e.calc("sub", "i32", rank, count), rank)
        bits = e.pick(skip, "i32", e.calc("lshr", "i32", bits, step), low)
        place = e.calc("add", "i32", place, e.pick(skip, "i32", step, 0))
    place = e.pick(down, "i32", e.calc("sub", "i32", 31, place), place)
    smallest = e.calc("icmp eq", "i32", n, -(1 << 31))
    none = e.pick(e.calc("and", "i1", inside, smallest), "i32", 0, -1)
    return "u32", e.pick(found, "i32", place, none)


def _field(e: Emitter, operands, ty: str) -> list[str]:
    """Positions and lengths of bit fields, as type `ty`.

    PTX allows 0 to 255. Of others, hardware takes the lowest 8 bits in fields of 32-bit words, and
    all bits in fields of 64-bit words (an H200).
    """
    values = [e.get(o, "u32") for o in operands]
    if ty == "i32":
        return [e.calc("and", "i32", v, 255) for v in values]
    return [e.cast("zext", "i32", ty, v) for v in values]


def _least(e: Emitter, ty: str, a: str, b: int) -> str:
    return e.intrinsic("umin", ty, [(ty, a), (ty, e.value(ty, b))])


@operation("bfe")
def _bfe(e, i):
    """len bits of a from bit pos on; past the top the sign (or zero) is repeated."""
    kind = only(e, i, types=_WORDS[2:])
    ty, n = llvm_type(kind), width(kind)
    a = e.get(i.operands[1], kind)
    pos, length = _field(e, i.operands[2:4], ty)
    shift = "ashr" if kind[0] == "s" else "lshr"
    value = e.calc(shift, ty, a, _least(e, ty, pos, n - 1))
    if kind[0] == "u":
        value = e.pick(e.calc("icmp ugt", ty, pos, n - 1), ty, 0, value)
    # Up until the field's top bit is the register's, then down again.
    drop = e.intrinsic("usub.sat", ty, [(ty, e.value(ty, n)), (ty, length)])
    drop = _least(e, ty, drop, n - 1)
    value = e.calc(shift, ty, e.calc("shl", ty, value, drop), drop)
    return kind, e.pick(e.calc("icmp eq", ty, length, 0), ty, 0, value)


@operation("bfi")
def _bfi(e, i):
    """b with its len bits from pos on replaced by a's lowest."""
    kind = only(e, i, types=("b32", "b64"))
    ty, n = llvm_type(kind), width(kind)
    a, b = _values(e, i, kind, 2)
    pos, length = _field(e, i.operands[3:5], ty)
    ones = e.calc("shl", ty, 1, _least(e, ty, length, n - 1))
    whole = e.calc("icmp ugt", ty, length, n - 1)
    field = e.pick(whole, ty, -1, e.calc("sub", ty, ones, 1))
    at = _least(e, ty, pos, n - 1)
    outside = e.calc("icmp ugt", ty, pos, n - 1)
    mask = e.pick(outside, ty, 0, e.calc("shl", ty, field, at))
    put = e.calc("and", ty, e.calc("shl", ty, a, at), mask)
    return kind, e.calc("or", ty, e.calc("and", ty, b, e.calc("xor", ty, mask, -1)), put)


@operation("bmsk")
def _bmsk(e, i):
    """b ones from bit a on (9.7.1.22)."""
    if i.modifiers[-1] != "b32" or i.modifiers[0] not in ("clamp", "wrap"):
        raise e.unsupported()
    a, b = (e.get(o, "b32") for o in i.operands[1:3])
    at, count = e.calc("and", "i32", a, 31), e.calc("and", "i32", b, 31)
    end = e.calc("add", "i32", at, count)
    low = e.calc("shl", "i32", -1, at)
    high = e.calc("shl", "i32", -1, e.calc("and", "i32", end, 31))
    high = e.pick(e.calc("icmp eq", "i32", count, 0), "i32", -1, high)
    past = e.calc("icmp ugt", "i32", end, 31)
    if i.modifiers[0] == "clamp":
        low = e.pick(e.calc("icmp ugt", "i32", a, 31), "i32", 0, low)
        past = e.calc("or", "i1", past, e.calc("icmp ugt", "i32", b, 31))
    high = e.pick(past, "i32", 0, high)
    return "b32", e.calc("and", "i32", low, e.calc("xor", "i32", high, -1))


@operation("szext")
def _szext(e, i):
    """a's lowest b bits, extended with their sign or zeros (9.7.1.21)."""
    kind = only(e, i, "clamp", "wrap", types=("u32", "s32"))
    a, b = (e.get(o, "b32") for o in i.operands[1:3])
    count = e.calc("and", "i32", b, 31)
    drop = e.calc("and", "i32", e.calc("sub", "i32", 32, count), 31)
    shift = "ashr" if kind == "s32" else "lshr"
    value = e.calc(shift, "i32", e.calc("shl", "i32", a, drop), drop)
    value = e.pick(e.calc("icmp eq", "i32", count, 0), "i32", 0, value)
    if "clamp" in i.modifiers:
        value = e.pick(e.calc("icmp ugt", "i32", b, 31), "i32", a, value)
    return kind, value


# -- logic and shifts (9.7.8) ----------------------------------------


@operation("and", "or", "xor")
def _logic(e, i):
    kind = only(e, i, types=("pred", "b16", "b32", "b64"))
    return kind, e.calc(i.opcode, llvm_type(kind), *_values(e, i, kind, 2))


@operation("not")
def _not(e, i):
    kind = only(e, i, types=("pred", "b16", "b32", "b64"))
    ones = True if kind == "pred" else -1
    return kind, e.calc("xor", llvm_type(kind), *_values(e, i, kind, 1), ones)


@operation("cnot")
def _cnot(e, i):
    """1 for 0, else 0."""
    kind = only(e, i, types=("b16", "b32", "b64"))
    ty = llvm_type(kind)
    return kind, e.cast("zext", "i1", ty, e.calc("icmp eq", ty, *_values(e, i, kind, 1), 0))


@operation("shl", "shr")
def _shift(e, i):
    """Amounts are unsigned 32-bit and clamp at the width (LLVM's would be poison)."""
    kind = only(e, i, types=("b16", "b32", "b64") + (() if i.opcode == "shl" else _WORDS))
    ty, n = llvm_type(kind), width(kind)
    amount = e.get(i.operands[2], "u32")
    inside = e.calc("icmp ule", "i32", amount, n - 1)
    amount = e.pick(inside, "i32", amount, n - 1)
    if n != 32:
        amount = e.cast("trunc" if n < 32 else "zext", "i32", ty, amount)
    verb = "shl" if i.opcode == "shl" else "ashr" if kind[0] == "s" else "lshr"
    value = e.calc(verb, ty, e.get(i.operands[1], kind), amount)
    return kind, value if verb == "ashr" else e.pick(inside, ty, value, 0)


@operation("shf")
def _shf(e, i):
    """Funnel shift of (hi, lo); .wrap takes the amount modulo 32, .clamp up to 32."""
    only(e, i, "l", "r", "wrap", "clamp", types=("b32",))
    lo, hi, amount = (e.get(o, "b32") for o in i.operands[1:4])
    left = "l" in i.modifiers
    name = "fshl" if left else "fshr"
    value = e.intrinsic(name, "i32", [("i32", hi), ("i32", lo), ("i32", amount)])
    if "clamp" in i.modifiers:
        past = e.calc("icmp uge", "i32", amount, 32)
        value = e.pick(past, "i32", lo if left else hi, value)
    return "b32", value


@operation("lop3")
def _lop3(e, i):
    """Any function of three bits: immLut's bit 4a+2b+c. With .and or .or a second result says
    whether any bit is set, combined with a predicate."""
    a, b, c = (e.get(o, "b32") for o in i.operands[1:4])
    terms = _LOP3[i.operands[4].value & 255]
    value = e.value("i32", 0)
    for k, term in enumerate(terms):
        one = None
        for name, wanted in zip((a, b, c), term, strict=True):
            if wanted is not None:
                literal = name if wanted else e.calc("xor", "i32", name, -1)
                one = literal if one is None else e.calc("and", "i32", one, literal)
        one = e.value("i32", -1) if one is None else one
        value = one if k == 0 else e.calc("or", "i32", value, one)
    if i.modifiers[0] not in ("and", "or"):
        return "b32", value
    some = e.calc("icmp ne", "i32", value, 0)
    some = e.calc(i.modifiers[0], "i1", some, e.get(i.operands[5], "pred"))
    return [("b32", value), ("pred", some)]


def _sum_of_products(table: int) -> list[tuple]:
    """A truth table as products of literals (None: does not matter), joined greedily."""
    todo = {k for k in range(8) if table >> k & 1}
    covered: set[int] = set()
    products = []
    choices = [(a, b, c) for a in (None, 0, 1) for b in (None, 0, 1) for c in (None, 0, 1)]
    choices.sort(key=lambda p: -p.count(None))
    for p in choices:  # the largest first
        fits = [[w in (None, k >> 2 - n & 1) for n, w in enumerate(p)] for k in range(8)]
        rows = {k for k in range(8) if all(fits[k])}
        if rows <= todo and not rows <= covered:
            products.append(p)
            covered |= rows
    return products


_LOP3 = [_sum_of_products(table) for table in range(256)]

# prmt's modes besides the default one: selectors for the four values of c's lowest bits
_PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@operation("prmt")
def _prmt(e, i):
    """Each selector nibble picks one of eight bytes; its top bit asks for that byte's sign."""
    a, b, select = (e.get(o, "b32") for o in i.operands[1:4])
    if len(i.modifiers) > 1:
        modes = _PERMUTATIONS[i.modifiers[-1]]
        low, high = (e.calc("icmp ne", "i32", e.calc("and", "i32", select, k), 0) for k in (1, 2))
        select = e.pick(
            high,
            "i32",
            e.pick(low, "i32", modes[3], modes[2]),
            e.pick(low, "i32", modes[1], modes[0]),
        )
    upper = e.calc("shl", "i64", e.cast("zext", "i32", "i64", b), 32)
    both = e.calc("or", "i64", upper, e.cast("zext", "i32", "i64", a))
    result = e.value("i32", 0)
    for k in range(4):
        nibble = e.calc("lshr", "i32", select, 4 * k)
        index = e.calc("shl", "i32", e.calc("and", "i32", nibble, 7), 3)
        byte = e.calc("lshr", "i64", both, e.cast("zext", "i32", "i64", index))
        byte = e.cast("trunc", "i64", "i32", byte)
        sign = e.calc("ashr", "i32", e.calc("shl", "i32", byte, 24), 31)
        wants = e.calc("icmp ne", "i32", e.calc("and", "i32", nibble, 8), 0)
        byte = e.calc("and", "i32", e.pick(wants, "i32", sign, byte), 255)
        result = e.calc("or", "i32", result, e.calc("shl", "i32", byte, 8 * k))
    return "b32", result
