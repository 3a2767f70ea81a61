"""Pointers inside what a launch is given: in arrays, in structures, in a module's variables.

Eight bytes at a multiple of eight that are an address in the device's memory count as a pointer. A
number may happen to be one, too; 64-bit addresses are so rare among numbers that nobody will see
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: Addresses of one device lie this near to each other; others are not asked for one by one.
NEAR = 1 << 40
#: More different candidates than this are no pointers but data.
MOST = 4096


def candidates(data: np.ndarray | bytes, near: int) -> Iterator[tuple[int, int]]:
    """(offset, value) of the words of some bytes that may be addresses, if `near` is one."""
    raw = np.frombuffer(data, np.uint8)
    words = raw[: raw.size // 8 * 8].view(np.uint64)
    low, high = max(near - NEAR, 1 << 32), near + NEAR
    found = np.flatnonzero((words >= np.uint64(low)) & (words < np.uint64(high)))
    if len(np.unique(words[found])) <= MOST:
        for k in found:
            yield 8 * int(k), int(words[k])


def moved(data: np.ndarray, spans: list[tuple[int, int, int]]) -> None:
    """Lets the pointers in an array of bytes point to where their targets are now.

    spans: (start, bytes, new start) of these. A pointer just past the end is one, too.
    """
    words = data[: data.size // 8 * 8].view(np.uint64)
    before = words.copy()
    for start, nbytes, now in spans:
        inside = (before >= np.uint64(start)) & (before <= np.uint64(start + nbytes))
        words[inside] = before[inside] - np.uint64(start) + np.uint64(now)
