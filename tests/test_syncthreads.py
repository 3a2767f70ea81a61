"""Lesson 4's kernels are broken in the way their names say and in no other, or right."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helpers.check import check_product
from helpers.kernels import CUDA_FOLDER, KERNELS, tiled
from helpers.profile import profile
from helpers.sandbox import run_in_engine

FILE = "04_syncthreads.cu"
SOURCE = (CUDA_FOLDER / FILE).read_text(encoding="utf-8")
BARRIER = "__syncthreads();"


def body(source: str, function: str) -> list[str]:
    """The statements of a function, one a line, without comments and empty lines."""
    text = source[source.index(f"void {function}(") :]
    text = text[text.index("\n{\n") : text.index("\n}\n")]
    lines = (line.partition("//")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def test_kernels_that_are_broken_on_purpose_are_not_offered() -> None:
    assert not [kernel.name for kernel in KERNELS.values() if kernel.file.name == FILE]


def test_the_header_names_all_kernels_and_says_which_are_broken() -> None:
    head, *_ = SOURCE.partition("#ifndef")
    broken, _, right = head.partition("// Right:")
    names = re.findall(r"__global__ void (\w+)", SOURCE)
    for name in names:
        text = SOURCE[SOURCE.index(f"void {name}(") :]
        text = text[: text.index("\n}\n")]
        assert (name in broken) == ("BROKEN" in text) != (name in right), name


@pytest.mark.parametrize("name, missing", [("no_first_barrier", 0), ("no_second_barrier", 1)])
def test_one_barrier_is_missing_and_nothing_else(name: str, missing: int) -> None:
    whole = body(KERNELS["tiled"].source, "matmul_tiled")
    places = [k for k, line in enumerate(whole) if line == BARRIER]
    assert len(places) == 2
    del whole[places[missing]]
    assert body(SOURCE, f"matmul_tiled_{name}") == whole


@pytest.mark.parametrize("name", ["early_return", "barrier_in_if"])
def test_barriers_that_not_all_come_to_are_the_two_of_the_tiled_kernel(name: str) -> None:
    assert body(SOURCE, f"matmul_tiled_{name}").count(BARRIER) == 2


def launched(name: str, M: int, N: int, K: int, tile: int = 16):
    random = np.random.default_rng(4)
    A, B = (random.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N)))
    C = np.full((M, N), np.nan, np.float32)
    arguments = {"A": A, "B": B, "C": C}
    arguments |= {size: np.int32(value) for size, value in (("M", M), ("N", N), ("K", K))}
    outcome = run_in_engine(
        SOURCE, f"matmul_tiled_{name}", arguments, grid=(-(-N // tile), -(-M // tile)),
        block=(tile, tile), options=(f"-DTILE={tile}",),
    )  # fmt: skip
    assert outcome.fault is None
    return A, B, C


@pytest.mark.parametrize("tile", [16, 32, 5])
@pytest.mark.parametrize("M, N, K", [(33, 33, 33), (1, 70, 100), (64, 48, 16), (20, 3, 1)])
def test_two_buffers_give_the_bits_of_the_tiled_kernel(M: int, N: int, K: int, tile: int) -> None:
    A, B, C = launched("two_buffers", M, N, K, tile)
    assert check_product(C, A, B)
    assert np.array_equal(C, KERNELS["tiled"](A, B))


@pytest.mark.parametrize("n, steps", [(64, 4), (70, 5)])
def test_barriers_a_warp_and_step_are_two_and_one(n: int, steps: int) -> None:
    A, B, C = np.ones((3, n, n), np.float32)
    size, grid = np.int32(n), (steps, steps)
    two = profile(tiled(16), A, B, C, size, size, size)
    one = profile((FILE, "matmul_tiled_two_buffers"), A, B, C, size, size, size,
                  grid=grid, block=(16, 16))  # fmt: skip
    visits = steps**2 * 8 * steps  # blocks, warps and steps
    assert (two.barriers, one.barriers) == (2 * visits, visits)


@pytest.mark.parametrize("name", ["no_first_barrier", "no_second_barrier"])
def test_a_missing_barrier_shows_with_many_warps_and_not_with_one(name: str) -> None:
    for tile, right in ((16, False), (4, True)):
        A, B, C = launched(name, 33, 33, 33, tile)
        assert bool(check_product(C, A, B)) is right


@pytest.mark.parametrize("name", ["reduction_warp_synchronous", "reduction_syncwarp"])
def test_the_lanes_of_the_engine_step_together_so_both_reductions_are_right(name: str) -> None:
    x, total = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    run_in_engine(SOURCE, name, {"x": x, "sum": total}, grid=(1,), block=(64,))
    assert total[0] == x.sum()
