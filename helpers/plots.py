"""The pictures of the lessons, drawn from the indices that the kernels compute.

Each picture function returns a `Picture`: a PNG for the notebook, an alternative text for those who
cannot see it, and `save` for a file. The index functions beside them (`warp_loads`, `tile_loads`)
repeat the expressions of cuda/01_naive.cu and cuda/02_tiled.cu; the tests hold the two together.

Colours are those of Okabe and Ito (2008), which stay apart for colour-blind readers; hatching and
words repeat whatever a colour says.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from helpers.errors import WrongValue

BLUE, ORANGE, GREEN, SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00"
INK, LINE, PAPER = "#222222", "#9A9A9A", "#FFFFFF"
SECTOR_BYTES = 32  # global memory moves in aligned 32-byte pieces
FLOAT_BYTES = 4
WARP = 32


@dataclass(frozen=True)
class Picture:
    """A finished drawing. `alt` says in words what it shows; `width` is in CSS pixels; few
    `colours` keep notebooks small."""

    figure: Figure
    alt: str
    width: int = 760
    colours: int = 64

    def png(self) -> bytes:
        """The picture as PNG, sharp enough for a projector."""
        drawn, packed = io.BytesIO(), io.BytesIO()
        self.figure.savefig(drawn, format="png", dpi=150)
        Image.open(drawn).convert("RGB").quantize(self.colours, dither=Image.Dither.NONE).save(
            packed, format="png", optimize=True
        )
        return packed.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the PNG to `path`."""
        Path(path).write_bytes(self.png())

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        data = {"image/png": self.png(), "text/plain": self.alt}
        return data, {"image/png": {"width": self.width, "alt": self.alt}}


# --- indices -----------------------------------------------------------------------------------


def warp_loads(kernel: str, N: int, K: int, k: int = 0, warp: int = 0) -> dict[str, np.ndarray]:
    """What one warp loads in step k of its loop: element offsets into A and B, one per lane.

    `kernel` is "naive" or "naive_uncoalesced"; the block is 32 x 32 and the first of the grid, so
    lane is threadIdx.x and `warp` is threadIdx.y.
    """
    lane = np.arange(WARP)
    if kernel == "naive":
        row, col = np.full(WARP, warp), lane
    elif kernel == "naive_uncoalesced":
        row, col = lane, np.full(WARP, warp)
    else:
        raise WrongValue(f"no picture for {kernel!r}: use 'naive' or 'naive_uncoalesced'")
    return {"A": row * K + k, "B": k * N + col}


def sectors(offsets: np.ndarray, bytes_each: int = FLOAT_BYTES) -> int:
    """How many 32-byte sectors the elements at these offsets lie in (matrices start on one)."""
    return len(np.unique(np.asarray(offsets) * bytes_each // SECTOR_BYTES))


def tile_loads(
    tile: int, block: tuple[int, int], step: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Which elements a block of `matmul_tiled` loads at a step: rows and columns, one per thread.

    `block` is (blockIdx.x, blockIdx.y). Elements past the edges are included: the kernel replaces
    them by zeros. The last entry, "C", is the element that each thread computes.
    """
    ty, tx = np.mgrid[0:tile, 0:tile]
    row, col, k0 = block[1] * tile + ty, block[0] * tile + tx, step * tile
    return {"A": (row, k0 + tx), "B": (k0 + ty, col), "C": (row, col)}


# --- drawing -----------------------------------------------------------------------------------


def blank_figure(width: float, height: float) -> Figure:
    """An empty figure in the pictures' style; width and height in inches."""
    return Figure(figsize=(width, height), facecolor=PAPER, layout="constrained")


def _cell(axes: Axes, row: float, col: float, color: str | None, **style) -> None:
    """One matrix element as a unit square; row 0 is at the top."""
    style = {"edgecolor": LINE, "linewidth": 0.8} | style
    axes.add_patch(Rectangle((col, row), 1, 1, facecolor=color or "none", **style))


def _frame(axes: Axes, rows: float, cols: float, top: float = 0, left: float = 0, **style) -> None:
    """An outline around a part of a matrix."""
    style = {"edgecolor": INK, "linewidth": 2.5} | style
    axes.add_patch(Rectangle((left, top), cols, rows, facecolor="none", zorder=5, **style))


def _canvas(axes: Axes, rows: float, cols: float, top: float = 0.2, left: float = 0.2) -> None:
    """Matrix coordinates, row 0 at the top, with room for words above and on the left."""
    axes.set_xlim(-left, cols + 0.2)
    axes.set_ylim(rows + 0.2, -top)
    axes.set_aspect("equal")
    axes.axis("off")


def _say(axes: Axes, row: float, col: float, text: str, **style) -> None:
    """Words at a place in matrix coordinates, centred unless `style` says otherwise."""
    style = {"ha": "center", "va": "center", "fontsize": 16, "color": INK} | style
    axes.text(col, row, text, **style)


def _plain_logarithm(axis: Axis) -> None:
    """Numbers as people write them on a logarithmic axis: 0.5, 1, 2, 5, 10 instead of powers."""
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=30))
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def thread_mapping(M: int = 6, N: int = 10, block: tuple[int, int] = (4, 4)) -> Picture:
    """Grid, blocks and threads over the elements of C (M x N), with the idle threads hatched."""
    bx, by = block
    gx, gy = -(-N // bx), -(-M // by)
    threads, idle = gx * bx * gy * by, gx * bx * gy * by - M * N
    figure = blank_figure(10, 10 * (gy * by + 2.2) / (gx * bx + 1.3))
    axes = figure.subplots()
    for row in range(gy * by):
        for col in range(gx * bx):
            inside = row < M and col < N
            shade = (SKY if (row // by + col // bx) % 2 else "#CFE8F7") if inside else PAPER
            _cell(axes, row, col, shade, hatch=None if inside else "//")
            _say(axes, row + 0.5, col + 0.5, f"{col % bx},{row % by}",
                 bbox=None if inside else {"facecolor": PAPER, "pad": 1, "lw": 0})
    for y in range(gy):
        _say(axes, (y + 0.5) * by, -0.45, f"blockIdx.y = {y}", rotation=90)
        for x in range(gx):
            _frame(axes, by, bx, y * by, x * bx, edgecolor=BLUE)
    for x in range(gx):
        _say(axes, -0.4, (x + 0.5) * bx, f"blockIdx.x = {x}")
    _frame(axes, M, N, linewidth=4, linestyle="--")
    _say(axes, -1.4, gx * bx / 2 - 0.5,
         f"C: {M} × {N} (dashed). In each square: threadIdx.x, threadIdx.y.\n"
         f"{threads} threads: {M * N} with an element of C, {idle} without (hatched)")
    _canvas(axes, gy * by, gx * bx, top=2, left=1)
    alt = (f"The {M} by {N} elements of C covered by a grid of {gx} by {gy} blocks of {bx} by {by} "
           f"threads, one thread on each element. threadIdx.x grows to the right and threadIdx.y "
           f"downwards, from 0,0 in every block. {idle} threads lie past the right and lower edges "
           "of C and have no element.")
    return Picture(figure, alt)


def coalescing(N: int = 40, K: int = 40, k: int = 3) -> Picture:
    """What one warp loads from A and B in one step, in both naive kernels, with its sectors."""
    shown = {"naive": 5, "naive_uncoalesced": 33}  # rows of A and B in the picture
    figure = blank_figure(10, 7)
    grid = figure.subplots(2, 2, height_ratios=[rows + 7 for rows in shown.values()])
    count = {}
    for axes_row, (kernel, rows) in zip(grid, shown.items(), strict=True):
        loads = warp_loads(kernel, N, K, k)
        for axes, (name, width) in zip(axes_row, (("A", K), ("B", N)), strict=True):
            count[kernel, name] = sectors(loads[name])
            _warp_picture(axes, loads[name], width, rows)
            words, moved = len(np.unique(loads[name])), count[kernel, name]
            _say(axes, -3.4, 0, f"matmul_{kernel}, {name}:\n{words} word{'s' * (words > 1)} in "
                 f"{moved} sector{'s' * (moved > 1)}", ha="left")
    handles = [Patch(facecolor=VERMILION, label="word that a lane reads"),
               Patch(facecolor=SKY, label="rest of its 32-byte sector, moved too")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=16, frameon=False)
    alt = ("The words of A and B that the 32 lanes of one warp load in one step. "
           f"matmul_naive reads one word of A ({count['naive', 'A']} sector) and 32 neighbouring "
           f"words of a row of B ({count['naive', 'B']} sectors, wholly used). "
           "matmul_naive_uncoalesced reads 32 words down a column of A, each in a sector of its "
           f"own ({count['naive_uncoalesced', 'A']} sectors, an eighth of each used), and one "
           f"word of B ({count['naive_uncoalesced', 'B']} sector).")
    return Picture(figure, alt)


def _warp_picture(axes: Axes, offsets: np.ndarray, width: int, rows: int) -> None:
    """The upper rows of a row-major matrix `width` wide, with the offsets and their sectors."""
    per_sector = SECTOR_BYTES // FLOAT_BYTES
    for first in np.unique(offsets // per_sector) * per_sector:
        for element in range(first, first + per_sector):
            _cell(axes, element // width, element % width, SKY, linewidth=0.3)
    for offset in np.unique(offsets):
        _cell(axes, offset // width, offset % width, VERMILION, linewidth=0.3)
    _frame(axes, rows, width, linewidth=1.5)
    _canvas(axes, rows, width, top=6)


@dataclass(frozen=True)
class _Step:
    """One block at one step of `matmul_tiled`, and where its three matrices are drawn."""

    shape: dict[str, tuple[int, int]]  # rows and columns of A, B and C
    corner: dict[str, tuple[float, float]]  # row and column of their upper left corners
    loads: dict[str, tuple[np.ndarray, np.ndarray]]
    tile: int
    block: tuple[int, int]
    step: int
    steps: int

    def inside(self, name: str) -> np.ndarray:
        """Which of the tile's elements lie in the matrix; the kernel fills the others with 0."""
        (rows, cols), (height, width) = self.loads[name], self.shape[name]
        return (rows < height) & (cols < width)


def tiled_step(
    M: int = 8, N: int = 12, K: int = 12, tile: int = 4,
    block: tuple[int, int] = (1, 1), step: int = 1, thread: tuple[int, int] = (2, 1),
) -> Picture:
    """The data flow of `matmul_tiled`: what one block loads from A and B at one step.

    The tiles loaded at `step` are orange, the block's way through A and B pale; the elements that
    `thread` (x, y) multiplies are vermilion; zeros filled in past the edges are hatched. A tile of
    4 stands for the kernel's 32.
    """
    gap, steps = 2.2, -(-K // tile)
    rows, cols, depth = (-(-size // tile) * tile for size in (M, N, K))
    corner = {"A": (depth + gap, 0.0), "B": (0.0, depth + gap), "C": (depth + gap, depth + gap)}
    now = _Step({"A": (M, K), "B": (K, N), "C": (M, N)}, corner, tile_loads(tile, block, step),
                tile, block, step, steps)
    figure = blank_figure(10, 10 * (depth + gap + rows + 2.7) / (depth + gap + cols + 0.4))
    axes = figure.subplots()
    for name in corner:
        _tiled_matrix(axes, now, name)
    _tiled_thread(axes, now, thread)
    _tiled_words(axes, now)
    _canvas(axes, depth + gap + rows + 1.2, depth + gap + cols, top=1.3)
    return Picture(figure, _tiled_alt(now), width=640)


def _tiled_matrix(axes: Axes, now: _Step, name: str) -> None:
    """One of the three matrices, the block's way through it and its tile at this step."""
    (top, left), (height, width) = now.corner[name], now.shape[name]
    rows, cols = now.loads[name]
    for row in range(height):
        for col in range(width):
            on_way = (name == "A" and row in rows) or (name == "B" and col in cols)
            _cell(axes, top + row, left + col, "#FCE9C4" if on_way else "#F6F6F6")
    color = GREEN if name == "C" else ORANGE
    for row, col, inside in zip(rows.flat, cols.flat, now.inside(name).flat, strict=True):
        style = {"edgecolor": INK} if inside else {"hatch": "///", "edgecolor": VERMILION}
        _cell(axes, top + row, left + col, color if inside else PAPER, **style)
    _frame(axes, height, width, top, left, linewidth=1.5)
    _frame(axes, now.tile, now.tile, top + rows[0, 0], left + cols[0, 0], linewidth=3.5)
    _say(axes, top - 0.7, left + width / 2, f"{name} ({height} × {width})", fontsize=18)


def _tiled_thread(axes: Axes, now: _Step, thread: tuple[int, int]) -> None:
    """The row of As and the column of Bs that one thread multiplies, and its element of C."""
    tx, ty = thread
    whole = slice(None)
    for name, index in (("A", (ty, whole)), ("B", (whole, tx)), ("C", (ty, slice(tx, tx + 1)))):
        (top, left), (rows, cols) = now.corner[name], now.loads[name]
        inside = now.inside(name)[index]
        for row, col in zip(rows[index][inside], cols[index][inside], strict=True):
            _cell(axes, top + row, left + col, VERMILION, edgecolor=INK, linewidth=1.2)


def _tiled_words(axes: Axes, now: _Step) -> None:
    """The numbers of the steps along the block's way, and the key in the empty corner."""
    (top_a, left_a), (top_b, left_b) = now.corner["A"], now.corner["B"]
    below = top_a + now.loads["C"][0][-1, 0] + 1.6
    for step in range(now.steps):
        style = {"weight": "bold" if step == now.step else "normal", "fontsize": 17}
        middle = (step + 0.5) * now.tile
        _say(axes, below, left_a + middle, f"step {step}", **style)
        _say(axes, top_b + middle, left_b - 0.6, f"step {step}", rotation=90, **style)
    key = [(None, f"block ({now.block[0]}, {now.block[1]}), step {now.step}"),
           (ORANGE, "loaded at this step"), ("#FCE9C4", "at the other steps"),
           (VERMILION, "used by one thread"), (GREEN, "its block's tile of C")]
    if not (now.inside("A").all() and now.inside("B").all()):
        key.append((PAPER, "filled with zeros"))
    for line, (color, text) in enumerate(key):
        at = 0.6 + 1.5 * line
        if color:
            style = {"hatch": "///", "edgecolor": VERMILION} if color == PAPER else {}
            _cell(axes, at, 0, color, **({"edgecolor": INK} | style))
        _say(axes, at + 0.5, 1.5 if color else 0, text, ha="left", fontsize=18)


def _tiled_alt(now: _Step) -> str:
    (rows, depths), (_, cols) = now.loads["A"], now.loads["B"]
    row, col, k = rows[0, 0], cols[0, 0], depths[0, 0]
    tile = f"{now.tile} by {now.tile}"
    text = ("A at the lower left, B at the upper right, C between them. "
            f"Block {now.block} computes the {tile} tile of C from row {row}, column {col}. "
            f"At step {now.step} it loads the tile of A from row {row}, column {k}, and the tile "
            f"of B from row {k}, column {col}; one thread multiplies a row of the first by a "
            "column of the second.")
    zeros = {name: int((~now.inside(name)).sum()) for name in "AB"}
    if any(zeros.values()):
        text += (f" {zeros['A']} elements of the tile of A and {zeros['B']} of that of B lie past "
                 "the edges and are filled with zeros.")
    return text
