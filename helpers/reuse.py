"""A simple model of where the bytes of a matrix product come from: L2 cache and device memory.

    t = traffic(KERNELS["tiled"], 4096, 4096, 4096, CARDS["H200"], resident=2)
    t.l2_bytes, t.memory_bytes

What it says, and nothing more:

- From the L2 cache a block gets its rows of A and its columns of B, each byte once: reuse within a
  block is left to shared memory or to the L1 cache. C is written once.
- If A, B and C fit in the L2 cache together, each of their bytes crosses to device memory once: the
  compulsory bytes.
- If they do not, the blocks that are resident together share what they have in common, and nothing
  is left over for the blocks after them. Blocks come in the order of their indices, x first.

So it knows of no L1 cache that serves two resident blocks at once or is too small, and of no L2
cache that keeps a part. Nor does it know of what lies between the multiprocessors and the L2 cache
and merges their requests for one line (the "L1 Request Coalescer" of Nsight Compute's Kernel
Profiling Guide): 64 large blocks, of which no two need share a multiprocessor, got from the L2
cache two thirds of what each of them reads. How many requests meet there depends on how well blocks
keep in step, and is not modelled. An H200's counters (2026-11-30, tests/test_reuse.py) say how far
off all that is: of the L2 cache's bytes the model has 0.85 to 1.5 times what was counted, the most
where 64 blocks are all that there are; at 4096 0.97 to 1.16 times, within 6% for the kernels of
lessons 1 to 4 and most above for those whose blocks compute the most (register_column, pipelined).
Of the memory's it has 1.1 to 2.5 times as many where all fits in the L2 cache, since C stays there,
and at 4096, where they do not fit, a quarter to all: blocks resident together seem not to keep in
step along K, and share less than the model lets them.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.cards import Card
from helpers.kernels import Kernel
from helpers.plausible import FLOAT_BYTES, compulsory_bytes


@dataclass(frozen=True)
class Traffic:
    """Bytes of one launch. l2_bytes: between L1 and L2; memory_bytes: between L2 and memory."""

    l2_bytes: float
    memory_bytes: float
    fits: bool  # whether the three matrices fit in the L2 cache together

    @property
    def from_memory(self) -> float:
        """The share of the L2 cache's bytes that memory has to give or take, at most 1."""
        return min(1.0, self.memory_bytes / self.l2_bytes)


def traffic(kernel: Kernel, M: int, N: int, K: int, card: Card, resident: int) -> Traffic:
    """The model's bytes for a product. resident: blocks that a multiprocessor holds at a time."""
    x, y, _ = kernel.grid(M, N)
    rows, columns = kernel.tile
    blocks = x * y
    written = FLOAT_BYTES * M * N
    of_rows, of_columns = FLOAT_BYTES * rows * K, FLOAT_BYTES * columns * K
    l2 = blocks * (of_rows + of_columns) + written
    least = compulsory_bytes(M, N, K)
    if least <= card.l2_bytes:
        return Traffic(l2, min(least, l2), True)
    together = min(max(resident, 1) * card.multiprocessors, blocks)
    along, across = min(together, x), max(1.0, together / x)  # tiles along x, and along y
    if kernel.rows_on_x:
        shared = along * of_rows + across * of_columns
    else:
        shared = across * of_rows + along * of_columns
    return Traffic(l2, min(l2, max(least, blocks / together * shared + written)), False)
