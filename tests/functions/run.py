"""Calls functions that CUDA's headers declare, and compares with what an H200 made of them.

A function is known by its declaration, `float fmodf(float, float)`. Each is called by THREADS
threads, on arguments of all kinds: random bits, ordinary numbers, zeros, infinities, NaN, the
smallest and largest. Every NaN counts as the same, since its payload is not defined.

    python -m tests.functions.run                   # all that is recorded (minutes)
    python -m tests.functions.run record HEADERS    # on a GPU: all that is in the toolkit's headers

The record (H200, driver 580.159, nvcc 13.0, 2026-11-30) has a digest of all results where they are
exact. Those of functions with an .approx instruction in their PTX are only near each other on two
devices: of them it has the first results.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from engine import Device, ptx_of  # noqa: E402

RECORD = Path(__file__).with_name("h200.json")
THREADS = 512
KEPT = 64  # results of an approximate function
HEADERS = """cuda_fp16.h cuda_bf16.h crt/device_functions.h crt/device_double_functions.h
crt/math_functions.h sm_20_intrinsics.h sm_30_intrinsics.h sm_32_intrinsics.h sm_61_intrinsics.h
crt/sm_80_rt.h""".split()

# C's name of a type: the letter and size of its elements (h: half, b: bfloat16), and how many.
TYPES = {
    "__half": ("h", 2, 1),
    "__half2": ("h", 2, 2),
    "__nv_bfloat16": ("b", 2, 1),
    "__nv_bfloat162": ("b", 2, 2),
    "float": ("f", 4, 1),
    "float2": ("f", 4, 2),
    "double": ("f", 8, 1),
    "bool": ("u", 1, 1),
    "char": ("i", 1, 1),
    "signed char": ("i", 1, 1),
    "unsigned char": ("u", 1, 1),
    "short": ("i", 2, 1),
    "short int": ("i", 2, 1),
    "unsigned short": ("u", 2, 1),
    "unsigned short int": ("u", 2, 1),
    "int": ("i", 4, 1),
    "unsigned": ("u", 4, 1),
    "unsigned int": ("u", 4, 1),
    "long int": ("i", 8, 1),
    "unsigned long int": ("u", 8, 1),
    "long long": ("i", 8, 1),
    "long long int": ("i", 8, 1),
    "unsigned long long": ("u", 8, 1),
    "unsigned long long int": ("u", 8, 1),
}
# Mantissa bits of the floating-point types, to make infinities and the like.
_MANTISSA = {("h", 2): 10, ("b", 2): 7, ("f", 4): 23, ("f", 8): 52}
# Not compared: votes of the whole warp, which ptxas takes no more; Bessel functions, which loop n
# times; __fns, whose base is to be below 32; __sinf and the like, which are approximate between
# -pi and pi alone. Also the functions of a warp, __..._sync: their masks must be what the warp is.
_LEFT_OUT = set("any all ballot __any __all __ballot jn jnf yn ynf __fns".split())
_LEFT_OUT |= set("operator __sinf __cosf __tanf".split())
_TYPE = "|".join(re.escape(t).replace(r"\ ", r"\s+") for t in sorted(TYPES, key=len, reverse=True))
_DECLARATION = re.compile(
    rf"\b({_TYPE})\s+(?:__cdecl\s+)?(\w+)\s*\(([^()]*)\)\s*(?=__|noexcept|;|\{{|throw)"
)


def declarations(folder: Path) -> list[str]:
    """Functions in the toolkit's headers that take values and return one."""
    found: dict[str, None] = {}
    for name in HEADERS:
        text = (folder / name).read_text(errors="replace")
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//.*", " ", text)
        text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
        for match in _DECLARATION.finditer(text):
            result, function, parameters = match.groups()
            given = [
                re.fullmatch(rf"\s*(?:const\s+)?({_TYPE})(?:\s+\w+)?\s*", p)
                for p in parameters.split(",")
            ]
            if function in _LEFT_OUT or function.endswith("_sync"):
                continue
            if all(given):
                kinds = ", ".join(_words(g[1]) for g in given)
                found[f"{_words(result)} {function}({kinds})"] = None
    return list(found)


def _words(text: str) -> str:
    return " ".join(text.split())


def parts(declaration: str) -> tuple[str, str, list[str]]:
    """Type of the result, name, types of the arguments."""
    result, name, kinds = re.fullmatch(r"(.+?) (\w+)\((.*)\)", declaration).groups()
    return result, name, kinds.split(", ")


def source(given: list[str]) -> str:
    """One kernel f0, f1, … for each declaration."""
    lines = ["#include <cuda_fp16.h>", "#include <cuda_bf16.h>"]
    for k, declaration in enumerate(given):
        result, name, kinds = parts(declaration)
        parameters = ", ".join(f"const {kind} *a{j}" for j, kind in enumerate(kinds))
        values = ", ".join(
            f"a{j}[(threadIdx.x * {step} + {j}) % {THREADS}]"
            for j, (_, step) in enumerate(zip(kinds, (1, 3, 5, 7, 11, 13), strict=False))
        )
        lines.append(
            f'extern "C" __global__ void f{k}({parameters}, {result} *out) '
            f"{{ out[threadIdx.x] = {name}({values}); }}"
        )
    return "\n".join(lines)


@functools.cache
def arguments(kind: str) -> np.ndarray:
    """THREADS values of a type, as bytes."""
    letter, size, count = TYPES[kind]
    random = np.random.default_rng([ord(letter), size, count])
    n = THREADS * count
    unsigned = np.dtype(f"u{size}")
    bits = 8 * size
    values = random.integers(0, 1 << bits, n, dtype=np.uint64, endpoint=False) if bits < 64 else (
        random.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True))  # fmt: skip
    if kind == "bool":
        return (values & 1).astype(unsigned)
    if letter in "ui":
        small = random.integers(-40, 40, n).astype(np.uint64)
        edges = np.array([0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1], np.uint64)
    else:
        mantissa = _MANTISSA[letter, size]
        numbers = random.standard_normal(n) * np.exp2(random.integers(-6, 9, n))
        numbers[:40] = np.round(numbers[:40])
        small = _bits_of(numbers, letter, size)
        infinity = (1 << bits - 1) - (1 << mantissa)
        one = ((1 << bits - mantissa - 2) - 1) << mantissa
        edges = np.array([0, 1, 1 << mantissa, (1 << mantissa) - 1, one, infinity - 1, infinity,
                          infinity + (1 << mantissa - 1)], np.uint64)  # fmt: skip
        edges = np.concatenate([edges, edges | np.uint64(1 << bits - 1)])
    values = np.where(random.random(n) < 0.6, small, values)
    values[random.permutation(n)[: 6 * len(edges)]] = np.repeat(edges, 6)
    return values.astype(unsigned)


def _bits_of(numbers: np.ndarray, letter: str, size: int) -> np.ndarray:
    if letter == "b":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
    return numbers.astype(f"f{size}").view(f"u{size}").astype(np.uint64)


def results(device: Device, k: int, declaration: str) -> np.ndarray:
    """What f{k} gives, as unsigned integers, with one NaN for all."""
    result, _, kinds = parts(declaration)
    letter, size, count = TYPES[result]
    out = np.zeros(THREADS * count, f"u{size}")
    device.launch(f"f{k}", 1, THREADS, *(arguments(kind).copy() for kind in kinds), out)
    if (letter, size) in _MANTISSA:
        mantissa = _MANTISSA[letter, size]
        infinity = out.dtype.type((1 << 8 * size - 1) - (1 << mantissa))
        magnitude = out & out.dtype.type((1 << 8 * size - 1) - 1)
        out[magnitude > infinity] = infinity + 1
    return out


def digest(out: np.ndarray) -> str:
    return hashlib.sha256(out.tobytes()).hexdigest()[:16]


def compilable(given: list[str]) -> list[str]:
    """Those that nvcc takes: some of the headers' are there for other compilers."""
    while True:
        try:
            ptx_of(source(given))
            return given
        except AssertionError as error:
            lines = {int(n) for n in re.findall(r"kernel\.cu\((\d+)\): error", str(error))}
            given = [d for k, d in enumerate(given) if k + 3 not in lines]


def record(folder: Path) -> None:
    """Write what the device at hand makes of the functions in the headers."""
    given = compilable(declarations(folder))
    text = ptx_of(source(given))
    device = Device(text)
    exact: dict[str, str] = {}
    approximate: dict[str, str] = {}
    for k, declaration in enumerate(given):
        out = results(device, k, declaration)
        body = text.split(f".entry f{k}(", 1)[1].split("\n}\n", 1)[0]
        if ".approx" in body:
            approximate[declaration] = out[:KEPT].tobytes().hex()
        else:
            exact[declaration] = digest(out)
    RECORD.write_text(json.dumps({"exact": exact, "approximate": approximate}, indent=0) + "\n")


def differences(step: int = 1) -> list[str]:
    """Those of every step-th recorded function that the device at hand does otherwise."""
    recorded = json.loads(RECORD.read_text())
    exact, approximate = recorded["exact"], recorded["approximate"]
    given = list(exact)[::step] + list(approximate)[::step]
    device = Device(ptx_of(source(given)))
    found = []
    for k, declaration in enumerate(given):
        out = results(device, k, declaration)
        if declaration in exact:
            same = digest(out) == exact[declaration]
        else:
            theirs = np.frombuffer(bytes.fromhex(approximate[declaration]), out.dtype)
            same = _near(parts(declaration)[0], out[:KEPT], theirs)
        if not same:
            found.append(declaration)
    return found


# How far results of .approx instructions may be from each other, relatively: some last digits, or
# what tanh.approx and __powf are allowed (CUDA Programming Guide, mathematical functions).
_NEAR = {2: 2.0**-9, 4: 2.0**-16, 8: 2.0**-50}


def _near(kind: str, ours: np.ndarray, theirs: np.ndarray) -> bool:
    letter, size, _ = TYPES[kind]
    if (letter, size) not in _MANTISSA:
        return np.array_equal(ours, theirs)
    with np.errstate(invalid="ignore"):
        a, b = (_numbers_of(bits, letter) for bits in (ours, theirs))
        finite = np.isfinite(b)
        near = abs(a - b) <= _NEAR[size] * abs(b)
    return bool(np.where(finite, near, ours == theirs).all())


def _numbers_of(bits: np.ndarray, letter: str) -> np.ndarray:
    if letter == "b":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view(f"f{bits.itemsize}").astype(np.float64)


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]))
    else:
        print(*differences() or ["no difference"], sep="\n")
