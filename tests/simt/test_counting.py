"""Counts of random kernels are what the rules say of the addresses that the kernels access.

The addresses come from tests.fuzz.counted, which walks each program in Python, thread by thread.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from engine import EngineDevice, ptx_of

from helpers.simt import rules
from tests.fuzz import counted

pytestmark = pytest.mark.engine

WHOLE = (1 << 32) - 1


def counts(text: str, name: str, grid, block, *arguments) -> dict[tuple[int, str, str], list[int]]:
    """(line, space, operation) -> requests, lanes, units, ideal units."""
    device = EngineDevice(text, 1 << 24)
    packed = b""
    for a in arguments:
        value = struct.pack("<Q", device.upload(a)) if isinstance(a, np.ndarray) else a.tobytes()
        packed += b"\0" * (-len(packed) % len(value)) + value
    found: dict[tuple[int, str, str], list[int]] = {}
    for access in device.module.functions[name].count(grid, block, packed).accesses:
        for space, cost in access.costs.items():
            if cost.requests:
                key = access.instruction.line, space, access.operation
                total = found.setdefault(key, [0, 0, 0, 0])
                for k, n in enumerate((cost.requests, cost.lanes, cost.units, cost.ideal)):
                    total[k] += n
    return found


@pytest.mark.parametrize("seed", range(8))
def test_random_kernels(seed):
    program = counted.make(seed)
    g = np.zeros(counted.WORDS + 256, np.uint32)
    text = ptx_of(program.source)
    found = counts(text, "kernel", program.grid, program.block, g, np.int32(0))
    assert found == counted.expected(program)


PHASES = r"""
__device__ __noinline__ void put(volatile unsigned char *p) { *p = 1; }      // line 2
extern "C" __global__ void bytes(const int *at, unsigned char *out, int n)
{
    __shared__ __align__(128) unsigned char s[1024];
    unsigned char l[1024];
    #pragma unroll 1
    for (int k = 0; k < n; ++k) {
        ((volatile unsigned char *)s)[at[threadIdx.x] + k] = 1;              // line 9
        ((volatile unsigned char *)l)[at[threadIdx.x] + k] = 1;              // line 10
        ((volatile unsigned char *)out)[at[threadIdx.x] + k] = 1;            // line 11
        put(s + at[threadIdx.x] + k);
    }
}
extern "C" __global__ void copies(const float *a, int n)
{
    __shared__ __align__(128) float s[256];
    unsigned to = __cvta_generic_to_shared(s + 4 * threadIdx.x);
    #pragma unroll 1
    for (int k = 0; k < n; ++k)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :: "r"(to), "l"(a + 4 * threadIdx.x + 4 * k));          // line 22
    asm volatile("cp.async.wait_all;");
}
"""


def test_bytes_that_move_on_within_their_words():
    """The same distances between lanes cost more or less, by where in a word the first one is."""
    n = 8
    at = np.array([0, 129, *np.random.default_rng(1).integers(0, 1000, 30)], np.int32)
    found = counts(ptx_of(PHASES), "bytes", (1, 1, 1), (32, 1, 1), at, np.zeros(1024, np.uint8),
                   np.int32(n))  # fmt: skip
    places = [[int(a) + k for a in at] for k in range(n)]
    waves = [rules.wavefronts(p, WHOLE, 1, False)[0] for p in places]
    assert sum(waves) != n * waves[0]
    assert found[9, "shared", "store"] == [n, 32 * n, sum(waves), n]
    assert found[2, "shared", "store"] == [n, 32 * n, sum(waves), n]
    local = [rules.local_sectors(p, WHOLE, 1) for p in places]
    assert found[10, "local", "store"][2] == sum(local)
    assert found[11, "global", "store"][2] == sum(rules.sectors(p, WHOLE) for p in places)


def test_copies_past_the_first_cache_that_move_on_within_a_sector():
    found = counts(ptx_of(PHASES), "copies", (1, 1, 1), (32, 1, 1), np.zeros(256, np.float32),
                   np.int32(5))  # fmt: skip
    to = [16 * lane for lane in range(32)]
    sectors = [rules.bypass_sectors([a + 16 * k for a in to], to, WHOLE) for k in range(5)]
    assert sectors == [16, 32, 16, 32, 16]
    ((_, _, units, _),) = (v for (_, _, what), v in found.items() if what == "copy")
    assert units == sum(sectors)
