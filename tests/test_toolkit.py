"""Which CUDA toolkit is chosen, and why others are passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers import toolkit

PARTS = (
    "bin/ptxas",
    "bin/cudafe++",
    "bin/fatbinary",
    "nvvm/bin/cicc",
    "include/cudaProfiler.h",
    "include/cuda_runtime.h",
    "include/crt/host_config.h",
    "include/nv/target",
    "lib64/libcudart_static.a",
)


def make_toolkit(root: Path, version: int) -> Path:
    """A folder laid out like a toolkit; its nvcc only answers --dryrun. Returns the bin folder."""
    for part in PARTS:
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).touch()
    (root / "include/cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
    say = [
        f"_HERE_={root}/bin",
        f"TOP={root}/bin/..",
        f"CICC_PATH={root}/bin/../nvvm/bin",
        f'INCLUDES="-I{root}/bin/../include"',
        f'LIBRARIES=  "-L{root}/bin/../lib64"',
    ]
    make_nvcc(root / "bin", "".join(f"echo '#$ {line}'\n" for line in say))
    return root / "bin"


def make_nvcc(folder: Path, body: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvcc").write_text("#!/bin/sh\n" + body)
    (folder / "nvcc").chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with neither a driver nor a toolkit; returns a function that sets its PATH."""
    for name in ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH", "MATMUL_TOOLKIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolkit, "driver_version", lambda: None)
    monkeypatch.setattr(toolkit, "LOCAL", tmp_path / "local")

    def set_path(*folders: Path) -> None:
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))

    set_path()
    return set_path


@pytest.fixture
def no_wheels(tmp_path) -> Path:
    return tmp_path / "site-packages"


def test_without_any_toolkit_there_is_none_and_the_error_says_what_to_do(machine, no_wheels):
    assert toolkit.find_toolkit(no_wheels) is None
    with pytest.raises(toolkit.ToolkitError, match="make setup"):
        toolkit.require_toolkit(no_wheels)


def test_the_nvcc_on_path_is_found_with_its_parts(machine, no_wheels, tmp_path):
    machine(make_toolkit(tmp_path / "cuda", 12060))
    found = toolkit.find_toolkit(no_wheels)
    assert found == toolkit.Toolkit(
        tmp_path / "cuda",
        tmp_path / "cuda/bin/nvcc",
        (12, 6),
        tmp_path / "cuda/include",
        tmp_path / "cuda/lib64",
        "system",
    )
    assert found.ptxas == tmp_path / "cuda/bin/ptxas"


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_ROOT", "CUDA_PATH"])
def test_a_toolkit_named_by_the_environment_goes_first(
    machine, no_wheels, tmp_path, monkeypatch, variable
):
    machine(make_toolkit(tmp_path / "cuda-12.6", 12060))
    make_toolkit(tmp_path / "cuda-12.4", 12040)
    monkeypatch.setenv(variable, str(tmp_path / "cuda-12.4"))
    assert toolkit.find_toolkit(no_wheels).version == (12, 4)


def test_the_newest_in_usr_local_is_found_without_path(machine, no_wheels, tmp_path):
    make_toolkit(tmp_path / "local/cuda-12.9", 12090)
    make_toolkit(tmp_path / "local/cuda-12.10", 12100)
    assert toolkit.find_toolkit(no_wheels).version == (12, 10)


def test_an_incomplete_toolkit_is_passed_over_and_what_it_lacks_is_named(
    machine, no_wheels, tmp_path
):
    machine(make_toolkit(tmp_path / "cuda", 12060))
    (tmp_path / "cuda/include/cudaProfiler.h").unlink()
    assert toolkit.find_toolkit(no_wheels) is None
    assert toolkit.passed_over() == [
        f"{tmp_path}/cuda/bin/nvcc belongs to {tmp_path}/cuda, which lacks cudaProfiler.h."
    ]


def test_a_toolkit_too_old_for_the_lessons_is_passed_over(machine, no_wheels, tmp_path):
    machine(make_toolkit(tmp_path / "cuda", 11080))
    assert toolkit.find_toolkit(no_wheels) is None
    assert "CUDA 11.8" in toolkit.passed_over()[0]


def test_an_nvcc_that_does_not_run_is_passed_over(machine, no_wheels, tmp_path):
    make_nvcc(tmp_path / "bin", "exit 1\n")
    machine(tmp_path / "bin", make_toolkit(tmp_path / "cuda", 12060))
    assert toolkit.find_toolkit(no_wheels).root == tmp_path / "cuda"
    assert "does not run" in toolkit.passed_over()[0]


def test_the_cpu_drivers_own_nvcc_is_never_taken_for_a_toolkits(machine, no_wheels, tmp_path):
    never = "echo called >> " + str(tmp_path / "calls") + "\n"
    make_nvcc(tmp_path / "cpu_driver/bin", never)
    make_nvcc(tmp_path / "elsewhere", "# helpers/cpu_driver/nvcc.py\n" + never)
    machine(tmp_path / "cpu_driver/bin", tmp_path / "elsewhere")
    assert toolkit.find_toolkit(no_wheels) is None
    assert not (tmp_path / "calls").exists()


def test_the_system_goes_before_the_wheels_unless_told_otherwise(
    machine, no_wheels, tmp_path, monkeypatch
):
    make_toolkit(no_wheels / toolkit.WHEELS_FOLDER, 13000)
    assert toolkit.find_toolkit(no_wheels).source == "wheels"
    machine(make_toolkit(tmp_path / "cuda", 12060))
    assert toolkit.find_toolkit(no_wheels).source == "system"
    monkeypatch.setenv("MATMUL_TOOLKIT", "wheels")
    assert toolkit.find_toolkit(no_wheels).source == "wheels"
    monkeypatch.setenv("MATMUL_TOOLKIT", "whels")
    with pytest.raises(toolkit.ToolkitError, match="'whels'; it can be auto, system or wheels"):
        toolkit.find_toolkit(no_wheels)


@pytest.mark.parametrize(
    ("driver", "chosen", "fits"),
    [
        ((13, 1), (13, 1), True),  # the first that is no newer than the driver
        ((13, 0), (12, 9), True),
        ((12, 9), (12, 9), True),
        ((12, 4), (12, 9), True),  # none is: the driver loads cubins of its own major version
        ((11, 8), (13, 1), False),  # nothing fits: the first
    ],
)
def test_where_there_is_a_driver_nvcc_is_not_newer_than_it_loads(
    machine, no_wheels, tmp_path, monkeypatch, driver, chosen, fits
):
    newer, older = tmp_path / "cuda-13.1", tmp_path / "cuda-12.9"
    machine(make_toolkit(newer, 13010), make_toolkit(older, 12090))
    monkeypatch.setattr(toolkit, "driver_version", lambda: driver)
    found = toolkit.find_toolkit(no_wheels)
    assert found.version == chosen
    assert toolkit.fits_driver(found.version) is fits


def test_nvdisasm_is_the_toolkits_own_then_the_wheels_then_the_one_on_path(
    machine, no_wheels, tmp_path
):
    folder = make_toolkit(tmp_path / "cuda", 12060)
    machine(folder, tmp_path / "tools")
    found = toolkit.find_toolkit(no_wheels)
    assert toolkit.find_nvdisasm(found, no_wheels) is None
    places = (tmp_path / "tools", no_wheels / toolkit.WHEELS_FOLDER / "bin", folder)
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "nvdisasm").touch(0o755)
        assert toolkit.find_nvdisasm(found, no_wheels) == place / "nvdisasm"
