"""Modules and functions: images are PTX, which the engine compiles."""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path
from typing import Any

from helpers import simt

from . import context, device, handles, ptxas
from .errors import DriverError, Result, explain

ELF, FATBIN = b"\x7fELF", b"\x50\xed\x55\xba"
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
NEWEST_PTX = (9, 0)
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)(\d)([af]?)", re.MULTILINE)

#: CUjit_option
INFO_LOG, INFO_LOG_BYTES, ERROR_LOG, ERROR_LOG_BYTES = 3, 4, 5, 6

SHARED_LIMIT = device.ATTRIBUTES[8]
SHARED_OPTIN_LIMIT = device.ATTRIBUTES[97]
REGISTERS = device.ATTRIBUTES[12]
MAX_THREADS = device.ATTRIBUTES[1]


class Module:
    """A loaded image."""

    def __init__(self, ptx: str):
        self.owner = context.current()
        resources = _resources(ptx)
        with device.LOCK:
            self.engine = simt.Module(ptx, device.memory())
        self.functions: dict[str, Function] = {}
        self.resources = resources
        self.handle = handles.new(self)
        self.owner.own(self, self._release)

    def function(self, name: str) -> Function:
        """The kernel `name`."""
        if name not in self.functions:
            kernel = self.engine.functions.get(name)
            if kernel is None:
                raise DriverError(Result.NOT_FOUND,
                                  _not_found("kernel", name, self.engine.functions))
            self.functions[name] = Function(kernel, self, self.resources.get(name))
        return self.functions[name]

    def unload(self) -> None:
        """Free what the image holds."""
        self.owner.disown(self)
        self._release()

    def _release(self) -> None:
        handles.drop(self.handle)
        for function in self.functions.values():
            handles.drop(function.handle)
        with device.LOCK:
            self.engine.unload()


class Function:
    """A kernel, and what has been set for its launches."""

    def __init__(self, kernel: simt.Function, module: Module, needs: ptxas.Resources | None):
        self.kernel = kernel
        self.module = module
        self.needs = needs
        self.dynamic_shared_limit = max(0, SHARED_LIMIT - kernel.static_shared_bytes)
        self.settings = {9: -1}  # PREFERRED_SHARED_MEMORY_CARVEOUT
        # For the launch functions of CUDA 3 and before (cuLaunchGrid, cuParamSet…).
        self.block = (1, 1, 1)
        self.shared_bytes = 0
        self.parameters = bytearray()
        self.handle = handles.new(self)

    @property
    def name(self) -> str:
        """The entry's name in the PTX."""
        return self.kernel.name

    @property
    def ptx(self) -> str:
        """The PTX of the image it is in."""
        return self.module.engine.text

    @property
    def max_threads(self) -> int:
        """The most threads of a block: registers and __launch_bounds__ allow no more."""
        most = self.kernel.max_threads or MAX_THREADS
        return min(most, MAX_THREADS, threads_for_registers(self.registers))

    @property
    def registers(self) -> int:
        """Registers per thread; 0 if no ptxas was there to say."""
        return self.needs.registers if self.needs else 0


def threads_for_registers(registers: int) -> int:
    """The most threads of a block whose threads use `registers` each.

    A warp's registers come in units of 256 (so 8 a thread), and its warps are spread over the four
    quarters of a multiprocessor (CUDA Occupancy Calculator, compute capability 8.0).
    """
    if not registers:
        return MAX_THREADS
    warp = -(-registers // 8) * 256
    return min(MAX_THREADS, REGISTERS // 4 // warp * 4 * 32)


def _not_found(what: str, name: str, there: dict) -> str:
    names = ", ".join(sorted(there)) or "none"
    mangled = [other for other in there if other.startswith("_Z") and name in other]
    hint = ('; a C++ name is mangled: write extern "C" in front of it' if mangled else "")
    return f"named symbol not found: no {what} '{name}' in this module; it has {names}{hint}"


# ---------------------------------------------------------------------- loading


def text_of(data: bytes) -> str:
    """The PTX of an image; the errors say what else it may be."""
    if data.startswith(ELF):
        raise DriverError(Result.INVALID_IMAGE, "this image is machine code for a GPU (a cubin of "
                          "another nvcc); the CPU driver needs PTX: compile it with "
                          "pycuda.compiler, or with nvcc --ptx -lineinfo")
    if data.startswith(FATBIN):
        raise DriverError(Result.INVALID_IMAGE, "this image is a fatbin; the CPU driver needs PTX: "
                          "compile it with nvcc --ptx -lineinfo")
    text = data.decode(errors="replace")
    _check_version(text)
    target = _TARGET.search(text)
    if ".version" not in text or not target:
        raise DriverError(Result.INVALID_IMAGE, "this image is neither PTX nor machine code: it "
                          f"starts with {data[:40]!r}")
    _check_target(target, is_cubin=bool(ptxas.report_in(text)))
    return text


def _check_version(text: str) -> None:
    version = _VERSION.search(text)
    if version and (int(version[1]), int(version[2])) > NEWEST_PTX:
        newest = "{}.{}".format(*NEWEST_PTX)
        raise DriverError(Result.UNSUPPORTED_PTX_VERSION,
                          f"this PTX is of version {version[1]}.{version[2]}; the CPU driver reads "
                          f"up to {newest}, that of CUDA 13.0")


def _check_target(target: re.Match, is_cubin: bool) -> None:
    """PTX runs on its architecture and every later one; a cubin within the major version only."""
    major, minor, special = int(target[1]), int(target[2]), target[3]
    mine = device.COMPUTE_CAPABILITY
    if (major, minor) > mine or special or (is_cubin and major != mine[0]):
        code = Result.NO_BINARY_FOR_GPU if is_cubin else Result.INVALID_PTX
        raise DriverError(
            code, f"this image is for sm_{major}{minor}{special}, and the CPU driver is an "
            f"sm_{mine[0]}{mine[1]} device (leave arch out, or say arch='sm_{mine[0]}{mine[1]}')")


def _resources(ptx: str) -> dict[str, ptxas.Resources]:
    """What each kernel needs: from the report in the image, else from a ptxas run now."""
    from helpers import toolkit

    report = ptxas.report_in(ptx)
    tools = toolkit.find_toolkit() if not report else None
    if tools is not None:
        major, minor = device.COMPUTE_CAPABILITY
        accepted, report = ptxas.assemble(tools.ptxas, ptx, f"sm_{major}{minor}")
        if not accepted:
            raise DriverError(Result.INVALID_PTX, report.strip())
    return ptxas.resources(report)


def _bytes_at(address: int) -> bytes:
    """An image as cuModuleLoadData gets it: text ends at its first 0."""
    if not address:
        raise DriverError(Result.INVALID_VALUE, "the image is a null pointer")
    magic = ctypes.string_at(address)[:4]
    return magic if magic in (ELF, FATBIN) else ctypes.string_at(address)


def load_data(out: ctypes._Pointer, image: int) -> None:
    """cuModuleLoadData."""
    out[0] = Module(text_of(_bytes_at(image))).handle


def load(out: ctypes._Pointer, path: bytes) -> None:
    """cuModuleLoad."""
    try:
        data = Path(path.decode()).read_bytes()
    except OSError as error:
        raise DriverError(Result.FILE_NOT_FOUND, str(error)) from None
    out[0] = Module(text_of(data.rstrip(b"\0"))).handle


def load_data_ex(out: ctypes._Pointer, image: int, count: int, options: ctypes._Pointer,
                 values: ctypes._Pointer) -> None:
    """cuModuleLoadDataEx: an error's sentence goes to the error log, if the caller has one."""
    log = Logs(count, options, values)
    try:
        load_data(out, image)
    except Exception as error:
        code, text = explain(error)
        raise (DriverError(code) if log.write_error(text) else DriverError(code, text)) from error


class Logs:
    """The log buffers among a call's options.  Their sizes are set to what is written: 0 bytes,
    until there is something to say."""

    def __init__(self, count: int, options: ctypes._Pointer, values: ctypes._Pointer):
        self._values = values
        self._places = {options[i]: i for i in range(count)}
        self._sizes = {key: values[self._places[key]]
                       for key in (INFO_LOG_BYTES, ERROR_LOG_BYTES) if key in self._places}
        self._write(INFO_LOG, INFO_LOG_BYTES, "")
        self._write(ERROR_LOG, ERROR_LOG_BYTES, "")

    def write_error(self, text: str) -> bool:
        """Whether there was a buffer for it."""
        return self._write(ERROR_LOG, ERROR_LOG_BYTES, text)

    def _write(self, buffer: int, size: int, text: str) -> bool:
        address = self._values[self._places[buffer]] if buffer in self._places else 0
        room = self._sizes.get(size, 0)
        if not address or not room:
            return False
        data = text.encode()[:room - 1]
        ctypes.memmove(address, data + b"\0", len(data) + 1)
        self._values[self._places[size]] = len(data)
        return True


def unload(handle: int) -> None:
    """cuModuleUnload."""
    handles.get(handle, Module).unload()


def get_function(out: ctypes._Pointer, handle: int, name: bytes) -> None:
    """cuModuleGetFunction."""
    if not name:
        raise DriverError(Result.INVALID_VALUE, "cuModuleGetFunction: the name is empty")
    out[0] = handles.get(handle, Module).function(name.decode(errors="replace")).handle


def get_global(address: ctypes._Pointer, size: ctypes._Pointer, handle: int, name: bytes) -> None:
    """cuModuleGetGlobal."""
    engine = handles.get(handle, Module).engine
    variables = engine.globals
    text = name.decode(errors="replace")
    if text in engine.functions:
        raise DriverError(Result.INVALID_VALUE, f"'{text}' is a kernel, not a variable")
    if text not in variables:
        raise DriverError(Result.NOT_FOUND, _not_found("variable", text, variables))
    if address:
        address[0] = variables[text][0]
    if size:
        size[0] = variables[text][1]


def no_reference(_out: ctypes._Pointer, handle: int, name: bytes) -> None:
    """cuModuleGetTexRef, cuModuleGetSurfRef: CUDA 12 took the references out of the language."""
    handles.get(handle, Module)
    raise DriverError(Result.NOT_FOUND, "named symbol not found: "
                      f"'{name.decode(errors='replace')}' (nvcc has had no texture or surface "
                      "references since CUDA 12)")


# ---------------------------------------------------------------------- attributes


#: CUfunction_attribute (cuda.h) -> its value for a function.
ATTRIBUTES = {
    0: lambda f: f.max_threads,  # MAX_THREADS_PER_BLOCK
    1: lambda f: f.kernel.static_shared_bytes,  # SHARED_SIZE_BYTES
    2: lambda f: f.needs.constant_bytes if f.needs else 0,  # CONST_SIZE_BYTES
    3: lambda f: f.needs.stack_bytes if f.needs else f.kernel.local_bytes,  # LOCAL_SIZE_BYTES
    4: lambda f: f.registers,  # NUM_REGS
    5: lambda f: 10 * device.COMPUTE_CAPABILITY[0],  # PTX_VERSION
    6: lambda f: 10 * device.COMPUTE_CAPABILITY[0],  # BINARY_VERSION
    7: lambda f: 0,  # CACHE_MODE_CA
    8: lambda f: f.dynamic_shared_limit,  # MAX_DYNAMIC_SHARED_SIZE_BYTES
    9: lambda f: f.settings[9],  # PREFERRED_SHARED_MEMORY_CARVEOUT
}


def get_attribute(out: ctypes._Pointer, attribute: int, handle: int) -> None:
    """cuFuncGetAttribute."""
    function = handles.get(handle, Function)
    _asked.function = function
    if attribute not in ATTRIBUTES:
        raise DriverError(Result.INVALID_VALUE, f"there is no function attribute {attribute} here")
    if attribute == 4 and not function.needs:
        raise DriverError(Result.NOT_SUPPORTED, "the number of registers is not known: there is no "
                          "ptxas to tell it")
    out[0] = ATTRIBUTES[attribute](function)


_asked = threading.local()


def behind(function: Any) -> Function:
    """What a `pycuda.driver.Function` stands for here.

    PyCUDA keeps the handle to itself. So the function is made to ask the driver for an attribute,
    and the driver looks who asks.
    """
    import pycuda.driver  # not before the driver is loaded

    function.get_attribute(pycuda.driver.function_attribute.BINARY_VERSION)
    return _asked.function


def set_attribute(handle: int, attribute: int, value: int) -> None:
    """cuFuncSetAttribute."""
    function = handles.get(handle, Function)
    if attribute == 8:
        most = SHARED_OPTIN_LIMIT - function.kernel.static_shared_bytes
        if not 0 <= value <= most:
            raise DriverError(Result.INVALID_VALUE, f"kernel {function.name} can opt in to at most "
                              f"{most:,} bytes of dynamic shared memory, not {value:,}")
        function.dynamic_shared_limit = value
    elif attribute == 9 and -1 <= value <= 100:
        function.settings[9] = value
    else:
        raise DriverError(Result.INVALID_VALUE, f"function attribute {attribute} cannot be set to "
                          f"{value}")


def check_function(handle: int, _value: int) -> None:
    """cuFuncSetCacheConfig, cuFuncSetSharedMemConfig: preferences, without effect."""
    handles.get(handle, Function)


FUNCTIONS = {
    "cuModuleLoad": load,
    "cuModuleLoadData": load_data,
    "cuModuleLoadDataEx": load_data_ex,
    "cuModuleUnload": unload,
    "cuModuleGetFunction": get_function,
    "cuModuleGetGlobal_v2": get_global,
    "cuModuleGetTexRef": no_reference,
    "cuModuleGetSurfRef": no_reference,
    "cuFuncGetAttribute": get_attribute,
    "cuFuncSetAttribute": set_attribute,
    "cuFuncSetCacheConfig": check_function,
    "cuFuncSetSharedMemConfig": check_function,
}
