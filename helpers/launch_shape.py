"""Grid, block and dynamic shared memory of a launch: what can be given, and what to write instead.

The limits are those of the CUDA Programming Guide, technical specifications per compute capability:
the same for all that the lessons run on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from helpers.errors import WrongValue

MOST_THREADS = 1024
MOST = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}

_INSTEAD = {
    "grid": "Write -(-N // 32): integers, rounded up so that the last elements get a block too",
    "block": "Write the threads along x, y, z, e.g. block=(32, 32, 1)",
}

Shape = tuple[int, int, int]


def checked_shape(name: str, extent: Any) -> Shape:
    """`extent`, one to three integers, as three; name is "grid" or "block". Raises WrongValue."""
    sizes = tuple(extent) if isinstance(extent, (tuple, list, np.ndarray)) else (extent,)
    if not 1 <= len(sizes) <= 3:
        raise WrongValue(f"{name}={extent!r} has {len(sizes)} dimensions, not 1 to 3")
    told = f"{name}={tuple(map(_plain, sizes)) if len(sizes) > 1 else _plain(extent)!r}"
    for size in sizes:
        if isinstance(size, (float, np.floating)):
            raise WrongValue(f"{told}: {_plain(size)} is a float; / makes one even of two "
                             f"integers. {_INSTEAD[name]}")  # fmt: skip
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise WrongValue(f"{told}: write integers >= 1. {_INSTEAD[name]}")
    for axis, size, most in zip("xyz", sizes, MOST[name], strict=False):
        if size > most:
            raise WrongValue(f"{told}: {name}.{axis} is at most {most:,}")
    shape = (*(int(size) for size in sizes), 1, 1)[:3]
    if name == "block" and math.prod(shape) > MOST_THREADS:
        raise WrongValue(f"{told} has {math.prod(shape):,} threads, more than 1024, the "
                         "most of a block: write e.g. block=(32, 32, 1) and a larger grid")
    return shape


def _plain(value: Any) -> Any:
    """A NumPy number as Python's, which is shorter to read."""
    return value.item() if isinstance(value, np.number) else value


def checked_shared(shared: Any) -> int:
    """Bytes of dynamic shared memory; None is 0. Raises WrongValue."""
    shared = 0 if shared is None else shared
    if not isinstance(shared, (int, np.integer)) or isinstance(shared, bool) or shared < 0:
        raise WrongValue(f"shared={shared!r}: write the bytes of dynamic shared memory, e.g. 4 * n")
    return int(shared)
