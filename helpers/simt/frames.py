"""Which registers of a large kernel are kept in the warp's frame all the time.

A register is otherwise an LLVM value, which is fast, but where the warp may have to return to the
scheduler (at a barrier, a loop's back edge, a function's first block) or calls a function, code
saves and restores each one that is live. In a kernel with many such places and many registers
that code, and LLVM's work to join the values at each place, outgrows all else: it can take minutes
to compile. There the registers that are live at many places live in memory.
"""

from __future__ import annotations

from collections import Counter

from .flow import Graph, destinations
from .scopes import Structure

MANY = 1000  # saves of registers in a kernel
OFTEN = 2  # places at which one register is saved


def resident(graph: Graph, structure: Structure, invariant) -> list[str]:
    """The registers to keep in the frame; invariant: those that are computed anew instead."""
    sets = Counter(_live_sets(graph, structure))
    names = [name for name in graph.kernel.registers if name not in invariant]
    saves = {
        name: sum(n for live, n in sets.items() if graph.is_live(name, live)) for name in names
    }
    if sum(saves.values()) < MANY:
        return []
    return [name for name, n in saves.items() if n >= OFTEN]


def _live_sets(graph: Graph, structure: Structure):
    """The registers that are live at each place where code saves them, as bit sets."""
    for block in graph.blocks:
        preserve = structure.owner[block.index].preserve
        for i, live in zip(block.instructions, graph.live_after(block), strict=True):
            if i.opcode == "enter":
                yield (live | preserve) & ~graph.bits(destinations(i))
            elif i.opcode in ("bar", "barrier") and "warp" not in i.modifiers:
                yield live
        for target in block.end.successors:
            if target <= block.index:
                yield graph.blocks[target].live_in | preserve
    for entry in graph.entries.values():
        yield graph.blocks[entry].live_in
    for component in structure.components:
        if component.cyclic:
            live = component.scope.preserve
            for part in component.parts:
                live |= graph.blocks[part.entry].live_in
            yield live
