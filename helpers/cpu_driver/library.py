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

from .signatures import KINDS, SIGNATURES, IpcHandle

SONAME = "libcuda.so.1"
FLAGS = ("-std=gnu11", "-O1", "-g0", "-Wall", "-Wextra", "-Wpedantic", "-fPIC", "-shared",
         f"-Wl,-soname,{SONAME}")

#: How the C compiler is told a ctypes type.
C_TYPES = {
    ctypes.c_int: "int", ctypes.c_uint: "unsigned", ctypes.c_size_t: "size_t",
    ctypes.c_float: "float", ctypes.c_ubyte: "unsigned char", ctypes.c_ushort: "unsigned short",
    ctypes.c_char_p: "const char *", IpcHandle: "struct ipc_handle",
}
#: What jump_table.c uses of Python, in its order.
PYTHON_API = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_Fetch", "PyErr_Restore",
              "PyErr_CheckSignals", "PyErr_Clear", "PyErr_SetInterrupt")

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


def exports() -> str:
    """exports.inc, what jump_table.c includes: a line for each function."""
    lines = []
    for n, (name, types) in enumerate(SIGNATURES.items()):
        letters = "abcdefghijklmnop"[:len(types)]
        parameters = ", ".join(f"{C_TYPES.get(kind, 'void *')} {letter}"
                               for kind, letter in zip(types, letters, strict=True))
        lines.append(f"EXPORT({n}, {name}, {KINDS.get(name, 'WORK')}, ({parameters or 'void'}), "
                     f"({', '.join(letters)}))\n")
    return "".join(lines)


def build(folder: Path | None = None, compiler: str | None = None) -> Path:
    """The path of libcuda.so.1 in `folder` (the cache's), built if missing or stale.

    Raises BuildError if there is no C compiler, or if it fails.
    """
    source, listing = _SOURCE.read_text(), exports()
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
        Path(scratch, "exports.inc").write_text(listing)
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
        self._library.cpu_driver_sleep.argtypes = [ctypes.c_int, ctypes.c_char_p]
        self._callbacks: list[object] = []

    def fill(self, entry: Callable[[str], Callable[..., int]]) -> None:
        """Send each function to the Python callable that `entry` gives for its name."""
        self._callbacks = [ctypes.CFUNCTYPE(ctypes.c_int, *types)(entry(name))
                           for name, types in SIGNATURES.items()]
        api = [getattr(ctypes.pythonapi, name) for name in PYTHON_API]
        self._library.cpu_driver_wake(_pointers(api), _pointers(self._callbacks))

    def sleep(self, code: int, text: str) -> None:
        """From now on, call no Python: clean-up succeeds, all else returns `code` with `text`."""
        data = text.encode()
        _keep_for_ever(data)
        _keep_for_ever(self._callbacks)  # another thread may be inside one
        self._library.cpu_driver_sleep(code, data)


def _pointers(functions: list) -> ctypes.Array:
    return (ctypes.c_void_p * len(functions))(
        *(ctypes.cast(function, ctypes.c_void_p).value for function in functions))


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
