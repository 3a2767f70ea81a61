"""Counts the patterns and the lessons' kernels on this machine's GPU, with Nsight Compute.

    python -m tests.counters.record FILE

writes FILE: what the hardware counted for each pattern of `patterns` and for each kernel of
helpers.kernels at each size, to be compared with what helpers.profile counts (test_counters), and
the bytes of L2 cache and memory, to be compared with the model in helpers.reuse (tests/test_reuse).
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import numpy as np

from helpers import ncu
from helpers.benchmark import write_json
from tests.counters import patterns

SIZES = ((256, 256, 256), (1024, 1024, 1024), (100, 37, 65))  # M, N, K of the lessons' kernels

#: Of the L2 cache's and the memory's bytes.
MEMORY_SIZES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (1000, 3000, 500))


def main(arguments: list[str]) -> int:
    """Record into a file; with --run only launch what is to be counted."""
    if arguments[:1] == ["--run"]:
        {"counts": launch, "memory": launch_for_memory}[arguments[1]]()
        return 0
    write_json(Path(arguments[0]), record())
    return 0


def names() -> list[str]:
    """What is launched, in order."""
    from helpers.kernels import BY_TILE, tiled

    kernels = [*BY_TILE.values(), tiled(16)]
    return [p.kernel for p in patterns.patterns()] + [
        f"{kernel.name} {M} {N} {K}" for kernel in kernels for M, N, K in SIZES
    ]


def launch() -> None:
    """Launches the patterns, then the kernels."""
    from pycuda.compiler import SourceModule

    import helpers.autoinit  # noqa: F401
    from helpers.memory import allocate, driver

    module = SourceModule(patterns.source(), no_extern_c=True)
    places, targets, active = (
        module.get_global(name)[0] for name in ("places", "targets", "active")
    )
    cuda = driver()
    with allocate((patterns.SPAN + 256,), np.uint8, fill=0) as memory:
        for pattern in patterns.patterns():
            cuda.memcpy_htod(places, np.array(pattern.places, np.uint32))
            cuda.memcpy_htod(targets, np.array(pattern.targets, np.uint32))
            cuda.memcpy_htod(active, np.array([pattern.mask], np.uint32))
            module.get_function(pattern.kernel)(memory, block=(32, 1, 1), grid=(1, 1))
    launch_kernels(SIZES)


def launch_for_memory() -> None:
    """Launches the kernels at the larger sizes."""
    import helpers.autoinit  # noqa: F401

    launch_kernels(MEMORY_SIZES)


def launch_kernels(sizes) -> None:
    """Launches each kernel of the lessons at each size."""
    from helpers.kernels import BY_TILE, tiled
    from helpers.memory import allocate, upload

    random = np.random.default_rng(1)
    for kernel in [*BY_TILE.values(), tiled(16)]:
        for M, N, K in sizes:
            A = random.standard_normal((M, K), dtype=np.float32)
            B = random.standard_normal((K, N), dtype=np.float32)
            with upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
                kernel.launch(dA, dB, dC, M, N, K)
                dC.download()


def record() -> dict:
    """Runs the launches under ncu, and what that counted."""
    return {
        "card": _card(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "counts": _counted("counts", ncu.METRICS, names()),
        "memory": _counted("memory", ncu.MEMORY_METRICS, memory_names()),
    }


def memory_names() -> list[str]:
    """What is launched for the memory's counts, in order."""
    from helpers.kernels import BY_TILE, tiled

    kernels = [*BY_TILE.values(), tiled(16)]
    return [f"{kernel.name} {M} {N} {K}" for kernel in kernels for M, N, K in MEMORY_SIZES]


def _counted(what: str, metrics: dict[str, str], launched: list[str]) -> list[dict]:
    command = [sys.executable, "-m", "tests.counters.record", "--run", what]
    counts = ncu.count(command, metrics, "regex:^(global|shared|local|ca|cg|matmul)_")
    if len(counts) != len(launched):
        raise SystemExit(f"ncu saw {len(counts)} launches, not {len(launched)}")
    return [{"launch": n, **c} for n, c in zip(launched, counts, strict=True)]


def _card() -> str:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
