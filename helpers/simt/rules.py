"""How an access of a warp is served by the memory system: sectors, banks, wavefronts.

Measured on an H200, and unchanged since Volta as far as NVIDIA's documents tell:

- Global memory moves in sectors, aligned pieces of 32 bytes. A request costs as many as its lanes
  touch.
- Shared memory has 32 banks, each 4 bytes wide. Lanes are served group by group: an access of up to
  4 bytes a lane is one group, of 8 bytes two halves of the warp, of 16 bytes four quarters. A group
  takes as many wavefronts as the bank with the most different 4-byte words has of them. Lanes that
  read the same word share it.
- Two groups of a load merge where lanes come in pairs that read the same: if every active lane has
  the address of lane xor 1, or that lane is inactive, or the same holds with lane xor 2. The halves
  of an 8-byte load merge then, and the first two and the last two quarters of a 16-byte load.
  Stores never merge.
- Local memory is interleaved: word k of the 32 lanes lies in 128 consecutive bytes.

Addresses are one for each of the 32 lanes; `mask` has a bit for each active one. They are aligned
to the size of the access, as PTX demands.
"""

from __future__ import annotations

from collections.abc import Sequence

LANES = 32
SECTOR = 32  # bytes
LINE = 128  # bytes of a cache line: four sectors
BANKS = 32
WORD = 4  # bytes of a bank's row


def active(mask: int) -> list[int]:
    """The active lanes, from the lowest."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


def sectors(addresses: Sequence[int], mask: int) -> int:
    """32-byte sectors that an access of at most 32 bytes a lane touches."""
    return len({addresses[lane] // SECTOR for lane in active(mask)})


def ideal_sectors(addresses: Sequence[int], mask: int, size: int) -> int:
    """Sectors that would do for the bytes asked for, were they packed: a broadcast's count once."""
    return -(-len({addresses[lane] for lane in active(mask)}) * size // SECTOR)


def lane_groups(addresses: Sequence[int], mask: int, size: int, load: bool) -> list[list[int]]:
    """The groups of active lanes that shared memory serves one after the other."""
    count = max(1, size // WORD)  # of groups, before any merge: 1, 2 or 4
    if count > 1 and load and any(_paired(addresses, mask, distance) for distance in (1, 2)):
        count //= 2
    lanes = LANES // count
    groups = [[k for k in active(mask) if k // lanes == group] for group in range(count)]
    return [group for group in groups if group]


def _paired(addresses: Sequence[int], mask: int, distance: int) -> bool:
    return all(
        addresses[lane] == addresses[lane ^ distance] or not mask >> (lane ^ distance) & 1
        for lane in active(mask)
    )


def wavefronts_of(group: Sequence[int], addresses: Sequence[int], size: int) -> list[list[int]]:
    """For each wavefront of one group, the 4-byte words it reads or writes: one a bank at most."""
    words = {addresses[lane] // WORD + k for lane in group for k in range(max(1, size // WORD))}
    by_bank: dict[int, list[int]] = {}
    for word in sorted(words):
        by_bank.setdefault(word % BANKS, []).append(word)
    count = max(map(len, by_bank.values()))
    return [[w[k] for w in by_bank.values() if k < len(w)] for k in range(count)]


def wavefronts(addresses: Sequence[int], mask: int, size: int, load: bool) -> tuple[int, int]:
    """(wavefronts, ideal wavefronts) of an access to shared memory.

    The ideal is one for each group of lanes; the difference is what bank conflicts cost.
    """
    groups = lane_groups(addresses, mask, size, load)
    return sum(len(wavefronts_of(g, addresses, size)) for g in groups), len(groups)


def local_sectors(offsets: Sequence[int], mask: int, size: int) -> int:
    """Sectors of an access to local memory; offsets are within each lane's own memory."""
    places = {
        (offsets[lane] // WORD + k, lane * WORD // SECTOR)
        for lane in active(mask)
        for k in range(max(1, size // WORD))
    }
    return len(places)
