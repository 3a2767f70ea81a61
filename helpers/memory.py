"""Device memory with an owner: upload, allocate, download, and freed when no longer needed.

    with upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
        kernel.launch(dA, dB, dC, M, N, K)
        C = dC.download()

A `DeviceArray` can be passed to a PyCUDA function like any device pointer.
"""

from __future__ import annotations

import importlib
import math
import numbers
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from helpers.errors import Told, WrongType, WrongValue


class NoRoom(Told, MemoryError):
    """The device has no room for an array."""


def driver() -> Any:
    """`pycuda.driver`, with a current context: the caller's own, or that of `helpers.autoinit`."""
    if "pycuda.driver" in sys.modules:
        import pycuda.driver as cuda

        try:
            if cuda.Context.get_current() is not None:
                return cuda
        except cuda.LogicError:  # cuInit has not been called yet
            pass
    importlib.import_module("helpers.autoinit")  # before PyCUDA: it may have to load the driver
    import pycuda.driver as cuda

    if cuda.Context.get_current() is None:
        raise RuntimeError(
            "no CUDA context is current in this thread: a context belongs to the thread that made "
            "it; call helpers.autoinit.context.push() first, and .pop() when done"
        )
    return cuda


class DeviceArray:
    """A C-contiguous array in device memory, of known shape and dtype. It owns the memory.

    The memory is freed by `free()`, at the end of a `with` block, or with the object. Make one by
    `upload` or `allocate`.
    """

    def __init__(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> None:
        """Reserve memory for `shape` elements of `dtype`, with whatever was in it before.

        Raises ValueError for a shape that is not made of integers >= 1, TypeError for a dtype that
        has no fixed bytes (object), MemoryError when the device has no room.
        """
        self.shape = _checked_shape(shape)
        self.dtype = _checked_dtype(dtype)
        self._allocation: Any = _reserve(self.shape, self.nbytes)
        # Runs when the object is collected or at exit, while the context still lives; once only.
        self._finalizer = weakref.finalize(self, _free_quietly, self._allocation)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    @property
    def freed(self) -> bool:
        """Whether the memory was given back."""
        return self._allocation is None

    @property
    def gpudata(self) -> int:
        """The device address; PyCUDA takes it when the array is an argument of a kernel."""
        if self._allocation is None:
            raise WrongValue(
                f"this DeviceArray of shape {self.shape} was freed (by free() or at the end of its "
                "'with' block); upload or allocate it again, or use it before that"
            )
        return int(self._allocation)

    def __int__(self) -> int:
        return self.gpudata

    def __index__(self) -> int:
        return self.gpudata

    def download(self) -> NDArray[Any]:
        """A copy of the array in host memory; waits until the device is done with it."""
        host = np.empty(self.shape, self.dtype)
        driver().memcpy_dtoh(host, self.gpudata)
        return host

    def download_into(self, host: NDArray[Any]) -> NDArray[Any]:
        """Copy the array into `host`: same shape and dtype, C-contiguous, writable."""
        _check_same(self, host)
        if not host.flags.writeable:
            raise WrongValue("the host array is read-only: write download_into(np.empty_like(...))")
        driver().memcpy_dtoh(host, self.gpudata)
        return host

    def copy_from(self, host: NDArray[Any]) -> DeviceArray:
        """Overwrite the array by `host`: same shape and dtype, C-contiguous."""
        _check_same(self, host)
        driver().memcpy_htod(self.gpudata, host)
        return self

    def fill(self, value: float) -> DeviceArray:
        """Write `value` to every element."""
        element = _checked_fill(value, self.dtype)
        cuda, raw = driver(), element.tobytes()
        if len(raw) == 4:
            cuda.memset_d32(self.gpudata, int.from_bytes(raw, sys.byteorder), self.size)
        elif raw == raw[:1] * len(raw):
            cuda.memset_d8(self.gpudata, raw[0], self.nbytes)
        else:
            cuda.memcpy_htod(self.gpudata, np.full(self.shape, element))
        return self

    def free(self) -> None:
        """Give the memory back now; a second call does nothing."""
        if self._allocation is not None:
            self._finalizer.detach()
            allocation, self._allocation = self._allocation, None
            allocation.free()

    def __enter__(self) -> DeviceArray:
        self.gpudata  # noqa: B018  (an array that was freed cannot be entered again)
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.free()
        else:  # keep the first error: after a fault in a kernel, freeing fails as well
            self._allocation = None
            self._finalizer()

    def __repr__(self) -> str:
        where = "freed" if self.freed else f"at 0x{self.gpudata:x}"
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, {where})"


def upload(array: NDArray[Any]) -> DeviceArray:
    """Copy a C-contiguous NumPy array to new device memory.

    Raises TypeError when it is not a NumPy array of plain numbers, ValueError when it is empty or
    not C-contiguous.
    """
    _check_host_array(array, "array")
    device_array = DeviceArray(array.shape or (1,), array.dtype)
    driver().memcpy_htod(device_array.gpudata, array)
    return device_array


def allocate(
    shape: int | Sequence[int], dtype: DTypeLike = np.float32, fill: float | None = math.nan
) -> DeviceArray:
    """New device memory, every element set to `fill`.

    NaN, the default, makes an element that a kernel never wrote show up in the result. `fill=None`
    leaves the memory as it is.
    """
    kind = _checked_dtype(dtype)
    if fill is not None:
        _checked_fill(fill, kind)
    array = DeviceArray(shape, kind)
    return array if fill is None else array.fill(fill)


def _reserve(shape: tuple[int, ...], nbytes: int) -> Any:
    cuda = driver()
    while _left:
        _free_quietly(_left.pop())
    try:
        return cuda.mem_alloc(nbytes)
    except cuda.MemoryError as error:
        free, total = cuda.mem_get_info()
        raise NoRoom(
            f"no room on the device for {nbytes:,} bytes (shape {shape}): {free:,} of {total:,} "
            "bytes are free; free other arrays or take a smaller size"
        ) from error


_left: list[Any] = []  # allocations to be freed by a thread that has the context


def _free_quietly(allocation: Any) -> None:
    """Free when nobody can handle an error: after a fault the context refuses every call.

    An array may be collected in any thread, one of Jupyter's too. Without the context PyCUDA would
    warn and never free the memory; it is left to the next array that is made.
    """
    import pycuda.driver as cuda

    try:
        if cuda.Context.get_current() is None:
            _left.append(allocation)
        else:
            allocation.free()
    except cuda.Error:
        pass


def _checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = (shape,) if isinstance(shape, numbers.Integral) else tuple(shape)  # type: ignore[arg-type]
    except TypeError:
        sizes = (shape,)  # neither a size nor a sequence of them
    for size in sizes:
        if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
            raise WrongValue(
                f"shape {shape!r} is not made of integers >= 1: write e.g. (rows, columns)"
            )
    if not sizes:
        raise WrongValue("shape () has no dimension: write (1,) for a single element")
    return tuple(int(size) for size in sizes)


def _checked_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.kind not in "biufc" or not kind.isnative:
        raise WrongType(
            f"dtype {kind} cannot live in device memory: use a native number type, e.g. np.float32"
        )
    return kind


def _checked_fill(value: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`value` as a 0-dimensional array of `dtype`; ValueError when it would change on the way."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            element = np.array(value).astype(dtype, casting="unsafe")
            same = element == value or (value != value and element != element)
            fits = dtype.kind in "fc" or bool(same)
    except (FloatingPointError, OverflowError, ValueError, TypeError, RuntimeWarning):
        fits = False
    if not fits or element.ndim:
        raise WrongValue(f"fill={value!r} is no {dtype} value: give one, e.g. fill=0")
    return element


def _check_host_array(array: Any, name: str) -> None:
    if not isinstance(array, np.ndarray):
        raise WrongType(f"{name} is a {type(array).__name__}, not a NumPy array: write np.array(…)")
    if np.ma.isMaskedArray(array):
        raise WrongType(f"{name} is a masked array, its mask would be lost: write {name}.filled(0)")
    _checked_dtype(array.dtype)
    if array.size == 0:
        raise WrongValue(f"{name} has shape {array.shape}: there is nothing in it to copy")
    if not array.flags.c_contiguous:
        raise WrongValue(
            f"{name} of shape {array.shape} and strides {array.strides} is not C-contiguous "
            f"(row-major, without gaps): write np.ascontiguousarray({name})"
        )


def _check_same(device_array: DeviceArray, host: Any) -> None:
    _check_host_array(host, "host")
    if host.shape != device_array.shape or host.dtype != device_array.dtype:
        raise WrongValue(
            f"host has shape {host.shape} and dtype {host.dtype}, the device array has shape "
            f"{device_array.shape} and dtype {device_array.dtype}: they must be the same"
        )
