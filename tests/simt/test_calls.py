"""Recursion, function pointers and jump tables."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

SOURCE = r"""
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n-1) + fib(n-2); }
__device__ __noinline__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n-1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n-1); }
__device__ int walk(const int *tree, int i, int n) {
    int own[3] = {i, i * 2, i * 3};
    if (i >= n) return 0;
    int l = walk(tree, 2 * i + 1, n), r = walk(tree, 2 * i + 2, n);
    return own[(l + r) % 3] + tree[i] + l + r;
}
typedef float (*op)(float, float);
__device__ __noinline__ float addf(float a, float b) { return a + b; }
__device__ __noinline__ float mulf(float a, float b) { return a * b; }
__device__ __noinline__ float powi(float a, float b) { return b < 1 ? 1 : a * powi(a, b - 1); }
__device__ op table[3] = {addf, mulf, powi};
extern "C" __global__ void recurse(int *x) {
    x[threadIdx.x] = fib(x[threadIdx.x]) * 10 + even(threadIdx.x);
}
extern "C" __global__ void trees(const int *tree, int n, int *out) {
    out[threadIdx.x] = walk(tree, threadIdx.x, n);
}
extern "C" __global__ void pointers(const int *which, float *x) {
    op f = table[which[threadIdx.x]];
    x[threadIdx.x] = f(x[threadIdx.x], 3.0f);
}
extern "C" __global__ void choice(float *x, int k) {
    op f = k ? (threadIdx.x & 1 ? addf : mulf) : powi;
    x[threadIdx.x] = f(x[threadIdx.x], 2.0f);
}
extern "C" __global__ void sw(int *x) {
    int t = threadIdx.x, v = x[t];
    switch (v) {
        case 0: v += 10; break;
        case 1: v *= 7;
        case 2: v -= 3; break;
        case 3: v = x[(t + 1) & 31]; break;
        case 4: v = v * v * v; break;
        case 5: v = 99; break;
        case 6: v ^= 0x55; break;
        case 7: v = t; break;
        case 8: v = t * t; break;
        case 9: v = -t; break;
        default: v = -1;
    }
    x[t] = v;
}
extern "C" __global__ void deep(int *x) { x[0] = fib(x[0] + 100000); }
extern "C" __global__ void jump_table(int *x) {
    int r = x[threadIdx.x];
    asm("{ .reg .u32 i; and.b32 i, %0, 3;\n"
        "t: .branchtargets a, b, c, d;\n"
        "brx.idx i, t;\n"
        "a: add.s32 %0, %0, 100; bra.uni e;\n"
        "b: mul.lo.s32 %0, %0, 3; bra.uni e;\n"
        "c: neg.s32 %0, %0; bra.uni e;\n"
        "d: mov.u32 %0, 7;\n"
        "e: }" : "+r"(r));
    x[threadIdx.x] = r;
}
"""

LANE = np.arange(32, dtype=np.int32)


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ptx_of(SOURCE))


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_recursion_of_one_and_of_two_functions(device):
    x = LANE % 13
    device.launch("recurse", 1, 32, x)
    assert list(x) == [fib(t % 13) * 10 + (t % 2 == 0) for t in range(32)]


def test_every_activation_has_its_own_local_array(device):
    tree = np.random.default_rng(0).integers(0, 100, 50, dtype=np.int32)
    out = np.zeros(32, np.int32)

    def walk(i: int) -> int:
        if i >= 50:
            return 0
        left, right = walk(2 * i + 1), walk(2 * i + 2)
        return [i, i * 2, i * 3][(left + right) % 3] + int(tree[i]) + left + right

    device.launch("trees", 1, 32, tree, np.int32(50), out)
    assert list(out) == [walk(i) for i in range(32)]


def test_function_pointers_from_a_table_in_memory(device):
    x = np.random.default_rng(1).standard_normal(32).astype(np.float32)
    before, three = x.copy(), np.float32(3)
    device.launch("pointers", 1, 32, LANE % 3, x)
    expected = [[v + three, v * three, v * (v * v)][t % 3] for t, v in enumerate(before)]
    assert list(x) == expected


def test_function_pointers_chosen_by_each_lane(device):
    x = np.random.default_rng(2).standard_normal(32).astype(np.float32)
    before, two = x.copy(), np.float32(2)
    device.launch("choice", 1, 32, x, np.int32(1))
    assert list(x) == [v + two if t & 1 else v * two for t, v in enumerate(before)]


def test_a_switch_of_many_cases(device):
    x = LANE % 11
    device.launch("sw", 1, 32, x)
    cases = {
        0: lambda t: 10,
        1: lambda t: 4,
        2: lambda t: -1,
        3: lambda t: (t + 1) % 32 % 11,
        4: lambda t: 64,
        5: lambda t: 99,
        6: lambda t: 6 ^ 0x55,
        7: lambda t: t,
        8: lambda t: t * t,
        9: lambda t: -t,
        10: lambda t: -1,
    }
    assert list(x) == [cases[t % 11](t) for t in range(32)]


def test_a_jump_table(device):
    x = LANE.copy()
    device.launch("jump_table", 1, 32, x)
    assert list(x) == [[t + 100, t * 3, -t, 7][t & 3] for t in range(32)]


@pytest.mark.engine
def test_a_stack_that_overflows_is_a_fault_and_the_next_launch_works(device):
    with pytest.raises(simt.Fault, match="calls itself too deeply"):
        device.launch("deep", 1, 1, np.zeros(1, np.int32))
    test_recursion_of_one_and_of_two_functions(device)
