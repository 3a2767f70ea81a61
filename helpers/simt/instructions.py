"""What each lane-wise PTX instruction computes, one row an opcode.

A row is a function (e: Emitter, i: Instruction) -> (PTX type or LLVM type, value): the value of
the destination, made of `e.get(operand, type)` and LLVM instructions on `e.type_of(type)`. It is
called with `e.wide` False where all operands are scalars (or affine, and the operation acts on
their bases alone) and True where any is a vector. Sections named are those of the PTX ISA manual.
"""

from __future__ import annotations

from collections.abc import Callable

from . import ptx
from .emitter import Emitter, llvm_type
from .shapes import width

Row = Callable[[Emitter, ptx.Instruction], tuple[str, str]]
TABLE: dict[str, Row] = {}

FLOATS = ("f32", "f64")


def operation(*opcodes: str):
    def enter(row: Row) -> Row:
        for opcode in opcodes:
            TABLE[opcode] = row
        return row

    return enter


def _is_float(kind: str) -> bool:
    return kind in FLOATS


def _only(e: Emitter, i: ptx.Instruction, *allowed: str) -> None:
    """Refuses an instruction with a modifier besides its type and the allowed ones."""
    if set(i.modifiers[:-1]) - set(allowed) or i.modifiers[-1] not in ptx.SIZES:
        raise e.unsupported()


def _integer_or_float(e: Emitter, i: ptx.Instruction) -> str:
    kind = i.modifiers[-1]
    if kind in ("f16", "f16x2", "bf16", "bf16x2", "u16x2", "s16x2"):
        raise e.unsupported()
    return kind


# -- floating point (9.7.3) ----------------------------------------


def _flush(e: Emitter, i: ptx.Instruction, value: str) -> str:
    """.ftz: a subnormal becomes a zero of its sign."""
    if "ftz" not in i.modifiers:
        return value
    t = e.type_of("f32")
    size = e.intrinsic("fabs", "float", [("float", value)])
    smallest = e.number("float", "0x3810000000000000")  # 2^-126
    tiny = e.op(f"fcmp olt {t} {size}, {smallest}")
    zero = e.intrinsic("copysign", "float", [("float", e.number("float", "0.0")), ("float", value)])
    return e.op(f"select {e.type_of('i1')} {tiny}, {t} {zero}, {t} {value}")


def _saturate(e: Emitter, i: ptx.Instruction, ty: str, value: str) -> str:
    """.sat: clamped to [0, 1], NaN to +0."""
    if "sat" not in i.modifiers:
        return value
    value = e.intrinsic("maximumnum", ty, [(ty, value), (ty, e.number(ty, "0.0"))])
    return e.intrinsic("minimumnum", ty, [(ty, value), (ty, e.number(ty, "1.0"))])


def _float_operands(e: Emitter, i: ptx.Instruction, kind: str, count: int) -> list[str]:
    return [_flush(e, i, e.get(o, kind)) for o in i.operands[1 : 1 + count]]


def _float_result(e: Emitter, i: ptx.Instruction, kind: str, value: str) -> tuple[str, str]:
    return kind, _saturate(e, i, llvm_type(kind), _flush(e, i, value))


_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def _float_binary(e: Emitter, i: ptx.Instruction, kind: str) -> tuple[str, str]:
    # div.approx and div.full may differ from the rounded quotient by 2 ulp; ours is that quotient.
    _only(e, i, "rn", "ftz", "sat", "approx", "full")
    a, b = _float_operands(e, i, kind, 2)
    return _float_result(e, i, kind, e.op(f"{_FLOAT_BINARY[i.opcode]} {e.type_of(kind)} {a}, {b}"))


DIRECTED = {"rm", "rp", "rz"}


def _round_directed(e: Emitter, mode: str, high: str, low: str) -> str:
    """The exact sum of two doubles, |low| at most half an ulp of high, rounded to float.

    mode: "rm" down, "rp" up, "rz" to zero. Rounded to nearest first, then moved to the next float
    if that lies on the wrong side of the exact value.
    """
    d, f, n, i1 = (e.type_of(t) for t in ("double", "float", "i32", "i1"))
    nearest = e.op(f"fptrunc {d} {high} to {f}")
    back = e.op(f"fpext {f} {nearest} to {d}")
    zero = e.number("double", "0.0")
    rest = e.op(f"fsub {d} {high}, {back}")
    clear = e.op(f"fcmp one {d} {rest}, {zero}")
    rest = e.op(f"select {i1} {clear}, {d} {rest}, {d} {low}")
    above, below = e.op(f"fcmp ogt {d} {rest}, {zero}"), e.op(f"fcmp olt {d} {rest}, {zero}")
    negative = e.op(f"fcmp olt {d} {high}, {zero}")
    no = e.number("i1", "false")
    if mode == "rm":
        above = no
    elif mode == "rp":
        below = no
    else:
        above = e.op(f"and {i1} {above}, {negative}")
        positive = e.op(f"fcmp ogt {d} {high}, {zero}")
        below = e.op(f"and {i1} {below}, {positive}")
    word = e.op(f"bitcast {f} {nearest} to {n}")
    one = e.number("i32", 1)
    sign = e.op(f"icmp slt {n} {word}, {e.number('i32', 0)}")
    larger, smaller = e.op(f"add {n} {word}, {one}"), e.op(f"sub {n} {word}, {one}")
    is_zero = e.op(f"fcmp oeq {f} {nearest}, {e.number('float', '0.0')}")
    up = e.op(f"select {i1} {sign}, {n} {smaller}, {n} {larger}")
    up = e.op(f"select {i1} {is_zero}, {n} {one}, {n} {up}")
    down = e.op(f"select {i1} {sign}, {n} {larger}, {n} {smaller}")
    down = e.op(f"select {i1} {is_zero}, {n} {e.number('i32', -(1 << 31) + 1)}, {n} {down}")
    word = e.op(f"select {i1} {above}, {n} {up}, {n} {word}")
    word = e.op(f"select {i1} {below}, {n} {down}, {n} {word}")
    return e.op(f"bitcast {n} {word} to {f}")


def _directed_fma(e: Emitter, mode: str, a: str, b: str, c: str) -> str:
    """a * b + c in float, rounded in one direction: exact in two doubles (Knuth's two-sum)."""
    d, f, i1 = e.type_of("double"), e.type_of("float"), e.type_of("i1")
    a, b, c = (e.op(f"fpext {f} {v} to {d}") for v in (a, b, c))
    p = e.op(f"fmul {d} {a}, {b}")
    s = e.op(f"fadd {d} {p}, {c}")
    part = e.op(f"fsub {d} {s}, {p}")
    low = e.op(
        f"fadd {d} {e.op(f'fsub {d} {p}, ' + e.op(f'fsub {d} {s}, {part}'))}, "
        f"{e.op(f'fsub {d} {c}, {part}')}"
    )
    value = _round_directed(e, mode, s, low)
    if mode != "rm":
        return value
    # Down, an exact 0 is -0 unless both terms are +0.
    nil = e.op(f"fcmp oeq {d} {s}, {e.number('double', '0.0')}")
    word = e.type_of("i64")
    signs = e.op(
        f"or {word} {e.op(f'bitcast {d} {p} to {word}')}, {e.op(f'bitcast {d} {c} to {word}')}"
    )
    both_plus = e.op(f"icmp eq {word} {signs}, {e.number('i64', 0)}")
    minus = e.op(f"and {i1} {nil}, {e.op(f'xor {i1} {both_plus}, ' + e.number('i1', 'true'))}")
    return e.op(f"select {i1} {minus}, {f} {e.number('float', '-0.0')}, {f} {value}")


@operation("fma")
def _fma(e, i):
    kind = _integer_or_float(e, i)
    mode = DIRECTED & set(i.modifiers)
    if mode and kind == "f32":
        _only(e, i, "ftz", "sat", *DIRECTED)
        return _float_result(
            e, i, kind, _directed_fma(e, mode.pop(), *_float_operands(e, i, kind, 3))
        )
    _only(e, i, "rn", "ftz", "sat")
    ty = llvm_type(kind)
    value = e.intrinsic("fma", ty, [(ty, v) for v in _float_operands(e, i, kind, 3)])
    return _float_result(e, i, kind, value)


@operation("rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh")
def _float_unary(e, i):
    """The .approx forms may err by the bounds of their sections; ours round a better value."""
    kind = _integer_or_float(e, i)
    _only(e, i, "rn", "ftz", "approx")
    ty = llvm_type(kind)
    (a,) = _float_operands(e, i, kind, 1)
    if i.opcode == "rcp":
        value = e.op(f"fdiv {e.type_of(kind)} {e.number(ty, '1.0')}, {a}")
    elif i.opcode == "sqrt":
        value = e.intrinsic("sqrt", ty, [(ty, a)])
    elif i.opcode == "rsqrt":
        value = _in_double(
            e,
            kind,
            a,
            lambda x: e.op(
                f"fdiv {e.type_of('double')} {e.number('double', '1.0')}, "
                f"{e.intrinsic('sqrt', 'double', [('double', x)])}"
            ),
        )
    else:
        name = {"ex2": "exp2", "lg2": "log2"}.get(i.opcode, i.opcode)
        value = _in_double(e, kind, a, lambda x: e.intrinsic(name, "double", [("double", x)]))
    return _float_result(e, i, kind, value)


def _in_double(e: Emitter, kind: str, a: str, function) -> str:
    double = e.type_of("double")
    x = a if kind == "f64" else e.op(f"fpext {e.type_of(kind)} {a} to {double}")
    y = function(x)
    return y if kind == "f64" else e.op(f"fptrunc {double} {y} to {e.type_of(kind)}")


@operation("copysign")
def _copysign(e, i):
    """copysign a, b: the sign of a, the magnitude of b."""
    kind = i.modifiers[-1]
    ty = llvm_type(kind)
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    return kind, e.intrinsic("copysign", ty, [(ty, b), (ty, a)])


@operation("testp")
def _testp(e, i):
    kind = i.modifiers[-1]
    classes = {
        "finite": 0x1F8,
        "infinite": 0x204,
        "number": 0x3FC,
        "notanumber": 0x003,
        "normal": 0x108,
        "subnormal": 0x090,
    }
    ty, t = llvm_type(kind), e.type_of(kind)
    test = classes[i.modifiers[0]]
    suffix = {"float": "f32", "double": "f64"}[ty]
    name = f"@llvm.is.fpclass.{'v32' if e.wide else ''}{suffix}"
    e.declarations.add(f"declare {e.type_of('i1')} {name}({t}, i32)")
    return "pred", e.op(
        f"call {e.type_of('i1')} {name}({t} {e.get(i.operands[1], kind)}, i32 {test})"
    )


# -- arithmetic on integers and floats (9.7.1, 9.7.3) ----------------------------------------


@operation("add", "sub")
def _add(e, i):
    kind = _integer_or_float(e, i)
    if _is_float(kind):
        return _float_binary(e, i, kind)
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    if "sat" in i.modifiers:
        ty = llvm_type(kind)
        return kind, e.intrinsic(f"s{i.opcode}.sat", ty, [(ty, a), (ty, b)])
    _only(e, i)
    return kind, e.op(f"{i.opcode} {e.type_of(kind)} {a}, {b}")


def _product(e: Emitter, i: ptx.Instruction, kind: str) -> tuple[str, str]:
    """mul.lo, .hi, .wide: (type, product)."""
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    t = e.type_of(kind)
    if "lo" in i.modifiers:
        return kind, e.op(f"mul {t} {a}, {b}")
    double = kind[0] + str(2 * width(kind))
    twice = e.type_of(f"i{2 * width(kind)}")
    how = "sext" if kind[0] == "s" else "zext"
    a, b = e.op(f"{how} {t} {a} to {twice}"), e.op(f"{how} {t} {b} to {twice}")
    product = e.op(f"mul {twice} {a}, {b}")
    if "wide" in i.modifiers:
        return double, product
    high = e.op(f"lshr {twice} {product}, {e.number(f'i{2 * width(kind)}', width(kind))}")
    return kind, e.op(f"trunc {twice} {high} to {t}")


@operation("mul")
def _mul(e, i):
    kind = _integer_or_float(e, i)
    if _is_float(kind):
        return _float_binary(e, i, kind)
    _only(e, i, "lo", "hi", "wide")
    return _product(e, i, kind)


@operation("mad")
def _mad(e, i):
    kind = _integer_or_float(e, i)
    if _is_float(kind):
        return _fma(e, i)
    _only(e, i, "lo", "hi", "wide")
    kind, product = _product(e, i, kind)
    return kind, e.op(f"add {e.type_of(kind)} {product}, {e.get(i.operands[3], kind)}")


@operation("mul24", "mad24")
def _mul24(e, i):
    kind = i.modifiers[-1]
    _only(e, i, "lo")
    t = e.type_of(kind)
    shift = e.number("i32", 8)
    how = "ashr" if kind == "s32" else "lshr"
    cut = [
        e.op(f"{how} {t} {e.op(f'shl {t} {e.get(o, kind)}, {shift}')}, {shift}")
        for o in i.operands[1:3]
    ]
    value = e.op(f"mul {t} {cut[0]}, {cut[1]}")
    if i.opcode == "mad24":
        value = e.op(f"add {t} {value}, {e.get(i.operands[3], kind)}")
    return kind, value


@operation("div", "rem")
def _div(e, i):
    """Division by zero is unspecified in PTX; hardware gives all ones, and the dividend as rest."""
    kind = _integer_or_float(e, i)
    if _is_float(kind):
        return _float_binary(e, i, kind)
    _only(e, i)
    ty, t, i1 = llvm_type(kind), e.type_of(kind), e.type_of("i1")
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    zero = e.op(f"icmp eq {t} {b}, {e.number(ty, 0)}")
    safe = e.op(f"select {i1} {zero}, {t} {e.number(ty, 1)}, {t} {b}")
    if kind[0] == "s":  # the smallest number divided by -1 overflows: 0 - a, rest 0
        minus = e.op(f"icmp eq {t} {safe}, {e.number(ty, -1)}")
        safe = e.op(f"select {i1} {minus}, {t} {e.number(ty, 1)}, {t} {safe}")
        quotient = e.op(f"sdiv {t} {a}, {safe}")
        negative = e.op(f"sub {t} {e.number(ty, 0)}, {a}")
        quotient = e.op(f"select {i1} {minus}, {t} {negative}, {t} {quotient}")
    else:
        quotient = e.op(f"udiv {t} {a}, {safe}")
    quotient = e.op(f"select {i1} {zero}, {t} {e.number(ty, -1)}, {t} {quotient}")
    if i.opcode == "div":
        return kind, quotient
    product = e.op(f"mul {t} {quotient}, {b}")
    return kind, e.op(f"sub {t} {a}, {product}")


@operation("min", "max")
def _min(e, i):
    """Floats (9.7.3.13): NaN only if both are, or with .NaN if either is; -0 < +0."""
    kind = _integer_or_float(e, i)
    ty = llvm_type(kind)
    if _is_float(kind):
        _only(e, i, "ftz", "NaN")
        a, b = _float_operands(e, i, kind, 2)
        name = i.opcode + ("imum" if "NaN" in i.modifiers else "imumnum")
        value = e.intrinsic(name, ty, [(ty, a), (ty, b)])
        number = e.op(f"fcmp ord {e.type_of(kind)} {value}, {value}")
        nan = (
            "bitcast (i32 2147483647 to float)"
            if kind == "f32"
            else ("bitcast (i64 9223372036854775807 to double)")
        )  # the canonical NaN
        return kind, e.op(
            f"select {e.type_of('i1')} {number}, {e.type_of(kind)} {value}, "
            f"{e.type_of(kind)} {e.number(ty, nan)}"
        )
    _only(e, i)
    name = ("s" if kind[0] == "s" else "u") + i.opcode
    return kind, e.intrinsic(name, ty, [(ty, e.get(o, kind)) for o in i.operands[1:3]])


@operation("abs", "neg")
def _abs(e, i):
    kind = _integer_or_float(e, i)
    _only(e, i, "ftz")
    ty, t = llvm_type(kind), e.type_of(kind)
    a = e.get(i.operands[1], kind)
    if _is_float(kind):
        a = _flush(e, i, a)
        if i.opcode == "neg":
            return kind, e.op(f"fneg {t} {a}")
        return kind, e.intrinsic("fabs", ty, [(ty, a)])
    if i.opcode == "neg":
        return kind, e.op(f"sub {t} {e.number(ty, 0)}, {a}")
    return kind, e.intrinsic("abs", ty, [(ty, a)])


@operation("sad")
def _sad(e, i):
    kind = i.modifiers[-1]
    t = e.type_of(kind)
    a, b, c = (e.get(o, kind) for o in i.operands[1:4])
    less = e.op(f"icmp {'s' if kind[0] == 's' else 'u'}lt {t} {a}, {b}")
    ab, ba = e.op(f"sub {t} {a}, {b}"), e.op(f"sub {t} {b}, {a}")
    size = e.op(f"select {e.type_of('i1')} {less}, {t} {ba}, {t} {ab}")
    return kind, e.op(f"add {t} {c}, {size}")


# -- comparison and selection (9.7.5, 9.7.6) ----------------------------------------

_INTEGER_COMPARE = {
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
_FLOAT_COMPARE = {
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


def compare(e: Emitter, i: ptx.Instruction, kind: str) -> str:
    """The comparison of a setp or set: an i1 for each lane (before a Boolean with a third)."""
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    t = e.type_of(kind)
    if _is_float(kind):
        a, b = _flush(e, i, a), _flush(e, i, b)
        return e.op(f"fcmp {_FLOAT_COMPARE[i.modifiers[0]]} {t} {a}, {b}")
    sign = "s" if kind[0] == "s" else "u"
    return e.op(f"icmp {_INTEGER_COMPARE[i.modifiers[0]].format(sign)} {t} {a}, {b}")


def combine(e: Emitter, i: ptx.Instruction, value: str) -> str:
    """`value`, or `value` and/or/xor the third operand."""
    logic = {"and", "or", "xor"} & set(i.modifiers[1:])
    if not logic:
        return value
    return e.op(f"{logic.pop()} {e.type_of('i1')} {value}, {e.get(i.operands[3], 'pred')}")


@operation("set")
def _set(e, i):
    to, kind = i.modifiers[-2:]
    if kind in ("f16", "f16x2", "bf16", "bf16x2"):
        raise e.unsupported()
    value = combine(e, i, compare(e, i, kind))
    t, i1 = e.type_of(to), e.type_of("i1")
    if to == "f32":
        return to, e.op(f"uitofp {i1} {value} to {t}")
    return to, e.op(f"sext {i1} {value} to {t}")


@operation("selp")
def _selp(e, i):
    kind = i.modifiers[-1]
    t = e.type_of(kind)
    a, b, p = e.get(i.operands[1], kind), e.get(i.operands[2], kind), e.get(i.operands[3], "pred")
    return kind, e.op(f"select {e.type_of('i1')} {p}, {t} {a}, {t} {b}")


@operation("slct")
def _slct(e, i):
    """slct d, a, b, c: a if c >= 0 (for a float: false if NaN), else b."""
    kind, test = i.modifiers[-2:]
    t = e.type_of(kind)
    a, b, c = e.get(i.operands[1], kind), e.get(i.operands[2], kind), e.get(i.operands[3], test)
    if test == "f32":
        p = e.op(f"fcmp oge {e.type_of(test)} {_flush(e, i, c)}, {e.number('float', '0.0')}")
    else:
        p = e.op(f"icmp sge {e.type_of(test)} {c}, {e.number('i32', 0)}")
    return kind, e.op(f"select {e.type_of('i1')} {p}, {t} {a}, {t} {b}")


# -- logic, shifts, bits (9.7.1, 9.7.8) ----------------------------------------


@operation("and", "or", "xor")
def _logic(e, i):
    kind = i.modifiers[-1]
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    return kind, e.op(f"{i.opcode} {e.type_of(kind)} {a}, {b}")


@operation("not")
def _not(e, i):
    kind = i.modifiers[-1]
    ones = e.number(llvm_type(kind), "true" if kind == "pred" else -1)
    return kind, e.op(f"xor {e.type_of(kind)} {e.get(i.operands[1], kind)}, {ones}")


@operation("cnot")
def _cnot(e, i):
    kind = i.modifiers[-1]
    zero = e.op(
        f"icmp eq {e.type_of(kind)} {e.get(i.operands[1], kind)}, {e.number(llvm_type(kind), 0)}"
    )
    return kind, e.op(f"zext {e.type_of('i1')} {zero} to {e.type_of(kind)}")


@operation("shl", "shr")
def _shift(e, i):
    """Amounts are unsigned 32-bit and clamp at the width (LLVM's would be poison)."""
    kind = i.modifiers[-1]
    ty, t, n = llvm_type(kind), e.type_of(kind), width(kind)
    amount = e.get(i.operands[2], "u32")
    t32 = e.type_of("i32")
    arithmetic = i.opcode == "shr" and kind[0] == "s"
    limit = e.number("i32", n - 1)
    inside = e.op(f"icmp ule {t32} {amount}, {limit}")
    amount = e.op(f"select {e.type_of('i1')} {inside}, {t32} {amount}, {t32} {limit}")
    if n != 32:
        amount = e.op(f"{'trunc' if n < 32 else 'zext'} {t32} {amount} to {t}")
    name = "shl" if i.opcode == "shl" else "ashr" if arithmetic else "lshr"
    value = e.op(f"{name} {t} {e.get(i.operands[1], kind)}, {amount}")
    if arithmetic:
        return kind, value
    return kind, e.op(f"select {e.type_of('i1')} {inside}, {t} {value}, {t} {e.number(ty, 0)}")


@operation("shf")
def _shf(e, i):
    """Funnel shift of (hi, lo); .wrap takes the amount modulo 32, .clamp up to 32."""
    t = e.type_of("i32")
    lo, hi, amount = (e.get(o, "b32") for o in i.operands[1:4])
    left = "l" in i.modifiers
    value = e.intrinsic(
        "fshl" if left else "fshr", "i32", [("i32", hi), ("i32", lo), ("i32", amount)]
    )
    if "clamp" in i.modifiers:
        past = e.op(f"icmp uge {t} {amount}, {e.number('i32', 32)}")
        value = e.op(f"select {e.type_of('i1')} {past}, {t} {lo if left else hi}, {t} {value}")
    return "b32", value


@operation("popc", "clz", "brev")
def _count_bits(e, i):
    kind = i.modifiers[-1]
    ty = llvm_type(kind)
    name = {"popc": "ctpop", "clz": "ctlz", "brev": "bitreverse"}[i.opcode]
    value = e.intrinsic(name, ty, [(ty, e.get(i.operands[1], kind))])
    if i.opcode == "brev":
        return kind, value
    return "u32", value if ty == "i32" else e.op(
        f"trunc {e.type_of(ty)} {value} to {e.type_of('i32')}"
    )


@operation("bfind")
def _bfind(e, i):
    """The highest bit that differs from the sign, counted from bit 0 (or with .shiftamt from the
    top); -1 if there is none."""
    kind = i.modifiers[-1]
    ty, t, n = llvm_type(kind), e.type_of(kind), width(kind)
    a = e.get(i.operands[1], kind)
    if kind[0] == "s":
        sign = e.op(f"ashr {t} {a}, {e.number(ty, n - 1)}")
        a = e.op(f"xor {t} {a}, {sign}")
    zeros = e.intrinsic("ctlz", ty, [(ty, a)])
    none = e.op(f"icmp eq {t} {a}, {e.number(ty, 0)}")
    if "shiftamt" not in i.modifiers:
        zeros = e.op(f"sub {t} {e.number(ty, n - 1)}, {zeros}")
    value = e.op(f"select {e.type_of('i1')} {none}, {t} {e.number(ty, -1)}, {t} {zeros}")
    return "u32", value if n == 32 else e.op(f"trunc {t} {value} to {e.type_of('i32')}")


@operation("bfe")
def _bfe(e, i):
    """len bits of a from bit pos on; past the top the sign (or zero) is repeated."""
    kind = i.modifiers[-1]
    ty, t, n = llvm_type(kind), e.type_of(kind), width(kind)
    i1 = e.type_of("i1")
    a = e.get(i.operands[1], kind)
    pos, length = (
        e.op(f"and {e.type_of('i32')} {e.get(o, 'u32')}, {e.number('i32', 255)}")
        for o in i.operands[2:4]
    )
    if n == 64:
        pos, length = (e.op(f"zext {e.type_of('i32')} {v} to {t}") for v in (pos, length))
    top = e.number(ty, n - 1)
    if kind[0] == "s":  # bits past the top are the sign of a
        shifted = e.op(f"ashr {t} {a}, {e.intrinsic('umin', ty, [(ty, pos), (ty, top)])}")
    else:
        past = e.op(f"icmp ugt {t} {pos}, {top}")
        shifted = e.op(f"lshr {t} {a}, {e.intrinsic('umin', ty, [(ty, pos), (ty, top)])}")
        shifted = e.op(f"select {i1} {past}, {t} {e.number(ty, 0)}, {t} {shifted}")
    # Up until the field's top bit is the register's, then down again.
    drop = e.intrinsic("usub.sat", ty, [(ty, e.number(ty, n)), (ty, length)])
    clamped = e.intrinsic("umin", ty, [(ty, drop), (ty, top)])
    high = e.op(f"shl {t} {shifted}, {clamped}")
    value = e.op(f"{'ashr' if kind[0] == 's' else 'lshr'} {t} {high}, {clamped}")
    empty = e.op(f"icmp eq {t} {length}, {e.number(ty, 0)}")
    return kind, e.op(f"select {i1} {empty}, {t} {e.number(ty, 0)}, {t} {value}")


@operation("bfi")
def _bfi(e, i):
    """b with its len bits from pos on replaced by a's lowest."""
    kind = i.modifiers[-1]
    ty, t, n = llvm_type(kind), e.type_of(kind), width(kind)
    i1 = e.type_of("i1")
    a, b = e.get(i.operands[1], kind), e.get(i.operands[2], kind)
    pos, length = (
        e.op(f"and {e.type_of('i32')} {e.get(o, 'u32')}, {e.number('i32', 255)}")
        for o in i.operands[3:5]
    )
    if n == 64:
        pos, length = (e.op(f"zext {e.type_of('i32')} {v} to {t}") for v in (pos, length))
    top = e.number(ty, n - 1)
    whole = e.op(f"icmp ugt {t} {length}, {top}")
    ones = e.op(f"shl {t} {e.number(ty, 1)}, {e.intrinsic('umin', ty, [(ty, length), (ty, top)])}")
    field = e.op(f"sub {t} {ones}, {e.number(ty, 1)}")
    field = e.op(f"select {i1} {whole}, {t} {e.number(ty, -1)}, {t} {field}")
    outside = e.op(f"icmp ugt {t} {pos}, {top}")
    at = e.intrinsic("umin", ty, [(ty, pos), (ty, top)])
    mask = e.op(f"shl {t} {field}, {at}")
    mask = e.op(f"select {i1} {outside}, {t} {e.number(ty, 0)}, {t} {mask}")
    put = e.op(f"and {t} {e.op(f'shl {t} {a}, {at}')}, {mask}")
    inverse = e.op(f"xor {t} {mask}, {e.number(ty, -1)}")
    kept = e.op(f"and {t} {b}, {inverse}")
    return kind, e.op(f"or {t} {kept}, {put}")


@operation("lop3")
def _lop3(e, i):
    """Any function of three bits: immLut's bit 4a+2b+c."""
    t = e.type_of("i32")
    a, b, c = (e.get(o, "b32") for o in i.operands[1:4])
    table = i.operands[4].value
    result = e.number("i32", 0)
    for k in range(8):
        if table >> k & 1:
            term = e.number("i32", -1)
            for bit, value in ((4, a), (2, b), (1, c)):
                if not k & bit:
                    value = e.op(f"xor {t} {value}, {e.number('i32', -1)}")
                term = e.op(f"and {t} {term}, {value}")
            result = e.op(f"or {t} {result}, {term}")
    return "b32", result


@operation("prmt")
def _prmt(e, i):
    """Default mode: each selector nibble picks one of eight bytes, its top bit that byte's sign."""
    if len(i.modifiers) > 1:
        raise e.unsupported()
    t, t64 = e.type_of("i32"), e.type_of("i64")
    a, b, select = (e.get(o, "b32") for o in i.operands[1:4])
    high = e.op(f"shl {t64} {e.op(f'zext {t} {b} to {t64}')}, {e.number('i64', 32)}")
    both = e.op(f"or {t64} {high}, {e.op(f'zext {t} {a} to {t64}')}")
    result = e.number("i32", 0)
    for k in range(4):
        nibble = e.op(f"lshr {t} {select}, {e.number('i32', 4 * k)}")
        index = e.op(
            f"shl {t} {e.op(f'and {t} {nibble}, ' + e.number('i32', 7))}, {e.number('i32', 3)}"
        )
        byte = e.op(f"lshr {t64} {both}, {e.op(f'zext {t} {index} to {t64}')}")
        byte = e.op(f"trunc {t64} {byte} to {t}")
        plain = e.op(f"and {t} {byte}, {e.number('i32', 255)}")
        top = e.op(f"shl {t} {byte}, {e.number('i32', 24)}")
        sign = e.op(
            f"and {t} {e.op(f'ashr {t} {top}, ' + e.number('i32', 31))}, {e.number('i32', 255)}"
        )
        wants = e.op(
            f"icmp ne {t} {e.op(f'and {t} {nibble}, ' + e.number('i32', 8))}, {e.number('i32', 0)}"
        )
        byte = e.op(f"select {e.type_of('i1')} {wants}, {t} {sign}, {t} {plain}")
        result = e.op(f"or {t} {result}, {e.op(f'shl {t} {byte}, ' + e.number('i32', 8 * k))}")
    return "b32", result


# -- moves and conversions (9.7.9) ----------------------------------------


@operation("mov")
def _mov(e, i):
    kind = i.modifiers[-1]
    source = i.operands[1]
    if isinstance(source, ptx.Vector):
        return kind, _pack(e, source.elements, kind)
    return kind, e.get(source, kind)


def _pack(e: Emitter, parts, kind: str) -> str:
    """mov.b64 d, {lo, hi} and the like."""
    n = width(kind)
    each = n // len(parts)
    t = e.type_of(kind)
    result = e.number(f"i{n}", 0)
    for k, part in enumerate(parts):
        piece = e.op(f"zext {e.type_of(f'i{each}')} {e.get(part, f'b{each}')} to {t}")
        result = e.op(
            f"or {t} {result}, {e.op(f'shl {t} {piece}, ' + e.number(f'i{n}', each * k))}"
        )
    return result


def unpack(e: Emitter, i: ptx.Instruction) -> list[tuple[str, str]]:
    """mov.b64 {lo, hi}, a: the value of each destination."""
    kind = i.modifiers[-1]
    parts = i.operands[0].elements
    n, each = width(kind), width(kind) // len(parts)
    t = e.type_of(kind)
    a = e.get(i.operands[1], kind)
    out = []
    for k in range(len(parts)):
        piece = e.op(f"lshr {t} {a}, {e.number(f'i{n}', each * k)}")
        out.append((f"b{each}", e.op(f"trunc {t} {piece} to {e.type_of(f'i{each}')}")))
    return out


_ROUND = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


@operation("cvt")
def _cvt(e, i):
    if len(i.operands) != 2 or len(i.modifiers) < 2:
        raise e.unsupported()
    to, source = i.modifiers[-2:]
    how = set(i.modifiers[:-2])
    if {to, source} - set(ptx.SIZES) or {to, source} & {"bf16", "f16x2", "bf16x2"}:
        raise e.unsupported()
    if how - {"rn", "rni", "rzi", "rmi", "rpi", "ftz", "sat"}:
        raise e.unsupported()
    a = e.get(i.operands[1], source)
    from_float, to_float = source in ("f16", "f32", "f64"), to in ("f16", "f32", "f64")
    if from_float and source == "f32":
        a = _flush(e, i, a)
    ty, s, t = llvm_type(to), e.type_of(source), e.type_of(to)
    if from_float and to_float:
        return to, _float_to_float(e, i, a, source, to)
    if from_float:
        rounding = next((_ROUND[h] for h in how if h in _ROUND), "trunc")
        f = llvm_type(source)
        a = e.intrinsic(rounding, f, [(f, a)])
        name = "fptosi.sat" if to[0] == "s" else "fptoui.sat"
        return to, e.intrinsic(name, ty, [(f, a)], extra=f)
    if to_float:
        name = "sitofp" if source[0] == "s" else "uitofp"
        value = e.op(f"{name} {s} {a} to {t}")
        return to, _saturate(e, i, ty, value)
    return to, _integer_to_integer(e, a, source, to, "sat" in how)


def _float_to_float(e: Emitter, i: ptx.Instruction, a: str, source: str, to: str) -> str:
    ty, s, t = llvm_type(to), e.type_of(source), e.type_of(to)
    rounding = next((_ROUND[h] for h in i.modifiers if h in _ROUND), None)
    if rounding:
        f = llvm_type(source)
        a = e.intrinsic(rounding, f, [(f, a)])
    if width(to) != width(source):
        a = e.op(f"{'fpext' if width(to) > width(source) else 'fptrunc'} {s} {a} to {t}")
    if to == "f32":
        a = _flush(e, i, a)
    return _saturate(e, i, ty, a)


def _integer_to_integer(e: Emitter, a: str, source: str, to: str, saturate: bool) -> str:
    sty, s, t = llvm_type(source), e.type_of(source), e.type_of(to)
    n, m = width(source), width(to)
    if saturate:
        low, high = (-(1 << m - 1), (1 << m - 1) - 1) if to[0] == "s" else (0, (1 << m) - 1)
        sign = source[0] == "s"
        least, most = (-(1 << n - 1), (1 << n - 1) - 1) if sign else (0, (1 << n) - 1)
        prefix = "s" if sign else "u"
        if low > least:
            a = e.intrinsic(prefix + "max", sty, [(sty, a), (sty, e.number(sty, low))])
        if high < most:
            a = e.intrinsic(prefix + "min", sty, [(sty, a), (sty, e.number(sty, high))])
    if m == n:
        return a
    how = "trunc" if m < n else "sext" if source[0] == "s" else "zext"
    return e.op(f"{how} {s} {a} to {t}")


@operation("dp4a")
def _dp4a(e, i):
    """d = c + the four products of a's and b's bytes."""
    a_kind, b_kind = i.modifiers[-2:]
    t, t8 = e.type_of("i32"), e.type_of("i8")
    a, b, total = (e.get(o, "b32") for o in i.operands[1:4])
    for k in range(4):
        pair = []
        for value, kind in ((a, a_kind), (b, b_kind)):
            byte = e.op(f"trunc {t} {e.op(f'lshr {t} {value}, ' + e.number('i32', 8 * k))} to {t8}")
            pair.append(e.op(f"{'sext' if kind[0] == 's' else 'zext'} {t8} {byte} to {t}"))
        total = e.op(f"add {t} {total}, {e.op(f'mul {t} {pair[0]}, {pair[1]}')}")
    return "b32", total
