"""Asynchronous copies (cp.async) and the mbarrier objects that pipelines wait on.

When data arrives. A cp.async only notes its addresses in its warp's queue; the bytes are copied
when the thread waits for them: at cp.async.wait_group or .wait_all, or at cp.async.mbarrier.arrive.
PTX lets a copy take place at any time up to then (9.7.9.25.3), so a correct program cannot tell,
and one that forgets to wait reads old data, as it may on a GPU, every time. A warp's queue holds
`CAPACITY` copies; when it is full the oldest is carried out. Copies that nobody has waited for
when a block ends are dropped. Addresses are checked where the cp.async stands.

Each thread numbers its groups itself: a queued copy carries, for every lane, the number of the
group it will be committed to.

An mbarrier object (9.7.13.15) is 64 bits of shared memory, opaque to programs. Here: bits 0-19
arrivals still missing in this phase, 20-39 arrivals expected in each phase, 40-63 phases completed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from . import ptx
from .access import Access
from .emitter import Emitter, Lanes, vector
from .shapes import LANES

_V, _W, _I1, _P = vector("i32"), vector("i64"), vector("i1"), vector("ptr")

CAPACITY = 64  # copies (of all lanes of a warp) in its queue
# The queue's area in a warp's frame: first and next entry (ever-increasing), each lane's number of
# committed groups, then the entries in a ring.
_GROUPS, _RING = 64, 192
# An entry: its copying function, the lanes not yet copied, addresses (one base, or one a lane).
_MASK, _SOURCE, _TARGET, _GROUP, _SOURCES, _TARGETS, _SIZES = 8, 16, 24, 64, 192, 448, 576
_ENTRY = 704
# Where code sanitizes, what notes the writes of a copy: a function, and its arguments. Its targets
# are always one a lane.
_ID, _WARP, _STATE, _NOTE, _ISSUED = 32, 36, 40, 48, 56
AREA_BYTES = _RING + CAPACITY * _ENTRY


# -- the queue ----------------------------------------


def _at(base: str, offset: int | str) -> str:
    return f"getelementptr i8, ptr {base}, i64 {offset}"


_BEGIN = f"""entry:
  %fresh = icmp eq i32 %resume, 0
  br i1 %fresh, label %clear, label %done
clear:
  store i64 0, ptr %area
  %groups = {_at("%area", _GROUPS)}
  store {_V} zeroinitializer, ptr %groups, align 64
  br label %done
done:
  ret void"""

_SLOT = f"""entry:
  %next.p = {_at("%area", 4)}
  %first = load i32, ptr %area
  %next = load i32, ptr %next.p
  %held = sub i32 %next, %first
  %full = icmp uge i32 %held, {CAPACITY}
  br i1 %full, label %oldest, label %take
oldest:
  %old = call ptr @async.entry(ptr %area, i32 %first)
  %copy = load ptr, ptr %old
  %mask.p = {_at("%old", _MASK)}
  %mask = load i32, ptr %mask.p
  call void %copy(ptr %old, i32 %mask, ptr %shared)
  %first1 = add i32 %first, 1
  store i32 %first1, ptr %area
  br label %take
take:
  %entry.p = call ptr @async.entry(ptr %area, i32 %next)
  %next1 = add i32 %next, 1
  store i32 %next1, ptr %next.p
  ret ptr %entry.p"""

_PLACE = f"""entry:
  %k = and i32 %number, {CAPACITY - 1}
  %k64 = zext i32 %k to i64
  %far = mul i64 %k64, {_ENTRY}
  %at = add i64 %far, {_RING}
  %p = {_at("%area", "%at")}
  ret ptr %p"""

# Copies, in every entry, the lanes whose group is below the lane's limit; drops empty entries from
# the front of the ring.
_COMPLETE = f"""entry:
  %next.p = {_at("%area", 4)}
  %first = load i32, ptr %area
  %next = load i32, ptr %next.p
  br label %each
each:
  %k = phi i32 [ %first, %entry ], [ %k1, %looked ]
  %front = phi i32 [ %first, %entry ], [ %front1, %looked ]
  %end = icmp eq i32 %k, %next
  br i1 %end, label %finish, label %look
look:
  %e.p = call ptr @async.entry(ptr %area, i32 %k)
  %mask.p = {_at("%e.p", _MASK)}
  %mask = load i32, ptr %mask.p
  %group.p = {_at("%e.p", _GROUP)}
  %group = load {_V}, ptr %group.p, align 64
  %ready = icmp slt {_V} %group, %limit
  %ready.m = bitcast {_I1} %ready to i32
  %now = and i32 %mask, %ready.m
  %rest = xor i32 %now, %mask
  %some = icmp ne i32 %now, 0
  br i1 %some, label %do, label %looked
do:
  %copy = load ptr, ptr %e.p
  call void %copy(ptr %e.p, i32 %now, ptr %shared)
  store i32 %rest, ptr %mask.p
  br label %looked
looked:
  %empty = icmp eq i32 %rest, 0
  %is_front = icmp eq i32 %k, %front
  %drop = and i1 %empty, %is_front
  %k1 = add i32 %k, 1
  %front1 = select i1 %drop, i32 %k1, i32 %front
  br label %each
finish:
  store i32 %front, ptr %area
  ret void"""


def _area(e: Emitter) -> str:
    """The warp's queue, emptied when the warp starts a block."""
    e.function("@async.entry", "ptr @async.entry(ptr %area, i32 %number)", _PLACE)
    e.function("@async.begin", "void @async.begin(ptr %area, i32 %resume)", _BEGIN)
    slot, complete = _SLOT, _COMPLETE
    if e.sanitizing:
        slot = slot.replace("  %first1", f"{_noting('%old', '%mask')}\n  %first1")
        complete = complete.replace(
            "  store i32 %rest", f"{_noting('%e.p', '%now')}\n  store i32 %rest"
        )
    e.function("@async.slot", "ptr @async.slot(ptr %area, ptr %shared) noinline", slot)
    head = f"void @async.complete(ptr %area, {_V} %limit, ptr %shared) noinline"
    e.function("@async.complete", head, complete)
    area = e.at_entry(_at("%frame", e.frame_place("async copies", AREA_BYTES)))
    begin = f"  call void @async.begin(ptr {area}, i32 %resume)"
    if begin not in e.entry:
        e.entry.append(begin)
    return area


def _noting(entry: str, mask: str) -> str:
    """IR that tells the sanitizer of the writes of a copy."""
    return f"""  %id.p = {_at(entry, _ID)}
  %id = load i32, ptr %id.p
  %warp.p = {_at(entry, _WARP)}
  %warp = load i32, ptr %warp.p
  %state.p = {_at(entry, _STATE)}
  %state = load ptr, ptr %state.p
  %note.p = {_at(entry, _NOTE)}
  %note = load ptr, ptr %note.p
  %targets.p = {_at(entry, _TARGETS)}
  %targets = load {_V}, ptr %targets.p, align 64
  %issued.p = {_at(entry, _ISSUED)}
  %issued = load i32, ptr %issued.p
  %places = zext {_V} %targets to {_W}
  call void %note(ptr %state, {_W} %places, i32 {mask}, i32 %warp, i32 %id, i32 %issued,
                  ptr null)"""


# -- cp.async (9.7.9.25.3.1) ----------------------------------------


@dataclass(frozen=True)
class _Copy:
    """One form of cp.async: bytes a lane, how addresses vary, how much of the source is read.

    known: bytes read, the rest is zeros; None: differs between lanes or launches.
    """

    size: int
    source: tuple[int, ...] | None
    target: tuple[int, ...] | None
    known: int | None

    @property
    def contiguous(self) -> bool:
        step = tuple(self.size * lane for lane in range(LANES))
        return self.known == self.size and self.source == step and self.target == step


def _copy(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """cp.async.{ca,cg}.shared.global [to], [from], cp-size {, src-size | ignore-src} {, policy}."""
    words = {m.split("::")[0] for m in i.modifiers[1:]} - {"L2"}
    operands = i.operands[2:]
    if any(m == "L2::cache_hint" for m in i.modifiers):
        operands = operands[:-1]
    if (
        words not in ({"ca", "shared", "global"}, {"cg", "shared", "global"})
        or not 1 <= len(operands) <= 2
    ):
        raise e.unsupported()
    size = operands[0].value
    if size not in ((16,) if "cg" in words else (4, 8, 16)):
        raise e.unsupported(i.text)
    target = Access("shared", "b32", 1, i.operands[0])
    source = Access("global", "b32", 1, i.operands[1])
    known, sizes = _read_bytes(e, operands[1:], size)
    to, of = e.memory.address(target), e.memory.address(source)
    _check(e, i, "st", target, to, size)
    _check_source(e, i, source, of, size, known, sizes)
    whole = known == size
    if known != 0:
        _observe(e, i, replace(source, count=size // 4), of, (target, to), whole, sizes)
    form = _Copy(size, of.pattern, to.pattern, known)
    area = _area(e)
    entry = e.op(f"call ptr @async.slot(ptr {area}, ptr %shared)")
    e.line(f"store ptr {_copying_function(e, form)}, ptr {entry}")
    e.line(f"store i32 {e.mask}, ptr {e.op(_at(entry, _MASK))}")
    groups = e.op(f"load {_V}, ptr {e.op(_at(area, _GROUPS))}, align 64")
    e.line(f"store {_V} {groups}, ptr {e.op(_at(entry, _GROUP))}, align 64")
    for access, value, one, many in (
        (source, of, _SOURCE, _SOURCES),
        (target, to, _TARGET, _TARGETS),
    ):
        _note(e, entry, access, value, one, many)
    if sizes is not None:
        e.line(f"store {_V} {sizes}, ptr {e.op(_at(entry, _SIZES))}, align 64")
    if e.sanitizing:
        targets = Lanes("i64", e.spread(to), None)
        _note(e, entry, target, targets, _TARGET + 40, _TARGETS)
        note, issued = e.sanitizing.copies(replace(target, count=size // 4), to)
        for kind, value, at in (("i32", str(e.id_of(i)), _ID), ("i32", "%w", _WARP),
                                ("ptr", "%s", _STATE), ("ptr", note, _NOTE),
                                ("i32", issued, _ISSUED)):  # fmt: skip
            e.line(f"store {kind} {value}, ptr {e.op(_at(entry, at))}")
    return []


def _observe(
    e: Emitter,
    i: ptx.Instruction,
    source: Access,
    of: Lanes,
    to: tuple[Access, Lanes],
    whole: bool,
    sizes: str | None,
) -> None:
    """Lanes that read nothing make no access of global memory; a warp of them makes no request."""
    if sizes is None:
        e.memory.observed(source, of, i, to, whole=whole)
        return
    outer = e.mask
    some = e.op(f"icmp ne {_V} {sizes}, zeroinitializer")
    e.mask = e.op(f"and i32 {outer}, {e.op(f'bitcast {_I1} {some} to i32')}")
    reads, on = e.fresh("reads")[1:], e.fresh("on")[1:]
    e.line(f"br i1 {e.op(f'icmp eq i32 {e.mask}, 0')}, label %{on}, label %{reads}")
    e.label(reads)
    e.memory.observed(source, of, i, to, whole=whole)
    e.line(f"br label %{on}")
    e.label(on)
    e.mask = outer


def _note(e: Emitter, entry: str, access: Access, value: Lanes, one: int, many: int) -> None:
    """Stores an operand's addresses in an entry: the base of a pattern, or all of them."""
    offset = access.address.offset
    if value.pattern is not None:
        base = e.op(f"add i64 {value.ssa}, {offset}") if offset else value.ssa
        e.line(f"store i64 {base}, ptr {e.op(_at(entry, one))}")
        return
    lanes, ty = value.ssa, _W
    if offset:
        lanes = e.op(f"add {_W} {lanes}, splat (i64 {offset})")
    if access.space == "shared":
        lanes, ty = e.op(f"trunc {_W} {lanes} to {_V}"), _V
    e.line(f"store {ty} {lanes}, ptr {e.op(_at(entry, many))}, align 64")


def _read_bytes(e: Emitter, operands: list, size: int) -> tuple[int | None, str | None]:
    """Bytes of the source that are read: known now, or a vector."""
    if not operands:
        return size, None
    (operand,) = operands
    is_predicate = isinstance(operand, tuple) or (
        isinstance(operand, ptx.Register) and e.kernel.registers[operand.name] == "pred"
    )
    if is_predicate:  # ignore-src
        ignored = e.spread(e.lanes(operand, "pred"))
        return None, e.op(f"select {_I1} {ignored}, {_V} zeroinitializer, {_V} splat (i32 {size})")
    shape = e.shapes.of(operand)
    if shape is not None and shape.uniform and shape.value is not None:
        return min(shape.value & 0xFFFFFFFF, size), None
    name = f"@llvm.umin.v{LANES}i32"
    e.declarations.add(f"declare {_V} {name}({_V}, {_V})")
    lanes = e.spread(e.lanes(operand, "u32"))
    return None, e.op(f"call {_V} {name}({_V} {lanes}, {_V} splat (i32 {size}))")


def _number(e: Emitter, i: ptx.Instruction, opcode: str, space: str) -> int:
    """The number of an instruction that faults are told of: a plain ld or st in i's place."""
    modifiers = () if space == "generic" else (space,)
    e.layout.sources.append(replace(i, opcode=opcode, modifiers=modifiers))
    return len(e.layout.sources) - 1


def _check(
    e: Emitter, i: ptx.Instruction, opcode: str, access: Access, address: Lanes, size: int
) -> None:
    offset, number = access.address.offset, _number(e, i, opcode, access.space)
    e.memory.checks.emit(access, address, offset, offset + size, size, [(offset, number)])


def _check_source(
    e: Emitter,
    i: ptx.Instruction,
    access: Access,
    address: Lanes,
    size: int,
    known: int | None,
    sizes: str | None,
) -> None:
    """Only the bytes that are read must exist; where none are, the address may be anything."""
    if known == size:
        _check(e, i, "ld", access, address, size)
        return
    if known == 0:
        return
    sizes = sizes or f"splat (i32 {known})"
    outer = e.mask
    whole = e.op(f"icmp eq {_V} {sizes}, splat (i32 {size})")
    e.mask = e.op(f"and i32 {outer}, {e.op(f'bitcast {_I1} {whole} to i32')}")
    if known is None:
        _check(e, i, "ld", access, address, size)
    some = e.op(f"icmp ne {_V} {sizes}, zeroinitializer")
    part = e.op(f"and i32 {outer}, {e.op(f'bitcast {_I1} {some} to i32')}")
    e.mask = e.op(f"xor i32 {part}, {e.mask}")
    look, on = e.fresh("part")[1:], e.fresh("on")[1:]
    e.line(f"br i1 {e.op(f'icmp eq i32 {e.mask}, 0')}, label %{on}, label %{look}, !prof !0")
    e.label(look)
    start = e.op(f"add {_W} {e.spread(address)}, splat (i64 {access.address.offset})")
    last = e.op(f"sub {_W} {e.op(f'zext {_V} {sizes} to {_W}')}, splat (i64 1)")
    number = _number(e, i, "ld", access.space)
    for addresses in (start, e.op(f"add {_W} {start}, {last}")):
        e.memory.checks.lanes(access, addresses, 1, number)
    e.line(f"br label %{on}")
    e.label(on)
    e.mask = outer


def _copying_function(e: Emitter, form: _Copy) -> str:
    """A function (entry, lanes, shared memory) that carries out a copy for some lanes."""
    name = f"@async.copy.{_digest(form)}"
    head = f"void {name}(ptr %entry.p, i32 %mask, ptr %shared) noinline"
    e.function(name, head, lambda: _write_copy(e, form))
    return name


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _write_copy(e: Emitter, form: _Copy) -> None:
    e.label("entry")
    if form.known == form.size:
        e.line("%whole = icmp eq i32 %mask, -1")
        e.line("br i1 %whole, label %all, label %lanes")
        e.label("all")
        _write_whole(e, form)
        e.line("ret void")
    else:
        e.line("br label %lanes")
    e.label("lanes")
    source = _base(e, _SOURCE) if form.source is not None else None
    target = _base(e, _TARGET) if form.target is not None else None
    e.line("br label %next")
    e.label("next")
    e.line("%left = phi i32 [ %mask, %lanes ], [ %left1, %copied ]")
    e.line("%none = icmp eq i32 %left, 0")
    e.line("br i1 %none, label %finish, label %lane")
    e.label("lane")
    e.line("%l = call i32 @llvm.cttz.i32(i32 %left, i1 true)")
    e.line("%less = sub i32 %left, 1")
    e.line("%left1 = and i32 %left, %less")
    of = _lane_address(e, form.source, source, _SOURCES, "i64")
    to = _lane_address(e, form.target, target, _TARGETS, "i32")
    of = e.op(f"inttoptr i64 {of} to ptr")
    to = e.op(_at("%shared", to))
    _write_lane(e, form, of, to)
    e.label("copied")
    e.line("br label %next")
    e.label("finish")
    e.line("ret void")


def _write_whole(e: Emitter, form: _Copy) -> None:
    """All lanes' copies: one wide one, or one after the other without a loop."""
    size = form.size
    count = 1 if form.contiguous else LANES
    ty = vector("i32", size // 4 * (LANES if form.contiguous else 1))
    bases = [
        None if pattern is None else _base(e, offset)
        for pattern, offset in ((form.source, _SOURCE), (form.target, _TARGET))
    ]
    for lane in range(count):
        if form.source is None:
            of = e.op(f"load ptr, ptr {e.op(_at('%entry.p', _SOURCES + 8 * lane))}")
        else:
            of = e.op(f"inttoptr i64 {e.op(f'add i64 {bases[0]}, {form.source[lane]}')} to ptr")
        if form.target is None:
            to = e.op(f"load i32, ptr {e.op(_at('%entry.p', _TARGETS + 4 * lane))}")
            to = e.op(_at("%shared", e.op(f"zext i32 {to} to i64")))
        else:
            to = e.op(_at(e.op(_at("%shared", bases[1])), form.target[lane]))
        e.line(f"store {ty} {e.op(f'load {ty}, ptr {of}, align {size}')}, ptr {to}, align {size}")


def _write_lane(e: Emitter, form: _Copy, of: str, to: str) -> None:
    """One lane's copy; goes on at %copied."""
    size = form.size
    ty = {4: "i32", 8: "i64", 16: "<4 x i32>"}[size]
    if form.known == size:
        e.line(f"store {ty} {e.op(f'load {ty}, ptr {of}, align {size}')}, ptr {to}, align {size}")
        e.line("br label %copied")
        return
    if form.known is None:
        p = e.op(f"getelementptr i32, ptr {e.op(_at('%entry.p', _SIZES))}, i32 %l")
        count = e.op(f"load i32, ptr {p}")
    else:
        count = str(form.known)
    e.line(f"%is_whole = icmp eq i32 {count}, {size}")
    e.line("br i1 %is_whole, label %full, label %part")
    e.label("full")
    e.line(f"store {ty} {e.op(f'load {ty}, ptr {of}, align {size}')}, ptr {to}, align {size}")
    e.line("br label %copied")
    e.label("part")  # zeros, then byte by byte
    e.line(f"store {ty} {'zeroinitializer' if size == 16 else 0}, ptr {to}, align {size}")
    e.line("br label %more")
    e.label("more")
    e.line("%n = phi i32 [ 0, %part ], [ %n1, %byte ]")
    e.line(f"%end = icmp eq i32 %n, {count}")
    e.line("br i1 %end, label %copied, label %byte")
    e.label("byte")
    byte = e.op(f"load volatile i8, ptr {e.op(f'getelementptr i8, ptr {of}, i32 %n')}")
    e.line(f"store volatile i8 {byte}, ptr {e.op(f'getelementptr i8, ptr {to}, i32 %n')}")
    e.line("%n1 = add i32 %n, 1")
    e.line("br label %more")


def _base(e: Emitter, offset: int) -> str:
    return e.op(f"load i64, ptr {e.op(_at('%entry.p', offset))}")


def _lane_address(
    e: Emitter, pattern: tuple[int, ...] | None, base: str | None, many: int, ty: str
) -> str:
    """The address in lane %l as i64."""
    if pattern is None:
        p = e.op(f"getelementptr {ty}, ptr {e.op(_at('%entry.p', many))}, i32 %l")
        value = e.op(f"load {ty}, ptr {p}")
        return value if ty == "i64" else e.op(f"zext i32 {value} to i64")
    steps = {pattern[lane] - lane * pattern[1] for lane in range(LANES)}
    if steps == {0}:
        far = e.op(f"mul i64 {e.op('zext i32 %l to i64')}, {pattern[1]}")
    else:
        name = f"@steps.{_digest(pattern)}"
        words = ", ".join(f"i64 {p}" for p in pattern)
        text = f"{name} = internal constant [{LANES} x i64] [{words}]"
        if text not in e.constants:
            e.constants.append(text)
        far = e.op(f"load i64, ptr {e.op(f'getelementptr i64, ptr {name}, i32 %l')}")
    return e.op(f"add i64 {base}, {far}")


# -- waiting (9.7.9.25.3.2 to .4) ----------------------------------------


def _commit(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    groups = e.op(_at(_area(e), _GROUPS))
    old = e.op(f"load {_V}, ptr {groups}, align 64")
    more = e.op(f"zext {_I1} {e.lane_mask(e.mask)} to {_V}")
    e.line(f"store {_V} {e.op(f'add {_V} {old}, {more}')}, ptr {groups}, align 64")
    return []


def _complete(e: Emitter, pending: int | None) -> None:
    """Completes all groups but the last `pending` committed ones; None: all copies there are."""
    area = _area(e)
    limit = f"splat (i32 {(1 << 31) - 1})"
    if pending is not None:
        committed = e.op(f"load {_V}, ptr {e.op(_at(area, _GROUPS))}, align 64")
        limit = e.op(f"sub {_V} {committed}, splat (i32 {pending})")
    here = e.lane_mask(e.mask)
    limit = e.op(f"select {_I1} {here}, {_V} {limit}, {_V} splat (i32 {-(1 << 31)})")
    e.line(f"call void @async.complete(ptr {area}, {_V} {limit}, ptr %shared)")


def finish(e: Emitter) -> None:
    """At the end of a warp, for the sanitizer, which judges a copy when it is completed: completes
    what its lanes have never waited for."""
    _complete(e, None)


def _wait_group(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    _complete(e, i.operands[0].value)
    return []


def _wait_all(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    _complete(e, None)
    return []


def _arrive_when_copied(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """cp.async.mbarrier.arrive: the thread's copies so far, then an arrival. Without .noinc the
    arrival is first added to those expected in this phase: together they change nothing."""
    if set(i.modifiers[3:]) - {"noinc", "shared", "shared::cta", "b64"}:
        raise e.unsupported()
    _complete(e, None)
    pointers = _barriers(e, i, i.operands[0], "st")
    if "noinc" in i.modifiers:
        _arrive(e, pointers, "splat (i32 1)", drop=False)
    return []


# -- mbarrier (9.7.13.15) ----------------------------------------


def _barriers(e: Emitter, i: ptx.Instruction, operand, opcode: str) -> str:
    """Host pointers to each lane's mbarrier object, checked."""
    space = "shared" if any(m.split("::")[0] == "shared" for m in i.modifiers) else "generic"
    access = Access(space, "b64", 1, operand)
    address = e.memory.address(access)
    _check(e, i, opcode, access, address, 8)
    return e.memory.pointers(access, address, operand.offset)


def _loop(e: Emitter, name: str, arguments: str, work: str, result: str = "") -> None:
    """A function that does `work` for each active lane: its pointer is %p, its number %l."""
    out = f"  %olds = phi {_W} [ zeroinitializer, %entry ], [ %olds1, %lane ]\n" if result else ""
    put = f"  %olds1 = insertelement {_W} %olds, i64 {result}, i32 %l\n" if result else ""
    body = f"""entry:
  br label %next
next:
  %left = phi i32 [ %mask, %entry ], [ %left1, %lane ]
{out}  %none = icmp eq i32 %left, 0
  br i1 %none, label %finish, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %left1 = and i32 %left, %less
  %p = extractelement {_P} %ps, i32 %l
{work}{put}  br label %next
finish:
  ret {f"{_W} %olds" if result else "void"}"""
    e.function(name, f"{_W if result else 'void'} {name}({arguments}) noinline", body)


def _arrive(e: Emitter, pointers: str, counts: str, drop: bool) -> str:
    """Lane after lane; the states before, as <32 x i64>."""
    name = f"@mbarrier.{'drop' if drop else 'arrive'}"
    expected = "sub i64 %old, %high" if drop else "add i64 %old, 0"
    work = f"""  %n = extractelement {_V} %counts, i32 %l
  %n64 = zext i32 %n to i64
  %high = shl i64 %n64, 20
  %old = load i64, ptr %p
  %new = {expected}
  %missing = and i64 %new, {0xFFFFF}
  %complete = icmp ule i64 %missing, %n64
  %fewer = sub i64 %new, %n64
  %phase = lshr i64 %new, 40
  %phase1 = add i64 %phase, 1
  %phase2 = shl i64 %phase1, 40
  %again = lshr i64 %new, 20
  %again1 = and i64 %again, {0xFFFFF}
  %again2 = shl i64 %again1, 20
  %counts2 = or i64 %again1, %again2
  %turned = or i64 %phase2, %counts2
  %result = select i1 %complete, i64 %turned, i64 %fewer
  store i64 %result, ptr %p
"""
    _loop(e, name, f"{_P} %ps, {_V} %counts, i32 %mask", work, "%old")
    return e.op(f"call {_W} {name}({_P} {pointers}, {_V} {counts}, i32 {e.mask})")


def _mbarrier(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    row = _MBARRIER.get(i.modifiers[0]) if i.modifiers else None
    allowed = {"shared", "b64", "noComplete", "parity", "acquire", "relaxed", "release", "cta"}
    if row is None or {m.split("::")[0] for m in i.modifiers[1:]} - allowed:
        raise e.unsupported()
    return row(e, i)


def _initialise(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    pointers = _barriers(e, i, i.operands[0], "st")
    work = f"""  %n = extractelement {_V} %counts, i32 %l
  %n64 = zext i32 %n to i64
  %low = and i64 %n64, {0xFFFFF}
  %high = shl i64 %low, 20
  %new = or i64 %low, %high
  store i64 %new, ptr %p
"""
    _loop(e, "@mbarrier.init", f"{_P} %ps, {_V} %counts, i32 %mask", work)
    counts = e.spread(e.lanes(i.operands[1], "u32"))
    e.line(f"call void @mbarrier.init({_P} {pointers}, {_V} {counts}, i32 {e.mask})")
    return []


def _invalidate(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    _barriers(e, i, i.operands[0], "st")
    return []


def _arrival(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    pointers = _barriers(e, i, i.operands[1], "st")
    counts = "splat (i32 1)"
    if len(i.operands) > 2:
        counts = e.spread(e.lanes(i.operands[2], "u32"))
    states = _arrive(e, pointers, counts, i.modifiers[0] == "arrive_drop")
    return [(i.operands[0].name, Lanes("i64", states, None))]


def _test_wait(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """Whether the phase of a state, or the last phase of a parity, has completed."""
    pointers = _barriers(e, i, i.operands[1], "ld")
    _loop(e, "@mbarrier.read", f"{_P} %ps, i32 %mask", "  %now = load i64, ptr %p\n", "%now")
    now = e.op(f"call {_W} @mbarrier.read({_P} {pointers}, i32 {e.mask})")
    now = e.op(f"lshr {_W} {now}, splat (i64 40)")
    if "parity" in i.modifiers:
        now = e.op(f"and {_W} {now}, splat (i64 1)")
        wanted = e.spread(e.lanes(i.operands[2], "u32"))
        wanted = e.op(f"and {_W} {e.op(f'zext {_V} {wanted} to {_W}')}, splat (i64 1)")
    else:
        state = e.spread(e.lanes(i.operands[2], "b64"))
        wanted = e.op(f"lshr {_W} {state}, splat (i64 40)")
    done = e.op(f"icmp ne {_W} {now}, {wanted}")
    return [(i.operands[0].name, Lanes("i1", done, None))]


def _pending_count(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    state = e.spread(e.lanes(i.operands[1], "b64"))
    count = e.op(f"trunc {_W} {state} to {_V}")
    count = e.op(f"and {_V} {count}, splat (i32 {0xFFFFF})")
    return [(i.operands[0].name, Lanes("i32", count, None))]


Row = Callable[[Emitter, ptx.Instruction], list[tuple[str, Lanes]]]

_MBARRIER: dict[str, Row] = {
    "init": _initialise,
    "inval": _invalidate,
    "arrive": _arrival,
    "arrive_drop": _arrival,
    "test_wait": _test_wait,
    "pending_count": _pending_count,
}
_CP_ASYNC: dict[str, Row] = {
    "ca": _copy,
    "cg": _copy,
    "commit_group": _commit,
    "wait_group": _wait_group,
    "wait_all": _wait_all,
    "mbarrier": _arrive_when_copied,
}


def _cp(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    row = _CP_ASYNC.get(i.modifiers[1]) if i.name.startswith("cp.async.") else None
    if row is None:  # cp.async.bulk and its like are for sm_90
        raise e.unsupported()
    return row(e, i)


def _policy(e: Emitter, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
    """createpolicy: a hint for the caches, of which there are none (9.7.9.18)."""
    return [(i.operands[0].name, Lanes("i64", "0"))]


TABLE: dict[str, Row] = {"cp": _cp, "mbarrier": _mbarrier, "createpolicy": _policy}
