"""Lesson 6: words for each FMA as the formulas say, constants, and where the sums are kept."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.checker import check
from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS, Kernel, register_tile
from helpers.occupancy import occupancy
from helpers.profile import Profile, profile
from helpers.tile_pictures import tiling

N = 128
A, B, C = np.random.default_rng(6).standard_normal((3, N, N), dtype=np.float32)
FMAS = N**3 // 32  # of warps


def counted(kernel: Kernel) -> Profile:
    return profile(kernel, A, B, C, N, N, N)


@pytest.mark.parametrize("kernel, TM, TN", [
    (KERNELS["tiled"], 1, 1),
    (KERNELS["register_column"], 8, 1),
    (KERNELS["register_tile"], 8, 8),
    (register_tile(64, 64, 16, 4, 4), 4, 4),
    (register_tile(64, 32, 8, 8, 2), 8, 2),
], ids=lambda value: getattr(value, "name", value))  # fmt: skip
def test_wavefronts_for_each_fma_are_words_by_fmas(kernel: Kernel, TM: int, TN: int) -> None:
    read = counted(kernel).total("shared", "load")
    assert read.conflicts == 0
    assert read.wavefronts / FMAS == (TM + TN) / (TM * TN)
    thread = tiling(kernel).thread(5)
    assert (len(thread.rows), len(thread.columns)) == (TM, TN)


@pytest.mark.parametrize("constants", [(64, 64, 8, 4, 4), (32, 96, 5, 2, 6), (8, 8, 3, 1, 8)])
def test_other_constants_give_the_same_bits(constants: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    X, Y = (random.standard_normal(shape, np.float32) for shape in ((70, 37), (37, 99)))
    assert np.array_equal(register_tile(*constants)(X, Y), KERNELS["tiled"](X, Y))


def test_the_file_has_the_constants_of_the_table() -> None:
    same = register_tile()
    assert (same.block, same.tile) == (KERNELS["register_tile"].block, (128, 128))
    assert np.array_equal(tiling(same).owner, tiling("register_tile").owner)


@pytest.mark.parametrize("constants, error, said", [
    ((100, 64, 8, 8, 8), WrongValue, "BM=100 and BN=64 must be multiples of TM=8 and TN=8"),
    ((128, 128, 8, 2, 2), WrongValue, "a block of 64 x 64 threads is more than the 1024 allowed"),
    ((128, 128, 0, 8, 8), WrongValue, "BK=0"),
    ((128, 128, 8.0, 8, 8), WrongType, "BK=8.0 is a float"),
])  # fmt: skip
def test_constants_that_make_no_block_are_refused(constants, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        register_tile(*constants)


def rolled() -> tuple[str, str]:
    """The tile's kernel with one loop that is not unrolled, as in the lesson."""
    kernel = KERNELS["register_tile"]
    loop = "for (int j = 0; j < TN; ++j) sum[i][j] +="
    source = kernel.source.replace(f"#pragma unroll\n{' ' * 16}{loop}", f"#pragma unroll 1\n{loop}")
    assert source != kernel.source
    return source, kernel.entry


def test_a_loop_that_is_not_unrolled_puts_the_sums_into_local_memory() -> None:
    sizes = [np.int32(N)] * 3
    local = profile(rolled(), A, B, C, *sizes, grid=(1, 1), block=(16, 16)).total("local", "load")
    assert local.requests >= 2 * FMAS
    assert occupancy(rolled(), (9, 0), block=(16, 16)).resources.local >= 4 * 64
    assert occupancy("register_tile", (9, 0)).resources.local == 0
    assert not counted(KERNELS["register_tile"]).total("local").requests


def test_local_memory_can_be_a_goal() -> None:
    result = check(rolled(), block=(16, 16), tile=(128, 128), no_local_memory=True, seconds=20)
    assert result.diagnosis == "local memory" and result.verdict == "Not done yet"
    assert "bytes of each thread lie in local memory: with" in result.evidence[0]
    result = check(register_tile(64, 64, 8, 4, 4), no_local_memory=True)
    assert result.passed and "Nothing of it lies in local memory." in result.evidence


@pytest.mark.parametrize("constants, warps, said", [
    ((128, 128, 8, 8, 8), 1, "it has 64 blocks, and an H200 has 132 multiprocessors"),
    ((64, 64, 8, 8, 8), 4, "has 3.9 warps at a time on average, from 256 blocks of 2"),
    ((64, 64, 8, 8, 8), 3, None),
    ((32, 32, 8, 1, 1), 33, "has 32.0 warps"),  # of 7.8 blocks there is room for one
])  # fmt: skip
def test_filling_the_card_can_be_a_goal(constants, warps: int, said: str | None) -> None:
    result = check(register_tile(*constants), warps_at_1024=warps)
    assert result.diagnosis == ("card not filled" if said else None)
    assert (said or "3.9 warps") in " ".join(result.evidence)
