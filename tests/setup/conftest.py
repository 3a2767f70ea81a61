"""Copies of the project, in folders with spaces, on a machine without a CUDA toolkit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import checkout`

from checkout import CUDA_FOLDERS, HIDE, Checkout, copy_of_the_project, path_without  # noqa: E402


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkout]:
    """Make a copy of the project where no CUDA toolkit is to be found."""
    path = path_without(tmp_path_factory.mktemp("programs") / "no nvcc", "nvcc")
    unwanted = ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH", "MATMUL_TOOLKIT", "PYTHON", "VIRTUAL_ENV",
                "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {k: v for k, v in os.environ.items() if k not in unwanted} | {"PATH": path}
    hidden = subprocess.run([*HIDE, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    if CUDA_FOLDERS and not hidden:  # no namespaces here: ask the project not to look
        environment["MATMUL_TOOLKIT"] = "wheels"

    def make(name: str) -> Checkout:
        folder = copy_of_the_project(tmp_path_factory.mktemp("copy") / name)
        return Checkout(folder, environment, HIDE if CUDA_FOLDERS and hidden else [])

    return make


@pytest.fixture(scope="session")
def fresh(copy: Callable[[str], Checkout]) -> Iterator[Checkout]:
    """A copy that `make setup` has set up; PyCUDA is compiled, so this takes a minute or two."""
    checkout = copy("a fresh folder")
    done = checkout.run("make", "setup")
    assert done.returncode == 0, done.stdout
    yield checkout
    shutil.rmtree(checkout.folder)  # it is large
