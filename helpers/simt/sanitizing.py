"""Code that looks for races and bad accesses while it works: what is emitted beside each access.

Three ways to an access's entries (see shadow), from the quickest:

- quick: all lanes are active and their addresses a base plus a known pattern, so that the entries
  are a window of memory: one comparison says that nothing has to be done;
- row: the same window, where entries have to be written, but nothing is out of order;
- lanes: anything else, lane by lane.

STRONG accesses, which are never in conflict with each other: atomic operations, accesses with
.relaxed, .acquire or .release, volatile ones in a kernel that waits for others in a loop, and the
plain read that a compare-and-swap of the same address begins with.

Reads through a parameter whose array the launch does not write to (by what the kernel's stores may
have their addresses from) need no looking at.

What puts accesses of different threads in order, by the CUDA C++ Programming Guide:

- __syncthreads() and the barriers of PTX, for the threads that take part ("Synchronization
  Functions"; PTX ISA, bar.sync);
- __syncwarp(), for the lanes in its mask: it "guarantees memory ordering among threads
  participating in the barrier" (the same section; PTX ISA, bar.warp.sync);
- a fence before an atomic, volatile or release access, and after it an atomic, volatile or acquire
  access of another warp: what the first warp did before its fence comes before what the second does
  from then on. Which flag it was is not looked at, so that this errs on the side of order.

Shuffles, votes, __match_sync() and __reduce_sync() do not: they "do not imply a memory barrier.
They do not guarantee any memory ordering" ("Warp Shuffle Functions", "Warp Vote Functions", "Warp
Match Functions", "Warp Reduce Functions"). Nor do ldmatrix, mma and wmma, of which the PTX ISA says
that lanes wait for each other, and nothing of memory. A fence alone orders one thread's accesses,
not those of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import ptx, runtime, shadow
from .access import Access, parse
from .emitter import Emitter, Lanes, vector
from .flow import Graph, destinations, registers_in
from .polling import waiting_loops
from .shadow import BLOCKS, SEVERAL, STRONG, THREAD, WARPS, Ir, Space, State
from .shapes import LANES

_V64 = vector("i64")
_KINDS = {"shared": shadow.SHARED, "local": shadow.LOCAL, "global": shadow.GLOBAL}
SECOND_AT = 16  # in the lanes of a window: a second lane, where there are several
WIDEST = 128  # granules in a window
_MEANT = {"relaxed", "acquire", "release", "acq_rel", "mmio"}
_TOGETHER = {"shfl", "vote", "match", "redux", "mma", "wmma", "ldmatrix", "movmatrix"}
_BREAKS = _TOGETHER | {"st", "atom", "red", "cp", "bar", "barrier", "membar", "fence", "mbarrier"}
_BREAKS |= {"call", "enter", "trap"}


def granule(kernel: ptx.Kernel) -> int:
    """Bytes of a granule: the narrowest access of a kernel, 4 at most."""
    sizes = [4]
    for i in kernel.body:
        if isinstance(i, ptx.Instruction) and i.opcode in ("ld", "st", "atom", "red"):
            if "param" not in i.modifiers and "const" not in i.modifiers:
                sizes.append(ptx.SIZES[i.modifiers[-1]])
        elif isinstance(i, ptx.Instruction) and i.opcode == "wmma" and i.modifiers[0] != "mma":
            digits = "".join(c for c in i.modifiers[-1] if c.isdigit())
            sizes.append(max(1, int(digits) // 8))
    return min(sizes)


UNKNOWN = "?"


def address_sources(
    kernel: ptx.Kernel, shared: set[str], parameters: dict[str, int]
) -> dict[str, set[str | int]]:
    """What each register may have been computed from: names of shared variables, offsets of
    parameters, and UNKNOWN for what is loaded and may be an address."""
    found: dict[str, set[str | int]] = {}
    instructions = [i for i in kernel.body if isinstance(i, ptx.Instruction)]
    changed = True
    while changed:
        changed = False
        for i in instructions:
            more: set[str | int] = set()
            for o in i.operands[1:]:
                more |= {o.name} & shared if isinstance(o, ptx.Symbol) else set()
                more |= {x for r in registers_in(o) for x in found.get(r, ())}
            if i.opcode == "ld":
                symbol = i.operands[1].base
                at = parameters.get(symbol.name) if isinstance(symbol, ptx.Symbol) else None
                more = {UNKNOWN if at is None else at + symbol.offset + i.operands[1].offset}
            elif i.opcode in ("atom", "call"):
                more = {UNKNOWN}
            for name in destinations(i):
                wide = kernel.registers[name] in ("b64", "u64", "s64")
                new = more if wide else more & shared
                before = found.setdefault(name, set())
                if not new <= before:
                    before |= new
                    changed = True
    return found


def _written_parameters(
    instructions: list[ptx.Instruction], sources: dict[str, set[str | int]]
) -> set[int] | None:
    """The parameters through which a kernel writes to memory; None: it may be any."""
    written: set[int] = set()
    for i in instructions:
        if i.opcode not in ("st", "atom", "red", "wmma", "call") or {
            m.split("::")[0] for m in i.modifiers
        } & {"shared", "local", "param"}:
            continue
        if i.opcode == "wmma" and "store" not in i.modifiers:
            continue
        address = next((o for o in i.operands if isinstance(o, ptx.Address)), None)
        base = address.base if address is not None else None
        found = sources.get(base.name) if isinstance(base, ptx.Register) else None
        if not found or UNKNOWN in found:
            return None
        written |= {x for x in found if isinstance(x, int)}
    return written


def _place(i: ptx.Instruction) -> tuple | None:
    """The register and offset of an ld or atom's address."""
    address = i.operands[1] if len(i.operands) > 1 else None
    if not isinstance(address, ptx.Address) or not isinstance(address.base, ptx.Register):
        return None
    return address.base.name, address.offset


@dataclass
class _Touch:
    """Who accesses a granule: the lanes, and the id of the instruction."""

    number: int
    lanes: list[int]


def _window(
    members: list[tuple[Access, int]], pattern: tuple[int, ...] | None, g: int
) -> dict[int, _Touch] | None:
    """The granules from the lowest on that accesses by all lanes touch; None: not to be looked at
    as a window. members: of one space and base, and their ids."""
    if pattern is None or members[0][0].space not in ("shared", "global"):
        return None
    found: dict[int, _Touch] = {}
    low = min(a.address.offset for a, _ in members) + min(pattern)
    for access, number in members:
        for lane, p in enumerate(pattern):
            at = access.address.offset + p - low
            if at % g or (at + access.size - 1) // g >= WIDEST:
                return None
            for k in range(access.size // g):
                touch = found.setdefault(at // g + k, _Touch(number, []))
                if lane not in touch.lanes:
                    touch.lanes.append(lane)
    return found


class Sanitizing:
    """Emits the code of one kernel."""

    parts = False  # where a copy leaves out bytes their addresses may be anything

    def __init__(self, e: Emitter, graph: Graph):
        self.e, self.ir = e, Ir(e)
        self.granule = granule(e.kernel)
        self.waits = bool(waiting_loops(graph))
        accesses = [i for b in graph.blocks for i in b.instructions]
        # A plain read of what a compare-and-swap then changes is its first guess.
        swaps = [i for i in accesses if i.opcode == "atom" and "cas" in i.modifiers]
        self.guessed = {_place(i) for i in swaps} - {None}
        self.strong = any(map(self._is_strong, accesses))
        self._groups: dict[int, list[tuple[Access, int]]] = {}  # by id() of their first
        self._later: set[int] = set()  # id()s of the others
        self.variables = e.layout.shared_sizes
        self.sources = address_sources(e.kernel, set(self.variables), e.layout.parameters)
        e.layout.written = _written_parameters(accesses, self.sources)
        shadow.declare(e)
        self._used: set[str] = set()

    # -- places ----------------------------------------

    def _entry_field(self, name: str, ty: str = "") -> str:
        e = self.e
        p = e.at_entry(f"getelementptr i8, ptr %s, i64 {runtime.offset(State, name)}")
        return e.at_entry(f"load {ty}, ptr {p}") if ty else p

    def _mine(self, name: str) -> str:
        """The address of this warp's element."""
        return self.e.at_entry(f"getelementptr i32, ptr {self._entry_field(name)}, i32 %w")

    def _space(self, kind: int) -> str:
        at = runtime.offset(State, "spaces") + kind * shadow.ctypes.sizeof(Space)
        return self.e.at_entry(f"getelementptr i8, ptr %s, i64 {at}")

    def _of_space(self, kind: int, name: str, ty: str) -> str:
        at = runtime.offset(Space, name)
        p = self.e.at_entry(f"getelementptr i8, ptr {self._space(kind)}, i64 {at}")
        return self.e.at_entry(f"load {ty}, ptr {p}")

    # -- control flow and synchronisation ----------------------------------------

    def _is_strong(self, i: ptx.Instruction) -> bool:
        if i.opcode in ("atom", "red"):
            return True
        return i.opcode in ("ld", "st") and bool(
            _MEANT & set(i.modifiers)
            or "volatile" in i.modifiers
            and self.waits
            or i.opcode == "ld"
            and _place(i) in self.guessed
        )

    def block(self, instructions: list[ptx.Instruction]) -> None:
        """At the start of a block of code."""
        self._group(instructions)
        e, p = self.e, self._mine("position")
        more = e.op(f"add i32 {e.op(f'load i32, ptr {p}')}, 1")
        e.line(f"store i32 {more}, ptr {p}")

    def _group(self, instructions: list[ptx.Instruction]) -> None:
        """Finds reads of shared memory that can be looked at together: off one register, near each
        other, and nothing between them that writes or puts anything in order."""
        e = self.e
        open_: dict[tuple, list[tuple[Access, int]]] = {}
        firsts: dict[tuple, ptx.Instruction] = {}
        for i in instructions:
            if i.opcode in _BREAKS:
                open_.clear()
            elif i.opcode == "ld" and not i.guard and "shared" in {
                m.split("::")[0] for m in i.modifiers
            } and not self._is_strong(i) and "volatile" not in i.modifiers:  # fmt: skip
                e.instruction = i
                access = parse(e, i)
                base = access.address.base
                pattern = e.shapes.of(base).pattern if isinstance(base, ptx.Register) else None
                if pattern is not None:
                    key = (base.name, access.size, access.address.offset % access.size)
                    more = [*open_.get(key, []), (access, e.id_of(i))]
                    if len(more) > 1 and _window(more, pattern, self.granule) is not None:
                        self._groups[id(firsts[key])] = more
                        self._later.add(id(i))
                    else:
                        more, firsts[key] = more[-1:], i
                    open_[key] = more
            for name in destinations(i):
                for key in [k for k in open_ if k[0] == name]:
                    del open_[key]

    def ends(self, mask: str, number: int) -> None:
        """The lanes in mask, if any, end at an instruction."""
        e, p = self.e, self._mine("exits")
        some = e.op(f"icmp ne i32 {mask}, 0")
        kept = e.op(f"load i32, ptr {p}")
        e.line(f"store i32 {e.op(f'select i1 {some}, i32 {number + 1}, i32 {kept}')}, ptr {p}")

    def at_barrier(self, first: str, resume: int) -> None:
        """At a barrier: reports lanes that have ended. first: those that the warp began with."""
        e = self.e
        gone = e.op(f"xor i32 {e.op('load i32, ptr %alive')}, {first}")
        yes, on = e.fresh("gone")[1:], e.fresh("on")[1:]
        e.line(f"br i1 {e.op(f'icmp ne i32 {gone}, 0')}, label %{yes}, label %{on}, !prof !2")
        e.label(yes)
        head = "void @san.gone(ptr %s, i32 %w, i32 %lanes, i32 %alive, i32 %resume) noinline cold"
        e.function("@san.gone", head, self._gone)
        e.line(f"call void @san.gone(ptr %s, i32 %w, i32 {gone}, i32 {e.mask}, i32 {resume})")
        e.line(f"br label %{on}")
        e.label(on)

    def _gone(self) -> None:
        ir = self.ir
        ir.e.label("entry")

        def info(mask: str, number: str) -> str:
            lane = ir.op(f"call i32 @llvm.cttz.i32(i32 {mask}, i1 true)")
            thread = ir.op(f"or i32 {ir.op('shl i32 %w, 5')}, {lane}")
            at = ir.op(f"shl i64 {ir.op(f'zext i32 {thread} to i64')}, {shadow.THREAD_AT}")
            return ir.op(f"or i64 {at}, {ir.op(f'zext i32 {number} to i64')}")

        exit_ = ir.op(f"load i32, ptr {ir.warp('exits')}")
        other, mine = info("%lanes", exit_), info("%alive", "%resume")
        ir.line(
            f"call void @san.report(ptr %s, i64 {shadow.EXITED}, i64 {other}, i64 {mine}, i64 0)"
        )
        ir.line("ret void")

    def event(self, name: str, number: str = "") -> None:
        more = f", i32 {number}" if number else ""
        self.e.line(f"call void @san.{name}(ptr %s, i32 %w{more})")

    def is_event(self, i: ptx.Instruction) -> bool:
        """Whether an instruction that does nothing else puts accesses in order."""
        return i.opcode in ("membar", "fence") or i.name == "bar.warp.sync"

    def after(self, i: ptx.Instruction) -> None:
        """After an instruction that is no access."""
        words = set(i.modifiers)
        if i.opcode in ("membar", "fence"):
            self.event("release")
        elif i.name == "bar.warp.sync":
            self._meet(i.operands[-1])
        elif i.opcode == "mbarrier" and words & {"arrive", "arrive_drop"}:
            self.event("release")
            self.event("acquire")
        elif i.opcode == "mbarrier" and words & {"test_wait", "try_wait"}:
            self.event("acquire")
        elif i.opcode == "cp" and "mbarrier" in words:
            self.event("release")

    def _meet(self, members: object) -> None:
        """The active lanes meet, each with the lanes of its member mask."""
        e, shape = self.e, self.e.shapes.of(members)
        if shape is not None and shape.uniform and shape.value in (-1, (1 << 32) - 1):
            self.event("sync_warp")
            return
        lanes = e.spread(e.lanes(members, "b32"))
        e.line(f"call void @san.sync_lanes(ptr %s, i32 %w, {vector('i32')} {lanes}, i32 {e.mask})")

    # -- accesses ----------------------------------------

    def access(
        self,
        access: Access,
        address: Lanes,
        i: ptx.Instruction,
        to: tuple[Access, Lanes] | None,
        stored: list[Lanes] | None = None,
    ) -> None:
        """One memory instruction; `address` without the access's own offset."""
        if access.space in ("const", "param"):
            return
        e, words = self.e, set(i.modifiers)
        atomic, strong = i.opcode in ("atom", "red"), self._is_strong(i)
        volatile = "volatile" in words
        if words & {"release", "acq_rel"}:
            self.event("release")
        if id(i) in self._later:  # part of a group that has been looked at
            return
        members = self._groups.get(id(i)) or [(access, e.id_of(i))]
        if access.space == "shared":
            self._inside(members, address)
        operation = "atomic" if atomic else "write" if i.opcode == "st" else "read"
        values = self._spill(stored) if stored else "null"

        skip = None
        if operation == "read" and access.space == "global" and not strong:
            skip = self._read_only(access)
        if skip is not None:
            look, skipped = e.fresh("look")[1:], e.fresh("skipped")[1:]
            e.line(f"br i1 {skip}, label %{skipped}, label %{look}")
            e.label(look)
        self._look(operation, members, address, strong, values)
        if skip is not None:
            e.line(f"br label %{skipped}")
            e.label(skipped)
        if i.opcode != "st" and (atomic or volatile or words & _MEANT):
            self.event("acquire")

    def _look(
        self,
        operation: str,
        members: list[tuple[Access, int]],
        address: Lanes,
        strong: bool,
        values: str,
    ) -> None:
        """Compares accesses with what was there before, and notes them."""
        access = members[0][0]

        def lanes() -> None:
            for one, number in members:
                self._lanes(operation, one, address, number, strong, values)

        touched = None
        if operation != "atomic" and not strong:
            touched = _window(members, address.pattern, self.granule)
            if operation == "write" and touched and any(len(t.lanes) > 1 for t in touched.values()):
                touched = None
        if touched is None:
            lanes()
        else:
            low = min(a.address.offset for a, _ in members) + min(address.pattern)
            self._by_window(operation, access, address, low, touched, lanes)

    def piece(self, operation: str, space: str, size: int, addresses: str, number: int) -> None:
        """Accesses of `size` bytes by all lanes, as part of an instruction of the whole warp."""
        kind = f"b{8 * min(size, 8)}"
        access = Access(space, kind, 1, ptx.Address(ptx.Immediate(0, "int"), 0))
        self._lanes(operation, access, Lanes("i64", addresses, None), number, False, "null")

    def _spill(self, stored: list[Lanes]) -> str:
        """The values of a store, lane after lane, for each of its elements."""
        e = self.e
        if "values" not in self._used:
            self._used.add("values")
            e.entry.append("  %san.values = alloca <64 x i64>, align 64")
        size = (
            int(stored[0].ty[1:]) // 8
            if stored[0].ty.startswith("i")
            else (8 if stored[0].ty == "double" else 4)
        )
        for k, value in enumerate(stored):
            p = e.op(f"getelementptr i8, ptr %san.values, i64 {k * LANES * size}")
            e.line(f"store {vector(value.ty)} {e.spread(value)}, ptr {p}, align {size}")
        return "%san.values"

    def _inside(self, members: list[tuple[Access, int]], address: Lanes) -> None:
        """Whether the lanes stay within the variable that their addresses come from."""
        e, access = self.e, members[0][0]
        base = access.address.base
        name = (
            self._only_source(base)
            if isinstance(base, ptx.Register)
            else getattr(base, "name", None)
        )
        if name not in self.variables:
            return
        low = e.layout.shared_offsets[name]
        room = self.variables[name] - access.size
        offsets = [a.address.offset for a, _ in members]
        offset = min(offsets)
        if address.pattern is not None:
            least = min(address.pattern)
            most = max(address.pattern) + max(offsets) - offset
            first = e.op(f"add i64 {address.ssa}, {offset + least - low}")
            fine = "false"
            if room - (most - least) >= 0:
                fine = e.op(f"icmp ule i64 {first}, {room - (most - least)}")
        else:
            v = e.op(f"add {_V64} {address.ssa}, splat (i64 {offset - low})")
            good = e.op(f"icmp ule {_V64} {v}, splat (i64 {max(room, -1)})")
            good = e.op(f"bitcast {vector('i1')} {good} to i32")
            if e.mask != "-1":
                good = e.op(f"or i32 {good}, {e.op(f'xor i32 {e.mask}, -1')}")
            fine = e.op(f"icmp eq i32 {good}, -1")
        look, on = e.fresh("outside")[1:], e.fresh("on")[1:]
        e.line(f"br i1 {fine}, label %{on}, label %{look}, !prof !0")
        e.label(look)
        head = (
            f"void @san.outside(ptr %s, {_V64} %a, i32 %mask, i32 %w, i32 %id, i64 %low, i64 %room)"
        )
        e.function("@san.outside", head + " noinline cold", self._outside)
        for one, number in members:
            a = self._whole(address, one.address.offset)
            e.line(
                f"call void @san.outside(ptr %s, {_V64} {a}, i32 {e.mask}, i32 %w, i32 {number}, "
                f"i64 {low}, i64 {room})"
            )
        e.line(f"br label %{on}")
        e.label(on)

    def _only_source(self, base: ptx.Register) -> str | int | None:
        found = self.sources.get(base.name, set())
        return next(iter(found)) if len(found) == 1 else None

    def _read_only(self, access: Access) -> str | None:
        """For a read through a parameter an i1: the launch writes nothing to that array."""
        e, base = self.e, access.address.base
        at = self._only_source(base) if isinstance(base, ptx.Register) else None
        slots = e.layout.read_only
        if not isinstance(at, int) or e.layout.written is None or at in e.layout.written:
            return None
        if at not in slots:
            if len(slots) == shadow.PARAMETERS:
                return None
            slots.append(at)
        p = e.at_entry(
            f"getelementptr i8, ptr %s, "
            f"i64 {runtime.offset(State, 'read_only') + 4 * slots.index(at)}"
        )
        return e.at_entry(f"icmp ne i32 {e.at_entry(f'load i32, ptr {p}')}, 0")

    def _outside(self) -> None:
        ir = self.ir
        ir.e.label("entry")
        at = runtime.offset(State, "spaces")
        sp = ir.at("%s", at)

        def look(lane: str) -> None:
            a = ir.op(f"extractelement {_V64} %a, i32 {lane}")
            bad = ir.op(f"icmp ugt i64 {ir.op(f'sub i64 {a}, %low')}, %room")

            def report() -> None:
                info = ir.op(f"call i64 @san.info(ptr %s, ptr {sp}, i32 %w, i32 %id, i32 {lane})")
                index = ir.op(f"udiv i64 {a}, {self.granule}")
                ir.line(f"call void @san.report(ptr %s, i64 {shadow.OUTSIDE}, i64 {info}, "
                        f"i64 {info}, i64 {index})")  # fmt: skip

            ir.when(bad, report)

        ir.lanes("%mask", look)
        ir.line("ret void")

    def _whole(self, address: Lanes, offset: int) -> str:
        e, addresses = self.e, self.e.spread(address)
        return e.op(f"add {_V64} {addresses}, splat (i64 {offset})") if offset else addresses

    # -- windows ----------------------------------------

    def _by_window(
        self,
        operation: str,
        access: Access,
        address: Lanes,
        low: int,
        touched: dict[int, _Touch],
        lanes: Callable[[], None],
    ) -> None:
        """low: from the address to the first granule."""
        e, kind = self.e, _KINDS[access.space]
        slow, on = e.fresh("lanes")[1:], e.fresh("on")[1:]
        if e.mask != "-1":
            all_ = e.fresh("all")[1:]
            whole = e.op(f"icmp eq i32 {e.mask}, -1")
            e.line(f"br i1 {whole}, label %{all_}, label %{slow}")
            e.label(all_)
        n = max(1, 1 << max(touched).bit_length())
        first = e.op(f"add i64 {address.ssa}, {low}")
        if kind == shadow.GLOBAL:
            first = e.op(f"sub i64 {first}, {self._of_space(kind, 'origin', 'i64')}")
        index = e.op(f"lshr i64 {first}, {self.granule.bit_length() - 1}")
        me = [
            min(who) | (SEVERAL | who[1] << SECOND_AT if len(who) > 1 else 0) if who else 0
            for who in (sorted(touched[k].lanes) if k in touched else [] for k in range(n))
        ]
        ids = [touched[k].number if k in touched else 0 for k in range(n)]
        ids = "<" + ", ".join(f"i32 {x}" for x in ids) + ">"
        lanes_of = "<" + ", ".join(f"i32 {x}" for x in me) + ">"
        mask = "<" + ", ".join(f"i1 {str(k in touched).lower()}" for k in range(n)) + ">"
        if operation == "read":
            row = e.fresh("row")[1:]
            fine = self._quick(kind, index, n, me, touched)
            e.line(f"br i1 {fine}, label %{on}, label %{row}")
            e.label(row)
        name = f"@san.row.{operation}.{n}"
        head = (
            f"i1 {name}(ptr %s, ptr %sp, i64 %index, i32 %w, <{n} x i32> %ids, <{n} x i32> %lanes, "
            f"<{n} x i1> %touched) noinline"
        )
        e.function(name, head, lambda: _row(self.ir, operation, n))
        left = e.op(
            f"call i1 {name}(ptr %s, ptr {self._space(kind)}, i64 {index}, i32 %w, "
            f"<{n} x i32> {ids}, <{n} x i32> {lanes_of}, <{n} x i1> {mask})"
        )
        e.line(f"br i1 {left}, label %{slow}, label %{on}, !prof !2")
        e.label(slow)
        lanes()
        e.line(f"br label %{on}")
        e.label(on)

    def _quick(self, kind: int, index: str, n: int, me: list[int], touched: dict) -> str:
        """An i1: these reads change nothing and are in order. Either others have read all of the
        window, so that the entries are saturated, or they are this very read's already."""
        e, m = self.e, min(n, 16)
        v = f"<{m} x i32>"
        for name in ("umin", "umax"):
            e.declarations.add(f"declare {v} @llvm.{name}.v{m}i32({v}, {v})")

        def splat(x: str) -> str:
            one = e.op(f"insertelement {v} poison, i32 {x}, i32 0")
            return e.op(f"shufflevector {v} {one}, {v} poison, <{m} x i32> zeroinitializer")

        def fold(how: str, parts: list[str]) -> str:
            result = parts[0]
            for x in parts[1:]:
                if how.startswith("u"):
                    result = e.op(f"call {v} @llvm.{how}.v{m}i32({v} {result}, {v} {x})")
                else:
                    result = e.op(f"{how} {v} {result}, {x}")
            return result

        def entries(name: str, otherwise: str) -> list[str]:
            """The window's, with another value for what is not touched."""
            first = e.op(f"getelementptr i32, ptr {self._of_space(kind, name, 'ptr')}, i64 {index}")
            parts = []
            for k in range(0, n, m):
                p = e.op(f"getelementptr i32, ptr {first}, i64 {k}")
                part = e.op(f"load {v}, ptr {p}, align 4")
                inside = [j in touched for j in range(k, k + m)]
                if not all(inside):
                    which = ", ".join(f"i1 {str(x).lower()}" for x in inside)
                    part = e.op(f"select <{m} x i1> <{which}>, {v} {part}, {v} {otherwise}")
                parts.append(part)
            return parts

        def every(condition: str) -> str:
            word = e.op(f"bitcast <{m} x i1> {condition} to i{m}")
            return e.op(f"icmp eq i{m} {word}, -1")

        limit = splat(e.op(f"load i32, ptr {self._mine('limit')}"))
        floor = splat(e.op(f"load i32, ptr {self._entry_field('floor')}"))
        is_global = kind == shadow.GLOBAL
        writes = entries("writes", "zeroinitializer" if is_global else floor)
        most = fold("umax", writes)
        if is_global:  # written at all in this launch: to be looked at
            good = e.op(f"icmp eq {v} {most}, zeroinitializer")
        else:
            low = e.op(f"icmp uge {v} {fold('umin', writes)}, {floor}")
            good = e.op(f"and <{m} x i1> {low}, {e.op(f'icmp ult {v} {most}, {limit}')}")
        saturated = BLOCKS if is_global else WARPS
        reads = entries("reads", "splat (i32 -1)")
        bits = e.op(f"and {v} {fold('and', reads)}, splat (i32 {saturated})")
        full = e.op(f"icmp ne {v} {bits}, zeroinitializer")
        if not is_global:
            recent = e.op(f"icmp uge {v} {fold('umin', reads)}, {limit}")
            full = e.op(f"and <{m} x i1> {full}, {recent}")
        if self.strong:
            bits = fold("or", entries("reads", "zeroinitializer"))
            bits = e.op(f"and {v} {bits}, splat (i32 {STRONG})")
            full = e.op(f"and <{m} x i1> {full}, {e.op(f'icmp eq {v} {bits}, zeroinitializer')}")
        at_once = every(e.op(f"and <{m} x i1> {good}, {full}"))
        before, own, on = (e.fresh(h)[1:] for h in ("quick", "own", "on"))
        e.line(f"br label %{before}")
        e.label(before)
        e.line(f"br i1 {at_once}, label %{on}, label %{own}")
        e.label(own)
        tick = e.op(f"load i32, ptr {self._entry_field('tick')}")
        now = e.op(f"shl i32 {tick}, {shadow.TICK}")
        now = splat(e.op(f"or i32 {now}, {e.at_entry('shl i32 %w, 5')}"))
        differ = []
        for k, part in enumerate(entries("reads", "zeroinitializer")):
            lanes = me[k * m : k * m + m]
            mine = "<" + ", ".join(f"i32 {x & (1 << SECOND_AT) - 1}" for x in lanes) + ">"
            mine = e.op(f"or {v} {now}, {mine}")
            x = e.op(f"xor {v} {part}, {mine}")
            inside = [k * m + j in touched for j in range(m)]
            if not all(inside):
                which = ", ".join(f"i1 {str(y).lower()}" for y in inside)
                x = e.op(f"select <{m} x i1> <{which}>, {v} {x}, {v} zeroinitializer")
            differ.append(x)
        same = e.op(f"icmp eq {v} {fold('or', differ)}, zeroinitializer")
        again = every(e.op(f"and <{m} x i1> {good}, {same}"))
        e.line(f"br label %{on}")
        e.label(on)
        return e.op(f"phi i1 [ true, %{before} ], [ {again}, %{own} ]")

    # -- lane by lane ----------------------------------------

    def copies(self, access: Access, address: Lanes) -> tuple[str, str]:
        """At a cp.async, which is a write to `access` at any time from now until it is waited for:
        the function that is then to be called, and the tick that is to be given to it."""
        self._lanes("issue", access, address, self.e.id_of(self.e.instruction), False, "null")
        e, p = self.e, self._entry_field("tick")
        now = e.op(f"load i32, ptr {p}")
        e.line(f"store i32 {e.op(f'add i32 {now}, 1')}, ptr {p}")
        return self._lanes_function("copy", access), now

    def _lanes(
        self, operation: str, access: Access, address: Lanes, number: int, strong: bool, values: str
    ) -> None:
        e, name = self.e, self._lanes_function(operation, access)
        a = self._whole(address, access.address.offset)
        e.line(
            f"call void {name}(ptr %s, {_V64} {a}, i32 {e.mask}, i32 %w, i32 {number}, "
            f"i32 {STRONG if strong else 0}, ptr {values})"
        )

    def _lanes_function(self, operation: str, access: Access) -> str:
        e = self.e
        kind = _KINDS.get(access.space, shadow.GENERIC)
        name = f"@san.lanes.{operation}.{access.count}.{access.element}.{kind}"
        head = (
            f"void {name}(ptr %s, {_V64} %a, i32 %mask, i32 %w, i32 %id, i32 %strong, "
            "ptr %values) noinline"
        )
        e.function(
            name,
            head,
            lambda: _lane_by_lane(
                self.ir, operation, access.count, access.element, kind, self.granule
            ),
        )
        return name


def _row(ir: Ir, operation: str, n: int) -> None:
    """A window of n granules, each touched by one lane, or read by several. Returns true, and does
    nothing, where anything is to be looked at lane by lane."""
    e, v, b = ir.e, f"<{n} x i32>", f"<{n} x i1>"
    e.label("entry")

    def splat(x: str, ty: str = "i32") -> str:
        t = f"<{n} x {ty}>"
        one = ir.op(f"insertelement {t} poison, {ty} {x}, i32 0")
        return ir.op(f"shufflevector {t} {one}, {t} poison, <{n} x i32> zeroinitializer")

    def place(name: str, ty: str = "i64") -> str:
        return ir.element(ir.load(Space, "%sp", name, "ptr"), ty, "%index")

    def compare(how: str, x: str, y: str) -> str:
        return ir.op(f"icmp {how} {v} {x}, {y}")

    def masked(x: str, bits: int) -> str:
        return ir.op(f"and {v} {x}, splat (i32 {bits})")

    def none(condition: str) -> str:
        word = ir.op(f"bitcast {b} {condition} to i{n}")
        return ir.op(f"icmp eq i{n} {word}, 0")

    def store(ty: str, value: str, p: str, where: str) -> None:
        size = int(ty[1:]) // 8
        name = f"@llvm.masked.store.v{n}{ty}.p0"
        e.declarations.add(f"declare void {name}(<{n} x {ty}>, ptr, i32, {b})")
        ir.line(f"call void {name}(<{n} x {ty}> {value}, ptr {p}, i32 {size}, {b} {where})")

    kind = ir.load(Space, "%sp", "kind", "i64")
    is_global = splat(ir.op(f"icmp eq i64 {kind}, {shadow.GLOBAL}"), "i1")
    limit = splat(ir.op(f"load i32, ptr {ir.warp('limit')}"))
    floor = splat(ir.load(State, "%s", "floor", "i32"))
    clocks = ir.warp("clocks")
    clock = ir.op(f"load i32, ptr {ir.op(f'getelementptr i32, ptr {clocks}, i32 %w')}")
    covered = splat(ir.op(f"shl i32 {ir.op(f'add i32 {clock}, 1')}, {shadow.TICK}"))
    warp = ir.op("shl i32 %w, 5")
    me = ir.op(f"or {v} {masked('%lanes', (1 << SECOND_AT) - 1)}, {splat(warp)}")
    tick = ir.op(f"shl i32 {ir.load(State, '%s', 'tick', 'i32')}, {shadow.TICK}")
    now = ir.op(f"or {v} {me}, {splat(tick)}")
    w_place, r_place = place("writes", "i32"), place("reads", "i32")
    W, R = (ir.op(f"load {v}, ptr {p}, align 4") for p in (w_place, r_place))

    def in_order(entry: str) -> str:
        """Below the limit, this thread's own, or of this warp before its last __syncwarp(); and
        no other block's."""
        below = compare("ult", entry, limit)
        own = compare("eq", masked(entry, THREAD | SEVERAL | WARPS | STRONG), me)
        theirs = masked(ir.op(f"xor {v} {entry}, {me}"), THREAD & ~31 | WARPS)
        before = ir.op(
            f"and {b} {compare('eq', theirs, 'zeroinitializer')}, {compare('ult', entry, covered)}"
        )
        fine = ir.op(f"or {b} {below}, {ir.op(f'or {b} {own}, {before}')}")
        nothing = compare("eq", entry, "zeroinitializer")
        here = compare("uge", entry, floor)
        alone = compare("eq", masked(entry, BLOCKS), "zeroinitializer")
        inside = ir.op(f"and {b} {here}, {alone}")
        inside = ir.op(f"or {b} {inside}, {nothing}")
        inside = ir.op(f"or {b} {inside}, {ir.op(f'xor {b} {is_global}, splat (i1 true)')}")
        return ir.op(f"and {b} {fine}, {inside}")

    def wrong(good: str) -> str:
        return ir.op(f"and {b} {ir.op(f'xor {b} {good}, splat (i1 true)')}, %touched")

    def leave_unless(fine: str) -> None:
        go, back = e.fresh("go")[1:], e.fresh("back")[1:]
        ir.line(f"br i1 {fine}, label %{go}, label %{back}")
        e.label(back)
        ir.line("ret i1 true")
        e.label(go)

    position = ir.op("call i64 @san.info(ptr %s, ptr %sp, i32 %w, i32 0, i32 0)")
    thread0 = ir.op(f"and i64 {position}, {~(THREAD << shadow.THREAD_AT)}")
    every = ir.op(f"zext {v} %ids to <{n} x i64>")
    every = ir.op(f"or <{n} x i64> {every}, {splat(thread0, 'i64')}")

    def infos_of(lanes: str) -> str:
        threads = ir.op(f"zext {v} {masked(lanes, THREAD)} to <{n} x i64>")
        threads = ir.op(f"shl <{n} x i64> {threads}, splat (i64 {shadow.THREAD_AT})")
        return ir.op(f"or <{n} x i64> {threads}, {every}")

    infos = infos_of(me)

    if operation == "write":
        leave_unless(none(wrong(ir.op(f"and {b} {in_order(W)}, {in_order(R)}"))))
        store("i32", now, w_place, "%touched")
        store("i64", infos, place("write_info"), "%touched")
        ir.line("ret i1 false")
        return
    written = compare("uge", W, floor)
    free = ir.op(f"and {b} {is_global}, {compare('eq', W, 'zeroinitializer')}")
    good = ir.op(f"and {b} {in_order(W)}, {ir.op(f'or {b} {written}, {free}')}")
    strong = compare("ne", masked(R, STRONG), "zeroinitializer")
    below = compare("ult", R, limit)
    other = compare("ne", masked(ir.op(f"xor {v} {R}, {me}"), THREAD & ~31), "zeroinitializer")
    full = compare("ne", masked(R, WARPS), "zeroinitializer")
    same = compare("eq", R, now)
    # What is not in order, of the same warp, and not this very entry, is left to the lanes.
    known = ir.op(f"or {b} {below}, {ir.op(f'or {b} {same}, {other}')}")
    known = ir.op(f"or {b} {known}, {full}")
    known = ir.op(f"and {b} {known}, {ir.op(f'xor {b} {strong}, splat (i1 true)')}")
    fine = none(wrong(ir.op(f"and {b} {good}, {known}")))
    ranges = ir.load(State, "%s", "range_count", "i64")
    nan = ir.variable("i1")
    ir.line(f"store i1 false, ptr {nan}")

    def in_range(k: str) -> None:
        p = ir.op(
            f"getelementptr i64, ptr {ir.field(State, '%s', 'ranges')}, "
            f"i64 {ir.op(f'mul i64 {k}, 3')}"
        )
        low = ir.op(f"load i64, ptr {p}")
        high = ir.op(f"load i64, ptr {ir.op(f'getelementptr i64, ptr {p}, i64 1')}")
        # In granules of 1 byte at least: wide enough.
        last = ir.op(f"add i64 %index, {n}")
        at = ir.op(f"load i64, ptr {ir.at('%s', runtime.offset(State, 'granule'))}")
        last, first = (ir.op(f"mul i64 {x}, {at}") for x in (last, "%index"))
        inside = ir.both(ir.op(f"icmp ult i64 {first}, {high}"),
                         ir.op(f"icmp ugt i64 {last}, {low}"))  # fmt: skip
        ir.when(inside, lambda: ir.line(f"store i1 true, ptr {nan}"))

    ir.when(ir.op(f"icmp eq i64 {kind}, {shadow.GLOBAL}"), lambda: ir.loop(ranges, in_range))
    leave_unless(ir.both(fine, ir.negated(ir.op(f"load i1, ptr {nan}"))))
    marked = compare("ne", masked(R, BLOCKS), "zeroinitializer")
    kept = ir.op(f"and {b} {marked}, {is_global}")
    below = ir.op(f"and {b} {below}, {ir.op(f'xor {b} {kept}, splat (i1 true)')}")
    full = ir.op(f"or {b} {full}, {kept}")
    first = ir.op(f"and {b} {below}, %touched")
    last = ir.op(f"or {b} {below}, {ir.op(f'or {b} {full}, {same}')}")
    second = ir.op(f"and {b} {ir.op(f'xor {b} {last}, splat (i1 true)')}, %touched")
    some = compare("ne", R, "zeroinitializer")
    earlier = ir.op(f"and {b} {some}, {compare('ult', R, floor)}")
    earlier = ir.op(f"and {b} {earlier}, {is_global}")
    blocks = ir.op(f"or {b} {earlier}, {ir.op(f'and {b} {marked}, {is_global}')}")
    bit = ir.op(f"select {b} {blocks}, {v} splat (i32 {BLOCKS}), {v} zeroinitializer")
    new = ir.op(f"or {v} {now}, {bit}")
    more = ir.op(f"or {v} {new}, splat (i32 {WARPS})")
    store("i32", new, r_place, first)
    store("i32", more, r_place, second)
    infos_at = place("read_info")

    def keep_others() -> None:
        old = ir.op(f"load <{n} x i64>, ptr {infos_at}, align 8")
        store("i64", old, place("read_other"), ir.op(f"and {b} {earlier}, %touched"))

    ir.when(ir.negated(none(ir.op(f"and {b} {earlier}, %touched"))), keep_others)
    store("i64", infos, infos_at, first)
    several = compare("ne", masked("%lanes", SEVERAL), "zeroinitializer")
    several = ir.op(f"and {b} {several}, {first}")

    def keep_second() -> None:
        lanes = ir.op(f"lshr {v} %lanes, splat (i32 {SECOND_AT})")
        lanes = ir.op(f"or {v} {lanes}, {splat(warp)}")
        store("i64", infos_of(lanes), place("read_info2"), several)

    ir.when(ir.negated(none(several)), keep_second)
    ir.when(ir.negated(none(second)), lambda: store("i64", infos, place("read_info2"), second))
    ir.line("ret i1 false")


def _lane_by_lane(ir: Ir, operation: str, count: int, element: int, kind: int, g: int) -> None:
    """operation: "read", "write", "atomic", or of a cp.async "issue" and "copy", for which %strong
    is the tick of its issue."""
    e = ir.e
    e.label("entry")
    spaces = [
        ir.at("%s", runtime.offset(State, "spaces") + k * shadow.ctypes.sizeof(Space))
        for k in range(3)
    ]

    def offset_in(k: int, a: str) -> str:
        return ir.op(f"sub i64 {a}, {ir.load(Space, spaces[k], 'origin', 'i64')}")

    def one(lane: str) -> None:
        a = ir.op(f"extractelement {_V64} %a, i32 {lane}")
        if kind == shadow.SHARED:
            sp, at = spaces[kind], a
        elif kind != shadow.GENERIC:
            sp, at = spaces[kind], offset_in(kind, a)
        else:
            sp, at = spaces[shadow.GLOBAL], offset_in(shadow.GLOBAL, a)
            for k in (shadow.SHARED, shadow.LOCAL):
                off = offset_in(k, a)
                inside = ir.op(f"icmp ult i64 {off}, {ir.load(Space, spaces[k], 'bytes', 'i64')}")
                sp = ir.op(f"select i1 {inside}, ptr {spaces[k]}, ptr {sp}")
                at = ir.op(f"select i1 {inside}, i64 {off}, i64 {at}")
        info = ir.op(f"call i64 @san.info(ptr %s, ptr {sp}, i32 %w, i32 %id, i32 {lane})")
        me = ir.op(f"or i32 {ir.op('shl i32 %w, 5')}, {lane}")
        if operation != "copy":
            me = ir.op(f"or i32 {me}, %strong")
        lane64 = ir.op(f"zext i32 {lane} to i64")
        for k in range(count):
            unwritten = "true"
            for j in range(element // g):
                byte = ir.op(f"add i64 {at}, {k * element + j * g}")
                index = ir.op(f"lshr i64 {byte}, {g.bit_length() - 1}")
                arguments = f"ptr %s, ptr {sp}, i64 {index}, i32 %w, i32 {me}, i64 {info}"
                if operation == "read":
                    found = ir.op(f"call i1 @san.read({arguments})")
                    unwritten = ir.op(f"and i1 {unwritten}, {found}")
                    continue
                if operation == "copy":
                    ir.line(f"call void @san.copied({arguments}, i32 %strong)")
                    continue
                value = "null"
                if operation == "write":
                    value = ir.at("%values", ir.op(f"mul i64 {lane64}, {element}"))
                    value = ir.at(value, k * LANES * element + j * g)
                elif operation == "atomic":
                    found = ir.op(f"call i1 @san.unwritten(ptr %s, ptr {sp}, i64 {index})")
                    unwritten = ir.op(f"and i1 {unwritten}, {found}")
                ir.line(f"call void @san.write({arguments}, i32 {g}, ptr {value}, i64 {element})")
            if operation in ("write", "issue", "copy"):
                continue
            first = ir.op(f"add i64 {at}, {k * element}")
            ir.when(
                unwritten,
                lambda first=first: ir.line(
                    f"call void @san.unset(ptr %s, ptr {sp}, i64 {first}, i64 {info}, "
                    f"i64 {element}, i64 {g})"
                ),
            )

    e.function("@san.unwritten", "i1 @san.unwritten(ptr %s, ptr %sp, i64 %index)",
               lambda: _unwritten(ir))  # fmt: skip
    head = "void @san.unset(ptr %s, ptr %sp, i64 %at, i64 %info, i64 %size, i64 %granule)"
    e.function("@san.unset", f"{head} noinline cold", lambda: _unset(ir))
    ir.lanes("%mask", one)
    ir.line("ret void")


def _unwritten(ir: Ir) -> None:
    ir.e.label("entry")
    p = ir.element(ir.load(Space, "%sp", "writes", "ptr"), "i32", "%index")
    W = ir.op(f"load i32, ptr {p}")
    kind = ir.load(Space, "%sp", "kind", "i64")
    never = ir.op(f"icmp eq i32 {W}, 0")
    old = ir.op(f"icmp ult i32 {W}, {ir.load(State, '%s', 'floor', 'i32')}")
    is_global = ir.op(f"icmp eq i64 {kind}, {shadow.GLOBAL}")
    ir.line(f"ret i1 {ir.op(f'select i1 {is_global}, i1 {never}, i1 {old}')}")


def _unset(ir: Ir) -> None:
    """Reports the read of an element that has not been written; in global memory of one that still
    is as it was before the launch, in a range that counts as not yet written."""
    ir.e.label("entry")
    kind = ir.load(Space, "%sp", "kind", "i64")
    index = ir.op("udiv i64 %at, %granule")

    def report() -> None:
        what = ir.op(f"shl i64 {kind}, {shadow.SPACE_AT - shadow.KIND_AT}")
        what = ir.op(f"or i64 {what}, {shadow.UNINITIALISED}")
        ir.line(f"call void @san.report(ptr %s, i64 {what}, i64 %info, i64 %info, i64 {index})")

    def look(k: str) -> None:
        p = ir.op(
            f"getelementptr i64, ptr {ir.field(State, '%s', 'ranges')}, "
            f"i64 {ir.op(f'mul i64 {k}, 3')}"
        )
        low, high, size = (
            ir.op(f"load i64, ptr {ir.op(f'getelementptr i64, ptr {p}, i64 {j}')}")
            for j in range(3)
        )
        inside = ir.both(ir.op(f"icmp uge i64 %at, {low}"), ir.op(f"icmp ult i64 %at, {high}"))

        def compare() -> None:
            origin = ir.load(Space, "%sp", "origin", "i64")
            wide = ir.op(f"icmp eq i64 {size}, 8")
            at = ir.op(
                f"select i1 {wide}, i64 {ir.op('and i64 %at, -8')}, i64 {ir.op('and i64 %at, -4')}"
            )
            p = ir.op(f"inttoptr i64 {ir.op(f'add i64 {origin}, {at}')} to ptr")
            high = ir.at(p, ir.op(f"select i1 {wide}, i64 4, i64 0"))
            now = ir.op(f"load i32, ptr {high}")
            nan = ir.op(f"select i1 {wide}, i32 {0x7FF80000}, i32 {0x7FC00000}")
            ir.when(ir.op(f"icmp eq i32 {now}, {nan}"), report)

        ir.when(inside, compare)

    ir.when(
        ir.op(f"icmp eq i64 {kind}, {shadow.GLOBAL}"),
        lambda: ir.loop(ir.load(State, "%s", "range_count", "i64"), look),
        report,
    )
    ir.line("ret void")
