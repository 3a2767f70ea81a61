"""The outputs of the lessons are really compared: nbval notices a single wrong digit."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.regenerate import NOTEBOOKS, ROOT

CELL = "answer-grid"  # its output holds figures; no cell before it takes long


def beginning_of_lesson_1() -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOKS / "01-naive.ipynb", as_version=4)
    last = [cell.id for cell in notebook.cells].index(CELL)
    notebook.cells = notebook.cells[: last + 1]
    return notebook


def nbval(notebook: nbformat.NotebookNode, folder: Path) -> subprocess.CompletedProcess:
    nbformat.write(notebook, folder / "copy.ipynb")
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "--nbval-cell-timeout=120", "-q",
         "-p", "no:cacheprovider", "copy.ipynb"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )


def test_an_unchanged_copy_passes(tmp_path):
    done = nbval(beginning_of_lesson_1(), tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("right, wrong", [("12", "13"), ("5,288", "5,289")])
def test_one_changed_digit_fails(tmp_path, right, wrong):
    notebook = beginning_of_lesson_1()
    output = notebook.cells[-1].outputs[0]
    assert right in output.text
    output.text = output.text.replace(right, wrong)
    done = nbval(notebook, tmp_path)
    assert done.returncode == 1, done.stdout
    assert wrong in done.stdout and "1 failed" in done.stdout, done.stdout
