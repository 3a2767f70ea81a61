"""Both kernels at N = 1024 in a terminal: verified, timed, compared.

    python -m helpers.demo            # or: make demo

Exit status: 0 when every check passes, 1 otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from helpers.check import check_product
from helpers.kernels import KERNELS, Kernel
from helpers.memory import allocate, upload
from helpers.recorded import h200
from helpers.timing import Timing, gflops, time_kernel

NAMES = ("naive", "tiled")
CLOSE = 1e-3  # how near the two results must be when all inputs are 1.0


def main(arguments: list[str] | None = None) -> int:
    """Print the checks and the table; 0 when all passed."""
    parser = argparse.ArgumentParser(prog="python -m helpers.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--n", type=int, default=1024, help="size of the matrices (1024)")
    n = parser.parse_args(arguments).n
    if n < 1:
        parser.error(f"--n {n}: the size must be at least 1")
    try:
        return demo(n)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (RuntimeError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def demo(n: int) -> int:
    """The whole demonstration for n x n matrices; the exit status.

    Raises RuntimeError, with the reason, when a kernel cannot be compiled or launched here.
    """
    autoinit = importlib.import_module("helpers.autoinit")  # says which backend runs
    cuda = importlib.import_module("pycuda.driver")
    try:
        return _demo(n, autoinit)
    except cuda.Error as error:
        raise RuntimeError(str(error)) from error


def _demo(n: int, autoinit: Any) -> int:
    print(f"\nC = A * B in FP32, M = N = K = {n}, on {autoinit.device.name()}\n")
    passed = True
    for what, verdict in checks(n):
        print(f"{what}: {verdict}", flush=True)
        passed &= bool(verdict)
    gpu = autoinit.backend == "gpu"
    timings = {name: time_square(KERNELS[name], n, repeats=20 if gpu else 3) for name in NAMES}
    print()
    print(table(timings, n))
    print("\nPASS" if passed else "\nFAIL")
    return 0 if passed else 1


def checks(n: int) -> Iterator[tuple[str, Any]]:
    """What was checked and the outcome, whose text begins with PASS or FAIL."""
    ones = np.ones((n, n), np.float32)
    yield "all inputs 1.0", _Close(*(KERNELS[name](ones, ones) for name in NAMES))
    A, B = _random_matrices(n)
    for name in NAMES:
        yield f"random inputs, {name}", check_product(KERNELS[name](A, B), A, B)


class _Close:
    """Whether every element of two results is within CLOSE of the other's."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.elements = first.size
        self.wrong = int((~(np.abs(first - second) <= CLOSE)).sum())  # NaN is wrong

    def __bool__(self) -> bool:
        return self.wrong == 0

    def __str__(self) -> str:
        names = " and ".join(NAMES)
        if self:
            return f"PASS: {self.elements:,} elements of {names} within {CLOSE} of each other"
        return f"FAIL: {self.wrong:,} of {self.elements:,} elements of {names} further than {CLOSE}"


def time_square(kernel: Kernel, n: int, repeats: int) -> Timing:
    """Time one launch for random n x n matrices in device memory."""
    A, B = _random_matrices(n)
    with upload(A) as dA, upload(B) as dB, allocate((n, n)) as dC:
        return time_kernel(
            lambda: kernel.launch(dA, dB, dC, n, n, n), repeats=repeats, warmup=min(3, repeats)
        )


def table(timings: dict[str, Timing], n: int) -> str:
    """Time, GFLOP/s and speed-up of the kernels; beside CPU times what an H200 takes."""
    timing = next(iter(timings.values()))
    title = "this GPU" if timing.backend == "gpu" else "this CPU (CPU times, not GPU times)"
    lines = [title, *_rows({name: timing.median_ms for name, timing in timings.items()}, n)]
    if timing.backend == "cpu" and n in h200().sizes:
        record = h200()
        lines += ["", f"recorded: {record}"]
        lines += _rows({name: record.ms(name, n) for name in timings}, n)
    return "\n".join(lines)


def _rows(times_ms: dict[str, float], n: int) -> Iterator[str]:
    yield f"{'kernel':10}{'time':>14}{'GFLOP/s':>12}{'speed-up':>12}"
    first = next(iter(times_ms.values()))
    for name, ms in times_ms.items():
        yield f"{name:10}{ms:>11.3f} ms{gflops(n, n, n, ms):>12,.1f}{first / ms:>11.2f}x"


def _random_matrices(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    return (
        random.standard_normal((n, n), dtype=np.float32),
        random.standard_normal((n, n), dtype=np.float32),
    )


if __name__ == "__main__":
    sys.exit(main())
