"""Copies between host and device, of ranges and of 2D and 3D boxes.

Device ranges are checked against the live allocations; host ranges come from PyCUDA's buffers.
Every copy is done when its call returns, the asynchronous ones too.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from . import context, device, memory
from .arrays import Array, linear
from .errors import DriverError, Result
from .signatures import Memcpy2D, Memcpy3D

#: CUmemorytype
HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4


def _move(target: int, source: int, nbytes: int, to_device: bool, from_device: bool) -> None:
    context.current()
    if not nbytes:
        return
    with device.LOCK:
        if to_device:
            memory.check(target, nbytes, "copy to the device")
        if from_device:
            memory.check(source, nbytes, "copy from the device")
        for address in (target, source):
            if not address:
                raise DriverError(Result.INVALID_VALUE, f"copy of {nbytes:,} bytes: a null pointer")
        ctypes.memmove(target, source, nbytes)


def host_to_device(target: int, source: int, nbytes: int, _stream: int = 0) -> None:
    """cuMemcpyHtoD[Async]."""
    _move(target, source, nbytes, True, False)


def device_to_host(target: int, source: int, nbytes: int, _stream: int = 0) -> None:
    """cuMemcpyDtoH[Async]."""
    _move(target, source, nbytes, False, True)


def device_to_device(target: int, source: int, nbytes: int, _stream: int = 0) -> None:
    """cuMemcpyDtoD[Async]."""
    _move(target, source, nbytes, True, True)


def unified(target: int, source: int, nbytes: int) -> None:
    """cuMemcpy: each side is wherever its address says."""
    find = device.memory().find
    _move(target, source, nbytes, find(target) is not None, find(source) is not None)


def peer(target: int, _target_context: int, source: int, _source_context: int, nbytes: int,
         _stream: int = 0) -> None:
    """cuMemcpyPeer[Async]: all contexts share the one device."""
    device_to_device(target, source, nbytes)


def device_to_array(array: int, offset: int, source: int, nbytes: int) -> None:
    """cuMemcpyDtoA."""
    device_to_device(linear(array, offset, nbytes), source, nbytes)


def array_to_device(target: int, array: int, offset: int, nbytes: int) -> None:
    """cuMemcpyAtoD."""
    device_to_device(target, linear(array, offset, nbytes), nbytes)


def host_to_array(array: int, offset: int, source: int, nbytes: int, _stream: int = 0) -> None:
    """cuMemcpyHtoA."""
    host_to_device(linear(array, offset, nbytes), source, nbytes)


def array_to_host(target: int, array: int, offset: int, nbytes: int, _stream: int = 0) -> None:
    """cuMemcpyAtoH."""
    device_to_host(target, linear(array, offset, nbytes), nbytes)


def array_to_array(target: int, target_offset: int, source: int, source_offset: int,
                   nbytes: int) -> None:
    """cuMemcpyAtoA."""
    device_to_device(linear(target, target_offset, nbytes), linear(source, source_offset, nbytes),
                     nbytes)


@dataclass
class _Side:
    """One side of a box copy: where its first byte is, and how far apart rows and planes are."""

    start: int
    pitch: int
    plane: int
    checked: bool

    def row(self, y: int, z: int) -> int:
        return self.start + z * self.plane + y * self.pitch


def _side(what: Memcpy3D, side: str) -> _Side:
    """The `side` ("src" or "dst") of a copy's description."""
    x, y, z, kind, host, address, array, pitch, height = (getattr(what, side + field) for field in (
        "XInBytes", "Y", "Z", "MemoryType", "Host", "Device", "Array", "Pitch", "Height"))
    pitch, height = pitch or what.WidthInBytes, height or what.Height
    if kind == ARRAY:
        array = Array.of(array)
        base, pitch, height, checked = array.address, array.pitch, array.height, True
    elif kind in (HOST, DEVICE, UNIFIED):
        # cuda.h: for CU_MEMORYTYPE_UNIFIED the address is in srcDevice or dstDevice; PyCUDA
        # writes it to srcHost or dstHost.
        base = (host or address) if kind == UNIFIED else address if kind == DEVICE else host
        checked = kind == DEVICE or (kind == UNIFIED and device.memory().find(base) is not None)
    else:
        raise DriverError(Result.INVALID_VALUE, f"copy: {side}MemoryType is {kind}: call "
                          f"set_{side}_host, set_{side}_device or set_{side}_array first")
    if what.Height * what.Depth > 1 and pitch < what.WidthInBytes:
        raise DriverError(Result.INVALID_VALUE, f"copy: {side}Pitch is {pitch} bytes, less than a "
                          f"row of {what.WidthInBytes}")
    return _Side(base + x + (y + z * height) * pitch, pitch, pitch * height, checked)


def _box(what: Memcpy3D) -> None:
    context.current()
    if not what.WidthInBytes or not what.Height or not what.Depth:
        return
    with device.LOCK:
        target, source = _side(what, "dst"), _side(what, "src")
        for side, name in ((target, "copy to the device"), (source, "copy from the device")):
            last = side.row(what.Height - 1, what.Depth - 1) + what.WidthInBytes
            if side.checked:
                memory.check(side.start, last - side.start, name)
            elif not side.start:
                raise DriverError(Result.INVALID_VALUE, f"{name}: a null pointer")
        for z in range(what.Depth):
            for y in range(what.Height):
                ctypes.memmove(target.row(y, z), source.row(y, z), what.WidthInBytes)


def box_2d(what: ctypes._Pointer, _stream: int = 0) -> None:
    """cuMemcpy2D[Unaligned|Async]: a box of one plane."""
    flat = what[0]
    _box(Memcpy3D(Depth=1, **{name: getattr(flat, name) for name, _ in Memcpy2D._fields_}))


def box_3d(what: ctypes._Pointer, _stream: int = 0) -> None:
    """cuMemcpy3D[Async], cuMemcpy3DPeer[Async]."""
    _box(what[0])


FUNCTIONS = {
    "cuMemcpy": unified,
    "cuMemcpyHtoD_v2": host_to_device,
    "cuMemcpyDtoH_v2": device_to_host,
    "cuMemcpyDtoD_v2": device_to_device,
    "cuMemcpyHtoDAsync_v2": host_to_device,
    "cuMemcpyDtoHAsync_v2": device_to_host,
    "cuMemcpyDtoDAsync_v2": device_to_device,
    "cuMemcpyPeer": peer,
    "cuMemcpyPeerAsync": peer,
    "cuMemcpyDtoA_v2": device_to_array,
    "cuMemcpyAtoD_v2": array_to_device,
    "cuMemcpyHtoA_v2": host_to_array,
    "cuMemcpyAtoH_v2": array_to_host,
    "cuMemcpyAtoA_v2": array_to_array,
    "cuMemcpy2D_v2": box_2d,
    "cuMemcpy2DUnaligned_v2": box_2d,
    "cuMemcpy2DAsync_v2": box_2d,
    "cuMemcpy3D_v2": box_3d,
    "cuMemcpy3DAsync_v2": box_3d,
    "cuMemcpy3DPeer": box_3d,
    "cuMemcpy3DPeerAsync": box_3d,
}
