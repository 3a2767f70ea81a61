"""Writing LLVM IR for one kernel: values of 32 lanes, registers, operands.

A PTX register lives in a stack slot of its own that LLVM turns into SSA form: a scalar where its
shape (see `shapes`) has a pattern, else a vector of 32. Varying predicates are kept as an i32
with a bit for each lane.

The methods that lane-wise instructions use (`get`, `type_of`, `number`, `intrinsic`) serve
scalars and vectors alike, so that each instruction is written once: `wide` says which is meant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from . import ptx
from .errors import Unsupported
from .shapes import LANES, ZERO, Shapes, signed, width

# Halves are kept as their bits: LLVM's own `half` needs functions that not every process has.
_LLVM = {"pred": "i1", "f32": "float", "f64": "double", "b128": "i128"}


def llvm_type(kind: str) -> str:
    """The scalar LLVM type of a PTX type."""
    return _LLVM.get(kind) or f"i{width(kind)}"


def bits(ty: str) -> int:
    return {"float": 32, "double": 64}.get(ty) or int(ty[1:])


def vector(ty: str, n: int = LANES) -> str:
    return f"<{n} x {ty}>"


@dataclass(frozen=True)
class Lanes:
    """A value of every lane: LLVM scalar type, SSA name or constant, pattern (None: a vector)."""

    ty: str
    ssa: str
    pattern: tuple[int, ...] | None = ZERO

    @property
    def uniform(self) -> bool:
        return self.pattern == ZERO


class Emitter:
    """Collects the IR of a kernel's body. `mask` is the current mask's i32 value."""

    def __init__(self, kernel: ptx.Kernel, shapes: Shapes):
        self.kernel, self.shapes = kernel, shapes
        self.lines: list[str] = []
        self.entry: list[str] = []  # computed once at the top
        self.declarations: set[str] = set()
        self.constants: list[str] = []  # module-level IR
        self.instruction: ptx.Instruction | None = None
        self.mask = "-1"
        self.sanitizing = None  # what emits code that looks for races, where any does
        self.wide = True
        self._names = 0
        self._functions: set[str] = set()
        self._entry_values: dict[str, str] = {}

    # -- text ----------------------------------------

    def fresh(self, hint: str = "t") -> str:
        self._names += 1
        return f"%{hint}.{self._names}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def op(self, text: str) -> str:
        """Emits `text` and names its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def at_entry(self, text: str) -> str:
        """The value of `text` computed once at the top of the function (the same text: once)."""
        if text not in self._entry_values:
            name = self.fresh("e")
            self.entry.append(f"  {name} = {text}")
            self._entry_values[text] = name
        return self._entry_values[text]

    def function(self, name: str, head: str, body: str | Callable[[], None]) -> None:
        """Adds the module-level function `define internal HEAD { BODY }`, once for each name.

        body may be a function that emits it.
        """
        if name in self._functions:
            return
        self._functions.add(name)
        if not isinstance(body, str):
            outer, self.lines = self.lines, []
            body()
            body, self.lines = "\n".join(self.lines), outer
        self.constants.append(f"define internal {head} {{\n{body}\n}}")

    def unsupported(self, what: str | None = None) -> Unsupported:
        i = self.instruction
        return Unsupported(what or i.name, self.kernel.name, i.file, i.line)

    # -- registers ----------------------------------------

    def slot(self, name: str) -> str:
        return f'%"{name}"'

    def slot_type(self, name: str, kind: str | None = None) -> str:
        ty = llvm_type(kind or self.kernel.registers[name])
        if not self.shapes.of_register(name).varying:
            return ty
        return "i32" if ty == "i1" else vector(ty)

    def read(self, name: str) -> Lanes:
        shape = self.shapes.of_register(name)
        ty = llvm_type(self.kernel.registers[name])
        value = self.op(f"load {self.slot_type(name)}, ptr {self.slot(name)}")
        if shape.varying and ty == "i1":
            value = self.op(f"bitcast i32 {value} to {vector('i1')}")
        return Lanes(ty, value, shape.pattern)

    def write(self, name: str, value: Lanes, where: str | None = None) -> None:
        """Sets a register; with `where` (an i32 mask) only in those lanes."""
        if name == "_":
            return
        ty = llvm_type(self.kernel.registers[name])
        value = self.reinterpret(value, ty)
        shape = self.shapes.of_register(name)
        if not shape.varying:
            assert value.pattern == shape.pattern, (name, value, shape)
            ssa = value.ssa
            if where is not None:  # a uniform guard: an i1
                old = self.op(f"load {ty}, ptr {self.slot(name)}")
                ssa = self.op(f"select i1 {where}, {ty} {ssa}, {ty} {old}")
            self.line(f"store {ty} {ssa}, ptr {self.slot(name)}")
            return
        ssa = self.spread(value)
        if ty == "i1":
            ssa = self.op(f"bitcast {vector('i1')} {ssa} to i32")
            if where is not None:
                old = self.op(f"load i32, ptr {self.slot(name)}")
                keep = self.op(f"and i32 {old}, {self.op(f'xor i32 {where}, -1')}")
                ssa = self.op(f"or i32 {keep}, {self.op(f'and i32 {ssa}, {where}')}")
            self.line(f"store i32 {ssa}, ptr {self.slot(name)}")
            return
        if where is not None:
            old = self.op(f"load {vector(ty)}, ptr {self.slot(name)}")
            ssa = self.op(
                f"select {vector('i1')} {self.lane_mask(where)}, {vector(ty)} {ssa}, "
                f"{vector(ty)} {old}"
            )
        self.line(f"store {vector(ty)} {ssa}, ptr {self.slot(name)}")

    # -- values ----------------------------------------

    def lane_mask(self, mask: str) -> str:
        """An i32 mask as <32 x i1>."""
        if mask == "-1":
            return "splat (i1 true)"
        return self.op(f"bitcast i32 {mask} to {vector('i1')}")

    def splat(self, ty: str, ssa: str) -> str:
        if not ssa.startswith("%"):
            return f"splat ({ty} {ssa})"
        one = self.op(f"insertelement {vector(ty)} poison, {ty} {ssa}, i32 0")
        return self.op(
            f"shufflevector {vector(ty)} {one}, {vector(ty)} poison, "
            f"{vector('i32')} zeroinitializer"
        )

    def pattern_constant(self, ty: str, pattern) -> str:
        return "<" + ", ".join(f"{ty} {p}" for p in pattern) + ">"

    def spread(self, value: Lanes) -> str:
        """A value as a vector."""
        if value.pattern is None:
            return value.ssa
        base = self.splat(value.ty, value.ssa)
        if value.uniform:
            return base
        return self.op(
            f"add {vector(value.ty)} {base}, {self.pattern_constant(value.ty, value.pattern)}"
        )

    def reinterpret(self, value: Lanes, ty: str, sign: bool = False) -> Lanes:
        """The same bits as another type; wider or narrower integers are extended or cut off."""
        if value.ty == ty:
            return value
        if value.pattern not in (None, ZERO) and not ty.startswith("i"):
            value = Lanes(value.ty, self.spread(value), None)  # base + pattern is of integers
        shape = ty if value.pattern is not None else vector(ty)
        old = value.ty if value.pattern is not None else vector(value.ty)
        if bits(value.ty) == bits(ty):
            return Lanes(ty, self.op(f"bitcast {old} {value.ssa} to {shape}"), value.pattern)
        if not value.ty.startswith("i"):
            value = self.reinterpret(value, f"i{bits(value.ty)}")
            return self.reinterpret(value, ty, sign)
        if not ty.startswith("i"):
            return self.reinterpret(self.reinterpret(value, f"i{bits(ty)}", sign), ty)
        how = "trunc" if bits(ty) < bits(value.ty) else "sext" if sign else "zext"
        pattern = value.pattern
        if pattern not in (None, ZERO):
            if how == "trunc":
                pattern = tuple(signed(p, bits(ty)) for p in pattern)
            else:
                value, shape, old = (
                    Lanes(value.ty, self.spread(value), None),
                    vector(ty),
                    vector(value.ty),
                )
                pattern = None
        return Lanes(ty, self.op(f"{how} {old} {value.ssa} to {shape}"), pattern)

    # -- operands ----------------------------------------

    def immediate(self, value: ptx.Immediate, kind: str) -> str:
        """A literal as an LLVM constant of a PTX type."""
        ty = llvm_type(kind)
        if ty in ("float", "double"):
            return self._float_immediate(value, ty)
        if value.kind != "int" and bits(ty) != {"f32": 32, "f64": 64}[value.kind]:
            raise self.unsupported()
        if ty == "i1":
            return "true" if value.value else "false"
        return str(signed(value.value, bits(ty)))

    def _float_immediate(self, value: ptx.Immediate, ty: str) -> str:
        if value.kind == "f64" and ty != "double":
            value = ptx.as_f32(value)
        return f"bitcast (i{bits(ty)} {value.value} to {ty})"

    def lanes(self, operand, kind: str) -> Lanes:
        """An operand as a value of a PTX type."""
        ty = llvm_type(kind)
        sign = kind.startswith("s")
        if isinstance(operand, ptx.Register):
            return self.reinterpret(self.read(operand.name), ty, sign)
        if isinstance(operand, ptx.Immediate):
            return Lanes(ty, self.immediate(operand, kind))
        if isinstance(operand, ptx.Special):
            return self.reinterpret(self.special(operand.name), ty)
        if isinstance(operand, ptx.Symbol):
            return self.reinterpret(self.symbol(operand), ty)
        if isinstance(operand, tuple) and operand[0] == "not":
            inner = self.lanes(operand[1], kind)
            shape = ty if inner.pattern is not None else vector(ty)
            ones = "true" if inner.pattern is not None else "splat (i1 true)"
            return Lanes(ty, self.op(f"xor {shape} {inner.ssa}, {ones}"), inner.pattern)
        raise self.unsupported(self.instruction.text)

    def special(self, name: str) -> Lanes:
        raise NotImplementedError

    def symbol(self, symbol: ptx.Symbol) -> Lanes:
        raise NotImplementedError

    # -- for lane-wise instructions ----------------------------------------

    def get(self, operand, kind: str) -> str:
        value = self.lanes(operand, kind)
        return self.spread(value) if self.wide else value.ssa

    def type_of(self, kind: str) -> str:
        """The LLVM type of a PTX type in the current width."""
        ty = llvm_type(kind) if kind in ptx.SIZES else kind
        return vector(ty) if self.wide else ty

    def calc(self, verb: str, ty: str, *values) -> str:
        """`verb` on values of scalar LLVM type `ty`; Python numbers are constants."""
        given = ", ".join(self.value(ty, v) for v in values)
        return self.op(f"{verb} {self.type_of(ty)} {given}")

    def pick(self, condition: str, ty: str, yes, no) -> str:
        """`yes` in the lanes where `condition` holds, else `no`."""
        t = self.type_of(ty)
        yes, no = self.value(ty, yes), self.value(ty, no)
        return self.op(f"select {self.type_of('i1')} {condition}, {t} {yes}, {t} {no}")

    def cast(self, how: str, source: str, to: str, value: str) -> str:
        """A conversion (sext, bitcast, ...) from one scalar LLVM type to another."""
        return self.op(f"{how} {self.type_of(source)} {value} to {self.type_of(to)}")

    def value(self, ty: str, value: str | int | float) -> str:
        """An SSA value as it is; a Python number as a constant of type `ty`."""
        if isinstance(value, float):
            return self.number(ty, f"0x{struct.pack('>d', value).hex()}")
        if isinstance(value, bool):
            return self.number(ty, "true" if value else "false")
        return self.number(ty, value) if isinstance(value, int) else value

    def number(self, ty: str, value) -> str:
        """A constant of scalar LLVM type `ty` in the current width."""
        return f"splat ({ty} {value})" if self.wide else str(value)

    def intrinsic(
        self, name: str, result: str, arguments: list[tuple[str, str]], extra: str = ""
    ) -> str:
        """Calls llvm.<name> overloaded on `result`; arguments are (scalar type, value)."""
        out = vector(result) if self.wide else result
        kinds = [vector(t) if self.wide else t for t, _ in arguments]
        suffix = {"float": "f32", "double": "f64"}
        mangle = lambda t: (f"v{LANES}" if self.wide else "") + suffix.get(t, t)  # noqa: E731
        full = f"@llvm.{name}.{mangle(result)}"
        if extra:
            full += "." + mangle(extra)
        tail = [("i1", "false")] if name in ("ctlz", "cttz", "abs") else []
        self.declarations.add(f"declare {out} {full}({', '.join(kinds + [t for t, _ in tail])})")
        given = [f"{k} {v}" for k, (_, v) in zip(kinds, arguments, strict=True)]
        given += [f"{t} {v}" for t, v in tail]
        return self.op(f"call {out} {full}({', '.join(given)})")
