"""The addresses of one access: a memory instruction, a warp, and the how-manieth time it runs it.

Code that traces compares, beside each ld, st, atom and red, the instruction with the one asked for,
which is 0 in all other warps and blocks. The one launch's `Record` says what is asked for, and in
it the warp leaves the addresses of its lanes. So one build of a kernel serves any question.

An instruction is named by its line of the PTX: one that is part of a function that was expanded in
several places is one instruction there too.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint32
from dataclasses import dataclass

from . import ptx, runtime
from .access import Access
from .emitter import Emitter, Lanes, vector
from .memory import Memory
from .shapes import LANES

_V64 = vector("i64")


class Record(ctypes.Structure):
    """What is asked for, and what was found. Addresses are the host's; where the block's shared
    memory and the warp's local memory start tells what is in them."""

    _fields_ = [
        ("ptx_line", c_int32),
        ("warp", c_int32),
        ("block_x", c_int32),
        ("block_y", c_int32),
        ("block_z", c_int32),
        ("mask", c_uint32),
        ("instruction", c_int32),  # its id (Layout.sources)
        ("wanted", c_int64),
        ("executed", c_int64),  # times that the warp has run the instruction
        ("shared", c_int64),
        ("local", c_int64),  # of the warp's lane 0
        ("addresses", c_int64 * LANES),
    ]


@dataclass(frozen=True)
class Trace:
    """The access of a warp.

    mask: a bit for each active lane. addresses: of each lane; those of idle lanes mean nothing. In
    shared memory they are offsets in the block's, in local memory offsets in the lane's own, and
    in global memory what a pointer holds, which says where in a sector an access is; `offsets`
    are from the start of the allocation then, and the same as the addresses otherwise.
    """

    instruction: ptx.Instruction
    space: str  # "global", "shared" or "local"
    size: int  # bytes a lane accesses
    mask: int
    addresses: tuple[int, ...]
    offsets: tuple[int, ...]


class NotReached(ValueError):
    """The warp does not execute the instruction that often: it did so `executed` times."""

    def __init__(self, message: str, executed: int):
        super().__init__(message)
        self.executed = executed


class Tracing:
    """Emits the tracing."""

    parts = True

    def __init__(self, e: Emitter):
        self.e = e

    def _asked_for(self) -> str:
        """The line of the instruction to be traced, 0 in other warps and blocks."""
        e = self.e
        record = self._record()
        same = "true"
        for name in ("warp", "block_x", "block_y", "block_z"):
            value = e.at_entry(f"load i32, ptr {self._field(record, name)}")
            mine = "%w" if name == "warp" else f"%{name}"
            equal = e.at_entry(f"icmp eq i32 {value}, {mine}")
            same = e.at_entry(f"and i1 {same}, {equal}")
        line = e.at_entry(f"load i32, ptr {self._field(record, 'ptx_line')}")
        return e.at_entry(f"select i1 {same}, i32 {line}, i32 0")

    def _record(self) -> str:
        at = runtime.offset(runtime.Launch, "trace")
        pointer = self.e.at_entry(f"getelementptr i8, ptr %launch, i64 {at}")
        return self.e.at_entry(f"load ptr, ptr {pointer}")

    def _field(self, record: str, name: str) -> str:
        return self.e.at_entry(f"getelementptr i8, ptr {record}, i64 {_offset(name)}")

    def access(
        self, access: Access, address: Lanes, i: ptx.Instruction, to: object, stored: object = None
    ) -> None:
        """One memory instruction; `address` without the access's own offset."""
        e, number = self.e, self.e.id_of(i)
        if access.space == "const":
            return
        asked, record, shared = self._asked_for(), self._record(), "%shared_address"
        yes, on = e.fresh("traced")[1:], e.fresh("on")[1:]
        this = e.op(f"icmp eq i32 {asked}, {i.ptx_line}")
        e.line(f"br i1 {this}, label %{yes}, label %{on}, !prof !2")
        e.label(yes)
        addresses = e.spread(address)
        starts = [access.address.offset]
        if access.space == "shared":
            starts.append(shared)
        for start in starts:
            addresses = e.op(f"add {_V64} {addresses}, {e.splat('i64', str(start))}")
        head = f"void @trace(ptr %r, {_V64} %a, i32 %mask, i32 %id, i64 %shared, i64 %local)"
        e.function("@trace", f"{head} noinline", _TRACE)
        e.line(
            f"call void @trace(ptr {record}, {_V64} {addresses}, i32 {e.mask}, i32 {number}, "
            f"i64 {shared}, i64 %local_start)"
        )
        e.line(f"br label %{on}")
        e.label(on)


def _offset(name: str) -> int:
    return runtime.offset(Record, name)


def _store(kind: str, value: str, name: str) -> str:
    return runtime.store_field(kind, value, "%r", Record, name, "s").rstrip()


_TRACE = f"""\
entry:
{runtime.load_fields("%r", Record, {"executed": "i64", "wanted": "i64"}).rstrip()}
  %executed1 = add i64 %executed, 1
{_store("i64", "%executed1", "executed")}
  %now = icmp eq i64 %executed, %wanted
  br i1 %now, label %keep, label %finish
keep:
{_store("i32", "%mask", "mask")}
{_store("i32", "%id", "instruction")}
{_store("i64", "%shared", "shared")}
{_store("i64", "%local", "local")}
  %addresses.p = getelementptr i8, ptr %r, i64 {_offset("addresses")}
  store {_V64} %a, ptr %addresses.p, align 8
  br label %finish
finish:
  ret void"""


def interpret(
    record: Record,
    i: ptx.Instruction,
    size: int,
    memory: Memory,
    shared_bytes: int,
    local_stride: int,
) -> Trace:
    """What a record says once its access has been found. `i` is the instruction it names."""
    mask, addresses = record.mask, list(record.addresses)
    starts = [record.local + lane * local_stride for lane in range(LANES)]
    first = (mask & -mask).bit_length() - 1
    if 0 <= addresses[first] - record.shared < shared_bytes:
        space = "shared"
        addresses = offsets = [a - record.shared for a in addresses]
    elif 0 <= addresses[first] - starts[first] < local_stride:
        space = "local"
        addresses = offsets = [a - start for a, start in zip(addresses, starts, strict=True)]
    else:
        space = "global"
        found = [memory.find(a) if mask >> lane & 1 else None for lane, a in enumerate(addresses)]
        offsets = [a - f[0] if f else 0 for a, f in zip(addresses, found, strict=True)]
    return Trace(i, space, size, mask, tuple(addresses), tuple(offsets))
