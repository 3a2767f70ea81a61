"""What the lessons' Predict and Exercise cells use: answers, and the check of a reader's kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from helpers import simt
from helpers.bound import BoundKernel
from helpers.check import Verdict, check_product
from helpers.compiling import compiled
from helpers.memory import allocate, upload
from helpers.profile import Traffic, profile
from helpers.recorded import h200
from helpers.sandbox import CompileFailed, DoesNotFit, run_in_engine
from helpers.sanitize import sanitize

# M, N, K for a reader's kernel: the first has edges everywhere, the second many blocks.
SIZES = (35, 19, 7), (100, 257, 129)
SANITIZED = 35, 40, 70  # for the sanitizer: edges everywhere, several blocks, three tiles of 32
PATIENCE = 10.0  # seconds that a reader's kernel may run in the engine; it needs milliseconds


def answer(prediction: Any, truth: Any) -> None:
    """Print the reader's prediction beside the right answer."""
    if prediction is None:
        print(f"Answer: {_text(truth)}. (You made no prediction.)")
    elif prediction == truth:
        print(f"Answer: {_text(truth)}, as you predicted.")
    else:
        print(f"Answer: {_text(truth)}. You predicted {_text(prediction)}.")


def recorded_times(n: int, *kernels: str) -> None:
    """Print the recorded time of each kernel for n x n matrices, and how many times as fast each is
    as the first; or that there is none."""
    record = h200()
    if not record.has(*kernels):
        missing = ", ".join(name for name in kernels if not record.has(name))
        print(f"There is no recorded time of {missing}.")
        return
    for name in kernels:
        times = f", {record.speedup(name, kernels[0], n):.2f} times as fast"
        print(f"{name}: {record.ms(name, n):.3f} ms ({record}){times * (name != kernels[0])}")


def _text(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else str(value)


def check_kernel(
    kernel: str | BoundKernel,
    entry: str | None = None,
    *,
    block: tuple[int, int] | None = None,
    b_transposed: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Check a reader's product kernel and print what was found.

    The kernel has the signature (const float *A, const float *B, float *C, int M, int N, int K),
    a block of `block` threads and one thread for each element of C. It is that of a
    `%%cuda` cell, or CUDA C and the name of the kernel in it. With `b_transposed` it is given B as
    N x K and computes C = A times B transposed.

    It runs in the engine first, which finds a bad access without harm. Only if it passes there does
    it run on the device, with a size it has passed, so that it cannot spoil a GPU's context. Where
    C is left unwritten, or all zeros, the exercise counts as not done yet.
    """
    case = _case(kernel, entry, block, b_transposed, options)
    with _failures_in_words():
        passed, found = _check_in_engine(*case)
        print(found)
        if passed:
            print(_check_on_device(*case))


def check_conflicts(
    kernel: str | BoundKernel,
    entry: str | None = None,
    *,
    block: tuple[int, int] | None = None,
    b_transposed: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Check a reader's product kernel as `check_kernel` does, and that it has no bank conflicts.

    They are counted in the engine, for the larger of its sizes. Where a right kernel has any, or
    uses no shared memory, the exercise counts as not done yet.
    """
    case = _case(kernel, entry, block, b_transposed, options)
    with _failures_in_words():
        passed, found = _check_in_engine(*case)
        shared = _shared_traffic(*case) if passed else None
        if shared and shared.conflicts:
            print(f"not done yet: the product is right, but its {shared.requests:,} shared accesses"
                  f" take {shared.wavefronts:,} wavefronts, {shared.conflicts:,} too many")
            return
        if shared and not shared.requests:
            print("not done yet: the product is right, but nothing goes through shared memory")
            return
        print(found)
        if shared:
            print(_check_on_device(*case))
            print(f"no bank conflicts: {shared.requests:,} shared accesses take "
                  f"{shared.wavefronts:,} wavefronts")


def check_races(
    kernel: str | BoundKernel,
    entry: str | None = None,
    *,
    block: tuple[int, int] | None = None,
    b_transposed: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Check a reader's product kernel as `check_kernel` does, and that `sanitize` finds nothing.

    The sanitizer comes first. Where it finds anything, the exercise counts as not done yet, and the
    first finding is printed.
    """
    case = source, entry, block, b_transposed, options = _case(
        kernel, entry, block, b_transposed, options
    )
    with _failures_in_words():
        M, N, K = SANITIZED
        A, given, _ = _matrices(SANITIZED, b_transposed)
        C = np.full((M, N), np.nan, np.float32)
        report = sanitize(
            (source, entry, tuple(options)), A, given, C, np.int32(M), np.int32(N), np.int32(K),
            grid=_grid(SANITIZED, block), block=block,
        )
        if report.findings:
            found = report.findings[0]
            places = " and ".join(map(str, dict.fromkeys(found.lines)))
            print(f"not done yet: {found.kind}" + (f", line {places}" if places else ""))
            print(found.text, found.advice, sep="\n")
            return
        passed, found = _check_in_engine(*case)
        print(found)
        if passed:
            print(_check_on_device(*case))
            print(f"sanitize: nothing found in the engine, M={M}, N={N}, K={K}")


def _case(kernel, entry, block, b_transposed, options) -> tuple:
    """What is to be checked: source, entry, block, whether B comes transposed, options."""
    if isinstance(kernel, BoundKernel):
        entry, options = kernel.entry, kernel.options
        block = block or (kernel.block and kernel.block[:2])
        kernel = kernel.source
    return kernel, entry, block or (32, 32), b_transposed, options


@contextmanager
def _failures_in_words() -> Iterator[None]:
    """Print why a reader's kernel could not be run instead of raising it."""
    try:
        yield
    except CompileFailed as error:
        print(f"FAIL: it does not compile.\n{error}")
    except (DoesNotFit, simt.SimtError) as error:
        print(f"FAIL: {error}")


def _matrices(size: tuple[int, int, int], b_transposed: bool) -> tuple[np.ndarray, ...]:
    """A, B as the kernel gets it, and B as K x N."""
    M, N, K = size
    random = np.random.default_rng(1)
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    return A, np.ascontiguousarray(B.T) if b_transposed else B, B


def _grid(size: tuple[int, int, int], block: tuple[int, int]) -> tuple[int, int]:
    return -(-size[1] // block[0]), -(-size[0] // block[1])


def _check_in_engine(source, entry, block, b_transposed, options) -> tuple[bool, str]:
    """Whether it passes with every size, and what was found, up to the first failure."""
    found = []
    for size in SIZES:
        M, N, K = size
        A, given, B = _matrices(size, b_transposed)
        C = np.full((M, N), np.nan, np.float32)
        sizes = {"M": np.int32(M), "N": np.int32(N), "K": np.int32(K)}
        outcome = run_in_engine(
            source, entry, {"A": A, "B": given, "C": C} | sizes,
            grid=_grid(size, block), block=block, options=options, seconds=PATIENCE,
        )
        if outcome.fault:
            return False, "\n".join([*found, f"FAIL, in the engine: {outcome}"])
        for nothing, words in ((np.isnan(C).all(), "nothing was written to C"),
                               (not C.any(), "all elements of C are 0")):
            if nothing:
                return False, "\n".join([*found, f"not done yet: {words}"])
        verdict = check_product(C, A, B)
        found.append(_report(verdict, size, "in the engine"))
        if not verdict:
            return False, "\n".join(found)
    return True, "\n".join(found)


def _check_on_device(source, entry, block, b_transposed, options) -> str:
    M, N, K = size = SIZES[-1]
    A, given, B = _matrices(size, b_transposed)
    function = compiled(source, options).function(entry)
    with upload(A) as dA, upload(given) as dB, allocate((M, N)) as dC:
        function(dA, dB, dC, np.int32(M), np.int32(N), np.int32(K),
                 block=(*block, 1), grid=_grid(size, block))
        return _report(check_product(dC.download(), A, B), size, "on the device")


def _shared_traffic(source, entry, block, b_transposed, options) -> Traffic:
    M, N, K = size = SIZES[-1]
    A, given, _ = _matrices(size, b_transposed)
    C = np.full((M, N), np.nan, np.float32)
    return profile(
        (source, entry, tuple(options)), A, given, C, np.int32(M), np.int32(N), np.int32(K),
        grid=_grid(size, block), block=block,
    ).total("shared")


def _report(verdict: Verdict, size: tuple[int, int, int], where: str) -> str:
    M, N, K = size
    return f"{where}, M={M}, N={N}, K={K}: {verdict}"
