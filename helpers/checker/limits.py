"""What can be told of a kernel before it runs: its signature, and limits of a device."""

from __future__ import annotations

import functools
import math
import re

from helpers import simt
from helpers.cpu_driver.ptxas import assemble, resources
from helpers.replica import MOST_SHARED
from helpers.toolkit import require_toolkit

from .diagnosis import Diagnosis
from .subject import Refused, Subject

STATIC_SHARED = 48 * 1024  # bytes; CUDA Programming Guide, technical specifications
REGISTERS = 65536  # of a multiprocessor, the same place
MOST_REGISTERS = 255  # of a thread
WANTED = (8, 8, 8, 4, 4, 4)  # bytes of the parameters
NAMES = "A", "B", "C", "M", "N", "K"


def signature(subject: Subject, function: simt.Function) -> Diagnosis | None:
    """Whether the parameters are three pointers and three ints."""
    sizes = tuple(nbytes for _, _, nbytes in function.parameters)
    declared = _declared(subject)
    line = declared[1] if declared else 0
    given = f"It takes ({declared[0]})." if declared else f"Its parameters have {sizes} bytes."
    lines = (line,) if line else ()
    if len(sizes) != len(WANTED):
        what = f"{len(sizes)} parameter{'s' if len(sizes) != 1 else ''}"
        return Diagnosis("wrong signature", (f"Kernel {subject.entry} has {what} instead of 6. "
                                             f"{given}",), lines)  # fmt: skip
    for name, found, wanted in zip(NAMES, sizes, WANTED, strict=True):
        if found != wanted:
            kind = "a pointer" if wanted == 8 else "an int"
            return Diagnosis("wrong signature", (f"Parameter {name} should be {kind} of {wanted} "
                             f"bytes, and has {found}. {given}",), lines)  # fmt: skip
    for name, text in zip(NAMES, declared[0].split(",") if declared else (), strict=False):
        other = re.search(r"\b(double|half|__half|int|unsigned|char)\b[^*]*\*", text)
        if "ABC".count(name) and other:
            return Diagnosis("wrong signature", (f"{name} points to {other[1]}, the matrices are "
                                                 f"float. {given}",), lines)  # fmt: skip
        if "MNK".count(name) and re.search(r"\b(float|unsigned|uint32_t)\b", text):
            if "float" in text:
                return Diagnosis("wrong signature", (f"{name} is a float, the sizes are int. "
                                                     f"{given}",), lines)  # fmt: skip
    return None


def _declared(subject: Subject) -> tuple[str, int] | None:
    """The parameters as they stand in the source, and their line."""
    found = re.search(rf"\b{re.escape(subject.entry)}\s*\(([^()]*)\)\s*\{{", subject.source)
    if found is None:
        return None
    text = re.sub(r"\s+", " ", found[1]).strip()
    first = 1 if subject.source.startswith("#line") else 0
    return text, subject.source[: found.start()].count("\n") + 1 - first


def launch(subject: Subject, function: simt.Function) -> Diagnosis | None:
    """Whether a device could launch the kernel."""
    threads, static = math.prod(subject.block), function.static_shared_bytes
    try:
        subject.check_block()
    except Refused as error:
        return _refused(f"{str(error)[0].upper()}{str(error)[1:]}.")
    if function.max_threads and threads > function.max_threads:
        return _refused(f"The block has {threads:,} threads, __launch_bounds__ allow "
                        f"{function.max_threads:,}.")  # fmt: skip
    if static > STATIC_SHARED:
        return _refused(f"The kernel declares {static:,} bytes of shared memory; at most "
                        f"{STATIC_SHARED:,} are possible, more only as dynamic shared memory.")
    if static + subject.shared > MOST_SHARED:
        return _refused(f"{static + subject.shared:,} bytes of shared memory for a block; there "
                        f"are at most {MOST_SHARED:,}.")  # fmt: skip
    return None


def many_registers(function: simt.Function) -> bool:
    """Whether ptxas is to be asked before anything runs: such code is slow to compile."""
    return max(block.live_in.bit_count() for block in function.graph().blocks) > 56


def registers(subject: Subject, function: simt.Function, ptx: str) -> Diagnosis | None:
    """Whether the block's threads have enough registers, by what ptxas says."""
    threads = math.prod(subject.block)
    if threads * MOST_REGISTERS <= REGISTERS:
        return None
    accepted, report = _assembled(ptx)
    if not accepted:
        return Diagnosis("does not compile", (report.strip().splitlines()[0],))
    used = resources(report).get(function.name)
    if used is None:
        return None
    each = -(-used.registers // 8) * 8  # they are given out in eights
    if threads * each <= REGISTERS:
        return None
    return _refused(f"{threads:,} threads of {used.registers} registers each; a multiprocessor has "
                    f"{REGISTERS:,}.")  # fmt: skip


@functools.lru_cache(maxsize=8)
def _assembled(ptx: str) -> tuple[bool, str]:
    return assemble(require_toolkit().ptxas, ptx, "sm_80")


def _refused(text: str) -> Diagnosis:
    return Diagnosis("launch refused", (text,))
