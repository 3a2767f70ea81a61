"""What the counters of a launch say: runs of blocks, and the cost of each memory instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import ptx, rules
from .counting import Counted, Counters, Site

WHOLE = (1 << rules.LANES) - 1  # the mask of all lanes


@dataclass
class Cost:
    """What the warps of a launch have asked of one space with one instruction.

    requests: times that a warp ran it with any lane active; lanes: active lanes in them. units:
    sectors (global and local memory) or wavefronts (shared memory); ideal: how few there could be.
    """

    requests: int = 0
    lanes: int = 0
    units: int = 0
    ideal: int = 0

    def add(self, requests: int, lanes: int, units: int, ideal: int) -> None:
        self.requests += requests
        self.lanes += lanes
        self.units += units
        self.ideal += ideal


@dataclass
class AccessCount:
    """One memory instruction's costs, by space; `fused`: as the wider access that ptxas makes of it
    and its neighbours, by that access's bytes."""

    instruction: ptx.Instruction
    operation: str  # as in counting.Site
    size: int  # bytes a lane accesses
    costs: dict[str, Cost]
    fused: dict[int, Cost] = field(default_factory=dict)


@dataclass
class BlockCount:
    """One basic block: runs by a warp, active lanes in them, runs that parted at its end."""

    instructions: list[ptx.Instruction]
    branch: ptx.Instruction | None
    runs: int
    lanes: int
    parted: int


@dataclass
class Counts:
    """All that a launch has counted."""

    blocks: list[BlockCount]
    accesses: list[AccessCount]


def interpret(counters: Counters, values: Sequence[int], wider: dict[int, int]) -> Counts:
    """The counts of a launch from its counters' values, added up over the workers.

    wider: what the code was made with (codegen.Instruments).
    """
    blocks = {index: _block(block, values) for index, block in counters.blocks.items()}
    accesses = []
    for site in counters.sites:
        costs = _costs(site, blocks[site.block], values)
        found = AccessCount(site.instruction, site.operation, site.size, costs)
        if "shared" in costs and site.instruction.ptx_line in wider:
            size = wider[site.instruction.ptx_line]
            found.fused[size] = _cost(site, blocks[site.block], values, "shared", size)
        accesses.append(found)
    return Counts(list(blocks.values()), accesses)


def _block(block: Counted, values: Sequence[int]) -> BlockCount:
    runs = values[block.runs]
    return BlockCount(
        block.instructions,
        block.branch,
        runs,
        rules.LANES * runs if block.lanes < 0 else values[block.lanes],
        0 if block.parted < 0 else values[block.parted],
    )


def _costs(site: Site, block: BlockCount, values: Sequence[int]) -> dict[str, Cost]:
    spaces = ["global", "shared", "local"] if site.space == "generic" else [site.space]
    costs = {space: _cost(site, block, values, space, site.size) for space in spaces}
    return {space: c for space, c in costs.items() if c.requests or site.space != "generic"}


def _cost(site: Site, block: BlockCount, values: Sequence[int], space: str, size: int) -> Cost:
    """What runs with a known pattern cost, and what was counted lane by lane."""
    cost = Cost()
    runs, lanes = block.runs, block.lanes
    if site.guard >= 0:
        runs, lanes = values[site.guard : site.guard + 2]
    each = rules.local_requests(size) if space == "local" else 1
    if site.pattern is not None and site.whole < 0:
        units, ideal = _priced(site, space, size, 0)
        cost.add(runs * each, lanes, runs * units, runs * ideal)
    elif site.pattern is not None:
        phases = rules.SECTOR // site.size if space == "global" else 1
        for phase in range(phases):
            times = values[site.whole + phase]
            if times:
                units, ideal = _priced(site, space, size, phase * site.size)
                cost.add(times * each, rules.LANES * times, times * units, times * ideal)
    counter = site.seen.get(space, -1) if size == site.size else site.wider.get(size, -1)
    if counter >= 0:
        cost.add(*values[counter : counter + 4])
    return cost


def _priced(site: Site, space: str, size: int, start: int) -> tuple[int, int]:
    """(units, ideal units) of a run with all lanes, lane 0's access at `start`."""
    addresses = [start + p for p in site.pattern]
    if space == "shared":
        return rules.wavefronts(addresses, WHOLE, size, site.operation == "load")
    if space == "local":
        return rules.local_sectors(addresses, WHOLE, size), size
    return rules.sectors(addresses, WHOLE), rules.ideal_sectors(addresses, WHOLE, size)
