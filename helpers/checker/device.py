"""The same kernel on a GPU, if there is one: only after it has passed in the engine, so that it
cannot spoil the context that a notebook's arrays live in."""

from __future__ import annotations

import sys

import numpy as np

from helpers.check import check_product

from .diagnosis import Diagnosis
from .subject import Shape, Subject
from .trial import matrices, size


def on_gpu(subject: Subject, shapes: list[Shape]) -> Diagnosis | None:
    """What is wrong on the GPU of this process's context. None too where there is no GPU: the CPU
    driver is the engine, where the kernel has run already."""
    if not _has_gpu():
        return None
    from helpers.compiling import compiled
    from helpers.kernels import allow_shared
    from helpers.memory import allocate, upload

    function = compiled(subject.source, subject.options).function(subject.entry)
    allow_shared(function, subject.shared)
    for shape in shapes:
        M, N, K = shape
        A, B = matrices(shape)
        given = np.ascontiguousarray(B.T) if subject.b_transposed else B
        with upload(A) as dA, upload(given) as dB, allocate((M, N)) as dC:
            function(dA, dB, dC, np.int32(M), np.int32(N), np.int32(K), block=subject.block,
                     grid=subject.grid(M, N), shared=subject.shared)  # fmt: skip
            verdict = check_product(dC.download(), A, B)
        if not verdict:
            return Diagnosis("wrong on the GPU only", (f"With {size(shape)}, on the GPU: "
                             f"{verdict}",))  # fmt: skip
    return None


def _has_gpu() -> bool:
    """Whether this process has loaded a GPU's driver."""
    from helpers.cpu_driver import is_loaded

    return "helpers.autoinit" in sys.modules and not is_loaded()
