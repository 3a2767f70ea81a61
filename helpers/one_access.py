"""One access of one warp of a profiled launch: which instruction it is, its addresses, its picture.

`Profile.picture` is made of these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from helpers.errors import WrongType, WrongValue
from helpers.replica import Replica
from helpers.simt import Fault, rules
from helpers.simt.counts import AccessCount
from helpers.simt.rules import LANES
from helpers.simt.tracing import NotReached, Trace

if TYPE_CHECKING:
    from helpers.plots import Picture

Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Chosen:
    """A memory instruction: the `which`-th of `of` of its kind on a line of the source."""

    count: AccessCount
    line: int
    space: str
    which: int
    of: int

    def __str__(self) -> str:
        kind = f"{self.space} {self.count.operation}"
        return kind if self.of == 1 else f"{kind} (which={self.which} of 0..{self.of - 1})"


def choose(
    accesses: Sequence[AccessCount],
    file: str,
    line: int,
    space: str | None,
    operation: str | None,
    which: int,
) -> Chosen:
    """The instruction that is meant. Raises ValueError if there is none or more than one kind."""
    kinds: dict[tuple[str, str], dict[int, AccessCount]] = {}
    lines = set()
    for access in accesses:
        i = access.instruction
        for at, cost in access.costs.items():
            if PurePath(i.file).name == file and cost.requests:
                lines.add(i.line)
                if i.line == line:
                    kinds.setdefault((at, access.operation), {})[i.ptx_line] = access
    if not kinds:
        others = ", ".join(map(str, sorted(lines)))
        only = f"only on {others}" if others else "nor on any other"
        raise WrongValue(f"no access to memory was executed on line {line}, {only}")
    found = [k for k in kinds if space in (None, k[0]) and operation in (None, k[1])]
    given = ", ".join(f'space="{s}", operation="{o}" ({len(k)})' for (s, o), k in kinds.items())
    if not found:
        wanted = " ".join(filter(None, (space, operation)))
        raise WrongValue(f"line {line} has no {wanted} access, but {given}")
    if len(found) > 1:
        raise WrongValue(f"line {line} has several kinds of access; write which one: {given}")
    (kind,) = found
    numbers = sorted(kinds[kind])
    if not 0 <= which < len(numbers):
        raise WrongValue(
            f"which={which}: line {line} has {len(numbers)} accesses of the kind {' '.join(kind)}, "
            f"so which is 0..{len(numbers) - 1}"
        )
    return Chosen(kinds[kind][numbers[which]], line, kind[0], which, len(numbers))


def check_number(name: str, number: object, given: object = None) -> None:
    """Raises TypeError unless it is an integer; given: what the caller wrote, if that is more."""
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool):
        what = number if given is None else given
        raise WrongType(f"{name}={what!r}: write integers from 0")


def warp_of(launch: Replica, block: Sequence[int], warp: int) -> tuple[Dim, int]:
    """The block, with all its three coordinates, and the warp. ValueError if they are not there."""
    at = tuple(block) if isinstance(block, (tuple, list)) else (block,)
    for number in at:
        check_number("block", number, block)
    check_number("warp", warp)
    at = (*map(int, at), 0, 0)[: max(3, len(at))]
    if len(at) != 3 or not all(0 <= k < n for k, n in zip(at, launch.grid, strict=True)):
        raise WrongValue(f"block={block} is outside of the grid of {launch.grid} blocks")
    x, y, z = launch.block
    warps = -(-x * y * z // LANES)
    if not 0 <= warp < warps:
        raise WrongValue(
            f"warp={warp}: blocks of {launch.block} threads have {warps} warps, 0..{warps - 1}"
        )
    return at, warp


def trace(launch: Replica, access: Chosen, block: Dim, warp: int, iteration: int) -> Trace:
    """The addresses. Only that block is run if it does without others, else the whole grid.

    Raises ValueError if the warp does not execute the instruction that often.
    """
    whole = launch.grid == (1, 1, 1)
    while True:
        run = launch.prepare()
        try:
            return run.function.trace(
                *run.launch,
                ptx_line=access.count.instruction.ptx_line,
                of_block=block,
                warp=warp,
                iteration=iteration,
                alone=not whole,
            )
        except (NotReached, Fault) as problem:
            if not whole:
                whole = True
                continue
            if isinstance(problem, Fault):
                raise
            times = problem.executed
            often = f"{times} times: iteration is 0..{times - 1}" if times else "not once"
            raise WrongValue(
                f"iteration={iteration}: warp {warp} of block {block} executes this {access} of "
                f"line {access.line} {often}"
            ) from None


def draw(found: Trace, operation: str, title: str) -> Picture:
    """The picture of an access: banks for shared memory, sectors for global and local memory."""
    from helpers import access_pictures  # counts alone need no matplotlib

    where = found.addresses, found.mask, found.size
    if found.space == "shared":
        return access_pictures.bank_picture(*where, operation, title)
    if found.space == "local":
        return access_pictures.local_picture(*where, title)
    counted = rules.atomic_sectors(found.addresses, found.mask)
    if operation == "atomic" and counted != rules.sectors(found.addresses, found.mask):
        title += f"\nlanes with one address take turns: {counted} sectors are counted"
    if operation == "copy" and "cg" in found.instruction.modifiers:
        title += "\na sector counts anew for each 32 bytes of shared memory that it goes to"
    return access_pictures.sector_picture(*where, title)
