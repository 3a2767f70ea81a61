"""Matrices with more than 2^32 elements, where an index in 32 bits overflows.

Only the last block of the grid runs, on memory of which only the pages it needs exist: rows of A or
columns of B near the corner that it computes hold data, all else is zero.
"""

from __future__ import annotations

import ctypes

import numpy as np

from helpers import simt
from helpers.sandbox import function_named

from .accesses import place_of, who
from .diagnosis import Diagnosis
from .subject import Refused, Shape, Subject
from .trial import NAMES, close, pack, size

LIMIT = 1 << 32  # elements: the index of the last is neither an int nor an unsigned
MANY = 55_000_000  # rows or columns: with 80 of the other size they pass the limit
CAPACITY = 40 << 30  # bytes of address space
GUARD = 9 << 30  # bytes: an index that is negative by an overflow is at most 8 GiB before its array
EDGE = 300  # rows and columns next to the corner that hold data
SECONDS = 1.0  # a block needs milliseconds; one of a grid of fixed size would need for ever


class Large:
    """A kernel of its own memory. Raises what `Trial` does, and OSError where so much address space
    cannot be had."""

    def __init__(self, subject: Subject, ptx: str):
        self.subject = subject
        self._memory = simt.Memory(CAPACITY, guard=GUARD, huge_pages=False)
        self._function = function_named(simt.Module(ptx, self._memory), subject.entry)

    def compile(self) -> None:
        self._function.compiled(self.subject.block)

    def check(self) -> tuple[Diagnosis | None, bool]:
        """What goes wrong, and whether all could be tried."""
        tried = True
        for shape in self._shapes():
            found = self._try(shape) if shape else None
            tried &= found is not None
            if isinstance(found, Diagnosis):
                return found, True
        return None, tried

    def _shapes(self) -> list[Shape | None]:
        return [self._with_many("M"), self._with_many("N")]

    def _with_many(self, name: str) -> Shape | None:
        """As many rows (or columns) as a grid can have, up to `MANY`, and as few of K as then pass
        the limit."""
        many = MANY
        while many > 40_000:
            others = -(-LIMIT // many) + 8
            shape = (many, 40, others) if name == "M" else (others, many, others)
            try:
                self.subject.grid(*shape[:2])
                return shape
            except Refused:
                many //= 2
        return None

    def _try(self, shape: Shape) -> Diagnosis | bool | None:
        """A diagnosis; True if the corner is right; None if that cannot be told."""
        M, N, K = shape
        starts = {}
        try:
            for name, count in zip(NAMES, (M * K, K * N, M * N), strict=True):
                starts[name] = self._memory.allocate(4 * count)
            return self._corner(shape, starts)
        except simt.OutOfMemory:
            return None
        finally:
            for start in starts.values():
                self._memory.free(start)

    def _corner(self, shape: Shape, starts: dict[str, int]) -> Diagnosis | bool | None:
        M, N, K = shape
        row, column = max(0, M - EDGE), max(0, N - EDGE)
        random = np.random.default_rng(3)
        A = random.uniform(1, 2, (M - row, K)).astype(np.float32)
        B = random.uniform(1, 2, (K, N - column)).astype(np.float32)
        view(starts["A"], M, K)[row:] = A
        if self.subject.b_transposed:
            view(starts["B"], N, K)[column:] = B.T
        else:
            view(starts["B"], K, N)[:, column:] = B
        C = view(starts["C"], M, N)[row:, column:]
        C[:] = np.nan
        grid = self.subject.grid(M, N)
        last = grid[0] * grid[1] * grid[2] - 1
        try:
            self._function.launch(
                grid, self.subject.block, pack(self._function, starts, shape),
                self.subject.shared, blocks=range(last, last + 1), seconds=SECONDS,
            )  # fmt: skip
        except simt.Fault as fault:
            return None if fault.kind == "time" else _overflow(fault, starts, shape)
        stored = ~np.isnan(C)
        if not stored.any():
            return self._stray(shape, starts)
        wrong = stored & ~close(C, A, B)
        if not wrong.any():
            return True
        r, c = (int(n) for n in np.argwhere(wrong)[0])
        exact = float(A[r].astype(np.float64) @ B[:, c])
        return Diagnosis("integer overflow", (
            f"With {size(shape)}, C[{row + r:,}, {column + c:,}] is {C[r, c]:.6g} instead of "
            f"{exact:.6g}: indices there are beyond 2^31 - 1, the largest int. With small sizes "
            "the kernel is right.",))  # fmt: skip

    def _stray(self, shape: Shape, starts: dict[str, int]) -> Diagnosis | None:
        """Where an index modulo 2^32 would be, if the block has stored there."""
        M, N, _ = shape
        last = (M - 1) * N + N - 1
        index = last % (1 << 32)
        if index == last or index >= M * N:
            return None
        row, column = divmod(index, N)
        if view(starts["C"], M, N)[row, column] == 0:
            return None
        return Diagnosis("integer overflow", (
            f"With {size(shape)}, the last element of C has index {last:,}, and is stored at index "
            f"{index:,}, which is 2^32 less.",))  # fmt: skip


def view(start: int, rows: int, columns: int) -> np.ndarray:
    """Device memory as a matrix."""
    data = (ctypes.c_float * (rows * columns)).from_address(start)
    return np.frombuffer(data, np.float32).reshape(rows, columns)


def _overflow(fault: simt.Fault, starts: dict[str, int], shape: Shape) -> Diagnosis:
    lines = (fault.line,) if fault.line else ()
    told = f"With {size(shape)}, {who(fault)}"
    known = "With small sizes the kernel is right."
    if fault.kind != "out of bounds":
        return Diagnosis("integer overflow", (f"{told}: {fault.detail}.", known), lines)
    place = place_of(fault, starts, shape)
    verb = "reads" if "read" in fault.detail else "writes"
    element = f"{place.array}[{place.index:,}]"
    told = f"{told} {verb} {element}; {place.array} has {place.elements:,} elements"
    true = place.index + (1 << 32)
    why = (f": the index was to be {true:,}, beyond 2^31 - 1, the largest int."
           if 0 <= true < place.elements else ", more than an int can count.")  # fmt: skip
    return Diagnosis("integer overflow", (told + why, known), lines)
