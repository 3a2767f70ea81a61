"""What a GPU's own counters say of a kernel, by Nsight Compute, beside what `profile` counts.

    found = compare(KERNELS["tiled"], 1024, 1024, 1024)
    print(found)

The kernel is launched once in a child process that ncu watches, so nothing here is slowed down or
changed. Where ncu, a GPU or the permission is missing, NoNcu says which, and what to do.

    python -m helpers.ncu tiled 1024            # the same in a terminal; or M N K

`count` runs any command under ncu.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers import toolkit
from helpers.kernels import KERNELS, Kernel

if TYPE_CHECKING:
    from helpers.profile import Profile

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 600  # seconds
_PERMISSION = "ERR_NVGPUCTRPERM"
#: NVIDIA's page on it: developer.nvidia.com/ERR_NVGPUCTRPERM
_PERMITTED = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM). An administrator "
    "can allow it to all users by the driver's option NVreg_RestrictProfilingToAdminUsers=0 "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM); root may always; a container needs the "
    "capability SYS_ADMIN"
)

_OPERATIONS = {"load": "ld", "store": "st", "atom": "atom", "red": "red", "copy": "ldgsts"}
#: What is counted -> Nsight Compute's name of it.
METRICS = {
    f"{space} {name} {what}": f"l1tex__t_{what}_pipe_lsu_mem_{space}_op_{op}.sum"
    for space in ("global", "local")
    for name, op in _OPERATIONS.items()
    for what in ("requests", "sectors")
    if space == "global" and name != "copy" or name in ("load", "store")
}
METRICS |= {
    f"global copy {what}": f"smsp__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_ldgsts.sum"
    for what in ("requests", "sectors")
}
METRICS |= {
    f"shared {name} wavefronts": f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
    for name, op in (_OPERATIONS | {"matrix": "ldsm"}).items()
    if name != "red"
}
METRICS |= {
    "shared load instructions": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared store instructions": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared atom instructions": "smsp__sass_inst_executed_op_shared_atom.sum",
    "shared load conflicts (plain)": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared store conflicts (plain)": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
#: Beyond the multiprocessors: 32-byte sectors of the L2 cache, and bytes of device memory.
MEMORY_METRICS = {
    "L2 sectors read": "lts__t_sectors_srcunit_tex_op_read.sum",
    "L2 sectors written": "lts__t_sectors_srcunit_tex_op_write.sum",
    "memory bytes read": "dram__bytes_read.sum",
    "memory bytes written": "dram__bytes_write.sum",
}


class NoNcu(RuntimeError):
    """Nsight Compute cannot count here; the text says what is missing."""


@dataclass(frozen=True)
class Comparison:
    """Counters of one launch: name -> (profile's, the GPU's). Ours are None where they are not
    known, theirs where this GPU has no such counter."""

    kernel: str
    size: tuple[int, int, int]
    counters: dict[str, tuple[int | None, int | None]]

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of the counters on which the two do not agree."""
        return tuple(n for n, (ours, theirs) in self.counters.items()
                     if None not in (ours, theirs) and ours != theirs)  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.kernel}, M, N, K = {', '.join(map(str, self.size))}",
                 f"{'':28}{'profile':>18}{'this GPU':>18}"]  # fmt: skip
        for name, pair in self.counters.items():
            ours, theirs = ("-" if value is None else f"{value:,}" for value in pair)
            mark = "  differs" if name in self.differing else ""
            lines.append(f"{name:28}{ours:>18}{theirs:>18}{mark}")
        return "\n".join(lines)


def compare(kernel: Any, M: int, N: int, K: int) -> Comparison:
    """One launch of a product kernel, counted by `profile` and by this machine's GPU.

    kernel: what helpers.products.product takes. Raises NoNcu.
    """
    from helpers.products import product
    from helpers.profile import profile  # counting alone needs no engine

    kernel, size = product(kernel), (int(M), int(N), int(K))
    find_ncu()  # before the work of counting
    A, B = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    ours = counters_of(profile(kernel, A, B, np.zeros((M, N), np.float32), M, N, K))
    spec = json.dumps(dataclasses.asdict(kernel) | {"file": str(kernel.file)})
    command = [sys.executable, "-m", "helpers.ncu", "--launch", spec, *map(str, size)]
    rows = count(command, {name: METRICS[name] for name in ours}, f"regex:{kernel.entry}")
    theirs = rows[-1]
    return Comparison(
        kernel.name, size, {name: (value, theirs.get(name, 0)) for name, value in ours.items()}
    )


def counters_of(found: Profile) -> dict[str, int | None]:
    """A profile's counts by the names of METRICS. Shared ones are after ptxas's fusing; the GPU has
    copies (cp.async) among its loads as well."""
    counts: dict[str, int | None] = {}
    copies = found.total("global", "copy")
    for operation in ("load", "store"):
        total = found.total("global", operation)
        also = (copies.requests, copies.sectors) if operation == "load" else (0, 0)
        counts[f"global {operation} requests"] = total.requests + also[0]
        counts[f"global {operation} sectors"] = total.sectors + also[1]
        machine = found.total("shared", operation).hardware
        counts[f"shared {operation} instructions"] = machine.requests
        counts[f"shared {operation} wavefronts"] = machine.wavefronts
    if copies.requests:
        counts["global copy requests"] = copies.requests
        counts["global copy sectors"] = copies.sectors
    return counts


def count(
    command: Sequence[str],
    metrics: Mapping[str, str],
    kernels: str = "regex:.*",
    *,
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, int | None]]:
    """Runs a command under ncu; for each launch in order, the metrics by name.

    What is 0 is left out; what this GPU does not count is None.

    metrics: name -> Nsight Compute's name. kernels: which to count, as ncu's --kernel-name takes
    it. The command runs in this project's folder, on the GPU. Raises NoNcu.
    """
    ncu = find_ncu()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.csv")
        full = [str(ncu), "--csv", "--print-units", "base", "--log-file", str(log), "--metrics",
                ",".join(metrics.values()), "--kernel-name", kernels, "--replay-mode", "kernel",
                *command]  # fmt: skip
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        own = {"MATMUL_BACKEND": "gpu", "PYTHONPATH": paths}
        try:
            done = subprocess.run(
                full, cwd=ROOT, env={**os.environ, **own, **(environment or {})}, text=True,
                errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=PATIENCE, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoNcu(f"ncu does not run: {error}") from error
        text = log.read_text(errors="replace") if log.is_file() else ""
    return _rows(text, done.stdout, done.returncode, metrics)


def _rows(
    log: str, output: str, status: int, metrics: Mapping[str, str]
) -> list[dict[str, int | None]]:
    """What ncu wrote, or NoNcu with the reason why it is not there."""
    if _PERMISSION in log + output:
        raise NoNcu(_PERMITTED)
    if '"ID"' not in log:
        said = [line for line in (log + output).splitlines() if line.strip()]
        told = "\n".join(said[-8:]) or "it said nothing"
        if status == 0:
            raise NoNcu(f"ncu saw no launch of that kernel:\n{told}")
        raise NoNcu(f"ncu ended with status {status}:\n{told}")
    label = {metric: name for name, metric in metrics.items()}
    found: dict[int, dict[str, int | None]] = {}
    for row in csv.DictReader(log[log.index('"ID"') :].splitlines()):
        launch = found.setdefault(int(row["ID"]), {})
        value = row["Metric Value"].replace(",", "")
        if not value.isdigit():
            launch[label[row["Metric Name"]]] = None
        elif int(value):
            launch[label[row["Metric Name"]]] = int(value)
    return [found[number] for number in sorted(found)]


def find_ncu() -> Path:
    """Nsight Compute's command: on PATH, in the toolkit, or where NVIDIA's packages put it.

    Raises NoNcu.
    """
    for path in _places():
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise NoNcu(
        "Nsight Compute (ncu) was not found on PATH, in the CUDA toolkit or in /opt/nvidia: it "
        "comes with a full toolkit, or by itself from https://developer.nvidia.com/nsight-compute"
    )


def _places() -> Iterable[Path]:
    on_path = shutil.which("ncu")
    if on_path:
        yield Path(on_path)
    tools = toolkit.find_toolkit()
    if tools:
        yield tools.root / "bin/ncu"
    yield from sorted(Path("/usr/local").glob("cuda*/bin/ncu"), reverse=True)
    yield from sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)


def main(arguments: list[str]) -> int:
    """Print the comparison of a kernel; 0, or 1 when it cannot be had."""
    if arguments[:1] == ["--launch"]:
        _launch(json.loads(arguments[1]), *map(int, arguments[2:]))
        return 0
    good = len(arguments) in (2, 4) and arguments[0] in KERNELS
    if not good or not all(word.isdecimal() and int(word) for word in arguments[1:]):
        print(f"usage: python -m helpers.ncu KERNEL N, or KERNEL M N K, with a kernel of "
              f"{', '.join(KERNELS)}", file=sys.stderr)  # fmt: skip
        return 2
    sizes = [int(word) for word in arguments[1:]] * (3 if len(arguments) == 2 else 1)
    try:
        print(compare(KERNELS[arguments[0]], *sizes))
    except NoNcu as error:
        print(f"no counters of the hardware: {error}", file=sys.stderr)
        return 1
    return 0


def _launch(spec: dict[str, Any], M: int, N: int, K: int) -> None:
    """In the child process: one launch of the kernel that is described."""
    from helpers.memory import allocate

    lists = {key: tuple(spec[key]) for key in ("block", "tile", "options")}
    kernel = Kernel(**(spec | lists | {"file": Path(spec["file"])}))
    with allocate((M, K), fill=1) as dA, allocate((K, N), fill=1) as dB, allocate((M, N)) as dC:
        kernel.launch(dA, dB, dC, M, N, K)
        dC.download()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
