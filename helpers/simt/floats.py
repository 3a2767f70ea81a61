"""Arithmetic on f32 and f64 (PTX ISA 9.7.3) in all roundings; and add, min, ... of any type."""

from __future__ import annotations

from collections.abc import Callable

from . import halves, integers, ptx
from .emitter import Emitter, llvm_type
from .table import Value, only, operation
from .table import halves as is_half

FLOATS = ("f32", "f64")
_SMALLEST = 2.0**-126  # of the normal f32 numbers
LARGER = 2.0**24  # see flush_result
_NAN = {"float": "bitcast (i32 2147483647 to float)", "double": "0x7FFFFFFFFFFFFFFF"}
_MODES = {"rz": 0, "rp": 2, "rm": 3}  # as llvm.set.rounding numbers them; rn is 1


def flush(e: Emitter, i: ptx.Instruction, value: str) -> str:
    """.ftz: a subnormal f32 becomes a zero of its sign."""
    if "ftz" not in i.modifiers:
        return value
    tiny = e.calc("fcmp olt", "float", magnitude(e, "float", value), _SMALLEST)
    return e.pick(tiny, "float", with_sign(e, "float", 0.0, value), value)


def flush_result(e: Emitter, i: ptx.Instruction, value: str, larger: Callable[[], str]) -> str:
    """.ftz of an f32 result rounded once. What is subnormal with all 24 digits becomes zero, though
    the fewer digits of a subnormal might round up to the smallest normal number (an H200).

    larger: emits the same computation at LARGER times the size, where all digits are there.
    """
    if "ftz" not in i.modifiers:
        return value
    tiny = e.calc("fcmp olt", "float", magnitude(e, "float", larger()), _SMALLEST * LARGER)
    return e.pick(tiny, "float", with_sign(e, "float", 0.0, value), value)


def magnitude(e: Emitter, ty: str, value: str) -> str:
    return e.intrinsic("fabs", ty, [(ty, value)])


def with_sign(e: Emitter, ty: str, size: str | float, sign: str) -> str:
    return e.intrinsic("copysign", ty, [(ty, e.value(ty, size)), (ty, sign)])


def saturate(e: Emitter, i: ptx.Instruction, ty: str, value: str) -> str:
    """.sat: clamped to [0, 1], NaN to +0."""
    if "sat" not in i.modifiers:
        return value
    value = e.pick(e.calc("fcmp ogt", ty, value, 0.0), ty, value, 0.0)
    return e.pick(e.calc("fcmp olt", ty, value, 1.0), ty, value, 1.0)


def canonical(e: Emitter, ty: str, value: str) -> str:
    """Any NaN becomes the one that hardware makes."""
    nan = e.number(ty, _NAN[ty])
    return e.pick(e.calc("fcmp ord", ty, value, value), ty, value, nan)


def operands(e: Emitter, i: ptx.Instruction, kind: str, count: int) -> list[str]:
    values = [e.get(o, kind) for o in i.operands[1 : 1 + count]]
    return [flush(e, i, v) for v in values] if kind == "f32" else values


def result(e: Emitter, i: ptx.Instruction, kind: str, value: str) -> Value:
    value = flush(e, i, value) if kind == "f32" else value
    return kind, saturate(e, i, llvm_type(kind), value)


# -- roundings ----------------------------------------


def direction(i: ptx.Instruction) -> str:
    """The rounding of an instruction: "rn" unless it names another."""
    return next((m for m in i.modifiers if m in _MODES), "rn")


def rounded(e: Emitter, mode: str, verb: str, ty: str, *values: str, source: str = "") -> str:
    """An operation of LLVM (fadd, fma, fptrunc, ...) whose result of type `ty` is rounded in a
    direction; `source` is the type of the values, if another.

    A function of its own sets the processor's rounding mode and sets it back. Only LLVM's
    constrained operations may stand there: nothing is folded or moved across the change.
    """
    source = source or ty
    name = f"@{verb}.{mode}.{ty}.{source}{'.lanes' if e.wide else ''}"
    suffix = {"float": "f32", "double": "f64"}
    out, given = e.type_of(ty), e.type_of(source)
    mangled = [("v32" if e.wide else "") + suffix.get(t, t) for t in (ty, source)]
    if source == ty:
        del mangled[1]
    operation_ = f"@llvm.experimental.constrained.{verb}.{'.'.join(mangled)}"
    types = ", ".join([given] * len(values) + ["metadata", "metadata"])
    e.declarations |= {
        f"declare {out} {operation_}({types})",
        "declare void @llvm.set.rounding(i32)",
    }
    names = ", ".join(f"{given} %a{k}" for k in range(len(values)))
    e.function(
        name,
        f"{out} {name}({names}) noinline strictfp",
        f"""  call void @llvm.set.rounding(i32 {_MODES[mode]}) strictfp
  %r = call {out} {operation_}({names}, metadata !"round.dynamic", metadata !"fpexcept.strict") \
strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {out} %r""",
    )
    return e.op(f"call {out} {name}({', '.join(f'{given} {v}' for v in values)})")


def arithmetic(e: Emitter, mode: str, verb: str, ty: str, *values: str) -> str:
    """fadd, fsub, fmul, fdiv, fma or sqrt in any rounding."""
    if mode != "rn":
        return rounded(e, mode, verb, ty, *values)
    if verb in ("fma", "sqrt"):
        return e.intrinsic(verb, ty, [(ty, v) for v in values])
    return e.calc(verb, ty, *values)


# -- arithmetic ----------------------------------------

_BINARY = {"add": "fadd", "sub": "fsub"}


def _kind(i: ptx.Instruction) -> str:
    return i.modifiers[-1] if i.modifiers else ""


@operation("add", "sub", "mul")
def _add(e, i):
    kind = _kind(i)
    if is_half(kind):
        return halves.arithmetic(e, i)
    if kind not in FLOATS:
        return integers.mul(e, i) if i.opcode == "mul" else integers.add(e, i)
    _only_float(e, i, "sat")
    values = operands(e, i, kind, 2)
    if i.opcode == "mul":
        return _rounded_once(e, i, kind, "fmul", values)
    value = arithmetic(e, direction(i), _BINARY[i.opcode], llvm_type(kind), *values)
    return result(e, i, kind, value)


def _rounded_once(e: Emitter, i: ptx.Instruction, kind: str, verb: str, values: list[str]) -> Value:
    """fmul, fma or fdiv of operands without subnormals."""
    mode, ty = direction(i), llvm_type(kind)

    def larger() -> str:
        a, b, *c = values
        a, *c = (e.calc("fmul", ty, v, LARGER) for v in (a, *c))
        return arithmetic(e, mode, verb, ty, a, b, *c)

    value = flush_result(e, i, arithmetic(e, mode, verb, ty, *values), larger)
    return kind, saturate(e, i, ty, value)


def _only_float(e: Emitter, i: ptx.Instruction, *allowed: str) -> None:
    kind = only(e, i, "rn", *_MODES, "ftz", *allowed, types=FLOATS)
    if kind == "f64" and {"ftz", "sat"} & set(i.modifiers):
        raise e.unsupported()


@operation("fma", "mad")
def _fma(e, i):
    kind = _kind(i)
    if is_half(kind):
        return halves.arithmetic(e, i)
    if kind not in FLOATS:
        return integers.mad(e, i)
    _only_float(e, i, "sat")
    return _rounded_once(e, i, kind, "fma", operands(e, i, kind, 3))


@operation("div", "rem")
def _div(e, i):
    """div.approx and div.full may differ from the rounded quotient by 2 ulp; ours is that
    quotient, save that div.approx gives 0 for divisors over 2^126 (9.7.3.8)."""
    kind = _kind(i)
    if kind not in FLOATS:
        return integers.divide(e, i)
    _only_float(e, i, "approx", "full")
    ty = llvm_type(kind)
    a, b = operands(e, i, kind, 2)
    if not {"approx", "full"} & set(i.modifiers):
        return _rounded_once(e, i, kind, "fdiv", [a, b])
    value = e.calc("fdiv", ty, a, b)
    if "approx" in i.modifiers:
        large = e.calc("fcmp ogt", ty, magnitude(e, ty, b), 2.0**126)
        value = e.pick(large, ty, e.calc("fmul", ty, a, with_sign(e, ty, 0.0, b)), value)
    return result(e, i, kind, value)


@operation("rcp", "sqrt", "rsqrt")
def _root(e, i):
    """The .approx forms may err by the bounds of 9.7.3.13-16; ours are rounded once."""
    if "approx" in i.modifiers and "ftz" in i.modifiers and _kind(i) == "f64":
        return _upper_word(e, i)
    kind = only(e, i, "rn", *_MODES, "ftz", "approx", types=FLOATS)
    if kind == "f64" and "ftz" in i.modifiers:
        raise e.unsupported()
    ty = llvm_type(kind)
    (a,) = operands(e, i, kind, 1)
    if i.opcode == "rcp":
        return _rounded_once(e, i, kind, "fdiv", [e.value(ty, 1.0), a])
    if i.opcode == "sqrt":
        value = arithmetic(e, direction(i), "sqrt", ty, a)
    elif kind == "f32":
        value = e.cast("fptrunc", "double", ty, _inverse_root(e, e.cast("fpext", ty, "double", a)))
    else:
        value = _inverse_root(e, a)
    return result(e, i, kind, value)


def _inverse_root(e: Emitter, x: str) -> str:
    root = e.intrinsic("sqrt", "double", [("double", x)])
    return e.calc("fdiv", "double", 1.0, root)


def _upper_word(e: Emitter, i: ptx.Instruction) -> Value:
    """rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 (9.7.3.14, 9.7.3.17): only the upper 32 bits of
    operand and result count, the lower ones are zero; subnormals are flushed."""
    upper = -(1 << 32)
    word = e.calc("and", "i64", e.get(i.operands[1], "b64"), upper)
    a = _flush_double(e, e.cast("bitcast", "i64", "double", word))
    value = _inverse_root(e, a) if i.opcode == "rsqrt" else e.calc("fdiv", "double", 1.0, a)
    value = canonical(e, "double", _flush_double(e, value))
    word = e.calc("and", "i64", e.cast("bitcast", "double", "i64", value), upper)
    return "b64", word


def _flush_double(e: Emitter, value: str) -> str:
    tiny = e.calc("fcmp olt", "double", magnitude(e, "double", value), 2.0**-1022)
    return e.pick(tiny, "double", with_sign(e, "double", 0.0, value), value)


@operation("min", "max")
def _min(e, i):
    """NaN only if both operands are, or with .NaN if either is; -0 < +0 (9.7.3.11, 9.7.3.12).
    .xorsign.abs compares magnitudes and gives the result the product's sign."""
    kind = _kind(i)
    if is_half(kind):
        return halves.minimum(e, i)
    if kind not in FLOATS:
        return integers.minimum(e, i)
    only(e, i, "ftz", "NaN", "xorsign", "abs", types=FLOATS)
    return kind, lesser(e, i, llvm_type(kind), *operands(e, i, kind, 2))


def lesser(e: Emitter, i: ptx.Instruction, ty: str, a: str, b: str) -> str:
    """The smaller (min) or larger (max) of two floats."""
    sign = None
    if "xorsign" in i.modifiers:
        word = {"float": "i32", "double": "i64"}[ty]
        sign = e.calc("xor", word, e.cast("bitcast", ty, word, a), e.cast("bitcast", ty, word, b))
        sign = e.cast("bitcast", word, ty, sign)
        a, b = magnitude(e, ty, a), magnitude(e, ty, b)
    name = i.opcode + ("imum" if "NaN" in i.modifiers else "imumnum")
    value = e.intrinsic(name, ty, [(ty, a), (ty, b)])
    if sign is not None:
        value = with_sign(e, ty, value, sign)
    return canonical(e, ty, value)


@operation("abs", "neg")
def _abs(e, i):
    kind = _kind(i)
    if is_half(kind):
        return halves.absolute(e, i)
    if kind not in FLOATS:
        return integers.absolute(e, i)
    only(e, i, "ftz", types=FLOATS)
    ty = llvm_type(kind)
    (a,) = operands(e, i, kind, 1)
    return kind, e.calc("fneg", ty, a) if i.opcode == "neg" else magnitude(e, ty, a)


@operation("copysign")
def _copysign(e, i):
    """copysign a, b: the sign of a, the magnitude of b."""
    kind = only(e, i, types=FLOATS)
    a, b = operands(e, i, kind, 2)
    return kind, with_sign(e, llvm_type(kind), b, a)


# llvm.is.fpclass's bits; zeros are normal here (9.7.3.1)
_CLASSES = {
    "finite": 0x1F8,
    "infinite": 0x204,
    "number": 0x3FC,
    "notanumber": 0x003,
    "normal": 0x168,
    "subnormal": 0x090,
}


@operation("testp")
def _testp(e, i):
    kind = only(e, i, *_CLASSES, types=FLOATS)
    name = f"@llvm.is.fpclass.{'v32' if e.wide else ''}{kind}"
    t, i1 = e.type_of(kind), e.type_of("i1")
    e.declarations.add(f"declare {i1} {name}({t}, i32)")
    (a,) = operands(e, i, kind, 1)
    return "pred", e.op(f"call {i1} {name}({t} {a}, i32 {_CLASSES[i.modifiers[0]]})")
