"""What the judges of lesson 9's exercises in Python say; the exercises: tests/notebooks."""

import pytest

from helpers.wave_exercises import check_split, check_useful, useful_share
from helpers.wave_pictures import stream_k


def test_the_useful_share_counts_waves_and_what_lies_outside():
    assert useful_share(4096, 4096, 128, 256, 132) == 512 / (4 * 132)
    assert useful_share(1, 1, 64, 64, 2) == 1 / (2 * 64 * 64)
    assert check_useful(useful_share)


def test_the_kernels_own_schedule_passes():
    def split(tiles, depth, places):
        return [[(p.tile, p.first, p.last) for p in mine]
                for mine in stream_k(tiles, depth, places).places]  # fmt: skip

    found = check_split(split)
    assert found, found
    assert str(found).startswith("PASS: split\n")


@pytest.mark.parametrize("returned, diagnosis, said", [
    (None, "nothing returned", "split(6, 8, 4) returns None"),
    (7, "no list of pieces", "7 is no list"),
    ([[1, 2]], "no list of pieces", "is no list of lists"),
    ([[(0, 1)]] * 4, "no list of pieces", "is no list of lists"),
    ([[(0, 0.0, 8)]] * 4, "no list of pieces", "is no list of lists"),
    ([[]], "no list of pieces", "1 lists, not 4"),
    ([[(6, 0, 8)], [], [], []], "no such piece", "there is no (6, 0, 8)"),
    ([[(0, 3, 3)], [], [], []], "no such piece", "there is no (0, 3, 3)"),
    ([[], [], [], []], "step left out", "tile 0, step 0"),
    ([[(t, 0, 8) for t in range(6)], [(5, 7, 8)], [], []], "step done twice", "tile 5, step 7"),
    ([[(t, 0, 8) for t in range(6)], [], [], []], "not even", "0 to 48 steps"),
    ([[(0, 4, 8), (0, 0, 4), (1, 0, 4)], [(1, 4, 8), (2, 0, 8)], [(3, 0, 8), (4, 0, 4)],
      [(4, 4, 8), (5, 0, 8)]], "waits for sums", "place 0 waits for ever"),
])  # fmt: skip
def test_what_is_wrong_with_a_split_is_named(returned, diagnosis, said):
    def split(tiles, depth, places):
        return returned

    found = check_split(split)
    assert not found
    assert found.diagnosis == diagnosis
    assert said in str(found)


@pytest.mark.parametrize("returned, diagnosis", [
    ("a half", "no number"), ([0.5], "no number"), (0.5, "wrong share"),
    (float("nan"), "wrong share"),
])  # fmt: skip
def test_what_is_wrong_with_a_share_is_named(returned, diagnosis):
    def useful(M, N, BM, BN, places):
        return returned

    found = check_useful(useful)
    assert found.diagnosis == diagnosis
    assert "useful(1500, 1500, 128, 256, 132) is 0.5202, not " in str(found)


def test_an_exception_of_the_readers_is_told():
    found = check_useful(lambda M, N, BM, BN, places: M / 0)
    assert found.diagnosis == "an exception"
    assert "raises ZeroDivisionError: division by zero" in str(found)
