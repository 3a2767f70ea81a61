"""The kernels of lesson 8 on a line of time: which buffer is filled, waited for and computed with.

    pipelines()                     # one buffer, two by way of registers, and STAGES of them
    pipelines(tiles=3)              # fewer tiles than stages
    pipelines(latency=0.5)          # a load takes half as long as the arithmetic of a tile

What comes in which order is that of the kernels' loops, and the number of stages is that of
cuda/08_pipeline.cu (or of a kernel compiled with another). The times are made up: the arithmetic of
a tile takes 1, a load `latency`, storing a tile from registers to shared memory STORE; any number
of loads may be under way. From these `schedule` lets each thing begin as soon as its loop allows.

Colours are as in `helpers.plots`; hatching and words repeat what they say.
"""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from helpers.errors import WrongType, WrongValue
from helpers.kernels import Kernel
from helpers.plots import INK, LINE, ORANGE, SKY, VERMILION, Picture, blank_figure
from helpers.products import product

LOAD, STORE_PART, COMPUTE = "load", "store", "compute"
FMAS, REGISTERS = "FMAs", "registers"
STORE = 0.2  # how long storing a tile takes, where computing with it takes 1
LATENCY = 1.6  # how long a load takes
TILES = 7
MOST_TILES = 100
#: What stands before and after the steady state.
PROLOGUE, STEADY, DRAIN = "prologue", "steady state", "drain"


@dataclass(frozen=True)
class Part:
    """A tile that is loaded, stored or computed with. row: FMAS, REGISTERS or a buffer's number."""

    row: str | int
    tile: int
    what: str
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """What a block does when. barriers: times at which one opens."""

    name: str
    buffers: int
    parts: tuple[Part, ...]
    barriers: tuple[float, ...]

    @property
    def rows(self) -> list[str | int]:
        """From the top: registers if tiles go through them, the buffers, the FMAs."""
        through = any(part.row == REGISTERS for part in self.parts)
        return [*([REGISTERS] if through else []), *range(self.buffers), FMAS]

    @property
    def computed(self) -> list[Part]:
        """The arithmetic, tile by tile."""
        return [part for part in self.parts if part.row == FMAS]

    @property
    def end(self) -> float:
        """When the last tile has been computed with."""
        return self.computed[-1].end

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Times in which no FMA runs."""
        ends = [0.0, *(part.end for part in self.computed)]
        found = zip(ends, (part.start for part in self.computed), strict=False)
        return [(start, end) for start, end in found if end > start]

    @property
    def phases(self) -> dict[str, tuple[float, float]]:
        """Prologue: until the first FMA. Drain: from the tile on at whose beginning nothing is left
        to be loaded."""
        first = self.computed[0].start
        last = max(part.start for part in self.parts if part.what == LOAD)
        drain = next((p.start for p in self.computed if p.start > last), self.end)
        return {PROLOGUE: (0.0, first), STEADY: (first, drain), DRAIN: (drain, self.end)}


def stages(kernel: Kernel | str = "pipelined") -> int:
    """The STAGES that a kernel is compiled with: of its options, or as its file defines it.

    Raises WrongValue for a kernel that has none, or what helpers.products.product does.
    """
    kernel = product(kernel)
    text = " ".join([*kernel.options, kernel.source])
    found = re.search(r"(?:-DSTAGES=|#define STAGES )(\d+)", text)
    if not found:
        raise WrongValue(f"kernel {kernel.name!r} has no STAGES: write 'pipelined', or "
                         "helpers.kernels.pipelined(3)")  # fmt: skip
    return int(found[1])


def _check_integer(name: str, value: object) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise WrongType(f"{name}={value!r} is a {type(value).__name__}: give an integer")


def one_buffer(tiles: int, latency: float) -> Schedule:
    """As in matmul_warp_tile: load, store, barrier, compute, barrier."""
    now, parts, barriers = 0.0, [], []
    for tile in range(tiles):
        parts.append(Part(REGISTERS, tile, LOAD, now, now + latency))
        now += latency
        parts.append(Part(0, tile, STORE_PART, now, now + STORE))
        now += STORE
        parts += [Part(row, tile, COMPUTE, now, now + 1) for row in (0, FMAS)]
        barriers += [now, now + 1]
        now += 1
    return Schedule("warp_tile: one buffer", 1, tuple(parts), tuple(barriers))


def two_buffers(tiles: int, latency: float) -> Schedule:
    """As in matmul_double_buffered: store, barrier, start the next load, compute."""
    parts, barriers = [Part(REGISTERS, 0, LOAD, 0.0, latency)], []
    now = arrived = latency
    for tile in range(tiles):
        now = max(now, arrived)
        parts.append(Part(tile % 2, tile, STORE_PART, now, now + STORE))
        now += STORE
        barriers.append(now)
        if tile + 1 < tiles:
            arrived = now + latency
            parts.append(Part(REGISTERS, tile + 1, LOAD, now, arrived))
        parts += [Part(row, tile, COMPUTE, now, now + 1) for row in (tile % 2, FMAS)]
        now += 1
    return Schedule("double_buffered: two buffers, by way of registers", 2, tuple(parts),
                    tuple(barriers))  # fmt: skip


def pipeline(tiles: int, latency: float, stages: int) -> Schedule:
    """As in matmul_pipelined: all stages but one are filled beforehand; then each tile begins with
    the copies for the stage that has just been set free, and ends with a wait for the next tile and
    a barrier."""
    _check_integer("stages", stages)
    if stages < 2:
        raise WrongValue(f"stages={stages}: at least 2, one to compute with and one to be filled")
    parts, barriers, arrived, now = [], [], {}, 0.0

    def copy(tile: int) -> None:
        if tile < tiles:
            arrived[tile] = now + latency
            parts.append(Part(tile % stages, tile, LOAD, now, arrived[tile]))

    for tile in range(stages - 1):
        copy(tile)
    for tile in range(tiles):
        now = max(now, arrived[tile])
        barriers.append(now)
        copy(tile + stages - 1)
        parts += [Part(row, tile, COMPUTE, now, now + 1) for row in (tile % stages, FMAS)]
        now += 1
    return Schedule(f"pipelined: {stages} stages, filled by cp.async", stages, tuple(parts),
                    tuple(barriers))  # fmt: skip


def pipelines(
    tiles: int = TILES, latency: float = LATENCY, kernel: Kernel | str = "pipelined"
) -> Picture:
    """The three, one below the other, over the same time.

    tiles: along K, at least 1. latency: of a load, in times of the arithmetic of a tile. kernel:
    "pipelined", or one made by helpers.kernels.pipelined. Raises WrongType or WrongValue.
    """
    _check_integer("tiles", tiles)
    if not isinstance(latency, numbers.Real) or isinstance(latency, bool):
        raise WrongType(f"latency={latency!r} is a {type(latency).__name__}: give a number")
    if tiles > MOST_TILES:
        raise WrongValue(f"tiles={tiles}: more than {MOST_TILES} cannot be told apart")
    if tiles < 1 or not 0 < latency < math.inf:
        raise WrongValue(f"tiles={tiles}, latency={latency}: at least one tile, and some latency")
    drawn = [one_buffer(tiles, latency), two_buffers(tiles, latency),
             pipeline(tiles, latency, stages(kernel))]  # fmt: skip
    end = max(schedule.end for schedule in drawn)
    rows = [len(schedule.rows) for schedule in drawn]
    figure = blank_figure(12, 0.42 * sum(rows) + 0.75 * len(drawn) + 0.6)
    every = figure.subplots(len(drawn), height_ratios=[n + 1.1 for n in rows])
    for axes, schedule in zip(every, drawn, strict=True):
        _draw(axes, schedule, end)
    figure.legend(
        handles=[
            Patch(facecolor=ORANGE, edgecolor=INK, label="on its way from global memory"),
            Patch(facecolor=ORANGE, edgecolor=INK, hatch="...", label="stored"),
            Patch(facecolor=SKY, edgecolor=INK, label="computed with"),
            Patch(facecolor="none", edgecolor=VERMILION, hatch="//", label="no FMA runs"),
            Line2D([], [], color=INK, linewidth=3.5, label="barrier"),
        ],
        loc="outside lower center", ncols=5, fontsize=14, frameon=False,
    )  # fmt: skip
    return Picture(figure, _words(drawn, tiles, latency), width=900, colours=32)


def _draw(axes: Axes, schedule: Schedule, end: float) -> None:
    rows = schedule.rows
    for part in schedule.parts:
        y = rows.index(part.row)
        style = {"facecolor": SKY if part.what == COMPUTE else ORANGE, "edgecolor": INK}
        if part.what == STORE_PART:
            style["hatch"] = "..."
        axes.add_patch(Rectangle((part.start, y), part.end - part.start, 0.86, **style))
        if part.what != STORE_PART:
            axes.text(part.start + 0.25, y + 0.45, str(part.tile), ha="center", va="center",
                      fontsize=13, color=INK)  # fmt: skip
    for start, stop in schedule.waits:
        axes.add_patch(Rectangle((start, rows.index(FMAS)), stop - start, 0.86, hatch="//",
                                 facecolor="none", edgecolor=VERMILION, linewidth=1.5))  # fmt: skip
    top = 1 if REGISTERS in rows else 0
    for time in schedule.barriers:
        axes.plot([time, time], [top - 0.07, len(rows) - 0.07], color=INK, linewidth=3.5)
    axes.set_title(f"{schedule.name}: done at {schedule.end:.1f}", loc="left", fontsize=15,
                   color=INK)  # fmt: skip
    names = [f"buffer {row}" if isinstance(row, int) else row for row in rows]
    axes.set_yticks([y + 0.43 for y in range(len(rows))], names, fontsize=13)
    axes.set_xlim(-0.05, end + 0.05)
    axes.set_ylim(len(rows) + 0.75, -0.15)
    for name, (start, stop) in schedule.phases.items():
        if stop - start >= 0.7:
            y = len(rows) + 0.02
            axes.annotate("", (start, y), (stop, y), arrowprops={"arrowstyle": "<->", "color": INK})
            axes.text((start + stop) / 2, y + 0.4, name, ha="center", va="center", fontsize=12,
                      color=INK)  # fmt: skip
    axes.set_xticks([])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_color(LINE)


def _words(drawn: list[Schedule], tiles: int, latency: float) -> str:
    sentences = [f"{tiles} tiles along K over time; a load takes {latency:g} times as long as the "
                 "arithmetic of a tile; upright bars are barriers."]  # fmt: skip
    for schedule in drawn:
        first, *later = schedule.waits
        gaps = f", then {len(later)} waits of {later[0][1] - later[0][0]:.1f}" if later else ""
        sentences.append(
            f"{schedule.name[0].upper()}{schedule.name[1:]}: first FMA at {first[1]:.1f}{gaps}, "
            f"{len(schedule.barriers)} barriers, done at {schedule.end:.1f}."
        )
    return " ".join(sentences)
