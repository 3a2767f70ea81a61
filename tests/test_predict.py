"""Predictions: the counts behind them, the terms one by one, and an H200's times beside them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from helpers import predict as module
from helpers.cards import CARDS, card
from helpers.errors import NotOnRecord
from helpers.kernels import BY_TILE, KERNELS, tiled
from helpers.occupancy import Resources, occupancy
from helpers.predict import Beside, Work, beside_record, from_work, named, predict, work
from helpers.recorded import h200
from helpers.register_banks import register_banks
from helpers.reuse import Traffic
from helpers.sass import disassemble

LESSONS = [*BY_TILE.values(), tiled(16)]
SIZES = (1024, 2048, 4096, 8192)
#: Of which the docstring of helpers.predict says that it has them too fast, and by how much.
TOO_FAST = {"register_column": (-0.5, -0.35)}
COUNTS = {c["launch"]: c for c in json.loads(
    (Path(__file__).parent / "counters/h200.json").read_text())["counts"]}  # fmt: skip
measured_latency = pytest.mark.skipif(
    not h200().content.get("ceilings"), reason="record the H200 again: it has no ceilings"
)


# -- counts ----------------------------------------


def _multiplications_by_one(kernel) -> float:
    """Of a block's warps, at the end: `one * sum` in the kernels of lessons 7 and 8."""
    rows, columns = kernel.tile
    return rows * columns / 32 if kernel.lesson >= 7 else 0


@pytest.mark.parametrize("n", [256, 1024])
@pytest.mark.parametrize("kernel", LESSONS, ids=lambda k: k.name)
def test_scaled_counts_are_what_the_hardware_counted(kernel, n: int) -> None:
    theirs = COUNTS[f"{kernel.name} {n} {n} {n}"]
    x, y, _ = kernel.grid(n, n)
    one, blocks = work(kernel, n), x * y

    def total(what: str) -> int:
        return sum(theirs.get(f"{operation} {what}", 0) for operation in
                   (("global load", "global store") if what != "wavefronts" else
                    ("shared load", "shared store")))  # fmt: skip

    assert one.exact
    assert one.requests * blocks == total("requests")
    assert one.sectors * blocks == total("sectors")
    assert one.wavefronts * blocks == total("wavefronts")
    scaled = one.fma - _multiplications_by_one(kernel)
    assert scaled * blocks == n**3 / 32


@pytest.mark.parametrize(
    ("name", "passes", "lines_per_request"),
    [("naive", 256, 1), ("naive_uncoalesced", 256, 33 / 2), ("tiled", 32, 1), ("tiled_16", 64, 2),
     ("register_tile", 128, 2.5), ("warp_tile", 128, 10)],
)
def test_passes_and_lines(name: str, passes: int, lines_per_request: float) -> None:
    one = work({k.name: k for k in LESSONS}[name], 1024)
    assert one.passes == passes
    assert one.lines / one.requests == pytest.approx(lines_per_request, rel=0.02)  # of the loads
    # every FMA of an element needs the one before it; the last are multiplied by one
    assert one.chain == 1024 + (name == "warp_tile")


INDEPENDENT = """
__global__ void four_sums(const float *x, float *y) {
    float a = 0, b = 0, c = 0, d = 0;
    float f = x[threadIdx.x];
    a += f * f; b += f * 2.5f; c += f * 3.5f; d += f * 4.5f;
    a += f * f; b += f * 2.5f; c += f * 3.5f; d += f * 4.5f;
    y[threadIdx.x] = a; y[threadIdx.x + 32] = b; y[threadIdx.x + 64] = c; y[threadIdx.x + 96] = d;
}
"""


def test_a_chain_is_only_what_waits_for_each_other() -> None:
    found = module.profile((INDEPENDENT, "four_sums"), np.ones(32, np.float32),
                           np.zeros(128, np.float32), grid=1, block=32)  # fmt: skip
    one = module.work_of(found)
    assert one.fma == 8
    assert one.chain == 2
    assert one.passes == 1
    assert (one.requests, one.sectors, one.lines) == (5, 20, 5)


# -- terms ----------------------------------------

HERE = occupancy(Resources(32, 0, 0), (9, 0), block=1024)  # 2 blocks
NOTHING = Work(0, 0, 0, 0, 0, 0, 0, 0)
EMPTY = Traffic(1e-9, 0, True)
GPU = dataclasses.replace(CARDS["H200"], l2_latency=300.0, memory_latency=700.0)


def terms(one: Work, blocks: int = 132, moved: Traffic = EMPTY, gpu=GPU) -> dict:
    found = from_work(one, "x", "M=1", blocks, HERE, moved, gpu)
    return {term.name: term.cycles for term in found.terms}


def test_each_unit_takes_its_cycles_on_the_busiest_multiprocessor() -> None:
    assert terms(dataclasses.replace(NOTHING, fma=100))["FMA issue"] == 25
    assert terms(dataclasses.replace(NOTHING, fma=100), 133)["FMA issue"] == 50
    t4 = dataclasses.replace(GPU, capability=(7, 5))
    assert terms(dataclasses.replace(NOTHING, fma=100), gpu=t4)["FMA issue"] == 50
    one = dataclasses.replace(NOTHING, wavefronts=30, requests=12)
    assert terms(one)["L1 and shared memory"] == pytest.approx(42)
    moved = Traffic(132 * 640, 0, True)
    assert terms(one, moved=moved)["L1 and shared memory"] == pytest.approx(52)
    assert terms(dataclasses.replace(NOTHING, lines=77))["tag lookups"] == 77


def test_bytes_take_their_time_on_the_whole_card() -> None:
    moved = Traffic(2e9, 4.8e9, False)
    found = terms(NOTHING, moved=moved, gpu=dataclasses.replace(GPU, l2_bytes_per_clock=2000.0))
    assert found["L2 cache"] == pytest.approx(1e6)
    assert found["device memory"] == pytest.approx(1.98e6)  # a millisecond


def test_latency_is_that_of_a_pass_for_each_round_of_blocks() -> None:
    one = Work(fma=64, wavefronts=0, requests=1000, lines=1000, sectors=0, passes=10, chain=50,
               shared_loads=0)  # fmt: skip
    each = 300 + 1000 / 10 + 50 / 10 * 4
    assert terms(one)["latency"] == pytest.approx(10 * each)
    assert terms(one, 132 * 8)["latency"] == pytest.approx(4 * 10 * each)
    with_shared = dataclasses.replace(one, shared_loads=5)
    assert terms(with_shared)["latency"] == pytest.approx(10 * (each + 29))
    half = Traffic(2.0, 1.0, False)
    assert terms(one, moved=half)["latency"] == pytest.approx(10 * (each + 200))


def test_blocks_that_share_the_schedulers_wait_in_step() -> None:
    one = Work(fma=64, wavefronts=0, requests=0, lines=0, sectors=0, passes=10, chain=0,
               shared_loads=0, issue=8000)  # fmt: skip
    assert terms(one)["instruction issue"] == pytest.approx(2000)
    assert terms(one)["latency"] == pytest.approx(10 * (200 + 300))  # one block is all there is
    assert terms(one, 264)["latency"] == pytest.approx(10 * (400 + 300))
    twice = dataclasses.replace(one, waits=2)
    assert terms(twice)["latency"] == pytest.approx(10 * (200 + 600))


def test_work_after_a_load_hides_its_latency() -> None:
    one = Work(fma=64, wavefronts=0, requests=0, lines=0, sectors=0, passes=10, chain=0,
               shared_loads=0, issue=8000, hiding=0.5)  # fmt: skip
    assert terms(one)["latency"] == pytest.approx(10 * (200 + 200) + 300)  # and the first load
    all_of_it = dataclasses.replace(one, issue=24_000)
    assert terms(all_of_it)["latency"] == pytest.approx(10 * 600 + 300)
    never = dataclasses.replace(one, waits=0)
    assert terms(never)["latency"] == pytest.approx(10 * 200 + 300)


@pytest.mark.parametrize(
    ("name", "waits", "hiding"),
    [("tiled", 1, 0), ("register_column", 2, 0), ("warp_tile", 1, 0), ("double_buffered", 1, 0.48),
     ("pipelined", 0, 0)],
)  # fmt: skip
def test_waits_and_what_hides_them(name: str, waits: float, hiding: float) -> None:
    one = work(KERNELS[name], 1024)
    assert (one.waits, one.hiding) == (waits, pytest.approx(hiding, abs=0.01))


@pytest.mark.parametrize("name", ["tiled", "register_tile", "warp_tile", "pipelined"])
def test_issue_of_a_long_loop_is_that_of_the_loop(name: str) -> None:
    """Figures of the loop alone and of the whole launch come by different ways."""
    banks, low, high = register_banks(name), work(KERNELS[name], 1024), work(KERNELS[name], 2048)
    each = (high.issue - low.issue) / (high.fma - low.fma)
    if name == "register_tile":  # here much of the loop is code that whole tiles do not run
        assert 1.5 < each < banks.cycles_per_ffma
    else:
        assert each == pytest.approx(banks.cycles_per_ffma, rel=0.01)


def test_the_slowest_makes_the_time_and_is_marked() -> None:
    one = dataclasses.replace(NOTHING, fma=10, wavefronts=1.98e6)
    found = from_work(one, "x", "M=1, N=2, K=3", 132, HERE, EMPTY, GPU)
    assert found.slowest.name == "L1 and shared memory"
    assert found.ms == pytest.approx(1)
    lines = str(found).splitlines()
    assert lines[0] == "x, M=1, N=2, K=3 on H200: predicted 1 ms"
    assert [line for line in lines if line.endswith("<- slowest")] == [lines[3]]


def test_a_figure_that_nobody_published_is_left_out_and_said() -> None:
    found = predict(KERNELS["tiled"], 1024, 1024, 1024, "T4")
    left_out = {term.name for term in found.terms if term.cycles is None}
    assert left_out == {"L2 cache", "latency"}
    text = str(found)
    assert "no latencies of a T4 were published" in text
    assert text.endswith("without L2 cache and latency: the real time may be longer")
    assert "L2 cache" not in {
        t.name for t in predict(KERNELS["tiled"], 64, 64, 64, "A100").terms if t.cycles is None
    }


def test_wavefronts_of_the_ptx_are_called_so() -> None:
    one = dataclasses.replace(NOTHING, fma=1, exact=False)
    found = from_work(one, "x", "M=1", 1, HERE, EMPTY, GPU)
    assert "what ptxas fuses is not known" in str(found)


def test_a_launch_of_any_kernel_is_predicted_without_its_bytes() -> None:
    found = module.profile((INDEPENDENT, "four_sums"), np.ones(32, np.float32),
                           np.zeros(128, np.float32), grid=1, block=32)  # fmt: skip
    guess = module.predict_launch(found, "A100")
    assert {t.name for t in guess.terms if t.cycles is None} == {"L2 cache", "device memory"}
    assert guess.slowest.name == "latency"
    (issue,) = (t.cycles for t in guess.terms if t.name == "instruction issue")
    (code,) = disassemble(found._replica.program.ptx, "sm_90")
    assert issue * 4 == pytest.approx(len(code.instructions), abs=2)  # and what banks take
    assert guess.slowest.cycles == pytest.approx(261.5 + 2 * 4 + issue)  # a load, two FMAs
    lines = str(guess).splitlines()
    assert lines[0].startswith("four_sums, grid (1, 1, 1), block (32, 1, 1) on A100: predicted")
    assert lines[-1] == "  without L2 cache and device memory: the real time may be longer"


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("kernel", LESSONS, ids=lambda k: k.name)
def test_every_kernel_on_every_card(kernel, name: str) -> None:
    if kernel.file.name == "08_pipeline.cu" and CARDS[name].capability < (8, 0):
        with pytest.raises(RuntimeError, match="Feature 'cp.async' requires .target sm_80"):
            predict(kernel, 2048, 2048, 2048, name)
        return
    found = predict(kernel, 2048, 2048, 2048, name)
    least = 2 * 2048**3 / CARDS[name].flops * 1e3
    assert found.ms > least
    slower = predict(KERNELS["naive_uncoalesced"], 2048, 2048, 2048, name)
    assert found.ms <= slower.ms
    assert predict(kernel, 1000, 3000, 500, name).ms < found.ms


def test_what_cannot_be_predicted() -> None:
    with pytest.raises(NotOnRecord, match="no figures of a card 'V100'"):
        predict(KERNELS["tiled"], 64, 64, 64, "V100")
    unknown = dataclasses.replace(CARDS["H200"], capability=(6, 1))
    with pytest.raises(ValueError, match="not known"):
        predict(KERNELS["tiled"], 64, 64, 64, unknown)


# -- the H200 ----------------------------------------


@pytest.fixture(scope="module")
def found() -> Beside:
    return beside_record(LESSONS, SIZES)


@pytest.fixture(scope="module")
def ratios(found: Beside) -> dict[tuple[str, int], float]:
    """Prediction by measurement, for all kernels and sizes on record."""
    return {(name, n): ours / theirs for name, n, ours, theirs in found.rows}


def test_predictions_are_near_what_was_measured(found: Beside) -> None:
    assert len(found.rows) == len(SIZES) * sum(k.name in h200().kernels for k in LESSONS)
    for name, n, _, theirs in found.rows:
        assert theirs == h200().ms(name, n)
    errors = [abs(error) for error in found.errors]
    assert statistics.median(errors) <= 0.10
    for (name, n, _, _), error in zip(found.rows, found.errors, strict=True):
        low, high = TOO_FAST.get(name, (-0.25, 0.25))
        assert low <= error <= high, (name, n)


def test_the_table_beside_the_record(found: Beside) -> None:
    lines = str(found).splitlines()
    assert lines[0] == f"recorded: {h200()}"
    assert len(lines) == len(found.rows) + 3
    two = Beside("X", (("a", 1024, 1.1, 1.0), ("b", 1024, 0.7, 1.0)))
    assert str(two).splitlines()[2:] == [
        "a                    1024      1.100 ms      1.000 ms   +10.0%",
        "b                    1024      0.700 ms      1.000 ms   -30.0%",
        "error: median 20.0%, largest 30.0%",
    ]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("slow", "fast"), [("naive", "tiled"), ("tiled_conflict", "padded")])
def test_ratios_are_near_what_was_measured(ratios, slow: str, fast: str, n: int) -> None:
    assert ratios[slow, n] / ratios[fast, n] == pytest.approx(1, abs=0.15)


@measured_latency
@pytest.mark.parametrize("n", SIZES)
def test_so_is_that_of_coalescing(ratios, n: int) -> None:
    """By how much naive is slowed by latency takes the latency of this very card."""
    assert ratios["naive_uncoalesced", n] / ratios["naive", n] == pytest.approx(1, abs=0.15)


@measured_latency
def test_the_h200s_own_latencies_are_used_where_they_are_on_record() -> None:
    assert named("H200").l2_latency == h200()["ceilings"]["l2_latency"]
    assert "05_ceilings.cu" in named("H200").latency_source


def test_a_record_with_ceilings_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    content = dict(h200().content) | {
        "ceilings": {"l2_latency": 300.0, "memory_latency": 700.0, "l2_rate": 1.98e12}
    }
    monkeypatch.setattr(module, "h200", lambda: dataclasses.replace(h200(), content=content))
    assert (named("H200").l2_latency, named("H200").memory_latency) == (300, 700)
    assert named("H200").l2_bytes_per_clock == pytest.approx(1000)
    assert named("A100") == card("A100")


def test_a_prediction_as_a_picture_has_all_terms() -> None:
    for name in ("A100", "T4"):
        found = predict("tiled", 1024, 1024, 1024, name)
        picture = found.picture()
        assert picture.png().startswith(b"\x89PNG")
        assert all(term.name in picture.alt for term in found.terms)
        assert ("left out" in picture.alt) == any(term.cycles is None for term in found.terms)
        assert f"on {name}: predicted {found.ms:.3g} ms" in picture.alt


@pytest.mark.parametrize(("arguments", "message"), [
    (("tilde", 8, 8, 8), "no kernel 'tilde'"), (("tiled", 8, 8, 0), "K=0 is outside 1"),
    (("tiled", 8, 8, 2.5), "K=2.5 is a float"), (("tiled", 0, 8, 8), "M=0 is outside 1"),
])  # fmt: skip
def test_wrong_arguments_of_a_prediction_are_told(arguments, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        predict(*arguments)


def test_what_is_not_on_record_cannot_stand_beside_it() -> None:
    with pytest.raises(KeyError, match="none of these kernels is on record: there are naive"):
        beside_record([tiled(8)])
    with pytest.raises(TypeError, match=r"sizes=1024 is no list: write \[1024\]"):
        beside_record(["tiled"], 1024)


def test_there_is_no_model_of_blocks_that_share_all_tiles() -> None:
    with pytest.raises(ValueError, match="'best': its blocks share all tiles of C.*naive"):
        predict("best", 64, 64, 64)
