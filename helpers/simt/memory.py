"""Device memory: one lazily backed range of the host's address space.

A device address is a host address, so neither kernels nor copies translate anything. Allocations
start on 512-byte boundaries, as a GPU's do, and at least `guard` bytes that belong to nobody
follow each of them, so that an access past the end of one never lands in the next.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import mmap
import threading

from .errors import Fault, OutOfMemory

ALIGNMENT = 512
HEAP_BYTES = 8 << 20  # CUDA's default for malloc() in kernels
GUARD = 4096  # more than the widest access of one warp (32 lanes of 16 bytes) on either side
LATE = 64  # how many freed allocations are known as such: their places are not used again so long


class Memory:
    """An arena of `capacity` bytes that hands out, finds and takes back allocations.

    Pages are given to the process when first touched and given back when freed. guard: bytes, a
    multiple of 512, at least 4096. huge_pages: fast, but every byte touched may cost 2 MiB.
    """

    def __init__(self, capacity: int, *, guard: int = GUARD, huge_pages: bool = True):
        self.capacity, self.guard = capacity, guard
        self.used = 0
        # Twice the capacity of address space, so that holes between live allocations do not
        # make an allocation fail that would fit.
        self._map = mmap.mmap(
            -1,
            2 * capacity + 2 * guard,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000),
        )
        with contextlib.suppress(OSError, AttributeError):
            # Kernels stride over many pages.
            self._map.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
        self._view = (ctypes.c_char * len(self._map)).from_buffer(self._map)
        base = ctypes.addressof(self._view)
        self._first = -(-(base + guard) // ALIGNMENT) * ALIGNMENT
        self._end = base + len(self._map) - guard
        self._starts: list[int] = []  # sorted
        self._sizes: dict[int, int] = {}
        self._freed: dict[int, int] = {}  # start -> bytes, for late accesses; the last ones freed
        self._heap: Heap | None = None

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` new bytes (contents unspecified, first use reads 0).

        Raises OutOfMemory if they do not fit the capacity, ValueError if nbytes < 1.
        """
        if nbytes < 1:
            raise ValueError(f"an allocation needs at least 1 byte, got {nbytes}")
        if self.used + nbytes > self.capacity:
            raise OutOfMemory(
                f"out of memory: {nbytes:,} bytes asked for, {self.capacity - self.used:,} of "
                f"{self.capacity:,} free"
            )
        address = self._first_fit(nbytes)
        bisect.insort(self._starts, address)
        self._sizes[address] = nbytes
        for start in [
            s for s, n in self._freed.items() if s < address + nbytes and address < s + n
        ]:
            del self._freed[start]
        self.used += nbytes
        return address

    def _first_fit(self, nbytes: int) -> int:
        """Where the bytes fit: not where something was freed lately, as long as there is room."""
        for taken in ({**self._freed, **self._sizes}, self._sizes):
            candidate = self._first
            for start in sorted(taken):
                if start - candidate >= nbytes + self.guard:
                    return candidate
                candidate = -(-(start + taken[start] + self.guard) // ALIGNMENT) * ALIGNMENT
            if candidate + nbytes <= self._end:
                return candidate
        raise OutOfMemory(f"out of memory: no hole of {nbytes:,} bytes is left")

    def free(self, address: int) -> None:
        """Takes an allocation back; ValueError if `address` is not the start of a live one."""
        if address not in self._sizes:
            raise ValueError(f"0x{address:x} is not the start of a live allocation")
        nbytes = self._sizes.pop(address)
        self._starts.remove(address)
        self._freed.pop(next(iter(self._freed)) if len(self._freed) == LATE else 0, None)
        self._freed[address] = nbytes
        self.used -= nbytes
        self._give_pages_back(address, nbytes)

    def _give_pages_back(self, address: int, nbytes: int) -> None:
        base = ctypes.addressof(self._view)
        first = -(-(address - base) // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (address - base + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def find(self, address: int) -> tuple[int, int] | None:
        """(start, nbytes) of the live allocation that contains `address`, or None."""
        i = bisect.bisect_right(self._starts, address) - 1
        if i >= 0:
            start = self._starts[i]
            if address < start + self._sizes[start]:
                return start, self._sizes[start]
        return None

    def find_freed(self, address: int) -> tuple[int, int] | None:
        """(start, nbytes) of the allocation that contained `address` and was freed, if it is known
        and nothing else is there now."""
        known = ((s, n) for s, n in self._freed.items() if s <= address < s + n)
        return None if self.find(address) else next(known, None)

    def heap(self) -> Heap:
        """What malloc() in kernels takes from; made when first asked for."""
        if self._heap is None:
            self._heap = Heap(self.allocate(HEAP_BYTES))
        return self._heap

    def heap_range(self) -> list[tuple[int, int, int]]:
        """(start, bytes, 4) of the heap of kernels, if there is one."""
        return [(self._heap.start, HEAP_BYTES, 4)] if self._heap else []

    def allocations(self) -> list[tuple[int, int]]:
        """All live allocations as (start, nbytes), in the order of their addresses."""
        return [(start, self._sizes[start]) for start in self._starts]

    def check(self, address: int, nbytes: int) -> None:
        """Raises Fault unless [address, address + nbytes) lies in one live allocation."""
        found = self.find(address)
        if nbytes and (found is None or address + nbytes > found[0] + found[1]):
            raise Fault(
                "out of bounds",
                f"{nbytes:,} bytes at {self.describe(address, nbytes)}",
                address=address,
            )

    def describe(self, address: int, nbytes: int, own: tuple[int, int] | None = None) -> str:
        """Where an access of `nbytes` at `address` lies, in words: how far outside of what.

        own: (start, bytes) of the allocation that the pointer was made to point into, if known;
        otherwise the nearest one is named.
        """
        found = self.find(address)
        if found is not None and own in (None, found):
            start, size = found
            past = address + nbytes - (start + size)
            where = f"byte {address - start:,} of the {size:,}-byte allocation at 0x{start:x}"
            return f"{where}, {past:,} bytes past its end" if past > 0 else where
        if own is not None and abs(address - own[0]) < 1 << 40:
            return f"0x{address:x}, " + _beside(address, *own)
        freed = self.find_freed(address)
        if freed is not None:
            return (
                f"0x{address:x}, byte {address - freed[0]:,} of a {freed[1]:,}-byte allocation "
                "that has been freed"
            )
        if address < 4096:
            return f"0x{address:x}, a null pointer"
        i = bisect.bisect_right(self._starts, address) - 1
        near = [(s, self._sizes[s]) for s in self._starts[max(i, 0) : i + 2]]
        distance = {n: max(n[0] - address, address - sum(n)) for n in near}
        nearest = min(near, key=distance.__getitem__, default=None)
        if nearest is None or distance[nearest] >= 1 << 40:
            return f"0x{address:x}, in no allocation"
        return f"0x{address:x}, " + _beside(address, *nearest)


def _beside(address: int, start: int, size: int) -> str:
    """How far an address lies from an allocation it is not in."""
    what = f"the {size:,}-byte allocation at 0x{start:x}"
    if address < start:
        return f"{start - address:,} bytes before the start of {what}"
    past = address - (start + size)
    return f"{past:,} bytes past the end of {what}" if past else f"just past the end of {what}"


class Heap:
    """malloc() and free() of kernels, within one allocation; what they return is 16-byte aligned.

    Blocks outlive the launch, as on a GPU. An access is checked against the heap as a whole.
    """

    def __init__(self, start: int):
        self.start = start
        self._lock = threading.Lock()
        self._holes = [(start, HEAP_BYTES)]  # (start, bytes), sorted
        self._sizes: dict[int, int] = {}

    def malloc(self, nbytes: int) -> int:
        """The address of nbytes new bytes, or 0 if they do not fit."""
        nbytes = max(16, -(-nbytes // 16) * 16)
        with self._lock:
            for k, (start, room) in enumerate(self._holes):
                if room >= nbytes:
                    self._holes[k : k + 1] = [(start + nbytes, room - nbytes)] * (room > nbytes)
                    self._sizes[start] = nbytes
                    return start
        return 0

    def free(self, address: int) -> bool:
        """Takes a block back; False if malloc() has not returned this address."""
        with self._lock:
            if address not in self._sizes:
                return address == 0
            bisect.insort(self._holes, (address, self._sizes.pop(address)))
            merged: list[tuple[int, int]] = []
            for start, room in self._holes:
                if merged and sum(merged[-1]) == start:
                    merged[-1] = (merged[-1][0], merged[-1][1] + room)
                else:
                    merged.append((start, room))
            self._holes = merged
        return True
