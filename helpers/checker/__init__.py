"""The teacher's eye: what is wrong with a matrix product's kernel, by name, with the evidence.

    from helpers.checker import check

    check(KERNELS["tiled"])
    check((source, "my_kernel"), block=(16, 16))
    check((source, "my_kernel", ("-DTILE=16",)), tile=(64, 64), block=(16, 16), shared=8192)

A kernel computes C = A * B, row-major float32, and has the parameters
(const float *A, const float *B, float *C, int M, int N, int K). It is launched in the engine of the
CPU driver (helpers.simt), so it can neither harm a GPU's context nor hang the notebook, with many
sizes and several orders of its warps; every access is watched, and C is NaN before each launch. The
first failure ends this and becomes one diagnosis (`diagnosis.HINTS` lists them). What passes is
then tried with matrices of more than 2^32 elements, and on the GPU if there is one.

Modules: `subject` what is checked, `trial` one launch, `battery` which launches, and what a failure
means, by `accesses` (what the sanitizer saw) and `values` (the wrong numbers); `limits` before any
launch, `large` beyond 2^32, `traffic` what is counted, with notes,
`goals` on it and on what a kernel `needs`, `device` the GPU; `result` what is said.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Sequence
from typing import Any

from helpers import simt
from helpers.check import gamma
from helpers.sandbox import CompileFailed, DoesNotFit

from . import device, limits
from .battery import Battery, nan_probe
from .diagnosis import Diagnosis
from .goals import Goals
from .large import Large
from .needs import Needs
from .result import Result, result_of
from .subject import Refused, Subject, subject_of
from .traffic import SHAPE, Note, Traffic, notes
from .trial import Trial, size

__all__ = ["Result", "check"]


def check(
    kernel: Any,
    *,
    grid: Callable[[int, int], Any] | None = None,
    block: Sequence[int] | None = None,
    tile: Sequence[int] | None = None,
    shared: int | None = None,
    b_transposed: bool = False,
    full: bool = False,
    seconds: float = 1.0,
    no_conflicts: bool = False,
    fewer_sectors_than: int | None = None,
    fewer_wavefronts_than: int | None = None,
    fewer_barriers_than: int | None = None,
    shared_bytes_at_most: int | None = None,
    no_local_memory: bool = False,
    warps_at_1024: int | None = None,
) -> Result:
    """Says PASS, or what is wrong with a kernel.

    kernel: one of `helpers.kernels`, an object with the same attributes, (source or path, name) or
    (source or path, name, nvcc options).
    grid: a function of M and N that gives the blocks along x, y, z. block: threads; (32, 32) unless
    the kernel says otherwise. tile: rows and columns of C for one block, if not one element for
    each thread; without `grid` it gives the grid. shared: bytes of dynamic shared memory.
    b_transposed: B is given as N x K, and C = A * B transposed. full: tries every size and order.
    seconds: that one launch may take.
    Goals that a right kernel must reach with matrices of `traffic.SHAPE`: no_conflicts: uses shared
    memory, without bank conflicts; fewer_sectors_than: of global memory; fewer_wavefronts_than: of
    shared memory; fewer_barriers_than: times that a warp waits at one; shared_bytes_at_most: of a
    block; no_local_memory: keeps nothing of a thread there; warps_at_1024: that each multiprocessor
    of an H200 has at a time, on average, with M = N = 1024, where each must get a block.

    Raises TypeError or ValueError for arguments that are no kernel and no launch shape.
    """
    subject = subject_of(kernel, grid, block, tile, shared, b_transposed)
    goals = Goals(no_conflicts, fewer_sectors_than, fewer_wavefronts_than, fewer_barriers_than,
                  shared_bytes_at_most, no_local_memory, warps_at_1024)  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):  # what a kernel prints, once for each launch
        return _Check(subject, full, seconds, goals).result()


class _Check:
    """One check, step by step."""

    def __init__(self, subject: Subject, full: bool, seconds: float, goals: Goals):
        self.subject, self.full, self.seconds, self.goals = subject, full, seconds, goals
        self.notes: list[Note] = []
        self.trial: Trial | None = None
        self.battery: Battery | None = None

    def result(self) -> Result:
        found = self._compiled() or self._watched() or self._large_and_traffic()
        if found is None:
            found = device.on_gpu(self.subject, [self.battery.plan.ragged, (35, 79, 19)])
        launches = len(self.battery.passed) if self.battery else 0
        program = self.trial.program if self.trial else None
        evidence = self._praise() if found is None else ()
        return result_of(self.subject.entry, found, evidence, tuple(self.notes), launches, program,
                         self.subject.b_transposed)  # fmt: skip

    def _compiled(self) -> Diagnosis | None:
        try:
            self.trial = Trial(self.subject, self.seconds)
        except CompileFailed as error:
            return Diagnosis("does not compile", (str(error),))
        except DoesNotFit as error:
            return Diagnosis("no such kernel", (f"{str(error)[0].upper()}{str(error)[1:]}.",))
        except simt.SimtError as error:
            return Diagnosis("cannot be checked", (str(error),))
        function = self.trial.function
        return (
            limits.signature(self.subject, function)
            or limits.launch(self.subject, function)
            or (limits.registers(self.subject, function, self.trial.program.ptx)
                if limits.many_registers(function) else None)
        )  # fmt: skip

    def _watched(self) -> Diagnosis | None:
        """All that the sanitizer watches."""
        self.battery = Battery(self.trial, self.full)
        try:
            for launches, found in enumerate(self.battery.run()):
                if found is not None:
                    return found
                if launches == 1:  # it looks right: make what the end needs meanwhile
                    self._prepare()
            found = nan_probe(self.trial, self.battery.plan.ragged)
        except simt.SimtError as error:
            return Diagnosis("cannot be checked", (str(error),))
        for f in self.battery.doubts[:1]:
            self.notes.append(Note(f.kind, f"{f.text} The result is right all the same. {f.advice}",
                                   f.lines))  # fmt: skip
        return found

    def _prepare(self) -> None:
        """Starts to compile the code for large sizes, and that which counts."""
        ptx = self.trial.program.ptx
        self._traffic = Traffic(self.subject, ptx)
        try:
            self._large = Large(self.subject, ptx)
        except OSError:
            self._large = None
        self._registers: Diagnosis | None = None

        def work() -> None:
            self._registers = limits.registers(self.subject, self.trial.function, ptx)
            if self._large:
                self._large.compile()
            self._traffic.compile()

        self._helper = threading.Thread(target=work, daemon=True)
        self._helper.start()

    def _large_and_traffic(self) -> Diagnosis | None:
        self._helper.join()
        if self._registers is not None:
            return self._registers
        found, tried = self._large.check() if self._large else (None, False)
        if found is not None:
            return found
        if not tried:
            self.notes.append(Note("large sizes not tried", "more than 2³² elements could not be "
                                   "tried with this launch shape, on this machine"))  # fmt: skip
        try:
            self._traffic.measure()
        except (Refused, simt.Fault) as error:
            told = f"Its accesses could not be counted with {size(SHAPE)}: {error}"
            return Diagnosis("cannot be checked", (told,)) if self.goals else None
        function = self.trial.function
        self._needs = Needs(self.subject, self.trial.program.ptx, function.name,
                            function.static_shared_bytes)  # fmt: skip
        self.notes += notes(self._traffic, self.battery.first, self._needs.shared_bytes)
        return self.goals.missed(self._traffic, self._needs)

    def _praise(self) -> tuple[str, ...]:
        launches = self.battery.passed
        shapes = {shape for shape, _ in launches}
        orders = {order for _, order in launches}
        bound = gamma(max(K for _, _, K in shapes))
        large = "" if any(n.name == "large sizes not tried" for n in self.notes) else (
            "; a corner of matrices with more than 2³² elements is right too")  # fmt: skip
        return (
            f"{len(shapes)} sizes from 1 × 1 × 1 up, {len(launches)} launches, warps in "
            f"{len(orders)} orders: no race, no access outside, every element of C written and "
            f"within its rounding-error bound, which grows with K (at most {bound:.0e} of the sum "
            f"of |A||B|){large}.",
            *(self.goals.reached(self._traffic, self._needs) if self.goals else ()),
        )
