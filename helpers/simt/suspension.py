"""How the function of a warp is left before its end: for other warps to run, or with a fault.

What is live is saved in the warp's frame, memory that stays while the block runs; `ret` gives the
scheduler the number of a resume point; called again with it, the function takes everything back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import barriers, frames, ptx, runtime
from .emitter import bits
from .flow import Graph
from .layout import Layout
from .masks import Masks
from .scopes import Scope
from .shapes import LANES, Shapes
from .stack import STACK_BYTES


class Suspension(Masks):
    """Resume points, the frame and what is kept in it, faults."""

    def __init__(self, layout: Layout, graph: Graph, shapes: Shapes):
        super().__init__(layout, graph, shapes)
        self.resumes: list[str] = []
        self._last: ptx.Instruction | None = None  # of the block before, for loops without any
        self.frame_bytes = 64
        self._frame_places = {"%stacked": runtime.STACK_FIELD}
        self.stack_bytes = LANES * STACK_BYTES if graph.entries else 0
        self.counted = barriers.counted(layout.kernel)
        self._reside()

    def frame_place(self, name: str, nbytes: int, align: int = 64) -> int:
        """Where in the warp's frame `name` is kept: memory that stays while the block runs."""
        if name not in self._frame_places:
            self.frame_bytes = -(-self.frame_bytes // align) * align
            self._frame_places[name] = self.frame_bytes
            self.frame_bytes += nbytes
        return self._frame_places[name]

    def _reside(self) -> None:
        """Chooses what is kept in the frame all the time, and gives it places there."""
        first = self.frame_bytes
        names = frames.resident(self.graph, self.structure, self.shapes.invariant)
        slots = [(self.slot(name), self.slot_type(name)) for name in names]
        if slots:
            slots += [(m, "i32") for m in self._mask_slots()]
        for slot, ty in slots:
            self.frame_place(slot, bytes_of(ty), alignment_of(ty))
        self.resident = {slot for slot, _ in slots}
        self._resident_span = first, self.frame_bytes

    def _suspend(self, scope: Scope, live: int, flag: int, also: Sequence[str] = ()) -> None:
        """Saves what is live, returns to the scheduler, and goes on here when called again."""
        saved = [
            (slot, ty, self.frame_place(slot, bytes_of(ty), alignment_of(ty)))
            for slot, ty in self._saved(scope, live, also)
            if slot not in self.resident
        ]
        label = f"resume{len(self.resumes) + 1}"
        self.resumes.append(label)
        self.layout.resumes.append(self.instruction or self._last)
        self._save(saved, "%frame")
        code = str(len(self.resumes) | flag)
        if flag:
            code = self.op(f"or i32 {code}, {self.op('load i32, ptr %wrote')}")
        self.line(f"ret i32 {code}")
        self.label(label)
        self._restore(saved, "%frame")

    def _save(self, saved: list[tuple[str, str, int]], base: str) -> None:
        """saved: (slot, type, offset from base)."""
        for slot, ty, place in saved:
            value = self.op(f"load {ty}, ptr {slot}")
            p = self.op(f"getelementptr i8, ptr {base}, i64 {place}")
            self.line(f"store {ty} {value}, ptr {p}, align {alignment_of(ty)}")

    def _restore(self, saved: list[tuple[str, str, int]], base: str) -> None:
        for slot, ty, place in saved:
            p = self.op(f"getelementptr i8, ptr {base}, i64 {place}")
            value = self.op(f"load {ty}, ptr {p}, align {alignment_of(ty)}")
            self.line(f"store {ty} {value}, ptr {slot}")

    def _saved(self, scope: Scope, live: int, also: Sequence[str] = ()) -> list[tuple[str, str]]:
        """(slot, type) of all that must survive a return to the scheduler."""
        slots = [] if self.whole else [("%alive", "i32")]
        if self.counted:
            slots.append(("%barrier", "i32"))
        if self.stack_bytes:
            slots.append(("%stacked", "i64"))
        return slots + self._kept(scope, live, also)

    def _kept(self, scope: Scope, live: int, also: Sequence[str] = ()) -> list[tuple[str, str]]:
        """(slot, type) of the state of the kernel or function that a scope is part of."""
        slots = []
        if scope.outermost is not self.structure.root:
            slots.append(("%site", "i32"))
        if scope is not self.structure.root or not self.whole:
            slots.append((self._mask_slot(scope), "i32"))
        slots += [(m, "i32") for m in dict.fromkeys([*self._elsewhere(scope), *also])]
        for name in self.kernel.registers:
            if self.graph.is_live(name, live) and name not in self.shapes.invariant:
                slots.append((self.slot(name), self.slot_type(name)))
        return slots

    # -- faults ----------------------------------------

    def _fault(self, kind: int, number: int, mask: str) -> None:
        self.lines += (
            runtime.record_fault(kind, number, mask, self.fresh("f")[1:]).rstrip().split("\n")
        )
        self.line("br label %fault")

    def _fault_if(
        self, kind: int, i: ptx.Instruction, mask: str, before: Callable[[], None] | None = None
    ) -> str:
        """A fault if any lane is in mask, after what `before` emits; the label where there was
        none."""
        some = self.op(f"icmp ne i32 {mask}, 0")
        bad, good = self.fresh("bad")[1:], self.fresh("good")[1:]
        self.line(f"br i1 {some}, label %{bad}, label %{good}, !prof !2")
        self.label(bad)
        if before is not None:
            before()
        self._fault(kind, self._ids[id(i)], mask)
        self.label(good)
        return good


def bytes_of(ty: str) -> int:
    if ty.startswith("<"):
        return LANES * max(1, bits(ty.split(" x ")[1].rstrip(">")) // 8)
    return max(1, bits(ty) // 8)


def alignment_of(ty: str) -> int:
    return min(64, bytes_of(ty))
