"""All kernels and cuBLAS over sizes: checked, timed, and refused where a result cannot be true.

    python -m helpers.benchmark                                   # a table
    python -m helpers.benchmark --kernels naive,tiled,cublas --sizes 1024,1000x3000x500
    python -m helpers.benchmark --json FILE                       # the same, for a program
    python -m helpers.benchmark --fingerprints --json helpers/data/h200.json   # a card's record

Sizes are n, or MxNxK: A is M x K, B is K x N. A kernel with another tile is written tiled_16.

Each result is compared with the float64 product before it is timed, and again after. Launches are
timed queued back to back (what a long computation sees), one at a time (what a program sees that
waits for each), and with --modes cold after the L2 cache was overwritten. While one benchmark runs,
others on the same GPU wait. Clocks and power are read while the kernels run; nothing is changed.

Without a GPU all of it runs on the CPU driver. Its times are CPU times, and are called so.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import importlib
import json
import math
import numbers
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.cards import Card, this_card
from helpers.ceilings import Ceilings, measure_ceilings
from helpers.check import Verdict, check_product
from helpers.cublas import Cublas, NoCublas
from helpers.errors import Told, WrongType, WrongValue
from helpers.gpu_lock import gpu_lock
from helpers.kernels import KERNELS, MEASURED, Kernel
from helpers.memory import DeviceArray, allocate, driver, upload
from helpers.nvml import Meter, Reading
from helpers.plausible import Impossible, Size, Unchecked, Watched, check_growth, check_product_rate
from helpers.products import product
from helpers.progress import Progress
from helpers.recorded import Record, fingerprint, seeded_matrices
from helpers.timing import Timing, backend, benchmark, gflops, launch_overhead

COMMAND = "python -m helpers.benchmark"
DEFAULT_KERNELS = (*KERNELS, *MEASURED, "cublas")
# Not 512: there cuBLAS takes less time than its calls from Python, 25 µs of 45 on an H200.
GPU_SIZES = ((1024,) * 3, (2048,) * 3, (4096,) * 3, (1000, 3000, 500))
CPU_SIZES = ((256,) * 3, (512,) * 3, (100, 300, 50))
MODES = ("queued", "alone", "cold")

#: (M, N, K) of the results whose bits are on record; small ones and every kind of edge.
RESULT_SIZES = (
    *((n, n, n) for n in (1, 31, 32, 33, 200, 1000, 1024)),
    (35, 19, 79),
    (1, 3, 500),
    (257, 129, 1),
)


class NoFigure(RuntimeError):
    """A figure cannot be had on this machine, or must not be written where it was to go."""


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0, or 1 when a result is refused or cannot be had."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kernels", type=_names, help=f"default: {','.join(DEFAULT_KERNELS)}")
    parser.add_argument("--sizes", type=sizes_of_text, help="n or MxNxK, with commas between them")
    parser.add_argument("--modes", type=_modes, default=MODES[:2], help="default: queued,alone")
    parser.add_argument("--seconds", type=_seconds, help="of timing for each row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--fingerprints", action="store_true", help="of the kernels' results too")
    options = parser.parse_args(arguments)
    try:
        importlib.import_module("helpers.autoinit")  # not before the options were read
        if options.json:
            check_target(options.json)
        found = sweep(
            options.kernels, options.sizes, options.modes, options.seconds, options.fingerprints
        )
        print(table(found))
        if options.json:
            write_json(options.json, found)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except Impossible as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    except (RuntimeError, Told, MemoryError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        if not type(error).__module__.startswith("pycuda"):
            raise
        print(f"error: {error}\nTo find it, run the same with MATMUL_BACKEND=cpu.", file=sys.stderr)
        return 1
    return 0


def sweep(
    kernels: Sequence[str] | None = None,
    sizes: Sequence[Size] | None = None,
    modes: Sequence[str] = MODES[:2],
    seconds: float | None = None,
    fingerprints: bool = False,
) -> dict[str, Any]:
    """Times of the kernels at the sizes, in each mode, with all that was measured besides.

    kernels: what helpers.products.product takes, or "cublas", which is left out with a word where
    there is none. sizes: n or (M, N, K). modes: some of MODES. Raises Impossible for a result that
    cannot be true, TypeError or ValueError for what is no kernel, size or mode.
    """
    gpu = backend() == "gpu"
    names = _listed("kernels", kernels or DEFAULT_KERNELS, "['tiled', 'cublas']")
    own = [name if isinstance(name, str) and name == "cublas" else product(name) for name in names]
    sizes = [_size(size) for size in _listed("sizes", sizes or (GPU_SIZES if gpu else CPU_SIZES),
                                             "[1024, (1000, 3000, 500)]")]  # fmt: skip
    modes = [_mode(mode) for mode in _listed("modes", modes, "['queued']")]
    cuda = driver()
    device = cuda.Context.get_device()
    meter, card = Meter.of_context(), this_card()
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive())
        cublas = _cublas(stack) if "cublas" in own else None
        subjects = [cublas if subject == "cublas" else subject for subject in own]
        subjects = [subject for subject in subjects if subject is not None]
        if meter.obstacle:
            print(f"Not recorded: {meter.obstacle}.")
        overhead = launch_overhead()
        ceilings = measure_ceilings() if gpu else None
        rows = []
        with Progress(len(sizes) * len(subjects) * len(modes)) as progress:
            for size in sizes:
                run = _Size(size, card, meter, seconds or (0.3 if gpu else 0.05), gpu)
                rows += run.rows(subjects, modes, progress)
        if gpu:
            tiles = {s.name: s.tile for s in subjects if isinstance(s, Kernel)}
            _check_growth(rows, card, tiles)
        results = []
        if fingerprints:
            ours = [subject for subject in subjects if isinstance(subject, Kernel)]
            results = list(recorded_results(ours))
    major, minor = device.compute_capability()
    return {
        "source": COMMAND,
        "backend": backend(),
        "card": device.name(),
        "clock": rows[0]["clock"] if rows else "",
        "compute_capability": f"{major}.{minor}",
        "driver": _driver_version(meter),
        "driver_cuda": _dotted(cuda.get_driver_version()),
        "nvcc": nvcc_version(),
        "cublas": cublas.version if cublas else None,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "l2_bytes": card.l2_bytes,
        "method": (
            "CUDA events around batches of launches (queued: back to back; alone: one launch, "
            "waited for; cold: one launch after the L2 cache was overwritten), warmed up until the "
            "median settles to 1%, median and its 95% bootstrap interval, random normal FP32 "
            "inputs, each result checked before and after"
        ),
        "overhead_ms": {
            key: round(value, 5)
            for key, value in vars(overhead).items()
            if key != "backend"
        },
        "ceilings": ceilings.to_dict() if ceilings else None,
        "times": rows,
        "results": results,
    }


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock of this GPU in the `with` block (helpers.gpu_lock); nothing to hold without."""
    with contextlib.ExitStack() as stack:
        if backend() == "gpu":
            device = driver().Context.get_device()
            stack.enter_context(gpu_lock(device.pci_bus_id(), COMMAND))
        yield


def time_product(
    kernel: Any, M: int, N: int, K: int, mode: str = "queued", seconds: float = 0.1
) -> Timing:
    """Time one kernel at one size; checked and refused as in a sweep.

    kernel: what helpers.products.product takes, or "cublas". mode: one of MODES. Raises Impossible,
    and NoCublas where there is none.
    """
    size, mode = _size((M, N, K)), _mode(mode)
    with contextlib.ExitStack() as stack:
        is_cublas = isinstance(kernel, str) and kernel == "cublas"
        subject = stack.enter_context(Cublas()) if is_cublas else product(kernel)
        stack.enter_context(exclusive())
        run = _Size(size, this_card(), Meter.of_context(), seconds, backend() == "gpu")
        with run.arrays() as arrays:
            run.prove(subject, arrays)
            return run.time(subject, arrays, mode)[0]


def times_of(kernels: Iterable[Any], n: int, seconds: float = 0.1) -> dict[str, float]:
    """Milliseconds of each kernel at n x n, queued back to back, by name; see `time_product`."""
    subjects = [product(kernel) for kernel in _listed("kernels", kernels, "['tiled']")]
    return {s.name: time_product(s, n, n, n, seconds=seconds).median_ms for s in subjects}


def _listed(name: str, values: Any, example: str) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise WrongType(f"{name}={values!r} is no list: write {name}={example}")
    return list(values)


def _size(size: Any) -> Size:
    """(M, N, K) of that or of n."""
    three = (size,) * 3 if isinstance(size, numbers.Integral) else size
    good = isinstance(three, (tuple, list)) and len(three) == 3 and all(
        isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in three
    )  # fmt: skip
    if not good:
        raise WrongType(f"{size!r} is no size: write n, or M, N, K, as integers")
    if min(three) < 1:
        raise WrongValue(f"M, N, K = {', '.join(map(str, three))}: sizes are at least 1")
    return tuple(int(n) for n in three)


def _mode(mode: Any) -> str:
    if mode not in MODES:
        raise WrongValue(f"mode={mode!r} is none of {', '.join(MODES)}")
    return mode


class _Size:
    """Times kernels at one size, on the same matrices."""

    def __init__(self, size: Size, card: Card, meter: Meter, seconds: float, gpu: bool) -> None:
        self.size, self.card, self.meter = size, card, meter
        self.seconds, self.gpu = seconds, gpu
        M, N, K = size
        random = np.random.default_rng([M, N, K])
        self.A = random.standard_normal((M, K), dtype=np.float32)
        self.B = random.standard_normal((K, N), dtype=np.float32)
        self.right: list[tuple[NDArray[np.float32], Verdict]] = []  # results that were checked

    @contextlib.contextmanager
    def arrays(self) -> Iterator[tuple[DeviceArray, ...]]:
        """A, B and C on the device."""
        with upload(self.A) as dA, upload(self.B) as dB, allocate(self.size[:2]) as dC:
            yield dA, dB, dC

    def rows(self, subjects: Iterable[Any], modes: Sequence[str], progress: Progress) -> list[dict]:
        """A row for each kernel and mode."""
        found = []
        with self.arrays() as arrays:
            for subject in subjects:
                self.prove(subject, arrays)
                for mode in modes:
                    progress.step(f"{subject.name} {_text(self.size)} {mode}")
                    timed = self.time(subject, arrays, mode)
                    found.append(_row(subject.name, self.size, mode, *timed))
        return found

    def prove(self, subject: Any, arrays: tuple[DeviceArray, ...]) -> None:
        """One launch, before any is timed: is the product right? Raises Impossible."""
        with Watched(arrays[2]):
            subject.launch(*arrays, *self.size)
        self.check(subject.name, arrays[2])

    def time(
        self, subject: Any, arrays: tuple[DeviceArray, ...], mode: str
    ) -> tuple[Timing, Reading | None]:
        """One kernel in one mode, and what clocks and power were meanwhile. Raises Impossible."""
        readings = []
        launch = functools.partial(subject.launch, *arrays, *self.size)
        if mode != "alone" and isinstance(subject, Kernel):  # alone: as a program launches it
            launch = subject.launcher(*arrays, *self.size)
        with Watched(arrays[2]):
            timing = benchmark(
                launch,
                cold=mode == "cold",
                alone=mode == "alone",
                seconds=self.seconds,
                least=11 if self.gpu else 3,
                while_busy=lambda: readings.append(self.meter.read()),
            )
        verdict = self.check(subject.name, arrays[2])
        if self.gpu:
            check_product_rate(
                *self.size, timing.median_ms, self.card, verdict=verdict, cold=mode == "cold"
            )
        return timing, readings[0]

    def check(self, name: str, dC: DeviceArray) -> Verdict:
        """What is said of a result; a result of the same bits as one that passed passes too."""
        C = dC.download()
        for right, verdict in self.right:
            if np.array_equal(C, right):
                return verdict
        verdict = check_product(C, self.A, self.B)
        if not verdict:
            raise Unchecked(f"kernel {name!r} at {_text(self.size)}: {verdict}")
        self.right.append((C, verdict))
        return verdict


def _row(
    name: str, size: Size, mode: str, timing: Timing, reading: Reading | None
) -> dict[str, Any]:
    M, N, K = size
    low, high = timing.interval()
    row = {
        "kernel": name, "M": M, "N": N, "K": K, "mode": mode,
        "median_ms": _rounded(timing.median_ms), "low_ms": _rounded(low), "high_ms": _rounded(high),
        "min_ms": _rounded(timing.min_ms), "max_ms": _rounded(timing.max_ms),
        "tflops": round(gflops(M, N, K, timing.median_ms) / 1e3, 4),
        "repeats": timing.repeats, "batch": timing.batch, "settled": timing.settled,
        "clock": timing.clock,
    }  # fmt: skip
    if reading is not None:
        told = reading.to_dict()
        keys = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "throttle")
        row |= {key: told[key] for key in keys}
    return row


def _check_growth(
    rows: list[dict[str, Any]], card: Card, tiles: dict[str, tuple[int, int]]
) -> None:
    """Refuses a kernel whose times do not grow with the work. tiles: of C, by kernel."""
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        for mode in MODES:
            times = [((row["M"], row["N"], row["K"]), row["median_ms"]) for row in rows
                     if (row["kernel"], row["mode"]) == (kernel, mode)]  # fmt: skip
            try:
                check_growth(times, card, tiles.get(kernel, (1, 1)))
            except Impossible as error:
                raise type(error)(f"kernel {kernel!r}, {mode}: {error}") from None


def _cublas(stack: contextlib.ExitStack) -> Cublas | None:
    try:
        return stack.enter_context(Cublas())
    except NoCublas as error:
        print(f"Without cuBLAS: {error}.")
        return None


def recorded_results(kernels: Iterable[Kernel]) -> Iterator[dict[str, Any]]:
    """The fingerprint of the result of every kernel at every size of RESULT_SIZES."""
    for M, N, K in RESULT_SIZES:
        A, B = seeded_matrices(M, N, K)
        for kernel in kernels:
            yield {
                "kernel": kernel.name, "M": M, "N": N, "K": K, "sha256": fingerprint(kernel(A, B))
            }  # fmt: skip


def table(found: Mapping[str, Any] | Record, *, recorded: bool = False) -> str:
    """The times in columns, a line for each kernel and size, under what they are times of.

    found: of `sweep`, or a Record, which is called recorded. What it does not have is left out.
    """
    if isinstance(found, Record):
        found, recorded = found.content, True
    rows = found["times"]
    if not rows:
        raise WrongValue("there are no times in it")
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    first = modes[0]
    by_key = {(r["kernel"], r["M"], r["N"], r["K"], r["mode"]): r for r in rows}
    whose = "recorded on " if recorded else ""
    clock = found.get("clock") or rows[0].get("clock", "time")
    lines = [f"{whose}{found['card']}, {found['date']}: {clock} of one launch in ms"]
    heads = {"queued": "back to back", "alone": "one at a time", "cold": "L2 flushed"}
    lines.append(f"{'kernel':19}{'M x N x K':>16}" + "".join(f"{heads[m]:>15}" for m in modes)
                 + f"{'95% interval':>21}{'GFLOP/s':>10}{'of cuBLAS':>11}")  # fmt: skip
    for row in rows:
        if row["mode"] != first:
            continue
        key = (row["kernel"], row["M"], row["N"], row["K"])
        medians = (by_key.get((*key, mode), {}).get("median_ms") for mode in modes)
        times = "".join(f"{'-':>15}" if ms is None else f"{ms:>15.4f}" for ms in medians)
        interval = f"{row['low_ms']:.4f} to {row['high_ms']:.4f}" if "low_ms" in row else ""
        best = by_key.get(("cublas", *key[1:], first))
        share = f"{best['median_ms'] / row['median_ms']:>10.1%}" if best else ""
        lines.append(f"{row['kernel']:19}{_text(key[1:]):>16}{times}{interval:>21}"
                     f"{row['tflops'] * 1e3:>10,.0f}{share:>11}".rstrip())  # fmt: skip
    overhead = found.get("overhead_ms")
    if overhead:
        lines.append(f"An empty kernel takes {overhead['queued_ms'] * 1e3:.1f} µs back to back and "
                     f"{overhead['alone_ms'] * 1e3:.1f} µs alone; that is part of the times above.")
    held = [r for r in rows if set(r.get("throttle") or ()) - {"idle"}]
    if held:
        reasons = sorted({reason for r in held for reason in r["throttle"]} - {"idle"})
        lines.append(f"Clocks were held back in {len(held)} of {len(rows)}: {', '.join(reasons)}.")
    unsettled = [r for r in rows if not r.get("settled", True)]
    if unsettled:
        lines.append(f"{len(unsettled)} of {len(rows)} were still changing after the warm-up.")
    if found.get("cublas"):
        lines.append(f"cuBLAS {found['cublas']}, in FP32 without TF32.")
    if found.get("ceilings"):
        lines.append(f"Measured ceilings: {Ceilings(**found['ceilings'])}.")
    if found.get("backend") == "cpu":
        lines.append("These are CPU times. They say nothing about any GPU.")
    return "\n".join(lines)


def check_target(file: Path) -> None:
    """Raise NoFigure where the file could not be written, or CPU times would take the place of a
    GPU's record. To be asked before anything is measured."""
    if not file.parent.is_dir():
        raise NoFigure(f"--json {file}: there is no folder {file.parent}")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        why = "it is a folder" if file.is_dir() else "it may not be written to"
        raise NoFigure(f"--json {file}: {why}")
    if backend() == "gpu" or not file.exists():
        return
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(kept, dict) and "card" in kept and kept.get("backend", "gpu") == "gpu":
        raise NoFigure(
            f"{file} holds times of a GPU ({kept['card']}), and this is the CPU driver: give "
            "another file"
        )


def write_json(file: Path, content: dict[str, Any]) -> None:
    """As JSON, one line for each row of a list."""
    file.write_text(json_text(content) + "\n", encoding="utf-8")
    print(f"wrote {file}")


def json_text(content: Mapping[str, Any], indent: str = "") -> str:
    """JSON with one line for each row of a list. indent: of the line that closes it."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            rows = ",\n".join(f"{indent}  {json.dumps(row)}" for row in value)
            text = f"[\n{rows}\n{indent} ]" if value else "[]"
        else:
            text = json.dumps(value)
        lines.append(f'{indent} "{key}": {text}')
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _driver_version(meter: Meter) -> str | None:
    reading = meter.read()
    if reading is not None and reading.driver:
        return reading.driver
    if backend() == "cpu":
        return None
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return _output_of(query).splitlines()[0]  # one line for each GPU


def nvcc_version() -> str:
    """nvcc's release, "13.0.88", or all that it says of itself if that is not in it."""
    from helpers.toolkit import require_toolkit

    text = _output_of([str(require_toolkit().nvcc), "--version"])
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else text


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoFigure(f"{command[0]} does not answer: {error}") from error
    return done.stdout.strip()


def _dotted(version: int) -> str:
    """13000 -> "13.0", as the driver API writes versions."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _rounded(ms: float) -> float:
    """To five digits: finer than any clock here."""
    return float(f"{ms:.5g}")


def _text(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


# -- options ----------------------------------------


def _names(text: str) -> list[str]:
    names = [name for name in re.split(r"[,\s]+", text) if name]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names no kernel")
    try:
        for name in names:
            if name != "cublas":
                product(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return names


def sizes_of_text(text: str) -> list[Size]:
    """The (M, N, K) that a command line names: "1024,16x16384x4096". Raises what argparse tells."""
    sizes = []
    for word in filter(None, re.split(r"[,\s]+", text)):
        parts = word.lower().split("x")
        good = len(parts) in (1, 3) and all(n.isdecimal() and int(n) > 0 for n in parts)
        if not good:
            raise argparse.ArgumentTypeError(f"{word!r} is no size: write n or MxNxK")
        sizes.append(tuple(map(int, parts)) * (3 // len(parts)))
    if not sizes:
        raise argparse.ArgumentTypeError(f"{text!r} has no size: write n or MxNxK")
    return sizes


def _modes(text: str) -> list[str]:
    modes = text.split(",")
    if not set(modes) <= set(MODES):
        raise argparse.ArgumentTypeError(f"modes are {', '.join(MODES)}")
    return modes


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
