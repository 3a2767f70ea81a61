"""Device, managed and page-locked memory: allocate, free, ask, fill.

All of it lies in the engine's arena, whose addresses are valid for kernels and for the host alike.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from helpers import simt

from . import context, device
from .errors import DriverError, Result

PITCH_ALIGNMENT = 512
DEVICE, MANAGED, HOST = "device", "managed", "page-locked host"
#: CUmemAttach_flags that cuMemAllocManaged takes: GLOBAL, HOST.
ATTACH_FLAGS = (1, 2)
#: CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED; DEVICEMAP is always on (cuda.h: "unified
#: addressing").
HOST_FLAGS, DEVICEMAP = 7, 2


@dataclass
class Allocation:
    """A live allocation; `place` is DEVICE, MANAGED or HOST."""

    nbytes: int
    place: str
    owner: context.Context
    flags: int = 0


_allocations: dict[int, Allocation] = {}
_registered: dict[int, tuple[int, int]] = {}  # host address -> bytes, flags
_host_bytes = 0  # how much of the arena is page-locked host memory


def free_memory() -> int:
    """The device's free bytes."""
    arena = device.memory()
    return min(device.total_memory() - (arena.used - _host_bytes), arena.capacity - arena.used)


def allocate(nbytes: int, place: str = DEVICE, flags: int = 0) -> int:
    """The address of `nbytes` new bytes that belong to the current context."""
    global _host_bytes
    owner = context.current()
    if nbytes < 1:
        raise DriverError(Result.INVALID_VALUE, f"cannot allocate {nbytes} bytes")
    with device.LOCK:
        if place != HOST and nbytes > free_memory():
            raise DriverError(Result.OUT_OF_MEMORY, f"out of memory: {nbytes:,} bytes asked for, "
                              f"{free_memory():,} of {device.total_memory():,} free")
        address = device.memory().allocate(nbytes)
        _allocations[address] = Allocation(nbytes, place, owner, flags)
        _host_bytes += nbytes if place == HOST else 0
    owner.own(("memory", address), lambda: _release(address))
    return address


def _release(address: int) -> None:
    global _host_bytes
    with device.LOCK:
        allocation = _allocations.pop(address)
        _host_bytes -= allocation.nbytes if allocation.place == HOST else 0
        device.memory().free(address)


def free(address: int, *places: str) -> None:
    """Take back what starts at `address`; INVALID_VALUE says why if nothing does."""
    with device.LOCK:
        allocation = _allocations.get(address)
        if allocation is None or allocation.place not in (places or (DEVICE, MANAGED)):
            raise DriverError(Result.INVALID_VALUE, _cannot_free(address, allocation))
        _release(address)
    allocation.owner.disown(("memory", address))


def is_device(address: int) -> bool:
    """Whether device memory of cuMemAlloc starts at `address`."""
    allocation = _allocations.get(address)
    return allocation is not None and allocation.place == DEVICE


def _cannot_free(address: int, allocation: Allocation | None) -> str:
    where = f"0x{address:x} cannot be freed: "
    if allocation is not None:
        return f"{where}it is {allocation.place} memory"
    found = device.memory().find(address)
    if found:
        return (f"{where}it lies {address - found[0]:,} bytes inside the allocation of "
                f"{found[1]:,} bytes that starts at 0x{found[0]:x}; free takes the start")
    return f"{where}no allocation starts there (freed before, or never allocated)"


def check(address: int, nbytes: int, doing: str) -> None:
    """INVALID_VALUE unless all the bytes lie in one live allocation."""
    try:
        device.memory().check(address, nbytes)
    except simt.Fault as fault:
        raise DriverError(Result.INVALID_VALUE, f"{doing}: {fault}") from None


def get_info(free_out: ctypes._Pointer, total_out: ctypes._Pointer) -> None:
    """cuMemGetInfo."""
    context.current()
    free_out[0], total_out[0] = free_memory(), device.total_memory()


def alloc(out: ctypes._Pointer, nbytes: int) -> None:
    """cuMemAlloc."""
    out[0] = allocate(nbytes)


def alloc_pitch(out: ctypes._Pointer, pitch_out: ctypes._Pointer, width: int, height: int,
                element: int) -> None:
    """cuMemAllocPitch: rows padded to a multiple of 512 bytes."""
    if element not in (4, 8, 16):
        raise DriverError(Result.INVALID_VALUE, "cuMemAllocPitch: the element size must be 4, 8 or "
                          f"16 bytes, not {element}")
    pitch = -(-width // PITCH_ALIGNMENT) * PITCH_ALIGNMENT
    out[0] = allocate(pitch * height)
    pitch_out[0] = pitch


def alloc_managed(out: ctypes._Pointer, nbytes: int, flags: int) -> None:
    """cuMemAllocManaged."""
    if flags not in ATTACH_FLAGS:
        raise DriverError(Result.INVALID_VALUE, "cuMemAllocManaged: the flags can be "
                          f"mem_attach_flags.GLOBAL (1) or HOST (2), not {flags}")
    out[0] = allocate(nbytes, MANAGED, flags)


def free_device(address: int) -> None:
    """cuMemFree: NULL is nothing to free."""
    if address:
        free(address)


def get_address_range(base: ctypes._Pointer, size: ctypes._Pointer, address: int) -> None:
    """cuMemGetAddressRange."""
    context.current()
    with device.LOCK:
        found = device.memory().find(address)
    if found is None:
        raise DriverError(Result.NOT_FOUND, f"0x{address:x} lies in no allocation")
    if base:
        base[0] = found[0]
    if size:
        size[0] = found[1]


def host_alloc(out: ctypes._Pointer, nbytes: int, flags: int) -> None:
    """cuMemHostAlloc: of 0 bytes, NULL."""
    context.current()
    if flags & ~HOST_FLAGS:
        raise DriverError(Result.INVALID_VALUE, f"cuMemHostAlloc: there are no flags 0x{flags:x}")
    out[0] = allocate(nbytes, HOST, flags | DEVICEMAP) if nbytes else 0


def alloc_host(out: ctypes._Pointer, nbytes: int) -> None:
    """cuMemAllocHost."""
    host_alloc(out, nbytes, 0)


def free_host(address: int) -> None:
    """cuMemFreeHost: NULL is nothing to free."""
    if address:
        free(address, HOST)


def host_get_device_pointer(out: ctypes._Pointer, address: int, _flags: int) -> None:
    """cuMemHostGetDevicePointer: the same address, for page-locked memory."""
    context.current()
    with device.LOCK:
        found = device.memory().find(address)
    if found is None and any(a <= address < a + n for a, (n, _) in _registered.items()):
        raise DriverError(Result.NOT_SUPPORTED, "the CPU driver cannot let kernels use registered "
                          "host memory; allocate it with pagelocked_empty")
    if found is None or _allocations[found[0]].place != HOST:
        raise DriverError(Result.INVALID_VALUE, f"0x{address:x} is no page-locked host memory")
    out[0] = address


def host_get_flags(out: ctypes._Pointer, address: int) -> None:
    """cuMemHostGetFlags."""
    context.current()
    if address in _registered:
        out[0] = _registered[address][1]
    elif address in _allocations and _allocations[address].place == HOST:
        out[0] = _allocations[address].flags
    else:
        raise DriverError(Result.INVALID_VALUE, f"0x{address:x} is no page-locked host memory")


def host_register(address: int, nbytes: int, flags: int) -> None:
    """cuMemHostRegister: remembered only; copies need no page-locking here."""
    context.current()
    if not address or not nbytes:
        raise DriverError(Result.INVALID_VALUE)
    if any(a < address + nbytes and address < a + n for a, (n, _) in _registered.items()):
        raise DriverError(Result.HOST_MEMORY_ALREADY_REGISTERED)
    _registered[address] = nbytes, flags


def host_unregister(address: int) -> None:
    """cuMemHostUnregister."""
    if _registered.pop(address, None) is None:
        raise DriverError(Result.HOST_MEMORY_NOT_REGISTERED)


def fill(address: int, pattern: bytes, count: int) -> None:
    """Write `pattern` `count` times from `address` on."""
    nbytes = len(pattern) * count
    if not nbytes:
        return
    if len(set(pattern)) == 1:
        ctypes.memset(address, pattern[0], nbytes)
        return
    ctypes.memmove(address, pattern, len(pattern))
    done = len(pattern)
    while done < nbytes:  # doubles what is there
        step = min(done, nbytes - done)
        ctypes.memmove(address + done, address, step)
        done += step


def _memset(width: int, address: int, pitch: int, value: int, columns: int, rows: int) -> None:
    """Fill `rows` rows of `columns` elements of `width` bytes, `pitch` bytes apart."""
    context.current()
    if address % width or (rows > 1 and pitch % width):
        raise DriverError(Result.INVALID_VALUE, f"memset: 0x{address:x} (pitch {pitch}) is not "
                          f"aligned to its elements of {width} bytes")
    if not columns or not rows:
        return
    with device.LOCK:
        check(address, (rows - 1) * pitch + columns * width, "memset")
        for row in range(rows):
            fill(address + row * pitch, value.to_bytes(width, "little"), columns)


def memset(width: int):  # noqa: ANN201 - a function as the table needs it
    """cuMemsetD8/16/32[Async]: the stream is of no matter."""
    return lambda address, value, count, _stream=0: _memset(width, address, 0, value, count, 1)


def memset_2d(width: int):  # noqa: ANN201
    """cuMemsetD2D8/16/32[Async]."""
    def function(address: int, pitch: int, value: int, columns: int, rows: int,
                 _stream: int = 0) -> None:
        if rows > 1 and pitch < columns * width:
            raise DriverError(Result.INVALID_VALUE, f"memset: a pitch of {pitch} bytes is less "
                              f"than a row of {columns * width}")
        _memset(width, address, pitch, value, columns, rows)
    return function


FUNCTIONS = {
    "cuMemGetInfo_v2": get_info,
    "cuMemAlloc_v2": alloc,
    "cuMemAllocPitch_v2": alloc_pitch,
    "cuMemAllocManaged": alloc_managed,
    "cuMemFree_v2": free_device,
    "cuMemGetAddressRange_v2": get_address_range,
    "cuMemHostAlloc": host_alloc,
    "cuMemAllocHost_v2": alloc_host,
    "cuMemFreeHost": free_host,
    "cuMemHostGetDevicePointer_v2": host_get_device_pointer,
    "cuMemHostGetFlags": host_get_flags,
    "cuMemHostRegister_v2": host_register,
    "cuMemHostUnregister": host_unregister,
    "cuStreamAttachMemAsync": device.nothing,
    **{f"cuMemsetD{8 * width}{suffix}": memset(width)
       for width in (1, 2, 4) for suffix in ("_v2", "Async")},
    **{f"cuMemsetD2D{8 * width}{suffix}": memset_2d(width)
       for width in (1, 2, 4) for suffix in ("_v2", "Async")},
}
