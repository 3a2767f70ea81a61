"""A cuBLAS for the CPU driver, whose device pointers are addresses of this process.

Column-major as the real one: a matrix of r x c with leading dimension ld has element (i, j) at
i + j * ld.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


class FakeCublas:
    """What helpers.cublas calls. `calls` has the names; `status` makes a function fail."""

    def __init__(self, status: dict[str, int] | None = None) -> None:
        self.calls: list[str] = []
        self.status = status or {}
        self.mode: int | None = None
        self.stream: int | None = None

    def _done(self, name: str) -> int:
        self.calls.append(name)
        return self.status.get(name, 0)

    def cublasCreate_v2(self, handle: Any) -> int:
        handle._obj.value = 99
        return self._done("cublasCreate_v2")

    def cublasDestroy_v2(self, handle: Any) -> int:
        assert handle.value == 99
        return self._done("cublasDestroy_v2")

    def cublasSetMathMode(self, handle: Any, mode: int) -> int:
        self.mode = mode
        return self._done("cublasSetMathMode")

    def cublasGetVersion_v2(self, handle: Any, version: Any) -> int:
        version._obj.value = 130102
        return self._done("cublasGetVersion_v2")

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        self.stream = stream.value
        return self._done("cublasSetStream_v2")

    def cublasSgemm_v2(
        self, handle, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
    ) -> int:
        assert (handle.value, trans_a, trans_b) == (99, 0, 0)
        assert (alpha._obj.value, beta._obj.value) == (1, 0)
        left = _matrix(a, m.value, k.value, lda.value)
        right = _matrix(b, k.value, n.value, ldb.value)
        _matrix(c, m.value, n.value, ldc.value)[:] = left @ right
        return self._done("cublasSgemm_v2")


def _matrix(pointer: Any, rows: int, columns: int, leading: int) -> np.ndarray:
    assert leading >= rows
    data = (ctypes.c_float * (leading * columns)).from_address(pointer.value)
    return np.frombuffer(data, np.float32).reshape(columns, leading).T[:rows]
