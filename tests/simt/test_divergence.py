"""Control flow in which lanes part: random programs against the same C run thread by thread.

The oracle is the host's C++ compiler: a kernel's body is an ordinary function there, called once
for each thread.
"""

from __future__ import annotations

import ctypes
import random
import subprocess

import numpy as np
import pytest
from engine import Device, ptx_of

PROGRAMS = 30
BLOCKS = [(64, 1, 1), (32, 3, 1), (16, 16, 1), (5, 3, 4), (40, 1, 1)]
GRID = (3, 1, 1)


class Writer:
    """A random function of (t, n, data): nested branches, loops, break, continue, return."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.fuel = 0

    def expression(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.25:
            return r.choice(
                [
                    "t",
                    "n",
                    "a",
                    "b",
                    "c",
                    "i",
                    str(r.randint(0, 40)),
                    "(t & 3)",
                    "(t >> 2)",
                    "x",
                    "y",
                    "z",
                ]
            )
        op = r.choice(["+", "-", "*", "&", "|", "^", ">>", "<", "=="])
        right = self.expression(depth - 1)
        if op == ">>":
            right = str(r.randint(0, 7))
        return f"({self.expression(depth - 1)} {op} {right})"

    def condition(self) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.25:
            return f"(n & {1 << r.randint(0, 4)})"
        text = f"({self.expression(1)} % {r.randint(2, 5)}u {r.choice(['==', '!=', '<'])} 1u)"
        if kind < 0.5:
            text = f"({text} {r.choice(['&&', '||'])} ({self.expression(1)} & 1u))"
        return text

    def assignment(self) -> str:
        target = self.random.choice("abc")
        if self.random.random() < 0.25:
            return f"{target} += data[({self.expression(1)}) & 63u];"
        return f"{target} = {self.expression()};"

    def statements(self, depth: int, loop: bool) -> str:
        return " ".join(self.statement(depth, loop) for _ in range(self.random.randint(1, 4)))

    def statement(self, depth: int, loop: bool) -> str:
        r = self.random
        kind = r.random()
        if depth == 0 or kind < 0.4:
            return self.assignment()
        if kind < 0.65:
            text = f"if ({self.condition()}) {{ {self.statements(depth - 1, loop)} }}"
            if r.random() < 0.5:
                text += f" else {{ {self.statements(depth - 1, loop)} }}"
            return text
        if kind < 0.85:
            self.fuel += 1
            i = f"i{self.fuel}"
            limit = r.choice(["(t & 7u)", "(n & 7u)", "5u", "(a & 7u)", "((t >> 3) & 3u)"])
            body = self.statements(depth - 1, True)
            return (
                f"for (unsigned {i} = 0; {i} < {limit}; ++{i}) {{ unsigned i = {i}; (void)i; "
                f"{body} }}"
            )
        if kind < 0.93 and loop:
            return f"if ({self.condition()}) {r.choice(['break', 'continue'])};"
        if kind < 0.96:
            return f"if ({self.condition()}) {{ out[t] = a ^ {r.randint(0, 99)}; return; }}"
        return (
            f"switch ({self.expression(1)} & 3u) {{ case 0: {self.assignment()} break; "
            f"case 1: {self.assignment()} case 2: {self.assignment()} break; "
            f"default: {self.assignment()} }}"
        )

    def function(self, name: str) -> str:
        return (
            f"BODY void {name}_body(unsigned t, unsigned n, unsigned x, unsigned y, unsigned z, "
            f"const unsigned *data, unsigned *out) {{ unsigned a = t, b = n, c = 7, i = 0; "
            f"{self.statements(4, False)} {self.statements(3, False)} "
            f"out[t] = a + 3u * b + 7u * c; }}"
        )


def functions() -> list[str]:
    return [Writer(seed).function(f"f{seed}") for seed in range(PROGRAMS)]


@pytest.fixture(scope="module")
def device() -> Device:
    source = "#define BODY static __device__ __forceinline__\n" + "\n".join(functions())
    for k in range(PROGRAMS):
        source += (
            f'\nextern "C" __global__ void f{k}(unsigned n, const unsigned *data, unsigned *out) {{'
            "unsigned block = blockDim.x * blockDim.y * blockDim.z;"
            "unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;"
            f"f{k}_body(blockIdx.x * block + t, n, threadIdx.x, threadIdx.y, threadIdx.z, data, "
            "out); }"
        )
    return Device(ptx_of(source))


@pytest.fixture(scope="module")
def oracle(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("oracle")
    source = "#define BODY static inline\n" + "\n".join(functions())
    for k in range(PROGRAMS):
        source += (
            f'\nextern "C" void f{k}(unsigned n, const unsigned *data, unsigned *out, '
            "unsigned bx, unsigned by, unsigned bz, unsigned blocks) {"
            "for (unsigned g = 0; g < blocks; ++g) for (unsigned t = 0; t < bx * by * bz; ++t)"
            f"f{k}_body(g * bx * by * bz + t, n, t % bx, t / bx % by, t / (bx * by), data, out); }}"
        )
    (folder / "oracle.cpp").write_text(source)
    subprocess.run(
        ["g++", "-O1", "-w", "-shared", "-fPIC", folder / "oracle.cpp", "-o", folder / "oracle.so"],
        check=True,
    )
    return ctypes.CDLL(str(folder / "oracle.so"))


@pytest.mark.parametrize("k", range(PROGRAMS))
def test_random_control_flow_gives_each_thread_its_own_result(device, oracle, k):
    rng = np.random.default_rng(k)
    data = rng.integers(0, 1000, 64, dtype=np.uint32)
    for block in (BLOCKS[k % 5], BLOCKS[(k + 2) % 5]):  # compiling takes the time
        for n in (5, 10):
            threads = int(np.prod(block)) * GRID[0]
            out, expected = np.zeros(threads, np.uint32), np.zeros(threads, np.uint32)
            device.launch(f"f{k}", GRID, block, np.uint32(n), data, out)
            getattr(oracle, f"f{k}")(
                n,
                data.ctypes.data_as(ctypes.c_void_p),
                expected.ctypes.data_as(ctypes.c_void_p),
                *block,
                GRID[0],
            )
            np.testing.assert_array_equal(out, expected, err_msg=f"block {block}, n {n}")
