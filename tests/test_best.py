"""Lesson 9's kernel: right with all constants on record, the same bits whatever the split, and the
choice of constants."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from oracle import fma_product

from helpers import best
from helpers.best import SAFE, Constants, chosen, recorded
from helpers.check import check_product
from helpers.errors import WrongType, WrongValue
from helpers.kernels import H200_MULTIPROCESSORS, KERNELS, last_percent
from helpers.memory import allocate, upload
from helpers.sanitize import sanitize

BIG = Constants(COPY_AT=8)
SMALL = Constants(BM=64, BN=128, BK=32, STAGES=3, SLICES=4)
THIN = Constants(BM=16, BN=128, BK=64, TM=8, LANES_M=2, STAGES=3, SLICES=8)
NARROW = Constants(BM=256, BN=32, BK=16, LANES_M=8, STAGES=3, SLICES=2)
ODD = Constants(BM=128, BN=48, BK=32, TM=8, TN=12, LANES_M=8, STAGES=3, SLICES=2)
EACH = pytest.mark.parametrize("constants", [BIG, SAFE, SMALL, THIN, NARROW, ODD], ids=str)

#: (M, N, K): a block, several, ragged ones, N that is no multiple of 4, K below BK and above; a
#: piece that is only the short tile of K, and a tile that moves back from the last column.
SIZES = ((1, 1, 1), (35, 79, 19), (128, 256, 16), (300, 700, 129), (200, 260, 36), (129, 4, 33),
         (256, 512, 20), (130, 516, 37), (70, 640, 9))  # fmt: skip


def matrices(M: int, N: int, K: int):
    random = np.random.default_rng((M, N, K))
    return (random.standard_normal((M, K), dtype=np.float32),
            random.standard_normal((K, N), dtype=np.float32))  # fmt: skip


@pytest.mark.usefixtures("autoinit")
@EACH
def test_right_and_the_same_bits_for_any_number_of_blocks(constants) -> None:
    few, many = last_percent(constants, 3), last_percent(constants, H200_MULTIPROCESSORS)
    for size in SIZES:
        A, B = matrices(*size)
        C = few(A, B)
        assert check_product(C, A, B), size
        np.testing.assert_array_equal(C, many(A, B))
        np.testing.assert_array_equal(C, few(A, B))  # what one launch leaves spoils no other
        if constants.SLICES == 1:
            np.testing.assert_array_equal(C, fma_product(A, B))


@pytest.mark.usefixtures("autoinit")
def test_with_slices_each_has_the_sum_of_its_own_k() -> None:
    """K is filled up in front, and slice s has steps s * BK / SLICES and on of each BK."""
    A, B = matrices(70, 140, 100)
    missing = -100 % SMALL.BK
    steps = SMALL.BK // SMALL.SLICES
    own = [
        [k for k in range(100) if (k + missing) % SMALL.BK // steps == s]
        for s in range(SMALL.SLICES)
    ]
    parts = [fma_product(np.ascontiguousarray(A[:, k]), np.ascontiguousarray(B[k])) for k in own]
    expected = parts[0]
    for part in parts[1:]:
        expected = expected + part
    np.testing.assert_array_equal(last_percent(SMALL, 3)(A, B), expected)


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize("constants", [
    Constants(BM=64, BN=128, BK=8, STAGES=2, RESIDENT=2),
    Constants(BM=48, BN=96, BK=8, TM=12, TN=4, STAGES=3),  # 96 threads
], ids=str)  # fmt: skip
def test_two_stages_and_threads_that_are_no_power_of_two(constants) -> None:
    for size in ((130, 516, 37), (64, 128, 9), (35, 79, 19)):
        A, B = matrices(*size)
        np.testing.assert_array_equal(last_percent(constants, 3)(A, B), fma_product(A, B))


@pytest.mark.usefixtures("autoinit")
def test_b_by_float4_and_c_by_words() -> None:
    M, N, K = 70, 260, 40
    A, B = matrices(M, N, K)
    kernel = last_percent(SMALL, 3)
    with upload(A) as dA, upload(B) as dB, allocate(M * N + 8, fill=7) as dC:
        kernel.launch(dA, dB, int(dC) + 4, M, N, K)
        C = dC.download()
    np.testing.assert_array_equal(C[1 : 1 + M * N].reshape(M, N), kernel(A, B))
    assert C[0] == 7 and (C[1 + M * N :] == 7).all()


@pytest.mark.usefixtures("autoinit")
@EACH
def test_matrices_at_any_address(constants) -> None:
    M, N, K = 70, 136, 40
    A, B = matrices(M, N, K)
    kernel = last_percent(constants, 3)
    expected = kernel(A, B)
    for shift in (0, 1, 2, 3):
        with (
            upload(np.r_[np.zeros(shift, np.float32), A.ravel()]) as dA,
            upload(np.r_[np.zeros(shift, np.float32), B.ravel()]) as dB,
            allocate(M * N + 8, fill=7) as dC,
        ):
            kernel.launch(*(int(d) + 4 * shift for d in (dA, dB, dC)), M, N, K)
            C = dC.download()
        np.testing.assert_array_equal(C[shift : shift + M * N].reshape(M, N), expected)
        assert (C[:shift] == 7).all() and (C[shift + M * N :] == 7).all()


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize("constants", [BIG, SMALL], ids=str)
def test_the_sanitizer_finds_nothing(constants) -> None:
    M, N, K = 200, 300, 70
    A, B = matrices(M, N, K)
    report = sanitize(last_percent(constants, 3), A, B, np.zeros((M, N), np.float32), M, N, K)
    assert report.ok and not report.findings, str(report)


@pytest.mark.usefixtures("autoinit")
def test_launches_on_two_streams_wait_for_each_other() -> None:
    from pycuda.driver import Stream

    stream = Stream()
    M, N, K = 300, 700, 129
    A, B = matrices(M, N, K)
    kernel = last_percent(BIG, 3)
    expected = kernel(A, B)
    with upload(A) as dA, upload(B) as dB, allocate((M, N)) as one, allocate((M, N)) as other:
        kernel.launch(dA, dB, one, M, N, K, stream)
        kernel.launch(dA, dB, other, M, N, K)
        kernel.launch(dA, dB, one, M, N, K, stream)
        stream.synchronize()
        np.testing.assert_array_equal(one.download(), expected)
        np.testing.assert_array_equal(other.download(), expected)


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize("stream", [0, "x", 3.5])
def test_what_is_no_stream_is_named_and_spoils_no_later_launch(stream) -> None:
    kernel = last_percent(Constants(BM=32, BN=64, BK=8, TM=4, TN=8, STAGES=3), 2)
    A, B = matrices(40, 70, 24)
    with upload(A) as dA, upload(B) as dB, allocate((40, 70)) as dC:
        with pytest.raises(WrongType, match=f"stream={stream!r} is no stream"):
            kernel.launch(dA, dB, dC, 40, 70, 24, stream)
        kernel.launch(dA, dB, dC, 40, 70, 24)
        np.testing.assert_array_equal(dC.download(), fma_product(A, B))


# -- the choice ----------------------------------------


def test_every_choice_on_record_is_one_that_the_kernel_accepts() -> None:
    record = recorded()["NVIDIA H200"]
    assert len(record["chosen"]) == 16
    for choice in record["chosen"]:
        constants = Constants(**choice["constants"])
        assert chosen(*choice["size"]) == constants
        assert KERNELS["best"].at(*choice["size"]).options == constants.options(
            H200_MULTIPROCESSORS * constants.RESIDENT
        )


def test_a_size_not_on_record_has_the_constants_of_the_one_most_like_it() -> None:
    choices = recorded()["NVIDIA H200"]["chosen"]
    by_size = {tuple(c["size"]): Constants(**c["constants"]) for c in choices}
    assert chosen(4224, 4000, 4500) == by_size[4100, 4100, 4100]
    assert chosen(12, 20000, 4096) == by_size[16, 16384, 4096]
    assert chosen(2047, 2046, 2047) == by_size[2047, 2047, 2047]  # rows of B by single words
    assert chosen(7000, 121, 2000) == by_size[8191, 129, 2047]


def test_a_card_without_a_record_has_the_safe_constants(monkeypatch) -> None:
    assert chosen(4096, 4096, 4096, "NVIDIA T4") == SAFE
    monkeypatch.setattr(best, "_choices", lambda card: [])
    assert chosen(1, 1, 1) == SAFE
    assert SAFE.RESIDENT * SAFE.shared_bytes < 64 * 1024  # a T4 has that much for all blocks


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"BM": 0}, "at least 1"),
        ({"TM": 6}, "multiples of 4"),
        ({"BM": 100}, "whole warps"),
        ({"SLICES": 3}, "BK / SLICES"),
        ({"STAGES": 1}, "at least 2 stages"),
        ({"BM": 512, "BN": 512}, "more than 1024"),
        ({"BK": 64}, "bytes of shared memory"),
        ({"BN": 192}, "share the copies of A"),
        ({"BK": 24, "STAGES": 3}, "share the copies of B"),
        ({"COPY_AT": 14}, "COPY_AT is at most 13"),
        ({"COPY_AT": 0}, "at least 1"),
        ({"GROUP": 257}, "GROUP is at most BN"),
        ({"BN": 2048, "TN": 32, "BM": 64, "LANES_M": 4, "BK": 8, "STAGES": 2, "COPY_AT": 2},
         "BM and BN are at most 1,024"),
    ],
)
def test_constants_that_do_not_come_out_even_are_refused(wrong, says) -> None:
    with pytest.raises(ValueError, match=says) as error:
        dataclasses.replace(BIG, **wrong)
    assert "BM=" in str(error.value)


def test_copies_start_at_half_of_the_steps_unless_told() -> None:
    assert Constants().COPY_AT == 8
    assert Constants(BM=64, BN=128, BK=16, SLICES=4).COPY_AT == 1
    assert Constants(BK=8).COPY_AT == 4


@pytest.mark.parametrize("value", [None, "8", 8.0, True])
def test_constants_are_integers(value) -> None:
    with pytest.raises(WrongType, match=f"GROUP={value!r} is a .*: give an integer"):
        Constants(GROUP=value)
    with pytest.raises(WrongValue, match="GROUP is at most"):
        Constants(GROUP=2**40)
    assert json.dumps(dataclasses.asdict(Constants(GROUP=np.int32(8))))


@pytest.mark.parametrize("blocks, error", [
    (0, WrongValue), (-3, WrongValue), (2**40, WrongValue), (1e3, WrongType), ("4", WrongType),
])  # fmt: skip
def test_a_kernel_is_made_of_constants_and_a_number_of_blocks(blocks, error) -> None:
    with pytest.raises(error, match="blocks="):
        last_percent(SAFE, blocks)
    for constants in (None, "best", KERNELS["best"], Constants):
        with pytest.raises(WrongType, match="constants=.*: give helpers.best.Constants"):
            last_percent(constants, 4)
    blocks = last_percent(SAFE, np.int64(4)).grid(1000, 1000)[0]
    assert blocks == 4 and type(blocks) is int


@pytest.mark.parametrize("size, error", [
    ((None, 1, 1), WrongType), ((1, "1", 1), WrongType), ((1, 1, 1.5), WrongType),
    ((0, 1, 1), WrongValue), ((1, -1, 1), WrongValue),
])  # fmt: skip
def test_what_is_no_size_has_no_constants(size, error) -> None:
    with pytest.raises(error, match="[MNK]="):
        chosen(*size)
    with pytest.raises(WrongType, match="card=3 is no name"):
        chosen(1, 1, 1, 3)


@pytest.mark.parametrize("chosen_there", [
    "{}", "[{}]", "[3]", '[{"size": [1, 2], "constants": {}}]',
    '[{"size": [0, 2, 3], "constants": {}}]', '[{"size": [1, 2, 3], "constants": {"XX": 1}}]',
    '[{"size": [1, 2, 3], "constants": {"BM": "1"}}]',
])  # fmt: skip
def test_a_broken_record_is_named(tmp_path, monkeypatch, chosen_there) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(f'{{"a card": {{"left_out": [], "times": [], "chosen": {chosen_there}}}}}')
    monkeypatch.setattr(best, "RECORD", file)
    for call in (best.shares, lambda: best._choices.__wrapped__("a card")):
        with pytest.raises(WrongValue, match=r"tuning.json is no record of helpers.tune: .*away"):
            call()
    file.unlink()
    assert best.shares() == {}


def test_the_record_says_where_it_comes_from() -> None:
    record = json.loads(best.RECORD.read_text())["NVIDIA H200"]
    assert record["card"] == "NVIDIA H200" and record["nvcc"] and record["date"] >= "2026-11-30"
