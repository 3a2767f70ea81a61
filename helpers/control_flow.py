"""Loops and conditions of a control-flow graph, whatever its blocks hold: PTX or machine code."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.simt.flow import dominators

_EXIT = -1


class ControlFlow:
    """A graph of blocks, numbered from 0, which is the entry.

    successors: of each block; an empty one ends the program, -1 is its end for some threads.
    """

    def __init__(self, successors: Sequence[Sequence[int]]):
        self.successors = [tuple(dict.fromkeys(after)) or (_EXIT,) for after in successors]
        self.blocks = range(len(self.successors))
        self.loops = self._natural_loops()
        self._controls = self._control_dependence()

    def depth(self, block: int) -> int:
        """How many loops `block` lies in."""
        return sum(block in body for body in self.loops.values())

    def innermost_loop(self, block: int) -> int | None:
        """The header of the smallest loop around `block`, or None."""
        around = [header for header, body in self.loops.items() if block in body]
        return min(around, key=lambda header: len(self.loops[header]), default=None)

    def conditions(self, block: int) -> frozenset[int] | None:
        """The blocks whose branches decide whether `block` runs, those of its loops left out.

        A branch that goes back to a loop's header or leaves the loop says how often the loop's
        body runs, not whether a block of it does.  None: unknown, for a block from which the end
        cannot be reached or which cannot be reached itself.
        """
        return self._controls.get(block)

    def steers_a_loop(self, block: int) -> bool:
        """Whether the branch of `block` is one that repeats or leaves a loop around it."""
        return any(
            block in body and any(s == header or s not in body for s in self.successors[block])
            for header, body in self.loops.items()
        )

    def reaches(self, start: int, goals: set[int], without: int) -> bool:
        """Whether a way leads from `start` to one of `goals` that does not pass `without`."""
        seen, pending = {without, _EXIT}, [start]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            if at in goals:
                return True
            seen.add(at)
            pending += self.successors[at]
        return False

    def _natural_loops(self) -> dict[int, frozenset[int]]:
        """Header -> body (Aho, Sethi and Ullman, section 10.4); loops of one header are one."""
        idom = dominators(0, set(self.blocks), lambda n: self.successors[n])
        before: dict[int, list[int]] = {n: [] for n in self.blocks}
        for n in idom:
            for s in self.successors[n]:
                if s != _EXIT:
                    before[s].append(n)
        loops: dict[int, set[int]] = {}
        for n in idom:
            for header in self.successors[n]:
                if header != _EXIT and _dominates(idom, header, n):
                    body = loops.setdefault(header, {header})
                    pending = [n]
                    while pending:
                        at = pending.pop()
                        if at not in body:
                            body.add(at)
                            pending += before[at]
        return {header: frozenset(body) for header, body in loops.items()}

    def _control_dependence(self) -> dict[int, frozenset[int]]:
        """Ferrante, Ottenstein and Warren (1987), closed over what the branches depend on."""
        reachable = dominators(0, set(self.blocks), lambda n: self.successors[n])
        before: dict[int, list[int]] = {n: [] for n in (*self.blocks, _EXIT)}
        for n in reachable:
            for s in self.successors[n]:
                before[s].append(n)
        after = dominators(_EXIT, set(before), lambda n: before[n])
        direct: dict[int, set[int]] = {n: set() for n in self.blocks if n in after}
        for n in direct:
            if len(self.successors[n]) < 2 or self.steers_a_loop(n):
                continue
            for s in self.successors[n]:
                while s != after[n] and s in direct:
                    direct[s].add(n)
                    s = after[s]
        closed = {}
        for n in direct:
            found: set[int] = set()
            pending = list(direct[n])
            while pending:
                at = pending.pop()
                if at not in found:
                    found.add(at)
                    pending += direct[at]
            closed[n] = frozenset(found)
        return closed


def _dominates(idom: dict[int, int | None], a: int, b: int) -> bool:
    at: int | None = b
    while at is not None and at != a:
        at = idom[at]
    return at == a
