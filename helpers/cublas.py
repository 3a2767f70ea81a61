"""NVIDIA's own matrix product, cuBLAS, to compare kernels with.

    with Cublas() as cublas:
        cublas.launch(dA, dB, dC, M, N, K)      # C = A * B, row-major FP32, asynchronous
        print(cublas.version)

The library is one that is on the machine: the toolkit's, that of a Python wheel, or one that the
system's loader knows. Where there is none, or no GPU, `Cublas()` raises NoCublas, which says so.

It computes in true FP32: the math mode is CUBLAS_DEFAULT_MATH, which computes an FP32 product "with
at least the same number of mantissa and exponent bits as requested"; TF32 needs another mode
(cuBLAS, cublasMath_t). The environment can ask for an emulation by BF16; then NoCublas is raised.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers import toolkit
from helpers.kernels import checked_addresses
from helpers.memory import driver
from helpers.timing import backend

MAX_SIZE = 2**31 - 1  # its sizes are 32-bit integers
_NO_TRANSPOSE = 0  # CUBLAS_OP_N
_DEFAULT_MATH = 0  # CUBLAS_DEFAULT_MATH
#: cuBLAS, "Floating Point Emulation": this makes FP32 products of BF16 ones in the default mode.
_EMULATION = "CUBLAS_EMULATE_SINGLE_PRECISION"
_STATUS = {1: "not initialized", 3: "allocation failed", 7: "invalid value", 8: "not for this GPU",
           11: "mapping error", 13: "execution failed", 14: "internal error",
           15: "not supported"}  # fmt: skip


class NoCublas(RuntimeError):
    """cuBLAS cannot be used here; the text says why."""


class Cublas:
    """A handle of cuBLAS in the current context. Give it back by `close()` or a `with` block."""

    name = "cublas"

    def __init__(self, library: Any = None) -> None:
        """library: one that has cuBLAS's functions, instead of searching; for tests.

        Raises NoCublas.
        """
        driver()
        self.file: Path | None = None
        if library is None:
            library, self.file = _load()
        if os.environ.get(_EMULATION, "0") not in ("", "0"):
            raise NoCublas(f"{_EMULATION} is set, so cuBLAS would not compute in FP32: unset it")
        self._library, self._handle = library, ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        try:
            self._call("cublasSetMathMode", self._handle, _DEFAULT_MATH)
            self.version = self._version()
        except BaseException:
            self.close()
            raise

    def launch(self, dA: Any, dB: Any, dC: Any, M: int, N: int, K: int, stream: Any = None) -> None:
        """Queue C = A * B on `stream` (None: the default stream) and return at once.

        Arguments and errors are those of helpers.kernels.Kernel.launch. NoCublas if cuBLAS fails.

        cuBLAS is column-major: what it reads as B is N x K, the transpose of B. Since C transposed
        is B transposed times A transposed, it is given B and A in this order, and writes what is C
        to a row-major reader.
        """
        if not self._handle:
            raise NoCublas("this handle of cuBLAS was closed: make another")
        a, b, c = (ctypes.c_void_p(int(at)) for at in checked_addresses(dA, dB, dC, M, N, K))
        M, N, K = (ctypes.c_int(int(size)) for size in (M, N, K))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        queue = ctypes.c_void_p(None if stream is None else stream.handle)
        self._call("cublasSetStream_v2", self._handle, queue)
        self._call(
            "cublasSgemm_v2", self._handle, _NO_TRANSPOSE, _NO_TRANSPOSE, N, M, K,
            ctypes.byref(one), b, N, a, K, ctypes.byref(zero), c, N,
        )  # fmt: skip

    def close(self) -> None:
        """Give the handle back; a second call does nothing."""
        if self._handle:
            handle, self._handle = self._handle, ctypes.c_void_p()
            self._library.cublasDestroy_v2(handle)

    def __enter__(self) -> Cublas:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _version(self) -> str:
        number = ctypes.c_int()
        self._call("cublasGetVersion_v2", self._handle, ctypes.byref(number))
        major, rest = divmod(number.value, 10_000)  # CUBLAS_VERSION in cublas_api.h
        return f"{major}.{rest // 100}.{rest % 100}"

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NoCublas(f"{name} failed: {_STATUS.get(status, 'status')} ({status})")


def candidates() -> Iterator[Path]:
    """The libcublas on this machine: the toolkit's, those of wheels, the loader's."""
    folders: list[Path] = []
    tools = toolkit.find_toolkit()
    if tools:
        folders += [tools.lib, tools.root / "lib64", tools.root / "targets/x86_64-linux/lib"]
    for place in map(Path, dict.fromkeys(sys.path)):
        folders += [*sorted(place.glob("nvidia/cu[0-9]*/lib"), reverse=True),
                    place / "nvidia/cublas/lib"]  # fmt: skip
    for folder in dict.fromkeys(folders):
        yield from sorted(folder.glob("libcublas.so.*"), key=_major, reverse=True)
    known = ctypes.util.find_library("cublas")
    if known:
        yield Path(known)


def _load() -> tuple[Any, Path]:
    if backend() == "cpu":
        raise NoCublas("cuBLAS is machine code for a GPU, and this is the CPU driver")
    newest = toolkit.driver_version()
    failed = []
    for file in candidates():
        if newest and _major(file) > newest[0]:
            failed.append(f"{file} is for CUDA {_major(file)}, the driver for {newest[0]}")
            continue
        try:
            partner = file.with_name(file.name.replace("libcublas", "libcublasLt"))
            if partner.is_file():
                ctypes.CDLL(str(partner), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(file)), file
        except OSError as error:
            failed.append(str(error))
    reasons = "; ".join(failed)
    raise NoCublas("no libcublas was found in the toolkit, in Python's packages or by the loader; "
                   "`pip install nvidia-cublas` gives one" if not reasons else
                   f"libcublas does not load: {reasons}")  # fmt: skip


def _major(file: Path) -> int:
    found = re.search(r"\.so\.(\d+)", file.name)
    return int(found.group(1)) if found else 0
