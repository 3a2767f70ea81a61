"""What single expressions of CUDA C compute, against NumPy, on ordinary and awkward values."""

from __future__ import annotations

import numpy as np
import pytest
from engine import Device, ptx_of

F32, F64, I32, U32, I64, U64 = (np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64)
C_TYPES = {
    F32: "float",
    F64: "double",
    I32: "int",
    U32: "unsigned",
    I64: "long long",
    U64: "unsigned long long",
    np.int16: "short",
    np.uint8: "unsigned char",
    np.int8: "signed char",
    np.uint16: "unsigned short",
}


def u64(x):
    return x.astype(U64)


def truncated_quotient(a, b):
    """C's division: towards zero."""
    return np.where(
        (a < 0) != (b < 0),
        -(np.abs(a.astype(object)) // np.abs(b.astype(object))),
        np.abs(a.astype(object)) // np.abs(b.astype(object)),
    ).astype(a.dtype)


def bytes_of(x):
    return x.view(np.uint8).reshape(-1, 4).astype(np.int32)


def bits_of(x):
    return x.view({4: U32, 8: U64}[x.dtype.itemsize])


# name: (argument types, result type, CUDA C on x, y, z, NumPy on x, y, z)
CASES = {
    "fadd": ((F32, F32), F32, "x + y", lambda x, y: x + y),
    "fsub": ((F32, F32), F32, "x - y", lambda x, y: x - y),
    "fmul": ((F32, F32), F32, "x * y", lambda x, y: x * y),
    "fdiv": ((F32, F32), F32, "x / y", lambda x, y: x / y),
    "fsqrt": ((F32,), F32, "sqrtf(x)", lambda x: np.sqrt(x)),
    "frcp": ((F32,), F32, "__frcp_rn(x)", lambda x: F32(1) / x),
    "fabs": ((F32,), F32, "fabsf(x)", lambda x: np.abs(x)),
    "fneg": ((F32,), F32, "-x", lambda x: -x),
    "dadd": ((F64, F64), F64, "x + y", lambda x, y: x + y),
    "dmul": ((F64, F64), F64, "x * y", lambda x, y: x * y),
    "ddiv": ((F64, F64), F64, "x / y", lambda x, y: x / y),
    "dsqrt": ((F64,), F64, "sqrt(x)", lambda x: np.sqrt(x)),
    "f_to_d": ((F32,), F64, "(double)x", lambda x: x.astype(F64)),
    "d_to_f": ((F64,), F32, "(float)x", lambda x: x.astype(F32)),
    "i_to_f": ((I32,), F32, "(float)x", lambda x: x.astype(F32)),
    "u_to_f": ((U32,), F32, "(float)x", lambda x: x.astype(F32)),
    "l_to_f": ((I64,), F32, "(float)x", lambda x: x.astype(F32)),
    "i_to_d": ((I32,), F64, "(double)x", lambda x: x.astype(F64)),
    "floor": ((F32,), F32, "floorf(x)", lambda x: np.floor(x)),
    "ceil": ((F32,), F32, "ceilf(x)", lambda x: np.ceil(x)),
    "trunc": ((F32,), F32, "truncf(x)", lambda x: np.trunc(x)),
    "rint": ((F32,), F32, "rintf(x)", lambda x: np.rint(x)),
    "fmin": ((F32, F32), F32, "fminf(x, y)", lambda x, y: np.fmin(x, y)),
    "fmax": ((F32, F32), F32, "fmaxf(x, y)", lambda x, y: np.fmax(x, y)),
    "flt": ((F32, F32), I32, "x < y", lambda x, y: x < y),
    "fge": ((F32, F32), I32, "x >= y", lambda x, y: x >= y),
    "fne": ((F32, F32), I32, "x != y", lambda x, y: x != y),
    "feq": ((F32, F32), I32, "x == y", lambda x, y: x == y),
    "fnotlt": ((F32, F32), I32, "!(x < y)", lambda x, y: ~(x < y)),
    "fselect": ((F32, F32), F32, "x > 0 ? x : y", lambda x, y: np.where(x > 0, x, y)),
    "f_bits": ((F32,), U32, "__float_as_uint(x) ^ 1u", lambda x: bits_of(x) ^ U32(1)),
    "iadd": ((I32, I32), I32, "x + y", lambda x, y: x + y),
    "isub": ((I32, I32), I32, "x - y", lambda x, y: x - y),
    "imul": ((I32, I32), I32, "x * y", lambda x, y: x * y),
    "imad": ((I32, I32, I32), I32, "x * y + z", lambda x, y, z: x * y + z),
    "iwide": ((I32, I32), I64, "(long long)x * y", lambda x, y: x.astype(I64) * y),
    "uwide": ((U32, U32), U64, "(unsigned long long)x * y", lambda x, y: u64(x) * y),
    "wide_mad": (
        (I32, I32, I64),
        I64,
        "(long long)x * y + z",
        lambda x, y, z: x.astype(I64) * y + z,
    ),
    "umulhi": ((U32, U32), U32, "__umulhi(x, y)", lambda x, y: (u64(x) * y >> U64(32)).astype(U32)),
    "imulhi": (
        (I32, I32),
        I32,
        "__mulhi(x, y)",
        lambda x, y: (x.astype(I64) * y >> 32).astype(I32),
    ),
    "u64mulhi": (
        (U64, U64),
        U64,
        "__umul64hi(x, y)",
        lambda x, y: (x.astype(object) * y.astype(object) >> 64).astype(U64),
    ),
    "lmul": ((I64, I64), I64, "x * y", lambda x, y: x * y),
    "idiv": (
        (I32, I32),
        I32,
        "y == 0 || y == -1 ? 0 : x / y",
        lambda x, y: np.where(
            (y == 0) | (y == -1), 0, truncated_quotient(x, np.where(y == 0, 1, y))
        ),
    ),
    "irem": (
        (I32, I32),
        I32,
        "y == 0 || y == -1 ? 0 : x % y",
        lambda x, y: np.where((y == 0) | (y == -1), 0, np.fmod(x, np.where(y == 0, 1, y))),
    ),
    "udiv": (
        (U32, U32),
        U32,
        "y ? x / y : 1",
        lambda x, y: np.where(y != 0, x // np.where(y, y, 1), 1),
    ),
    "urem": (
        (U32, U32),
        U32,
        "y ? x % y : 1",
        lambda x, y: np.where(y != 0, x % np.where(y, y, 1), 1),
    ),
    "udiv7": ((U32,), U32, "x / 7", lambda x: x // U32(7)),
    "idiv10": ((I32,), I32, "x / 10", lambda x: truncated_quotient(x, np.full_like(x, 10))),
    "ldiv": (
        (I64, I64),
        I64,
        "y == 0 || y == -1 ? 0 : x / y",
        lambda x, y: np.where(
            (y == 0) | (y == -1), 0, truncated_quotient(x, np.where(y == 0, 1, y))
        ),
    ),
    "imin": ((I32, I32), I32, "min(x, y)", lambda x, y: np.minimum(x, y)),
    "umax": ((U32, U32), U32, "max(x, y)", lambda x, y: np.maximum(x, y)),
    "iabs": ((I32,), I32, "abs(x)", lambda x: np.abs(x)),
    "ineg": ((I32,), I32, "-x", lambda x: -x),
    "and": ((U32, U32), U32, "x & y", lambda x, y: x & y),
    "lop3": ((U32, U32, U32), U32, "(x & y) ^ (~z | x)", lambda x, y, z: (x & y) ^ (~z | x)),
    "not": ((U64,), U64, "~x", lambda x: ~x),
    "shl": ((U32, U32), U32, "x << (y & 31)", lambda x, y: x << (y & U32(31))),
    "shr": ((U32, U32), U32, "x >> (y & 31)", lambda x, y: x >> (y & U32(31))),
    "sar": ((I32, I32), I32, "x >> (y & 31)", lambda x, y: x >> (y & 31)),
    "shl64": ((U64, U32), U64, "x << (y & 63)", lambda x, y: x << u64(y & U32(63))),
    "sar64": ((I64, U32), I64, "x >> (y & 63)", lambda x, y: x >> (y & U32(63)).astype(I64)),
    "funnel": (
        (U32, U32, U32),
        U32,
        "__funnelshift_l(x, y, z)",
        lambda x, y, z: ((u64(y) << U64(32) | x) << u64(z & U32(31)) >> U64(32)).astype(U32),
    ),
    "funnel_r": (
        (U32, U32, U32),
        U32,
        "__funnelshift_r(x, y, z)",
        lambda x, y, z: ((u64(y) << U64(32) | x) >> u64(z & U32(31))).astype(U32),
    ),
    "popc": ((U32,), I32, "__popc(x)", lambda x: np.bitwise_count(x)),
    "popcll": ((U64,), I32, "__popcll(x)", lambda x: np.bitwise_count(x)),
    "clz": ((U32,), I32, "__clz(x)", lambda x: np.array([32 - int(v).bit_length() for v in x])),
    "ffs": (
        (U32,),
        I32,
        "__ffs(x)",
        lambda x: np.array([(int(v) & -int(v)).bit_length() for v in x]),
    ),
    "brev": ((U32,), U32, "__brev(x)", lambda x: np.array([int(f"{v:032b}"[::-1], 2) for v in x])),
    "byte_perm": (
        (U32, U32),
        U32,
        "__byte_perm(x, y, 0x6142)",
        lambda x, y: (
            (x >> U32(16) & U32(255))
            | (y & U32(255)) << U32(8)
            | (x >> U32(8) & U32(255)) << U32(16)
            | (y >> U32(16) & U32(255)) << U32(24)
        ),
    ),
    "sad_of_bytes": (
        (U32, U32),
        U32,
        "__vsadu4(x, y)",
        lambda x, y: np.abs(bytes_of(x) - bytes_of(y)).sum(1).astype(U32),
    ),
    "sad_of_signed_halves": (
        (I32, I32),
        U32,
        "__vsads2(x, y)",
        lambda x, y: (
            np.abs(x.view(np.int16).reshape(-1, 2).astype(I32) - y.view(np.int16).reshape(-1, 2))
            .sum(1)
            .astype(U32)
        ),
    ),
    "differences_of_bytes": (
        (U32, U32),
        U32,
        "__vabsdiffu4(x, y)",
        lambda x, y: np.abs(bytes_of(x) - bytes_of(y)).astype(np.uint8).view(U32)[:, 0],
    ),
    "dp4a": (
        (I32, I32, I32),
        I32,
        "__dp4a(x, y, z)",
        lambda x, y, z: (
            z
            + (x.view(np.int8).reshape(-1, 4).astype(I32) * y.view(np.int8).reshape(-1, 4)).sum(
                1, dtype=I32
            )
        ),
    ),
    "to_char": ((I32,), np.int8, "(signed char)x", lambda x: x.astype(np.int8)),
    "to_short": ((I32,), np.int16, "(short)x", lambda x: x.astype(np.int16)),
    "char_up": ((np.int8,), I32, "x * 3", lambda x: x.astype(I32) * 3),
    "uchar_up": ((np.uint8,), I32, "x * 3", lambda x: x.astype(I32) * 3),
    "short_add": ((np.int16, np.int16), np.int16, "x + y", lambda x, y: x + y),
    "i_to_l": ((I32,), I64, "(long long)x", lambda x: x.astype(I64)),
    "u_to_l": ((U32,), I64, "(long long)x", lambda x: x.astype(I64)),
    "l_to_i": ((I64,), I32, "(int)x", lambda x: x.astype(I32)),
    "ilt": ((I32, I32), I32, "x < y", lambda x, y: x < y),
    "ult": ((U32, U32), I32, "x < y", lambda x, y: x < y),
    "logic": (
        (I32, I32),
        I32,
        "(x > 3 && y < 9) || x == y",
        lambda x, y: ((x > 3) & (y < 9)) | (x == y),
    ),
}
# float -> integer: the range that is defined everywhere
CONVERSIONS = {
    "f_to_i": (F32, I32, "(int)x"),
    "f_to_u": (F32, U32, "(unsigned)x"),
    "d_to_i": (F64, I32, "(int)x"),
    "d_to_l": (F64, I64, "(long long)x"),
    "f_rint": (F32, I32, "__float2int_rn(x)"),
    "f_floor": (F32, I32, "__float2int_rd(x)"),
}
N = 1000


def values(dtype, rng) -> np.ndarray:
    """Random values of all magnitudes, the awkward ones among them."""
    if dtype in (F32, F64):
        x = (rng.standard_normal(N) * 10.0 ** rng.integers(-44, 38, N)).astype(dtype)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, 0.5, 2.5]
    else:
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True)
        x[::3] = rng.integers(0, 20, len(x[::3]))
        special = [0, 1, info.max, info.min, 2, 3, info.max - 1, 31, 32, 33, 63, 64]
        special = [min(s, info.max) for s in special]
    x[rng.choice(N, 12 * len(special), replace=False)] = np.array(12 * special).astype(dtype)
    return x


def kernel(name, arguments, result, expression) -> str:
    names = "xyz"[: len(arguments)]
    parameters = "".join(
        f"const {C_TYPES[t]} *{n}s, " for n, t in zip(names, arguments, strict=True)
    )
    loads = " ".join(f"{C_TYPES[t]} {n} = {n}s[i];" for n, t in zip(names, arguments, strict=True))
    return (
        f'extern "C" __global__ void k_{name}({parameters}{C_TYPES[result]} *out, int n) {{'
        f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; {loads}"
        f"out[i] = {expression}; }}\n"
    )


@pytest.fixture(scope="module")
def device() -> Device:
    source = "".join(kernel(name, a, r, e) for name, (a, r, e, _) in CASES.items())
    source += "".join(kernel(name, (a,), r, e) for name, (a, r, e) in CONVERSIONS.items())
    return Device(ptx_of(source, "-fmad=false"))


def run(device, name, xs, result, block=128):
    out = np.zeros(N, result)
    device.launch(f"k_{name}", -(-N // block), block, *xs, out, np.int32(N))
    return out


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_expression_equals_numpy(device, name):
    arguments, result, _, oracle = CASES[name]
    rng = np.random.default_rng(len(name))
    xs = [values(t, rng) for t in arguments]
    expected = np.asarray(oracle(*xs)).astype(result)
    out = run(device, name, xs, result)
    np.testing.assert_array_equal(out, expected)
    if result in (F32, F64):  # signs of zeros too
        keep = ~np.isnan(expected) & ((expected != 0) | (name not in ("fmin", "fmax")))
        np.testing.assert_array_equal(np.signbit(out[keep]), np.signbit(expected[keep]))


@pytest.mark.parametrize("name", CONVERSIONS)
def test_float_to_integer(device, name):
    source, result, _ = CONVERSIONS[name]
    x = np.random.default_rng(3).uniform(-2e9 if result is not U32 else 0, 2e9, N).astype(source)
    x[:12] = [0, -0.0, 0.5, 1.5, 2.5, 0.49, 0.99, 3, 100.5, 101.5, 7, 1e9]
    rounding = {"f_rint": np.rint, "f_floor": np.floor}.get(name, np.trunc)
    np.testing.assert_array_equal(run(device, name, [x], result), rounding(x).astype(result))


# CUDA C on x, NumPy in float64, error allowed in ulp (the CUDA guide's bounds)
APPROXIMATE = {
    "exp2f": ("exp2f(x)", np.exp2, 2),
    "expf": ("expf(x)", np.exp, 2),
    "logf": ("logf(x)", np.log, 2),
    "sinf": ("sinf(x)", np.sin, 2),
    "cosf": ("cosf(x)", np.cos, 2),
    "rsqrtf": ("rsqrtf(x)", None, 2),
    "tanhf": ("tanhf(x)", np.tanh, 3),
    "powf": ("powf(x, 1.7f)", lambda x: x ** np.float64(F32(1.7)), 8),
}


def test_mathematical_functions_are_within_the_cuda_guides_bounds():
    source = "".join(kernel(n, (F32,), F32, e) for n, (e, _, _) in APPROXIMATE.items())
    device = Device(ptx_of(source))
    x = np.random.default_rng(5).uniform(0.01, 20, N).astype(F32)
    for name, (_, oracle, ulps) in APPROXIMATE.items():
        exact = (oracle or (lambda v: 1 / np.sqrt(v)))(x.astype(F64))
        out = run(device, name, [x], F32)
        assert np.all(np.abs(out - exact) <= ulps * np.spacing(np.abs(exact).astype(F32))), name
