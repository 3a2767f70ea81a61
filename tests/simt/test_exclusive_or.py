"""Addresses and values made by an exclusive or of a thread's index, as swizzled tiles have them."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

SOURCE = r"""
extern "C" __global__ void indices(const int *in, int *out, int n)
{
    int x = threadIdx.x, t = threadIdx.y * blockDim.x + x, k = 0;
    int threads = blockDim.x * blockDim.y;
    #pragma unroll 1
    for (int base = x * 4; base < n; base += 4096, ++k) {
        int *o = out + k * 12 * threads + t;
        o[0] = base ^ 4;
        o[threads] = base ^ 0x7c;
        o[2 * threads] = in[(base ^ 20) & 4095];
        o[3 * threads] = in[((base + 3) ^ 5) & 4095];
        o[4 * threads] = base ^ -1;
        o[5 * threads] = (x + blockIdx.x * 32) ^ 63;
        o[6 * threads] = ((x ^ 3) * 8 + 1) ^ 9;
        o[7 * threads] = in[x ^ (k * 32 + 1) & 1023];
        o[8 * threads] = (unsigned short)x ^ 0x8001;
        o[9 * threads] = (int)((((long long)base << 30) ^ 0x4000000007LL) >> 28);
        o[10 * threads] = (int)((unsigned)(base ^ 0x80000000) / 3u);
        o[11 * threads] = in[(unsigned)((x - 1) ^ 1) & 4095u];
    }
}
extern "C" __global__ void swizzled(const float *in, float *out)
{
    __shared__ float s[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    s[x][y ^ x] = in[y * 32 + x];
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 32; ++k)
        sum = sum * 2.0f + s[x][k ^ x];
    out[y * 32 + x] = sum;
}
"""


@pytest.mark.parametrize("block", [(32, 1), (64, 2), (16, 16), (8, 8), (45, 1), (5, 7), (32, 32)])
def test_values_and_indices(block):
    nx, threads, n = block[0], block[0] * block[1], 9000
    steps = len(range(0, n, 4096))
    values = np.random.default_rng(1).integers(-1000, 1000, 4096, np.int32)
    out = np.zeros((steps, 12, threads), np.int32)
    Device(ptx_of(SOURCE)).launch("indices", 1, block, values, out, np.int32(n))
    x = np.tile(np.arange(nx), block[1]).astype(np.int64)
    for k in range(steps):
        base = x * 4 + 4096 * k
        inside = base < n
        wide = ((base << 30) ^ 0x4000000007) >> 28
        expected = [
            base ^ 4,
            base ^ 0x7C,
            values[(base ^ 20) & 4095],
            values[((base + 3) ^ 5) & 4095],
            ~base,
            x ^ 63,
            ((x ^ 3) * 8 + 1) ^ 9,
            values[x ^ ((k * 32 + 1) & 1023)],
            x ^ 0x8001,
            (wide & 0xFFFFFFFF).astype(np.uint32).view(np.int32),
            (base ^ 0x80000000) // 3,
            values[((x - 1) ^ 1) & 4095],
        ]
        for row, want in enumerate(expected):
            assert (out[k, row] == np.where(inside, want, 0)).all(), (k, row)


def test_a_swizzled_tile():
    values = np.random.default_rng(2).integers(0, 2, (32, 32)).astype(np.float32)
    out = np.zeros((32, 32), np.float32)
    Device(ptx_of(SOURCE)).launch("swizzled", 1, (32, 32), values, out)
    sums = np.zeros(32, np.float32)
    for k in range(32):
        sums = sums * np.float32(2) + values[k]
    assert (out == sums).all()
