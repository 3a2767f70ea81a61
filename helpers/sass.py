"""The machine code (SASS) that ptxas makes of PTX, instruction by instruction.

    for function in disassemble(ptx_text, "sm_90"):
        print(sass_of_line(function, 38))

Each instruction knows the line of the PTX that it was made from: ptxas -lineinfo writes a table of
them, ``.nv_debug_line_sass``, and ``nvdisasm -gp`` prints it.  Its line in the .cu file is that of
the PTX instruction, by the same rule as the engine's counters (`helpers.simt.ptx`).

It also knows how many cycles its warp starts nothing after it at least: ptxas counts on that where
a result is always there in time. Four bits of each instruction say so, from bit 105 on, since
compute capability 7.0. NVIDIA documents nothing of it; found by Jia et al., arXiv:1804.06826.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from helpers import toolkit
from helpers.control_flow import ControlFlow
from helpers.simt import ptx

#: Where a disassembly names a section of code, an instruction, a label, a line of the PTX.
_SECTION = re.compile(r"\.text\.(?P<name>[^\s:]+):$")
_INSTRUCTION = re.compile(
    r"\s+/\*(?P<address>[0-9a-f]+)\*/\s+(?:@(?P<predicate>!?\w+)\s+)?(?P<opcode>[A-Z][\w.]*)"
    r"\s*(?P<operands>.*?)\s*;"
)
#: The second half of an instruction's 128 bits, as nvdisasm -hex writes it below the first.
_SECOND_HALF = re.compile(r"\s+/\* 0x(?P<bits>[0-9a-f]{16}) \*/$")
_LABEL = re.compile(r"(?P<name>\.L_\w+):$")
_PTX_LINE = re.compile(r'\s*//## File "\.nv_debug_ptx_txt", line (?P<line>\d+)')
_TARGET = re.compile(r"\.L_\w+")
#: Instructions that never go on to the next one, unless a predicate says so.  A call of a label
#: inside the function is ptxas's way to branch out of a long loop; a subroutine's has a name.
_ENDS = ("EXIT", "RET", "BRA", "BRX", "JMP", "JMX", "BSYNC", "CALL")


class SassError(RuntimeError):
    """The machine code cannot be shown; the text says why and what to do."""


@dataclass(frozen=True)
class SassInstruction:
    """One machine instruction."""

    address: int  # in bytes, from the start of the function
    opcode: str  # with its modifiers: "LDS.128"
    operands: tuple[str, ...]  # as nvdisasm writes them: "R12", "[R4+0x10]"
    predicate: str | None  # "P0", "!P0", "UP0"; None: always executed
    ptx_line: int  # of the PTX text, from 1; 0: made by ptxas itself
    file: str  # the .cu file as the PTX names it; "" if unknown
    line: int  # in that file, from 1; 0 if unknown
    block: int  # the basic block it is in; 0 is the function's first
    wait: int = 1  # cycles until its warp may start the next one, if nothing else holds it back

    @property
    def text(self) -> str:
        """As an assembler would have it."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class SassFunction:
    """The machine code of one kernel, or of a function that ptxas did not inline."""

    name: str  # as in the PTX: mangled
    arch: str  # "sm_90"
    instructions: tuple[SassInstruction, ...]
    successors: tuple[tuple[int, ...], ...]  # of each basic block; -1: the function's end

    @functools.cached_property
    def flow(self) -> ControlFlow:
        """Its loops and conditions."""
        return ControlFlow(self.successors)


@functools.lru_cache(maxsize=32)
def disassemble(
    ptx_text: str, arch: str, options: tuple[str, ...] = ()
) -> tuple[SassFunction, ...]:
    """What ptxas makes of `ptx_text` for `arch`, such as "sm_90".

    options: more options for ptxas, such as ``-maxrregcount=32``.  Without any, the code is the
    one that nvcc's --cubin yields.  Raises SassError, `helpers.toolkit.ToolkitError`, or
    `helpers.simt.errors.InvalidPtx`.
    """
    found = toolkit.require_toolkit()
    nvdisasm = toolkit.find_nvdisasm(found)
    if nvdisasm is None:
        raise SassError(
            "nvdisasm was not found, neither in the CUDA toolkit nor in .venv: `make setup` in "
            "the project's folder installs it"
        )
    with tempfile.TemporaryDirectory(prefix="sass-") as folder:
        source, cubin = Path(folder, "image.ptx"), Path(folder, "cubin")
        source.write_text(ptx_text)
        _run([found.ptxas, f"-arch={arch}", "-lineinfo", *options, source, "-o", cubin])
        listing = _run([nvdisasm, "-c", "-hex", "-gp", cubin])
    return tuple(_functions(listing, arch, _places(ptx_text)))


def sass_of_line(function: SassFunction, line: int, file: str | None = None) -> str:
    """The instructions that ptxas made of one line of the .cu file, each with its address.

    file: the end of the file's name; None: whichever file.  A blank line stands between basic
    blocks.  Empty if no instruction was made of the line.
    """
    rows, block = [], None
    for i in function.instructions:
        if i.line != line or not i.file.endswith(file or ""):
            continue
        if block not in (None, i.block):
            rows.append("")
        block = i.block
        rows.append(f"{i.address:04x}  {i.text}")
    return "\n".join(rows)


def _run(command: list) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        raise SassError(f"{Path(command[0]).name} failed ({done.returncode}): {said}")
    return done.stdout


def _places(ptx_text: str) -> dict[int, tuple[str, int]]:
    """Line of the PTX -> file and line of the source."""
    module = ptx.parse(ptx_text)
    return {
        item.ptx_line: (item.file, item.line)
        for kernel in [*module.kernels.values(), *module.functions.values()]
        for item in kernel.body
        if isinstance(item, ptx.Instruction)
    }


def _functions(listing: str, arch: str, places: dict[int, tuple[str, int]]) -> list[SassFunction]:
    name, rows, result, ptx_line = "", [], [], 0

    def finish() -> None:
        if name:
            result.append(_function(name, arch, rows, places))

    for text in listing.splitlines():
        if found := _SECTION.match(text):
            finish()
            name, rows, ptx_line = found["name"], [], 0
        elif found := _PTX_LINE.match(text):
            ptx_line = int(found["line"])
        elif found := _LABEL.match(text):
            rows.append(found["name"])
        elif found := _INSTRUCTION.match(text):
            rows.append((found, ptx_line, 0))
        elif (found := _SECOND_HALF.match(text)) and rows:
            rows[-1] = (*rows[-1][:2], int(found["bits"], 16))
    finish()
    return result


def _function(name: str, arch: str, rows: list, places: dict[int, tuple[str, int]]) -> SassFunction:
    """The function of `rows`: labels, and instructions with their lines of the PTX."""
    blocks: list[list[SassInstruction]] = []
    labels: dict[str, int] = {}
    fresh = True
    for row in _without_padding(rows):
        if isinstance(row, str):
            labels[row] = len(blocks) if fresh or blocks[-1] else len(blocks) - 1
            fresh = fresh or bool(blocks[-1])
            continue
        if fresh:
            blocks.append([])
        found, ptx_line, bits = row
        file, line = places.get(ptx_line, ("", 0))
        instruction = SassInstruction(
            int(found["address"], 16),
            found["opcode"],
            _split(found["operands"]),
            found["predicate"],
            ptx_line,
            file,
            line,
            len(blocks) - 1,
            max(bits >> 41 & 15, 1),
        )
        blocks[-1].append(instruction)
        fresh = instruction.opcode.partition(".")[0] in _ENDS
    every = [instruction for block in blocks for instruction in block]
    successors = tuple(_successors(block[-1], every, labels, len(blocks)) for block in blocks)
    return SassFunction(name, arch, tuple(every), successors)


def _without_padding(rows: list) -> list:
    """`rows` without the branch to itself and the NOPs that fill the function's last bytes."""
    end = len(rows)
    while end and (isinstance(rows[end - 1], str) or rows[end - 1][0]["opcode"] == "NOP"):
        end -= 1
    if (
        end > 1
        and rows[end - 1][0]["opcode"] == "BRA"
        and rows[end - 2] in _TARGET.findall(rows[end - 1][0]["operands"])
    ):
        end -= 2
    return rows[:end]


def _successors(
    last: SassInstruction, every: list[SassInstruction], labels: dict[str, int], count: int
) -> tuple[int, ...]:
    """The blocks that may follow the one that ends in `last`."""
    opcode = last.opcode.partition(".")[0]
    following = last.block + 1 if last.block + 1 < count else -1
    if opcode not in _ENDS or opcode == "CALL" and not _TARGET.search(last.operands[-1]):
        return (following,)
    if opcode == "BSYNC":  # to where the BSSY of the same barrier says
        named = [
            name
            for i in every
            if i.opcode.startswith("BSSY") and i.operands[0] == last.operands[0]
            for name in _TARGET.findall(i.operands[-1])
        ]
        places = tuple(labels[name] for name in named if name in labels)
        targets = (following,) if following in places or not places else places
    elif opcode in ("EXIT", "RET"):
        targets = (-1,)
    else:
        named = _TARGET.findall(" ".join(last.operands))
        targets = tuple(labels[name] for name in named if labels.get(name, count) < count) or (-1,)
    conditional = last.predicate is not None or (opcode == "BRA" and len(last.operands) > 1)
    return (*targets, following) if conditional else targets


def _split(text: str) -> tuple[str, ...]:
    """The operands in `text`; a comment, such as a BRX's list of targets, stays in the last one."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[({") - (c in "])}")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return tuple(part.strip() for part in parts if part.strip())
