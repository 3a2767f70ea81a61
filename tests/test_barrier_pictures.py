"""The line of time shows races exactly where lesson 4 and the sanitizer have them."""

import io

import pytest
from PIL import Image

from helpers.barrier_pictures import (
    LOAD,
    MULTIPLY,
    READ_AFTER_WRITE,
    VARIANTS,
    WRITE_AFTER_READ,
    Variant,
    races,
    schedule,
    timeline,
)

NAMES = {variant.name: variant for variant in VARIANTS}


@pytest.mark.parametrize("name, kinds", [
    ("two barriers", set()),
    ("no first barrier", {READ_AFTER_WRITE}),
    ("no second barrier", {WRITE_AFTER_READ}),
    ("two pairs of tiles, one barrier", set()),
])  # fmt: skip
def test_races_are_of_the_kind_that_the_sanitizer_reports(name: str, kinds: set) -> None:
    parts, _ = schedule(NAMES[name])
    assert {race.kind for race in races(NAMES[name], parts)} == kinds


def test_without_any_barrier_there_are_both() -> None:
    nothing = Variant("nothing", ())
    found = races(nothing, schedule(nothing)[0])
    assert {race.kind for race in found} == {READ_AFTER_WRITE, WRITE_AFTER_READ}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_nobody_passes_a_barrier_before_all_have_come(variant: Variant) -> None:
    parts, opened = schedule(variant)
    assert len(opened) == 2 * len(variant.barriers)
    for step in range(2):
        for what, after in ((LOAD, (MULTIPLY, step)), (MULTIPLY, (LOAD, step + 1))):
            if what in variant.barriers:
                arrived = max(p.end for p in parts if (p.what, p.step) == (what, step))
                later = [p.start for p in parts if (p.what, p.step) == after]
                assert all(start >= arrived for start in later)
    for warp in (0, 1):
        own = [p for p in parts if p.warp == warp]
        assert [(p.what, p.step) for p in own] == [
            (LOAD, 0), (MULTIPLY, 0), (LOAD, 1), (MULTIPLY, 1)
        ]  # fmt: skip


def test_the_picture_says_in_words_what_it_shows_and_is_small() -> None:
    picture = timeline()
    assert "No first barrier: 2 barriers, a race, read after write" in picture.alt
    assert len(picture.alt) > 100
    data, _ = picture._repr_mimebundle_()
    width, height = Image.open(io.BytesIO(data["image/png"])).size
    assert width >= 1400 and height <= 1.2 * width
    assert len(data["image/png"]) < 80_000
