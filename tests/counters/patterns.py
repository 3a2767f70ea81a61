"""Single accesses of one warp, each of its own pattern, to be counted on a GPU and by the engine.

A pattern says where each active lane's access lies. The kernels take it from constant memory, whose
reads are not among what is counted. All instructions are volatile inline PTX, so that ptxas makes
each as it is written.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

LANES = 32
SIZES = (1, 2, 4, 8, 16)
SPAN = 16384  # bytes that patterns reach over
COPIES = (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16))  # of cp.async: caching, bytes

_TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
_REGISTERS = {1: "h", 2: "h", 4: "r", 8: "r", 16: "r"}


@dataclass(frozen=True)
class Pattern:
    """space: "global", "shared" or "local"; operation: "load", "store", "atom", "red" or "matrix"
    (ldmatrix); size: bytes of a lane, or matrices; places: a byte address for each lane; mask: a
    bit for each active one.

    For "copy" (cp.async) space is how it caches, and targets are the places in shared memory.
    """

    space: str
    operation: str
    size: int
    places: tuple[int, ...]
    mask: int
    what: str
    targets: tuple[int, ...] = (0,) * LANES

    @property
    def kernel(self) -> str:
        return f"{self.space}_{self.operation}_{self.size}"


def source() -> str:
    """CUDA C with a kernel for each space, operation and size, and the pattern they all read."""
    parts = ["__constant__ unsigned places[32], targets[32], active;"]
    for space in ("global", "shared"):
        for operation in ("load", "store"):
            parts += [_kernel(space, operation, size) for size in SIZES]
        for operation in ("atom", "red"):
            parts += [_kernel(space, operation, size) for size in (4, 8)]
    for operation in ("load", "store"):
        parts += [_kernel("local", operation, size) for size in SIZES]
    parts += [_copy(how, size) for how, size in COPIES]
    parts += [_matrices(count) for count in (1, 2, 4)]
    return "\n".join(parts)


def _copy(how: str, size: int) -> str:
    """cp.async: from places in global memory to places in shared memory."""
    return f"""
extern "C" __global__ void {how}_copy_{size}(char *memory)
{{
    __shared__ alignas(128) char s[{SPAN}];
    unsigned to = (unsigned)__cvta_generic_to_shared(s) + targets[threadIdx.x];
    char *from = memory + places[threadIdx.x];
    if (active >> threadIdx.x & 1)
        asm volatile("cp.async.{how}.shared.global [%0], [%1], {size};" :: "r"(to), "l"(from));
    asm volatile("cp.async.wait_all;" ::: "memory");
}}"""


def _matrices(count: int) -> str:
    """ldmatrix: 8 rows of 16 bytes for each of 1, 2 or 4 matrices; lanes 0 to 8 * count - 1 give
    their places."""
    registers = ", ".join(f"%{k}" for k in range(count))
    outputs = ", ".join(f'"=r"(v{k})' for k in range(count))
    values = [f"v{k}" for k in range(count)]
    return f"""
extern "C" __global__ void shared_matrix_{count}(char *memory)
{{
    __shared__ alignas(128) char s[{SPAN}];
    unsigned a = (unsigned)__cvta_generic_to_shared(s) + places[threadIdx.x];
    unsigned {", ".join(values)};
    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{registers}}}, [%{count}];"
                 : {outputs} : "r"(a) : "memory");
    if (({" ^ ".join(values)}) == 77) memory[0] = 1;
}}"""


def _kernel(space: str, operation: str, size: int) -> str:
    array = {
        "global": "char *a = memory + at;",
        "shared": f"__shared__ alignas(128) char s[{SPAN}]; "
        "unsigned a = (unsigned)__cvta_generic_to_shared(s) + at;",
        "local": f"alignas(16) char l[{SPAN // LANES}]; l[at % 7] = at; "
        'unsigned long long a; asm volatile("cvta.to.local.u64 %0, %1;" : "=l"(a) : "l"(l)); '
        "a += at;",
    }[space]
    letter = "r" if space == "shared" else "l"
    how = space if space == "local" else f"volatile.{space}"
    values = [f"v{k}" for k in range(max(1, size // 4))]
    declared = "unsigned short" if size < 4 else "unsigned"
    variables = f"{declared} {', '.join(f'{v} = lane' for v in values)};"
    count = len(values)
    if operation == "load":
        outputs = ", ".join(f'"={_REGISTERS[size]}"({v})' for v in values)
        names = ", ".join(f"%{k}" for k in range(count))
        names = f"{{{names}}}" if count > 1 else names
        asm = f'"ld.{how}.{_TYPES[size]} {names}, [%{count}];" : {outputs} : "{letter}"(a)'
        after = f"if ({' ^ '.join(values)} == 77) memory[0] = 1;"
    elif operation == "store":
        inputs = ", ".join(f'"{_REGISTERS[size]}"({v})' for v in values)
        names = ", ".join(f"%{k + 1}" for k in range(count))
        names = f"{{{names}}}" if count > 1 else names
        asm = f'"st.{how}.{_TYPES[size]} [%0], {names};" :: "{letter}"(a), {inputs}'
        after = ""
    else:
        asm, variables = _atomic(space, operation, size, letter)
        after = "if (old == 0xFFFFFFF) memory[0] = 1;" if operation == "atom" else ""
    return f"""
extern "C" __global__ void {space}_{operation}_{size}(char *memory)
{{
    unsigned lane = threadIdx.x, at = places[lane];
    {array}
    {variables}
    if (active >> lane & 1) {{
        asm volatile({asm} : "memory");
        {after}
    }}
}}"""


def _atomic(space: str, operation: str, size: int, letter: str) -> tuple[str, str]:
    """The instruction, and the variables it uses."""
    kind, register, ty = {4: ("u32", "r", "unsigned"), 8: ("u64", "l", "unsigned long long")}[size]
    if operation == "red":
        asm = f'"red.{space}.add.{kind} [%0], %1;" :: "{letter}"(a), "{register}"(more)'
        return asm, f"{ty} more = lane;"
    asm = f'"atom.{space}.add.{kind} %0, [%1], %2;" : "={register}"(old) : "{letter}"(a), '
    return asm + f'"{register}"(more)', f"{ty} old, more = lane;"


def patterns() -> Iterator[Pattern]:
    """The patterns: strides, shifts, broadcasts, tiles, swizzles, random ones, some lanes idle."""
    r = random.Random(20261130)
    whole = (1 << LANES) - 1
    for space, operation in (("global", "load"), ("global", "store"), ("shared", "load"),
                             ("shared", "store")):  # fmt: skip
        for size in SIZES:
            for what, index in _indices(size, r):
                places = tuple(size * k % SPAN for k in index)
                mask = whole if r.random() < 0.6 else r.getrandbits(32) | 1 << r.randrange(32)
                yield Pattern(space, operation, size, places, mask, what)
    for space in ("global", "shared"):
        for operation, size in itertools.product(("atom", "red"), (4, 8)):
            for what, index in _indices(size, r):
                places = tuple(size * k % SPAN for k in index)
                mask = whole if r.random() < 0.6 else r.getrandbits(32) | 1
                yield Pattern(space, operation, size, places, mask, what)
    for operation in ("load", "store"):
        for size in SIZES:
            inside = SPAN // LANES // size
            for what in ("same offset", "stride", "random", "random, some idle"):
                first = r.randrange(inside)
                index = {
                    "same offset": [first] * LANES,
                    "stride": [(first + lane) % inside for lane in range(LANES)],
                }.get(what, [r.randrange(min(inside, 20)) for _ in range(LANES)])
                mask = r.getrandbits(32) | 1 if "idle" in what else whole
                yield Pattern("local", operation, size, tuple(size * k for k in index), mask, what)
    for size in (8, 16):
        for what, index in _pairs(r):
            some = r.getrandbits(32) | r.choice((1, 1 << 31, 0xFFFF, 0xFFFF0000))
            mask = whole if r.random() < 0.5 else some
            yield Pattern("shared", "load", size, tuple(size * k for k in index), mask, what)
    for how, size in COPIES:
        for what, index in _indices(size, r):
            first = r.randrange(20)
            to = range(first, first + LANES)
            if what in ("random", "swizzle", "reversed"):
                to = r.sample(range(SPAN // size), LANES)
            places, targets = (tuple(size * k % SPAN for k in x) for x in (index, to))
            mask = whole if r.random() < 0.6 else r.getrandbits(32) | 1
            yield Pattern(how, "copy", size, places, mask, what, targets)
    for count in (1, 2, 4):
        for what, index in _indices(16, r):
            yield Pattern(
                "shared", "matrix", count, tuple(16 * k % SPAN for k in index), whole, what
            )


def _pairs(r: random.Random) -> Iterator[tuple[str, list[int]]]:
    """Lanes in twos or fours that read the same, with and without conflicts."""
    keep = {1: ~1, 2: ~2, 3: ~3}
    for together, span in itertools.product(keep, (8, 12, 16, 32, 256)):
        pool = [r.randrange(span) for _ in range(LANES)]
        yield f"with lane ^ {together}, of {span}", [pool[t & keep[together]] for t in range(LANES)]
    for together in keep:
        pool = [8 * r.randrange(9) + k for k in r.sample(range(8), 8) * 4]  # a bank each
        rank = {t: k for k, t in enumerate(sorted({t & keep[together] for t in range(LANES)}))}
        for _ in range(3):
            yield f"with lane ^ {together}", [pool[rank[t & keep[together]]] for t in range(LANES)]
    pool = [r.randrange(64) for _ in range(LANES)]
    for low, high in ((1, 0), (0, 1), (1, 2), (2, 1)):
        yield (
            f"with lane ^ {low}, then ^ {high}",
            [pool[t & ~(low if t < 16 else high)] for t in range(LANES)],
        )
        yield (
            f"neighbours, with lane ^ {low}, then ^ {high}",
            [t & ~(low if t < 16 else high) for t in range(LANES)],
        )


def _indices(size: int, r: random.Random) -> Iterator[tuple[str, list[int]]]:
    """(name, index of each lane's element of `size` bytes)."""
    lanes = range(LANES)
    shift = r.randrange(1, 40)
    stride = r.randrange(2, 40)
    yield f"stride {stride}", [stride * t for t in lanes]
    yield f"shifted by {shift}", [t + shift for t in lanes]
    yield "random", [r.randrange(SPAN // size) for _ in lanes]
    yield "random, few", [r.randrange(40) for _ in lanes]
    yield "reversed", [31 - t for t in lanes]
    wide, pad = r.choice((8, 16)), r.choice((0, 1, 2, 4))
    yield (
        f"tile {wide} wide, rows {wide + pad} apart",
        [t % wide + (wide + pad) * (t // wide) for t in lanes],
    )
    yield f"column of a {wide}-wide tile", [(wide + pad) * (t % wide) + t // wide for t in lanes]
    yield "swizzle", [32 * t + (t ^ shift % 32) for t in lanes]
    pairs = [r.randrange(200) for _ in range(16)]
    yield "pairs", [pairs[t // 2] for t in lanes]
    yield "pairs two apart", [pairs[t // 4 * 2 + t % 2] for t in lanes]
