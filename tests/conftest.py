"""What the tests share: one backend for the whole run, and the oracle's folder."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import oracle`
# Started in the background (`make test &`), a process ignores Ctrl-C, and its children with it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def autoinit() -> Any:
    """`helpers.autoinit`, imported once: the GPU, or the CPU driver (see MATMUL_BACKEND)."""
    return importlib.import_module("helpers.autoinit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out on a GPU what asks for faults as exceptions: a GPU's context does not survive; and
    the whole mutation suite, unless it is asked for by its marker."""
    if "mutants" not in config.getoption("-m"):
        items[:] = [item for item in items if not item.get_closest_marker("mutants")]
    if os.environ.get("MATMUL_BACKEND") == "gpu":
        for item in items:
            if item.get_closest_marker("engine"):
                item.add_marker(pytest.mark.skip(reason="only the engine does this"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end what the kernels ran on."""
    module = sys.modules.get("helpers.autoinit")
    if module is not None and hasattr(module, "backend"):
        terminalreporter.write_line(f"CUDA backend of this run: {module.backend}")
