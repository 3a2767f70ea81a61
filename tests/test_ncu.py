"""Nsight Compute: what is missing is said, and what it writes is read."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import ncu
from helpers.kernels import KERNELS, tiled
from helpers.ncu import Comparison, NoNcu, compare, count, find_ncu
from helpers.profile import profile

# The columns of `ncu --csv`, fewer than it has; the order of rows is its own.
CSV = '''==PROF== Connected to process 1234 (/usr/bin/python3)
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","matmul_tiled","{load}","","2,097,152"
"0","1","matmul_tiled","{store}","","0"
"1","1","matmul_tiled","{load}","","4"
"1","1","matmul_tiled","{store}","","n/a"
'''.format(load=ncu.METRICS["global load requests"], store=ncu.METRICS["global store requests"])
WANTED = {k: ncu.METRICS[k] for k in ("global load requests", "global store requests")}


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a script in the place of ncu; it writes `log` where it is told to."""

    def install(log: str = "", output: str = "", status: int = 0) -> Path:
        file = tmp_path / "ncu"
        (tmp_path / "log").write_text(log)
        file.write_text(
            f"#!{sys.executable}\n"
            "import sys, pathlib\n"
            f"here = pathlib.Path({str(tmp_path)!r})\n"
            "(here / 'arguments').write_text('\\n'.join(sys.argv[1:]))\n"
            "log = sys.argv[sys.argv.index('--log-file') + 1]\n"
            "pathlib.Path(log).write_text((here / 'log').read_text())\n"
            f"print({output!r})\n"
            f"sys.exit({status})\n"
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(ncu, "_places", lambda: [file])
        return tmp_path / "arguments"

    return install


def test_no_ncu_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "_places", lambda: [Path("/nowhere/ncu")])
    with pytest.raises(NoNcu, match="not found on PATH, in the CUDA toolkit or in /opt/nvidia"):
        find_ncu()
    with pytest.raises(NoNcu, match="comes with a full toolkit"):
        compare(KERNELS["tiled"], 32, 32, 32)


def test_counters_of_each_launch_in_order(fake_ncu: Any) -> None:
    arguments = fake_ncu(CSV)
    assert count(["true"], WANTED, "regex:matmul") == [
        {"global load requests": 2_097_152},
        {"global load requests": 4, "global store requests": None},
    ]
    given = arguments.read_text().splitlines()
    assert given[-1] == "true"
    assert given[given.index("--metrics") + 1] == ",".join(WANTED.values())
    assert given[given.index("--kernel-name") + 1] == "regex:matmul"


@pytest.mark.parametrize("where", ["log", "output"])
def test_a_missing_permission_is_explained(fake_ncu: Any, where: str) -> None:
    text = ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0.")  # fmt: skip
    fake_ncu(**{where: text}, status=1)
    with pytest.raises(NoNcu, match="may not read .*NVreg_RestrictProfilingToAdminUsers=0"):
        count(["true"], WANTED)


def test_other_failures_are_told_in_ncus_words(fake_ncu: Any) -> None:
    fake_ncu(output="==ERROR== The application returned an error code (9).", status=9)
    with pytest.raises(NoNcu, match=r"ended with status 9:\n.*error code \(9\)"):
        count(["true"], WANTED)
    fake_ncu(log="==WARNING== No kernels were profiled.")
    with pytest.raises(NoNcu, match="saw no launch of that kernel:\n.*No kernels were profiled"):
        count(["true"], WANTED)


def test_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ncu, "_places", lambda: [])
    assert ncu.main(["tiled", "64"]) == 1
    assert "no counters of the hardware: Nsight Compute (ncu) was not" in capsys.readouterr().err
    for wrong in (["fastest", "64"], ["tiled", "x"], ["tiled", "0"], ["tiled"]):
        assert ncu.main(wrong) == 2
    assert "a kernel of naive, " in capsys.readouterr().err


@pytest.mark.parametrize("kernel", [KERNELS["padded"], tiled(16)], ids=lambda k: k.name)
def test_our_counts_stand_beside_the_gpus(fake_ncu: Any, kernel: Any) -> None:
    value = {"global load requests": 128, "global load sectors": 7}
    rows = "".join(f'"0","{ncu.METRICS[name]}","{number}"\n' for name, number in value.items())
    arguments = fake_ncu('"ID","Metric Name","Metric Value"\n' + rows)
    found = compare(kernel, 64, 64, 64)
    requests = 2 * 64 * 64 // 32 * 64 // kernel.tile[0]  # each element of each tile by one lane
    assert found.counters["global load requests"] == (requests, 128)
    assert found.counters["global load sectors"] == (4 * requests, 7)
    assert found.counters["global store requests"] == (128, 0)
    assert "global load sectors" in found.differing
    assert "differs" in str(found)
    command = arguments.read_text().splitlines()
    assert "helpers.ncu" in command
    assert command[-3:] == ["64", "64", "64"]


@pytest.mark.usefixtures("autoinit")
def test_the_child_launches_the_kernel_it_is_given(fake_ncu: Any, autoinit: Any) -> None:
    arguments = fake_ncu('"ID","Metric Name","Metric Value"\n' + f'"0","{WANTED.popitem()[1]}","1"')
    compare(tiled(16), 40, 50, 60)
    command = arguments.read_text().splitlines()
    child = command[command.index(sys.executable) :]
    done = subprocess.run(child, cwd=ncu.ROOT, text=True, capture_output=True, timeout=120,
                          check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_not_known_differs_from_nothing() -> None:
    found = Comparison("x", (1, 1, 1), {"a": (None, 3), "b": (2, None), "c": (4, 5), "d": (6, 6)})
    assert found.differing == ("c",)
    assert str(found).splitlines()[2].split() == ["a", "-", "3"]


def test_on_a_gpu_with_ncu_the_two_agree(autoinit: Any) -> None:
    if autoinit.backend == "cpu":
        pytest.skip("needs a GPU")
    try:
        found = compare(KERNELS["tiled"], 128, 128, 128)
    except NoNcu as error:
        pytest.skip(str(error))
    assert found.differing == ()


def test_copies_are_among_the_gpus_loads() -> None:
    A, B, C = (np.ones((64, 64), np.float32) for _ in range(3))
    counts = ncu.counters_of(profile(KERNELS["pipelined"], A, B, C, 64, 64, 64))
    assert counts["global copy requests"] == counts["global load requests"] > 0
    assert counts["global copy sectors"] == counts["global load sectors"] > 0
    assert set(counts) <= set(ncu.METRICS)
