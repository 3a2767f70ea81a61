"""Programs, found by fuzzing or made smaller by hand, that the engine once got wrong."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from tests.fuzz.campaign import try_programs

SOURCE = r"""
extern "C" {
__global__ void left_neighbours(const int *a, int *out, int n) {
    unsigned t = threadIdx.x, sum = 0;
    for (int k = 0; k < n; ++k)
        if (t >= 5u) sum += a[t - 5u] * k;  // t - 5u is widened before the loop, for all lanes
    out[t] = sum;
}
}
static __device__ __noinline__ int descend(short a, unsigned char b, int k) {
    if (k <= 0) return a * 3 + b;
    return descend(a + 1, b + 1, k - 1) + a;
}
extern "C" __global__ void small_arguments(int *out, int n) {
    out[threadIdx.x] = descend((short)(threadIdx.x * 2000), (unsigned char)(threadIdx.x * 9), n);
}
"""


def test_an_unsigned_index_that_wraps_only_in_lanes_that_do_not_use_it():
    a, out = np.arange(100, 164, dtype=np.int32), np.zeros(64, np.int32)
    Device(ptx_of(SOURCE)).launch("left_neighbours", 1, 64, a, out, np.int32(4))
    np.testing.assert_array_equal(out, [6 * a[t - 5] if t >= 5 else 0 for t in range(64)])


def test_a_recursive_function_takes_short_and_char_arguments():
    out = np.zeros(32, np.int32)
    Device(ptx_of(SOURCE)).launch("small_arguments", 1, 32, out, np.int32(3))

    def short(v: int) -> int:
        return (v + 0x8000) % 0x10000 - 0x8000

    def descend(a: int, b: int, k: int) -> int:
        return a * 3 + b if k <= 0 else descend(short(a + 1), (b + 1) % 256, k - 1) + a

    expected = [descend(short(2000 * t), 9 * t % 256, 3) for t in range(32)]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.engine
def test_random_programs_that_once_failed():
    """204: lanes that return while others wait. 211: a branch whose join has a region of its own.

    4, 5: unsigned indices below zero. 213, 232, 249, 265: barriers after recursion. 379: lanes at a
    barrier while others go round a loop that some return from.
    """
    assert try_programs([4, 5, 204, 211, 213, 232, 249, 265, 379], 1) == []


def pieces(body: str) -> list[int]:
    """What a piece of PTX leaves in %rd4, in 32 threads. %r1: the thread; %r2: 32."""
    text = f""".version 9.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 o) {{
    .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [o];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ntid.x;
    mad.wide.u32 %rd3, %r1, 8, %rd1;
    {body}
    st.global.u64 [%rd3], %rd4;
    ret;
}}"""
    out = np.zeros(32, np.uint64)
    Device(text, 1 << 26).launch("f", 1, 32, out)
    return [int(x) for x in out]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("shr.u32 %r3, %r1, -1; cvt.u64.u32 %rd4, %r3;", lambda t: 0),
        ("shr.s32 %r3, %r1, -1; cvt.u64.u32 %rd4, %r3;", lambda t: 0),
        ("shr.u32 %r3, %r2, 32; cvt.u64.u32 %rd4, %r3;", lambda t: 0),
        ("shl.b32 %r3, %r1, -1; cvt.u64.u32 %rd4, %r3;", lambda t: 0),
        ("shl.b64 %rd4, %rd3, 64;", lambda t: 0),
        ("sub.s32 %r3, 1, %r2; shr.s32 %r3, %r3, 99; cvt.s64.s32 %rd4, %r3;", lambda t: -1),
        # 1 - %ntid.x is known when code is made: the type says what it is in 64 bits
        ("sub.s32 %r3, 1, %r2; mul.wide.s32 %rd4, %r3, 4;", lambda t: 4 * -31),
        ("sub.s32 %r3, 1, %r2; mul.wide.u32 %rd4, %r3, 4;", lambda t: 4 * (2**32 - 31)),
        ("sub.s32 %r3, 1, %r2; mad.wide.s32 %rd4, %r3, 4, 100;", lambda t: 100 - 124),
        ("sub.s32 %r3, 1, %r2; mad.wide.s32 %rd4, %r3, %r1, 7;", lambda t: 7 - 31 * t),
        ("sub.s32 %r3, 1, %r2; cvt.s64.s32 %rd4, %r3;", lambda t: -31),
        ("sub.s32 %r3, 1, %r2; cvt.u64.u32 %rd4, %r3;", lambda t: 2**32 - 31),
        ("mov.u16 %h1, 0xffff; mul.wide.s16 %r4, %h1, 3; cvt.s64.s32 %rd4, %r4;", lambda t: -3),
        ("mov.u16 %h1, 0xffff; mul.wide.u16 %r4, %h1, 3; cvt.s64.s32 %rd4, %r4;", lambda t: 196605),
    ],
)
def test_constants_that_are_negative_or_out_of_range(body, expected):
    assert pieces(body) == [expected(t) % 2**64 for t in range(32)]


MORE = r"""
extern "C" {
__global__ void some_return_in_each_round(int *gone, int *stayed, int n) {
    unsigned a = threadIdx.x;
    for (int again = 0; again < 3; ++again) {
        if ((a + again * 3u) % 5u == 1u || (n & 8)) { gone[threadIdx.x] = a; return; }
        a += n;
        __syncthreads();  // those that return must do so first
        a += 2;
    }
    stayed[threadIdx.x] = a;
}
__global__ void some_go_round_again(int *gone, int *stayed, int n) {
    unsigned a = threadIdx.x;
    for (int again = 0; again < 3; ++again) {
        for (unsigned k = 0; k < (a & 3u) + n; ++k)
            if ((a + k * 7u) % 61u == 3u) { gone[threadIdx.x] = a + k; return; }
        __syncthreads();  // those that are still in the loop, or return from it, come first
        a += 5;
    }
    stayed[threadIdx.x] = a;
}
}
"""


def test_a_shared_address_that_is_below_zero_only_in_lanes_that_do_not_use_it():
    body = """
    .shared .align 4 .b8 s[128]; .reg .pred %p;
    mov.u32 %r3, s; mad.lo.s32 %r4, %r1, 4, %r3;
    st.shared.u32 [%r4], %r1; bar.sync 0;
    sub.s32 %r5, %r4, 20; mov.u32 %r6, 77; setp.ge.u32 %p, %r1, 5;
    @%p ld.shared.u32 %r6, [%r5];
    cvt.u64.u32 %rd4, %r6;"""
    assert pieces(body) == [77] * 5 + list(range(27))


def test_lanes_that_return_from_a_loop_do_so_before_the_others_wait_in_it():
    gone, stayed = np.zeros(64, np.int32), np.zeros(64, np.int32)
    Device(ptx_of(MORE)).launch("some_return_in_each_round", 1, 64, gone, stayed, np.int32(1))

    def thread(a: int) -> tuple[int, int]:
        for again in range(3):
            if (a + 3 * again) % 5 == 1:
                return a, 0
            a += 3
        return 0, a

    assert list(zip(gone, stayed, strict=True)) == [thread(t) for t in range(64)]


def test_lanes_that_stay_longer_in_a_loop_leave_it_before_the_others_wait():
    gone, stayed = np.zeros(64, np.int32), np.zeros(64, np.int32)
    Device(ptx_of(MORE)).launch("some_go_round_again", 1, 64, gone, stayed, np.int32(1))

    def thread(a: int) -> tuple[int, int]:
        for _ in range(3):
            for k in range((a & 3) + 1):
                if (a + 7 * k) % 61 == 3:
                    return a + k, 0
            a += 5
        return 0, a

    assert list(zip(gone, stayed, strict=True)) == [thread(t) for t in range(64)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mov.b32 %f1, %r1; mov.b32 %r3, %f1; cvt.u64.u32 %rd4, %r3;", lambda t: t),
        ("mov.f32 %r3, %r1; cvt.u64.u32 %rd4, %r3;", lambda t: t),
        ("setp.ge.f32 %p, %r1, 0f0000000A; selp.b64 %rd4, 1, 0, %p;", lambda t: t >= 10),
        ("add.u32 %r3, %r1, 1; fma.rn.f32 %f1, %r3, 0f00000000, %r3; mov.b32 %r4, %f1; "
         "cvt.u64.u32 %rd4, %r4;", lambda t: t + 1),
    ],
)  # fmt: skip
def test_the_bits_of_an_affine_integer_as_a_float(body, expected):
    declared = ".reg .pred %p; .reg .f32 %f<3>; "
    assert pieces(declared + body) == [expected(t) for t in range(32)]
