"""What the engine counts for the patterns, in the terms of `record`."""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Iterator

import numpy as np

from helpers import simt
from helpers.sandbox import ptx_of

from . import patterns


def counts() -> Iterator[tuple[patterns.Pattern, dict[str, int]]]:
    """Each pattern, and what is counted when it runs."""
    memory = simt.Memory(1 << 26)
    module = simt.Module(ptx_of(patterns.source()), memory)
    data = memory.allocate(patterns.SPAN + 256)
    for pattern in patterns.patterns():
        for name, words in (
            ("places", pattern.places),
            ("targets", pattern.targets),
            ("active", (pattern.mask,)),
        ):
            array = np.array(words, np.uint32)
            ctypes.memmove(module.globals[name][0], array.ctypes.data, array.nbytes)
        kernel = module.functions[pattern.kernel]
        found = kernel.count((1, 1, 1), (32, 1, 1), struct.pack("<Q", data))
        totals: Counter[str] = Counter()
        for access in found.accesses:
            for space, cost in access.costs.items():
                totals[f"{space} {access.operation} requests"] += cost.requests
                totals[f"{space} {access.operation} units"] += cost.units
                totals[f"{space} {access.operation} ideal"] += cost.ideal
        yield pattern, dict(totals)


def made_a_loop(pattern: patterns.Pattern) -> bool:
    """Whether ptxas makes a loop of a pattern's instruction: 64-bit addition in shared memory."""
    return (pattern.space, pattern.size) == ("shared", 8) and pattern.operation in ("atom", "red")


def recorded(pattern: patterns.Pattern, counted: dict[str, int]) -> dict[str, int]:
    """What the hardware counted for a pattern, under the engine's names."""
    space, operation = pattern.space, pattern.operation
    ours = "atomic" if operation in ("atom", "red") else operation
    if operation == "copy":
        space = "global"
    if space != "shared":
        return {
            f"{space} {ours} requests": counted.get(f"{space} {operation} requests", 0),
            f"{space} {ours} units": counted.get(f"{space} {operation} sectors", 0),
        }
    name = "atom" if ours == "atomic" else operation
    return {f"shared {ours} units": counted.get(f"shared {name} wavefronts", 0)}
