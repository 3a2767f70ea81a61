"""Control flow: how lanes that part at a branch take their turns, and meet again.

Outside of divergent components (see scopes) a branch is a branch. In one, lanes that come to a part
of it are added to the mask of those that wait to enter there; the parts run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import ptx, runtime
from .emitter import vector
from .flow import Branch, Graph, destinations
from .layout import Layout
from .scopes import Component, Scope
from .shapes import Shapes
from .suspension import Suspension, alignment_of, bytes_of

_STACK_OVERFLOW = 8  # as in runtime.FAULT_KINDS


class Control(Suspension):
    """Branches, loops, components, and calls of functions that stay functions."""

    def __init__(self, layout: Layout, graph: Graph, shapes: Shapes):
        super().__init__(layout, graph, shapes)
        self._ending: ptx.Instruction | None = None  # the last of the block that is being ended
        self._returns: dict[str, list[str]] = {name: [] for name in graph.entries}

    def _take_turn(self, scope: Scope, live: int, mask: str, also: Sequence[str] = ()) -> None:
        """At a loop's back edge: when the slice is up, let other warps run, or give up if the
        launch has been stopped. mask: the lanes in the loop, kept at the frame's start. also:
        masks to save beside those of the scope."""
        left = self.op(f"sub i32 {self.op('load i32, ptr %slice')}, 1")
        self.line(f"store i32 {left}, ptr %slice")
        up, turn, on = (
            self.op(f"icmp eq i32 {left}, 0"),
            self.fresh("turn")[1:],
            self.fresh("on")[1:],
        )
        self.line(f"br i1 {up}, label %{turn}, label %{on}, !prof !2")
        self.label(turn)
        stop = self.op("load volatile i32, ptr %stop")
        go, leave = self.op(f"icmp eq i32 {stop}, 0"), self.fresh("leave")[1:]
        self.line(f"br i1 {go}, label %{leave}, label %stopped, !prof !0")
        self.label(leave)
        self.line(f"store i32 {mask}, ptr %frame")
        self._suspend(scope, live, runtime.READY, also)
        self.line(f"br label %{on}")
        self.label(on)

    def _await(self, block: int, mask: str) -> None:
        old = self.op(f"load i32, ptr {self._pending(block)}")
        self.line(f"store i32 {self.op(f'or i32 {old}, {mask}')}, ptr {self._pending(block)}")

    def _retire(self, mask: str) -> None:
        if self.sanitizing and self._ending:
            self.sanitizing.ends(mask, self._number(self._ending))
        old = self.op("load i32, ptr %alive")
        gone = self.op(f"xor i32 {mask}, -1")
        self.line(f"store i32 {self.op(f'and i32 {old}, {gone}')}, ptr %alive")

    def _leave(self, target: int | None, mask: str) -> None:
        """Lanes leave their scope: to wait at a block, or for good."""
        if target is None:
            self._retire(mask)
        else:
            self._await(target, mask)

    def _exhausted(self, scope: Scope) -> str:
        """Where the warp goes on when no lane is left in a scope."""
        if scope is self.structure.root:
            return "exit"
        if scope.parent is None:
            return f"leave{scope.entry}"
        component, next_ = scope.parent, scope.parent.parts.index(scope) + 1
        if component.waits and next_ <= component.barriers:
            return self._part_label(component, next_)
        if component.cyclic:
            return f"c{component.number}"
        return self._part_label(component, next_)

    def _part_label(self, component: Component, k: int) -> str:
        if component.waits and k == component.meetings:
            return f"c{component.number}_turned"
        if component.waits and k == component.barriers:
            return f"c{component.number}"
        if k < len(component.parts):
            return f"c{component.number}_{k}"
        return f"c{component.number}_join"

    def _go(self, at: int, scope: Scope, target: int | None, mask: str) -> None:
        """All lanes of the scope go to target."""
        if target is None or not scope.holds(target):
            if not self._leaves(self.graph.blocks[at]):
                self._leave(target, mask)
            self.line(f"br label %{self._exhausted(scope)}")
            return
        if target <= at:
            self._take_turn(scope, self.graph.blocks[target].live_in | scope.preserve, mask)
            mask = self._current_mask(scope)
        component = scope.component_of(target)
        if component is None:
            self.line(f"br label %b{target}")
        else:
            self._await(target, mask)
            self.line(f"br label %c{component.number}")

    def _end(self, at: int, scope: Scope, end: Branch) -> None:
        self._ending = end.instruction or self._last
        if end.guard is None:
            self._go(at, scope, end.target, self.mask)
            return
        taken, otherwise = end.target, end.otherwise
        if end.negated:
            taken, otherwise = otherwise, taken
        guard = self.read(end.guard)
        if guard.pattern is not None:
            yes, no = self.fresh("taken")[1:], self.fresh("otherwise")[1:]
            self.line(f"br i1 {guard.ssa}, label %{yes}, label %{no}")
            for label, target in ((yes, taken), (no, otherwise)):
                self.label(label)
                self._go(at, scope, target, self.mask)
            return
        chosen = self.op(f"bitcast {vector('i1')} {guard.ssa} to i32")
        there = self.op(f"and i32 {self.mask}, {chosen}")
        here = self.op(f"and i32 {self.mask}, {self.op(f'xor i32 {chosen}, -1')}")
        if self.counting:
            self.counting.branch(there, here)
        inside = [(t, m) for t, m in ((taken, there), (otherwise, here)) if scope.holds(t)]
        outside = [(t, m) for t, m in ((taken, there), (otherwise, here)) if not scope.holds(t)]
        for target, mask in outside:
            self._leave(target, mask)
        if len(inside) == 2:
            # A branch may go straight to its join, and that may be in the next component.
            component = next(
                c for c in scope.components if all(t in c.blocks or t == c.join for t, _ in inside)
            )
            for target, mask in inside:
                self._await(target, mask)
            self.line(f"br label %c{component.number}")
        elif len(inside) == 1:
            ((target, mask),) = inside
            self.line(f"store i32 {mask}, ptr {self._mask_slot(scope)}")
            some, stay = self.op(f"icmp ne i32 {mask}, 0"), self.fresh("stay")[1:]
            self.line(f"br i1 {some}, label %{stay}, label %{self._exhausted(scope)}")
            self.label(stay)
            self._go(at, scope, target, mask)
        else:
            self.line(f"br label %{self._exhausted(scope)}")

    def _component(self, component: Component) -> None:
        n = component.number
        self.label(f"c{n}")
        if component.cyclic:
            live = component.scope.preserve
            for part in component.parts:
                live |= self.graph.blocks[part.entry].live_in
            if component.join is not None:
                live |= self.graph.blocks[component.join].live_in
            on_their_way = component.parts[: component.meetings or None]
            waiting = [p for p in on_their_way if p.entry in self.structure.waiting_loops]
            for part in [*on_their_way[:1], *waiting[:1]]:  # where a deadlock would be
                first = self.graph.blocks[part.entry]
                written = [*first.instructions, first.end.instruction]
                self._last = written[0] or self._last
            mask = self._any(on_their_way)
            self._take_turn(component.scope, live, mask, self._waiting(component))
        self.line(f"br label %{self._part_label(component, 0)}")
        for k, part in enumerate(component.parts):
            self.label(f"c{n}_{k}")
            waiting = self._pending(part.entry)
            if component.waits and component.meetings <= k < component.barriers:
                waiting = self._released(part.entry)
            mask = self.op(f"load i32, ptr {waiting}")
            some = self.op(f"icmp ne i32 {mask}, 0")
            self.line(
                f"br i1 {some}, label %c{n}_{k}_enter, label %{self._part_label(component, k + 1)}"
            )
            self.label(f"c{n}_{k}_enter")
            self.line(f"store i32 0, ptr {waiting}")
            self.line(f"store i32 {mask}, ptr {self._mask_slot(part)}")
            self.line(f"br label %b{part.entry}")
        if component.waits:
            self._turned(component)
        self.label(f"c{n}_join")
        scope, join = component.scope, component.join
        if join is None:
            self.line(f"br label %{self._exhausted(scope)}")
            return
        next_ = scope.component_of(join)
        if next_ is not None:
            self.line(f"br label %c{next_.number}")
            return
        mask = self.op(f"load i32, ptr {self._pending(join)}")
        self.line(f"store i32 0, ptr {self._pending(join)}")
        self.line(f"store i32 {mask}, ptr {self._mask_slot(scope)}")
        some = self.op(f"icmp ne i32 {mask}, 0")
        self.line(f"br i1 {some}, label %b{join}, label %{self._exhausted(scope)}")

    def _turned(self, component: Component) -> None:
        """When each part had its turn: again; or if no lane is on its way, on from all meetings.

        If none is at one either, on to the parts with barriers.
        """
        n, first, end = component.number, component.meetings, component.barriers
        self.label(f"c{n}_turned")
        self._branch_if_any(component.parts[:first], f"c{n}", f"c{n}_met")
        self.label(f"c{n}_met")
        rest = f"c{n}_{end}" if end < len(component.parts) else f"c{n}_join"
        if first == end:
            self.line(f"br label %{rest}")
            return
        self._branch_if_any(component.parts[first:end], f"c{n}_go", rest)
        self.label(f"c{n}_go")
        for part in component.parts[first:end]:
            mask = self.op(f"load i32, ptr {self._pending(part.entry)}")
            self.line(f"store i32 {mask}, ptr {self._released(part.entry)}")
            self.line(f"store i32 0, ptr {self._pending(part.entry)}")
        self.line(f"br label %c{n}_{first}")

    def _branch_if_any(self, parts: list[Scope], yes: str, no: str) -> None:
        """Goes to the label `yes` if lanes wait to enter one of some parts, else to `no`."""
        some = self.op(f"icmp ne i32 {self._any(parts)}, 0")
        self.line(f"br i1 {some}, label %{yes}, label %{no}")

    def _any(self, parts: list[Scope]) -> str:
        """The lanes that wait to enter one of some parts."""
        mask = "0"
        for part in parts:
            waiting = self.op(f"load i32, ptr {self._pending(part.entry)}")
            mask = self.op(f"or i32 {mask}, {waiting}")
        return mask

    # -- functions ----------------------------------------

    def _enter(self, scope: Scope, i: ptx.Instruction, live: int) -> None:
        """Calls a function: the active lanes go through it, all others wait where they are."""
        name = i.operands[1].name
        function = self.structure.functions[name]
        live = (live | scope.preserve) & ~self.graph.bits(destinations(i))
        kept, size = [], 0
        for slot, ty in self._kept(scope, live):
            size = -(-size // alignment_of(ty)) * alignment_of(ty)
            kept.append((slot, ty, size))
            size += bytes_of(ty)
        size = -(-size // 64) * 64
        top = self.op("load i64, ptr %stacked")
        after = self.op(f"add i64 {top}, {size}")
        full = self.op(f"icmp ugt i64 {after}, {self.stack_bytes}")
        self._fault_if(_STACK_OVERFLOW, i, self.op(f"select i1 {full}, i32 {self.mask}, i32 0"))
        self._save(kept, self.op(f"getelementptr i8, ptr %stack, i64 {top}"))
        self.line(f"store i64 {after}, ptr %stacked")
        self.line(f"store i32 {self.mask}, ptr {self._mask_slot(function)}")
        for mask in self._elsewhere(scope):
            self.line(f"store i32 0, ptr {mask}")
        sites = self._returns[name]
        self.line(f"store i32 {len(sites)}, ptr %site")
        sites.append(self.fresh("back")[1:])
        self.line(f"br label %b{function.entry}")
        self.label(sites[-1])
        top = self.op(f"sub i64 {self.op('load i64, ptr %stacked')}, {size}")
        self.line(f"store i64 {top}, ptr %stacked")
        self._restore(kept, self.op(f"getelementptr i8, ptr %stack, i64 {top}"))
        if self.lanes_end_in_functions:
            slot = self._mask_slot(scope)
            mask = self.op(f"load i32, ptr {slot}")
            mask = self.op(f"and i32 {mask}, {self.op('load i32, ptr %alive')}")
            self.line(f"store i32 {mask}, ptr {slot}")
            some, stay = self.op(f"icmp ne i32 {mask}, 0"), self.fresh("stay")[1:]
            self.line(f"br i1 {some}, label %{stay}, label %{self._exhausted(scope)}")
            self.label(stay)
        self.mask = self._current_mask(scope)

    def _return(self, name: str, sites: list[str]) -> None:
        """Where a function's lanes go when all have reached its end."""
        self.label(f"leave{self.graph.entries[name]}")
        site = self.op("load i32, ptr %site")
        cases = " ".join(f"i32 {n}, label %{label}" for n, label in enumerate(sites))
        self.line(f"switch i32 {site}, label %never [ {cases} ]")
