"""One kernel in the engine, compiled once and launched on matrices of any shape.

Every launch is watched by the sanitizer, has its arrays far apart (`GUARD`), gets random data and a
C that is NaN throughout, runs its warps in a chosen order and on one thread, so that what is found
is the same every time.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from helpers import simt
from helpers.check import Verdict, check_product, gamma
from helpers.sandbox import function_named
from helpers.simt.sanitizer import Observation

from .subject import Dim, Shape, Subject

GUARD = 1 << 20  # bytes around each array that belong to nobody
NAN = 0x7FC00000
NAMES = "A", "B", "C"
ZEROS = 16  # one in so many elements of A and B is 0, so that no branch on the data is hidden


@dataclass
class Attempt:
    """One launch, and all that was seen of it. A and B are the factors, B of K x N; C is what the
    kernel made. written: which elements of C it has written, M x N."""

    shape: Shape
    order: str | int
    grid: Dim
    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    written: np.ndarray
    fault: simt.Fault | None
    observations: tuple[Observation, ...]
    starts: dict[str, int]  # of the arrays, by name
    stored_words: np.ndarray  # words of shared memory that have been written in the last block
    beyond: dict[str, np.ndarray] = field(default_factory=dict)  # what follows A and B in memory

    @functools.cached_property
    def verdict(self) -> Verdict:
        """Whether C is the product."""
        return check_product(self.C, self.A, self.B)

    @property
    def right(self) -> bool:
        """Whether the launch came to its end, and C is the product."""
        return self.fault is None and bool(self.written.all()) and bool(self.verdict)

    @functools.cached_property
    def product(self) -> np.ndarray:
        return self.A.astype(np.float64) @ self.B.astype(np.float64)

    @functools.cached_property
    def wrong(self) -> np.ndarray:
        """Which elements of C differ from the product by more than rounding, M x N."""
        return ~close(self.C, self.A, self.B)

    def __str__(self) -> str:
        return size(self.shape)


def size(shape: Shape) -> str:
    M, N, K = shape
    return f"M={M:,}, N={N:,}, K={K:,}"


def close(C: np.ndarray, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Which elements of C are those of X Y but for FP32 rounding (the worst case of
    `helpers.check`); all factors float32 or float64."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    slack = gamma(X.shape[1] + 8) * (np.abs(X) @ np.abs(Y)) + 1e-30
    with np.errstate(invalid="ignore"):
        return np.abs(C - X @ Y) <= slack


def matrices(shape: Shape, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random A and B of a shape: normal, asymmetric, with some zeros."""
    M, N, K = shape
    random = np.random.default_rng([M, N, K, seed])
    pair = []
    for rows, columns in ((M, K), (K, N)):
        data = random.standard_normal((rows, columns), dtype=np.float32)
        if data.size > ZEROS:
            data[random.random(data.shape) < 1 / ZEROS] = 0
        pair.append(data)
    return pair[0], pair[1]


class Trial:
    """Raises CompileFailed, DoesNotFit, simt.Unsupported. seconds: for one launch."""

    def __init__(self, subject: Subject, seconds: float):
        self.subject, self.seconds = subject, seconds
        self.program = subject.program()
        self._memory = simt.Memory(1 << 30, guard=GUARD)
        module = simt.Module(self.program.ptx, self._memory)
        self.function = function_named(module, subject.entry)

    def run(
        self,
        shape: Shape,
        order: str | int = "forward",
        *,
        grid: Dim | None = None,
        data: tuple[np.ndarray, np.ndarray] | None = None,
        sizes: Shape | None = None,
        extended: bool = False,
    ) -> Attempt:
        """Launches the kernel. data: A and B; sizes: what it is told instead of M, N, K;
        extended: lets more random data follow A and B, which may be read."""
        M, N, _ = shape
        A, B = matrices(shape) if data is None else data
        grid = grid or self.subject.grid(M, N)
        given = np.ascontiguousarray(B.T) if self.subject.b_transposed else B
        contents = {"A": A, "B": given, "C": np.full((M, N), NAN, np.uint32)}
        beyond = {}
        if extended:
            random = np.random.default_rng(7)
            for name in ("A", "B"):
                beyond[name] = random.standard_normal(1 << 15, dtype=np.float32)
                contents[name] = np.concatenate([contents[name].reshape(-1), beyond[name]])
        starts = {name: self._copied(array) for name, array in contents.items()}
        try:
            seen = self.function.sanitize(
                grid, self.subject.block, pack(self.function, starts, sizes or shape),
                self.subject.shared, order=order, workers=1, seconds=self.seconds,
                unwritten=[(starts["C"], 4 * M * N, 4)],
            )  # fmt: skip
            C = np.empty((M, N), np.float32)
            ctypes.memmove(C.ctypes.data, starts["C"], C.nbytes)
        finally:
            for start in starts.values():
                self._memory.free(start)
        written = np.ones(M * N, bool)
        written[seen.never[starts["C"]]] = False
        return Attempt(shape, order, grid, A, B, C, written.reshape(M, N), seen.fault,
                       seen.observations, starts, seen.stored_words, beyond)  # fmt: skip

    def _copied(self, array: np.ndarray) -> int:
        start = self._memory.allocate(array.nbytes)
        ctypes.memmove(start, array.ctypes.data, array.nbytes)
        return start


def pack(function: simt.Function, starts: dict[str, int], sizes: Sequence[int]) -> bytes:
    """The parameters A, B, C, M, N, K."""
    packed = bytearray(function.parameter_bytes)
    values = [*(np.uint64(starts[name]) for name in NAMES), *(np.int32(n) for n in sizes)]
    for value, (_, offset, nbytes) in zip(values, function.parameters, strict=True):
        packed[offset : offset + nbytes] = value.tobytes()
    return bytes(packed)
