"""Figures of the engine itself, for `helpers.bench`: compiling, and kernels no lesson has yet.

They need no driver: PTX goes straight to `helpers.simt`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from helpers import opencl, simt
from helpers.check import check_product
from helpers.kernels import KERNELS
from helpers.sandbox import ptx_of
from helpers.simt import cache

REGISTER_TILE = Path(__file__).parent / "data" / "register_tile.cu"


def compile_seconds() -> dict[str, float]:
    """Seconds from PTX to machine code, by kernel; and from PTX to code found in the cache."""
    figures = {}
    sources = {
        "naive": (KERNELS["naive"].source, "matmul_naive", (32, 32, 1)),
        "tiled": (KERNELS["tiled"].source, "matmul_tiled", (32, 32, 1)),
        "register tile": (REGISTER_TILE.read_text(), "matmul_register_tile", (256, 1, 1)),
    }
    with _empty_cache():
        for name, (source, entry, block) in sources.items():
            ptx = ptx_of(source)
            for figure in (f"compile {name}", f"cached {name}"):
                start = time.perf_counter()
                module = simt.Module(ptx, simt.Memory(1 << 20))
                module.functions[entry].compiled(block)
                figures[figure] = time.perf_counter() - start
    return figures


def register_tile_rate(n: int) -> float:
    """FMA/s of the 8 x 8 register tile at n x n (a multiple of 128), best of five; checked."""
    product = _Product(REGISTER_TILE.read_text(), "matmul_register_tile", n)
    shape = (n // 128, n // 128, 1), (256, 1, 1)
    seconds = min(_seconds(lambda: product.function.launch(*shape, product.packed), 6))
    product.check()
    return n**3 / seconds


def sanitizing_cost(n: int) -> float:
    """How many times as long the tiled kernel takes at n x n when it is sanitized, with all checks
    and C not yet written; best of some each, compiled before."""
    kernel = KERNELS["tiled"]
    product = _Product(kernel.source, kernel.entry, n)
    run, shape = product.function, (kernel.grid(n, n), kernel.block, product.packed)
    plain = min(_seconds(lambda: run.launch(*shape), 6))
    product.check()
    unwritten = [(product.addresses[2], product.C.nbytes, 4)]
    found = run.sanitize(*shape, unwritten=unwritten)
    if found.observations or found.fault:
        raise RuntimeError("the sanitizer finds something in the tiled kernel")
    return min(_seconds(lambda: run.sanitize(*shape, unwritten=unwritten), 4)) / plain


class _Product:
    """A kernel in the engine, and n x n matrices for it."""

    def __init__(self, source: str, entry: str, n: int):
        self.A, self.B, self.C = (
            np.random.default_rng(k).standard_normal((n, n), dtype=np.float32) for k in range(3)
        )
        memory = simt.Memory(1 << 30)
        self.function = simt.Module(ptx_of(source), memory).functions[entry]
        self.addresses = [memory.allocate(self.A.nbytes) for _ in "ABC"]
        for address, array in zip(self.addresses, (self.A, self.B, self.C), strict=True):
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
        self.packed = struct.pack("<QQQiii", *self.addresses, n, n, n)

    def check(self) -> None:
        ctypes.memmove(self.C.ctypes.data, self.addresses[2], self.C.nbytes)
        verdict = check_product(self.C, self.A, self.B)
        if not verdict:
            raise RuntimeError(f"{self.function.name}: {verdict}")


def _seconds(run: Callable[[], object], times: int) -> list[float]:
    """Of each of some runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


def rates_by_cores(n: int) -> dict[int, float]:
    """`register_tile_rate` on 1, 2, 4 ... and all cores of this process, in processes of their own:
    the engine has one thread for each core that it may use."""
    cores = sorted(os.sched_getaffinity(0))
    counts = [2**k for k in range(len(cores).bit_length()) if 2**k < len(cores)] + [len(cores)]
    rates = {}
    for count in counts:
        with ProcessPoolExecutor(
            1,
            multiprocessing.get_context("spawn"),
            initializer=os.sched_setaffinity,
            initargs=(0, cores[:count]),
        ) as process:
            rates[count] = process.submit(register_tile_rate, n).result()
    return rates


def opencl_rate(n: int) -> float:
    """FMA/s of the naive kernel in OpenCL at n x n; checked. Raises opencl.NoOpenCL."""
    A, B = (np.random.default_rng(k).standard_normal((n, n), dtype=np.float32) for k in range(2))
    C, seconds = opencl.matmul_naive(A, B)
    verdict = check_product(C, A, B)
    if not verdict:
        raise RuntimeError(f"OpenCL: {verdict}")
    return n**3 / seconds


@contextmanager
def _empty_cache() -> Iterator[None]:
    before = cache.folder
    with tempfile.TemporaryDirectory() as folder:
        cache.folder = Path(folder)
        try:
            yield
        finally:
            cache.folder = before
