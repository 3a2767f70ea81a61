"""The one device: its name, its attributes, and its memory.

It is a device *class*: the limits are those of compute capability 8.0 (CUDA C++ Programming Guide,
"Compute Capabilities"), the sizes those of an A100, so that a program that fits here fits there.
They say nothing of this machine, and the clock rates nothing of its speed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading

from helpers import simt

from .errors import DriverError, Result

NAME = "CPU driver (sm_80)"
COMPUTE_CAPABILITY = (8, 0)
DRIVER_VERSION = 13000
PCI_BUS_ID = "0000:00:00.0"

GIB = 1 << 30
MOST_MEMORY = 16 * GIB
#: Environment variable: how many GiB of memory the device has, instead of what fits the machine.
MEMORY_VARIABLE = "MATMUL_CPU_MEMORY"

#: CUdevice_attribute: number -> value; the names are those of cuda.h.  Other numbers read 0.
ATTRIBUTES = {
    1: 1024,  # MAX_THREADS_PER_BLOCK
    2: 1024,  # MAX_BLOCK_DIM_X
    3: 1024,  # MAX_BLOCK_DIM_Y
    4: 64,  # MAX_BLOCK_DIM_Z
    5: 2**31 - 1,  # MAX_GRID_DIM_X
    6: 65535,  # MAX_GRID_DIM_Y
    7: 65535,  # MAX_GRID_DIM_Z
    8: 48 * 1024,  # MAX_SHARED_MEMORY_PER_BLOCK
    9: 64 * 1024,  # TOTAL_CONSTANT_MEMORY
    10: 32,  # WARP_SIZE
    11: 2**31 - 1,  # MAX_PITCH
    12: 65536,  # MAX_REGISTERS_PER_BLOCK
    13: 1410000,  # CLOCK_RATE, kHz
    14: 512,  # TEXTURE_ALIGNMENT
    16: 108,  # MULTIPROCESSOR_COUNT
    19: 1,  # CAN_MAP_HOST_MEMORY
    30: 512,  # SURFACE_ALIGNMENT
    31: 1,  # CONCURRENT_KERNELS
    36: 1215000,  # MEMORY_CLOCK_RATE, kHz
    37: 5120,  # GLOBAL_MEMORY_BUS_WIDTH, bits
    38: 40 * 1024 * 1024,  # L2_CACHE_SIZE
    39: 2048,  # MAX_THREADS_PER_MULTIPROCESSOR
    41: 1,  # UNIFIED_ADDRESSING
    51: 32,  # TEXTURE_PITCH_ALIGNMENT
    75: COMPUTE_CAPABILITY[0],  # COMPUTE_CAPABILITY_MAJOR
    76: COMPUTE_CAPABILITY[1],  # COMPUTE_CAPABILITY_MINOR
    79: 1,  # GLOBAL_L1_CACHE_SUPPORTED
    80: 1,  # LOCAL_L1_CACHE_SUPPORTED
    81: 164 * 1024,  # MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    82: 65536,  # MAX_REGISTERS_PER_MULTIPROCESSOR
    83: 1,  # MANAGED_MEMORY
    87: 2,  # SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    97: 163 * 1024,  # MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    106: 32,  # MAX_BLOCKS_PER_MULTIPROCESSOR
    111: 1024,  # RESERVED_SHARED_MEMORY_PER_BLOCK
}
_LAST_ATTRIBUTE = 147  # CUDA 13.0

#: Held for the length of a launch, a copy, an allocation: whatever threads call, the device does
#: one thing at a time, in the order of the calls.
LOCK = threading.RLock()

_memory: simt.Memory | None = None


def memory() -> simt.Memory:
    """The device's memory; NOT_INITIALIZED before cuInit."""
    if _memory is None:
        raise DriverError(Result.NOT_INITIALIZED, "call pycuda.driver.init() first: no cuInit yet")
    return _memory


def total_memory() -> int:
    """The device's bytes: half of this machine's memory, at most 16 GiB, or what could be had."""
    return min(_wanted_memory(), MOST_MEMORY, memory().capacity // 2)


@functools.cache
def _wanted_memory() -> int:
    chosen = os.environ.get(MEMORY_VARIABLE)
    if not chosen:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        wanted = int(float(chosen) * GIB)
    except (ValueError, OverflowError):
        wanted = 0
    if wanted < 1:
        raise DriverError(Result.INVALID_VALUE,
                          f"{MEMORY_VARIABLE} is {chosen!r}; it is a number of GiB, at most 16")
    return wanted


def init(flags: int) -> None:
    """cuInit."""
    global _memory
    if flags:
        raise DriverError(Result.INVALID_VALUE, f"cuInit: the flags must be 0, not {flags}")
    with LOCK:
        _memory = _memory or _arena()


def _arena() -> simt.Memory:
    """An arena with room for the device's memory and as much page-locked host memory.

    Less where the address space is limited (ulimit -v, strict overcommit).
    """
    capacity = 2 * MOST_MEMORY
    while True:
        try:
            return simt.Memory(capacity)
        except OSError as error:
            capacity //= 2
            if capacity < GIB // 4:
                raise DriverError(Result.OUT_OF_MEMORY,
                                  f"no room for the device's memory: {error}") from None


def check(device: int) -> None:
    """INVALID_DEVICE unless `device` is 0."""
    memory()
    if device != 0:
        raise DriverError(Result.INVALID_DEVICE, f"there is no device {device}: the CPU driver has "
                          "one, number 0")


def get(out: ctypes._Pointer, ordinal: int) -> None:
    """cuDeviceGet."""
    check(ordinal)
    out[0] = ordinal


def get_count(out: ctypes._Pointer) -> None:
    """cuDeviceGetCount."""
    memory()
    out[0] = 1


def driver_version(out: ctypes._Pointer) -> None:
    """cuDriverGetVersion: CUDA 13.0."""
    out[0] = DRIVER_VERSION


def get_attribute(out: ctypes._Pointer, attribute: int, device: int) -> None:
    """cuDeviceGetAttribute."""
    check(device)
    if not 0 < attribute <= _LAST_ATTRIBUTE:
        raise DriverError(Result.INVALID_VALUE, f"there is no device attribute {attribute}")
    out[0] = ATTRIBUTES.get(attribute, 0)


def compute_capability(major: ctypes._Pointer, minor: ctypes._Pointer, device: int) -> None:
    """cuDeviceComputeCapability."""
    check(device)
    major[0], minor[0] = COMPUTE_CAPABILITY


def get_total_memory(out: ctypes._Pointer, device: int) -> None:
    """cuDeviceTotalMem."""
    check(device)
    out[0] = total_memory()


def _write_text(text: str, buffer: int, size: int, device: int) -> None:
    check(device)
    if size < 1:
        raise DriverError(Result.INVALID_VALUE)
    data = text.encode()[:size - 1] + b"\0"
    ctypes.memmove(buffer, data, len(data))


def get_name(buffer: int, size: int, device: int) -> None:
    """cuDeviceGetName."""
    _write_text(NAME, buffer, size, device)


def get_pci_bus_id(buffer: int, size: int, device: int) -> None:
    """cuDeviceGetPCIBusId."""
    _write_text(PCI_BUS_ID, buffer, size, device)


def get_by_pci_bus_id(out: ctypes._Pointer, text: bytes) -> None:
    """cuDeviceGetByPCIBusId."""
    memory()
    if text.decode(errors="replace") not in (PCI_BUS_ID, PCI_BUS_ID.removeprefix("0000:")):
        raise DriverError(Result.INVALID_DEVICE, f"no device is at {text.decode(errors='replace')};"
                          f" the CPU driver's is at {PCI_BUS_ID}")
    out[0] = 0


def can_access_peer(out: ctypes._Pointer, device: int, peer: int) -> None:
    """cuDeviceCanAccessPeer: there is no second device."""
    check(device)
    check(peer)
    out[0] = 0


def nothing(*_arguments: object) -> None:
    """A function that has nothing to do here, and succeeds."""


FUNCTIONS = {
    "cuInit": init,
    "cuDriverGetVersion": driver_version,
    "cuDeviceGet": get,
    "cuDeviceGetCount": get_count,
    "cuDeviceGetName": get_name,
    "cuDeviceGetAttribute": get_attribute,
    "cuDeviceComputeCapability": compute_capability,
    "cuDeviceTotalMem_v2": get_total_memory,
    "cuDeviceGetPCIBusId": get_pci_bus_id,
    "cuDeviceGetByPCIBusId": get_by_pci_bus_id,
    "cuDeviceCanAccessPeer": can_access_peer,
    "cuProfilerStart": nothing,
    "cuProfilerStop": nothing,
}
