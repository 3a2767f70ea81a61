"""The line of time keeps the rules of lesson 8's kernels, and shows what follows from them."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS, pipelined
from helpers.pipeline_pictures import (
    COMPUTE,
    DRAIN,
    FMAS,
    LOAD,
    PROLOGUE,
    STEADY,
    STORE,
    STORE_PART,
    Schedule,
    one_buffer,
    pipeline,
    pipelines,
    stages,
    two_buffers,
)

SCHEDULES = [
    pytest.param(make(tiles, latency), id=f"{name}-{tiles}-{latency}")
    for tiles in (1, 2, 3, 4, 5, 8, 9)
    for latency in (0.3, 1.0, 1.6, 3.5)
    for name, make in (
        ("one", one_buffer),
        ("two", two_buffers),
        *((f"stages{n}", lambda t, x, n=n: pipeline(t, x, n)) for n in (2, 3, 4, 5)),
    )
]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def in_buffer(schedule: Schedule, buffer: int) -> list:
    return sorted((p for p in schedule.parts if p.row == buffer), key=lambda p: (p.start, p.end))


@every_schedule
def test_all_tiles_are_computed_once_and_in_order(schedule: Schedule) -> None:
    tiles = [part.tile for part in schedule.computed]
    assert tiles == list(range(len(tiles)))
    ends = [(part.start, part.end) for part in schedule.computed]
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))


@every_schedule
def test_a_buffer_does_one_thing_at_a_time_and_is_read_after_it_was_filled(
    schedule: Schedule,
) -> None:
    for buffer in range(schedule.buffers):
        parts = in_buffer(schedule, buffer)
        for before, after in zip(parts, parts[1:], strict=False):
            assert before.end <= after.start + 1e-9
            if after.what == COMPUTE:
                assert before.tile == after.tile and before.what in (LOAD, STORE_PART)
            else:
                assert before.what == COMPUTE  # its tile was used before the next one came


@every_schedule
def test_between_filling_a_buffer_and_reading_it_there_is_a_barrier(schedule: Schedule) -> None:
    """And between reading it and filling it again."""
    for buffer in range(schedule.buffers):
        parts = in_buffer(schedule, buffer)
        for before, after in zip(parts, parts[1:], strict=False):
            assert any(before.end - 1e-9 <= b <= after.start + 1e-9 for b in schedule.barriers)


@pytest.mark.parametrize("latency", [0.3, 1.0, 1.6, 3.5])
def test_how_long_a_tile_takes_in_the_end(latency: float) -> None:
    tiles = 40

    def period(schedule: Schedule) -> float:
        first, *_, last = schedule.computed
        return (last.start - first.start) / (tiles - 1)

    assert period(one_buffer(tiles, latency)) == pytest.approx(1 + latency + STORE)
    assert period(two_buffers(tiles, latency)) == pytest.approx(max(1, latency) + STORE)
    for n in (2, 3, 4):  # stages - 1 tiles of arithmetic are there to hide a load
        expected = max(1, latency / (n - 1))
        assert period(pipeline(tiles, latency, n)) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("n, barriers", [(1, 1), (6, 6), (7, 7)])
def test_one_barrier_for_each_tile_or_two(n: int, barriers: int) -> None:
    assert len(two_buffers(n, 1.6).barriers) == len(pipeline(n, 1.6, 4).barriers) == barriers
    assert len(one_buffer(n, 1.6).barriers) == 2 * barriers


@every_schedule
def test_the_phases_follow_each_other(schedule: Schedule) -> None:
    prologue, steady, drain = (schedule.phases[name] for name in (PROLOGUE, STEADY, DRAIN))
    assert prologue[0] == 0 and drain[1] == schedule.end
    assert prologue[1] == steady[0] and steady[1] == drain[0]
    begun = [part.start for part in schedule.parts if part.what == LOAD]
    assert not any(drain[0] < start for start in begun)
    assert prologue[1] == schedule.computed[0].start


def test_a_pipeline_drains_in_as_many_tiles_as_were_loaded_beforehand() -> None:
    schedule = pipeline(9, 1.0, 4)
    start, end = schedule.phases[DRAIN]
    assert end - start == 3
    assert sum(p.what == LOAD and p.start == 0 for p in schedule.parts) == 3


def test_the_number_of_stages_is_that_of_the_kernel() -> None:
    assert stages() == 4
    assert [stages(pipelined(n)) for n in (2, 3, 5)] == [2, 3, 5]
    assert KERNELS["pipelined"].shared_bytes == pipelined(4).shared_bytes


@pytest.mark.parametrize("tiles, latency", [(0, 1), (-1, 1), (3, 0), (3, -1)])
def test_what_is_no_pipeline_is_refused(tiles: int, latency: float) -> None:
    with pytest.raises(ValueError, match="at least one tile"):
        pipelines(tiles, latency)
    with pytest.raises(ValueError, match="stages=1"):
        pipeline(3, 1.0, 1)


@pytest.mark.parametrize("arguments, error, said", [
    ({"tiles": "3"}, WrongType, "tiles='3' is a str"),
    ({"tiles": 2.5}, WrongType, "tiles=2.5 is a float"),
    ({"tiles": 2**40}, WrongValue, "more than 100"),
    ({"latency": None}, WrongType, "latency=None"),
    ({"latency": float("nan")}, WrongValue, "latency=nan"),
    ({"latency": float("inf")}, WrongValue, "latency=inf"),
    ({"kernel": "nope"}, WrongValue, "there is no kernel 'nope'"),
    ({"kernel": None}, WrongType, "None is no kernel"),
    ({"kernel": "naive"}, WrongValue, "kernel 'naive' has no STAGES"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments: dict, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        pipelines(**arguments)
    assert stages("pipelined_3") == 3  # one of the kernels that lessons measure


def test_the_picture_says_in_words_what_it_shows_and_is_small() -> None:
    picture = pipelines()
    assert "Pipelined: 4 stages" in picture.alt and "then 6 waits of 0.8" in picture.alt
    data, _ = picture._repr_mimebundle_()
    width, height = Image.open(io.BytesIO(data["image/png"])).size
    assert width >= 1400 and height <= width
    assert len(data["image/png"]) < 80_000
    assert "3 stages" in pipelines(tiles=1, kernel=pipelined(3)).alt
    assert FMAS in pipeline(2, 1, 2).rows
