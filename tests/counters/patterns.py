"""Single accesses of one warp, each of its own pattern, to be counted on a GPU and by the engine.

A pattern says where each active lane's access lies. The kernels take it from constant memory, whose
reads are not among what is counted. All instructions are volatile inline PTX, so that ptxas makes
each as it is written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

LANES = 32
SIZES = (1, 2, 4, 8, 16)
SPAN = 16384  # bytes that patterns reach over

_TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
_REGISTERS = {1: "h", 2: "h", 4: "r", 8: "r", 16: "r"}


@dataclass(frozen=True)
class Pattern:
    """space: "global", "shared" or "local"; operation: "load", "store", "atom" or "red"; size:
    bytes of a lane; places: a byte address for each lane; mask: a bit for each active one."""

    space: str
    operation: str
    size: int
    places: tuple[int, ...]
    mask: int
    what: str

    @property
    def kernel(self) -> str:
        return f"{self.space}_{self.operation}_{self.size}"


def source() -> str:
    """CUDA C with a kernel for each space, operation and size, and the pattern they all read."""
    parts = ["__constant__ unsigned places[32];", "__constant__ unsigned active;"]
    for space in ("global", "shared"):
        for operation in ("load", "store"):
            parts += [_kernel(space, operation, size) for size in SIZES]
        for operation in ("atom", "red"):
            parts.append(_kernel(space, operation, 4))
    for operation in ("load", "store"):
        parts += [_kernel("local", operation, size) for size in SIZES]
    return "\n".join(parts)


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
    variables = "" if operation == "red" else variables
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
    elif operation == "atom":
        asm = f'"atom.{space}.add.u32 %0, [%1], %2;" : "=r"(v0) : "{letter}"(a), "r"(lane)'
        after = "if (v0 == 0xFFFFFFF) memory[0] = 1;"
    else:
        asm = f'"red.{space}.add.u32 [%0], %1;" :: "{letter}"(a), "r"(lane)'
        after = ""
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
        for operation in ("atom", "red"):
            for what, index in _indices(4, r):
                places = tuple(4 * k % SPAN for k in index)
                mask = whole if r.random() < 0.6 else r.getrandbits(32) | 1
                yield Pattern(space, operation, 4, places, mask, what)
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
    yield f"tile {wide} wide, rows {wide + pad} apart", [
        t % wide + (wide + pad) * (t // wide) for t in lanes
    ]
    yield f"column of a {wide}-wide tile", [(wide + pad) * (t % wide) + t // wide for t in lanes]
    yield "swizzle", [32 * t + (t ^ shift % 32) for t in lanes]
    pairs = [r.randrange(200) for _ in range(16)]
    yield "pairs", [pairs[t // 2] for t in lanes]
    yield "pairs two apart", [pairs[t // 4 * 2 + t % 2] for t in lanes]
