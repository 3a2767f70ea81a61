"""How the code of a kernel's hot loop uses the registers: its FFMAs and their bank conflicts.

    b = register_banks("pipelined")
    print(b)      # loop by loop: instructions, FFMAs, .reuse, conflicts, cycles held back, cycles
    print(b.listing(first=12))     # FFMAs as nvdisasm writes them, a mark at each conflict

An FFMA reads three operands. Each quarter of a multiprocessor keeps its registers in two banks,
those of even and those of odd number, and a bank gives one operand a cycle. So an FFMA that must
read two registers of one bank has a conflict. A register that is named twice is read once. And an
operand need not be read if the instruction before has it in the same place and says .reuse there:
it then lies in a small cache of that place.

That is what chains of FFMAs took on an H200 (2026-11-30): one operand reused and the others in two
banks, 1 cycle; three registers and none reused, 1.5 to 2; three of one bank, 3. The 1.5 says that
banks work ahead: two FFMAs that ask them for (2, 1) and (1, 2) operands take three cycles together.
`cycles` lets them work one cycle ahead. Not at all, and the double-buffered kernel of lesson 8
could not be as fast as it is. NVIDIA documents none of this; the two banks were first found on
Volta (Jia et al., arXiv:1804.06826).

`held` are the cycles for which ptxas itself lets a warp start nothing (helpers.sass); `cycles` does
not contain them, since another warp may go on.

Not known is what becomes of the caches when another warp's instruction comes in between: the
figures are those of a warp that goes on alone and waits for nothing but its operands.

The code is the one that nvcc makes of the kernel's source for compute capability 9.0.
"""

from __future__ import annotations

import functools
import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers.errors import WrongType, WrongValue
from helpers.nvcc_messages import plain_name
from helpers.products import product
from helpers.replica import program_of
from helpers.sass import SassFunction, SassInstruction, disassemble

ARCH = "sm_90"
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
AHEAD = 1  # cycles that a bank may be behind the instruction that needs it
_OPERAND = re.compile(r"-?\|?R(?P<number>\d+)(?P<reuse>\.reuse)?\|?$")
#: Loops with fewer FFMAs than this share of the largest one's are remainders, not the hot loop.
_COMPARABLE = 0.5


@dataclass(frozen=True)
class Loop:
    """A loop of the machine code, the smallest around its FFMAs. What stands under a condition or
    in a loop inside counts once."""

    code: tuple[SassInstruction, ...]

    @functools.cached_property
    def ffmas(self) -> list[tuple[SassInstruction, int]]:
        """Each FFMA, with the most operands that it must read from one bank."""
        both = zip(self.code, reads_of(self.code), strict=True)
        return [(i, max(reads)) for i, reads in both if reads is not None]

    @property
    def instructions(self) -> int:
        """Machine instructions of a round."""
        return len(self.code)

    @property
    def ffma(self) -> int:
        """FFMAs of a round."""
        return len(self.ffmas)

    @property
    def share(self) -> float:
        """FFMAs by all instructions."""
        return self.ffma / self.instructions

    @property
    def reused(self) -> int:
        """FFMAs with .reuse at one of their operands."""
        return sum(any(".reuse" in o for o in i.operands) for i, _ in self.ffmas)

    @property
    def conflicts(self) -> int:
        """FFMAs that must read two or three operands from one bank."""
        return sum(most > 1 for _, most in self.ffmas)

    @property
    def held(self) -> int:
        """Cycles of a round in which ptxas lets the warp start nothing."""
        return sum(i.wait - 1 for i in self.code)

    @property
    def cycles(self) -> int:
        """Cycles of a scheduler for a round of one warp."""
        return cycles_of(self.code)

    @property
    def cycles_per_ffma(self) -> float:
        """1 is the least: nothing but FFMAs, and no conflict."""
        return self.cycles / self.ffma


@dataclass(frozen=True)
class Banks:
    """The hot loops of a kernel: several where it has copies of its loop, such as one for blocks
    at the edge. The figures are those of `loop`, the one with the largest share of FFMAs: it has
    the least work for edges."""

    kernel: str
    arch: str
    loops: tuple[Loop, ...]  # in the order of the code

    @property
    def loop(self) -> Loop:
        """The loop that the figures are of."""
        return max(self.loops, key=lambda loop: loop.share)

    @property
    def instructions(self) -> int:
        """Machine instructions of a round."""
        return self.loop.instructions

    @property
    def ffma(self) -> int:
        """FFMAs of a round."""
        return self.loop.ffma

    @property
    def reused(self) -> int:
        """FFMAs with a .reuse."""
        return self.loop.reused

    @property
    def conflicts(self) -> int:
        """FFMAs with a bank conflict."""
        return self.loop.conflicts

    @property
    def held(self) -> int:
        """Cycles of a round in which ptxas lets the warp start nothing."""
        return self.loop.held

    @property
    def share(self) -> float:
        """FFMAs by all instructions."""
        return self.loop.share

    @property
    def cycles_per_ffma(self) -> float:
        """Cycles of a scheduler for a round, by its FFMAs."""
        return self.loop.cycles_per_ffma

    def __str__(self) -> str:
        rows = [f"{self.kernel}, machine code for {self.arch}",
                f"{'loop at':>9}{'instructions':>14}{'FFMA':>7}{'share':>8}{'.reuse':>8}"
                f"{'conflicts':>11}{'held':>7}{'cycles/FFMA':>13}"]  # fmt: skip
        for loop in self.loops:
            mark = "  <-" if loop is self.loop and len(self.loops) > 1 else ""
            rows.append(f"{loop.code[0].address:>#9x}{loop.instructions:>14,}{loop.ffma:>7,}"
                        f"{loop.share:>8.1%}{loop.reused:>8,}{loop.conflicts:>11,}"
                        f"{loop.held:>7,}{loop.cycles_per_ffma:>13.2f}{mark}")  # fmt: skip
        return "\n".join(rows)

    def listing(self, first: int = 12, start: int = 0) -> str:
        """`first` FFMAs of the loop from the start-th on, a mark at those with a conflict.

        Raises WrongValue where there are none, WrongType for what is no integer.
        """
        for name, value in (("first", first), ("start", start)):
            if not isinstance(value, numbers.Integral) or isinstance(value, bool):
                raise WrongType(f"{name}={value!r} is a {type(value).__name__}: give an integer")
        if first < 1 or not 0 <= start < self.ffma:
            raise WrongValue(f"first={first}, start={start}: the loop has FFMAs 0 to "
                             f"{self.ffma - 1}")  # fmt: skip
        rows = []
        for i, most in self.loop.ffmas[start : start + first]:
            mark = f"  <- {most} of one bank" if most > 1 else ""
            rows.append(f"{i.address:04x}  {i.text:48}{mark}".rstrip())
        return "\n".join(rows)


def register_banks(kernel: Any, arch: str = ARCH) -> Banks:
    """The hot loops of a product kernel: what helpers.products.product takes.

    arch: a compute capability as ptxas writes it. Raises WrongValue if it is none, or if no loop
    of the kernel has an FFMA; SassError or ToolkitError without the tools.
    """
    if not isinstance(arch, str) or not _ARCH.fullmatch(arch):
        raise WrongValue(f"arch={arch!r} is no compute capability: write 'sm_90', or 'sm_80'")
    kernel = product(kernel)
    program = program_of(kernel)
    functions = [
        f for f in disassemble(program.ptx, arch)
        if program.entry in (f.name, plain_name(f.name))
    ]  # fmt: skip
    return Banks(kernel.name, arch, hot_loops(functions[0], kernel.name))


def hot_loops(function: SassFunction, name: str = "") -> tuple[Loop, ...]:
    """The innermost loops with FFMAs, without those that are small beside the largest."""
    found = loops_of(function)
    if not found:
        raise WrongValue(f"kernel {name or function.name!r} has no loop with an FFMA")
    most = max(loop.ffma for loop in found)
    return tuple(loop for loop in found if loop.ffma >= _COMPARABLE * most)


def loops_of(function: SassFunction) -> list[Loop]:
    """The innermost loops around FFMAs, in the order of the code."""
    flow = function.flow
    around = {flow.innermost_loop(i.block) for i in function.instructions if is_ffma(i)}
    found = []
    for header in sorted(around - {None}):
        body = flow.loops[header]
        code = tuple(i for i in function.instructions if i.block in body)
        found.append(Loop(code))
    return found


def reads_of(code: Sequence[SassInstruction]) -> list[tuple[int, int] | None]:
    """Of each instruction the operands that it must read from the even and from the odd bank; None
    for one that is no FFMA."""
    kept: dict[int, int] = {}  # place of an operand -> the register that its cache holds
    block = -1
    found: list[tuple[int, int] | None] = []
    for i in code:
        if i.block != block:
            kept, block = {}, i.block
        if not is_ffma(i):
            kept = {}
            found.append(None)
            continue
        read, keeps = set(), {}
        for place, operand in enumerate(i.operands[1:]):
            match = _OPERAND.match(operand)
            if match is None:  # a constant, RZ, a uniform register: from no bank
                continue
            number = int(match["number"])
            if match["reuse"]:
                keeps[place] = number
            if kept.get(place) != number:
                read.add(number)
        kept = keeps
        odd = sum(number % 2 for number in read)
        found.append((len(read) - odd, odd))
    return found


def cycles_of(code: Sequence[SassInstruction]) -> int:
    """Cycles of a scheduler for some code of one warp that waits for nothing but its operands."""
    now, free = 0, [0, 0]  # free: when each bank has read what was asked of it
    for reads in reads_of(code):
        if reads is not None:
            free = [max(f, now) + count for f, count in zip(free, reads, strict=True)]
        now = max(now + 1, max(free) - AHEAD)
    return now


def is_ffma(i: SassInstruction) -> bool:
    """Whether it multiplies and adds FP32."""
    return i.opcode.partition(".")[0] == "FFMA"
