"""Which block works on which tile of C when: the last wave, with and without stream-K.

    waves((128, 256), 3000, 3000, 3000)            # a tile; also a kernel's name, or Constants
    print(waves((128, 256), 3000, 3000, 3000))     # the same as numbers
    stream_k(tiles=5, depth=4, places=2)           # the schedule as data

A place is where a block can run: a multiprocessor, or each of several blocks that it runs at one
time. The clock counts steps along K, BK each, of one tile of C. All of them are taken to last
equally long, and nothing else to take time: so the pictures show what a schedule leaves idle at
best. What a card does is measured.

`stream_k` repeats the expressions of `work` in cuda/09_last_percent.cu; the tests hold the two
together. Colours are as in `helpers.plots`; words repeat what they say.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.cards import CARDS
from helpers.errors import WrongType, WrongValue
from helpers.plots import BLUE, GREEN, INK, LINE, ORANGE, PAPER, SKY, Picture
from helpers.products import product

MULTIPROCESSORS = CARDS["H200"].multiprocessors
BK = 8  # of a tile that does not say how far a step goes
MOST = 100_000  # tiles, and places: more cannot be told apart in a picture


@dataclass(frozen=True)
class Piece:
    """Steps first to last - 1 along K of one tile of C."""

    tile: int
    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Schedule:
    """What runs at each place, piece after piece. depth: steps along K of a whole tile.

    A piece that does not begin at 0 goes on from the sums of the one that ends there.
    """

    depth: int
    places: tuple[tuple[Piece, ...], ...]

    @functools.cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """When each piece starts: when its place is free and the sums that it needs are there.

        Raises WrongValue if a piece waits for ever.
        """
        ready: dict[tuple[int, int], int] = {}  # (tile, steps done): since when
        starts: list[list[int]] = [[] for _ in self.places]
        free = [0] * len(self.places)
        waiting = set(range(len(self.places)))
        while waiting:
            before = sum(map(len, starts))
            for place in sorted(waiting):
                for piece in self.places[place][len(starts[place]) :]:
                    needed = (piece.tile, piece.first)
                    if piece.first and needed not in ready:
                        break
                    start = max(free[place], ready.get(needed, 0))
                    starts[place].append(start)
                    free[place] = ready[piece.tile, piece.last] = start + piece.steps
                if len(starts[place]) == len(self.places[place]):
                    waiting.remove(place)
            if waiting and sum(map(len, starts)) == before:
                place = min(waiting)
                piece = self.places[place][len(starts[place])]
                raise WrongValue(f"place {place} waits for ever for the first {piece.first} steps "
                                 f"of tile {piece.tile}")  # fmt: skip
        return tuple(map(tuple, starts))

    @property
    def end(self) -> int:
        """When the last piece is finished."""
        return max(
            start + piece.steps
            for pieces, starts in zip(self.places, self.starts, strict=True)
            for piece, start in zip(pieces, starts, strict=True)
        )

    @property
    def busy(self) -> float:
        """Share of all places' time until the end in which they work."""
        steps = sum(piece.steps for pieces in self.places for piece in pieces)
        return steps / (self.end * len(self.places))


def one_tile_a_block(tiles: int, depth: int, places: int) -> Schedule:
    """A block computes one tile, and the next one starts where a place is free: in waves."""
    tiles, depth, places = _check_work(tiles, depth, places)
    every = [Piece(tile, 0, depth) for tile in range(tiles)]
    return Schedule(depth, tuple(tuple(every[place::places]) for place in range(places)))


def stream_k(tiles: int, depth: int, places: int) -> Schedule:
    """As cuda/09_last_percent.cu: one to two tiles for each block, the last ones, are shared
    evenly; a block begins with the end of its part of them. Then come whole tiles."""
    tiles, depth, places = _check_work(tiles, depth, places)
    whole = max(tiles // places - 1, 0)
    whole_tiles = whole * places
    parts = min(tiles, places)
    steps = (tiles - whole_tiles) * depth
    blocks = []
    for block in range(places):
        pieces = []
        begin, end = _part(steps, parts, block), _part(steps, parts, block + 1)
        while end > begin:
            t = (end - 1) // depth
            first = max(begin - t * depth, 0)
            pieces.append(Piece(whole_tiles + t, first, end - t * depth))
            end = t * depth + first
        pieces += [Piece(k * places + block, 0, depth) for k in reversed(range(whole))]
        blocks.append(tuple(pieces))
    return Schedule(depth, tuple(blocks))


def _part(steps: int, parts: int, i: int) -> int:
    """Where part i begins, of all steps cut into as equal parts as can be."""
    i = min(i, parts)
    return steps // parts * i + min(steps % parts, i)


def _check_work(tiles: int, depth: int, places: int) -> tuple[int, ...]:
    found = _check(tiles=tiles, depth=depth, places=places)
    for name, value in (("tiles", tiles), ("places", places)):
        if value > MOST:
            raise WrongValue(f"{value:,} {name} are too many to be followed one by one, more than "
                             f"{MOST:,}")  # fmt: skip
    return found


def _check(**numbers: int) -> tuple[int, ...]:
    """The numbers as Python's. Raises WrongType or WrongValue."""
    for name, value in numbers.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise WrongType(f"{name}={value!r} is a {type(value).__name__}: give an integer")
        if value < 1:
            raise WrongValue(f"{name}={value}: at least 1")
    return tuple(map(int, numbers.values()))


# --- drawing ------------------------------------------------------------------------------------

_WHOLE = (SKY, BLUE)  # tiles in turn
_BEGUN, _FINISHED = ORANGE, GREEN
_IDLE = "#EDEDED"


@dataclass(frozen=True)
class Waves(Picture):
    """The picture; `print` it for the numbers. separate: one tile a block; shared: stream-K."""

    title: str = ""
    tiles: int = 0
    separate: Schedule | None = None
    shared: Schedule | None = None

    @property
    def waves(self) -> int:
        """With one tile a block."""
        return -(-self.tiles // len(self.separate.places))

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"{name:16}{text}" for name, text in self._lines())])

    def _lines(self) -> list[tuple[str, str]]:
        waves = f"{self.waves} wave{'s' * (self.waves > 1)}, "
        return [
            ("one tile a block", f": {waves}{_told(self.separate)}"),
            ("stream-K", f": {_told(self.shared)}"),
        ]


def _told(schedule: Schedule) -> str:
    return f"{schedule.end / schedule.depth:.2f} tiles' time, busy {100 * schedule.busy:.1f}%"


def waves(
    kernel: Any,
    M: int,
    N: int,
    K: int,
    multiprocessors: int = MULTIPROCESSORS,
    *,
    resident: int | None = None,
) -> Waves:
    """Each multiprocessor a row: on what it works when, with one tile a block and with stream-K.

    kernel: rows and columns of a tile, an object with BM, BN, BK and RESIDENT (the constants of
    lesson 9's kernel), or what `helpers.products.product` takes, of which only the tile counts.
    resident: blocks that a multiprocessor runs at one time, each of which gets a row.

    Raises WrongValue or WrongType for what is no tile, no size, no number of multiprocessors, and
    for more than MOST tiles or places.
    """
    BM, BN, step, each = _tile(kernel)
    each = each if resident is None else resident
    M, N, K, multiprocessors, each = _check(
        M=M, N=N, K=K, multiprocessors=multiprocessors, resident=each
    )
    rows, columns = -(-M // BM), -(-N // BN)
    tiles, depth, places = rows * columns, -(-K // step), multiprocessors * each
    title = (f"{M:,} × {N:,} × {K:,}: {rows} × {columns} = {tiles:,} tiles of {BM} × {BN} for "
             f"{multiprocessors} multiprocessors")
    title += f", {each} blocks each" * (each > 1)
    separate, shared = (make(tiles, depth, places) for make in (one_tile_a_block, stream_k))
    plain = Waves(Figure(), "", 900, 32, title, tiles, separate, shared)
    told = " ".join(f"{name[0].upper()}{name[1:]}{text}." for name, text in plain._lines())
    alt = (f"{title}. Two panels, time from left to right, a row for each place of a block. {told} "
           "Where a tile is shared, the piece that begins it is orange, the one that finishes it "
           "green.")  # fmt: skip
    return Waves(_draw(plain), alt, 900, 32, title, tiles, separate, shared)


def _tile(kernel: Any) -> tuple[int, int, int, int]:
    """BM, BN, BK, RESIDENT."""
    names = ("BM", "BN", "BK", "RESIDENT")
    if all(hasattr(kernel, name) for name in names):
        return _check(**{name: getattr(kernel, name) for name in names})
    if isinstance(kernel, Sequence) and not isinstance(kernel, str):
        if len(kernel) != 2:
            raise WrongType(f"{kernel!r} is no tile: give its rows and columns, (128, 256)")
        return *_check(BM=kernel[0], BN=kernel[1]), BK, 1
    return *product(kernel).tile, BK, 1


def _draw(found: Waves) -> Figure:
    figure = Figure((13, 7.4), facecolor=PAPER, layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    figure.suptitle(found.title, fontsize=17, color=INK)
    end = max(found.separate.end, found.shared.end) / found.separate.depth
    both = (found.separate, found.shared)
    for axes, schedule, (name, text) in zip(panels, both, found._lines(), strict=True):
        _panel(axes, schedule, end)
        axes.set_title(f"{name}{text}", fontsize=16, color=INK, loc="left")
        axes.set_ylabel("multiprocessor" if len(schedule.places) <= MULTIPROCESSORS else "place",
                        fontsize=15)  # fmt: skip
    for wave in range(1, found.waves):
        panels[0].axvline(wave, color=INK, linewidth=1.5, linestyle="--")
    panels[1].set_xlabel("time, in tiles", fontsize=15)
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=INK, hatch=hatch)
               for colour, hatch in ((SKY, ""), (_BEGUN, ""), (_FINISHED, ""), (_IDLE, "//"))
               ]  # fmt: skip
    figure.legend(handles, ["whole tiles", "a tile's beginning", "its end, from the sums left",
                            "idle"], loc="outside lower center", ncols=4, fontsize=14,
                  frameon=False)  # fmt: skip
    return figure


def _panel(axes: Axes, schedule: Schedule, end: float) -> None:
    """The pieces, one row for each place; time in tiles."""
    boxes, colours = [], []
    for place, (pieces, starts) in enumerate(zip(schedule.places, schedule.starts, strict=True)):
        for k, (piece, start) in enumerate(zip(pieces, starts, strict=True)):
            x, width = start / schedule.depth, piece.steps / schedule.depth
            boxes.append(Rectangle((x, place), width, 1))
            whole = piece.steps == schedule.depth
            colours.append(_WHOLE[k % 2] if whole else
                           _FINISHED if piece.first else _BEGUN)  # fmt: skip
    places = len(schedule.places)
    width = 0.2 if places > 40 else 0.8
    axes.add_patch(Rectangle((0, 0), schedule.end / schedule.depth, places, facecolor=_IDLE,
                             hatch="//", edgecolor=LINE, linewidth=0))  # fmt: skip
    axes.add_collection(PatchCollection(boxes, facecolors=colours, edgecolors=PAPER,
                                        linewidths=width))  # fmt: skip
    axes.set_xlim(0, end)
    axes.set_ylim(places, 0)
    axes.tick_params(labelsize=13)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
