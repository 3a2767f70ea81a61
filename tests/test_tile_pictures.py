"""Who computes what of C, beside the expressions of the kernels' sources, and what is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.best import Constants
from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS, Kernel, last_percent, tiled
from helpers.simt import Fault
from helpers.tile_pictures import Tiling, tiles, tiling

SIGNATURE = "const float *A, const float *B, float *C, int M, int N, int K"


def kernel(tmp_path: Path, body: str, block: tuple, tile: tuple) -> Kernel:
    """A student's kernel. In its body x and y are its threadIdx."""
    file = tmp_path / "mine.cu"
    head = "int x = threadIdx.x, y = threadIdx.y; if (x < 0) C[0] = A[0] * B[0];"
    file.write_text(f"__global__ void mine({SIGNATURE}) {{ {head} {body} }}")
    return Kernel("mine", file, "mine", 6, block, tile)


def expected(name: str) -> np.ndarray:
    """The owner of each element, from the index expressions of cuda/."""
    row, col = np.mgrid[: KERNELS[name].tile[0], : KERNELS[name].tile[1]]
    return {
        "naive": lambda: row * 32 + col,  # row = threadIdx.y, col = threadIdx.x
        "naive_uncoalesced": lambda: col * 32 + row,
        "tiled": lambda: row * 32 + col,
        "register_column": lambda: row // 8 * 64 + col,  # row = ty * TM + i, col = tx
        "register_tile": lambda: row % 16 * 16 + col % 16,  # ty + i * 16, tx + j * 16
    }[name]()


@pytest.mark.parametrize(
    "name", ["naive", "naive_uncoalesced", "tiled", "register_column", "register_tile"]
)
def test_owners_are_those_of_the_sources_expressions(name: str) -> None:
    assert np.array_equal(tiling(name).owner, expected(name))


def test_words_for_a_block_a_warp_and_a_thread_are_rows_and_columns() -> None:
    found = tiling("register_tile")
    assert (found.block().words, found.block().elements) == (128 + 128, 128 * 128)
    assert (found.warp(3).words, found.warp(3).elements) == (16 + 128, 16 * 128)
    assert (found.thread(100).words, found.thread(100).elements) == (8 + 8, 64)
    assert found.thread(100).fmas_per_word == 64 / 16
    assert found.thread(17).rows == (1, 17, 33, 49, 65, 81, 97, 113)
    assert str(found).splitlines() == [
        "register_tile, for each k:",
        "block:  128 × 128 elements: 128 + 128 words for 16,384 FMAs, 64 FMAs a word",
        "warp:   16 × 128 elements: 16 + 128 words for 2,048 FMAs, 14.2 FMAs a word",
        "thread: 8 × 8 elements: 8 + 8 words for 64 FMAs, 4 FMAs a word",
    ]


def test_vector_stores_belong_to_their_thread() -> None:
    found = tiling("vectorized")
    counts = np.bincount(found.owner.ravel())
    assert counts.tolist() == [64] * 256
    assert all(found.thread(t).words == 16 for t in range(256))


def test_constants_given_to_nvcc_change_what_is_found() -> None:
    assert tiling(tiled(16)).thread(17) == tiling("tiled_16").thread(17)
    assert tiling(tiled(16)).owner.shape == (16, 16)


@pytest.mark.parametrize("store", [
    "float4 v = {1, 2, 3, 4}; *(float4 *)&C[y * N + 4 * x] = v;",
    "*(double *)&C[y * N + 4 * x] = 1; *(double *)&C[y * N + 4 * x + 2] = 2;",
    "for (int i = 0; i < 4; ++i) C[y * N + 4 * x + i] = i;",
    "for (int i = 0; i < 4; ++i) if (K > i) C[y * N + 4 * x + i] = i; else C[0] = 0;",
])  # fmt: skip
def test_a_students_kernel_is_seen_however_it_stores(tmp_path: Path, store: str) -> None:
    found = tiling(kernel(tmp_path, store, (4, 8, 1), (8, 16)))
    row, col = np.mgrid[:8, :16]
    assert np.array_equal(found.owner, row * 4 + col // 4)


def test_blocks_of_any_shape_are_counted_with_x_first(tmp_path: Path) -> None:
    body = "C[(y + 3 * threadIdx.z) * N + x] = 1;"
    found = tiling(kernel(tmp_path, body, (5, 3, 2), (6, 5)))
    assert np.array_equal(found.owner, np.arange(30).reshape(6, 5))
    assert found.warps == 1 and found.place(29) == (4, 2, 1)
    assert "thread (4, 2, 1)" in tiles(kernel(tmp_path, body, (5, 3, 2), (6, 5)), lane=29).alt


def test_values_that_go_through_shared_memory_are_the_writers(tmp_path: Path) -> None:
    body = "__shared__ float s[32]; s[x] = x; __syncthreads(); C[x] = s[31 - x];"
    found = tiling(kernel(tmp_path, body, (32, 1, 1), (1, 32)))
    assert found.owner.tolist() == [list(range(32))]


def test_the_file_is_read_anew_when_it_has_changed(tmp_path: Path) -> None:
    before = tiling(kernel(tmp_path, "C[y * N + x] = 1;", (4, 4, 1), (4, 4)))
    after = tiling(kernel(tmp_path, "C[x * N + y] = 12345;", (4, 4, 1), (4, 4)))
    assert np.array_equal(before.owner, after.owner.T)


@pytest.mark.parametrize("body, said", [
    ("if (y) C[y * N + x] = 1;", "stores 12 of the 16 elements of its tile of 4 × 4"),
    ("atomicAdd(&C[y * N + x], 1.0f);", "stores 0 of the 16 elements"),
])  # fmt: skip
def test_a_tile_that_is_not_stored_is_told(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(WrongValue, match=said):
        tiling(kernel(tmp_path, body, (4, 4, 1), (4, 4)))


def test_a_bad_access_is_told_as_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="out-of-bounds write"):
        tiling(kernel(tmp_path, "C[y * N + x + 100000] = 1;", (4, 4, 1), (4, 4)))


def test_a_kernel_whose_blocks_share_the_tiles_is_shown_with_one_block() -> None:
    constants = Constants(BM=32, BN=64, BK=8, TM=4, TN=8, STAGES=3)
    with pytest.raises(WrongValue, match=r"2 blocks share .*last_percent\(constants, blocks=1"):
        tiling(last_percent(constants, 2))
    assert tiling(last_percent(constants, 1)).thread(0).elements == 4 * 8


def test_what_is_no_product_is_refused() -> None:
    with pytest.raises(WrongType, match="is no kernel of a product"):
        tiles(("02_tiled.cu", "matmul_tiled"))
    with pytest.raises(WrongValue, match="there is no kernel 'cubist'"):
        tiles("cubist")


@pytest.mark.parametrize("where, said", [
    ({"warp": 32}, "blocks of 32 warps, 0..31"), ({"lane": 32}, "with lanes 0..31"),
])  # fmt: skip
def test_a_warp_or_lane_that_is_not_there_is_refused(where: dict, said: str) -> None:
    with pytest.raises(WrongValue, match=said):
        tiles("tiled", **where)
    with pytest.raises(WrongType, match="write integers from 0"):
        tiles("tiled", warp=0.5)


def test_a_thread_without_elements_is_told(tmp_path: Path) -> None:
    mine = kernel(tmp_path, "if (y == 0) for (int i = 0; i < 2; ++i) C[i * N + x] = 1;",
                  (32, 2, 1), (2, 32))  # fmt: skip
    assert tiles(mine)
    with pytest.raises(WrongValue, match="warp=1, lane=0: this thread of mine writes no element"):
        tiles(mine, warp=1)


def test_the_picture_says_in_words_what_is_drawn() -> None:
    picture = tiles("register_column", warp=1, lane=5)
    assert picture.alt == (
        "register_column: what is computed of C, and the words of A and B needed for one k. From "
        "left to right: block: 64 × 64 elements, 16 warps; 64 + 64 words for 4,096 FMAs; 32 FMAs a "
        "word. warp 1, orange: 8 × 32 elements; 8 + 32 words for 256 FMAs; 6.4 FMAs a word. thread "
        "(37, 0), red: 8 × 1 elements; 8 + 1 words for 8 FMAs; 0.889 FMAs a word."
    )
    written = " ".join(text.get_text() for axes in picture.figure.axes for text in axes.texts)
    assert "8 + 32 words for 256 FMAs" in written
    assert picture.png().startswith(b"\x89PNG") and len(picture.png()) < 60_000


def test_lanes_that_repeat_are_drawn_once_and_columns_of_a_lane_whole() -> None:
    assert "shown: 2 × 16, which repeat 8 × 8 times" in tiles("register_tile").alt
    assert "shown" not in tiles("tiled").alt


def test_elements_that_are_no_rectangle_are_counted_one_by_one() -> None:
    owner = np.array([[0, 0, 1], [1, 1, 1]], np.int32)
    part = Tiling("odd", (2, 1, 1), owner).thread(1)
    assert (part.rows, part.columns, part.elements) == ((0, 1), (0, 1, 2), 4)
