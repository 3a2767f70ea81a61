"""A second reading of PTX: simple kernels run thread after thread, for comparison with the engine.

It shares no code with the engine. What an arithmetic instruction gives comes from the oracles of
tests/simt/ptx_rows.py; the rest is here. Whatever it does not know, and whatever has no defined
result (a register or shared memory read before it is written, threads that race), raises Skip.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "simt"))

import ptx_oracle  # noqa: E402
import ptx_rows  # noqa: E402

STEPS = 3000  # of one thread
BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_ROWS = {r.name: r for r in ptx_rows.ROWS if r.form == "" or r.form.count(";") == 0}


class Skip(Exception):
    """Nothing can be said of this kernel."""


def size_of(kind: str) -> int:
    """Bytes of a PTX type."""
    if kind == "pred":
        return 1
    match = re.fullmatch(r"[a-z]+(8|16|32|64)", kind)
    if match is None:
        raise Skip(kind)
    return BYTES[match.group(1)]


class Program:
    """One kernel's statements, parameters, registers and shared variables."""

    def __init__(self, text: str):
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
        match = re.search(r"\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{(.*?)\n\}", text, re.S)
        if match is None or ".func" in text:
            raise Skip("no single kernel")
        self.parameters: dict[str, int] = {}
        at = 0
        for p in match.group(2).split(","):
            kind, name = re.fullmatch(r"\s*\.param\s+\.(\w+)\s+(\w+)\s*", p).groups()
            size = size_of(kind)
            at = -(-at // size) * size
            self.parameters[name] = at
            at += size
        self.types: dict[str, str] = {}
        self.shared: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.code: list[tuple] = []
        at = 0
        lines = [s for s in match.group(4).split("\n") if not s.strip().startswith(".loc")]
        for statement in re.split(r";|(?<=:)\s", "\n".join(lines)):
            statement = " ".join(statement.split())
            if not statement or statement.startswith(".pragma"):
                continue
            reg = re.fullmatch(r"\.reg \.(\w+) (%\w+)<(\d+)>", statement)
            var = re.fullmatch(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", statement)
            label = re.fullmatch(r"(\$?\w+):", statement)
            plain = re.fullmatch(r"(?:@(!?)(%\w+) )?([a-z]\w*(?:\.\w+)*)(?: (.*))?", statement)
            if reg:
                names = (f"{reg.group(2)}{k}" for k in range(int(reg.group(3))))
                self.types |= dict.fromkeys(names, reg.group(1))
            elif var:
                at = -(-at // int(var.group(1))) * int(var.group(1))
                self.shared[var.group(2)] = at
                at += int(var.group(3))
            elif label:
                self.labels[label.group(1)] = len(self.code)
            elif plain and "{" not in plain.group(3):
                negated, guard, name, rest = plain.groups()
                operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest or "")
                self.code.append((guard, bool(negated), name, [o.strip() for o in operands]))
            else:
                raise Skip(statement)
        self.shared_bytes = at


class Block:
    """The threads of one block, run to the next barrier one after the other."""

    def __init__(self, run: Run, index: int):
        self.run, self.index = run, index
        self.shared = bytearray(run.program.shared_bytes)
        self.known: set[int] = set()  # bytes of it that have been written
        self.touched: dict[tuple, tuple[int, bool]] = {}  # since the last barrier

    def execute(self) -> None:
        threads = [self._thread(t) for t in range(self.run.block)]
        while threads:
            self.touched = {}
            waiting = [t for t in threads if next(t, None) is not None]
            if waiting and len(waiting) < len(threads):
                raise Skip("some threads end where others wait")
            threads = waiting

    def note(self, where: tuple, thread: int, writes: bool) -> None:
        """Refuses what two threads do to one byte between barriers, if one of them writes."""
        before = self.touched.get(where)
        if before and before[0] != thread and (writes or before[1]):
            raise Skip("a race")
        self.touched[where] = thread, writes or bool(before and before[1])

    # -- one thread ----------------------------------------

    def _thread(self, thread: int) -> Iterator[int]:
        program, registers = self.run.program, {}
        at = 0
        for _ in range(STEPS):
            if at >= len(program.code):
                return
            guard, negated, name, operands = program.code[at]
            at += 1
            if guard is not None:
                if program.types.get(guard) != "pred":
                    raise Skip("guard")
                if bool(self._read(guard, "pred", registers)) == negated:
                    continue
            if name in ("ret", "exit"):
                return
            if name in ("bra", "bra.uni"):
                at = program.labels[operands[0]]
            elif name in ("bar.sync", "barrier.sync", "barrier.sync.aligned") and operands == ["0"]:
                if guard is not None:
                    raise Skip("a guarded barrier")
                yield at
            elif name.startswith(("ld.", "st.")):
                self._memory(name.split("."), operands, thread, registers)
            else:
                self._compute(name, operands, thread, registers)
        raise Skip("long")

    def _read(self, operand: str, kind: str, registers: dict) -> int:
        size = size_of(kind)
        if operand.startswith("!"):
            return 1 - self._read(operand[1:], kind, registers)
        if operand in self.run.program.types:
            if operand not in registers:
                raise Skip("a register without a value")
            return registers[operand] & (1 << 8 * size) - 1
        if re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+", operand):
            if re.fullmatch(r"-?0\d+", operand):
                raise Skip("octal")
            value = int(operand, 0)
            return int(value != 0) if kind == "pred" else value & (1 << 8 * size) - 1
        match = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", operand)
        if match is None or size != (4 if match.group(1) else 8):
            raise Skip(operand)
        return int(match.group(1) or match.group(2), 16)

    def _write(self, register: str, value: int, kind: str, registers: dict) -> None:
        if register == "_":
            return
        own = self.run.program.types.get(register)
        if own is None:
            raise Skip(register)
        bits, wide = 8 * size_of(kind), 8 * size_of(own)
        value &= (1 << bits) - 1
        if kind[0] == "s" and value >> bits - 1:
            value -= 1 << bits
        registers[register] = value & (1 << wide) - 1

    def _compute(self, name: str, operands: list[str], thread: int, registers: dict) -> None:
        words = name.split(".")
        if words[0] == "cvta" and "shared" not in words:
            name = "mov.u64"
        if name.startswith("mov.") and (value := self._special(operands[1], thread)) is not None:
            self._write(operands[0], value, words[-1], registers)
            return
        row = _ROWS.get(name)
        if row is None:
            raise Skip(name)
        targets = operands[0].split("|")
        given = [
            self._read(o, kind, registers)
            for o, kind in zip(operands[1:], row.operands, strict=True)
        ]
        results = row.oracle(*given)
        results = results if isinstance(results, tuple) and len(row.results) > 1 else (results,)
        for register, value, kind in zip(targets, results, row.results, strict=False):
            if not isinstance(value, int) or value == ptx_oracle.NAN:
                raise Skip("not exact")
            self._write(register.strip(), value, kind, registers)

    def _special(self, name: str, thread: int) -> int | None:
        if name in self.run.program.shared:
            return self.run.program.shared[name]
        first = {"%tid": thread, "%ntid": self.run.block, "%ctaid": self.index}
        first |= {"%nctaid": self.run.grid}
        what, _, axis = name.partition(".")
        if what not in first or axis not in ("x", "y", "z"):
            return None
        if axis == "x":
            return first[what]
        return 1 if what.startswith("%n") else 0

    # -- memory ----------------------------------------

    def _memory(self, words: list[str], operands: list[str], thread: int, registers: dict) -> None:
        kind, size = words[-1], size_of(words[-1])
        unknown = set(words[1:-1]) - {"global", "shared", "param", "v2", "v4", "nc"}
        space = next((w for w in words if w in ("global", "shared", "param")), None)
        if unknown or space is None or kind == "pred":
            raise Skip(".".join(words))
        count = next((int(w[1]) for w in words if w in ("v2", "v4")), 1)
        load = words[0] == "ld"
        address, values = operands[::-1] if load else operands
        parts = [p.strip() for p in values.strip("{}").split(",")]
        base, _, offset = address.strip("[]").partition("+")
        base, offset = base.strip(), int(offset or "0", 0)
        if len(parts) != count:
            raise Skip("elements")
        if space == "param":
            if not load or base not in self.run.program.parameters:
                raise Skip("param")
            start = self.run.program.parameters[base] + offset
            memory, low = self.run.arguments, 0
        elif space == "shared":
            known = self.run.program.shared.get(base)
            start = self._read(base, "u32", registers) if known is None else known
            start = start + offset & 0xFFFFFFFF
            memory, low = self.shared, 0
        else:
            start = self._read(base, "u64", registers) + offset & (1 << 64) - 1
            memory, low = self.run.memory, self.run.start
        if start % (size * count) or not low <= start <= low + len(memory) - size * count:
            raise Skip("a bad address")
        for k, part in enumerate(parts):
            at = start - low + k * size
            self._touch(space, at, size, thread, not load)
            if load:
                value = int.from_bytes(memory[at : at + size], "little")
                self._write(part, value, kind, registers)
            else:
                value = self._read(part, kind, registers)
                memory[at : at + size] = value.to_bytes(size, "little")

    def _touch(self, space: str, at: int, size: int, thread: int, writes: bool) -> None:
        for byte in range(at, at + size) if space != "param" else ():
            self.note((space, byte), thread, writes)
            if space == "global":
                self.run.note(byte, self.index, writes)
            elif writes:
                self.known.add(byte)
            elif byte not in self.known:
                raise Skip("shared memory without a value")


class Run:
    """One launch: blocks of `block` threads in one dimension on one array at `start`."""

    def __init__(self, text: str, grid: int, block: int, arguments: bytes, start: int, data: bytes):
        self.program, self.grid, self.block = Program(text), grid, block
        self.arguments, self.start, self.memory = arguments, start, bytearray(data)
        self.touched: dict[int, tuple[int, bool]] = {}

    def note(self, byte: int, block: int, writes: bool) -> None:
        before = self.touched.get(byte)
        if before and before[0] != block and (writes or before[1]):
            raise Skip("a race of blocks")
        self.touched[byte] = block, writes or bool(before and before[1])

    def result(self) -> bytes:
        """The array as the kernel leaves it."""
        try:
            for index in range(self.grid):
                Block(self, index).execute()
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise Skip(f"cannot read it: {error!r}") from error
        return bytes(self.memory)
