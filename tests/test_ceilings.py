"""The ceilings' kernels do what they say, and the figures are those of their work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import ceilings
from helpers.cards import this_card
from helpers.ceilings import CHAINS, Ceilings, WrongResult, chase, copy, fma, measure_ceilings
from helpers.profile import profile

needs_device = pytest.mark.usefixtures("autoinit")


@needs_device
@pytest.mark.parametrize(("nbytes", "times"), [(32, 1), (1 << 10, 3), (100_000, 2)])
def test_a_copy_reads_and_writes_its_bytes(nbytes: int, times: int) -> None:
    ms, moved = copy(nbytes, times, seconds=0.01)
    assert ms > 0
    assert moved == nbytes // 32 * 32 * times
    source, target = np.ones(nbytes // 8, np.float32), np.zeros(nbytes // 8, np.float32)
    count = nbytes // 32
    found = profile((ceilings.FILE, "ceiling_copy"), source[: 4 * count].copy(),
                    target[: 4 * count].copy(), np.int32(count), np.int32(times), grid=2,
                    block=256)  # fmt: skip
    assert found.total("global").bytes == moved


@needs_device
def test_fmas_are_counted_by_the_engine_too() -> None:
    steps, blocks = 12, 3
    text = (ceilings.FILE, "ceiling_fma")
    found = profile(text, np.ones(2, np.float32), np.zeros(256, np.float32), np.int32(steps),
                    grid=blocks, block=256)  # fmt: skip
    loop = max(line.flops.get("f32", 0) for line in found.lines)
    assert loop == 2 * CHAINS * steps * 256 * blocks
    ms, flops = fma(2, steps, seconds=0.01)
    assert ms > 0
    assert flops == 2 * CHAINS * steps * 256 * 2 * ceilings.BLOCKS_A_MULTIPROCESSOR


@needs_device
def test_a_chase_goes_through_every_line_and_comes_back() -> None:
    assert chase(100 * 128, 100) > 0
    assert chase(1000 * 128, 77) > 0
    assert chase(1000 * 128, 2077, cold=True) > 0


@needs_device
def test_a_kernel_that_does_not_do_its_work_is_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ceilings.FILE.read_text()
    for old, new, call in (
        ("i < count", "i < count - 1", lambda: copy(1024, 1, 0.01)),
        ("step < steps; ++step) {\n        #pragma", "step < steps - 1; ++step) {\n        #pragma",
         lambda: fma(1, 8, 0.01)),
        ("at = __ldcg(&next[at]);", "at = __ldcg(&next[0]);", lambda: chase(128 * 9, 5)),
    ):  # fmt: skip
        assert old in text
        file = tmp_path / "05_ceilings.cu"
        file.write_text(text.replace(old, new))
        monkeypatch.setattr(ceilings, "FILE", file)
        with pytest.raises(WrongResult):
            call()


@needs_device
def test_all_of_them(autoinit: Any) -> None:
    found = measure_ceilings(seconds=0.02)
    assert found.backend == autoinit.backend
    for value in (found.flops, found.memory_rate, found.l2_rate, found.l2_latency,
                  found.memory_latency):  # fmt: skip
        assert value > 0
    assert set(found.to_dict()) == set(vars(found))
    assert ("say nothing about a GPU" in str(found)) == (autoinit.backend == "cpu")
    if autoinit.backend == "gpu":
        card = this_card()
        assert 0.7 * card.flops < found.flops <= 1.02 * card.flops
        assert 0.6 * card.memory_rate < found.memory_rate <= 1.02 * card.memory_rate
        assert found.l2_rate > found.memory_rate
        assert 100 < found.l2_latency < found.memory_latency < 3000


def test_the_text_has_units() -> None:
    text = str(Ceilings(60e12, 4.2e12, 5.5e12, 290.4, 720.0, "gpu"))
    assert text == ("60.0 TFLOP/s FP32; 4,200 GB/s from memory in 720 cycles, 5,500 GB/s from the "
                    "L2 cache in 290 cycles")  # fmt: skip
