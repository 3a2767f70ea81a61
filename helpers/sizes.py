"""What M, N and K may be, and a check that names the one that is something else."""

from __future__ import annotations

import numbers
from typing import Any

from helpers.errors import WrongType, WrongValue

# Indices in the kernels are 32-bit integers, and the last block or tile reaches past the edge.
MAX_SIZE = 2**31 - 1024


def checked_size(name: str, size: Any) -> int:
    """`size` as an int, from 1 to MAX_SIZE. Raises WrongType or WrongValue that names it."""
    if not isinstance(size, numbers.Integral) or isinstance(size, bool):
        raise WrongType(f"{name}={size!r} is a {type(size).__name__}: give an integer")
    if not 1 <= size <= MAX_SIZE:
        raise WrongValue(f"{name}={size} is outside 1 to {MAX_SIZE:,}")
    return int(size)
