"""What the tests share: one backend for the whole run, the oracle's folder, seeded matrices."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))  # for `import oracle`

Matrices = Callable[[int, int, int], tuple[NDArray[np.float32], NDArray[np.float32]]]


@pytest.fixture(scope="session")
def autoinit() -> Any:
    """`helpers.autoinit`, imported once: the GPU, or the CPU driver (see MATMUL_BACKEND)."""
    return importlib.import_module("helpers.autoinit")


@pytest.fixture(scope="session")
def matrices() -> Matrices:
    """A function from (M, N, K) to two random normal matrices, the same in every run."""

    def make(M: int, N: int, K: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        random = np.random.default_rng((M, N, K))
        A = random.standard_normal((M, K), dtype=np.float32)
        B = random.standard_normal((K, N), dtype=np.float32)
        return A, B

    return make


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end what the kernels ran on."""
    module = sys.modules.get("helpers.autoinit")
    if module is not None and hasattr(module, "backend"):
        terminalreporter.write_line(f"CUDA backend of this run: {module.backend}")
