"""The model of L2 and memory bytes: its rules by brute force, and an H200's counters beside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from helpers.cards import CARDS
from helpers.kernels import BY_TILE, KERNELS, Kernel, tiled
from helpers.occupancy import occupancy
from helpers.plausible import compulsory_bytes
from helpers.reuse import traffic

H200 = CARDS["H200"]
LESSONS = {k.name: k for k in [*BY_TILE.values(), tiled(16)]}
RECORD = json.loads((Path(__file__).parent / "counters/h200.json").read_text())


def brute_force(kernel: Kernel, M: int, N: int, K: int, together: int) -> tuple[int, int]:
    """(L2 bytes, memory bytes) of whole tiles, block by block: what the resident ones share counts
    once, and nothing is kept for those after them."""
    x, y, _ = kernel.grid(M, N)
    rows, columns = kernel.tile
    blocks = [(i, j) for j in range(y) for i in range(x)]
    if kernel.rows_on_x:
        blocks = [(j, i) for i, j in blocks]  # (tile's column, tile's row)
    l2 = memory = 4 * M * N
    for k in range(0, len(blocks), together):
        now = blocks[k : k + together]
        l2 += len(now) * 4 * K * (rows + columns)
        memory += 4 * K * (columns * len({c for c, _ in now}) + rows * len({r for _, r in now}))
    return l2, memory


@pytest.mark.parametrize("name", ["tiled", "naive_uncoalesced", "tiled_16"])
@pytest.mark.parametrize("multiprocessors", [8, 16, 32])
def test_it_is_what_counting_block_by_block_gives(name: str, multiprocessors: int) -> None:
    kernel = LESSONS[name]
    small = dataclasses.replace(H200, l2_bytes=1000, multiprocessors=multiprocessors)
    found = traffic(kernel, 512, 512, 64, small, resident=2)
    l2, memory = brute_force(kernel, 512, 512, 64, 2 * multiprocessors)
    assert not found.fits
    assert found.l2_bytes == l2
    assert found.memory_bytes == memory


def test_what_fits_crosses_once() -> None:
    found = traffic(KERNELS["tiled"], 1024, 1024, 1024, H200, 2)
    assert found.fits
    assert found.memory_bytes == compulsory_bytes(1024, 1024, 1024) == 3 * 4 * 1024**2
    assert found.l2_bytes == (2 * 32 + 1) * 4 * 1024**2
    assert found.from_memory == pytest.approx(3 / 65)


def test_memory_never_gives_more_than_the_l2_cache_asks_for_nor_less_than_must_be() -> None:
    tiny = dataclasses.replace(H200, l2_bytes=1, multiprocessors=1)
    found = traffic(KERNELS["tiled"], 64, 64, 64, tiny, 1)
    assert found.memory_bytes == found.l2_bytes
    assert found.from_memory == 1
    wide = dataclasses.replace(H200, l2_bytes=1, multiprocessors=10_000)
    found = traffic(KERNELS["tiled"], 4096, 4096, 4096, wide, 2)
    assert found.memory_bytes == compulsory_bytes(4096, 4096, 4096)


@pytest.mark.parametrize("row", RECORD["memory"], ids=lambda row: row["launch"])
def test_beside_what_an_h200_counted(row: dict) -> None:
    """As far off as the docstring of helpers.reuse says, and no farther."""
    name, *size = row["launch"].split()
    M, N, K = map(int, size)
    kernel = LESSONS[name]
    found = traffic(kernel, M, N, K, H200, occupancy(kernel, H200.capability).blocks)
    l2 = 32 * (row["L2 sectors read"] + row["L2 sectors written"])
    memory = row["memory bytes read"] + row.get("memory bytes written", 0)
    assert 0.85 < found.l2_bytes / l2 < 1.5
    if M == 4096:
        assert 0.97 < found.l2_bytes / l2 < 1.16
        assert 0.25 < found.memory_bytes / memory < 1.01
    else:
        assert 1.1 < found.memory_bytes / memory < 2.6
