"""A program in a process of its own, on the CPU driver whatever the machine has."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PRELUDE = """\
import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.autoinit import context, device
from pycuda.compiler import SourceModule

def message(function, *arguments, **options):
    '''The type and the text of the error that a call raises.'''
    try:
        function(*arguments, **options)
    except cuda.Error as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error was raised")

"""

Run = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of every program: PyCUDA's cache is the session's own."""
    chosen = {name: value for name, value in os.environ.items()
              if name not in ("MATMUL_BACKEND", "PYTHONPATH")}
    chosen["PYTHONPATH"] = str(CHECKOUT)
    chosen["PYCUDA_CACHE_DIR"] = str(tmp_path_factory.mktemp("pycuda"))
    return chosen


@pytest.fixture
def python(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run python with these arguments in an empty folder; `variables` are added to its own."""
    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, *map(str, arguments)], cwd=tmp_path, text=True,
                              env={**environment, **variables}, capture_output=True, timeout=60,
                              check=False)
    return run


@pytest.fixture
def program(python: Run, tmp_path: Path) -> Run:
    """Run a PyCUDA program on the CPU driver: the result, whatever it is."""
    def run(text: str, *arguments: str, prelude: str = PRELUDE) -> subprocess.CompletedProcess:
        script = tmp_path / "program.py"
        script.write_text(prelude + textwrap.dedent(text))
        return python("-m", "helpers.cpu_driver", script, *arguments)
    return run


@pytest.fixture
def passes(program: Run) -> Callable[..., list[str]]:
    """Run a PyCUDA program that must end well and say nothing on stderr: the lines it prints."""
    def run(text: str) -> list[str]:
        done = program(text)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout.splitlines()
    return run
