"""Schedules of blocks: beside the kernel's own, and what the picture says of them."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.errors import WrongType, WrongValue
from helpers.kernels import CUDA_FOLDER
from helpers.profile import profile
from helpers.wave_pictures import Piece, Schedule, one_tile_a_block, stream_k, waves

BM, BN, BK = 32, 64, 8
LOG = 64  # pieces of a block that there is room for


@functools.cache
def _logging_source() -> str:
    """The kernel's source, with pieces written down instead of computed."""
    source = (CUDA_FOLDER / "09_last_percent.cu").read_text(encoding="utf-8")
    begin = source.index("        float sum[TM][TN] = {};\n        if (first > 0) take(")
    end = source.index("    }\n}\n", begin)
    log = f"""
        if (threadIdx.x == 0) {{
            int *log = (int *)C + block * {4 * LOG};
            int n = ++log[0];
            log[4 * n] = tile; log[4 * n + 1] = first; log[4 * n + 2] = last;
        }}
"""
    return source[:begin] + log + source[end:]


def logged(tiles: int, depth: int, blocks: int) -> list[list[tuple[int, int, int]]]:
    """What each block of the kernel works on, as it does so itself."""
    constants = {"BM": BM, "BN": BN, "BK": BK, "TM": 4, "TN": 4, "LANES_M": 4, "STAGES": 2}
    options = tuple(f"-D{k}={v}" for k, v in (constants | {"BLOCKS": blocks}).items())
    threads = 32 * (BM // 16) * (BN // 32)
    log = np.zeros((blocks, LOG, 4), np.int32)
    one = np.zeros(4, np.float32)
    size = [np.int32(n) for n in (tiles * BM - 1, BN - 3, depth * BK - 5)]
    C = log.view(np.float32).reshape(blocks, -1)
    profile((_logging_source(), "matmul_best", options), one, one, C, *size,
            grid=(blocks, 1, 1), block=(threads, 1, 1), shared=64, write=True)  # fmt: skip
    log = C.view(np.int32).reshape(blocks, LOG, 4)
    return [[tuple(map(int, row[:3])) for row in mine[1 : mine[0, 0] + 1]] for mine in log]


@pytest.mark.engine
@pytest.mark.parametrize("tiles, depth, blocks", [
    (1, 3, 4), (4, 3, 4), (5, 1, 4), (5, 7, 4), (7, 5, 4), (8, 5, 4), (9, 5, 4), (23, 13, 4),
    (23, 4, 5), (40, 2, 7),
])  # fmt: skip
def test_stream_k_is_the_kernels_own(tiles, depth, blocks):
    expected = [[(p.tile, p.first, p.last) for p in mine]
                for mine in stream_k(tiles, depth, blocks).places]  # fmt: skip
    assert logged(tiles, depth, blocks) == expected


SIZES = np.random.RandomState(9).randint(1, [120, 40, 20], (150, 3)).tolist()


@pytest.mark.parametrize("make", [one_tile_a_block, stream_k])
def test_every_step_of_every_tile_is_done_once(make):
    for tiles, depth, places in SIZES:
        done = np.zeros((tiles, depth), int)
        for mine in make(tiles, depth, places).places:
            for piece in mine:
                done[piece.tile, piece.first : piece.last] += 1
        assert (done == 1).all(), (tiles, depth, places)


def test_stream_k_shares_all_steps_evenly_and_nobody_waits():
    for tiles, depth, places in SIZES:
        schedule = stream_k(tiles, depth, places)
        steps = [sum(piece.steps for piece in mine) for mine in schedule.places]
        if tiles >= places:
            assert max(steps) - min(steps) <= 1, (tiles, depth, places)
        for mine, starts in zip(schedule.places, schedule.starts, strict=True):
            assert list(starts) == [sum(p.steps for p in mine[:k]) for k in range(len(mine))]


def test_a_block_takes_sums_only_from_the_one_before_and_leaves_only_its_first_piece():
    for tiles, depth, places in SIZES:
        blocks = stream_k(tiles, depth, places).places
        for block, mine in enumerate(blocks):
            assert all(piece.last == depth for piece in mine[1:])
            for piece in mine:
                if piece.first:
                    before = blocks[block - 1][0]
                    assert (before.tile, before.last) == (piece.tile, piece.first)


def test_one_tile_a_block_goes_in_waves():
    schedule = one_tile_a_block(288, 375, 132)
    assert schedule.end == 3 * 375
    assert schedule.busy == pytest.approx(288 / (3 * 132))
    assert [len(mine) for mine in schedule.places] == [3] * 24 + [2] * 108


def test_a_piece_waits_for_the_sums_that_it_needs():
    first, second = Piece(0, 0, 3), Piece(0, 3, 4)
    late = Schedule(4, ((Piece(1, 0, 4), first), (second,)))
    assert late.starts == ((0, 4), (7,))
    assert (late.end, late.busy) == (8, 8 / 16)
    with pytest.raises(WrongValue, match="place 0 waits for ever for the first 3 steps of tile 0"):
        _ = Schedule(4, ((second, first),)).starts


def test_the_picture_has_both_in_numbers():
    found = waves((128, 256), 3000, 3000, 3000)
    assert str(found).splitlines() == [
        "3,000 × 3,000 × 3,000: 24 × 12 = 288 tiles of 128 × 256 for 132 multiprocessors",
        "one tile a block: 3 waves, 3.00 tiles' time, busy 72.7%",
        "stream-K        : 2.18 tiles' time, busy 99.9%",
    ]
    assert all(line.partition(":")[2].strip() in found.alt for line in str(found).splitlines()[1:])
    assert found.waves == 3
    assert found.png().startswith(b"\x89PNG")


def test_tiles_come_from_constants_or_a_kernel_as_well():
    constants = SimpleNamespace(BM=64, BN=128, BK=32, RESIDENT=2)
    found = waves(constants, 1500, 1500, 1500, 66)
    assert found.tiles == 24 * 12
    assert (len(found.separate.places), found.separate.depth) == (132, 47)
    assert "66 multiprocessors, 2 blocks each" in found.title
    assert waves("tiled", 64, 64, 64, 2).tiles == 4


@pytest.mark.parametrize("arguments, error, said", [
    (((128, 256), 0, 1, 1), WrongValue, "M=0"),
    (((128, 256), 1, 1, 1, 0), WrongValue, "multiprocessors=0"),
    (((128, 256), 1, 1.5, 1), WrongType, "N=1.5"),
    (((128, 256, 8), 1, 1, 1), WrongType, "is no tile"),
    (("no kernel", 1, 1, 1), WrongValue, "there is no kernel"),
    (((0, 256), 1, 1, 1), WrongValue, "BM=0"),
    (((128, 256), 1, "1", 1), WrongType, "N='1' is a str"),
    (((128, 256), 2**40, 64, 64), WrongValue, "tiles are too many"),
    (((128, 256), 1, 1, 1, 2**30), WrongValue, "places are too many"),
    ((SimpleNamespace(BM=8, BN="8", BK=8, RESIDENT=1), 1, 1, 1), WrongType, "BN='8'"),
])  # fmt: skip
def test_what_is_no_tile_or_size_is_named(arguments, error, said):
    with pytest.raises(error, match=said):
        waves(*arguments)


def test_numpys_integers_are_numbers_too():
    n = np.int32(300)
    found = waves((np.int64(128), np.int64(128)), n, n, n)
    assert str(found) == str(waves((128, 128), 300, 300, 300))
    assert stream_k(np.int64(7), 5, 3) == stream_k(7, 5, 3)
