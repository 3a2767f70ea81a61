"""Which constants of cuda/09_last_percent.cu are the fastest on this GPU, for each of some sizes.

    python -m helpers.tune                                  # a table; needs a GPU
    python -m helpers.tune --sizes 1024,16x16384x4096 --json helpers/data/tuning.json

Candidates are all combinations of a few values for each constant that the kernel accepts. What does
not compile, spills registers to local memory or does not fit a multiprocessor is left out. Each of
the others is checked at small ragged sizes. At each size all are timed in haste, and the FINALISTS
fastest with care, and the MORE_FINALISTS fastest of those with MANY_SLICES or more, after their
products were checked there too: launches queued back to back, in
short bursts after a pause, since a card lowers its clock when it has been busy for long. cuBLAS is
timed before and after, if there is one, and its largest error against float64 is compared.

With --json the file is read first, and what is in it of the same card, nvcc and source is not
measured again: a run that was interrupted goes on. helpers.best chooses by this file: no constants
whose error is larger than cuBLAS's where there are others, and of those within TIE of the fastest
the ones with the most slices, whose rounding errors are smallest.

Beside it, helpers/data/loop_forms.json keeps what was tried with the loop itself: what was counted
in its machine code, what was expected of it, and what came of it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import importlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers.benchmark import (
    NoFigure,
    check_target,
    exclusive,
    json_text,
    nvcc_version,
    sizes_of_text,
)
from helpers.best import SAFE, Constants, read_record, unreadable
from helpers.check import check_product
from helpers.cublas import Cublas, NoCublas
from helpers.errors import Told, WrongType, WrongValue
from helpers.kernels import Kernel, allow_shared, last_percent
from helpers.memory import DeviceArray, allocate, driver, upload
from helpers.progress import Progress
from helpers.sizes import checked_size
from helpers.timing import backend, gflops

COMMAND = "python -m helpers.tune"
TIE = 0.005  # of the fastest time: what is nearer is as fast
FINALISTS = 5
MANY_SLICES = 4
MORE_FINALISTS = 2  # with so many slices: exact ones, where cuBLAS splits K too
SIZES = (
    *((n, n, n) for n in (1000, 1024, 1500, 2000, 2047, 2048, 3000, 4000, 4093, 4096, 4100, 5000,
                           8192)),
    (1000, 3000, 500),
    (8191, 129, 2047),
    (16, 16384, 4096),
)
CHECKED = ((133, 261, 77), (133, 300, 77))  # no multiples of any tile; rows of whole float4 or not
BURST_MS = 40.0  # of launches between two events
HASTE_MS = 6.0
PAUSE = 0.1  # seconds before a burst

#: Blocks of C and the threads' share of it, BM, BN, TM, TN, LANES_M; and for each of them SLICES,
#: RESIDENT, and depths: BK, STAGES. COPY_AT is tried at a quarter and at half of the steps.
_BLOCKS = {
    (128, 256, 16, 8, 4): ((1,), (1,), ((8, 6), (16, 3), (16, 4))),
    (128, 128, 16, 8, 4): ((2,), (1,), ((16, 3), (16, 4), (32, 3))),
    (64, 256, 16, 8, 4): ((2,), (1,), ((16, 3), (16, 4), (32, 3))),
    (64, 128, 16, 8, 4): ((2, 4), (1, 2), ((16, 3), (16, 4), (32, 3), (32, 4))),
    (256, 32, 16, 8, 8): ((2, 4), (1, 2), ((16, 3), (16, 4), (32, 3))),
    (128, 48, 8, 12, 8): ((2, 4), (1, 2), ((32, 3), (64, 3))),
    (16, 128, 8, 8, 2): ((4, 8), (1,), ((32, 4), (64, 3))),
}

Size = tuple[int, int, int]


def main(arguments: list[str] | None = None) -> int:
    """Tune; the exit status is 0, or 1 when a result is wrong or there is no GPU."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sizes", type=sizes_of_text, help="n or MxNxK, with commas between them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to FILE")
    options = parser.parse_args(arguments)
    try:
        importlib.import_module("helpers.autoinit")  # not before the options were read
        if options.json:
            check_target(options.json)
        if backend() != "gpu":
            raise NoFigure("this is the CPU driver: its times say nothing of a GPU's")
        record = tune(options.sizes or SIZES, options.json)
        print(table(record))
    except KeyboardInterrupt:
        print("\ninterrupted: run the same again to go on", file=sys.stderr)
        return 130
    except (RuntimeError, Told, MemoryError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def candidates(shared_limit: int) -> list[Constants]:
    """All constants worth trying on a GPU whose multiprocessors have so many bytes of shared
    memory, the safe ones among them."""
    found = [SAFE]
    combined = (
        (*block, *depth, slices, resident, max(depth[0] // slices // part, 1))
        for block, (all_slices, residents, depths) in _BLOCKS.items()
        for slices, resident, depth, part in itertools.product(
            all_slices, residents, depths, (4, 2)
        )
    )
    for BM, BN, TM, TN, LANES_M, BK, STAGES, slices, resident, copy_at in combined:
        try:
            one = Constants(
                BM, BN, BK, TM, TN, LANES_M, STAGES, slices, resident, COPY_AT=copy_at
            )
        except WrongValue:
            continue
        fits = resident * (one.shared_bytes + 1024) <= shared_limit
        registers = one.threads * resident * (TM * TN + 2 * (TM + TN) + 40)
        if fits and 128 <= one.threads <= 512 and registers <= 65536:
            found.append(one)
    return list(dict.fromkeys(found))


def three_sizes(size: Any) -> Size:
    """M, N and K as Python's integers. Raises WrongType or WrongValue for what is no size."""
    if isinstance(size, str) or not isinstance(size, Sequence) or len(size) != 3:
        raise WrongType(f"size {size!r}: give M, N and K, as in (1024, 1024, 1024)")
    M, N, K = (checked_size(*side) for side in zip("MNK", size, strict=True))
    return M, N, K


def suits(constants: Constants, size: Size) -> bool:
    """Whether constants are worth timing at a size: of what blocks compute at least a quarter lies
    inside C, and there are neither far too few blocks nor far too many small ones."""
    M, N, _ = size
    rows, columns = -(-M // constants.BM), -(-N // constants.BN)
    inside = M * N / (rows * constants.BM * columns * constants.BN)
    small = constants.BM * constants.BN < 128 * 128
    return inside > 0.25 and rows * columns >= 30 and not (small and rows * columns > 4000)


@dataclass(frozen=True)
class Built:
    """A kernel, compiled and loaded: timed and checked like any other."""

    kernel: Kernel
    function: Any

    def launch(self, dA: DeviceArray, dB: DeviceArray, dC: DeviceArray, *size: int) -> None:
        """Queue C = A * B."""
        self.function.prepared_call(
            self.kernel.grid(*size[:2]), self.kernel.block, dA.gpudata, dB.gpudata, dC.gpudata,
            *size, shared_size=self.kernel.shared_bytes,
        )  # fmt: skip


def tune(sizes: Sequence[Size], file: Path | None = None) -> dict[str, Any]:
    """The record of this card: times of all candidates at the sizes, and the chosen ones.

    file: a record to go on with, written after each size. Raises RuntimeError for a wrong product;
    before anything is compiled WrongValue or WrongType for a size that no constants suit, or a file
    that holds something else.
    """
    sizes = [three_sizes(size) for size in sizes]
    records = read_record(file) if file and file.exists() else {}
    cuda = driver()
    device = cuda.Context.get_device()
    limit = device.get_attribute(cuda.device_attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)
    kernels = {one: last_percent(one) for one in candidates(limit)}
    for size in sizes:
        if not any(suits(one, size) for one in kernels):
            raise WrongValue(f"size {'x'.join(map(str, size))}: no constants suit it, as C has too "
                             "few tiles to fill a GPU; give a larger one")  # fmt: skip
    arch = f"sm_{''.join(map(str, device.compute_capability()))}"
    record = begun(records.get(device.name()), _origin(next(iter(kernels.values()))))
    check_rows(record, file)
    records[device.name()] = record
    usable = dict(build(kernels, arch, record))
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive())
        try:
            cublas = stack.enter_context(Cublas())
        except NoCublas:
            cublas = None
        for built in usable.values():
            for size in CHECKED:
                _prove(built, size)
        for size in sizes:
            wanted = {one: built for one, built in usable.items() if suits(one, size)}
            _time_all(size, wanted, cublas, record["times"])
            record["chosen"] = choices(record["times"])
            if file:
                _write(file, records)
    return record


def begun(record: Mapping[str, Any] | None, origin: Mapping[str, Any]) -> dict[str, Any]:
    """The record to go on with: the one there is, if it has the same origin, else an empty one."""
    if record and all(record.get(key) == origin[key] for key in ("nvcc", "source")):
        return dict(record)
    return {**origin, "left_out": [], "times": [], "chosen": []}


def check_rows(record: Mapping[str, Any], file: Path | None) -> None:
    """Raise WrongValue for a record to go on with whose times cannot be read."""
    for row in record["times"]:
        try:
            three_sizes(row["size"])
            if _dict(Constants(**row["constants"])) != row["constants"]:
                raise WrongValue("constants are missing")
            if not (row["ms"] > 0 and row.get("error", 0) >= 0 and row.get("share", 0) >= 0):
                raise WrongValue("a time, an error or a share is no number")
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(file, f"{error!r} in the row {row!r}") from None


def build(
    kernels: Mapping[Constants, Kernel], arch: str, record: dict[str, Any]
) -> Iterator[tuple[Constants, Built]]:
    """Those that compile and keep their registers; the others are noted in the record, with why."""
    from pycuda.compiler import compile

    def cubin(kernel: Kernel) -> bytes | str:
        try:
            return compile(kernel.source, options=["-O3", *kernel.options], no_extern_c=True,
                           arch=arch, cache_dir=False)  # fmt: skip
        except driver().CompileError as error:
            return str(error.stderr or error).strip().splitlines()[0]

    known = {json.dumps(row["constants"]) for row in record["left_out"]}
    wanted = {one: k for one, k in kernels.items() if json.dumps(_dict(one)) not in known}
    with ThreadPoolExecutor(os.cpu_count()) as pool, Progress(len(wanted)) as progress:
        for (one, kernel), made in zip(
            wanted.items(), pool.map(cubin, wanted.values()), strict=True
        ):
            progress.step(str(one))
            why = made if isinstance(made, str) else ""
            if not why:
                function = driver().module_from_buffer(made).get_function(kernel.entry)
                if function.local_size_bytes:
                    why = f"{function.local_size_bytes} bytes of registers spilled"
            if why:
                record["left_out"].append({"constants": _dict(one), "why": why})
            else:
                allow_shared(function, kernel.shared_bytes)
                function.prepare("PPPiii")
                yield one, Built(kernel, function)


def choices(times: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each size the constants chosen. Of those whose error is no larger than cuBLAS's, if there
    are any: of the fastest, within TIE, those with most slices."""
    by_size: dict[Size, list[Mapping[str, Any]]] = {}
    for row in times:
        by_size.setdefault(tuple(row["size"]), []).append(row)
    found = []
    for size, rows in by_size.items():
        rows = [row for row in rows if row.get("error", 0) <= 1] or rows
        fastest = min(row["ms"] for row in rows)
        near = [row for row in rows if row["ms"] <= fastest * (1 + TIE)]
        best = min(near, key=lambda row: (-row["constants"]["SLICES"], row["ms"]))
        found.append({"size": list(size), "constants": best["constants"],
                      "share": best.get("share")})  # fmt: skip
    return found


def table(record: Mapping[str, Any]) -> str:
    """The record in columns: for each size the three fastest, and what was chosen. Their largest
    error is given in those of cuBLAS."""
    lines = [f"{record['card']}, nvcc {record['nvcc']}, {record['date']}"]
    for choice in record["chosen"]:
        size = tuple(choice["size"])
        rows = sorted((r for r in record["times"] if tuple(r["size"]) == size),
                      key=lambda row: row["ms"])  # fmt: skip
        lines.append(f"{size[0]} x {size[1]} x {size[2]}, {len(rows)} candidates")
        for rank, row in enumerate(rows):
            chosen = row["constants"] == choice["constants"]
            if rank >= 3 and not chosen:
                continue
            mark = "  <- chosen" if chosen else ""
            share = f"{row['share']:.1%} of cuBLAS" if row.get("share") else ""
            error = f"error {row['error']:.2f}" if row.get("error") else ""
            rate = gflops(*size, row["ms"]) / 1e3
            lines.append(f"  {row['ms']:9.4f} ms {rate:6.2f} TFLOP/s  {share:17}{error:12}"
                         f"{Constants(**row['constants'])}{mark}")  # fmt: skip
    return "\n".join(lines)


def _time_all(
    size: Size, kernels: Mapping[Constants, Built], cublas: Cublas | None, times: list[dict]
) -> None:
    """Adds rows for the finalists of a size, if it has none yet."""
    if not kernels or any(tuple(row["size"]) == size for row in times):
        return
    M, N, K = size
    random = np.random.default_rng([M, N, K])
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    rows = np.sort(random.choice(M, min(M, 48), replace=False))
    with contextlib.ExitStack() as stack:
        arrays = tuple(stack.enter_context(m) for m in (upload(A), upload(B), allocate((M, N))))
        hasty = {one: _milliseconds(built, arrays, size, True) for one, built in kernels.items()}
        ranked = sorted(hasty, key=hasty.__getitem__)
        sliced = [one for one in ranked if one.SLICES >= MANY_SLICES]
        finalists = list(dict.fromkeys(ranked[:FINALISTS] + sliced[:MORE_FINALISTS]))
        progress = stack.enter_context(Progress(len(finalists)))
        exact = A[rows].astype(np.float64) @ B.astype(np.float64)

        def largest_error(subject: Built | Cublas) -> float:
            arrays[2].fill(np.nan)  # nothing of another's product is taken for its own
            subject.launch(*arrays, *size)
            C = arrays[2].download()[rows]
            if isinstance(subject, Built):
                _check(subject.kernel, C, A[rows], B)
            return float(np.abs(C - exact).max())

        theirs = [_milliseconds(cublas, arrays, size)] if cublas else []
        bound = largest_error(cublas) if cublas else 0.0
        found = []
        for one in finalists:
            progress.step(f"{M}x{N}x{K} {one}")
            error = largest_error(kernels[one])
            found.append((one, error, _milliseconds(kernels[one], arrays, size)))
        if cublas:
            theirs.append(_milliseconds(cublas, arrays, size))
    for one, error, ms in found:
        row = {"size": list(size), "constants": _dict(one), "ms": round(ms, 5)}
        if cublas:
            row |= {"share": round(statistics.mean(theirs) / ms, 4),
                    "error": round(error / bound, 3)}  # fmt: skip
        times.append(row)


def _milliseconds(
    subject: Built | Cublas, arrays: tuple[DeviceArray, ...], size: Size, haste: bool = False
) -> float:
    """The median of three bursts of launches, each after a pause; in haste, of one without."""
    cuda = driver()
    begin, end = cuda.Event(), cuda.Event()

    def burst(count: int) -> float:
        begin.record()
        for _ in range(count):
            subject.launch(*arrays, *size)
        end.record()
        end.synchronize()
        return begin.time_till(end) / count

    burst(1)  # loaded, and in the caches
    count = max(1, int((HASTE_MS if haste else BURST_MS) / max(burst(1), 0.01)))
    if haste:
        return burst(count)
    found = []
    for _ in range(3):
        time.sleep(PAUSE)
        found.append(burst(count))
    return statistics.median(found)


def _prove(built: Built, size: Size) -> None:
    M, N, K = size
    random = np.random.default_rng(size)
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    with upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
        built.launch(dA, dB, dC, *size)
        _check(built.kernel, dC.download(), A, B)


def _check(kernel: Kernel, C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    verdict = check_product(C, A, B)
    if not verdict:
        raise RuntimeError(f"{' '.join(kernel.options)}: {verdict}")


def _origin(kernel: Kernel) -> dict[str, Any]:
    """Where times come from: the card, nvcc, the day, and the source."""
    digest = hashlib.sha256(kernel.file.read_bytes()).hexdigest()[:16]
    return {
        "card": driver().Context.get_device().name(),
        "nvcc": nvcc_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "source": digest,
    }


def _dict(constants: Constants) -> dict[str, int]:
    return dataclasses.asdict(constants)


def _write(file: Path, records: Mapping[str, Any]) -> None:
    """As JSON, a line for each row, all or nothing."""
    cards = [f" {json.dumps(card)}: {json_text(one, ' ')}" for card, one in records.items()]
    new = file.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(cards) + "\n}\n", encoding="utf-8")
    new.replace(file)


if __name__ == "__main__":
    sys.exit(main())
