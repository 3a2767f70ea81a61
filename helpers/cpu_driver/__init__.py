"""A ``libcuda.so.1`` for machines without a GPU: the CUDA driver API on the engine helpers.simt.

:func:`load` puts it into this process; PyCUDA, unchanged, then binds to it.
``python -m helpers.cpu_driver SCRIPT.py [ARGUMENTS]`` runs any PyCUDA program that way.

How the parts depend on each other (each imports only what stands above it):
signatures, nvcc — library, ptxas, errors — handles — device — context — memory, stream_event —
arrays — copies, interprocess, module, ptx_link — linker — launch — driver.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .library import JumpTable

#: What a late call is told (CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_NOT_INITIALIZED).
AT_EXIT = 4, "the CPU driver has shut down: the interpreter is exiting"
AFTER_FORK = 3, ("this process was forked from one that uses CUDA, which neither a GPU's driver "
                 "nor the CPU driver survives; start it by multiprocessing's 'spawn' instead")

_table: JumpTable | None = None
_lock = threading.Lock()


def is_loaded() -> bool:
    """Whether this process uses the CPU driver."""
    return _table is not None


def load() -> None:
    """Load libcuda.so.1 (built first, if need be) and put the nvcc stand-in first on PATH.

    Comes before the first import of pycuda; a second call does nothing.  Raises
    library.BuildError if the library cannot be built or if PyCUDA is bound to another one.
    """
    global _table
    with _lock:
        if _table is None:
            from . import library

            library.refuse_second_driver()
            _table = _start(library)


def _start(library: object) -> JumpTable:
    from helpers import toolkit

    from . import driver, nvcc

    table = library.JumpTable(library.build())
    table.fill(driver.entry)
    atexit.register(table.sleep, *AT_EXIT)
    os.register_at_fork(after_in_child=lambda: table.sleep(*AFTER_FORK))
    tools = toolkit.find_toolkit()
    folder = nvcc.install(tools.nvcc if tools else None, library.cache_folder() / "bin",
                          tools.lib if tools else None)
    os.environ["PATH"] = os.pathsep.join((str(folder), os.environ.get("PATH", os.defpath)))
    return table
