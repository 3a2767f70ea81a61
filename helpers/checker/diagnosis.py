"""The diagnoses by name, the most basic first, and the hint that goes with each."""

from __future__ import annotations

from dataclasses import dataclass

HINTS: dict[str, str] = {
    "does not compile": "Mend the first error; later ones often follow from it.",
    "no such kernel": "Give the name of a __global__ function of the source.",
    "wrong signature": "The lessons' products take (const float *A, const float *B, float *C, "
    "int M, int N, int K), in this order.",
    "launch refused": "No device runs this launch: change the launch shape, or what the kernel "
    "needs.",
    "does not come to an end": "See that every loop changes what its condition looks at, and "
    "that whatever a thread waits for is done by one that can run.",
    "assertion failed": "See why the condition does not hold.",
    "misaligned access": "A float4 must start at a multiple of 16 bytes: fall back to single "
    "floats where a row does not.",
    "divergent barrier": "Let all threads of the block come to the same __syncthreads(): no "
    "barrier inside an if that only some of them enter.",
    "return before a barrier": "Let threads outside C take part until the last barrier, and "
    "skip only the store: no return before, and no if around the loop.",
    "nothing written": "Store the sum in C[row * N + col].",
    "only zeros written": "Add the products to the sum, and store that sum.",
    "integer overflow": "Compute the index in 64 bits: (size_t)row * N + col.",
    "row and column swapped": "threadIdx.x and blockIdx.x belong to the column, y to the row; "
    "or give the grid that the kernel wants.",
    "sizes in another order": "The arguments are M, N, K: rows of A, columns of B, columns of A.",
    "square-only": "A is M x K, B is K x N, C is M x N: see which size each index and bound "
    "needs.",
    "floor-divided grid": "Round up: -(-N // 32) blocks along x and -(-M // 32) along y, and a "
    "guard in the kernel.",
    "last partial tile not written": "The last tile reaches past the edge: store the elements "
    "of it that are inside.",
    "elements never written": "See which thread should store these elements, and whether an "
    "array of sums is as long as the loops over it.",
    "K loop too long": "The last k is K - 1: see the loop's condition.",
    "reads outside": "Guard the access: read only where row < M && col < N, and k < K. (To leave "
    "instead, one of them is enough: row >= M || col >= N.)",
    "writes outside": "Guard the store: if (row < M && col < N).",
    "outside shared memory": "See the array's size and the index, and the bytes of dynamic "
    "shared memory that the launch gives.",
    "outside a local array": "See the array's length and the loops over it.",
    "overlapping shared arrays": "Let the second array start behind the first: float *Bs = As + "
    "TILE * TILE.",
    "missing first barrier": "Put a __syncthreads() between the loads into the tile and the "
    "loop that reads it.",
    "copy not waited for": "Wait for the copies with __pipeline_wait_prior(N), where N later "
    "groups may be under way (0 for all), and then put a __syncthreads().",
    "missing second barrier": "Put a __syncthreads() after the loop that reads the tile, before "
    "it is loaded anew.",
    "missing __syncwarp": "Lanes of a warp are not in lockstep: put a __syncwarp() between what "
    "one lane writes and another reads, and before it is written anew.",
    "race in shared memory": "Let each thread write elements of its own, or put a barrier "
    "between.",
    "race in global memory": "Nothing puts blocks in order: let each write its own elements of C.",
    "accumulator not initialised": "Begin with float sum = 0.0f; and store with =, not +=.",
    "transposed result": "Row-major: C[row * N + col] with row from y and col from x.",
    "computes B·A": "A[row * K + k] * B[k * N + col]: rows of A, columns of B. "
    "(Indices that count down columns, as in Fortran, do this too.)",
    "a factor is transposed": "A[row * K + k] * B[k * N + col], As[ty][k] * Bs[k][tx]: see the "
    "index of that factor, where it is stored and where it is read.",
    "tile does not advance": "Each step loads the next tile: k0 belongs in the index of both "
    "factors.",
    "x and y mixed up in a load": "Along a row of A, and down a column of B, the tile has all k: "
    "As[ty][tx] = A[row * K + k0 + tx], Bs[ty][tx] = B[(k0 + ty) * N + col].",
    "row length forgotten": "Row-major: A[row * K + k], B[k * N + col]; a row further on is K, or "
    "N, floats further on.",
    "integer arithmetic": "float sum = 0.0f; and no int between the factors and C.",
    "K loop too short": "All k from 0 to K - 1 count; the number of tiles is (K + TILE - 1) / "
    "TILE.",
    "K loop starts late": "The first k is 0.",
    "sum not kept": "Set the sum to 0 once, before all loops, and add to it with +=.",
    "read where nothing is stored": "Read an element where it was stored, with rows of the same "
    "length in both places, and let the threads store all of the tile.",
    "missing zero fill": "Where a tile reaches past the edge, store 0.0f, which adds nothing to "
    "the sum.",
    "tile not completely loaded": "Threads outside C still load elements of the tiles that "
    "others need: guard each load by its own bounds.",
    "half precision": "Keep the factors and the sum in float.",
    "result depends on timing": "Nothing but barriers and atomics puts threads in order.",
    "wrong result": "Compute a small case by hand and compare it with what the kernel makes of "
    "it.",
    "NaN-blind": "Do not skip or clamp values: 0 * NaN is NaN, and so is the sum it belongs to.",
    "spreads NaN": "Choose the zero with ? : instead of multiplying by 0, which keeps a NaN.",
    "wrong on the GPU only": "The engine found nothing: compile with -lineinfo and use "
    "compute-sanitizer.",
    "cannot be checked": "The engine cannot run this kernel; it says why.",
    # Goals that a right kernel may be asked to reach.
    "bank conflicts": "Let the lanes of a warp use different banks: pad the rows of the tile, or "
    "swizzle them.",
    "too many sectors": "Let neighbouring threads read neighbouring floats, and use a word "
    "that has been read for more than one product.",
    "too many wavefronts": "Keep words that have been read from shared memory in registers, and "
    "use each for more than one product.",
    "too many barriers": "Do more between two barriers, or take turns with two pairs of tiles.",
    "too much shared memory": "Make the arrays smaller: each element needs one place.",
    "local memory": "An array can be in registers only if each of its indices is known when it is "
    "compiled: give loops over it constant bounds. Fewer sums need fewer registers.",
    "card not filled": "A smaller tile of C for a block gives more blocks, fewer elements for a "
    "thread give more warps.",
}
# What an exercise is before it is done.
NOT_DONE = (
    "nothing written", "only zeros written", "bank conflicts", "too many sectors",
    "too many wavefronts", "too many barriers", "too much shared memory", "local memory",
    "card not filled", "nothing returned", "not even",
)  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong, by name; evidence: sentences; lines: of the source, of which file."""

    name: str
    evidence: tuple[str, ...]
    lines: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.key not in HINTS:
            raise KeyError(self.name)

    @property
    def key(self) -> str:
        """The name in `HINTS`, which says nothing of arrays."""
        for key in ("reads outside", "writes outside"):
            if self.name.startswith(key):
                return key
        return self.name

    @property
    def hint(self) -> str:
        return HINTS[self.key]
