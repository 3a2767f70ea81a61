"""How long a product kernel takes on a named GPU, from what `profile` counts and public figures.

    p = predict(KERNELS["tiled"], 2048, 2048, 2048, "H200")
    print(p)            # a line for each term, the slowest marked
    p.ms
    predict_launch(profile(...), "A100")    # of any other kernel
    print(beside_record())                  # for the H200: predicted, recorded, error

A multiprocessor works on several things at once, so the time is that of the slowest alone:

- FMA issue: each FMA of a warp keeps the FP32 units busy for 32 / units cycles.
- Instruction issue: each of the four schedulers issues one instruction of a warp a cycle, and an
  FFMA whose operands lie in one bank of registers takes longer (helpers.issue, from the machine
  code for compute capability 9.0, whatever the card).
- L1 and shared memory: one wavefront a cycle (128 bytes: 32 banks of 4; CUDA C++ Programming Guide,
  "Shared Memory"). Shared accesses take as many as profile counts, a request to global memory one,
  and what arrives from the L2 cache is written at FILL_BYTES a cycle.
- Tag lookups: one 128-byte line of a global request a cycle.
- L2 cache and device memory: the bytes of the model in helpers.reuse at the card's rates.
- Latency: a block's warps go through the loop together. Each pass waits for its loads, as often as
  the machine code does, then for the chain of FMAs that need one another, and needs the busiest
  unit for its own work. In that time a multiprocessor does one pass of all its resident blocks.
  Where the schedulers are the busiest, the blocks share them evenly and come to their loads at the
  same time: then a pass takes the work of all of them. A load is not waited for as long as work
  stands between it and the first use of its value: half a tile's in the double-buffered kernel, all
  of it with cp.async, which is waited for only by the first tile of a block.

The multiprocessor with the most blocks counts. Counts are those of small matrices, scaled: each
block does the same, and each step along K does the same. Edges count as whole blocks.

Two constants come from the H200 this project measured, not from NVIDIA: one line a cycle, which
explains the time of the uncoalesced kernel, and FILL_BYTES, which explains that of the tiled ones.
A figure that nobody has published is left out, and the prediction says so.

Beside the H200's record of 2026-11-30, at 1024 to 8192: half of the lessons' kernels within 6%, all
within 18%, but for register_column, which it has 40 to 45% too fast. There each of two loads and
stores of a pass waits by itself, behind a long chain of index arithmetic and branches, and nothing
here counts the latency of these. Of the others the small matrices are worst (register_tile and
warp_tile at 1024, 15 and 18% too fast: one block to a multiprocessor, whose waits for shared memory
nothing fills), and swizzled from 4096 on (18%: the L2 cache and its latency under load).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers import one_access, reuse
from helpers.cards import CARDS, Card, card
from helpers.errors import WrongType, WrongValue
from helpers.issue import issue
from helpers.kernels import BY_TILE, Kernel, check_by_tile
from helpers.occupancy import Occupancy, occupancy
from helpers.plausible import fills
from helpers.products import product
from helpers.profile import Profile, flops_of, profile
from helpers.recorded import h200
from helpers.register_banks import ARCH
from helpers.sass import SassError, disassemble
from helpers.simt import ptx
from helpers.simt.counts import AccessCount, BlockCount
from helpers.simt.rules import LANES, LINE
from helpers.sizes import checked_size
from helpers.toolkit import ToolkitError

if TYPE_CHECKING:
    from helpers.plots import Picture

FILL_BYTES = 64  # a cycle, from the L2 cache into a multiprocessor's L1 or registers
#: Cycles until an FMA can use another's result: Jia et al., arXiv:1804.06826 (Volta) and
#: arXiv:1903.07486 (Turing); Abdelkhalik et al., arXiv:2208.11174 (Ampere).
FMA_LATENCY = 4
SCHEDULERS = 4  # of a multiprocessor, each with its share of the warps
SECTOR = 32
_NOT_KNOWN = "bytes not known: there is a model of products only"
#: K of the two launches that are counted, and how many tiles of C they have along each side.
_COUNTED_K = (128, 256)
_TILES = 2


@dataclass(frozen=True)
class Work:
    """What one block does. passes: times that a warp goes through the loop that loads; chain: FMAs
    of a thread, each of which needs the one before; exact: whether profile could tell what ptxas
    fuses (else shared wavefronts are the PTX's, which may be more)."""

    fma: float  # warps' FMA instructions
    wavefronts: float  # of shared memory
    requests: float  # warps' requests to global memory
    lines: float  # 128-byte lines of these
    sectors: float  # of these
    passes: float
    chain: float
    shared_loads: float  # requests to shared memory
    exact: bool = True
    issue: float = 0.0  # cycles of a scheduler that its warps' instructions take; 0: not known
    waits: float = 1.0  # for loads, in each pass
    hiding: float = 0.0  # the share of a pass's work between a load and the wait for it


@dataclass(frozen=True)
class Term:
    """One line of a prediction. cycles: None where a figure is missing, and `detail` says which."""

    name: str
    cycles: float | None
    detail: str


@dataclass(frozen=True)
class Prediction:
    """The time of a launch on a card, and what makes it."""

    kernel: str
    size: str  # of the launch, in words
    card: Card
    occupancy: Occupancy
    terms: tuple[Term, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def slowest(self) -> Term:
        """The term that makes the time."""
        return max(
            (t for t in self.terms if t.cycles is not None), key=lambda t: t.cycles or 0
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the card's figures come from."""
        return tuple(filter(None, (self.card.source, self.card.latency_source)))

    @property
    def ms(self) -> float:
        """Milliseconds of one launch, at the card's highest clock."""
        return (self.slowest.cycles or 0) / self.card.clock_hz * 1e3

    def __str__(self) -> str:
        lines = [f"{self.kernel}, {self.size} on {self.card.name}: predicted {self.ms:.3g} ms"]
        for term in self.terms:
            time = "left out" if term.cycles is None else self._time(term.cycles)
            mark = "  <- slowest" if term is self.slowest else ""
            lines.append(f"  {term.name:22}{time:>14}   {term.detail}{mark}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def picture(self) -> Picture:
        """The terms as bars: the longest is the predicted time."""
        return _draw(self)

    def _time(self, cycles: float) -> str:
        return f"{cycles / self.card.clock_hz * 1e3:.4g} ms"


def predict(kernel: Any, M: int, N: int, K: int, on: str | Card = "H200") -> Prediction:
    """The predicted time of C = A * B on a card of helpers.cards.CARDS.

    kernel: what helpers.products.product takes. KeyError for a card without figures, TypeError or
    ValueError for sizes or a compute capability out of range.
    """
    kernel = product(kernel)
    check_by_tile(kernel)
    gpu = on if isinstance(on, Card) else named(on)
    checked_size("K", K)
    x, y, _ = kernel.grid(M, N)
    here = occupancy(kernel, gpu.capability)
    if not here.blocks:
        raise WrongValue(f"no block of kernel {kernel.name!r} fits a multiprocessor of {gpu.name}")
    bytes_moved = reuse.traffic(kernel, M, N, K, gpu, here.blocks)
    size = f"M={M}, N={N}, K={K}"
    return from_work(work(kernel, K), kernel.name, size, x * y, here, bytes_moved, gpu)


def predict_launch(found: Profile, on: str | Card = "H200") -> Prediction:
    """The predicted time of any launch that was profiled.

    What crosses the L2 cache and the memory is not counted and there is no model of it here, so
    these terms are left out: every load is taken to be served by the L2 cache.
    """
    gpu = on if isinstance(on, Card) else named(on)
    launch = found._replica
    here = occupancy(launch.program, gpu.capability, block=found.block, shared=launch.shared)
    if not here.blocks:
        raise WrongValue(f"no block of kernel {found.kernel!r} fits a multiprocessor of {gpu.name}")
    size = f"grid {found.grid}, block {found.block}"
    blocks = math.prod(found.grid)
    return from_work(work_of(found), found.kernel, size, blocks, here, None, gpu)


def named(name: str) -> Card:
    """A card by name; the H200 with the latencies and the L2 rate that were measured on it."""
    found = card(name)
    ceilings = h200().content.get("ceilings") if name == "H200" else None
    if not ceilings:
        return found
    return dataclasses.replace(
        found,
        l2_latency=ceilings["l2_latency"],
        memory_latency=ceilings["memory_latency"],
        l2_bytes_per_clock=ceilings["l2_rate"] / found.clock_hz,
        latency_source=f"measured by cuda/05_ceilings.cu, {h200()}",
    )


def from_work(
    one: Work,
    name: str,
    size: str,
    blocks: int,
    here: Occupancy,
    moved: reuse.Traffic | None,
    gpu: Card,
) -> Prediction:
    """The prediction for `blocks` blocks that each do the work `one`. moved: None if not known."""
    most = -(-blocks // gpu.multiprocessors)  # blocks of the busiest multiprocessor
    fill = moved.l2_bytes / blocks / FILL_BYTES if moved else 0.0
    units = {
        "FMA issue": one.fma * LANES / gpu.fp32_units,
        "instruction issue": one.issue / SCHEDULERS,
        "L1 and shared memory": one.wavefronts + one.requests + fill,
        "tag lookups": one.lines,
    }
    details = {
        "FMA issue": f"{one.fma * most:,.0f} FMAs of warps, {gpu.fp32_units} units",
        "instruction issue": (
            f"{one.issue * most:,.0f} cycles of {SCHEDULERS} schedulers, register banks included"
            if one.issue else "the machine code is not known"
        ),
        "L1 and shared memory": (
            f"{one.wavefronts * most:,.0f} shared wavefronts, {one.requests * most:,.0f} global "
            f"requests, {fill * most:,.0f} cycles of arriving bytes"
        ),
        "tag lookups": f"{one.lines * most:,.0f} lines of 128 bytes",
    }
    terms = [Term(unit, cycles * most, details[unit]) for unit, cycles in units.items()]
    terms += [_l2(moved, gpu), _memory(moved, gpu), _latency(one, units, most, here, moved, gpu)]
    notes = []
    if not one.exact:
        notes.append("what ptxas fuses is not known: shared wavefronts are those of the PTX")
    missing = [term.name for term in terms if term.cycles is None]
    if missing:
        notes.append(f"without {' and '.join(missing)}: the real time may be longer")
    return Prediction(name, size, gpu, here, tuple(terms), tuple(notes))


def _l2(moved: reuse.Traffic | None, gpu: Card) -> Term:
    if moved is None:
        return Term("L2 cache", None, _NOT_KNOWN)
    sectors = f"{moved.l2_bytes / SECTOR:,.0f} sectors"
    if gpu.l2_bytes_per_clock is None:
        return Term("L2 cache", None, f"{sectors}; no rate of this L2 cache was published")
    cycles = moved.l2_bytes / gpu.l2_bytes_per_clock
    return Term("L2 cache", cycles, f"{sectors}, {gpu.l2_bytes_per_clock:,.0f} bytes a cycle")


def _memory(moved: reuse.Traffic | None, gpu: Card) -> Term:
    if moved is None:
        return Term("device memory", None, _NOT_KNOWN)
    cycles = moved.memory_bytes / gpu.memory_rate * gpu.clock_hz
    why = "all fits in the L2 cache" if moved.fits else "more than the L2 cache holds"
    return Term("device memory", cycles, f"{moved.memory_bytes / 1e6:,.0f} MB ({why})")


def _latency(
    one: Work,
    units: dict[str, float],
    most: int,
    here: Occupancy,
    moved: reuse.Traffic | None,
    gpu: Card,
) -> Term:
    name = "latency"
    if gpu.l2_latency is None or gpu.memory_latency is None or gpu.shared_latency is None:
        return Term(name, None, f"no latencies of a {gpu.name} were published")
    if not one.passes:
        return Term(name, None, "the kernel loads nothing")
    far = moved.from_memory if moved else 0.0
    load = gpu.l2_latency + far * (gpu.memory_latency - gpu.l2_latency)
    shared = gpu.shared_latency if one.shared_loads else 0.0
    chain = one.chain / one.passes * FMA_LATENCY
    busiest = max(units, key=lambda unit: units[unit])
    in_step = min(here.blocks, most) if busiest == "instruction issue" else 1
    own = in_step * units[busiest] / one.passes
    wait = one.waits * max(load - one.hiding * own, 0.0)
    each = own + wait + shared + chain
    once = load if wait < load else 0.0  # the first load of a block: nothing hides that
    rounds = max(most / here.blocks, 1.0)
    several = f"{here.blocks} block{'s' * (here.blocks != 1)} at a time"
    return Term(
        name,
        rounds * (one.passes * each + once),
        f"{one.passes:,.0f} passes of {each:,.0f} cycles (load {wait:,.0f}, shared {shared:,.0f}, "
        f"FMAs {chain:,.0f}, own work {own:,.0f}), {several}",
    )


def _draw(found: Prediction) -> Picture:
    from helpers import plots  # numbers alone need no matplotlib

    figure = plots.blank_figure(10, 4.2)
    axes = figure.subplots()
    longest = found.ms
    for row, term in enumerate(found.terms):
        if term.cycles is None:
            axes.text(0, row, f" left out: {term.detail}", va="center", fontsize=13)
            continue
        ms, slowest = term.cycles / found.card.clock_hz * 1e3, term is found.slowest
        axes.barh(row, ms, color=plots.ORANGE if slowest else plots.SKY, edgecolor=plots.INK,
                  hatch="//" if slowest else None)  # fmt: skip
        mark = ", the slowest" if slowest else ""
        axes.text(ms, row, f" {ms:.3g} ms{mark}", va="center", fontsize=14, color=plots.INK)
    axes.set_yticks(range(len(found.terms)), [term.name for term in found.terms], fontsize=14)
    axes.set_ylim(len(found.terms) - 0.4, -0.6)  # the first term at the top
    axes.set_xlim(0, longest * 1.5)
    axes.set_xlabel("ms, if nothing else took time", fontsize=14)
    axes.tick_params(axis="x", labelsize=13)
    title = f"{found.kernel}, {found.size}, on {found.card.name}: predicted {found.ms:.3g} ms"
    axes.set_title(title, fontsize=15)
    told = "; ".join(f"{term.name}: " + ("left out" if term.cycles is None else
                     found._time(term.cycles)) for term in found.terms)  # fmt: skip
    return plots.Picture(figure, f"Bars of what takes time. {title}. {told}.", colours=16)


# -- beside what was measured ----------------------------------------


@dataclass(frozen=True)
class Beside:
    """Predictions beside the times of a record: (kernel, n, predicted ms, recorded ms)."""

    record: str  # whose, and when
    rows: tuple[tuple[str, int, float, float], ...]

    @property
    def errors(self) -> tuple[float, ...]:
        """Predicted by recorded, less 1, of each row."""
        return tuple(ours / theirs - 1 for _, _, ours, theirs in self.rows)

    def __str__(self) -> str:
        lines = [f"recorded: {self.record}",
                 f"{'kernel':19}{'N':>6}{'predicted':>14}{'recorded':>14}{'error':>9}"]  # fmt: skip
        for (name, n, ours, theirs), error in zip(self.rows, self.errors, strict=True):
            lines.append(f"{name:19}{n:>6}{ours:>11.3f} ms{theirs:>11.3f} ms{error:>+9.1%}")
        sizes = [abs(error) for error in self.errors]
        lines.append(f"error: median {statistics.median(sizes):.1%}, largest {max(sizes):.1%}")
        return "\n".join(lines)


def beside_record(
    kernels: Iterable[Kernel] | None = None, sizes: Iterable[int] | None = None
) -> Beside:
    """Predictions for the H200 beside its recorded times, for the kernels and n that have both.

    By default all of helpers.kernels.BY_TILE at all sizes on record that fill the card. KeyError
    where a time is not on record.
    """
    record = h200()
    for name, values in (("kernels", kernels), ("sizes", sizes)):
        if values is not None and (isinstance(values, str) or not isinstance(values, Iterable)):
            raise WrongType(f"{name}={values!r} is no list: write [{values!r}]")
    chosen = [product(kernel) for kernel in kernels or BY_TILE.values()]
    chosen = [kernel for kernel in chosen if kernel.name in record.kernels]
    if not chosen:
        raise KeyError(f"none of these kernels is on record: there are {', '.join(record.kernels)}")
    wanted = sizes or [n for n in record.sizes if fills(n, n, CARDS["H200"])]
    rows = [
        (kernel.name, n, predict(kernel, n, n, n, "H200").ms, record.ms(kernel.name, n))
        for n in wanted
        for kernel in chosen
    ]
    return Beside(str(record), tuple(rows))


# -- counting ----------------------------------------


def work(kernel: Kernel, K: int) -> Work:
    """What a block of the kernel does for that K: counted for two K, and on a straight line."""
    (low, _), (high, _) = (_counted(kernel, kernel.source, counted) for counted in _COUNTED_K)
    share = (K - _COUNTED_K[0]) / (_COUNTED_K[1] - _COUNTED_K[0])
    values = {}
    for item in dataclasses.fields(Work):
        first, second = getattr(low, item.name), getattr(high, item.name)
        values[item.name] = first + share * (second - first)
    values["exact"] = low.exact and high.exact
    return Work(**{k: max(v, 0.0) if k != "exact" else v for k, v in values.items()})


@functools.lru_cache(maxsize=64)
def _counted(kernel: Kernel, source: str, K: int) -> tuple[Work, dict[int, int]]:
    """What a block does, on average over a few of them, all whole; and the lines of its accesses,
    which are looked at for the first K only: the code that looks takes long to make.

    source: the kernel's, so that a file that was edited is counted anew.
    """
    M, N = (_TILES * math.lcm(side, LANES) for side in kernel.tile)
    A, B = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    found = profile(kernel, A, B, np.zeros((M, N), np.float32), M, N, K)
    first = _COUNTED_K[0]
    lines = {} if K == first else dict(_counted(kernel, source, first)[1])
    return work_of(found, lines), lines


def work_of(found: Profile, known: dict[int, int] | None = None) -> Work:
    """What a block of a profiled launch does, on average. known: PTX line of an access -> the
    128-byte lines of it; what is not in there is looked at, and added."""
    known = {} if known is None else known
    blocks = math.prod(found.grid)
    warps = -(-math.prod(found.block) // LANES)
    counts = found._counts
    shared = [t for t in found.totals() if t.space == "shared"]
    exact = all(t.hardware.wavefronts is not None for t in shared)
    spent = sum(t.hardware.wavefronts if exact else t.wavefronts for t in shared)
    in_global = [a for a in counts.accesses if "global" in a.costs and a.costs["global"].requests]
    for access in in_global:
        if access.instruction.ptx_line not in known:
            known[access.instruction.ptx_line] = _lines(found, access)
    loads = [a.costs["global"].requests for a in in_global if a.operation in ("load", "copy")]
    fmas = sum(b.runs for b, _ in _fmas(counts.blocks))
    return Work(
        fma=fmas / blocks,
        wavefronts=spent / blocks,
        requests=sum(a.costs["global"].requests for a in in_global) / blocks,
        lines=sum(known[a.instruction.ptx_line] * a.costs["global"].requests
                  for a in in_global) / blocks,  # fmt: skip
        sectors=sum(a.costs["global"].units for a in in_global) / blocks,
        passes=max(loads, default=0) / blocks / warps,
        chain=sum(b.runs * _chain(b) for b in counts.blocks) / blocks / warps,
        shared_loads=sum(t.requests for t in shared if t.operation == "load") / blocks,
        exact=exact,
        **_issued(found, fmas, blocks),
    )


def _issued(found: Profile, fmas: float, blocks: int) -> dict[str, float]:
    """What the machine code adds: `issue`, `waits` and `hiding`, where it can be had."""
    program = found._replica.program
    try:
        functions = disassemble(program.ptx, ARCH)
    except (SassError, ToolkitError):
        return {}
    runs = {i.ptx_line: block.runs for block in found._counts.blocks
            for i in [*block.instructions, *([block.branch] if block.branch else [])]}  # fmt: skip
    function = max(functions, key=lambda f: sum(i.ptx_line in runs for i in f.instructions))
    code = issue(function, runs, fmas)
    if code is None:
        return {}
    return {"issue": code.cycles / blocks, "waits": code.waits, "hiding": code.hiding}


def _fmas(blocks: list[BlockCount]) -> Iterator[tuple[BlockCount, ptx.Instruction]]:
    for block in blocks:
        for i in block.instructions:
            if flops_of(i)[0] == "f32":
                yield block, i


def _chain(block: BlockCount) -> int:
    """The most FP32 operations of a basic block of which each needs the result of another."""
    depth: dict[Any, int] = {}
    for i in block.instructions:
        if flops_of(i)[0] == "f32" and i.operands:
            result, *given = i.operands
            depth[result] = 1 + max((depth.get(operand, 0) for operand in given), default=0)
    return max(depth.values(), default=0)


def _lines(found: Profile, access: AccessCount) -> int:
    """128-byte lines of an access, looked at once: the first time that a warp executes it."""
    chosen = one_access.Chosen(access, access.instruction.line, "global", 0, 1)
    first = one_access.trace(found._replica, chosen, (0, 0, 0), 0, 0)
    return len({first.addresses[k] // LINE for k in range(LANES) if first.mask >> k & 1})
