"""Control flow of one kernel: basic blocks, dominators and live registers.

Functions that a kernel calls with `enter` (see stack) are graphs of their own beside the kernel's:
no edge leads into them or back, and what is live in one of them is not live in its callers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import ptx
from .errors import InvalidPtx
from .stack import first_label

# Instructions whose first operand is not a destination.
_NO_DESTINATION = {
    "st",
    "red",
    "bar",
    "barrier",
    "membar",
    "fence",
    "trap",
    "brkpt",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "stu",
    "pmevent",
    "discard",
    "applypriority",
    "cp",
    "call",
    "bra",
    "brx",
    "ret",
    "exit",
    "leave",
}

_NO_DESTINATION_FORMS = {("wmma", "store"), ("mbarrier", "init"), ("mbarrier", "inval")}

_SHARED_BY_THREADS = {"volatile", "relaxed", "acquire", "mmio"}
_TOGETHER = {"shfl", "vote", "match", "redux", "ldmatrix", "movmatrix", "mma", "wmma", "elect"}


@dataclass
class Branch:
    """How a block ends: to `target`, or if `guard` is given, there or to `otherwise`.

    target None: the kernel's end for the lanes that get there.
    """

    target: int | None
    guard: str | None = None
    negated: bool = False
    otherwise: int | None = None
    instruction: ptx.Instruction | None = None  # what is written for it, if anything

    @property
    def successors(self) -> list[int]:
        both = [self.target] if self.guard is None else [self.target, self.otherwise]
        return [t for t in dict.fromkeys(both) if t is not None]


@dataclass
class Block:
    index: int
    instructions: list[ptx.Instruction] = field(default_factory=list)
    end: Branch = field(default_factory=lambda: Branch(None))
    live_in: int = 0  # bit sets over Graph.number
    live_out: int = 0
    predecessors: list[int] = field(default_factory=list)


def registers_in(operand) -> list[str]:
    """The names of all registers an operand mentions."""
    if isinstance(operand, ptx.Register):
        return [] if operand.name == "_" else [operand.name]
    if isinstance(operand, ptx.Address):
        return registers_in(operand.base)
    if isinstance(operand, ptx.Vector):
        return [r for e in operand.elements for r in registers_in(e)]
    if isinstance(operand, tuple):
        return [r for e in operand for r in registers_in(e)]
    return []


def targets(instruction: ptx.Instruction) -> tuple[ptx.Register, ...]:
    """The first operand's registers in order, `_` among them: d, d|p or {a, b, ...}."""
    first = instruction.operands[0]
    if isinstance(first, ptx.Vector):
        return first.elements
    return first if isinstance(first, tuple) else (first,)


def destinations(instruction: ptx.Instruction) -> list[str]:
    """The registers an instruction writes."""
    if not instruction.operands:
        return []
    if instruction.opcode in _NO_DESTINATION and "red" not in instruction.modifiers:
        return []  # bar.red has one
    if (instruction.opcode, *instruction.modifiers[:1]) in _NO_DESTINATION_FORMS:
        return []
    return registers_in(instruction.operands[0])


def sources(instruction: ptx.Instruction) -> list[str]:
    """The registers an instruction reads, its guard and a guarded destination's old value too."""
    first = 1 if destinations(instruction) else 0
    names = [r for o in instruction.operands[first:] for r in registers_in(o)]
    if instruction.guard:
        names += [instruction.guard, *destinations(instruction)]
    return names


def is_poll(i: ptx.Instruction) -> bool:
    """Whether an instruction reads what another thread may be going to change."""
    if i.opcode == "ld":
        return not _SHARED_BY_THREADS.isdisjoint(i.modifiers)
    if i.opcode == "mbarrier":
        return i.modifiers[0] in ("test_wait", "try_wait")
    if i.opcode != "atom":
        return False
    last = i.operands[-1]
    adds_nothing = isinstance(last, ptx.Immediate) and last.value == 0
    return not {"cas", "exch"}.isdisjoint(i.modifiers) or adds_nothing


def is_meeting(i: ptx.Instruction) -> bool:
    """Whether lanes of a warp wait for each other at an instruction, or go through it together."""
    return i.opcode in _TOGETHER or i.opcode in ("bar", "barrier")


class Graph:
    """The kernel's blocks in reverse post-order (a block's index is its place in that order).

    entries: the first blocks of the functions behind the kernel's own code, by name. The blocks of
    each function follow one another.
    """

    def __init__(self, kernel: ptx.Kernel):
        self.kernel = kernel
        self.number = {name: i for i, name in enumerate(kernel.registers)}
        self.blocks, self.entries = _reorder(*_split(kernel))
        for block in self.blocks:
            for s in block.end.successors:
                self.blocks[s].predecessors.append(block.index)
        self._liveness()

    def bits(self, names) -> int:
        set_ = 0
        for name in names:
            set_ |= 1 << self.number[name]
        return set_

    def is_live(self, name: str, set_: int) -> bool:
        return bool(set_ >> self.number[name] & 1)

    def _liveness(self) -> None:
        use, define = [], []
        for block in self.blocks:
            used = defined = 0
            for i in block.instructions:
                used |= self.bits(sources(i)) & ~defined
                defined |= self.bits(destinations(i))
            if block.end.guard:
                used |= self.bits([block.end.guard]) & ~defined
            use.append(used)
            define.append(defined)
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                out = 0
                for s in block.end.successors:
                    out |= self.blocks[s].live_in
                live = use[block.index] | out & ~define[block.index]
                if live != block.live_in or out != block.live_out:
                    block.live_in, block.live_out = live, out
                    changed = True

    def live_after(self, block: Block) -> list[int]:
        """The registers live after each instruction of a block, as bit sets."""
        live = block.live_out | (self.bits([block.end.guard]) if block.end.guard else 0)
        after = []
        for i in reversed(block.instructions):
            after.append(live)
            live = live & ~self.bits(destinations(i)) | self.bits(sources(i))
        return after[::-1]


def _split(kernel: ptx.Kernel) -> tuple[list[Block], dict[str, int]]:
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    open_block = True  # the last block has no end yet
    pending: list[tuple[Block, str]] = []

    def start() -> Block:
        blocks.append(Block(len(blocks)))
        return blocks[-1]

    # Where lanes of a warp may wait for each other their meetings begin blocks (see scopes).
    instructions = [i for i in kernel.body if isinstance(i, ptx.Instruction)]
    polls = any(map(is_poll, instructions))
    syncs = sum(i.name == "bar.warp.sync" for i in instructions) > 1
    for item in kernel.body:
        if isinstance(item, ptx.Label):
            if open_block:
                blocks[-1].end = Branch(len(blocks))
            start()
            labels[item.name] = blocks[-1].index
            open_block = True
            continue
        if not open_block:  # code no label leads to
            start()
            open_block = True
        meets = polls and is_meeting(item) or syncs and item.name == "bar.warp.sync"
        if meets and blocks[-1].instructions:
            blocks[-1].end = Branch(len(blocks))
            start()
        if item.opcode not in ("bra", "ret", "exit"):
            blocks[-1].instructions.append(item)
            continue
        block = blocks[-1]
        open_block = item.guard is not None
        block.end = Branch(
            None, item.guard, item.guard_negated, len(blocks) if open_block else None, item
        )
        if item.opcode == "bra":
            pending.append((block, item.operands[0].name))
        if open_block:
            start()
    for block, name in pending:
        if name not in labels:
            raise InvalidPtx(f"kernel {kernel.name}: the label {name} is not defined")
        block.end.target = labels[name]
        if block.end.guard and block.end.target == block.end.otherwise:
            block.end = Branch(block.end.target, instruction=block.end.instruction)
    return blocks, {name: labels[first_label(name)] for name in kernel.functions}


def _reorder(blocks: list[Block], entries: dict[str, int]) -> tuple[list[Block], dict[str, int]]:
    """Blocks that can be reached, numbered in reverse post-order, and where the entries are then.

    A block that does nothing but end the kernel is dropped: branches to it become ends.
    """

    def final(target: int | None) -> int | None:
        seen = set()
        while target is not None and target not in seen:
            seen.add(target)
            block = blocks[target]
            if block.instructions or block.end.guard:
                return target
            target = block.end.target
        return target

    for block in blocks:
        block.end.target = final(block.end.target)
        if block.end.guard:
            block.end.otherwise = final(block.end.otherwise)
            if block.end.otherwise == block.end.target:
                block.end = Branch(block.end.target, instruction=block.end.instruction)
    order, seen = [], set()
    for first in (0, *entries.values()):
        after = []
        stack = [(first, iter(blocks[first].end.successors))]
        seen.add(first)
        while stack:
            at, successors = stack[-1]
            for s in successors:
                if s not in seen:
                    seen.add(s)
                    stack.append((s, iter(blocks[s].end.successors)))
                    break
            else:
                after.append(at)
                stack.pop()
        order += reversed(after)
    new = {old: i for i, old in enumerate(order)}
    result = []
    for i, old in enumerate(order):
        block = blocks[old]
        end = block.end
        renumber = lambda t: None if t is None else new[t]  # noqa: E731
        result.append(
            Block(
                i,
                block.instructions,
                replace(end, target=renumber(end.target), otherwise=renumber(end.otherwise)),
            )
        )
    return result, {name: new[old] for name, old in entries.items()}


def dominators(entry: int, nodes: set[int], successors) -> dict[int, int | None]:
    """Immediate dominators of the nodes reachable from `entry` (Cooper, Harvey and Kennedy, 2001).

    successors(node) may name nodes outside the set; they are ignored.
    """
    order, seen, stack = [], {entry}, [(entry, iter(successors(entry)))]
    while stack:
        at, rest = stack[-1]
        for s in rest:
            if s in nodes and s not in seen:
                seen.add(s)
                stack.append((s, iter(successors(s))))
                break
        else:
            order.append(at)
            stack.pop()
    place = {n: i for i, n in enumerate(order)}
    predecessors: dict[int, list[int]] = {n: [] for n in order}
    for n in order:
        for s in successors(n):
            if s in predecessors:
                predecessors[s].append(n)
    idom: dict[int, int | None] = {entry: entry}
    changed = True
    while changed:
        changed = False
        for n in reversed(order):
            if n == entry:
                continue
            new = None
            for p in predecessors[n]:
                if p in idom:
                    new = p if new is None else _meet(new, p, idom, place)
            if idom.get(n) != new:
                idom[n] = new
                changed = True
    idom[entry] = None
    return idom


def _meet(a: int, b: int, idom: dict, place: dict) -> int:
    while a != b:
        while place[a] < place[b]:
            a = idom[a]
        while place[b] < place[a]:
            b = idom[b]
    return a
