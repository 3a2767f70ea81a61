"""Which lanes are active, and which wait to enter some part of the graph.

Every scope (see scopes) has a mask of its active lanes, and every entry of a divergent component
one of the lanes that wait there. They are variables of the warp's function.
"""

from __future__ import annotations

from . import ptx
from .emitter import Emitter
from .flow import Block, Graph
from .layout import Layout
from .scopes import Component, Scope
from .shapes import Shapes


class Masks(Emitter):
    """What is known of the lanes, and the names of the masks."""

    def __init__(self, layout: Layout, graph: Graph, shapes: Shapes):
        super().__init__(layout.kernel, shapes)
        self.layout, self.graph, self.geometry = layout, graph, shapes.geometry
        self.structure = shapes.structure
        self._functions_of = {s.entry: name for name, s in shapes.structure.functions.items()}
        self.lanes_end_in_functions = self._lanes_end_in_functions()
        self.whole = self._mask_never_changes()
        self._ids = {}
        for block in graph.blocks:
            for i in block.instructions:
                self._ids[id(i)] = len(layout.sources)
                layout.sources.append(i)

    def id_of(self, i: ptx.Instruction) -> int:
        """An instruction's id: its place in layout.sources."""
        return self._ids[id(i)]

    def _number(self, i: ptx.Instruction) -> int:
        """The id of an instruction that may be a branch."""
        if id(i) not in self._ids:
            self._ids[id(i)] = len(self.layout.sources)
            self.layout.sources.append(i)
        return self._ids[id(i)]

    def _mask_never_changes(self) -> bool:
        """Whether outside all components every lane is always active."""
        if not self.geometry.whole_warps:
            return False
        root = self.structure.root
        for block in self.graph.blocks:
            ends = not self._leaves(block) and self._can_end(block)
            divergent = block.index in self.structure.divergent
            if ends and (divergent or self.structure.owner[block.index] is not root):
                return False
        return True

    def _can_end(self, block: Block) -> bool:
        """Whether lanes may end after a block."""
        return block.end.target is None or bool(block.end.guard) and block.end.otherwise is None

    def _leaves(self, block: Block) -> bool:
        """Whether a block is a function's end."""
        return bool(block.instructions) and block.instructions[-1].opcode == "leave"

    def _lanes_end_in_functions(self) -> bool:
        first = min(self.graph.entries.values(), default=len(self.graph.blocks))
        return any(self._can_end(b) and not self._leaves(b) for b in self.graph.blocks[first:])

    def _mask_slot(self, scope: Scope) -> str:
        return "%mask" if scope is self.structure.root else f"%mask{scope.entry}"

    def _current_mask(self, scope: Scope) -> str:
        if scope is self.structure.root and self.whole:
            return "-1"
        return self.op(f"load i32, ptr {self._mask_slot(scope)}")

    def _mask_slots(self) -> list[str]:
        """The masks of all scopes but the kernel's, and of the lanes waiting to enter each."""
        parts = [p for c in self.structure.components for p in c.parts]
        scopes = [*self.structure.functions.values(), *parts]
        waiting = {w: None for c in self.structure.components for w in self._waiting(c)}
        return [*map(self._mask_slot, scopes), *waiting]

    def _waiting(self, component: Component) -> list[str]:
        """The masks of the lanes waiting to enter a component's scopes and its join."""
        places = [*(p.entry for p in component.parts), component.join]
        masks = [self._pending(b) for b in places if b is not None]
        if component.waits:
            meetings = component.parts[component.meetings : component.barriers]
            masks += [self._released(p.entry) for p in meetings]
        return masks

    def _elsewhere(self, scope: Scope) -> list[str]:
        """The masks of the lanes that wait somewhere while a scope runs."""
        masks = []
        while scope.parent is not None:
            masks += self._waiting(scope.parent)
            scope = scope.parent.scope
        return list(dict.fromkeys(masks))

    def _pending(self, block: int) -> str:
        return f"%pending{block}"

    def _released(self, block: int) -> str:
        return f"%released{block}"
