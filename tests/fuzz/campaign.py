"""Runs random programs in the engine and on the host and compares every thread's state."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import engine`

from engine import Device, ptx_of  # noqa: E402

from .programs import HALF, sources  # noqa: E402

BLOCKS = [
    (64, 1, 1),
    (32, 1, 1),
    (16, 16, 1),
    (8, 8, 1),
    (5, 3, 4),
    (40, 1, 1),
    (32, 3, 1),
    (7, 1, 1),
    (4, 4, 4),
    (128, 2, 1),
    (1, 1, 1),
    (12, 6, 1),
    (1, 33, 1),
    (2, 2, 16),
    (64, 4, 1),
    (256, 1, 1),
    (17, 3, 1),
    (1, 64, 1),
    (24, 4, 1),
    (1024, 1, 1),
]
GRID = 3

PARAMETERS = np.dtype(
    {
        "names": ["m", "n", "s", "big", "f", "c"],
        "formats": ["i4", "u4", "i2", "i8", "f4", "u1"],
        "offsets": [0, 4, 8, 16, 24, 28],
        "itemsize": 32,
    }
)
STATE = np.dtype(
    [(n, "u4") for n in "abc"]
    + [(n, "i4") for n in "ij"]
    + [("", "V4"), ("l", "i8"), ("q", "u8"), ("h", "i2"), ("v", "u2"), ("u", "u1"), ("", "V3")]
    + [("f", "f4"), ("", "V4"), ("d", "f8")]
)
ARRAYS = ["u4", "i4", "i2", "u1", "i8", "f4", "f4", "i4"]  # du di dh db dl df d4 d2


def options() -> list[str]:
    return ["-fmad=false", "-w"]


def host_library(source: str, folder: str) -> ctypes.CDLL:
    """The host's version of some programs, compiled and loaded."""
    path = Path(folder, "host.cpp")
    path.write_text(source)
    flags = [
        "-O1",
        "-w",
        "-fwrapv",
        "-fno-strict-aliasing",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
    ]
    out = path.with_suffix(".so")
    done = subprocess.run(["g++", *flags, path, "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(out))


def inputs(seed: int, threads: int) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """(parameters, arrays that are read, arrays that are written) for one launch."""
    rng = np.random.default_rng(seed)
    parameters = np.zeros(1, PARAMETERS)
    parameters["m"], parameters["n"] = rng.integers(-8, 9), rng.integers(1, 13)
    parameters["s"], parameters["c"] = rng.integers(-100, 101), rng.integers(0, 256)
    parameters["big"] = rng.integers(-(1 << 40), 1 << 40)
    parameters["f"] = rng.standard_normal()
    arrays = []
    for kind in ARRAYS:
        if kind == "f4":
            a = (rng.standard_normal(2 * HALF) * 100).astype(kind)
        else:
            limits = np.iinfo(kind)
            few = rng.random() < 0.5
            low, high = (
                (max(limits.min, -40), min(limits.max, 200)) if few else (limits.min, limits.max)
            )
            a = rng.integers(low, high, 2 * HALF, dtype=kind, endpoint=True)
        arrays.append(a)
    return parameters, arrays, [np.zeros(16, np.uint32), np.zeros(4 * threads, np.uint32)]


def run_host(library, name: str, block, seed: int):
    threads = int(np.prod(block)) * GRID
    parameters, read, written = inputs(seed, threads)
    out = np.zeros(threads, STATE)
    pointers = [a.ctypes.data + a.nbytes // 2 for a in read] + [a.ctypes.data for a in written]
    pointers = np.array(pointers, np.uint64)
    getattr(library, name)(
        *(ctypes.c_void_p(a.ctypes.data) for a in (parameters, pointers, out)), *block, GRID
    )
    return out, *written


def run_engine(device: Device, name: str, block, seed: int):
    threads = int(np.prod(block)) * GRID
    parameters, read, written = inputs(seed, threads)
    out = np.zeros(threads, STATE)
    addresses = [device.upload(a) for a in (*read, *written, out)]
    middle = [at + a.nbytes // 2 for at, a in zip(addresses, read, strict=False)]
    packed = parameters.tobytes() + np.array(middle + addresses[len(read) :], np.uint64).tobytes()
    try:
        device.module.functions[name].launch((GRID, 1, 1), block, packed)
        for a, at in zip([*written, out], addresses[len(read) :], strict=True):
            ctypes.memmove(a.ctypes.data, at, a.nbytes)
    finally:
        for at in addresses:
            device.memory.free(at)
    return out, *written


def difference(ours, expected) -> str:
    """Where two results differ; "" if they do not."""
    for name in [n for n in STATE.names if not n.startswith("f") or n == "f"]:
        a, b = ours[0][name], expected[0][name]
        if a.dtype.kind == "V":
            continue
        same = (a == b) | ((a != a) & (b != b))
        if not same.all():
            k = int(np.argmin(same))
            return f"s.{name} of thread {k}: {a[k]} instead of {b[k]} ({(~same).sum()} differ)"
    for what, a, b in zip(("bins", "scratch"), ours[1:], expected[1:], strict=True):
        if (a != b).any():
            k = int(np.argmax(a != b))
            return f"{what}[{k}]: {a[k]} instead of {b[k]}"
    return ""


def blocks_of(seed: int, count: int = 2) -> list[tuple[int, int, int]]:
    return [BLOCKS[(seed * 7 + k * 11 + seed // 20) % len(BLOCKS)] for k in range(count)]


def try_programs(seeds: list[int], count: int = 2) -> list[str]:
    """Runs programs; one line for each that fails."""
    device_source, host_source = sources(seeds)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        library = host_library(host_source, folder)
        device = Device(ptx_of(device_source, *options()))
        for seed in seeds:
            for block in blocks_of(seed, count):
                print(f"running {seed} {block}", flush=True)
                try:
                    ours = run_engine(device, f"f{seed}", block, seed)
                    wrong = difference(ours, run_host(library, f"f{seed}", block, seed))
                except Exception as problem:
                    wrong = f"{type(problem).__name__}: {problem}"[:300]
                    if type(problem).__name__ not in ("Fault", "Unsupported"):
                        traceback.print_exc()
                if wrong:
                    problems.append(f"FAILED {seed} {block}: {wrong}")
                    print(problems[-1], flush=True)
    return problems


# Seeds in a batch, and the seconds it may take.
BATCHES = {"programs": (12, 400), "hostile": (20, 300)}
BATCHES |= {"malformed": (200, 600), "changed": (200, 600)}


def run_batches(kind: str, first: int, last: int, size: int = 0) -> None:
    """Runs seeds in processes of their own, so that a crash or a hang is seen; those that were
    still to come then follow in another process. Prints what fails, and how far it is."""
    at = first
    while at < last:
        end = min(last, at + (size or BATCHES[kind][0]))
        seeds = [str(s) for s in range(at, end)]
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", kind, "seeds", *seeds]
        try:
            done = subprocess.run(command, capture_output=True, timeout=BATCHES[kind][1])
            ended, output, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as slow:
            ended, output, errors = "HANG", slow.stdout or b"", slow.stderr or b""
        lines = output.decode(errors="replace").split("\n")
        for line in lines:
            if "FAILED" in line:
                print(line[line.index("FAILED") :], flush=True)
        running = [int(line.split()[1]) for line in lines if line.startswith("running")]
        at = end
        if "done" not in lines:
            at = running[-1] + 1 if running else end
            told = errors.decode(errors="replace")[-1500:]
            print(f"BROKEN {running[-1:] or seeds}: {ended}\n{told}", flush=True)
        print(f"seeds to {at - 1}", flush=True)
