"""Functions that are recursive or called through pointers: one copy of each, and a stack.

They stay functions: the kernel's body gets, behind its own code, the code of each, which begins
at the label `enter:NAME`, and two instructions that PTX does not have (see `codegen` for how they
run, and `flow` and `scopes` for what they mean to the flow graph):

    enter {results}, NAME, {arguments}    the active lanes run the function and come back together
    leave {results}                       the function's end

Arguments and results are registers that belong to the function. What a caller still needs after
a call is kept for it, so a function may call itself. Its local variables lie in the thread's
stack, in local memory, from the address in the register `%stack:NAME` on, which is an argument.

A call by address compares it with those of all functions of the same signature, and calls the one
it is, in one group of lanes after the other. A function's address is 16 times its place in the
module, counted from 1. A jump table becomes comparisons and branches.
"""

from __future__ import annotations

from dataclasses import replace

from . import ptx
from .calls import Body, call_parts, callee, calls_in, inline, place_kind, renamed

STACK_BYTES = 32 * 1024  # of a thread
AREA = "__stack"


def function_address(module: ptx.Module, name: str) -> int:
    """The value a function's name stands for in data and registers."""
    return 16 * (list(module.functions).index(name) + 1)


def expand(module: ptx.Module, kernel: ptx.Kernel) -> ptx.Kernel:
    """The kernel without calls of functions that have a body, and without brx.idx.

    Raises Unsupported where an argument cannot be followed.
    """
    if calls_in(kernel):
        kernel = _Linker(module, kernel).result
    if kernel.targets:
        kernel = _without_jump_tables(kernel)
    return kernel


def first_label(name: str) -> str:
    """The label a function's code begins at."""
    return f"enter:{name}"


class _Linker:
    def __init__(self, module: ptx.Module, kernel: ptx.Kernel):
        self.module = module
        reachable, indirect = self._reachable(kernel)
        self.addressed = [f for f in module.functions if f in self._addressed()]
        shared = {f for f in reachable if f in self._reachable(module.functions[f])[0]}
        if indirect:
            shared |= set(self.addressed)
            for f in self.addressed:
                reachable |= self._reachable(module.functions[f])[0] | {f}
            shared |= {f for f in reachable if f in self._reachable(module.functions[f])[0]}
        body = inline(module, kernel, shared)
        self.result = body.kernel
        self.shared = [f for f in module.functions if f in shared & reachable]
        if not self.shared:
            return
        self.lines: list = []
        self.sites = 0
        self.bodies = {
            f: self._renamed(inline(module, module.functions[f], shared)) for f in self.shared
        }
        self.frames = {f: self._frame(b.kernel) for f, b in self.bodies.items()}
        self.deep = any(size for _, size in self.frames.values())  # any local variables
        if self.deep:
            self.result.variables.append(ptx.Variable(AREA, "local", 16, STACK_BYTES))
        self._append(None, body)
        self._emit("exit")
        for f in self.shared:
            self._append(f, self.bodies[f])
        self.result.body = self.lines
        self.result.functions = list(self.shared)

    # -- which functions -------------------------------------------------------------------------

    def _reachable(self, start: ptx.Kernel) -> tuple[set[str], bool]:
        """The functions that calls by name lead to, and whether there are calls by address."""
        found: set[str] = set()
        indirect = False
        stack = [start]
        while stack:
            for i in calls_in(stack.pop()):
                target = callee(i)
                if not isinstance(target, ptx.Symbol):
                    indirect = True
                elif target.name in self.module.functions and target.name not in found:
                    found.add(target.name)
                    stack.append(self.module.functions[target.name])
        return found, indirect

    def _addressed(self) -> set[str]:
        """The functions whose addresses are taken, in code or data."""
        names = {s.name for v in self.module.variables for _, s in v.pointers}
        for function in (*self.module.kernels.values(), *self.module.functions.values()):
            for i in function.body:
                if isinstance(i, ptx.Instruction) and i.opcode != "call":
                    names |= {o.name for o in i.operands if isinstance(o, ptx.Symbol)}
        return names & set(self.module.functions)

    # -- bodies ----------------------------------------------------------------------------------

    def _renamed(self, body: Body) -> Body:
        """A function's body with its registers and labels told apart from the kernel's."""
        function = body.kernel
        mine = set(function.registers) | set(function.targets)
        mine |= {item.name for item in function.body if isinstance(item, ptx.Label)}
        mine |= {v.name for v in function.variables}

        def rename(name: str) -> str:
            return f"{function.name}:{name}" if name in mine else name

        lines = [
            ptx.Label(rename(item.name))
            if isinstance(item, ptx.Label)
            else replace(
                item,
                operands=[renamed(o, rename) for o in item.operands],
                guard=rename(item.guard) if item.guard else None,
            )
            for item in function.body
        ]
        return Body(
            replace(
                function,
                body=lines,
                registers={rename(r): kind for r, kind in function.registers.items()},
                variables=[replace(v, name=rename(v.name)) for v in function.variables],
                targets={rename(n): [rename(t) for t in ts] for n, ts in function.targets.items()},
            ),
            {
                name: {at: rename(r) for at, r in places.items()}
                for name, places in body.places.items()
            },
            body.words,
        )

    def _frame(self, function: ptx.Kernel) -> tuple[dict[str, int], int]:
        """Offsets of a function's local variables in its frame, and the frame's size.

        What it passes to the system is not among them: that is not needed after the call.
        """
        passed = {
            s.name
            for i in calls_in(function)
            if not self._is_ours(i)
            for s in (*call_parts(i)[0], *call_parts(i)[2])
        }
        at, variables = 0, {}
        for v in function.variables:
            if v.space == "local" and v.name not in passed:
                at = -(-at // v.align) * v.align
                variables[v.name] = at
                at += v.nbytes
        return variables, -(-at // 16) * 16

    def _append(self, name: str | None, body: Body) -> None:
        """Puts a body into the kernel, its calls as `enter`; name None: the kernel's own."""
        function = body.kernel
        variables = self.frames[name][0] if name else {}
        if name:
            self.result.registers |= function.registers
            self.result.targets |= function.targets
            self.result.variables += [v for v in function.variables if v.name not in variables]
            self.lines.append(ptx.Label(first_label(name)))
            if self.deep:
                self._stack_of(name)
            for v, passed in zip(function.parameters, self._arguments(name), strict=True):
                for at, register in body.places[v.name].items():
                    self._emit(_move(at[1]), register, passed[at])
        for item in function.body:
            if isinstance(item, ptx.Label):
                self.lines.append(item)
            elif item.opcode == "call" and self._is_ours(item):
                self._call(name, body, item)
            elif item.opcode == "ret" and name:
                jump = {"opcode": "bra", "modifiers": ()}
                self.lines.append(replace(item, **jump, operands=[ptx.Symbol(f"leave:{name}")]))
            else:
                self.lines.append(self._with_frame(name, item, variables))
        if name:
            self._leave(name, body)

    def _is_ours(self, i: ptx.Instruction) -> bool:
        """Whether a call is not one of the system."""
        target = callee(i)
        return not isinstance(target, ptx.Symbol) or target.name in self.module.functions

    def _with_frame(
        self, name: str | None, i: ptx.Instruction, variables: dict[str, int]
    ) -> ptx.Instruction:
        """Local variables of a function lie in its frame."""
        for k, o in enumerate(i.operands):
            base = o.base if isinstance(o, ptx.Address) else o
            if isinstance(base, ptx.Symbol) and base.name in variables:
                offset = variables[base.name] + base.offset
                if isinstance(o, ptx.Address):
                    new = ptx.Address(ptx.Register(self._stack_of(name)), offset + o.offset)
                    i = replace(i, operands=[*i.operands[:k], new, *i.operands[k + 1 :]])
                else:  # mov of its address
                    stack = ptx.Register(self._stack_of(name))
                    new = [i.operands[0], stack, ptx.Immediate(offset)]
                    i = replace(i, opcode="add", modifiers=("s64",), operands=new)
        return i

    # -- calls and returns -----------------------------------------------------------------------

    def _call(self, caller: str | None, body: Body, i: ptx.Instruction) -> None:
        self.sites += 1
        self.source = i
        _, target, _ = call_parts(i)
        past = f"past:{self.sites}"
        if i.guard:
            self._branch(past, i.guard, not i.guard_negated)
        if isinstance(target, ptx.Symbol):
            self._enter(caller, body, i, target.name)
        else:
            for f in self.addressed:
                if not self._fits(i, f):
                    continue
                value = ptx.Immediate(function_address(self.module, f))
                test, other = f"%is{self.sites}:{f}", f"other{self.sites}:{f}"
                self.result.registers[test] = "pred"
                self._emit("setp.eq.u64", test, target, value)
                self._branch(other, test, True)
                self._enter(caller, body, i, f)
                self._branch(past)
                self.lines.append(ptx.Label(other))
            self._emit("trap")
        self.lines.append(ptx.Label(past))

    def _fits(self, i: ptx.Instruction, name: str) -> bool:
        """Whether a call passes as many arguments and results as a function has."""
        results, _, arguments = call_parts(i)
        function = self.module.functions[name]
        return (len(results), len(arguments)) == (len(function.results), len(function.parameters))

    def _enter(self, caller: str | None, body: Body, i: ptx.Instruction, name: str) -> None:
        results, _, arguments = call_parts(i)
        given, returned = [], []
        if self.deep:
            if caller:
                size = ptx.Immediate(self.frames[caller][1])
                self._emit("add.s64", self._stack_of(name), self._stack_of(caller), size)
            else:
                self._emit("mov.u64", self._stack_of(name), ptx.Symbol(AREA))
            given.append(self._stack_of(name))
        for variable, passed in zip(arguments, self._arguments(name), strict=True):
            for at, register in body.places[variable.name].items():
                if at in passed:
                    self._emit(_move(at[1]), passed[at], register)
                    given.append(passed[at])
        places = list(zip(results, self._results(name), strict=True))
        for _, passed in places:
            returned += passed.values()
        self._emit("enter", _registers(returned), ptx.Symbol(name), _registers(given))
        for variable, passed in places:
            for at, register in body.places[variable.name].items():
                if at in passed:
                    self._emit(_move(at[1]), register, passed[at])

    def _leave(self, name: str, body: Body) -> None:
        self.lines.append(ptx.Label(f"leave:{name}"))
        returned = []
        for v, passed in zip(body.kernel.results, self._results(name), strict=True):
            for at, register in body.places[v.name].items():
                self._emit(_move(at[1]), passed[at], register)
                returned.append(passed[at])
        self._emit("leave", _registers(returned))
        self._emit("exit")

    def _stack_of(self, name: str) -> str:
        """The register with the address of a function's frame."""
        self.result.registers[f"%stack:{name}"] = "b64"
        return f"%stack:{name}"

    def _arguments(self, name: str) -> list[dict[tuple[int, int], str]]:
        """For each parameter of a function the registers its bytes, (offset, size), travel in."""
        return self._passed("argument", name, self.bodies[name].kernel.parameters)

    def _results(self, name: str) -> list[dict[tuple[int, int], str]]:
        return self._passed("result", name, self.bodies[name].kernel.results)

    def _passed(self, what: str, name: str, variables: list[ptx.Variable]) -> list[dict]:
        found = []
        for k, v in enumerate(variables):
            at_of = {}
            for at in self.bodies[name].places[v.name]:
                at_of[at] = f"%{what}{k}+{at[0]}:{at[1]}:{name}"
                self.result.registers[at_of[at]] = place_kind(at[1])
            found.append(at_of)
        return found

    source = ptx.Instruction("call", (), [])  # whose line the instructions made here carry

    def _branch(self, label: str, guard: str | None = None, negated: bool = False) -> None:
        self._emit("bra", ptx.Symbol(label))
        self.lines[-1].guard, self.lines[-1].guard_negated = guard, negated

    def _emit(self, name: str, *operands) -> None:
        opcode, *modifiers = name.split(".")
        operands = [ptx.Register(o) if isinstance(o, str) else o for o in operands]
        self.lines.append(
            replace(
                self.source,
                opcode=opcode,
                modifiers=tuple(modifiers),
                operands=operands,
                guard=None,
                guard_negated=False,
                text=name,
            )
        )


def _registers(names: list[str]) -> ptx.Vector:
    return ptx.Vector(tuple(ptx.Register(n) for n in names))


def _move(size: int) -> str:
    return f"mov.b{max(16, 8 * size)}"


def _without_jump_tables(kernel: ptx.Kernel) -> ptx.Kernel:
    """brx.idx becomes a comparison and a branch for each entry of its list."""
    body, registers = [], dict(kernel.registers)
    for item in kernel.body:
        if not (isinstance(item, ptx.Instruction) and item.opcode == "brx"):
            body.append(item)
            continue
        index, table = item.operands
        labels = kernel.targets[table.name]
        skip = f"skip:brx{len(body)}"
        jump = {"opcode": "bra", "modifiers": ()}
        if item.guard:
            body.append(
                replace(
                    item, **jump, operands=[ptx.Symbol(skip)], guard_negated=not item.guard_negated
                )
            )
        for k, label in enumerate(labels[:-1]):
            test = f"%brx{len(body)}"
            registers[test] = "pred"
            body.append(
                replace(
                    item,
                    opcode="setp",
                    modifiers=("eq", "u32"),
                    guard=None,
                    operands=[ptx.Register(test), index, ptx.Immediate(k)],
                )
            )
            body.append(
                replace(item, **jump, operands=[ptx.Symbol(label)], guard=test, guard_negated=False)
            )
        body.append(replace(item, **jump, operands=[ptx.Symbol(labels[-1])], guard=None))
        body.append(ptx.Label(skip))
    return replace(kernel, body=body, registers=registers)
