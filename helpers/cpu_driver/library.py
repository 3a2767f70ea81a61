"""Builds, loads and fills libcuda.so.1, the jump table that PyCUDA's extension is linked to.

Needs the standard library only, so that the set-up can link PyCUDA against the library before
anything else is installed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .signatures import CLEAN_UP, SIGNATURES, TEXTS

SONAME = "libcuda.so.1"
FLAGS = ("-std=gnu11", "-O1", "-g0", "-Wall", "-Wextra", "-Wpedantic", "-fPIC", "-shared",
         f"-Wl,-soname,{SONAME}")

_SOURCE = Path(__file__).with_name("jump_table.c")


class BuildError(RuntimeError):
    """libcuda.so.1 could not be built or loaded; the text says what to do."""


def cache_folder() -> Path:
    """``.cache/cpu_driver`` of the checkout; of the user, if there is no checkout."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file() and os.access(checkout, os.W_OK):
        return checkout / ".cache" / "cpu_driver"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "cuda-matmul-lessons", "cpu_driver")


def symbols() -> str:
    """symbols.inc, what jump_table.c includes: the number, name and kind of each function."""
    def kind(name: str) -> str:
        return "CLEAN_UP" if name in CLEAN_UP else "TEXT" if name in TEXTS else "WORK"

    return "".join(f"SYMBOL({n}, {name}, {kind(name)})\n" for n, name in enumerate(SIGNATURES))


def build(folder: Path | None = None, compiler: str | None = None) -> Path:
    """The path of libcuda.so.1 in `folder` (the cache's), built if missing or stale.

    Raises BuildError if there is no C compiler, or if it fails.
    """
    source, listing = _SOURCE.read_text(), symbols()
    key = hashlib.sha256("\0".join((source, listing, *FLAGS, platform.machine())).encode())
    folder = folder or cache_folder() / key.hexdigest()[:16]
    library = folder / SONAME
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(library, listing, compiler or _compiler())
    return library


def _compiler() -> str:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    raise BuildError("The CPU driver needs a C compiler once, and none of cc, gcc, clang is on "
                     "PATH. On Debian or Ubuntu: sudo apt install g++")


def _compile(library: Path, listing: str, compiler: str) -> None:
    """Compile into `library` in one step, so that no other process sees half a file."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as scratch:
        Path(scratch, "symbols.inc").write_text(listing)
        output = Path(scratch, SONAME)
        command = [compiler, *FLAGS, f"-I{scratch}", "-o", str(output), str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"The CPU driver's library could not be built.\n{' '.join(command)}\n"
                             f"{done.stderr}")
        output.replace(library)


class JumpTable:
    """The loaded library.  Its callbacks are kept alive here."""

    def __init__(self, path: Path):
        self._library = ctypes.CDLL(str(path))
        self._library.cpu_driver_python.argtypes = [ctypes.c_void_p] * 4
        self._library.cpu_driver_fill.argtypes = [ctypes.c_int, ctypes.c_void_p]
        self._library.cpu_driver_sleep.argtypes = [ctypes.c_int, ctypes.c_char_p]
        self._library.cpu_driver_python(*(
            ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p)
            for name in ("PyGILState_Ensure", "PyGILState_Release", "PyErr_Fetch", "PyErr_Restore")
        ))
        self._callbacks: list[object] = []
        self._text = b""

    def fill(self, entry: Callable[[str], Callable[..., int]]) -> None:
        """Send each function to the Python callable that `entry` gives for its name."""
        for n, (name, types) in enumerate(SIGNATURES.items()):
            callback = ctypes.CFUNCTYPE(ctypes.c_int, *types)(entry(name))
            self._callbacks.append(callback)
            self._library.cpu_driver_fill(n, ctypes.cast(callback, ctypes.c_void_p))

    def sleep(self, code: int, text: str) -> None:
        """From now on, call no Python: clean-up succeeds, all else returns `code` with `text`."""
        self._text = text.encode()
        _keep_for_ever(self._text)
        _keep_for_ever(self._callbacks)  # another thread may be inside one
        self._library.cpu_driver_sleep(code, self._text)


def _keep_for_ever(value: object) -> None:
    """Let `value` outlive the interpreter's own clean-up."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def refuse_second_driver() -> None:
    """PyCUDA binds to the first libcuda.so.1 in the process: BuildError if there is one already."""
    if "pycuda._driver" in sys.modules:
        raise BuildError("PyCUDA has been imported already, so it is bound to the NVIDIA driver. "
                         "Import helpers.autoinit before anything of pycuda (in a notebook: "
                         "restart the kernel, and run that cell first).")
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.is_file() else ():
        file = line.split(maxsplit=5)[-1]
        if "/libcuda.so" in file:
            raise BuildError(f"The NVIDIA driver's {file} is loaded in this process already (by "
                             "another library), so PyCUDA would bind to it. Import "
                             "helpers.autoinit before that library, or set MATMUL_BACKEND=gpu.")
