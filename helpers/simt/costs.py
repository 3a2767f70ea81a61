"""What a request costs, as IR: `rules` in the code that counts.

A function for each space, operation and size takes the lanes' addresses and the active mask and
adds to four counters: requests, active lanes, units (sectors or wavefronts) and ideal units.
"""

from __future__ import annotations

from . import rules
from .emitter import Emitter, vector
from .shapes import LANES

_V32, _V64 = vector("i32"), vector("i64")
COPY_BYTES = 16  # of a lane in a copy past L1
TARGET_BITS = 18  # of an address in shared memory; above them 46 bits of one in global memory


def count_function(e: Emitter, cost: str, operation: str, size: int) -> str:
    """The function (counters, memo, addresses, mask) for a request: its name.

    cost: "global", "shared", "local", "matrix" (ldmatrix) or "bypass" (cp.async.cg); operation:
    "load", "store", "atomic" or "copy"; size: bytes a lane accesses. Addresses are offsets in
    shared and local memory. memo: MEMO words of the request's own instruction, zero at first.
    """
    name = f"{cost}.{operation}.{size}"
    _declare(e)
    head = f"i64 @cost.{name}({_V64} %a, i32 %mask) noinline"
    e.function(f"@cost.{name}", head, _COSTS[cost](size, operation))
    head = f"void @count.{name}(ptr %c, ptr %memo, {_V64} %a, i32 %mask) noinline"
    requests = rules.local_requests(size) if cost == "local" else 1
    e.function(f"@count.{name}", head, _remembered(f"@cost.{name}", _PHASES[cost], requests))
    return f"@count.{name}"


def _declare(e: Emitter) -> None:
    e.declarations |= {
        "declare i32 @llvm.ctpop.i32(i32)",
        "declare i32 @llvm.cttz.i32(i32, i1)",
        "declare i32 @llvm.umax.i32(i32, i32)",
        f"declare i64 @llvm.vector.reduce.or.v{LANES}i64({_V64})",
        f"declare {_V64} @llvm.smin.v{LANES}i64({_V64}, {_V64})",
        f"declare {_V64} @llvm.smax.v{LANES}i64({_V64}, {_V64})",
    }
    e.function("@count.add", "void @count.add(ptr %c, i32 %index, i64 %amount)", _ADD)
    head = f"void @count.sort({_V64} %v, i32 %mask, ptr %sorted) noinline"
    e.function("@count.sort", head, _sort())
    head = f"i32 @count.distinct({_V64} %v, i32 %mask) noinline"
    e.function("@count.distinct", head, _DISTINCT)
    head = f"i32 @count.most({_V64} %units, i32 %mask, i64 %banks) noinline"
    e.function("@count.most", head, _MOST)
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

_IDLE, _BEFORE = (1 << 63) - 1, -2  # no address, sector or word is one of these


def _sort() -> str:
    """Stores the active lanes' values from the lowest, and before them LANES other ones, so that
    each can be compared with any before it: a bitonic sorting network (Batcher, 1968)."""
    lines = [
        f"  %on = bitcast i32 %mask to {vector('i1')}",
        f"  %v0 = select {vector('i1')} %on, {_V64} %v, {_V64} splat (i64 {_IDLE})",
    ]
    steps = [(1 << k, 1 << j) for k in range(1, 6) for j in reversed(range(k))]
    for n, (run, distance) in enumerate(steps):
        partners = ", ".join(f"i32 {lane ^ distance}" for lane in range(LANES))
        chosen = ", ".join(
            f"i32 {lane + LANES * (bool(lane & distance) != bool(lane & run))}"
            for lane in range(LANES)
        )
        lines += [
            f"  %p{n} = shufflevector {_V64} %v{n}, {_V64} poison, {_V32} <{partners}>",
            f"  %lo{n} = call {_V64} @llvm.smin.v{LANES}i64({_V64} %v{n}, {_V64} %p{n})",
            f"  %hi{n} = call {_V64} @llvm.smax.v{LANES}i64({_V64} %v{n}, {_V64} %p{n})",
            f"  %v{n + 1} = shufflevector {_V64} %lo{n}, {_V64} %hi{n}, {_V32} <{chosen}>",
        ]
    return "\n".join(
        [
            *lines,
            f"  store {_V64} splat (i64 {_BEFORE}), ptr %sorted, align 64",
            f"  %first = getelementptr i64, ptr %sorted, i64 {LANES}",
            f"  store {_V64} %v{len(steps)}, ptr %first, align 64",
            "  ret void",
        ]
    )


# %x: the sorted values of v; %before: of each the one before; %active: a bit for each that counts.
_SORTED = f"""\
  %sorted = alloca [{2 * LANES} x i64], align 64
  call void @count.sort({_V64} %v, i32 %mask, ptr %sorted)
  %first = getelementptr i64, ptr %sorted, i64 {LANES}
  %x = load {_V64}, ptr %first, align 64
  %last = getelementptr i64, ptr %sorted, i64 {LANES - 1}
  %before = load {_V64}, ptr %last, align 8
  %n = call i32 @llvm.ctpop.i32(i32 %mask)
  %idle = sub i32 {LANES}, %n
  %active = lshr i32 -1, %idle"""

# %starts: of the sorted values the first of each.
_STARTS = f"""{_SORTED}
  %new = icmp ne {_V64} %x, %before
  %bits = bitcast {vector("i1")} %new to i32
  %starts = and i32 %bits, %active"""

# How many different values the active lanes have.
_DISTINCT = f"""{_STARTS}
  %count = call i32 @llvm.ctpop.i32(i32 %starts)
  ret i32 %count"""

# The most active lanes that have the same unit % banks (a power of two).
_MOST = f"""entry:
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
  %less = sub i32 %left, 1
  %left1 = and i32 %left, %less
  %x = extractelement {_V64} %units, i32 %l
  %bank = and i64 %x, %low
  %p = getelementptr i32, ptr %counts, i64 %bank
  %old = load i32, ptr %p
  %new = add i32 %old, 1
  store i32 %new, ptr %p
  %most1 = call i32 @llvm.umax.i32(i32 %most, i32 %new)
  br label %next
finish:
  ret i32 %most"""

# The wavefronts of one group of lanes: as above, of lanes with different units.
_WAVEFRONTS = f"""{_STARTS.replace("%v", "%units")}
  %most = call i32 @count.most({_V64} %x, i32 %starts, i64 %banks)
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
# Which entry: a hash of where some lanes are, so that patterns that take turns find a place each.
_ENTRIES = 64
_MEMO_ENTRY = 40
_HASHED = (1, 2, 4, 8, 16, 31)  # lanes; what is linear or an exclusive or in the lane shows in them
_FACTOR = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio: its powers are good multipliers
MEMO = _ENTRIES * _MEMO_ENTRY  # words


# The bits of the first lane's address that a cost depends on, besides the distances of the others:
# its place in a sector or a word; of a copy past L1 both its places.
_PHASES = {
    "global": rules.SECTOR - 1,
    "shared": rules.WORD - 1,
    "local": rules.WORD - 1,
    "matrix": 0,
    "bypass": (rules.SECTOR - 1) << TARGET_BITS | rules.SECTOR - 1,
}


def _remembered(cost: str, phases: int, requests: int) -> str:
    """Adds a request's cost, and finds the cost of one like another in the memo: the same lanes, at
    the same distances, and the first of them at the same phase."""
    hashing = ["  %hash = add i64 %phase, %wide"]
    for n, lane in enumerate(_HASHED):
        factor = pow(_FACTOR, 2 * n + 3, 1 << 64)
        hashing += [
            f"  %x{n} = extractelement {_V64} %relative, i32 {lane}",
            f"  %y{n} = mul i64 %x{n}, {factor}",
            f"  %hash{n} = add i64 %hash{n - 1 if n else ''}, %y{n}",
        ]
    whole = f"%hash{len(_HASHED) - 1}"
    return f"""entry:
  %lane = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %first = extractelement {_V64} %a, i32 %lane
  %one = insertelement {_V64} poison, i64 %first, i32 0
  %all = shufflevector {_V64} %one, {_V64} poison, {_V32} zeroinitializer
  %away = sub {_V64} %a, %all
  %on = bitcast i32 %mask to {vector("i1")}
  %relative = select {vector("i1")} %on, {_V64} %away, {_V64} zeroinitializer
  %phase = and i64 %first, {phases}
  %wide = zext i32 %mask to i64
{chr(10).join(hashing)}
  %spread = mul i64 {whole}, {_FACTOR}
  %at = lshr i64 %spread, {64 - _ENTRIES.bit_length() + 1}
  %place = mul i64 %at, {_MEMO_ENTRY}
  %known = getelementptr i64, ptr %memo, i64 %place
  %known.phase = getelementptr i64, ptr %known, i64 {LANES}
  %known.mask = getelementptr i64, ptr %known, i64 {LANES + 1}
  %known.cost = getelementptr i64, ptr %known, i64 {LANES + 2}
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
  call void @count.add(ptr %c, i32 0, i64 {requests})
  call void @count.add(ptr %c, i32 1, i64 %lanes)
  call void @count.add(ptr %c, i32 2, i64 %units)
  call void @count.add(ptr %c, i32 3, i64 %ideal)
  ret void"""


# Costs: units in the low 16 bits, ideal units above.


def _shift(size: int) -> str:
    return f"splat (i64 {size.bit_length() - 1})"


def _end(units: str, ideal: str) -> str:
    return f"""
  %high = shl i32 {ideal}, 16
  %both = or i32 %high, {units}
  %result = zext i32 %both to i64
  ret i64 %result"""


def _global_cost(size: int, operation: str) -> str:
    """Sectors are runs of the sorted addresses. An atomic operation takes the first lanes of all
    addresses, then the second ones, and so on: a sector counts in each turn in which any of its
    addresses has a lane left, that is one which equals the value so many places before it.

    Whether any lane of a run is among some lanes is told by a carry: to the run's lanes without its
    last one these are added, and what comes out at the last one says so.
    """
    end = _end("%touched", "%ideal")
    atomic = operation == "atomic"
    turns = f"""
  %next0 = xor i32 %active, -1
  %next1 = or i32 %next0, %starts
  %next2 = lshr i32 %next1, 1
  %next = or i32 %next2, {-1 << 31}
  %ends = and i32 %active, %next
  %inner = xor i32 %active, %ends
  br label %turn
turn:
  %k = phi i64 [ 1, %entry ], [ %k1, %more ]
  %sum = phi i32 [ %runs, %entry ], [ %sum1, %more ]
  %place = sub i64 {LANES}, %k
  %earlier.p = getelementptr i64, ptr %sorted, i64 %place
  %earlier = load {_V64}, ptr %earlier.p, align 8
  %equal = icmp eq {_V64} %x, %earlier
  %equal.bits = bitcast {vector("i1")} %equal to i32
  %left = and i32 %equal.bits, %active
  %over = icmp eq i32 %left, 0
  br i1 %over, label %finish, label %more
more:
  %within = and i32 %left, %inner
  %carried = add i32 %within, %inner
  %either = or i32 %carried, %left
  %some = and i32 %either, %ends
  %now = call i32 @llvm.ctpop.i32(i32 %some)
  %sum1 = add i32 %sum, %now
  %k1 = add i64 %k, 1
  %most = icmp eq i64 %k1, {LANES}
  br i1 %most, label %finish, label %turn
finish:
  %touched = phi i32 [ %sum, %turn ], [ %sum1, %more ]"""
    return f"""entry:
{_SORTED.replace("%v", "%a")}
  %sectors = lshr {_V64} %x, {_shift(rules.SECTOR)}
  %sectors.before = lshr {_V64} %before, {_shift(rules.SECTOR)}
  %new = icmp ne {_V64} %sectors, %sectors.before
  %new.bits = bitcast {vector("i1")} %new to i32
  %starts = and i32 %new.bits, %active
  %{"runs" if atomic else "touched"} = call i32 @llvm.ctpop.i32(i32 %starts)
  %other = icmp ne {_V64} %x, %before
  %other.bits = bitcast {vector("i1")} %other to i32
  %others = and i32 %other.bits, %active
  %different = call i32 @llvm.ctpop.i32(i32 %others)
  %bytes = mul i32 %different, {size}
  %bytes.more = add i32 %bytes, {rules.SECTOR - 1}
  %ideal = udiv i32 %bytes.more, {rules.SECTOR}{turns if atomic else ""}{end}"""


def _local_cost(size: int, operation: str) -> str:
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


def _shared_cost(size: int, operation: str) -> str:
    unit = max(size, rules.WORD)
    banks = rules.BANKS * rules.WORD // unit
    groups = unit // rules.WORD
    lines = [f"  %units = lshr {_V64} %a, {_shift(unit)}"]
    if operation == "atomic":
        lines.append(f"  %most = call i32 @count.most({_V64} %units, i32 %mask, i64 {banks})")
        return "\n".join([*lines, _end("%most", "1")])
    merging = groups > 1 and operation == "load"
    lines.append(_in_pairs() if merging else "")
    waves = ideal = "0"
    for k in range(0, groups, 2 if merging else 1):
        lines += [_group(f"{j}", groups, j, banks) for j in ((k, k + 1) if merging else (k,))]
        cost, count = f"%cost.{k}", f"%count.{k}"
        if merging:
            lines.append(_merged(k, groups, banks))
            cost, count = f"%best.{k}", f"%fewest.{k}"
        lines += [
            f"  %waves.{k} = add i32 {waves}, {cost}",
            f"  %ideal.{k} = add i32 {ideal}, {count}",
        ]
        waves, ideal = f"%waves.{k}", f"%ideal.{k}"
    return "\n".join([*lines, _end(waves, ideal)])


def _signed(bits: int) -> int:
    return bits - (bits >> 31 << 32)


def _group(tag: str, count: int, k: int, banks: int) -> str:
    """%cost.tag: wavefronts of the k-th of `count` groups; %count.tag: 1, or 0 if it idles."""
    lanes = LANES // count
    return f"""\
  %in.{tag} = and i32 %mask, {_signed(((1 << lanes) - 1) << k * lanes)}
  %cost.{tag} = call i32 @count.wavefronts({_V64} %units, i32 %in.{tag}, i64 {banks})
  %some.{tag} = icmp ne i32 %in.{tag}, 0
  %count.{tag} = zext i1 %some.{tag} to i32"""


def _in_pairs() -> str:
    """%pairs: whether lanes come in pairs that read the same."""
    lines = []
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
    return "\n".join([*lines, "  %pairs = or i1 %paired.1, %paired.2"])


def _merged(k: int, groups: int, banks: int) -> str:
    """%best.k, %fewest.k: cost and count of groups k and k + 1, merged if they may be."""
    may = "%pairs"
    lines = [_group(f"m{k}", groups // 2, k // 2, banks)]
    if groups == 4 and k == 0:
        lines.append("""\
  %low = and i32 %mask, 65535
  %idle = icmp ne i32 %low, 65535
  %last = icmp slt i32 %mask, 0
  %never = and i1 %idle, %last
  %may = xor i1 %never, true
  %pairs.0 = and i1 %pairs, %may""")
        may = "%pairs.0"
    lines.append(f"""\
  %apart.{k} = add i32 %cost.{k}, %cost.{k + 1}
  %both.{k} = add i32 %count.{k}, %count.{k + 1}
  %free.{k} = icmp ule i32 %cost.m{k}, 1
  %merge.{k} = and i1 {may}, %free.{k}
  %best.{k} = select i1 %merge.{k}, i32 %cost.m{k}, i32 %apart.{k}
  %fewest.{k} = select i1 %merge.{k}, i32 %count.m{k}, i32 %both.{k}""")
    return "\n".join(lines)


def _bypass_cost(size: int, operation: str) -> str:
    """cp.async.cg. Instead of an address, the source in the bits from TARGET_BITS on, and below the
    target's sector and whether the halves of a sector change places."""
    low = (1 << TARGET_BITS) - 1
    return f"""\
  %into = and {_V64} %a, splat (i64 {low})
  %of = and {_V64} %a, splat (i64 {-rules.SECTOR << TARGET_BITS})
  %pair = or {_V64} %of, %into
  %touched = call i32 @count.distinct({_V64} %pair, i32 %mask)
  %places = lshr {_V64} %a, splat (i64 {TARGET_BITS})
  %different = call i32 @count.distinct({_V64} %places, i32 %mask)
  %bytes = mul i32 %different, {COPY_BYTES}
  %more = add i32 %bytes, {rules.SECTOR - 1}
  %ideal = udiv i32 %more, {rules.SECTOR}{_end("%touched", "%ideal")}"""


def _matrix_cost(size: int, operation: str) -> str:
    """ldmatrix: `size` is 16 times the number of matrices."""
    matrices = size // 16
    lines = [f"  %units = lshr {_V64} %a, {_shift(16)}"]
    waves = "0"
    for k in range(matrices):
        lines += [_group(f"{k}", 4, k, 8), f"  %waves.{k} = add i32 {waves}, %cost.{k}"]
        waves = f"%waves.{k}"
    return "\n".join([*lines, _end(waves, str(matrices))])


_COSTS = {
    "global": _global_cost,
    "shared": _shared_cost,
    "local": _local_cost,
    "matrix": _matrix_cost,
    "bypass": _bypass_cost,
}
