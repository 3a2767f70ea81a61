"""What a right kernel does with memory, counted, and notes on it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from helpers import simt
from helpers.sandbox import function_named
from helpers.simt.codegen import Instruments

from .subject import Subject
from .trial import Attempt, matrices, pack

# Multiples of usual tiles, and of a sector and of all banks; several blocks, several tiles of K.
SHAPE = 128, 128, 128
MANY = 4.0  # sectors for each request, beyond the ideal ones, from which on a line is uncoalesced
WEIGHT = 0.2  # of all sectors that a line must have to be worth a note


@dataclass(frozen=True)
class Note:
    """Something that is not wrong."""

    name: str
    text: str
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"note: {self.name}: {self.text}"


@dataclass(frozen=True)
class Use:
    """What one line asks of one space with one operation: sectors or wavefronts, and how few would
    do."""

    line: int
    requests: int
    units: int
    ideal: int

    @property
    def extra(self) -> int:
        """Units beyond the ideal."""
        return self.units - self.ideal


class Traffic:
    """Counts of one launch with `SHAPE`. They do not depend on the machine."""

    def __init__(self, subject: Subject, ptx: str):
        self.subject = subject
        self._memory = simt.Memory(1 << 26)
        self._function = function_named(simt.Module(ptx, self._memory), subject.entry)
        self._uses: dict[tuple[str, str, int], Use] = {}
        self.barriers = 0  # times that a warp has come to one
        self.stored_bytes = 0  # by all threads, to global memory

    def compile(self) -> None:
        """Makes the code that counts."""
        self._function.compiled(self.subject.block, Instruments(count=True))

    def measure(self) -> None:
        """Makes the launch. Raises Refused, simt.Fault."""
        M, N, _ = SHAPE
        A, B = matrices(SHAPE)
        given = np.ascontiguousarray(B.T) if self.subject.b_transposed else B
        starts = {}
        for name, array in (("A", A), ("B", given), ("C", np.zeros((M, N), np.float32))):
            starts[name] = self._memory.allocate(array.nbytes)
            ctypes.memmove(starts[name], array.ctypes.data, array.nbytes)
        counts = self._function.count(
            self.subject.grid(M, N), self.subject.block, pack(self._function, starts, SHAPE),
            self.subject.shared,
        )  # fmt: skip
        self.barriers = sum(
            block.runs for block in counts.blocks for i in block.instructions
            if i.opcode in ("bar", "barrier") and "warp" not in i.modifiers
        )  # fmt: skip
        for access in counts.accesses:
            for space, cost in access.costs.items():
                if space == "global" and access.operation == "store":
                    self.stored_bytes += cost.lanes * access.size
                key = space, access.operation, access.instruction.line
                old = self._uses.get(key, Use(key[2], 0, 0, 0))
                self._uses[key] = Use(key[2], old.requests + cost.requests, old.units + cost.units,
                                      old.ideal + cost.ideal)  # fmt: skip

    def uses(self, space: str) -> list[Use]:
        """Of a space, in the order of the lines."""
        found = [use for (where, _, _), use in self._uses.items() if where == space]
        return sorted(found, key=lambda use: use.line)

    def total(self, space: str) -> Use:
        """The sum over all lines."""
        uses = self.uses(space)
        return Use(0, *(sum(getattr(u, n) for u in uses) for n in ("requests", "units", "ideal")))


def notes(traffic: Traffic, a: Attempt, declared: int) -> list[Note]:
    """What may be slow in a right kernel. a: a launch of it; declared: its bytes of shared
    memory."""
    found = []
    whole = traffic.total("global").units
    for use in traffic.uses("global"):
        if use.extra >= MANY * use.requests and use.extra > WEIGHT * whole:
            found.append(Note("uncoalesced", f"line {use.line} takes {use.units / use.requests:.1f}"
                              f" sectors per request, {use.ideal / use.requests:.1f} would hold its"
                              " bytes", (use.line,)))  # fmt: skip
    times = traffic.stored_bytes / (4 * SHAPE[0] * SHAPE[1])
    if times >= 1.5:
        found.append(Note("stored several times", f"each element of C is stored {times:.1f} times: "
                          "by several threads, or in each step of a loop?"))  # fmt: skip
    conflicts = [use for use in traffic.uses("shared") if use.extra]
    for use in conflicts:
        found.append(Note("bank conflicts", f"line {use.line} takes "
                          f"{use.units / use.requests:.1f} wavefronts per request, "
                          f"{use.ideal / use.requests:.1f} without conflicts", (use.line,)))
    unused = _unused(a.stored_words)
    if conflicts and unused:
        found.append(Note("padding not used", f"{4 * unused:,} of the {declared:,} bytes of shared "
                          "memory lie behind all that is stored: the rows are as long as without "
                          "padding"))  # fmt: skip
    return found


def _unused(stored: np.ndarray) -> int:
    """Words behind the last that is stored, where those before lie without gaps; a last word of
    padding does not count."""
    if not stored.any():
        return 0
    last = int(np.flatnonzero(stored)[-1]) + 1
    return len(stored) - last if stored[:last].all() and len(stored) - last > 3 else 0
