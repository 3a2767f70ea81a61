"""The right kernels of the corpus are right: their results are those NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.replica import replica
from tests.sanitize.cases import RIGHT, Array, Case

CASES = {case.kernel: case for case in RIGHT}


def turned(x: np.ndarray, width: int) -> np.ndarray:
    """Each `width` elements in reversed order."""
    return x.reshape(-1, width)[:, ::-1].reshape(-1)


def smoothed(x: np.ndarray, steps: int) -> np.ndarray:
    """What jacobi leaves in its first array, the last but one for an odd number of steps."""
    for _ in range(steps - steps % 2):
        x = np.concatenate([x[:1], (x[:-2] + x[2:]) / 2, x[-1:]])
    return x


def among_thirds(x: np.ndarray) -> np.ndarray:
    """What coalesced does: in each warp the threads whose number is a multiple of 3 turn round."""
    out = np.zeros(64)
    for warp in (0, 32):
        active = [t for t in range(warp, warp + 32) if t % 3 == 0]
        out[active] = x[active][::-1]
    return out


def product(A: np.ndarray, B: np.ndarray, M: int, N: int, K: int) -> np.ndarray:
    return (A.reshape(M, K).astype(float) @ B.reshape(K, N).astype(float)).reshape(-1)


def first_blocks(x: np.ndarray, n: int) -> np.ndarray:
    return np.concatenate([turned(x[:n], 64), np.zeros(x.size - n)])


def rounds(x: np.ndarray) -> np.ndarray:
    """What named_barriers_of_halves does in each half."""
    halves = x.reshape(2, 64)
    for _ in range(3):
        halves = np.roll(halves, -33, axis=1) + 1
    return halves.reshape(-1)


def horner(x: np.ndarray, steps: int, factor: float) -> np.ndarray:
    total = np.zeros(x.size // steps)
    for row in x.reshape(steps, -1):
        total = factor * total + row[::-1]
    return total


def halves(words: np.ndarray, rows: int) -> np.ndarray:
    """Rows of 16-bit floats, two in each word."""
    return words.view(np.float16).reshape(rows, 16).astype(float)


#: Results by kernel: the number of the argument that holds them, and a function of the arguments.
RESULTS = {
    "reduction_syncwarp": (1, lambda x, *_: [x.sum()]),
    "matmul": (2, lambda A, B, _, *sizes: product(A, B, *map(int, sizes))),
    "tree_sum": (1, lambda x, *_: x.reshape(2, 256).sum(axis=1)),
    "scan": (1, lambda x, *_: np.cumsum(x)),
    "scan_of_two_buffers": (1, lambda x, *_: np.cumsum(x)),
    "transpose": (1, lambda x, _, n: x.reshape(n, n).T.reshape(-1)),
    "bytes_side_by_side": (1, lambda x, *_: x.astype(float) + 1),
    "halfwords_across_warps": (1, lambda x, *_: x.astype(float)),
    "float4_copy": (1, lambda x, *_: turned(x, 256)),
    "barrier_in_an_if_of_the_whole_block": (
        1,
        lambda x, *_: np.concatenate([x[::-1], x, x[::-1], x]),
    ),
    "whole_blocks_return": (1, lambda x, _, n: first_blocks(x, n)),
    "return_after_the_last_barrier": (
        1,
        lambda x, _, n: np.where(np.arange(64) < n, x[::-1], 0),
    ),
    "votes_of_a_block": (1, lambda x, *_: x[::-1] + (x > 10).sum()),
    "broadcast": (1, lambda x, *_: np.repeat(x, 96)),
    "scale_in_place": (0, lambda x, _: 2 * x),
    "equal_values": (1, lambda x, *_: np.ones(128)),
    # Element i of x lies at place 5 i mod 8, and 5 * 5 is 1 mod 8.
    "local_array": (1, lambda x, _, n: x[n * (np.arange(32) + n) % 8]),
    "shuffle_sum": (1, lambda x, *_: [x.sum()]),
    "shuffle_scan": (1, lambda x, *_: np.cumsum(x)),
    "syncwarp_sum": (1, lambda x, *_: [x.sum()]),
    "halves_that_meet": (1, lambda x, *_: turned(x, 16)),
    "a_part_for_each_warp": (1, lambda x, *_: turned(x, 32)),
    "named_barriers_of_halves": (1, lambda x, *_: rounds(x)),
    "producer_and_consumer": (1, lambda x, _, n: horner(x, n, 3.0)),
    "cp_async_with_wait_and_barrier": (1, lambda x, *_: x[::-1]),
    "cp_async_pipeline": (1, lambda x, _, steps: horner(x, steps, 2.0)),
    "tensor_core": (2, lambda a, b, _: (halves(a, 16) @ halves(b, 8).T).reshape(-1)),
    "histogram": (1, lambda x, *_: np.bincount(x % 8)),
    "last_block_adds_up": (2, lambda x, *_: [x.sum()]),
    "compact": (1, lambda x, *_: x[x % 3 == 0]),
    "compact_by_warps": (1, lambda x, *_: x[x % 3 == 0]),
    "largest_by_cas": (1, lambda x, *_: [x.max().view(np.int32)]),
    "flag_between_blocks": (3, lambda x, *_: x[::-1]),
    "dynamic_shared_in_two": (1, lambda x, *_: np.where(x[::-1] > 10, x[::-1], 0)),
    "shared_reused_as_pairs": (1, lambda x, *_: turned(x[::-1], 2)),
    "spin_lock": (1, lambda x, *_: [x.sum()]),
    "barrier_of_the_grid": (2, lambda x, *_: 2 * x[::-1]),
    "chained_sums": (3, lambda x, *_: np.repeat(np.cumsum(x) - x, 32)),
    "work_queue": (1, lambda x, *_: 2 * x),
    "block_reduce": (1, lambda x, *_: x.reshape(2, 128).sum(axis=1)),
    "blelloch": (1, lambda x, *_: np.cumsum(x) - x),
    "two_level_scan": (1, lambda x, *_: np.cumsum(x)),
    "two_slots": (1, lambda x, _, n: horner(x, n, 3.0)),
    "groups": (1, lambda x, *_: [x.sum()]),
    "coalesced": (1, lambda x, *_: among_thirds(x)),
    "three_stages": (1, lambda x, _, n: horner(x.reshape(-1, 4).sum(axis=1), n, 2.0)),
    "volatile_flag": (3, lambda x, *_: x[::-1]),
    "volatile_warp": (1, lambda x, *_: [x.sum()]),
    "carved": (1, lambda x, *_: 4 * x[::-1]),
    "forty_eight": (1, lambda x, *_: x[::-1]),
    "lone_lane": (1, lambda x, *_: np.roll(x[::-1] + 1, -1)),
    "leave_and_name": (1, lambda x, _, n: np.where(np.arange(32) < n, x[n - 1 - np.arange(32)], 0)),
    "shared_histogram": (1, lambda x, *_: np.bincount(x % 8)),
    "locked": (1, lambda x, *_: [x.sum(), x.size]),
    "jacobi": (0, lambda x, _, n: smoothed(x, int(n))),
    "turns": (1, lambda x, *_: np.full(128, horner(x, 4, 2.0)[0])),
    "transpose_in_place": (0, lambda x: x.reshape(16, 16).T.reshape(-1)),
    "until_sorted": (0, lambda x: np.sort(np.where(x < 32, x + 32, 63 - x))),
}


def ran(case: Case) -> list[np.ndarray]:
    """The arguments after a launch in the engine."""
    values = case.values()
    launch = replica((case.path, case.kernel), *values, grid=case.grid, block=case.block,
                     shared=case.shared)  # fmt: skip
    run = launch.prepare()
    run.function.launch(*run.launch)
    launch.write_back(run)
    return values


@pytest.mark.parametrize("name", CASES)
def test_result_is_that_of_numpy(name: str) -> None:
    case = CASES[name]
    place, expected = RESULTS["matmul" if name.startswith("matmul_") else name]
    found, expected = ran(case)[place], expected(*case.values())
    if name.startswith("compact"):  # in whatever order
        found = np.sort(found[: len(expected)])
    assert isinstance(case.arguments[place], Array)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
