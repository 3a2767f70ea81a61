"""Calls of device functions, expanded before anything else looks at the kernel.

nvcc inlines most functions itself. What is left (__noinline__, large functions of the math
library) is copied into the kernel at each call, its registers, labels and variables renamed;
arguments and results, which PTX passes in .param variables, become registers.

Functions that call themselves, and those called through pointers, cannot be copied: `stack` puts
the code of each behind the kernel's once, and they are called with a stack.

Functions of the system, such as vprintf, have no body: their calls stay, with the arguments in
local memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import ptx
from .errors import Unsupported

LARGEST = 200_000  # instructions of a kernel after expansion


@dataclass
class Body:
    """A kernel or function whose calls of inlinable functions have been expanded.

    places: the registers that stand for the words of each argument or result variable, by
    (offset, size); words: how long its words are. That depends on its declaration alone, so that
    caller and callee agree, though one may pass an int where the other takes a short.
    """

    kernel: ptx.Kernel
    places: dict[str, dict[tuple[int, int], str]] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)


def callee(i: ptx.Instruction) -> object:
    """What a call calls: a Symbol, or a Register that holds a function's address."""
    return call_parts(i)[1]


def call_parts(i: ptx.Instruction) -> tuple[tuple, object, tuple]:
    """(results, callee, arguments) of a call."""
    operands = list(i.operands)
    results = operands.pop(0).elements if isinstance(operands[0], ptx.Vector) else ()
    target = operands.pop(0)
    arguments = operands[0].elements if operands and isinstance(operands[0], ptx.Vector) else ()
    return results, target, arguments


def external_call(i: ptx.Instruction) -> tuple[str, list[str], list[str]]:
    """Name, result variables and argument variables of a call of the system."""
    results, target, arguments = call_parts(i)
    return target.name, [s.name for s in results], [s.name for s in arguments]


def calls_in(function: ptx.Kernel) -> list[ptx.Instruction]:
    return [i for i in function.body if isinstance(i, ptx.Instruction) and i.opcode == "call"]


def inline(module: ptx.Module, source: ptx.Kernel, shared: set[str]) -> Body:
    """`source` with all calls expanded but those of functions in `shared` and of the system."""
    return _Inliner(module, source, shared).body


class _Inliner:
    def __init__(self, module: ptx.Module, source: ptx.Kernel, shared: set[str]):
        self.module, self.source, self.shared = module, source, shared
        self.result = replace(
            source,
            body=[],
            registers=dict(source.registers),
            variables=[v for v in source.variables if v.space != "param"],
        )
        self.body = Body(self.result)
        self.copies = 0
        if source.name in module.functions:  # its own arguments and results are registers too
            own = (*source.parameters, *source.results)
            self.body.places = {v.name: {} for v in own}
            self.body.words = {v.name: min(8, v.align) for v in own}
        own = [v for v in source.variables if v.space == "param"]
        self._copy(source, lambda name: name, own, None)

    def _copy(self, source: ptx.Kernel, rename, arguments, after: str | None) -> None:
        """Appends a body; `after` is the label that ret goes to (None: ret stays)."""
        external = self._external_arguments(source)
        for v in arguments:
            if v.name in external:
                self.result.variables.append(replace(v, name=rename(v.name), space="local"))
            else:
                self.body.places.setdefault(rename(v.name), {})
                self.body.words[rename(v.name)] = min(8, v.align)
        for name, labels in source.targets.items():
            self.result.targets[rename(name)] = [rename(label) for label in labels]
        for item in source.body:
            if isinstance(item, ptx.Label):
                self.result.body.append(ptx.Label(rename(item.name)))
                continue
            i = replace(
                item,
                operands=[renamed(o, rename) for o in item.operands],
                guard=rename(item.guard) if item.guard else None,
            )
            if i.opcode == "call":
                self._call(i)
            elif i.opcode == "ret" and after is not None:
                jump = replace(i, opcode="bra", modifiers=(), operands=[ptx.Symbol(after)])
                self.result.body.append(jump)
            elif i.opcode in ("ld", "st") and "param" in i.modifiers:
                self._parameter(i)
            else:
                self.result.body.append(i)

    def _external_arguments(self, source: ptx.Kernel) -> set[str]:
        names: set[str] = set()
        for i in calls_in(source):
            results, target, arguments = call_parts(i)
            if isinstance(target, ptx.Symbol) and target.name not in self.module.functions:
                names |= {s.name for s in (*results, *arguments)}
        return names

    def _call(self, i: ptx.Instruction) -> None:
        results, target, arguments = call_parts(i)
        function = (
            self.module.functions.get(target.name) if isinstance(target, ptx.Symbol) else None
        )
        if function is None or function.name in self.shared:
            self.result.body.append(i)
            return
        if len(self.result.body) > LARGEST:
            raise self._unsupported(i, f"call of {target.name}: the kernel grows too large")
        self.copies += 1
        suffix = f"@{self.copies}"
        passed = dict(
            zip(
                (v.name for v in (*function.parameters, *function.results)),
                (s.name for s in (*arguments, *results)),
                strict=True,
            )
        )
        local = {item.name for item in function.body if isinstance(item, ptx.Label)}
        local |= set(function.registers) | {v.name for v in function.variables}

        def rename(name: str) -> str:
            return passed.get(name) or (name + suffix if name in local else name)

        for name, kind in function.registers.items():
            self.result.registers[rename(name)] = kind
        own = [v for v in function.variables if v.space == "param"]
        self.result.variables += [
            replace(v, name=rename(v.name)) for v in function.variables if v.space != "param"
        ]
        after = f"after{suffix}"
        if i.guard:
            skip = {"opcode": "bra", "modifiers": (), "operands": [ptx.Symbol(after)]}
            self.result.body.append(replace(i, guard_negated=not i.guard_negated, **skip))
        self._copy(function, rename, own, after)
        self.result.body.append(ptx.Label(after))

    def _parameter(self, i: ptx.Instruction) -> None:
        """ld.param or st.param of a call's argument becomes a move to or from a register."""
        place = 1 if i.opcode == "ld" else 0
        address = i.operands[place]
        name = address.base.name if isinstance(address.base, ptx.Symbol) else None
        if name not in self.body.places:
            if any(v.name == name for v in self.result.variables):  # passed to the system
                i = replace(i, modifiers=tuple("local" if m == "param" else m for m in i.modifiers))
            self.result.body.append(i)
            return
        kind = i.modifiers[-1]
        size = ptx.SIZES[kind]
        other = i.operands[1 - place]
        parts = other.elements if isinstance(other, ptx.Vector) else (other,)
        for k, part in enumerate(parts):
            offset = address.base.offset + address.offset + k * size
            inside = offset % self.body.words[name]
            word = self.body.words[name]
            if inside + size > word:
                raise self._unsupported(i, i.text)
            register = self._register(name, offset - inside, word)
            if i.opcode == "ld":
                self._take(i, part, kind, register, word, inside)
            else:
                self._put(i, part, size, register, word, inside)

    def _register(self, variable: str, offset: int, size: int) -> str:
        places = self.body.places[variable]
        if (offset, size) not in places:
            name = f"{variable}+{offset}"
            places[offset, size] = name
            self.result.registers[name] = place_kind(size)
        return places[offset, size]

    def _take(self, i: ptx.Instruction, part, kind: str, word: str, nbytes: int, at: int) -> None:
        """part = the bytes from `at` on of a word of an argument, extended as a load would."""
        if part.name == "_":
            return
        size, bits = ptx.SIZES[kind], max(16, 8 * nbytes)
        to = 8 * ptx.SIZES[self.result.registers[part.name]]
        if at:
            word = self._emit(i, f"shr.u{bits}", f"b{bits}", word, ptx.Immediate(8 * at))
        if to == 8 * size:
            if bits != to:
                word = self._emit(i, f"cvt.u{to}.u{bits}", f"b{to}", word)
            self._emit(i, f"mov.b{to}", part, word)
        else:
            sign = "s" if kind[0] == "s" else "u"
            self._emit(i, f"cvt.{sign}{to}.{sign}{8 * size}", part, word)

    def _put(self, i: ptx.Instruction, part, size: int, word: str, nbytes: int, at: int) -> None:
        """Bytes from `at` on of a word of an argument = the lowest `size` bytes of part."""
        bits = max(16, 8 * nbytes)
        if size > 1:
            part = self._emit(i, f"mov.b{8 * size}", f"b{8 * size}", part)
        elif not isinstance(part, ptx.Register):
            part = self._emit(i, "mov.b16", "b16", part)
        if size == nbytes and size > 1:
            self._emit(i, f"mov.b{bits}", ptx.Register(word), part)
            return
        part = self._emit(i, f"cvt.u{bits}.u{8 * size}", f"b{bits}", part)
        if size == nbytes:
            self._emit(i, f"mov.b{bits}", ptx.Register(word), part)
            return
        if at:
            part = self._emit(i, f"shl.b{bits}", f"b{bits}", part, ptx.Immediate(8 * at))
        others = (1 << bits) - 1 ^ (1 << 8 * size) - 1 << 8 * at
        rest = self._emit(i, f"and.b{bits}", f"b{bits}", word, ptx.Immediate(others))
        self._emit(i, f"or.b{bits}", ptx.Register(word), rest, part)

    def _emit(self, i: ptx.Instruction, name: str, to, *operands) -> str:
        """Appends an instruction in the place of i; to: its destination, or a new one's type."""
        if isinstance(to, str):
            fresh = f"%part{len(self.result.registers)}"
            self.result.registers[fresh] = to
            to = ptx.Register(fresh)
        opcode, *modifiers = name.split(".")
        operands = [ptx.Register(o) if isinstance(o, str) else o for o in operands]
        self.result.body.append(
            replace(i, opcode=opcode, modifiers=tuple(modifiers), operands=[to, *operands])
        )
        return to.name

    def _unsupported(self, i: ptx.Instruction, what: str) -> Unsupported:
        return Unsupported(what, self.source.name, i.file, i.line)


def place_kind(size: int) -> str:
    """The type of the register that holds `size` bytes of an argument."""
    return f"b{max(16, 8 * size)}"


def renamed(operand, rename):
    """An operand with every name replaced by rename(name)."""
    if isinstance(operand, ptx.Register):
        return operand if operand.name == "_" else ptx.Register(rename(operand.name))
    if isinstance(operand, ptx.Symbol):
        return ptx.Symbol(rename(operand.name), operand.offset)
    if isinstance(operand, ptx.Address):
        return ptx.Address(renamed(operand.base, rename), operand.offset)
    if isinstance(operand, ptx.Vector):
        return ptx.Vector(tuple(renamed(e, rename) for e in operand.elements))
    if isinstance(operand, tuple):
        return tuple(renamed(e, rename) for e in operand)
    return operand
