"""Modules and kernels as a program sees them: load PTX, look up a kernel, launch it."""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, c_int64, c_void_p
from functools import cached_property
from pathlib import PurePath

import numpy as np

from . import cache, jit, ptx
from .access import size_of
from .barriers import RECORD_BYTES
from .calls import external_call
from .codegen import NO_INSTRUMENTS, Instruments, generate
from .counts import Counts, interpret
from .errors import Fault, Interrupted, InvalidPtx
from .flow import Graph
from .hostcalls import System
from .image import Head, Image, Source
from .layout import Layout, layout_of
from .memory import Memory
from .runtime import FAULT_KINDS, READY, SLACK, WROTE, Context, Launch
from .sanitizer import Sanitized, Sanitizer
from .shadow import THREAD_AT
from .shapes import LANES, Geometry
from .stack import AREA
from .tracing import NotReached, Record, Trace
from .tracing import interpret as interpret_record

Dim = tuple[int, int, int]
HOST_CALL = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, ctypes.c_uint32, c_int32)
IDLE = ctypes.CFUNCTYPE(c_int32, c_void_p)

# Blocks that run at once if those before them wait: what a large GPU holds.
RESIDENT_BLOCKS = 160
# A launch is a deadlock if this long (in seconds) all its warps have done nothing but poll.
DEADLOCK_AFTER = 2.0


def plain_name(name: str) -> str:
    """A variable's name as it is in the source: the last part of a mangled one."""
    for k in range(len(name)):
        digits = name[k:].partition(name[k:].lstrip("0123456789"))[0]
        if digits and name[k - 1 : k].isalpha() and int(digits) == len(name) - k - len(digits):
            return name[k + len(digits) :]
    return name


_TOO_DEEP = "it calls itself too deeply"


class Module:
    """PTX loaded into a device memory: its kernels and its variables.

    functions: name -> Function; globals: name -> (address, bytes) of .global and .const
    variables. Raises InvalidPtx if the text cannot be read.
    """

    def __init__(self, text: str, memory: Memory):
        self.memory, self.text = memory, text
        self.source = Source(text)
        image = self.source.image()
        self.globals: dict[str, tuple[int, int]] = {}
        for v in image.variables:
            self.globals[v.name] = (memory.allocate(max(1, v.nbytes)), v.nbytes)
        for v in image.variables:
            self._initialise(image, v)
        self.functions = {name: Function(head, self) for name, head in image.kernels.items()}

    def _initialise(self, image: Image, v: ptx.Variable) -> None:
        address, nbytes = self.globals[v.name]
        data = bytearray(v.initial.ljust(nbytes, b"\0"))
        for at, symbol in v.pointers:
            if symbol.name in image.functions:
                target = image.functions[symbol.name]
            elif symbol.name in self.globals:
                target = self.globals[symbol.name][0] + symbol.offset
            else:
                raise InvalidPtx(f"{v.name} is initialised with {symbol.name}, which is nothing")
            data[at : at + 8] = target.to_bytes(8, "little")
        ctypes.memmove(address, bytes(data), nbytes)

    def unload(self) -> None:
        """Frees the module's variables."""
        for address, _ in self.globals.values():
            self.memory.free(address)
        self.globals = {}


class Function:
    """One kernel. Machine code is made on the first launch with a block shape."""

    def __init__(self, head: Head, owner: Module):
        self.name, self._head, self._owner = head.name, head, owner
        self._compiled: dict[tuple[Dim, Instruments], _Compiled] = {}
        self._lock = threading.Lock()
        self.parameters = head.parameters
        self.parameter_bytes = max((at + n for _, at, n in self.parameters), default=0)
        self.static_shared_bytes = head.static_shared_bytes
        self.local_bytes = head.local_bytes
        self.max_threads = head.max_threads

    def compiled(self, block: Dim, instruments: Instruments = NO_INSTRUMENTS) -> _Compiled:
        key = block, instruments
        with self._lock:
            if self._head.problem:
                raise self._head.problem
            if key not in self._compiled:
                self._compiled[key] = _Compiled(self._owner.source, self.name, *key)
            return self._compiled[key]

    def launch(
        self,
        grid: Dim,
        block: Dim,
        parameters: bytes,
        shared_bytes: int = 0,
        *,
        blocks: range | None = None,
        seconds: float | None = None,
    ) -> None:
        """Runs the kernel to its end.

        grid and block are (x, y, z) with x*y*z >= 1; parameters is the packed parameter buffer;
        shared_bytes the dynamic shared memory. blocks: only these run, of the grid's, by their
        linear index; it has step 1. seconds: a launch that takes longer is a Fault of the kind
        "time" (see `_Run.run`). Raises ValueError for a buffer that is too short, Unsupported,
        Fault, Interrupted, or KeyboardInterrupt (the kernel has been stopped then).
        """
        self._perform(
            grid, block, parameters, shared_bytes, NO_INSTRUMENTS, blocks=blocks, seconds=seconds
        )

    def count(
        self,
        grid: Dim,
        block: Dim,
        parameters: bytes,
        shared_bytes: int = 0,
        wider: dict[int, int] | None = None,
    ) -> Counts:
        """Runs the kernel as `launch` does and counts what it does.

        wider: for accesses to shared memory, by their line of the PTX, the bytes of an access that
        ptxas fuses them and their neighbours into; those are counted too.
        """
        wider = wider or {}
        instruments = Instruments(count=True, wider=tuple(sorted(wider.items())))
        run = self._perform(grid, block, parameters, shared_bytes, instruments)
        return interpret(run.code.layout.counters, run.counted(), wider)

    def trace(
        self,
        grid: Dim,
        block: Dim,
        parameters: bytes,
        shared_bytes: int = 0,
        *,
        ptx_line: int,
        of_block: Dim = (0, 0, 0),
        warp: int = 0,
        iteration: int = 0,
        alone: bool = True,
    ) -> Trace:
        """Runs the kernel as `launch` does and returns the addresses of one access.

        ptx_line: where the ld, st, atom or red is in the PTX; of_block, warp: who executes it;
        iteration: the how-manieth time, from 0. alone: runs only that block, which is enough unless
        it needs others: it may then be a deadlock, or go another way than it would among them.

        Raises ValueError for what is not in the launch, NotReached (a ValueError too) if the warp
        does not execute the instruction that often, and what `launch` raises.
        """
        x, y, z = of_block
        if not all(0 <= at < n for at, n in zip(of_block, grid, strict=True)):
            raise ValueError(f"block {of_block} is not in the grid {grid}")
        if not 0 <= warp < Geometry(block).warps:
            raise ValueError(f"warp {warp} is not in a block of {Geometry(block).warps} warps")
        record = Record(
            ptx_line=ptx_line, warp=warp, block_x=x, block_y=y, block_z=z, wanted=iteration
        )
        instruments = Instruments(trace=True)
        run = self._perform(grid, block, parameters, shared_bytes, instruments, record, alone)
        if not 0 <= iteration < record.executed:
            times = f"{record.executed} times: iteration is 0..{record.executed - 1}"
            raise NotReached(
                f"warp {warp} of block {of_block} executes the instruction on line {ptx_line} of "
                f"the PTX {times if record.executed else 'not once'}",
                record.executed,
            )
        layout = run.code.layout
        i = layout.sources[record.instruction]
        stride = layout.local_stride
        return interpret_record(record, i, size_of(i), self._owner.memory, run.shared_bytes, stride)

    def sanitize(
        self,
        grid: Dim,
        block: Dim,
        parameters: bytes,
        shared_bytes: int = 0,
        *,
        order: str | int = "forward",
        unwritten: Sequence[tuple[int, int, int]] = (),
        workers: int | None = None,
        seconds: float | None = None,
    ) -> Sanitized:
        """Runs the kernel as `launch` does and says which of its accesses are not as they should
        be. A fault is part of what it says.

        order: of the warps of a block and of the blocks: "forward", "reversed" or a seed.
        unwritten: (address, bytes, bytes of an element) of arrays that are all NaN and count as
        not yet written. workers: threads that run blocks; with one the order is fixed. seconds: as
        for `launch`.

        Shared memory and registers that nobody has set hold NaN.
        """
        code = self.compiled(tuple(block), Instruments(sanitize=True))
        blocks = grid[0] * grid[1] * grid[2]
        memory, layout = self._owner.memory, code.layout
        if any(i.opcode == "call" for i in layout.sources):
            memory.heap()
        sanitizer = Sanitizer(
            layout.granule, memory, blocks, code.geometry.warps, unwritten, order, workers
        )
        sanitizer.protect(layout, parameters)
        fault = None
        try:
            self._perform(
                grid, block, parameters, shared_bytes, Instruments(sanitize=True),
                sanitizer=sanitizer, seconds=seconds,
            )  # fmt: skip
        except Fault as found:
            fault = found
        return sanitizer.result(layout, layout.local_stride, fault)

    def graph(self) -> Graph:
        """The kernel's flow graph; ids of instructions (Layout.sources) go through its blocks."""
        return Graph(self._owner.source.kernel(self.name))

    def variables(self) -> dict[str, tuple[int, int]]:
        """(address, bytes) of the module's variables."""
        return self._owner.globals

    def shared_place(self, offset: int) -> str:
        """A byte of the block's shared memory as variable+offset."""
        before = [(at, name) for name, at in self._shared_offsets.items() if at <= offset]
        if not before:
            return f"shared memory+{offset:,}"
        at, name = max(before)
        return f"{plain_name(name)}+{offset - at:,}"

    @cached_property
    def _shared_offsets(self) -> dict[str, int]:
        """Where the kernel's shared variables begin. (A long kernel takes a while to look at.)"""
        source = self._owner.source
        return layout_of(source.module, source.kernel(self.name)).shared_offsets

    def _perform(
        self,
        grid: Dim,
        block: Dim,
        parameters: bytes,
        shared_bytes: int,
        instruments: Instruments,
        record: Record | None = None,
        alone: bool = False,
        sanitizer: Sanitizer | None = None,
        blocks: range | None = None,
        seconds: float | None = None,
    ) -> _Run:
        if len(parameters) < self.parameter_bytes:
            raise ValueError(
                f"kernel {self.name} takes {self.parameter_bytes} bytes of parameters, "
                f"got {len(parameters)}"
            )

        def prepare() -> _Run:
            code = self.compiled(tuple(block), instruments)
            run = _Run(code, self._owner, grid, parameters, shared_bytes, sanitizer)
            run.seconds = seconds
            if blocks is not None:
                run.launch.next_block, run.launch.end_block = blocks.start, blocks.stop
            if record is not None:
                run.trace(record, alone)
            return run

        task = _Task(lambda: self.compiled(tuple(block), instruments), prepare)
        return task.perform_interruptibly()


class _Compiled:
    """A kernel's code for one block shape."""

    def __init__(self, source: Source, name: str, block: Dim, instruments: Instruments):
        self.name = name
        self.geometry = Geometry(block)
        key = cache.key(source.text, name, block, instruments)
        stored = cache.load(key)
        if stored is None:
            kernel = source.kernel(name)
            layout = layout_of(source.module, kernel)
            data = jit.object_code(generate(layout, Graph(kernel), self.geometry, instruments))
            stored = layout.for_launches(), data
            cache.keep(key, stored)
        self.layout: Layout = stored[0]
        self._code = jit.load(stored[1])
        self.run = jit.RUN(self._code.address("run"))


class _Run:
    """One launch."""

    def __init__(
        self,
        code: _Compiled,
        owner: Module,
        grid: Dim,
        parameters: bytes,
        dynamic_shared: int,
        sanitizer: Sanitizer | None = None,
    ):
        self._sanitizer = sanitizer
        self.code, self.memory, self.grid = code, owner.memory, grid
        self._owner, self._parameters = owner, parameters
        layout = code.layout
        blocks = grid[0] * grid[1] * grid[2]
        static = -(-layout.static_shared // 16) * 16 if dynamic_shared else layout.static_shared
        self.shared_bytes = static + dynamic_shared
        self._keep = [ctypes.create_string_buffer(parameters, len(parameters) + 16)]
        if any(i.opcode == "call" for i in layout.sources):
            self.memory.heap()  # must be there before the table of allocations is made
        table = [n for start, size in self.memory.allocations() for n in (start, start + size)]
        symbols = [owner.globals[name][0] for name in layout.symbols]
        bounds = [n for key in layout.bounds for n in self._bounds(key, owner, parameters)]
        self.launch = Launch(
            end_block=blocks,
            grid_x=grid[0],
            grid_y=grid[1],
            grid_z=grid[2],
            shared_bytes=self.shared_bytes,
            parameters=ctypes.addressof(self._keep[0]),
            bounds=self._array(bounds),
            symbols=self._array(symbols),
            allocations=self._array(table),
            allocation_count=len(table) // 2,
        )
        self.system = System(self.memory)
        self._callbacks = IDLE(self._kept(self._idle)), HOST_CALL(self._kept(self._host_call))
        self._error: BaseException | None = None
        self.launch.idle, self.launch.host_call = (
            ctypes.cast(c, c_void_p).value for c in self._callbacks
        )
        self.seconds: float | None = None
        self._late: Fault | None = None
        self._lock = threading.Lock()
        self._seen: tuple = ()
        self._seen_at = 0.0
        self.done: queue.SimpleQueue = queue.SimpleQueue()
        workers = max(1, min(len(os.sched_getaffinity(0)), blocks))
        if sanitizer is not None:
            workers = min(workers, sanitizer.workers or workers)
            for name in ("warp_order", "block_order"):
                order = getattr(sanitizer, name)
                setattr(self.launch, name, ctypes.addressof(order) if order is not None else None)
        self.contexts = [self._context(k) for k in range(workers)]

    def _kept(self, callback: Callable[..., int]) -> Callable[..., int]:
        """A callback whose exception ends the launch, which then raises it: none may leave."""

        def call(*arguments: int) -> int:
            try:
                return callback(*arguments)
            except BaseException as error:
                self._error = self._error or error
                self.stop()
                return 1

        return call

    def _array(self, values: list[int]) -> int:
        self._keep.append((c_int64 * max(1, len(values)))(*values))
        return ctypes.addressof(self._keep[-1])

    def _bounds(self, key, owner: Module, parameters: bytes) -> tuple[int, int]:
        if key is None:
            return 0, 0
        what, where = key
        if what == "symbol":
            return owner.globals.get(where, (0, 0))
        pointer = int.from_bytes(parameters[where : where + 8], "little")
        return self.memory.find(pointer) or (0, 0)

    def _context(self, worker: int) -> Context:
        layout, warps = self.code.layout, self.code.geometry.warps
        context = Context(
            launch=ctypes.addressof(self.launch),
            worker=worker,
            shared=self._buffer(self.shared_bytes),
            frames=self._buffer(layout.frame_bytes * warps),
            shadows=self._buffer(layout.frame_bytes * warps),
            local=self._buffer(layout.local_stride * LANES * warps),
            states=self._buffer(4 * warps),
            barriers=self._buffer(RECORD_BYTES),
            counts=self._buffer(8 * layout.counters.size) if layout.counters else None,
            places=self._buffer(4 * warps),
        )
        if self._sanitizer is not None:
            local = layout.local_stride * LANES * warps
            self._sanitizer.attach(context, self.shared_bytes, local)
        return context

    def _buffer(self, nbytes: int) -> int:
        """A 256-byte aligned buffer with readable slack on both sides, pages used when touched."""
        self._keep.append(np.zeros(nbytes + 2 * SLACK + 256, np.uint8))
        return -(-(self._keep[-1].ctypes.data + SLACK) // 256) * 256

    def run(self) -> None:
        """Runs all blocks. The time limit is up when as much time has passed and this process has
        computed for half of it: a busy machine alone is no endless loop."""
        started, cpu = time.monotonic(), time.process_time()
        for context in self.contexts:
            _pool.put((self.code.run, context, self.done))
        for _ in self.contexts:
            while not self._ended_by(started, cpu):
                continue
        if self._error:
            raise self._error
        if self._late:
            raise self._late
        faults = [c for c in self.contexts if c.fault_kind]
        if faults:
            raise self._fault(min(faults, key=lambda c: c.block))
        if self.launch.stop:
            raise Interrupted(f"kernel {self.code.name} was stopped")

    def _ended_by(self, started: float, cpu: float) -> bool:
        """Waits for a worker; False when it is to be waited for again."""
        if self.seconds is None or self._late:
            self.done.get()
            return True
        left = max(0.02, started + self.seconds - time.monotonic())
        try:
            self.done.get(timeout=left)
        except queue.Empty:
            if time.process_time() - cpu > self.seconds / 2:
                self._late = self._too_long()
                self.stop()
            return False
        return True

    def _too_long(self) -> Fault:
        """Where a warp was last seen to go round in a loop, or to wait at a barrier."""
        for c in self.contexts:
            states = [(s, w) for w, s in enumerate(self._states(c)) if s > 0]
            if states:
                state, warp = max(states)
                i = self.code.layout.resumes[(state & WROTE - 1) - 1]
                x, y, _ = self.code.geometry.block
                linear = warp * LANES
                thread = (linear % x, linear // x % y, linear // (x * y))
                block = (c.block_x, c.block_y, c.block_z)
                file = PurePath(i.file).name
                detail = f"stopped after {self.seconds:g} s"
                return Fault("time", detail, self.code.name, file, i.line, block, thread)
        return Fault("time", f"stopped after {self.seconds:g} s", self.code.name)

    def trace(self, record: Record, alone: bool) -> None:
        """Before it runs: what code that traces is to look for, in that block alone or in all."""
        self.launch.trace = ctypes.addressof(record)
        if alone:
            x, y, _ = self.grid
            block = (record.block_z * y + record.block_y) * x + record.block_x
            self.launch.next_block, self.launch.end_block = block, block + 1

    def counted(self) -> list[int]:
        """The counters' values, added up over the workers."""
        size = self.code.layout.counters.size
        values = np.zeros(size, np.int64)
        for c in self.contexts:
            values += np.ctypeslib.as_array((c_int64 * size).from_address(c.counts))
        return values.tolist()

    def stop(self) -> None:
        """Lets the workers end soon; from any thread, any number of times."""
        self.launch.stop = 1
        self.launch.end_block = 0

    def _idle(self, context: int) -> int:
        """All warps of a worker's block only poll: see whether another block could help them.

        Nonzero ends the launch as a deadlock.
        """
        c = Context.from_address(context)
        if self.launch.stop:
            return 1  # where all wait at barriers no warp would see it
        with self._lock:
            waiting = self.launch.next_block < self.launch.end_block
            if waiting and len(self.contexts) < RESIDENT_BLOCKS:
                self.contexts.append(self._context(len(self.contexts)))
                task = (self.code.run, self.contexts[-1], self.done)
                threading.Thread(target=_Pool.perform, args=task, daemon=True).start()
            seen = (self.launch.next_block, *(c.rounds for c in self.contexts))
            now = time.monotonic()
            if seen != self._seen:
                self._seen, self._seen_at = seen, now
            elif now - self._seen_at > DEADLOCK_AFTER or not self._can_run(c):
                self._record_deadlock(c)
                return 1
        time.sleep(0.0005)
        return 0

    def _states(self, c: Context) -> list[int]:
        return list((c_int32 * self.code.geometry.warps).from_address(c.states))

    def _can_run(self, c: Context) -> bool:
        """Whether any warp of a worker's block is not at a barrier."""
        return any(state >= READY for state in self._states(c))

    def _record_deadlock(self, c: Context) -> None:
        """A fault of the first lane that polls, or else of the first warp that is at a barrier."""
        states = self._states(c)
        least = READY if self._can_run(c) else 1
        c.fault_kind = 7
        c.fault_warp = next(w for w, state in enumerate(states) if state >= least)
        frame = c.frames + c.fault_warp * self.code.layout.frame_bytes
        mask = ctypes.c_uint32.from_address(frame).value  # the lanes in the loop
        c.fault_lane = _lowest(mask) if least == READY else 0
        self.launch.stop = 1  # the other workers would find the same

    def _deadlock(self, i: ptx.Instruction, c: Context) -> str:
        if not self._can_run(c):
            waiting = [state for state in self._states(c) if state > 0]
            lines = sorted({self._resumes_at(state).line for state in waiting} - {0})
            on = f" (line {', '.join(map(str, lines))})" if lines else ""
            ended = [self._ended(c, w) for w, state in enumerate(self._states(c)) if state < 0]
            lines = sorted({i.line for i in ended if i is not None} - {0})
            off = f"; the others have ended on line {', '.join(map(str, lines))}" if lines else ""
            return (
                f"deadlock: the {len(waiting)} warps of the block that have not ended all wait at "
                f"barriers{on}, and none of these has as many threads as it waits for{off}"
            )
        lines = sorted({self._resumes_at(state).line for state in self._states(c)
                        if 0 < state < READY} - {0})  # fmt: skip
        on = f"; other warps of its block wait at the barrier on line {lines[0]}" if lines else ""
        return (
            "deadlock: this thread waits in a loop for something that no thread which can run will "
            f"do (for {DEADLOCK_AFTER:g} s all of them have only polled){on}"
        )

    def _host_call(self, context: int, number: int, mask: int, warp: int) -> int:
        """A call of the system by the lanes in `mask`; nonzero ends the launch."""
        layout, c = self.code.layout, Context.from_address(context)
        name, results, arguments = external_call(layout.sources[number])
        for lane in (k for k in range(LANES) if mask >> k & 1):
            start = c.local + (warp * LANES + lane) * layout.local_stride
            values = [
                c_int64.from_address(start + layout.local_offsets[a]).value for a in arguments
            ]
            inside = len(values) > 1 and start <= values[1] < start + layout.local_stride
            room = start + layout.local_stride - values[1] if inside else 0
            result = self.system.call(name, c.block, c.worker, values, room)
            if result is None:
                return 1
            if self._sanitizer is not None and name == "malloc" and result:
                self._sanitizer.allocated(result, values[0], layout.sources[number])
            elif self._sanitizer is not None and name == "free":
                info = (warp * LANES + lane) << THREAD_AT | number
                self._sanitizer.freed(values[0], c, info)
            for r in results:
                kind = c_int64 if name == "malloc" else c_int32
                kind.from_address(start + layout.local_offsets[r]).value = result
        return 0

    def _assert(self, i: ptx.Instruction, c: Context) -> str:
        return self.system.failures[c.worker]

    def _fault(self, c: Context) -> Fault:
        kind = FAULT_KINDS[c.fault_kind]
        layout = self.code.layout
        if kind == "deadlock":
            i = self._resumes_at(self._states(c)[c.fault_warp])
        else:
            i = layout.sources[c.fault_instruction]
        x, y, _ = self.code.geometry.block

        def place(linear: int) -> Dim:
            return linear % x, linear // x % y, linear // (x * y)

        detail = getattr(self, "_" + kind.replace(" ", "_"))(i, c)
        others = self._apart(i, c) if kind in ("barrier", "deadlock") else []
        return Fault(
            kind,
            detail,
            self.code.name,
            PurePath(i.file).name,
            i.line,
            (c.block_x, c.block_y, c.block_z),
            place(c.fault_warp * LANES + c.fault_lane),
            c.fault_address,
            self._own(i),
            tuple((line, place(thread)) for line, thread in others),
        )

    def _apart(self, i: ptx.Instruction, c: Context) -> list[tuple[int, int]]:
        """(line, thread) of threads that wait in vain for one another, one for each line."""
        first = c.fault_warp * LANES
        if FAULT_KINDS[c.fault_kind] == "barrier":
            if not c.fault_place:
                return []
            line, _ = self.code.layout.places[c.fault_place - 1].of(i)
            return [(i.line, first + _lowest(c.fault_others)), (line, first + c.fault_lane)]
        found = {i.line: first + c.fault_lane}
        for w, state in enumerate(self._states(c)):
            at = self._ended(c, w) if state < 0 else self._resumes_at(state)
            if at is not None and at.line:
                found.setdefault(at.line, w * LANES)
        return list(found.items())

    def _resumes_at(self, state: int) -> ptx.Instruction | None:
        """Where a warp with this state waits, or is in a loop."""
        return self.code.layout.resumes[(state & WROTE - 1) - 1]

    def _ended(self, c: Context, warp: int) -> ptx.Instruction | None:
        """Where a warp that has ended did so, if that is known."""
        if self._sanitizer is None:
            return None
        number = self._sanitizer.shadows[c.sanitizer].state.exits[warp]
        return self.code.layout.sources[number - 1] if number else None

    def _what(self, i: ptx.Instruction, c: Context) -> str:
        verb = {"ld": "read", "st": "write"}.get(i.opcode, "atomic operation")
        space = next(
            (m for m in i.modifiers if m in ("global", "shared", "local", "const")), "memory"
        )
        return f"{verb} of {c.fault_size} bytes of {space}{' memory' if space != 'memory' else ''}"

    def _where(self, i: ptx.Instruction, c: Context) -> str:
        if "shared" in i.modifiers:
            return (
                f"at byte {c.fault_address - c.shared:,} of the block's "
                f"{self.shared_bytes:,} bytes of shared memory"
            )
        if "local" in i.modifiers and AREA in self.code.layout.local_offsets:
            return "outside the thread's stack: " + _TOO_DEEP
        if "local" in i.modifiers:
            return "outside the thread's local variables"
        return "at " + self.memory.describe(c.fault_address, c.fault_size, self._own(i))

    def _own(self, i: ptx.Instruction) -> tuple[int, int] | None:
        """The live allocation that an access's pointer was computed from, if that is known."""
        base = next((o.base for o in i.operands if isinstance(o, ptx.Address)), None)
        origin = self.code.layout.origin(base)
        own = self._bounds(origin, self._owner, self._parameters)
        return own if own[1] else None

    def _out_of_bounds(self, i: ptx.Instruction, c: Context) -> str:
        return f"out-of-bounds {self._what(i, c)} {self._where(i, c)}"

    def _misaligned(self, i: ptx.Instruction, c: Context) -> str:
        return (
            f"misaligned {self._what(i, c)} at 0x{c.fault_address:x}, "
            f"which is no multiple of {c.fault_size}"
        )

    def _barrier(self, i: ptx.Instruction, c: Context) -> str:
        missing = (c.fault_mask & 0xFFFFFFFF).bit_count()
        where = ""
        if c.fault_place:
            where = "; " + self.code.layout.places[c.fault_place - 1].of(i)[1]
        return (
            f"{missing} threads of this warp, this one the first of them, have not reached the "
            f"barrier that others of it wait at{where}: __syncthreads() must be reached by all "
            "threads"
        )

    def _trap(self, i: ptx.Instruction, c: Context) -> str:
        return "the kernel executed a trap instruction"

    def _stack_overflow(self, i: ptx.Instruction, c: Context) -> str:
        return "no room on the thread's stack for another call: " + _TOO_DEEP

    def _index_overflow(self, i: ptx.Instruction, c: Context) -> str:
        return (
            "a 32-bit index wraps around between lanes of this warp, which the CPU driver cannot "
            "follow; compute it in 64 bits (size_t)"
        )


def _lowest(mask: int) -> int:
    """The lowest lane in a mask."""
    return (mask & -mask).bit_length() - 1


class _Pool:
    """Worker threads, started when first needed, one a core."""

    def __init__(self):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process = 0

    def put(self, task) -> None:
        with self._lock:
            if self._process != os.getpid():  # the first time, or after a fork
                self._process = os.getpid()
                self._tasks = queue.SimpleQueue()
                for _ in range(len(os.sched_getaffinity(0))):
                    threading.Thread(target=self._work, args=(self._tasks,), daemon=True).start()
        self._tasks.put(task)

    @staticmethod
    def _work(tasks: queue.SimpleQueue) -> None:
        while True:
            _Pool.perform(*tasks.get())

    @staticmethod
    def perform(run, context: Context, done: queue.SimpleQueue) -> None:
        run(byref(context))
        done.put(None)


_pool = _Pool()


class _Task:
    """One launch, compiled, prepared and run to its end on a thread that signals never reach.

    Only the main thread gets KeyboardInterrupt, between any two steps of it: in the middle of a
    compilation, or with workers under way whose buffers it would drop. So the main thread only
    waits here: for workers to the end, for a compilation until it is interrupted. That cannot be
    stopped; it goes on without it, and the next launch will find the code or wait for it.
    """

    def __init__(self, compile_: Callable[[], object], prepare: Callable[[], _Run]):
        self._compile, self._prepare = compile_, prepare
        self._claim = threading.Lock()
        self._start = threading.Lock()  # taken once: to run the kernel, or never to do so
        self._ended = threading.Event()
        self._run: _Run | None = None
        self._stopped = False
        self._error: BaseException | None = None

    def perform_interruptibly(self) -> _Run:
        if threading.current_thread() is threading.main_thread():
            try:
                _launcher.put(self)
                self._ended.wait()
            except BaseException:
                self._stop_and_wait()
                self._print()
                raise
        else:
            self.perform()
        self._print()
        if self._error is not None:
            raise self._error
        return self._run

    def _print(self) -> None:
        """What the kernel printed: written by the caller's thread, to whose cell it belongs."""
        if self._run is not None:
            sys.stdout.write(self._run.system.output.text())

    def _stop_and_wait(self) -> None:
        while not self._ended.is_set():
            try:
                self._stopped = True
                if self._start.acquire(blocking=False):
                    return
                if self._run is not None:
                    self._run.stop()
                _launcher.put(self)  # it may not have got there; it is not performed twice
                self._ended.wait()
            except KeyboardInterrupt:
                continue

    def perform(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            if not self._stopped:
                self._compile()
            if self._start.acquire(blocking=False):
                self._run = self._prepare()
                if self._stopped:
                    self._run.stop()
                self._run.run()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()


class _Launcher:
    """The thread that performs the main thread's launches."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, task: _Task) -> None:
        self._tasks.put(task)
        if self._thread is None or not self._thread.is_alive():  # none yet, or lost by a fork
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            self._tasks.get().perform()


_launcher = _Launcher()
