"""What is missing on the machine is found before anything is done."""

from __future__ import annotations

import os

import pytest
from checkout import path_without


@pytest.fixture(scope="module")
def untouched(copy):
    """A copy that nothing has been set up in."""
    return copy("untouched")


def test_a_missing_compiler_is_named_with_one_line_to_paste(untouched, tmp_path):
    path = path_without(tmp_path / "no compiler", "g++", "nvcc")
    done = untouched.run("make", "lab", PATH=path)
    assert done.returncode != 0
    assert "Missing on this machine: the C++ compiler (g++)." in done.stdout
    assert not (untouched.folder / ".venv").exists()
    if any(os.access(os.path.join(path, name), os.X_OK) for name in ("apt-get", "dnf")):
        lines = [line for line in done.stdout.splitlines() if " install -y " in line]
        assert len(lines) == 1 and "+" in lines[0]


def test_no_python_at_all_is_answered_too(untouched, tmp_path):
    path = path_without(tmp_path / "no python", "g++")
    for program in tmp_path.glob("no python/python3*"):
        program.unlink()
    done = untouched.run("make", "test", PATH=path)
    assert done.returncode != 0
    assert "python3 is missing or too old: Python 3.11, 3.12 or 3.13 is needed." in done.stdout


def test_a_python_that_is_too_old_is_answered_with_its_version(untouched, tmp_path):
    old = tmp_path / "python3.10"
    old.write_text('#!/bin/sh\necho \'{"executable": "", "base": "", "version": [3, 10, 4], '
                   '"venv": true, "headers": true}\'\n')
    old.chmod(0o755)
    done = untouched.run("python3", "-m", "helpers.bootstrap", PYTHON=str(old))
    assert done.returncode != 0
    assert "Missing on this machine: Python 3.11, 3.12 or 3.13" in done.stdout
    assert "is version 3.10.4" in done.stdout
