"""CUDA arrays: row-major boxes of elements in device memory.  (No textures of them yet.)"""

from __future__ import annotations

import ctypes

from . import handles, memory
from .errors import DriverError, Result

#: CUarray_format -> bytes of a channel
FORMATS = {0x01: 1, 0x02: 2, 0x03: 4, 0x08: 1, 0x09: 2, 0x0A: 4, 0x10: 2, 0x20: 4}


class Array:
    """A CUarray of width x height x depth elements of `channels` values each."""

    def __init__(self, width: int, height: int, depth: int, form: int, channels: int, flags: int):
        if form not in FORMATS or channels not in (1, 2, 4) or not width:
            raise DriverError(Result.INVALID_VALUE, f"no array of format {form}, {channels} "
                              f"channels and width {width}")
        self.shape = width, height, depth
        self.format, self.channels, self.flags = form, channels, flags
        self.height = max(height, 1)
        self.pitch = width * FORMATS[form] * channels
        self.nbytes = self.pitch * self.height * max(depth, 1)
        self.address = memory.allocate(self.nbytes)

    @staticmethod
    def of(handle: int) -> Array:
        """The array that `handle` stands for."""
        return handles.get(handle, Array)


def linear(handle: int, offset: int, nbytes: int) -> int:
    """The address of `nbytes` bytes at `offset` in the array."""
    array = Array.of(handle)
    if offset + nbytes > array.nbytes:
        raise DriverError(Result.INVALID_VALUE, f"copy: bytes {offset:,} to {offset + nbytes:,} "
                          f"are outside the array of {array.nbytes:,}")
    return array.address + offset


def create(out: ctypes._Pointer, description: ctypes._Pointer) -> None:
    """cuArrayCreate."""
    d = description[0]
    out[0] = handles.new(Array(d.Width, d.Height, 0, d.Format, d.NumChannels, 0))


def create_3d(out: ctypes._Pointer, description: ctypes._Pointer) -> None:
    """cuArray3DCreate."""
    d = description[0]
    out[0] = handles.new(Array(d.Width, d.Height, d.Depth, d.Format, d.NumChannels, d.Flags))


def describe(out: ctypes._Pointer, handle: int) -> None:
    """cuArrayGetDescriptor."""
    array, d = Array.of(handle), out[0]
    d.Width, d.Height, _ = array.shape
    d.Format, d.NumChannels = array.format, array.channels


def describe_3d(out: ctypes._Pointer, handle: int) -> None:
    """cuArray3DGetDescriptor."""
    describe(out, handle)
    out[0].Depth, out[0].Flags = Array.of(handle).shape[2], Array.of(handle).flags


def destroy(handle: int) -> None:
    """cuArrayDestroy."""
    memory.free(Array.of(handle).address)
    handles.drop(handle)


FUNCTIONS = {
    "cuArrayCreate_v2": create,
    "cuArray3DCreate_v2": create_3d,
    "cuArrayGetDescriptor_v2": describe,
    "cuArray3DGetDescriptor_v2": describe_3d,
    "cuArrayDestroy": destroy,
}
