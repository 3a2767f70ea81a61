"""The corpus: small kernels with one planted fault each, and right ones that look suspicious.

What is to be found is said in the kernels: a comment `// <- 1` marks a line, and `expected` names
the marks in the order of the program. Lines of files that are not of this folder (the lessons')
are named by a piece of their text.

This module needs no more than NumPy, so that a machine with a GPU can read it too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = Path(__file__).resolve().parent / "kernels"

RAW = "read-after-write race"
WAR = "write-after-read race"
WAW = "write-after-write race"
LANES = "lanes write different values"
EQUAL = "equal values written"
BOUNDS = "out of bounds"
UNINITIALISED = "uninitialised read"
NEVER = "never written"
DIVERGENT = "divergent barrier"
MISMATCH = "barriers do not match"
EXITED = "exited before a barrier"


@dataclass(frozen=True)
class Array:
    """An array in device memory. fill: "index" (0, 1, 2 …), "zeros", or "unwritten".

    An unwritten array is all NaN here, as helpers.memory.allocate leaves it, and on a GPU memory
    that nothing was copied to.
    """

    size: int
    fill: str = "index"
    dtype: str = "float32"

    def host(self) -> np.ndarray:
        if self.fill == "unwritten":
            return np.full(self.size, np.nan, self.dtype)
        return np.arange(self.size).astype(self.dtype) * (self.fill == "index")


@dataclass(frozen=True)
class Expected:
    """A finding: its kind, and the marks or texts of its lines, earlier in the program first."""

    kind: str
    lines: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A launch, and what is to be found in it.

    expected: must be found. besides: may be found or not, since it follows from the fault and
    depends on the order of the warps.
    """

    file: str
    kernel: str
    grid: int | tuple[int, int]
    block: int | tuple[int, int]
    arguments: tuple[Array | int, ...]
    expected: tuple[Expected, ...] = ()
    besides: tuple[Expected, ...] = ()
    shared: int = 0
    hangs: bool = False  # whether a GPU would never end it

    @property
    def path(self) -> Path:
        found = (folder / self.file for folder in (KERNELS, ROOT / "cuda", ROOT / "helpers/data"))
        return next(path for path in found if path.is_file())

    @property
    def right(self) -> bool:
        """Whether nothing is wrong with the kernel; a note may be made all the same."""
        return all(e.kind == EQUAL for e in self.expected)

    def values(self) -> list[np.ndarray | np.int32]:
        """The arguments as NumPy has them; new arrays each time."""
        return [a.host() if isinstance(a, Array) else np.int32(a) for a in self.arguments]

    def line(self, mark: int | str) -> int:
        """The number of the line with a mark, or with a text, in this kernel."""
        found = [number for number, text in self._body() if _has(text, mark)]
        assert len(found) == 1, f"{self.kernel}: {mark!r} is on lines {found}"
        return found[0]

    def _body(self) -> list[tuple[int, str]]:
        lines = list(enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1))
        start = next(k for k, (_, text) in enumerate(lines)
                     if re.search(rf"\b{self.kernel}\(", text))  # fmt: skip
        end = next(k for k in range(start, len(lines)) if lines[k][1].startswith("}"))
        return lines[start : end + 1]


def _has(text: str, mark: int | str) -> bool:
    if isinstance(mark, str):
        return text.startswith(mark) if mark.startswith(" ") else mark in text
    return re.search(rf"// <- {mark}\b", text) is not None


def _faulty() -> list[Case]:
    x, out, unwritten = Array, Array(128, "unwritten"), lambda n: Array(n, "unwritten")
    warps, warp, far, bars, memory = (
        "races_between_warps.cu", "races_in_a_warp.cu", "races_global.cu", "barriers.cu",
        "memory.cu",
    )  # fmt: skip
    raw, war, waw = Expected(RAW, (1, 2)), Expected(WAR, (1, 2)), Expected(WAW, (1,))
    n = 33  # of the lesson's matrices: not a multiple of its tile
    matrices = (x(n * n), x(n * n), unwritten(n * n), n, n, n)
    lesson, tiles = "04_syncthreads.cu", {"grid": (3, 3), "block": (16, 16)}
    As, Bs = ("As[ty][tx] =", "sum += As[ty][k]"), ("Bs[ty][tx] =", "* Bs[k][tx]")
    left = tuple(Expected(EXITED, ("BROKEN", barrier)) for barrier in ("who is left", "here too"))
    unloaded = tuple(Expected(UNINITIALISED, (read,)) for _, read in (As, Bs))
    return [
        Case(warps, "store_then_read", 1, 128, (x(128), out), (raw,)),
        Case(warps, "read_then_store", 1, 128, (x(128), out), (war,)),
        Case(warps, "two_warps_store", 1, 64, (unwritten(64),), (waw,)),
        Case(warps, "two_lines_store", 1, 64, (unwritten(64),), (Expected(WAW, (1, 2)),)),
        Case(warps, "bytes_exchanged", 1, 64, (x(64, dtype="uint8"), unwritten(64)), (raw,)),
        Case(warps, "named_barrier_of_the_wrong_half", 1, 128, (x(128), out), (raw,)),
        Case(warps, "cp_async_without_wait", 1, 128, (x(128), out), (raw,)),
        Case(warps, "cp_async_without_barrier", 1, 128, (x(128), out), (raw,)),
        Case(warps, "double_buffer_without_barrier", 1, 128, (x(512), out, 4), (raw,),
             (Expected(WAR, (2, 1)),)),
        Case(warps, "double_buffer_with_half_the_barriers", 1, 128, (x(512), out, 4),
             (raw, Expected(WAR, (2, 1)))),
        Case(warps, "count_read_too_early", 1, 128, (x(128, dtype="int32"), out), (raw,)),
        Case(warps, "histogram_without_atomics", 1, 128,
             (x(128, dtype="int32"), Array(8, "zeros", "int32")), (Expected(WAR, (1,)),),
             (waw, Expected(LANES, (1,)), Expected(EQUAL, (1,)))),
        Case(lesson, "matmul_tiled_no_first_barrier", arguments=matrices, **tiles,
             expected=(Expected(RAW, As), Expected(RAW, Bs))),
        Case(lesson, "matmul_tiled_no_second_barrier", arguments=matrices, **tiles,
             expected=(Expected(WAR, As[::-1]), Expected(WAR, Bs[::-1]))),
        Case(warp, "exchange_without_syncwarp", 1, 32, (x(32), unwritten(32)), (raw,)),
        Case(warp, "reuse_without_syncwarp", 1, 32, (x(32), unwritten(32)), (war,)),
        Case(warp, "warp_synchronous_sum", 1, 32, (x(64), unwritten(1)), (Expected(WAR, (1,)),),
             (Expected(RAW, (1,)),)),
        Case(lesson, "reduction_warp_synchronous", 1, 64, (x(64), unwritten(1)),
             (Expected(RAW, ("s[t] += s[t + i]",)), Expected(WAR, ("s[t] += s[t + i]",)))),
        Case(warp, "lanes_store_their_number", 1, 32, (unwritten(32),), (Expected(LANES, (1,)),)),
        Case(warp, "lanes_store_to_one_global_word", 1, 32, (unwritten(1),),
             (Expected(LANES, (1,)),)),
        Case(warp, "halves_that_do_not_meet", 1, 32, (x(32), unwritten(32)), (raw,)),
        Case(far, "neighbour_in_the_block", 1, 64, (x(64), unwritten(64)), (raw,)),
        Case(far, "neighbour_in_another_block", 4, 64, (x(256), unwritten(256), 256), (raw,)),
        Case(far, "smooth_in_place", 4, 64, (x(256), 256), (war,)),
        Case(far, "total_without_atomic", 4, 128, (x(512), Array(1, "zeros")),
             (Expected(WAR, (1,)),), (waw,)),
        Case(far, "ticket_before_the_part", 6, 32,
             (x(6), unwritten(6), unwritten(1), Array(1, "zeros", "uint32")), (raw,)),
        Case(far, "blocks_store_to_one_word", 4, 32, (unwritten(1),), (waw,)),
        Case(bars, "barrier_in_if", 1, 64, (x(64), unwritten(64)), (Expected(DIVERGENT, (1, 2)),)),
        Case(bars, "barriers_of_two_branches", 1, 64, (x(64), unwritten(64)),
             (Expected(MISMATCH, (1, 2)),)),
        Case(bars, "loops_of_different_length", 1, 64, (unwritten(64),),
             (Expected(MISMATCH, (1, 3)),), (Expected(RAW, (2, 4)), Expected(EXITED, (5, 3)))),
        Case(bars, "return_before_a_barrier", 1, 64, (x(64), Array(64, "zeros"), 48),
             (Expected(EXITED, (1, 2)),)),
        Case(bars, "named_barrier_for_too_many", 1, 64, (unwritten(64),),
             (Expected("deadlock", (1,)),), hangs=True),
        Case(lesson, "matmul_tiled_barrier_in_if", arguments=matrices, **tiles,
             expected=(Expected(DIVERGENT, (12 * " " + "__sync", 8 * " " + "__sync")),),
             besides=(*unloaded, Expected(RAW, As), Expected(RAW, Bs))),
        Case(lesson, "matmul_tiled_early_return", arguments=matrices, **tiles,
             expected=(*unloaded, *left)),
        Case(memory, "read_past_the_end", 2, 32, (x(64), unwritten(64), 64),
             (Expected(BOUNDS, (1,)),)),
        Case(memory, "no_guard", 2, 32, (unwritten(50),), (Expected(BOUNDS, (1,)),)),
        Case(memory, "past_As_into_Bs", 1, 64, (x(64), unwritten(64), 32),
             (Expected(BOUNDS, (1,)),)),
        Case(memory, "before_Bs_into_As", 1, 64, (x(64), unwritten(64), 32),
             (Expected(BOUNDS, (1,)),)),
        Case(memory, "past_dynamic_shared", 1, 64, (x(64), unwritten(64)),
             (Expected(BOUNDS, (1,)),), shared=128),
        Case(memory, "misaligned_float4", 1, 32, (x(160), unwritten(32)),
             (Expected("misaligned", (1,)),)),
        Case(memory, "shared_partly_written", 1, 64, (x(64), unwritten(64)),
             (Expected(UNINITIALISED, (1,)),)),
        Case(memory, "accumulator_not_cleared", 1, 32, (x(32), unwritten(32)),
             (Expected(UNINITIALISED, (1,)),)),
        Case(memory, "local_partly_written", 1, 32, (x(8), unwritten(32), 5),
             (Expected(UNINITIALISED, (1,)),)),
        Case(memory, "scale", 100 // 32, 32, (x(100), unwritten(100), 100), (Expected(NEVER),)),
        Case(memory, "whole_tiles_only", (3, 3), (8, 8), (x(400), unwritten(400), 20, 20),
             (Expected(NEVER),)),
        Case(memory, "trap_on_a_large_value", 1, 64, (x(64), unwritten(64)),
             (Expected("trap", (1,)),)),
        *_wrong_patterns(),
        Case(memory, "assertion_fails", 1, 64, (x(64), unwritten(64)),
             (Expected("assert", (1,)),)),
    ]  # fmt: skip


def _wrong_patterns() -> list[Case]:
    x, file = Array, "patterns_wrong.cu"
    unwritten, zeros = lambda n: Array(n, "unwritten"), lambda n, kind: Array(n, "zeros", kind)
    raw, war, waw = Expected(RAW, (1, 2)), Expected(WAR, (1, 2)), Expected(WAW, (1, 2))
    flag = zeros(1, "int32")
    return [
        Case(file, "scan_in_place", 1, 128, (x(128), unwritten(128)), (war,)),
        Case(file, "tree_sum_last_warp", 1, 128, (x(128), unwritten(1)), (raw,)),
        Case(file, "ping_pong_stuck", 1, 64, (x(384), unwritten(64), 6),
             (Expected(WAR, (2, 1)),)),
        Case(file, "tile_sync_is_not_block_sync", 1, 64, (x(64), unwritten(64)), (raw,)),
        Case(file, "tile_of_eight", 1, 32, (x(32), unwritten(32)), (raw,)),
        Case(file, "pipeline_waits_for_one_too_few", 1, 64, (x(384), unwritten(64), 6),
             (raw, Expected(RAW, (3, 2)))),
        Case(file, "pipeline_overtakes", 1, 64, (x(384), unwritten(64), 6),
             (Expected(WAR, (2, 1)),)),
        Case(file, "own_copy_not_awaited", 1, 64, (x(64), unwritten(64)), (raw,)),
        Case(file, "flag_without_fence", 2, 64, (x(64), unwritten(64), flag, unwritten(64)),
             (raw,)),
        Case(file, "carved_too_early", 1, 64, (x(64), unwritten(64)), (waw,), shared=512),
        Case(file, "rows_of_48", 1, (48, 2), (x(96), unwritten(96)), (raw,)),
        Case(file, "thirty_three", 1, 33, (x(33), unwritten(33)), (raw,)),
        Case(file, "shuffle_as_barrier", 1, 32, (x(32), unwritten(32)), (raw,)),
        Case(file, "fence_as_barrier", 1, 64, (x(64), unwritten(64)), (raw,)),
        Case(file, "early_exit_leaves_a_hole", 1, 64, (x(64), zeros(64, "float32"), 48),
             (Expected(UNINITIALISED, (3,)), Expected(EXITED, (1, 2)))),
        Case(file, "read_outside_of_the_lock", 4, 64,
             (x(4), zeros(1, "float32"), flag, unwritten(4)), (Expected(RAW, (2, 1)),)),
        Case(file, "clears_while_counting", 1, 64, (x(64, dtype="int32"), zeros(8, "int32")),
             (waw,)),
        Case(file, "transpose_short", 1, (16, 16), (x(256), unwritten(256)),
             (Expected(BOUNDS, (1,)), Expected(LANES, (1,)), Expected(WAW, (1,)))),
        Case(file, "halves_of_pairs", 1, 64, (x(64), unwritten(64)), (raw,)),
        Case(file, "halo", 2, 64, (x(128), unwritten(128)), (Expected(BOUNDS, (1,)),)),
        Case(file, "reduced_twice", 1, 128, (x(256), unwritten(2)), (war,)),
        Case(file, "swapped_by_both", 1, (16, 16), (x(256),),
             (Expected(WAR, (1, 2)), Expected(WAR, (1, 3))),
             (Expected(WAW, (2, 3)), Expected(EQUAL, (2, 3)))),
    ]  # fmt: skip


def _right() -> list[Case]:
    x = Array
    unwritten = lambda n: Array(n, "unwritten")  # noqa: E731
    zeros = lambda n, dtype="float32": Array(n, "zeros", dtype)  # noqa: E731
    ints = lambda n: Array(n, dtype="int32")  # noqa: E731
    blocks, warps, atomics = "right_blocks.cu", "right_warps.cu", "right_atomics.cu"
    n, m = 70, 128
    matrices = (x(n * n), x(n * n), unwritten(n * n), n, n, n)
    lessons = [
        ("01_naive.cu", "matmul_naive", 32), ("01_naive.cu", "matmul_naive_uncoalesced", 32),
        ("02_tiled.cu", "matmul_tiled", 32),
        ("03_bank_conflicts.cu", "matmul_tiled_conflict", 32),
        ("03_bank_conflicts.cu", "matmul_tiled_padded", 32),
        ("03_bank_conflicts.cu", "matmul_tiled_swizzled", 32),
        ("04_syncthreads.cu", "matmul_tiled_two_buffers", 16),
    ]  # fmt: skip
    return [
        *(Case(file, kernel, (-(-n // tile), -(-n // tile)), (tile, tile), matrices)
          for file, kernel, tile in lessons),
        Case("04_syncthreads.cu", "reduction_syncwarp", 1, 64, (x(64), unwritten(1))),
        Case("register_tile.cu", "matmul_register_tile", (1, 1), 256,
             (x(m * 16), x(16 * m), unwritten(m * m), m, m, 16)),
        Case(blocks, "tree_sum", 2, 256, (x(512), unwritten(2))),
        Case(blocks, "scan", 1, 128, (x(128), unwritten(128))),
        Case(blocks, "scan_of_two_buffers", 1, 128, (x(128), unwritten(128))),
        Case(blocks, "transpose", (2, 2), (32, 8), (x(4096), unwritten(4096), 64)),
        Case(blocks, "bytes_side_by_side", 1, 128, (x(128, dtype="uint8"), unwritten(128))),
        Case(blocks, "halfwords_across_warps", 1, 64, (x(64, dtype="uint16"), unwritten(64))),
        Case(blocks, "float4_copy", 1, 64, (x(1024), unwritten(1024), 256)),
        Case(blocks, "barrier_in_an_if_of_the_whole_block", 4, 64, (x(64), unwritten(256))),
        Case(blocks, "whole_blocks_return", 4, 64, (x(256), zeros(256), 128)),
        Case(blocks, "return_after_the_last_barrier", 1, 64, (x(64), zeros(64), 40)),
        Case(blocks, "votes_of_a_block", 1, 128, (x(128), unwritten(128))),
        Case(blocks, "broadcast", 1, 96, (x(4), unwritten(384))),
        Case(blocks, "scale_in_place", 3, 64, (x(1000), 1000)),
        Case(blocks, "equal_values", 1, 128, (x(128), unwritten(128)), (Expected(EQUAL, (1,)),)),
        Case(blocks, "local_array", 1, 32, (x(8), unwritten(32), 5)),
        Case(blocks, "dynamic_shared_in_two", 1, 64, (x(64), unwritten(64)), shared=320),
        Case(blocks, "shared_reused_as_pairs", 1, 128, (x(128), unwritten(128))),
        Case(warps, "shuffle_sum", 1, 256, (x(256), unwritten(1))),
        Case(warps, "shuffle_scan", 1, 128, (x(128), unwritten(128))),
        Case(warps, "syncwarp_sum", 1, 32, (x(32), unwritten(1))),
        Case(warps, "halves_that_meet", 1, 32, (x(32), unwritten(32))),
        Case(warps, "a_part_for_each_warp", 1, 128, (x(128), unwritten(128))),
        Case(warps, "named_barriers_of_halves", 1, 128, (x(128), unwritten(128))),
        Case(warps, "producer_and_consumer", 1, 64, (x(160), unwritten(32), 5)),
        Case(warps, "cp_async_with_wait_and_barrier", 1, 128, (x(128), unwritten(128))),
        Case(warps, "cp_async_pipeline", 1, 64, (x(384), unwritten(64), 6)),
        Case(warps, "tensor_core", 1, 32,
             (x(128, dtype="uint32"), x(64, dtype="uint32"), unwritten(128))),
        Case(atomics, "histogram", 2, 64, (ints(300), zeros(8, "int32"), 300)),
        Case(atomics, "last_block_adds_up", 6, 32,
             (x(192), unwritten(6), unwritten(1), zeros(1, "uint32"))),
        Case(atomics, "compact", 4, 64, (ints(256), zeros(256, "int32"), zeros(1, "uint32"))),
        Case(atomics, "compact_by_warps", 4, 64,
             (ints(256), zeros(256, "int32"), zeros(1, "uint32"))),
        Case(atomics, "largest_by_cas", 4, 64, (x(256), zeros(1, "int32"))),
        Case(atomics, "flag_between_blocks", 2, 64,
             (x(64), unwritten(64), zeros(1, "int32"), unwritten(64))),
        Case(atomics, "spin_lock", 6, 32, (x(6), zeros(1), zeros(1, "int32"))),
        Case(atomics, "barrier_of_the_grid", 3, 64,
             (x(192), unwritten(192), unwritten(192), zeros(1, "uint32"))),
        Case(atomics, "chained_sums", 4, 32,
             (x(4), unwritten(4), zeros(4, "int32"), unwritten(128))),
        Case(atomics, "work_queue", 3, 64, (x(640), unwritten(640), zeros(1, "uint32"), 10)),
        *_right_patterns(),
    ]  # fmt: skip


def _right_patterns() -> list[Case]:
    x, file = Array, "patterns_right.cu"
    unwritten, zeros = lambda n: Array(n, "unwritten"), lambda n, kind: Array(n, "zeros", kind)
    flag = zeros(1, "int32")
    return [
        Case(file, "block_reduce", 2, 128, (x(256), unwritten(2))),
        Case(file, "blelloch", 1, 64, (x(128), unwritten(128))),
        Case(file, "two_level_scan", 1, 128, (x(128), unwritten(128))),
        Case(file, "two_slots", 1, 64, (x(224), unwritten(32), 7)),
        Case(file, "groups", 1, 128, (x(128), unwritten(1))),
        Case(file, "coalesced", 1, 64, (x(64), unwritten(64))),
        Case(file, "three_stages", 1, 64, (x(1536), unwritten(64), 6)),
        Case(file, "volatile_flag", 2, 64, (x(64), unwritten(64), flag, unwritten(64))),
        Case(file, "volatile_warp", 1, 64, (x(64), unwritten(1))),
        Case(file, "carved", 1, 64, (x(64), unwritten(64)), shared=13 * 64),
        Case(file, "forty_eight", 1, (48, 3), (x(144), unwritten(144))),
        Case(file, "lone_lane", 1, 33, (x(33), unwritten(33))),
        Case(file, "leave_and_name", 1, 32, (x(32), zeros(32, "float32"), 20)),
        Case(file, "shared_histogram", 3, 64, (x(192, dtype="int32"), zeros(8, "int32"))),
        Case(file, "locked", 5, 32, (x(5), zeros(2, "float32"), flag)),
        Case(file, "jacobi", 1, 64, (x(64), x(64), 5)),
        Case(file, "turns", 1, 128, (x(4), unwritten(128))),
        Case(file, "transpose_in_place", 1, (16, 16), (x(256),)),
        Case(file, "until_sorted", 1, 64, (x(64),)),
    ]  # fmt: skip


FAULTY = tuple(_faulty())
RIGHT = tuple(_right())
CASES = FAULTY + RIGHT
