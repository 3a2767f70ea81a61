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
from collections.abc import Iterator
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
    A, B, C = (np.random.default_rng(k).standard_normal((n, n), dtype=np.float32) for k in range(3))
    memory = simt.Memory(1 << 30)
    function = simt.Module(ptx_of(REGISTER_TILE.read_text()), memory).functions[
        "matmul_register_tile"
    ]
    addresses = [memory.allocate(A.nbytes) for _ in "ABC"]
    for address, array in zip(addresses, (A, B, C), strict=True):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        function.launch(
            (n // 128, n // 128, 1), (256, 1, 1), struct.pack("<QQQiii", *addresses, n, n, n)
        )
        seconds.append(time.perf_counter() - start)
    ctypes.memmove(C.ctypes.data, addresses[2], C.nbytes)
    verdict = check_product(C, A, B)
    if not verdict:
        raise RuntimeError(f"register tile: {verdict}")
    return n**3 / min(seconds)


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
