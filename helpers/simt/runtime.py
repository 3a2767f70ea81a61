"""What generated code and its host share: the records they exchange, and the block scheduler.

One `Launch` record describes a launch; every worker thread has a `Context` of its own. Generated
code finds their fields by the byte offsets of these ctypes structures.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint64, c_void_p

# What a warp's function returns, and the scheduler keeps as the warp's state: one of these, or
# the resume point it is to be called with again, which is a barrier it waits at unless READY is
# set (then it has only been interrupted in a loop to let other warps run). 0: not started.
DONE, FAULT, STOPPED = -1, -2, -3
READY = 1 << 30
# Returned with READY: the warp has written to memory in this slice.
WROTE = 1 << 29
# Loop iterations a warp runs before others get their turn. Warps of a block tend to read the same
# data: in slices it is still in the caches when the next warp wants it.
SLICE = 32

FAULT_KINDS = {
    1: "out of bounds",
    2: "misaligned",
    3: "barrier",
    4: "trap",
    5: "index overflow",
    6: "assert",
    7: "deadlock",
    8: "stack overflow",
}

# Bits of the address spaces a check accepts.
GLOBAL, SHARED, LOCAL = 1, 2, 4
GENERIC = GLOBAL | SHARED | LOCAL

SLACK = 4096  # readable bytes on either side of shared and local buffers (see memory.GUARD)


class Launch(ctypes.Structure):
    _fields_ = [
        ("next_block", c_int64),  # handed out by atomic increments
        ("end_block", c_int64),  # blocks from here on are not started (lowered by a fault)
        ("stop", c_int32),  # nonzero: give up at the next loop iteration
        ("grid_x", c_int32),
        ("grid_y", c_int32),
        ("grid_z", c_int32),
        ("shared_bytes", c_int64),
        ("parameters", c_void_p),
        ("bounds", c_void_p),  # (start, bytes) of the allocation each pointer parameter points to
        ("symbols", c_void_p),  # addresses of module-level variables
        ("allocations", c_void_p),  # (start, end) of all live ones, sorted
        ("allocation_count", c_int64),
        ("host_call", c_void_p),  # (context, instruction, mask, warp) -> nonzero to end in a fault
        ("idle", c_void_p),  # (context) -> nonzero to end in a fault; all its warps only poll
        ("trace", c_void_p),  # the record of code that traces (see tracing)
        ("warp_order", c_void_p),  # of code that sanitizes: int32 permutations of the warps of a
        ("block_order", c_void_p),  # block and int64 ones of the blocks; 0: as they come
    ]


class Context(ctypes.Structure):
    _fields_ = [
        ("launch", c_void_p),
        ("shared", c_void_p),
        ("local", c_void_p),  # local memory of warp 0's lane 0
        ("frames", c_void_p),  # where warps keep their live registers across barriers
        ("shadows", c_void_p),  # copies of the frames as they were a slice ago
        ("states", c_void_p),  # one int32 a warp: 0 to start, or what its function returned
        ("barriers", c_void_p),  # the block's barriers and
        ("places", c_void_p),  # which of them each warp is at (see barriers)
        ("counts", c_void_p),  # what the worker counts (see counting)
        ("sanitizer", c_void_p),  # what it knows of accesses so far (see shadow)
        ("recent_start", c_int64),  # the allocation an access was last found in
        ("recent_bytes", c_int64),
        ("rounds", c_int64),  # rounds of the scheduler in which a warp has got on
        ("block_x", c_int32),
        ("block_y", c_int32),
        ("block_z", c_int32),
        ("worker", c_int32),
        ("block", c_int64),
        ("fault_kind", c_int32),
        ("fault_instruction", c_int32),
        ("fault_warp", c_int32),
        ("fault_lane", c_int32),
        ("fault_address", c_uint64),
        ("fault_size", c_int32),
        ("fault_mask", c_int32),
        ("fault_others", c_int32),  # of a barrier: the lanes that wait at it, and where those that
        ("fault_place", c_int32),  # do not are: a number in Layout.places, + 1, or 0
    ]


def offset(structure: type[ctypes.Structure], name: str) -> int:
    return getattr(structure, name).offset


def field_pointer(result: str, base: str, structure: type[ctypes.Structure], name: str) -> str:
    """IR for the address of a field."""
    return f"{result} = getelementptr i8, ptr {base}, i64 {offset(structure, name)}"


def load_fields(base: str, structure, fields: dict[str, str]) -> str:
    """IR that loads several fields into values of their names; fields: name -> IR type."""
    return "".join(load_field(f"%{n}", t, base, structure, n) for n, t in fields.items())


def load_field(result: str, kind: str, base: str, structure, name: str, qualifier: str = "") -> str:
    return (
        f"  {field_pointer(result + '.p', base, structure, name)}\n"
        f"  {result} = load {qualifier}{kind}, ptr {result}.p\n"
    )


def store_field(kind: str, value: str, base: str, structure, name: str, tag: str) -> str:
    return (
        f"  {field_pointer(f'%{tag}.{name}', base, structure, name)}\n"
        f"  store {kind} {value}, ptr %{tag}.{name}\n"
    )


# @settled: whether a frame is as it was a slice ago; its copy is brought up to date.
_SETTLED = """
define internal i1 @settled(ptr %frame, ptr %shadow, i64 %chunks) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %change = phi <8 x i64> [ zeroinitializer, %entry ], [ %change1, %loop ]
  %p = getelementptr <8 x i64>, ptr %frame, i64 %k
  %q = getelementptr <8 x i64>, ptr %shadow, i64 %k
  %now = load <8 x i64>, ptr %p, align 64
  %before = load <8 x i64>, ptr %q, align 64
  store <8 x i64> %now, ptr %q, align 64
  %differs = xor <8 x i64> %now, %before
  %change1 = or <8 x i64> %change, %differs
  %k1 = add i64 %k, 1
  %last = icmp eq i64 %k1, %chunks
  br i1 %last, label %end, label %loop
end:
  %any = call i64 @llvm.vector.reduce.or.v8i64(<8 x i64> %change1)
  %same = icmp eq i64 %any, 0
  ret i1 %same
}
declare i64 @llvm.vector.reduce.or.v8i64(<8 x i64>)
"""


# Where a warp's frame holds the bytes in use of the stack that follows it, if it has one.
STACK_FIELD = 8


def scheduler(
    warps: int, frame_bytes: int, stack_bytes: int, barrier_bytes: int, sanitize: bool = False
) -> str:
    """IR of @run, which a worker thread calls: it takes blocks from the launch until none is left.

    Within a block it runs each warp until it waits at a barrier, its slice is up or it is done, and
    goes round until all are done. @warp(context, warp, resume point) is the kernel.

    A warp that comes back from a slice at the same place with the same registers has only polled.
    When all that can run do that, the host is asked what to do (`Launch.idle`): start another
    block, wait for the other workers, or call it a deadlock.

    frame_bytes: of a warp's frame, its stack included; stack_bytes: of that stack.

    barrier_bytes: 0 where all barriers are __syncthreads(): then they open when no warp is ready.
    Otherwise the size of the block's record of barriers, which @release opens (see barriers).

    sanitize: blocks and warps run in the order that the launch gives, and the sanitizer hears of
    each block's start and of each __syncthreads() (see shadow). A block's shared memory is then
    full of ones at first, which as floats are NaN.
    """
    c, launch = Context, Launch
    if barrier_bytes:
        clear = f"call void @llvm.memset.p0.i64(ptr %barriers, i8 0, i64 {barrier_bytes}, i1 false)"
        release = "%released = call i32 @release(ptr %cx, i32 %left)"
        opened, opens = "%opens = icmp ne i32 %released, 0", "%opens"
        let_go = "[ false, %progress ]"
    else:
        clear, release = "", ""
        opened, opens = "", "%none_ready"
        let_go = "[ %none_ready, %progress ]"
    warp, block, begin = "%w = add i32 %turn, 0", "%block = add i64 %place, 0", ""
    if sanitize:
        warp = _permuted("%w", "i32", "%turn", "warp_order")
        block = _permuted("%block", "i64", "%place", "block_order")
        begin = f"""call void @san.begin(ptr %cx)
{load_fields("%cx", c, {"shared": "ptr"})}{load_fields("%launch", launch, {"shared_bytes": "i64"})}\
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %shared_bytes, i1 false)"""
        if not barrier_bytes:
            opened = "call void @san.barrier(ptr %cx, i1 %none_ready)"
    chunks = f"%chunks = add i64 {(frame_bytes - stack_bytes) // 64}, "
    if stack_bytes:
        chunks = f"""%stacked.p = getelementptr i8, ptr %frame, i64 {STACK_FIELD}
  %stacked = load i64, ptr %stacked.p
  %stack_chunks = udiv i64 %stacked, 64
  {chunks}%stack_chunks"""
    else:
        chunks += "0"
    return f"""{_SETTLED}
@san.none = internal constant i64 0
define void @run(ptr %cx) {{
entry:
{load_fields("%cx", c, {"launch": "ptr", "states": "ptr", "frames": "ptr", "shadows": "ptr"})}\
{load_fields("%cx", c, {"barriers": "ptr"})}\
{load_fields("%launch", launch, {"grid_x": "i32", "grid_y": "i32", "idle": "ptr"})}\
  {field_pointer("%stop.p", "%launch", launch, "stop")}
  {field_pointer("%rounds.p", "%cx", c, "rounds")}
  {field_pointer("%next.p", "%launch", launch, "next_block")}
  {field_pointer("%end.p", "%launch", launch, "end_block")}
  %gx64 = zext i32 %grid_x to i64
  %gy64 = zext i32 %grid_y to i64
  br label %next_block
next_block:
  %place = atomicrmw add ptr %next.p, i64 1 monotonic
  %end = load atomic i64, ptr %end.p monotonic, align 8
  %more = icmp slt i64 %place, %end
  br i1 %more, label %begin, label %finish
begin:
  {block}
  %bx = urem i64 %block, %gx64
  %rest = udiv i64 %block, %gx64
  %by = urem i64 %rest, %gy64
  %bz = udiv i64 %rest, %gy64
  %bx32 = trunc i64 %bx to i32
  %by32 = trunc i64 %by to i32
  %bz32 = trunc i64 %bz to i32
{store_field("i64", "%block", "%cx", c, "block", "b")}\
{store_field("i32", "%bx32", "%cx", c, "block_x", "b")}\
{store_field("i32", "%by32", "%cx", c, "block_y", "b")}\
{store_field("i32", "%bz32", "%cx", c, "block_z", "b")}\
  call void @llvm.memset.p0.i64(ptr %states, i8 0, i64 {4 * warps}, i1 false)
  {clear}
  {begin}
  br label %round
round:  ; every warp that can run runs once; with %release those at a barrier can
  %release = phi i1 [ true, %begin ], {let_go}, [ false, %ask ]
  br label %each
each:
  %turn = phi i32 [ 0, %round ], [ %turn1, %each_end ]
  %ready = phi i32 [ 0, %round ], [ %ready1, %each_end ]
  %waiting = phi i32 [ 0, %round ], [ %waiting1, %each_end ]
  %polls = phi i32 [ 0, %round ], [ %polls1, %each_end ]
  {warp}
  %state.p = getelementptr i32, ptr %states, i32 %w
  %state = load i32, ptr %state.p
  %is_done = icmp slt i32 %state, 0
  br i1 %is_done, label %each_end, label %unfinished
unfinished:
  %ready_bit = and i32 %state, {READY}
  %is_ready = icmp ne i32 %ready_bit, 0
  %can_run = or i1 %is_ready, %release
  br i1 %can_run, label %step, label %stepped
step:
  %resume = and i32 %state, {WROTE - 1}
  %new = call i32 @warp(ptr %cx, i32 %w, i32 %resume)
  store i32 %new, ptr %state.p
  %gave_up = icmp slt i32 %new, {DONE}
  br i1 %gave_up, label %stop, label %went
went:  ; back at the same place in a loop, with nothing written?
  %same_place = icmp eq i32 %new, %state
  %unwritten = and i32 %new, {WROTE | 1 << 31}
  %no_write = icmp eq i32 %unwritten, 0
  %looped0 = and i1 %same_place, %no_write
  %looped = and i1 %looped0, %is_ready
  br i1 %looped, label %compare, label %stepped
compare:
  %w64 = zext i32 %w to i64
  %frame_at = mul i64 %w64, {frame_bytes}
  %frame = getelementptr i8, ptr %frames, i64 %frame_at
  %shadow = getelementptr i8, ptr %shadows, i64 %frame_at
  {chunks}
  %same = call i1 @settled(ptr %frame, ptr %shadow, i64 %chunks)
  %poll = zext i1 %same to i32
  br label %stepped
stepped:
  %now = phi i32 [ %state, %unfinished ], [ %new, %went ], [ %new, %compare ]
  %poll_add = phi i32 [ 0, %unfinished ], [ 0, %went ], [ %poll, %compare ]
  %over = icmp slt i32 %now, 0
  %bit = and i32 %now, {READY}
  %has_bit = icmp ne i32 %bit, 0
  %not_over = xor i1 %over, true
  %may_go_on = and i1 %has_bit, %not_over
  %not_ready = xor i1 %has_bit, true
  %waits = and i1 %not_ready, %not_over
  %ready_add = zext i1 %may_go_on to i32
  %waiting_add = zext i1 %waits to i32
  br label %each_end
each_end:
  %more_ready = phi i32 [ 0, %each ], [ %ready_add, %stepped ]
  %more_waiting = phi i32 [ 0, %each ], [ %waiting_add, %stepped ]
  %more_polls = phi i32 [ 0, %each ], [ %poll_add, %stepped ]
  %polls1 = add i32 %polls, %more_polls
  %ready1 = add i32 %ready, %more_ready
  %waiting1 = add i32 %waiting, %more_waiting
  %turn1 = add i32 %turn, 1
  %last = icmp eq i32 %turn1, {warps}
  br i1 %last, label %round_end, label %each
round_end:
  %left = add i32 %ready1, %waiting1
  %all_done = icmp eq i32 %left, 0
  %none_ready = icmp eq i32 %ready1, 0
  br i1 %all_done, label %next_block, label %not_done
not_done:
  {release}
  {opened}
  %all_poll = icmp eq i32 %polls1, %ready1
  %shut = xor i1 {opens}, true
  %stuck = and i1 %all_poll, %shut
  br i1 %stuck, label %ask, label %progress
progress:
  %rounds = load volatile i64, ptr %rounds.p
  %rounds1 = add i64 %rounds, 1
  store volatile i64 %rounds1, ptr %rounds.p
  %stopped = load volatile i32, ptr %stop.p  ; a loop around a barrier never uses up a slice
  %go_on = icmp eq i32 %stopped, 0
  br i1 %go_on, label %round, label %stop
ask:
  %verdict = call i32 %idle(ptr %cx)
  %give_up = icmp ne i32 %verdict, 0
  br i1 %give_up, label %stop, label %round
stop:
  atomicrmw min ptr %end.p, i64 %place monotonic
  br label %finish
finish:
  ret void
}}
"""


def _permuted(result: str, kind: str, index: str, order: str) -> str:
    """IR for an element of one of the launch's orders, which may be missing."""
    return f"""{field_pointer(f"{result}.order.p", "%launch", Launch, order)}
  {result}.order = load ptr, ptr {result}.order.p
  {result}.given = icmp ne ptr {result}.order, null
  {result}.entry = getelementptr {kind}, ptr {result}.order, {kind} {index}
  {result}.safe = select i1 {result}.given, ptr {result}.entry, ptr @san.none
  {result}.found = load {kind}, ptr {result}.safe
  {result} = select i1 {result}.given, {kind} {result}.found, {kind} {index}"""


# @check_lanes looks at the addresses of the active lanes one by one, exactly, and records the
# first that is misaligned or lies in none of the allowed spaces. It runs where the quick check
# of a whole warp (see access) did not succeed, which is no fault yet: lanes that do not take part
# may be outside, or the pointer may not come from the parameter it was thought to come from.
CHECKER = f"""
define i1 @check_lanes(ptr %cx, ptr %addresses, i32 %mask, i32 %warp, i32 %size, i32 %id,
                       i32 %spaces, i64 %local_stride) noinline cold {{
entry:
{load_fields("%cx", Context, {"launch": "ptr", "shared": "i64", "local": "i64"})}\
{
    load_fields(
        "%launch", Launch, {"shared_bytes": "i64", "allocations": "ptr", "allocation_count": "i64"}
    )
}\
  %size64 = zext i32 %size to i64
  %low_bits = sub i64 %size64, 1
  %warp64 = zext i32 %warp to i64
  %warp_stride = mul i64 %local_stride, 32
  %warp_local = mul i64 %warp64, %warp_stride
  %local0 = add i64 %local, %warp_local
  br label %lane
lane:
  %left = phi i32 [ %mask, %entry ], [ %left1, %good ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %fine, label %look
look:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %clear = sub i32 %left, 1
  %left1 = and i32 %left, %clear
  %p = getelementptr i64, ptr %addresses, i32 %l
  %a = load i64, ptr %p
  %odd = and i64 %a, %low_bits
  %misaligned = icmp ne i64 %odd, 0
  br i1 %misaligned, label %fault, label %in_shared
in_shared:
  %s_off = sub i64 %a, %shared
  %s_last = add i64 %s_off, %size64
  %s_low = icmp uge i64 %a, %shared
  %s_high = icmp ule i64 %s_last, %shared_bytes
  %s_in = and i1 %s_low, %s_high
  %s_bit = and i32 %spaces, {SHARED}
  %s_allowed = icmp ne i32 %s_bit, 0
  %s_ok = and i1 %s_in, %s_allowed
  br i1 %s_ok, label %good, label %in_local
in_local:
  %l64 = zext i32 %l to i64
  %l_start0 = mul i64 %l64, %local_stride
  %l_start = add i64 %local0, %l_start0
  %l_off = sub i64 %a, %l_start
  %l_last = add i64 %l_off, %size64
  %l_low = icmp uge i64 %a, %l_start
  %l_high = icmp ule i64 %l_last, %local_stride
  %l_in = and i1 %l_low, %l_high
  %l_bit = and i32 %spaces, {LOCAL}
  %l_allowed = icmp ne i32 %l_bit, 0
  %l_ok = and i1 %l_in, %l_allowed
  br i1 %l_ok, label %good, label %in_global
in_global:
  %g_bit = and i32 %spaces, {GLOBAL}
  %g_allowed = icmp ne i32 %g_bit, 0
  %g_end = add i64 %a, %size64
  br i1 %g_allowed, label %search, label %fault
search:  ; the last allocation that starts at or before the address
  %low = phi i64 [ 0, %in_global ], [ %low1, %halve ]
  %high = phi i64 [ %allocation_count, %in_global ], [ %high1, %halve ]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %halve, label %found
halve:
  %sum = add i64 %low, %high
  %mid = lshr i64 %sum, 1
  %mid2 = shl i64 %mid, 1
  %m.p = getelementptr i64, ptr %allocations, i64 %mid2
  %m = load i64, ptr %m.p
  %right = icmp ule i64 %m, %a
  %mid1 = add i64 %mid, 1
  %low1 = select i1 %right, i64 %mid1, i64 %low
  %high1 = select i1 %right, i64 %high, i64 %mid
  br label %search
found:
  %some = icmp ugt i64 %low, 0
  br i1 %some, label %compare, label %fault
compare:
  %index = sub i64 %low, 1
  %index2 = shl i64 %index, 1
  %index3 = add i64 %index2, 1
  %e.p = getelementptr i64, ptr %allocations, i64 %index3
  %e = load i64, ptr %e.p
  %inside = icmp ule i64 %g_end, %e
  br i1 %inside, label %remember, label %fault
remember:
  %s.p = getelementptr i64, ptr %allocations, i64 %index2
  %s = load i64, ptr %s.p
  %n = sub i64 %e, %s
{store_field("i64", "%s", "%cx", Context, "recent_start", "r")}\
{store_field("i64", "%n", "%cx", Context, "recent_bytes", "r")}\
  br label %good
good:
  br label %lane
fault:
  %kind = phi i32 [ 2, %look ], [ 1, %in_global ], [ 1, %found ], [ 1, %compare ]
{store_field("i32", "%kind", "%cx", Context, "fault_kind", "f")}\
{store_field("i32", "%id", "%cx", Context, "fault_instruction", "f")}\
{store_field("i32", "%warp", "%cx", Context, "fault_warp", "f")}\
{store_field("i32", "%l", "%cx", Context, "fault_lane", "f")}\
{store_field("i64", "%a", "%cx", Context, "fault_address", "f")}\
{store_field("i32", "%size", "%cx", Context, "fault_size", "f")}\
  ret i1 true
fine:
  ret i1 false
}}
"""


def record_fault(kind: int, instruction: int, mask: str, tag: str) -> str:
    """IR that records a fault of the lowest lane of `mask` in warp %w."""
    return (
        f"  %{tag}.lane = call i32 @llvm.cttz.i32(i32 {mask}, i1 false)\n"
        + store_field("i32", str(kind), "%cx", Context, "fault_kind", tag)
        + store_field("i32", str(instruction), "%cx", Context, "fault_instruction", tag)
        + store_field("i32", "%w", "%cx", Context, "fault_warp", tag)
        + store_field("i32", f"%{tag}.lane", "%cx", Context, "fault_lane", tag)
        + store_field("i32", mask, "%cx", Context, "fault_mask", tag)
    )
