"""Calls of device functions, expanded in place before anything else looks at the kernel.

nvcc inlines most functions itself. What is left (__noinline__, large functions of the math
library) is copied into the kernel, its registers, labels and variables renamed; arguments and
results, which PTX passes in .param variables, become registers. Functions of the system, such as
vprintf, have no body: their calls stay, with the arguments in local memory.
"""

from __future__ import annotations

from dataclasses import replace

from . import ptx
from .errors import Unsupported

LARGEST = 200_000  # instructions of a kernel after expansion


def expand(module: ptx.Module, kernel: ptx.Kernel) -> ptx.Kernel:
    """The kernel without calls of functions that have a body.

    Raises Unsupported for recursion and for calls through a pointer.
    """
    if not any(isinstance(i, ptx.Instruction) and i.opcode == "call" for i in kernel.body):
        return kernel
    return _Expansion(module, kernel).result


class _Expansion:
    def __init__(self, module: ptx.Module, kernel: ptx.Kernel):
        self.module, self.kernel = module, kernel
        self.result = replace(
            kernel,
            body=[],
            registers=dict(kernel.registers),
            variables=[v for v in kernel.variables if v.space != "param"],
        )
        self.copies = 0
        self.places: dict[str, dict[tuple[int, int], str]] = {}  # .param variable -> registers
        arguments = [v for v in kernel.variables if v.space == "param"]
        self._copy(kernel, lambda name: name, arguments, (kernel.name,), None)

    def _copy(self, source: ptx.Kernel, rename, arguments, callers: tuple[str, ...], after) -> None:
        """Appends a body; `after` is the label that ret goes to (None: the kernel itself)."""
        external = self._external_arguments(source)
        for v in arguments:
            if v.name in external:
                self.result.variables.append(replace(v, name=rename(v.name), space="local"))
            else:
                self.places.setdefault(rename(v.name), {})
        for item in source.body:
            if isinstance(item, ptx.Label):
                self.result.body.append(ptx.Label(rename(item.name)))
                continue
            i = replace(
                item,
                operands=[_renamed(o, rename) for o in item.operands],
                guard=rename(item.guard) if item.guard else None,
            )
            if i.opcode == "call":
                self._call(i, callers)
            elif i.opcode in ("ret", "exit") and after is not None and i.opcode == "ret":
                self.result.body.append(
                    replace(i, opcode="bra", modifiers=(), operands=[ptx.Symbol(after)])
                )
            elif i.opcode in ("ld", "st") and "param" in i.modifiers:
                self._parameter(i)
            else:
                self.result.body.append(i)

    def _external_arguments(self, source: ptx.Kernel) -> set[str]:
        names: set[str] = set()
        for i in source.body:
            if isinstance(i, ptx.Instruction) and i.opcode == "call":
                results, callee, arguments = _parts(i)
                if isinstance(callee, ptx.Symbol) and callee.name not in self.module.functions:
                    names |= {s.name for s in (*results, *arguments)}
        return names

    def _call(self, i: ptx.Instruction, callers: tuple[str, ...]) -> None:
        results, callee, arguments = _parts(i)
        if not isinstance(callee, ptx.Symbol):
            raise self._unsupported(i, "call through a function pointer")
        function = self.module.functions.get(callee.name)
        if function is None:
            self.result.body.append(i)
            return
        if callee.name in callers:
            raise self._unsupported(i, f"call of {callee.name}, which is recursive")
        if len(self.result.body) > LARGEST:
            raise self._unsupported(i, f"call of {callee.name}: the kernel grows too large")
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
            self.result.body.append(
                replace(
                    i,
                    opcode="bra",
                    modifiers=(),
                    operands=[ptx.Symbol(after)],
                    guard_negated=not i.guard_negated,
                )
            )
        self._copy(function, rename, own, (*callers, callee.name), after)
        self.result.body.append(ptx.Label(after))

    def _parameter(self, i: ptx.Instruction) -> None:
        """ld.param or st.param of a call's argument becomes a move to or from a register."""
        place = 1 if i.opcode == "ld" else 0
        address = i.operands[place]
        name = address.base.name if isinstance(address.base, ptx.Symbol) else None
        if name not in self.places:
            if any(v.name == name for v in self.result.variables):  # passed to the system
                i = replace(i, modifiers=tuple("local" if m == "param" else m for m in i.modifiers))
            self.result.body.append(i)
            return
        kind = i.modifiers[-1]
        size = ptx.SIZES[kind]
        other = i.operands[1 - place]
        parts = other.elements if isinstance(other, ptx.Vector) else (other,)
        for k, part in enumerate(parts):
            register = self._register(
                i, name, address.base.offset + address.offset + k * size, size
            )
            pair = (
                [part, ptx.Register(register)]
                if i.opcode == "ld"
                else [ptx.Register(register), part]
            )
            move = replace(i, opcode="mov", modifiers=(f"b{8 * size}",), operands=pair)
            if size == 1:  # no move of bytes: convert, which extends as the load would
                kinds = (
                    ("u16", "u8") if i.opcode == "st" else ("s16" if kind == "s8" else "u16", kind)
                )
                kinds = tuple(k.replace("b", "u") for k in kinds)
                move = replace(move, opcode="cvt", modifiers=kinds)
            self.result.body.append(move)

    def _register(self, i: ptx.Instruction, variable: str, offset: int, size: int) -> str:
        places = self.places[variable]
        for at, n in places:
            if (at, n) != (offset, size) and at < offset + size and offset < at + n:
                raise self._unsupported(i, f"{i.text}: overlaps another part of the argument")
        if (offset, size) not in places:
            name = f"{variable}+{offset}"
            places[offset, size] = name
            self.result.registers[name] = f"b{max(16, 8 * size)}"
        return places[offset, size]

    def _unsupported(self, i: ptx.Instruction, what: str) -> Unsupported:
        return Unsupported(what, self.kernel.name, i.file, i.line)


def _parts(i: ptx.Instruction) -> tuple[tuple, object, tuple]:
    """(results, callee, arguments) of a call."""
    operands = list(i.operands)
    results = operands.pop(0).elements if isinstance(operands[0], ptx.Vector) else ()
    callee = operands.pop(0)
    arguments = operands[0].elements if operands and isinstance(operands[0], ptx.Vector) else ()
    return results, callee, arguments


def external_call(i: ptx.Instruction) -> tuple[str, list[str], list[str]]:
    """Name, result variables and argument variables of a call that `expand` has left."""
    results, callee, arguments = _parts(i)
    return callee.name, [s.name for s in results], [s.name for s in arguments]


def _renamed(operand, rename):
    if isinstance(operand, ptx.Register):
        return operand if operand.name == "_" else ptx.Register(rename(operand.name))
    if isinstance(operand, ptx.Symbol):
        return ptx.Symbol(rename(operand.name), operand.offset)
    if isinstance(operand, ptx.Address):
        return ptx.Address(_renamed(operand.base, rename), operand.offset)
    if isinstance(operand, ptx.Vector):
        return ptx.Vector(tuple(_renamed(e, rename) for e in operand.elements))
    if isinstance(operand, tuple):
        return tuple(_renamed(e, rename) for e in operand)
    return operand
