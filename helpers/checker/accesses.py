"""What the engine has seen of accesses and barriers, as diagnoses: faults, races, unset memory."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from helpers.errors import TimeIsUp
from helpers.sanitize import Finding, sanitize
from helpers.simt import Fault

from .diagnosis import Diagnosis
from .subject import Dim, Shape
from .trial import NAMES, Attempt, Trial, size

ENDLESS = "time", "deadlock"  # kinds of faults that take long to come
LANES = 32


@dataclass(frozen=True)
class Place:
    """An element of an array, or where it would be."""

    array: str
    index: int
    elements: int

    def __str__(self) -> str:
        away = ("" if 0 <= self.index < self.elements else
                f", {-self.index:,} before its start" if self.index < 0 else
                f", {self.index - self.elements + 1:,} past its last")  # fmt: skip
        return f"{self.array}[{self.index:,}]{away}; {self.array} has {self.elements:,} elements"


def extents(shape: Shape) -> dict[str, int]:
    """Elements of A, B and C."""
    M, N, K = shape
    return dict(zip(NAMES, (M * K, K * N, M * N), strict=True))


def place_of(fault: Fault, starts: dict[str, int], shape: Shape) -> Place | None:
    """The array that a bad access in global memory was meant for: that of its pointer, or else the
    nearest."""
    elements = extents(shape)
    if not fault.address:
        return None
    own = [n for n, start in starts.items() if fault.allocation and fault.allocation[0] == start]

    def away(name: str) -> int:
        start = starts[name]
        return max(start - fault.address, fault.address - start - 4 * elements[name])

    name = own[0] if own else min(starts, key=away)
    return Place(name, (fault.address - starts[name]) // 4, elements[name])


def who(fault: Fault) -> str:
    if fault.block is None:
        return "a thread"
    return f"thread {_short(fault.thread)} of block {_short(fault.block)}"


def _short(place: Dim) -> str:
    return str(place if place[2] else place[:2])


def fault(a: Attempt, trial: Trial) -> Diagnosis:
    """What a launch has ended with."""
    f = a.fault
    lines = (f.line,) if f.line else ()
    told = f"With {size(a.shape)}, "
    if f.kind == "time":
        at = f" It was last seen on line {f.line}, {who(f)}." if f.line else ""
        return Diagnosis("does not come to an end", (f"{told}the kernel was {f.detail}; it needs "
                         f"milliseconds.{at}",), lines)  # fmt: skip
    if f.kind == "barrier":
        return Diagnosis("divergent barrier", (f"{told}{who(f)} has not come to the barrier that "
                         "others of its warp wait at.",), lines)  # fmt: skip
    if f.kind == "deadlock":
        text = f.detail.partition(": ")[2] or f.detail
        name = "divergent barrier" if "barriers" in f.detail else "does not come to an end"
        return Diagnosis(name, (f"{told}{text}.",), lines)
    if f.kind in ("assert", "trap", "stack overflow"):
        return Diagnosis("assertion failed", (f"{told}{who(f)}: {f.detail}.",), lines)
    if f.kind == "index overflow":
        return Diagnosis("integer overflow", (f"{told}{who(f)}: {f.detail}.",), lines)
    if "shared" in f.detail.partition(" at ")[0]:
        where = f.detail.rpartition(" at ")[2]
        name = "misaligned access" if f.kind == "misaligned" else "outside shared memory"
        where = "shared memory" if f.kind == "misaligned" else where
        return Diagnosis(name, (f"{told}{who(f)} accesses {where}.",), lines)
    if "local" in f.detail.partition(" at ")[0]:
        return Diagnosis("outside a local array", (f"{told}{who(f)}: {f.detail}.",), lines)
    place = place_of(f, a.starts, a.shape)
    if f.kind == "misaligned":
        wide = re.search(r"of (\d+) bytes", f.detail)
        return Diagnosis("misaligned access", (f"{told}{who(f)} accesses {wide[1] if wide else 8} "
                         f"bytes at {place.array}[{place.index:,}], which is no multiple of them.",
                         ), lines)  # fmt: skip
    verb = "reads" if "read" in f.detail else "writes"
    evidence = [f"{told}{who(f)} {verb} {place}."]
    thread = _outside(a, f, trial)
    if thread:
        evidence.append(thread)
    return Diagnosis(f"{verb} outside {place.array}", tuple(evidence), lines)


def _outside(a: Attempt, f: Fault, trial: Trial) -> str:
    """Where the thread's element of C is, if a thread has one element."""
    subject = trial.subject
    x, y, z = subject.block
    if subject.tile != (y, x) or subject.rows_on_x or z > 1 or f.block is None:
        return ""
    M, N, _ = a.shape
    row, column = f.block[1] * y + f.thread[1], f.block[0] * x + f.thread[0]
    if row < M and column < N:
        return ""
    outside = [f"row {row} of {M}"] * (row >= M) + [f"column {column} of {N}"] * (column >= N)
    return f"Its own element is outside C: {' and '.join(outside)}."


# -- races and unset memory ----------------------------------------


def findings(a: Attempt, trial: Trial) -> list[Finding]:
    """What `sanitize` says of the launch, arrays by their names."""
    if not a.observations and a.fault is None or a.fault and a.fault.kind in ENDLESS:
        return []
    subject, (M, N, K) = trial.subject, a.shape
    B = np.ascontiguousarray(a.B.T) if subject.b_transposed else a.B
    C = np.full((M, N), np.nan, np.float32)
    try:
        report = sanitize(
            (subject.source, subject.entry, subject.options), a.A, B, C,
            np.int32(M), np.int32(N), np.int32(K), grid=a.grid, block=subject.block,
            shared=subject.shared, seconds=2 * trial.seconds,
        )  # fmt: skip
    except TimeIsUp:  # in the orders of these launches it does not end
        return []
    return list(report.findings)


def _named(text: str) -> str:
    """ "A[3]" instead of "argument 0+12"."""

    def element(found: re.Match) -> str:
        index = int(found[2].replace(",", "")) // 4
        return f"{NAMES[int(found[1])]}[{index:,}]"

    return re.sub(r"argument ([012])\+([\d,]+)", element, text)


def _told(a: Attempt, f: Finding) -> tuple[str, ...]:
    times = f" That is one of {f.count:,} such pairs." if f.count > 1 and "race" in f.kind else ""
    return (f"With {size(a.shape)}: {_named(f.text)}{times}",)


def before_values(found: list[Finding], a: Attempt, trial: Trial) -> Diagnosis | None:
    """What is wrong with the kernel whatever its result: barriers, races, strays."""
    by_kind: dict[str, list[Finding]] = {}
    for f in sorted(found, key=lambda f: "__syncthreads" not in f.advice):  # warps before lanes
        by_kind.setdefault(f.kind, []).append(f)

    def diagnosis(name: str, f: Finding, *more: str) -> Diagnosis:
        lines = tuple(dict.fromkeys(f.lines)) if f.file == trial.program.file else ()
        return Diagnosis(name, (*_told(a, f), *more), lines)

    for kind in ("divergent barrier", "barriers do not match"):
        if kind in by_kind:
            return diagnosis("divergent barrier", by_kind[kind][0])
    if "out of bounds" in by_kind and a.fault is None:
        return diagnosis("outside shared memory", by_kind["out of bounds"][0])
    writes = list(by_kind.get("write-after-write race", []))
    writes += by_kind.get("lanes write different values", [])
    # Where arrays overlap, each line by itself stores to places of its own.
    alone = not any(len(set(f.lines)) == 1 for f in writes if not _is_global(f))
    for f in writes:
        if alone and not _is_global(f) and len(set(f.lines)) == 2:
            return diagnosis("overlapping shared arrays", f, "Two stores of one phase, on two "
                             "lines, meet in the same place.")  # fmt: skip
    for f in found:
        if f.advice.startswith("Wait for the copy"):
            return diagnosis("copy not waited for", f)
    several_warps = math.prod(trial.subject.block) > LANES
    early = by_kind.get("read-after-write race", [])
    late = by_kind.get("write-after-read race", [])
    for name, races in (("missing first barrier", early), ("missing second barrier", late)):
        for f in races:
            if not _is_global(f):
                if several_warps and "__syncwarp" in f.advice:  # of warps there is no such race
                    return diagnosis("missing __syncwarp", f)
                both = early and late and not any(map(_is_global, early + late))
                more = ("The other barrier is missing too.",) if both else ()
                return diagnosis(name, f, *more)
    for f in writes:
        if not _is_global(f):
            return diagnosis("race in shared memory", f)
    for f in [*early, *late, *writes]:
        return diagnosis("race in global memory", f)
    return None


def _is_global(f: Finding) -> bool:
    return f.place.startswith(("argument", "malloc"))


def unset(a: Attempt, found: list[Finding]) -> list[Finding]:
    """Reads of memory that nobody has written."""
    return [f for f in found if f.kind == "uninitialised read"]


def reads_c(f: Finding) -> bool:
    return f.place.startswith("argument 2")


def told(a: Attempt, f: Finding) -> tuple[str, ...]:
    """A finding as evidence."""
    return _told(a, f)
