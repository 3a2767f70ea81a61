"""How each register's value varies over the 32 lanes of a warp, found before code is made.

A register whose value in lane l is `base + pattern[l]`, with one base for the warp and a pattern
known now, is kept as the scalar base: uniform if the pattern is all zero, affine otherwise.
Everything else is varying and kept as a vector of 32. The lattice is
undefined < (one pattern) < varying; the solution is the least fixed point over all definitions
of a register.

All arithmetic on patterns is exact modulo 2^bits, as PTX integer arithmetic is. Only a widening
conversion could break it, where the narrow sum wraps in some lane but not in others. So a widened
value is kept affine only if it goes into an address, and the code made for it checks (see
codegen): an address whose index wraps between two lanes would be gigabytes away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import ptx
from .flow import Graph, destinations, registers_in, sources
from .scopes import Structure

LANES = 32
ZERO = (0,) * LANES
LARGEST_STEP = 1 << 24  # patterns beyond this come from hashing, not from indexing


@dataclass(frozen=True)
class Shape:
    """What is known of a register's 32 values.

    pattern None: varying. zeros: trailing bits of the base known to be 0. value: the base, if it
    is known. below: all lanes, active or not, are in [0, below), which is at most the largest
    signed number of the register's width, plus one.
    """

    pattern: tuple[int, ...] | None
    zeros: int = 0
    value: int | None = None
    below: int | None = None

    @property
    def uniform(self) -> bool:
        return self.pattern == ZERO

    @property
    def affine(self) -> bool:
        return self.pattern is not None and self.pattern != ZERO

    @property
    def varying(self) -> bool:
        return self.pattern is None

    @property
    def disjoint(self) -> bool:
        """Base and pattern have no bits in common, so that their sum is their bitwise or."""
        return (
            self.pattern is not None
            and 0 <= min(self.pattern)
            and (max(self.pattern) < 1 << self.zeros)
        )


VARYING = Shape(None)
UNIFORM = Shape(ZERO)


def constant(value: int) -> Shape:
    zeros = 64 if value == 0 else (value & -value).bit_length() - 1
    return Shape(ZERO, zeros, value, value + 1 if 0 <= value < 1 << 31 else None)


def join(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None:
        return b if a is None else a
    if a == b:
        return a
    below = a.below if a.below == b.below else None  # not the larger: loops would count up
    if a.pattern != b.pattern or a.varying:
        return Shape(None, below=below)
    value = a.value if a.value == b.value else None
    return Shape(a.pattern, min(a.zeros, b.zeros), value, below)


class Geometry:
    """A block's shape and the thread indices of its warps' lanes."""

    def __init__(self, block: tuple[int, int, int]):
        self.block = block
        x, y, z = block
        self.threads = x * y * z
        self.warps = -(-self.threads // LANES)
        linear = np.arange(self.warps * LANES).reshape(self.warps, LANES)
        self.index = {"x": linear % x, "y": linear // x % y, "z": linear // (x * y)}

    @property
    def whole_warps(self) -> bool:
        return self.threads % LANES == 0

    def shape(self, axis: str) -> Shape:
        table = self.index[axis]
        steps = table - table[:, :1]
        below = int(table.max()) + 1
        if (steps != steps[0]).any():
            return Shape(None, below=below)
        bases = [int(b) for b in table[:, 0]]
        return Shape(
            tuple(int(s) for s in steps[0]),
            min(constant(b).zeros for b in bases),
            bases[0] if len(set(bases)) == 1 else None,
            below,
        )


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def width(kind: str) -> int:
    """Bits of a PTX type."""
    return ptx.SIZES[kind] * 8


def is_integer(kind: str) -> bool:
    return kind[0] in "usb" and not kind.startswith("bf")


def _with_pattern(
    steps, bits: int, zeros: int, value: int | None = None, below: int | None = None
) -> Shape:
    if below is not None and below > 1 << (bits - 1):
        below = None
    pattern = tuple(signed(s, bits) for s in steps)
    if max(map(abs, pattern)) >= LARGEST_STEP:
        return Shape(None, below=below)
    if value is not None:
        value &= (1 << bits) - 1
        zeros = constant(value).zeros
    return Shape(pattern, min(zeros, 64), value, below)


def _varying(bits: int, below: int | None) -> Shape:
    return Shape(None, below=below if below is None or below <= 1 << (bits - 1) else None)


def add(a: Shape, b: Shape, bits: int, sign: int = 1) -> Shape:
    known = a.below is not None and b.below is not None and sign == 1
    below = a.below + b.below - 1 if known else None
    if a.varying or b.varying:
        return _varying(bits, below)
    value = None if a.value is None or b.value is None else a.value + sign * b.value
    steps = [p + sign * q for p, q in zip(a.pattern, b.pattern, strict=True)]
    return _with_pattern(steps, bits, min(a.zeros, b.zeros), value, below)


def multiply(a: Shape, b: Shape, bits: int) -> Shape:
    if b.value is None or not b.uniform:
        a, b = b, a
    known = a.below is not None and b.below is not None
    below = (a.below - 1) * (b.below - 1) + 1 if known else None
    if a.varying or b.varying:
        return _varying(bits, below)
    if a.uniform and b.uniform and (a.value is None or b.value is None):
        return _with_pattern(ZERO, bits, a.zeros + b.zeros, None, below)
    if not b.uniform or b.value is None:
        return _varying(bits, below)
    factor = signed(b.value, bits)
    value = None if a.value is None else a.value * factor
    return _with_pattern([p * factor for p in a.pattern], bits, a.zeros + b.zeros, value, below)


def bit_and(a: Shape, b: Shape, bits: int) -> Shape:
    if b.value is None:
        a, b = b, a
    if b.value is None or not b.uniform:
        return default(a, b)
    mask = b.value & (1 << bits) - 1
    limits = [n for n in (a.below, mask + 1) if n is not None]
    if not a.disjoint:
        return _varying(bits, min(limits)) if a.varying else default(a, b)
    steps = [p & mask for p in a.pattern]
    if mask < 1 << min(a.zeros, bits):  # nothing of the base is left
        return _with_pattern(steps, bits, 64, 0, min(limits))
    value = None if a.value is None else a.value & mask
    return _with_pattern(steps, bits, a.zeros, value, min(limits))


def bit_or(a: Shape, b: Shape, bits: int) -> Shape:
    if not a.uniform:
        a, b = b, a
    if a.uniform and b.disjoint and max(b.pattern) < 1 << a.zeros:
        value = None if a.value is None or b.value is None else a.value | b.value
        return _with_pattern(b.pattern, bits, min(a.zeros, b.zeros), value)
    return default(a, b)


def shift_right(a: Shape, b: Shape, bits: int) -> Shape:
    if b.value is None or not b.uniform or not 0 <= b.value < bits:
        return default(a, b)
    below = None if a.below is None else ((a.below - 1) >> b.value) + 1
    if below == 1:
        return constant(0)  # such as the sign of what is not negative
    if not a.disjoint:
        return _varying(bits, below) if a.varying else default(a, b)
    steps = [p >> b.value for p in a.pattern]
    if a.affine and a.zeros >= bits:  # base 0: the pattern alone, which is not negative
        return _with_pattern(steps, bits, 64, 0, below)
    return _with_pattern(steps, bits, max(0, a.zeros - b.value), None, below)


def shift_left(a: Shape, b: Shape, bits: int) -> Shape:
    if b.value is None or not b.uniform or not 0 <= b.value < bits:
        return default(a, b)
    return multiply(a, Shape(ZERO, b.value, 1 << b.value, (1 << b.value) + 1), bits)


def default(*shapes: Shape) -> Shape:
    return UNIFORM if all(s.uniform for s in shapes) else VARYING


def is_widening(i: ptx.Instruction) -> bool:
    """Whether an instruction makes a wider integer out of a narrower one."""
    if i.opcode in ("mul", "mad"):
        return "wide" in i.modifiers
    if i.opcode != "cvt" or len(i.modifiers) < 2:
        return False
    to, source = i.modifiers[-2:]
    return (
        to in ptx.SIZES
        and source in ptx.SIZES
        and is_integer(to)
        and is_integer(source)
        and width(to) > width(source)
    )


_ADDRESS_ARITHMETIC = {"mov", "add", "sub", "mul", "mad", "shl", "cvt", "cvta", "neg", "or"}


def _registers_for_addresses(graph: Graph) -> set[str]:
    """Registers that addresses are computed from."""
    found: set[str] = set()
    steps = []
    for block in graph.blocks:
        for i in block.instructions:
            for o in i.operands:
                if isinstance(o, ptx.Address):
                    found.update(registers_in(o))
            if i.opcode in _ADDRESS_ARITHMETIC:
                steps.append((destinations(i), sources(i)))
    before = -1
    while before != len(found):
        before = len(found)
        for to, of in reversed(steps):
            if not found.isdisjoint(to):
                found.update(of)
    return found


def _registers_that_sink(graph: Graph) -> set[str]:
    """Registers with something subtracted: as unsigned numbers they may wrap below zero.

    `if (t >= 5u) s += a[t - 5u]` is the pattern; the compiler widens t - 5u before the guard.
    """
    found: set[str] = set()
    steps = []
    for block in graph.blocks:
        for i in block.instructions:
            below = [o for o in i.operands if isinstance(o, ptx.Immediate) and o.kind == "int"]
            if i.opcode in ("sub", "neg", "not") or (
                i.opcode in _ADDRESS_ARITHMETIC and any(o.value < 0 for o in below)
            ):
                found.update(destinations(i))
            elif i.opcode in _ADDRESS_ARITHMETIC:
                steps.append((destinations(i), sources(i)))
    before = -1
    while before != len(found):
        before = len(found)
        for to, of in steps:
            if not found.isdisjoint(of):
                found.update(to)
    return found


# Opcodes whose result is the same in all lanes whatever the address or the lanes' values.
_ALWAYS_UNIFORM = {"activemask", "bar", "barrier"}
_ALWAYS_VARYING = {"atom", "match", "ldmatrix", "movmatrix", "mma", "wmma", "mbarrier"}
# Pure and cheap: may be computed once at the top instead of where they stand.
_CHEAP = {
    "mov",
    "add",
    "sub",
    "mul",
    "mad",
    "shl",
    "shr",
    "and",
    "or",
    "xor",
    "not",
    "cvt",
    "cvta",
    "neg",
    "setp",
    "selp",
    "min",
    "max",
    "fma",
    "abs",
}


def is_broadcast(i: ptx.Instruction, lane: Shape, segment: Shape) -> bool:
    """Whether a shfl gives all lanes of the warp the value of one (PTX ISA 9.7.9.6)."""
    return "idx" in i.modifiers and lane.uniform and segment.uniform and segment.value == 31


class Shapes:
    """The shape of every register of a kernel for one block geometry, and what follows from it.

    shape[r]; structure: scopes with the divergent branches known; blended[b]: registers that
    definitions in block b must blend (a bit set); invariant: registers computed once at the top.
    """

    def __init__(self, graph: Graph, geometry: Geometry, local: dict[str, tuple[int, int]]):
        """local: offset and bytes a lane of each local variable."""
        self.graph, self.geometry, self._local = graph, geometry, local
        self.shape: dict[str, Shape] = {}
        self._addressing = _registers_for_addresses(graph)
        self._sinking = _registers_that_sink(graph)
        self._special = {f"%tid.{a}": geometry.shape(a) for a in "xyz"}
        self._special |= {
            f"%ntid.{a}": constant(n) for a, n in zip("xyz", geometry.block, strict=True)
        }
        self._special["%laneid"] = Shape(tuple(range(LANES)), 64, 0, LANES)
        self._special |= {f"%ctaid.{a}": Shape(ZERO, below=1 << 31) for a in "xyz"}
        divergent: set[int] = set()
        while True:
            self.structure = Structure(graph, divergent)
            self._solve()
            found = {
                b.index
                for b in graph.blocks
                if b.end.guard and self.of_register(b.end.guard).varying
            }
            if found <= divergent:
                break
            divergent |= found
        self.invariant = self._invariants()

    def of_register(self, name: str) -> Shape:
        return self.shape.get(name) or UNIFORM

    def of(self, operand) -> Shape | None:
        """The shape of an operand; None while a register has no definition yet."""
        if isinstance(operand, ptx.Register):
            return self.shape.get(operand.name)
        if isinstance(operand, ptx.Immediate):
            return constant(operand.value) if operand.kind == "int" else UNIFORM
        if isinstance(operand, ptx.Special):
            if operand.name.startswith("%lanemask"):
                return VARYING
            return self._special.get(operand.name, UNIFORM)
        if isinstance(operand, ptx.Address):
            return self.of(operand.base)
        if isinstance(operand, (ptx.Vector, tuple)):
            parts = operand.elements if isinstance(operand, ptx.Vector) else operand
            shapes = [self.of(p) for p in parts if not isinstance(p, str)]
            return None if None in shapes else default(*shapes)
        if isinstance(operand, ptx.Symbol) and operand.name in self._local:
            _, stride = self._local[operand.name]
            return Shape(tuple(lane * stride for lane in range(LANES)))
        return UNIFORM

    def may_wrap(self, operand) -> bool:
        """Whether base + pattern could leave the range of the operand's type in some lane."""
        shape = self.of(operand)
        return shape.affine and shape.below is None

    def blends(self, block: int, register: str) -> bool:
        """Whether a definition of the register in this block must keep other lanes' values."""
        return self.graph.is_live(register, self.structure.owner[block].preserve)

    def _solve(self) -> None:
        self._propagate()
        undefined = [n for n in self.graph.kernel.registers if n not in self.shape]
        if undefined:  # read before any definition, if at all: the code makes such a register 0
            self.shape |= dict.fromkeys(undefined, UNIFORM)
            self._propagate()

    def _propagate(self) -> None:
        changed = True
        while changed:
            changed = False
            for block in self.graph.blocks:
                for i in block.instructions:
                    names = destinations(i)
                    if not names:
                        continue
                    result = self.transfer(i)
                    if result is None:
                        continue
                    for name in names:
                        new = result
                        if self.blends(block.index, name):
                            new = VARYING
                        elif new.affine and self.graph.kernel.registers[name][0] not in "usb":
                            new = VARYING  # no affine floating point, no affine predicates
                        new = join(self.shape.get(name), new)
                        if new != self.shape.get(name):
                            self.shape[name] = new
                            changed = True

    def transfer(self, i: ptx.Instruction) -> Shape | None:
        """The shape of an instruction's result in the lanes it is computed for."""
        if i.guard:
            guard = self.shape.get(i.guard)
            if guard is None or guard.varying:
                return guard
        if i.opcode in _ALWAYS_UNIFORM or i.opcode == "ld" and "param" in i.modifiers:
            return UNIFORM
        if i.opcode in _ALWAYS_VARYING:
            return VARYING
        operands = [self.of(o) for o in i.operands[1:]]
        if None in operands:
            return None
        if i.opcode == "shfl":
            return UNIFORM if is_broadcast(i, *operands[1:3]) else VARYING
        if i.opcode in ("vote", "redux"):
            return UNIFORM if operands[-1].uniform else VARYING
        if is_widening(i) and (i.operands[0].name not in self._addressing or self._sinks(i)):
            return default(*operands)  # not worth a check, or likely to fail it
        kind = i.modifiers[-1] if i.modifiers else ""
        rule = None if isinstance(i.operands[0], ptx.Vector) else _RULES.get(i.opcode)
        if (
            rule
            and isinstance(i.operands[0], ptx.Register)  # not a mov that takes a value apart
            and kind in ptx.SIZES
            and is_integer(kind)
            and not {"cc", "sat", "hi"} & set(i.modifiers)
        ):
            return rule(i, operands, width(kind))
        return default(*operands)

    def _sinks(self, i: ptx.Instruction) -> bool:
        """Whether a widened unsigned number may have wrapped below zero in some lanes."""
        names = {o.name for o in i.operands[1:3] if isinstance(o, ptx.Register)}
        return i.modifiers[-1][0] == "u" and not self._sinking.isdisjoint(names)

    def _invariants(self) -> dict[str, ptx.Instruction]:
        """Registers defined once, by cheap arithmetic on launch constants; in program order."""
        defined: dict[str, int] = {}
        for block in self.graph.blocks:
            for i in block.instructions:
                for name in destinations(i):
                    defined[name] = defined.get(name, 0) + 1
        found: dict[str, ptx.Instruction] = {}
        for block in self.graph.blocks:
            for i in block.instructions:
                names = destinations(i)
                if len(names) != 1 or defined[names[0]] > 1 or i.guard or not self._is_cheap(i):
                    continue
                if self.blends(block.index, names[0]):
                    continue
                if all(s in found for s in sources(i)):
                    found[names[0]] = i
        return found

    def _is_cheap(self, i: ptx.Instruction) -> bool:
        if i.opcode == "ld":
            return "param" in i.modifiers
        if is_widening(i) and any(self.may_wrap(o) for o in i.operands[1:]):
            return False  # its check belongs where the program has it
        if any(isinstance(o, ptx.Special) and "clock" in o.name for o in i.operands):
            return False
        return (
            i.opcode in _CHEAP
            and not {"cc", "sat"} & set(i.modifiers)
            and not any(isinstance(o, ptx.Vector) for o in i.operands[:1])
        )


def _multiply(i, operands, bits):
    a, b = operands[:2]
    if "wide" not in i.modifiers:
        return multiply(a, b, bits)
    kind = i.modifiers[-1]
    return multiply(_extended(a, kind, bits), _extended(b, kind, bits), 2 * bits)


def _extended(a: Shape, kind: str, bits: int) -> Shape:
    """A narrow operand as a wide one: a base that is known gets the sign its type gives it."""
    if a.value is None:
        return a
    value = signed(a.value, bits) if kind[0] == "s" else a.value & (1 << bits) - 1
    return replace(a, value=value)


def _multiply_add(i, operands, bits):
    wide = 2 * bits if "wide" in i.modifiers else bits
    return add(_multiply(i, operands, bits), operands[2], wide)


def _convert(i, operands, bits):
    to, source = i.modifiers[-2:]
    (a,) = operands
    if not is_integer(to) or len(i.modifiers) > 2 or bits < 16 or width(to) < 16:
        return default(a)
    if a.varying:
        return _varying(width(to), a.below)
    if a.value is not None and a.uniform:
        value = signed(a.value, bits) if source[0] == "s" else a.value & (1 << bits) - 1
        return constant(value & (1 << width(to)) - 1)
    narrow = width(to) < bits
    zeros = a.zeros if width(to) > bits or a.zeros < width(to) else 64
    value = a.value if a.value is not None and a.value >> (bits - 1) == 0 else None
    return _with_pattern(a.pattern, width(to) if narrow else bits, zeros, value, a.below)


def _divide(i, operands, bits):
    a, b = operands
    if i.modifiers[-1][0] == "u" and b.uniform and b.value and b.value & (b.value - 1) == 0:
        return shift_right(a, constant(b.value.bit_length() - 1), bits)
    return default(a, b)


def _remainder(i, operands, bits):
    a, b = operands
    if i.modifiers[-1][0] == "u" and b.uniform and b.value and b.value & (b.value - 1) == 0:
        return bit_and(a, constant(b.value - 1), bits)
    return default(a, b)


_RULES = {
    "mov": lambda i, o, bits: o[0],
    "cvta": lambda i, o, bits: o[0],
    "add": lambda i, o, bits: add(o[0], o[1], bits),
    "sub": lambda i, o, bits: add(o[0], o[1], bits, -1),
    "neg": lambda i, o, bits: add(constant(0), o[0], bits, -1),
    "mul": _multiply,
    "mad": _multiply_add,
    "shl": lambda i, o, bits: shift_left(o[0], o[1], bits),
    "shr": lambda i, o, bits: shift_right(o[0], o[1], bits),
    "and": lambda i, o, bits: bit_and(o[0], o[1], bits),
    "or": lambda i, o, bits: bit_or(o[0], o[1], bits),
    "div": _divide,
    "rem": _remainder,
    "cvt": _convert,
}
