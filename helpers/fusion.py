"""Which memory instructions of a kernel's PTX share one machine instruction.

ptxas may fuse neighbouring accesses: four ``ld.shared.f32`` at [r], [r+4], [r+8], [r+12] become
one ``LDS.128``.  The hardware then counts one request where the PTX has four.

    kernel = ptx.parse(text).kernels[name]
    (function,) = (f for f in disassemble(text, "sm_90") if f.name == name)
    fused = fuse(kernel, function)

For each group in ``fused.groups`` the hardware executes one access whenever the PTX executes each
of the group's members.  Its address, lane by lane, is that of any member rounded down to a
multiple of the group's width: the hardware takes aligned accesses only (PTX ISA 6.4.1).

Nothing here is a guess.  What is known is the PTX line of each machine instruction; a fused one
bears that of one of its members.  Accesses are told apart in *runs*: one block, no barrier inside,
one base register (or one that differs from it by a constant), so that all offsets are known.  A
run is resolved if exactly one assignment of its PTX instructions to its machine instructions
remains such that

- a fused access holds whole members, and one of them is the one whose line it bears;
- every access starts at a multiple of its width, counted from one common origin;
- every PTX instruction is covered equally often (once, or once in each copy of an unrolled loop);
- the arithmetic that uses a loaded value, or the loop around, has as many copies as the access;
- no access was moved into or out of a loop or a condition.

Otherwise it is unresolved, with the reason.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from helpers.control_flow import ControlFlow
from helpers.sass import SassFunction, SassInstruction
from helpers.simt import ptx
from helpers.simt.flow import destinations, sources

#: Machine opcode -> (operation, space); LD and ST find the space when they run.
_MEMORY = {
    "LDS": ("ld", "shared"),
    "STS": ("st", "shared"),
    "LDG": ("ld", "global"),
    "STG": ("st", "global"),
    "LDL": ("ld", "local"),
    "STL": ("st", "local"),
    "LD": ("ld", "generic"),
    "ST": ("st", "generic"),
}
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_WIDEST = 32
_VOLATILE = {"volatile", "relaxed", "acquire", "release", "mmio"}
#: No access is fused with one on the other side of these.
_FENCES = {"bar", "barrier", "membar", "fence", "atom", "red", "call", "mbarrier", "cp"}
#: These make loads and stores of their own in the machine code, as do ld and st of parameters.
_OTHERS = _FENCES | {"ldmatrix", "stmatrix", "wmma"}
#: Arithmetic on 32-bit integers and floats: as a rule one machine instruction for each of the PTX.
_ARITHMETIC = {"fma", "add", "sub", "mul", "mad", "and", "or", "xor", "min", "max"}
_ARITHMETIC_TYPES = {"f32", "f64", "s32", "u32", "b32"}
_MACHINE_ARITHMETIC = set(
    "FFMA FADD FMUL FMNMX DFMA DADD DMUL IADD IADD3 VIADD IMAD LOP3 IMNMX VIMNMX BAR".split()
)


@dataclass(frozen=True)
class Access:
    """A load or store of the PTX: ld or st in shared, global, local or generic space."""

    id: int  # its place in `Kernel.body`
    ptx_line: int
    file: str
    line: int
    operation: str  # "ld" or "st"
    space: str  # "shared", "global", "local" or "generic"
    width: int  # bytes a lane: 16 for .v4.f32
    volatile: bool  # made each time, alone: .volatile, .relaxed, .acquire, .release
    block: int  # of the PTX, from 0, in the order of the text
    run: tuple  # accesses of one run have equal ones
    offset: int  # bytes from the base of its run


@dataclass(frozen=True)
class Group:
    """PTX accesses that one machine instruction makes."""

    members: tuple[int, ...]  # ids, by offset; one: the access is kept as it is
    width: int  # bytes a lane of the machine instruction
    opcode: str  # "LDS.128"
    copies: int  # how many there are of it: more than one where ptxas unrolled a loop
    predicated: bool  # executed, for no lane, also where the PTX's branch goes around it


@dataclass(frozen=True)
class Unresolved:
    """PTX accesses whose machine instructions are not known for certain."""

    members: tuple[int, ...]
    reason: str  # a sentence that names the line


@dataclass(frozen=True)
class Fusion:
    """What `fuse` found.  Each id is in one group, or one unresolved entry, or removed."""

    accesses: dict[int, Access]
    groups: tuple[Group, ...]
    unresolved: tuple[Unresolved, ...]
    removed: tuple[int, ...]  # the machine code has no access at all of their kind
    others: tuple[SassInstruction, ...]  # machine loads and stores that are made of no access

    @property
    def spills(self) -> int:
        """How many machine instructions save registers in local memory or fetch them."""
        return sum(i.opcode.startswith(("LDL", "STL")) for i in self.others)


class _Machine:
    """The machine's instructions, by what they were made from."""

    def __init__(self, function: SassFunction, reader: _Reader):
        self.flow = function.flow
        self.by_line: dict[int, list[SassInstruction]] = defaultdict(list)
        #: Made of an instruction that is none to access memory; one of a kind.
        self.strays: dict[tuple[str, str], SassInstruction] = {}
        self.kinds: set[tuple[str, str]] = set()  # all (operation, space) that there are
        self.others: list[SassInstruction] = []
        self.arithmetic: Counter = Counter()  # PTX line -> arithmetic, barriers and stores
        #: Block -> PTX line of its last instruction, the branch.
        self.branch_lines = {i.block: i.ptx_line for i in function.instructions}
        lines: dict[int, list[Access]] = defaultdict(list)
        for access in reader.accesses:
            lines[access.ptx_line].append(access)
        for i in function.instructions:
            opcode = i.opcode.partition(".")[0]
            if opcode in _MEMORY and i.predicate != "!PT":  # never executed: fills time
                self.kinds.add(_MEMORY[opcode])
                if any(_fits(access, i) for access in lines[i.ptx_line]):
                    self.by_line[i.ptx_line].append(i)
                    self.arithmetic[i.ptx_line] += opcode.startswith("ST")
                else:
                    self.others.append(i)
                    if i.ptx_line not in reader.other_lines:
                        self.strays.setdefault(_MEMORY[opcode], i)
            elif opcode in _MACHINE_ARITHMETIC and ".MOV" not in i.opcode:
                self.arithmetic[i.ptx_line] += 1

    def may_make(self, access: Access) -> bool:
        """Whether there is any instruction at all that could make `access`."""
        return any(
            operation == access.operation
            and "generic" in (space, access.space)
            or (operation, space) == (access.operation, access.space)
            for operation, space in self.kinds
        )


class _Doubt(Exception):
    """A run cannot be resolved; the text says why."""


def fuse(kernel: ptx.Kernel, function: SassFunction) -> Fusion:
    """Match the loads and stores of `kernel` with those of `function`, its machine code.

    Both have to come from the same PTX text.  Only ld and st are looked at: no atomics, no
    cp.async, no matrix loads, and nothing in .param or .const.
    """
    reader = _Reader(kernel)
    machine = _Machine(function, reader)
    runs: dict[tuple, list[Access]] = defaultdict(list)
    for access in reader.accesses:
        runs[access.run].append(access)
    groups: list[Group] = []
    unresolved: list[Unresolved] = []
    removed: list[int] = []
    for run in runs.values():
        ids = tuple(access.id for access in run)
        if not machine.may_make(run[0]):
            removed += ids
            continue
        try:
            groups += _resolve(run, machine, reader)
        except _Doubt as doubt:
            unresolved.append(Unresolved(ids, f"{_where(run)}: {doubt}"))
    return Fusion(
        {access.id: access for access in reader.accesses},
        tuple(sorted(groups, key=lambda group: min(group.members))),
        tuple(sorted(unresolved, key=lambda entry: min(entry.members))),
        tuple(sorted(removed)),
        tuple(machine.others),
    )


# -- the PTX ----------------------------------------


class _Reader:
    """The accesses of a kernel's PTX, its blocks, and what uses each loaded value."""

    def __init__(self, kernel: ptx.Kernel):
        self.kernel = kernel
        self.accesses: list[Access] = []
        self.blocks: list[list[ptx.Instruction]] = []
        self.branch_lines: dict[int, int] = {}  # block -> PTX line of its conditional branch
        self._definitions = Counter(
            name
            for item in kernel.body
            if isinstance(item, ptx.Instruction)
            for name in destinations(item)
        )
        self._known: dict[str, tuple[tuple, int]] = {}  # register -> base and offset
        self.flow = ControlFlow(self._split())
        #: The PTX lines of the branches that decide whether a block runs.
        self.condition_lines = {
            line for b, line in self.branch_lines.items() if not self.flow.steers_a_loop(b)
        }
        #: PTX line of a branch -> of the first that is decided by the same predicate.
        self.first_line = self._repeated()
        #: Branches one after the other that go to one place, as of `a && b && c`: their PTX lines.
        self.chains = self._chains()
        places = {access.id for access in self.accesses}
        #: The PTX lines of what accesses memory in another way than by those loads and stores.
        self.other_lines = {
            item.ptx_line
            for place, item in enumerate(kernel.body)
            if isinstance(item, ptx.Instruction)
            and (item.opcode in _OTHERS or item.opcode in ("ld", "st") and place not in places)
        }
        self.lines = Counter((a.ptx_line, a.operation) for a in self.accesses)

    def conditions(self, block: int) -> set[int] | None:
        """The PTX lines of the branches that decide whether `block` runs."""
        blocks = self.flow.conditions(block)
        return None if blocks is None else self.firsts(self.branch_lines[b] for b in blocks)

    def firsts(self, lines: Iterable[int]) -> set[int]:
        """The PTX lines of branches, those that repeat another's decision under its line."""
        return {self.first_line.get(line, line) for line in lines}

    def users(self, access: Access) -> list[ptx.Instruction]:
        """The arithmetic and the stores in the same block that use the loaded value."""
        load = self.kernel.body[access.id]
        names = set(destinations(load))
        block = self.blocks[access.block]
        found = []
        start = next(n for n, i in enumerate(block) if i is load)
        for i in block[start + 1 :]:
            if _is_counted(i) and names & set(sources(i)):
                found.append(i)
            names -= set(destinations(i))
        return found

    def around(self, access: Access) -> list[ptx.Instruction]:
        """The arithmetic, barriers and stores of the smallest loop around an access."""
        header = self.flow.innermost_loop(access.block)
        body = () if header is None else self.flow.loops[header]
        return [
            i
            for b in body
            if self.flow.innermost_loop(b) == header
            for i in self.blocks[b]
            if _is_counted(i)
        ]

    def _repeated(self) -> dict[int, int]:
        """Two branches decide the same if their predicate has one definition, and all loops around
        that are also around both: between them it has not been computed again."""
        defined = {name: b for b, block in enumerate(self.blocks) for i in block
                   for name in destinations(i)}  # fmt: skip
        first: dict[str, int] = {}
        lines = {}
        for b, line in sorted(self.branch_lines.items()):
            guard = self.blocks[b][-1].guard
            if guard is None or self._definitions[guard] != 1:
                continue
            around = {h for h, body in self.flow.loops.items() if defined[guard] in body}
            if all(b in self.flow.loops[h] for h in around):
                lines[line] = first.setdefault(guard, line)
        return lines

    def _chains(self) -> list[tuple[int, ...]]:
        before = Counter(s for after in self.flow.successors for s in after)
        chains: dict[int, list[int]] = {}  # the last block -> all
        for b in sorted(self.branch_lines):
            target, *after = self.flow.successors[b]
            if len(after) != 1:
                continue
            quiet = not any(i.opcode in ("ld", "st") or i.opcode in _OTHERS for i in self.blocks[b])
            for last in [c for c in chains if self.flow.successors[c] == (target, b)]:
                if quiet and before[b] == 1:
                    chains[b] = [*chains.pop(last), b]
            chains.setdefault(b, [b])
        return [tuple(self.branch_lines[b] for b in c) for c in chains.values() if len(c) > 1]

    def _split(self) -> list[tuple[int, ...]]:
        labels: dict[str, int] = {}
        ends: list[tuple[list[str], bool]] = []  # the labels a block goes to; whether it goes on
        versions: Counter = Counter()
        segment = 0
        fresh = True
        for place, item in enumerate(self.kernel.body):
            if isinstance(item, ptx.Label):
                if self.blocks and not self.blocks[-1] and not fresh:
                    labels[item.name] = len(self.blocks) - 1
                    continue
                labels[item.name] = len(self.blocks)
                fresh = True
            if fresh:
                self.blocks.append([])
                ends.append(([], True))
                fresh = False
                versions.clear()
                segment = 0
            if isinstance(item, ptx.Label):
                continue
            block = len(self.blocks) - 1
            self.blocks[-1].append(item)
            segment += item.opcode in _FENCES
            self._read(place, item, block, segment, versions)
            if item.opcode in ("bra", "brx", "ret", "exit"):
                fresh = True
                ends[-1] = (self._targets(item), item.guard is not None)
                if item.guard or item.opcode == "brx":
                    self.branch_lines[block] = item.ptx_line
        successors = []
        for block, (names, goes_on) in enumerate(ends):
            after = [labels.get(name, -1) for name in names]
            if goes_on:
                after.append(block + 1 if block + 1 < len(ends) else -1)
            successors.append(tuple(after))
        return successors

    def _targets(self, item: ptx.Instruction) -> list[str]:
        if item.opcode == "bra":
            return [item.operands[0].name]
        if item.opcode == "brx":
            return self.kernel.targets[item.operands[1].name]
        return [""]  # no label: the end

    def _read(
        self, place: int, item: ptx.Instruction, block: int, segment: int, versions: Counter
    ) -> None:
        shape = _shape(item)
        if shape:
            operation, space, width = shape
            address = next(o for o in item.operands if isinstance(o, ptx.Address))
            base, offset = self._base(address, block, versions)
            guard = (item.guard, item.guard_negated, versions[item.guard]) if item.guard else None
            run = (block, segment, operation, space, guard, base)
            self.accesses.append(
                Access(
                    place,
                    item.ptx_line,
                    item.file,
                    item.line,
                    operation,
                    space,
                    width,
                    not _VOLATILE.isdisjoint(item.modifiers),
                    block,
                    run,
                    offset,
                )
            )
        known = self._value(item, block, versions)
        for name in destinations(item):
            versions[name] += 1
            if known and self._definitions[name] == 1:
                self._known[name] = known

    def _base(self, address: ptx.Address, block: int, versions: Counter) -> tuple[tuple, int]:
        if isinstance(address.base, ptx.Register):
            base, offset = self._register(address.base.name, block, versions)
            return base, offset + address.offset
        if isinstance(address.base, ptx.Symbol):
            return ("variable", address.base.name), address.base.offset + address.offset
        return ("number",), getattr(address.base, "value", 0) + address.offset

    def _register(self, name: str, block: int, versions: Counter) -> tuple[tuple, int]:
        """A base and an offset from it for a register's value at this place."""
        if self._definitions[name] == 1:
            base, offset = self._known.get(name, ((name,), 0))
            # A base that has several values is the same one only within the block.
            return (base, offset) if len(base) < 3 or base[1] == block else ((name,), 0)
        return (name, block, versions[name]), 0

    def _value(
        self, item: ptx.Instruction, block: int, versions: Counter
    ) -> tuple[tuple, int] | None:
        """What `item` computes, as a base and an offset, if it is a copy or a sum with a number."""
        if item.guard or item.opcode not in ("mov", "add") or len(item.operands) < 2:
            return None
        source = item.operands[1]
        if isinstance(source, ptx.Symbol):
            value = ("variable", source.name), source.offset
        elif isinstance(source, ptx.Register):
            value = self._register(source.name, block, versions)
        else:
            return None
        if item.opcode == "mov":
            return value
        number = item.operands[2]
        if not isinstance(number, ptx.Immediate) or number.kind != "int":
            return None
        bits = 8 * ptx.SIZES[item.modifiers[-1]]
        step = (number.value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        return value[0], value[1] + step


def _is_counted(item: ptx.Instruction) -> bool:
    """Whether the machine code has, as a rule, one instruction for this one."""
    return item.opcode in ("st", "bar") or (
        item.opcode in _ARITHMETIC and item.modifiers[-1] in _ARITHMETIC_TYPES
    )


def _shape(item: ptx.Instruction) -> tuple[str, str, int] | None:
    """Operation, space and width in bytes of an ld or st; None for others."""
    if item.opcode not in ("ld", "ldu", "st") or item.modifiers[-1] not in ptx.SIZES:
        return None
    spaces = [m.partition("::")[0] for m in item.modifiers]
    if "param" in spaces or "const" in spaces:
        return None
    space = next((s for s in ("shared", "global", "local") if s in spaces), "generic")
    count = next((int(m[1:]) for m in item.modifiers if m in ("v2", "v4", "v8")), 1)
    operation = "st" if item.opcode == "st" else "ld"
    return operation, space, count * ptx.SIZES[item.modifiers[-1]]


# -- the machine code ----------------------------------------


def width_of(opcode: str) -> int:
    """Bytes a lane that a machine memory instruction moves: 16 for "LDS.128", 4 for "LDG.E"."""
    return next((_WIDTHS[m] for m in opcode.split(".")[1:] if m in _WIDTHS), 4)


def _fits(access: Access, i: SassInstruction) -> bool:
    """Whether `i` can be made from `access`: of a generic one ptxas may have found the space."""
    operation, space = _MEMORY[i.opcode.partition(".")[0]]
    return operation == access.operation and access.space in (space, "generic")


# -- one run ----------------------------------------


def _where(run: list[Access]) -> str:
    lines = sorted({a.line for a in run})
    return f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines))}"


def _resolve(run: list[Access], machine: _Machine, reader: _Reader) -> list[Group]:
    """The groups of `run`; raises _Doubt."""
    for access in run:
        if reader.lines[access.ptx_line, access.operation] > 1:
            raise _Doubt(f"line {access.ptx_line} of the PTX holds several accesses")
    for (operation, space), i in machine.strays.items():
        if run[0].operation == operation and run[0].space in (space, "generic"):
            raise _Doubt(
                f"the {i.opcode} at 0x{i.address:x} of the machine code was made of none of the "
                f"PTX's accesses to {space} memory"
            )
    made = [(access, i) for access in run for i in machine.by_line[access.ptx_line]]
    if not made:
        raise _Doubt("the machine code has no access of this line: it is fused or removed")
    kept = Counter(access.id for access, i in made if width_of(i.opcode) == access.width)
    copies = kept[run[0].id]
    if sum(kept.values()) == len(made) and all(kept[access.id] == copies for access in run):
        partition = frozenset((frozenset([access.id]), access.width) for access in run)
    else:
        partition, copies = _partition(run, made, machine, reader)
    _check_copies(run, copies, machine, reader)
    for access in run:
        _check_conditions(access, [i for a, i in made if a is access], machine, reader)
    _check_depth(run[0], [i for _, i in made], machine, reader)
    return [_group(run, ids, width, copies, made) for ids, width in partition]


def _group(
    run: list[Access],
    ids: frozenset[int],
    width: int,
    copies: int,
    made: list[tuple[Access, SassInstruction]],
) -> Group:
    fitting = [(access.id, i) for access, i in made if width_of(i.opcode) == width]
    # Where members were not fused after all, the line may be that of another access of the run.
    own = [i for id, i in fitting if id in ids] or [i for _, i in fitting]
    opcodes = {i.opcode for i in own}
    if len(opcodes) > 1:
        raise _Doubt(f"both {' and '.join(sorted(opcodes))} are made of one access")
    members = sorted((access.offset, access.id) for access in run if access.id in ids)
    predicated = any(i.predicate is not None for i in own)
    return Group(tuple(id for _, id in members), width, opcodes.pop(), copies, predicated)


def _partition(
    run: list[Access],
    made: list[tuple[Access, SassInstruction]],
    machine: _Machine,
    reader: _Reader,
) -> tuple[frozenset, int]:
    """The groups of a run that is not kept as it is, and the number of their copies."""
    shapes = Counter((access.id, width_of(i.opcode)) for access, i in made)
    once = _appears_once(run, machine, reader)
    found = _partitions(run, shapes, once)
    if not found and once:
        found = _partitions_by_offset(run, made)
    if len(found) > 1:
        raise _Doubt("several ways to fuse its accesses would give the same machine code")
    if not found:
        said = ", ".join(f"{n} {name}" for name, n in Counter(i.opcode for _, i in made).items())
        raise _Doubt(f"the PTX's {len(run)} accesses do not make up the machine code's {said}")
    return found.pop()


def _partitions(run: list[Access], shapes: Counter, once: bool) -> set[tuple[frozenset, int]]:
    """Each way to fuse `run` that has the accesses `shapes`: (id whose line it bears, width)."""
    by_id = {a.id: a for a in run}
    grain = math.gcd(_WIDEST, *(a.width for a in run), *(a.offset - run[0].offset for a in run))
    found = set()
    for origin in range(run[0].offset, run[0].offset + _WIDEST, grain):
        groups: dict[tuple[frozenset, int], int] = {}
        covered: Counter = Counter()
        for (id, width), count in shapes.items():
            start = (by_id[id].offset - origin) // width * width + origin
            members = _members(run, start, width, once)
            if id not in members or (members, width) in groups:
                break
            groups[members, width] = count
            covered.update(dict.fromkeys(members, count))
        else:
            counts = {covered[a.id] for a in run} | set(groups.values())
            if len(counts) == 1 and 0 not in counts:
                found.add((frozenset(groups), counts.pop()))
    return found


def _members(run: list[Access], start: int, width: int, once: bool) -> frozenset[int]:
    """The ids of the accesses in a machine access; empty if it cannot be made of them.

    In a loop that was unrolled, bytes that no member wants may be those of the next rounds.
    """
    members = [a for a in run if a.offset < start + width and start < a.offset + a.width]
    whole = all(start <= a.offset and a.offset + a.width <= start + width for a in members)
    wanted = {b for a in members for b in range(a.offset, a.offset + a.width)}
    full = len(wanted) == width
    gap = once and len({a.offset for a in members}) > 1
    return frozenset(a.id for a in members) if whole and (full or gap) else frozenset()


def _partitions_by_offset(
    run: list[Access], made: list[tuple[Access, SassInstruction]]
) -> set[tuple[frozenset, int]]:
    """As `_partitions`, where one member's line stands for accesses that were not fused after all.

    Then the machine's own offsets tell: all have one base register, and the first of them in
    memory is the first of the PTX's.
    """
    places = [_offset(i) for _, i in made]
    if len({i.block for _, i in made}) > 1 or len({base for base, _ in places}) > 1:
        return set()
    shift = min(offset for _, offset in places) - min(a.offset for a in run)
    groups = []
    for (_, i), (_, offset) in zip(made, places, strict=True):
        width = width_of(i.opcode)
        members = _members(run, offset - shift, width, once=False)
        groups.append((members, width))
    ids = sorted(id for members, _ in groups for id in members)
    return {(frozenset(groups), 1)} if ids == sorted(a.id for a in run) else set()


def _offset(i: SassInstruction) -> tuple[str, int]:
    """Base and offset of a machine access: "[R4+0x10]" is R4 and 16."""
    address = next(o for o in i.operands if o.endswith("]"))
    inside = address[address.rindex("[") + 1 : -1]
    base, _, last = inside.rpartition("+")
    try:
        return base, int(last, 0)
    except ValueError:
        return inside, 0


# -- what makes it certain ----------------------------------------


def _code_copies(run: list[Access], machine: _Machine, reader: _Reader) -> set[int]:
    """How often the code that uses what `run` loads stands in the machine code."""
    users = [i for access in run if access.operation == "ld" for i in reader.users(access)]
    return {machine.arithmetic[i.ptx_line] for i in users} - {0}


def _loop_copies(run: list[Access], machine: _Machine, reader: _Reader) -> int | None:
    """How often the body of the smallest loop around `run` stands in the machine code, if known.

    What does not change in the loop is taken out of it and stands there less often.
    """
    around = {machine.arithmetic[i.ptx_line] for i in reader.around(run[0])}
    return max(around | _code_copies(run, machine, reader), default=0) or None


def _appears_once(run: list[Access], machine: _Machine, reader: _Reader) -> bool:
    """Whether the code around `run` is certainly not unrolled."""
    in_loop = reader.flow.depth(run[0].block) > 0
    return not in_loop or _loop_copies(run, machine, reader) == 1


def _check_copies(run: list[Access], copies: int, machine: _Machine, reader: _Reader) -> None:
    """Raise if there are more or fewer copies of the accesses than of the code around them: then
    some are shared by several rounds of a loop."""
    if all(access.volatile for access in run):
        return
    if reader.flow.depth(run[0].block):
        around = {_loop_copies(run, machine, reader)}
    else:
        around = _code_copies(run, machine, reader) or {copies}
    if copies not in around:
        said = " or ".join(str(n or "an unknown number") for n in around)
        raise _Doubt(
            f"its accesses have {copies} copies in the machine code, and the code around them has "
            f"{said}"
        )


def _check_conditions(
    access: Access, made: list[SassInstruction], machine: _Machine, reader: _Reader
) -> None:
    """Raise unless the machine decides by the same branches as the PTX whether to make the access.

    A branch of the PTX may have become the instruction's predicate, and one branch of the machine
    may bear another line than that of the PTX's branch. Where branches follow one another and go to
    one place, the machine may have one branch for several: it bears the line of the last.
    """
    wanted = reader.conditions(access.block)
    guarded = reader.kernel.body[access.id].guard is not None
    places = {i.block for i in made}
    for i in made:
        conditions = machine.flow.conditions(i.block)
        if wanted is None or conditions is None:
            raise _Doubt("it is not known which branches lead to it")
        lines = reader.firsts(machine.branch_lines[b] for b in conditions)
        missing = wanted - lines
        for chain in reader.chains:
            own = {b for b, line in machine.branch_lines.items() if line in chain}
            own = {b for b in own if len(machine.flow.successors[b]) > 1}
            if wanted.issuperset(chain) and chain[-1] in lines and own <= conditions:
                missing -= set(chain)
        unnamed = [
            b
            for b in conditions
            if machine.branch_lines[b] not in reader.branch_lines.values()
            # Else it only chooses between copies of an unrolled loop.
            and not all(machine.flow.reaches(s, places, b) for s in machine.flow.successors[b])
        ]
        name = f"the {i.opcode} at 0x{i.address:x} of the machine code"
        if (lines & reader.firsts(reader.condition_lines)) - wanted:
            raise _Doubt(f"{name} was moved under a condition")
        if i.predicate is None and (guarded or len(missing) > len(unnamed)):
            raise _Doubt(f"{name} does not wait for the PTX's condition")
        if i.predicate is not None and not (guarded or missing):
            raise _Doubt(f"{name} has a condition that the PTX does not have")


def _check_depth(
    access: Access, made: list[SassInstruction], machine: _Machine, reader: _Reader
) -> None:
    wanted = reader.flow.depth(access.block)
    deepest = max(machine.flow.depth(i.block) for i in made)
    if deepest < wanted:
        raise _Doubt("its accesses are outside the PTX's loop: hoisted, or the loop was dissolved")
    if deepest > wanted:
        raise _Doubt("its accesses are in a loop that the PTX does not have")
