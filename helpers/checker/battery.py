"""Which launches are made of a kernel, and what a failed one means.

A failure is explained by further launches: with the grid turned, the sizes exchanged, one size
changed at a time, more data behind the arrays. So a diagnosis rests on what makes the failure go
away, or on numbers that fit one mistake and no other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from helpers.sanitize import Finding

from . import accesses, values
from .diagnosis import Diagnosis
from .subject import Refused, Shape
from .trial import Attempt, Trial, matrices, size

Order = str | int


@dataclass(frozen=True)
class Plan:
    """The launches for one tile. square and rectangle consist of whole tiles, in any kernel."""

    tile: tuple[int, int]

    @property
    def step(self) -> int:
        """A size that is a multiple of both sides of a tile, if that is not too large."""
        step = math.lcm(*self.tile, 8)
        return step if step <= 256 else 32

    @property
    def square(self) -> Shape:
        n = self.step * -(-64 // self.step)
        n = max(n, 2 * self.step) if self.step <= 64 else n
        return n, n, n

    @property
    def rectangle(self) -> Shape:
        n = self.square[0]
        return n, n + self.step, n + 64 if self.step != 64 else n + 128

    @property
    def few_k(self) -> Shape:
        """Whole tiles of C, but less than a tile along K."""
        return self.tile[0], 2 * self.tile[1], 5

    @property
    def odd_k(self) -> Shape:
        return self.tile[0], 2 * self.tile[1], self.square[2] + 7

    @property
    def odd_edges(self) -> Shape:
        """Whole tiles along K, but not of C."""
        return self.tile[0] + 3, 2 * self.tile[1] + 15, self.square[2]

    @property
    def ragged(self) -> Shape:
        return self.tile[0] + 3, 2 * self.tile[1] + 15, self.square[2] + 6

    def launches(self, full: bool) -> Iterator[tuple[Shape, Order]]:
        """The most telling first."""
        for shape, order in self._launches(full):
            M, N, K = (max(1, n) for n in shape)
            yield (M, N, K), order

    def _launches(self, full: bool) -> Iterator[tuple[Shape, Order]]:
        rows, columns = self.tile
        yield self.square, "forward"
        yield self.rectangle, "forward"
        yield self.few_k, "forward"
        yield self.odd_k, "reversed"
        yield self.odd_edges, "forward"
        yield self.ragged, "forward"
        yield (1, 1, 1), "forward"
        yield (1, 2 * columns + 5, 37), "reversed"
        yield (2 * rows + 5, 1, 37), 1
        yield (35, 79, 19), "forward"
        yield (2 * rows - 1, columns + 1, 33), 2
        yield (rows + 1, 2 * columns - 1, 31), "reversed"
        yield (rows + 4, columns + 4, 36), "forward"  # rows of whole float4, but not whole tiles
        yield (self.square[0], self.square[1], 1), "forward"
        yield self.ragged, "reversed"
        yield self.ragged, 3
        if full:
            around = itertools.product(*((n - 1, n, n + 1) for n in (rows, 2 * columns, 32)))
            for shape, order in zip(around, itertools.cycle(("forward", "reversed", 4, 5)),
                                    strict=False):  # fmt: skip
                yield shape, order
            for order in ("reversed", 6, 7, 8):
                yield self.rectangle, order
                yield (3 * rows + 1, 2 * columns - 3, 67), order
            for K in (1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 65, 127, 129):
                yield (rows + 5, columns + 7, K), "forward"
            yield (1, 1, 300), "forward"
            yield (1000, 9, 12), "forward"
            yield (9, 1000, 12), "reversed"


class Battery:
    """Makes the launches of a plan until one fails. passed: those that have not."""

    def __init__(self, trial: Trial, full: bool):
        self.trial, self.full = trial, full
        self.plan = Plan(trial.subject.tile)
        self.passed: list[tuple[Shape, Order]] = []
        self.doubts: list[Finding] = []  # of launches with the right result
        self.first: Attempt | None = None

    def run(self) -> Iterator[Diagnosis | None]:
        """After each launch what is wrong, or None. Ends with the first diagnosis."""
        for shape, order in self.plan.launches(self.full):
            found = self._one(shape, order)
            yield found
            if found is not None:
                return

    def _one(self, shape: Shape, order: Order) -> Diagnosis | None:
        try:
            a = self.trial.run(shape, order)
        except Refused as error:
            return Diagnosis("launch refused", (f"{str(error)[0].upper()}{str(error)[1:]}.",))
        self.first = self.first or a
        found = accesses.findings(a, self.trial) if a.observations or a.fault else []
        problem = None
        if a.fault is None or a.fault.kind == "barrier":
            problem = accesses.before_values(found, a, self.trial)
        if problem is not None and problem.name == "race in global memory":
            problem = self._stray_store(a, found, problem)
        if problem is None and not a.right:
            problem = self._explain(a, found)
        if problem is None:
            self.passed.append((shape, order))
            self.doubts += [f for f in found if f.severity != "note"]
        return problem

    # -- a launch that has failed ----------------------------------------

    def _explain(self, a: Attempt, found: list[Finding]) -> Diagnosis:
        if a.fault is not None:
            return self._of_fault(a)
        if not a.written.any():
            if self._passed(a.shape):
                return self._unwritten(a)
            return Diagnosis("nothing written", (f"With {size(a.shape)}, no element of C has been "
                             "written.",), self._store_lines())  # fmt: skip
        nothing = a.written.all() and not a.C.any()
        if nothing and not self.passed:
            return Diagnosis("only zeros written", (f"With {size(a.shape)}, all elements of C are "
                             "0.",), self._store_lines())  # fmt: skip
        exited = [f for f in found if f.kind == "exited before a barrier"]
        if exited:
            return Diagnosis("return before a barrier", (
                *accesses.told(a, exited[0]), "What they would have loaded is missing: "
                f"{values.pattern(a.wrong | ~a.written, self.plan.tile)} of C wrong."),
                exited[0].lines)  # fmt: skip
        return (
            self._unset(a, found)
            or self._timing(a)
            or (None if a.written.all() else self._unwritten(a))
            or self._of_values(a)
            or self._sizes(a)
            or self._overlap(a)
            or values.wrong_result(a, self.plan.tile)
        )

    def _stray_store(self, a: Attempt, found: list[Finding], race: Diagnosis) -> Diagnosis:
        """Two blocks have stored to one place: are sizes exchanged, or is the guard missing?"""
        if not self.passed:
            return race
        other = self._sizes(a)
        if other is not None:
            return Diagnosis(other.name, (*other.evidence, *race.evidence[:1]), race.lines)
        M, N, _ = a.shape
        ragged = M % self.plan.tile[0] or N % self.plan.tile[1]
        if ragged and len(set(race.lines)) == 1 and self._passed(self.plan.rectangle):
            return Diagnosis("writes outside C", (*race.evidence, "With whole tiles of C it is "
                             "right: threads past the end of a row store into the next one.",
                             ), race.lines)  # fmt: skip
        return race

    def _of_fault(self, a: Attempt) -> Diagnosis:
        told = accesses.fault(a, self.trial)
        if a.fault.kind != "out of bounds" or not told.name.startswith(("reads", "writes")):
            return told
        if self.passed:
            other = self._sizes(a)
            if other is not None:
                return Diagnosis(other.name, (*other.evidence, *told.evidence[:1]), told.lines)
        if told.name.startswith("reads"):
            longer = self.trial.run(a.shape, extended=True)
            if longer.fault is None and longer.written.all() and not longer.right:
                more = values.more_than_the_sum(longer, self.trial.subject.b_transposed)
                if more is not None:
                    return Diagnosis(more.name, (*more.evidence, *told.evidence[:1]), told.lines)
        return told

    def _unset(self, a: Attempt, found: list[Finding]) -> Diagnosis | None:
        """NaN in C, and a read of what nobody has set."""
        broken = a.written & ~np.isfinite(a.C)
        if not broken.any():
            return None
        where = values.pattern(broken, self.plan.tile)
        told = f"With {size(a.shape)}, C is NaN in {where}."
        unset = accesses.unset(a, found)
        for f in unset:
            if accesses.reads_c(f):
                return Diagnosis("accumulator not initialised", (*accesses.told(a, f), told),
                                 f.lines)  # fmt: skip
        if unset:
            f = unset[0]
            edges = self._passed(self.plan.few_k) and self._passed(self.plan.odd_k)
            if edges:
                name = "tile not completely loaded"
            elif self._copies() and not self.passed:
                name = "copy not waited for"
            elif self._passed(self.plan.square):
                name = "missing zero fill"
            else:
                name = "read where nothing is stored"
            return Diagnosis(name, (*accesses.told(a, f), told), f.lines)
        copies = self._copies("shared", "shared::cta")
        if copies and not self._copies("wait_group", "wait_all", "mbarrier"):
            return Diagnosis("copy not waited for", ("The kernel copies by cp.async and never "
                             "waits for it.", told), copies)  # fmt: skip
        lines = self._unset_registers()
        if lines is not None:
            return Diagnosis("accumulator not initialised", (
                "A variable is added to before anything is stored in it: unset registers hold NaN "
                "in this check.", told), lines)  # fmt: skip
        return None

    def _copies(self, *kinds: str) -> tuple[int, ...]:
        """The source's lines that have cp.async, or one of these forms of it."""
        return tuple(sorted({
            i.line for b in self.trial.function.graph().blocks for i in b.instructions
            if i.opcode == "cp" and (not kinds or set(kinds) & set(i.modifiers))
        }))  # fmt: skip

    def _unset_registers(self) -> tuple[int, ...] | None:
        """Lines of the additions to float registers that may never have been set."""
        graph = self.trial.function.graph()
        live = graph.blocks[0].live_in
        lines = set()
        for block in graph.blocks:
            for i in block.instructions:
                if i.opcode in ("fma", "add", "mad"):
                    names = [getattr(o, "name", "") for o in i.operands]
                    if any(graph.is_live(n, live) for n in names if n in graph.number):
                        lines.add(i.line)
        return tuple(sorted(lines - {0})) or (() if live else None)

    def _timing(self, a: Attempt) -> Diagnosis | None:
        """The same launch in other orders: right in one of them?"""
        for order in ("forward", "reversed", 1, 2):
            if order == a.order:
                continue
            again = self.trial.run(a.shape, order)
            if again.fault is not None:
                continue
            both = np.isfinite(again.C) & np.isfinite(a.C)
            differs = ~np.isclose(again.C, a.C, rtol=1e-3, atol=1e-3)
            if again.right or (differs & both).mean() > 0.01:
                row, column = (int(n) for n in np.argwhere(differs)[0])
                return Diagnosis("result depends on timing", (
                    f"With {size(a.shape)}, C[{row}, {column}] is {a.C[row, column]:.6g} when "
                    f"warps run in the order {a.order!r} and {again.C[row, column]:.6g} when they "
                    f"run in the order {order!r}; no two accesses are a plain race.",))  # fmt: skip
        return None

    def _passed(self, shape: Shape) -> bool:
        return any(shape == passed for passed, _ in self.passed)

    def _unwritten(self, a: Attempt) -> Diagnosis:
        left = ~a.written
        evidence = (f"With {size(a.shape)} and a grid of {a.grid[0]} x {a.grid[1]} blocks, nothing "
                    f"is stored in {values.pattern(left, self.plan.tile)} of C.",)  # fmt: skip
        lines = self._store_lines()
        M, N, _ = a.shape
        step = self.plan.step
        if self.passed:
            other = self._sizes(a)
            if other is not None:
                return Diagnosis(other.name, (*other.evidence, *evidence), lines)
            up = -(-M // step) * step, -(-N // step) * step
            try:
                grid = self.trial.subject.grid(*up)
            except Refused:
                grid = a.grid
            if self.trial.subject.grid_of is not None and grid != a.grid:
                again = self.trial.run(a.shape, grid=grid)
                if again.right:
                    return Diagnosis("floor-divided grid", (*evidence, "With a grid of "
                                     f"{grid[0]} x {grid[1]} blocks it is right.",))  # fmt: skip
        rows, columns = self.plan.tile
        edge = np.zeros_like(left)
        edge[M // rows * rows :] = True
        edge[:, N // columns * columns :] = True
        if not (left & ~edge).any() and (M % rows or N % columns):
            name = "last partial tile not written"
        else:
            name = "elements never written"
        return Diagnosis(name, evidence, lines)

    def _of_values(self, a: Attempt) -> Diagnosis | None:
        clean = a.written.all() and np.isfinite(a.C).all()
        found = None
        if clean and a.shape == self.plan.rectangle:
            found = self._sizes(a)
        if found is None and clean:
            found = (
                values.other_product(a)
                or values.part_of_the_sum(a)
                or values.tiles_of_a_factor(a)
                or values.rows_without_length(a, self.trial.subject.b_transposed)
                or values.integers(a)
                or values.precision(a)
            )
        if found is None and clean and self._passed(self.plan.square):
            found = self._stale(a) or values.not_loaded(a)
        if found is not None and found.name == "K loop starts late":
            found = self._late_or_lost(a, found)
        if found is None:
            return None
        return Diagnosis(found.name, found.evidence, self._store_lines()
                         if found.name == "transposed result" else ())  # fmt: skip

    def _late_or_lost(self, a: Attempt, found: Diagnosis) -> Diagnosis:
        """Whether, with more k, as many are missing, or as many are left."""
        M, N, K = a.shape
        lost, more = values.added(a), values.added(self.trial.run((M, N, K + 64)))
        if lost and more and more[1] - more[0] == lost[1] - lost[0]:
            return Diagnosis("sum not kept", (*found.evidence, f"With K={K + 64} too, only the "
                             f"products of the last {lost[1] - lost[0]} k are left.",))  # fmt: skip
        return found

    def _stale(self, a: Attempt) -> Diagnosis | None:
        """C has products of the tile before, which the last one has not overwritten."""
        K = a.shape[2]
        for tile in values.TILES:
            start = K // tile * tile
            left = K - start  # of the last tile
            if not left or start < tile:
                continue
            old = slice(start - tile + left, start)
            A = np.concatenate([a.A, a.A[:, old]], axis=1)
            B = np.concatenate([a.B, a.B[old]])
            if values.close(a.C, A, B).all():
                return Diagnosis("missing zero fill", (
                    f"With {size(a.shape)}, the products of k = {old.start} to {old.stop - 1} are "
                    f"added twice: the last tile of {tile} has {left} new columns, and the rest "
                    "of it is still that of the tile before.",))  # fmt: skip
        return None

    def _sizes(self, a: Attempt) -> Diagnosis | None:
        """Whether the kernel has taken one size, or one axis of the grid, for another."""
        M, N, K = shape = self.plan.rectangle
        subject = self.trial.subject
        try:
            grid = subject.grid(N, M)
        except Refused:
            grid = subject.grid(M, N)
        if grid != subject.grid(M, N) and self._right(shape, grid=grid):
            return Diagnosis("row and column swapped", (
                f"With {size(shape)} it is right if the grid's x and y are exchanged: the kernel's "
                "blockIdx.x walks down the rows of C, the grid's along its columns.",))  # fmt: skip
        if self._passed(shape):
            return None
        for order in itertools.permutations(range(3)):
            names = [("M", "N", "K")[k] for k in order]
            sizes = tuple(shape[k] for k in order)
            if sizes != shape and self._right(shape, sizes=sizes):
                return Diagnosis("sizes in another order", (
                    f"It is right if it is given {', '.join(names)} instead of M, N, K.",
                ))  # fmt: skip
        n = self.plan.square[0]
        if not self._right((n, n, n)) or not self._right((2 * n, 2 * n, 2 * n)):
            return None
        other = {"M": (2 * n, n, n), "N": (n, 2 * n, n), "K": (n, n, 2 * n)}
        failing = [name for name, one in other.items() if not self._right(one)]
        if not failing:
            return None
        which = {1: f"{failing[0]} differs from the others",
                 2: f"{failing[0]} or {failing[1]} differs from the others",
                 3: "any of M, N and K differs from the others"}[len(failing)]  # fmt: skip
        return Diagnosis("square-only", (f"With M=N=K={n} and M=N=K={2 * n} it is right, and wrong "
                                         f"as soon as {which}.",))  # fmt: skip

    def _right(self, shape: Shape, **how) -> bool:
        return self.trial.run(shape, **how).right

    def _overlap(self, a: Attempt) -> Diagnosis | None:
        """Two stores of one thread, on two lines, to the same place of shared memory, before
        anything is read."""
        lines = self._store_lines("shared")
        if len(lines) < 2 or not a.stored_words.any():
            return None
        stored = 4 * int(a.stored_words.sum())
        M, N, K = a.shape
        # A's tile is gone: the kernel multiplies B's tile with itself, or A's, whatever A holds.
        A, B = matrices(a.shape, seed=1)
        blind = [name for name, data in (("A", (A, a.B)), ("B", (a.A, B)))
                 if np.array_equal(self.trial.run(a.shape, a.order, data=data).C, a.C,
                                   equal_nan=True)]  # fmt: skip
        if len(blind) != 1:
            return None
        return Diagnosis("overlapping shared arrays", (
            f"With {size(a.shape)}, C does not depend on {blind[0]}: its tile is overwritten "
            f"before it is read. The two stores of a step fill {stored:,} bytes of shared memory "
            "together.",), lines)  # fmt: skip

    def _store_lines(self, space: str = "global") -> tuple[int, ...]:
        """The source's lines that store to a space."""
        graph = self.trial.function.graph()
        lines = {i.line for b in graph.blocks for i in b.instructions
                 if i.opcode == "st" and space in i.modifiers}  # fmt: skip
        return tuple(sorted(lines - {0}))


def nan_probe(trial: Trial, shape: Shape) -> Diagnosis | None:
    """One NaN in A must make NaN of its row of C and of nothing else; one in B of its column."""
    M, N, K = shape
    for name in ("A", "B"):
        A, B = matrices(shape)
        row, column, k = (M // 2, 0, 0) if name == "A" else (0, N - 1, K - 1)
        expected = np.zeros((M, N), bool)
        if name == "A":
            A[row, k] = np.nan
            B[k, ::3] = 0  # 0 * NaN is NaN too
            expected[row] = True
        else:
            B[k, column] = np.nan
            A[::3, k] = 0
            expected[:, column] = True
        a = trial.run(shape, data=(A, B))
        got = np.isnan(a.C)
        where = f"[{row}, {k}]" if name == "A" else f"[{k}, {column}]"
        what = f"row {row}" if name == "A" else f"column {column}"
        if (expected & ~got).any():
            r, c = (int(n) for n in np.argwhere(expected & ~got)[0])
            return Diagnosis("NaN-blind", (
                f"With {size(shape)} and a NaN in {name}{where}, all of {what} of C must be NaN; "
                f"C[{r}, {c}] is {a.C[r, c]:.6g}. On numbers the product is right.",))  # fmt: skip
        if (got & ~expected).any():
            return Diagnosis("spreads NaN", (
                f"With {size(shape)} and a NaN in {name}{where}, only {what} of C may be NaN; so "
                f"are {values.pattern(got & ~expected, trial.subject.tile)}. On numbers the "
                "product is right.",))  # fmt: skip
    return None
