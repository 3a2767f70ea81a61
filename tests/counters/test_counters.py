"""What the engine counts beside what an H200's counters said, of single accesses and of kernels.

single_accesses.csv: one warp, one instruction, lane t < active at byte address
bytes * (c + a * (t % m) + b * (t / m)). h200.json: made by tests.counters.record.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from helpers.kernels import BY_TILE, tiled
from helpers.profile import profile
from helpers.simt import rules
from tests.counters import engine, patterns
from tests.counters.record import SIZES

FOLDER = Path(__file__).parent
RECORD = json.loads((FOLDER / "h200.json").read_text())
COUNTS = RECORD["counts"]
PATTERNS = list(patterns.patterns())
KERNEL_COUNTS = {c["launch"]: c for c in COUNTS[len(PATTERNS) :]}
# The H200 counts one sector more than the rule that all other patterns obey.
ONE_MORE = {("global_red_4", "pairs")}


@pytest.fixture(scope="module")
def counted() -> list:
    return list(engine.counts())


def test_the_record_is_of_these_patterns():
    assert [c["launch"] for c in COUNTS[: len(PATTERNS)]] == [p.kernel for p in PATTERNS]


@pytest.mark.parametrize("kernel", sorted({p.kernel for p in PATTERNS}))
def test_the_engine_counts_what_the_hardware_counted(counted, kernel):
    wrong = []
    for (pattern, ours), theirs in zip(counted, COUNTS, strict=False):
        if pattern.kernel != kernel or engine.made_a_loop(pattern):
            continue
        for name, value in engine.recorded(pattern, theirs).items():
            one_more = (kernel, pattern.what) in ONE_MORE and name.endswith("units")
            if ours[name] != value - one_more:
                wrong.append((pattern.what, name, ours[name], value))
    assert not wrong


def test_the_rules_and_the_code_that_counts_agree(counted):
    for pattern, ours in counted:
        places, mask = pattern.places, pattern.mask
        if pattern.operation == "copy":
            cost = rules.sectors(places, mask)
            if pattern.space == "cg":
                cost = rules.bypass_sectors(places, pattern.targets, mask)
            assert ours["global copy units"] == cost
        elif pattern.operation == "matrix":
            assert ours["shared matrix units"] == rules.matrix_wavefronts(places, pattern.size)[0]
        elif pattern.operation in ("atom", "red"):
            units = ours[f"{pattern.space} atomic units"]
            if pattern.space == "global":
                assert units == rules.atomic_sectors(places, mask)
            else:
                assert units == rules.atomic_wavefronts(places, mask, pattern.size)[0]
        elif pattern.space == "global":
            assert ours[f"global {pattern.operation} units"] == rules.sectors(places, mask)
            ideal = rules.ideal_sectors(places, mask, pattern.size)
            assert ours[f"global {pattern.operation} ideal"] == ideal
        elif pattern.space == "shared":
            both = rules.wavefronts(places, mask, pattern.size, pattern.operation == "load")
            found = tuple(ours[f"shared {pattern.operation} {n}"] for n in ("units", "ideal"))
            assert found == both, (pattern.kernel, pattern.what)


def test_wavefronts_of_copies_through_the_l1_cache():
    found = {(p.kernel, p.what): (rules.copy_wavefronts(p.places, p.targets, p.mask, p.size),
                                  theirs["shared copy wavefronts"])
             for p, theirs in zip(PATTERNS, COUNTS, strict=False)
             if (p.space, p.operation) == ("ca", "copy")}  # fmt: skip
    assert len(found) == 30
    assert all(ours == theirs for ours, theirs in found.values()), found


def rows():
    with (FOLDER / "single_accesses.csv").open() as file:
        return list(csv.DictReader(file))


def test_single_accesses():
    wrong = []
    for row in rows():
        n = {k: int(v) for k, v in row.items() if v.lstrip("-").isdigit()}
        places = [n["bytes"] * (n["c"] + n["a"] * (t % n["m"]) + n["b"] * (t // n["m"]))
                  for t in range(32)]  # fmt: skip
        mask = (1 << n["active"]) - 1
        if row["space"] == "shared":
            found = rules.wavefronts(places, mask, n["bytes"], row["op"] == "load")[0]
            wrong += [row] if found != n["wavefronts"] else []
        else:
            wrong += [row] if rules.sectors(places, mask) != n["sectors"] else []
    assert len(rows()) == 209 and not wrong


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("kernel", [*BY_TILE.values(), tiled(16)], ids=lambda k: k.name)
def test_a_profile_is_what_the_hardware_counted(kernel, shape):
    M, N, K = shape
    random = np.random.default_rng(1)
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    found = profile(kernel, A, B, np.zeros((M, N), np.float32), M, N, K)
    theirs = KERNEL_COUNTS[f"{kernel.name} {M} {N} {K}"]
    copies = found.total("global", "copy")  # the hardware counts them among the loads as well
    assert copies.requests == theirs.get("global copy requests", 0)
    assert copies.sectors == theirs.get("global copy sectors", 0)
    for operation in ("load", "store"):
        total = found.total("global", operation)
        also = (copies.requests, copies.sectors) if operation == "load" else (0, 0)
        assert total.requests + also[0] == theirs.get(f"global {operation} requests", 0)
        assert total.sectors + also[1] == theirs.get(f"global {operation} sectors", 0)
        machine = found.total("shared", operation).hardware
        assert machine.requests == theirs.get(f"shared {operation} instructions", 0)
        assert machine.wavefronts == theirs.get(f"shared {operation} wavefronts", 0)
