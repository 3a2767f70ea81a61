"""The roofline of a card with the kernels on it: what each could reach, and what it reaches.

    roofline(1024)                      # this GPU's, measured now; else the H200's, as recorded
    print(roofline(1024))               # the same as a table

A kernel does so many FLOPs for each byte that moves at some level: its arithmetic intensity there.
A level that moves B bytes a second then lets it reach B times the intensity, and never more than
the FP32 units do (S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual
performance model for multicore architectures, Commun. ACM 52(4), 2009, 65-76).

Bytes at the L1 cache and shared memory are those of `profile`: 128 for each wavefront of shared
memory, 32 for each sector of a global request. Bytes at the L2 cache and at device memory are those
of the model in helpers.reuse. Ceilings are measured by cuda/05_ceilings.cu; that of the L1 cache
and shared memory together is 128 bytes a cycle of each multiprocessor (CUDA C++ Programming Guide,
"Shared Memory": 32 banks of 4 bytes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import benchmark, reuse
from helpers.cards import CARDS, Card, this_card
from helpers.ceilings import Ceilings, measure_ceilings
from helpers.errors import WrongType, WrongValue
from helpers.kernels import BY_TILE, Kernel, check_by_tile
from helpers.occupancy import occupancy
from helpers.plausible import flops_of
from helpers.predict import SECTOR, work
from helpers.products import product
from helpers.recorded import Record, h200
from helpers.simt.rules import LINE
from helpers.sizes import checked_size
from helpers.timing import backend, gflops

if TYPE_CHECKING:
    from helpers.plots import Picture

LEVELS = ("L1 and shared", "L2 cache", "memory")


@dataclass(frozen=True)
class Point:
    """A kernel at one level. intensity: FLOPs for a byte; flops: reached, a second."""

    kernel: str
    level: str
    intensity: float
    flops: float


@dataclass(frozen=True)
class Roofline:
    """Ceilings of a card, and the points of kernels at all levels. Print it or show it.

    rates: bytes a second of each level; where: which card, measured when; recorded: whether these
    are another card's figures, kept with the project, and not this machine's.
    """

    where: str
    recorded: bool
    n: int
    peak: float  # FLOP/s
    rates: Mapping[str, float]
    points: tuple[Point, ...]

    def bound(self, point: Point) -> float:
        """FLOP/s that the point's level and the FP32 units allow."""
        return min(self.peak, self.rates[point.level] * point.intensity)

    @property
    def title(self) -> str:
        """Whose roofline it is."""
        return f"{'Recorded on' if self.recorded else 'Measured on'} {self.where}; N = {self.n:,}"

    def __str__(self) -> str:
        lines = [self.title, f"FP32 units: {self.peak / 1e12:.1f} TFLOP/s"]
        lines += [f"{name}: {rate / 1e9:,.0f} GB/s" for name, rate in self.rates.items()]
        lines.append(f"{'kernel':19}{'level':15}{'FLOP/byte':>11}{'TFLOP/s':>10}{'of bound':>10}")
        for p in self.points:
            lines.append(f"{p.kernel:19}{p.level:15}{p.intensity:>11.2f}{p.flops / 1e12:>10.2f}"
                         f"{p.flops / self.bound(p):>10.0%}")  # fmt: skip
        return "\n".join(lines)

    def picture(self, level: str | None = None) -> Picture:
        """The plot; of one of LEVELS, or of all whose rate is known. ValueError for another."""
        if level is not None and level not in self.rates:
            known = level in LEVELS
            why = "has no measured rate here: there are" if known else "is none of"
            raise WrongValue(f"level={level!r} {why} {', '.join(self.rates)}")
        return _draw(self, [level] if level else list(self.rates))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        return self.picture()._repr_mimebundle_(include, exclude)


def roofline(
    n: int = 1024, kernels: Sequence[Any] | None = None, *, times_ms: Mapping | None = None
) -> Roofline:
    """The roofline of this GPU with its kernels at n x n; without a GPU that of the H200 on record.

    kernels: what helpers.products.product takes, by default those of the lessons. times_ms: name ->
    milliseconds, where they have been measured already. Raises KeyError for what is not on record,
    TypeError or ValueError for what is no size or kernel.
    """
    checked_size("n", n)
    if isinstance(kernels, str):
        raise WrongType(f"kernels={kernels!r} is no list: write [{kernels!r}]")
    chosen = None if kernels is None else [product(kernel) for kernel in kernels]
    for kernel in chosen or []:
        check_by_tile(kernel)
    if backend() == "cpu":
        return recorded_roofline(h200(), n, chosen)
    card = this_card()
    chosen = chosen or list(BY_TILE.values())
    with benchmark.exclusive():
        found = measure_ceilings()
    times = dict(times_ms or benchmark.times_of(chosen, n))
    return of(f"{card.name}, now", False, n, card, found, times, chosen)


def recorded_roofline(
    record: Record, n: int = 1024, kernels: Sequence[Kernel] | None = None
) -> Roofline:
    """The roofline of a record. Ceilings that are not on record are those of the data sheet."""
    card = CARDS["H200"]
    kept = record.content.get("ceilings")
    if kept:
        found = Ceilings(**kept)
    else:
        unknown = float("nan")
        found = Ceilings(card.flops, card.memory_rate, unknown, unknown, unknown, "gpu")
    chosen = kernels or [k for k in BY_TILE.values() if k.name in record.kernels]
    times = {kernel.name: record.ms(kernel.name, n) for kernel in chosen}
    sheet = "" if kept else "; ceilings of the data sheet"
    return of(f"{record}{sheet}", True, n, card, found, times, chosen)


def of(
    where: str,
    recorded: bool,
    n: int,
    card: Card,
    ceilings: Ceilings,
    times_ms: Mapping[str, float],
    kernels: Sequence[Kernel],
) -> Roofline:
    """A roofline from its parts."""
    l1 = LINE * card.multiprocessors * card.clock_hz
    rates = dict(zip(LEVELS, (l1, ceilings.l2_rate, ceilings.memory_rate), strict=True))
    rates = {level: rate for level, rate in rates.items() if rate == rate}  # what is known
    points = []
    for kernel in kernels:
        moved = bytes_at(kernel, n, card)
        flops = gflops(n, n, n, times_ms[kernel.name]) * 1e9
        points += [Point(kernel.name, level, flops_of(n, n, n) / moved[level], flops)
                   for level in rates]  # fmt: skip
    return Roofline(where, recorded, n, ceilings.flops, rates, tuple(points))


def bytes_at(kernel: Kernel, n: int, card: Card) -> dict[str, float]:
    """Bytes of a product of n x n matrices at each level."""
    check_by_tile(kernel)
    x, y, _ = kernel.grid(n, n)
    one = work(kernel, n)
    moved = reuse.traffic(kernel, n, n, n, card, occupancy(kernel, card.capability).blocks)
    near = x * y * (LINE * one.wavefronts + SECTOR * one.sectors)
    return dict(zip(LEVELS, (near, moved.l2_bytes, moved.memory_bytes), strict=True))


def _draw(found: Roofline, levels: Sequence[str]) -> Picture:
    from helpers import plots  # numbers alone need no matplotlib

    points = [p for p in found.points if p.level in levels]
    left = min(p.intensity for p in points) / 2
    right = max(max(p.intensity for p in points), found.peak / min(found.rates.values())) * 4
    peak = found.peak / 1e12
    figure = plots.blank_figure(10, 6.6)
    axes = figure.subplots()
    colours = dict(zip(LEVELS, (plots.BLUE, plots.GREEN, plots.VERMILION), strict=True))
    lines = dict(zip(LEVELS, ("-", "--", ":"), strict=True))
    for level in levels:
        rate = found.rates[level]
        ridge = found.peak / rate
        axes.plot([left, ridge], [rate * left / 1e12, peak], color=colours[level],
                  linestyle=lines[level], linewidth=3,
                  label=f"{level}: {rate / 1e12:.1f} TB/s")  # fmt: skip
    flat = found.peak / max(found.rates[level] for level in levels)
    axes.plot([flat, right], [peak, peak], color=plots.INK, linewidth=3,
              label=f"FP32 units: {peak:.1f} TFLOP/s")  # fmt: skip
    marks = dict(zip(dict.fromkeys(p.kernel for p in points), "osD^vPX*<>phd", strict=False))
    for p in points:
        axes.plot(p.intensity, p.flops / 1e12, marks.get(p.kernel, "o"), color=colours[p.level],
                  markeredgecolor=plots.INK, markersize=12)  # fmt: skip
    for kernel, mark in marks.items():
        axes.plot([], [], mark, color=plots.PAPER, markeredgecolor=plots.INK, markersize=10,
                  label=kernel)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min(p.flops for p in points) / 3e12, peak * 2)
    plots._plain_logarithm(axes.xaxis)
    plots._plain_logarithm(axes.yaxis)
    axes.set_xlabel("FLOP for each byte at that level", fontsize=15)
    axes.set_ylabel("TFLOP/s", fontsize=15)
    axes.set_title(found.title, fontsize=15)
    axes.tick_params(labelsize=13)
    axes.grid(True, color=plots.LINE, linewidth=0.4)
    figure.legend(fontsize=12, loc="outside lower center", ncols=3, frameon=False)
    told = "; ".join(f"{p.kernel} at {p.level}: {p.intensity:.2f} FLOP for each byte, "
                     f"{p.flops / 1e12:.2f} TFLOP/s" for p in points)  # fmt: skip
    return plots.Picture(figure, f"Roofline. {found.title}. {told}.", colours=32)
