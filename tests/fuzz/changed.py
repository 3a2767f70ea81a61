"""Simple kernels changed at random: what both the engine and `reference` run must agree."""

from __future__ import annotations

import ctypes
import functools
import random
import signal

import numpy as np

from . import malformed, reference
from .malformed import ARRAY, cache, ptx_of, simt

SOURCE = r"""
extern "C" {
__global__ void integers(const int *a, int *out, const unsigned *b, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    unsigned u = b[i] * 2654435761u + n;
    int v = a[i] - n * t;
    if (v > 20) v = v << (u & 7); else v = v >> (t & 3);
    out[i] = (v ^ (int)(u >> 5)) + (int)(u % 7u) * max(v, t) - (v / (n + 3));
}
__global__ void floats(const float *a, float *out, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = (float)i;
    for (int k = 0; k < n; ++k) s = s * 1.25f + (float)(int)(i * k & 15);
    out[i] = s > 100.0f ? s - 3.0f : fmaf(s, 0.5f, fminf(s, 7.0f));
}
__global__ void exchange(const int *a, int *out, const int *b, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = a[i] + n;
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 4; ++k) sum += s[(t + k * n) & 63] * (k + 1);
    __syncthreads();
    s[63 - t] = sum;
    __syncthreads();
    out[i] = s[t ^ 1] + b[i & 7];
}
__global__ void wide(const long long *a, long long *out, const short *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    long long v = a[i] * (long long)(i - n) + (unsigned char)b[i];
    if (i & 1) v = (v >> (i & 31)) + (unsigned)v;
    out[i] = v - (short)(b[i] * i) + ((unsigned long long)v >> 60);
}
}
"""
_MILD = [
    malformed._another_register,
    malformed._another_type,
    malformed._another_opcode,
    malformed._another_modifier,
    malformed._another_number,
    malformed._number_for_operand,
    malformed._label,
    malformed._guard,
    malformed._line,
    malformed._swap_tokens,
]


@functools.cache
def texts() -> list[str]:
    return malformed.single_kernels(ptx_of(SOURCE)) + malformed.lessons()[:2]


def changed(seed: int) -> str:
    r = random.Random(seed)
    tokens = malformed._TOKEN.findall(r.choice(texts()))
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        r.choice(_MILD)(r, tokens)
    return "".join(tokens)


def compare(text: str) -> str:
    """ "same", "refused" or "skipped" (one of the two does not run it), or what differs."""
    memory = simt.Memory(1 << 25)
    try:
        (function,) = simt.Module(text, memory).functions.values()
        buffer = memory.allocate(ARRAY)
        array = (ctypes.c_char * ARRAY).from_address(buffer)
        words = np.frombuffer(array, np.uint32)
        words[:] = np.arange(len(words)) % 61
        arguments = malformed.parameters(function, buffer)
        function.compiled((64, 1, 1))
        try:
            run = reference.Run(text, 2, 64, arguments, buffer, words.tobytes())
            expected = run.result()
        except reference.Skip:
            return "skipped"
        signal.setitimer(signal.ITIMER_REAL, 5.0)
        function.launch((2, 1, 1), (64, 1, 1), arguments)
        if words.tobytes() == expected:
            return "same"
        k = int(np.argmax(words != np.frombuffer(expected, np.uint32)))
        return f"word {k} differs: {words[k]:#x}"
    except (simt.InvalidPtx, simt.Unsupported):
        return "refused"
    except simt.SimtError as error:
        return f"only the engine refuses it: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def try_changed(seeds: list[int]) -> list[str]:
    """Compares changed kernels; one line for each that differs. Prints how many did what."""
    signal.signal(signal.SIGALRM, malformed._ring)
    cache.keep = lambda key, value: None  # nobody will want this code again
    problems, counts = [], {}
    for seed in seeds:
        print(f"running {seed}", flush=True)
        try:
            outcome = compare(changed(seed))
        except Exception as problem:
            outcome = f"{type(problem).__name__}: {problem}"[:300]
        if outcome not in ("same", "refused", "skipped"):
            problems.append(f"FAILED {seed}: {outcome}")
            print(problems[-1], flush=True)
            outcome = "failed"
        counts[outcome] = counts.get(outcome, 0) + 1
    print(counts, flush=True)
    return problems
