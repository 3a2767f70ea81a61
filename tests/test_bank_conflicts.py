"""Lesson 3's kernels conflict where they should and nowhere else, as plain arithmetic has it.

The arithmetic here is of indices as the kernels' comments state them, not of addresses that ran.
"""

from __future__ import annotations

import dataclasses
from math import gcd
from pathlib import Path

import numpy as np
import pytest

from helpers.kernels import KERNELS, Kernel, tiled
from helpers.profile import Profile, profile
from helpers.sandbox import ptx_of, run_in_engine

LANES, BANKS = 32, 32
N = np.int32(64)


def degree(words: np.ndarray) -> int:
    """The most different words in one bank."""
    distinct = np.unique(words)
    return int(np.bincount(distinct % BANKS).max())


def counted(kernel: Kernel) -> Profile:
    A, B, C = np.ones((3, N, N), np.float32)
    return profile(kernel, A, B, C, N, N, N)


#: Where element k of row c of Bs lies, for rows of that many words.
PLACES = {
    "tiled_conflict": lambda c, k, tile: c * tile + k,
    "padded": lambda c, k, tile: c * (tile + 1) + k,
    "swizzled": lambda c, k, tile: c * tile + (k ^ c),
}
TEXTS = {
    "tiled_conflict": ("Bs[tx][ty] =", "* Bs[tx][k];"),
    "padded": ("Bs[tx][ty] =", "* Bs[tx][k];"),
    "swizzled": ("Bs[tx][ty ^ tx] =", "* Bs[tx][k ^ tx];"),
}


@pytest.mark.parametrize("tile", [32, 16, 8])
@pytest.mark.parametrize("name", PLACES)
def test_wavefronts_of_the_transposed_tile_are_those_of_its_indices(name: str, tile: int) -> None:
    kernel = KERNELS[name] if tile == 32 else tiled(tile, name)
    found = counted(kernel)
    thread = np.arange(tile * tile).reshape(-1, LANES)  # a row for each warp
    tx, ty = thread % tile, thread // tile
    store = sum(degree(PLACES[name](x, y, tile)) for x, y in zip(tx, ty, strict=True))
    load = sum(degree(PLACES[name](x, np.full(LANES, k), tile)) for x in tx for k in range(tile))
    blocks_and_steps = (N // tile) ** 3
    for operation, text, expected in zip(
        ("store", "load"), TEXTS[name], (store, load), strict=True
    ):
        (line,) = (line for line in found.lines if line.text.startswith(text))
        (traffic,) = (t for t in line.traffic if t.space == "shared")
        assert traffic.operation == operation
        assert traffic.wavefronts == expected * blocks_and_steps
    others = [t for line in found.lines for t in line.traffic
              if t.space == "shared" and not line.text.startswith(TEXTS[name])]  # fmt: skip
    assert others
    assert not any(t.conflicts for t in others)


def test_the_figures_of_lesson_3() -> None:
    conflicts = {n: counted(KERNELS[n]).total("shared").conflicts for n in ("tiled", *PLACES)}
    assert conflicts == {"tiled": 0, "tiled_conflict": 261_888, "padded": 0, "swizzled": 0}
    assert counted(tiled(16)).total("shared").conflicts == 0


def test_global_loads_stay_coalesced() -> None:
    plain = counted(KERNELS["tiled"])
    for name in PLACES:
        found = counted(KERNELS[name])
        for operation in ("load", "store"):
            traffic = found.total("global", operation)
            expected = plain.total("global", operation)
            assert (traffic.requests, traffic.sectors) == (expected.requests, expected.sectors)
        assert found.flops == plain.flops


def test_what_ptxas_fuses_of_the_reads() -> None:
    """In tiled_conflict the reads of Bs too: 32 wavefronts then serve four k, not one."""
    for name, expected in {
        "tiled": (10_240, 12_288),
        "tiled_conflict": (4_096, 69_632),
        "padded": (10_240, 12_288),
        "swizzled": (10_240, 12_288),
    }.items():
        hardware = counted(KERNELS[name]).total("shared", "load").hardware
        assert (hardware.requests, hardware.wavefronts) == expected, name


@pytest.mark.parametrize(("row", "store", "read"), [(16, 1, 1), (17, 2, 1), (32, 2, 2)])
def test_padding_a_tile_16_wide_makes_conflicts(
    tmp_path: Path, row: int, store: int, read: int
) -> None:
    file = tmp_path / "padded.cu"
    text = KERNELS["tiled"].file.read_text()
    file.write_text(text.replace("As[TILE][TILE]", f"As[TILE][{row}]"))
    found = counted(dataclasses.replace(tiled(16), file=file))
    totals = {operation: found.total("shared", operation) for operation in ("store", "load")}
    half = totals["store"].requests // 2  # the other half is Bs, which stays as it was
    assert totals["store"].wavefronts == half * store + half
    half = totals["load"].requests // 2
    assert totals["load"].wavefronts == half * read + half


ELEMENTS = {"float": 1, "float2": 2, "float4": 4}
STRIDED = KERNELS["tiled"].file.parent / "03_strided_read.cu"


@pytest.mark.parametrize("stride", [0, 1, 7, 32, 33])
@pytest.mark.parametrize("element", ELEMENTS)
def test_strided_read_reads_what_it_says(element: str, stride: int) -> None:
    size = ELEMENTS[element]
    given = np.arange(32 * 33 * size, dtype=np.float32)
    out = np.zeros(32 * size, np.float32)
    arguments = {"in": given, "out": out, "stride": np.int32(stride)}
    source = STRIDED.read_text()
    outcome = run_in_engine(
        source, "strided_read", arguments, grid=(1,), block=(32,), options=(f"-DELEMENT={element}",)
    )
    assert outcome.fault is None
    assert (out.reshape(32, size) == given.reshape(-1, size)[np.arange(32) * stride]).all()


@pytest.mark.parametrize("stride", range(1, 34))
def test_a_stride_conflicts_as_its_gcd_with_32_says(stride: int) -> None:
    given, out = np.zeros(32 * 33, np.float32), np.zeros(32, np.float32)
    found = profile(
        (STRIDED, "strided_read"), given, out, np.int32(stride), grid=1, block=32
    ).total("shared", "load")
    assert (found.requests, found.wavefronts) == (1, gcd(stride, 32))
    assert found.wavefronts == degree(np.arange(32) * stride)


@pytest.mark.parametrize(
    ("element", "expected"),
    {
        "float": [(1, 1), (1, 1), (2, 1)],
        "float2": [(1, 1), (2, 2), (4, 2)],
        "float4": [(2, 2), (4, 4), (8, 4)],
    }.items(),
)
def test_wide_reads_are_served_in_halves_and_quarters(
    element: str, expected: list[tuple[int, int]]
) -> None:
    size = ELEMENTS[element]
    given, out = np.zeros(32 * 33 * size, np.float32), np.zeros(32 * size, np.float32)
    for stride, (wavefronts, ideal) in enumerate(expected):
        found = profile(
            (STRIDED, "strided_read", (f"-DELEMENT={element}",)),
            given, out, np.int32(stride), grid=1, block=32,
        ).total("shared", "load")  # fmt: skip
        assert (found.wavefronts, found.ideal_wavefronts) == (wavefronts, ideal)


def test_the_swizzle_costs_an_exclusive_or_for_every_k() -> None:
    from helpers.sass import disassemble

    functions = disassemble(ptx_of(KERNELS["swizzled"].source), "sm_90")
    exclusive_ors = {
        f.name: sum(i.opcode.startswith("LOP3") for i in f.instructions) for f in functions
    }
    assert exclusive_ors["matmul_tiled_swizzled"] >= 31  # k ^ tx is tx itself for k = 0
    assert exclusive_ors["matmul_tiled_padded"] < 31
