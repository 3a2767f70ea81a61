"""What a kernel asks of the system: printf, assert, malloc and free.

Generated code calls back with the lanes that call; their arguments lie in local memory. printf's
output is kept until the launch is over and then written in the order of the blocks, so that it is
the same every time; more than `LIMIT` bytes of it are dropped, as a GPU drops what its buffer
cannot hold.
"""

from __future__ import annotations

import ctypes
import re
import struct

from .memory import Memory

LIMIT = 1 << 20
WIDEST = 4096  # field widths and precisions beyond are cut to this

_CONVERSION = re.compile(
    r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])"
)


def text_at(memory: Memory, address: int) -> str:
    """The zero-terminated string at a device address; "" if there is none."""
    found = memory.find(address)
    if found is None:
        return ""
    start, nbytes = found
    data = ctypes.string_at(address, start + nbytes - address)
    return data.split(b"\0")[0].decode(errors="replace")


def format_printf(memory: Memory, template: str, arguments: int, limit: int) -> tuple[str, int]:
    """printf's text and the number of values in it.

    arguments: host address of the packed values, of which there are `limit` bytes at most.

    Values are packed as CUDA's printf does: 4-byte integers, 8-byte integers, pointers and
    doubles, each at a multiple of its size.
    """
    data, at = ctypes.string_at(arguments, limit) if limit else b"", 0

    def take(size: int, kind: str):
        nonlocal at
        at = -(-at // size) * size
        piece = data[at : at + size].ljust(size, b"\0")
        at += size
        return struct.unpack("<" + kind, piece)[0]

    def convert(match: re.Match) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        number = take(4, "i") if width == "*" else int(width or 0)
        flags += "-" if number < 0 else ""  # as C has it
        width = str(min(abs(number), WIDEST)) if number else ""
        if precision is not None:
            number = take(4, "i") if precision == "*" else int(precision)
            precision = None if number < 0 else str(min(number, WIDEST))
        long = length in ("l", "ll", "j", "z", "t")
        if kind == "s":
            value = text_at(memory, take(8, "Q"))
        elif kind == "p":
            return f"0x{take(8, 'Q'):x}"
        elif kind in "fFeEgGaA":
            value = take(8, "d")
            if kind in "aA":
                return value.hex()
        elif kind == "c":
            value = chr(take(4, "i") & 255)
        else:
            value = (
                take(8, "q" if kind in "di" else "Q")
                if long
                else take(4, "i" if kind in "di" else "I")
            )
            kind = "d" if kind in "iu" else kind
        spec = "%" + flags + width + (f".{precision}" if precision is not None else "") + kind
        return spec % value

    text = _CONVERSION.sub(convert, template)
    return text, sum(m.group(5) != "%" for m in _CONVERSION.finditer(template))


class Output:
    """printf's output of one launch, by block."""

    def __init__(self):
        self._blocks: dict[int, list[str]] = {}
        self._size = 0

    def write(self, block: int, text: str) -> None:
        if self._size < LIMIT:
            self._size += len(text)
            self._blocks.setdefault(block, []).append(text)

    def text(self) -> str:
        parts = [t for block in sorted(self._blocks) for t in self._blocks[block]]
        dropped = f"[printf: output past {LIMIT:,} bytes dropped]\n" if self._size >= LIMIT else ""
        return "".join(parts) + dropped


class System:
    """Serves the calls of one launch. output: what printf wrote; failures: by worker."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.output = Output()
        self.failures: dict[int, str] = {}

    def call(
        self, name: str, block: int, worker: int, arguments: list[int], room: int
    ) -> int | None:
        """One thread's call: its result, or None if it ends the launch.

        room: bytes from the second argument to the end of the thread's local memory, if it points
        there.
        """
        return CALLS[name](self, block, worker, arguments, room)

    def _printf(self, block: int, worker: int, arguments: list[int], room: int) -> int:
        template, values = arguments
        text, count = format_printf(self.memory, text_at(self.memory, template), values, room)
        self.output.write(block, text)
        return count

    def _assert(self, block: int, worker: int, arguments: list[int], room: int) -> None:
        message, file, line, function = arguments[:4]
        message, file, function = (text_at(self.memory, a) for a in (message, file, function))
        self.failures[worker] = (
            f"assertion `{message}` failed in {function} ({file}:{line & 0xFFFFFFFF})"
        )

    def _malloc(self, block: int, worker: int, arguments: list[int], room: int) -> int:
        return self.memory.heap().malloc(arguments[0] & (1 << 64) - 1)

    def _free(self, block: int, worker: int, arguments: list[int], room: int) -> int | None:
        if self.memory.heap().free(arguments[0]):
            return 0
        self.failures[worker] = f"free() of 0x{arguments[0]:x}, which malloc() has not returned"
        return None


CALLS = {
    "vprintf": System._printf,
    "__assertfail": System._assert,
    "malloc": System._malloc,
    "free": System._free,
}
