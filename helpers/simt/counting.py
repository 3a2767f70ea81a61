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
from .emitter import Emitter, Lanes, vector
from .flow import Block
from .shapes import LANES

_V32, _V64 = vector("i32"), vector("i64")
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
    guard: where a guard may skip the instruction the counter of its runs, and after it of their
    lanes; else -1.
    """

    instruction: ptx.Instruction
    block: int
    space: str  # "global", "shared", "local", or "generic": told at run time
    operation: str  # "load", "store" or "atomic"
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
    sites: dict[int, Site] = field(default_factory=dict)  # by instruction id
    size: int = 0

    def reserve(self, count: int = 1) -> int:
        self.size += count
        return self.size - count

    def reserve_memo(self) -> int:
        """Words in which counting code remembers, at a multiple of 64 bytes."""
        self.reserve(-self.size % 8)
        return self.reserve(MEMO)


def _phases(size: int) -> int:
    """How many places in a sector the first lane's access can have."""
    return rules.SECTOR // size


class Counting:
    """Emits the counting. `wider`: for accesses that ptxas has fused with their neighbours, by line
    of the PTX, the bytes of the fused access, whose wavefronts are counted as well."""

    def __init__(self, e: Emitter, wider: dict[int, int]):
        self.e, self.wider = e, wider
        self.counters = Counters()
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

    def access(self, access: Access, address: Lanes, number: int, i: ptx.Instruction) -> None:
        """One memory instruction; `address` without the access's own offset."""
        e = self.e
        if access.space == "const":  # not through what is counted here
            return
        operation = {"ld": "load", "st": "store"}.get(i.opcode, "atomic")
        site = Site(i, self._block, access.space, operation, access.size)
        self.counters.sites[number] = site
        if i.guard:
            site.guard = self.counters.reserve(2)
            self._add(site.guard)
            self._add(site.guard + 1, self._lanes(e.mask))
        site.pattern = self._pattern(access, address)
        if site.pattern is None:
            self._look(site, access, address)
            return
        # One address for all: the same cost whichever lanes are active, but for halves of a warp.
        one = address.uniform and (access.space == "global" or access.size <= rules.WORD)
        site.fixed = one or e.mask == "-1"
        if not site.fixed or access.space == "global" and not address.uniform:
            self._by_pattern(site, access, address)

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
            e.line(f"br i1 {full}, label %{whole}, label %{some}")
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
        addresses = e.spread(address)
        if access.address.offset:
            addresses = e.op(
                f"add {_V64} {addresses}, {e.splat('i64', str(access.address.offset))}"
            )
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
        load = site.operation == "load"
        self._count(space, site.size, load, site.seen[space], addresses)
        if space == "shared" and site.instruction.ptx_line in self.wider:
            wide = self.wider[site.instruction.ptx_line]
            site.wider[wide] = self.counters.reserve(LOOKED_AT)
            self._count(space, wide, load, site.wider[wide], addresses)

    def _count(self, space: str, size: int, load: bool, counter: int, addresses: str) -> None:
        e = self.e
        name = f"{space}.{size}{'.load' if load else ''}"
        _declare(e)
        e.function(f"@cost.{name}", f"i64 @cost.{name}({_V64} %a, i32 %mask) noinline",
                   _COSTS[space](size, load))  # fmt: skip
        head = f"void @count.{name}(ptr %c, ptr %memo, {_V64} %a, i32 %mask) noinline"
        e.function(f"@count.{name}", head, _remembered(f"@cost.{name}", space == "global"))
        p = e.op(f"getelementptr i64, ptr %counts, i64 {counter}")
        memo = e.op(f"getelementptr i64, ptr %counts, i64 {self.counters.reserve_memo()}")
        e.line(f"call void @count.{name}(ptr {p}, ptr {memo}, {_V64} {addresses}, i32 {e.mask})")


# -- functions of the generated code ----------------------------------------


def _declare(e: Emitter) -> None:
    e.declarations |= {
        "declare i32 @llvm.ctpop.i32(i32)",
        "declare i32 @llvm.cttz.i32(i32, i1)",
        "declare i32 @llvm.umax.i32(i32, i32)",
        f"declare i64 @llvm.vector.reduce.or.v{LANES}i64({_V64})",
    }
    e.function("@count.add", "void @count.add(ptr %c, i32 %index, i64 %amount)", _ADD)
    head = f"i32 @count.distinct({_V64} %v, i32 %mask) noinline"
    e.function("@count.distinct", head, _DISTINCT)
    head = f"i32 @count.wavefronts({_V64} %units, i32 %mask, i64 %banks) noinline"
    e.function("@count.wavefronts", head, _WAVEFRONTS)
    head = f"i1 @count.paired({_V64} %v, {_V64} %other, i32 %mask, i32 %others) noinline"
    e.function("@count.paired", head, _PAIRED)


_ADD = """\
  %p = getelementptr i64, ptr %c, i32 %index
  %old = load i64, ptr %p
  %new = add i64 %old, %amount
  store i64 %new, ptr %p
  ret void"""

# How many different values the active lanes have: strike out the first one's equals, and so on.
_DISTINCT = f"""entry:
  br label %next
next:
  %left = phi i32 [ %mask, %entry ], [ %left1, %lane ]
  %n = phi i32 [ 0, %entry ], [ %n1, %lane ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %finish, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %x = extractelement {_V64} %v, i32 %l
  %one = insertelement {_V64} poison, i64 %x, i32 0
  %all = shufflevector {_V64} %one, {_V64} poison, {_V32} zeroinitializer
  %same = icmp eq {_V64} %v, %all
  %equals = bitcast {vector("i1")} %same to i32
  %others = xor i32 %equals, -1
  %left1 = and i32 %left, %others
  %n1 = add i32 %n, 1
  br label %next
finish:
  ret i32 %n"""

# The most different units of the active lanes that have the same unit % banks (a power of two).
_WAVEFRONTS = f"""entry:
  %counts = alloca [32 x i32], align 64
  store [32 x i32] zeroinitializer, ptr %counts
  %low = sub i64 %banks, 1
  br label %next
next:
  %left = phi i32 [ %mask, %entry ], [ %left1, %lane ]
  %most = phi i32 [ 0, %entry ], [ %most1, %lane ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %finish, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %x = extractelement {_V64} %units, i32 %l
  %one = insertelement {_V64} poison, i64 %x, i32 0
  %all = shufflevector {_V64} %one, {_V64} poison, {_V32} zeroinitializer
  %same = icmp eq {_V64} %units, %all
  %equals = bitcast {vector("i1")} %same to i32
  %others = xor i32 %equals, -1
  %left1 = and i32 %left, %others
  %bank = and i64 %x, %low
  %p = getelementptr i32, ptr %counts, i64 %bank
  %old = load i32, ptr %p
  %new = add i32 %old, 1
  store i32 %new, ptr %p
  %most1 = call i32 @llvm.umax.i32(i32 %most, i32 %new)
  br label %next
finish:
  ret i32 %most"""

# Whether every active lane whose partner is active has its partner's value.
_PAIRED = f"""\
  %differ = icmp ne {_V64} %v, %other
  %bits = bitcast {vector("i1")} %differ to i32
  %both = and i32 %mask, %others
  %bad = and i32 %bits, %both
  %ok = icmp eq i32 %bad, 0
  ret i1 %ok"""

# A site's memo: entries of 32 relative addresses, then phase, mask and cost (MEMO_ENTRY words).
# Which entry: something of where two lanes are, so that patterns that take turns find a place each.
_ENTRIES = 32
_MEMO_ENTRY = 40
MEMO = _ENTRIES * _MEMO_ENTRY  # words


def _remembered(cost: str, by_phase: bool) -> str:
    """Adds a request's cost, and finds the cost of one like another in the memo: the same lanes, at
    the same distances, and for global memory at the same place in a sector."""
    step, last = 13, _ENTRIES - 1
    return f"""entry:
  %lane = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %first = extractelement {_V64} %a, i32 %lane
  %one = insertelement {_V64} poison, i64 %first, i32 0
  %all = shufflevector {_V64} %one, {_V64} poison, {_V32} zeroinitializer
  %away = sub {_V64} %a, %all
  %on = bitcast i32 %mask to {vector("i1")}
  %relative = select {vector("i1")} %on, {_V64} %away, {_V64} zeroinitializer
  %phase = and i64 %first, {rules.SECTOR - 1 if by_phase else 0}
  %x = extractelement {_V64} %relative, i32 1
  %y = extractelement {_V64} %relative, i32 18
  %y1 = mul i64 %y, {step}
  %xy = add i64 %x, %y1
  %xyz = add i64 %xy, %phase
  %hash = lshr i64 %xyz, 2
  %at = and i64 %hash, {last}
  %place = mul i64 %at, {_MEMO_ENTRY}
  %known = getelementptr i64, ptr %memo, i64 %place
  %known.phase = getelementptr i64, ptr %known, i64 {LANES}
  %known.mask = getelementptr i64, ptr %known, i64 {LANES + 1}
  %known.cost = getelementptr i64, ptr %known, i64 {LANES + 2}
  %wide = zext i32 %mask to i64
  %then = load {_V64}, ptr %known, align 64
  %then.phase = load i64, ptr %known.phase
  %then.mask = load i64, ptr %known.mask
  %then.cost = load i64, ptr %known.cost
  %moved = xor {_V64} %then, %relative
  %any = call i64 @llvm.vector.reduce.or.v{LANES}i64({_V64} %moved)
  %shifted = xor i64 %then.phase, %phase
  %other = xor i64 %then.mask, %wide
  %differs0 = or i64 %any, %shifted
  %differs = or i64 %differs0, %other
  %hit = icmp eq i64 %differs, 0
  br i1 %hit, label %add, label %look
look:
  %found = call i64 {cost}({_V64} %a, i32 %mask)
  store {_V64} %relative, ptr %known, align 64
  store i64 %phase, ptr %known.phase
  store i64 %wide, ptr %known.mask
  store i64 %found, ptr %known.cost
  br label %add
add:
  %cost = phi i64 [ %then.cost, %entry ], [ %found, %look ]
  %units = and i64 %cost, 65535
  %ideal = lshr i64 %cost, 16
  %active = call i32 @llvm.ctpop.i32(i32 %mask)
  %lanes = zext i32 %active to i64
  call void @count.add(ptr %c, i32 0, i64 1)
  call void @count.add(ptr %c, i32 1, i64 %lanes)
  call void @count.add(ptr %c, i32 2, i64 %units)
  call void @count.add(ptr %c, i32 3, i64 %ideal)
  ret void"""


# Costs: units in the low 16 bits, ideal units above.


def _shift(size: int) -> str:
    return f"splat (i64 {size.bit_length() - 1})"


def _end(units: str, ideal: str, tag: str = "") -> str:
    return f"""
  %high{tag} = shl i32 {ideal}, 16
  %cost32{tag} = or i32 %high{tag}, {units}
  %cost{tag} = zext i32 %cost32{tag} to i64
  ret i64 %cost{tag}"""


def _global_cost(size: int, load: bool) -> str:
    return f"""\
  %sectors = lshr {_V64} %a, {_shift(rules.SECTOR)}
  %touched = call i32 @count.distinct({_V64} %sectors, i32 %mask)
  %different = call i32 @count.distinct({_V64} %a, i32 %mask)
  %bytes = mul i32 %different, {size}
  %more = add i32 %bytes, {rules.SECTOR - 1}
  %ideal = udiv i32 %more, {rules.SECTOR}{_end("%touched", "%ideal")}"""


def _local_cost(size: int, load: bool) -> str:
    words = max(1, size // rules.WORD)
    eighths = ", ".join(f"i64 {lane * rules.WORD // rules.SECTOR}" for lane in range(LANES))
    return f"""\
  %words = lshr {_V64} %a, {_shift(rules.WORD)}
  %rows = mul {_V64} %words, splat (i64 {rules.LINE // rules.SECTOR})
  %places = add {_V64} %rows, <{eighths}>
  %first = call i32 @count.distinct({_V64} %places, i32 %mask)
  %touched = mul i32 %first, {words}
  %active = call i32 @llvm.ctpop.i32(i32 %mask)
  %bytes = mul i32 %active, {size}
  %more = add i32 %bytes, {rules.SECTOR - 1}
  %ideal = udiv i32 %more, {rules.SECTOR}{_end("%touched", "%ideal")}"""


def _shared_cost(size: int, load: bool) -> str:
    unit = max(size, rules.WORD)
    groups = unit // rules.WORD
    lines = [f"  %units = lshr {_V64} %a, {_shift(unit)}"]
    if groups > 1 and load:
        for distance, lower in ((1, 0x55555555), (2, 0x33333333)):
            partners = ", ".join(f"i32 {lane ^ distance}" for lane in range(LANES))
            lines.append(f"""\
  %other.{distance} = shufflevector {_V64} %a, {_V64} poison, {_V32} <{partners}>
  %down0.{distance} = lshr i32 %mask, {distance}
  %down.{distance} = and i32 %down0.{distance}, {lower}
  %up0.{distance} = and i32 %mask, {lower}
  %up.{distance} = shl i32 %up0.{distance}, {distance}
  %others.{distance} = or i32 %down.{distance}, %up.{distance}
  %paired.{distance} = call i1 @count.paired({_V64} %a, {_V64} %other.{distance}, i32 %mask, \
i32 %others.{distance})""")
        lines.append("""\
  %merge = or i1 %paired.1, %paired.2
  br i1 %merge, label %merged, label %apart
merged:""")
        lines += [_grouped("m", groups // 2, unit), "apart:"]
    return "\n".join([*lines, _grouped("s", groups, unit)])


def _grouped(tag: str, count: int, unit: int) -> str:
    """Wavefronts of each of `count` groups of neighbouring lanes, in all, and the groups."""
    lanes, banks = LANES // count, rules.BANKS * rules.WORD // unit
    text, waves, groups = [], "0", "0"
    for k in range(count):
        bits = ((1 << lanes) - 1) << (k * lanes)
        bits -= (bits >> 31) << 32  # as a signed number
        t = f"{tag}{k}"
        text.append(f"""\
  %in.{t} = and i32 %mask, {bits}
  %most.{t} = call i32 @count.wavefronts({_V64} %units, i32 %in.{t}, i64 {banks})
  %waves.{t} = add i32 {waves}, %most.{t}
  %some.{t} = icmp ne i32 %in.{t}, 0
  %one.{t} = zext i1 %some.{t} to i32
  %groups.{t} = add i32 {groups}, %one.{t}""")
        waves, groups = f"%waves.{t}", f"%groups.{t}"
    return "\n".join(text) + _end(waves, groups, f".{tag}")


_COSTS = {"global": _global_cost, "shared": _shared_cost, "local": _local_cost}
