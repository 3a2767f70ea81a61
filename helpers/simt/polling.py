"""Loops in which a thread waits for another, found in the flow graph.

Such a loop reads memory that others write (a flag, a lock) and goes round until it finds what it
waits for. What it reads has to be volatile or atomic: else the compiler reads it once. A loop in
which the next read depends on what the last one found does not wait but work: it retries a
compare-and-swap with the new value, or follows a list.
"""

from __future__ import annotations

from .flow import Graph, destinations, is_poll, sources


def waiting_loops(graph: Graph) -> set[int]:
    """The first blocks of the loops in which a thread may wait for another."""
    found = set()
    for block in graph.blocks:
        for first in block.end.successors:
            if first <= block.index and _waits(graph, _loop(graph, first, block.index)):
                found.add(first)
    return found


def _loop(graph: Graph, first: int, last: int) -> set[int]:
    """The blocks of the loop with an edge from `last` back to `first`."""
    loop, stack = {first}, [last]
    while stack:
        b = stack.pop()
        if b not in loop:
            loop.add(b)
            stack += graph.blocks[b].predecessors
    return loop


def _waits(graph: Graph, loop: set[int]) -> bool:
    blocks = [graph.blocks[b] for b in loop]
    exits = {
        b.end.guard for b in blocks if b.end.guard and not loop.issuperset(b.end.successors)
    } | {b.end.guard for b in blocks if b.end.guard and len(b.end.successors) < 2}
    for block in blocks:
        for i in block.instructions:
            if is_poll(i):
                results = graph.bits(destinations(i))
                data = _affected(graph, blocks, results, control=False)
                if data & graph.bits(sources(i)):
                    continue
                if _affected(graph, blocks, results, control=True) & graph.bits(exits):
                    return True
    return False


def _affected(graph: Graph, blocks, registers: int, control: bool) -> int:
    """Registers (a bit set) computed in some blocks from some; control: or set if one holds."""
    steps = [
        (graph.bits(sources(i)), graph.bits(destinations(i)), block)
        for block in blocks
        for i in block.instructions
    ]
    before = 0
    while before != registers:
        before = registers
        chosen = set()
        for block in blocks if control else ():
            if block.end.guard and registers & graph.bits([block.end.guard]):
                chosen |= {
                    s for s in block.end.successors if len(graph.blocks[s].predecessors) == 1
                }
        for of, to, block in steps:
            if registers & of or block.index in chosen:
                registers |= to
    return registers
