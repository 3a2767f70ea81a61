"""What is missing on a machine is named, with one line to paste."""

from __future__ import annotations

import sys

import pytest

from helpers import prerequisites

PYTHON = {
    "executable": "/opt/python3.12",
    "base": "/opt/python3.12",
    "version": [3, 12, 1],
    "venv": True,
    "headers": True,
}


@pytest.fixture
def programs(monkeypatch):
    """Decide which programs the machine has, and whether the user is root."""

    def choose(*names: str, root: bool = False) -> None:
        monkeypatch.setattr(
            prerequisites.shutil,
            "which",
            lambda name: f"/usr/bin/{name}" if name in names else None,
        )
        monkeypatch.setattr(prerequisites.os, "geteuid", lambda: 0 if root else 1000)

    return choose


def test_this_python_is_probed_and_supported():
    found = prerequisites.probe(sys.executable)
    assert found["version"] == list(sys.version_info[:3])
    assert found["headers"] and found["venv"]
    assert prerequisites.supported(found)


def test_nothing_is_missing_on_a_complete_machine(programs):
    programs("g++")
    assert prerequisites.missing(PYTHON) == []


def test_all_that_is_missing_is_found_at_once(programs):
    programs()
    bare = PYTHON | {"venv": False, "headers": False}
    assert prerequisites.missing(bare) == ["venv", "headers", "compiler"]
    assert prerequisites.missing(None) == ["python", "compiler"]


def test_uv_makes_up_for_a_missing_venv_module(programs):
    programs("g++", "uv")
    assert prerequisites.missing(PYTHON | {"venv": False}) == []


@pytest.mark.parametrize(
    ("manager", "root", "line"),
    [
        (
            "apt-get",
            False,
            "sudo apt-get update && sudo apt-get install -y python3.12-venv python3.12-dev g++",
        ),
        (
            "apt-get",
            True,
            "apt-get update && apt-get install -y python3.12-venv python3.12-dev g++",
        ),
        ("dnf", False, "sudo dnf install -y python3.12 python3.12-devel gcc-c++"),
        ("zypper", False, "sudo zypper install -y python3.12 python3.12-devel gcc-c++"),
        ("pacman", False, "sudo pacman -S --needed --noconfirm python gcc"),
    ],
)
def test_one_line_installs_it_all(programs, manager, root, line):
    programs(manager, root=root)
    said = prerequisites.explain(["venv", "headers", "compiler"], PYTHON)
    assert said.splitlines()[0] == (
        "Missing on this machine: Python's venv module, the Python "
        "headers (Python.h), the C++ compiler (g++)."
    )
    assert said.splitlines()[-1] == "  " + line
    assert said.count("install") + said.count("-S ") == 1


def test_without_a_known_package_manager_the_plain_names_are_given(programs):
    programs()
    said = prerequisites.explain(["compiler"], PYTHON)
    assert "the C++ compiler (g++)" in said and "package manager" in said


def test_a_system_without_a_supported_python_is_told_of_other_ways(programs):
    programs("apt-get")  # no apt-cache: nothing is known of its packages
    said = prerequisites.explain(["python", "compiler"], None)
    assert "Python 3.11, 3.12 or 3.13" in said
    assert "PYTHON=/path/to/python3.12 make setup" in said
    assert said.splitlines()[-1].endswith("install -y g++")


@pytest.mark.parametrize(
    ("version", "answer"),
    [([3, 10, 12], False), ([3, 11, 0], True), ([3, 13, 9], True), ([3, 14, 0], False)],
)
def test_the_supported_versions_are_3_11_to_3_13(version, answer):
    assert prerequisites.supported(PYTHON | {"version": version}) is answer
