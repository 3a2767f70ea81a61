"""Opaque handles (CUcontext, CUmodule, CUfunction, …): numbers that stand for Python objects."""

from __future__ import annotations

import itertools
from typing import TypeVar

from .errors import DriverError, Result

T = TypeVar("T")

_numbers = itertools.count(0x1000, 0x10)  # look like addresses, and never collide with NULL, 1, 2
_objects: dict[int, object] = {}


def new(value: object) -> int:
    """A handle for `value`."""
    handle = next(_numbers)
    _objects[handle] = value
    return handle


def get(handle: int, kind: type[T]) -> T:
    """What `handle` stands for; INVALID_HANDLE if it is no live handle of a `kind`."""
    value = _objects.get(handle)
    if not isinstance(value, kind):
        known = f"belongs to a {type(value).__name__.lower()}" if value else "is not, or no longer,"
        raise DriverError(Result.INVALID_HANDLE, f"0x{handle:x} {known}"
                          f"{', not' if value else ''} a {kind.__name__.lower()} of this driver")
    return value


def drop(handle: int) -> None:
    """Forget `handle`."""
    _objects.pop(handle, None)
