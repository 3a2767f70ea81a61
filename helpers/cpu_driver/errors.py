"""CUresult codes and their texts, and how what the engine finds becomes one of them."""

from __future__ import annotations

import ctypes
import threading
import traceback
from enum import IntEnum
from pathlib import Path

from helpers import simt


class Result(IntEnum):
    """CUresult (cuda.h), without the ``CUDA_ERROR_``."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NOT_INITIALIZED = 3
    DEINITIALIZED = 4
    NO_DEVICE = 100
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209
    UNSUPPORTED_LIMIT = 215
    PEER_ACCESS_UNSUPPORTED = 217
    INVALID_PTX = 218
    UNSUPPORTED_PTX_VERSION = 222
    FILE_NOT_FOUND = 301
    OPERATING_SYSTEM = 304
    INVALID_HANDLE = 400
    ILLEGAL_STATE = 401
    NOT_FOUND = 500
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_TIMEOUT = 702
    PEER_ACCESS_ALREADY_ENABLED = 704
    PEER_ACCESS_NOT_ENABLED = 705
    CONTEXT_IS_DESTROYED = 709
    ASSERT = 710
    HOST_MEMORY_ALREADY_REGISTERED = 712
    HOST_MEMORY_NOT_REGISTERED = 713
    MISALIGNED_ADDRESS = 716
    INVALID_ADDRESS_SPACE = 717
    INVALID_PC = 718
    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    UNKNOWN = 999


#: What cuGetErrorString says of a code when there is nothing more exact to say.
TEXTS = {
    Result.SUCCESS: "no error",
    Result.INVALID_VALUE: "invalid argument",
    Result.OUT_OF_MEMORY: "out of memory",
    Result.NOT_INITIALIZED: "initialization error",
    Result.DEINITIALIZED: "driver shutting down",
    Result.NO_DEVICE: "no CUDA-capable device is detected",
    Result.INVALID_DEVICE: "invalid device ordinal",
    Result.INVALID_IMAGE: "device kernel image is invalid",
    Result.INVALID_CONTEXT: "invalid device context",
    Result.NO_BINARY_FOR_GPU: "no kernel image is available for execution on the device",
    Result.UNSUPPORTED_LIMIT: "limit is not supported on this architecture",
    Result.PEER_ACCESS_UNSUPPORTED: "peer access is not supported between these two devices",
    Result.INVALID_PTX: "a PTX JIT compilation failed",
    Result.UNSUPPORTED_PTX_VERSION:
        "the provided PTX was compiled with an unsupported toolchain.",
    Result.FILE_NOT_FOUND: "file not found",
    Result.OPERATING_SYSTEM: "OS call failed or operation not supported on this OS",
    Result.INVALID_HANDLE: "invalid resource handle",
    Result.ILLEGAL_STATE:
        "the operation cannot be performed in the present state",
    Result.NOT_FOUND: "named symbol not found",
    Result.NOT_READY: "device not ready",
    Result.ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    Result.LAUNCH_OUT_OF_RESOURCES: "too many resources requested for launch",
    Result.LAUNCH_TIMEOUT: "the launch timed out and was terminated",
    Result.PEER_ACCESS_ALREADY_ENABLED: "peer access is already enabled",
    Result.PEER_ACCESS_NOT_ENABLED: "peer access has not been enabled",
    Result.CONTEXT_IS_DESTROYED: "context is destroyed",
    Result.ASSERT: "device-side assert triggered",
    Result.HOST_MEMORY_ALREADY_REGISTERED:
        "part or all of the requested memory range is already mapped",
    Result.HOST_MEMORY_NOT_REGISTERED: "pointer does not correspond to a registered memory region",
    Result.MISALIGNED_ADDRESS: "misaligned address",
    Result.INVALID_ADDRESS_SPACE: "operation not supported on global/shared address space",
    Result.INVALID_PC: "invalid program counter",
    Result.LAUNCH_FAILED: "unspecified launch failure",
    Result.COOPERATIVE_LAUNCH_TOO_LARGE: "too many blocks in cooperative launch",
    Result.NOT_SUPPORTED: "operation not supported",
    Result.UNKNOWN: "unknown error",
}

#: simt.Fault.kind -> the code a GPU gives for it; any other kind is LAUNCH_FAILED.
FAULTS = {
    "out of bounds": Result.ILLEGAL_ADDRESS,
    "freed": Result.ILLEGAL_ADDRESS,
    "stack overflow": Result.ILLEGAL_ADDRESS,
    "misaligned": Result.MISALIGNED_ADDRESS,
    "assert": Result.ASSERT,
}

#: The engine's other exceptions.
ENGINE = {
    simt.OutOfMemory: Result.OUT_OF_MEMORY,
    simt.Unsupported: Result.NOT_SUPPORTED,
    simt.InvalidPtx: Result.INVALID_PTX,
    simt.Interrupted: Result.LAUNCH_FAILED,
}


class DriverError(Exception):
    """A driver function's failure: its code, and the sentence for the user."""

    def __init__(self, code: Result, text: str = ""):
        super().__init__(text or TEXTS[code])
        self.code = code


def explain(error: BaseException) -> tuple[Result, str]:
    """The code and the text that `error` gives the caller of a driver function."""
    if isinstance(error, DriverError):
        return error.code, str(error)
    if isinstance(error, simt.Fault):
        return FAULTS.get(error.kind, Result.LAUNCH_FAILED), str(error)
    for kind, code in ENGINE.items():
        if isinstance(error, kind):
            return code, str(error)
    return Result.UNKNOWN, _defect(error)


def _defect(error: BaseException) -> str:
    """What to say of an exception that none of this project's code raised on purpose."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "helpers" in Path(frame.filename).parts] or frames
    where = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"a defect of the CPU driver: {type(error).__name__}{where}: {error}"


class _Last(threading.local):
    """This thread's latest failure, and the buffers of the texts handed out last."""

    code: int = 0
    text: str | None = None
    buffer: bytes = b""


_last = _Last()


def remember(code: Result, text: str) -> None:
    """Let cuGetErrorString answer `text` the next time this thread asks about `code`."""
    _last.code, _last.text = code, text


def forget() -> None:
    """A call succeeded: what failed before it is no longer what a code means."""
    if _last.text is not None:
        _last.text = None


def get_error_string(code: int, out: ctypes._Pointer) -> None:
    """cuGetErrorString.  The text of a failure is told once, to the thread that met it."""
    if _last.text is not None and _last.code == code:
        text, _last.text = _last.text, None
    elif code in TEXTS:
        text = TEXTS[code]
    else:
        raise DriverError(Result.INVALID_VALUE, f"{code} is no CUresult of this driver")
    _last.buffer = text.encode(errors="replace")  # alive until this thread asks again
    out[0] = _last.buffer


def get_error_name(code: int, out: ctypes._Pointer) -> None:
    """cuGetErrorName."""
    try:
        name = Result(code).name
    except ValueError:
        raise DriverError(Result.INVALID_VALUE, f"{code} is no CUresult of this driver") from None
    _last.buffer = b"CUDA_SUCCESS" if not code else f"CUDA_ERROR_{name}".encode()
    out[0] = _last.buffer


FUNCTIONS = {"cuGetErrorString": get_error_string, "cuGetErrorName": get_error_name}
