"""Traced addresses are those that NumPy computes from the expressions in the source."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest
from engine import EngineDevice, ptx_of

import helpers
from helpers import simt
from helpers.kernels import CUDA_FOLDER
from helpers.simt import ptx as ptx_module
from helpers.simt.tracing import NotReached, Trace

pytestmark = pytest.mark.engine

WHOLE = (1 << 32) - 1
LANE = np.arange(32)
REGISTER_TILE = Path(helpers.__file__).parent / "data" / "register_tile.cu"

SOURCE = r"""
extern "C" {
__global__ void gather(const int *at, const float *x, float *out) {
    out[threadIdx.x] = x[at[threadIdx.x]];                           // line 4
}
__global__ void padded(float *out) {
    __shared__ float t[32][33];
    t[threadIdx.x][threadIdx.y] = out[threadIdx.x];                  // line 8
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = t[threadIdx.y][threadIdx.x];
}
__global__ void local_array(const int *at, int *out) {
    int a[64];
    for (int k = 0; k < 64; ++k) a[k] = out[k];
    out[threadIdx.x] = a[at[threadIdx.x]] + a[at[threadIdx.x + 1]];  // line 15
}
__global__ void histogram(const int *at, int *bins) {
    __shared__ int own[64];
    own[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&own[at[threadIdx.x] % 64], 1);                        // line 21
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);                 // line 23
}
__device__ float through(const float *p) { return *p; }              // line 25
__global__ void generic(const float *x, float *out, int which) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float *p = which ? x + 5 : s;
    out[threadIdx.x] = through(p + threadIdx.x / 2);                 // line 31
}
__global__ void halves(const float *x, float *out, int n) {
    for (int k = 0; k < n + threadIdx.x % 2; ++k)
        out[threadIdx.x] += x[k * 32 + threadIdx.x];                 // line 35
}
__global__ void chain(volatile int *turn, int *out) {
    while (turn[0] != blockIdx.x) {}
    out[blockIdx.x * 32 + threadIdx.x] = 1;                          // line 39
    __syncthreads();
    if (threadIdx.x == 0) turn[0] = blockIdx.x + 1;
}
}
"""


class Traced:
    """A kernel, its memory and its arguments."""

    def __init__(self, text: str, name: str, grid, block, *arguments):
        self.device = EngineDevice(text)
        (self.function,) = (f for n, f in self.device.module.functions.items() if name in n)
        self.grid, self.block = grid, block
        body = ptx_module.parse(text).kernels[self.function.name].body
        self.body = [i for i in body if isinstance(i, ptx_module.Instruction)]
        self.packed, self.starts = b"", []
        for a in arguments:
            if isinstance(a, np.ndarray):
                self.starts.append(self.device.upload(a))
                value = struct.pack("<Q", self.starts[-1])
            else:
                value = np.int32(a).tobytes()
            self.packed += b"\0" * (-len(self.packed) % len(value)) + value

    def lines(self, line: int, opcode: str, space: str = "") -> list[int]:
        """The PTX lines of a source line's accesses."""
        return [
            i.ptx_line
            for i in self.body
            if i.line == line and i.opcode == opcode and (not space or space in i.modifiers)
        ]

    def __call__(self, ptx_line: int, of_block=(0, 0, 0), **who) -> Trace:
        launch = self.grid, self.block, self.packed
        return self.function.trace(*launch, ptx_line=ptx_line, of_block=of_block, **who)


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def course(file: str, name: str, grid, block, *arguments, options=()) -> Traced:
    return Traced(ptx_of((CUDA_FOLDER / file).read_text(), *options), name, grid, block, *arguments)


def small(name: str, grid, block, *arguments) -> Traced:
    return Traced(ptx_of(SOURCE), name, grid, block, *arguments)


def check(found: Trace, space: str, size: int, offsets, mask: int = WHOLE) -> None:
    assert (found.space, found.size, hex(found.mask)) == (space, size, hex(mask))
    on = [lane for lane in range(32) if mask >> lane & 1]
    expected = np.broadcast_to(offsets, 32)
    assert [found.offsets[lane] for lane in on] == [int(expected[lane]) for lane in on]


@pytest.mark.parametrize("name, a_line", [("matmul_naiveP", 23), ("matmul_naive_uncoalesced", 40)])
def test_naive(name, a_line):
    n, block, warp = 64, (1, 1, 0), 5
    m = floats(n, n)
    run = course("01_naive.cu", name, (2, 2, 1), (32, 32, 1), m, m, m, n, n, n)
    row, col = block[1] * 32 + warp + 0 * LANE, block[0] * 32 + LANE
    if "uncoalesced" in name:
        row, col = block[0] * 32 + LANE, block[1] * 32 + warp + 0 * LANE
    a_lines, b_lines = run.lines(a_line, "ld"), run.lines(a_line + 1, "ld")
    unrolled = 4  # nvcc unrolls the loop by 4, and a loop for what is left over follows
    for lines, index in ((a_lines, lambda k: row * n + k), (b_lines, lambda k: k * n + col)):
        for copy in range(unrolled):
            for iteration in (0, 3, n // unrolled - 1):
                found = run(lines[copy], block, warp=warp, iteration=iteration)
                check(found, "global", 4, 4 * index(unrolled * iteration + copy))
        with pytest.raises(NotReached, match="not once"):
            run(lines[unrolled], block, warp=warp)
    (store,) = run.lines(a_line + 3, "st")
    check(run(store, block, warp=warp), "global", 4, 4 * (row * n + col))


def test_global_addresses_are_where_the_allocation_is():
    m = floats(32, 32)
    run = course("01_naive.cu", "matmul_naiveP", (1, 1, 1), (32, 32, 1), m, m, m, 32, 32, 32)
    found = run(run.lines(26, "st")[0], warp=3)
    start = run.starts[2]
    assert found.addresses == tuple(start + 4 * (32 * 3 + int(lane)) for lane in LANE)


@pytest.mark.parametrize("tile", [16, 32])
def test_tiled(tile):
    n, block, warp = 64, (1, 1, 0), 3
    m = floats(n, n)
    run = course("02_tiled.cu", "matmul_tiled", (n // tile,) * 2 + (1,), (tile, tile, 1),
                 m, m, m, n, n, n, options=[f"-DTILE={tile}"])  # fmt: skip
    thread = warp * 32 + LANE
    tx, ty = thread % tile, thread // tile
    row, col, step = block[1] * tile + ty, block[0] * tile + tx, 1
    who = {"of_block": block, "warp": warp, "iteration": step}
    bs = tile * tile * 4  # where Bs starts, after As
    check(run(run.lines(32, "ld")[0], **who), "global", 4, 4 * (row * n + step * tile + tx))
    check(run(run.lines(33, "ld")[0], **who), "global", 4, 4 * ((step * tile + ty) * n + col))
    check(run(run.lines(32, "st")[0], **who), "shared", 4, 4 * (ty * tile + tx))
    check(run(run.lines(33, "st")[0], **who), "shared", 4, bs + 4 * (ty * tile + tx))
    a_lines, b_lines = run.lines(38, "ld"), run.lines(39, "ld")
    assert len(a_lines) == len(b_lines) == tile
    for k in range(tile):
        check(run(a_lines[k], **who), "shared", 4, 4 * (ty * tile + k))
        check(run(b_lines[k], **who), "shared", 4, bs + 4 * (k * tile + tx))


def test_edges_leave_lanes_idle():
    n, block, step = 70, (2, 2, 0), 2
    m = floats(n, n)
    run = course("02_tiled.cu", "matmul_tiled", (3, 3, 1), (32, 32, 1), m, m, m, n, n, n)
    row, k0, left = 2 * 32 + 4, step * 32, n - 64
    who = {"of_block": block, "warp": 4, "iteration": step}
    mask = (1 << left) - 1
    check(run(run.lines(32, "ld")[0], **who), "global", 4, 4 * (row * n + k0 + LANE), mask)
    check(run(run.lines(32, "st")[0], **who), "shared", 4, 4 * (4 * 32 + LANE))
    with pytest.raises(
        NotReached, match=r"executes the instruction .* 3 times: iteration is 0\.\.2"
    ):
        run(run.lines(32, "ld")[0], block, warp=4, iteration=3)
    with pytest.raises(NotReached, match="not once"):  # its row is past the edge of A
        run(run.lines(32, "ld")[0], block, warp=left)


def test_a_block_that_is_no_whole_number_of_warps():
    m = floats(5, 20)
    run = course("01_naive.cu", "matmul_naiveP", (2, 1, 1), (10, 5, 1), m, m, m, 5, 20, 5)
    thread = 32 + LANE[:18]
    row, col = thread // 10, 10 + thread % 10
    expected = np.append(4 * (row * 20 + col), np.zeros(14))
    check(run(run.lines(26, "st")[0], (1, 0, 0), warp=1), "global", 4, expected, (1 << 18) - 1)


def test_register_tile_of_float4():
    n, block, warp, step = 256, (1, 1, 0), 3, 4
    m = floats(n, n)
    text = ptx_of(REGISTER_TILE.read_text())
    run = Traced(text, "matmul_register_tile", (2, 2, 1), (256, 1, 1), m, m, m, n, n, n)
    t = warp * 32 + LANE
    tx, ty = t % 16, t // 16
    a_row, a_col, b_row, b_col = t // 2, t % 2 * 4, t // 32, t % 32 * 4
    who = {"of_block": block, "warp": warp, "iteration": step}
    bs = 2 * 8 * 128 * 4
    buffer = step % 2
    check(run(run.lines(31, "ld")[0], **who), "global", 16,
          4 * ((128 + a_row) * n + a_col + 8 * (step + 1)))  # fmt: skip
    check(run(run.lines(32, "ld")[0], **who), "global", 16,
          4 * ((8 * (step + 1) + b_row) * n + 128 + b_col))  # fmt: skip
    for j in range(4):
        check(run(run.lines(24 + j, "st")[0], **who), "shared", 4,
              4 * ((buffer * 8 + a_col + j) * 128 + a_row))  # fmt: skip
    check(run(run.lines(28, "st")[0], **who), "shared", 16,
          bs + 4 * ((buffer * 8 + b_row) * 128 + b_col))  # fmt: skip
    for k in range(8):
        for line, index in ((37, ty * 8), (38, ty * 8 + 4)):
            check(run(run.lines(line, "ld")[k], **who), "shared", 16,
                  4 * ((buffer * 8 + k) * 128 + index))  # fmt: skip
        for line, index in ((39, tx * 4), (40, tx * 4 + 64)):
            check(run(run.lines(line, "ld")[k], **who), "shared", 16,
                  bs + 4 * ((buffer * 8 + k) * 128 + index))  # fmt: skip
    whole = run.lines(50, "st")
    parts = run.lines(49, "st")  # nvcc takes these float4 apart
    assert len(whole) == 8 and len(parts) == 32
    for i in range(8):
        index = (128 + ty * 8 + i) * n + 128 + tx * 4
        check(run(whole[i], block, warp=warp), "global", 16, 4 * (index + 64))
        for j in range(4):
            check(run(parts[4 * i + j], block, warp=warp), "global", 4, 4 * (index + j))


def test_gather():
    at = np.random.default_rng(0).integers(0, 1000, 64, np.int32)
    run = small("gather", (1, 1, 1), (64, 1, 1), at, floats(1000), floats(64))
    index, value = run.lines(4, "ld")
    check(run(index, warp=1), "global", 4, 4 * (32 + LANE))
    check(run(value, warp=1), "global", 4, 4 * at[32:])


def test_padded_column():
    run = small("padded", (1, 1, 1), (32, 32, 1), floats(1024))
    check(run(run.lines(8, "st")[0], warp=7), "shared", 4, 4 * (LANE * 33 + 7))


def test_local_memory():
    at = np.random.default_rng(1).integers(0, 64, 65, np.int32)
    run = small("local_array", (1, 1, 1), (64, 1, 1), at, np.zeros(64, np.int32))
    first, second = run.lines(15, "ld", "local")
    check(run(first, warp=1), "local", 4, 4 * at[32:64])
    check(run(second, warp=1), "local", 4, 4 * at[33:65])


def test_atomics():
    at = np.random.default_rng(2).integers(0, 999, 64, np.int32)
    run = small("histogram", (1, 1, 1), (64, 1, 1), at, np.zeros(64, np.int32))
    (shared,) = [*run.lines(21, "atom"), *run.lines(21, "red")]
    (all_,) = [*run.lines(23, "atom"), *run.lines(23, "red")]
    check(run(shared, warp=1), "shared", 4, 4 * (at[32:] % 64))
    check(run(all_, warp=1), "global", 4, 4 * (32 + LANE))


@pytest.mark.parametrize("which, space, first", [(0, "shared", 0), (1, "global", 5)])
def test_generic_addresses(which, space, first):
    run = small("generic", (1, 1, 1), (64, 1, 1), floats(64), floats(64), which)
    (line,) = run.lines(25, "ld")
    check(run(line, warp=1), space, 4, 4 * (first + (32 + LANE) // 2))


def test_iterations_are_those_of_the_warp_and_not_of_a_lane():
    run = small("halves", (1, 1, 1), (32, 1, 1), floats(2000), floats(32), 5)
    lines = [n for n in run.lines(35, "ld") if n]
    masks = {}
    for line in lines:
        for iteration in range(6):
            try:
                found = run(line, iteration=iteration)
            except NotReached:
                break
            k, rest = divmod(found.offsets[1] // 4, 32)
            if rest == 1 and found.addresses[1] < run.starts[1]:
                masks.setdefault(k, []).append(found.mask)
    assert set(masks) == set(range(6))
    for k, found in masks.items():
        lanes = 0
        for mask in found:
            assert not lanes & mask
            lanes |= mask
        assert lanes == (WHOLE if k < 5 else 0xAAAAAAAA)


def test_a_block_that_waits_for_others_is_a_deadlock_alone():
    run = small("chain", (3, 1, 1), (32, 1, 1), np.zeros(1, np.int32), np.zeros(96, np.int32))
    (line,) = run.lines(39, "st")
    with pytest.raises(simt.Fault, match="deadlock"):
        run(line, (2, 0, 0))
    check(run(line, (2, 0, 0), alone=False), "global", 4, 4 * (64 + LANE))


def test_only_the_chosen_block_runs():
    m = floats(64, 64)
    c = np.zeros((64, 64), np.float32)
    run = course("01_naive.cu", "matmul_naiveP", (2, 2, 1), (32, 32, 1), m, m, c, 64, 64, 64)
    run(run.lines(26, "st")[0], (1, 0, 0))
    left = np.frombuffer(ctypes.string_at(run.starts[2], c.nbytes), np.float32).reshape(64, 64)
    assert (left[:32, 32:] == 64).all()
    assert left.sum() == 64 * 32 * 32


def test_what_is_not_in_the_launch():
    m = floats(32, 32)
    run = course("01_naive.cu", "matmul_naiveP", (1, 1, 1), (32, 32, 1), m, m, m, 32, 32, 32)
    (line,) = run.lines(26, "st")
    with pytest.raises(ValueError, match=r"block \(1, 0, 0\) is not in the grid"):
        run(line, (1, 0, 0))
    with pytest.raises(ValueError, match="warp 32 is not in a block of 32 warps"):
        run(line, warp=32)
    with pytest.raises(NotReached, match=r"1 times: iteration is 0\.\.0"):
        run(line, iteration=1)
    with pytest.raises(NotReached, match="not once"):
        run(1)
