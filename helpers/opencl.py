"""The naive kernel in OpenCL on PoCL, which compiles it for the CPU: for `helpers.bench`.

Debian and Ubuntu have it as pocl-opencl-icd. Called through ctypes, so that nothing else is needed.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

import numpy as np

SOURCE = b"""
__kernel void matmul_naive(__global const float *A, __global const float *B, __global float *C,
                           int M, int N, int K)
{
    int row = get_global_id(1), col = get_global_id(0);
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k)
            sum = fma(A[(size_t)row * K + k], B[(size_t)k * N + col], sum);
        C[(size_t)row * N + col] = sum;
    }
}
"""
BLOCK = 32
_USE_HOST_POINTER, _READ_WRITE = 1 << 3, 1 << 0


class NoOpenCL(RuntimeError):
    """There is no OpenCL on this machine, or it does not work; the text says what is missing."""


def matmul_naive(A: np.ndarray, B: np.ndarray, repeats: int = 3) -> tuple[np.ndarray, float]:
    """C = A @ B by the naive kernel, and the seconds of the fastest of `repeats` launches.

    A is M x K, B is K x N, both float32 and C-contiguous. Raises NoOpenCL.
    """
    try:
        cl = ctypes.CDLL("libOpenCL.so.1")
    except OSError as error:
        raise NoOpenCL("PoCL is not installed (on Debian: pocl-opencl-icd)") from error
    for name in ("Context", "CommandQueue", "ProgramWithSource", "Kernel", "Buffer"):
        getattr(cl, f"clCreate{name}").restype = c_void_p
    platform, device, status = c_void_p(), c_void_p(), c_int()
    _check(cl.clGetPlatformIDs(1, byref(platform), None), "clGetPlatformIDs")
    _check(cl.clGetDeviceIDs(platform, c_size_t(2), 1, byref(device), None), "clGetDeviceIDs")
    context = c_void_p(cl.clCreateContext(None, 1, byref(device), None, None, byref(status)))
    queue = c_void_p(cl.clCreateCommandQueue(context, device, c_size_t(0), byref(status)))
    text = ctypes.c_char_p(SOURCE)
    program = cl.clCreateProgramWithSource(context, 1, byref(text), None, byref(status))
    program = c_void_p(program)
    _check(cl.clBuildProgram(program, 1, byref(device), None, None, None), "clBuildProgram")
    kernel = c_void_p(cl.clCreateKernel(program, b"matmul_naive", byref(status)))
    _check(status.value, "clCreateKernel")

    (M, K), N = A.shape, B.shape[1]
    C = np.full((M, N), np.nan, np.float32)
    buffers = []
    for array in (A, B, C):
        flags, pointer = c_size_t(_USE_HOST_POINTER | _READ_WRITE), c_void_p(array.ctypes.data)
        buffer = cl.clCreateBuffer(context, flags, c_size_t(array.nbytes), pointer, byref(status))
        _check(status.value, "clCreateBuffer")
        buffers.append(c_void_p(buffer))
    for k, value in enumerate((*buffers, c_int(M), c_int(N), c_int(K))):
        size = c_size_t(ctypes.sizeof(value))
        _check(cl.clSetKernelArg(kernel, c_uint(k), size, byref(value)), "clSetKernelArg")
    total = (c_size_t * 2)(-(-N // BLOCK) * BLOCK, -(-M // BLOCK) * BLOCK)
    local = (c_size_t * 2)(BLOCK, BLOCK)
    seconds = []
    for _ in range(repeats + 1):  # the first one compiles
        start = time.perf_counter()
        launched = cl.clEnqueueNDRangeKernel(queue, kernel, 2, None, total, local, 0, None, None)
        _check(launched, "clEnqueueNDRangeKernel")
        _check(cl.clFinish(queue), "clFinish")
        seconds.append(time.perf_counter() - start)
    read = cl.clEnqueueReadBuffer(
        queue,
        buffers[2],
        1,
        c_size_t(0),
        c_size_t(C.nbytes),
        c_void_p(C.ctypes.data),
        0,
        None,
        None,
    )
    _check(read, "clEnqueueReadBuffer")
    for buffer in buffers:
        cl.clReleaseMemObject(buffer)
    return C, min(seconds[1:])


def _check(status: int, call: str) -> None:
    if status != 0:
        raise NoOpenCL(f"{call} gives OpenCL error {status}: is pocl-opencl-icd installed?")
