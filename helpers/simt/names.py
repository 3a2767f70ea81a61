"""Which modifiers an instruction may have, so that none is passed over in silence.

A kernel that asks for something in its instructions' names either gets it or is refused. What is
listed here is what the rows of `instructions` and `access` implement; PTX ISA chapter 9 gives the
syntax of each. The order of modifiers does not matter (ptxas takes any), but the types come last.
"""

from __future__ import annotations

import functools

from . import ptx
from .errors import Unsupported

_WORDS = "u16 s16 u32 s32 u64 s64"
_LONG = "u32 s32 u64 s64"
_HALVES = "f16 f16x2 bf16 bf16x2"
_ROUNDINGS = "rn|rz|rm|rp"
_BITS = "b16 b32 b64"
_ORDERED = "eq|ne|lt|le|gt|ge"
_FLOAT_TESTS = f"{_ORDERED}|equ|neu|ltu|leu|gtu|geu|num|nan"
_LOGIC = "and|or|xor"
_TYPES_OF_SET = "u32 s32 f32"

# For each opcode its alternatives: types: modifiers. A word is a modifier that may be there, or
# several of which one may be; with ! one must be. Two lists of types, with a comma between them,
# are the last two modifiers.
_ALTERNATIVES = {
    "add sub": [
        f"{_WORDS}:",
        "s32: sat",
        f"{_LONG}: cc!",
        f"f32: {_ROUNDINGS} ftz sat",
        f"f64: {_ROUNDINGS}",
        "f16 f16x2: rn ftz sat",
        "bf16 bf16x2: rn",
    ],
    "mul": [
        f"{_WORDS}: lo|hi!",
        "u16 s16 u32 s32: wide!",
        f"f32: {_ROUNDINGS} ftz sat",
        f"f64: {_ROUNDINGS}",
        "f16 f16x2: rn ftz sat",
        "bf16 bf16x2: rn",
    ],
    "mad": [
        f"{_WORDS}: lo|hi!",
        "u16 s16 u32 s32: wide!",
        f"{_LONG}: lo|hi! cc!",
        "s32: hi! sat!",
        f"f32: {_ROUNDINGS}! ftz sat",
        f"f64: {_ROUNDINGS}!",
    ],
    "fma": [
        f"f32: {_ROUNDINGS}! ftz sat",
        f"f64: {_ROUNDINGS}!",
        "f16 f16x2: rn! ftz sat",
        "f16 f16x2: rn! ftz relu",
        "bf16 bf16x2: rn! relu",
    ],
    "addc subc": [f"{_LONG}: cc"],
    "madc": [f"{_LONG}: lo|hi! cc"],
    "mul24": ["u32 s32: lo|hi!"],
    "mad24": ["u32 s32: lo|hi!", "s32: hi! sat!"],
    "div": [f"{_WORDS}:", f"f32: {_ROUNDINGS}|approx|full! ftz", f"f64: {_ROUNDINGS}!"],
    "rem sad": [f"{_WORDS}:"],
    "min max": [
        f"{_WORDS}:",
        "f32: ftz NaN",
        "f32: ftz NaN xorsign! abs!",
        "f64:",
        f"{_HALVES}: ftz NaN",
        f"{_HALVES}: ftz NaN xorsign! abs!",
    ],
    "abs neg": ["s16 s32 s64:", "f32: ftz", "f64:", "f16 f16x2: ftz", "bf16 bf16x2:"],
    "copysign": ["f32 f64:"],
    "rcp": [f"f32: {_ROUNDINGS}|approx! ftz", f"f64: {_ROUNDINGS}!", "f64: approx! ftz!"],
    "sqrt": [f"f32: {_ROUNDINGS}|approx! ftz", f"f64: {_ROUNDINGS}!"],
    "rsqrt": ["f32 f64: approx! ftz"],
    "sin cos lg2": ["f32: approx! ftz"],
    "ex2": ["f32: approx! ftz", "f16 f16x2: approx!", "bf16 bf16x2: approx! ftz!"],
    "tanh": ["f32 f16 f16x2 bf16 bf16x2: approx!"],
    "isspacep": ["global shared local:"],
    "testp": ["f32 f64: finite|infinite|number|notanumber|normal|subnormal!"],
    "and or xor not": [f"pred {_BITS}:"],
    "cnot shl": [f"{_BITS}:"],
    "shr": [f"{_BITS} {_WORDS}:"],
    "shf": ["b32: l|r! wrap|clamp!"],
    "popc clz brev bfi": ["b32 b64:"],
    "bfe": [f"{_LONG}:"],
    "bfind": [f"{_LONG}: shiftamt"],
    "fns": ["b32:"],
    "bmsk": ["b32: clamp|wrap!"],
    "szext": ["u32 s32: clamp|wrap!"],
    "lop3": ["b32: and|or"],
    "prmt": ["b32:", *(f"b32, {mode}:" for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))],
    "dp4a": ["u32 s32, u32 s32:"],
    "dp2a": ["u32 s32, u32 s32: lo|hi!"],
    "vabsdiff2 vabsdiff4": [
        f"{t}, {t}, {t}{add}:" for t in ("u32", "s32") for add in ("", ", add")
    ],
    "selp": [f"{_BITS} {_WORDS} f32 f64:"],
    "slct": [f"{_BITS} {_WORDS} f32 f64, s32:", f"{_BITS} {_WORDS} f32 f64, f32: ftz"],
    "setp": [
        f"{_BITS}: eq|ne! {_LOGIC}",
        f"s16 s32 s64: {_ORDERED}! {_LOGIC}",
        f"u16 u32 u64: {_ORDERED}|lo|ls|hi|hs! {_LOGIC}",
        f"f32: {_FLOAT_TESTS}! {_LOGIC} ftz",
        f"f64: {_FLOAT_TESTS}! {_LOGIC}",
        f"{_HALVES}: {_FLOAT_TESTS}! {_LOGIC} ftz",
    ],
    "set": [
        f"{_TYPES_OF_SET}, {_BITS}: eq|ne! {_LOGIC}",
        f"{_TYPES_OF_SET}, s16 s32 s64: {_ORDERED}! {_LOGIC}",
        f"{_TYPES_OF_SET}, u16 u32 u64: {_ORDERED}|lo|ls|hi|hs! {_LOGIC}",
        f"{_TYPES_OF_SET}, f32: {_FLOAT_TESTS}! {_LOGIC} ftz",
        f"{_TYPES_OF_SET}, f64: {_FLOAT_TESTS}! {_LOGIC}",
        f"{_HALVES} u16 s16 u32 s32, {_HALVES}: {_FLOAT_TESTS}! {_LOGIC} ftz",
    ],
    "mov": [f"pred {_BITS} {_WORDS} f32 f64 b128:"],
    "cvta": ["u64: to global|shared|local|const!"],
    "activemask": ["b32:"],
    "shfl": ["b32: sync! up|down|bfly|idx!"],
    "vote": ["pred: sync! all|any|uni!", "b32: sync! ballot!"],
    "match": ["b32 b64: any|all! sync!"],
    "redux": ["u32 s32: sync! add|min|max!", "b32: sync! and|or|xor!"],
    "atom": [
        "u32 s32 u64 f32 f64: add!",
        "u32 s32 u64 s64: min|max!",
        "u32: inc|dec!",
        "b32 b64: and|or|xor|exch|cas!",
    ],
    "red": [
        "u32 s32 u64 f32 f64: add!",
        "u32 s32 u64 s64: min|max!",
        "u32: inc|dec!",
        "b32 b64: and|or|xor!",
    ],
}
_BY_OPCODE = {o: texts for opcodes, texts in _ALTERNATIVES.items() for o in opcodes.split()}
# Memory instructions are ordered more strictly than any of these asks for.
_OF_MEMORY = {
    *("global", "shared", "shared::cta", "relaxed", "acquire", "release", "acq_rel"),
    *("cta", "gpu", "sys", "cluster", "L2::cache_hint"),
}


def check(kernel: str, i: ptx.Instruction) -> None:
    """Raises Unsupported if an instruction has modifiers that nothing is made of."""
    modifiers = i.modifiers
    if i.opcode in ("atom", "red"):
        modifiers = tuple(m for m in modifiers if m not in _OF_MEMORY)
    elif i.opcode == "cvt":
        _check_conversion(kernel, i)
    if i.opcode in _BY_OPCODE and not _known(i.opcode, modifiers):
        raise Unsupported(i.name, kernel, i.file, i.line)


@functools.lru_cache(maxsize=4096)
def _known(opcode: str, modifiers: tuple[str, ...]) -> bool:
    return any(_fits(text, modifiers) for text in _BY_OPCODE[opcode])


def _fits(text: str, modifiers: tuple[str, ...]) -> bool:
    types, _, words = text.partition(":")
    lists = [t.split() for t in types.split(",")]
    split = len(modifiers) - len(lists)
    if split < 0 or any(m not in t for m, t in zip(modifiers[split:], lists, strict=True)):
        return False
    left = list(modifiers[:split])
    for word in words.split():
        given = [m for m in left if m in word.rstrip("!").split("|")]
        if len(given) > 1 or not given and word.endswith("!"):
            return False
        for m in given:
            left.remove(m)
    return not left


# -- cvt (9.7.9.21) ----------------------------------------

_TO_INTEGERS = {"rni", "rzi", "rmi", "rpi"}
_TO_FLOATS = {"rn", "rz", "rm", "rp"}


def _is_float(kind: str) -> bool:
    return kind.startswith(("f", "bf", "tf"))


def _check_conversion(kernel: str, i: ptx.Instruction) -> None:
    """A rounding where there must be one, and none where nothing is rounded; no modifier twice."""
    words = [*i.modifiers[:-2]]
    if "pack" in i.modifiers or len(i.modifiers) < 2:
        return
    to, source = i.modifiers[-2:]
    roundings = [w for w in words if w in _TO_INTEGERS | _TO_FLOATS | {"rna"}]
    if _is_float(to) and _is_float(source):
        narrower = ptx.SIZES.get(to, 2) < ptx.SIZES.get(source, 4) or to in ("f16x2", "bf16x2")
        if to == source:
            good = len(roundings) <= 1 and set(roundings) <= _TO_INTEGERS
        elif to == "tf32":
            good = len(roundings) == 1
        elif narrower or {to, source} == {"f16", "bf16"}:
            good = len(roundings) == 1 and set(roundings) <= _TO_FLOATS
        else:
            good = not roundings
    elif _is_float(to):
        good = len(roundings) == 1 and set(roundings) <= _TO_FLOATS
    elif _is_float(source):
        good = len(roundings) == 1 and set(roundings) <= _TO_INTEGERS
    else:
        good = not roundings and "b" not in (to[:1], source[:1]) and not set(words) - {"sat"}
    good = good and to in (*ptx.SIZES, "tf32") and source in ptx.SIZES
    if not good or len(set(words)) < len(words):
        raise Unsupported(i.name, kernel, i.file, i.line)
