"""The tiles of a product kernel as a picture: what a block, a warp and a thread compute of C.

    tiles(KERNELS["register_tile"])       # also the matmul of a %%cuda cell, or a name
    t = tiling("register_tile")           # the same as data
    t.thread(0)                           # 8 × 8 elements: 8 + 8 words for 64 FMAs, 4 FMAs a word

Who computes what is not read from the source's constants but found out: one block is run in the
engine with its stores to C changed, so that each thread stores its own number. (So it is the thread
that writes an element; a kernel whose threads exchange their sums first shows who writes.)

For each k a thread needs one word of A for each of its rows, one word of B for each of its columns,
and does one FMA for each element. The same holds of a warp and of a block, whose threads share
words. That is what must be read at least; what is really read, `helpers.profile` counts.

Colours are as in `helpers.plots`; words repeat what they say.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from helpers.errors import TimeIsUp, WrongValue
from helpers.kernels import Kernel
from helpers.one_access import check_number
from helpers.plots import GREEN, INK, ORANGE, PAPER, SKY, VERMILION, Picture
from helpers.products import product
from helpers.replica import PATIENCE, replica
from helpers.sandbox import time_limit
from helpers.simt import Fault

WARP = 32
STEPS = 64  # the K of the launch that is looked at: a multiple of what kernels walk along at a time


@dataclass(frozen=True)
class Part:
    """What some threads compute of a block's tile: rows and columns in it, and how many elements.

    Rows and columns need not be neighbours.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    elements: int

    @property
    def words(self) -> int:
        """Words of A and of B that are needed for one k."""
        return len(self.rows) + len(self.columns)

    @property
    def fmas_per_word(self) -> float:
        return self.elements / self.words

    def __str__(self) -> str:
        return (f"{len(self.rows)} × {len(self.columns)} elements: {self.sums()}, "
                f"{self.fmas_per_word:.3g} FMAs a word")  # fmt: skip

    def sums(self) -> str:
        """"8 + 8 words for 64 FMAs"."""
        return (f"{len(self.rows)} + {len(self.columns)} words for {self.elements:,} "
                f"FMA{'s' * (self.elements > 1)}")  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """A block's tile of C. owner: for each of its elements the number of the thread that writes it,
    counted through the block with x first; -1 where no thread does."""

    kernel: str
    threads: tuple[int, int, int]
    owner: NDArray[np.int32]

    @property
    def warps(self) -> int:
        return -(-math.prod(self.threads) // WARP)

    def block(self) -> Part:
        """All of it."""
        return self._part(self.owner >= 0)

    def warp(self, number: int) -> Part:
        """What a warp computes."""
        return self._part(self.owner // WARP == number)

    def thread(self, number: int) -> Part:
        """What a thread computes."""
        return self._part(self.owner == number)

    def place(self, number: int) -> tuple[int, ...]:
        """A thread's threadIdx, without the coordinates that are always 0 behind the first two."""
        x, y, z = self.threads
        found = number % x, number // x % y, number // (x * y)
        return found if z > 1 else found[:2]

    def __str__(self) -> str:
        return "\n".join([
            f"{self.kernel}, for each k:", f"block:  {self.block()}", f"warp:   {self.warp(0)}",
            f"thread: {self.thread(0)}",
        ])  # fmt: skip

    def _part(self, mine: NDArray[np.bool_]) -> Part:
        rows, columns = (tuple(np.flatnonzero(mine.any(axis)).tolist()) for axis in (1, 0))
        return Part(rows, columns, int(mine.sum()))


def tiling(kernel: Any) -> Tiling:
    """Which thread of a block writes which element of C.

    kernel: what `helpers.products.product` takes; its errors are those of this. Raises WrongValue
    where one block does not write all of its tile with ordinary stores, simt.Fault for a bad
    access, TimeIsUp.
    """
    found = product(kernel)
    return _tiling(found, found.source)


@functools.lru_cache(maxsize=32)
def _tiling(kernel: Kernel, source: str) -> Tiling:
    """source: the kernel's file as it is now."""
    M, N = kernel.tile
    if kernel.blocks > 1:
        raise WrongValue(f"kernel {kernel.name!r}: {kernel.blocks} blocks share the tiles: "
                         "write helpers.kernels.last_percent(constants, blocks=1)")  # fmt: skip
    if kernel.grid(M, N) != (1, 1, 1):
        raise WrongValue(f"kernel {kernel.name!r} takes {kernel.grid(M, N)} blocks for one tile of "
                         f"{M} × {N}, not one")  # fmt: skip
    A, B, C = (np.zeros(shape, np.float32) for shape in ((M, STEPS), (STEPS, N), (M, N)))
    launch = replica(kernel, A, B, C, M, N, STEPS)
    launch.program = replace(launch.program, ptx=_with_marks(launch.program.ptx))
    run = launch.prepare()
    try:
        with time_limit(PATIENCE, kernel.name):
            run.function.launch(*run.launch)
    except Fault as fault:
        run.explain(fault)
        raise
    except TimeIsUp as stopped:
        raise TimeIsUp(f"{stopped} It was to show one block at work.") from None
    marks = run.result(launch.arguments[2].of).view(np.int32).reshape(M, N)
    owner = np.where((marks > 0) & (marks <= math.prod(kernel.block)), marks - 1, np.int32(-1))
    written = int((owner >= 0).sum())
    if written < M * N:
        raise WrongValue(
            f"kernel {kernel.name!r}: a block of {kernel.block} threads stores {written:,} of the "
            f"{M * N:,} elements of its tile of {M} × {N}: is the tile right (%%cuda … --tile "
            "rows,columns)? (Atomic additions to C are not followed.)"
        )
    return Tiling(kernel.name, kernel.block, owner)


_STORE = re.compile(
    r"(?P<guard>@!?%\w+\s+)?st(?P<how>(?:\.[\w:]+)*)\.(?P<type>[bfsu](?:32|64))\s+"
    r"(?P<address>\[[^\]]+\]),\s*(?P<value>\{[^}]*\}|[^;]+);"
)
# A thread's number + 1, so that 0 means nobody; twice over for two words in one register.
_MARK = (
    ".reg .b32 %mark_t, %mark_n, %mark; .reg .b64 %mark2; mov.u32 %mark_t, %tid.z; "
    "mov.u32 %mark_n, %ntid.y; mov.u32 %mark, %tid.y; mad.lo.s32 %mark, %mark_t, %mark_n, %mark; "
    "mov.u32 %mark_n, %ntid.x; mov.u32 %mark_t, %tid.x; "
    "mad.lo.s32 %mark, %mark, %mark_n, %mark_t; add.s32 %mark, %mark, 1; "
    "mov.b64 %mark2, {%mark, %mark};"
)


def _with_marks(ptx: str) -> str:
    """The PTX with every store to global memory storing the thread's mark.

    Stores through a generic address (without .global) are marked if they store floats.
    """

    def marked(store: re.Match) -> str:
        how, kind = store["how"].split("."), store["type"]
        generic = not {"shared", "local", "param", "global"} & set(how)
        if "global" not in how and not (generic and kind == "f32"):
            return store[0]
        one = "%mark2" if kind.endswith("64") else "%mark"
        count = store["value"].count(",") + 1
        value = "{" + ", ".join([one] * count) + "}" if store["value"].startswith("{") else one
        return (f"{{ {_MARK} {store['guard'] or ''}st{store['how']}.b{kind[1:]} "
                f"{store['address']}, {value}; }}")  # fmt: skip

    return _STORE.sub(marked, ptx)


# --- drawing ------------------------------------------------------------------------------------

# All in inches, from the top left of a panel.
WIDTH, HEIGHT = 4.95, 4.6
ABOVE, BELOW = 0.5, 1.5  # the title, and the words below the panels
LEFT, TOP = 1.05, 1.0  # where the elements of C begin, behind and below the words
STRIP, APART = 0.3, 0.12  # thickness of a strip of words, and its distance from C
LEAST, MOST = 0.7, 0.9  # of all rows or columns together, at least; of one of them, at most
GAP = 0.3  # of an element: between rows or columns that are no neighbours
LABELLED = 16  # rows or columns that still get their numbers
COLOURS = {"A": GREEN, "B": SKY}
PALER = {"A": "#D3ECE4", "B": "#DDEFFA"}  # words that are not needed
PALE, GREY, LIGHT = "#F8E3B8", "#D9D9D9", "#F2F2F2"


def tiles(kernel: Any, *, warp: int = 0, lane: int = 0) -> Picture:
    """The block's tile with one warp in it, this warp's lanes, and the elements of one of them.

    kernel: as for `tiling`. Raises WrongValue for a warp or lane that there is not, or that writes
    nothing.
    """
    found = tiling(kernel)
    check_number("warp", warp)
    check_number("lane", lane)
    thread = warp * WARP + lane
    if not 0 <= warp < found.warps or not 0 <= lane < WARP:
        raise WrongValue(f"warp={warp}, lane={lane}: {found.kernel} has blocks of {found.warps} "
                         f"warps, 0..{found.warps - 1}, with lanes 0..31")  # fmt: skip
    if not found.thread(thread).elements:
        raise WrongValue(f"warp={warp}, lane={lane}: this thread of {found.kernel} writes no "
                         "element of C")  # fmt: skip
    whole = ABOVE + HEIGHT + BELOW
    figure = Figure(figsize=(3 * WIDTH, whole), facecolor=PAPER)
    words = []
    for k, draw in enumerate((_draw_block, _draw_warp, _draw_thread)):
        axes = figure.add_axes((k / 3, BELOW / whole, 1 / 3, HEIGHT / whole))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(HEIGHT, 0)
        axes.axis("off")
        words.append(draw(axes, found, thread))
        _say(axes, 0.56 * WIDTH, HEIGHT + 0.05, words[-1], va="top", linespacing=1.3)
    title = f"{found.kernel}: what is computed of C, and the words of A and B needed for one k"
    figure.text(0.5, 1 - 0.32 / whole, title, ha="center", va="center", fontsize=20,
                color=INK)  # fmt: skip
    said = " ".join(text.replace("\n", "; ") + "." for text in words)
    return Picture(figure, f"{title}. From left to right: {said}", 1040, colours=32)


def _draw_block(axes: Axes, found: Tiling, thread: int) -> str:
    """The block's tile: its warps, that of the thread orange, and the words this one needs."""
    warps, number = found.owner // WARP, thread // WARP
    rows, columns = warps.shape
    grid = _Grid(range(rows), range(columns))
    mine = found.warp(number)
    _strip(axes, grid, "A", set(mine.rows))
    _strip(axes, grid, "B", set(mine.columns))
    shades = np.where(warps == number, 2, warps % 2)
    axes.imshow(shades, cmap=ListedColormap([LIGHT, GREY, ORANGE]), vmin=0, vmax=2,
                extent=(LEFT, grid.right, grid.bottom, TOP), aspect="auto",
                interpolation="nearest")  # fmt: skip
    axes.add_collection(LineCollection(_outlines(warps, grid), colors=INK, linewidths=0.6))
    _names(axes, grid, warps, found.warps, 15)
    _frame(axes, grid)
    plural = "s" * (found.warps > 1)
    return (f"block: {rows} × {columns} elements, {found.warps} warp{plural}\n"
            f"{_needs(found.block())}")  # fmt: skip


def _draw_warp(axes: Axes, found: Tiling, thread: int) -> str:
    """The warp's lanes over its elements; where these repeat themselves, once."""
    mine = found.warp(thread // WARP)
    part = found.owner[np.ix_(mine.rows, mine.columns)]
    lanes = np.where(part // WARP == thread // WARP, part % WARP, -1)
    rows, columns = _period(lanes, mine.rows), _period(lanes.T, mine.columns)
    unit = lanes[:rows, :columns]
    grid = _Grid(mine.rows[:rows], mine.columns[:columns])
    _strip(axes, grid, "A", set(found.thread(thread).rows))
    _strip(axes, grid, "B", set(found.thread(thread).columns))
    for row, column in zip(*np.nonzero(unit >= 0), strict=True):
        chosen = unit[row, column] == thread % WARP
        axes.add_patch(Rectangle(*grid.cell(row, column), facecolor=VERMILION if chosen else PALE,
                                 edgecolor="none"))  # fmt: skip
    axes.add_collection(LineCollection(_outlines(unit, grid), colors=INK, linewidths=0.8))
    _names(axes, grid, unit, WARP, 13)
    _frame(axes, grid)
    times = len(mine.rows) // rows, len(mine.columns) // columns
    shown = f"\nshown: {rows} × {columns}, which repeat {times[0]} × {times[1]} times"
    return (f"warp {thread // WARP}, orange: {len(mine.rows)} × {len(mine.columns)} elements\n"
            f"{_needs(mine)}{shown * (times != (1, 1))}")  # fmt: skip


def _draw_thread(axes: Axes, found: Tiling, thread: int) -> str:
    """The thread's elements, and each of the words that it needs."""
    mine = found.thread(thread)
    grid = _Grid(mine.rows, mine.columns)
    _strip(axes, grid, "A", set(mine.rows))
    _strip(axes, grid, "B", set(mine.columns))
    for row, y in enumerate(mine.rows):
        for column, x in enumerate(mine.columns):
            if found.owner[y, x] == thread:
                axes.add_patch(Rectangle(*grid.cell(row, column), facecolor=VERMILION,
                                         edgecolor=PAPER, linewidth=1.5))  # fmt: skip
    if len(mine.rows) <= LABELLED:
        for row, y in enumerate(mine.rows):
            _say(axes, LEFT - APART - STRIP - 0.08, grid.middle(row, 0)[1], str(y), ha="right",
                 fontsize=13)  # fmt: skip
    if len(mine.columns) <= LABELLED:
        for column, x in enumerate(mine.columns):
            _say(axes, grid.middle(0, column)[0], TOP - APART - STRIP - 0.08, str(x), va="bottom",
                 fontsize=13, rotation=90 * (grid.width < 0.3))  # fmt: skip
    place = ", ".join(map(str, found.place(thread)))
    count = len(mine.rows) * len(mine.columns)
    return (f"thread ({place}), red: {len(mine.rows)} × {len(mine.columns)} "
            f"element{'s' * (count > 1)}\n{_needs(mine)}")  # fmt: skip


def _needs(part: Part) -> str:
    return f"{part.sums()}\n{part.fmas_per_word:.3g} FMAs a word"


class _Grid:
    """Where rows and columns are drawn: as large as they fit, with gaps where some are left out."""

    def __init__(self, rows: Sequence[int], columns: Sequence[int]) -> None:
        self.rows, self.columns = rows, columns
        units = [_units(indices) for indices in (rows, columns)]
        room = HEIGHT - TOP - 0.35, WIDTH - LEFT - 0.1
        each = min(MOST, *(space / count[-1] for space, count in zip(room, units, strict=True)))
        self.height, self.width = (max(each, LEAST / count[-1]) for count in units)
        self.y = [TOP + self.height * unit for unit in units[0]]
        self.x = [LEFT + self.width * unit for unit in units[1]]
        self.right, self.bottom = self.x[-1], self.y[-1]

    def cell(self, row: int, column: int) -> tuple[tuple[float, float], float, float]:
        """As matplotlib's Rectangle takes it."""
        return (self.x[column], self.y[row]), self.width, self.height

    def middle(self, row: int, column: int) -> tuple[float, float]:
        return self.x[column] + self.width / 2, self.y[row] + self.height / 2


def _units(indices: Sequence[int]) -> list[float]:
    """Where each begins, in elements, and where the last one ends."""
    steps = [1 + GAP * (b != a + 1) for a, b in pairwise(indices)]
    return [*np.cumsum([0, *steps]).tolist(), sum(steps) + 1]


def _period(lanes: NDArray[np.int32], indices: Sequence[int]) -> int:
    """After how many rows the same comes again; all of them if it does not. Neighbouring rows of
    the same lanes stay together."""
    count = len(lanes)
    for rows in range(1, count):
        together = indices[rows] == indices[rows - 1] + 1 and (lanes[rows] == lanes[rows - 1]).all()
        repeats = count % rows == 0 and not together
        if repeats and (lanes.reshape(-1, rows, lanes.shape[1]) == lanes[:rows]).all():
            return rows
    return count


def _strip(axes: Axes, grid: _Grid, name: str, needed: set[int]) -> None:
    """The words of A beside the rows or of B above the columns, those needed in full colour."""
    beside = name == "A"
    first = (LEFT if beside else TOP) - APART - STRIP
    indices, places, size = (
        (grid.rows, grid.y, grid.height) if beside else (grid.columns, grid.x, grid.width)
    )
    for index, place in zip(indices, places, strict=False):
        box = (first, place, STRIP, size) if beside else (place, first, size, STRIP)
        axes.add_patch(Rectangle(box[:2], *box[2:], linewidth=0.8 if size > 0.1 else 0,
                                 edgecolor=PAPER, facecolor=COLOURS[name] if index in needed
                                 else PALER[name]))  # fmt: skip
    middle = first + STRIP / 2
    corner = (middle, grid.bottom + 0.16) if beside else (LEFT - 0.18, middle)
    _say(axes, *corner, name, fontsize=17, weight="bold")


def _outlines(parts: NDArray[np.int32], grid: _Grid) -> list:
    """Lines between elements that are not of one part."""
    lines = []
    for row, different in enumerate(parts[1:] != parts[:-1], 1):
        for first, last in _runs(different):
            lines.append([(grid.x[first], grid.y[row]), (grid.x[last] + grid.width, grid.y[row])])
    for column, different in enumerate((parts[:, 1:] != parts[:, :-1]).T, 1):
        for first, last in _runs(different):
            x = grid.x[column]
            lines.append([(x, grid.y[first]), (x, grid.y[last] + grid.height)])
    return lines


def _runs(which: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and last of neighbours that are True."""
    edges = np.flatnonzero(np.diff([0, *which.astype(int), 0]))
    return ((int(a), int(b) - 1) for a, b in edges.reshape(-1, 2))


def _names(axes: Axes, grid: _Grid, parts: NDArray[np.int32], count: int, largest: float) -> None:
    """Writes the number of each part over the first of its rectangles, or of every second part,
    where that makes it large enough."""
    places = {}
    for number in range(count):
        mine = parts == number
        if mine.any():
            row, column = (int(k[0]) for k in np.nonzero(mine))
            wide, high = (int(np.argmin([*line, False])) for line in (mine[row, column:],
                                                                      mine[row:, column]))
            corner = grid.x[column], grid.y[row]
            places[number] = (*corner, grid.width * wide, grid.height * high)
    *_, width, height = next(iter(places.values()))
    digits = 0.62 * len(str(count - 1))
    for every in (1, 2):
        across, down = (every, 1) if width < height else (1, every)
        size = min(largest, 60 * width * across / digits, 60 * height * down)
        if size >= 9:
            for number, (x, y, wide, high) in places.items():
                if number % every == 0:
                    _say(axes, x + wide / 2, y + high / 2, str(number), fontsize=size)
            return


def _frame(axes: Axes, grid: _Grid) -> None:
    axes.add_patch(Rectangle((LEFT, TOP), grid.right - LEFT, grid.bottom - TOP, facecolor="none",
                             edgecolor=INK, linewidth=1.8))  # fmt: skip


def _say(axes: Axes, x: float, y: float, text: str, **style) -> None:
    style = {"ha": "center", "va": "center", "fontsize": 16, "color": INK, "zorder": 7} | style
    axes.text(x, y, text, **style)
