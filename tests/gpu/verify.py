"""Everything that must hold on a real GPU, in one go; for who changes a kernel or records a card.

    python tests/gpu/verify.py --out DIRECTORY

In order: offsets beyond 2^31, the tests, the notebooks, the program for nvcc, the demonstration,
the project's own speed, a new record of the card (DIRECTORY/record.json), whose results the CPU
driver must then reproduce bit for bit, and with Nsight Compute one of its counters
(DIRECTORY/counters.json). The two records are what helpers/data/h200.json and
tests/counters/h200.json are made of. What each step prints goes to DIRECTORY/NAME.txt. Exit status:
0 when all steps passed. Needs 20 GB of GPU memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = sys.executable
LARGE = ((46_400, 46_400, 3), (70_000, 2, 31_000), (2, 31_000, 70_000))  # M, N, K


def main() -> int:
    """Run the steps; 0 when all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="folder for what the steps print")
    parser.add_argument("--only", action="append", help="a step to run (several times: several)")
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        return large_offsets()
    if options.compare:
        return compare(options.compare)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    steps = {
        name: step for name, step in all_steps(out).items() if name in (options.only or [name])
    }
    failed = [
        name for name, (backend, command) in steps.items() if not run(name, backend, command, out)
    ]
    print("FAIL: " + ", ".join(failed) if failed else "PASS: all steps")
    return 1 if failed else 0


def all_steps(out: Path) -> dict[str, tuple[str, list[str]]]:
    """Name -> (backend, command)."""
    me, record, program = str(Path(__file__)), str(out / "record.json"), str(out / "matmul_shared")
    return {
        "large": ("gpu", [PYTHON, me, "--large", "--out", str(out)]),
        "tests": ("gpu", [PYTHON, "-m", "pytest", "-q", "tests", "--ignore=tests/setup"]),
        "notebooks": ("gpu", [PYTHON, "-m", "pytest", "-q", "--nbval", "notebooks"]),
        "build": (
            "gpu",
            [PYTHON, "-m", "helpers.toolkit", "nvcc", "-O2", "-arch=sm_80"]
            + ["cuda/standalone/matmul_shared.cu", "-o", program],
        ),
        "standalone": ("gpu", [program]),
        "demo": ("gpu", [PYTHON, "-m", "helpers.demo"]),
        "bench": ("gpu", [PYTHON, "-m", "helpers.bench", "--json", str(out / "bench.json")]),
        "record": ("gpu", [PYTHON, "-m", "helpers.benchmark", "--fingerprints", "--json", record]),
        "counters": ("gpu", [PYTHON, "-m", "tests.counters.record", str(out / "counters.json")]),
        "compare": ("cpu", [PYTHON, me, "--compare", record, "--out", str(out)]),
    }


def run(name: str, backend: str, command: list[str], out: Path) -> bool:
    """Run one step and say how it went; its output goes to a file, its end here if it failed."""
    environment = {**os.environ, "MATMUL_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    start = time.monotonic()
    log = out / f"{name}.txt"
    with log.open("w") as file:
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT,
                timeout=1200,
            ).returncode  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            file.write(f"{error}\n")
            status = -1
    passed = status == 0
    print(f"{'PASS' if passed else 'FAIL'}  {name:12}{time.monotonic() - start:7.1f} s", flush=True)
    if not passed:
        print(*log.read_text().splitlines()[-25:], sep="\n", flush=True)
    return passed


def large_offsets() -> int:
    """Each matrix in turn with more than 2^31 elements; rows near both ends must be right."""
    from helpers.kernels import KERNELS
    from helpers.memory import allocate, driver

    wrong = 0
    for M, N, K in LARGE:
        for kernel in KERNELS.values():
            with allocate(M * K, fill=1) as dA, allocate(K * N, fill=1) as dB:
                cuda = driver()
                # The last row of A counts twice, and so does the last row of B.
                cuda.memcpy_htod(dA.gpudata + 4 * (M - 1) * K, np.full(K, 2, np.float32))
                cuda.memcpy_htod(dB.gpudata + 4 * (K - 1) * N, np.full(N, 2, np.float32))
                with allocate(M * N) as dC:
                    kernel.launch(dA, dB, dC, M, N, K)
                    for row, factor in ((0, 1), (M // 2 - 1, 1), (M - 2, 1), (M - 1, 2)):
                        got = np.empty(N, np.float32)
                        cuda.memcpy_dtoh(got, dC.gpudata + 4 * row * N)
                        right = bool((got == factor * (K + 1)).all())
                        wrong += not right
                        print(f"{kernel.name:20} {M}x{N}x{K} row {row}: {'ok' if right else got}")
    return 1 if wrong else 0


def compare(record: Path) -> int:
    """Whether the backend of this process computes the bits that are on record."""
    from helpers.benchmark import recorded_results
    from helpers.kernels import KERNELS, tiled
    from helpers.timing import backend

    expected = json.loads(record.read_text())["results"]
    kernels = {**KERNELS, "tiled_16": tiled(16)}
    names = list(dict.fromkeys(row["kernel"] for row in expected))
    same = expected == list(recorded_results([kernels[name] for name in names]))
    print(f"{len(expected)} results, {backend()}: {'the same bits' if same else 'OTHER BITS'}")
    return 0 if same and expected else 1


if __name__ == "__main__":
    if shutil.which("nvidia-smi") is None and "--help" not in sys.argv and "-h" not in sys.argv:
        sys.exit("no nvidia-smi here: this script is for a machine with an NVIDIA GPU")
    sys.exit(main())
