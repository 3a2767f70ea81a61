"""Which of two accesses comes first in the program, as far as it says.

Races are between accesses that no barrier separates. Where one can be reached from the other
without passing a barrier, and not the other way round, that is their order, whichever the engine
ran first. In a loop without a barrier both ways exist: then how far the two warps have got since
their last barrier decides.
"""

from __future__ import annotations

from functools import cache

from .flow import Graph, is_meeting
from .sanitizer import Access


class ProgramOrder:
    """Of the instructions of one kernel, named by their ids."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.places = [(b.index, k) for b in graph.blocks for k in range(len(b.instructions))]
        self._reachable = cache(self._reachable)

    def first(self, a: Access, b: Access) -> tuple[Access, Access]:
        """The two, the one that comes first in the program first."""
        there, back = b.number in self._reachable(a.number), a.number in self._reachable(b.number)
        if there != back:
            return (a, b) if there else (b, a)
        place = lambda x: (x.position if there else 0, x.instruction.line, x.number)  # noqa: E731
        return (a, b) if place(a) <= place(b) else (b, a)

    def _reachable(self, number: int) -> set[int]:
        """The instructions that can be reached from after one without passing a barrier."""
        if not 0 <= number < len(self.places):
            return set()
        firsts, total = [], 0
        for b in self.graph.blocks:
            firsts.append(total)
            total += len(b.instructions)
        at, k = self.places[number]
        found: set[int] = set()
        stack, seen = [(at, k + 1)], set()
        while stack:
            at, k = stack.pop()
            block = self.graph.blocks[at]
            for n in range(k, len(block.instructions)):
                i = block.instructions[n]
                if i.opcode in ("bar", "barrier") and is_meeting(i):
                    break
                found.add(firsts[at] + n)
            else:
                for s in block.end.successors:
                    if s not in seen:
                        seen.add(s)
                        stack.append((s, 0))
        return found
