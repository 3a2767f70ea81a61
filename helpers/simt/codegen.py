"""One kernel for one block shape -> LLVM IR: a function that runs one warp.

    i32 @warp(ptr context, i32 warp, i32 resume point)

runs the warp from its start (0) or from the barrier it waited at, until it is done or waits at a
barrier; what it returns is in `runtime`. At a barrier the live registers go to the warp's frame
and the function returns; called again it takes them back and jumps to where it was.

Functions called with `enter` are part of the same IR function. A call keeps what its caller still
needs, where it is to go on and which lanes wait elsewhere, on the warp's stack, which follows its
frame, and jumps. So at a barrier in a function only that function's registers need saving.

A `_Kernel` is built up in layers: `Emitter` writes IR, `Masks` knows which lanes are active,
`Suspension` how the function is left and entered again, `Control` branches and calls; here are the
function's frame, instructions, barriers and special registers.

Registers that are cheap arithmetic on launch constants (`Shapes.invariant`) are computed anew at
every entry instead; in large kernels many registers are never anywhere but in the frame (`frames`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import async_copy, barriers, instructions, names, ptx, runtime, tensor, warp
from .access import Memory
from .access import parse as parse_access
from .calls import external_call
from .control import Control
from .counting import Counting
from .emitter import Lanes, bits, llvm_type, vector
from .errors import Unsupported
from .flow import Graph, destinations, targets
from .hostcalls import CALLS
from .layout import RESERVED, Layout
from .runtime import Context, Launch
from .sanitizer import fences
from .sanitizing import Sanitizing
from .scopes import Scope
from .shapes import LANES, Geometry, Shapes, is_widening, signed, width
from .table import only
from .tracing import Tracing
from .whereabouts import ahead

_NOTHING = {
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "pmevent",
    "discard",
    "applypriority",
}
_COOPERATIVE = warp.TABLE | tensor.TABLE | async_copy.TABLE
_KNOWN = _NOTHING | instructions.TABLE.keys() | _COOPERATIVE.keys()
_KNOWN |= {"ld", "st", "atom", "red", "cvta", "bar", "barrier", "trap", "call", "enter", "leave"}
_BARRIER, _TRAP, _OVERFLOW, _ASSERT = 3, 4, 5, 6


@dataclass(frozen=True)
class Instruments:
    """What a kernel's code does beside its work: count (see counting); and for accesses that ptxas
    has fused with their neighbours, by line of the PTX, the bytes of the fused access; trace (see
    tracing); sanitize (see sanitizing)."""

    count: bool = False
    wider: tuple[tuple[int, int], ...] = ()
    trace: bool = False
    sanitize: bool = False


NO_INSTRUMENTS = Instruments()


def generate(
    layout: Layout, graph: Graph, geometry: Geometry, instruments: Instruments = NO_INSTRUMENTS
) -> str:
    """The IR of a kernel for one block shape. Fills in layout.bounds, frame_bytes, sources, and
    with instruments counters.

    Raises Unsupported for an instruction that has no row.
    """
    for block in graph.blocks:
        for i in block.instructions:
            if i.opcode not in _KNOWN:
                raise Unsupported(i.name, layout.kernel.name, i.file, i.line)
            names.check(layout.kernel.name, i)
    local = {name: (offset, layout.local_stride) for name, offset in layout.local_offsets.items()}
    return _Kernel(layout, graph, Shapes(graph, geometry, local), instruments).module()


class _Kernel(Control):
    def __init__(self, layout: Layout, graph: Graph, shapes: Shapes, instruments: Instruments):
        super().__init__(layout, graph, shapes)
        self.counting = Counting(self, dict(instruments.wider)) if instruments.count else None
        observers = [self.counting] if self.counting else []
        observers += [Tracing(self)] if instruments.trace else []
        self.sanitizing = Sanitizing(self, graph) if instruments.sanitize else None
        observers += [self.sanitizing] if self.sanitizing else []
        self.memory = Memory(self, layout, observers)

    # -- the function ----------------------------------------

    def module(self) -> str:
        """All of the IR: body, checker and scheduler."""
        for name, i in self.shapes.invariant.items():
            self.instruction = i
            self._invariant(name, i)
        at_top, self.lines = self.lines, []
        for block in self.graph.blocks:
            self._block(block.index)
        for component in self.structure.components:
            self._component(component)
        for name, sites in self._returns.items():
            self._return(name, sites)
        self.stack_start = -(-self.frame_bytes // 64) * 64
        self.layout.frame_bytes = self.stack_start + self.stack_bytes
        self.layout.counters = self.counting.counters if self.counting else None
        if self.sanitizing:
            self.layout.granule, self.layout.fences = self.sanitizing.granule, fences(self.graph)
        body, self.lines = self.lines, []
        text = [self._entry(at_top), *body, *self._ends()]
        self.declarations |= {
            "declare i32 @llvm.cttz.i32(i32, i1)",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        }
        return "\n".join(
            [
                *self.constants,
                *sorted(self.declarations),
                "define internal i32 @warp(ptr %cx, i32 %w, i32 %resume) {",
                *text,
                "}",
                runtime.CHECKER,
                barriers.functions(self.geometry.warps, self.sanitizing is not None)
                if self.counted
                else "",
                runtime.scheduler(
                    self.geometry.warps,
                    self.layout.frame_bytes,
                    self.stack_bytes,
                    barriers.RECORD_BYTES if self.counted else 0,
                    self.sanitizing is not None,
                ),
                '!0 = !{!"branch_weights", i32 2000, i32 1}',
                "!1 = !{}",
                '!2 = !{!"branch_weights", i32 1, i32 2000}',
            ]
        )

    def _entry(self, at_top: list[str]) -> str:
        lines = [
            "entry:",
            "  %scratch = alloca <32 x i64>, align 256",
            "  %mask = alloca i32",
            "  %alive = alloca i32",
            "  %slice = alloca i32",
            "  %wrote = alloca i32",
            "  %barrier = alloca i32",
            "  %stacked = alloca i64",
            "  %site = alloca i32",
            "  store i64 0, ptr %stacked",
            "  store i32 0, ptr %site",
            "  store i32 0, ptr %wrote",
            f"  store i32 {runtime.SLICE}, ptr %slice",
        ]
        fields = {
            "launch": "ptr",
            "shared": "ptr",
            "frames": "ptr",
            "local": "i64",
            "barriers": "ptr",
            "counts": "ptr",
        }
        if self.sanitizing:
            fields["sanitizer"] = "ptr"
        fields |= {f"block_{axis}": "i32" for axis in "xyz"}
        lines.append(runtime.load_fields("%cx", Context, fields).rstrip())
        fields = {"parameters": "ptr", "bounds": "ptr", "symbols": "ptr", "shared_bytes": "i64"}
        fields |= {f"grid_{axis}": "i32" for axis in "xyz"}
        lines.append(runtime.load_fields("%launch", Launch, fields).rstrip())
        if self.sanitizing:
            lines.append("  %s = getelementptr i8, ptr %sanitizer, i64 0")
        lines += [
            f"  {runtime.field_pointer('%stop', '%launch', Launch, 'stop')}",
            "  %shared_address = ptrtoint ptr %shared to i64",
            "  %w64 = zext i32 %w to i64",
            f"  %local_of_warp = mul i64 %w64, {LANES * self.layout.local_stride}",
            "  %local_start = add i64 %local, %local_of_warp",
            f"  %frame_offset = mul i64 %w64, {self.layout.frame_bytes}",
            "  %frame = getelementptr i8, ptr %frames, i64 %frame_offset",
            f"  %stack = getelementptr i8, ptr %frame, i64 {self.stack_start}",
        ]
        first = "-1"
        if not self.geometry.whole_warps:
            rest = (1 << self.geometry.threads % LANES) - 1
            lines += [
                f"  %is_last = icmp eq i32 %w, {self.geometry.warps - 1}",
                f"  %first_mask = select i1 %is_last, i32 {rest}, i32 -1",
            ]
            first = "%first_mask"
        lines += [f"  store i32 {first}, ptr %mask", f"  store i32 {first}, ptr %alive"]
        lines += [*self._slots(), *self.entry, *at_top]
        cases = " ".join(f"i32 {n + 1}, label %{label}" for n, label in enumerate(self.resumes))
        lines += [f"  switch i32 %resume, label %start [ {cases} ]", "start:"]
        first, last = self._resident_span
        if last > first:
            lines += [
                f"  %residents = getelementptr i8, ptr %frame, i64 {first}",
                "  call void @llvm.memset.p0.i64(ptr align 64 %residents, i8 0, "
                f"i64 {last - first}, i1 false)",
            ]
        if self.sanitizing:
            lines += self._unset()
        lines.append("  br label %b0")
        return "\n".join(lines)

    def _unset(self) -> list[str]:
        """Float registers that may be read before they are set: NaN, as unset memory is."""
        nan, lines = "0x7FF8000000000000", []
        first = self.graph.blocks[0].live_in
        names = [n for n in self.kernel.registers if self.graph.is_live(n, first)]
        for slot, ty in ((self.slot(name), self.slot_type(name)) for name in names):
            kind = ty.rpartition(" ")[2].rstrip(">")
            if kind in ("float", "double"):
                value = nan if ty == kind else f"<{', '.join([f'{kind} {nan}'] * LANES)}>"
                lines.append(f"  store {ty} {value}, ptr {slot}")
        return lines

    def _slots(self) -> list[str]:
        """Registers and masks, zero at first."""
        lines = []
        slots = [(self.slot(name), self.slot_type(name)) for name in self.kernel.registers]
        for slot, ty in slots + [(m, "i32") for m in self._mask_slots()]:
            if slot in self.resident:
                place = self._frame_places[slot]
                lines.append(f"  {slot} = getelementptr i8, ptr %frame, i64 {place}")
            else:
                lines += [f"  {slot} = alloca {ty}", f"  store {ty} zeroinitializer, ptr {slot}"]
        return lines

    def _ends(self) -> list[str]:
        self.lines = []
        if self.sanitizing and any(i.opcode == "cp" for i in self.layout.sources):
            self.mask = "-1"
            async_copy.finish(self)
        return [
            "exit:",
            *self.lines,
            f"  ret i32 {runtime.DONE}",
            "fault:",
            f"  ret i32 {runtime.FAULT}",
            "never:",
            "  unreachable",
            "stopped:",
            f"  ret i32 {runtime.STOPPED}",
        ]

    # -- blocks ----------------------------------------

    def _block(self, index: int) -> None:
        block, scope = self.graph.blocks[index], self.structure.owner[index]
        self.label(f"b{index}")
        self.mask = self._current_mask(scope)
        if index in self._functions_of:  # recursion is a loop too
            self.instruction = block.instructions[0] if block.instructions else None
            self._take_turn(scope, block.live_in, self.mask)
            self.mask = self._current_mask(scope)
        if self.counting:
            self.counting.block(index, block)
        if self.sanitizing:
            self.sanitizing.block(block.instructions)
        live_after = self.graph.live_after(block)
        groups = self._groups(block.instructions)
        for i, live in zip(block.instructions, live_after, strict=True):
            self.instruction = i
            if id(i) in groups:
                self.memory.merged_checks(groups[id(i)])
            if not self._is_invariant(i):
                self._instruction(index, scope, i, live)
        self._last = self.instruction or block.end.instruction or self._last
        self.instruction = None
        self._end(index, scope, block.end)

    def _is_invariant(self, i: ptx.Instruction) -> bool:
        names = destinations(i)
        return len(names) == 1 and self.shapes.invariant.get(names[0]) is i

    def _groups(self, instructions_: list[ptx.Instruction]) -> dict[int, list]:
        """Accesses that can be checked at once, under the id() of the first of each group."""
        found: dict[int, list] = {}
        open_: dict[tuple, list] = {}
        for i in instructions_:
            if i.opcode in ("bar", "barrier", "trap", "enter"):
                open_.clear()
            if i.opcode in ("ld", "st") and not i.guard and "param" not in i.modifiers:
                self.instruction = i
                access = parse_access(self, i)
                base = access.address.base
                if isinstance(base, ptx.Register) and access.space != "local":
                    # One comparison tests the alignment of offsets that differ by whole accesses.
                    phase = access.address.offset % access.size
                    key = (base.name, access.space, access.size, phase)
                    group = open_.setdefault(key, [])
                    group.append((self._ids[id(i)], i))
                    if len(group) == 2:
                        found[id(group[0][1])] = group
            for name in destinations(i):
                for key in [k for k in open_ if k[0] == name]:
                    del open_[key]
        return {k: g for k, g in found.items() if self._near(g)}

    def _near(self, group: list) -> bool:
        """Merged ranges must be shorter than the guard between allocations, or shared."""
        offsets = [parse_access(self, i).address.offset for _, i in group]
        return max(offsets) - min(offsets) < 2048 or "shared" in group[0][1].modifiers

    # -- instructions ----------------------------------------

    def _invariant(self, name: str, i: ptx.Instruction) -> None:
        if i.opcode == "ld":
            self.write(name, self.memory.load(i, 0)[0])
        else:
            for register, value in self._values(i):
                self.write(register, value)

    def _instruction(self, block: int, scope: Scope, i: ptx.Instruction, live: int) -> None:
        if i.opcode in _NOTHING or i.name == "bar.warp.sync" or i.opcode == "leave":
            if self.sanitizing and self.sanitizing.is_event(i):
                self._guarded(i, lambda: self.sanitizing.after(i))
            return
        if i.opcode == "enter":
            self._enter(scope, i, live)
            return
        if i.opcode in ("bar", "barrier"):
            self._guarded(i, lambda: self._barrier(block, scope, i, live))
            self.mask = self._current_mask(scope)
            return
        if i.opcode in _COOPERATIVE:
            self._guarded(i, lambda: self._exchange(block, i))
            return
        number = self._ids[id(i)]
        if i.opcode in ("ld", "st", "atom", "red", "trap", "call"):
            self._guarded(i, lambda: self._memory(block, i, number))
            return
        for name, value in self._values(i):
            self._assign(block, i, name, value)

    def _assign(self, block: int, i: ptx.Instruction, name: str, value: Lanes) -> None:
        """Writes a destination where the instruction's guard and the scope allow it."""
        if name == "_":
            return
        where = None
        if self.shapes.of_register(name).varying and self.shapes.blends(block, name):
            where = self.mask if self.mask != "-1" else None
        if i.guard and self.instruction is i:
            guard = self.read(i.guard)
            if guard.pattern is None:
                chosen = self.op(f"bitcast {vector('i1')} {guard.ssa} to i32")
                if i.guard_negated:
                    chosen = self.op(f"xor i32 {chosen}, -1")
                where = chosen if where is None else self.op(f"and i32 {where}, {chosen}")
            else:
                chosen = guard.ssa
                if i.guard_negated:
                    chosen = self.op(f"xor i1 {chosen}, true")
                if self.shapes.of_register(name).varying:
                    chosen = self.op(f"sext i1 {chosen} to i32")
                    where = chosen if where is None else self.op(f"and i32 {where}, {chosen}")
                else:
                    where = chosen
        self.write(name, value, where)

    def _guarded(self, i: ptx.Instruction, work) -> None:
        """Runs `work` under the mask of the lanes whose guard holds, if there are any."""
        if not i.guard:
            work()
            return
        guard = self.read(i.guard)
        chosen = (
            f"sext i1 {guard.ssa} to i32"
            if guard.pattern is not None
            else f"bitcast {vector('i1')} {guard.ssa} to i32"
        )
        chosen = self.op(chosen)
        if i.guard_negated:
            chosen = self.op(f"xor i32 {chosen}, -1")
        outer, self.mask = self.mask, self.op(f"and i32 {self.mask}, {chosen}")
        some, do, done = (
            self.op(f"icmp ne i32 {self.mask}, 0"),
            self.fresh("do")[1:],
            self.fresh("done")[1:],
        )
        self.line(f"br i1 {some}, label %{do}, label %{done}")
        self.label(do)
        work()
        self.line(f"br label %{done}")
        self.label(done)
        self.mask = outer

    def _exchange(self, block: int, i: ptx.Instruction) -> None:
        """An instruction in which lanes work together."""
        if _writes(i):
            self.line(f"store i32 {runtime.WROTE}, ptr %wrote")
        for name, value in _COOPERATIVE[i.opcode](self, i):
            self._assign(block, i, name, value)
        if self.sanitizing:
            self.sanitizing.after(i)

    def _memory(self, block: int, i: ptx.Instruction, number: int) -> None:
        if _writes(i):
            self.line(f"store i32 {runtime.WROTE}, ptr %wrote")
        if i.opcode == "trap":
            self._fault(_TRAP, number, self.mask)
            self.label(self.fresh("never")[1:])
            return
        if i.opcode == "call":
            self._host_call(i, number)
            return
        if i.opcode == "st":
            self.memory.store(i, number)
            return
        if i.opcode in ("atom", "red"):
            values = [self.memory.atomic(i, number)]
            if i.opcode == "red":
                return
        else:
            values = self.memory.load(i, number)
        target = i.operands[0]
        parts = target.elements if isinstance(target, ptx.Vector) else [target]
        sign = i.modifiers[-1].startswith("s")
        for part, value in zip(parts, values, strict=True):
            if part.name != "_":
                value = self.reinterpret(value, llvm_type(self.kernel.registers[part.name]), sign)
                self._assign(block, i, part.name, value)

    def _values(self, i: ptx.Instruction) -> list[tuple[str, Lanes]]:
        """What a lane-wise instruction gives each of its destinations."""
        shape = self.shapes.transfer(i)
        if shape is not None and shape.uniform and shape.value is not None:
            ty = llvm_type(self.kernel.registers[i.operands[0].name])  # known already
            word = f"i{bits(ty)}"
            known = Lanes(word, str(signed(shape.value, bits(ty))))
            return [(i.operands[0].name, self.reinterpret(known, ty))]
        self.wide = shape is None or shape.varying
        if i.opcode == "cvta":
            values = [self._convert_address(i)]
        elif not self.wide and shape.affine and is_widening(i):
            values = [self._widen(i)]
        elif i.opcode in instructions.TABLE:
            found = instructions.TABLE[i.opcode](self, i)
            values = found if isinstance(found, list) else [found]
        else:
            raise self.unsupported()
        result = []
        for register, (kind, value) in zip(targets(i), values, strict=False):
            if register.name != "_":
                ty = llvm_type(self.kernel.registers[register.name])
                lanes = self._lanes(kind, value, shape)
                result.append((register.name, self.reinterpret(lanes, ty, kind.startswith("s"))))
        return result

    def _lanes(self, kind: str, value: str, shape) -> Lanes:
        ty = llvm_type(kind) if kind in ptx.SIZES else kind
        return Lanes(ty, value, None if self.wide else shape.pattern)

    def _convert_address(self, i: ptx.Instruction) -> tuple[str, str]:
        """cvta: only shared addresses differ from generic ones."""
        kind = only(self, i, "to", "global", "shared", "local", "const", types=("u64",))
        value = self.get(i.operands[1], kind)
        if "shared" not in i.modifiers:
            return kind, value
        base = self.splat("i64", "%shared_address") if self.wide else "%shared_address"
        return kind, self.op(
            f"{'sub' if 'to' in i.modifiers else 'add'} {self.type_of('i64')} {value}, {base}"
        )

    def _widen(self, i: ptx.Instruction) -> tuple[str, str]:
        """cvt, mul.wide or mad.wide of affine operands: type and base of the result."""
        kind = i.modifiers[-1]
        to = i.modifiers[-2] if i.opcode == "cvt" else kind[0] + str(2 * width(kind))
        ty = llvm_type(to)
        value = self._wide_base(i, i.operands[1], kind, ty)
        if i.opcode != "cvt":
            value = self.op(f"mul {ty} {value}, {self._wide_base(i, i.operands[2], kind, ty)}")
        if i.opcode == "mad":
            value = self.op(f"add {ty} {value}, {self.get(i.operands[3], to)}")
        return to, value

    def _wide_base(self, i: ptx.Instruction, operand, kind: str, ty: str) -> str:
        """The base b of a widened operand: b + pattern is the wide value in every active lane.

        That is the widened base, unless the narrow sum wraps in some lane. Then it is taken from
        the first active lane; if the others do not agree, the warp cannot go on as affine.
        """
        value = self.lanes(operand, kind)
        how = "sext" if kind[0] == "s" else "zext"
        base = self.op(f"{how} {value.ty} {value.ssa} to {ty}")
        if not self.shapes.may_wrap(operand):
            return base
        wraps = self._may_wrap(value, kind)
        before, look, on = (self.fresh(h)[1:] for h in ("widen", "wraps", "widened"))
        self.line(f"br label %{before}")
        self.label(before)
        self.line(f"br i1 {wraps}, label %{look}, label %{on}, !prof !2")
        self.label(look)
        wide = vector(ty)
        lanes = self.op(f"{how} {vector(value.ty)} {self.spread(value)} to {wide}")
        bases = self.op(f"sub {wide} {lanes}, {self.pattern_constant(ty, value.pattern)}")
        first = self.op(f"call i32 @llvm.cttz.i32(i32 {self.mask}, i1 true)")
        chosen = self.op(f"extractelement {wide} {bases}, i32 {first}")
        differs = self.op(f"icmp ne {wide} {bases}, {self.splat(ty, chosen)}")
        apart = self.op(f"bitcast {vector('i1')} {differs} to i32")
        apart = self.op(f"and i32 {apart}, {self.mask}")
        agree = self._fault_if(_OVERFLOW, i, apart)
        self.line(f"br label %{on}")
        self.label(on)
        return self.op(f"phi {ty} [ {base}, %{before} ], [ {chosen}, %{agree} ]")

    def _may_wrap(self, value: Lanes, kind: str) -> str:
        """An i1: base + pattern leaves the range of its type in some lane, active or not."""
        n = bits(value.ty)
        sign = "s" if kind[0] == "s" else "u"
        flags = []
        for bound in {min(value.pattern), max(value.pattern)} - {0}:
            name = f"{sign}{'add' if bound > 0 else 'sub'}.with.overflow"
            self.declarations.add(f"declare {{i{n}, i1}} @llvm.{name}.i{n}(i{n}, i{n})")
            pair = self.op(
                f"call {{i{n}, i1}} @llvm.{name}.i{n}(i{n} {value.ssa}, i{n} {abs(bound)})"
            )
            flags.append(self.op(f"extractvalue {{i{n}, i1}} {pair}, 1"))
        return flags[0] if len(flags) == 1 else self.op(f"or i1 {flags[0]}, {flags[1]}")

    def _host_call(self, i: ptx.Instruction, number: int) -> None:
        name, _, _ = external_call(i)
        if name not in CALLS:
            raise self.unsupported(f"call of {name}")
        p = self.op(f"getelementptr i8, ptr %launch, i64 {runtime.offset(Launch, 'host_call')}")
        host = self.op(f"load ptr, ptr {p}")
        bad = self.op(f"call i32 {host}(ptr %cx, i32 {number}, i32 {self.mask}, i32 %w)")
        failed, fault, on = (
            self.op(f"icmp ne i32 {bad}, 0"),
            self.fresh("failed")[1:],
            self.fresh("on")[1:],
        )
        self.line(f"br i1 {failed}, label %{fault}, label %{on}")
        self.label(fault)
        self._fault(_ASSERT, number, self.mask)
        self.label(on)

    # -- barriers ----------------------------------------

    def _barrier(self, block: int, scope: Scope, i: ptx.Instruction, live: int) -> None:
        """All lanes that have not ended must be here; then the warp waits (or only arrives)."""
        barrier = barriers.parse(i)
        if barrier.kind == "red" and i.guard:
            raise self.unsupported(i.text)
        if scope is not self.structure.root or i.guard:
            alive = self.op("load i32, ptr %alive")
            missing = self.op(f"xor i32 {alive}, {self.mask}")
            note = lambda: self._note_place(block, scope, i, missing)  # noqa: E731
            self._fault_if(_BARRIER, i, missing, note)
        if self.sanitizing and not self.whole:
            first = "-1" if self.geometry.whole_warps else "%first_mask"
            self.sanitizing.at_barrier(first, len(self.resumes) + 1)
        number = ""
        if self.counted:
            number = self._uniform(i, barrier.barrier)
            count = "0" if barrier.count is None else self._uniform(i, barrier.count)
            votes, no, yes = self._votes(barrier)
            self.line(
                f"call void @arrive(ptr %cx, i32 %w, i32 {number}, i32 {count}, i32 {votes}, "
                f"i32 {no}, i32 {yes})"
            )
            if self.sanitizing:
                self.sanitizing.event("arrive", number)
        if barrier.kind != "arrive":
            if number.startswith("%"):
                self.line(f"store i32 {number}, ptr %barrier")
            self._suspend(scope, live, 0)
            if self.counted and self.sanitizing:
                here = self.op("load i32, ptr %barrier") if number.startswith("%") else number
                self.sanitizing.event("join", here)
            self.mask = self._current_mask(scope)
        if barrier.kind == "red":
            self._reduction(block, i, barrier, number)

    def _note_place(self, block: int, scope: Scope, i: ptx.Instruction, missing: str) -> None:
        """Records where the first of the lanes is that a barrier misses."""
        loops, place = self.structure.waiting_loops, "0"

        def number(at: int, first: int = 0) -> int:
            self.layout.places.append(ahead(self.graph, loops, at, first))
            return len(self.layout.places)

        if i.guard:
            after = [id(one) for one in self.graph.blocks[block].instructions].index(id(i)) + 1
            place = str(number(block, after))
        lane = self.op(f"and i32 {missing}, {self.op(f'sub i32 0, {missing}')}")
        for mask in self._elsewhere(scope):
            at = int(re.sub(r"\D", "", mask))
            here = self.op(f"and i32 {self.op(f'load i32, ptr {mask}')}, {lane}")
            some = self.op(f"icmp ne i32 {here}, 0")
            place = self.op(f"select i1 {some}, i32 {number(at)}, i32 {place}")
        for name, value in (("fault_place", place), ("fault_others", self.mask)):
            tag = self.fresh("f")[1:]
            self.lines += runtime.store_field("i32", value, "%cx", Context, name, tag).splitlines()

    def _uniform(self, i: ptx.Instruction, operand) -> str:
        """A barrier's number or count: that of the first active lane, and of all others."""
        value = self.lanes(operand, "u32")
        if value.uniform:
            return value.ssa
        lanes = self.spread(value)
        first = self.op(f"call i32 @llvm.cttz.i32(i32 {self.mask}, i1 true)")
        chosen = self.op(f"extractelement {vector('i32')} {lanes}, i32 {first}")
        differs = self.op(f"icmp ne {vector('i32')} {lanes}, {self.splat('i32', chosen)}")
        others = self.op(f"bitcast {vector('i1')} {differs} to i32")
        self._fault_if(_BARRIER, i, self.op(f"and i32 {others}, {self.mask}"))
        return chosen

    def _votes(self, barrier: barriers.Barrier) -> tuple[str, str, str]:
        """Of the active lanes' predicates: how many hold, if any does not, if any does."""
        if barrier.predicate is None:
            return "0", "0", "0"
        holds = self.spread(self.lanes(barrier.predicate, "pred"))
        bits_ = self.op(f"bitcast {vector('i1')} {holds} to i32")
        yes = self.op(f"and i32 {bits_}, {self.mask}")
        no = self.op(f"xor i32 {yes}, {self.mask}")
        self.declarations.add("declare i32 @llvm.ctpop.i32(i32)")
        return self.op(f"call i32 @llvm.ctpop.i32(i32 {yes})"), no, yes

    def _reduction(self, block: int, i: ptx.Instruction, barrier, number: str) -> None:
        """What bar.red gives all threads, once the barrier has opened."""
        if number.startswith("%"):
            number = self.op("load i32, ptr %barrier")
        at = self.op(
            f"mul i32 {self.op(f'and i32 {number}, {barriers.BARRIERS - 1}')}, {barriers.FIELDS}"
        )
        field = barriers.FIELDS - 3 + ["popc", "and", "or"].index(barrier.reduction)
        p = self.op(f"getelementptr i32, ptr %barriers, i32 {self.op(f'add i32 {at}, {field}')}")
        word = self.op(f"load i32, ptr {p}")
        if barrier.reduction == "popc":
            value = Lanes("i32", word)
        else:
            value = Lanes(
                "i1", self.op(f"icmp {'eq' if barrier.reduction == 'and' else 'ne'} i32 {word}, 0")
            )
        self._assign(block, i, i.operands[0].name, value)

    # -- special registers and symbols ----------------------------------------

    def special(self, name: str) -> Lanes:
        known = {
            "%ctaid.x": "%block_x",
            "%ctaid.y": "%block_y",
            "%ctaid.z": "%block_z",
            "%nctaid.x": "%grid_x",
            "%nctaid.y": "%grid_y",
            "%nctaid.z": "%grid_z",
            "%warpid": "%w",
        }
        if name in known:
            return Lanes("i32", known[name])
        if name.startswith("%ntid."):
            return Lanes("i32", str(self.geometry.block["xyz".index(name[-1])]))
        if name == "%nwarpid":
            return Lanes("i32", str(self.geometry.warps))
        if name.endswith(".w"):  # unused (PTX ISA 10.1)
            return Lanes("i32", "0")
        if name == "%laneid":
            return Lanes("i32", "0", tuple(range(LANES)))
        if name.startswith("%tid."):
            return self._thread_index(name[-1])
        if name in ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo"):
            self.declarations.add("declare i64 @llvm.readcyclecounter()")
            ticks = self.op("call i64 @llvm.readcyclecounter()")
            if name == "%clock_hi":
                ticks = self.op(f"lshr i64 {ticks}, 32")
            return Lanes("i64", ticks)
        if name in ("%smid", "%nsmid"):
            return Lanes("i32", "0" if name == "%smid" else "1")
        if name == "%dynamic_smem_size":
            total = self.op("trunc i64 %shared_bytes to i32")
            return Lanes("i32", self.op(f"sub i32 {total}, {self.layout.static_shared}"))
        if ptx.Special(name) in RESERVED:
            return Lanes("i32", str(self.layout.shared_offsets[RESERVED[0].name]))
        if name.startswith("%lanemask_"):
            lane = {
                "eq": lambda b: 1 << b,
                "lt": lambda b: (1 << b) - 1,
                "le": lambda b: (2 << b) - 1,
                "gt": lambda b: ~((2 << b) - 1),
                "ge": lambda b: ~((1 << b) - 1),
            }[name[10:]]
            values = [lane(b) & 0xFFFFFFFF for b in range(LANES)]
            return Lanes("i32", self.pattern_constant("i32", values), None)
        raise self.unsupported(f"{self.instruction.name} of {name}")

    def _thread_index(self, axis: str) -> Lanes:
        shape = self.shapes.geometry.shape(axis)
        x, y, _ = self.geometry.block
        divide, modulo = {"x": (1, x), "y": (x, y), "z": (x * y, 1 << 30)}[axis]
        if shape.varying:
            first = self.op(f"mul i32 %w, {LANES}")
            lanes = self.spread(Lanes("i32", first, tuple(range(LANES))))
            v = vector("i32")
            value = self.op(f"udiv {v} {lanes}, splat (i32 {divide})")
            return Lanes("i32", self.op(f"urem {v} {value}, splat (i32 {modulo})"), None)
        if shape.value is not None:
            return Lanes("i32", str(shape.value), shape.pattern)
        first = self.op(f"mul i32 %w, {LANES}")
        value = self.op(f"udiv i32 {first}, {divide}")
        return Lanes("i32", self.op(f"urem i32 {value}, {modulo}"), shape.pattern)

    def symbol(self, symbol: ptx.Symbol) -> Lanes:
        """The address of a variable: an offset for shared ones, a host address otherwise."""
        name = symbol.name
        if name in self.layout.shared_offsets:
            return Lanes("i64", str(self.layout.shared_offsets[name] + symbol.offset))
        if name in self.layout.local_offsets:
            at = self.op(f"add i64 %local_start, {self.layout.local_offsets[name] + symbol.offset}")
            return Lanes("i64", at, tuple(lane * self.layout.local_stride for lane in range(LANES)))
        if name in self.layout.symbols:
            p = self.op(f"getelementptr i64, ptr %symbols, i64 {self.layout.symbols.index(name)}")
            at = self.op(f"load i64, ptr {p}, !invariant.load !1")
            return Lanes("i64", self.op(f"add i64 {at}, {symbol.offset}") if symbol.offset else at)
        if name in self.layout.functions:
            return Lanes("i64", str(self.layout.functions[name]))
        raise self.unsupported(f"{self.instruction.text}: address of {name}")


def _writes(i: ptx.Instruction) -> bool:
    """Whether an instruction changes memory each time, as no poll of a flag or a lock does."""
    if i.opcode in ("st", "red", "cp") or i.name.startswith("wmma.store"):
        return True
    if i.opcode == "mbarrier":
        return i.modifiers[0] not in ("test_wait", "pending_count")
    if i.opcode != "atom" or not {"add", "inc", "dec"} & set(i.modifiers):
        return False
    return not (isinstance(i.operands[-1], ptx.Immediate) and i.operands[-1].value == 0)
