"""The host's side of code that sanitizes: its shadow memory, and what it has found."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass

import numpy as np

from . import ptx, shadow
from .errors import Fault
from .flow import Graph
from .memory import Memory
from .runtime import WROTE
from .shadow import Record, Space, State
from .shapes import LANES

OVERFLOW = ctypes.CFUNCTYPE(None, c_void_p)
_SLACK = 4096  # bytes on both sides of each array: windows are read as a whole
_ARRAYS = [name for name, kind in Space._fields_ if kind is c_void_p]
SPACES = ("shared", "local", "global")
_KINDS = {
    shadow.READ_AFTER: "read after write",
    shadow.WRITE_AFTER_READ: "write after read",
    shadow.WRITE_AFTER: "write after write",
    shadow.SAME: "lanes differ",
    shadow.EQUAL_LANES: "lanes equal",
    shadow.EQUAL: "equal value",
    shadow.UNINITIALISED: "uninitialised",
    shadow.OUTSIDE: "outside",
    shadow.MISMATCH: "mismatch",
    shadow.EXITED: "exited",
    shadow.COPY_READ: "copy read",
    shadow.COPY_WRITTEN: "copy written",
}


@dataclass(frozen=True)
class Access:
    """One access of a finding: position counts from the last barrier."""

    instruction: ptx.Instruction
    number: int  # its id
    block: int  # linear
    thread: int  # linear
    position: int = 0


@dataclass(frozen=True)
class Observation:
    """What two accesses, or one, have done, and how often; they are an example.

    kind: "read after write", "write after read" or "write after write" in the order in which the
    engine ran them; "lanes differ" or "lanes equal" (two lanes of one store); "equal value" (a
    write of the value that was there); "uninitialised", "outside" (of the shared variable that the
    address comes from), "mismatch" (two barriers met), "exited" (the first has ended where the
    second waits), "copy read" or "copy written" (the second has accessed what the first copies by
    cp.async, after that was issued and before it was waited for). offset: in bytes, in the block's
    shared memory, the thread's local memory, or from `start` of an allocation.
    """

    kind: str
    scope: str  # "warp", "block" or "grid": what the two threads have in common
    space: str
    first: Access
    second: Access
    offset: int
    start: int
    count: int


@dataclass(frozen=True)
class Sanitized:
    """Everything that was seen in one launch. never: for each of the arrays that were not yet
    written the elements that still are not; unfreed: by file and line of the malloc() how many
    blocks are left, and their bytes."""

    observations: tuple[Observation, ...]
    fault: Fault | None
    never: dict[int, np.ndarray]
    written: dict[int, int]  # start -> elements that have been
    unfreed: dict[tuple[str, int], tuple[int, int]]
    lost: int  # instances of other pairs of instructions than those observed
    stored_words: np.ndarray  # of shared memory: which 4 bytes any block has written


class _Shadow:
    """One worker's."""

    def __init__(self, sizes: Sequence[int], granule: int):
        self.state, self.keep = State(), []
        self.state.tick, self.state.granule = 2, granule
        self.entries: list[np.ndarray] = []
        for k, nbytes in enumerate(sizes):
            space = self.state.spaces[k]
            space.kind = k
            for name in _ARRAYS:
                size = 4 if name in ("writes", "reads") else 8
                count = -(-nbytes // granule)
                array = self._zeros(count * size + 2 * _SLACK)
                setattr(space, name, array.ctypes.data + _SLACK)
                if size == 4:
                    self.entries.append(array.view(np.uint32))
        self.lane_clocks = np.zeros((LANES, LANES, LANES), np.int32)
        self.state.lane_clocks = self.lane_clocks.ctypes.data
        self.records = (Record * (shadow.RECORDS + shadow.LAST))()
        self.state.records = ctypes.addressof(self.records)

    @property
    def last(self) -> list[Record]:
        """The records that others than the two instructions they name may have been counted in."""
        return self.records[shadow.RECORDS :]

    def _zeros(self, nbytes: int) -> np.ndarray:
        """Pages that are only there once they are touched."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self.keep.append(mmap.mmap(-1, nbytes, flags=flags))
        with contextlib.suppress(OSError, AttributeError):
            self.keep[-1].madvise(mmap.MADV_HUGEPAGE)  # as Memory has it
        return np.frombuffer(self.keep[-1], np.uint8)

    def renew_ticks(self) -> None:
        """Ticks are used up: what is in order stays so, and all of this block counts as such."""
        start = self.state.start
        for entries in self.entries:
            ticks = entries >> shadow.TICK
            new = np.where(ticks == 0, 0, np.where(ticks <= start, 1, 2)).astype(np.uint32)
            low = entries & ((1 << shadow.TICK) - 1)
            entries[:] = new << shadow.TICK | low
        self.state.start, self.state.tick = 1, 3
        self.state.floor = 2 << shadow.TICK
        for name in ("clocks", "released", "arriving", "opened"):
            array = np.ctypeslib.as_array(getattr(self.state, name))
            array[array < (1 << 30)] = 2
        self.lane_clocks[:] = 2
        np.ctypeslib.as_array(self.state.limit)[:] = 3 << shadow.TICK

    def array(self, space: int, name: str, nbytes: int) -> np.ndarray:
        granules = -(-nbytes // self.state.granule)
        kind = ctypes.c_uint32 if name in ("writes", "reads") else ctypes.c_uint64
        address = getattr(self.state.spaces[space], name)
        return np.ctypeslib.as_array((kind * granules).from_address(address))


class Sanitizer:
    """Of one launch. unwritten: (start, bytes, bytes of an element) of arrays that are all NaN
    and count as not yet written. order: "forward", "reversed" or a seed."""

    def __init__(
        self,
        granule: int,
        memory: Memory,
        blocks: int,
        warps: int,
        unwritten: Sequence[tuple[int, int, int]] = (),
        order: str | int = "forward",
        workers: int | None = None,
    ):
        self.granule, self.memory, self.workers = granule, memory, workers
        self.unwritten = list(unwritten)[: shadow.RANGES - 1]
        self._ranges = [*self.unwritten, *memory.heap_range()]
        self.warps, self.blocks = warps, blocks
        self.shadows: dict[int, _Shadow] = {}  # by address of their state
        self.shared_bytes = 0
        self._by_context: list[_Shadow] = []
        self._read_only: list[int] = []  # slots of layout.read_only
        self._blocks: dict[int, tuple[int, ptx.Instruction]] = {}  # malloc()ed in this launch
        self._overflow = OVERFLOW(lambda state: self.shadows[state].renew_ticks())
        live = memory.allocations()
        self.origin = live[0][0] if live else 0
        self.bytes = live[-1][0] + live[-1][1] - self.origin if live else 0
        self.warp_order = _permutation(warps, order, c_int32)
        self.block_order = _permutation(blocks, order, c_int64)

    def protect(self, layout, parameters: bytes) -> None:
        """Finds the arrays that this launch only reads, which need not be looked at."""

        def array(at: int) -> tuple[int, int] | None:
            return self.memory.find(int.from_bytes(parameters[at : at + 8], "little"))

        written = {array(at) for at in layout.written or ()}
        unset = {start for start, _, _ in self.unwritten}
        for k, at in enumerate(layout.read_only):
            found = array(at)
            if found is not None and found not in written and found[0] not in unset:
                self._read_only.append(k)

    def attach(self, context, shared_bytes: int, local_bytes: int) -> None:
        """Gives a worker its shadow memory."""
        one = _Shadow((shared_bytes, local_bytes, self.bytes), self.granule)
        self.shared_bytes = shared_bytes
        places = (context.shared, shared_bytes), (context.local, local_bytes)
        for k, (origin, nbytes) in enumerate((*places, (self.origin, self.bytes))):
            one.state.spaces[k].origin, one.state.spaces[k].bytes = origin or 0, nbytes
        one.state.warps = self.warps
        for k in self._read_only:
            one.state.read_only[k] = 1
        one.state.overflow = ctypes.cast(self._overflow, c_void_p).value
        one.state.range_count = len(self._ranges)
        for k, (start, nbytes, size) in enumerate(self._ranges):
            first = start - self.origin
            one.state.ranges[k][:] = [first, first + nbytes, size]
        context.sanitizer = ctypes.addressof(one.state)
        self.shadows[context.sanitizer] = one
        self._by_context.append(one)

    def allocated(self, address: int, nbytes: int, i: ptx.Instruction) -> None:
        """malloc() has given a block: nothing has happened in it yet."""
        words = -(-nbytes // 4)
        ctypes.memmove(address, np.full(words, 0x7FC00000, np.uint32).ctypes.data, 4 * words)
        first, count = (address - self.origin) // self.granule, 4 * words // self.granule
        for one in list(self._by_context):
            for name in ("writes", "reads"):
                one.array(shadow.GLOBAL, name, self.bytes)[first : first + count] = 0
        self._blocks[address] = nbytes, i

    def freed(self, address: int, context, info: int) -> None:
        """free() has taken a block: what the worker accesses there from now on is wrong. info:
        the instruction's id and the thread."""
        nbytes, _ = self._blocks.pop(address, (0, None))
        one = self.shadows[context.sanitizer]
        first, count = (address - self.origin) // self.granule, nbytes // self.granule
        info |= one.state.block << shadow.REST_AT + 12
        for name in ("writes", "reads", "write_info", "write_info2"):
            array = one.array(shadow.GLOBAL, name, self.bytes)
            value = {"writes": shadow.FREED, "reads": 0}.get(name, info)
            array[first : first + count] = value

    # -- results ----------------------------------------

    def result(self, layout, local_stride: int, fault: Fault | None) -> Sanitized:
        found: dict[int, Observation] = {}
        for one in self._by_context:
            for record in one.records:
                if record.key:
                    o = self._observation(record, layout, local_stride)
                    if o is not None:
                        _add(found, record.key, o)
        self._between_workers(found, layout)
        never, written = {}, {}
        for start, nbytes, size in self.unwritten:
            never[start], written[start] = self._never(start, nbytes, size)
        ordered = sorted(found.items(), key=lambda item: item[0])
        unfreed: dict[tuple[str, int], tuple[int, int]] = {}
        for nbytes, i in self._blocks.values():
            count, total = unfreed.get((i.file, i.line), (0, 0))
            unfreed[i.file, i.line] = count + 1, total + nbytes
        lost = sum(r.count - 1 for one in self._by_context for r in one.last if r.key)
        return Sanitized(
            tuple(o for _, o in ordered), fault, never, written, unfreed, lost,
            self._stored_words(),
        )  # fmt: skip

    def _stored_words(self) -> np.ndarray:
        words = -(-self.shared_bytes // 4)
        stored, step = np.zeros(words, bool), 4 // min(self.granule, 4)
        for one in self._by_context:
            writes = one.array(shadow.SHARED, "writes", 4 * words)
            stored |= (writes.reshape(words, step) != 0).any(axis=1)
        return stored

    def _access(self, info: int, space: str, layout, block: int) -> Access:
        number, thread = info & (shadow.IDS - 1), info >> shadow.THREAD_AT & shadow.THREAD
        rest = info >> shadow.REST_AT
        if space == "global":
            block, rest = rest >> 12, rest >> 1 & 2047
        elif info & shadow.COPIED:
            rest &= (shadow.COPIED >> shadow.REST_AT) - 1
        return Access(layout.sources[number], number, block, thread, rest)

    def _observation(self, record: Record, layout, local_stride: int) -> Observation | None:
        kind = _KINDS[record.key >> shadow.KIND_AT & 15]
        scope = ("warp", "block", "grid")[record.key >> shadow.SCOPE_AT & 3]
        space = SPACES[record.key >> shadow.SPACE_AT & 3]
        if kind in ("mismatch", "exited"):
            return self._at_barrier(record, layout, kind)
        if space == "shared" and record.other & shadow.COPIED:
            kind = {"read after write": "copy read", "write after write": "copy written"}.get(
                kind, kind
            )
        first, second = (
            self._access(info, space, layout, record.block) for info in (record.other, record.mine)
        )
        if scope == "grid" and self._published(record, first, second, layout):
            return None
        offset, start = record.address * self.granule, 0
        if space == "shared" and layout.is_reserved(offset):
            return None
        if space == "global":
            start, offset = self._place(offset)
        elif space == "local":
            offset -= second.thread * local_stride
            if not layout.is_array(offset):
                return None
        return Observation(kind, scope, space, first, second, offset, start, record.count)

    def _at_barrier(self, record: Record, layout, kind: str) -> Observation:
        def access(info: int, i) -> Access:
            thread = info >> shadow.THREAD_AT & shadow.THREAD
            return Access(i, -1, record.block, thread)

        point = lambda info: (info & (shadow.IDS - 1)) & (WROTE - 1)  # noqa: E731
        second = access(record.mine, layout.resumes[point(record.mine) - 1])
        if kind == "mismatch":
            first = access(record.other, layout.resumes[point(record.other) - 1])
        else:
            number = point(record.other)
            first = access(record.other, layout.sources[number - 1] if number else None)
        return Observation(kind, "block", "", first, second, 0, 0, record.count)

    def _place(self, offset: int) -> tuple[int, int]:
        """(start of an allocation, offset in it) of an offset in the arena."""
        start, _ = self.memory.find(self.origin + offset) or (self.origin, 0)
        return start, self.origin + offset - start

    def _published(self, record: Record, first: Access, second: Access, layout) -> bool:
        """Whether two blocks may have put their accesses in order by a fence of one and a flag,
        a lock or a counter that the other has read."""
        seen = [info >> shadow.REST_AT & 1 for info in (record.other, record.mine)]
        fences = layout.fences
        return bool(seen[1] and first.number in fences or seen[0] and second.number in fences)

    def _never(self, start: int, nbytes: int, size: int) -> tuple[np.ndarray, int]:
        """The elements of an array that still are NaN and that no worker has written."""
        kind, nan = (np.uint32, 0x7FC00000) if size == 4 else (np.uint64, 0x7FF8 << 48)
        count = nbytes // size
        now = np.frombuffer(ctypes.string_at(start, count * size), kind)
        left = np.flatnonzero(now == nan)
        if len(left):
            step = size // self.granule
            first = (start - self.origin) // self.granule
            touched = np.zeros(len(left), bool)
            for one in self._by_context:
                writes = one.array(shadow.GLOBAL, "writes", self.bytes)
                for k in range(step):
                    touched |= writes[first + left * step + k] != 0
            left = left[~touched]
        return left, count - len(left)

    def _between_workers(self, found: dict[int, Observation], layout) -> None:
        """Conflicts of blocks that different workers have run."""
        workers = self._by_context
        if len(workers) < 2 or not self.bytes:
            return
        writers = [w.array(shadow.GLOBAL, "writes", self.bytes) for w in workers]
        readers = [w.array(shadow.GLOBAL, "reads", self.bytes) for w in workers]
        wrote = [np.flatnonzero(w) for w in writers]
        for a, places in enumerate(wrote):
            if not len(places):
                continue
            for b in range(len(workers)):
                if a == b:
                    continue
                for kind, entries, name in (
                    (shadow.READ_AFTER, readers[b], "read_info"),
                    (shadow.WRITE_AFTER, writers[b], "write_info"),
                ):
                    if name == "write_info" and b < a:
                        continue
                    both = places[entries[places] != 0]
                    weak = writers[a][both] & entries[both] & shadow.STRONG == 0
                    both = both[weak]
                    if len(both):
                        self._report_pairs(found, layout, kind, workers[a], workers[b], name, both)

    def _report_pairs(self, found, layout, kind, a: _Shadow, b: _Shadow, name, places) -> None:
        mine = a.array(shadow.GLOBAL, "write_info", self.bytes)[places]
        other = b.array(shadow.GLOBAL, name, self.bytes)[places]
        ids = np.uint64(shadow.IDS - 1)
        pairs = (mine & ids) << np.uint64(shadow.THREAD_AT) | other & ids
        pairs = pairs << np.uint64(2) | mine >> np.uint64(shadow.REST_AT) & np.uint64(1)
        pairs = pairs << np.uint64(1) | other >> np.uint64(shadow.REST_AT) & np.uint64(1)
        _, firsts, counts = np.unique(pairs, return_index=True, return_counts=True)
        for k, count in zip(firsts, counts, strict=True):
            record = Record(
                key=kind << shadow.KIND_AT
                | shadow.IN_GRID << shadow.SCOPE_AT
                | shadow.GLOBAL << shadow.SPACE_AT
                | int(mine[k] & ids)
                | int(other[k] & ids) << shadow.THREAD_AT
                | 1 << 62,
                count=int(count),
                other=int(mine[k]),
                mine=int(other[k]),
                address=int(places[k]),
            )
            o = self._observation(record, layout, 0)
            if o is not None and "call" not in (o.first.instruction.opcode,
                                                o.second.instruction.opcode):  # fmt: skip
                _add(found, record.key, o)


def _add(found: dict[int, Observation], key: int, o: Observation) -> None:
    old = found.get(key)
    if old is not None:
        example = min(old, o, key=lambda x: (x.second.block, x.second.thread))
        o = Observation(**{**example.__dict__, "count": old.count + o.count})
    found[key] = o


def _permutation(n: int, order: str | int, kind: type):
    """An order of n things as a C array; None: as they come."""
    if order == "forward" or n < 2:
        return None
    places = list(range(n))
    if order == "reversed":
        places.reverse()
    else:
        random.Random(order).shuffle(places)
    return (kind * n)(*places)


def fences(graph: Graph) -> set[int]:
    """The accesses after which a thread may get to a fence, by their ids in layout.sources."""
    return _reaching(graph, lambda i: i.opcode in ("membar", "fence") or
                     bool({"release", "acq_rel"} & set(i.modifiers)))  # fmt: skip


def _reaching(graph: Graph, wanted) -> set[int]:
    """The instructions from which a wanted one can be reached."""
    inside = [any(map(wanted, b.instructions)) for b in graph.blocks]
    reach = [False] * len(graph.blocks)  # from the block's end
    changed = True
    while changed:
        changed = False
        for b in reversed(graph.blocks):
            now = any(inside[s] or reach[s] for s in b.end.successors)
            if now and not reach[b.index]:
                reach[b.index] = changed = True
    found, number = set(), 0
    for b in graph.blocks:
        for k, _ in enumerate(b.instructions):
            if reach[b.index] or any(map(wanted, b.instructions[k + 1 :])):
                found.add(number + k)
        number += len(b.instructions)
    return found
