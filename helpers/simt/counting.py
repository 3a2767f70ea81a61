"""Counting what a kernel does, in the code that does it: the IR, and what its counters mean.

Every worker has an array of 64-bit counters (Context.counts); generated code adds to its own.

- A basic block counts how often a warp runs it, and where some lanes may be idle, with how many.
  The counts of its instructions follow.
- Accesses whose lanes' addresses are a base plus a pattern known to the compiler need little more:
  what they cost follows from the pattern, and for global memory from where in a sector the base is.
- Other accesses are looked at lane by lane when they run, by functions that follow `rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import ptx, rules
from .access import Access
from .costs import COPY_BYTES, MEMO, TARGET_BITS, count_function
from .emitter import Emitter, Lanes, vector
from .flow import Block
from .shapes import LANES

_V64 = vector("i64")
_OPERATIONS = {"ld": "load", "st": "store", "atom": "atomic", "red": "atomic"}
_OPERATIONS |= {"cp": "copy", "ldmatrix": "matrix"}
LOOKED_AT = 4  # counters of an access looked at lane by lane: see Costs


@dataclass
class Counted:
    """A basic block: counters of its runs, of active lanes in them (-1: all), and of runs in which
    the branch at its end sent lanes both ways (-1: it cannot)."""

    instructions: list[ptx.Instruction]
    branch: ptx.Instruction | None
    runs: int
    lanes: int = -1
    parted: int = -1


@dataclass
class Site:
    """One memory instruction and its counters.

    pattern: the lanes' addresses relative to lane 0's (local memory: offsets), if the compiler
    knows them. Then runs with all lanes cost what the pattern says; `whole` is the first of their
    counters, by the place of lane 0's access in its sector, or -1 where they are the block's runs.
    fixed: no run has another cost. seen: the first of LOOKED_AT counters, by space, of runs that
    were looked at lane by lane; wider: the same for the fused access, by its bytes.
    guard: where a guard may skip the instruction, or a copy may read nothing, the counter of its
    runs, and after it of their lanes; else -1.
    """

    instruction: ptx.Instruction
    block: int
    space: str  # "global", "shared", "local", or "generic": told at run time
    operation: str  # "load", "store", "atomic", "copy" (cp.async) or "matrix" (ldmatrix)
    size: int  # bytes a lane accesses
    guard: int = -1
    pattern: tuple[int, ...] | None = None
    whole: int = -1
    fixed: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    wider: dict[int, int] = field(default_factory=dict)


@dataclass
class Counters:
    """All counters of a kernel's code; `size` is how many there are."""

    blocks: dict[int, Counted] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    size: int = 0

    def reserve(self, count: int = 1) -> int:
        self.size += count
        return self.size - count

    def reserve_memo(self) -> int:
        """Words in which counting code remembers, at a multiple of 64 bytes."""
        self.reserve(-self.size % 8)
        return self.reserve(MEMO)


def matrices(i: ptx.Instruction) -> int:
    """How many 8 x 8 matrices an ldmatrix loads."""
    return next(n for n in (1, 2, 4) if f"x{n}" in i.modifiers)


def _phases(size: int) -> int:
    """How many places in a sector the first lane's access can have."""
    return rules.SECTOR // size


class Counting:
    """Emits the counting. `wider`: for accesses that ptxas has fused with their neighbours, by line
    of the PTX, the bytes of the fused access, whose wavefronts are counted as well."""

    parts = True  # whether it looks at accesses that may leave out bytes

    def __init__(self, e: Emitter, wider: dict[int, int]):
        self.e, self.wider = e, wider
        self.counters = Counters()
        self._patterns: dict[tuple[int, ...], int] = {}  # numbered
        self._block = -1

    # -- counters ----------------------------------------

    def _add(self, counter: int | str, amount: str = "1") -> None:
        e = self.e
        p = e.op(f"getelementptr i64, ptr %counts, i64 {counter}")
        old = e.op(f"load i64, ptr {p}")
        e.line(f"store i64 {e.op(f'add i64 {old}, {amount}')}, ptr {p}")

    def _lanes(self, mask: str) -> str:
        e = self.e
        e.declarations.add("declare i32 @llvm.ctpop.i32(i32)")
        return e.op(f"zext i32 {e.op(f'call i32 @llvm.ctpop.i32(i32 {mask})')} to i64")

    def block(self, index: int, block: Block) -> None:
        """At the start of a block."""
        self._block = index
        counted = Counted(block.instructions, block.end.instruction, self.counters.reserve())
        self.counters.blocks[index] = counted
        self._add(counted.runs)
        if self.e.mask != "-1":
            counted.lanes = self.counters.reserve()
            self._add(counted.lanes, self._lanes(self.e.mask))

    def branch(self, taken: str, other: str) -> None:
        """At a block's end: masks of the lanes that go each way."""
        e, block = self.e, self.counters.blocks[self._block]
        block.parted = self.counters.reserve()
        both = e.op(f"and i1 {e.op(f'icmp ne i32 {taken}, 0')}, {e.op(f'icmp ne i32 {other}, 0')}")
        self._add(block.parted, e.op(f"zext i1 {both} to i64"))

    # -- accesses ----------------------------------------

    def access(
        self,
        access: Access,
        address: Lanes,
        i: ptx.Instruction,
        to: tuple[Access, Lanes] | None,
        stored: object = None,
    ) -> None:
        """One memory instruction; `address` without the access's own offset. to: where a copy's
        bytes go."""
        e = self.e
        if access.space == "const":  # not through what is counted here
            return
        operation = _OPERATIONS[i.opcode]
        site = Site(i, self._block, access.space, operation, access.size)
        self.counters.sites.append(site)
        if i.guard or operation == "copy":  # of a copy, some lanes or all may read nothing
            site.guard = self.counters.reserve(2)
            self._add(site.guard)
            self._add(site.guard + 1, self._lanes(e.mask))
        if operation == "copy" and "cg" in i.modifiers:
            self._bypass(site, access, address, to)
            return
        if operation not in ("atomic", "matrix"):
            site.pattern = self._pattern(access, address)
        if site.pattern is None:
            self._look(site, access, address)
            return
        # One address for all: the same cost whichever lanes are active, but for halves of a warp.
        one = address.uniform and (access.space == "global" or access.size <= rules.WORD)
        site.fixed = one or e.mask == "-1"
        if not site.fixed or access.space == "global" and not address.uniform:
            self._by_pattern(site, access, address)

    def _bypass(self, site: Site, access: Access, address: Lanes, to: tuple[Access, Lanes]) -> None:
        """A copy past the L1 cache, which depends on where the bytes go as well."""
        e = self.e
        target, targets = to
        of, into = (self._whole(*place) for place in ((access, address), (target, targets)))
        halves = e.op(f"xor {_V64} {of}, {into}")
        crossed = e.op(f"and {_V64} {halves}, splat (i64 {COPY_BYTES})")
        high = e.op(f"shl {_V64} {of}, splat (i64 {TARGET_BITS})")
        into = e.op(f"and {_V64} {into}, splat (i64 {-rules.SECTOR})")
        low = e.op(f"or {_V64} {into}, {crossed}")
        both = e.op(f"or {_V64} {high}, {low}")
        site.seen["global"] = self.counters.reserve(LOOKED_AT)
        self._count("bypass", site.size, site, site.seen["global"], Lanes("i64", both, None))

    def _whole(self, access: Access, address: Lanes) -> str:
        """The addresses of all lanes, offset and all."""
        e, addresses = self.e, self.e.spread(address)
        if not access.address.offset:
            return addresses
        return e.op(f"add {_V64} {addresses}, {e.splat('i64', str(access.address.offset))}")

    def _pattern(self, access: Access, address: Lanes) -> tuple[int, ...] | None:
        pattern = address.pattern
        if pattern is None or access.space == "generic":
            return None
        if any(p % access.size for p in pattern) or access.size > rules.SECTOR:
            return None
        if access.space == "shared" and access.size < rules.WORD:
            return None  # where in its word lane 0's access is matters
        if access.space == "local":
            steps = {p - lane * self.e.layout.local_stride for lane, p in enumerate(pattern)}
            return (0,) * LANES if steps == {0} else None
        return pattern

    def _by_pattern(self, site: Site, access: Access, address: Lanes) -> None:
        e = self.e
        site.whole = self.counters.reserve(_phases(access.size) if access.space == "global" else 1)
        whole, some, on = (e.fresh(h)[1:] for h in ("whole", "some", "counted"))
        if not site.fixed:
            full = e.op(f"icmp eq i32 {e.mask}, -1")
            e.line(f"br i1 {full}, label %{whole}, label %{some}, !prof !0")
            e.label(whole)
        counter = str(site.whole)
        if access.space == "global":
            first = e.op(f"add i64 {address.ssa}, {access.address.offset}")
            inside = e.op(f"and i64 {first}, {rules.SECTOR - 1}")
            phase = e.op(f"udiv i64 {inside}, {access.size}")
            counter = e.op(f"add i64 {phase}, {site.whole}")
        self._add(counter)
        if not site.fixed:
            e.line(f"br label %{on}")
            e.label(some)
            self._look(site, access, address)
            e.line(f"br label %{on}")
            e.label(on)

    def _look(self, site: Site, access: Access, address: Lanes) -> None:
        """Counts from the addresses of the active lanes."""
        e = self.e
        if site.pattern is not None:
            first = e.op(f"add i64 {address.ssa}, {access.address.offset}")
            if access.space == "local":
                first = e.op(f"sub i64 {first}, %local_start")
            site.seen[access.space] = self.counters.reserve(LOOKED_AT)
            self._priced(site, access.space, Lanes("i64", first, site.pattern))
            return
        addresses = self._whole(access, address)
        spaces = ["global", "shared", "local"] if access.space == "generic" else [access.space]
        for space in spaces:
            site.seen[space] = self.counters.reserve(LOOKED_AT)
        if access.space != "generic":
            self._call(site, access.space, addresses)
            return
        # All lanes of a generic access are taken to be in the space of the first.
        first = e.op(f"call i32 @llvm.cttz.i32(i32 {e.mask}, i1 true)")
        one = e.op(f"extractelement {_V64} {addresses}, i32 {first}")
        window = str(LANES * e.layout.local_stride)
        inside = {
            "shared": ("%shared_address", "%shared_bytes"),
            "local": ("%local_start", window),
        }
        done = e.fresh("counted")[1:]
        for space, (start, nbytes) in inside.items():
            yes, no = e.fresh(space)[1:], e.fresh("not")[1:]
            offset = e.op(f"sub i64 {one}, {start}")
            e.line(f"br i1 {e.op(f'icmp ult i64 {offset}, {nbytes}')}, label %{yes}, label %{no}")
            e.label(yes)
            self._call(site, space, addresses)
            e.line(f"br label %{done}")
            e.label(no)
        self._call(site, "global", addresses)
        e.line(f"br label %{done}")
        e.label(done)

    def _call(self, site: Site, space: str, addresses: str) -> None:
        e = self.e
        if space == "local":
            addresses = e.op(f"sub {_V64} {addresses}, {e.splat('i64', '%local_start')}")
            starts = [lane * e.layout.local_stride for lane in range(LANES)]
            addresses = e.op(f"sub {_V64} {addresses}, {e.pattern_constant('i64', starts)}")
        self._priced(site, space, Lanes("i64", addresses, None))

    def _priced(self, site: Site, space: str, addresses: Lanes) -> None:
        """Counts a request at addresses that are offsets in shared and local memory."""
        cost, size = space, site.size
        if site.operation == "matrix":
            cost, size = "matrix", size * matrices(site.instruction)
        self._count(cost, size, site, site.seen[space], addresses)
        if space == "shared" and site.instruction.ptx_line in self.wider:
            wide = self.wider[site.instruction.ptx_line]
            site.wider[wide] = self.counters.reserve(LOOKED_AT)
            self._count(space, wide, site, site.wider[wide], addresses)

    def _count(self, cost: str, size: int, site: Site, counter: int, addresses: Lanes) -> None:
        e = self.e
        name = count_function(e, cost, site.operation, size)
        kind = _V64
        if addresses.pattern is not None:
            name, kind = self._spreading(name, addresses.pattern), "i64"
        p = e.op(f"getelementptr i64, ptr %counts, i64 {counter}")
        memo = e.op(f"getelementptr i64, ptr %counts, i64 {self.counters.reserve_memo()}")
        e.line(f"call void {name}(ptr {p}, ptr {memo}, {kind} {addresses.ssa}, i32 {e.mask})")

    def _spreading(self, count: str, pattern: tuple[int, ...]) -> str:
        """A function that calls another with addresses of a pattern, made from the first of them.

        They are wanted rarely. Were they made where they are, LLVM would make them beforehand, for
        each access of a loop a vector that is kept in memory.
        """
        e = self.e
        number = self._patterns.setdefault(pattern, len(self._patterns))
        name = f"{count}.{number}"
        body = f"""\
  %one = insertelement {_V64} poison, i64 %first, i32 0
  %all = shufflevector {_V64} %one, {_V64} poison, {vector("i32")} zeroinitializer
  %a = add {_V64} %all, {e.pattern_constant("i64", pattern)}
  call void {count}(ptr %c, ptr %memo, {_V64} %a, i32 %mask)
  ret void"""
        head = f"void {name}(ptr %c, ptr %memo, i64 %first, i32 %mask) noinline"
        e.function(name, head, body)
        return name
