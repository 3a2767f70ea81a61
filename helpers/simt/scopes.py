"""Where the lanes of a warp part and meet again.

A *scope* is a part of the flow graph with one entry in which the lanes that entered it together
move in lockstep: inside it a branch whose condition is the same for all lanes is an ordinary
branch, and registers that hold one value for the whole warp stay scalars. The kernel itself is
the outermost scope; each function that it calls with `enter` is an outermost scope of its own,
which the lanes that call together enter together.

A branch whose condition differs between lanes, and the blocks it can reach before its immediate
post-dominator (the *join*), form a *component* of the scope the branch is in. Regions that
overlap make one component. Its blocks are partitioned into scopes again: each begins at a block
that lanes can reach by more than one way, and holds what that block dominates.

At run time every scope of a component has a mask of lanes waiting to enter it. The component
runs the first scope whose mask is not empty, to its end; lanes that leave a scope join the mask
of the place they go to. When all masks are empty every lane is at the join (or has ended), and
the enclosing scope goes on from there.

Lanes may wait for others of their warp: for a lock, or a flag (see polling). Then those others
must be able to run, wherever they are. So a region with such a loop goes on past its join, up to
the next place where all lanes have to meet (a barrier, a shuffle) or the end, the loop's first
block begins a scope of its own, and the component runs its scopes in turn, each once.

In such a component, and in one that has a __syncwarp() in more than one scope, every instruction
at which lanes meet begins a scope too. Lanes wait before it until no others are on their way; then
all that have come to one go on, before any comes to the next. Lanes at a barrier of the block wait
for those too.

A register written in a scope of a component must keep its old value in the lanes that are
elsewhere if one of those may still read it: `Scope.preserve` holds these registers. They are
written by a blend and cannot be scalars.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .flow import Graph, dominators, is_meeting, sources
from .polling import waiting_loops

_END = -1  # the post-dominator tree's root


@dataclass
class Scope:
    entry: int
    blocks: set[int]
    parent: Component | None = None
    reenters: bool = False  # edges back to the entry leave the scope
    components: list[Component] = field(default_factory=list)
    preserve: int = 0

    @property
    def outermost(self) -> Scope:
        return self if self.parent is None else self.parent.scope.outermost

    def holds(self, target: int | None) -> bool:
        """Whether an edge to `target` from within stays within."""
        return target in self.blocks and not (self.reenters and target == self.entry)

    def component_of(self, block: int) -> Component | None:
        return next((c for c in self.components if block in c.blocks), None)


@dataclass
class Component:
    number: int
    scope: Scope  # the one it is part of
    blocks: set[int]
    join: int | None
    parts: list[Scope] = field(default_factory=list)  # in the order they are run in
    cyclic: bool = False
    waits: bool = False  # its lanes may wait for each other
    meetings: int = 0  # the parts from here on begin where lanes of the warp meet,
    barriers: int = 0  # and those from here on have barriers


class Structure:
    """The scopes and components of a graph, given which branches diverge.

    root: the kernel's outermost scope; functions: those of the functions, by name; owner[b]: the
    innermost scope of block b; components: all of them, numbered; waiting_loops: the first blocks
    of loops in which lanes may wait for others.
    """

    def __init__(self, graph: Graph, divergent: set[int]):
        self.graph = graph
        self.divergent = divergent
        self.waiting_loops = waiting_loops(graph)
        self.components: list[Component] = []
        self.owner: dict[int, Scope] = {}
        self.root, *others = [self._outermost(b) for b in (0, *graph.entries.values())]
        self.functions = dict(zip(graph.entries, others, strict=True))

    def _outermost(self, entry: int) -> Scope:
        blocks = self.graph.blocks
        scope = Scope(entry, _reach([entry], lambda b: blocks[b].end.successors, None))
        self._build(scope)
        return scope

    def _successors(self, scope: Scope):
        blocks = self.graph.blocks
        within = {b: [s for s in blocks[b].end.successors if scope.holds(s)] for b in scope.blocks}
        return within.__getitem__

    def _build(self, scope: Scope) -> None:
        scope.reenters = scope.parent is not None and scope.entry in self.waiting_loops
        regions = self._regions(scope)
        if any(scope.entry in blocks for blocks, _ in regions):
            scope.reenters = True
            regions = self._regions(scope)
        for blocks, join in regions:
            component = Component(len(self.components), scope, blocks, join)
            self.components.append(component)
            scope.components.append(component)
        inside = set().union(*(c.blocks for c in scope.components))
        for b in scope.blocks - inside:
            self.owner[b] = scope
        if scope.components:
            successors = self._successors(scope)
            idom = dominators(scope.entry, scope.blocks, successors)
        for component in scope.components:
            self._partition(component, successors, idom)
            for part in component.parts:
                self._build(part)

    def _regions(self, scope: Scope) -> list[tuple[set[int], int | None]]:
        """The divergent regions of a scope: their blocks and where they join."""
        if self.divergent.isdisjoint(scope.blocks):
            return []
        successors = self._successors(scope)
        ends = [b for b in scope.blocks if not successors(b)]
        into: dict[int, list[int]] = {b: [] for b in scope.blocks}
        for b in scope.blocks:
            for s in successors(b):
                into[s].append(b)
        joins = dominators(_END, scope.blocks, lambda b: ends if b == _END else into[b])

        merged: list[tuple[set[int], set]] = []
        for b in sorted(self.divergent & scope.blocks):
            if len(successors(b)) < 2:
                continue  # the other lanes leave the scope here
            join = joins.get(b, _END)
            region = _reach(successors(b), successors, join)
            if region & self.waiting_loops:
                while join != _END and not self._is_meeting(join):
                    join = joins.get(join, _END)
                region = _reach(successors(b), successors, join)
            wanted = {None if join == _END else join}
            for other in [m for m in merged if m[0] & region]:
                merged.remove(other)
                region |= other[0]
                wanted |= other[1]
            merged.append((region, wanted))
        result = []
        for region, wanted in merged:
            # Where its lanes can go on: one place, or else all that follows is part of the region.
            outside = (wanted | {s for b in region for s in successors(b)}) - region - {None}
            join = outside.pop() if len(outside) == 1 else None
            if join is None:
                region = _reach(region | outside, successors, None)
            result.append((region, join))
        return result

    def _partition(self, component: Component, successors, idom: dict[int, int | None]) -> None:
        """idom: the immediate dominators of the blocks of the component's scope."""
        scope, blocks = component.scope, component.blocks
        entries = {b for b in blocks if idom.get(b) not in blocks}
        part_of = self._parts(component, entries, successors, idom)
        apart = {part_of[b] for b in blocks if self._syncs(b)}
        component.waits = len(apart) > 1 or bool(blocks & self.waiting_loops)
        if component.waits:
            entries |= blocks & self.waiting_loops | {b for b in blocks if self._is_meeting(b)}
            part_of = self._parts(component, entries, successors, idom)
        members = {e: {b for b in blocks if part_of[b] == e} for e in entries}
        # Lanes that are on their way elsewhere go first: those at a barrier wait for them.
        meets = {e: component.waits and self._is_meeting(e) for e in entries}
        order = sorted(entries, key=lambda e: (self._waits(members[e]), meets[e], e))
        component.barriers = sum(not self._waits(members[e]) for e in entries)
        component.meetings = sum(not meets[e] for e in order[: component.barriers])
        place = {e: k for k, e in enumerate(order)}
        live = {b: self.graph.blocks[b].live_in for b in entries}
        for b in blocks:
            for s in successors(b):
                if s in entries and place[s] <= place[part_of[b]]:
                    component.cyclic = True
        if component.join is None:
            at_join = self._results(scope.outermost)
        else:
            at_join = self.graph.blocks[component.join].live_in
        outer = scope.preserve
        for e in order:
            part = Scope(e, members[e], component)
            part.preserve = outer | at_join
            for other in entries:
                if component.cyclic or place[other] > place[e]:
                    part.preserve |= live[other]
            component.parts.append(part)

    def _parts(
        self, component: Component, entries: set[int], successors, idom: dict
    ) -> dict[int, int]:
        """For each block of a component the entry of its part; adds entries that are missing."""
        scope, blocks = component.scope, component.blocks
        while True:
            part_of = {}
            for b in blocks:
                at = b
                while at not in entries:
                    at = idom[at]
                part_of[b] = at
            # A part is entered at its entry alone: any other way in makes an entry of its own.
            more = {
                s
                for b in scope.blocks
                for s in successors(b)
                if s in blocks and s not in entries and part_of.get(b) != part_of[s]
            }
            more |= self._stays_behind(blocks, part_of, successors) - entries
            if not more:
                return part_of
            entries |= more

    def _syncs(self, block: int) -> bool:
        """Whether there is a __syncwarp() in a block."""
        return any(i.name == "bar.warp.sync" for i in self.graph.blocks[block].instructions)

    def _is_meeting(self, block: int) -> bool:
        return any(map(is_meeting, self.graph.blocks[block].instructions[:1]))

    def _results(self, outermost: Scope) -> int:
        """The registers that hold a function's results at its end."""
        return self.graph.bits(
            r
            for b in outermost.blocks
            for i in self.graph.blocks[b].instructions
            if i.opcode == "leave"
            for r in sources(i)
        )

    def _stays_behind(self, blocks: set[int], part_of: dict[int, int], successors) -> set[int]:
        """Where lanes go on to a barrier while others may be about to leave the part.

        Another part must begin there, so that those that leave can go on until they are at the
        barrier too, or have ended. (Lanes that leave go to another part, or round a loop again.)
        """
        inside: dict[int, list[int]] = {
            b: [s for s in successors(b) if part_of.get(s) == part_of[b] != s] for b in blocks
        }
        barriers = {b for b in blocks if self._waits({b})}
        # At the end of these a lane may leave before it comes to a barrier.
        leaving = {
            b for b in blocks if any(s in blocks and s not in inside[b] for s in successors(b))
        }
        before = -1
        while before != len(leaving):
            before = len(leaving)
            leaving |= {b for b in blocks if not leaving.isdisjoint({*inside[b]} - barriers)}
        parted = _reach(self.divergent & leaving, lambda b: leaving.intersection(inside[b]), None)
        found = {s for b in parted for s in inside[b] if s in barriers or s not in leaving}
        return {s for s in found if self._waits(_reach([s], inside.__getitem__, None))}

    def _waits(self, blocks: set[int]) -> bool:
        """Whether there is a barrier of the block in one of these."""
        return any(
            i.opcode in ("bar", "barrier") and "warp" not in i.modifiers
            for b in blocks
            for i in self.graph.blocks[b].instructions
        )


def _reach(starts, successors, stop: int | None) -> set[int]:
    seen: set[int] = set()
    stack = [s for s in starts if s != stop]
    while stack:
        b = stack.pop()
        if b not in seen:
            seen.add(b)
            stack += [s for s in successors(b) if s != stop]
    return seen
