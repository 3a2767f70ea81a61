"""What can go wrong in the engine, as exceptions whose text is meant for the reader of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from helpers.errors import Told


class SimtError(Told):
    """Base class of everything the engine raises on purpose."""


class InvalidPtx(SimtError):
    """The text is not PTX this engine can read."""


class OutOfMemory(SimtError):
    """The device memory's capacity is used up."""


class Interrupted(SimtError):
    """The launch was stopped from outside before it had finished."""


class Unsupported(SimtError):
    """An instruction (or a form of one) that the engine does not implement."""

    def __init__(self, instruction: str, kernel: str, file: str = "", line: int = 0):
        self.instruction, self.kernel, self.file, self.line = instruction, kernel, file, line
        where = f" ({PurePath(file).name}:{line})" if line else ""
        super().__init__(
            f"kernel {kernel}{where}: the CPU driver does not support the PTX instruction "
            f"'{instruction}'"
        )


@dataclass
class Fault(SimtError):
    """A kernel (or a copy) did something a GPU would stop it for.

    kind is one of runtime.FAULT_KINDS, or "time" (a limit that the caller has set); block and
    thread are (x, y, z); address is the byte address at fault (0 where there is none); allocation
    is (start, bytes) of what the pointer was made to point into, if that is known; detail is the
    sentence that says what was wrong. others: (line, thread) of the threads that a barrier or a
    deadlock keeps apart, one for each line they are at, where it is known.
    """

    kind: str
    detail: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    address: int = 0
    allocation: tuple[int, int] | None = None
    others: tuple[tuple[int, tuple[int, int, int]], ...] = ()

    def __str__(self) -> str:
        parts = []
        if self.kernel:
            parts.append(f"kernel {self.kernel}")
        if self.line:
            parts.append(f"{self.file}:{self.line}")
        if self.block is not None:
            parts.append(f"block {self.block}, thread {self.thread}")
        return ", ".join(parts) + (": " if parts else "") + self.detail
