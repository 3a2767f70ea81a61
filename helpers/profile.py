"""What a launch asks of the memory system, counted line by line: requests, sectors, wavefronts.

    p = profile(KERNELS["tiled"], dA, dB, dC, M, N, K)
    p                                            # a table; in Jupyter the source with the counts
    p.total("global", "load").sectors
    p.total("shared", "load").conflicts
    p.to_csv("tiled.csv")
    p.picture(38, warp=2)                        # one access of one warp on line 38, drawn

The launch is repeated in the engine (helpers.simt), on copies of the data, so it gives the same
counts on a machine without a GPU as beside one. The rules they follow were measured on an H200
and are written down in helpers.simt.rules.

Counts are of PTX instructions, which is what nvcc makes of the source. Its other half, ptxas, may
fuse neighbouring accesses, so that a GPU executes fewer: those are `hardware` counts, where they
can be told for certain (see helpers.fusion).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from helpers import fusion, one_access, profile_views, sass
from helpers.errors import TimeIsUp, WrongValue
from helpers.replica import MORE_TIME, PATIENCE, Replica, replica
from helpers.sandbox import time_limit
from helpers.simt import Fault, ptx, rules
from helpers.simt.counts import AccessCount, BlockCount, Cost, Counts
from helpers.toolkit import ToolkitError

if TYPE_CHECKING:
    from helpers.plots import Picture

SPACES = ("global", "shared", "local")
OPERATIONS = ("load", "store", "atomic", "copy", "matrix")
ARCH = "sm_90"  # whose machine code tells what is fused: the H200's, which the counts are held to


@dataclass(frozen=True)
class Hardware:
    """An access as a GPU executes it, after ptxas has fused neighbours.

    None where that cannot be told; `reason` says why.
    """

    requests: int | None
    wavefronts: int | None
    reason: str = ""


@dataclass(frozen=True)
class Traffic:
    """What warps have asked of one space with one kind of operation, on one line or on many.

    requests: times that a warp executed such an instruction with any lane active.
    lanes: active lanes in all of them; bytes: what they asked for. operation: "load", "store",
    "atomic", "copy" (cp.async, its reads of global memory, which a GPU's counters have among the
    loads as well; its writes to shared memory are not counted) or "matrix" (ldmatrix).
    sectors, ideal_sectors: 32-byte pieces of global or local memory, and how few would hold the
    bytes. wavefronts, ideal_wavefronts: passes through shared memory, and how many groups of lanes
    there were. Each is 0 in the other space.
    """

    space: str
    operation: str
    requests: int
    lanes: int
    bytes: int
    sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int
    hardware: Hardware

    @property
    def conflicts(self) -> int:
        """Wavefronts that bank conflicts cost."""
        return self.wavefronts - self.ideal_wavefronts

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def wavefronts_per_request(self) -> float:
        return self.wavefronts / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Line:
    """One line of the source: its traffic, and what else its instructions did.

    instructions: PTX instructions that warps executed; flops: by type, of active lanes, an FMA as
    two; branches, divergent: times that a warp came to a branch which depends on its lanes, and
    that it went both ways; barriers: times that a warp waited at one.
    """

    file: str
    number: int
    text: str
    traffic: tuple[Traffic, ...]
    instructions: int
    flops: dict[str, int]
    branches: int
    divergent: int
    barriers: int


@dataclass
class Profile:
    """The counts of one launch. Print it, show it in a notebook, or ask for totals and lines."""

    kernel: str
    file: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lines: list[Line]
    unresolved: tuple[str, ...]  # accesses whose machine instructions are not known, with reasons
    _replica: Replica = field(repr=False)
    _counts: Counts = field(repr=False)
    _fused: _Fused = field(repr=False)

    def total(self, space: str, operation: str | None = None) -> Traffic:
        """All traffic with a space, or only its loads, stores or atomics. ValueError for others."""
        _known("space", space, SPACES)
        if operation is not None:
            _known("operation", operation, OPERATIONS)
        found = [t for line in self.lines for t in line.traffic
                 if t.space == space and operation in (None, t.operation)]  # fmt: skip
        return _sum(space, operation or "all", found)

    def line(self, which: int | str, file: str | None = None) -> Line:
        """The line of that number, or the one line with counts that has that text in it.

        Raises ValueError where there is no such line, or nothing was executed on it.
        """
        place = file or self.file
        inside = {line.number: line for line in self.lines if line.file == place}
        numbers = [n for n, line in inside.items() if n == which]
        if isinstance(which, str):
            numbers = [n for n, line in inside.items() if line.traffic and which in line.text]
        if len(numbers) != 1:
            executed = ", ".join(map(str, numbers or inside)) or "none"
            what = "several lines have" if numbers else "nothing was executed on line"
            raise WrongValue(f"{what} {which!r} of {place}; lines with counts: {executed}")
        return inside[numbers[0]]

    @property
    def instructions(self) -> int:
        """PTX instructions that warps executed."""
        return sum(line.instructions for line in self.lines)

    @property
    def flops(self) -> dict[str, int]:
        """Floating-point operations of active lanes by type ("f32", "f64", "f16", "tensor")."""
        found: dict[str, int] = defaultdict(int)
        for line in self.lines:
            for kind, count in line.flops.items():
                found[kind] += count
        return dict(found)

    @property
    def divergent(self) -> int:
        """Times that a warp went both ways at a branch."""
        return sum(line.divergent for line in self.lines)

    @property
    def barriers(self) -> int:
        """Times that a warp waited at a barrier."""
        return sum(line.barriers for line in self.lines)

    def picture(
        self,
        line: int | str,
        *,
        space: str | None = None,
        operation: str | None = None,
        block: Sequence[int] = (0, 0, 0),
        warp: int = 0,
        iteration: int = 0,
        which: int = 0,
    ) -> Picture:
        """Draws one access of one warp, from its addresses when the launch is repeated.

        line: of the source, as for `line`; space, operation: which kind of access, where the line
        has several; which: of those the how-manieth that was executed, in the order of the PTX (a
        loop that is unrolled has many); block, warp: who executes it; iteration: the how-manieth
        time, from 0.

        Raises ValueError where there is no such access or warp, or none so late, TypeError for what
        is no number.
        """
        if isinstance(line, str):
            line = self.line(line).number
        for name, number in (("line", line), ("iteration", iteration), ("which", which)):
            one_access.check_number(name, number)
        if space is not None:
            _known("space", space, SPACES)
        if operation is not None:
            _known("operation", operation, OPERATIONS)
        line, iteration, which = int(line), int(iteration), int(which)
        access = one_access.choose(self._counts.accesses, self.file, line, space, operation, which)
        who = one_access.warp_of(self._replica, block, warp)
        trace = one_access.trace(self._replica, access, *who, iteration)
        text = self._replica.program.line(self.file, line).partition("//")[0].strip()
        title = [f"{self.file}:{line}   {text}", f"{access}, block {who[0]}, warp {warp}, "
                 f"iteration {iteration}", self._fused.note(access.count.instruction)]  # fmt: skip
        return one_access.draw(trace, access.count.operation, "\n".join(filter(None, title)))

    def source_line(self, number: int) -> str:
        """A line of the kernel's file, as it stands there."""
        return self._replica.program.line(self.file, number)

    # -- as text, HTML and data ----------------------------------------

    def __str__(self) -> str:
        return profile_views.text(self)

    def totals(self) -> list[Traffic]:
        """The sums for each space and operation that there is."""
        kinds = {(t.space, t.operation) for line in self.lines for t in line.traffic}
        ordered = [(s, o) for s in SPACES for o in OPERATIONS if (s, o) in kinds]
        return [self.total(*kind) for kind in ordered]

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": profile_views.page(self)}

    def to_dict(self) -> dict[str, Any]:
        """All counts, as plain values."""
        return {
            "kernel": self.kernel,
            "file": self.file,
            "grid": list(self.grid),
            "block": list(self.block),
            "lines": [
                {
                    "file": line.file,
                    "line": line.number,
                    "instructions": line.instructions,
                    "flops": dict(line.flops),
                    "branches": line.branches,
                    "divergent": line.divergent,
                    "barriers": line.barriers,
                    "traffic": [_as_dict(t) for t in line.traffic],
                }
                for line in self.lines
            ],
            "unresolved": list(self.unresolved),
        }

    def to_csv(self, path: str | Path | None = None) -> str:
        """One row for each line, space and operation; written to `path` if one is given."""
        out = io.StringIO()
        fields = ["file", "line", *_as_dict(_sum("", "", []))]
        writer = csv.DictWriter(out, fields, lineterminator="\n")
        writer.writeheader()
        for line in self.lines:
            for t in line.traffic:
                writer.writerow({"file": line.file, "line": line.number, **_as_dict(t)})
        if path is not None:
            Path(path).write_text(out.getvalue(), encoding="utf-8")
        return out.getvalue()


def profile(
    kernel: Any,
    *arguments: Any,
    grid: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
    shared: int | None = None,
    write: bool = False,
    seconds: float = PATIENCE,
) -> Profile:
    """Repeats a launch in the engine and counts what it does.

    kernel, arguments, grid, block, shared: see `helpers.replica.replica`. The caller's arrays stay
    as they are; with `write` they get the launch's results. seconds: how long the launch may take.

    Raises what `replica` raises, simt.Fault if the kernel does something wrong, simt.Unsupported
    for an instruction that the engine does not know, TimeIsUp.
    """
    launch = replica(kernel, *arguments, grid=grid, block=block, shared=shared)
    run = launch.prepare()
    fused = _Fused(launch.program.ptx, run.function.name)
    try:
        with time_limit(seconds, launch.program.entry):
            counts = run.function.count(*run.launch, wider=fused.wider)
    except Fault as fault:
        run.explain(fault)
        raise
    except TimeIsUp as stopped:
        raise TimeIsUp(f"{stopped} {MORE_TIME}") from None
    if write:
        launch.write_back(run)
    program = launch.program
    lines = [
        _line(file, number, program.line(file, number), *parts, fused)
        for (file, number), parts in sorted(_by_line(counts).items(), key=lambda item: item[0])
        if number
    ]
    lines = [line for line in lines if line.instructions]
    doubts = [t.hardware.reason for line in lines for t in line.traffic if t.hardware.reason]
    return Profile(
        program.entry,
        program.file,
        launch.grid,
        launch.block,
        lines,
        tuple(dict.fromkeys(doubts)),
        launch,
        counts,
        fused,
    )


# -- as the hardware executes it ----------------------------------------


class _Fused:
    """Which accesses of a kernel ptxas has fused. PTX instructions are named by their line there.

    wider: the first of each fused group -> the bytes of its one machine access; later: the others,
    and what has no machine instruction of its own at all; doubts: instructions whose machine code
    is not known -> why.
    """

    def __init__(self, text: str, kernel: str):
        self.wider: dict[int, int] = {}
        self.later: set[int] = set()
        self.doubts: dict[int, str] = {}
        self.everything = ""  # why nothing at all is known
        try:
            parsed = ptx.parse(text).kernels[kernel]
            code = next(f for f in sass.disassemble(text, ARCH) if f.name == kernel)
        except (sass.SassError, ToolkitError, StopIteration) as error:
            self.everything = str(error) or "ptxas made no code for it"
            return
        found = fusion.fuse(parsed, code)
        place = {number: access.ptx_line for number, access in found.accesses.items()}
        for group in found.groups:
            first, *others = group.members
            if others:
                self.wider[place[first]] = group.width
                self.later |= {place[number] for number in others}
        self.later |= {place[number] for number in found.removed}
        for entry in found.unresolved:
            self.doubts |= dict.fromkeys((place[n] for n in entry.members), entry.reason)

    def note(self, i: ptx.Instruction) -> str:
        """What ptxas makes of one PTX access, if that is not an access of its own."""
        if i.ptx_line in self.wider:
            width = self.wider[i.ptx_line]
            return f"on a GPU, ptxas makes it and its neighbours one access of {width} bytes a lane"
        if i.ptx_line in self.later:
            return "on a GPU, ptxas fuses it with a neighbour, or removes it"
        return ""

    def hardware(self, access: AccessCount, space: str, cost: Cost) -> Hardware:
        """What the machine executes for one PTX access."""
        i, line = access.instruction, access.instruction.ptx_line
        reason = self.everything or self.doubts.get(line, "")
        if space == "shared" and access.operation == "atomic" and not _is_native(i):
            reason = reason or f"line {i.line}: ptxas makes a loop of {i.name}"
        if reason:
            return Hardware(None, None, reason)
        if line in self.later:
            return Hardware(0, 0)
        if space == "shared" and line in self.wider:
            cost = access.fused[self.wider[line]]
        return Hardware(cost.requests, cost.units if space == "shared" else 0)


def _is_native(i: ptx.Instruction) -> bool:
    """Whether an atomic operation on shared memory is one machine instruction: those of 32-bit
    integers, and exchanges; others become loops around a compare-and-swap."""
    return i.modifiers[-1] in ("u32", "s32", "b32") or bool({"cas", "exch"} & set(i.modifiers))


# -- from counts to lines ----------------------------------------


def _by_line(counts: Counts) -> dict[tuple[str, int], tuple[list, list]]:
    """(file, line) -> (its accesses, (instruction, block) of all its instructions)."""
    lines: dict[tuple[str, int], tuple[list, list]] = defaultdict(lambda: ([], []))
    for access in counts.accesses:
        i = access.instruction
        lines[PurePath(i.file).name, i.line][0].append(access)
    for block in counts.blocks:
        for i in [*block.instructions, *([block.branch] if block.branch else [])]:
            lines[PurePath(i.file).name, i.line][1].append((i, block))
    return lines


def _line(
    file: str,
    number: int,
    text: str,
    accesses: list[AccessCount],
    executed: list[tuple[ptx.Instruction, BlockCount]],
    fused: _Fused,
) -> Line:
    """Adds up one line's counts. FLOPs are those of the lanes that reach an instruction's block."""
    parts: dict[tuple[str, str], list[Traffic]] = defaultdict(list)
    for access in accesses:
        for space, cost in access.costs.items():
            if not cost.requests:
                continue
            traffic = _traffic(space, access, cost, fused.hardware(access, space, cost))
            parts[space, access.operation].append(traffic)
    flops: dict[str, int] = defaultdict(int)
    branches = divergent = barriers = 0
    for i, block in executed:
        kind, count = flops_of(i)
        if count:
            flops[kind] += count * block.lanes
        if i is block.branch and i.guard:
            branches += block.runs
            divergent += block.parted
        barriers += block.runs * (i.opcode in ("bar", "barrier") and "warp" not in i.modifiers)
    kinds = [(s, o) for s in SPACES for o in OPERATIONS if (s, o) in parts]
    return Line(
        file,
        number,
        text.strip(),
        tuple(_sum(*kind, parts[kind]) for kind in kinds),
        sum(block.runs for _, block in executed),
        dict(flops),
        branches,
        divergent,
        barriers,
    )


def _traffic(space: str, access: AccessCount, cost: Cost, hardware: Hardware) -> Traffic:
    shared = space == "shared"
    return Traffic(
        space,
        access.operation,
        cost.requests,
        cost.lanes,
        cost.lanes * access.size,
        0 if shared else cost.units,
        0 if shared else cost.ideal,
        cost.units if shared else 0,
        cost.ideal if shared else 0,
        hardware,
    )


def _sum(space: str, operation: str, parts: Iterable[Traffic]) -> Traffic:
    parts = list(parts)
    reasons = dict.fromkeys(t.hardware.reason for t in parts if t.hardware.reason)
    if reasons:
        hardware = Hardware(None, None, "; ".join(reasons))
    else:
        hardware = Hardware(
            sum(t.hardware.requests for t in parts), sum(t.hardware.wavefronts for t in parts)
        )
    names = "requests lanes bytes sectors ideal_sectors wavefronts ideal_wavefronts".split()
    sums = [sum(getattr(t, name) for t in parts) for name in names]
    return Traffic(space, operation, *sums, hardware)


_FLOATS = {k: k.removesuffix("x2") for k in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")}
_PRODUCT = re.compile(r"m(\d+)n(\d+)k(\d+)")


def flops_of(i: ptx.Instruction) -> tuple[str, int]:
    """(type, floating-point operations of a lane): an FMA counts as two, as everywhere."""
    if i.opcode in ("mma", "wmma"):
        shape = next(filter(None, map(_PRODUCT.fullmatch, i.modifiers)), None)
        if shape is None or "load" in i.modifiers or "store" in i.modifiers:
            return "", 0
        return "tensor", 2 * math.prod(map(int, shape.groups())) // rules.LANES
    kind = _FLOATS.get(i.modifiers[-1] if i.modifiers else "")
    each = {"fma": 2, "mad": 2, "add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "rcp": 1,
            "rsqrt": 1}.get(i.opcode, 0)  # fmt: skip
    if kind is None or not each:
        return "", 0
    return kind, each * (2 if i.modifiers[-1].endswith("x2") else 1)


# -- data ----------------------------------------


def _as_dict(t: Traffic) -> dict[str, Any]:
    return {
        "space": t.space,
        "operation": t.operation,
        "requests": t.requests,
        "lanes": t.lanes,
        "bytes": t.bytes,
        "sectors": t.sectors,
        "ideal_sectors": t.ideal_sectors,
        "wavefronts": t.wavefronts,
        "ideal_wavefronts": t.ideal_wavefronts,
        "conflicts": t.conflicts,
        "hardware_requests": t.hardware.requests,
        "hardware_wavefronts": t.hardware.wavefronts,
    }


def _known(name: str, value: str, values: Sequence[str]) -> None:
    if value not in values:
        raise WrongValue(f"{name}={value!r} is none of {', '.join(values)}")
