"""Matrices spread over the lanes of a warp: ldmatrix, movmatrix, mma and wmma.

Where the elements of a fragment lie is a table (`Fragment`) made from the PTX ISA's figures
(9.7.14.5.1 to .13); what an instruction does follows from it. PTX leaves open how wmma spreads its
fragments (9.7.14.4.1): here they are those of mma, 16-bit operands twice or four times over.

Arithmetic. Products are exact. Floating point: d is c + a(0)b(0) + a(1)b(1) + ... in this order,
k ascending, each step one fma in FP32 (FP64 for .f64) rounded to nearest even; an .f16 result is
rounded once more at the end. A tensor core adds in an order and with alignment that NVIDIA does not
specify, so that both are within about (K + 1) 2^-23 (|c| + sum |a(k) b(k)|) of the exact value, not
equal. The low 13 bits of a .tf32 operand do not count. Integers: exact modulo 2^32, or with
.satfinite the exact sum clamped.

All lanes take part: these instructions are .aligned, and PTX leaves the rest open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from . import halves, jit, ptx
from .access import Access
from .emitter import Emitter, Lanes, vector
from .shapes import LANES

Key = tuple[int, int, int]  # (which of an instruction's products, row or column, column or k)
Place = tuple[int, int, int]  # register, element of the register, lane

_V, _F, _D, _H = vector("i32"), vector("float"), vector("double"), vector("i16")
_WORDS = vector("i64")
BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}

# -- fragments ----------------------------------------


@dataclass(frozen=True)
class Fragment:
    """where[key]: the place of an element; keys[register][element][lane]: what a place holds."""

    where: dict[Key, Place]
    keys: tuple[tuple[tuple[Key, ...], ...], ...]

    @property
    def registers(self) -> int:
        return len(self.keys)


def _fragment(places: dict[Key, Place]) -> Fragment:
    registers = 1 + max(r for r, _, _ in places.values())
    pack = 1 + max(e for _, e, _ in places.values())
    keys = [[[None] * LANES for _ in range(pack)] for _ in range(registers)]
    for key, (register, element, lane) in places.items():
        keys[register][element][lane] = key
    return Fragment(places, tuple(tuple(tuple(lanes) for lanes in r) for r in keys))


def _pack(kind: str) -> int:
    return max(1, 32 // BITS[kind])


def _operand_a(m: int, k: int, pack: int) -> Fragment:
    """Rows in blocks of 8, one for each group of 4 lanes, which hold `pack` of the row in turn."""
    blocks = k // (4 * pack)
    places = {}
    for row in range(m):
        for at in range(k):
            block, rest = divmod(at, 4 * pack)
            register = block if m == 8 else row // 16 * 2 * blocks + 2 * block + row // 8 % 2
            places[0, row, at] = register, rest % pack, row % 8 * 4 + rest // pack
    return _fragment(places)


def _operand_b(n: int, k: int, pack: int) -> Fragment:
    places = {}
    for column in range(n):
        for at in range(k):
            block, rest = divmod(at, 4 * pack)
            register = column // 8 * (k // (4 * pack)) + block
            places[0, column, at] = register, rest % pack, column % 8 * 4 + rest // pack
    return _fragment(places)


def _accumulator(m: int, n: int, pack: int) -> Fragment:
    places = {}
    for row in range(m):
        for column in range(n):
            at = column // 8 * (m // 4) + row // 8 * 2 + column % 2
            places[0, row, column] = at // pack, at % pack, row % 8 * 4 + column % 8 // 2
    return _fragment(places)


def _quad(lane: int) -> tuple[int, int]:
    """The product that a lane takes part in in mma.m8n8k4 with .f16, and its half of the lanes."""
    return lane % 16 // 4, 4 * (lane // 16)


def _quad_operand(contiguous: bool) -> Fragment:
    """Four products by eight lanes each (9.7.14.5.1). contiguous: A by rows, B by columns."""
    places = {}
    for lane in range(LANES):
        product, half = _quad(lane)
        for i in range(4):
            own, other = lane % 4, i
            key = (product, own + half, other) if contiguous else (product, other + half, own)
            places[key] = i // 2, i % 2, lane
    return _fragment(places)


def _quad_accumulator(kind: str) -> Fragment:
    places = {}
    for lane in range(LANES):
        product, half = _quad(lane)
        for i in range(8):
            if kind == "f16":
                row, column, place = lane % 4, i, (i // 2, i % 2, lane)
            else:
                row, column = (lane & 1) + (i & 2), (i & 4) + (lane & 2) + (i & 1)
                place = (i, 0, lane)
            places[product, row + half, column] = place
    return _fragment(places)


@cache
def fragment(role: str, shape: str, kind: str, layout: str = "") -> Fragment:
    """The fragment of matrix a, b or c (or d) of a shape such as m16n8k16."""
    m, rest = shape[1:].split("n")
    m, n, k = int(m), *map(int, rest.split("k"))
    if shape == "m8n8k4" and kind != "f64" and layout:
        if role in "ab":
            return _quad_operand(layout == {"a": "row", "b": "col"}[role])
        return _quad_accumulator(kind)
    pack = _pack(kind)
    if role == "a":
        return _operand_a(m, k, pack)
    return _operand_b(n, k, pack) if role == "b" else _accumulator(m, n, pack)


MMA = {
    "f16": ("m8n8k4", "m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4",),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
WMMA = {
    "f16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "bf16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
    "s8": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "s4": ("m8n8k32",),
    "b1": ("m8n8k128",),
}
for _table in (MMA, WMMA):
    _table["u8"], _table["u4"] = _table["s8"], _table["s4"]


# -- halves and floats ----------------------------------------


@cache
def _converts_halves() -> bool:
    """Whether the processor has instructions for it (LLVM would call functions otherwise)."""
    return jit.has("f16c")


def _from_half(e: Emitter, word: str, element: int) -> str:
    """One half of each word as <32 x float>."""
    if element:
        word = e.op(f"lshr {_V} {word}, splat (i32 16)")
    half = e.op(f"trunc {_V} {word} to {_H}")
    if not _converts_halves():
        e.wide = True
        return halves.widen(e, "f16", half)
    half = e.op(f"bitcast {_H} {half} to {vector('half')}")
    return e.op(f"fpext {vector('half')} {half} to {_F}")


def _to_half(e: Emitter, value: str) -> str:
    """Rounded to nearest even; the bits as <32 x i32>."""
    if _converts_halves():
        half = e.op(f"fptrunc {_F} {value} to {vector('half')}")
        half = e.op(f"bitcast {vector('half')} {half} to {_H}")
    else:
        e.wide = True
        half = halves.narrow(e, "f16", value)
    return e.op(f"zext {_H} {half} to {_V}")


def _elements(e: Emitter, register: str, kind: str) -> list[str]:
    """A register's elements as the type that is computed with: float, double or i32."""
    if kind == "f16":
        return [_from_half(e, register, k) for k in range(2)]
    if kind == "bf16":
        low = e.op(f"shl {_V} {register}, splat (i32 16)")
        high = e.op(f"and {_V} {register}, splat (i32 -65536)")
        return [e.op(f"bitcast {_V} {w} to {_F}") for w in (low, high)]
    if kind == "tf32":
        cut = e.op(f"and {_V} {register}, splat (i32 -8192)")
        return [e.op(f"bitcast {_V} {cut} to {_F}")]
    if kind == "f32":
        return [e.op(f"bitcast {_V} {register} to {_F}")]
    return [register]


# -- mma ----------------------------------------


class _Gather:
    """Takes elements of a fragment from wherever they are to the lanes that want them."""

    def __init__(self, e: Emitter, parts: Fragment, values: list[list[str]], ty: str):
        self.e, self.fragment, self.values, self.ty = e, parts, values, ty
        self._found: dict[tuple[Place, ...], str] = {}

    def __call__(self, keys) -> str:
        places = tuple(self.fragment.where[k] for k in keys)
        if places not in self._found:
            self._found[places] = self._shuffle(places)
        return self._found[places]

    def _shuffle(self, places: tuple[Place, ...]) -> str:
        """One shuffle for the first register that lanes read from, one more for each further."""
        result = None
        for source in dict.fromkeys(p[:2] for p in places):
            value = self.values[source[0]][source[1]]
            mine = [p[:2] == source for p in places]
            if result is None:
                if all(mine) and [p[2] for p in places] == list(range(LANES)):
                    return value
                index = [str(p[2]) if m else "poison" for p, m in zip(places, mine, strict=True)]
                first, second = value, "poison"
            else:
                index = [
                    str(LANES + p[2] if m else lane)
                    for lane, (p, m) in enumerate(zip(places, mine, strict=True))
                ]
                first, second = result, value
            result = self.e.op(
                f"shufflevector {self.ty} {first}, {self.ty} {second}, "
                f"{_V} {self.e.pattern_constant('i32', index)}"
            )
        return result


@dataclass(frozen=True)
class Product:
    """An mma or wmma.mma: its shape, element types and what its modifiers ask for."""

    name: str
    shape: str
    layouts: tuple[str, str]  # of a and b; empty for wmma
    d: str
    a: str
    b: str
    c: str
    bit_operation: str = ""
    saturate: bool = False

    def fragment(self, role: str) -> Fragment:
        layout = {"a": 0, "b": 1}.get(role, 0)
        return fragment(
            "c" if role == "d" else role, self.shape, getattr(self, role), self.layouts[layout]
        )

    @property
    def k(self) -> int:
        return int(self.shape.split("k")[1])


def parse(e: Emitter, i: ptx.Instruction) -> Product:
    """Reads the modifiers of an mma.sync (9.7.14.5.14) or wmma.mma (9.7.14.4.5)."""
    words = list(i.modifiers)
    is_wmma = i.opcode == "wmma"
    if is_wmma and words[0] == "mma":
        words.pop(0)
    if words[-1] == "rn":  # of .f64
        words.pop()
    bit_operation = next((w for w in words if w in ("xor", "and")), "")
    saturate = "satfinite" in words
    words = [w for w in words if w not in ("sync", "aligned", "satfinite", "popc", bit_operation)]
    shape = next((w for w in words if w[0] == "m" and w[1:2].isdigit()), "")
    layouts = tuple(w for w in words if w in ("row", "col"))
    kinds = [w for w in words if w in BITS]
    if len(kinds) == 2 and is_wmma:  # d and c of 16-bit operands
        kinds = [kinds[0], "f16", "f16", kinds[1]]
    if len(words) != 3 + len(words[3:]) or len(layouts) != 2 or len(kinds) != 4:
        raise e.unsupported()
    d, a, b, c = kinds
    if len(words) not in (5, 7) or shape not in (WMMA if is_wmma else MMA).get(a, ()):
        raise e.unsupported()
    if not is_wmma and (a, shape) != ("f16", "m8n8k4") and layouts != ("row", "col"):
        raise e.unsupported()
    if {d, c} not in _RESULTS[a] or (a != b and {a, b} not in _MIXED):
        raise e.unsupported()
    if is_wmma:
        layouts = ("", "")
    if bool(bit_operation) != (a == "b1") or saturate and d != "s32":
        raise e.unsupported()
    return Product(i.name, shape, layouts, d, a, b, c, bit_operation, saturate)


_MIXED = ({"s8", "u8"}, {"s4", "u4"})
_RESULTS = {
    "f16": ({"f16"}, {"f32"}, {"f16", "f32"}),
    "bf16": ({"f32"},),
    "tf32": ({"f32"},),
    "f64": ({"f64"},),
} | dict.fromkeys(("s8", "u8", "s4", "u4", "b1"), ({"s32"},))


def _type(kind: str) -> str:
    """What a register of a fragment is passed as."""
    return _D if kind == "f64" else _V


def _product(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    p = parse(e, i)
    operands = []
    for role, operand in zip("abc", i.operands[1:4], strict=True):
        kind = getattr(p, role)
        registers = operand.elements if isinstance(operand, ptx.Vector) else (operand,)
        needed = p.fragment(role).registers  # wmma's repeat themselves beyond these
        if len(registers) < needed or not (i.opcode == "wmma" or len(registers) == needed):
            raise e.unsupported(i.text)
        of = "f64" if kind == "f64" else "b32"
        operands += [f"{_type(kind)} {e.spread(e.lanes(r, of))}" for r in registers[:needed]]
    count, ty = p.fragment("d").registers, _type(p.d)
    if len(_registers(i.operands[0])) != count:
        raise e.unsupported(i.text)
    result = f"[{count} x {ty}]"
    name = f"@{p.name}"
    names = [
        f"{_type(getattr(p, role))} %{role}{r}"
        for role in "abc"
        for r in range(p.fragment(role).registers)
    ]
    e.function(name, f"{result} {name}({', '.join(names)}) noinline", lambda: _body(e, p, result))
    out = e.op(f"call {result} {name}({', '.join(operands)})")
    scalar = "double" if p.d == "f64" else "i32"
    return [
        (target.name, Lanes(scalar, e.op(f"extractvalue {result} {out}, {r}"), None))
        for r, target in enumerate(_registers(i.operands[0]))
    ]


def _body(e: Emitter, p: Product, result: str) -> None:
    compute = _whole_numbers if p.d == "s32" else _floating
    parts = {role: p.fragment(role) for role in "abcd"}
    registers = compute(e, p, parts)
    value, ty = "poison", _type(p.d)
    for r, register in enumerate(registers):
        value = e.op(f"insertvalue {result} {value}, {ty} {register}, {r}")
    e.line(f"ret {result} {value}")


def _floating(e: Emitter, p: Product, parts: dict[str, Fragment]) -> list[str]:
    ty, short = (_D, "f64") if p.d == "f64" else (_F, "f32")
    fma = f"@llvm.fma.v{LANES}{short}"
    e.declarations.add(f"declare {ty} {fma}({ty}, {ty}, {ty})")
    a, b, c = (
        _Gather(
            e,
            parts[role],
            [_elements(e, f"%{role}{r}", getattr(p, role)) for r in range(parts[role].registers)],
            ty,
        )
        for role in "abc"
    )
    wanted = [lanes for register in parts["d"].keys for lanes in register]
    sums = [c(lanes) for lanes in wanted]
    for k in range(p.k):
        for n, lanes in enumerate(wanted):
            x, y = a([(q, row, k) for q, row, _ in lanes]), b([(q, col, k) for q, _, col in lanes])
            sums[n] = e.op(f"call {ty} {fma}({ty} {x}, {ty} {y}, {ty} {sums[n]})")
    if p.d == "f64":
        return sums
    if p.d == "f32":
        return [e.op(f"bitcast {_F} {s} to {_V}") for s in sums]
    rounded = [_to_half(e, s) for s in sums]
    return [
        e.op(f"or {_V} {low}, {e.op(f'shl {_V} {high}, splat (i32 16)')}")
        for low, high in zip(rounded[::2], rounded[1::2], strict=True)
    ]


def _whole_numbers(e: Emitter, p: Product, parts: dict[str, Fragment]) -> list[str]:
    """A word of each operand at a time: dot products of 4, 8 or 32 elements."""
    dot = _popcount if p.a == "b1" else _dot
    pieces = {}
    for role in "ab":
        split = [_split(e, f"%{role}{r}", getattr(p, role)) for r in range(parts[role].registers)]
        pieces[role] = [
            _Gather(e, parts[role], [[s[n]] * _pack(p.a) for s in split], _V)
            for n in range(len(split[0]))
        ]
    results = []
    for r, (lanes,) in enumerate(parts["d"].keys):
        total = "zeroinitializer" if p.saturate else f"%c{r}"
        for k in range(0, p.k, _pack(p.a)):
            xs = [g([(q, row, k) for q, row, _ in lanes]) for g in pieces["a"]]
            ys = [g([(q, col, k) for q, _, col in lanes]) for g in pieces["b"]]
            for x, y in zip(xs, ys, strict=True):
                total = e.op(f"add {_V} {total}, {dot(e, p, x, y)}")
        if p.saturate:
            name = f"@llvm.sadd.sat.v{LANES}i32"
            e.declarations.add(f"declare {_V} {name}({_V}, {_V})")
            total = e.op(f"call {_V} {name}({_V} %c{r}, {_V} {total})")
        results.append(total)
    return results


def _split(e: Emitter, register: str, kind: str) -> list[str]:
    """A word of 8- or 4-bit elements as words of two 16-bit ones; bits stay as they are."""
    n = BITS[kind]
    if n == 1:
        return [register]
    t = vector("i16", 2 * LANES)
    halves = e.op(f"bitcast {_V} {register} to {t}")
    out = []
    for k in range(16 // n):
        up = e.op(f"shl {t} {halves}, splat (i16 {16 - n - k * n})")
        down = e.op(f"{'ashr' if kind[0] == 's' else 'lshr'} {t} {up}, splat (i16 {16 - n})")
        out.append(e.op(f"bitcast {t} {down} to {_V}"))
    return out


def _dot(e: Emitter, p: Product, x: str, y: str) -> str:
    """The sum of the two products of the 16-bit halves (one instruction on x86)."""
    t16, t32 = vector("i16", 2 * LANES), vector("i32", 2 * LANES)
    x, y = (e.op(f"sext {t16} {e.op(f'bitcast {_V} {v} to {t16}')} to {t32}") for v in (x, y))
    product = e.op(f"mul nsw {t32} {x}, {y}")
    pair = [
        e.op(
            f"shufflevector {t32} {product}, {t32} poison, "
            f"{_V} {e.pattern_constant('i32', range(odd, 2 * LANES, 2))}"
        )
        for odd in (0, 1)
    ]
    return e.op(f"add {_V} {pair[0]}, {pair[1]}")


def _popcount(e: Emitter, p: Product, x: str, y: str) -> str:
    name = f"@llvm.ctpop.v{LANES}i32"
    e.declarations.add(f"declare {_V} {name}({_V})")
    return e.op(f"call {_V} {name}({_V} {e.op(f'{p.bit_operation} {_V} {x}, {y}')})")


# -- ldmatrix, movmatrix (9.7.14.5.15, .17) ----------------------------------------


def _space(i: ptx.Instruction) -> str:
    return next((m.split("::")[0] for m in i.modifiers if m[:6] in ("shared", "global")), "generic")


def _as(e: Emitter, i: ptx.Instruction, opcode: str) -> int:
    """The number of an instruction that faults are told of: a plain ld or st in i's place."""
    space = _space(i)
    e.layout.sources.append(
        replace(i, opcode=opcode, modifiers=() if space == "generic" else (space,))
    )
    return len(e.layout.sources) - 1


def _load_matrices(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """ldmatrix .m8n8.x1/.x2/.x4 {.trans}: lane l gives the address of row l % 8 of matrix l / 8.

    The address of every row is checked, whether or not its lane is active.
    """
    words = {m.split("::")[0] for m in i.modifiers} - {"sync", "aligned", "trans"}
    count = next((n for n in (1, 2, 4) if f"x{n}" in words), 0)
    if words - {"shared"} != {"m8n8", f"x{count}", "b16"}:
        raise e.unsupported()
    if len(_registers(i.operands[0])) != count:
        raise e.unsupported(i.text)
    access = Access(_space(i), "b128", 1, i.operands[1])
    address, offset = e.memory.address(access), access.address.offset
    outer, e.mask = e.mask, str((1 << 8 * count) - 1) if count < 4 else "-1"
    e.memory.checks.emit(access, address, offset, offset + 16, 16, [(offset, _as(e, i, "ld"))])
    e.memory.observed(access, address, i)
    e.mask = outer
    results = []
    for matrix, target in enumerate(_registers(i.operands[0])):
        rows = []
        for lane in range(8 * matrix, 8 * matrix + 8):
            if address.pattern is None:
                at, more = e.op(f"extractelement {_WORDS} {address.ssa}, i32 {lane}"), offset
            else:
                at, more = address.ssa, offset + address.pattern[lane]
            p = e.memory.pointer(access, at, more)
            rows.append(e.op(f"load <4 x i32>, ptr {p}, align 16"))
        whole = _concatenate(e, rows, "i32", 4)
        if "trans" in i.modifiers:
            whole = _transpose(e, whole)
        results.append((target.name, Lanes("i32", whole, None)))
    return results


def _concatenate(e: Emitter, parts: list[str], ty: str, n: int) -> str:
    """Equal vectors one after the other (a power of two of them)."""
    while len(parts) > 1:
        index = e.pattern_constant("i32", range(2 * n))
        parts = [
            e.op(
                f"shufflevector {vector(ty, n)} {x}, {vector(ty, n)} {y}, "
                f"{vector('i32', 2 * n)} {index}"
            )
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        n *= 2
    return parts[0]


def _transpose(e: Emitter, matrix: str) -> str:
    """An 8x8 matrix of 16-bit elements, two in each lane, rows becoming columns."""
    t = vector("i16", 2 * LANES)
    halves = e.op(f"bitcast {_V} {matrix} to {t}")
    index = e.pattern_constant("i32", [at % 8 * 8 + at // 8 for at in range(2 * LANES)])
    turned = e.op(f"shufflevector {t} {halves}, {t} poison, {vector('i32', 64)} {index}")
    return e.op(f"bitcast {t} {turned} to {_V}")


def _move_matrix(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    if set(i.modifiers) != {"sync", "aligned", "m8n8", "trans", "b16"}:
        raise e.unsupported()
    value = e.spread(e.lanes(i.operands[1], "b32"))
    return [(i.operands[0].name, Lanes("i32", _transpose(e, value), None))]


# -- wmma.load, wmma.store (9.7.14.4.3, .4) ----------------------------------------


@dataclass
class _Tile:
    """A wmma fragment's matrix in memory: rows `step` bytes apart, base a scalar address."""

    access: Access
    parts: Fragment
    kind: str
    along: int  # which of a key's coordinates is contiguous in memory: 1 or 2
    base: str
    step: str
    number: int

    @property
    def whole_registers(self) -> bool:
        """Whether the elements of a register are neighbours in memory."""
        return _pack(self.kind) == 1 or self.along == 2

    @property
    def size(self) -> int:
        """Bytes of one access."""
        return max(4, BITS[self.kind] // 8) if self.whole_registers else BITS[self.kind] // 8


def _tile(e: Emitter, i: ptx.Instruction) -> _Tile:
    store = i.modifiers[0] == "store"
    words = [m.split("::")[0] for m in i.modifiers[1:]]
    role, shape = words[0], next((w for w in words if w[0] == "m" and w[1:2].isdigit()), "")
    layout = next((w for w in words if w in ("row", "col")), "")
    kind = words[-1]
    rest = set(words[1:-1]) - {"sync", "aligned", shape, layout, "global", "shared"}
    sums = role in "cd"
    known = any(
        shape in shapes and ({kind} in _RESULTS[a] if sums else kind == a)
        for a, shapes in WMMA.items()
    )
    if rest or not layout or not known or (role == "d") != store:
        raise e.unsupported()
    parts = fragment("c" if sums else role, shape, kind)
    access = Access(_space(i), "b32", 1, i.operands[0 if store else 1])
    along = 2 if (layout == "row") == (role != "b") else 1
    columns = 1 + max(key[along] for key in parts.where)
    base = _first(e, e.memory.address(access))
    if access.address.offset:
        base = e.op(f"add i64 {base}, {access.address.offset}")
    if len(i.operands) > 2:
        step = _first(e, e.lanes(i.operands[2], "u32"))
        step = e.op(f"zext i32 {step} to i64")
    else:
        step = str(columns)
    bits = BITS[kind]
    step = e.op(f"mul i64 {step}, {bits // 8}" if bits >= 8 else f"udiv i64 {step}, {8 // bits}")
    tile = _Tile(access, parts, kind, along, base, step, _as(e, i, "st" if store else "ld"))
    _check_tile(e, tile, columns)
    return tile


def _first(e: Emitter, value: Lanes) -> str:
    """The value of the first active lane; all lanes must have the same."""
    if value.uniform:
        return value.ssa
    lane = e.op(f"call i32 @llvm.cttz.i32(i32 {e.mask}, i1 false)")
    lane = e.op(f"and i32 {lane}, 31")
    return e.op(f"extractelement {vector(value.ty)} {e.spread(value)}, i32 {lane}")


def _check_tile(e: Emitter, tile: _Tile, columns: int) -> None:
    """From the first to the last byte in one allocation, or else every access looked at."""
    rows = 1 + max(key[3 - tile.along] for key in tile.parts.where)
    span = e.op(f"mul i64 {tile.step}, {rows - 1}")
    span = e.op(f"add i64 {span}, {columns * BITS[tile.kind] // 8}")
    start, nbytes, _ = e.memory.checks.allocation(tile.access)
    offset = e.op(f"sub i64 {tile.base}, {start}")
    inside = e.op(f"icmp ule i64 {offset}, {nbytes}")
    room = e.op(f"sub i64 {nbytes}, {offset}")
    fits = e.op(f"icmp ule i64 {span}, {room}")
    odd = e.op(f"and i64 {e.op(f'or i64 {tile.base}, {tile.step}')}, {tile.size - 1}")
    good = e.op(f"and i1 {inside}, {fits}")
    good = e.op(f"and i1 {good}, {e.op(f'icmp eq i64 {odd}, 0')}")
    slow, after = e.fresh("slow")[1:], e.fresh("checked")[1:]
    e.line(f"br i1 {good}, label %{after}, label %{slow}, !prof !0")
    e.label(slow)
    outer, e.mask = e.mask, "-1"
    for register, element in _accesses(tile):
        e.memory.checks.lanes(
            tile.access, _addresses(e, tile, register, element), tile.size, tile.number
        )
    e.mask = outer
    e.line(f"br label %{after}")
    e.label(after)


def _accesses(tile: _Tile) -> list[tuple[int, int]]:
    """(register, first element) of each access."""
    elements = 1 if tile.whole_registers else _pack(tile.kind)
    return [(r, k) for r in range(tile.parts.registers) for k in range(elements)]


def _addresses(e: Emitter, tile: _Tile, register: int, element: int) -> str:
    """Where each lane's element is, as <32 x i64>."""
    keys = tile.parts.keys[register][element]
    rows = e.pattern_constant("i64", [key[3 - tile.along] for key in keys])
    within = [key[tile.along] * BITS[tile.kind] // 8 for key in keys]
    at = e.op(f"mul {_WORDS} {e.splat('i64', tile.step)}, {rows}")
    at = e.op(f"add {_WORDS} {at}, {e.pattern_constant('i64', within)}")
    return e.op(f"add {_WORDS} {at}, {e.splat('i64', tile.base)}")


def _wmma_load(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    tile = _tile(e, i)
    targets = _registers(i.operands[0])
    if len(targets) % tile.parts.registers:
        raise e.unsupported(i.text)
    _observe(e, tile, "read", i)
    registers = [_load_register(e, tile, r) for r in range(tile.parts.registers)]
    scalar = "i64" if tile.size == 8 else "i32"
    return [
        (target.name, Lanes(scalar, registers[r % len(registers)], None))
        for r, target in enumerate(targets)
    ]


def _load_register(e: Emitter, tile: _Tile, register: int) -> str:
    """As eight 16-byte pieces of the matrix's lines, if the fragment allows, or by a gather."""
    row, byte = 3 - tile.along, tile.along
    places = [
        [(key[row], key[byte] * BITS[tile.kind] // 8) for key in lanes]
        for lanes in tile.parts.keys[register]
    ]
    row, byte = places[0][0]
    if places[0] == [(row + q, byte + 4 * w) for q in range(8) for w in range(4)]:
        if tile.whole_registers and tile.size == 4:
            return _eight_lines(e, tile, row, byte)
    columns = [
        [(row + 2 * w + half, byte + 2 * q) for q in range(8) for w in range(4)]
        for half in range(len(places))
    ]
    if tile.size == 2 and places == columns:
        return _transpose(e, _eight_lines(e, tile, row, byte))
    return _gather_register(e, tile, register)


def _eight_lines(e: Emitter, tile: _Tile, row: int, byte: int) -> str:
    lines = []
    for q in range(row, row + 8):
        at = e.op(f"add i64 {tile.base}, {e.op(f'mul i64 {tile.step}, {q}')}") if q else tile.base
        p = e.memory.pointer(tile.access, at, byte)
        lines.append(e.op(f"load <4 x i32>, ptr {p}, align {tile.size}"))
    return _concatenate(e, lines, "i32", 4)


def _gather_register(e: Emitter, tile: _Tile, register: int) -> str:
    ty = f"i{8 * tile.size}"
    v, pointers = vector(ty), vector("ptr")
    name = f"@llvm.masked.gather.v{LANES}{ty}.v{LANES}p0"
    e.declarations.add(f"declare {v} {name}({pointers}, i32, {vector('i1')}, {v})")
    result = None
    for element in range(1 if tile.whole_registers else _pack(tile.kind)):
        at = Lanes("i64", _addresses(e, tile, register, element), None)
        value = e.op(
            f"call {v} {name}({pointers} {e.memory.pointers(tile.access, at, 0)}, "
            f"i32 {tile.size}, {vector('i1')} splat (i1 true), {v} zeroinitializer)"
        )
        if tile.size < 4:
            value = e.op(f"zext {v} {value} to {_V}")
            value = e.op(f"shl {_V} {value}, splat (i32 {element * BITS[tile.kind]})")
        result = value if result is None else e.op(f"or {_V} {result}, {value}")
    return result


def _wmma_store(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    tile = _tile(e, i)
    ty = f"i{8 * tile.size}"
    v, pointers = vector(ty), vector("ptr")
    name = f"@llvm.masked.scatter.v{LANES}{ty}.v{LANES}p0"
    e.declarations.add(f"declare void {name}({v}, {pointers}, i32, {vector('i1')})")
    sources = _registers(i.operands[1])
    if len(sources) != tile.parts.registers:
        raise e.unsupported(i.text)
    _observe(e, tile, "copy", i)
    for register, element in _accesses(tile):
        value = e.spread(e.lanes(sources[register], "b64" if tile.size == 8 else "b32"))
        if tile.size < 4:
            value = e.op(f"lshr {_V} {value}, splat (i32 {element * BITS[tile.kind]})")
            value = e.op(f"trunc {_V} {value} to {v}")
        at = e.memory.pointers(
            tile.access, Lanes("i64", _addresses(e, tile, register, element), None), 0
        )
        e.line(
            f"call void {name}({v} {value}, {pointers} {at}, i32 {tile.size}, "
            f"{vector('i1')} splat (i1 true))"
        )
    return []


def _observe(e: Emitter, tile: _Tile, operation: str, i: ptx.Instruction) -> None:
    """Tells the sanitizer of each lane's accesses."""
    if e.sanitizing:
        for register, element in _accesses(tile):
            at = _addresses(e, tile, register, element)
            e.sanitizing.piece(operation, tile.access.space, tile.size, at, e.id_of(i))


def _registers(operand) -> tuple:
    return operand.elements if isinstance(operand, ptx.Vector) else (operand,)


def _wmma(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    if i.modifiers[0] in ("load", "store"):
        return (_wmma_load if i.modifiers[0] == "load" else _wmma_store)(e, i)
    return _product(e, i)


Row = Callable[[Emitter, ptx.Instruction], list[tuple[str, Lanes]]]

TABLE: dict[str, Row] = {
    "ldmatrix": _load_matrices,
    "movmatrix": _move_matrix,
    "mma": _product,
    "wmma": _wmma,
}
