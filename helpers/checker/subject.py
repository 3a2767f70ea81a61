"""What is checked: a kernel with its launch shape, from the forms in which `check` takes one."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.errors import WrongType, WrongValue
from helpers.launch_shape import MOST, MOST_THREADS
from helpers.replica import Program, program_of, source_text
from helpers.sandbox import words

Shape = tuple[int, int, int]  # M, N, K
Dim = tuple[int, int, int]
DEFAULT_BLOCK = 32, 32
GRID_HINT = "grid=lambda M, N: (-(-N // 32), -(-M // 32))"


class Refused(Exception):
    """A launch that a GPU's driver would refuse; the text says why."""


@dataclass(frozen=True)
class Subject:
    """A matrix product's kernel. tile: rows and columns of C for one block; shared: bytes of
    dynamic shared memory; grid_of: the caller's function of M and N, if there is one."""

    entry: str
    source: str
    options: tuple[str, ...]
    block: Dim
    tile: tuple[int, int]
    rows_on_x: bool
    shared: int
    b_transposed: bool
    grid_of: Callable[[int, int], Any] | None = field(default=None, compare=False)

    def program(self) -> Program:
        """Compiles it. Raises CompileFailed."""
        return program_of((self.source, self.entry, self.options))

    def grid(self, M: int, N: int) -> Dim:
        """The grid for a C of M x N. Raises Refused for one that cannot be launched."""
        if self.grid_of is not None:
            return _checked_grid(self.grid_of(M, N), M, N)
        rows, columns = -(-M // self.tile[0]), -(-N // self.tile[1])
        return _checked_grid((rows, columns) if self.rows_on_x else (columns, rows), M, N)

    def check_block(self) -> None:
        """Raises Refused for a block that no device takes."""
        for axis, size, most in zip("xyz", self.block, MOST["block"], strict=True):
            if size > most:
                raise Refused(f"block.{axis} is {size:,}, at most {most:,} are possible")
        threads = math.prod(self.block)
        if threads > MOST_THREADS:
            shape = " x ".join(map(str, self.block[: 3 if self.block[2] > 1 else 2]))
            raise Refused(f"a block of {shape} has {threads:,} threads, at most 1,024 are possible")


def subject_of(
    kernel: Any,
    grid: Any = None,
    block: Sequence[int] | None = None,
    tile: Sequence[int] | int | None = None,
    shared: int | None = None,
    b_transposed: bool = False,
) -> Subject:
    """The kernel and its launch shape; what is None is the kernel's own, or else the lessons'.

    Raises TypeError or ValueError for arguments that are no kernel or no shape.
    """
    if grid is not None and not callable(grid):
        raise WrongType(f"grid={grid!r}: many sizes are tried, so give a function of M and N, "
                        f"e.g. {GRID_HINT}")
    if isinstance(kernel, tuple) and len(kernel) in (2, 3) and isinstance(kernel[1], str):
        source, entry, options = source_text(kernel[0]), kernel[1], words(*kernel[2:])
        own_block, own_tile, rows_on_x, own_shared = None, None, False, 0
    elif all(hasattr(kernel, name) for name in ("source", "entry", "block", "options")):
        source, entry, options = kernel.source, kernel.entry, words(kernel.options)
        own_block, own_tile = kernel.block, getattr(kernel, "tile", None)
        rows_on_x = bool(getattr(kernel, "rows_on_x", False))
        own_shared = getattr(kernel, "shared_bytes", 0)
        if grid is None and getattr(kernel, "blocks", 0):  # they share all tiles of C
            grid = kernel.grid
    else:
        raise WrongType(
            f"{type(kernel).__name__} is no kernel that can be checked: give one of "
            "helpers.kernels, or (source or path, name) or (source or path, name, options)"
        )
    if block is not None and own_block is not None and tuple(block) != tuple(own_block):
        own_tile = None  # it belongs to the kernel's own block
    chosen = block if block is not None else own_block or DEFAULT_BLOCK
    x, y, z = _extent("block", chosen, 3)
    return Subject(
        entry,
        source,
        options,
        (x, y, z),
        _tile(tile if tile is not None else own_tile, (y, x), rows_on_x),
        rows_on_x,
        _shared(own_shared if shared is None else shared),
        bool(b_transposed),
        grid,
    )


def _tile(tile: Any, of_block: tuple[int, int], rows_on_x: bool) -> tuple[int, int]:
    if tile is None:
        return of_block[::-1] if rows_on_x else of_block
    if isinstance(tile, numbers.Integral):
        tile = (tile, tile)
    rows, columns, one = _extent("tile", tile, 2)
    return rows, columns


def _extent(name: str, extent: Any, most: int) -> Dim:
    sizes = tuple(extent) if isinstance(extent, (tuple, list)) else (extent,)
    fine = all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in sizes)
    if not fine or not 1 <= len(sizes) <= most or min(sizes) < 1:
        example = "(32, 32)" if name == "block" else "(64, 32) for 64 rows and 32 columns of C"
        raise WrongValue(f"{name}={extent!r}: write integers >= 1, e.g. {name}={example}")
    return (*(int(n) for n in sizes), 1, 1)[:3]


def _shared(shared: Any) -> int:
    if not isinstance(shared, numbers.Integral) or isinstance(shared, bool) or shared < 0:
        raise WrongValue(f"shared={shared!r}: write the bytes of dynamic shared memory, e.g. 8192")
    return int(shared)


def _checked_grid(grid: Any, M: int, N: int) -> Dim:
    sizes = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    told = f"for M={M:,}, N={N:,} the grid is {grid!r}"
    if not 1 <= len(sizes) <= 3:
        raise Refused(f"{told}: it has one to three dimensions")
    for n in sizes:
        if not isinstance(n, numbers.Integral) or isinstance(n, bool):
            raise Refused(f"{told}: blocks are counted in integers; write -(-N // 32), which "
                          "rounds up, not N / 32")
    for axis, n, most in zip("xyz", sizes, MOST["grid"], strict=False):
        if n < 1:
            raise Refused(f"{told}: grid.{axis} must be at least 1; -(-N // 32) rounds up, N // 32 "
                          "rounds down")
        if n > most:
            raise Refused(f"{told}: grid.{axis} is at most {most:,}")
    return (*(int(n) for n in sizes), 1, 1)[:3]
