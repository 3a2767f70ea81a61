"""Lesson 8's kernels: what is planted in them is found by `sanitize`, wherever it is planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernels import KERNELS, MEASURED, STAGE_BYTES
from helpers.profile import profile
from helpers.sanitize import Report, sanitize

FILE = KERNELS["pipelined"].file
RAW, WAR, WAW = (f"{kind} race" for kind in
                 ("read-after-write", "write-after-read", "write-after-write"))  # fmt: skip
WAIT = 'asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));'
COMMIT = 'asm volatile("cp.async.commit_group;");'
BARRIER = "__syncthreads();"
STAGES = 3
#: Smaller tiles along K, and only the path of blocks inside the matrices: compiled sooner.
SMALLER = (
    ("#define BK 16", "#define BK 8"),
    ("if (!float4_fits(B, N)) {\n        pipeline", "if (false) {\n        pipeline"),
    ("} else if (inner) {", "} else if (true) {"),
    ("    if (plain) {\n        double_buffered", "    if (true) {\n        double_buffered"),
)


def smaller() -> str:
    text = FILE.read_text(encoding="utf-8")
    for old, new in SMALLER:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def planted(text: str, entry: str, faults: list[tuple[str, str, int | None]]) -> str:
    """The text with parts replaced behind a heading: (old, new, which of them, or None: all)."""
    heading = "// -- STAGES" if entry == "matmul_pipelined" else "// -- two buffers"
    before, head, after = text.partition(heading)
    for old, new, which in faults:
        parts = after.split(old)
        assert len(parts) > (which or 0) + 1, old
        if which is None:
            after = new.join(parts)
        else:
            after = old.join(parts[: which + 1]) + new + old.join(parts[which + 1 :])
    return before + head + after


def sanitized(text: str, entry: str, folder: Path, tiles: int) -> Report:
    file = folder / FILE.name
    file.write_text(text, encoding="utf-8")
    pipelined = entry == "matmul_pipelined"
    M, N, K = 128, 256 if pipelined else 128, 8 * tiles
    A, B, C = np.ones((M, K), np.float32), np.ones((K, N), np.float32), np.zeros((M, N), np.float32)
    return sanitize(
        (file, entry, (f"-DSTAGES={STAGES}",)), A, B, C, np.int32(M), np.int32(N), np.int32(K),
        grid=1, block=256, shared=STAGES * STAGE_BYTES * pipelined,
    )  # fmt: skip


def line_of(text: str, part: str) -> int:
    assert text.count(part) == 1, part
    return 1 + text[: text.index(part)].count("\n")


def places(text: str, parts: tuple[str, ...]) -> set[int]:
    """Lines of the text with these parts; a statement of two lines may go by either."""
    return {line_of(text, part) + more for part in parts for more in (0, 1)}


# What is planted in matmul_pipelined: replacements, and the kinds that must be found.
FAULTS = {
    "no wait": ([(WAIT, "", None)], {RAW}),
    "one group too many left under way": ([("(STAGES - 2)", "(STAGES - 1)", None)], {RAW}),
    "no commit": ([(COMMIT, "", None)], {RAW}),
    "no barrier after the wait": ([(BARRIER, "", 1)], {WAR}),
    "a stage refilled while others read it": (
        [
            ("t < STAGES - 1; ++t", "t < STAGES; ++t", None),
            ("t + STAGES - 1 < tiles", "t + STAGES < tiles", None),
            ("(STAGES - 2)", "(STAGES - 1)", None),
        ],
        {WAR},
    ),
}
MORE_FAULTS = {
    "no wait before the loop": ([(WAIT, "", 0)], {RAW}),
    "no wait in the loop": ([(WAIT, "", 1)], {RAW}),
    "one group too many left before the loop": ([("(STAGES - 2)", "(STAGES - 1)", 0)], {RAW}),
    "one group too many left in the loop": ([("(STAGES - 2)", "(STAGES - 1)", 1)], {RAW}),
    "no barrier before the loop": ([(BARRIER, "", 0)], {RAW}),
    "the barrier before the wait": ([(BARRIER, "", 1), (WAIT, BARRIER + WAIT, 1)], {RAW}),
    "an empty group left out": (
        [("(k == BK / 2 - 1) next", "(k == BK / 2 - 1 && t + STAGES - 1 < tiles) next", None)],
        {RAW},
    ),
}  # fmt: skip


def found_in_the_pipeline(faults: list, kinds: set[str], folder: Path) -> None:
    text = planted(smaller(), "matmul_pipelined", faults)
    report = sanitized(text, "matmul_pipelined", folder, tiles=4)
    assert not report.ok
    assert kinds <= {finding.kind for finding in report.findings}, f"\n{report}"
    copies = places(text, tuple(f'asm volatile("cp.async.{x}.shared.global' for x in ("ca", "cg")))
    reads = places(text, tuple(f"= *(float4 *)&{x}_from[k" for x in "ab"))
    for finding in report.findings:
        assert set(finding.lines) <= copies | reads, f"\n{report}"
        assert copies & set(finding.lines)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_planted_in_the_pipeline_is_found(fault: str, tmp_path: Path) -> None:
    found_in_the_pipeline(*FAULTS[fault], tmp_path)


@pytest.mark.mutants
@pytest.mark.parametrize("fault", MORE_FAULTS)
def test_what_is_planted_elsewhere_in_the_pipeline_is_found(fault: str, tmp_path: Path) -> None:
    found_in_the_pipeline(*MORE_FAULTS[fault], tmp_path)


@pytest.mark.parametrize("tiles", [1, 4])
@pytest.mark.parametrize("entry", ["matmul_pipelined", "matmul_double_buffered"])
def test_nothing_is_found_in_the_kernels_as_they_are(
    entry: str, tiles: int, tmp_path: Path
) -> None:
    report = sanitized(smaller(), entry, tmp_path, tiles)
    assert not report.findings, f"\n{report}"


@pytest.mark.parametrize("faults, kinds", [
    ([(BARRIER, "", 0)], {RAW, WAR}),
    ([("buffer ^= 1", "buffer ^= 0", 0)], {WAR}),  # one buffer, and one barrier
])  # fmt: skip
def test_double_buffering_needs_its_barrier_and_its_second_buffer(
    faults: list, kinds: set[str], tmp_path: Path
) -> None:
    text = planted(smaller(), "matmul_double_buffered", faults)
    report = sanitized(text, "matmul_double_buffered", tmp_path, tiles=4)
    assert {finding.kind for finding in report.findings} == kinds, f"\n{report}"


def test_the_plain_tile_double_buffered_is_right_and_saves_a_barrier_and_nothing_else() -> None:
    """The FMAs, the shared wavefronts and the sectors are those of the kernel with one pair."""
    n = 64
    A, B = np.random.default_rng(8).standard_normal((2, n, n), dtype=np.float32)
    plain, doubled = KERNELS["tiled"], MEASURED["tiled_double_buffered"]
    C, D = np.zeros((2, n, n), np.float32)
    one = profile(plain, A, B, C, n, n, n, write=True)
    two = profile(doubled, A, B, D, n, n, n, write=True)
    assert np.array_equal(C, D)
    assert (one.barriers, two.barriers) == (2 * two.barriers, 4 * 32 * n // 32)
    moved = [[(t.space, t.operation, t.hardware.wavefronts, t.sectors) for t in p.totals()]
             for p in (one, two)]  # fmt: skip
    assert moved[0] == moved[1]
