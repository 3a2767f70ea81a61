"""What a kernel's machine code asks of the schedulers, and how it waits for global memory: from its
SASS, and from how often a launch ran each line of the PTX that the SASS was made of.

    found = issue(function, runs, fmas)
    found.cycles     # of a scheduler, for all warps of the launch
    found.waits      # times that a round of the hot loop waits for loads
    found.hiding     # the share of a round's work that is done between a load and its wait

A scheduler issues one instruction of a warp a cycle; an FFMA with a bank conflict takes longer
(helpers.register_banks). A basic block of the SASS ran as often as the PTX it was made of. Where
ptxas has unrolled a loop that is not quite so: the sum is scaled to the FMAs that were counted, and
a round is taken to wait once.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.register_banks import cycles_of, is_ffma, loops_of
from helpers.sass import SassFunction, SassInstruction

_REGISTER = re.compile(r"\bR(\d+)")
_LOADS = ("LDG", "LD")


@dataclass(frozen=True)
class Issue:
    """cycles: of a scheduler, for all warps together; waits: how often a warp, in a round of the
    loop that computes, waits for loads from global memory, each time for all that are on their way;
    hiding: FFMAs between a load and its wait, by those of a round."""

    cycles: float
    waits: float
    hiding: float


def issue(function: SassFunction, runs: Mapping[int, int], fmas: float) -> Issue | None:
    """runs: line of the PTX -> times that warps ran it; fmas: FMAs that warps ran. None where the
    SASS cannot be brought together with these counts."""
    blocks: dict[int, list[SassInstruction]] = defaultdict(list)
    for i in function.instructions:
        blocks[i.block].append(i)
    copies = Counter(i.ptx_line for i in function.instructions if is_ffma(i))
    times = {}
    for block, code in blocks.items():
        known = [runs[i.ptx_line] / (copies[i.ptx_line] if is_ffma(i) else 1)
                 for i in code if i.ptx_line in runs]  # fmt: skip
        times[block] = statistics.median(known) if known else 0.0
    found = sum(times[i.block] for i in function.instructions if is_ffma(i))
    if not found or not fmas:
        return None
    cycles = sum(times[block] * cycles_of(code) for block, code in blocks.items())
    unrolled = any(count > 1 and runs.get(line) for line, count in copies.items())
    waits, hiding = (1.0, 0.0) if unrolled else _waits(function, times)
    return Issue(cycles * fmas / found, waits, hiding)


def _waits(function: SassFunction, times: Mapping[int, float]) -> tuple[float, float]:
    """In the loop that runs the most FFMAs: waits of a round, and FFMAs before them by all."""
    loops = loops_of(function)
    if not loops:
        return 1.0, 0.0
    loop = max(loops, key=lambda loop: sum(times[i.block] for i, _ in loop.ffmas))
    most = max(times[i.block] for i, _ in loop.ffmas)
    code = [i for i in loop.code if 2 * times[i.block] > most]
    on_the_way: dict[str, int] = {}  # register -> FFMAs that were issued when it was asked for
    waits, between, ffmas = 0, [], 0
    for first_time in (True, False):  # a second round: what the first one has left on the way
        for i in code:
            given = i.operands if i.opcode.startswith(("ST", "RED")) else i.operands[1:]
            used = {r for o in given for r in _REGISTER.findall(o)} & set(on_the_way)
            if used:
                if not first_time:
                    waits += 1
                    between.append(ffmas - max(on_the_way.values()))
                on_the_way = {}
            if i.opcode.partition(".")[0] in _LOADS:
                start = int(_REGISTER.findall(i.operands[0])[0])
                count = 4 if ".128" in i.opcode else 2 if ".64" in i.opcode else 1
                on_the_way |= {str(start + k): ffmas for k in range(count)}
            ffmas += is_ffma(i)
    return float(waits), min(between, default=0) / len(loop.ffmas)
