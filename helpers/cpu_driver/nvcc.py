"""The ``nvcc`` that PyCUDA finds while the CPU driver is loaded.

PyCUDA runs ``nvcc --cubin`` and hands the file to the driver.  This stand-in lets the real nvcc do
exactly that, ptxas and its complaints included (50 KiB of static shared memory, too many
registers), and then puts PTX in place of the machine code: the PTX that nvcc made on the way, with
lines, followed by what ``ptxas -v`` said, as comments.  Every other call goes to the real nvcc
untouched, except that ``--version`` has one line more: it is part of the key of PyCUDA's cache, so
that a GPU's files and the CPU driver's are never taken for each other.

Run as a script by a two-line wrapper (:func:`install`); it imports nothing of this package.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FORMAT = 1  # of the files written here; a new number keeps PyCUDA from using older ones
#: What stands before each line of ptxas's at the end of the PTX.
PTXAS_COMMENT = "//ptxas "
#: What ``-arch native`` means here.
NATIVE = "sm_80"

#: The lines that ``ptxas -v`` adds.
_VERBOSE = re.compile(
    r"ptxas info\s*: (\d+ bytes gmem|Compiling entry function|Function properties for|Used \d+ "
    r"registers|Compile time)|\s+\d+ bytes stack frame, \d+ bytes spill stores"
)


def install(nvcc: Path | None, folder: Path, libraries: Path | None = None) -> Path:
    """A folder with an ``nvcc`` that is this script, in front of the real one at `nvcc`.

    libraries: the toolkit's, which PyCUDA looks for in ``lib64`` beside that folder.
    """
    if libraries:
        _link(folder.parent / "lib64", libraries)
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(nvcc or "")]
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    text = f"#!/bin/sh\nexec {quoted} \"$@\"\n"
    folder.mkdir(parents=True, exist_ok=True)
    wrapper = folder / "nvcc"
    if not wrapper.is_file() or wrapper.read_text() != text:
        fresh = wrapper.with_name(f"nvcc-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return folder


def _link(link: Path, target: Path) -> None:
    """Let `link` point to `target`, in one step."""
    if not link.is_symlink() or link.readlink() != target:
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f"{link.name}-{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)


def main(nvcc: str, arguments: list[str]) -> int:
    """Stand in for ``nvcc arguments``."""
    if not nvcc:
        print("nvcc: no complete CUDA toolkit was found when the CPU driver was loaded. "
              "`make setup` in the project's folder installs one (no GPU, no root needed).",
              file=sys.stderr)
        return 1
    if not {"--cubin", "-cubin"}.isdisjoint(arguments):
        return _cubin(nvcc, arguments)
    if not {"--version", "-V"}.isdisjoint(arguments):
        code = subprocess.run([nvcc, *arguments], check=False).returncode
        print(f"CPU driver: cubin files hold PTX (format {FORMAT})", flush=True)
        return code
    os.execv(nvcc, [nvcc, *arguments])


def _cubin(nvcc: str, arguments: list[str]) -> int:
    arguments = _with_native_arch(arguments)
    verbose = _asks_for_verbose(arguments)
    debug = not {"-G", "--device-debug"}.isdisjoint(arguments)
    lines = not {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}.isdisjoint(arguments)
    keeps = not {"-keep", "--keep", "-save-temps", "--save-temps"}.isdisjoint(arguments)
    started = time.time_ns()
    with tempfile.TemporaryDirectory(prefix="nvcc-") as scratch:
        command = [nvcc, *arguments]
        command += [] if lines or debug else ["-lineinfo"]
        command += [] if verbose else ["-Xptxas", "-v"]
        command += [] if keeps else ["--keep", "--keep-dir", scratch]
        # After an error, what nvcc keeps includes a file in TMPDIR.
        variables = os.environ if keeps else {**os.environ, "TMPDIR": scratch}
        done = subprocess.run(command, stderr=subprocess.PIPE, env=variables, check=False)
        said = done.stderr.decode(errors="surrogateescape").splitlines(keepends=True)
        report = [line for line in said if _VERBOSE.match(line)]
        sys.stdout.flush()
        sys.stderr.buffer.write("".join(
            line for line in said if verbose or line not in report
        ).encode(errors="surrogateescape"))
        if done.returncode == 0:
            folder = Path(_value(arguments, "-keep-dir", "--keep-dir") or ".") if keeps else scratch
            _replace_by_ptx(arguments, Path(folder), report, started if keeps else 0)
    return done.returncode


def _replace_by_ptx(arguments: list[str], folder: Path, report: list[str], since: int) -> None:
    """Write the PTX in `folder`, and ptxas's `report`, over the cubin that nvcc has written."""
    found = [path for path in folder.glob("*.ptx") if path.stat().st_mtime_ns >= since - 10**7]
    found = found or [Path(word) for word in arguments if word.endswith(".ptx")]
    if len(found) != 1:
        return  # several files at once: the driver will say that it cannot load machine code
    output = _value(arguments, "-o", "--output-file") or Path(
        _value(arguments, "-odir", "--output-directory") or ".", f"{found[0].stem}.cubin")
    ptx = found[0].read_bytes().rstrip(b"\0")
    comments = "".join(PTXAS_COMMENT + line.rstrip("\n") + "\n" for line in report)
    Path(output).write_bytes(ptx + b"\n" + comments.encode(errors="surrogateescape"))


def _value(arguments: list[str], *names: str) -> str | None:
    """The value of an option given as ``-o VALUE`` or ``-o=VALUE``, or None."""
    for i, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else arguments[i + 1] if i + 1 < len(arguments) else None
    return None


def _asks_for_verbose(arguments: list[str]) -> bool:
    """Whether the caller wants to see the output of ``ptxas -v``."""
    if not {"-res-usage", "--resource-usage"}.isdisjoint(arguments):
        return True
    for i, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in ("-Xptxas", "--ptxas-options"):
            value = value if equals else "".join(arguments[i + 1:i + 2])
            if not {"-v", "--verbose"}.isdisjoint(value.split(",")):
                return True
    return False


def _with_native_arch(arguments: list[str]) -> list[str]:
    """There is no GPU whose architecture ``-arch native`` could name."""
    changed = list(arguments)
    for i, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in ("-arch", "--gpu-architecture"):
            if value == "native":
                changed[i] = f"{name}={NATIVE}"
            elif not equals and arguments[i + 1:i + 2] == ["native"]:
                changed[i + 1] = NATIVE
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
