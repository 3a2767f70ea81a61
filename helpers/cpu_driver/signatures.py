"""The one table of what libcuda.so.1 exports: each ``cu*`` function and its argument types.

Every function that PyCUDA 2026.1 may call, under each name that the headers of CUDA 12 or 13 give
it (``cuda.h``; ``cudaProfiler.h``; ``cudaGL.h`` for a PyCUDA built with OpenGL).  All of them
return a ``CUresult``.  Which of them work is not said here: a name without an implementation
answers CUDA_ERROR_NOT_SUPPORTED, naming itself.
"""

from __future__ import annotations

import ctypes

INT = ctypes.c_int
UINT = ctypes.c_uint
FLOAT = ctypes.c_float
SIZE = ctypes.c_size_t
TEXT = ctypes.c_char_p
#: A device address, a host address or an opaque handle: a plain number here, 0 for NULL.
ADDRESS = HANDLE = ctypes.c_size_t


def OUT(kind: type) -> type:  # noqa: N802 - reads as a keyword in the table
    """A pointer that the function writes through (or an array that it reads)."""
    return ctypes.POINTER(kind)


class Memcpy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        ("srcXInBytes", SIZE), ("srcY", SIZE), ("srcMemoryType", UINT), ("srcHost", ADDRESS),
        ("srcDevice", ADDRESS), ("srcArray", HANDLE), ("srcPitch", SIZE),
        ("dstXInBytes", SIZE), ("dstY", SIZE), ("dstMemoryType", UINT), ("dstHost", ADDRESS),
        ("dstDevice", ADDRESS), ("dstArray", HANDLE), ("dstPitch", SIZE),
        ("WidthInBytes", SIZE), ("Height", SIZE),
    ]


class Memcpy3D(ctypes.Structure):
    """CUDA_MEMCPY3D, and CUDA_MEMCPY3D_PEER, which has the contexts where this has `reserved`."""

    _fields_ = [
        ("srcXInBytes", SIZE), ("srcY", SIZE), ("srcZ", SIZE), ("srcLOD", SIZE),
        ("srcMemoryType", UINT), ("srcHost", ADDRESS), ("srcDevice", ADDRESS),
        ("srcArray", HANDLE), ("srcReserved", HANDLE), ("srcPitch", SIZE), ("srcHeight", SIZE),
        ("dstXInBytes", SIZE), ("dstY", SIZE), ("dstZ", SIZE), ("dstLOD", SIZE),
        ("dstMemoryType", UINT), ("dstHost", ADDRESS), ("dstDevice", ADDRESS),
        ("dstArray", HANDLE), ("dstReserved", HANDLE), ("dstPitch", SIZE), ("dstHeight", SIZE),
        ("WidthInBytes", SIZE), ("Height", SIZE), ("Depth", SIZE),
    ]


class ArrayDescriptor(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [("Width", SIZE), ("Height", SIZE), ("Format", UINT), ("NumChannels", UINT)]


class Array3DDescriptor(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [("Width", SIZE), ("Height", SIZE), ("Depth", SIZE), ("Format", UINT),
                ("NumChannels", UINT), ("Flags", UINT)]


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle, CUipcEventHandle: 64 bytes, passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


_JIT = (UINT, OUT(UINT), OUT(ADDRESS))  # number of options, options, values
_LAUNCH = (HANDLE, *(UINT,) * 7, HANDLE, OUT(ADDRESS), OUT(ADDRESS))

SIGNATURES: dict[str, tuple[type, ...]] = {
    # errors, initialisation, devices
    "cuGetErrorString": (INT, OUT(TEXT)),
    "cuGetErrorName": (INT, OUT(TEXT)),
    "cuInit": (UINT,),
    "cuDriverGetVersion": (OUT(INT),),
    "cuDeviceGet": (OUT(INT), INT),
    "cuDeviceGetCount": (OUT(INT),),
    "cuDeviceGetName": (ADDRESS, INT, INT),
    "cuDeviceGetAttribute": (OUT(INT), INT, INT),
    "cuDeviceComputeCapability": (OUT(INT), OUT(INT), INT),
    "cuDeviceTotalMem_v2": (OUT(SIZE), INT),
    "cuDeviceGetPCIBusId": (ADDRESS, INT, INT),
    "cuDeviceGetByPCIBusId": (OUT(INT), TEXT),
    "cuDeviceCanAccessPeer": (OUT(INT), INT, INT),
    # contexts
    "cuCtxCreate_v2": (OUT(HANDLE), UINT, INT),
    "cuCtxCreate_v3": (OUT(HANDLE), ADDRESS, INT, UINT, INT),
    "cuCtxCreate_v4": (OUT(HANDLE), ADDRESS, UINT, INT),
    "cuCtxDestroy_v2": (HANDLE,),
    "cuCtxAttach": (OUT(HANDLE), UINT),
    "cuCtxDetach": (HANDLE,),
    "cuCtxPushCurrent_v2": (HANDLE,),
    "cuCtxPopCurrent_v2": (OUT(HANDLE),),
    "cuCtxSetCurrent": (HANDLE,),
    "cuCtxGetCurrent": (OUT(HANDLE),),
    "cuCtxGetDevice": (OUT(INT),),
    "cuCtxGetApiVersion": (HANDLE, OUT(UINT)),
    "cuCtxSynchronize": (),
    "cuCtxSetLimit": (INT, SIZE),
    "cuCtxGetLimit": (OUT(SIZE), INT),
    "cuCtxSetCacheConfig": (INT,),
    "cuCtxGetCacheConfig": (OUT(INT),),
    "cuCtxSetSharedMemConfig": (INT,),
    "cuCtxGetSharedMemConfig": (OUT(INT),),
    "cuCtxEnablePeerAccess": (HANDLE, UINT),
    "cuCtxDisablePeerAccess": (HANDLE,),
    "cuDevicePrimaryCtxRetain": (OUT(HANDLE), INT),
    "cuDevicePrimaryCtxRelease": (INT,),
    "cuDevicePrimaryCtxRelease_v2": (INT,),
    # memory
    "cuMemGetInfo_v2": (OUT(SIZE), OUT(SIZE)),
    "cuMemAlloc_v2": (OUT(ADDRESS), SIZE),
    "cuMemAllocPitch_v2": (OUT(ADDRESS), OUT(SIZE), SIZE, SIZE, UINT),
    "cuMemAllocManaged": (OUT(ADDRESS), SIZE, UINT),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemGetAddressRange_v2": (OUT(ADDRESS), OUT(SIZE), ADDRESS),
    "cuMemHostAlloc": (OUT(ADDRESS), SIZE, UINT),
    "cuMemAllocHost_v2": (OUT(ADDRESS), SIZE),
    "cuMemFreeHost": (ADDRESS,),
    "cuMemHostGetDevicePointer_v2": (OUT(ADDRESS), ADDRESS, UINT),
    "cuMemHostGetFlags": (OUT(UINT), ADDRESS),
    "cuMemHostRegister_v2": (ADDRESS, SIZE, UINT),
    "cuMemHostUnregister": (ADDRESS,),
    "cuPointerGetAttribute": (ADDRESS, INT, ADDRESS),
    "cuIpcGetEventHandle": (OUT(IpcHandle), HANDLE),
    "cuIpcOpenEventHandle": (OUT(HANDLE), IpcHandle),
    "cuIpcGetMemHandle": (OUT(IpcHandle), ADDRESS),
    "cuIpcOpenMemHandle": (OUT(ADDRESS), IpcHandle, UINT),
    "cuIpcOpenMemHandle_v2": (OUT(ADDRESS), IpcHandle, UINT),
    "cuIpcCloseMemHandle": (ADDRESS,),
    # copies
    "cuMemcpy": (ADDRESS, ADDRESS, SIZE),
    "cuMemcpyHtoD_v2": (ADDRESS, ADDRESS, SIZE),
    "cuMemcpyDtoH_v2": (ADDRESS, ADDRESS, SIZE),
    "cuMemcpyDtoD_v2": (ADDRESS, ADDRESS, SIZE),
    "cuMemcpyHtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, HANDLE),
    "cuMemcpyDtoHAsync_v2": (ADDRESS, ADDRESS, SIZE, HANDLE),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, HANDLE),
    "cuMemcpyPeer": (ADDRESS, HANDLE, ADDRESS, HANDLE, SIZE),
    "cuMemcpyPeerAsync": (ADDRESS, HANDLE, ADDRESS, HANDLE, SIZE, HANDLE),
    "cuMemcpyDtoA_v2": (HANDLE, SIZE, ADDRESS, SIZE),
    "cuMemcpyAtoD_v2": (ADDRESS, HANDLE, SIZE, SIZE),
    "cuMemcpyHtoA_v2": (HANDLE, SIZE, ADDRESS, SIZE),
    "cuMemcpyAtoH_v2": (ADDRESS, HANDLE, SIZE, SIZE),
    "cuMemcpyAtoA_v2": (HANDLE, SIZE, HANDLE, SIZE, SIZE),
    "cuMemcpy2D_v2": (OUT(Memcpy2D),),
    "cuMemcpy2DUnaligned_v2": (OUT(Memcpy2D),),
    "cuMemcpy2DAsync_v2": (OUT(Memcpy2D), HANDLE),
    "cuMemcpy3D_v2": (OUT(Memcpy3D),),
    "cuMemcpy3DAsync_v2": (OUT(Memcpy3D), HANDLE),
    "cuMemcpy3DPeer": (OUT(Memcpy3D),),
    "cuMemcpy3DPeerAsync": (OUT(Memcpy3D), HANDLE),
    # fills
    "cuMemsetD8_v2": (ADDRESS, ctypes.c_ubyte, SIZE),
    "cuMemsetD16_v2": (ADDRESS, ctypes.c_ushort, SIZE),
    "cuMemsetD32_v2": (ADDRESS, UINT, SIZE),
    "cuMemsetD8Async": (ADDRESS, ctypes.c_ubyte, SIZE, HANDLE),
    "cuMemsetD16Async": (ADDRESS, ctypes.c_ushort, SIZE, HANDLE),
    "cuMemsetD32Async": (ADDRESS, UINT, SIZE, HANDLE),
    "cuMemsetD2D8_v2": (ADDRESS, SIZE, ctypes.c_ubyte, SIZE, SIZE),
    "cuMemsetD2D16_v2": (ADDRESS, SIZE, ctypes.c_ushort, SIZE, SIZE),
    "cuMemsetD2D32_v2": (ADDRESS, SIZE, UINT, SIZE, SIZE),
    "cuMemsetD2D8Async": (ADDRESS, SIZE, ctypes.c_ubyte, SIZE, SIZE, HANDLE),
    "cuMemsetD2D16Async": (ADDRESS, SIZE, ctypes.c_ushort, SIZE, SIZE, HANDLE),
    "cuMemsetD2D32Async": (ADDRESS, SIZE, UINT, SIZE, SIZE, HANDLE),
    # modules and functions
    "cuModuleLoad": (OUT(HANDLE), TEXT),
    "cuModuleLoadData": (OUT(HANDLE), ADDRESS),
    "cuModuleLoadDataEx": (OUT(HANDLE), ADDRESS, *_JIT),
    "cuModuleUnload": (HANDLE,),
    "cuModuleGetFunction": (OUT(HANDLE), HANDLE, TEXT),
    "cuModuleGetGlobal_v2": (OUT(ADDRESS), OUT(SIZE), HANDLE, TEXT),
    "cuModuleGetTexRef": (OUT(HANDLE), HANDLE, TEXT),
    "cuModuleGetSurfRef": (OUT(HANDLE), HANDLE, TEXT),
    "cuLinkCreate_v2": (*_JIT, OUT(HANDLE)),
    "cuLinkAddData_v2": (HANDLE, INT, ADDRESS, SIZE, TEXT, *_JIT),
    "cuLinkAddFile_v2": (HANDLE, INT, TEXT, *_JIT),
    "cuLinkComplete": (HANDLE, OUT(ADDRESS), OUT(SIZE)),
    "cuLinkDestroy": (HANDLE,),
    "cuFuncGetAttribute": (OUT(INT), INT, HANDLE),
    "cuFuncSetAttribute": (HANDLE, INT, INT),
    "cuFuncSetCacheConfig": (HANDLE, INT),
    "cuFuncSetSharedMemConfig": (HANDLE, INT),
    "cuFuncSetBlockShape": (HANDLE, INT, INT, INT),
    "cuFuncSetSharedSize": (HANDLE, UINT),
    "cuParamSetSize": (HANDLE, UINT),
    "cuParamSeti": (HANDLE, INT, UINT),
    "cuParamSetf": (HANDLE, INT, FLOAT),
    "cuParamSetv": (HANDLE, INT, ADDRESS, UINT),
    "cuParamSetTexRef": (HANDLE, INT, HANDLE),
    # launches
    "cuLaunch": (HANDLE,),
    "cuLaunchGrid": (HANDLE, INT, INT),
    "cuLaunchGridAsync": (HANDLE, INT, INT, HANDLE),
    "cuLaunchKernel": _LAUNCH,
    # streams and events
    "cuStreamCreate": (OUT(HANDLE), UINT),
    "cuStreamDestroy_v2": (HANDLE,),
    "cuStreamQuery": (HANDLE,),
    "cuStreamSynchronize": (HANDLE,),
    "cuStreamWaitEvent": (HANDLE, HANDLE, UINT),
    "cuStreamAttachMemAsync": (HANDLE, ADDRESS, SIZE, UINT),
    "cuEventCreate": (OUT(HANDLE), UINT),
    "cuEventDestroy_v2": (HANDLE,),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventQuery": (HANDLE,),
    "cuEventSynchronize": (HANDLE,),
    "cuEventElapsedTime": (OUT(FLOAT), HANDLE, HANDLE),
    "cuEventElapsedTime_v2": (OUT(FLOAT), HANDLE, HANDLE),
    # profiler
    "cuProfilerInitialize": (TEXT, TEXT, INT),
    "cuProfilerStart": (),
    "cuProfilerStop": (),
    # arrays, textures, surfaces
    "cuArrayCreate_v2": (OUT(HANDLE), OUT(ArrayDescriptor)),
    "cuArrayGetDescriptor_v2": (OUT(ArrayDescriptor), HANDLE),
    "cuArray3DCreate_v2": (OUT(HANDLE), OUT(Array3DDescriptor)),
    "cuArray3DGetDescriptor_v2": (OUT(Array3DDescriptor), HANDLE),
    "cuArrayDestroy": (HANDLE,),
    "cuTexRefCreate": (OUT(HANDLE),),
    "cuTexRefDestroy": (HANDLE,),
    "cuTexRefGetAddress_v2": (OUT(ADDRESS), HANDLE),
    "cuTexRefGetAddressMode": (OUT(INT), HANDLE, INT),
    "cuTexRefGetArray": (OUT(HANDLE), HANDLE),
    "cuTexRefGetFilterMode": (OUT(INT), HANDLE),
    "cuTexRefGetFlags": (OUT(UINT), HANDLE),
    "cuTexRefGetFormat": (OUT(INT), OUT(INT), HANDLE),
    "cuTexRefSetAddress_v2": (OUT(SIZE), HANDLE, ADDRESS, SIZE),
    "cuTexRefSetAddress2D_v2": (HANDLE, OUT(ArrayDescriptor), ADDRESS, SIZE),
    "cuTexRefSetAddress2D_v3": (HANDLE, OUT(ArrayDescriptor), ADDRESS, SIZE),
    "cuTexRefSetAddressMode": (HANDLE, INT, INT),
    "cuTexRefSetArray": (HANDLE, HANDLE, UINT),
    "cuTexRefSetFilterMode": (HANDLE, INT),
    "cuTexRefSetFlags": (HANDLE, UINT),
    "cuTexRefSetFormat": (HANDLE, INT, INT),
    "cuSurfRefGetArray": (OUT(HANDLE), HANDLE),
    "cuSurfRefSetArray": (HANDLE, HANDLE, UINT),
    # OpenGL
    "cuGLInit": (),
    "cuGLCtxCreate_v2": (OUT(HANDLE), UINT, INT),
    "cuGLRegisterBufferObject": (UINT,),
    "cuGLUnregisterBufferObject": (UINT,),
    "cuGLMapBufferObject_v2": (OUT(ADDRESS), OUT(SIZE), UINT),
    "cuGLUnmapBufferObject": (UINT,),
    "cuGraphicsGLRegisterBuffer": (OUT(HANDLE), UINT, UINT),
    "cuGraphicsGLRegisterImage": (OUT(HANDLE), UINT, UINT, UINT),
    "cuGraphicsMapResources": (UINT, OUT(HANDLE), HANDLE),
    "cuGraphicsUnmapResources": (UINT, OUT(HANDLE), HANDLE),
    "cuGraphicsResourceGetMappedPointer_v2": (OUT(ADDRESS), OUT(SIZE), HANDLE),
    "cuGraphicsSubResourceGetMappedArray": (OUT(HANDLE), HANDLE, UINT, UINT),
    "cuGraphicsUnregisterResource": (HANDLE,),
}

#: What PyCUDA calls from destructors: such a call may come while an exception is under way, and
#: after the interpreter has begun to exit, when it succeeds without doing anything.
CLEAN_UP = (
    "cuArrayDestroy", "cuCtxDestroy_v2", "cuCtxDetach", "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2", "cuGraphicsUnregisterResource", "cuIpcCloseMemHandle", "cuLinkDestroy",
    "cuMemFreeHost", "cuMemFree_v2", "cuMemHostUnregister", "cuModuleUnload",
    "cuStreamDestroy_v2", "cuTexRefDestroy",
)
#: What may take long, and must not be started a second time when Ctrl-C stops it.
LAUNCHES = ("cuLaunchKernel", "cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync")
#: What hands out the texts of errors.
TEXTS = ("cuGetErrorString", "cuGetErrorName")
#: Function -> its kind in jump_table.c, where that is not WORK.
KINDS = {
    **dict.fromkeys(CLEAN_UP, "CLEAN_UP"), **dict.fromkeys(LAUNCHES, "LAUNCH"),
    **dict.fromkeys(TEXTS, "TEXT"),
}
