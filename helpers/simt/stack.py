"""Functions that are recursive or called through pointers: one copy each, a stack, and jumps.

After this a kernel has no calls but those of the system, and no brx.idx: all is ordinary PTX.

Every thread has a stack in its local memory, and the register `STACK` points to the frame of the
function it is in. A frame holds the number of the call site to return to, the function's local
variables, and the registers it still needs after a call, which the callee (perhaps itself) may
overwrite. A call moves the arguments to registers named by their positions, notes its number and
jumps; a return compares the number with every call site's. A function's address is 16 times its
place in the module, counted from 1.
"""

from __future__ import annotations

from dataclasses import replace

from . import ptx
from .calls import Body, call_parts, callee, calls_in, inline, place_kind, renamed
from .flow import Graph

STACK_BYTES = 32 * 1024
STACK = "%stack"
SITE = "%call_site"
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
        self.lines: list = []
        self.sites: list[tuple[str | None, str]] = []  # (callee, None: any; label to return to)
        self.shared = [f for f in module.functions if f in shared & reachable]
        if not self.shared:
            return
        self.bodies = {
            f: self._renamed(inline(module, module.functions[f], shared)) for f in self.shared
        }
        self.frames = {f: self._frame(b) for f, b in self.bodies.items()}
        self.result.registers |= {STACK: "b64", SITE: "b32"}
        self.result.variables.append(ptx.Variable(AREA, "local", 16, STACK_BYTES))
        self._emit("mov.u64", STACK, ptx.Symbol(AREA))
        self._append(None, body)
        self._emit("exit")
        for f in self.shared:
            self._append(f, self.bodies[f])
        for f in self.shared:
            self._returns(f)
        self.result.body = self.lines

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

    def _frame(self, body: Body) -> tuple[dict[str, int], dict[str, int], int]:
        """Offsets of a function's local variables and of its saved registers; bytes in all."""
        at, variables, saved = 16, {}, {}
        for v in body.kernel.variables:
            if v.space == "local":
                at = -(-at // v.align) * v.align
                variables[v.name] = at
                at += v.nbytes
        for register, kind in body.kernel.registers.items():
            size = 4 if kind == "pred" else ptx.SIZES[kind]
            at = -(-at // size) * size
            saved[register] = at
            at += size
        return variables, saved, -(-at // 16) * 16

    def _append(self, name: str | None, body: Body) -> None:
        """Puts a body into the kernel, its calls as jumps; name None: the kernel's own."""
        function = body.kernel
        variables = {} if name is None else self.frames[name][0]
        if name is not None:
            self.result.registers |= function.registers
            self.result.targets |= function.targets
            self.result.variables += [v for v in function.variables if v.space != "local"]
            self.lines.append(ptx.Label(f"enter:{name}"))
            self._emit("st.local.u32", ptx.Address(ptx.Register(STACK)), SITE)
            for k, v in enumerate(function.parameters):
                for at, register in body.places[v.name].items():
                    self._emit(_move(at[1]), register, self._passed("argument", k, at))
        graph = Graph(replace(function, body=list(function.body))) if name is not None else None
        live = {}
        if graph is not None:
            for block in graph.blocks:
                for i, after in zip(block.instructions, graph.live_after(block), strict=True):
                    live[id(i)] = {r for r in graph.number if graph.is_live(r, after)}
        for item in function.body:
            if isinstance(item, ptx.Label):
                self.lines.append(item)
            elif item.opcode == "call" and self._is_jump(item):
                self._call(name, body, item, live.get(id(item), set()))
            elif item.opcode == "ret" and name is not None:
                self._return(name, body, item)
            else:
                self.lines.append(self._with_frame(item, variables))

    def _is_jump(self, i: ptx.Instruction) -> bool:
        target = callee(i)
        return not isinstance(target, ptx.Symbol) or target.name in self.module.functions

    def _with_frame(self, i: ptx.Instruction, variables: dict[str, int]) -> ptx.Instruction:
        """Local variables of a function lie in its frame, at an offset from STACK."""
        for k, o in enumerate(i.operands):
            base = o.base if isinstance(o, ptx.Address) else o
            if isinstance(base, ptx.Symbol) and base.name in variables:
                offset = variables[base.name] + base.offset
                if isinstance(o, ptx.Address):
                    new = ptx.Address(ptx.Register(STACK), offset + o.offset)
                    i = replace(i, operands=[*i.operands[:k], new, *i.operands[k + 1 :]])
                else:  # mov of its address
                    new = [i.operands[0], ptx.Register(STACK), ptx.Immediate(offset)]
                    i = replace(i, opcode="add", modifiers=("s64",), operands=new)
        return i

    # -- calls and returns -----------------------------------------------------------------------

    def _call(self, caller: str | None, body: Body, i: ptx.Instruction, live: set[str]) -> None:
        results, target, arguments = call_parts(i)
        site = len(self.sites) + 1
        back = f"return:{site}"
        self.source = i
        skip = f"skip:{site}"
        if i.guard:
            self.lines.append(
                replace(
                    i,
                    opcode="bra",
                    modifiers=(),
                    operands=[ptx.Symbol(skip)],
                    guard_negated=not i.guard_negated,
                )
            )
        for k, variable in enumerate(arguments):
            for at, register in body.places[variable.name].items():
                self._emit(_move(at[1]), self._passed("argument", k, at), register)
        _, saved, size = self.frames[caller] if caller else ({}, {}, 0)
        returned = {r for v in results for r in body.places[v.name].values()}
        kept = [r for r in saved if r in live - returned]
        for r in kept:
            self._keep(body, r, saved[r])
        self._emit("add.s64", STACK, STACK, ptx.Immediate(size))
        self._emit("mov.u32", SITE, ptx.Immediate(site))
        direct = isinstance(target, ptx.Symbol)
        self.sites.append((target.name if direct else None, back))
        if direct:
            self._emit("bra", ptx.Symbol(f"enter:{target.name}"))
        else:
            self._jump_by_address(target, site)
        self.lines.append(ptx.Label(back))
        self._emit("sub.s64", STACK, STACK, ptx.Immediate(size))
        for r in kept:
            self._take(body, r, saved[r])
        for k, variable in enumerate(results):
            for at, register in body.places[variable.name].items():
                self._emit(_move(at[1]), register, self._passed("result", k, at))
        self.lines.append(ptx.Label(skip))

    def _jump_by_address(self, target: ptx.Register, site: int) -> None:
        for f in self.addressed:
            value = ptx.Immediate(function_address(self.module, f))
            self._branch_if_equal(f"%is{site}:{f}", "u64", target, value, f"enter:{f}")
        self._emit("trap")

    def _branch_if_equal(self, test: str, kind: str, a, b, label: str) -> None:
        """setp and bra, with a predicate register called `test`."""
        self.result.registers[test] = "pred"
        self._emit(f"setp.eq.{kind}", test, a, b)
        self._emit("bra", ptx.Symbol(label))
        self.lines[-1].guard = test

    def _keep(self, body: Body, register: str, offset: int) -> None:
        kind = body.kernel.registers[register]
        place = ptx.Address(ptx.Register(STACK), offset)
        if kind == "pred":
            word = f"{register}#word"
            self.result.registers[word] = "b32"
            self._emit("selp.u32", word, ptx.Immediate(1), ptx.Immediate(0), register)
            self._emit("st.local.u32", place, word)
        else:
            self._emit(f"st.local.b{8 * ptx.SIZES[kind]}", place, register)

    def _take(self, body: Body, register: str, offset: int) -> None:
        kind = body.kernel.registers[register]
        place = ptx.Address(ptx.Register(STACK), offset)
        if kind == "pred":
            word = f"{register}#word"
            self._emit("ld.local.u32", word, place)
            self._emit("setp.ne.u32", register, word, ptx.Immediate(0))
        else:
            self._emit(f"ld.local.b{8 * ptx.SIZES[kind]}", register, place)

    def _return(self, name: str, body: Body, i: ptx.Instruction) -> None:
        self.source = i
        stay = f"stay:{name}:{len(self.lines)}"
        if i.guard:
            self.lines.append(
                replace(
                    i, opcode="bra", operands=[ptx.Symbol(stay)], guard_negated=not i.guard_negated
                )
            )
        for k, v in enumerate(body.kernel.results):
            for at, register in body.places[v.name].items():
                self._emit(_move(at[1]), self._passed("result", k, at), register)
        self._emit("bra", ptx.Symbol(f"leave:{name}"))
        self.lines.append(ptx.Label(stay))

    def _returns(self, name: str) -> None:
        """Where a function's returns go: back to whichever site called."""
        self.lines.append(ptx.Label(f"leave:{name}"))
        self._emit("ld.local.u32", SITE, ptx.Address(ptx.Register(STACK)))
        for number, (target, back) in enumerate(self.sites, 1):
            if target == name or target is None and name in self.addressed:
                value = ptx.Immediate(number)
                self._branch_if_equal(f"%back{number}:{name}", "u32", SITE, value, back)
        self._emit("trap")
        self._emit("exit")

    def _passed(self, what: str, k: int, at: tuple[int, int]) -> str:
        """The register in which the k-th argument's (result's) bytes at (offset, size) travel."""
        name = f"%{what}{k}+{at[0]}:{at[1]}"
        self.result.registers[name] = place_kind(at[1])
        return name

    source = ptx.Instruction("call", (), [])  # whose line the instructions made here carry

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
