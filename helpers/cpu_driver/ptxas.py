"""What ptxas says of each kernel: registers, stack, shared and constant memory."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .nvcc import PTXAS_COMMENT

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)'")
_STACK = re.compile(r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
                    r"(?P<loads>\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")
_CONSTANT = re.compile(r"(?P<bytes>\d+) bytes cmem\[(?P<bank>\d+)\]")
#: The constant bank of the module's own __constant__ variables (bank 0 holds the parameters).
_USER_BANK = "3"


@dataclass
class Resources:
    """What one kernel needs of a multiprocessor."""

    registers: int = 0
    stack_bytes: int = 0  # per thread
    constant_bytes: int = 0
    shared_bytes: int = 0  # static, per block


def resources(report: str) -> dict[str, Resources]:
    """The kernels in the output of ``ptxas -v``, by name."""
    kernels: dict[str, Resources] = {}
    constant = 0
    kernel = Resources()
    for line in report.splitlines():
        if found := _ENTRY.match(line):
            kernel = kernels[found["name"]] = Resources(constant_bytes=constant)
        elif found := _STACK.match(line):
            kernel.stack_bytes = int(found["stack"])
        elif found := _USED.match(line):
            kernel.registers = int(found["registers"])
        if found := _SHARED.search(line):
            kernel.shared_bytes = int(found["bytes"])
        for size in _CONSTANT.finditer(line):
            if size["bank"] == _USER_BANK:
                constant = kernel.constant_bytes = int(size["bytes"])
    return kernels


def report_in(image: str) -> str:
    """The report that our nvcc has put at the end of an image; empty if there is none."""
    return "".join(line.removeprefix(PTXAS_COMMENT) + "\n"
                   for line in image.splitlines() if line.startswith(PTXAS_COMMENT))


def as_comments(report: str) -> str:
    """The report as our nvcc puts it at the end of an image."""
    return "".join(f"{PTXAS_COMMENT}{line}\n" for line in report.splitlines())


def assemble(ptxas: Path, ptx: str, arch: str, relocatable: bool = False) -> tuple[bool, str]:
    """Whether `ptxas` accepts the PTX, and its report or its complaints.

    relocatable: the PTX may use names that another one defines.
    """
    options = ["-v", *(["-c"] if relocatable else []), f"-arch={arch}"]
    with tempfile.TemporaryDirectory(prefix="ptxas-") as scratch:
        source = Path(scratch, "image.ptx")
        source.write_text(ptx)
        done = subprocess.run([ptxas, *options, "-o", Path(scratch, "cubin"), source],
                              capture_output=True, text=True, errors="replace", check=False)
    return done.returncode == 0, (done.stderr + done.stdout).replace(str(source), "image.ptx")
