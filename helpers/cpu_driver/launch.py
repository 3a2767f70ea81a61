"""Launches: checks what a GPU's driver checks, gathers the parameters, and lets the engine run."""

from __future__ import annotations

import ctypes

from . import context, device, handles, stream_event
from .errors import DriverError, Result
from .module import MAX_THREADS, SHARED_LIMIT, SHARED_OPTIN_LIMIT, Function

Dim3 = tuple[int, int, int]

MOST_BLOCK: Dim3 = (device.ATTRIBUTES[2], device.ATTRIBUTES[3], device.ATTRIBUTES[4])
MOST_GRID: Dim3 = (device.ATTRIBUTES[5], device.ATTRIBUTES[6], device.ATTRIBUTES[7])

#: The keys of cuLaunchKernel's `extra` (cuda.h: CU_LAUNCH_PARAM_…).
END, BUFFER_POINTER, BUFFER_SIZE = 0, 1, 2


def _check_shape(function: Function, what: str, shape: Dim3, most: Dim3) -> None:
    for axis, size, limit in zip("xyz", shape, most, strict=True):
        if not 1 <= size <= limit:
            raise DriverError(Result.INVALID_VALUE, f"kernel {function.name}: {what}.{axis} is "
                              f"{size:,}; it can be from 1 to {limit:,}")


def _check_threads(function: Function, block: Dim3) -> None:
    """What cuFuncSetBlockShape checks too: the threads, but not their registers."""
    threads = block[0] * block[1] * block[2]
    shape = "x".join(map(str, block))
    told = f"kernel {function.name}: a block of {shape} has {threads:,} threads"
    if threads > MAX_THREADS:
        raise DriverError(Result.INVALID_VALUE, f"{told}; at most {MAX_THREADS:,} are possible")
    bound = function.kernel.max_threads
    if bound and threads > bound:
        raise DriverError(Result.INVALID_VALUE, f"{told}; its __launch_bounds__ allow {bound}")


def _check_registers(function: Function, block: Dim3) -> None:
    threads = block[0] * block[1] * block[2]
    if threads > function.max_threads:
        raise DriverError(
            Result.LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch: kernel "
            f"{function.name} has blocks of {threads:,} threads and uses {function.registers} "
            f"registers in each; a multiprocessor has registers for {function.max_threads}")


def _check_shared(function: Function, dynamic: int) -> None:
    static = function.kernel.static_shared_bytes
    if dynamic <= function.dynamic_shared_limit:
        return
    told = f"kernel {function.name}: {dynamic:,} bytes of dynamic shared memory"
    if static:
        told += f" besides {static:,} static ones"
    if static + dynamic > SHARED_OPTIN_LIMIT:
        way_out = f"a block has at most {SHARED_OPTIN_LIMIT:,}"
    else:
        way_out = (f"more than {SHARED_LIMIT:,} in all need function.set_attribute("
                   f"pycuda.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, {dynamic})")
    raise DriverError(Result.INVALID_VALUE, f"{told}; {way_out}")


def _launch(function: Function, grid: Dim3, block: Dim3, shared: int, stream: int,
            parameters: bytes) -> None:
    owner = function.module.owner
    if stream_event.owner_of(stream) is not owner:
        if stream not in stream_event.DEFAULT_STREAMS:
            raise DriverError(Result.INVALID_HANDLE, f"kernel {function.name} belongs to another "
                              "context than the stream it is launched in")
        raise DriverError(Result.INVALID_HANDLE, f"kernel {function.name} belongs to another "
                          "context than the current one")
    _check_shape(function, "block", block, MOST_BLOCK)
    _check_shape(function, "grid", grid, MOST_GRID)
    _check_threads(function, block)
    _check_registers(function, block)
    _check_shared(function, shared)
    with device.LOCK:
        stream_event.running.append(stream)
        try:
            function.kernel.launch(grid, block, parameters, shared)
        finally:
            stream_event.running.pop()


def _from_extra(extra: ctypes._Pointer) -> bytes:
    """The packed parameters in `extra`: pairs of key and value up to END."""
    values = {}
    for i in range(0, 6, 2):
        if extra[i] == END:
            break
        values[extra[i]] = extra[i + 1]
    if set(values) - {BUFFER_POINTER, BUFFER_SIZE} or len(values) == 1:
        raise DriverError(Result.INVALID_VALUE, "cuLaunchKernel: extra is no buffer and size")
    size = ctypes.c_size_t.from_address(values[BUFFER_SIZE]).value if values else 0
    return ctypes.string_at(values[BUFFER_POINTER], size) if size else b""


def _from_pointers(function: Function, pointers: ctypes._Pointer) -> bytes:
    """The parameters that an array of pointers to them gives."""
    packed = bytearray(function.kernel.parameter_bytes)
    for i, (_name, offset, nbytes) in enumerate(function.kernel.parameters):
        packed[offset:offset + nbytes] = ctypes.string_at(pointers[i], nbytes)
    return bytes(packed)


def _fitting(function: Function, given: bytes) -> bytes:
    """`given`, if it is as long as the kernel's parameters are.

    (A GPU's driver takes a buffer that is too short, and refuses a longer one by this code.)
    """
    expected = function.kernel.parameter_bytes
    if len(given) != expected:
        sizes = ", ".join(str(nbytes) for _name, _offset, nbytes in function.kernel.parameters)
        code = Result.LAUNCH_OUT_OF_RESOURCES if len(given) > expected else Result.INVALID_VALUE
        raise DriverError(
            code, f"kernel {function.name} takes {len(function.kernel.parameters)} "
            f"parameters, {expected} bytes in all ({sizes or 'none'}), but the launch gives "
            f"{len(given)} bytes: a parameter is missing, is one too many, or has another type "
            "(np.int32 for int, np.float32 for float)")
    return given


def launch_kernel(handle: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int,
                  stream: int, pointers: ctypes._Pointer, extra: ctypes._Pointer) -> None:
    """cuLaunchKernel.  Returns when the kernel has finished, so its faults are this call's."""
    function = handles.get(handle, Function)
    if pointers and extra:
        raise DriverError(Result.INVALID_VALUE, "cuLaunchKernel: kernelParams and extra both given")
    if pointers:
        parameters = _from_pointers(function, pointers)
    else:
        parameters = _fitting(function, _from_extra(extra) if extra else b"")
    _launch(function, (gx, gy, gz), (bx, by, bz), shared, stream, parameters)


# ---------------------------------------------------------------------- CUDA 3 and before


def set_block_shape(handle: int, x: int, y: int, z: int) -> None:
    """cuFuncSetBlockShape (PyCUDA calls it before every launch)."""
    context.current()
    function = handles.get(handle, Function)
    _check_shape(function, "block", (x, y, z), MOST_BLOCK)
    _check_threads(function, (x, y, z))
    function.block = x, y, z


def set_shared_size(handle: int, nbytes: int) -> None:
    """cuFuncSetSharedSize."""
    handles.get(handle, Function).shared_bytes = nbytes


def set_parameter_size(handle: int, nbytes: int) -> None:
    """cuParamSetSize."""
    parameters = handles.get(handle, Function).parameters
    parameters[:] = parameters[:nbytes].ljust(nbytes, b"\0")


def _set_parameter(handle: int, offset: int, data: bytes) -> None:
    parameters = handles.get(handle, Function).parameters
    if offset < 0:
        raise DriverError(Result.INVALID_VALUE, f"cuParamSet: offset {offset}")
    if len(parameters) < offset + len(data):
        parameters.extend(bytes(offset + len(data) - len(parameters)))
    parameters[offset:offset + len(data)] = data


def set_parameter_int(handle: int, offset: int, value: int) -> None:
    """cuParamSeti."""
    _set_parameter(handle, offset, bytes(ctypes.c_uint(value)))


def set_parameter_float(handle: int, offset: int, value: float) -> None:
    """cuParamSetf."""
    _set_parameter(handle, offset, bytes(ctypes.c_float(value)))


def set_parameter_bytes(handle: int, offset: int, address: int, nbytes: int) -> None:
    """cuParamSetv."""
    _set_parameter(handle, offset, ctypes.string_at(address, nbytes) if nbytes else b"")


def launch_grid(handle: int, width: int, height: int, stream: int = 0) -> None:
    """cuLaunchGrid[Async]."""
    function = handles.get(handle, Function)
    parameters = _fitting(function, bytes(function.parameters))
    _launch(function, (width, height, 1), function.block, function.shared_bytes, stream, parameters)


def launch_one(handle: int) -> None:
    """cuLaunch: one block."""
    launch_grid(handle, 1, 1)


FUNCTIONS = {
    "cuLaunchKernel": launch_kernel,
    "cuFuncSetBlockShape": set_block_shape,
    "cuFuncSetSharedSize": set_shared_size,
    "cuParamSetSize": set_parameter_size,
    "cuParamSeti": set_parameter_int,
    "cuParamSetf": set_parameter_float,
    "cuParamSetv": set_parameter_bytes,
    "cuLaunch": launch_one,
    "cuLaunchGrid": launch_grid,
    "cuLaunchGridAsync": launch_grid,
}
