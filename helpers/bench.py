"""How well the project itself does on this machine, beside the figures to reach.

    python -m helpers.bench                       # or: make bench
    python -m helpers.bench --json FILE           # the same figures, for a program

For times of kernels on a GPU, and a card's record, see helpers.benchmark.

A figure is the best of several runs for rates (noise only slows down), the median elsewhere.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from helpers import bench_engine, opencl
from helpers.benchmark import NoFigure, write_json
from helpers.check import check_product
from helpers.kernels import KERNELS, Kernel
from helpers.memory import DeviceArray, allocate, driver, upload
from helpers.recorded import seeded_matrices
from helpers.timing import Timing, time_kernel

#: Whose rates are measured: one element of C per thread.
SIMPLE = [kernel.name for kernel in KERNELS.values() if kernel.lesson <= 3]

#: Figures to reach on the CPU driver: two cores with AVX-512, bounds checks on.
TARGETS = {
    "naive 1024": 1.6e10,
    "naive_uncoalesced 1024": 3.0e9,
    "tiled 1024": 1.8e10,
    "register tile 1024": 2.0e10,
    "edit to result": 2.0,
    "compile naive": 0.3,
    "compile tiled": 0.3,
    "compile register tile": 1.0,
    "cached naive": 0.01,
    "cached tiled": 0.01,
    "cached register tile": 0.01,
    "sanitized tiled 1024": 8.0,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0, or 1 when a result is wrong or cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m helpers.bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args(arguments)
    try:
        figures = measure()
        print(table(figures))
        if options.json:
            write_json(options.json, figures)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def measure() -> dict[str, Any]:
    """All figures of this machine: FMA/s by kernel and size, times in seconds, and how many times
    as long a launch takes in another way."""
    autoinit = _autoinit()
    cpu = autoinit.backend == "cpu"
    rates = {
        f"{name} {n}": n**3 / (timing.min_ms * 1e-3)
        for n in (512, 1024)
        for name in SIMPLE
        for timing in [_time(KERNELS[name], n, repeats=5 if cpu else 20)]
    }
    seconds = {
        "edit to result": statistics.median(_edit_to_result() for _ in range(3)),
        "launch": _launch_overhead(),
    }
    ratios = {}
    if cpu:
        ratios = {"sanitized tiled 1024": bench_engine.sanitizing_cost(1024)}
        rates |= {"register tile 1024": bench_engine.register_tile_rate(1024)}
        rates |= _opencl_rate()
        seconds |= bench_engine.compile_seconds()
        rates |= {
            f"register tile 2048, cores: {cores}": rate
            for cores, rate in bench_engine.rates_by_cores(2048).items()
        }
    return {
        "backend": autoinit.backend,
        "device": autoinit.device.name(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "fma_per_s": rates,
        "seconds": seconds,
        "times_as_long": ratios,
        "targets": TARGETS if cpu else {},
    }


def table(figures: dict[str, Any]) -> str:
    """The figures of `measure` in columns, with how many times the target each one is."""
    clock = "GPU times" if figures["backend"] == "gpu" else "CPU times, not GPU times"
    lines = [f"{figures['device']} ({clock})", f"{'':30}{'measured':>16}{'target':>16}{'ratio':>8}"]
    for name, rate in figures["fma_per_s"].items():
        target = figures["targets"].get(name)
        ratio = f"{target:>10.1e} FMA/s{rate / target:>7.2f}x" if target else ""
        lines.append(f"{name:30}{rate:>10.2e} FMA/s{ratio}")
    for name, seconds in figures["seconds"].items():
        target = figures["targets"].get(name)
        ratio = f"{target:>14.2f} s{target / seconds:>7.2f}x" if target else ""
        shown = f"{seconds:.2f} s" if seconds > 0.01 else f"{seconds * 1e6:.1f} µs"
        lines.append(f"{name:30}{shown:>16}{ratio}")
    for name, times in figures["times_as_long"].items():
        target = figures["targets"].get(name)
        ratio = f"{target:>15.1f}x{target / times:>7.2f}x" if target else ""
        lines.append(f"{name:30}{times:>15.1f}x{ratio}")
    ours, theirs = (figures["fma_per_s"].get(n) for n in ("naive 512", "naive 512 on PoCL"))
    if theirs:
        lines.append(
            f"The CPU driver runs the naive kernel {ours / theirs:.1f} times as fast as PoCL."
        )
    lines.append("A ratio of 1 or more reaches the target.")
    return "\n".join(lines)


def _opencl_rate() -> dict[str, float]:
    """The same naive kernel on PoCL, where that is installed."""
    try:
        return {"naive 512 on PoCL": bench_engine.opencl_rate(512)}
    except opencl.NoOpenCL as error:
        print(f"no comparison with PoCL: {error}")
        return {}


def _autoinit() -> Any:
    """`helpers.autoinit`, which makes the context: not before the options were read."""
    return importlib.import_module("helpers.autoinit")


def _time(kernel: Kernel, n: int, repeats: int) -> Timing:
    """Time a kernel at n x n on checked results."""
    random = np.random.default_rng(n)
    A = random.standard_normal((n, n), dtype=np.float32)
    B = random.standard_normal((n, n), dtype=np.float32)
    with upload(A) as dA, upload(B) as dB, allocate((n, n)) as dC:
        timing = time_kernel(lambda: kernel.launch(dA, dB, dC, n, n, n), repeats=repeats)
        _check(kernel, dC, A, B)
    return timing


def _check(kernel: Kernel, dC: DeviceArray, A: np.ndarray, B: np.ndarray) -> None:
    verdict = check_product(dC.download(), A, B)
    if not verdict:
        raise NoFigure(f"kernel {kernel.name!r}: {verdict}")


def _edit_to_result() -> float:
    """Seconds from a changed kernel text to its result on the host; never seen by any cache."""
    from pycuda.compiler import SourceModule

    n = 256
    A, B = seeded_matrices(n, n, n)
    unique = f"float sum = K == -{time.time_ns() % 10**9 + 1} ? 1.0f : 0.0f;"
    source = KERNELS["tiled"].source
    edited = source.replace("float sum = 0.0f;", unique)
    if edited == source:
        raise NoFigure("the text of the tiled kernel has no 'float sum = 0.0f;' to edit")
    start = time.perf_counter()
    function = SourceModule(edited).get_function("matmul_tiled")
    with upload(A) as dA, upload(B) as dB, allocate((n, n)) as dC:
        sizes = (np.int32(n),) * 3
        function(dA, dB, dC, *sizes, block=(32, 32, 1), grid=KERNELS["tiled"].grid(n, n))
        dC.download()
        seconds = time.perf_counter() - start
        _check(KERNELS["tiled"], dC, A, B)
    return seconds


def _launch_overhead() -> float:
    """Seconds for one launch of a kernel that has next to nothing to do."""
    kernel, launches = KERNELS["naive"], 200
    with allocate((1, 1), fill=1) as dA, allocate((1, 1), fill=1) as dB, allocate((1, 1)) as dC:

        def some() -> float:
            start = time.perf_counter()
            for _ in range(launches):
                kernel.launch(dA, dB, dC, 1, 1, 1)
            driver().Context.synchronize()
            return (time.perf_counter() - start) / launches

        some()
        return _least(some, 5)


def _least(measure_once: Callable[[], float], times: int) -> float:
    return min(measure_once() for _ in range(times))


if __name__ == "__main__":
    sys.exit(main())
