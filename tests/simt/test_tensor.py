"""Matrices spread over a warp: ldmatrix, mma and wmma against NumPy.

mma's fragments are packed here by the formulas of the PTX ISA (9.7.14.5.1 to .13), lane by lane.
Floating-point results must lie within the bound that helpers.simt.tensor states; integers exactly.
"""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

from helpers import simt

HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n"
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32}
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def to_bits(values, kind: str) -> np.ndarray:
    """Elements as unsigned integers."""
    v = np.asarray(values)
    if kind == "f16":
        return v.astype(np.float16).view(np.uint16).astype(np.uint64)
    if kind == "f64":
        return v.astype(np.float64).view(np.uint64)
    if kind in ("f32", "tf32", "bf16"):
        word = v.astype(np.float32).view(np.uint32).astype(np.uint64)
        return word >> np.uint64(16) if kind == "bf16" else word
    return v.astype(np.int64).view(np.uint64) & np.uint64((1 << BITS[kind]) - 1)


def from_bits(words, kind: str) -> np.ndarray:
    w = np.asarray(words, np.uint64)
    if kind == "f16":
        return w.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "f64":
        return w.view(np.float64)
    if kind == "f32":
        return w.astype(np.uint32).view(np.float32).astype(np.float64)
    return w.astype(np.uint32).view(np.int32).astype(np.int64)


def random_matrix(rng, shape, kind: str) -> np.ndarray:
    """Values that the type holds exactly, as float64 or int64."""
    if kind in ("f16", "bf16", "tf32", "f32", "f64"):
        x = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)
        if kind == "f64":
            return x
        x = x.astype(np.float32)
        if kind == "f16":
            return x.astype(np.float16).astype(np.float64)
        cut = {"bf16": 0xFFFF0000, "tf32": 0xFFFFE000, "f32": 0xFFFFFFFF}[kind]
        return (x.view(np.uint32) & np.uint32(cut)).view(np.float32).astype(np.float64)
    n = BITS[kind]
    if kind == "s32":
        return rng.integers(-(1 << 20), 1 << 20, shape)
    low, high = (-(1 << n - 1), 1 << n - 1) if kind[0] == "s" else (0, 1 << n)
    return rng.integers(low, high, shape)


def bound(a, b, c, k: int) -> np.ndarray:
    return (k + 1) * 2.0**-23 * (np.abs(c) + np.abs(a) @ np.abs(b))


# -- fragments, as the PTX ISA gives them ----------------------------------------


def mma_places(shape: str, kind: str, role: str):
    """(lane, element) -> (row, column) of a fragment of mma, element i as the ISA numbers them."""
    m, n, k = (int(v) for v in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
    pack = max(1, 32 // BITS[kind])
    group, within = (lambda lane: lane >> 2), (lambda lane: lane % 4)
    if role in "cd":
        if m == 8:
            return 2, lambda lane, i: (group(lane), within(lane) * 2 + i)
        return 4, lambda lane, i: (group(lane) + 8 * (i >= 2), within(lane) * 2 + (i & 1))
    if role == "b":
        count = k * n // 32
        return count, lambda lane, i: (
            within(lane) * pack + i % pack + 4 * pack * (i // pack),
            group(lane),
        )
    count = m * k // 32
    if m == 8:
        return count, lambda lane, i: (group(lane), within(lane) * pack + i)
    # a0.. of rows g and g + 8 alternate in runs of one register
    return count, lambda lane, i: (
        group(lane) + 8 * (i // pack % 2),
        within(lane) * pack + i % pack + 4 * pack * (i // (2 * pack)),
    )


def pack_fragment(matrix, places, kind: str) -> np.ndarray:
    """Registers of all lanes, [lane][register], as uint64."""
    count, where = places
    n = BITS[kind]
    pack = max(1, 32 // n)
    out = np.zeros((32, count // pack), np.uint64)
    bits = to_bits(matrix, kind)
    for lane in range(32):
        for i in range(count):
            out[lane, i // pack] |= bits[where(lane, i)] << np.uint64(n * (i % pack))
    return out


def unpack_fragment(registers, places, kind: str, shape) -> np.ndarray:
    count, where = places
    pack = max(1, 32 // BITS[kind]) if kind == "f16" else 1
    out = np.full(shape, np.nan) if kind[0] == "f" else np.zeros(shape, np.int64)
    for lane in range(32):
        for i in range(count):
            word = int(registers[lane, i // pack]) >> (16 * (i % pack))
            out[where(lane, i)] = from_bits([word & (1 << BITS[kind]) - 1], kind)[0]
    return out


def mma_kernel(name: str, counts, kinds) -> str:
    """PTX: each lane loads its registers, one mma, each lane stores its results."""
    wide = [k == "f64" for k in kinds]
    letters = "abcd"
    regs = [f"%{x}<{n + 1}>" for x, n in zip(letters, counts, strict=True)]
    text = [
        f".visible .entry kernel({', '.join(f'.param .u64 p{x}' for x in letters)})",
        "{ .reg .u32 %t; .reg .u64 %p, %q;",
    ]
    for r, w in zip(regs, wide, strict=True):
        text.append(f".reg .{'f64' if w else 'b32'} {r};")
    text.append("mov.u32 %t, %tid.x;")
    vectors = [
        "{" + ", ".join(f"%{x}{i}" for i in range(n)) + "}"
        for x, n in zip(letters, counts, strict=True)
    ]
    for x, n, w in zip(letters, counts, wide, strict=True):
        if x == "d":
            text.append(f"{name} {vectors[3]}, {', '.join(vectors[:3])};")
        text.append(f"ld.param.u64 %p, [p{x}]; mad.wide.u32 %p, %t, {8 * n}, %p;")
        for i in range(n):
            kind = "f64" if w else "b32"
            if x == "d":
                text.append(f"st.global.{kind} [%p+{8 * i}], %d{i};")
            else:
                text.append(f"ld.global.{kind} %{x}{i}, [%p+{8 * i}];")
    return HEAD + "\n".join([*text, "ret; }"])


def run_mma(shape: str, kinds, a, b, c, end: str = "", layouts: str = "row.col", places=None):
    """D of one mma.sync; kinds are those of d, a, b, c."""
    d_kind, a_kind, b_kind, c_kind = kinds
    places = places or {
        "a": mma_places(shape, a_kind, "a"),
        "b": mma_places(shape, b_kind, "b"),
        "c": mma_places(shape, c_kind, "c"),
        "d": mma_places(shape, d_kind, "c"),
    }
    registers = [
        pack_fragment(x, places[r], k)
        for x, r, k in ((a, "a", a_kind), (b, "b", b_kind), (c, "c", c_kind))
    ]
    per = max(1, 32 // BITS[d_kind]) if d_kind == "f16" else 1
    out = np.zeros((32, places["d"][0] // per), np.uint64)
    saturate = ".satfinite" if end == ".satfinite" else ""
    name = f"mma.sync.aligned.{shape}.{layouts}{saturate}.{'.'.join(kinds)}"
    name += end if not saturate else ""
    counts = [r.shape[1] for r in registers] + [out.shape[1]]
    text = mma_kernel(name, counts, [a_kind, b_kind, c_kind, d_kind])
    Device(text, 1 << 20).launch("kernel", 1, 32, *registers, out)
    return unpack_fragment(out, places["d"], d_kind, c.shape)


FLOATING = [
    ("m16n8k8", ("f32", "f16", "f16", "f32")),
    ("m16n8k16", ("f32", "f16", "f16", "f32")),
    ("m16n8k16", ("f16", "f16", "f16", "f16")),
    ("m16n8k8", ("f16", "f16", "f16", "f16")),
    ("m16n8k8", ("f32", "bf16", "bf16", "f32")),
    ("m16n8k16", ("f32", "bf16", "bf16", "f32")),
    ("m16n8k4", ("f32", "tf32", "tf32", "f32")),
    ("m16n8k8", ("f32", "tf32", "tf32", "f32")),
    ("m8n8k4", ("f64", "f64", "f64", "f64")),
]
WHOLE = [
    (shape, ("s32", a, b, "s32"))
    for n, shapes in (
        (8, ("m8n8k16", "m16n8k16", "m16n8k32")),
        (4, ("m8n8k32", "m16n8k32", "m16n8k64")),
    )
    for shape in shapes
    for a, b in ((f"s{n}", f"s{n}"), (f"u{n}", f"s{n}"))
]


def matrices(shape: str, kinds, seed: int = 0):
    m, n, k = (int(v) for v in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
    rng = np.random.default_rng(seed)
    _, a, b, c = kinds
    return (
        random_matrix(rng, (m, k), a),
        random_matrix(rng, (k, n), b),
        random_matrix(rng, (m, n), c),
        k,
    )


def assert_close(d, a, b, c, k, kind):
    exact = a @ b + c
    if kind == "f64":
        np.testing.assert_allclose(d, exact, rtol=0, atol=1e-13 * np.abs(exact).max())
        return
    allowed = bound(a, b, c, k)
    if kind == "f16":
        allowed = allowed + 2.0**-11 * (np.abs(exact) + allowed)
    assert np.all(np.abs(d - exact) <= allowed)


@pytest.mark.parametrize(("shape", "kinds"), FLOATING)
def test_floating_point_mma(shape, kinds):
    a, b, c, k = matrices(shape, kinds)
    assert_close(run_mma(shape, kinds, a, b, c), a, b, c, k, kinds[0])


@pytest.mark.parametrize(("shape", "kinds"), WHOLE)
def test_integer_mma_is_exact(shape, kinds):
    a, b, c, _ = matrices(shape, kinds)
    np.testing.assert_array_equal(run_mma(shape, kinds, a, b, c), a @ b + c)


def test_integer_mma_wraps_or_saturates():
    kinds, shape = ("s32", "u8", "s8", "s32"), "m16n8k32"
    a, b, c, _ = matrices(shape, kinds)
    c = np.where(c > 0, 2**31 - 1, -(2**31)) + np.sign(-c) * (c % 1000)
    exact = a @ b + c
    assert (np.abs(exact) > 2**31).any()
    wrapped = (exact + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(run_mma(shape, kinds, a, b, c), wrapped)
    clamped = np.clip(exact, -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(run_mma(shape, kinds, a, b, c, ".satfinite"), clamped)


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["xor", "and"])
def test_single_bit_mma(shape, operation):
    kinds = ("s32", "b1", "b1", "s32")
    a, b, c, _ = matrices(shape, kinds)
    pairs = a[:, :, None] ^ b[None] if operation == "xor" else a[:, :, None] & b[None]
    out = run_mma(shape, kinds, a, b, c, f".{operation}.popc")
    np.testing.assert_array_equal(out, c + pairs.sum(1))


def test_sums_of_small_integers_are_exact_in_any_order():
    for shape, kinds in FLOATING:
        rng = np.random.default_rng(5)
        a, b, c, _ = matrices(shape, kinds)
        a, b, c = (rng.integers(-8, 9, x.shape).astype(float) for x in (a, b, c))
        np.testing.assert_array_equal(run_mma(shape, kinds, a, b, c), a @ b + c)


def test_halves_of_every_kind_pass_through_mma():
    """A times the identity: subnormal, largest, infinite; NaN stays NaN."""
    special = [0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x8001, 0xFBFF, 0x3C00, 0x3555]
    a = np.zeros((16, 16), np.float64)
    for k, bits in enumerate(special):  # one number a row, so that infinities meet zeros only there
        a[k, k] = np.uint16(bits).view(np.float16)
    for kinds in (("f32", "f16", "f16", "f32"), ("f16", "f16", "f16", "f16")):
        for k in range(len(special)):
            b, c = np.zeros((16, 8)), np.zeros((16, 8))
            b[k] = 1
            finite = np.where(np.isinf(a), 0, a)
            finite[k, k] = a[k, k]
            out = run_mma("m16n8k16", kinds, finite, b, c)
            np.testing.assert_array_equal(out[k], np.full(8, a[k, k]))
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    a[3, 0] = np.nan
    out = run_mma("m16n8k16", ("f32", "f16", "f16", "f32"), a, b, b)
    assert np.isnan(out[3]).all() and (np.delete(out, 3, 0) == 0).all()


def test_rounding_of_f16_results():
    """Sums are rounded to f16 once, to nearest even; what is too large becomes infinite."""
    a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    a[:, 0], b[0] = 1, 1
    a[:, 1], b[1] = [1, 1, 1, 1] * 4, 2.0**-11  # 1 + 2^-11: a tie
    c[:8] = 2.0**-10  # and with this the next tie, to even again
    a[15, 0], b[0, 7], c[15, 7], a[15, 1] = 240, 256, 4096, 0
    out = run_mma("m16n8k16", ("f16",) * 4, a, b, c)
    exact = (a @ b + c).astype(np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, exact.astype(np.float16).astype(np.float64))
    assert np.isinf(out[15, 7])


def test_low_bits_of_tf32_do_not_count():
    shape, kinds = "m16n8k8", ("f32", "tf32", "tf32", "f32")
    a, b, c, _ = matrices(shape, kinds)
    dirty = (a.astype(np.float32).view(np.uint32) | np.uint32(0x1FFF)).view(np.float32)
    np.testing.assert_array_equal(
        run_mma(shape, kinds, dirty, b, c), run_mma(shape, kinds, a, b, c)
    )


# m8n8k4 with .f16: four products, by lanes 4q..4q+3 and 16+4q.. of the warp (9.7.14.5.1)


def quad_places(role: str, kind: str, layout: str):
    high = lambda lane: 4 * (lane >= 16)  # noqa: E731
    product = lambda lane: lane % 16 // 4  # noqa: E731
    if role == "a" and layout == "row":
        return 4, lambda lane, i: (product(lane), lane % 4 + high(lane), i)
    if role == "a":
        return 4, lambda lane, i: (product(lane), i % 4 + high(lane), lane % 4)
    if role == "b" and layout == "row":
        return 4, lambda lane, i: (product(lane), lane % 4, i + high(lane))
    if role == "b":
        return 4, lambda lane, i: (product(lane), i, lane % 4 + high(lane))
    if kind == "f16":
        return 8, lambda lane, i: (product(lane), lane % 4 + high(lane), i)
    return 8, lambda lane, i: (
        product(lane),
        (lane & 1) + (i & 2) + high(lane),
        (i & 4) + (lane & 2) + (i & 1),
    )


@pytest.mark.parametrize("layouts", ["row.col", "row.row", "col.col", "col.row"])
@pytest.mark.parametrize("kinds", [("f32", "f32"), ("f16", "f16"), ("f32", "f16")])
def test_four_products_of_m8n8k4(layouts, kinds):
    rng = np.random.default_rng(9)
    d, c = kinds
    full = (d, "f16", "f16", c)
    shapes = ((4, 8, 4), "f16"), ((4, 4, 8), "f16"), ((4, 8, 8), c)
    a, b, sums = (random_matrix(rng, s, k) for s, k in shapes)
    row_or_col = dict(zip("ab", layouts.split("."), strict=True))
    places = {r: quad_places(r, "f16", row_or_col[r]) for r in "ab"}
    places |= {"c": quad_places("c", c, ""), "d": quad_places("d", d, "")}
    out = run_mma("m8n8k4", full, a, b, sums, layouts=layouts, places=places)
    for q in range(4):
        assert_close(out[q], a[q], b[q], sums[q], 4, d)


@pytest.mark.engine
@pytest.mark.parametrize(
    "name",
    [
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32",
    ],
)
def test_what_no_gpu_of_this_class_has_is_refused(name):
    device = Device(mma_kernel(name, (4, 2, 4, 4), ("f16", "f16", "f32", "f32")), 1 << 20)
    with pytest.raises(simt.Unsupported):
        device.launch("kernel", 1, 32, *(np.zeros(256, np.uint64) for _ in range(4)))


# -- ldmatrix, movmatrix ----------------------------------------

LDMATRIX = r"""
#define LOAD(count, trans, ...) asm volatile("ldmatrix.sync.aligned.m8n8.x" #count trans \
    ".shared.b16 " __VA_ARGS__)
extern "C" {
__global__ void ldmatrix(const uint4 *x, const int *rows, unsigned *out) {
    __shared__ uint4 s[64];
    int t = threadIdx.x;
    s[t] = x[t]; s[t + 32] = x[t + 32];
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(&s[rows[t]]), r[4];
    LOAD(4, "", "{%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int k = 0; k < 4; ++k) out[32 * k + t] = r[k];
    LOAD(4, ".trans", "{%0,%1,%2,%3}, [%4];"
         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int k = 0; k < 4; ++k) out[32 * (4 + k) + t] = r[k];
    LOAD(2, "", "{%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
    LOAD(1, ".trans", "{%0}, [%1];" : "=r"(r[2]) : "r"(at));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r[3]) : "r"(r[0]));
    for (int k = 0; k < 4; ++k) out[32 * (8 + k) + t] = r[k];
    at = (unsigned)__cvta_generic_to_shared(&s[t]);
    LOAD(4, "", "{%0,%1,%2,%3}, [%4+256];"
         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int k = 0; k < 4; ++k) out[32 * (12 + k) + t] = r[k];
}
__global__ void outside(int at, unsigned *out) {
    __shared__ uint4 s[32];
    s[threadIdx.x] = make_uint4(1, 2, 3, 4);
    unsigned p = (unsigned)__cvta_generic_to_shared(s) + 16 * threadIdx.x + at, r;
    LOAD(1, "", "{%0}, [%1];" : "=r"(r) : "r"(p));
    out[threadIdx.x] = r;
}
}
"""


@pytest.fixture(scope="module")
def ldmatrix() -> Device:
    return Device(ptx_of(LDMATRIX))


def test_ldmatrix_and_movmatrix(ldmatrix):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 1 << 16, (64, 8), dtype=np.uint16)
    rows = rng.permutation(64)[:32].astype(np.int32)
    out = np.zeros((16, 32), np.uint32)
    ldmatrix.launch("ldmatrix", 1, 32, x, rows, out)
    halves = out.view(np.uint16).reshape(16, 8, 8)  # lane l: row l / 4, elements 2 (l % 4) and next
    tiles = [x[rows[8 * k : 8 * k + 8]] for k in range(4)]
    for k in range(4):
        np.testing.assert_array_equal(halves[k], tiles[k])
        np.testing.assert_array_equal(halves[4 + k], tiles[k].T)
        np.testing.assert_array_equal(halves[12 + k], x[16 + 8 * k : 24 + 8 * k])
    np.testing.assert_array_equal(halves[8:10], tiles[:2])
    np.testing.assert_array_equal(halves[10], tiles[0].T)
    np.testing.assert_array_equal(halves[11], tiles[0].T)


@pytest.mark.engine
@pytest.mark.parametrize(("at", "kind"), [(400, "out of bounds"), (8, "misaligned")])
def test_ldmatrix_checks_the_rows_it_reads(ldmatrix, at, kind):
    ldmatrix.launch("outside", 1, 32, np.int32(384), np.zeros(32, np.uint32))
    with pytest.raises(simt.Fault) as caught:
        ldmatrix.launch("outside", 1, 32, np.int32(at), np.zeros(32, np.uint32))
    assert caught.value.kind == kind
    assert "read of 16 bytes of shared memory" in str(caught.value)


# -- wmma ----------------------------------------

WMMA = r"""
#include <mma.h>
using namespace nvcuda;
#define KERNEL(name, M, N, K, T, S, LA, LB, LC, E, F) \
    __global__ void name(const E *a, const E *b, F *c, int lda, int ldb, int ldc) { \
        wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::LA> fa; \
        wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::LB> fb; \
        wmma::fragment<wmma::accumulator, M, N, K, S> fc; \
        wmma::load_matrix_sync(fa, a, lda); wmma::load_matrix_sync(fb, b, ldb); \
        wmma::load_matrix_sync(fc, c, ldc, wmma::LC); \
        wmma::mma_sync(fc, fa, fb, fc); wmma::store_matrix_sync(c, fc, ldc, wmma::LC); }
#define FOUR(name, M, N, K, T, S, E, F) \
    KERNEL(name##_row_row, M, N, K, T, S, row_major, row_major, mem_row_major, E, F) \
    KERNEL(name##_row_col, M, N, K, T, S, row_major, col_major, mem_col_major, E, F) \
    KERNEL(name##_col_row, M, N, K, T, S, col_major, row_major, mem_col_major, E, F) \
    KERNEL(name##_col_col, M, N, K, T, S, col_major, col_major, mem_row_major, E, F)
extern "C" {
FOUR(half, 16, 16, 16, __half, float, __half, float)
FOUR(half32, 32, 8, 16, __half, __half, __half, __half)
FOUR(half8, 8, 32, 16, __half, float, __half, float)
FOUR(bf16, 16, 16, 16, __nv_bfloat16, float, __nv_bfloat16, float)
FOUR(bf32, 32, 8, 16, __nv_bfloat16, float, __nv_bfloat16, float)
FOUR(tf32, 16, 16, 8, wmma::precision::tf32, float, float, float)
FOUR(byte, 16, 16, 16, signed char, int, signed char, int)
FOUR(byte8, 8, 32, 16, unsigned char, int, unsigned char, int)
FOUR(dbl, 8, 8, 4, double, double, double, double)
__global__ void nibbles(const int *a, const int *b, int *c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 8, 8, 32, experimental::precision::s4, row_major> fa;
    fragment<matrix_b, 8, 8, 32, experimental::precision::s4, col_major> fb;
    fragment<accumulator, 8, 8, 32, int> fc;
    fill_fragment(fc, 3); load_matrix_sync(fa, a, 32); load_matrix_sync(fb, b, 32);
    mma_sync(fc, fa, fb, fc); store_matrix_sync(c, fc, 8, mem_row_major);
}
__global__ void bits(const int *a, const int *b, int *c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major> fa;
    fragment<matrix_b, 8, 8, 128, experimental::precision::b1, col_major> fb;
    fragment<accumulator, 8, 8, 128, int> fc;
    fill_fragment(fc, 0); load_matrix_sync(fa, a, 128); load_matrix_sync(fb, b, 128);
    bmma_sync(fc, fa, fb, fc); store_matrix_sync(c, fc, 8, mem_row_major);
}
__global__ void through_shared(const __half *a, const __half *b, float *c, int n) {
    __shared__ __half sa[16 * 24], sb[16 * 24];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    int row = blockIdx.y * 16, col = blockIdx.x * 16;
    for (int k = 0; k < n; k += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            sa[i / 16 * 24 + i % 16] = a[(row + i / 16) * n + k + i % 16];
            sb[i / 16 * 24 + i % 16] = b[(k + i / 16) * n + col + i % 16];
        }
        __syncwarp();
        wmma::load_matrix_sync(fa, sa, 24); wmma::load_matrix_sync(fb, sb, 24);
        wmma::mma_sync(fc, fa, fb, fc);
        __syncwarp();
    }
    wmma::store_matrix_sync(c + row * n + col, fc, n, wmma::mem_row_major);
}
}
"""
# name -> (m, n, k, operands, sums)
WMMA_SHAPES = {
    "half": (16, 16, 16, "f16", "f32"),
    "half32": (32, 8, 16, "f16", "f16"),
    "half8": (8, 32, 16, "f16", "f32"),
    "bf16": (16, 16, 16, "bf16", "f32"),
    "bf32": (32, 8, 16, "bf16", "f32"),
    "tf32": (16, 16, 8, "tf32", "f32"),
    "byte": (16, 16, 16, "s8", "s32"),
    "byte8": (8, 32, 16, "u8", "s32"),
    "dbl": (8, 8, 4, "f64", "f64"),
}


@pytest.fixture(scope="module")
def wmma() -> Device:
    return Device(ptx_of(WMMA))


def in_memory(matrix, kind: str, layout: str, more: int) -> tuple[np.ndarray, int]:
    """A matrix as it lies in memory with `more` unused elements in each line; its stride."""
    lines = matrix if layout == "row" else matrix.T
    padded = np.zeros((lines.shape[0], lines.shape[1] + more), lines.dtype)
    padded[:, : lines.shape[1]] = lines
    bits = to_bits(padded, kind)
    return bits.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[BITS[kind]]), (
        padded.shape[1]
    )


@pytest.mark.parametrize("name", WMMA_SHAPES)
@pytest.mark.parametrize("layouts", ["row_row", "row_col", "col_row", "col_col"])
def test_wmma_computes_the_product_of_matrices_in_memory(wmma, name, layouts):
    m, n, k, kind, sums = WMMA_SHAPES[name]
    rng = np.random.default_rng(k + m)
    a, b = (random_matrix(rng, s, kind) for s in ((m, k), (k, n)))
    c = random_matrix(rng, (m, n), sums)
    la, lb = layouts.split("_")
    lc = "row" if la == lb else "col"
    memory = [
        in_memory(x, t, layout, more)
        for x, t, layout, more in ((a, kind, la, 16), (b, kind, lb, 32), (c, sums, lc, 16))
    ]
    arrays, strides = [x for x, _ in memory], [np.int32(s) for _, s in memory]
    before = arrays[2].copy()
    wmma.launch(f"{name}_{layouts}", 1, 32, *arrays, *strides)
    lines = arrays[2]
    columns = n if lc == "row" else m
    np.testing.assert_array_equal(lines[:, columns:], before[:, columns:])
    d = from_bits(lines[:, :columns], sums)
    d = d if lc == "row" else d.T
    if sums == "s32":
        np.testing.assert_array_equal(d, a @ b + c)
    else:
        assert_close(d, a, b, c, k, sums)


def test_wmma_of_nibbles_and_bits(wmma):
    rng = np.random.default_rng(8)
    for name, kind, k in (("nibbles", "s4", 32), ("bits", "b1", 128)):
        a, b = random_matrix(rng, (8, k), kind), random_matrix(rng, (k, 8), kind)
        packed = []
        for lines in (a, b.T):
            bits = to_bits(lines, kind).reshape(-1, 32 // BITS[kind])
            shifts = np.arange(bits.shape[1], dtype=np.uint64) * np.uint64(BITS[kind])
            packed.append((bits << shifts).sum(1, dtype=np.uint64).astype(np.uint32))
        out = np.zeros((8, 8), np.int32)
        wmma.launch(name, 1, 32, *packed, out)
        expected = a @ b + 3 if kind == "s4" else (a[:, :, None] ^ b[None]).sum(1)
        np.testing.assert_array_equal(out, expected)


def test_a_tiled_product_through_shared_memory(wmma):
    n = 48
    rng = np.random.default_rng(6)
    a, b = (random_matrix(rng, (n, n), "f16") for _ in range(2))
    out = np.zeros((n, n), np.float32)
    wmma.launch(
        "through_shared", (3, 3), 32, a.astype(np.float16), b.astype(np.float16), out, np.int32(n)
    )
    assert np.all(np.abs(out - a @ b) <= bound(a, b, np.zeros((n, n)), n))


@pytest.mark.engine
def test_wmma_checks_the_last_row(wmma):
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16)
    short = np.zeros(15 * 16 + 15, np.float32)
    with pytest.raises(simt.Fault) as caught:
        wmma.launch("half_row_row", 1, 32, a, b, short, *[np.int32(16)] * 3)
    assert caught.value.kind == "out of bounds"
    assert "read of 4 bytes of global memory" in str(caught.value)
