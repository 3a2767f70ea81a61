"""Wrong kernels: mistakes that students make, each as an edit of a right one, and their diagnosis.

`wrong(name)` is the kernel's text, `WRONG[name].diagnosis` what `check` must call it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.mutants.kernels import Case, right


@dataclass(frozen=True)
class Mutant:
    """edits: (old, new), each old text being there; launch: arguments of `check` that differ."""

    base: str
    diagnosis: str
    edits: tuple[tuple[str, str], ...]
    launch: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] | None = None


def wrong(name: str) -> Case:
    """The mutant of that name."""
    mutant = WRONG[name]
    base = right(mutant.base)
    source = base.source
    for old, new in mutant.edits:
        if old not in source:
            raise AssertionError(f"{name}: {mutant.base} has no {old!r}")
        source = source.replace(old, new)
    options = base.options if mutant.options is None else mutant.options
    return Case(source, base.arguments | mutant.launch, options)


def _m(base: str, diagnosis: str, *edits: tuple[str, str], options=None, **launch: Any) -> Mutant:
    return Mutant(base, diagnosis, edits, launch, options)


def _floor(M: int, N: int) -> tuple[int, int]:
    return N // 16, M // 16


A_AT, B_AT, C_AT = "A[(size_t)row * K + k]", "B[(size_t)k * N + col]", "C[(size_t)row * N + col]"
PRODUCT = f"{A_AT} * {B_AT}"
HALF = "__global__", '#include <cuda_fp16.h>\nextern "C" __global__'
FIRST_BARRIER = "        __syncthreads();\n        for (int k = 0; k < TILE"
SECOND_BARRIER = "Bs[k][tx];\n        __syncthreads();"
STORE = "    if (row < M && col < N)\n        C[(size_t)row * N + col] = sum;"
LOAD_A = "(row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f"
LOAD_B = "(k0 + ty < K && col < N) ? B[(size_t)(k0 + ty) * N + col] : 0.0f"

WRONG: dict[str, Mutant] = {
    # -- it does not get as far as running
    "semicolon missing": _m("naive", "does not compile", ("0.0f;", "0.0f")),
    "unknown name": _m("tiled", "does not compile", ("int tx = threadIdx.x, ", "int ")),
    "option missing": _m("tiled", "does not compile", options=()),
    "other name": _m("naive", "no such kernel", ("matmul(", "my_matmul(")),
    "not a kernel": _m("naive", "no such kernel", ("__global__", "__device__")),
    "one size for all": _m(
        "naive",
        "wrong signature",
        ("int M, int N, int K)", "int N)"),
        ("< M", "< N"),
        ("k < K", "k < N"),
        ("* K", "* N"),
    ),
    "sizes as size_t": _m(
        "naive", "wrong signature", ("int M, int N, int K)", "size_t M, size_t N, size_t K)")
    ),
    "doubles": _m("naive", "wrong signature", ("float *A", "double *A"), ("float *B", "double *B")),
    "alpha": _m("naive", "wrong signature", ("int K)", "int K, float alpha)")),
    "33 x 33 threads": _m("naive", "launch refused", block=(33, 33, 1)),
    "float grid": _m("tiled", "launch refused", grid=lambda M, N: (N / 16, M / 16)),
    "50 KiB of static shared memory": _m(
        "tiled", "launch refused", ("[TILE][TILE]", "[TILE][400]")
    ),
    "too many registers": _m(
        "register_tile",
        "launch refused",
        ("16 * j", "32 * j"),
        ("define BM 64", "define BM 256"),
        ("define BN 64", "define BN 256"),
        ("define BK 16", "define BK 4"),
        ("define TM 4", "define TM 8"),
        ("define TN 4", "define TN 8"),
        ("ty * 16", "ty * 32"),
        ("+= 256", "+= 1024"),
        block=(32, 32),
        tile=(256, 256),
    ),
    "blocks beyond the bounds": _m(
        "tiled", "launch refused", ("__global__ void", "__global__ void __launch_bounds__(128)")
    ),
    # -- it does not end
    "k is never raised": _m("naive", "does not come to an end", ("; ++k)", ";)")),
    "k0 is never raised": _m("tiled", "does not come to an end", ("k0 += TILE", "k0 += 0")),
    "waits for a flag": _m(
        "tiled",
        "does not come to an end",
        (
            "    float sum",
            "    volatile float *flag = C;\n    while (flag[0] != 1.0f) { }\n    float sum",
        ),
    ),
    # -- barriers
    "barrier in the guard": _m(
        "tiled",
        "divergent barrier",
        (
            "        __syncthreads();\n"
            "        for (int k = 0; k < TILE; ++k)\n",
            "        if (row < M && col < N) __syncthreads();\n"
            "        for (int k = 0; k < TILE; ++k)\n",
        ),
    ),
    "loads and barrier in the guard": _m(
        "tiled",
        "divergent barrier",
        ("        As[ty]", "        if (row < M && col < N) {\n        As[ty]"),
        (FIRST_BARRIER, "        __syncthreads(); }\n        for (int k = 0; k < TILE"),
    ),
    "barrier for half of the block": _m(
        "tiled",
        "divergent barrier",
        (
            FIRST_BARRIER,
            "        if (ty < 7 || tx < 3) __syncthreads();\n        for (int k = 0; k < TILE",
        ),
    ),
    "barrier where the data is not 0": _m(
        "tiled",
        "divergent barrier",
        (
            FIRST_BARRIER,
            "        if (As[ty][tx] != 0.0f) __syncthreads();\n        for (int k = 0; k < TILE",
        ),
    ),
    "return before the loop": _m(
        "tiled",
        "return before a barrier",
        ("    float sum", "    if (row >= M || col >= N) return;\n    float sum"),
    ),
    "return before the loop, tile 32": _m(
        "tiled_32",
        "return before a barrier",
        ("    float sum", "    if (row >= M || col >= N) return;\n    float sum"),
    ),
    "first barrier missing": _m(
        "tiled", "missing first barrier", (FIRST_BARRIER, "        for (int k = 0; k < TILE")
    ),
    "first barrier missing, tile 32": _m(
        "tiled_32", "missing first barrier", (FIRST_BARRIER, "        for (int k = 0; k < TILE")
    ),
    "first barrier missing, register tile": _m(
        "register_tile",
        "missing first barrier",
        ("        __syncthreads();\n        for (int k = 0", "        for (int k = 0"),
    ),
    "second barrier missing": _m("tiled", "missing second barrier", (SECOND_BARRIER, "Bs[k][tx];")),
    "second barrier missing, tile 8": _m(
        "tiled_8", "missing second barrier", (SECOND_BARRIER, "Bs[k][tx];")
    ),
    "second barrier missing, a block of one warp": _m(
        "tiled",
        "missing second barrier",
        (SECOND_BARRIER, "Bs[k][tx];"),
        options=("-DTILE=4",),
        block=(4, 4),
    ),
    "second barrier missing, register column": _m(
        "register_column",
        "missing second barrier",
        ("        }\n        __syncthreads();", "        }"),
    ),
    "both barriers missing": _m(
        "tiled", "missing first barrier", ("        __syncthreads();\n", "")
    ),
    "barrier behind the loop of two buffers": _m(
        "two_buffers",
        "missing first barrier",
        ("        __syncthreads();\n", ""),
        ("        now ^= 1;", "        now ^= 1;\n        __syncthreads();"),
    ),
    "two buffers that are one": _m(
        "two_buffers", "missing second barrier", ("now ^= 1", "now ^= 0")
    ),
    "no wait for the copies": _m(
        "async_copy", "copy not waited for", ("        __pipeline_wait_prior(0);\n", "")
    ),
    "no barrier between the slices": _m(
        "k_slices", "missing first barrier", ("    __syncthreads();\n", "")
    ),
    "syncwarp for syncthreads": _m(
        "tiled",
        "missing first barrier",
        (FIRST_BARRIER, "        __syncwarp();\n        for (int k = 0; k < TILE"),
    ),
    # -- outside
    "no guard": _m("naive", "reads outside B", ("if (row < M && col < N)", "if (true)")),
    "no guard of the store": _m(
        "tiled", "writes outside C", (STORE, "    C[(size_t)row * N + col] = sum;")
    ),
    "|| for &&": _m("naive", "reads outside B", ("row < M && col < N", "row < M || col < N")),
    "&& for || before a return": _m(
        "rows_on_x", "reads outside A", ("row >= M || col >= N", "row >= M && col >= N")
    ),
    "<= for <": _m("naive", "reads outside A", ("row < M", "row <= M")),
    "<= for < of the column": _m("naive", "reads outside B", ("col < N", "col <= N")),
    "load of A without guard": _m(
        "tiled", "reads outside A", ("(row < M && k0 + tx < K) ?", "true ?")
    ),
    "load of B without guard": _m(
        "tiled", "reads outside B", ("(k0 + ty < K && col < N) ?", "true ?")
    ),
    "one too far in shared memory": _m(
        "dynamic_shared", "outside shared memory", ("2 * 16", "16 + 16"), shared=16 * 16 * 4
    ),
    "tile too small": _m(
        "tiled", "outside shared memory", ("Bs[TILE][TILE];", "Bs[TILE - 1][TILE];")
    ),
    "rows of the tile too short": _m(
        "tiled", "outside shared memory", ("As[TILE][TILE];", "As[TILE][TILE - 1];")
    ),
    "A in columns of shared memory": _m(
        "tiled", "outside shared memory", ("As[TILE][TILE]", "As[TILE - 1][TILE]")
    ),
    "float4 without a tail": _m(
        "float4_tails", "misaligned access", ("left >= 4 && ((size_t)p & 15) == 0", "left >= 4")
    ),
    # -- elements that nobody writes
    "nothing stored": _m(
        "naive", "nothing written", ("        C[(size_t)row * N + col] = sum;\n", "")
    ),
    "to do": _m("tiled", "only zeros written", ("sum += As[ty][k] * Bs[k][tx]", "continue")),
    "floor-divided grid": _m("tiled", "floor-divided grid", grid=_floor),
    "floor-divided grid, naive": _m(
        "naive", "floor-divided grid", grid=lambda M, N: (N // 32, M // 8)
    ),
    "floor-divided grid, 1-D": _m("block_1d", "floor-divided grid", grid=lambda M, N: M * N // 256),
    "whole tiles only": _m(
        "tiled",
        "last partial tile not written",
        ("row < M && col < N)\n        C", "(blockIdx.y + 1) * TILE <= M && col < N)\n        C"),
    ),
    "whole tiles of columns only": _m(
        "register_tile",
        "last partial tile not written",
        ("if (row < M && col < N)", "if (row < M && col0 + BN <= N)"),
    ),
    "one row of each thread": _m(
        "register_column",
        "elements never written",
        ("i < TM; ++i)\n        if", "i < TM - 1; ++i)\n        if"),
    ),
    "array of sums too short": _m(
        "register_column", "elements never written", ("float sum[TM]", "float sum[TM - 1]")
    ),
    "store of every second column": _m(
        "naive", "elements never written", ("        C[", "        if (col % 2 == 0) C[")
    ),
    "float4 tail of one": _m(
        "float4_tails", "elements never written", ("        if (col + 2 < N) c[2] = sum.z;\n", "")
    ),
    # -- the wrong product
    "stored transposed": _m("naive", "transposed result", (C_AT, "C[(size_t)col * M + row]")),
    "stored transposed, tiled": _m(
        "tiled", "transposed result", (C_AT, "C[(size_t)col * M + row]")
    ),
    "stored transposed with N": _m(
        "tiled", "transposed result", (C_AT, "C[(size_t)col * N + row]")
    ),
    "B times A": _m(
        "naive", "computes B·A", (PRODUCT, "B[(size_t)row * N + k] * A[(size_t)k * K + col]")
    ),
    "B read down the wrong way": _m(
        "naive", "a factor is transposed", (B_AT, "B[(size_t)col * K + k]")
    ),
    "A read down the wrong way": _m(
        "naive", "a factor is transposed", (A_AT, "A[(size_t)k * M + row]")
    ),
    "tile of B read down the wrong way": _m(
        "tiled", "a factor is transposed", ("Bs[k][tx]", "Bs[tx][k]")
    ),
    "x walks down the rows": _m(
        "naive",
        "row and column swapped",
        (
            "int col = blockIdx.x * blockDim.x + threadIdx.x;",
            "int row = blockIdx.x * blockDim.x + threadIdx.x;",
        ),
        (
            "int row = blockIdx.y * blockDim.y + threadIdx.y;",
            "int col = blockIdx.y * blockDim.y + threadIdx.y;",
        ),
    ),
    "grid the other way round": _m(
        "rows_on_x", "row and column swapped", grid=lambda M, N: (-(-N // 16), -(-M // 16))
    ),
    "x walks down the rows, tiled": _m(
        "tiled",
        "row and column swapped",
        ("blockIdx.x * TILE + tx", "blockIdx.y * TILE + tx"),
        ("blockIdx.y * TILE + ty", "blockIdx.x * TILE + ty"),
    ),
    "N, M, K": _m("naive", "sizes in another order", ("int M, int N", "int N, int M")),
    "M, K, N": _m("tiled", "sizes in another order", ("int N, int K", "int K, int N")),
    "rows of A have N elements": _m("naive", "square-only", ("row * K", "row * N")),
    "rows of B have K elements": _m("naive", "square-only", ("k * N", "k * K")),
    "rows of C have M elements": _m("naive", "square-only", ("row * N + col]", "row * M + col]")),
    "k up to N": _m("naive", "square-only", ("k < K", "k < N")),
    "N for all": _m(
        "tiled",
        "square-only",
        ("row < M", "row < N"),
        ("row * K", "row * N"),
        ("tx < K", "tx < N"),
        ("ty < K", "ty < N"),
        ("k0 < K", "k0 < N"),
    ),
    "guard with the sizes exchanged": _m(
        "tiled", "square-only", ("row < M && col < N)\n", "row < N && col < M)\n")
    ),
    "tile of A stored the wrong way": _m(
        "tiled", "a factor is transposed", ("As[ty][tx]", "As[tx][ty]")
    ),
    "tile of B stays the first": _m(
        "tiled", "tile does not advance", ("(size_t)(k0 + ty) * N", "(size_t)ty * N")
    ),
    "sum is an int": _m("naive", "integer arithmetic", ("float sum = 0.0f", "int sum = 0")),
    "product is an int": _m(
        "tiled", "integer arithmetic", ("As[ty][k] * Bs[k][tx]", "int(As[ty][k] * Bs[k][tx])")
    ),
    "all three column by column": _m(
        "naive",
        "computes B·A",
        (A_AT, "A[(size_t)k * M + row]"),
        (B_AT, "B[(size_t)col * K + k]"),
        (C_AT, "C[(size_t)col * M + row]"),
    ),
    "A without the length of its rows": _m("naive", "row length forgotten", (A_AT, "A[row + k]")),
    "both without the length of their rows": _m(
        "naive", "row length forgotten", (A_AT, "A[row + k]"), (B_AT, "B[k + col]")
    ),
    "load of B with x for y": _m(
        "tiled",
        "x and y mixed up in a load",
        (LOAD_B, "(k0 + tx < K && col < N) ? B[(size_t)(k0 + tx) * N + col] : 0.0f"),
    ),
    "load of A with y for x": _m(
        "tiled",
        "x and y mixed up in a load",
        (LOAD_A, "(row < M && k0 + ty < K) ? A[(size_t)row * K + (k0 + ty)] : 0.0f"),
    ),
    "tile of A moves on by one": _m(
        "tile_count", "tile does not advance", ("t * T + x", "t + x")
    ),
    "plus for times": _m("naive", "wrong result", (PRODUCT, f"{A_AT} + {B_AT}")),
    "never negative": _m("naive", "wrong result", ("= sum;", "= sum > 0 ? sum : 0;")),
    "sum is subtracted": _m("naive", "wrong result", ("sum +=", "sum -=")),
    "scaled a little": _m("naive", "wrong result", ("= sum;", "= sum * 1.0001f;")),
    "product in half": _m(
        "naive", "half precision", HALF, (PRODUCT, f"__half2float(__float2half({PRODUCT}))")
    ),
    "stored before the last step": _m(
        "tiled",
        "K loop too short",
        (STORE, ""),
        (
            "        As[ty][tx] =",
            "    if (row < M && col < N)\n        C[(size_t)row * N + col] = sum;\n"
            "        As[ty][tx] =",
        ),
    ),
    # -- parts of the sum
    "K / TILE tiles": _m("tile_count", "K loop too short", ("(K + T - 1) / T", "K / T")),
    "K / TILE - 1 tiles": _m("tile_count", "K loop too short", ("(K + T - 1) / T", "K / T - 1")),
    "k up to K - 1": _m("naive", "K loop too short", ("k < K", "k < K - 1")),
    "k from 1": _m("naive", "K loop starts late", ("k = 0", "k = 1")),
    "k0 from TILE": _m("tiled", "K loop starts late", ("k0 = 0", "k0 = TILE")),
    "k up to K": _m("naive", "K loop too long", ("k < K", "k <= K")),
    "a tile too many": _m(
        "tile_count",
        "K loop too long",
        ("(K + T - 1) / T", "K / T + 1"),
        ("row < M && ka < K", "row < M"),
        ("kb < K && col < N", "col < N"),
    ),
    "no zero fill": _m(
        "tile_count",
        "missing zero fill",
        ("        else\n            tileA[y * T + x] = 0.f;\n", ""),
        ("        else\n            tileB[y * T + x] = 0.f;\n", ""),
    ),
    "no zero fill of A": _m(
        "tile_count",
        "missing zero fill",
        ("        else\n            tileA[y * T + x] = 0.f;\n", ""),
    ),
    "no zero fill of B": _m(
        "tile_count",
        "missing zero fill",
        ("        else\n            tileB[y * T + x] = 0.f;\n", ""),
    ),
    "load of B guarded by the row of C": _m(
        "tile_count",
        "tile not completely loaded",
        (
            "if (kb < K && col < N)\n            tileB[y * T + x] = B[kb * (size_t)N + col];\n"
            "        else\n"
            "            tileB[y * T + x] = 0.f;",
            "if (row < M && col < N)\n            tileB[y * T + x] = "
            "kb < K ? B[kb * (size_t)N + col] : 0.f;",
        ),
    ),
    "zeros for B by the row of C": _m(
        "tile_count",
        "tile not completely loaded",
        ("if (kb < K && col < N)", "if (row < M && kb < K && col < N)"),
    ),
    "rows of two lengths": _m(
        "dynamic_shared",
        "read where nothing is stored",
        ("Bs[k * T + tx]", "Bs[k * (T + 1) + tx]"),
        shared=4096,
    ),
    # -- the sum itself
    "sum is not set": _m("naive", "accumulator not initialised", ("sum = 0.0f", "sum")),
    "sum is not set, tiled": _m("tiled", "accumulator not initialised", ("sum = 0.0f", "sum")),
    "sums are not set": _m("register_tile", "accumulator not initialised", ("[TN] = {}", "[TN]")),
    "added to C": _m("naive", "accumulator not initialised", ("= sum;", "+= sum;")),
    "C is not set to 0": _m(
        "sum_in_c", "accumulator not initialised", ("        C[row * N + col] = 0.0f;\n", "")
    ),
    "sum in half": _m(
        "naive",
        "half precision",
        HALF,
        ("float sum = 0.0f", "__half sum = __float2half(0.0f)"),
        (f"sum += {PRODUCT}", f"sum = __hadd(sum, __float2half({PRODUCT}))"),
        ("= sum;", "= __half2float(sum);"),
    ),
    "tiles in half": _m(
        "tiled",
        "half precision",
        HALF,
        ("__shared__ float", "__shared__ __half"),
        ("= (row", "= __float2half((row"),
        ("= (k0", "= __float2half((k0"),
        (": 0.0f;", ": 0.0f);"),
        ("As[ty][k] * Bs[k][tx]", "__half2float(As[ty][k]) * __half2float(Bs[k][tx])"),
    ),
    "sum is kept in part": _m(
        "tiled",
        "half precision",
        HALF,
        (
            "        for (int k = 0",
            "        __half part = __float2half(0.0f);\n        for (int k = 0",
        ),
        (
            "sum += As[ty][k] * Bs[k][tx];",
            "part = __hfma(__float2half(As[ty][k]), __float2half(Bs[k][tx]), part);\n"
            "        sum += __half2float(part);",
        ),
    ),
    # -- shared memory
    "second array on the first": _m(
        "dynamic_shared", "overlapping shared arrays", ("Bs = tiles + T * T", "Bs = tiles")
    ),
    "second array starts too early": _m(
        "dynamic_shared", "overlapping shared arrays", ("Bs = tiles + T * T", "Bs = tiles + T")
    ),
    "second array counted in bytes": _m(
        "dynamic_shared",
        "outside shared memory",
        ("Bs = tiles + T * T", "Bs = tiles + T * T * sizeof(float)"),
    ),
    "one sum for the block": _m(
        "naive", "race in shared memory", ("float sum = 0.0f;", "__shared__ float sum; sum = 0.0f;")
    ),
    "lanes without __syncwarp": _m(
        "rows_of_warps", "missing __syncwarp", ("        __syncwarp();\n", "")
    ),
    "all write one place": _m("tiled", "race in shared memory", ("As[ty][tx] =", "As[0][tx] =")),
    # -- between blocks
    "slices of blocks added without atomics": _m(
        "naive",
        "race in global memory",
        (
            "        C[(size_t)row * N + col] = sum;",
            "        if (blockIdx.z == 0) C[(size_t)row * N + col] = 0;\n"
            "        C[(size_t)row * N + col] += sum;",
        ),
        ("int k = 0; k < K; ++k", "int k = blockIdx.z; k < K; k += 2"),
        grid=lambda M, N: (-(-N // 32), -(-M // 8), 2),
    ),
    "first come": _m(
        "naive",
        "result depends on timing",
        ("__global__", "__device__ int tickets;\n__global__"),
        (
            "        C[(size_t)row * N + col] = sum;",
            "        int last = atomicAdd(&tickets, 1);\n"
            "        C[(size_t)row * N + col] = last % 64 == 0 && row == 0 ? 0.0f : sum;",
        ),
    ),
    # -- beyond 2^31
    "int index of A": _m("naive", "integer overflow", (A_AT, "A[row * K + k]")),
    "int index of C": _m("naive", "integer overflow", (C_AT, "C[row * N + col]")),
    "int index of C, tiled": _m("tiled", "integer overflow", (C_AT, "C[row * N + col]")),
    "int index of B, tiled": _m(
        "tiled", "integer overflow", ("(size_t)(k0 + ty) * N", "(k0 + ty) * N")
    ),
    "the cast comes too late": _m(
        "register_tile", "integer overflow", (C_AT, "C[(size_t)(row * N + col)]")
    ),
    "unsigned index": _m("naive", "integer overflow", (C_AT, "C[(unsigned)row * N + col]")),
    # -- NaN
    "skips zeros": _m(
        "naive",
        "NaN-blind",
        ("            sum +=", "            if (A[(size_t)row * K + k] != 0.0f) sum +="),
    ),
    "NaN becomes 0": _m(
        "tiled", "NaN-blind", ("sum += As", "if (As[ty][k] == As[ty][k]) sum += As")
    ),
    "fmax": _m("naive", "NaN-blind", ("= sum;", "= fmaxf(sum, -1e30f);")),
    "zero fill by multiplication": _m(
        "tiled",
        "spreads NaN",
        (LOAD_A, "A[min((size_t)row * K + k0 + tx, (size_t)M * K - 1)] * (row < M && k0 + tx < K)"),
    ),
    # -- nothing that has a name
    "stuck at the first k": _m("naive", "tile does not advance", (B_AT, "B[col]")),
    "sum over two": _m("naive", "wrong result", ("= sum;", "= 2.0f * sum;")),
    "sum is not kept": _m("tiled", "sum not kept", ("sum += As", "sum = As")),
    "sum anew for each tile": _m(
        "tiled",
        "sum not kept",
        (
            FIRST_BARRIER,
            "        __syncthreads();\n        sum = 0.0f;\n        for (int k = 0; k < TILE",
        ),
    ),
    "last row": _m("naive", "wrong result", ("+ k] * B", "+ k] * (row == M - 1) * B")),
}
