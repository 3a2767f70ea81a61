"""What a kernel needs of a multiprocessor, and how it fills an H200; both follow from its code."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from helpers.cards import CARDS
from helpers.occupancy import Resources, occupancy, resources_of
from helpers.replica import Program

from .subject import Subject

CARD = CARDS["H200"]
FILLED = 1024  # the M, N and K at which the card is to be filled
WARP = 32


@dataclass(frozen=True)
class Needs:
    """Of a subject. ptx, entry: its code; static: bytes of shared memory that it declares."""

    subject: Subject
    ptx: str
    entry: str
    static: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, static and dynamic."""
        return self.static + self.subject.shared

    @functools.cached_property
    def resources(self) -> Resources:
        """As ptxas says, for the H200."""
        return resources_of(Program(self.entry, self.ptx), CARD.capability)

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread."""
        return self.resources.local

    @property
    def blocks(self) -> int:
        """Of the launch with `FILLED`."""
        return math.prod(self.subject.grid(FILLED, FILLED))

    @property
    def warps(self) -> float:
        """On a multiprocessor of the H200 at a time, with `FILLED`, on average."""
        block, shared = self.subject.block, self.subject.shared
        room = occupancy(self.resources, CARD.capability, block=block, shared=shared).blocks
        return min(room, self.blocks / CARD.multiprocessors) * self.warps_of_block

    @property
    def warps_of_block(self) -> int:
        return -(-math.prod(self.subject.block) // WARP)
