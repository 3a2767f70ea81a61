"""What the engine's sanitizer sees: order by barriers, meetings of a warp, fences and flags."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from engine import EngineDevice, ptx_of

from helpers.simt import cache, sanitizer, shadow
from helpers.simt.program_order import ProgramOrder

SOURCE = r"""
#include <mma.h>
using namespace nvcuda;
extern "C" {
__global__ void tensor(const half *a, float *c) {
    __shared__ half t[16 * 16];
    __shared__ float s[16 * 16];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    for (int k = threadIdx.x; k < 256; k += 32) t[k] = a[k];
    __syncwarp();
    wmma::fill_fragment(sum, 0);
    wmma::load_matrix_sync(fa, t, 16);
    wmma::load_matrix_sync(fb, t, 16);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(s, sum, 16, wmma::mem_row_major);
    __syncwarp();
    for (int k = threadIdx.x; k < 256; k += 32) c[k] = s[255 - k];
}
__global__ void bytes(unsigned char *x) {
    __shared__ unsigned char s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    s[t] += 1;                                          // neighbours in a word: no race
    __syncthreads();
    x[t] = s[127 - t];
}
__global__ void vectors(float4 *x) {
    __shared__ float4 s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    x[t].x = s[t ^ 1].y;                                // in the warp, nothing between
}
__global__ void many_rounds(int *x, int n) {
    __shared__ int s[32];
    int t = threadIdx.x, v = t;
    for (int k = 0; k < n; ++k) {
        s[t] = v;
        __syncwarp();
        v = s[31 - t];
        __syncwarp();
    }
    x[t] = v;
}
__global__ void in_parts(int *x) {
    __shared__ int s[32];
    int t = threadIdx.x;
    unsigned half = t < 16 ? 0x0000ffffu : 0xffff0000u;
    s[t] = t;
    __syncwarp(half);
    x[t] = s[t ^ 1];
    x[t] += s[t ^ 16];                                  // of the other half
}
__global__ void across_a_shuffle(int *x) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = t;
    int v = __shfl_xor_sync(~0u, t, 1);                 // no memory ordering
    v += __ballot_sync(~0u, t < v) + __reduce_add_sync(~0u, v);
    x[t] = v + s[31 - t];                               // behind the shuffle
}
__global__ void left_out(int *x) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = t;
    __syncwarp(~0u >> 1);                               // without lane 31
    x[t] = s[31 - t];                                   // with it
}
__global__ void across_a_fence(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    __threadfence_block();
    x[t] = s[t ^ 1] + s[t ^ 32];                        // behind the fence
}
__global__ void published(int *data, int *flag, int *out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flag, 1);
    } else {
        if (threadIdx.x == 0) while (atomicAdd(flag, 0) == 0) { }
        __syncthreads();
        __threadfence();
        out[threadIdx.x] = data[threadIdx.x];
    }
}
__global__ void not_published(int *data, int *out) {
    if (blockIdx.x == 0) data[threadIdx.x] = threadIdx.x;
    else out[threadIdx.x] = data[threadIdx.x];
}
__global__ void counter(int *n, int *out) {
    atomicAdd(n, 1);
    if (threadIdx.x == 0) out[0] = *n;                  // beside atomic operations
}
__global__ void generic(float *x, int which) {
    __shared__ float s[64];
    float *p = which ? s : x;
    p[threadIdx.x] = 1;
    x[64 + threadIdx.x] = p[63 - threadIdx.x];
}
__global__ void local(const int *x, int *y, int n) {
    int a[16];
    for (int k = 1; k < n; ++k) a[k] = x[k];
    y[threadIdx.x] = a[x[threadIdx.x] & 15];
}
__global__ void no_barrier(int *x, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, v = 0;
    for (int k = 0; k < n; ++k) {
        s[t] = v + k;
        v = s[(t + 32) % 64];
    }
    x[t] = v;
}
}
"""


@pytest.fixture(scope="module")
def device() -> EngineDevice:
    return EngineDevice(ptx_of(SOURCE))


def seen(device, name, grid, block, *arguments, **options):
    """(kind, scope, space, line of the first, line of the second) of all that was seen."""
    packed, addresses = b"", []
    for a in arguments:
        value = a
        if isinstance(a, np.ndarray):
            addresses.append(device.upload(a))
            value = np.uint64(addresses[-1])
        packed += b"\0" * (-len(packed) % value.nbytes) + value.tobytes()
    result = device.module.functions[name].sanitize((grid, 1, 1), (block, 1, 1), packed, **options)
    for a, address in zip((a for a in arguments if isinstance(a, np.ndarray)), addresses,
                          strict=True):  # fmt: skip
        ctypes.memmove(a.ctypes.data, address, a.nbytes)
        device.memory.free(address)
    assert result.fault is None
    return {
        (o.kind, o.scope, o.space, o.first.instruction.line, o.second.instruction.line)
        for o in result.observations
    }


def line(text: str) -> int:
    return next(k for k, one in enumerate(SOURCE.splitlines(), 1) if text in one)


@pytest.mark.parametrize("order", ["forward", "reversed", 5])
def test_neighbouring_bytes_are_no_race(device, order):
    x = np.arange(128, dtype=np.uint8)
    assert seen(device, "bytes", 1, 128, x, order=order) == set()
    np.testing.assert_array_equal(x, np.arange(128)[::-1] + 1)


def test_tiles_of_a_tensor_core_in_shared_memory(device):
    a, c = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    assert seen(device, "tensor", 1, 32, a, c) == set()
    np.testing.assert_array_equal(c, np.full((16, 16), 16))


def test_an_element_of_a_vector_that_another_lane_stored(device):
    store, load = line("s[t] = x[t];"), line("s[t ^ 1].y")
    x = np.zeros((64, 4), np.float32)
    assert ("read after write", "warp", "shared", store + 9, load) in seen(
        device, "vectors", 1, 64, x
    )


def test_ticks_that_are_used_up_do_no_harm(device):
    x = np.zeros(32, np.int32)
    n = (shadow.LAST_TICK >> 1) + 1000
    assert seen(device, "many_rounds", 1, 32, x, np.int32(n)) == set()
    np.testing.assert_array_equal(x, np.arange(32) if n % 2 == 0 else np.arange(32)[::-1])


def test_lanes_that_meet_in_halves(device):
    found = seen(device, "in_parts", 1, 32, np.zeros(32, np.int32))
    store, other = line("s[t] = t;"), line("of the other half")
    assert found == {("read after write", "warp", "shared", store, other)}


def test_a_shuffle_does_not_order_memory(device):
    store = next(k for k, one in enumerate(SOURCE.splitlines(), 1) if "no memory" in one) - 1
    assert seen(device, "across_a_shuffle", 1, 32, np.zeros(32, np.int32)) == {
        ("read after write", "warp", "shared", store, line("behind the shuffle"))
    }


def test_a_lane_that_its_own_mask_leaves_out_meets_nobody(device):
    store, load = line("without lane 31") - 1, line("// with it")
    assert seen(device, "left_out", 1, 32, np.zeros(32, np.int32)) == {
        ("read after write", "warp", "shared", store, load)
    }


@pytest.mark.parametrize("order", ["forward", "reversed", 2])
def test_a_fence_alone_orders_nothing(device, order):
    store, load = line("__threadfence_block();") - 1, line("behind the fence")
    found = seen(device, "across_a_fence", 1, 64, np.zeros(64, np.int32), order=order)
    found = {(scope, *sorted(lines)) for _, scope, _, *lines in found if len(set(lines)) > 1}
    assert found == {("warp", store, load), ("block", store, load)}


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_that_pass_data_on_behind_a_fence_and_a_flag(device, workers):
    data, flag, out = (np.zeros(64, np.int32) for _ in range(3))
    assert seen(device, "published", 2, 64, data, flag, out, workers=workers) == set()
    np.testing.assert_array_equal(out, np.arange(64))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("order", ["forward", "reversed"])
def test_blocks_that_pass_data_on_without(device, workers, order):
    data, out = (np.zeros(64, np.int32) for _ in range(2))
    found = seen(device, "not_published", 2, 64, data, out, workers=workers, order=order)
    assert len(found) == 1
    ((kind, scope, space, *lines),) = found
    assert scope == "grid" and space == "global"
    write, read = line("if (blockIdx.x == 0) data"), line("else out[threadIdx.x] = data")
    assert sorted(lines) == [write, read] and kind in ("read after write", "write after read")


@pytest.mark.parametrize("order", ["forward", "reversed", 3])
def test_a_plain_read_beside_atomic_operations(device, order):
    n, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    found = seen(device, "counter", 1, 64, n, out, order=order)
    assert {lines for *_, a, b in found for lines in (frozenset((a, b)),)} == {
        frozenset((line("atomicAdd(n, 1)"), line("beside atomic")))
    }


@pytest.mark.parametrize("which", [0, 1])
def test_addresses_of_any_space(device, which):
    found = seen(device, "generic", 1, 64, np.zeros(128, np.float32), np.int32(which))
    assert {space for _, _, space, *_ in found} == {("global", "shared")[which]}
    assert "read after write" in {kind for kind, *_ in found}


def test_an_element_of_a_local_array_that_nothing_was_stored_to(device):
    x, y = np.arange(1, 33, dtype=np.int32), np.zeros(32, np.int32)
    read = line("a[x[threadIdx.x] & 15]")
    assert seen(device, "local", 1, 32, x, y, np.int32(16)) == {
        ("uninitialised", "warp", "local", read, read)
    }
    x[:] = 3
    assert seen(device, "local", 1, 32, x, y, np.int32(16)) == set()


def test_the_order_of_the_program_is_not_that_of_the_warps(device):
    function = device.module.functions["no_barrier"]
    order = ProgramOrder(function.graph())
    x = device.upload(np.zeros(64, np.int32))
    kinds = []
    for turn in ("forward", "reversed"):
        packed = struct.pack("<Qi", x, 1)
        for o in function.sanitize((1, 1, 1), (64, 1, 1), packed, order=turn).observations:
            if o.kind in ("read after write", "write after read"):
                kinds.append(
                    (o.kind, *(a.instruction.opcode for a in order.first(o.first, o.second)))
                )
    assert {kind for kind, *_ in kinds} == {"read after write", "write after read"}
    assert {tuple(opcodes) for _, *opcodes in kinds} == {("st", "ld")}


def test_what_was_counted_by_several_workers_is_one_observation(device):
    data, out = (np.zeros(64, np.int32) for _ in range(2))
    found = [seen(device, "not_published", 2, 64, data, out) for _ in range(3)]
    assert found[0] and all(len(f) == 1 for f in found)


def test_a_full_table_loses_no_kind_of_finding(monkeypatch):
    """With room for four pairs of instructions: of the others there is one for each kind."""
    monkeypatch.setattr(shadow, "RECORDS", 4)
    monkeypatch.setattr(cache, "load", lambda key: None)
    monkeypatch.setattr(cache, "keep", lambda key, stored: None)
    stores = "".join(f"    v[t ^ {k}] = {k} + t;\n" for k in range(12))
    source = (
        'extern "C" __global__ void f(int *x)\n{\n    __shared__ volatile int v[64];\n'
        f"    int t = threadIdx.x;\n{stores}    x[t] = v[t ^ 1] + v[t ^ 40];\n"
        "    v[0] = 7;\n    v[63] = t;\n}\n"
    )
    small = EngineDevice(ptx_of(source))
    packed = struct.pack("<Q", small.upload(np.zeros(64, np.int32)))
    result = small.module.functions["f"].sanitize((1, 1, 1), (64, 1, 1), packed)
    kinds = {o.kind for o in result.observations}
    assert {"write after write", "read after write", "lanes equal", "lanes differ"} <= kinds
    assert 4 < len(result.observations) < 12 + 4 and result.lost > 100


def test_an_order_is_a_permutation():
    order = sanitizer._permutation(9, 4, ctypes.c_int32)
    assert sorted(order) == list(range(9)) and list(order) != list(range(9))
    assert list(sanitizer._permutation(3, "reversed", ctypes.c_int64)) == [2, 1, 0]
    assert sanitizer._permutation(3, "forward", ctypes.c_int64) is None
