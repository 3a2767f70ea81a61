"""Where lanes go on that are missing at a barrier, as far as the flow graph says."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from . import ptx
from .flow import Block, Graph, is_meeting

_ACCESSES = {"ld", "st", "atom", "red", "call", "bar", "barrier"}


@dataclass(frozen=True)
class Ahead:
    """Lanes go on at `start`, and come to `stop` next, if there is only one thing to come to.

    what: "barrier", "meeting" (of lanes: __syncwarp() or a shuffle), "loop" (one that waits), "end"
    (of the kernel) or "" where that depends.
    """

    start: ptx.Instruction | None
    stop: ptx.Instruction | None
    what: str

    def of(self, barrier: ptx.Instruction) -> tuple[int, str]:
        """A line for lanes that others wait for at a barrier, and a clause that says the same."""
        stop = self.stop.line if self.stop is not None else 0
        start = self.start.line if self.start is not None else stop
        if self.what == "barrier" and self.stop.ptx_line != barrier.ptx_line:
            return stop, f"it goes to the barrier on line {stop} instead"
        if self.what == "meeting":
            name = "__syncwarp()" if self.stop.name == "bar.warp.sync" else f"{self.stop.opcode}"
            return stop, f"it waits at the {name} on line {stop}"
        if self.what == "loop":
            return stop, f"it waits in the loop on line {stop}"
        if self.what == "end":
            return start, f"it goes on at line {start} and ends without it"
        return start, f"it is on line {start}"


def ahead(graph: Graph, waiting_loops: Set[int], at: int, first: int = 0) -> Ahead:
    """What lanes come to from instruction number `first` of block `at` on."""
    stops: dict[str, tuple[str, ptx.Instruction | None]] = {}
    stack, seen = [(at, first)], set()
    while stack:
        b, k = stack.pop()
        block = graph.blocks[b]
        if b in waiting_loops:
            stops[f"loop {b}"] = "loop", _first(block, 0)
            continue
        meeting = next((i for i in block.instructions[k:] if is_meeting(i)), None)
        if meeting is not None:
            barrier = meeting.opcode in ("bar", "barrier") and "warp" not in meeting.modifiers
            stops[f"{b} {meeting.ptx_line}"] = ("barrier" if barrier else "meeting"), meeting
            continue
        if len(block.end.successors) < (2 if block.end.guard else 1):
            stops["end"] = "end", _first(block, len(block.instructions))
        for s in block.end.successors:
            if s not in seen:
                seen.add(s)
                stack.append((s, 0))
    start = _first(graph.blocks[at], first)
    in_function = at >= min(graph.entries.values(), default=at + 1)
    if len(stops) != 1 or in_function and "end" in stops:
        return Ahead(start, None, "")
    ((what, stop),) = stops.values()
    return Ahead(start, stop, what)


def _first(block: Block, k: int) -> ptx.Instruction | None:
    """The first instruction of a block from number k on that does what its line says: an access,
    since what addresses are made of has the lines of declarations; or else any with a line."""
    rest = [i for i in (*block.instructions[k:], block.end.instruction) if i is not None and i.line]
    accesses = [i for i in rest if i.opcode in _ACCESSES and "param" not in i.modifiers]
    return next(iter(accesses + rest), None)
