"""How an access of a warp is served by the memory system: sectors, banks, wavefronts.

Measured on an H200 (tests/counters has the patterns and the counts), and unchanged since Volta as
far as NVIDIA's documents tell:

- Global memory moves in sectors, aligned pieces of 32 bytes. A request costs as many as its lanes
  touch.
- Shared memory has 32 banks, each 4 bytes wide. Lanes are served group by group: an access of up to
  4 bytes a lane is one group, of 8 bytes two halves of the warp, of 16 bytes four quarters. A group
  takes as many wavefronts as the bank with the most different 4-byte words has of them. Lanes that
  read the same word share it.
- Neighbouring groups of a load merge, the halves of an 8-byte load, the first two and the last two
  quarters of a 16-byte load, where lanes come in pairs that read the same (every active lane has
  the address of lane xor 1, or that lane is idle; or the same holds with lane xor 2) and if the
  merged group has no conflict, so that it takes one wavefront. But the first two quarters do not
  merge where lane 31 is active and any of their lanes is idle. Stores never merge.
- An atomic operation takes lanes with one address one after the other: in shared memory as many
  wavefronts as the bank with the most lanes has of them, in global memory sectors anew for the
  first lane of each address, then for the second, and so on.
- Local memory is interleaved: word k of the 32 lanes lies in 128 consecutive bytes. An access of 8
  or 16 bytes a lane is 2 or 4 requests of 4 bytes.
- cp.async reads global memory as a load does, with the lanes that read any bytes. Past the L1 cache
  (.cg) a sector counts once for each aligned 32 bytes of shared memory that some of it goes to, and
  anew if its halves change places. Through the L1 cache (.ca) the copy to shared memory takes
  wavefronts of its own: see copy_wavefronts. For those past it no rule was found that all patterns
  obey, and profile counts neither.
- ldmatrix takes the 8 rows of each matrix as a quarter of a 16-byte load, without merging.

Addresses are one for each of the 32 lanes; `mask` has a bit for each active one. They are aligned
to the size of the access, as PTX demands.
"""

from __future__ import annotations

from collections import Counter
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


def bypass_sectors(addresses: Sequence[int], targets: Sequence[int], mask: int) -> int:
    """Sectors of cp.async.cg, from addresses in global to targets in shared memory."""
    half = SECTOR // 2
    return len(
        {
            (addresses[k] // SECTOR, targets[k] // SECTOR, (addresses[k] ^ targets[k]) & half)
            for k in active(mask)
        }
    )


def ideal_sectors(addresses: Sequence[int], mask: int, size: int) -> int:
    """Sectors that would do for the bytes asked for, were they packed: a broadcast's count once."""
    return -(-len({addresses[lane] for lane in active(mask)}) * size // SECTOR)


def lane_groups(addresses: Sequence[int], mask: int, size: int, load: bool) -> list[list[int]]:
    """The groups of active lanes that shared memory serves one after the other."""
    groups = _split(mask, size)
    if len(groups) > 1 and load and _in_pairs(addresses, mask):
        groups = [
            g
            for k in range(0, len(groups), 2)
            for g in _merged(groups[k], groups[k + 1], addresses, mask, size)
        ]
    return [group for group in groups if group]


def _split(mask: int, size: int) -> list[list[int]]:
    """The warp's active lanes in 1, 2 or 4 groups."""
    count = max(1, size // WORD)
    return [[k for k in active(mask) if k * count // LANES == group] for group in range(count)]


def _merged(
    first: list[int], second: list[int], addresses: Sequence[int], mask: int, size: int
) -> list[list[int]]:
    both = first + second
    lower = size == 16 and both and both[0] < 16
    if lower and mask >> 31 & 1 and mask & 0xFFFF != 0xFFFF:
        return [first, second]
    return [both] if both and len(wavefronts_of(both, addresses, size)) == 1 else [first, second]


def _in_pairs(addresses: Sequence[int], mask: int) -> bool:
    return any(
        all(
            addresses[lane] == addresses[lane ^ distance] or not mask >> (lane ^ distance) & 1
            for lane in active(mask)
        )
        for distance in (1, 2)
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


def copy_wavefronts(addresses: Sequence[int], targets: Sequence[int], mask: int, size: int) -> int:
    """Wavefronts of cp.async.ca, from addresses in global to targets in shared memory.

    Lanes are in groups as for a store. Those of a group whose sources lie in one bank, counted as
    in shared memory, come one after the other, equal ones too; and of each such turn, those whose
    targets lie in one bank.
    """
    banks = BANKS * WORD // size
    count = 0
    for group in _split(mask, size):
        turns: dict[int, list[int]] = {}
        seen: Counter[int] = Counter()
        for lane in group:
            bank = addresses[lane] // size % banks
            turns.setdefault(seen[bank], []).append(targets[lane] // size % banks)
            seen[bank] += 1
        count += sum(max(Counter(turn).values()) for turn in turns.values())
    return count


def atomic_wavefronts(addresses: Sequence[int], mask: int, size: int) -> tuple[int, int]:
    """(wavefronts, ideal wavefronts) of an atomic operation on shared memory.

    As measured for 4 bytes a lane; what ptxas makes a loop of costs several of these.
    """
    unit = max(size, WORD)
    lanes = Counter(addresses[lane] // unit % (BANKS * WORD // unit) for lane in active(mask))
    return max(lanes.values()), 1


def atomic_sectors(addresses: Sequence[int], mask: int) -> int:
    """Sectors of an atomic operation on global memory."""
    seen: Counter[int] = Counter()
    touched = set()
    for lane in active(mask):
        touched.add((seen[addresses[lane]], addresses[lane] // SECTOR))
        seen[addresses[lane]] += 1
    return len(touched)


def matrix_wavefronts(rows: Sequence[int], matrices: int) -> tuple[int, int]:
    """(wavefronts, ideal wavefronts) of ldmatrix; rows: 8 addresses for each matrix."""
    groups = [range(8 * k, 8 * k + 8) for k in range(matrices)]
    return sum(len(wavefronts_of(g, rows, 16)) for g in groups), matrices


def local_requests(size: int) -> int:
    """How many requests one access to local memory is."""
    return max(1, size // WORD)


def local_sectors(offsets: Sequence[int], mask: int, size: int) -> int:
    """Sectors of an access to local memory; offsets are within each lane's own memory."""
    places = {
        (offsets[lane] // WORD + k, lane * WORD // SECTOR)
        for lane in active(mask)
        for k in range(max(1, size // WORD))
    }
    return len(places)
