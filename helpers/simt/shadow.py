"""Shadow memory of code that sanitizes: who has read and written each piece of memory, as IR.

A worker has its own `State` (Context.sanitizer). Memory is followed in *granules*, of as many bytes
as the kernel's narrowest access but 4 at most. Each granule has an *entry* for its last write and
one for its reads:

    bits 14..31  tick    time of the access: ticks count the worker's synchronisations
         13      STRONG  atomic (or meant to be shared: see sanitizing)
         12      BLOCKS  other blocks of this worker have done the same
         11      WARPS   several warps have, since anything has put them in order
         10      LANES   several lanes of one warp have
          0..9   the thread: warp and lane

An entry that is 0 says: never. Beside it *infos* say which instruction it was: of the last writer
or first reader, of a second one, and of one in another block:

    bits 0..17   the instruction's id
        18..27   the thread
        28..63   its position (shared memory: bit 63 for a cp.async that was waited for); in global
                 memory the block (24 bits), the position (11 bits), and whether the warp had seen
                 what others have published

Order. `clocks[w][v]` is the last tick of warp v that warp w comes after (a vector clock). An access
comes after another if that is by the same thread, or of a tick that its warp's clock covers. A
barrier brings all clocks up to the present, a __syncwarp() that of the warp for itself (of some
lanes only: their `lane_clocks`), a fence publishes (`released`) what an atomic or volatile read
takes over. Below `limit[w]` all entries are in order for warp w: one comparison settles nearly
every access.

Read entries saturate: once several warps have read a granule since the last barrier the next ones
store nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int32, c_int64, c_uint64, c_void_p

from . import runtime
from .emitter import Emitter, vector
from .runtime import READY, Context
from .shapes import LANES

TICK = 14
STRONG, BLOCKS, WARPS, SEVERAL = 1 << 13, 1 << 12, 1 << 11, 1 << 10
THREAD = 1023
FREED = (1 << 32) - (1 << TICK) | WARPS  # in conflict with every later access
LAST_TICK = (1 << 32 - TICK) - 1024
THREAD_AT, REST_AT = 18, 28
COPIED = 1 << 63
IDS = 1 << THREAD_AT

SHARED, LOCAL, GLOBAL, GENERIC = range(4)

# What a record in the table of findings is about.
READ_AFTER, WRITE_AFTER_READ, WRITE_AFTER = 0, 1, 2  # an access and an earlier one
SAME, EQUAL_LANES, EQUAL = 3, 4, 5  # lanes of one store; write of the value that is there
UNINITIALISED, OUTSIDE, MISMATCH, EXITED = 6, 7, 8, 9
COPY_READ, COPY_WRITTEN = 10, 11  # a cp.async, and an access before it has been waited for
IN_WARP, IN_BLOCK, IN_GRID = range(3)
KIND_AT, SCOPE_AT, SPACE_AT, ACQUIRED_AT = 36, 40, 42, 44
RECORDS = 4096  # slots of the table; where it is full there is
LAST = 256  # one more for each kind, scope and space
RANGES = 16
BARRIERS = 16
PARAMETERS = 32


class Space(ctypes.Structure):
    _fields_ = [
        ("origin", c_int64),  # host address of the first granule
        ("bytes", c_int64),
        ("kind", c_int64),
        ("writes", c_void_p),  # entries
        ("reads", c_void_p),
        ("write_info", c_void_p),  # infos: the last writer, a second one, one in another block
        ("write_info2", c_void_p),
        ("write_other", c_void_p),
        ("read_info", c_void_p),  # the first reader, ...
        ("read_info2", c_void_p),
        ("read_other", c_void_p),
    ]


class Record(ctypes.Structure):
    _fields_ = [
        ("key", c_uint64),
        ("count", c_int64),
        ("other", c_uint64),  # infos of an example
        ("mine", c_uint64),
        ("address", c_int64),  # from the space's origin
        ("block", c_int64),
        ("unused", c_int64 * 2),
    ]


class State(ctypes.Structure):
    _fields_ = [
        ("limit", c_int32 * LANES),  # lowest entry that is not in order for a warp
        ("released", c_int32 * LANES),
        ("position", c_int32 * LANES),  # blocks of code that a warp has run since the last barrier
        ("exits", c_int32 * LANES),  # the instruction at which lanes of a warp have ended, + 1
        ("clocks", c_int32 * LANES * LANES),
        ("arriving", c_int32 * LANES * BARRIERS),  # clocks of the warps that wait at a barrier
        ("opened", c_int32 * LANES * BARRIERS),  # and of those that its last opening let go
        ("tick", c_int32),
        ("start", c_int32),  # the last tick of the block before
        ("floor", c_int32),  # the lowest entry of this block
        ("acquired", c_int32),
        ("warps", c_int32),
        ("unused", c_int32),
        ("read_only", c_int32 * PARAMETERS),  # arrays that the launch does not write to
        ("granule", c_int64),
        ("range_count", c_int64),
        ("ranges", c_int64 * 3 * RANGES),  # not yet written: first byte, end, bytes of an element
        ("spaces", Space * 3),
        ("lane_clocks", c_void_p),  # for each warp [lane][lane]: of __syncwarp() for some lanes
        ("records", c_void_p),
        ("block", c_int64),
        ("overflow", c_void_p),  # (state): ticks are used up
    ]


_V32, _V64 = vector("i32"), vector("i64")


class Ir:
    """Structured code on top of an Emitter."""

    def __init__(self, e: Emitter):
        self.e, self.op, self.line = e, e.op, e.line

    def variable(self, ty: str) -> str:
        """A place on the stack, made at the function's start."""
        name = self.e.fresh("v")
        lines = self.e.lines
        lines.insert(int(bool(lines) and lines[0].endswith(":")), f"  {name} = alloca {ty}")
        return name

    def at(self, base: str, offset: int | str) -> str:
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def field(self, structure: type[ctypes.Structure], base: str, name: str) -> str:
        return self.at(base, runtime.offset(structure, name))

    def load(self, structure, base: str, name: str, ty: str) -> str:
        return self.op(f"load {ty}, ptr {self.field(structure, base, name)}, align 4")

    def store(self, structure, base: str, name: str, ty: str, value: str) -> None:
        self.line(f"store {ty} {value}, ptr {self.field(structure, base, name)}, align 4")

    def element(self, base: str, ty: str, index: str) -> str:
        kind = "i64" if ty == "i64" else "i32"
        return self.op(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def warp(self, name: str) -> str:
        """The address of warp %w's element of an array of State."""
        p = self.field(State, "%s", name)
        step = LANES if name == "clocks" else 1
        return self.op(f"getelementptr i32, ptr {p}, i32 {self.op(f'mul i32 %w, {step}')}")

    def when(self, condition: str, then: Callable, otherwise: Callable | None = None) -> None:
        yes, no, end = (self.e.fresh(h)[1:] for h in ("yes", "no", "end"))
        self.line(f"br i1 {condition}, label %{yes}, label %{no if otherwise else end}")
        self.e.label(yes)
        then()
        self.line(f"br label %{end}")
        if otherwise:
            self.e.label(no)
            otherwise()
            self.line(f"br label %{end}")
        self.e.label(end)

    def loop(self, count: str, body: Callable[[str], None]) -> None:
        """body(k) for k = 0 ... count - 1, both i64; count may be 0."""

        def once(now: str, k: str) -> None:
            body(now)
            self.line(f"store i64 {self.op(f'add i64 {now}, 1')}, ptr {k}")

        self._while("i64", "0", f"ult i64 {{}}, {count}", once)

    def lanes(self, mask: str, body: Callable[[str], None]) -> None:
        """body(lane) for each lane of an i32 mask."""

        def once(now: str, left: str) -> None:
            lane = self.op(f"call i32 @llvm.cttz.i32(i32 {now}, i1 true)")
            less = self.op(f"sub i32 {now}, 1")
            self.line(f"store i32 {self.op(f'and i32 {now}, {less}')}, ptr {left}")
            body(lane)

        self._while("i32", mask, "ne i32 {}, 0", once)

    def _while(self, ty: str, start: str, test: str, body: Callable[[str, str], None]) -> None:
        """body(value, variable) as long as an icmp of the variable's value holds."""
        p = self.variable(ty)
        self.line(f"store {ty} {start}, ptr {p}")
        head, more, end = (self.e.fresh(h)[1:] for h in ("head", "more", "end"))
        self.line(f"br label %{head}")
        self.e.label(head)
        now = self.op(f"load {ty}, ptr {p}")
        holds = self.op(f"icmp {test.format(now)}")
        self.line(f"br i1 {holds}, label %{more}, label %{end}")
        self.e.label(more)
        body(now, p)
        self.line(f"br label %{head}")
        self.e.label(end)

    def both(self, *conditions: str) -> str:
        result = conditions[0]
        for c in conditions[1:]:
            result = self.op(f"and i1 {result}, {c}")
        return result

    def either(self, a: str, b: str) -> str:
        return self.op(f"or i1 {a}, {b}")

    def negated(self, a: str) -> str:
        return self.op(f"xor i1 {a}, true")

    def has(self, value: str, bit: int) -> str:
        return self.op(f"icmp ne i32 {self.op(f'and i32 {value}, {bit}')}, 0")

    def ordered(self, entry: str) -> str:
        """Whether warp %w comes after an entry's access."""
        tick = self.op(f"lshr i32 {entry}, {TICK}")
        other = self.op(f"and i32 {self.op(f'lshr i32 {entry}, 5')}, 31")
        clock = self.op(f"getelementptr i32, ptr {self.warp('clocks')}, i32 {other}")
        after = self.op(f"icmp ule i32 {tick}, {self.op(f'load i32, ptr {clock}')}")
        row = self.lane_clocks(self.op("and i32 %me, 31"))
        lane = self.op(f"and i32 {entry}, 31")
        clock = self.op(f"getelementptr i32, ptr {row}, i32 {lane}")
        met = self.op(f"icmp ule i32 {tick}, {self.op(f'load i32, ptr {clock}')}")
        same = self.op(f"icmp eq i32 {other}, %w")
        return self.either(after, self.both(same, met))

    def lane_clocks(self, lane: str) -> str:
        """The address of the clocks of the warp's lanes that a lane of warp %w has."""
        p = self.load(State, "%s", "lane_clocks", "ptr")
        row = self.op(f"add i32 {self.op('shl i32 %w, 5')}, {lane}")
        return self.op(f"getelementptr i32, ptr {p}, i32 {self.op(f'shl i32 {row}, 5')}")


def declare(e: Emitter) -> None:
    """The functions that all sanitizing code needs."""
    e.declarations |= {
        "declare i32 @llvm.cttz.i32(i32, i1)",
        f"declare i32 @llvm.vector.reduce.smin.v{LANES}i32({_V32})",
        f"declare {_V32} @llvm.smax.v{LANES}i32({_V32}, {_V32})",
    }
    ir = Ir(e)
    head = "void @san.report(ptr %s, i64 %kind, i64 %other, i64 %mine, i64 %address) noinline cold"
    e.function("@san.report", head, lambda: _report(ir))
    head = "i64 @san.info(ptr %s, ptr %sp, i32 %w, i32 %id, i32 %lane)"
    e.function("@san.info", head, lambda: _info(ir))
    arguments = "ptr %s, ptr %sp, i64 %index, i32 %w, i32 %me, i64 %info"
    e.function("@san.read", f"i1 @san.read({arguments}) noinline", lambda: _read(ir))
    head = f"void @san.write({arguments}, i32 %bytes, ptr %value, i64 %stride) noinline"
    e.function("@san.write", head, lambda: _write(ir))
    head = f"void @san.copied({arguments}, i32 %issued) noinline"
    e.function("@san.copied", head, lambda: _copied(ir))
    for name, body in _EVENTS.items():
        more = ", i32 %number" if name in ("arrive", "join") else ""
        head = f"void @san.{name}(ptr %s, i32 %w{more}) noinline"
        e.function(f"@san.{name}", head, lambda body=body: body(ir))
    head = f"void @san.sync_lanes(ptr %s, i32 %w, {_V32} %members, i32 %mask) noinline"
    e.function("@san.sync_lanes", head, lambda: _sync_lanes(ir))
    e.function("@san.begin", "void @san.begin(ptr %cx) noinline", lambda: _begin(ir))
    e.function("@san.barrier", "void @san.barrier(ptr %cx, i1 %opens) noinline",
               lambda: _barrier(ir))  # fmt: skip
    e.function(
        "@san.open", "void @san.open(ptr %cx, i32 %number, i1 %some) noinline", lambda: _open(ir)
    )


# -- synchronisation ----------------------------------------


def _next_tick(ir: Ir) -> str:
    """Ends the present tick; the one that has ended."""
    now = ir.load(State, "%s", "tick", "i32")
    ir.store(State, "%s", "tick", "i32", ir.op(f"add i32 {now}, 1"))
    return now


def _set_limit(ir: Ir) -> None:
    clocks = ir.op(f"load {_V32}, ptr {ir.warp('clocks')}, align 4")
    least = ir.op(f"call i32 @llvm.vector.reduce.smin.v{LANES}i32({_V32} {clocks})")
    limit = ir.op(f"shl i32 {ir.op(f'add i32 {least}, 1')}, {TICK}")
    ir.line(f"store i32 {limit}, ptr {ir.warp('limit')}")
    tick = ir.load(State, "%s", "tick", "i32")
    ir.when(ir.op(f"icmp ugt i32 {tick}, {LAST_TICK}"), lambda: _overflow(ir))


def _overflow(ir: Ir) -> None:
    function = ir.load(State, "%s", "overflow", "ptr")
    ir.line(f"call void {function}(ptr %s)")


def _own_clock(ir: Ir) -> str:
    return ir.op(f"getelementptr i32, ptr {ir.warp('clocks')}, i32 %w")


def _take_over(ir: Ir, source: str) -> None:
    """Warp %w comes after all that the clocks at `source` cover."""
    clocks = ir.warp("clocks")
    mine = ir.op(f"load {_V32}, ptr {clocks}, align 4")
    theirs = ir.op(f"load {_V32}, ptr {source}, align 4")
    both = ir.op(f"call {_V32} @llvm.smax.v{LANES}i32({_V32} {mine}, {_V32} {theirs})")
    ir.line(f"store {_V32} {both}, ptr {clocks}, align 4")


def _sync_warp(ir: Ir) -> None:
    ir.line(f"store i32 {_next_tick(ir)}, ptr {_own_clock(ir)}")
    _set_limit(ir)
    ir.line("ret void")


def _sync_lanes(ir: Ir) -> None:
    """The lanes in %mask meet, each with its members: for all of which a lane comes after what
    any of them came after. A lane that its own mask leaves out meets nobody."""
    ir.e.label("entry")
    active = ir.op(f"bitcast i32 %mask to {vector('i1')}")
    partial = ir.op(f"icmp ne {_V32} %members, splat (i32 -1)")
    partial = ir.op(f"and {vector('i1')} {partial}, {active}")
    word = ir.op(f"bitcast {vector('i1')} {partial} to i32")
    some, whole = ir.e.fresh("some")[1:], ir.e.fresh("whole")[1:]
    ir.line(f"br i1 {ir.op(f'icmp ne i32 {word}, 0')}, label %{some}, label %{whole}")
    ir.e.label(whole)
    ir.line("call void @san.sync_warp(ptr %s, i32 %w)")
    ir.line("ret void")
    ir.e.label(some)
    now = _next_tick(ir)
    left, row = ir.variable("i32"), ir.variable(_V32)
    ir.line(f"store i32 %mask, ptr {left}")

    def group(lane: str) -> None:
        """The first lane of a group that is left does the work for all of it."""
        mine = ir.op(f"load i32, ptr {left}")
        bit = ir.op(f"shl i32 1, {lane}")

        def work() -> None:
            members = ir.op(f"extractelement {_V32} %members, i32 {lane}")
            named = ir.op(f"icmp ne i32 {ir.op(f'and i32 {members}, {bit}')}, 0")
            members = ir.op(f"select i1 {named}, i32 {members}, i32 {bit}")
            inside = ir.op(f"bitcast i32 {members} to {vector('i1')}")
            first = ir.op(
                f"select {vector('i1')} {inside}, {_V32} {ir.e.splat('i32', now)}, "
                f"{_V32} zeroinitializer"
            )
            ir.line(f"store {_V32} {first}, ptr {row}")

            def gather(member: str) -> None:
                old = ir.op(f"load {_V32}, ptr {ir.lane_clocks(member)}, align 4")
                sum_ = ir.op(f"load {_V32}, ptr {row}")
                both = ir.op(f"call {_V32} @llvm.smax.v{LANES}i32({_V32} {old}, {_V32} {sum_})")
                ir.line(f"store {_V32} {both}, ptr {row}")

            ir.lanes(members, gather)
            here = ir.op(f"and i32 {members}, %mask")

            def spread(member: str) -> None:
                new = ir.op(f"load {_V32}, ptr {row}")
                ir.line(f"store {_V32} {new}, ptr {ir.lane_clocks(member)}, align 4")

            ir.lanes(here, spread)
            rest = ir.op(f"and i32 {mine}, {ir.op(f'xor i32 {here}, -1')}")
            ir.line(f"store i32 {rest}, ptr {left}")

        ir.when(ir.op(f"icmp ne i32 {ir.op(f'and i32 {mine}, {bit}')}, 0"), work)

    ir.lanes("%mask", group)
    _set_limit(ir)
    ir.line("ret void")


def _release(ir: Ir) -> None:
    ir.line(f"store i32 {_next_tick(ir)}, ptr {ir.warp('released')}")
    _set_limit(ir)
    ir.line("ret void")


def _acquire(ir: Ir) -> None:
    ir.store(State, "%s", "acquired", "i32", "1")
    _take_over(ir, ir.field(State, "%s", "released"))
    _set_limit(ir)
    ir.line("ret void")


def _at_barrier(ir: Ir, name: str) -> str:
    p = ir.field(State, "%s", name)
    index = ir.op(f"and i32 %number, {BARRIERS - 1}")
    return ir.op(f"getelementptr i32, ptr {p}, i32 {ir.op(f'mul i32 {index}, {LANES}')}")


def _arrive(ir: Ir) -> None:
    ir.line(f"store i32 {_next_tick(ir)}, ptr {_own_clock(ir)}")
    at = _at_barrier(ir, "arriving")
    there = ir.op(f"load {_V32}, ptr {at}, align 4")
    mine = ir.op(f"load {_V32}, ptr {ir.warp('clocks')}, align 4")
    both = ir.op(f"call {_V32} @llvm.smax.v{LANES}i32({_V32} {mine}, {_V32} {there})")
    ir.line(f"store {_V32} {both}, ptr {at}, align 4")
    _set_limit(ir)
    ir.line("ret void")


def _join(ir: Ir) -> None:
    _take_over(ir, _at_barrier(ir, "opened"))
    ir.line(f"store i32 0, ptr {ir.warp('position')}")
    _set_limit(ir)
    ir.line("ret void")


_EVENTS = {
    "sync_warp": _sync_warp,
    "release": _release,
    "acquire": _acquire,
    "arrive": _arrive,
    "join": _join,
}


def _state(ir: Ir) -> None:
    ir.line(f"%s.p = getelementptr i8, ptr %cx, i64 {runtime.offset(Context, 'sanitizer')}")
    ir.line("%s = load ptr, ptr %s.p")


def _open(ir: Ir) -> None:
    """A numbered barrier opens. %some: it is one of some threads, who need not be at one place."""
    ir.e.label("entry")
    _state(ir)
    ir.when("%some", lambda: None, lambda: _compare_places(ir, "%number"))
    clocks = ir.op(f"load {_V32}, ptr {_at_barrier(ir, 'arriving')}, align 4")
    ir.line(f"store {_V32} {clocks}, ptr {_at_barrier(ir, 'opened')}, align 4")
    ir.line("ret void")


def _fill(ir: Ir, name: str, rows: int, value: str) -> None:
    p = ir.field(State, "%s", name)
    for k in range(rows):
        ir.line(f"store {_V32} {value}, ptr {ir.at(p, 4 * LANES * k)}, align 4")


def _clocks(ir: Ir, now: str) -> str:
    """Clocks at `now` for each warp of the block; there is no order with what does not exist."""
    warps = ir.load(State, "%s", "warps", "i32")
    lanes = ir.e.pattern_constant("i32", range(LANES))
    exists = ir.op(f"icmp ult {_V32} {lanes}, {ir.e.splat('i32', warps)}")
    last = (1 << 31) - 1
    return ir.op(
        f"select {vector('i1')} {exists}, {_V32} {ir.e.splat('i32', now)}, "
        f"{_V32} splat (i32 {last})"
    )


def _begin(ir: Ir) -> None:
    """A block starts: nothing of it has happened yet."""
    _state(ir)
    tick = ir.load(State, "%s", "tick", "i32")
    ir.when(ir.op(f"icmp ugt i32 {tick}, {LAST_TICK - (1 << 15)}"), lambda: _overflow(ir))
    now = _next_tick(ir)
    ir.store(State, "%s", "start", "i32", now)
    ir.store(State, "%s", "acquired", "i32", "0")
    block = ir.load(Context, "%cx", "block", "i64")
    ir.store(State, "%s", "block", "i64", block)
    clocks = _clocks(ir, now)
    _fill(ir, "clocks", LANES, clocks)
    _fill(ir, "released", 1, clocks)
    _fill(ir, "arriving", BARRIERS, clocks)
    _fill(ir, "opened", BARRIERS, clocks)
    _fill(ir, "position", 1, "zeroinitializer")
    _fill(ir, "exits", 1, "zeroinitializer")
    limit = ir.op(f"shl i32 {ir.op(f'add i32 {now}, 1')}, {TICK}")
    ir.store(State, "%s", "floor", "i32", limit)
    _fill(ir, "limit", 1, ir.e.splat("i32", limit))
    ir.line("ret void")


def _barrier(ir: Ir) -> None:
    """All warps that have not ended wait, and are let go."""
    ir.line("br i1 %opens, label %go, label %back")
    ir.e.label("back")
    ir.line("ret void")
    ir.e.label("go")
    _state(ir)
    _compare_places(ir)
    now = _next_tick(ir)
    clocks = _clocks(ir, now)
    _fill(ir, "clocks", LANES, clocks)
    _fill(ir, "released", 1, clocks)
    _fill(ir, "position", 1, "zeroinitializer")
    limit = ir.op(f"shl i32 {ir.op(f'add i32 {now}, 1')}, {TICK}")
    _fill(ir, "limit", 1, ir.e.splat("i32", limit))
    ir.when(ir.op(f"icmp ugt i32 {now}, {LAST_TICK}"), lambda: _overflow(ir))
    ir.line("ret void")


def _compare_places(ir: Ir, number: str | None = None) -> None:
    """Reports warps that wait at other places than the first does, and warps that have ended.
    Their infos' ids are resume points. number: of the barrier, where there are several."""
    states = ir.load(Context, "%cx", "states", "ptr")
    first = ir.variable("i32")
    ended = ir.variable("i32")
    mine = ir.variable("i64")
    ir.line(f"store i32 0, ptr {first}")
    ir.line(f"store i32 0, ptr {ended}")
    ir.line(f"store i64 0, ptr {mine}")
    warps = ir.op(f"zext i32 {ir.load(State, '%s', 'warps', 'i32')} to i64")

    def info(resume: str, w: str) -> str:
        thread = ir.op(f"shl i64 {w}, {THREAD_AT + 5}")
        return ir.op(f"or i64 {thread}, {ir.op(f'zext i32 {resume} to i64')}")

    def look(w: str) -> None:
        state = ir.op(f"load i32, ptr {ir.op(f'getelementptr i32, ptr {states}, i64 {w}')}")
        here = ir.op(f"load i32, ptr {first}")
        waits = ir.op(f"icmp sgt i32 {state}, 0")
        if number is not None:
            places = ir.load(Context, "%cx", "places", "ptr")
            at = ir.op(f"load i32, ptr {ir.op(f'getelementptr i32, ptr {places}, i64 {w}')}")
            blocked = ir.negated(ir.has(state, READY))
            waits = ir.both(waits, blocked, ir.op(f"icmp eq i32 {at}, {number}"))
        after = ir.op(f"add i32 {ir.op(f'trunc i64 {w} to i32')}, 1")
        over = ir.op(f"icmp slt i32 {state}, 0")
        ir.when(over, lambda: ir.line(f"store i32 {after}, ptr {ended}"))

        def found() -> None:
            ir.line(f"store i32 {state}, ptr {first}")
            ir.line(f"store i64 {info(state, w)}, ptr {mine}")

        ir.when(ir.both(waits, ir.op(f"icmp eq i32 {here}, 0")), found)
        differs = ir.both(
            waits, ir.op(f"icmp ne i32 {here}, 0"), ir.op(f"icmp ne i32 {here}, {state}")
        )
        ir.when(differs, lambda: ir.line(
            f"call void @san.report(ptr %s, i64 {MISMATCH}, i64 {ir.op(f'load i64, ptr {mine}')}, "
            f"i64 {info(state, w)}, i64 0)"))  # fmt: skip

    ir.loop(warps, look)
    gone = ir.op(f"load i32, ptr {ended}")

    def report() -> None:
        w = ir.op(f"zext i32 {ir.op(f'sub i32 {gone}, 1')} to i64")
        exits = ir.field(State, "%s", "exits")
        at = ir.op(f"load i32, ptr {ir.op(f'getelementptr i32, ptr {exits}, i64 {w}')}")
        ir.line(f"call void @san.report(ptr %s, i64 {EXITED}, i64 {info(at, w)}, "
                f"i64 {ir.op(f'load i64, ptr {mine}')}, i64 0)")  # fmt: skip

    ir.when(ir.op(f"icmp ne i32 {gone}, 0"), report)


# -- the table of findings ----------------------------------------


def _report(ir: Ir) -> None:
    """Counts a finding. kind: all of the key that is not the two instructions' ids.

    Where the table is full, findings of one kind, scope and space share a record, so that none of
    these is lost.
    """
    ir.e.label("entry")
    low = IDS - 1
    a = ir.op(f"and i64 %other, {low}")
    b = ir.op(f"shl i64 {ir.op(f'and i64 %mine, {low}')}, {THREAD_AT}")
    # kind | scope << 4 | space << 6 | acquired << 8, as it stands above KIND_AT
    key = ir.op(f"or i64 {a}, {b}")
    key = ir.op(f"or i64 {key}, {ir.op(f'shl i64 %kind, {KIND_AT}')}")
    key = ir.op(f"or i64 {key}, {-(1 << 63)}")
    table = ir.load(State, "%s", "records", "ptr")
    hashed = ir.op(f"lshr i64 {ir.op(f'mul i64 {key}, {-7046029254386353131}')}, 40")
    tries = ir.variable("i64")
    ir.line(f"store i64 0, ptr {tries}")
    ir.line("br label %probe")
    ir.e.label("probe")
    t = ir.op(f"load i64, ptr {tries}")
    ir.line(f"store i64 {ir.op(f'add i64 {t}, 1')}, ptr {tries}")
    index = ir.op(f"and i64 {ir.op(f'add i64 {hashed}, {t}')}, {RECORDS - 1}")

    def slot(at: str) -> str:
        return ir.at(table, ir.op(f"mul i64 {at}, {ctypes.sizeof(Record)}"))

    probed = slot(index)
    found = ir.load(Record, probed, "key", "i64")
    ir.line(f"br i1 {ir.op(f'icmp eq i64 {found}, {key}')}, label %count, label %other.one")
    ir.e.label("other.one")
    ir.line(f"br i1 {ir.op(f'icmp eq i64 {found}, 0')}, label %fresh, label %again")
    ir.e.label("again")
    ir.line(f"br i1 {ir.op(f'icmp ult i64 {t}, {RECORDS // 2}')}, label %probe, label %full")
    ir.e.label("full")
    last = slot(ir.op(f"add i64 {ir.op(f'and i64 %kind, {LAST - 1}')}, {RECORDS}"))
    taken = ir.op(f"icmp ne i64 {ir.load(Record, last, 'key', 'i64')}, 0")
    ir.line(f"br i1 {taken}, label %count, label %fresh")
    ir.e.label("fresh")
    record = ir.op(f"phi ptr [ {probed}, %other.one ], [ {last}, %full ]")
    block = ir.load(State, "%s", "block", "i64")
    for name, value in (("key", key), ("other", "%other"), ("mine", "%mine"),
                        ("address", "%address"), ("block", block)):  # fmt: skip
        ir.store(Record, record, name, "i64", value)
    ir.line("br label %count")
    ir.e.label("count")
    record = ir.op(f"phi ptr [ {probed}, %probe ], [ {last}, %full ], [ {record}, %fresh ]")
    n = ir.load(Record, record, "count", "i64")
    ir.store(Record, record, "count", "i64", ir.op(f"add i64 {n}, 1"))
    ir.line("ret void")


def _info(ir: Ir) -> None:
    ir.e.label("entry")
    kind = ir.load(Space, "%sp", "kind", "i64")
    position = ir.op(f"load i32, ptr {ir.warp('position')}")
    position = ir.op(f"zext i32 {position} to i64")
    large = ir.op(f"icmp ugt i64 {position}, 2047")
    small = ir.op(f"select i1 {large}, i64 2047, i64 {position}")
    small = ir.op(f"shl i64 {small}, 1")
    acquired = ir.op(f"zext i32 {ir.load(State, '%s', 'acquired', 'i32')} to i64")
    block = ir.op(f"shl i64 {ir.load(State, '%s', 'block', 'i64')}, 12")
    packed = ir.op(f"or i64 {ir.op(f'or i64 {block}, {small}')}, {acquired}")
    is_global = ir.op(f"icmp eq i64 {kind}, {GLOBAL}")
    rest = ir.op(f"select i1 {is_global}, i64 {packed}, i64 {position}")
    thread = ir.op(f"add i32 {ir.op('shl i32 %w, 5')}, %lane")
    thread = ir.op(f"shl i64 {ir.op(f'zext i32 {thread} to i64')}, {THREAD_AT}")
    info = ir.op(f"or i64 {ir.op(f'shl i64 {rest}, {REST_AT}')}, {ir.op('zext i32 %id to i64')}")
    ir.line(f"ret i64 {ir.op(f'or i64 {info}, {thread}')}")


# -- one granule and one lane ----------------------------------------


class _Granule:
    """What @san.read and @san.write have in common: the granule's entries and infos."""

    def __init__(self, ir: Ir):
        self.ir = ir
        ir.e.label("entry")
        self.places = {
            name: ir.element(ir.load(Space, "%sp", name, "ptr"), "i64" if "info" in name or
                             "other" in name else "i32", "%index")
            for name in ("writes", "reads", "write_info", "write_info2", "write_other",
                         "read_info", "read_info2", "read_other")
        }  # fmt: skip
        self.W, self.R = (ir.op(f"load i32, ptr {self.places[n]}") for n in ("writes", "reads"))
        self.limit = ir.op(f"load i32, ptr {ir.warp('limit')}")
        self.start = ir.load(State, "%s", "start", "i32")
        self.kind = ir.load(Space, "%sp", "kind", "i64")
        self.is_global = ir.op(f"icmp eq i64 {self.kind}, {GLOBAL}")
        tick = ir.load(State, "%s", "tick", "i32")
        self.now = ir.op(f"or i32 {ir.op(f'shl i32 {tick}, {TICK}')}, %me")

    def info(self, name: str) -> str:
        return self.ir.op(f"load i64, ptr {self.places[name]}")

    def put(self, name: str, value: str) -> None:
        ty = "i32" if name in ("writes", "reads") else "i64"
        self.ir.line(f"store {ty} {value}, ptr {self.places[name]}")

    def of_earlier_block(self, entry: str) -> str:
        return self.ir.op(f"icmp ule i32 {self.ir.op(f'lshr i32 {entry}, {TICK}')}, {self.start}")

    def both_strong(self, entry: str) -> str:
        return self.ir.has(self.ir.op(f"and i32 {entry}, %me"), STRONG)

    def conflicts(self, entry: str, infos: str, report: Callable[[str, int], None]) -> None:
        """Calls report(info, scope) where an entry's access is not in order with this one."""
        ir = self.ir
        old = self.of_earlier_block(entry)
        weak = ir.negated(self.both_strong(entry))
        recent = ir.op(f"icmp uge i32 {entry}, {self.limit}")

        def in_block() -> None:
            first, second = self.info(f"{infos}_info"), self.info(f"{infos}_info2")

            def several() -> None:
                warp = ir.op(f"lshr i64 {first}, {THREAD_AT + 5}")
                warp = ir.op(f"and i64 {warp}, 31")
                own = ir.op(f"icmp eq i64 {warp}, {ir.op('zext i32 %w to i64')}")
                report(ir.op(f"select i1 {own}, i64 {second}, i64 {first}"), IN_BLOCK)

            def one() -> None:
                ordered = ir.ordered(entry)
                differs = ir.op(f"and i32 {ir.op(f'xor i32 {entry}, %me')}, {THREAD}")
                same = ir.op(f"icmp eq i32 {differs}, 0")
                single = ir.negated(ir.has(entry, SEVERAL))
                fine = ir.either(ordered, ir.both(same, single))

                def unordered() -> None:
                    other = ir.op(f"and i32 {ir.op(f'lshr i32 {entry}, 5')}, 31")
                    mine = ir.op(f"icmp eq i32 {other}, %w")

                    def in_warp() -> None:
                        thread = ir.op(f"lshr i64 {ir.op(f'xor i64 {first}, %info')}, {THREAD_AT}")
                        own = ir.op(f"icmp eq i64 {ir.op(f'and i64 {thread}, {THREAD}')}, 0")
                        own = ir.both(own, ir.has(entry, SEVERAL))
                        report(ir.op(f"select i1 {own}, i64 {second}, i64 {first}"), IN_WARP)

                    ir.when(mine, in_warp, lambda: report(first, IN_BLOCK))

                ir.when(ir.negated(fine), unordered)

            ir.when(ir.has(entry, WARPS), several, one)

        ir.when(ir.both(recent, weak, ir.negated(old)), in_block)

        def in_grid() -> None:
            some = ir.op(f"icmp ne i32 {entry}, 0")
            earlier = ir.both(old, some)
            marked = ir.has(entry, BLOCKS)

            def found() -> None:
                last, before = self.info(f"{infos}_info"), self.info(f"{infos}_other")
                report(ir.op(f"select i1 {earlier}, i64 {last}, i64 {before}"), IN_GRID)

            ir.when(ir.both(ir.either(earlier, marked), weak), found)

        ir.when(self.is_global, in_grid)

    def report(self, kind: str | int, info: str, scope: int, size: str | None = None) -> None:
        """A finding of this access and another."""
        ir = self.ir
        kind = ir.op(f"or i64 {kind}, {scope << SCOPE_AT - KIND_AT}")
        kind = ir.op(f"or i64 {kind}, {ir.op(f'shl i64 {self.kind}, {SPACE_AT - KIND_AT}')}")
        for k, one in enumerate((info, "%info")):
            bit = ir.op(f"and i64 {ir.op(f'lshr i64 {one}, {REST_AT}')}, 1")
            bit = ir.op(f"select i1 {self.is_global}, i64 {bit}, i64 0")
            kind = ir.op(f"or i64 {kind}, {ir.op(f'shl i64 {bit}, {ACQUIRED_AT - KIND_AT + k}')}")
        ir.line(f"call void @san.report(ptr %s, i64 {kind}, i64 {info}, i64 %info, i64 %index)")

    def renewed(self, entry: str, infos: str) -> str:
        """A new entry where the old one is in order: what is kept of it is that there were other
        blocks."""
        ir = self.ir
        result = ir.variable("i32")
        ir.line(f"store i32 {self.now}, ptr {result}")
        earlier = ir.both(self.of_earlier_block(entry), ir.op(f"icmp ne i32 {entry}, 0"))
        marked = ir.has(entry, BLOCKS)

        def mark() -> None:
            ir.line(f"store i32 {ir.op(f'or i32 {self.now}, {BLOCKS}')}, ptr {result}")
            ir.when(earlier, lambda: self.put(f"{infos}_other", self.info(f"{infos}_info")))

        ir.when(ir.both(self.is_global, ir.either(earlier, marked)), mark)
        return ir.op(f"load i32, ptr {result}")

    def in_order(self, entry: str) -> str:
        """Whether all that an entry stands for is in order with this access or of this thread's
        past and not to be kept."""
        ir = self.ir
        below = ir.op(f"icmp ult i32 {entry}, {self.limit}")
        one = ir.negated(ir.has(entry, WARPS))
        return ir.either(below, ir.both(one, ir.ordered(entry)))


def _read(ir: Ir) -> None:
    """A read of one granule by one lane; whether nobody has written there. %me: the thread, and
    STRONG."""
    g = _Granule(ir)
    g.conflicts(g.W, "write", lambda info, scope: g.report(READ_AFTER, info, scope))
    R = g.R

    def renew() -> None:
        new = g.renewed(R, "read")
        g.put("reads", new)
        g.put("read_info", "%info")

    def add() -> None:
        weak = ir.op(f"or i32 %me, {~STRONG}")
        kept = ir.op(f"and i32 {R}, {weak}")
        other = ir.op(f"and i32 {ir.op(f'xor i32 {R}, %me')}, {THREAD}")
        same = ir.op(f"icmp eq i32 {other}, 0")
        same_warp = ir.op(f"icmp ult i32 {other}, {LANES}")
        tick = ir.op(f"and i32 {g.now}, {-(1 << TICK)}")
        kept = ir.op(f"or i32 {ir.op(f'and i32 {kept}, {(1 << TICK) - 1}')}, {tick}")

        def more() -> None:
            bit = ir.op(f"select i1 {same_warp}, i32 {SEVERAL}, i32 {WARPS}")
            known = ir.op(f"icmp ne i32 {ir.op(f'and i32 {R}, {bit}')}, 0")
            known = ir.either(known, ir.has(R, WARPS))
            g.put("reads", ir.op(f"or i32 {kept}, {bit}"))
            ir.when(ir.negated(known), lambda: g.put("read_info2", "%info"))

        ir.when(same, lambda: g.put("reads", kept), more)

    ir.when(g.in_order(R), renew, add)
    never = ir.op(f"icmp eq i32 {g.W}, 0")
    unwritten = g.of_earlier_block(g.W)
    ir.line(f"ret i1 {ir.op(f'select i1 {g.is_global}, i1 {never}, i1 {unwritten}')}")


def _write(ir: Ir) -> None:
    """A write of one granule by one lane. %value: its %bytes, %stride bytes from one lane to the
    next, or null: then it depends on what is there (an atomic operation)."""
    g = _Granule(ir)
    plain = ir.op("icmp ne ptr %value, null")

    def after_write(info: str, scope: int) -> None:
        def same_instance() -> None:
            # Another lane of this very store: its value has not been written yet.
            lane = lambda x: ir.op(f"and i64 {ir.op(f'lshr i64 {x}, {THREAD_AT}')}, 31")  # noqa: E731
            apart = ir.op(f"sub i64 {lane(info)}, {lane('%info')}")
            there = ir.at("%value", ir.op(f"mul i64 {apart}, %stride"))
            report_by_value(there, EQUAL_LANES, SAME)

        def report_by_value(p: str, equal: int, differs: int) -> None:
            kind = ir.op(f"select i1 {_same_bytes(ir, p)}, i64 {equal}, i64 {differs}")
            g.report(kind, info, scope)

        def by_memory() -> None:
            origin = ir.load(Space, "%sp", "origin", "i64")
            at = ir.op(f"mul i64 %index, {ir.op('zext i32 %bytes to i64')}")
            there = ir.op(f"inttoptr i64 {ir.op(f'add i64 {origin}, {at}')} to ptr")
            report_by_value(there, EQUAL, WRITE_AFTER)

        def store() -> None:
            if scope != IN_WARP:
                by_memory()
                return
            mask = ~(THREAD << THREAD_AT)
            differs = ir.op(f"and i64 {ir.op(f'xor i64 {info}, %info')}, {mask}")
            ir.when(ir.op(f"icmp eq i64 {differs}, 0"), same_instance, by_memory)

        ir.when(plain, store, lambda: g.report(WRITE_AFTER, info, scope))

    g.conflicts(g.W, "write", after_write)
    g.conflicts(g.R, "read", lambda info, scope: g.report(WRITE_AFTER_READ, info, scope))
    # An atomic operation on what this thread has just written: the write is what others must not
    # come near, atomic or not.
    own = ir.op(f"and i32 {ir.op(f'xor i32 {g.W}, %me')}, {THREAD | SEVERAL | WARPS | BLOCKS}")
    own = ir.op(f"icmp eq i32 {own}, 0")
    only_mine = ir.both(ir.has("%me", STRONG), ir.negated(ir.has(g.W, STRONG)))
    clock = ir.op(f"load i32, ptr {_own_clock(ir)}")
    fresh = ir.op(f"icmp ugt i32 {ir.op(f'lshr i32 {g.W}, {TICK}')}, {clock}")
    keep, renew_it = ir.e.fresh("keep")[1:], ir.e.fresh("renew")[1:]
    kept = ir.both(own, only_mine, fresh)
    ir.line(f"br i1 {kept}, label %{keep}, label %{renew_it}")
    ir.e.label(keep)
    ir.line("ret void")
    ir.e.label(renew_it)
    new = ir.variable("i32")

    def renew() -> None:
        ir.line(f"store i32 {g.renewed(g.W, 'write')}, ptr {new}")

    def add() -> None:
        """Atomic operations: who else has done one."""
        other = ir.op(f"and i32 {ir.op(f'xor i32 {g.W}, %me')}, {THREAD}")
        same_warp = ir.op(f"icmp ult i32 {other}, {LANES}")
        same = ir.op(f"icmp eq i32 {other}, 0")
        bit = ir.op(f"select i1 {same_warp}, i32 {SEVERAL}, i32 {WARPS}")
        bit = ir.op(f"select i1 {same}, i32 0, i32 {bit}")
        kept = ir.op(f"and i32 {g.W}, {BLOCKS | WARPS | SEVERAL}")
        entry = ir.op(f"or i32 {ir.op(f'or i32 {g.now}, {kept}')}, {bit}")
        ir.line(f"store i32 {entry}, ptr {new}")
        ir.when(ir.negated(same), lambda: g.put("write_info2", g.info("write_info")))

    strong = g.both_strong(g.W)
    ir.when(ir.either(g.in_order(g.W), ir.negated(strong)), renew, add)
    g.put("writes", ir.op(f"load i32, ptr {new}"))
    g.put("write_info", "%info")
    ir.line("ret void")


def _copied(ir: Ir) -> None:
    """A cp.async has written one granule for a lane. It may have done so at any time since it was
    issued: in conflict is all that has been done there since the tick that this ended, %issued."""
    g = _Granule(ir)
    for entry, infos, kind in ((g.R, "read", COPY_READ), (g.W, "write", COPY_WRITTEN)):
        late = ir.op(f"icmp ugt i32 {ir.op(f'lshr i32 {entry}, {TICK}')}, %issued")

        def report(entry: str = entry, infos: str = infos, kind: int = kind) -> None:
            other = ir.op(f"lshr i32 {ir.op(f'xor i32 {entry}, %me')}, 5")
            same = ir.op(f"icmp eq i32 {ir.op(f'and i32 {other}, 31')}, 0")
            in_warp = ir.both(same, ir.negated(ir.has(entry, WARPS)))
            kinds = [kind | scope << SCOPE_AT - KIND_AT for scope in (IN_WARP, IN_BLOCK)]
            chosen = ir.op(f"select i1 {in_warp}, i64 {kinds[0]}, i64 {kinds[1]}")
            info = g.info(f"{infos}_info")
            ir.line(f"call void @san.report(ptr %s, i64 {chosen}, i64 %info, i64 {info}, "
                    "i64 %index)")  # fmt: skip

        ir.when(late, report)
    g.put("writes", g.now)
    g.put("write_info", ir.op(f"or i64 %info, {-COPIED}"))
    ir.line("ret void")


def _same_bytes(ir: Ir, p: str) -> str:
    """Whether the %bytes at p and at %value are the same."""
    result = ir.variable("i1")
    ir.line(f"store i1 true, ptr {result}")

    def compare(k: str) -> None:
        a, b = (ir.op(f"load i8, ptr {ir.op(f'getelementptr i8, ptr {x}, i64 {k}')}")
                for x in (p, "%value"))  # fmt: skip
        ir.when(ir.op(f"icmp ne i8 {a}, {b}"), lambda: ir.line(f"store i1 false, ptr {result}"))

    ir.loop(ir.op("zext i32 %bytes to i64"), compare)
    return ir.op(f"load i1, ptr {result}")
