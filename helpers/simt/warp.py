"""Instructions in which the lanes of a warp exchange values: shfl, vote, match, redux, activemask.

A row is a function (e: code generator, i: Instruction) -> [(destination, Lanes)]; `e.mask` holds
the lanes that execute the instruction together. A member mask may name lanes that are not among
them: those have ended, or the program is wrong (PTX leaves its result open); they do not take
part. Lanes with different member masks form groups of their own, as the tiles of cooperative
groups do. Sections named are those of the PTX ISA manual.
"""

from __future__ import annotations

from . import ptx
from .emitter import Emitter, Lanes, vector
from .shapes import LANES, is_broadcast

_V, _I1 = vector("i32"), vector("i1")


def _members(e: Emitter, i: ptx.Instruction) -> Lanes:
    if "sync" not in i.modifiers:  # not for sm_70 and later (9.7.9.5, 9.7.13.8)
        raise e.unsupported()
    return e.lanes(i.operands[-1], "b32")


def _active_members(e: Emitter, members: Lanes) -> str:
    """Each lane's member mask, without the lanes that are not here, as a vector."""
    return e.op(f"and {_V} {e.spread(members)}, {e.splat('i32', e.mask)}")


# -- shfl.sync (9.7.9.6) ----------------------------------------


def _shuffle(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """shfl.sync.mode d|p, a, b, c, members: p says whether the source lane is in the segment;
    where it is not, a lane keeps its own value."""
    mode = i.modifiers[1] if len(i.modifiers) == 3 else ""
    if i.modifiers[:1] != ("sync",) or mode not in ("up", "down", "bfly", "idx"):
        raise e.unsupported()
    out = i.operands[0]
    names = [o.name for o in out] if isinstance(out, tuple) else [out.name]
    b, c = (e.shapes.of(o) for o in i.operands[2:4])
    if is_broadcast(i, b, c):
        values = [_broadcast(e, i), Lanes("i1", "true")]
    elif b.uniform and c.uniform and b.value is not None and c.value is not None:
        values = _fixed_shuffle(e, i, mode, b.value, c.value)
    else:
        values = _free_shuffle(e, i, mode)
    return list(zip(names, values, strict=False))


def _broadcast(e: Emitter, i: ptx.Instruction) -> Lanes:
    value, lane = e.lanes(i.operands[1], "b32"), e.lanes(i.operands[2], "b32").ssa
    if value.uniform:
        return value
    lane = e.op(f"and i32 {lane}, 31")
    return Lanes("i32", e.op(f"extractelement {_V} {e.spread(value)}, i32 {lane}"))


def source_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane that `lane` reads, and the predicate: the pseudocode of 9.7.9.6."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    first = lane & segment
    last = first | clamp & ~segment
    source = {
        "up": lane - b,
        "down": lane + b,
        "bfly": lane ^ b,
        "idx": first | b & ~segment & 31,
    }[mode]
    inside = source >= last if mode == "up" else source <= last
    return (source if inside else lane), inside


def _fixed_shuffle(e: Emitter, i: ptx.Instruction, mode: str, b: int, c: int) -> list[Lanes]:
    """Distance and segment are known now: a permutation LLVM knows."""
    value = e.spread(e.lanes(i.operands[1], "b32"))
    sources = [source_lane(mode, lane, b, c) for lane in range(LANES)]
    index = e.pattern_constant("i32", [s for s, _ in sources])
    inside = e.pattern_constant("i1", [str(p).lower() for _, p in sources])
    moved = e.op(f"shufflevector {_V} {value}, {_V} poison, {_V} {index}")
    return [Lanes("i32", moved, None), Lanes("i1", inside, None)]


def _free_shuffle(e: Emitter, i: ptx.Instruction, mode: str) -> list[Lanes]:
    value, b, c = (e.spread(e.lanes(o, "b32")) for o in i.operands[1:4])
    lane = e.pattern_constant("i32", range(LANES))
    low5 = "splat (i32 31)"
    b = e.op(f"and {_V} {b}, {low5}")
    clamp = e.op(f"and {_V} {c}, {low5}")
    segment = e.op(f"and {_V} {e.op(f'lshr {_V} {c}, splat (i32 8)')}, {low5}")
    free = e.op(f"xor {_V} {segment}, {low5}")
    first = e.op(f"and {_V} {lane}, {segment}")
    last = e.op(f"or {_V} {first}, {e.op(f'and {_V} {clamp}, {free}')}")
    if mode == "idx":
        source = e.op(f"or {_V} {first}, {e.op(f'and {_V} {b}, {free}')}")
    else:
        verb = {"up": "sub", "down": "add", "bfly": "xor"}[mode]
        source = e.op(f"{verb} {_V} {lane}, {b}")
    inside = e.op(f"icmp {'sge' if mode == 'up' else 'sle'} {_V} {source}, {last}")
    source = e.op(f"select {_I1} {inside}, {_V} {source}, {_V} {lane}")
    e.line(f"store {_V} {value}, ptr %scratch")
    places = e.op(f"getelementptr i32, ptr %scratch, {_V} {source}")
    pointers = vector("ptr")
    name = "@llvm.masked.gather.v32i32.v32p0"
    e.declarations.add(f"declare {_V} {name}({pointers}, i32, {_I1}, {_V})")
    result = e.op(
        f"call {_V} {name}({pointers} {places}, i32 4, {_I1} splat (i1 true), {_V} zeroinitializer)"
    )
    return [Lanes("i32", result, None), Lanes("i1", inside, None)]


# -- vote.sync, activemask (9.7.13.9, 9.7.13.11) ----------------------------------------


def _vote(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """vote.sync.{ballot, all, any, uni} d, {!}a, members."""
    members = _members(e, i)
    predicate = e.spread(e.lanes(i.operands[1], "pred"))
    ballot = e.op(f"bitcast {_I1} {predicate} to i32")
    if members.uniform:
        t, pattern = "i32", members.pattern
        active = e.op(f"and i32 {members.ssa}, {e.mask}")
        votes = e.op(f"and i32 {ballot}, {active}")
    else:
        t, pattern = _V, None
        active = _active_members(e, members)
        votes = e.op(f"and {_V} {active}, {e.splat('i32', ballot)}")
    name = i.operands[0].name
    if "ballot" in i.modifiers:
        return [(name, Lanes("i32", votes, pattern))]
    everyone = e.op(f"icmp eq {t} {votes}, {active}")
    nothing = "0" if members.uniform else "zeroinitializer"
    if "any" in i.modifiers:
        everyone = e.op(f"icmp ne {t} {votes}, {nothing}")
    elif "uni" in i.modifiers:
        nobody = e.op(f"icmp eq {t} {votes}, {nothing}")
        everyone = e.op(f"or {'i1' if members.uniform else _I1} {everyone}, {nobody}")
    return [(name, Lanes("i1", everyone, pattern))]


def _active_mask(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    return [(i.operands[0].name, Lanes("i32", e.mask))]


# -- match.sync (9.7.13.10) ----------------------------------------


def _match(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """match.any: the members with this lane's value. match.all d|p: all members or 0; whether."""
    members = _members(e, i)
    kind = i.modifiers[-1]
    ty = {"b32": "i32", "b64": "i64"}.get(kind)
    if ty is None or i.modifiers[0] not in ("any", "all"):
        raise e.unsupported()
    value = e.spread(e.lanes(i.operands[1], kind))
    here = _active_members(e, members)
    v = vector(ty)
    equal = e.op(f"call {_V} {_equal_lanes(e, ty)}({v} {value}, i32 {e.mask})")
    equal = e.op(f"and {_V} {equal}, {here}")
    out = i.operands[0]
    if "any" in i.modifiers:
        return [(out.name, Lanes("i32", equal, None))]
    names = [o.name for o in out] if isinstance(out, tuple) else [out.name]
    everyone = e.op(f"icmp eq {_V} {equal}, {here}")
    mask = e.op(f"select {_I1} {everyone}, {_V} {e.spread(members)}, {_V} zeroinitializer")
    values = [Lanes("i32", mask, None), Lanes("i1", everyone, None)]
    return list(zip(names, values, strict=False))


def _equal_lanes(e: Emitter, ty: str) -> str:
    """A function (values, active mask) -> for each active lane the active lanes of its value."""
    name, v = f"@equal_lanes.{ty}", vector(ty)
    body = f"""entry:
  br label %next
next:
  %left = phi i32 [ %mask, %entry ], [ %left1, %value ]
  %found = phi {_V} [ zeroinitializer, %entry ], [ %found1, %value ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %finish, label %value
value:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %one = extractelement {v} %values, i32 %l
  %ins = insertelement {v} poison, {ty} %one, i32 0
  %all = shufflevector {v} %ins, {v} poison, {_V} zeroinitializer
  %same = icmp eq {v} %values, %all
  %bits = bitcast {_I1} %same to i32
  %group = and i32 %bits, %mask
  %ins2 = insertelement {_V} poison, i32 %group, i32 0
  %groups = shufflevector {_V} %ins2, {_V} poison, {_V} zeroinitializer
  %found1 = select {_I1} %same, {_V} %groups, {_V} %found
  %rest = xor i32 %group, -1
  %left1 = and i32 %left, %rest
  br label %next
finish:
  ret {_V} %found"""
    e.function(name, f"{_V} {name}({v} %values, i32 %mask) noinline", body)
    return name


# -- redux.sync (9.7.13.12) ----------------------------------------

# operation -> LLVM's reduction and the value that changes nothing
_REDUCTIONS = {
    ("add", "s32"): ("add", 0),
    ("add", "u32"): ("add", 0),
    ("and", "b32"): ("and", -1),
    ("or", "b32"): ("or", 0),
    ("xor", "b32"): ("xor", 0),
    ("min", "s32"): ("smin", (1 << 31) - 1),
    ("max", "s32"): ("smax", -(1 << 31)),
    ("min", "u32"): ("umin", -1),
    ("max", "u32"): ("umax", 0),
}


def _redux(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """redux.sync.op d, a, members: the reduction over the members."""
    members = _members(e, i)
    kind = i.modifiers[-1]
    if len(i.modifiers) != 3 or (i.modifiers[1], kind) not in _REDUCTIONS:
        raise e.unsupported()
    verb, neutral = _REDUCTIONS[i.modifiers[1], kind]
    reduce = f"@llvm.vector.reduce.{verb}.v32i32"
    e.declarations.add(f"declare i32 {reduce}({_V})")
    value = e.spread(e.lanes(i.operands[1], kind))
    name = i.operands[0].name
    if members.uniform:
        active = e.lane_mask(e.op(f"and i32 {members.ssa}, {e.mask}"))
        value = e.op(f"select {_I1} {active}, {_V} {value}, {_V} splat (i32 {neutral})")
        return [(name, Lanes("i32", e.op(f"call i32 {reduce}({_V} {value})")))]
    function = _reduce_groups(e, verb, neutral, reduce)
    here = _active_members(e, members)
    result = e.op(f"call {_V} {function}({_V} {value}, {_V} {here}, i32 {e.mask})")
    return [(name, Lanes("i32", result, None))]


def _reduce_groups(e: Emitter, verb: str, neutral: int, reduce: str) -> str:
    """A function (values, member masks, active mask) -> each lane's reduction over its group."""
    name = f"@reduce_groups.{verb}"
    body = f"""entry:
  br label %next
next:
  %left = phi i32 [ %mask, %entry ], [ %left1, %group ]
  %out = phi {_V} [ zeroinitializer, %entry ], [ %out1, %group ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %finish, label %group
group:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %m = extractelement {_V} %members, i32 %l
  %in = bitcast i32 %m to {_I1}
  %part = select {_I1} %in, {_V} %values, {_V} splat (i32 {neutral})
  %r = call i32 {reduce}({_V} %part)
  %ins = insertelement {_V} poison, i32 %r, i32 0
  %rs = shufflevector {_V} %ins, {_V} poison, {_V} zeroinitializer
  %self = shl i32 1, %l
  %done = or i32 %m, %self
  %who = bitcast i32 %done to {_I1}
  %out1 = select {_I1} %who, {_V} %rs, {_V} %out
  %rest = xor i32 %done, -1
  %left1 = and i32 %left, %rest
  br label %next
finish:
  ret {_V} %out"""
    e.function(name, f"{_V} {name}({_V} %values, {_V} %members, i32 %mask) noinline", body)
    return name


TABLE = {
    "shfl": _shuffle,
    "vote": _vote,
    "activemask": _active_mask,
    "match": _match,
    "redux": _redux,
}
