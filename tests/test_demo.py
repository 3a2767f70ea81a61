"""The demonstration: what a user sees, and that a wrong kernel fails it."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import demo
from helpers.kernels import KERNELS

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "helpers.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_verifies_and_compares_both_kernels_within_a_minute(autoinit: Any) -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    passes = [line for line in lines if "PASS: 1,048,576 elements" in line]
    assert len(passes) == 3
    assert lines[-1] == "PASS"
    assert re.search(r"^naive +[\d.]+ ms +[\d,.]+ +1\.00x$", done.stdout, re.M)
    assert re.search(r"^tiled +[\d.]+ ms +[\d,.]+ +[\d.]+x$", done.stdout, re.M)
    if autoinit.backend == "cpu":
        assert "CPU times, not GPU times" in done.stdout
        assert "recorded: NVIDIA H200" in done.stdout
    else:
        assert "this GPU" in done.stdout


@pytest.mark.parametrize("size", ["0", "-5", "many"])
def test_a_size_that_is_none_is_a_usage_error(size: str) -> None:
    done = run("--n", size)
    assert done.returncode == 2
    assert "usage" in done.stderr


@pytest.mark.usefixtures("autoinit")
def test_a_wrong_kernel_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = KERNELS["tiled"].file.read_text()
    file = tmp_path / "wrong.cu"
    file.write_text(text.replace("k < TILE; ++k", "k < TILE - 1; ++k"))  # one product left out
    wrong = dataclasses.replace(KERNELS["tiled"], file=file)
    monkeypatch.setitem(demo.KERNELS, "tiled", wrong)
    assert demo.main(["--n", "100"]) == 1
    output = capsys.readouterr().out
    assert "all inputs 1.0: FAIL: 10,000 of 10,000" in output
    assert "random inputs, naive: PASS" in output
    assert "random inputs, tiled: FAIL" in output
    assert output.rstrip().endswith("FAIL")


@pytest.mark.usefixtures("autoinit")
def test_nan_is_not_close_to_anything() -> None:
    import numpy as np

    nan = np.full((2, 2), np.nan, np.float32)
    assert not demo._Close(nan, nan)
    assert not demo._Close(np.ones((2, 2), np.float32), nan)


def test_a_backend_that_is_not_there_is_one_line_not_a_traceback() -> None:
    done = run(MATMUL_BACKEND="neither")
    assert done.returncode == 1
    assert done.stderr.startswith("error: MATMUL_BACKEND")
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("autoinit")
def test_a_kernel_that_does_not_compile_is_shown_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.cu"
    file.write_text(KERNELS["tiled"].file.read_text().replace("float sum", "floot sum"))
    broken = dataclasses.replace(KERNELS["tiled"], file=file)
    monkeypatch.setitem(demo.KERNELS, "tiled", broken)
    assert demo.main(["--n", "10"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert re.search(r"broken\.cu\(\d+\): error", error)
