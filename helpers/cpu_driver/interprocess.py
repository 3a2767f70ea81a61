"""What means nothing with one device in one process: IPC handles and access between devices.

The answers are those of a single GPU, wrong calls included.
"""

from __future__ import annotations

import ctypes

from . import context, device, handles, memory, stream_event
from .errors import DriverError, Result
from .signatures import IpcHandle

_MARK = b"cpu driver"


def get_memory_handle(out: ctypes._Pointer, address: int) -> None:
    """cuIpcGetMemHandle: a handle that says where the allocation is."""
    context.current()
    with device.LOCK:
        found = device.memory().find(address)
    if found is None or not memory.is_device(found[0]):
        raise DriverError(Result.INVALID_VALUE, f"0x{address:x} lies in no device memory: only "
                          "that of mem_alloc can be shared between processes")
    text = _MARK + b":%x" % found[0]
    ctypes.memset(ctypes.addressof(out[0]), 0, ctypes.sizeof(IpcHandle))
    ctypes.memmove(ctypes.addressof(out[0]), text, len(text))


def open_memory_handle(_out: ctypes._Pointer, handle: IpcHandle, _flags: int) -> None:
    """cuIpcOpenMemHandle: never possible in the process that made the handle."""
    context.current()
    text = ctypes.string_at(ctypes.addressof(handle), ctypes.sizeof(handle))
    if not text.startswith(_MARK):
        raise DriverError(Result.INVALID_VALUE, "this is no handle of cuIpcGetMemHandle")
    address = int(text[len(_MARK) + 1:].rstrip(b"\0"), 16)
    with device.LOCK:
        own = device.memory().find(address) is not None
    if own:
        raise DriverError(Result.INVALID_CONTEXT, "a handle cannot be opened in the process that "
                          "made it")
    raise DriverError(Result.NOT_SUPPORTED, "the CPU driver's memory cannot be opened in another "
                      "process")


def close_memory_handle(address: int) -> None:
    """cuIpcCloseMemHandle: nothing has been opened."""
    raise DriverError(Result.INVALID_VALUE, f"0x{address:x} is no memory of another process")


def get_event_handle(_out: ctypes._Pointer, event: int) -> None:
    """cuIpcGetEventHandle."""
    if not handles.get(event, stream_event.Event).flags & stream_event.INTERPROCESS:
        raise DriverError(Result.INVALID_HANDLE, "the event was made without INTERPROCESS")
    raise DriverError(Result.NOT_SUPPORTED, "the CPU driver's events cannot be used in another "
                      "process")


def enable_peer_access(other: int, flags: int) -> None:
    """cuCtxEnablePeerAccess: a device is no peer of itself."""
    context.current()
    if flags:
        raise DriverError(Result.INVALID_VALUE, "cuCtxEnablePeerAccess: the flags must be 0")
    context.get(other)
    raise DriverError(Result.PEER_ACCESS_UNSUPPORTED, "peer access is not supported: there is one "
                      "device, and all contexts on it share its memory")


def disable_peer_access(other: int) -> None:
    """cuCtxDisablePeerAccess: it cannot have been enabled."""
    context.get(other)
    raise DriverError(Result.PEER_ACCESS_NOT_ENABLED)


FUNCTIONS = {
    "cuIpcGetMemHandle": get_memory_handle,
    "cuIpcOpenMemHandle": open_memory_handle,
    "cuIpcOpenMemHandle_v2": open_memory_handle,
    "cuIpcCloseMemHandle": close_memory_handle,
    "cuIpcGetEventHandle": get_event_handle,
    "cuCtxEnablePeerAccess": enable_peer_access,
    "cuCtxDisablePeerAccess": disable_peer_access,
}
