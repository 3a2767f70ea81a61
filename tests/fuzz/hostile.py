"""Kernels that do what no kernel should, each followed by one that must still run right.

A case ends with a right result, with one of the engine's errors, or, if it never ends by itself,
soon after it has been asked to stop. An error at run time names kernel, file, line, block and
thread. Anything else is a failure: another exception, the end of the process, a wrong result.
"""

from __future__ import annotations

import contextlib
import io
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[k]) for k in (1, 2)]

from engine import Device, ptx_of  # noqa: E402

from helpers import simt  # noqa: E402

RUN_FOR = 1.0  # seconds after which a case that is endless is stopped
LONGEST = 40.0  # seconds for any other
STOP_WITHIN = 3.0

HEAD = r"""
#include <cstdio>
#include <cassert>
typedef unsigned long long u64;
__device__ int counter; __constant__ int constants[16]; __device__ volatile int flags[64];
extern "C" __global__ void good(const int *a, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = a[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x] + 3 * threadIdx.x;
}
__device__ __noinline__ int deep(int n, int *x) {
    if (n <= 0) return x[0];
    return deep(n - 1, x) + n % 3;
}
__device__ __noinline__ int ever(int n, int *x) { return ever(n + 1, x) + x[n & 7]; }
__device__ __noinline__ int odd(int n);
__device__ __noinline__ int even(int n) { return odd(n + 1) * 2; }
__device__ __noinline__ int odd(int n) { return n == -5 ? 1 : even(n + 1) - 1; }
__device__ __noinline__ void spin() { for (;;) asm volatile(""); }
typedef int (*Function)(int);
"""

# Offsets, in bytes, that pointers are moved by.
OFFSETS = (
    "0 4 -4 8 -8 1 2 3 60 64 252 256 260 1024 -1024 4096 -4096 65536 1000000 -1000000 16777216 "
    "2147483644 2147483648 -2147483648 4294967292 4294967296 -4294967296 17179869184 "
    "1099511627776 140737488355328 -140737488355328 9223372036854775804 "
    "-9223372036854775808"
).split()

# Statements, by what must become of them:
# "fault": a Fault; "any": a Fault or nothing; "fine": nothing; "endless": it never ends by itself.
# They see x (64 ints), n (5), off (an offset), t (the thread), p (x moved by off), w (any number).
STATEMENTS: dict[str, list[str]] = {
    "any": [
        "x[0] = even(1);",
        "x[0] = *(volatile int *)p;",
        "*(volatile int *)p = 1;",
        "*(volatile char *)p = 1;",
        "*(volatile short *)(p + 2 * t) = 1;",
        "*(volatile double *)(p + 8 * t) = 1;",
        "x[1] = ((int4 *)p)[t].y;",
        "((int4 *)p)[t] = make_int4(1, 2, 3, 4);",
        "x[2] = __ldg((const int *)p + t);",
        "atomicAdd((int *)p, 1);",
        "atomicCAS((u64 *)p + t, 0ull, 1ull);",
        "atomicMax((unsigned *)p + t * 1000, 1u);",
        "memcpy(p, x, 64);",
        "for (int k = 0; k < 100; ++k) x[k & 63] += ((int *)p)[k * n];",
        "__shared__ int s[16]; s[t & 15] = 1; x[0] = *(volatile int *)((char *)&s[t & 15] + off);",
        "__shared__ int s[16]; *(volatile int *)((char *)&s[t & 15] + off) = 1;",
        "__shared__ int s[16]; atomicAdd((int *)((char *)s + off), 1);",
        "__shared__ int s[16]; volatile int *q = n > 4 ? s : x; q[off / 4] = 1;",
        'asm volatile("st.shared.u32 [%0], 1;" :: "r"((unsigned)off));',
        'int v; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"((unsigned)off)); x[0] = v;',
        'int v; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(w)); x[0] = v;',
        'int v; asm volatile("ld.local.u32 %0, [%1];" : "=r"(v) : "l"(off)); x[0] = v;',
        'asm volatile("st.local.u32 [%0], 1;" :: "l"(p));',
        'asm volatile("st.global.u32 [%0], 1;" :: "l"(off));',
        'int v; asm volatile("ld.const.u32 %0, [%1];" : "=r"(v) : "l"(p)); x[0] = v;',
        'int v; asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(v) : "r"(w)); x[0] = v;',
        "volatile int l[8]; l[n] = t; *(volatile int *)((char *)&l[t & 7] + off) = 1;"
        " x[t & 63] = l[n];",
        "volatile int l[8]; l[n] = t; x[t & 63] = *(volatile int *)((char *)l + off);",
        "volatile int l[8]; l[n] = 3; __shared__ volatile int *s; s = l; __syncwarp(); x[0] = *s;",
        "x[0] = constants[off / 4];",
        "counter = ((int *)&counter)[off / 4];",
        "((int *)&counter)[off / 4] = 1;",
        "char *q = (char *)malloc(64); *(volatile int *)(q + off) = 1; free(q);",
        "free((void *)p);",
        "free((void *)(u64)w);",
        'int v; asm volatile("cp.async.ca.shared.global [%1], [%2], 4; cp.async.wait_all;"'
        ' : "=r"(v) : "r"((unsigned)off), "l"(p) : "memory");',
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.wait_all;"'
        ' :: "r"(w), "l"(x) : "memory");',
        'asm volatile("mbarrier.init.shared.b64 [%0], 3;" :: "r"((unsigned)off));',
        'asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(w));',
        'int v; asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v)'
        ' : "r"((unsigned)off)); x[0] = v;',
        'asm volatile("prefetch.global.L1 [%0];" :: "l"(p));',
        "using namespace nvcuda::wmma; fragment<accumulator, 16, 16, 16, float> f;"
        " load_matrix_sync(f, (float *)p, 16, mem_row_major);"
        " store_matrix_sync((float *)x, f, n * 1000, mem_row_major);",
        "if (t & 1) __syncthreads();",
        "for (int k = 0; k < (int)(t & 3); ++k) __syncthreads();",
        "if (t == 7) return; __syncthreads();",
        "if (t < 40) __syncthreads(); else __syncthreads();",
        "x[t & 63] = __syncthreads_count(t & 1);",
        "if (t & 2) x[0] = __syncthreads_or(t & 1);",
        'asm volatile("bar.sync 3, 64;");',
        'if (t < 32) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.arrive 2, 64;");',
        'asm volatile("bar.sync %0;" :: "r"(t));',
        'asm volatile("bar.sync 1, %0;" :: "r"(w));',
        "if (t & 1) __syncwarp();",
        "x[t & 63] = __shfl_sync(0x0f0f0f0f, t, w);",
        "if (t & 1) x[t & 63] = __shfl_xor_sync(~0u, t, 1);",
        "x[t & 63] = __ballot_sync(1u << (t & 31), t & 1);",
        "x[t & 63] = __match_any_sync(~0u, (u64)p);",
        "x[t & 63] = deep(w & 1023, x);",
        "char *q; while ((q = (char *)malloc(w & 65535))) *q = 1;",
        "u64 sum = 0; for (int k = 0; k < 2000; ++k) sum += (u64)malloc(100000); x[0] = (int)sum;",
        "int *q = new int[w]; x[0] = q != 0; if (q) q[w] = 1;",
        "char *q = (char *)malloc(40); free(q); free(q);",
        "x[0] = malloc((size_t)-1) != 0; x[1] = malloc(0) == 0; x[2] = malloc((size_t)off) != 0;",
        'printf("%s %s\\n", (char *)p, (char *)x);',
        "printf((const char *)p, 1, 2.0);",
        'printf("%n %q %y %*.*lld %llc %hhd %Lf\\n", w, w, w, off, t, t, 1.0);',
        'printf("%s", (char *)(u64)w);',
        "assert(w == (unsigned)n || t < 3);",
        "volatile Function f = odd; volatile u64 *q = (volatile u64 *)&f; *q += off; x[0] = f(-6);",
    ],
    "fault": [
        "*(volatile int *)0 = 1;",
        "x[0] = *(volatile int *)(u64)w;",
        "x[64 + t] = 1;",
        "x[0] = x[-1 - (int)t];",
        "*(volatile int *)((char *)x + 1 + 2 * t) = 1;",
        "__trap();",
        'asm volatile("trap;");',
        "assert(!\"reached\");",
        "x[0] = deep(100000000, x);",
        "x[0] = ever(0, x);",
        "free((void *)(x + 1));",
        "__shared__ int s[4]; s[t] = 1; __syncwarp(); s[t + n * 100000] = 2; x[0] = s[1];",
        "volatile int *q = 0; q[t] = q[n];",
    ],
    "fine": [
        "x[0] = 1 / (int)(t - t); x[1] = n % (int)(t - t);",
        "volatile int least = -2147483647 - 1; x[0] = least / (n - 6); x[1] = least % (n - 6);",
        "x[0] = 7u / (w - w); x[1] = (u64)n % (u64)(w - w) != 0;",
        "x[0] = (int)(1.0f / (n - 5)); x[1] = (int)(0.0f / (n - 5)); x[2] = (int)-1e30;",
        "x[0] = n << w; x[1] = (int)(off >> w); x[2] = n >> (w & 255);",
        'x[0] = __funnelshift_l(n, n, w); x[1] = __byte_perm(n, n, w); x[2] = __brev(w);',
        "volatile char l[20000]; l[w % 20000] = 1; x[0] = l[(w + 1) % 20000] & 0;",
        "__shared__ char s[40000]; s[t] = 1; x[0] = s[t] & 0;",
        "x[t & 63] = deep(50, x) & 0;",
        'for (int k = 0; k < 300; ++k) printf("%d %s %f\\n", k, "flood", 1.5);',
        'printf("%1000000000d|%.999999999f|%*d|%.*s\\n", 1, 2.0, 2000000000, 3, 1 << 30, "s");',
        'printf(""); printf("%%"); printf("%c%c", 0, 300); printf("%");',
        "x[0] = sqrtf(-1.0f) > 0; x[1] = __float2int_rn(__int_as_float(0x7fc00000));",
        "x[0] = __clz(0) + __ffs(0) + __popc(w); x[1] = (int)log(-1.0);",
        "__nanosleep(w); x[0] = (int)clock64() & 0;",
    ],
    "endless": [
        'for (;;) asm volatile("");',
        "for (unsigned k = 1; k; k = k + 2) x[k & 63] = k;",
        "while (((volatile int *)x)[n] != 12345) ;",
        "while (atomicAdd(x, 2) != 12345) ;",
        "while (atomicCAS(&x[1], 77, 78) != 77) ;",
        'if (t == 3) for (;;) asm volatile("");',
        'if (t & 1) for (;;) asm volatile(""); else for (;;) { ((volatile int *)x)[2]++; }',
        "for (;;) __syncthreads();",
        "for (;;) { __syncwarp(); x[0] = __shfl_xor_sync(~0u, x[0] + 1, 1); }",
        "spin();",
        'for (;;) printf("again %d\\n", t);',
        "for (;;) { char *q = (char *)malloc(100); free(q); }",
        "for (;;) x[0] += deep(20, x);",
        "while (flags[3] == 0) __nanosleep(100);",
        "for (float f = 1; f > 0; f = f * 0.5f + 1) x[0] = f;",
        'L: asm volatile(""); if (n) goto L;',
        "for (;;) for (int k = 0; k < 10; ++k) { if (k == (int)(t & 7)) continue;"
        ' asm volatile(""); }',
        "__shared__ volatile int lock; lock = 0; while (lock == 0) ; x[0] = lock;",
        "for (;;) x[0] = __syncthreads_count(t);",
        'for (;;) asm volatile("bar.sync 1, 32;");',
    ],
}
WRAPPERS = [
    "{}",
    "{}",
    "if (t == 5 || t == 37) {{ {} }}",
    "if (blockIdx.x == gridDim.x - 1) {{ {} }}",
    "if (t % 3 != 1) {{ {} }} else {{ x[5] = 1; }}",
    "for (int i = 0; i < n; ++i) {{ {} }}",
    "x[3] = t; __syncthreads(); {} __syncthreads(); x[4] = t;",
    "switch (t & 3) {{ case 0: x[1] = 2; case 1: {{ {} }} break; case 2: return;"
    " default: x[2] = 1; }}",
]
# A condition or a barrier around these would change what must become of them.
_ALONE = ("__sync", "bar.sync", "mma", "ldmatrix", "_sync(", "return")

BLOCKS = [(64, 1, 1), (32, 1, 1), (7, 1, 1), (40, 1, 1), (1, 1, 1), (8, 8, 1), (3, 5, 7)]
BLOCKS += [(256, 1, 1)]
GRIDS = [(1, 1, 1), (3, 1, 1), (2, 2, 2), (100, 1, 1)]


@dataclass
class Case:
    """A kernel and how it is launched. ends: a key of STATEMENTS."""

    text: str
    ends: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    offset: int
    wild: int
    shared_bytes: int


def case(seed: int) -> Case:
    r = random.Random(seed)
    ends = r.choices(list(STATEMENTS), [60, 14, 12, 14])[0]
    statement = r.choice(STATEMENTS[ends])
    wrapper = "{}"
    if not any(word in statement for word in _ALONE):
        wrapper = r.choice(WRAPPERS)
    if wrapper != "{}" and ends == "fault":
        ends = "any"  # no thread may come there
    some = wrapper.startswith(("if", "switch")) or statement.startswith("if")
    if some and ends == "endless":
        ends = "any or endless"
    in_function = r.random() < 0.3 and "return" not in statement
    arguments = "int *x, int n, long long off, unsigned w"
    body = wrapper.format(statement)
    places = "unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);"
    places += " char *p = (char *)x + off; (void)p; (void)t;"
    lines = ["#include <mma.h>" if "wmma" in statement else "", HEAD]
    if in_function:
        lines.append(f"__device__ __noinline__ void inner({arguments}) {{ {places}\n{body} }}")
        body = "inner(x, n, off, w);"
    lines.append(f'extern "C" __global__ void hostile({arguments}) {{ {places}\n{body}\n}}')
    grid = r.choice(GRIDS)
    if ends == "endless" and r.random() < 0.3:
        grid = r.choice([(2147483647, 1, 1), (2147483647, 65535, 65535), (1, 65535, 65535)])
    return Case(
        "\n".join(lines),
        ends,
        grid,
        r.choice(BLOCKS),
        int(r.choice(OFFSETS)),
        r.choice([0, 1, 2, 3, 16, 33, 255, 4096, 65535, 1 << 31, (1 << 32) - 4, r.getrandbits(32)]),
        r.choice([0, 0, 16, 1000, 49152]),
    )


class TimeUp(Exception):
    """The alarm rang."""


def _ring(_signal, _frame):
    raise TimeUp


def _complete(fault: simt.Fault, c: Case) -> str:
    """What a fault's message lacks; "" if nothing."""
    if fault.kernel != "hostile" or not fault.line or "kernel.cu" not in fault.file:
        return "kernel, file or line"
    if fault.block is None or not all(0 <= b < g for b, g in zip(fault.block, c.grid, strict=True)):
        return "a block of the grid"
    if not all(0 <= t < b for t, b in zip(fault.thread, c.block, strict=True)):
        return "a thread of the block"
    return ""


def outcome(c: Case) -> str:
    """Runs a case and then a good kernel. "" or what was wrong."""
    device = Device(ptx_of(c.text, "-w"))
    arguments = [np.int32(5), np.int64(c.offset), np.uint32(c.wild)]
    limit = RUN_FOR if "endless" in c.ends else LONGEST
    device.module.functions["hostile"].compiled(c.block)
    start = time.monotonic()
    x = np.arange(64, dtype=np.int32)
    kind = "fine"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            signal.setitimer(signal.ITIMER_REAL, limit)
            device.launch("hostile", c.grid, c.block, x, *arguments, shared_bytes=c.shared_bytes)
    except TimeUp:
        kind = "endless"
    except simt.Fault as fault:
        kind = "endless" if fault.kind == "deadlock" and "endless" in c.ends else "fault"
        missing = _complete(fault, c)
        if missing:
            return f"the message does not name {missing}: {fault}"
    except simt.OutOfMemory as error:
        kind = "fault" if str(error) else "empty"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.monotonic() - start
    if took > limit + STOP_WITHIN:
        return f"took {took:.1f} s"
    allowed = {"any": ("fine", "fault"), "any or endless": ("fine", "fault", "endless")}
    if kind not in allowed.get(c.ends, (c.ends,)):
        return f"{kind} instead of {c.ends}"
    a, out = np.arange(128, dtype=np.int32) * 7, np.zeros(128, np.int32)
    device.launch("good", 2, 64, a, out)
    expected = a.reshape(2, 64)[:, ::-1] + 3 * np.arange(64)
    return "" if (out == expected.ravel()).all() else "the next kernel's result is wrong"


def try_cases(seeds: list[int]) -> list[str]:
    """Runs cases; one line for each that fails."""
    signal.signal(signal.SIGALRM, _ring)
    problems = []
    for seed in seeds:
        print(f"running {seed}", flush=True)
        c = case(seed)
        try:
            wrong = outcome(c)
        except Exception as problem:
            wrong = f"{type(problem).__name__}: {problem}"[:400]
        if wrong:
            told = c.text.split("hostile(")[1].split("\n", 1)[1] if "inner" not in c.text else (
                c.text.split("void inner")[1].split("\n", 1)[1]
            )
            problems.append(
                f"FAILED {seed} {c.ends} {c.grid} {c.block} off {c.offset} w {c.wild}: {wrong} "
                f"-- {told}".replace("\n", " ")
            )
            print(problems[-1], flush=True)
    return problems
