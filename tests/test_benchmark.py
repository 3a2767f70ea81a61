"""The benchmark's command: its rows, its files, and what it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cublas import FakeCublas

from helpers import benchmark, gpu_lock
from helpers.cards import CARDS
from helpers.ceilings import Ceilings
from helpers.cublas import Cublas
from helpers.kernels import KERNELS, MEASURED
from helpers.nvml import Meter
from helpers.plausible import DoesNotGrow, Unchecked
from helpers.progress import Progress
from helpers.recorded import DATA_FOLDER, Record
from helpers.sandbox import CompileFailed

CEILINGS = Ceilings(6e13, 4e12, 5e12, 300.0, 700.0, "gpu")
SMALL = ["--kernels", "naive,tiled_16", "--sizes", "64,20x30x40", "--seconds", "0.01"]


@pytest.fixture
def as_on_a_gpu(
    autoinit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[list[str]]:
    """The command believes that it has a GPU, with a cuBLAS; what it locks is in the list."""
    if autoinit.backend != "cpu":
        pytest.skip("the fakes stand on the CPU driver")
    locked: list[str] = []

    @contextlib.contextmanager
    def lock(device: str, what: str) -> Iterator[None]:
        locked.append(device)
        with gpu_lock.gpu_lock(device, what, folder=tmp_path):
            yield

    monkeypatch.setattr(benchmark, "backend", lambda: "gpu")
    monkeypatch.setattr(benchmark, "Cublas", lambda: Cublas(FakeCublas()))
    monkeypatch.setattr(benchmark, "gpu_lock", lock)
    monkeypatch.setattr(benchmark, "measure_ceilings", lambda: CEILINGS)
    monkeypatch.setattr(benchmark, "_driver_version", lambda meter: "580.1")
    yield locked


def run(arguments: list[str], file: Path) -> tuple[int, dict[str, Any]]:
    status = benchmark.main([*arguments, "--json", str(file)])
    return status, json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.usefixtures("autoinit")
def test_a_table_and_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], autoinit: Any
) -> None:
    status, found = run([*SMALL, "--fingerprints"], tmp_path / "x.json")
    assert status == 0
    keys = [(r["kernel"], r["M"], r["N"], r["K"], r["mode"]) for r in found["times"]]
    assert keys == [(k, *size, mode) for size in ((64, 64, 64), (20, 30, 40))
                    for k in ("naive", "tiled_16") for mode in ("queued", "alone")]  # fmt: skip
    for row in found["times"]:
        assert row["min_ms"] <= row["low_ms"] <= row["median_ms"] <= row["high_ms"] <= row["max_ms"]
        flops = 2 * row["M"] * row["N"] * row["K"]
        assert row["tflops"] == pytest.approx(1e-9 * flops / row["median_ms"], abs=1e-4)
    assert found["backend"] == autoinit.backend
    assert [r["kernel"] for r in found["results"][:2]] == ["naive", "tiled_16"]
    assert len(found["results"]) == 2 * len(benchmark.RESULT_SIZES)
    for key in ("card", "date", "nvcc", "driver_cuda", "method", "overhead_ms", "l2_bytes"):
        assert found[key]
    output = capsys.readouterr().out
    assert "20x30x40" in output
    if autoinit.backend == "cpu":
        assert found["ceilings"] is None
        assert found["clock"] == "CPU time, not GPU time"
        assert all(row["clock"] == "CPU time, not GPU time" for row in found["times"])
        assert "CPU time, not GPU time of one launch" in output
        assert "They say nothing about any GPU." in output
        assert "Not recorded: the CPU driver has no GPU's clocks" in output


def test_cpu_times_never_take_the_place_of_a_gpus(
    tmp_path: Path, autoinit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    if autoinit.backend != "cpu":
        pytest.skip("for the CPU driver")
    file = tmp_path / "h200.json"
    before = (DATA_FOLDER / "h200.json").read_text()
    file.write_text(before)
    assert benchmark.main([*SMALL, "--json", str(file)]) == 1
    assert "holds times of a GPU (NVIDIA H200)" in capsys.readouterr().err
    assert file.read_text() == before
    file.write_text('{"backend": "cpu", "card": "CPU driver (sm_80)"}')
    assert benchmark.main([*SMALL, "--json", str(file)]) == 0


def test_all_kernels_and_cublas_with_its_share(
    as_on_a_gpu: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = run(
        ["--sizes", "40", "--seconds", "0.01", "--modes", "queued,cold"], tmp_path / "x.json"
    )
    assert status == 0
    assert [r["kernel"] for r in found["times"][::2]] == [*KERNELS, *MEASURED, "cublas"]
    assert {r["mode"] for r in found["times"]} == {"queued", "cold"}
    assert (found["cublas"], found["backend"], found["driver"]) == ("13.1.2", "gpu", "580.1")
    assert Ceilings(**found["ceilings"]) == CEILINGS
    assert len(as_on_a_gpu) == 1
    output = capsys.readouterr().out
    assert "Measured ceilings: 60.0 TFLOP/s" in output
    assert "cuBLAS 13.1.2, in FP32 without TF32." in output
    last = [line for line in output.splitlines() if line.startswith("cublas")]
    assert last[0].endswith("100.0%")


def test_without_cublas_it_says_so_and_goes_on(
    tmp_path: Path, autoinit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    if autoinit.backend != "cpu":
        pytest.skip("for the CPU driver")
    arguments = ["--kernels", "tiled,cublas", "--sizes", "32", "--seconds", "0.01"]
    status, found = run(arguments, tmp_path / "x.json")
    assert status == 0
    assert {row["kernel"] for row in found["times"]} == {"tiled"}
    assert found["cublas"] is None
    assert "Without cuBLAS: cuBLAS is machine code for a GPU" in capsys.readouterr().out


def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "planted.cu"
    text = KERNELS["naive"].file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    planted = dataclasses.replace(KERNELS["naive"], file=file)
    monkeypatch.setitem(benchmark.KERNELS, "naive", planted)


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sum +=", "sum -=", "kernel 'naive' at 64x64x64: FAIL"),
        ("row < M && col < N", "row < M && col < N && col > N", "are as they were before"),
        ("row < M && col < N", "row < M / 2 && col < N", "leaves out a part of the work"),
    ],
    ids=["wrong", "writes nothing", "half of the work"],
)
def test_frauds_are_refused_and_nothing_is_written(
    old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    plant(monkeypatch, tmp_path, old, new)
    status, found = run(SMALL, tmp_path / "x.json")
    assert (status, found) == (1, {})
    error = capsys.readouterr().err
    assert error.startswith("refused: ")
    assert message in error


def test_a_kernel_that_stops_working_after_the_first_launch_is_refused(
    autoinit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    launches = []

    def launcher(self: Any, *arguments: Any) -> Any:
        queue = original(self, *arguments)

        def once() -> None:
            launches.append(arguments)
            if len(launches) == 1:
                queue()

        return once

    original = benchmark.Kernel.launcher
    monkeypatch.setattr(benchmark.Kernel, "launcher", launcher)
    assert benchmark.main(SMALL) == 1
    assert "never launched" in capsys.readouterr().err
    assert len(launches) > 1


def test_one_kernel_of_the_readers_own(autoinit: Any, tmp_path: Path) -> None:
    own = dataclasses.replace(KERNELS["tiled"], name="mine")
    for mode in benchmark.MODES:
        timing = benchmark.time_product(own, 40, 30, 20, mode, seconds=0.01)
        assert (timing.alone, timing.l2_flushed) == (mode == "alone", mode == "cold")
        assert timing.backend == autoinit.backend
    with pytest.raises(ValueError, match="mode='hot' is none of queued, alone, cold"):
        benchmark.time_product("tiled", 8, 8, 8, "hot")
    times = benchmark.times_of(["naive", own], 32, seconds=0.01)
    assert list(times) == ["naive", "mine"]
    file = tmp_path / "wrong.cu"
    file.write_text(own.file.read_text().replace("sum +=", "sum -="))
    with pytest.raises(Unchecked, match="kernel 'mine' at 32x32x32: FAIL"):
        benchmark.times_of([dataclasses.replace(own, file=file)], 32)


def test_a_clock_that_is_too_fast_is_refused(
    as_on_a_gpu: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = dataclasses.replace(CARDS["T4"], multiprocessors=1, clock_hz=1e3)
    monkeypatch.setattr(benchmark, "this_card", lambda: slow)
    assert benchmark.main(SMALL) == 1
    assert "does 0.0 at most (1 multiprocessors x 64 units x 2" in capsys.readouterr().err


def test_times_that_do_not_grow_are_refused() -> None:
    rows = [{"kernel": "naive", "mode": "queued", "M": n, "N": n, "K": n, "median_ms": 0.005}
            for n in (1024, 2048)]  # fmt: skip
    with pytest.raises(DoesNotGrow, match="kernel 'naive', queued: M, N, K = 2048"):
        benchmark._check_growth(rows, CARDS["H200"], {"naive": (32, 32)})


def test_clocks_are_stored_and_throttling_is_said() -> None:
    row = {"kernel": "naive", "M": 8, "N": 8, "K": 8, "mode": "queued", "median_ms": 1.0,
           "low_ms": 1.0, "high_ms": 1.0, "tflops": 0.1, "settled": False,
           "throttle": ["power limit", "idle"]}  # fmt: skip
    found = (
        {"times": [row], "card": "X", "date": "2026-01-01", "clock": "GPU time", "backend": "gpu",
         "overhead_ms": {"queued_ms": 0.002, "alone_ms": 0.005}}
    )  # fmt: skip
    text = benchmark.table(found)
    assert text.startswith("X, 2026-01-01: GPU time of one launch in ms")
    assert benchmark.table(found, recorded=True).startswith("recorded on X, 2026-01-01: GPU time")
    assert "Clocks were held back in 1 of 1: power limit." in text
    assert "1 of 1 were still changing after the warm-up." in text
    assert "An empty kernel takes 2.0 µs back to back and 5.0 µs alone" in text


def test_a_reading_goes_into_the_row() -> None:
    from test_nvml import FakeNvml

    from helpers.timing import Timing

    timing = Timing((1.0, 2.0, 3.0), 1, False, "gpu", 4)
    reading = Meter("0000:17:00.0", FakeNvml()).read()
    row = benchmark._row("naive", (8, 8, 8), "queued", timing, reading)
    assert (row["sm_mhz"], row["power_w"], row["throttle"]) == (
        1965, 312.4, ["idle", "power limit"]
    )  # fmt: skip
    assert (row["batch"], row["repeats"], row["clock"]) == (4, 3, "GPU time")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernels", "fastest"], "there is no kernel 'fastest': write naive, "),
        (["--kernels", "naive_16"], "there is no kernel 'naive_16'"),
        (["--kernels", "tiled_64"], "more than the 1024 allowed"),
        (["--sizes", "64x64"], "'64x64' is no size: write n or MxNxK"),
        (["--sizes", "0"], "'0' is no size"),
        (["--modes", "hot"], "modes are queued, alone, cold"),
        (["--seconds", "-1"], "'-1' is no number of seconds above 0"),
        (["--seconds", "inf"], "'inf' is no number of seconds above 0"),
        (["--sizes", ""], "'' has no size"),
        (["--kernels", ","], "',' names no kernel"),
    ],
)
def test_options_that_make_no_sense(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernels": "tiled"}, r"kernels='tiled' is no list: write kernels=\['tiled', 'cublas'\]"),
        ({"kernels": ["tilde"]}, "no kernel 'tilde'"),
        ({"kernels": [5]}, "5 is no kernel of a product"),
        ({"sizes": [(64, 64)]}, r"\(64, 64\) is no size"),
        ({"sizes": [64.0]}, "64.0 is no size"),
        ({"sizes": [0]}, "M, N, K = 0, 0, 0: sizes are at least 1"),
        ({"modes": "queued"}, "modes='queued' is no list"),
        ({"modes": ["warm"]}, "mode='warm' is none of queued, alone, cold"),
    ],
)
def test_a_sweep_of_what_makes_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        benchmark.sweep(**arguments)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    autoinit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, why in ((tmp_path / "none/x.json", "there is no folder"), (tmp_path, "a folder")):
        assert benchmark.main([*SMALL, "--json", str(target)]) == 1
        said = capsys.readouterr()
        assert f"error: --json {target}: " in said.err and why in said.err
        assert "of one launch" not in said.out


def test_errors_of_compilers_and_drivers_are_one_line(
    autoinit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pycuda.driver as cuda

    def fails(error: Exception) -> str:
        def raising(*_: Any) -> None:
            raise error

        monkeypatch.setattr(benchmark, "sweep", raising)
        assert benchmark.main(SMALL) == 1
        return capsys.readouterr().err

    assert fails(CompileFailed("no compiler")) == "error: no compiler\n"
    assert fails(cuda.LogicError("bad access")) == (
        "error: bad access\nTo find it, run the same with MATMUL_BACKEND=cpu.\n"
    )
    with pytest.raises(ZeroDivisionError):
        fails(ZeroDivisionError())


def test_a_record_of_before_makes_a_table_too() -> None:
    times = [{"kernel": "a", "M": 8, "N": 8, "K": 8, "mode": "queued", "median_ms": 2.0,
              "tflops": 0.5}]  # fmt: skip
    told = benchmark.table(Record({"card": "X", "date": "2020-01-02", "times": times}))
    assert told.startswith("recorded on X, 2020-01-02: time of one launch in ms\n")
    assert told.splitlines()[2].split() == ["a", "8x8x8", "2.0000", "500"]
    with pytest.raises(ValueError, match="no times"):
        benchmark.table({"times": []})


def test_a_file_has_one_line_for_each_row(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    content = {"card": "a", "times": [{"n": 1}, {"n": 2}], "results": [], "targets": {"x": 1.0}}
    benchmark.write_json(file, content)
    assert json.loads(file.read_text()) == content
    assert '  {"n": 1},\n  {"n": 2}\n' in file.read_text()


def test_a_bar_is_for_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with Progress(4, stream) as progress:
            for name in "abcd":
                progress.step(name)
    assert "[" + "#" * 12 + "." * 12 + "] 2/4 c" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert file.getvalue() == ""
