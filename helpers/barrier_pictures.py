"""Two warps of a block on a line of time: what barriers hold back, and where races can be.

    timeline()                                  # the tiled kernel with and without its barriers

The times are made up, but what follows from them is not: `schedule` lets each warp load and
multiply, wait where the kernel has a barrier, and no longer; `races` are the times in which one
warp uses a tile that the other is changing. Colours are as in `helpers.plots`; hatching and words
repeat what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from helpers.plots import INK, LINE, ORANGE, PAPER, SKY, VERMILION, Picture

LOAD, MULTIPLY = "load", "multiply"
DURATIONS = ({LOAD: 2.0, MULTIPLY: 4.5}, {LOAD: 3.5, MULTIPLY: 2.5})  # of two warps
STEPS = 2
READ_AFTER_WRITE, WRITE_AFTER_READ = "read after write", "write after read"


@dataclass(frozen=True)
class Variant:
    """A tiled kernel: after which part of a step it has a barrier, and how many pairs of tiles."""

    name: str
    barriers: tuple[str, ...]
    buffers: int = 1


VARIANTS = (
    Variant("two barriers", (LOAD, MULTIPLY)),
    Variant("no first barrier", (MULTIPLY,)),
    Variant("no second barrier", (LOAD,)),
    Variant("two pairs of tiles, one barrier", (LOAD,), 2),
)


@dataclass(frozen=True)
class Part:
    """A warp loading its part of a tile, or multiplying with the whole tile."""

    warp: int
    step: int
    what: str
    start: float
    end: float


@dataclass(frozen=True)
class Race:
    """A time in which the order of two warps is left to chance."""

    kind: str
    start: float
    end: float


def schedule(variant: Variant) -> tuple[list[Part], list[float]]:
    """What the two warps do when, and when barriers open."""
    parts, opened, now = [], [], [0.0 for _ in DURATIONS]
    for step in range(STEPS):
        for what in (LOAD, MULTIPLY):
            for warp, durations in enumerate(DURATIONS):
                start, now[warp] = now[warp], now[warp] + durations[what]
                parts.append(Part(warp, step, what, start, now[warp]))
            if what in variant.barriers:
                now = [max(now)] * len(now)
                opened.append(now[0])
    return parts, opened


def races(variant: Variant, parts: Sequence[Part]) -> list[Race]:
    """Times from which on a warp may read what is not stored yet, or store over what is read."""
    found = []
    for use in (part for part in parts if part.what == MULTIPLY):
        for load in (part for part in parts if part.what == LOAD and part.warp != use.warp):
            same_tile = load.step % variant.buffers == use.step % variant.buffers
            if load.step == use.step and use.start < load.end:
                found.append(Race(READ_AFTER_WRITE, use.start, load.end))
            if same_tile and load.step > use.step and load.start < use.end:
                found.append(Race(WRITE_AFTER_READ, load.start, use.end))
    return found


def timeline(variants: Sequence[Variant] = VARIANTS) -> Picture:
    """The variants one below the other, drawn over the same time."""
    figure = Figure((10, 1.9 * len(variants) + 0.6), facecolor=PAPER, layout="constrained")
    drawn = [(variant, *schedule(variant)) for variant in variants]
    end = max(part.end for _, parts, _ in drawn for part in parts)
    for axes, (variant, parts, opened) in zip(
        figure.subplots(len(variants), squeeze=False)[:, 0], drawn, strict=True
    ):
        _draw(axes, variant, parts, opened, end)
    figure.legend(
        handles=[
            Patch(facecolor=ORANGE, edgecolor=INK, label="load: stores into the tiles"),
            Patch(facecolor=SKY, edgecolor=INK, label="multiply: reads them"),
            Patch(facecolor="none", edgecolor=VERMILION, hatch="//", label="race"),
        ],
        loc="outside lower center", ncols=3, fontsize=15, frameon=False,
    )  # fmt: skip
    return Picture(figure, _words(drawn))


def _draw(
    axes: Axes, variant: Variant, parts: Sequence[Part], opened: Sequence[float], end: float
) -> None:
    for part in parts:
        colour = ORANGE if part.what == LOAD else SKY
        axes.add_patch(Rectangle((part.start, part.warp), part.end - part.start, 0.8,
                                 facecolor=colour, edgecolor=INK))  # fmt: skip
        axes.text((part.start + part.end) / 2, part.warp + 0.4, f"{part.what} {part.step}",
                  ha="center", va="center", fontsize=14, color=INK)  # fmt: skip
    for time in opened:
        axes.plot([time, time], [-0.1, 1.9], color=INK, linewidth=4)
    found = races(variant, parts)
    for race in found:
        axes.add_patch(Rectangle((race.start, -0.15), race.end - race.start, 2.1, hatch="//",
                                 facecolor="none", edgecolor=VERMILION, linewidth=2))  # fmt: skip
    kinds = ", ".join(dict.fromkeys(race.kind for race in found))
    axes.set_title(variant.name + (f": race, {kinds}" if found else ""), loc="left", fontsize=16,
                   color=INK)  # fmt: skip
    axes.set_xlim(-0.1, end + 0.1)
    axes.set_ylim(2.05, -0.25)
    axes.set_yticks([0.4, 1.4], ["warp 0", "warp 1"], fontsize=14)
    axes.set_xticks([])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_color(LINE)


def _words(drawn: Sequence[tuple[Variant, list[Part], list[float]]]) -> str:
    sentences = [f"Two warps over {STEPS} steps; time runs to the right, bars are barriers."]
    for variant, parts, opened in drawn:
        found = races(variant, parts)
        what = "no race" if not found else "a race, " + " and ".join(
            dict.fromkeys(f"{race.kind}" for race in found)
        )  # fmt: skip
        sentences.append(
            f"{variant.name.capitalize()}: {len(opened)} barriers, {what}, "
            f"done at {max(part.end for part in parts):g}."
        )
    return " ".join(sentences)
