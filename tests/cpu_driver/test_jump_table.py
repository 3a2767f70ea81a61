"""libcuda.so.1 itself: what it exports, and what it answers without Python."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.cpu_driver import library, signatures


def _symbols(file: Path, *options: str) -> set[str]:
    listing = subprocess.run(["nm", "-D", *options, file], capture_output=True, text=True,
                             check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


def test_every_function_that_pycuda_needs_is_exported(tmp_path):
    extension = Path(importlib.util.find_spec("pycuda._driver").origin)
    needed = {name for name in _symbols(extension, "--undefined-only") if name.startswith("cu")}
    assert len(needed) > 100
    assert needed <= _symbols(library.build(tmp_path), "--defined-only")


def test_the_names_of_both_cuda_versions_are_exported():
    for name in ("cuCtxCreate_v2", "cuCtxCreate_v4", "cuEventElapsedTime", "cuEventElapsedTime_v2",
                 "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", "cuCtxAttach", "cuCtxDetach"):
        assert name in signatures.SIGNATURES


def test_the_soname_is_the_one_that_pycuda_asks_for(tmp_path):
    header = subprocess.run(["readelf", "-d", library.build(tmp_path)], capture_output=True,
                            text=True, check=True).stdout
    assert "[libcuda.so.1]" in header
    assert "NEEDED" not in header or "python" not in header


def test_every_compiler_here_accepts_it_without_a_warning(tmp_path, monkeypatch):
    compilers = [name for name in ("gcc", "clang", "cc") if shutil.which(name)]
    assert compilers
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-Werror"))
    for compiler in compilers:
        assert library.build(tmp_path / compiler, compiler).is_file()


def test_a_failing_compiler_is_shown(tmp_path):
    with pytest.raises(library.BuildError, match="could not be built"):
        library.build(tmp_path, "false")


def test_signatures_agree_with_cuda_h(tmp_path):
    """A C compiler finds no conflict between our declarations and the toolkit's."""
    from helpers import toolkit

    source = tmp_path / "check.c"
    include = toolkit.require_toolkit().include
    lines = ["#include <cuda.h>", "#include <cudaProfiler.h>"]
    declared = _declared((include / "cuda.h").read_text())
    declared += _declared((include / "cudaProfiler.h").read_text())
    checked = 0
    for name, types in signatures.SIGNATURES.items():
        if name not in declared:
            continue  # of another CUDA version, or of OpenGL
        event = "Event" if "Event" in name else "Mem"
        wanted = ", ".join(_argument(kind).replace("Mem", event) for kind in types)
        lines.append(f"void check_{name}(void);\nvoid check_{name}(void) {{ {name}({wanted}); }}")
        checked += 1
    assert checked > 120
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        ["cc", "-std=gnu11", "-fsyntax-only", "-Werror", "-Wno-deprecated-declarations",
         f"-I{include}", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _declared(header: str) -> list[str]:
    """The functions of a header, by the names that its macros give them (cuMemAlloc_v2)."""
    public = header.split("#if defined(__CUDA_API_VERSION_INTERNAL)\n")[0]
    renamed = dict(re.findall(r"#\s*define (cu\w+)\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)", public))
    return [renamed.get(name, name) for name in re.findall(r"CUresult CUDAAPI (cu\w+)\(", public)]


def _argument(kind: type) -> str:
    """A C expression for an argument of this ctypes type: it fits only where the kinds agree."""
    if kind is signatures.IpcHandle:
        return "(CUipcMemHandle){{0}}"
    if kind in library.C_TYPES and not issubclass(kind, ctypes.c_char_p):
        return f"({library.C_TYPES[kind]})0"
    return "(void *)0"


# In a process of their own: the one that loads the library could not load the driver any more.

WITHOUT_DRIVER = """
import ctypes, sys
from pathlib import Path
from helpers.cpu_driver import library
functions = ctypes.CDLL(str(library.build(Path(sys.argv[1]))))
assert functions.cuInit(0) == 3  # CUDA_ERROR_NOT_INITIALIZED
assert functions.cuMemFree_v2(ctypes.c_size_t(1)) == 0
text = ctypes.c_char_p()
assert functions.cuGetErrorString(3, ctypes.byref(text)) == 0
assert text.value == b"the CPU driver is not loaded"
"""

ASLEEP_AGAIN = """
import ctypes, sys
from pathlib import Path
from helpers.cpu_driver import library
file = library.build(Path(sys.argv[1]))
table, calls = library.JumpTable(file), []

def entry(name):
    def callback(*_arguments):
        calls.append(name)
        return 0x2A000000
    return callback

table.fill(entry)
functions = ctypes.CDLL(str(file))
assert functions.cuInit(0) == 0 and calls == ["cuInit"]
table.sleep(4, "gone")
assert functions.cuInit(0) == 4 and calls == ["cuInit"]
text = ctypes.c_char_p()
functions.cuGetErrorString(4, ctypes.byref(text))
assert text.value == b"gone"
"""


def test_without_the_driver_calls_fail_cleanup_succeeds_and_there_is_a_text(python, tmp_path):
    done = python("-c", WITHOUT_DRIVER, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_asleep_again_calls_no_longer_reach_python(python, tmp_path):
    done = python("-c", ASLEEP_AGAIN, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
