"""Random kernels whose accesses are known, and what `rules` says that they cost, line by line.

A program is a tree of statements. It is written as CUDA C, and it is walked here once for each
thread, which gives the addresses of all its accesses. Lanes that come to one line in the same
iterations of all loops and calls around it make one request.

Conditions and indices are hashes of the thread's indices, of the block's and of loop counters:
nothing is read from memory, and the compiler finds no pattern in them unless one is meant.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from helpers.simt import rules

WORDS = 2048  # of 4 bytes: each array's size
TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
_VECTORS = {8: "v2.u32", 16: "v4.u32"}
NAMES = ("x", "y", "z", "k0", "k1", "k2", "b", "d")
MASK = (1 << 32) - 1

HEAD = """\
__device__ __forceinline__ unsigned mix(unsigned a) {
    a ^= a >> 16; a *= 0x7feb352du; a ^= a >> 15; a *= 0x846ca68bu; return a ^ a >> 16;
}
"""


def mix(a: int) -> int:
    a ^= a >> 16
    a = a * 0x7FEB352D & MASK
    a ^= a >> 15
    a = a * 0x846CA68B & MASK
    return a ^ a >> 16


@dataclass(frozen=True)
class Sum:
    """A linear function of the names, hashed if `salt` is not 0, modulo `limit`, times `scale`."""

    factors: tuple[int, ...]
    constant: int
    salt: int
    limit: int
    scale: int = 1

    def text(self) -> str:
        terms = [f"{f}u * {n}" for f, n in zip(self.factors, NAMES, strict=True) if f]
        found = " + ".join([*terms, f"{self.constant}u"])
        if self.salt:
            found = f"mix(({found}) ^ {self.salt}u)"
        found = f"({found}) % {self.limit}u"
        return f"({found}) * {self.scale}u" if self.scale != 1 else found

    def value(self, env: dict[str, int]) -> int:
        found = self.constant
        for f, n in zip(self.factors, NAMES, strict=True):
            found += f * env[n]
        found &= MASK
        if self.salt:
            found = mix(found ^ self.salt)
        return found % self.limit * self.scale


@dataclass(frozen=True)
class Request:
    space: str
    operation: str
    size: int


@dataclass
class Program:
    """One kernel: its lines, the statements, and the functions they call."""

    seed: int
    lines: list[str] = field(default_factory=list)
    functions: dict[str, list] = field(default_factory=dict)
    body: list = field(default_factory=list)
    block: tuple[int, int, int] = (32, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"


class _Return(Exception):
    pass


class _Break(Exception):
    pass


class Maker:
    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.program = Program(seed)
        self.depth = 0
        self.loops = 0
        self.in_function = False
        self.inside = 0  # loops around a statement, in its own function

    def make(self) -> Program:
        r, p = self.r, self.program
        p.block = r.choice([(32, 1, 1), (64, 1, 1), (45, 1, 1), (8, 4, 1), (16, 16, 1), (5, 7, 1),
                            (4, 4, 4), (3, 5, 7), (32, 3, 1), (64, 2, 1), (1, 1, 1)])  # fmt: skip
        p.grid = r.choice([(1, 1, 1), (7, 1, 1), (3, 2, 1), (2, 2, 3)])
        for text in HEAD.splitlines():
            self.line(text)
        self.in_function = True
        kinds = ["plain"] * r.randint(0, 2) + ["again"] * (r.random() < 0.3)
        kinds += ["pointed"] * (2 * (r.random() < 0.3))
        for n, kind in enumerate(kinds):
            self.function(f"{kind}{n}", kind)
        self.in_function = False
        pointed = [n for n in p.functions if n.startswith("pointed")]
        if pointed:
            self.line(f"typedef void (*Function)({PARAMETERS});")
            self.line(f"__constant__ Function table[] = {{{', '.join(pointed)}}};")
        self.line('extern "C" __global__ void kernel(unsigned *g, int zero) {')
        self.line("    __shared__ __align__(128) unsigned s[2048];")
        self.line("    __align__(16) unsigned l[64];")
        self.line("    const unsigned x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;")
        self.line("    const unsigned b = blockIdx.x + 3 * blockIdx.y + 7 * blockIdx.z;")
        self.line("    const unsigned k0 = 0, k1 = 0, k2 = 0, d = 0;")
        p.body = self.statements(r.randint(3, 7), "    ")
        self.line("}")
        return p

    def function(self, name: str, kind: str) -> None:
        self.depth, self.loops = 1, 1
        self.line(f"__device__ __noinline__ void {name}({PARAMETERS}) {{")
        body = self.statements(self.r.randint(1, 3), "    ")
        if kind == "again":
            self.line(f"    if (d) {name}(g, s, l, zero, x, y, z, b, k0, d - 1);")
            body.append(("again", name))
            body.append(self._access("    "))  # else the compiler makes it a loop, and unrolls it
        self.line("}")
        self.program.functions[name] = body

    def line(self, text: str) -> int:
        self.program.lines.append(text)
        return len(self.program.lines)

    def sum(self, limit: int, scale: int = 1, hashed: float = 0.3) -> Sum:
        r = self.r
        names = ["x", "y", "z", "b"] + [f"k{n}" for n in range(self.loops)]
        if self.in_function:
            names.append("d")
        factors = dict.fromkeys(NAMES, 0)
        for n in names:
            if r.random() < 0.6:
                factors[n] = r.choice([1, 1, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64])
        if r.random() < 0.5:
            factors["x"] = r.choice([1, 1, 2, 4, 32])
        salt = r.randint(1, MASK) if r.random() < hashed else 0
        return Sum(tuple(factors.values()), r.choice([0, 0, 1, 2, 3, 5, 64]), salt, limit, scale)

    def statements(self, count: int, indent: str) -> list:
        return [self.statement(indent) for _ in range(count)]

    def statement(self, indent: str) -> tuple:
        r = self.r
        kinds = ["access"] * 6 + ["guarded"] * 2
        if self.depth < 3:
            kinds += ["if", "if", "loop", "loop", "switch"]
        kinds += ["break"] * (self.inside > 0)
        if not self.in_function:
            kinds += ["call"] * 2 * bool(self.program.functions) + ["barrier"]
        kinds += ["return"] * (r.random() < 0.3)
        return getattr(self, f"_{r.choice(kinds)}")(indent)

    def _access(self, indent: str, before: str = "") -> tuple:
        r = self.r
        space = r.choice(["global", "global", "shared", "shared", "local", "generic"])
        operation = r.choice(["load", "load", "store", "atomic"])
        size = r.choice([1, 2, 4, 4, 4, 8, 16])
        inside = space
        if space == "generic":
            inside = r.choice(["global", "shared", "local"])
        if operation == "atomic":
            size = 4
            if inside == "local":
                operation = "load"
        limit = (256 if inside == "local" else 4 * WORDS) // size
        index = self.sum(limit)
        pointer = {"global": "g", "shared": "s", "local": "l"}[inside]
        ty = TYPES[size]
        if space == "generic":
            pointer = f"(zero ? g + 64 : {pointer})" if inside != "global" else "(zero ? s : g)"
        at = f"({ty} *){pointer} + {index.text()}"
        number = self.line(indent + before + _statement(operation, size, at))
        return "access", number, Request(inside, operation, size), index

    def _guarded(self, indent: str) -> tuple:
        cond = self.sum(self.r.choice([2, 3, 5]), 1, 0.7)
        access = self._access(indent, f"if ({cond.text()} == 0) ")
        return "if", cond, [access], []

    def _if(self, indent: str) -> tuple:
        cond = self.sum(self.r.choice([2, 3, 5]), 1, 0.7)
        self.depth += 1
        self.line(f"{indent}if ({cond.text()} == 0) {{")
        yes = self.statements(self.r.randint(1, 2), indent + "    ")
        no = []
        if self.r.random() < 0.5:
            self.line(f"{indent}}} else {{")
            no = self.statements(self.r.randint(1, 2), indent + "    ")
        self.line(f"{indent}}}")
        self.depth -= 1
        return "if", cond, yes, no

    def _loop(self, indent: str) -> tuple:
        r = self.r
        count = self.sum(r.choice([3, 5, 9]), 1, 0.5)
        name = f"k{self.loops}"
        if self.loops == 3:
            return self._access(indent)
        self.line(f"{indent}#pragma unroll 1")
        self.line(f"{indent}for (unsigned {name} = 0, end = {count.text()}; {name} < end; "
                  f"++{name}) {{")  # fmt: skip
        self.depth += 1
        self.loops += 1
        self.inside += 1
        body = self.statements(r.randint(1, 3), indent + "    ")
        self.inside -= 1
        self.loops -= 1
        self.depth -= 1
        self.line(f"{indent}}}")
        return "loop", name, count, body

    def _break(self, indent: str) -> tuple:
        cond = self.sum(6, 1, 0.7)
        self.line(f"{indent}if ({cond.text()} == 0) break;")
        return "break", cond

    def _switch(self, indent: str) -> tuple:
        of = self.sum(5, 1, 0.8)
        self.depth += 1
        self.line(f"{indent}switch ({of.text()}) {{")
        arms = []
        for k in range(4):
            self.line(f"{indent}case {k}:")
            arms.append([self._access(indent + "    ")])
            self.line(f"{indent}    break;")
        self.line(f"{indent}}}")
        self.depth -= 1
        return "switch", of, arms

    def _call(self, indent: str) -> tuple:
        names = list(self.program.functions)
        name = self.r.choice(names)
        depth = self.sum(4, 1, 0.5)
        rest = f"(g, s, l, zero, x, y, z, b, k0, {depth.text()});"
        if name.startswith("pointed"):
            pointed = [n for n in names if n.startswith("pointed")]
            which = self.sum(len(pointed), 1, 0.5)
            number = self.line(f"{indent}table[{which.text()}]{rest}")
            return "call", number, which, pointed, depth
        number = self.line(f"{indent}{name}{rest}")
        return "call", number, None, [name], depth

    def _barrier(self, indent: str) -> tuple:
        if self.depth:
            return self._access(indent)
        self.line(f"{indent}__syncthreads();")
        return ("barrier",)

    def _return(self, indent: str) -> tuple:
        cond = self.sum(7, 1, 0.7)
        self.line(f"{indent}if ({cond.text()} == 0) return;")
        return "return", cond


PARAMETERS = ("unsigned *g, unsigned *s, unsigned *l, int zero, unsigned x, unsigned y, "
              "unsigned z, unsigned b, unsigned k0, unsigned d")  # fmt: skip


def _statement(operation: str, size: int, at: str) -> str:
    ty = TYPES[size]
    if operation == "atomic":
        return f"atomicAdd({at}, 1u);"
    if size <= 4:
        volatile = f"*(volatile {ty} *)({at})"
        return f"(void){volatile};" if operation == "load" else f"{volatile} = {size};"
    count = size // 4
    values = ", ".join(f"%{k + (operation == 'store')}" for k in range(count))
    kind = _VECTORS[size]
    if operation == "load":
        out = ", ".join(f'"=r"(v{k})' for k in range(count))
        names = ", ".join(f"v{k}" for k in range(count))
        return (f'{{ unsigned {names}; asm volatile("ld.volatile.{kind} {{{values}}}, [%{count}];" '
                f': {out} : "l"({at})); }}')  # fmt: skip
    given = ", ".join(['"r"(7)'] * count)
    return f'asm volatile("st.volatile.{kind} [%0], {{{values}}};" :: "l"({at}), {given});'


def make(seed: int) -> Program:
    return Maker(seed).make()


# -- what it does ----------------------------------------


class Walk:
    """One thread: its accesses as (line, iterations around it) -> (request, offset)."""

    def __init__(self, program: Program, env: dict[str, int]):
        self.program, self.env = program, env
        self.found: dict[tuple, tuple[Request, int]] = {}

    def run(self) -> dict[tuple, tuple[Request, int]]:
        try:
            self.walk(self.program.body, ())
        except _Return:
            pass
        return self.found

    def walk(self, statements: list, path: tuple) -> None:
        for s in statements:
            getattr(self, f"_{s[0]}")(*s[1:], path)

    def _access(self, number: int, request: Request, index: Sum, path: tuple) -> None:
        key = number, path
        assert key not in self.found
        self.found[key] = request, index.value(self.env) * request.size

    def _if(self, cond: Sum, yes: list, no: list, path: tuple) -> None:
        self.walk(no if cond.value(self.env) else yes, path)

    def _loop(self, name: str, count: Sum, body: list, path: tuple) -> None:
        before = self.env[name]
        self.env[name] = 0
        end = count.value(self.env | {name: before})
        try:
            for k in range(end):
                self.env[name] = k
                self.walk(body, (*path, k))
        except _Break:
            pass
        finally:
            self.env[name] = before

    def _break(self, cond: Sum, path: tuple) -> None:
        if not cond.value(self.env):
            raise _Break

    def _switch(self, of: Sum, arms: list, path: tuple) -> None:
        which = of.value(self.env)
        if which < len(arms):
            self.walk(arms[which], path)

    def _call(self, number: int, which, names: list, depth: Sum, path: tuple) -> None:
        name = names[which.value(self.env) if which else 0]
        self.enter(name, depth.value(self.env), (*path, number))

    def _again(self, name: str, path: tuple) -> None:
        if self.env["d"]:
            self.enter(name, self.env["d"] - 1, (*path, "again"))

    def enter(self, name: str, d: int, path: tuple) -> None:
        before = self.env
        self.env = before | {"d": d, "k1": 0, "k2": 0}
        try:
            self.walk(self.program.functions[name], path)
        except _Return:
            pass
        finally:
            self.env = before

    def _barrier(self, path: tuple) -> None:
        pass

    def _return(self, cond: Sum, path: tuple) -> None:
        if not cond.value(self.env):
            raise _Return


def expected(program: Program) -> dict[tuple[int, str, str], list[int]]:
    """(line, space, operation) -> requests, lanes, units, ideal units."""
    requests: dict[tuple, dict[int, tuple[Request, int]]] = defaultdict(dict)
    bx, by, bz = program.block
    gx, gy, gz = program.grid
    for block in range(gx * gy * gz):
        b = block % gx + 3 * (block // gx % gy) + 7 * (block // gx // gy)
        for t in range(bx * by * bz):
            env = dict.fromkeys(NAMES, 0)
            env |= {"x": t % bx, "y": t // bx % by, "z": t // bx // by, "b": b}
            for key, access in Walk(program, env).run().items():
                requests[block, t // 32, key][t % 32] = access
    totals: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (_, _, (line, _)), lanes in requests.items():
        (request,) = {r for r, _ in lanes.values()}
        mask = sum(1 << lane for lane in lanes)
        places = [lanes[lane][1] if lane in lanes else 0 for lane in range(32)]
        total = totals[line, request.space, request.operation]
        for k, n in enumerate(_cost(request, places, mask)):
            total[k] += n
    return dict(totals)


def _cost(request: Request, places: list[int], mask: int) -> tuple[int, int, int, int]:
    size, lanes = request.size, mask.bit_count()
    if request.space == "local":
        units = rules.local_sectors(places, mask, size)
        return rules.local_requests(size), lanes, units, -(-lanes * size // 32)
    if request.space == "global":
        ideal = rules.ideal_sectors(places, mask, size)
        if request.operation == "atomic":
            return 1, lanes, rules.atomic_sectors(places, mask), ideal
        return 1, lanes, rules.sectors(places, mask), ideal
    if request.operation == "atomic":
        return 1, lanes, *rules.atomic_wavefronts(places, mask, size)
    return 1, lanes, *rules.wavefronts(places, mask, size, request.operation == "load")
