"""Judges two exercises of lesson 9, which are functions in Python, on many sizes.

    check_useful(useful)        # useful(M, N, BM, BN, places): a share
    check_split(split)          # split(tiles, depth, places): what each block works on

Both return what `helpers.checker.check` does: print it, or let a notebook show it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.checker.result import Result
from helpers.errors import WrongValue
from helpers.wave_pictures import Piece, Schedule, one_tile_a_block

TOLERANCE = 1e-9
_RANDOM = np.random.RandomState(9)  # its stream is frozen (NEP 19)
_PRODUCTS = ((1500, 1500, 128, 256, 132), (4096, 4096, 128, 256, 132), (1, 1, 64, 64, 2),
             *(tuple(map(int, _RANDOM.randint(1, [3000, 3000, 200, 200, 150])))
               for _ in range(100)))  # fmt: skip
#: (tiles, depth, places), never fewer tiles than places.
_SPLITS = ((6, 8, 4), (4, 8, 4), (288, 375, 132), (1, 1, 1),
           *((places + extra, depth, places) for places, extra, depth in
             _RANDOM.randint(1, [40, 90, 30], (100, 3)).tolist()))  # fmt: skip


def useful_share(M: int, N: int, BM: int, BN: int, places: int) -> float:
    """Elements of C, by those that all places could compute in the time of all waves, if each block
    computes one tile."""
    tiles = math.ceil(M / BM) * math.ceil(N / BN)
    waves = one_tile_a_block(tiles, 1, places).end
    return M * N / (waves * places * BM * BN)


def check_useful(function: Callable[[int, int, int, int, int], float]) -> Result:
    """PASS if `function` says what `useful_share` does; else the first size where it does not."""

    def problem(size: tuple[int, ...], found: Any) -> tuple[str, str] | None:
        right = useful_share(*size)
        said = f"{_call(function, size)} is {right:.4f}, not {_short(found)}"
        try:
            same = abs(float(found) - right) <= TOLERANCE
        except (TypeError, ValueError):
            return "no number", said
        return None if same else ("wrong share", said)

    return _checked(function, _PRODUCTS, problem)


def check_split(function: Callable[[int, int, int], Any]) -> Result:
    """PASS if `function` shares tiles evenly, every step once, and no block waits for another.

    It returns a list for each place, of (tile, first, last) in the order of the work.
    """

    def problem(size: tuple[int, ...], found: Any) -> tuple[str, str] | None:
        told = _wrong_split(found, *size)
        return told and (told[0], f"{_call(function, size)}: {told[1]}.")

    return _checked(function, _SPLITS, problem)


def _wrong_split(found: Any, tiles: int, depth: int, places: int) -> tuple[str, str] | None:
    """Name and evidence of what is wrong."""
    try:
        blocks = tuple(
            tuple(Piece(*map(operator.index, piece)) for piece in mine) for mine in found
        )
    except TypeError:
        return "no list of pieces", f"{_short(found)} is no list of lists of (tile, first, last)"
    if len(blocks) != places:
        return "no list of pieces", f"{len(blocks)} lists, not {places}"
    done = np.zeros((tiles, depth), int)
    for mine in blocks:
        for p in mine:
            if not (0 <= p.tile < tiles and 0 <= p.first < p.last <= depth):
                piece = (p.tile, p.first, p.last)
                return "no such piece", f"there is no {piece}, with 0 <= first < last <= {depth}"
            done[p.tile, p.first : p.last] += 1
    for name, wrong in (("step left out", done < 1), ("step done twice", done > 1)):
        if wrong.any():
            tile, step = (int(k[0]) for k in np.nonzero(wrong))
            return name, f"tile {tile}, step {step}"
    steps = [sum(p.steps for p in mine) for mine in blocks]
    if max(steps) - min(steps) > 1:
        return "not even", f"blocks have {min(steps)} to {max(steps)} steps"
    schedule = Schedule(depth, blocks)
    try:
        end = schedule.end
    except WrongValue as error:
        return "waits for sums", str(error)
    if end > max(steps):
        return "waits for sums", (f"{end} steps' time for {max(steps)} steps of each block: the "
                                  "others' sums come late")  # fmt: skip
    return None


_HINTS = {
    "nothing returned": "Replace the TODO.",
    "wrong share": "Waves are whole, and so are tiles: round up. What lies outside C is no use.",
    "not even": "Cut the row of all steps, tile after tile, into equal parts.",
    "waits for sums": "A block that leaves sums should leave them first, and need others' last.",
}


def _checked(
    function: Callable, sizes: tuple, problem: Callable[[tuple, Any], tuple[str, str] | None]
) -> Result:
    name = getattr(function, "__name__", "?")

    def result(diagnosis: str | None, evidence: str) -> Result:
        return Result(name, "", diagnosis, (evidence,), _HINTS.get(diagnosis, ""), (), (), 0)

    for size in sizes:
        try:
            found = function(*size)
        except Exception as error:  # whatever a reader's code raises
            return result("an exception", f"{_call(function, size)} raises "
                          f"{type(error).__name__}: {error}")  # fmt: skip
        if found is None:
            return result("nothing returned", f"{_call(function, size)} returns None.")
        if told := problem(size, found):
            return result(*told)
    return result(None, f"Right for {len(sizes)} sizes.")


def _call(function: Callable, size: tuple) -> str:
    return f"{getattr(function, '__name__', '?')}({', '.join(map(str, size))})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
