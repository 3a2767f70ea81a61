"""A launch repeated in the engine: the same kernel, arguments and shape, on copies of the data.

`helpers.profile` looks at such a replica instead of the launch itself. So what it reports is the
same on a machine with a GPU and without, and the caller's arrays stay as they are.

What pointers in the data point to is copied, too (see `helpers.pointers`), and they point to the
copies. Pointers to memory that has been freed point to memory of the engine that has been freed, so
that an access is a fault which can be told from others. That memory has been freed is known of a
`DeviceArray`; of PyCUDA's objects, unless something else has been allocated at their place since;
and of mere addresses on the CPU driver only, for the last 64 freed.
"""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from helpers import simt
from helpers.bound import BoundKernel, with_names
from helpers.errors import NoSuchFile, WrongType, WrongValue
from helpers.kernels import CUDA_FOLDER, Kernel
from helpers.launch_shape import checked_shape, checked_shared
from helpers.memory import DeviceArray, driver
from helpers.nvcc_messages import DIRECTIVE, FILE, numbered, plain_name
from helpers.pointers import candidates, moved
from helpers.sandbox import DoesNotFit, function_named, ptx_of, words
from helpers.signature import signatures
from helpers.simt import ptx

SPARE = 1 << 26  # bytes of the engine's memory beside the copies, for what kernels allocate
# Shared memory of a block: that of the H200 (CUDA Programming Guide, technical specifications per
# compute capability, 9.0).
MOST_SHARED = 227 * 1024  # bytes
PATIENCE = 60.0  # seconds that a launch may take in the engine, where the caller says nothing
MORE_TIME = "If it is only long, take smaller arrays, or more time: seconds=600."
NUMBERS = "biufcV"  # kinds of NumPy types whose bytes a kernel can make something of


@dataclass(frozen=True)
class Program:
    """A kernel to be run in the engine. `source` is its CUDA C, where that is known; `variables`
    what the module's variables hold, where that is not what the PTX says."""

    entry: str
    ptx: str
    source: str | None = None
    variables: dict[tuple[str, int], bytes] = field(default_factory=dict)  # by name and offset

    @property
    def file(self) -> str:
        """What the compiler calls the source."""
        first = DIRECTIVE.match((self.source or "").partition("\n")[0])
        return PurePath(first[2]).name if first and first[2] else FILE

    def line(self, file: str, number: int) -> str:
        """A line of a file; empty where it is not known."""
        return self._lines.get((file, number), "")

    @functools.cached_property
    def _lines(self) -> dict[tuple[str, int], str]:
        return numbered(self.source or "")


Extent = tuple[int, int]  # where data begins, on the device or in host memory, and its bytes
# What holds pointers: an allocation, the number of an argument, or a part of a variable.
Holder = Extent | int | tuple[str, int]
FREED_BYTES = 1 << 20  # of freed memory whose size nobody knows


@dataclass(frozen=True)
class _Pointer:
    """A place in one of the copied allocations."""

    of: Extent
    offset: int


@dataclass
class Replica:
    """A launch that can be repeated any number of times, each time on the same data."""

    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  # dynamic shared memory, bytes
    arguments: list[_Pointer | np.generic]
    data: dict[Extent, np.ndarray] = field(default_factory=dict)  # bytes of each allocation
    on_host: dict[Extent, np.ndarray] = field(default_factory=dict)  # of those, the caller's arrays
    freed: dict[Extent, None] = field(default_factory=dict)  # memory that is no more, in order
    pointers: dict[Holder, dict[int, _Pointer]] = field(default_factory=dict)  # by offset

    def name(self, extent: Extent) -> str:
        """What an allocation is called: "argument 0", or "*(argument 0+8)" if a pointer in that
        one points to it."""
        for k, argument in enumerate(self.arguments):
            if isinstance(argument, _Pointer) and argument.of == extent:
                return f"argument {k}"
        for holder, found in self.pointers.items():
            for offset, pointer in found.items():
                if pointer.of == extent:
                    return f"*({self._place(holder, offset)})"
        return "an argument"

    def _place(self, holder: Holder, offset: int) -> str:
        if isinstance(holder, int):
            return f"argument {holder}+{offset:,}"
        if isinstance(holder[0], str):
            return f"{simt.plain_name(holder[0])}+{holder[1] + offset:,}"
        return f"{self.name(holder)}+{offset:,}"

    def prepare(self) -> Run:
        """A run of its own, on fresh copies. Raises simt.Unsupported, DoesNotFit."""
        return Run(self)

    def write_back(self, run: Run) -> None:
        """Gives the caller's arrays what a run has changed in the copies.

        Raises ValueError if that is an array that cannot be written to; none is written then.
        """
        results = {extent: run.result(extent) for extent in self.data}
        changed = {e: r for e, r in results.items() if not np.array_equal(r, self.data[e])}
        for k, argument in enumerate(self.arguments):
            if isinstance(argument, _Pointer) and argument.of in changed:
                array = self.on_host.get(argument.of)
                if array is not None and not array.flags.writeable:
                    raise WrongValue(f"argument {k} is a read-only array, and the kernel writes to "
                                     "it: give a copy, or leave out write=True")
        for (start, nbytes), result in changed.items():
            if (start, nbytes) in self.on_host:
                ctypes.memmove(start, result.ctypes.data, nbytes)
            else:
                driver().memcpy_htod(start, result)


class Run:
    """One run of a replica: the engine's kernel, and where the copies of the data lie."""

    def __init__(self, replica: Replica):
        extents = [*replica.data, *replica.freed]
        needed = sum(nbytes + 4096 for _, nbytes in extents)
        self.replica, self.memory = replica, simt.Memory(needed + SPARE)
        module = simt.Module(replica.program.ptx, self.memory)
        self.function = function_named(module, replica.program.entry)
        self._check_limits()
        for (name, offset), data in replica.program.variables.items():
            ctypes.memmove(module.globals[name][0] + offset, data, len(data))
        self.addresses = {extent: self.memory.allocate(extent[1]) for extent in extents}
        for extent, array in replica.data.items():
            ctypes.memmove(self.addresses[extent], array.ctypes.data, array.nbytes)
        self._point(module)
        self.parameters = self._packed()
        for extent in replica.freed:
            self.memory.free(self.addresses[extent])

    def _point(self, module: simt.Module) -> None:
        """Lets the pointers in arrays and variables point to the copies."""
        for holder, found in self.replica.pointers.items():
            if isinstance(holder, int):
                continue  # in an argument: see _packed
            start = self.addresses.get(holder)
            if start is None:
                start = module.globals[holder[0]][0] + holder[1]
            for offset, pointer in found.items():
                ctypes.c_uint64.from_address(start + offset).value = self._now(pointer)

    def _now(self, pointer: _Pointer) -> int:
        return self.addresses[pointer.of] + pointer.offset

    def _check_limits(self) -> None:
        """What depends on the kernel and cannot be launched."""
        function, block = self.function, self.replica.block
        threads, most = math.prod(block), function.max_threads
        if most and threads > most:
            raise WrongValue(f"block={block} has {threads} threads, kernel {function.name} is "
                             f"compiled for at most {most} (__launch_bounds__)")
        static, dynamic = function.static_shared_bytes, self.replica.shared
        if static + dynamic > MOST_SHARED:
            raise WrongValue(f"shared={dynamic}: kernel {function.name} has {static:,} bytes of "
                             f"shared memory besides, and a block at most {MOST_SHARED:,}")

    def _packed(self) -> bytes:
        given, wanted = self.replica.arguments, self.function.parameters
        if len(given) != len(wanted):
            raise DoesNotFit(
                f"kernel {self.function.name} takes {len(wanted)} arguments, {len(given)} are given"
            )
        packed = bytearray(self.function.parameter_bytes)
        for k, (value, (_, offset, nbytes)) in enumerate(zip(given, wanted, strict=True)):
            if isinstance(value, _Pointer):
                value = np.uint64(self._now(value))
            if value.nbytes != nbytes:
                raise DoesNotFit(
                    f"argument {k} of kernel {self.function.name} is {type(value).__name__} "
                    f"({value.nbytes} bytes), the kernel takes {nbytes} bytes there"
                )
            packed[offset : offset + nbytes] = value.tobytes()
            for at, pointer in self.replica.pointers.get(k, {}).items():
                packed[offset + at : offset + at + 8] = self._now(pointer).to_bytes(8, "little")
        return bytes(packed)

    @property
    def launch(self) -> tuple[tuple[int, int, int], tuple[int, int, int], bytes, int]:
        """What the engine's launches take: grid, block, parameters, dynamic shared bytes."""
        return self.replica.grid, self.replica.block, self.parameters, self.replica.shared

    def result(self, extent: Extent) -> np.ndarray:
        """The bytes of an allocation after the run; pointers in it are the device's again."""
        array = np.empty_like(self.replica.data[extent])
        ctypes.memmove(array.ctypes.data, self.addresses[extent], array.nbytes)
        if self.replica.pointers:
            moved(array, [(now, e[1], e[0]) for e, now in self.addresses.items()])
        return array

    def freed(self, address: int) -> str:
        """The place in memory freed by the host that an address lies in; "" if it does not."""
        for extent in self.replica.freed:
            offset = address - self.addresses[extent]
            if 0 <= offset < extent[1]:
                return f"{self.replica.name(extent)}+{offset:,}"
        return ""

    def explain(self, fault: simt.Fault) -> None:
        """Tells a fault with the names of arguments, and what is special about a replica: what had
        been freed, and that an address which the kernel itself makes of numbers is not one of a
        copy."""
        fault.kernel = plain_name(fault.kernel)
        fault.detail = self.named(fault.detail)
        place = self.freed(fault.address)
        if place:
            what = fault.detail.removeprefix("out-of-bounds ").partition(" at ")[0]
            fault.detail = f"use after free: {what} at {place}, which was freed before the launch"
        elif fault.address and "pycuda.driver" in sys.modules and _allocation(fault.address):
            fault.detail += (
                ". That is an address on the device, but in the engine only copies of arrays can "
                "be accessed, through pointers that are arguments or lie in memory at a multiple "
                "of 8 bytes"
            )

    def named(self, detail: str) -> str:
        """What the engine says of an access, with the name of the argument for its address."""
        return with_names(detail, self._names())

    def _names(self) -> dict[int, str]:
        """The names of the arguments that point to memory, by its address in the engine."""
        program = self.replica.program
        written = [s for s in signatures(program.source or "") if s.name == program.entry]
        parameters = written[0].parameters if len(written) == 1 else None
        pairs = zip(parameters or (), self.replica.arguments, strict=False)
        return {self.addresses[a.of]: p.name for p, a in pairs if isinstance(a, _Pointer)}


def replica(
    kernel: Any,
    *arguments: Any,
    grid: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
    shared: int | None = None,
    keep_freed: bool = False,
) -> Replica:
    """The launch of a kernel, copied.

    kernel: a `helpers.kernels.Kernel` or a kernel of `helpers.bound`, whose launch shape is the
    default; (source, name) or
    (source, name, nvcc options) with the CUDA C as text or as the path of a file, in cuda/ or
    anywhere; or on the CPU driver any PyCUDA function, with its module's variables as they are now.
    arguments: as for the launch: NumPy scalars, arrays on the device (DeviceArray, GPUArray,
    DeviceAllocation, an address, also as a 64-bit NumPy integer) and C-contiguous NumPy arrays,
    which are copied as if they were on the device. A kernel of ours takes sizes as Python ints too.
    grid, block: one to three integers. shared: bytes of dynamic shared memory. keep_freed: takes
    arguments whose memory has been freed; an access to it will be a fault.

    Raises TypeError for a kernel that is none of these, DoesNotFit for an argument that is none,
    or (without keep_freed) is freed; CompileFailed, ValueError for a shape no launch has.
    """
    if isinstance(kernel, Kernel):
        arguments = _of_product(kernel, arguments)
        kernel = kernel.at(*(max(int(size), 1) for size in arguments[3:]))
    program = program_of(kernel)
    if isinstance(kernel, Kernel):
        block = kernel.block if block is None else block
        shared = kernel.shared_bytes if shared is None else shared
        grid = kernel.grid(int(arguments[3]), int(arguments[4])) if grid is None else grid
    if isinstance(kernel, BoundKernel):
        arguments = kernel.checked(arguments, host_arrays=True)
        grid, block, shared = kernel.shape(arguments, grid, block, shared)
    if grid is None or block is None:
        raise WrongType(f"kernel {program.entry} has no launch shape: write grid=(…), block=(…)")
    shape = checked_shape("grid", grid), checked_shape("block", block)
    found = Replica(program, *shape, checked_shared(shared), [])
    for k, argument in enumerate(arguments):
        found.arguments.append(_copied(found, k, argument))
        of = getattr(found.arguments[k], "of", None)
        if of in found.freed and not keep_freed:
            raise DoesNotFit(f"argument {k} is a {type(argument).__name__} whose memory has been "
                             "freed (use after free): upload or allocate it again")
    _follow(found)
    return found


def _of_product(kernel: Kernel, arguments: tuple) -> list:
    """The arguments of one of our kernels: arrays of float32, and sizes as 32-bit integers."""
    names = "A", "B", "C", "M", "N", "K"
    if len(arguments) != len(names):
        raise DoesNotFit(f"kernel {kernel.name!r} takes 6 arguments ({', '.join(names)}), "
                         f"{len(arguments)} are given")
    for name, array in zip(names[:3], arguments[:3], strict=True):
        dtype = getattr(array, "dtype", np.dtype(np.float32))
        if dtype != np.float32:
            raise DoesNotFit(f"{name} has dtype {dtype}, the kernel reads and writes float32: "
                             f"write {name}.astype(np.float32)")
    sizes = []
    for name, size in zip(names[3:], arguments[3:], strict=True):
        if not isinstance(size, numbers.Integral) or isinstance(size, bool):
            raise DoesNotFit(f"{name}={size!r} is a {type(size).__name__}: give an integer")
        if not 0 <= size < 2**31:
            raise DoesNotFit(f"{name}={size} is outside 0 to 2**31 - 1")
        sizes.append(np.int32(size))
    return [*arguments[:3], *sizes]


def program_of(kernel: Any) -> Program:
    """The kernel's PTX, and its source where that is known."""
    if isinstance(kernel, (Kernel, BoundKernel)):
        return Program(kernel.entry, ptx_of(kernel.source, kernel.options), kernel.source)
    if isinstance(kernel, tuple) and len(kernel) in (2, 3) and isinstance(kernel[1], str):
        source, entry, *options = kernel
        text = source_text(source)
        return Program(entry, ptx_of(text, words(*options)), text)
    if type(kernel).__module__.startswith("pycuda") and type(kernel).__name__ == "Function":
        from helpers.cpu_driver import is_loaded, module

        if not is_loaded():
            raise WrongType(
                "a compiled PyCUDA function no longer knows its PTX on a GPU: give the kernel as "
                "(source, name), or one of helpers.kernels"
            )
        function = module.behind(kernel)
        return Program(function.name, function.ptx, variables=_variables(function.module.engine))
    raise WrongType(
        f"{type(kernel).__name__} is no kernel: give one of helpers.kernels, (source or path, "
        "name), or a PyCUDA function"
    )


def _variables(module: simt.Module) -> dict[tuple[str, int], bytes]:
    """What a module's variables hold now: (name, offset) -> bytes. Without the pointers from one to
    another that they were made with: these are other ones in every copy of the module."""
    found = {}
    for variable in ptx.parse(module.text).variables:
        address, nbytes = module.globals.get(variable.name, (0, 0))
        data = ctypes.string_at(address, nbytes)
        start = 0
        for at, symbol in sorted(variable.pointers, key=lambda pointer: pointer[0]):
            target, _ = module.globals.get(symbol.name, (0, 0))
            if target and int.from_bytes(data[at : at + 8], "little") == target + symbol.offset:
                found[variable.name, start] = data[start:at]
                start = at + 8
        if nbytes:
            found[variable.name, start] = data[start:]
    return found


def source_text(source: str | Path) -> str:
    """The CUDA C of a source given as text or as a path."""
    if not isinstance(source, (str, Path)):
        raise WrongType(f"the source is a {type(source).__name__}: give CUDA C as text, or a path")
    if isinstance(source, str) and ("\n" in source or "__global__" in source):
        return source
    path = Path(source)
    found = next((p for p in (path, CUDA_FOLDER / path) if _is_file(p)), None)
    if found is None:
        raise NoSuchFile(f"there is no file {_short(str(source))}, here or in cuda/")
    return f'#line 1 "{found.name}"\n{found.read_text(encoding="utf-8", errors="replace")}'


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no path can be that long
        return False


def _copied(found: Replica, k: int, argument: Any) -> _Pointer | np.generic:
    """An argument for the engine; what it points to is copied."""
    if type(argument).__module__ == "pycuda.driver":  # In, Out, InOut of an array
        argument = getattr(argument, "array", argument)
    if isinstance(argument, np.ndarray) and argument.dtype.fields and argument.ndim == 0:
        argument = argument[()]  # a structure or PyCUDA's make_float4(…), by value
    if isinstance(argument, np.generic):
        return _scalar(found, k, argument)
    if isinstance(argument, np.ndarray):
        _check_array(k, argument)
        extent = argument.ctypes.data, argument.nbytes
        found.data[extent] = argument.reshape(-1).view(np.uint8).copy()
        found.on_host[extent] = argument
        return _Pointer(extent, 0)
    if isinstance(argument, (bool, float)):
        raise DoesNotFit(f"argument {k} is the Python {type(argument).__name__} {argument!r}, "
                         "which has no fixed size: write np.float32(…) or np.int32(…)")
    if isinstance(argument, DeviceArray) and argument.freed:
        return _in_freed(found, (-k - 1, argument.nbytes), 0)  # its address is known no more
    try:
        address = int(getattr(argument, "gpudata", argument))
    except (TypeError, ValueError):
        address = 0
    driver()
    if isinstance(argument, str) or not _allocation(address):
        freed = _freed(address)
        if freed is None and address and type(argument).__module__.startswith("pycuda."):
            freed = address, int(getattr(argument, "nbytes", FREED_BYTES))
        if freed is not None and not isinstance(argument, str):
            return _in_freed(found, freed, address)
        kind = "np.int32" if isinstance(argument, int) and abs(argument) < 2**31 else "np.int64"
        hint = f": for a number write {kind}({argument})" if isinstance(argument, int) else ""
        raise DoesNotFit(f"argument {k} is {_short(argument)}, which is neither an array nor an "
                         f"address on the device{hint}")
    return _on_device(found, address)


def _short(argument: Any) -> str:
    text = repr(argument)
    return text if len(text) <= 80 else f"{text[:60]}…"


def _check_array(k: int, array: np.ndarray) -> None:
    if np.ma.isMaskedArray(array):
        raise DoesNotFit(f"argument {k} is a masked array, and its mask would be lost: write "
                         ".filled(0)")
    if array.dtype.kind not in NUMBERS or array.dtype.hasobject or not array.dtype.isnative:
        raise DoesNotFit(f"argument {k} has dtype {array.dtype}, which a kernel cannot read: use a "
                         "native number type, e.g. np.float32")
    if not array.size:
        raise DoesNotFit(f"argument {k} has shape {array.shape}: there is nothing in it")
    if not array.flags.c_contiguous:
        raise DoesNotFit(f"argument {k} is not C-contiguous: write np.ascontiguousarray(…)")


def _scalar(found: Replica, k: int, value: np.generic) -> _Pointer | np.generic:
    """A number; 64 bits that are an address on the device are a pointer."""
    if value.dtype.kind not in NUMBERS or value.dtype.hasobject:
        raise DoesNotFit(f"argument {k} is {value!r}, which is no number: write np.float32(…) or "
                         "np.int32(…)")
    if isinstance(value, np.integer) and value.nbytes == 8 and "pycuda.driver" in sys.modules:
        if _allocation(int(value)):
            return _on_device(found, int(value))
        freed = _freed(int(value))
        if freed is not None:
            return _in_freed(found, freed, int(value))
    return value


def _allocation(address: int) -> Extent | None:
    """The allocation on the device that holds an address, if there is one."""
    try:
        cuda = driver()
    except RuntimeError:  # no context in this thread, so nothing that it could have allocated
        return None
    try:
        start, nbytes = cuda.mem_get_address_range(address)
    except (cuda.Error, TypeError, ValueError, OverflowError):
        return None
    return int(start), int(nbytes)


def _on_device(found: Replica, address: int) -> _Pointer:
    extent = _allocation(address)
    if extent not in found.data:
        found.data[extent] = np.empty(extent[1], np.uint8)
        driver().memcpy_dtoh(found.data[extent], extent[0])
    return _Pointer(extent, address - extent[0])


def _freed(address: int) -> Extent | None:
    """What contained an address on the device and has been freed, if the CPU driver knows it."""
    from helpers.cpu_driver import device, is_loaded

    return device.memory().find_freed(address) if is_loaded() else None


def _in_freed(found: Replica, extent: Extent, address: int) -> _Pointer:
    found.freed[extent] = None
    return _Pointer(extent, address - extent[0] if extent[0] > 0 else 0)


def _follow(found: Replica) -> None:
    """Copies what pointers in arguments, variables and what these point to point to."""
    if "pycuda.driver" not in sys.modules:
        return
    near = next((start for start, _ in found.data if (start, _) not in found.on_host), 0)
    near = near or _some_address()
    holders: list[tuple[Holder, np.ndarray | bytes]] = [
        *((k, a.tobytes()) for k, a in enumerate(found.arguments) if isinstance(a, np.void)),
        *found.program.variables.items(),
        *found.data.items(),
    ]
    for holder, data in holders:  # which grows
        for offset, word in candidates(data, near) if near else ():
            known = len(found.data)
            if _allocation(word):
                pointer = _on_device(found, word)
            else:
                freed = _freed(word)
                if freed is None:
                    continue
                pointer = _in_freed(found, freed, word)
            found.pointers.setdefault(holder, {})[offset] = pointer
            if len(found.data) > known:
                holders.append((pointer.of, found.data[pointer.of]))


def _some_address() -> int:
    """An address on the device; 0 where none can be had."""
    try:
        cuda = driver()
    except RuntimeError:  # no context in this thread
        return 0
    try:
        allocation = cuda.mem_alloc(1)
    except cuda.Error:
        return 0
    address = int(allocation)
    allocation.free()
    return address
