"""Barriers (PTX ISA 9.7.13.1): what an instruction asks for, and the block's sixteen barriers.

Most kernels only have `bar.sync 0`: all warps wait for all, and the scheduler needs no more than
"nobody can run: let all go". Where a kernel has any other form, every barrier is counted: a warp
that arrives adds 32 threads (a barrier counts whole warps); a barrier opens when it has the number
that was asked for, or that of all warps that have not ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import ptx
from .runtime import READY, Context, load_fields

BARRIERS = 16
FIELDS = 8  # i32 each: arrived, expected, votes, no, yes, then votes, no, yes of the last opening
RECORD_BYTES = 4 * FIELDS * BARRIERS


@dataclass
class Barrier:
    """One barrier instruction. kind: "sync", "arrive" or "red"."""

    kind: str
    reduction: str  # "popc", "and", "or" or ""
    barrier: object  # operand: its number
    count: object | None  # operand: threads that take part; None: all
    predicate: object | None

    @property
    def simple(self) -> bool:
        """Whether it is __syncthreads()."""
        number = self.barrier
        return (
            self.kind == "sync"
            and self.count is None
            and (isinstance(number, ptx.Immediate) and number.value == 0)
        )


def parse(i: ptx.Instruction) -> Barrier:
    """Reads a bar or barrier instruction (bar.warp.sync is not one)."""
    names = set(i.modifiers)
    kind = next(k for k in ("sync", "arrive", "red") if k in names)
    if "red" in names:
        kind = "red"
    operands = list(i.operands[1:] if kind == "red" else i.operands)
    predicate = operands.pop() if kind == "red" else None
    reduction = next((r for r in ("popc", "and", "or") if r in names), "")
    return Barrier(
        kind, reduction, operands[0], operands[1] if len(operands) > 1 else None, predicate
    )


def counted(kernel: ptx.Kernel) -> bool:
    """Whether a kernel's barriers must be counted one by one."""
    return any(
        isinstance(i, ptx.Instruction)
        and i.opcode in ("bar", "barrier")
        and "warp" not in i.modifiers
        and not parse(i).simple
        for i in kernel.body
    )


def functions(warps: int, sanitize: bool = False) -> str:
    """IR of @arrive, which a warp calls at a barrier, and @release, which opens full ones.

    @release(context, warps not ended) returns how many warps it has made ready. sanitize: whether
    openings are to be noted (see shadow).
    """
    note = "call void @san.open(ptr %cx, i32 %k, i1 %given)" if sanitize else ""
    return f"""
define internal void @arrive(ptr %cx, i32 %w, i32 %number, i32 %count, i32 %votes,
                             i32 %no, i32 %yes) {{
  {load_fields("%cx", Context, {"barriers": "ptr", "places": "ptr"}).strip()}
  %index = and i32 %number, {BARRIERS - 1}
  %at = mul i32 %index, {FIELDS}
  %b = getelementptr i32, ptr %barriers, i32 %at
  %arrived = load i32, ptr %b
  %more = add i32 %arrived, 32
  store i32 %more, ptr %b
  %e = getelementptr i32, ptr %b, i32 1
  %expected = load i32, ptr %e
  %given = icmp ne i32 %count, 0
  %expected1 = select i1 %given, i32 %count, i32 %expected
  store i32 %expected1, ptr %e
  %v = getelementptr i32, ptr %b, i32 2
  %votes0 = load i32, ptr %v
  %votes1 = add i32 %votes0, %votes
  store i32 %votes1, ptr %v
  %n = getelementptr i32, ptr %b, i32 3
  %no0 = load i32, ptr %n
  %no1 = or i32 %no0, %no
  store i32 %no1, ptr %n
  %y = getelementptr i32, ptr %b, i32 4
  %yes0 = load i32, ptr %y
  %yes1 = or i32 %yes0, %yes
  store i32 %yes1, ptr %y
  %place = getelementptr i32, ptr %places, i32 %w
  store i32 %index, ptr %place
  ret void
}}

define internal i32 @release(ptr %cx, i32 %alive) {{
entry:
  {load_fields("%cx", Context, {"barriers": "ptr", "places": "ptr", "states": "ptr"}).strip()}
  %all = mul i32 %alive, 32
  br label %each
each:
  %k = phi i32 [ 0, %entry ], [ %k1, %next ]
  %total = phi i32 [ 0, %entry ], [ %total1, %next ]
  %at = mul i32 %k, {FIELDS}
  %b = getelementptr i32, ptr %barriers, i32 %at
  %arrived = load i32, ptr %b
  %e = getelementptr i32, ptr %b, i32 1
  %expected = load i32, ptr %e
  %given = icmp ne i32 %expected, 0
  %need = select i1 %given, i32 %expected, i32 %all
  %enough = icmp uge i32 %arrived, %need
  %some = icmp ne i32 %arrived, 0
  %full = and i1 %enough, %some
  br i1 %full, label %open, label %next
open:
  %now = getelementptr i32, ptr %b, i32 2
  %last = getelementptr i32, ptr %b, i32 5
  %results = load <3 x i32>, ptr %now, align 4
  store <3 x i32> %results, ptr %last, align 4
  store <3 x i32> zeroinitializer, ptr %now, align 4
  store i32 0, ptr %b
  store i32 0, ptr %e
  {note}
  br label %warp
warp:
  %w = phi i32 [ 0, %open ], [ %w1, %warp ]
  %count = phi i32 [ %total, %open ], [ %count1, %warp ]
  %p = getelementptr i32, ptr %places, i32 %w
  %place = load i32, ptr %p
  %here = icmp eq i32 %place, %k
  %s = getelementptr i32, ptr %states, i32 %w
  %state = load i32, ptr %s
  %started = icmp sgt i32 %state, 0
  %bit = and i32 %state, {READY}
  %blocked = icmp eq i32 %bit, 0
  %waits = and i1 %started, %blocked
  %goes = and i1 %here, %waits
  %ready = or i32 %state, {READY}
  %state1 = select i1 %goes, i32 %ready, i32 %state
  store i32 %state1, ptr %s
  %one = zext i1 %goes to i32
  %count1 = add i32 %count, %one
  %w1 = add i32 %w, 1
  %done = icmp eq i32 %w1, {warps}
  br i1 %done, label %next, label %warp
next:
  %total1 = phi i32 [ %total, %each ], [ %count1, %warp ]
  %k1 = add i32 %k, 1
  %end = icmp eq i32 %k1, {BARRIERS}
  br i1 %end, label %finish, label %each
finish:
  ret i32 %total1
}}
"""
