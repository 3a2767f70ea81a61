"""The benchmark: its figures, its files, and that it never times a wrong kernel."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from helpers import bench
from helpers.kernels import KERNELS


@pytest.mark.usefixtures("autoinit")
def test_figures_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], autoinit: Any
) -> None:
    file = tmp_path / "figures.json"
    assert bench.main(["--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["backend"] == autoinit.backend
    expected = [f"{name} {n}" for n in (512, 1024) for name in bench.SIMPLE]
    assert list(figures["fma_per_s"])[: len(expected)] == expected
    assert all(rate > 1e6 for rate in figures["fma_per_s"].values())
    assert 0 < figures["seconds"]["launch"] < figures["seconds"]["edit to result"]
    output = capsys.readouterr().out
    names = {*figures["fma_per_s"], *figures["seconds"], *figures["times_as_long"]}
    for name in names:
        assert name in output
    if autoinit.backend == "cpu":
        assert "CPU times, not GPU times" in output
        assert set(figures["targets"]) <= names
        assert 1 < figures["times_as_long"]["sanitized tiled 1024"] < 100


def test_a_ratio_of_one_or_more_reaches_the_target() -> None:
    figures = {
        "backend": "cpu",
        "device": "a machine",
        "fma_per_s": {"naive 1024": 3.2e10, "tiled 1024": 0.9e10},
        "seconds": {"edit to result": 4.0, "launch": 5e-5},
        "times_as_long": {"sanitized tiled 1024": 4.0},
        "targets": bench.TARGETS,
    }
    text = bench.table(figures)
    for line in (
        "naive 1024                      3.20e+10 FMA/s   1.6e+10 FMA/s   2.00x",
        "tiled 1024                      9.00e+09 FMA/s   1.8e+10 FMA/s   0.50x",
        "edit to result                          4.00 s          2.00 s   0.50x",
        "launch                                 50.0 µs",
        "sanitized tiled 1024                      4.0x            8.0x   2.00x",
    ):
        assert line in text.splitlines()


def test_a_wrong_kernel_is_not_timed(
    autoinit: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "wrong.cu"
    file.write_text(KERNELS["naive"].file.read_text().replace("sum +=", "sum -="))
    monkeypatch.setitem(bench.KERNELS, "naive", dataclasses.replace(KERNELS["naive"], file=file))
    assert bench.main([]) == 1
    assert "error: kernel 'naive': FAIL" in capsys.readouterr().err
