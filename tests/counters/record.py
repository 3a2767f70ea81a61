"""Counts the patterns and the lessons' kernels on this machine's GPU, with Nsight Compute.

    python -m tests.counters.record FILE

writes FILE: what the hardware counted for each pattern of `patterns` and for each kernel of
helpers.kernels at each size, to be compared with what helpers.profile counts (test_counters).
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.counters import patterns

ROOT = Path(__file__).resolve().parent.parent.parent
SIZES = ((256, 256, 256), (1024, 1024, 1024), (100, 37, 65))  # M, N, K of the lessons' kernels

_OPERATIONS = {"load": "ld", "store": "st", "atom": "atom", "red": "red", "copy": "ldgsts"}
_COUNTED = {
    f"{space} {name} {what}": f"l1tex__t_{what}_pipe_lsu_mem_{space}_op_{op}.sum"
    for space in ("global", "local")
    for name, op in _OPERATIONS.items()
    for what in ("requests", "sectors")
    if space == "global" and name != "copy" or name in ("load", "store")
}
_COUNTED |= {
    f"global copy {what}": f"smsp__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_ldgsts.sum"
    for what in ("requests", "sectors")
}
_COUNTED |= {
    f"shared {name} wavefronts": f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
    for name, op in (_OPERATIONS | {"matrix": "ldsm"}).items()
    if name != "red"
}
_COUNTED |= {
    "shared load instructions": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared store instructions": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared atom instructions": "smsp__sass_inst_executed_op_shared_atom.sum",
    "shared load conflicts (plain)": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared store conflicts (plain)": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}


def main(arguments: list[str]) -> int:
    """Record into a file; with --run only launch what is to be counted."""
    if arguments == ["--run"]:
        launch()
        return 0
    found = record()
    rows = ",\n".join(f"  {json.dumps(row)}" for row in found.pop("counts"))
    head = ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in found.items())
    Path(arguments[0]).write_text(f'{{\n{head},\n "counts": [\n{rows}\n ]\n}}\n')
    return 0


def names() -> list[str]:
    """What is launched, in order."""
    from helpers.kernels import KERNELS, tiled

    kernels = [*KERNELS.values(), tiled(16)]
    return [p.kernel for p in patterns.patterns()] + [
        f"{kernel.name} {M} {N} {K}" for kernel in kernels for M, N, K in SIZES
    ]


def launch() -> None:
    """Launches the patterns, then the kernels."""
    from pycuda.compiler import SourceModule

    import helpers.autoinit  # noqa: F401
    from helpers.kernels import KERNELS, tiled
    from helpers.memory import allocate, driver, upload

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
    random = np.random.default_rng(1)
    for kernel in [*KERNELS.values(), tiled(16)]:
        for M, N, K in SIZES:
            A = random.standard_normal((M, K), dtype=np.float32)
            B = random.standard_normal((K, N), dtype=np.float32)
            with upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
                kernel.launch(dA, dB, dC, M, N, K)
                dC.download()


def record() -> dict:
    """Runs `launch` under ncu, and what that counted."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.csv")
        command = ["ncu", "--csv", "--log-file", str(log), "--metrics", ",".join(_COUNTED.values()),
                   "--kernel-name", "regex:^(global|shared|local|ca|cg|matmul)_", "--replay-mode",
                   "kernel", sys.executable, "-m", "tests.counters.record", "--run"]  # fmt: skip
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "MATMUL_BACKEND": "gpu"})
        text = log.read_text()
    rows = list(csv.DictReader(text[text.index('"ID"') :].splitlines()))
    found: dict[str, dict[str, int]] = {row["ID"]: {} for row in rows}
    label = {metric: name for name, metric in _COUNTED.items()}
    for row in rows:
        value = row["Metric Value"].replace(",", "")
        if value.isdigit() and int(value):  # what is not listed is 0
            found[row["ID"]][label[row["Metric Name"]]] = int(value)
    counts = [found[key] for key in sorted(found, key=int)]
    launched = names()
    if len(counts) != len(launched):
        raise SystemExit(f"ncu saw {len(counts)} launches, not {len(launched)}")
    return {
        "card": _card(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "counts": [{"launch": n, **c} for n, c in zip(launched, counts, strict=True)],
    }


def _card() -> str:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
