"""What is wrong with a kernel's accesses, by source line: races, barriers, bounds, unset memory.

    report = sanitize(KERNELS["tiled"], dA, dB, dC, M, N, K)
    print(report)            # one finding for each kind and pair of lines
    report                   # in Jupyter: the source with those lines marked

The launch is repeated in the engine of the CPU driver (see `helpers.replica`), with every access
compared with those before it: so the report is the same with a GPU and without.

Memory of the host's side that is not freed: `leaks`, for a `with` block (see `helpers.leaks`).

A race is reported because nothing puts two accesses in order, not because they have come out
wrong: which warp happens to run first does not matter. Where there is anything to report the
launch is repeated in two fixed orders, and the report is made from these.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from helpers import simt
from helpers.errors import TimeIsUp, WrongValue
from helpers.leaks import Leak, Leaks, leaks
from helpers.marked_source import marked
from helpers.replica import MORE_TIME, PATIENCE, Replica, Run, replica
from helpers.sandbox import checked_seconds, interrupts_told
from helpers.simt.program_order import ProgramOrder
from helpers.simt.sanitizer import Access, Observation, Sanitized

__all__ = ["Finding", "Leak", "Leaks", "Report", "leaks", "sanitize"]
Dim = tuple[int, int, int]

# Kinds, the most basic first: severity, and what to do.
KINDS: dict[str, tuple[str, str]] = {
    "out of bounds": ("error", "Guard the access, or correct its index or the launch shape."),
    "misaligned": ("error", "Let vector accesses start at a multiple of their size."),
    "use after free": ("error", "Free the memory after the last launch that uses it."),
    "divergent barrier": ("error", "Move __syncthreads() to where all threads of the block pass."),
    "barriers do not match": ("error", "Let all warps of the block wait at the same barrier."),
    "deadlock": ("error", "Let every thread that a barrier or a loop waits for get there."),
    "trap": ("error", "See what made the kernel execute __trap()."),
    "assert": ("error", "See why the condition does not hold."),
    "stack overflow": ("error", "End the recursion earlier, or make it a loop."),
    "uninitialised read": ("error", "Write the value before it is read."),
    "lanes write different values": ("error", "Let one thread write, or each its own element."),
    "read-after-write race": ("error", "Put a {sync} between the write and the read."),
    "write-after-read race": ("error", "Put a {sync} between the read and the next write."),
    "write-after-write race": ("error", "Put a {sync} between the two writes."),
    "never written": ("error", "Let some thread write each element of the output."),
    "memory not freed": ("warning", "Call free() for each block that malloc() has given."),
    "exited before a barrier": (
        "warning",
        "Legal since Volta, but keep threads until the last barrier: let them skip the work.",
    ),
    "equal values written": ("note", "Harmless while the values are equal; let one thread write."),
}
_WAIT = (
    "Wait for the copy (__pipeline_wait_prior(), cp.async.wait_group), then put a __syncthreads() "
    "in front of the other access."
)
_RANK = {kind: k for k, kind in enumerate(KINDS)}
_FAULTS = {
    "out of bounds": "out of bounds",
    "misaligned": "misaligned",
    "barrier": "divergent barrier",
    "trap": "trap",
    "assert": "assert",
    "deadlock": "deadlock",
    "stack overflow": "stack overflow",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, of which `count` instances were seen and one is told.

    lines: of the .cu file, one for each access (or wait) that the finding is about, the earlier in
    the program first. So a race has two, and the same one twice where both accesses are on it; what
    one thread does wrong by itself has one, an array that is never written none. The text form
    names a line once.
    threads: for each of the lines who was there, as (block, thread); none where that is not known
    or no matter ("memory not freed"). place: bytes from the start of a shared variable or of an
    argument's allocation.
    """

    kind: str
    severity: str  # "error", "warning" or "note"
    lines: tuple[int, ...]
    file: str
    threads: tuple[tuple[Dim, Dim], ...]
    place: str
    count: int
    text: str
    advice: str

    def __str__(self) -> str:
        lines = " and ".join(map(str, dict.fromkeys(self.lines)))
        where = f"{self.file}:{lines}" if lines else self.file
        times = f" ({self.count:,} times)" if self.count > 1 else ""
        return f"{self.severity}: {self.kind}, {where}{times}\n    {self.text}\n    {self.advice}"


@dataclass(frozen=True)
class Report:
    """What `sanitize` has found in one launch."""

    kernel: str
    file: str
    grid: Dim
    block: Dim
    findings: tuple[Finding, ...]
    lost: int  # instances like those found, but between other instructions, which are not told
    _replica: Replica = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether there is nothing but notes and warnings about what is legal."""
        return all(
            f.severity == "note" or f.kind == "exited before a barrier" for f in self.findings
        )

    def __str__(self) -> str:
        head = f"{self.file}, {self.kernel}, grid {self.grid}, block {self.block}: "
        if not self.findings:
            return head + "nothing found"
        counts = []
        for severity in ("error", "warning", "note"):
            n = sum(f.severity == severity for f in self.findings)
            if n:
                counts.append(f"{n} {severity}{'s' if n > 1 else ''}")
        parts = [head + ", ".join(counts), *map(str, self.findings)]
        if self.lost:
            parts.append(
                f"and {self.lost:,} more of these kinds, between too many lines to tell them all: "
                "mend some and run sanitize again"
            )
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        first = html.escape(str(self).split("\n", 1)[0])
        parts = [f"<p>{first}</p>"]
        for f in self.findings:
            parts.append(f"<p>{'<br>'.join(map(html.escape, str(f).split(chr(10))))}</p>")
            parts.append(self._source(f))
        if self.lost:
            parts.append(f"<p>{html.escape(str(self).rsplit(chr(10), 1)[1])}</p>")
        return "".join(parts)

    def _source(self, f: Finding) -> str:
        """The lines around a finding's, its own marked."""
        lines = [n for n in f.lines if n and f.file == self.file]
        return marked(lines, lambda n: self._replica.program.line(self.file, n), f.severity)


def sanitize(
    kernel: Any,
    *arguments: Any,
    grid: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
    shared: int | None = None,
    order: str | int = "forward",
    write: bool = False,
    seconds: float = PATIENCE,
) -> Report:
    """Repeats a launch in the engine and reports what is wrong with its accesses.

    kernel, arguments, grid, block, shared: see `helpers.replica.replica`. order: in which warps
    and blocks take turns: "forward", "reversed", or a seed. The report does not depend on it; what
    a kernel with races computes does, and with `write` the caller's arrays get that.

    Arrays of which every element is NaN (as `helpers.memory.allocate` makes them) count as not yet
    written. An argument whose memory the host has freed is a finding where the kernel accesses it
    (see `helpers.replica` for what is known of freed memory). seconds: how long each run of the
    launch may take.

    Raises what `replica` raises, ValueError for an order that is none, simt.Unsupported for an
    instruction that the engine does not know, TimeIsUp.
    """
    if order not in ("forward", "reversed") and not isinstance(order, int):
        raise WrongValue(f"order={order!r} is none of 'forward', 'reversed' and a seed like 3")
    checked_seconds(seconds)
    launch = replica(kernel, *arguments, grid=grid, block=block, shared=shared, keep_freed=True)
    run = launch.prepare()
    results = [(run, _sanitized(run, order, None, seconds))]
    if _anything(results[0][1]):
        results = []
        for fixed in ("forward", "reversed"):
            again = launch.prepare()
            results.append((again, _sanitized(again, fixed, 1, seconds)))
    if write:
        launch.write_back(run)
    found = _Findings(launch)
    for run, result in results:
        found.add(run, result)
    program, lost = launch.program, max(result.lost for _, result in results)
    return Report(
        program.entry, program.file, launch.grid, launch.block, found.grouped(), lost, launch
    )


def _sanitized(run: Run, order: str | int, workers: int | None, seconds: float) -> Sanitized:
    with interrupts_told(run.replica.program.entry):
        result = run.function.sanitize(
            *run.launch, order=order, unwritten=_unwritten(run), workers=workers, seconds=seconds
        )
    if result.fault and result.fault.kind == "time":
        raise TimeIsUp(f"{result.fault}: does every loop in it end? {MORE_TIME}")
    return result


def _anything(result: Sanitized) -> bool:
    return bool(
        result.observations
        or result.fault
        or result.unfreed
        or any(map(len, result.never.values()))
    )


def _unwritten(run: Run) -> list[tuple[int, int, int]]:
    """(address, bytes, bytes of an element) of the arrays that are NaN throughout."""
    found = []
    for start, array in run.replica.data.items():
        for kind, nan in ((np.uint32, 0x7FC00000), (np.uint64, 0x7FF8 << 48)):
            size = np.dtype(kind).itemsize
            if array.nbytes % size == 0 and (array.view(kind) == nan).all():
                found.append((run.addresses[start], array.nbytes, size))
    return found


class _Findings:
    """Collects what the runs of one launch have seen, by kind and lines."""

    def __init__(self, launch: Replica):
        self.launch = launch
        self._found: dict[tuple, Finding] = {}
        self._order: ProgramOrder | None = None

    def grouped(self) -> tuple[Finding, ...]:
        found = dict(self._found)
        after = ("read-after-write race", "write-after-write race")
        late = {f.lines[1] for f in found.values() if f.kind in after}
        for key, f in list(found.items()):  # a read too early: the race says it better
            if f.kind == "uninitialised read" and set(f.lines) <= late:
                del found[key]
        for f in self._found.values():  # a copy that comes too early is also waited for too late
            if f.kind == "write-after-read race":
                copied = found.get(("read-after-write race", f.file, f.lines[::-1]))
                if copied is not None and copied.advice == _WAIT:
                    del found[copied.kind, f.file, copied.lines]
        return tuple(sorted(found.values(), key=lambda f: (_RANK[f.kind], f.file, f.lines, f.text)))

    def add(self, run: Run, result: Sanitized) -> None:
        self._order = ProgramOrder(run.function.graph())
        once: dict[tuple, Finding] = {}
        for o in result.observations:
            f = self._finding(run, o)
            key = f.kind, f.file, f.lines
            if key in once:
                count = once[key].count + f.count
                example = min(once[key], f, key=lambda x: (self._shared_by(x), x.threads))
                f = replace(example, count=count)
            once[key] = f
        for (file, line), (blocks, nbytes) in result.unfreed.items():
            f = self._unfreed(PurePath(file).name, line, blocks, nbytes)
            once[f.kind, f.file, f.lines] = f
        if result.fault is not None:
            f = self._fault(run, result.fault)
            once[f.kind, f.file, f.lines] = f
        else:
            for start, left in result.never.items():
                if len(left):
                    f = self._never(run, start, left, result.written[start])
                    once[f.kind, f.place] = f
        for key, f in once.items():
            old = self._found.get(key)
            if old is not None:
                f = replace(min(old, f, key=self._shared_by), count=max(old.count, f.count))
            self._found[key] = f

    def _shared_by(self, f: Finding) -> int:
        """What the threads of a finding share: 0 the grid, 1 a block, 2 a warp.

        The example told is the one whose threads share least: what puts those in order puts the
        others in order too, so its advice is for all.
        """
        if len({block for block, _ in f.threads}) > 1:
            return 0
        width, height, _ = self.launch.block
        warps = {(x + width * (y + height * z)) // 32 for _, (x, y, z) in f.threads}
        return 1 if len(warps) > 1 else 2

    # -- one finding ----------------------------------------

    def _finding(self, run: Run, o: Observation) -> Finding:
        accesses = [o.first, o.second]
        kind = {
            "lanes differ": "lanes write different values",
            "lanes equal": "equal values written",
            "equal value": "equal values written",
            "uninitialised": "uninitialised read",
            "outside": "out of bounds",
            "mismatch": "barriers do not match",
            "exited": "exited before a barrier",
            "copy read": "read-after-write race",
            "copy written": "write-after-write race",
        }.get(o.kind)
        freed = [a.instruction and a.instruction.opcode == "call" for a in accesses]
        if any(freed):
            kind = "use after free"
            accesses = [o.second, o.first] if freed[1] else accesses
        elif o.kind in ("uninitialised", "outside"):
            accesses = [o.second]
        elif o.kind.startswith("copy "):
            accesses = [o.first, o.second]
        elif kind is None or o.kind == "equal value":
            accesses = list(self._order.first(o.first, o.second))
            kind = kind or _race(*(_reads(a, o.space) for a in accesses))
        elif kind in ("lanes write different values", "equal values written"):
            accesses.sort(key=lambda a: a.thread)
        elif kind == "barriers do not match":
            accesses.sort(key=lambda a: (a.instruction.line, a.thread))
        place = self._place(run, o) if o.space else ""
        file = PurePath(accesses[-1].instruction.file).name
        threads = tuple(self._thread(a) for a in accesses)
        known = [(a, t) for a, t in zip(accesses, threads, strict=True) if a.instruction]
        lines = tuple(a.instruction.line for a, _ in known)
        severity, advice = KINDS[kind]
        if "{sync}" in advice:
            advice = self._advice(advice, o)
        return Finding(
            kind,
            severity,
            lines,
            file,
            tuple(t for _, t in known),
            place,
            o.count,
            _sentence(kind, o, accesses, threads, place),
            advice,
        )

    def _advice(self, advice: str, o: Observation) -> str:
        if o.kind.startswith("copy "):
            return _WAIT
        if o.scope == "grid":
            return (
                "No barrier orders blocks: let each write its own elements, use atomics, or make "
                "it two launches."
            )
        return advice.format(sync="__syncwarp()" if o.scope == "warp" else "__syncthreads()")

    def _thread(self, a: Access) -> tuple[Dim, Dim]:
        return _unravel(a.block, self.launch.grid), _unravel(a.thread, self.launch.block)

    def _place(self, run: Run, o: Observation) -> str:
        if o.space == "shared":
            return run.function.shared_place(o.offset)
        if o.space == "local":
            return f"a local variable+{o.offset:,}"
        for extent, address in run.addresses.items():
            if address == o.start:
                return f"{self.launch.name(extent)}+{o.offset:,}"
        for name, (address, _) in run.function.variables().items():
            if address == o.start:
                return f"{simt.plain_name(name)}+{o.offset:,}"
        return f"malloc()ed memory+{o.offset:,}"

    def _never(self, run: Run, start: int, left: np.ndarray, written: int) -> Finding:
        original = next(s for s, a in run.addresses.items() if a == start)
        size = run.replica.data[original].nbytes // (len(left) + written)
        name = self.launch.name(original)
        severity, advice = KINDS["never written"]
        what = "no element" if not written else f"{written:,} of {written + len(left):,} elements"
        text = (
            f"The kernel has written {what} of {name}, which was all NaN; the first that still is "
            f"has index {int(left[0]):,}."
        )
        return Finding("never written", severity, (), self.launch.program.file, (),
                       f"{name}+{int(left[0]) * size:,}", len(left), text, advice)  # fmt: skip

    def _unfreed(self, file: str, line: int, blocks: int, nbytes: int) -> Finding:
        severity, advice = KINDS["memory not freed"]
        text = (
            f"{blocks:,} block{'s' if blocks > 1 else ''} ({nbytes:,} bytes) that malloc() has "
            f"given on line {line} outlive{'' if blocks > 1 else 's'} the launch."
        )
        return Finding("memory not freed", severity, (line,), file, (), "", blocks, text, advice)

    def _fault(self, run: Run, fault: simt.Fault) -> Finding:
        if fault.kind not in _FAULTS:
            raise fault
        kind = _FAULTS[fault.kind]
        place, freed = self._fault_place(run, fault), run.freed(fault.address)
        if freed:
            kind, place = "use after free", freed
        severity, advice = KINDS[kind]
        run.explain(fault)
        detail = re.sub(r" at 0x[0-9a-f]+, which", " at an address which", fault.detail)
        detail = re.sub(r" at 0x[0-9a-f]+", "", detail)
        apart = sorted(fault.others[:2]) or [(fault.line, fault.thread)]
        known = fault.block is not None
        threads = tuple((fault.block, thread) for _, thread in apart) if known else ()
        who = f"Thread {_dim(fault.thread)} of block {_dim(fault.block)}: " if known else ""
        lines = tuple(line for line, _ in apart if line)
        return Finding(kind, severity, lines, fault.file, threads, place, 1,
                       f"{who}{detail}.", advice)  # fmt: skip

    def _fault_place(self, run: Run, fault: simt.Fault) -> str:
        if not fault.address:
            return ""
        shared = re.search(r"at byte ([\d,-]+) of the block's", fault.detail)
        if shared:
            return f"shared memory+{shared[1]}"
        own = fault.allocation or run.memory.find(fault.address)
        for start, address in run.addresses.items():
            if own is not None and address == own[0]:
                return f"{self.launch.name(start)}+{fault.address - address:,}"
        return ""


def _reads(a: Access, space: str) -> bool:
    """Whether an access does no more than read; a cp.async does so in global memory."""
    opcode, words = a.instruction.opcode, a.instruction.modifiers
    if opcode == "wmma":
        return "store" not in words
    return opcode in ("ld", "ldmatrix") or opcode == "cp" and space == "global"


def _race(first_reads: bool, second_reads: bool) -> str:
    if first_reads:
        return "write-after-read race"
    return "read-after-write race" if second_reads else "write-after-write race"


def _unravel(linear: int, extent: Dim) -> Dim:
    x, y, _ = extent
    return linear % x, linear // x % y, linear // (x * y)


def _dim(place: Dim) -> str:
    """As short as it can be: 5, (5, 1) or (5, 1, 2)."""
    if not any(place[1:]):
        return str(place[0])
    return str(place if place[2] else place[:2])


def _sentence(kind: str, o: Observation, accesses: list[Access], threads: tuple, place: str) -> str:
    blocks = {block for block, _ in threads}

    def who(k: int) -> str:
        block, thread = threads[k]
        if len(blocks) > 1 or k == 0:
            return f"thread {_dim(thread)} of block {_dim(block)}"
        return f"thread {_dim(thread)}"

    def line(k: int) -> str:
        return f"line {accesses[k].instruction.line}"

    def verb(k: int) -> str:
        if accesses[k].instruction.opcode in ("atom", "red"):
            return "changes"
        return "reads" if _reads(accesses[k], o.space) else "writes"

    def capital(text: str) -> str:
        return text[0].upper() + text[1:]

    if kind == "use after free":
        return (
            f"{capital(who(1))} {verb(1)} {place} on {line(1)}; {who(0)} has freed it on {line(0)}."
        )
    if kind == "uninitialised read":
        return f"{capital(who(0))} reads {place}, which nobody has written."
    if kind == "out of bounds":
        return f"{capital(who(0))} leaves the variable that its address comes from: {place}."
    if kind == "barriers do not match":
        return (
            f"{capital(who(0))} waits at the barrier on {line(0)}, {who(1)} at that on {line(1)}."
        )
    if kind == "exited before a barrier":
        at = f" on {line(0)}" if accesses[0].instruction is not None else ""
        return f"{capital(who(0))} has ended{at}; {who(1)} waits at the barrier on {line(1)}."
    if o.kind in ("lanes equal", "lanes differ"):
        same = "the same value" if o.kind == "lanes equal" else "different values"
        return f"{capital(who(0))} and {who(1)} write {same} to {place} at once."
    if kind == "equal values written":
        return f"{capital(who(0))} and {who(1)} write the same value to {place}, in no order."
    if o.kind.startswith("copy "):
        return (
            f"{capital(who(0))} copies to {place} on {line(0)} (cp.async), {who(1)} {verb(1)} it "
            f"on {line(1)} before the copy has been waited for."
        )
    between = {
        "warp": "no __syncwarp() between them",
        "block": "no barrier between them",
        "grid": "and nothing puts blocks in order",
    }[o.scope]
    return (
        f"{capital(who(0))} {verb(0)} {place} on {line(0)}, {who(1)} {verb(1)} it on {line(1)}, "
        f"{between}."
    )
