"""Lanes that exchange values: shuffles, votes, match, redux, and cooperative groups on top of them.

The oracles are loops over lanes in Python, written from the PTX ISA's pseudocode (9.7.9, 9.7.13).
"""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

MODES = {"up": 0, "down": 0x1F, "bfly": 0x1F, "idx": 0x1F}

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

#define SHUFFLE(mode) \
    __global__ void shfl_##mode(const unsigned *x, const unsigned *b, const unsigned *c, \
                                unsigned *out, unsigned *inside) { \
        int t = threadIdx.x; unsigned d, p; \
        asm volatile("{.reg .pred q; shfl.sync." #mode ".b32 %0|q, %2, %3, %4, -1;" \
                     "selp.u32 %1, 1, 0, q;}" \
                     : "=r"(d), "=r"(p) : "r"(x[t]), "r"(b[t]), "r"(c[t])); \
        out[t] = d; inside[t] = p; }
#define FIXED(mode, b, c) { unsigned d, p; \
        asm volatile("{.reg .pred q; shfl.sync." #mode ".b32 %0|q, %2, " #b ", " #c ", -1;" \
                     "selp.u32 %1, 1, 0, q;}" : "=r"(d), "=r"(p) : "r"(x[t])); \
        out[k] = d; inside[k] = p; k += 32; }
#define REDUX(name, type, op) __global__ void redux_##name(const type *x, const unsigned *m, \
        type *out) { int t = threadIdx.x; type r = x[t]; unsigned mine = m[t]; \
        asm volatile("redux.sync." op " %0, %1, %2;" : "=r"(out[t]) : "r"(r), "r"(mine)); }

extern "C" {
SHUFFLE(up) SHUFFLE(down) SHUFFLE(bfly) SHUFFLE(idx)
__global__ void shfl_fixed(const unsigned *x, unsigned *out, unsigned *inside) {
    int t = threadIdx.x, k = t;
    FIXED(up, 3, 0) FIXED(down, 5, 31) FIXED(bfly, 21, 31) FIXED(idx, 9, 31)
    FIXED(up, 1, 0x1800) FIXED(down, 2, 0x181f) FIXED(bfly, 12, 0x181f) FIXED(idx, 13, 0x1c1f)
    FIXED(down, 1, 0x100b) FIXED(idx, 40, 31)
}
REDUX(add, int, "add.s32") REDUX(min, int, "min.s32") REDUX(max, int, "max.s32")
REDUX(umin, unsigned, "min.u32") REDUX(umax, unsigned, "max.u32") REDUX(uadd, unsigned, "add.u32")
REDUX(and, unsigned, "and.b32") REDUX(or, unsigned, "or.b32") REDUX(xor, unsigned, "xor.b32")
__global__ void redux_whole(const int *x, int *out) {
    out[threadIdx.x] = __reduce_add_sync(-1, x[threadIdx.x]);
    if (threadIdx.x % 3 == 1) out[threadIdx.x] = __reduce_max_sync(__activemask(), x[threadIdx.x]);
}
__global__ void votes(const int *x, const unsigned *m, unsigned *ballot, int *any, int *all,
                      int *uni) {
    int t = threadIdx.x; unsigned mine = m[t];
    ballot[t] = __ballot_sync(mine, x[t]); any[t] = __any_sync(mine, x[t]);
    all[t] = __all_sync(mine, x[t]); uni[t] = __uni_sync(mine, x[t]);
}
__global__ void guarded(const int *x, unsigned *out) {
    int t = threadIdx.x; unsigned d = 77;
    asm volatile("{.reg .pred p, q; setp.gt.s32 p, %1, 2; setp.gt.s32 q, %1, 4;"
                 "@p vote.sync.ballot.b32 %0, q, -1;}" : "+r"(d) : "r"(x[t]));
    out[t] = d;
}
__global__ void matches(const unsigned *x, const unsigned long long *y, const unsigned *m,
                        unsigned *any, unsigned *any64, unsigned *all, int *whether) {
    int t = threadIdx.x, p; unsigned mine = m[t];
    any[t] = __match_any_sync(mine, x[t]); any64[t] = __match_any_sync(mine, y[t]);
    all[t] = __match_all_sync(mine, x[t], &p); whether[t] = p;
}
__global__ void early(const int *x, unsigned *out) {
    int t = threadIdx.x;
    if (x[t] == 0) return;
    out[t] = __ballot_sync(-1, x[t] > 1) + (__activemask() << 1) + __match_any_sync(-1, x[t]);
}

__global__ void tiles(const int *x, int *out, float *f) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(block);
    auto four = cg::tiled_partition<4>(eight);
    int t = block.thread_rank(), v = x[t];
    out[t] = cg::reduce(warp, v, cg::plus<int>());
    out[t + 64] = cg::reduce(eight, v, cg::less<int>());
    out[t + 128] = eight.shfl(v, 3) + eight.any(v > 90) + 2 * eight.all(v > 10);
    out[t + 192] = eight.ballot(v & 1) + 1000 * four.meta_group_rank() + 5000 * four.size();
    out[t + 256] = four.shfl_down(v, 1) + four.shfl_up(v, 1) + four.shfl_xor(v, 2);
    out[t + 320] = cg::inclusive_scan(eight, v) + 1000 * cg::exclusive_scan(warp, v);
    f[t] = cg::reduce(eight, 0.5f * v, cg::plus<float>());
    eight.sync(); block.sync();
}
__global__ void coalesced(const int *x, int *out) {
    int t = threadIdx.x, v = x[t];
    if (v & 1) {
        auto g = cg::coalesced_threads();
        out[t] = g.size(); out[t + 64] = g.thread_rank();
        out[t + 128] = cg::reduce(g, v, cg::plus<int>());
        out[t + 192] = g.shfl(v, 1); out[t + 256] = g.ballot(v > 50);
        out[t + 320] = g.shfl_up(v, 1);
        g.sync();
    }
}
__global__ void labeled(const int *x, int *out) {
    int t = threadIdx.x, v = x[t];
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto g = cg::labeled_partition(warp, v % 3);
    out[t] = g.size(); out[t + 64] = g.thread_rank();
    out[t + 128] = cg::reduce(g, v, cg::bit_xor<int>());
    auto h = cg::binary_partition(warp, v > 50);
    out[t + 192] = cg::reduce(h, v, cg::plus<int>());
}
__global__ void wide_tile(const int *x, int *out) {
    __shared__ cg::block_tile_memory<128> space;
    auto tile = cg::tiled_partition<64>(cg::this_thread_block(space));
    out[threadIdx.x] = cg::reduce(tile, x[threadIdx.x], cg::plus<int>());
}
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE, "-std=c++17"))


def u32(values) -> np.ndarray:
    return np.asarray(values, np.uint32)


def shuffled(mode: str, x, b, c) -> tuple[np.ndarray, np.ndarray]:
    """The PTX ISA's pseudocode of shfl.sync, lane by lane."""
    out, inside = u32([0] * 32), u32([0] * 32)
    for lane in range(32):
        b_, clamp, segment = int(b[lane]) & 31, int(c[lane]) & 31, int(c[lane]) >> 8 & 31
        most, least = (lane & segment) | (clamp & ~segment), lane & segment
        if mode == "up":
            j, p = lane - b_, lane - b_ >= most
        elif mode == "down":
            j, p = lane + b_, lane + b_ <= most
        elif mode == "bfly":
            j, p = lane ^ b_, lane ^ b_ <= most
        else:
            j = least | (b_ & ~segment)
            p = j <= most
        out[lane], inside[lane] = x[j if p else lane], p
    return out, inside


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [32, 8, 1])
def test_shuffle_follows_the_pseudocode(device, mode, width):
    rng = np.random.default_rng(width)
    x, b = (rng.integers(0, 1 << 32, 32, dtype=np.uint32) for _ in range(2))
    c = u32([(32 - width) << 8 | MODES[mode]] * 32)
    for lanes in (b, u32([b[0]] * 32)):
        out, inside = u32([0] * 32), u32([0] * 32)
        device.launch(f"shfl_{mode}", 1, 32, x, lanes, c, out, inside)
        expected = shuffled(mode, x, lanes, c)
        np.testing.assert_array_equal(out, expected[0])
        np.testing.assert_array_equal(inside, expected[1])


def test_shuffles_by_distances_known_to_the_compiler(device):
    forms = [("up", 3, 0), ("down", 5, 31), ("bfly", 21, 31), ("idx", 9, 31), ("up", 1, 0x1800)]
    forms += [("down", 2, 0x181F), ("bfly", 12, 0x181F), ("idx", 13, 0x1C1F), ("down", 1, 0x100B)]
    forms += [("idx", 40, 31)]
    x = np.random.default_rng(0).integers(0, 1 << 32, 32, dtype=np.uint32)
    out, inside = (np.zeros((len(forms), 32), np.uint32) for _ in range(2))
    device.launch("shfl_fixed", 1, 32, x, out, inside)
    for k, (mode, b, c) in enumerate(forms):
        expected = shuffled(mode, x, [b] * 32, [c] * 32)
        np.testing.assert_array_equal(out[k], expected[0], str(forms[k]))
        np.testing.assert_array_equal(inside[k], expected[1], str(forms[k]))


def groups(name: str, rng) -> np.ndarray:
    """A member mask for each lane, every group's lanes with the same one."""
    label = {
        "whole": np.zeros(32, int),
        "tiles of 8": np.arange(32) // 8,
        "odd and even": np.arange(32) % 2,
        "random": rng.integers(0, 5, 32),
        "single": np.arange(32),
    }[name]
    return u32([sum(1 << j for j in range(32) if label[j] == g) for g in label])


GROUPS = ["whole", "tiles of 8", "odd and even", "random", "single"]


def members(mask: int) -> list[int]:
    return [j for j in range(32) if mask >> j & 1]


@pytest.mark.parametrize("name", GROUPS)
def test_redux_over_groups_of_lanes(device, name):
    rng = np.random.default_rng(1)
    masks = groups(name, rng)
    signed, unsigned = (
        rng.integers(-(2**31), 2**31, 32, dtype=np.int32),
        rng.integers(0, 1 << 32, 32, dtype=np.uint32),
    )
    for operation, x, oracle in [
        ("add", signed, lambda v: np.add.reduce(v, dtype=v.dtype)),
        ("min", signed, np.min),
        ("max", signed, np.max),
        ("umin", unsigned, np.min),
        ("umax", unsigned, np.max),
        ("uadd", unsigned, lambda v: np.add.reduce(v, dtype=v.dtype)),
        ("and", unsigned, np.bitwise_and.reduce),
        ("or", unsigned, np.bitwise_or.reduce),
        ("xor", unsigned, np.bitwise_xor.reduce),
    ]:
        out = np.zeros_like(x)
        device.launch(f"redux_{operation}", 1, 32, x, masks, out)
        expected = [oracle(x[members(m)]) for m in masks]
        np.testing.assert_array_equal(out, expected, operation)


def test_redux_with_one_mask(device):
    x = np.random.default_rng(2).integers(-100, 100, 64, dtype=np.int32)
    out = np.zeros_like(x)
    device.launch("redux_whole", 1, 64, x, out)
    sums = np.repeat(x.reshape(2, 32).sum(1), 32)
    third = np.arange(64) % 3 == 1
    best = [x[w * 32 : w * 32 + 32][third[w * 32 : w * 32 + 32]].max() for w in range(2)]
    np.testing.assert_array_equal(out, np.where(third, np.repeat(best, 32), sums))


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("density", [0.0, 0.2, 0.9, 1.0])
def test_votes_of_groups_of_lanes(device, name, density):
    rng = np.random.default_rng(3)
    masks, x = groups(name, rng), (rng.random(32) < density).astype(np.int32)
    ballot, any_, all_, uni = u32([0] * 32), *(np.zeros(32, np.int32) for _ in range(3))
    device.launch("votes", 1, 32, x, masks, ballot, any_, all_, uni)
    true = sum(1 << j for j in range(32) if x[j])
    np.testing.assert_array_equal(ballot, masks & u32(true))
    votes = [x[members(m)] for m in masks]
    np.testing.assert_array_equal(any_ != 0, [v.any() for v in votes])
    np.testing.assert_array_equal(all_ != 0, [v.all() for v in votes])
    np.testing.assert_array_equal(uni != 0, [v.all() or not v.any() for v in votes])


def test_a_guard_decides_who_votes(device):
    x = np.arange(32, dtype=np.int32) % 7
    out = u32([0] * 32)
    device.launch("guarded", 1, 32, x, out)
    ballot = sum(1 << j for j in range(32) if x[j] > 4)
    np.testing.assert_array_equal(out, np.where(x > 2, ballot, 77))


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("values", [1, 3, 100])
def test_match_in_groups_of_lanes(device, name, values):
    rng = np.random.default_rng(values)
    masks, x = groups(name, rng), rng.integers(0, values, 32, dtype=np.uint32)
    y = x.astype(np.uint64) << np.uint64(33)
    any_, any64, all_, whether = u32([0] * 32), u32([0] * 32), u32([0] * 32), np.zeros(32, np.int32)
    device.launch("matches", 1, 32, x, y, masks, any_, any64, all_, whether)
    same = u32([sum(1 << j for j in members(m) if x[j] == x[k]) for k, m in enumerate(masks)])
    np.testing.assert_array_equal(any_, same)
    np.testing.assert_array_equal(any64, same)
    np.testing.assert_array_equal(whether != 0, same == masks)
    np.testing.assert_array_equal(all_, np.where(same == masks, masks, 0))


def test_lanes_that_have_returned_do_not_take_part(device):
    x = np.arange(32, dtype=np.int32) % 4
    out = u32([0] * 32)
    device.launch("early", 1, 32, x, out)
    bits = lambda keep: sum(1 << j for j in range(32) if keep[j])  # noqa: E731
    expected = [
        (bits(x > 1) + (bits(x > 0) << 1) + bits(x == v)) & 0xFFFFFFFF if v else 0 for v in x
    ]
    np.testing.assert_array_equal(out, expected)


# -- cooperative groups ----------------------------------------


def values() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 100, 64, dtype=np.int32)


def test_tiles(device):
    x = values()
    out, f = np.zeros((6, 64), np.int32), np.zeros(64, np.float32)
    device.launch("tiles", 1, 64, x, out, f)
    t, eights, fours = np.arange(64), x.reshape(-1, 8), x.reshape(-1, 4)
    per = lambda v, n: np.repeat(v, n)  # noqa: E731
    np.testing.assert_array_equal(out[0], per(x.reshape(2, 32).sum(1), 32))
    np.testing.assert_array_equal(out[1], per(eights.min(1), 8))
    np.testing.assert_array_equal(
        out[2],
        per(eights[:, 3] + (eights > 90).any(1) + 2 * (eights > 10).all(1), 8),
    )
    odd = ((eights & 1) << np.arange(8)).sum(1)
    np.testing.assert_array_equal(out[3], per(odd, 8) + 1000 * (t // 4 % 2) + 20000)
    lane = np.arange(4)
    expected = (
        fours[:, np.minimum(lane + 1, 3)] + fours[:, np.maximum(lane - 1, 0)] + fours[:, lane ^ 2]
    )
    np.testing.assert_array_equal(out[4], expected.reshape(-1))
    before = np.cumsum(x.reshape(2, 32), 1) - x.reshape(2, 32)
    np.testing.assert_array_equal(
        out[5], np.cumsum(eights, 1).reshape(-1) + 1000 * before.reshape(-1)
    )
    np.testing.assert_array_equal(f, per(eights.sum(1) * 0.5, 8))


def test_coalesced_threads(device):
    x = values()
    out = np.full((6, 64), -1, np.int32)
    device.launch("coalesced", 1, 64, x, out)
    expected = np.full((6, 64), -1)
    for start in (0, 32):
        group = [t for t in range(start, start + 32) if x[t] & 1]
        for rank, t in enumerate(group):
            big = sum((x[g] > 50) << r for r, g in enumerate(group))
            up = x[group[max(rank - 1, 0)]]
            expected[:, t] = [len(group), rank, x[group].sum(), x[group[1]], big, up]
    np.testing.assert_array_equal(out, expected)


def test_labeled_and_binary_partition(device):
    x = values()
    out = np.zeros((4, 64), np.int32)
    device.launch("labeled", 1, 64, x, out)
    for t in range(64):
        warp = range(t // 32 * 32, t // 32 * 32 + 32)
        group = [g for g in warp if x[g] % 3 == x[t] % 3]
        half = [g for g in warp if (x[g] > 50) == (x[t] > 50)]
        assert list(out[:, t]) == [
            len(group),
            group.index(t),
            np.bitwise_xor.reduce(x[group]),
            x[half].sum(),
        ]


def test_a_tile_of_two_warps(device):
    x = np.arange(128, dtype=np.int32)
    out = np.zeros_like(x)
    device.launch("wide_tile", 1, 128, x, out)
    np.testing.assert_array_equal(out, np.repeat(x.reshape(2, 64).sum(1), 64))


# -- what is not PTX ----------------------------------------


@pytest.mark.engine
@pytest.mark.parametrize(
    "text",
    [
        "vote.sync.ballot.b32 5, %p1, -1;",
        "vote.sync.ballot.b32 %r1;",
        "shfl.sync.idx.b32 %r1, %r2, 3, 31;",
        "shfl.sync.b32 %r1, %r2, 3, 31, -1;",
        "shfl.idx.b32 %r1, %r2, 3, 31;",
        "match.any.sync.b16 %r1, %r2, -1;",
        "redux.sync.add.f32 %r1, %r2, -1;",
        "activemask.b32;",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r3];",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, %r3;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 5, {%r1}, {%r1}, {%r1};",
        "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r9], {%r1}, 16;",
        "cp.async.wait_group %r1;",
        "cp.async.ca.shared.global [%r1], [%rd1], 5;",
        "cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16;",
        "cp.async.bulk.commit_group;",
        "mbarrier.arrive.shared.b64 [%r1];",
        "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;",
        "elect.sync %r1|%p1, -1;",
    ],
)
def test_what_is_not_an_instruction_of_this_class_is_refused_with_its_text(text):
    source = (
        ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n"
        f".reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .pred %p<4>;\n{text}\nret; }}\n"
    )
    with pytest.raises((simt.Unsupported, simt.InvalidPtx)) as caught:
        Device(source, 1 << 20).launch("k", 1, 32)
    assert text.split(" ")[0].split(".")[0] in str(caught.value)
