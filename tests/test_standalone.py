"""The whole program without Python: it builds without a warning, and says what it needs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.toolkit import require_toolkit

FOLDER = Path(__file__).resolve().parent.parent / "cuda" / "standalone"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toolkit = require_toolkit()
    target = tmp_path_factory.mktemp("standalone") / "matmul_shared"
    library = [f"-L{toolkit.lib}"] if toolkit.lib else []
    done = subprocess.run(
        [toolkit.nvcc, "-O2", "-arch=sm_80", *library]
        + ["-Xcompiler", "-Wall,-Wextra", "matmul_shared.cu", "-o", target],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return target


def test_it_runs_on_a_gpu_and_without_one_says_so(program: Path, autoinit: Any) -> None:
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    if autoinit.backend == "gpu":
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(re.findall("^PASS: ", done.stdout, re.M)) == 3
        assert done.stdout.splitlines()[-1] == "PASS"
    else:
        assert done.returncode == 2
        assert done.stderr.startswith("no CUDA GPU can be used here: ")
        assert done.stdout == ""


def test_it_holds_no_copy_of_the_kernels() -> None:
    text = (FOLDER / "matmul_shared.cu").read_text()
    assert "__global__" not in text
    assert '#include "../01_naive.cu"' in text
    assert '#include "../02_tiled.cu"' in text


def test_every_call_of_cuda_is_checked() -> None:
    text = (FOLDER / "matmul_shared.cu").read_text()
    calls = re.findall(r"^.*\bcuda[A-Z]\w+\(.*$", text, re.M)
    unchecked = [line.strip() for line in calls if "CHECK(" not in line]
    # What describes an error, the destructor, and the question whether there is a GPU at all.
    assert len(unchecked) == 4
    for part in ("cudaGetErrorString", "cudaFree", "cudaGetDeviceCount"):
        assert any(part in line for line in unchecked)
