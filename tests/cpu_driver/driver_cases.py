"""Calls of the driver API, most of them wrong ones, and the code that each of them gets.

    python tests/cpu_driver/driver_cases.py                           on a GPU's driver
    python -m helpers.cpu_driver tests/cpu_driver/driver_cases.py     on the CPU driver

prints {case: [codes]} as JSON.  h200_codes.json is what an H200 printed (its driver was CUDA
13.0's); test_driver_cases.py compares.  Standard library only; nothing here ends in a fault, after
which a GPU's context answers nothing any more.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p

PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .b8 table[16];
.visible .entry add(.param .u64 a, .param .u32 n) { ret; }
.visible .entry nothing() { ret; }
.visible .entry bounded(.param .u64 a) .maxntid 128, 1, 1 { ret; }
.visible .entry static(.param .u64 a)
{
    .shared .align 4 .b8 s[40000];
    .reg .u32 %r<3>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, s;
    add.u32 %r2, %r2, %r1;
    st.volatile.shared.u8 [%r2], %r1;
    ret;
}
"""
OUTER = b"""
.version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b32 out) outside(.param .b32 in);
.visible .entry outer(.param .u64 a)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [a];
    mov.b32 %r1, 20;
    {
        .param .b32 in;
        .param .b32 out;
        st.param.b32 [in], %r1;
        call (out), outside, (in);
        ld.param.b32 %r2, [out];
    }
    cvta.to.global.u64 %rd1, %rd1;
    st.global.b32 [%rd1], %r2;
    ret;
}
"""
INNER = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .func (.param .b32 out) outside(.param .b32 in)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [in];
    add.s32 %r2, %r1, 22;
    st.param.b32 [out], %r2;
    ret;
}
"""
#: 64 loads from memory that all have to be in registers at once, four words each.
HUNGRY = b"".join([
    b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry hungry(.param .u64 a)\n{\n",
    b".reg .b64 %rd<3>;\n.reg .b32 %r<400>;\nld.param.u64 %rd1, [a];\n",
    *(b"ld.volatile.global.u32 %%r%d, [%%rd1+%d];\n" % (i, 4 * i) for i in range(120)),
    b"bar.sync 0;\n",
    *(b"st.volatile.global.u32 [%%rd1+%d], %%r%d;\n" % (4 * i, i) for i in range(120)),
    b"ret;\n}\n",
])

CASES: dict[str, Callable[[], list]] = {}
cuda = ctypes.CDLL("libcuda.so.1") if __name__ == "__main__" else None


def case(function: Callable[[], list]) -> Callable[[], list]:
    """One case, named as its function."""
    CASES[function.__name__] = function
    return function


def call(name: str, *arguments: object) -> int:
    """The code that a function returns."""
    return getattr(cuda, name)(*arguments)


def done(name: str, *arguments: object) -> None:
    """A call that must succeed."""
    code = call(name, *arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


def allocate(nbytes: int = 4096) -> c_void_p:
    """Device memory."""
    address = c_void_p()
    done("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
    return address


def load(image: bytes = PTX) -> c_void_p:
    """A module."""
    module = c_void_p()
    done("cuModuleLoadData", byref(module), image)
    return module


def function(name: bytes, image: bytes = PTX) -> c_void_p:
    """A kernel of a module."""
    found = c_void_p()
    done("cuModuleGetFunction", byref(found), load(image), name)
    return found


def launch(kernel: c_void_p, grid: tuple = (1, 1, 1), block: tuple = (1, 1, 1), shared: int = 0,
           parameters: object = None, size: int | None = None) -> int:
    """The code of a launch whose parameters are a buffer (`size` of its bytes), or none."""
    extra = None
    if parameters is not None:
        nbytes = c_size_t(len(parameters) if size is None else size)
        buffer = ctypes.create_string_buffer(parameters, len(parameters))
        extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(nbytes), 0)
    code = call("cuLaunchKernel", kernel, *map(c_uint, (*grid, *block, shared)), None, None, extra)
    return code or call("cuCtxSynchronize")


POINTER = bytes(8)


# ---------------------------------------------------------------------- without a context


def before_init() -> list:
    """Whatever comes before cuInit."""
    out = c_int()
    return [call("cuDeviceGetCount", byref(out)), call("cuDeviceGet", byref(out), 0),
            call("cuInit", 1)]


def without_context() -> list:
    """What needs a current context, without one."""
    address, size = c_void_p(), c_size_t()
    out = byref(address)
    return [
        call("cuMemAlloc_v2", out, c_size_t(16)),
        call("cuMemAllocManaged", out, c_size_t(16), 1),
        call("cuMemHostAlloc", out, c_size_t(16), 0),
        call("cuMemGetInfo_v2", byref(size), byref(size)),
        call("cuMemcpyHtoD_v2", c_void_p(4096), b"1234", c_size_t(4)),
        call("cuModuleLoadData", out, PTX),
        call("cuStreamCreate", out, 0),
        call("cuEventCreate", out, 0),
        call("cuCtxSynchronize"),
        call("cuCtxPopCurrent_v2", out),
        call("cuCtxGetDevice", byref(c_int())),
        call("cuCtxGetCurrent", out), address.value or 0,
    ]


@case
def devices() -> list:
    value = c_int()
    return [call("cuDeviceGet", byref(value), 99), call("cuDeviceGet", byref(value), -1),
            call("cuDeviceGetAttribute", byref(value), 0, 0),
            call("cuDeviceGetAttribute", byref(value), 100000, 0),
            call("cuDeviceGetAttribute", byref(value), 1, 99),
            call("cuDeviceGetByPCIBusId", byref(value), b"ffff:ff:1f.7")]


@case
def contexts() -> list:
    first, second, out = c_void_p(), c_void_p(), c_void_p()
    create = "cuCtxCreate_v2"
    codes = [call(create, byref(first), 0, 0), call(create, byref(second), 0, 0)]
    codes += [call("cuCtxPopCurrent_v2", byref(out)), int(out.value == second.value)]
    codes += [call("cuCtxGetCurrent", byref(out)), int(out.value == first.value)]
    codes += [call("cuCtxPushCurrent_v2", second), call("cuCtxPushCurrent_v2", second)]
    codes += [call("cuCtxPopCurrent_v2", byref(out)), call("cuCtxDestroy_v2", second)]
    codes += [call("cuCtxGetCurrent", byref(out)), int(out.value == first.value)]
    codes += [call("cuCtxSetCurrent", None), call("cuCtxGetCurrent", byref(out)), int(bool(out))]
    codes += [call("cuCtxSetCurrent", first), call("cuCtxDestroy_v2", first)]
    codes += [call("cuCtxPushCurrent_v2", None)]
    return codes


@case
def contexts_of_threads() -> list:
    codes, current, out = [], c_void_p(), c_void_p()
    done("cuCtxGetCurrent", byref(current))

    def other() -> None:
        codes.extend([call("cuMemAlloc_v2", byref(out), c_size_t(16)),
                      call("cuCtxGetCurrent", byref(out)), int(bool(out)),
                      call("cuCtxSetCurrent", current),
                      call("cuMemAlloc_v2", byref(out), c_size_t(16)),
                      call("cuCtxPopCurrent_v2", byref(out)), int(out.value == current.value),
                      call("cuCtxSynchronize")])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return [*codes, call("cuCtxSynchronize")]


@case
def primary_contexts() -> list:
    first, second = c_void_p(), c_void_p()
    release = "cuDevicePrimaryCtxRelease_v2"
    codes = [call("cuDevicePrimaryCtxRetain", byref(first), 0),
             call("cuDevicePrimaryCtxRetain", byref(second), 0), int(first.value == second.value),
             call("cuCtxPushCurrent_v2", first), call("cuCtxSynchronize"),
             call("cuCtxPopCurrent_v2", byref(second))]
    return [*codes, call(release, 0), call(release, 0), call(release, 0), call(release, 99)]


@case
def things_of_another_context() -> list:
    codes, other, out, time = [], c_void_p(), c_void_p(), c_float()
    stream, event, mine, own = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    address = allocate()
    done("cuStreamCreate", byref(stream), 0)
    done("cuEventCreate", byref(event), 0)
    done("cuEventRecord", event, None)
    done("cuCtxCreate_v2", byref(other), 0, 0)
    done("cuStreamCreate", byref(own), 0)
    done("cuEventCreate", byref(mine), 0)
    done("cuEventRecord", mine, None)
    kernel = function(b"nothing")
    ones = [c_uint(1)] * 6
    codes += [call("cuEventRecord", event, None), call("cuEventRecord", event, own),
              call("cuEventRecord", mine, stream), call("cuStreamWaitEvent", own, event, 0),
              call("cuStreamSynchronize", stream), call("cuStreamQuery", stream),
              call("cuEventSynchronize", event), call("cuEventQuery", event),
              call("cuEventElapsedTime", byref(time), event, mine),
              call("cuLaunchKernel", kernel, *ones, 0, stream, None, None),
              call("cuMemsetD8_v2", address, 1, c_size_t(4)),
              call("cuMemcpyDtoH_v2", ctypes.create_string_buffer(4), address, c_size_t(4))]
    taken = allocate()
    codes += [call("cuMemFree_v2", address), call("cuStreamDestroy_v2", stream),
              call("cuEventDestroy_v2", event), call("cuCtxDestroy_v2", other)]
    return [*codes, call("cuMemFree_v2", taken), call("cuCtxGetCurrent", byref(out)),
            int(bool(out))]


@case
def context_limits() -> list:
    size, value = c_size_t(), c_int()
    codes = []
    for limit in (0, 1, 2, 4, 99):
        codes.append(call("cuCtxGetLimit", byref(size), limit))
    codes += [call("cuCtxSetLimit", 99, c_size_t(1)), call("cuCtxSetLimit", 0, c_size_t(2048))]
    codes += [call("cuCtxGetLimit", byref(size), 0), size.value]
    codes += [call("cuCtxSetCacheConfig", 1), call("cuCtxGetCacheConfig", byref(value))]
    return codes


# ---------------------------------------------------------------------- memory


@case
def allocations() -> list:
    out, pitch = c_void_p(), c_size_t()
    return [
        call("cuMemAlloc_v2", byref(out), c_size_t(0)),
        call("cuMemAlloc_v2", byref(out), c_size_t(1 << 45)),
        call("cuMemAllocManaged", byref(out), c_size_t(0), 1),
        call("cuMemAllocManaged", byref(out), c_size_t(16), 0),
        call("cuMemAllocManaged", byref(out), c_size_t(16), 99),
        call("cuMemAllocPitch_v2", byref(out), byref(pitch), c_size_t(100), c_size_t(4), 5),
        call("cuMemAllocPitch_v2", byref(out), byref(pitch), c_size_t(0), c_size_t(4), 4),
        call("cuMemAllocPitch_v2", byref(out), byref(pitch), c_size_t(100), c_size_t(4), 4),
        pitch.value,
        call("cuMemHostAlloc", byref(out), c_size_t(0), 0), int(bool(out)),
        call("cuMemHostAlloc", byref(out), c_size_t(16), 0x100),
    ]


@case
def frees() -> list:
    address, host, out = allocate(), c_void_p(), c_void_p()
    done("cuMemHostAlloc", byref(host), c_size_t(64), 0)
    codes = [
        call("cuMemFree_v2", None),
        call("cuMemFree_v2", c_void_p(address.value + 256)),
        call("cuMemFree_v2", host),
        call("cuMemFreeHost", address),
        call("cuMemFree_v2", address),
        call("cuMemFree_v2", address),
        call("cuMemHostGetDevicePointer_v2", byref(out), host, 0), int(out.value == host.value),
        call("cuMemFreeHost", host),
        call("cuMemFreeHost", None),
    ]
    managed = c_void_p()
    done("cuMemAllocManaged", byref(managed), c_size_t(64), 1)
    return [*codes, call("cuMemFree_v2", managed)]


@case
def address_ranges() -> list:
    address, base, size = allocate(1000), c_void_p(), c_size_t()
    codes = [call("cuMemGetAddressRange_v2", byref(base), byref(size), c_void_p(address.value + 9)),
             int(base.value == address.value), size.value,
             call("cuMemGetAddressRange_v2", byref(base), byref(size), c_void_p(64))]
    done("cuMemFree_v2", address)
    return [*codes, call("cuMemGetAddressRange_v2", byref(base), byref(size), address)]


@case
def copies() -> list:
    address, buffer = allocate(4096), ctypes.create_string_buffer(4096)
    size = c_size_t
    codes = [
        call("cuMemcpyHtoD_v2", address, buffer, size(4096)),
        call("cuMemcpyHtoD_v2", None, buffer, size(16)),
        call("cuMemcpyHtoD_v2", address, None, size(16)),
        call("cuMemcpyDtoH_v2", None, address, size(16)),
        call("cuMemcpyHtoD_v2", address, buffer, size(0)),
        call("cuMemcpyHtoD_v2", None, None, size(0)),
        call("cuMemcpyDtoH_v2", buffer, c_void_p(64), size(16)),
        call("cuMemcpyDtoD_v2", address, c_void_p(64), size(16)),
        call("cuMemcpyDtoD_v2", address, address, size(16)),
    ]
    done("cuMemFree_v2", address)
    return [*codes, call("cuMemcpyHtoD_v2", address, buffer, size(16))]


@case
def fills() -> list:
    address, size = allocate(4096), c_size_t
    odd = c_void_p(address.value + 1)
    return [
        call("cuMemsetD32_v2", address, 1, size(1024)),
        call("cuMemsetD32_v2", odd, 1, size(4)),
        call("cuMemsetD16_v2", odd, 1, size(4)),
        call("cuMemsetD8_v2", odd, 1, size(4)),
        call("cuMemsetD32_v2", address, 1, size(0)),
        call("cuMemsetD8_v2", None, 1, size(4)),
        call("cuMemsetD2D32_v2", address, size(64), 1, size(16), size(4)),
        call("cuMemsetD2D32_v2", address, size(32), 1, size(16), size(4)),
        call("cuMemsetD2D32_v2", address, size(63), 1, size(4), size(4)),
    ]


@case
def registered_memory() -> list:
    page = 4096
    raw = ctypes.create_string_buffer(4 * page)
    start = c_void_p(-(-ctypes.addressof(raw) // page) * page)
    out, flags = c_void_p(), c_uint()
    codes = [
        call("cuMemHostRegister_v2", start, c_size_t(page), 0),
        call("cuMemHostRegister_v2", start, c_size_t(page), 0),
        call("cuMemHostGetDevicePointer_v2", byref(out), start, 0),
        call("cuMemHostUnregister", start),
        call("cuMemHostUnregister", start),
        call("cuMemHostRegister_v2", start, c_size_t(0), 0),
        call("cuMemHostRegister_v2", None, c_size_t(page), 0),
        call("cuMemHostGetDevicePointer_v2", byref(out), start, 0),
        call("cuMemHostGetFlags", byref(flags), start),
    ]
    host = c_void_p()
    done("cuMemHostAlloc", byref(host), c_size_t(64), 4)
    codes += [call("cuMemHostGetFlags", byref(flags), host), flags.value]
    return [*codes, call("cuMemFreeHost", host)]


@case
def memory_is_given_back() -> list:
    free, total, again = c_size_t(), c_size_t(), c_size_t()
    done("cuMemGetInfo_v2", byref(free), byref(total))
    address = allocate(1 << 26)
    done("cuMemGetInfo_v2", byref(again), byref(total))
    taken = free.value - again.value
    done("cuMemFree_v2", address)
    done("cuMemGetInfo_v2", byref(again), byref(total))
    codes = [int(taken >= 1 << 26), int(again.value == free.value)]
    whole = c_size_t()
    done("cuDeviceTotalMem_v2", byref(whole), 0)
    return [*codes, int(free.value <= total.value), int(total.value == whole.value)]


@case
def memory_of_a_context_goes_with_it() -> list:
    free, total, again, context = c_size_t(), c_size_t(), c_size_t(), c_void_p()
    done("cuMemGetInfo_v2", byref(free), byref(total))
    done("cuCtxCreate_v2", byref(context), 0, 0)
    allocate(1 << 26)
    done("cuCtxDestroy_v2", context)
    done("cuMemGetInfo_v2", byref(again), byref(total))
    return [int(again.value == free.value)]


@case
def running_out_of_memory() -> list:
    free, total, out, pieces = c_size_t(), c_size_t(), c_void_p(), []
    done("cuMemGetInfo_v2", byref(free), byref(total))
    while not (code := call("cuMemAlloc_v2", byref(out), c_size_t(total.value // 16))):
        pieces.append(c_void_p(out.value))
    codes = [code, int(8 <= len(pieces) <= 16), call("cuMemAlloc_v2", byref(out), total)]
    codes += [max(call("cuMemFree_v2", piece) for piece in pieces)]
    return [*codes, call("cuMemAlloc_v2", byref(out), c_size_t(total.value // 16))]


# ---------------------------------------------------------------------- modules and launches


@case
def images() -> list:
    out = c_void_p()
    head = b".version 7.0\n.target sm_80\n.address_size 64\n"
    return [
        call("cuModuleLoadData", byref(out), image) for image in (
            PTX, b"", b"this is no image", head + b"rubbish\n", head,
            head + b".visible .entry k() { add.u32 %r1, %r2; }",
            b".version 99.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }",
            b".version 9.0\n.target sm_120\n.address_size 64\n.visible .entry k() { ret; }",
            OUTER, b"\x7fELF" + bytes(200))
    ] + [call("cuModuleLoadData", byref(out), None),
         call("cuModuleLoad", byref(out), b"/nowhere/at/all.cubin")]


@case
def names() -> list:
    module, out, size = load(), c_void_p(), c_size_t()
    return [
        call("cuModuleGetFunction", byref(out), module, b"add"),
        call("cuModuleGetFunction", byref(out), module, b"ad"),
        call("cuModuleGetFunction", byref(out), module, b""),
        call("cuModuleGetFunction", byref(out), module, b"table"),
        call("cuModuleGetGlobal_v2", byref(out), byref(size), module, b"table"), size.value,
        call("cuModuleGetGlobal_v2", byref(out), byref(size), module, b"tables"),
        call("cuModuleGetGlobal_v2", byref(out), byref(size), module, b"add"),
        call("cuModuleGetTexRef", byref(out), module, b"tex"),
        call("cuModuleGetSurfRef", byref(out), module, b"surf"),
        call("cuModuleUnload", module),
    ]


@case
def function_attributes() -> list:
    kernel, value = function(b"static"), c_int()
    codes = []
    for attribute in (0, 1, 8, 9):
        codes += [call("cuFuncGetAttribute", byref(value), attribute, kernel), value.value]
    codes[5] = min(codes[5], 0)  # how much may be opted in to depends on the device
    return [
        *codes,
        call("cuFuncGetAttribute", byref(value), 999, kernel),
        call("cuFuncSetAttribute", kernel, 8, 1 << 20),
        call("cuFuncSetAttribute", kernel, 8, -1),
        call("cuFuncSetAttribute", kernel, 0, 32),
        call("cuFuncSetAttribute", kernel, 9, 101),
        call("cuFuncSetAttribute", kernel, 9, -1),
        call("cuFuncSetAttribute", kernel, 9, 50),
    ]


@case
def launch_shapes() -> list:
    kernel = function(b"nothing")
    return [launch(kernel, **options) for options in (
        {}, {"block": (0, 1, 1)}, {"block": (1024, 1, 1)}, {"block": (1025, 1, 1)},
        {"block": (32, 33, 1)}, {"block": (1, 1, 64)}, {"block": (1, 1, 65)}, {"grid": (0, 1, 1)},
        {"grid": (1, 65535, 1)}, {"grid": (1, 65536, 1)}, {"grid": (1, 1, 65536)},
        {"grid": (1 << 31, 1, 1)}, {"block": (1, 1, 1 << 31)})]


@case
def launches_and_shared_memory() -> list:
    plain, static = function(b"nothing"), function(b"static")
    codes = [launch(plain, shared=n) for n in (48 * 1024, 48 * 1024 + 1, 1 << 20)]
    codes += [launch(static, shared=n, parameters=POINTER) for n in (9152, 9153, 60_000)]
    codes += [call("cuFuncSetAttribute", static, 8, 60_000)]
    codes += [launch(static, shared=n, parameters=POINTER) for n in (60_000, 60_001)]
    codes += [call("cuFuncSetAttribute", static, 8, 100)]
    return codes + [launch(static, shared=n, parameters=POINTER) for n in (100, 101, 9152)]


@case
def launches_and_registers() -> list:
    kernel, value = function(b"hungry", HUNGRY), c_int()
    done("cuFuncGetAttribute", byref(value), 4, kernel)
    most = c_int()
    done("cuFuncGetAttribute", byref(most), 0, kernel)
    bounded, limit = function(b"bounded"), c_int()
    done("cuFuncGetAttribute", byref(limit), 0, bounded)
    memory = bytes(allocate(4096))
    return [
        int(120 <= value.value <= 128), most.value,
        launch(kernel, block=(most.value, 1, 1), parameters=memory),
        launch(kernel, block=(1024, 1, 1), parameters=memory),
        limit.value,
        launch(bounded, block=(128, 1, 1), parameters=POINTER),
        launch(bounded, block=(129, 1, 1), parameters=POINTER),
        launch(bounded, block=(1, 128, 1), parameters=POINTER),
        call("cuFuncSetBlockShape", bounded, 129, 1, 1),
        call("cuFuncSetBlockShape", bounded, 1025, 1, 1),
        call("cuFuncSetBlockShape", kernel, 1024, 1, 1),
        call("cuFuncSetBlockShape", bounded, 0, 1, 1),
    ]


@case
def launch_parameters() -> list:
    kernel, plain = function(b"add"), function(b"nothing")
    values = (c_void_p * 2)()
    numbers = [c_void_p(0), c_int(0)]
    values[:] = [ctypes.addressof(number) for number in numbers]
    size = c_size_t(16)
    buffer = ctypes.create_string_buffer(16)
    extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    ones = [c_uint(1)] * 6
    return [
        launch(kernel, parameters=bytes(12)),
        launch(kernel, parameters=bytes(16)),
        launch(kernel, parameters=bytes(20)),
        launch(plain, parameters=bytes(8)),
        launch(plain, parameters=b""),
        call("cuLaunchKernel", kernel, *ones, 0, None, values, None),
        call("cuLaunchKernel", kernel, *ones, 0, None, values, extra),
        call("cuLaunchKernel", None, *ones, 0, None, values, None),
    ]


@case
def launches_in_another_context() -> list:
    kernel, other, out = function(b"nothing"), c_void_p(), c_void_p()
    done("cuCtxCreate_v2", byref(other), 0, 0)
    codes = [launch(kernel)]
    done("cuCtxPopCurrent_v2", byref(out))
    return [*codes, launch(kernel), call("cuCtxDestroy_v2", other)]


# ---------------------------------------------------------------------- streams and events


@case
def streams() -> list:
    stream, event = c_void_p(), c_void_p()
    codes = [call("cuStreamCreate", byref(stream), 0), call("cuStreamQuery", stream),
             call("cuStreamSynchronize", stream), call("cuEventCreate", byref(event), 0),
             call("cuStreamWaitEvent", stream, event, 0), call("cuEventRecord", event, stream),
             call("cuStreamWaitEvent", stream, event, 0), call("cuStreamDestroy_v2", stream)]
    return codes + [call("cuStreamWaitEvent", None, event, 1),
                    call("cuStreamWaitEvent", None, event, 2),
                    call("cuStreamCreate", byref(stream), 0x80), call("cuStreamQuery", None),
                    call("cuStreamSynchronize", None), call("cuStreamCreate", byref(stream), 1)]


@case
def events() -> list:
    first, last, untimed, time = c_void_p(), c_void_p(), c_void_p(), c_float()
    elapsed = "cuEventElapsedTime"
    codes = [call("cuEventCreate", byref(first), 0), call("cuEventCreate", byref(last), 1),
             call("cuEventCreate", byref(untimed), 2), call("cuEventCreate", byref(c_void_p()), 64)]
    codes += [call("cuEventQuery", first), call("cuEventSynchronize", first),
              call(elapsed, byref(time), first, last), call("cuEventRecord", first, None),
              call(elapsed, byref(time), first, last), call("cuEventRecord", last, None),
              call("cuEventSynchronize", last), call(elapsed, byref(time), first, last),
              int(0 <= time.value < 1000), call(elapsed, byref(time), last, first),
              int(-1000 < time.value <= 0), call("cuEventRecord", untimed, None),
              call("cuEventSynchronize", untimed), call(elapsed, byref(time), first, untimed),
              call(elapsed, byref(time), first, first), int(time.value == 0)]
    codes += [call("cuEventCreate", byref(c_void_p()), flags) for flags in (4, 6, 7)]
    codes += [call("cuEventRecord", None, None), call("cuEventQuery", None)]
    return [*codes, call("cuEventDestroy_v2", first), call("cuEventDestroy_v2", last)]


# ---------------------------------------------------------------------- IPC, peers, links, arrays


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


@case
def ipc() -> list:
    handle, address, host, out, event = (IpcHandle(), allocate(), c_void_p(), c_void_p(),
                                         c_void_p())
    done("cuMemHostAlloc", byref(host), c_size_t(64), 0)
    done("cuEventCreate", byref(event), 0)
    return [
        call("cuIpcGetMemHandle", byref(handle), host),
        call("cuIpcGetMemHandle", byref(handle), c_void_p(64)),
        call("cuIpcGetMemHandle", byref(handle), None),
        call("cuIpcGetEventHandle", byref(handle), event),
        call("cuIpcCloseMemHandle", address),
        call("cuIpcCloseMemHandle", None),
        call("cuIpcOpenMemHandle_v2", byref(out), IpcHandle(), 1),
        call("cuIpcGetMemHandle", byref(handle), c_void_p(address.value + 64)),
        call("cuIpcOpenMemHandle_v2", byref(out), handle, 1),
    ]


@case
def peers() -> list:
    current, other, value = c_void_p(), c_void_p(), c_int(7)
    done("cuCtxGetCurrent", byref(current))
    codes = [call("cuDeviceCanAccessPeer", byref(value), 0, 0), value.value,
             call("cuCtxEnablePeerAccess", current, 0), call("cuCtxDisablePeerAccess", current),
             call("cuCtxEnablePeerAccess", None, 0), call("cuCtxEnablePeerAccess", current, 1)]
    done("cuCtxCreate_v2", byref(other), 0, 0)
    codes += [call("cuCtxEnablePeerAccess", current, 0), call("cuCtxDisablePeerAccess", current)]
    done("cuCtxDestroy_v2", other)
    return codes


def link(*inputs: bytes, kind: int = 1) -> list:
    """The codes of linking these texts, up to the launch of "outer" and what it writes."""
    state, image, size = c_void_p(), c_void_p(), c_size_t()
    codes = [call("cuLinkCreate_v2", 0, None, None, byref(state))]
    for data in inputs:
        codes.append(call("cuLinkAddData_v2", state, kind, data, c_size_t(len(data) + 1), b"in", 0,
                          None, None))
    codes.append(call("cuLinkComplete", state, byref(image), byref(size)))
    if not codes[-1]:
        module, kernel, memory, value = c_void_p(), c_void_p(), allocate(), c_int()
        codes.append(call("cuModuleLoadData", byref(module), image))
        codes.append(call("cuModuleGetFunction", byref(kernel), module, b"outer"))
        if not codes[-1]:
            codes.append(launch(kernel, parameters=bytes(memory)))
            done("cuMemcpyDtoH_v2", byref(value), memory, c_size_t(4))
            codes.append(value.value)
    return [*codes, call("cuLinkDestroy", state)]


@case
def links() -> list:
    return [*link(OUTER, INNER), *link(INNER, OUTER), *link(PTX)]


@case
def links_of_nothing() -> list:
    return link()


@case
def links_with_a_name_missing() -> list:
    return link(OUTER)


@case
def links_with_a_name_twice() -> list:
    return link(OUTER, INNER, INNER)


@case
def links_of_bad_text() -> list:
    return [*link(b".version 7.0\n.target sm_80\n.address_size 64\nrubbish\n"), *link(b"no text")]


@case
def link_files() -> list:
    state = c_void_p()
    done("cuLinkCreate_v2", 0, None, None, byref(state))
    return [call("cuLinkAddFile_v2", state, 1, b"/nowhere/at/all.ptx", 0, None, None),
            call("cuLinkDestroy", state)]


class Array(ctypes.Structure):
    _fields_ = [("Width", c_size_t), ("Height", c_size_t), ("Format", c_uint), ("Channels", c_uint)]


@case
def arrays() -> list:
    out, size, buffer = c_void_p(), c_size_t, ctypes.create_string_buffer(4096)
    codes = [call("cuArrayCreate_v2", byref(out), byref(Array(*fields))) for fields in (
        (0, 0, 0x20, 1), (16, 0, 0x99, 1), (16, 0, 0x20, 3), (16, 4, 0x20, 1), (16, 0, 0x20, 1))]
    return [
        *codes,
        call("cuMemcpyHtoA_v2", out, size(0), buffer, size(64)),
        call("cuMemcpyHtoA_v2", out, size(0), buffer, size(65)),
        call("cuMemcpyHtoA_v2", out, size(60), buffer, size(8)),
        call("cuMemcpyAtoH_v2", buffer, out, size(32), size(32)),
        call("cuArrayDestroy", out),
    ]


class Memcpy2D(ctypes.Structure):
    _fields_ = [
        (side + name, kind) for side in ("src", "dst") for name, kind in (
            ("XInBytes", c_size_t), ("Y", c_size_t), ("MemoryType", c_uint), ("Host", c_void_p),
            ("Device", c_void_p), ("Array", c_void_p), ("Pitch", c_size_t))
    ] + [("WidthInBytes", c_size_t), ("Height", c_size_t)]


@case
def box_copies() -> list:
    address, buffer = allocate(4096), ctypes.create_string_buffer(4096)
    codes = []
    for changes in ({}, {"dstPitch": 32}, {"srcPitch": 32}, {"srcMemoryType": 0}, {"Height": 0},
                    {"WidthInBytes": 0}, {"dstDevice": 0}, {"srcHost": 0}, {"srcMemoryType": 9}):
        fields = {"srcMemoryType": 1, "srcHost": ctypes.addressof(buffer), "srcPitch": 64,
                  "dstMemoryType": 2, "dstDevice": address.value, "dstPitch": 128,
                  "WidthInBytes": 64, "Height": 8, **changes}
        codes.append(call("cuMemcpy2D_v2", byref(Memcpy2D(**fields))))
    return codes


@case
def error_texts() -> list:
    text = c_char_p()
    codes = []
    for code in (0, 1, 2, 3, 4, 100, 101, 200, 201, 209, 215, 217, 218, 222, 301, 304, 400, 500,
                 600, 700, 701, 702, 704, 705, 709, 710, 712, 713, 716, 717, 718, 719, 720, 801,
                 999):
        codes += [call("cuGetErrorName", code, byref(text)), (text.value or b"").decode()]
        codes += [call("cuGetErrorString", code, byref(text)), (text.value or b"").decode()]
    return [*codes, call("cuGetErrorName", 12345, byref(text)),
            call("cuGetErrorString", 12345, byref(text))]


def main() -> None:
    """Run each case in a context of its own that nothing has gone wrong in."""
    results = {"before_init": before_init()}
    done("cuInit", 0)
    results["without_context"] = without_context()
    wanted = sys.argv[1:] or CASES
    for name in wanted:
        context = c_void_p()
        done("cuCtxCreate_v2", byref(context), 0, 0)
        results[name] = CASES[name]()
        code = call("cuCtxDestroy_v2", context)
        if code:
            results[name].append(f"cuCtxDestroy: {code}")
    print(json.dumps(results, indent=0))


if __name__ == "__main__":
    main()
