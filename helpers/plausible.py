"""Results of a benchmark that cannot be true, refused with the reason.

    with Watched(dC) as output:                # fills C, so that it shows whether anyone writes it
        timing = benchmark(launch)
    check_product_rate(M, N, K, timing.median_ms, this_card(), verdict=verdict)
    check_growth([((1024,) * 3, 0.24), ((2048,) * 3, 1.9)], this_card())

Every refusal is an `Impossible`. What passes need not be right: only what cannot be is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.cards import Card
from helpers.errors import WrongType
from helpers.memory import DeviceArray, driver

Size = tuple[int, int, int]  # M, N, K

#: A card's clock may be a little above what is reported as the highest.
CLOCK_MARGIN = 1.02
#: Work that grows by this much must take longer by GROWTH, on sizes that fill the card.
EIGHTFOLD = 8
GROWTH = 2.0
FLOAT_BYTES = 4
#: What `Watched` writes first: a NaN that no arithmetic makes (CUDA's own is 0x7fffffff).
SENTINEL = 0xFFC0DEAD


class Impossible(RuntimeError):
    """A result that cannot be true; the text says why."""


class TooManyFlops(Impossible):
    """More operations a second than the card has units and cycles for."""


class TooManyBytes(Impossible):
    """More bytes a second than the card's memory moves."""


class DoesNotGrow(Impossible):
    """Eight times the work in about the same time, on a card that was full already."""


class NeverWritten(Impossible):
    """The kernel left its output as it was: it did not run, or wrote somewhere else."""


class Unchecked(Impossible):
    """The result of the kernel that was timed was not checked, or is wrong."""


def flops_of(M: int, N: int, K: int) -> int:
    """FP32 operations of a product: a multiplication and an addition for each of M*N*K pairs."""
    return 2 * int(M) * int(N) * int(K)


def compulsory_bytes(M: int, N: int, K: int) -> int:
    """Bytes that every product must move: A and B read once, C written once."""
    M, N, K = int(M), int(N), int(K)
    return FLOAT_BYTES * (M * K + K * N + M * N)


def check_rate(flops: float, nbytes: float, ms: float, card: Card, *, cold: bool = False) -> None:
    """Refuse a time in which the card cannot do `flops` FP32 operations and move `nbytes`.

    What the L2 cache holds may come from there; only with `cold`, an L2 cache that holds nothing
    of it, does every byte come from memory. Kernels that use tensor cores are not meant here.

    Raises TooManyFlops, TooManyBytes, and Impossible for what is no time.
    """
    if not isinstance(card, Card):
        raise WrongType(f"card={card!r} is no Card: write CARDS['H200'] or this_card()")
    if not (ms > 0 and math.isfinite(ms)):
        raise Impossible(f"{ms} ms is no time")
    seconds = ms * 1e-3
    most = card.flops * CLOCK_MARGIN
    if flops / seconds > most:
        raise TooManyFlops(
            f"{flops:,.0f} FP32 operations in {ms:.4g} ms are {flops / seconds / 1e12:,.1f} "
            f"TFLOP/s, and {card.name} does {card.flops / 1e12:,.1f} at most "
            f"({card.multiprocessors} multiprocessors x {card.fp32_units} units x 2 x "
            f"{card.clock_hz / 1e6:,.0f} MHz). Was the device synchronised before the clock was "
            "stopped? Was all of the work done?"
        )
    moved = nbytes if cold else max(0.0, nbytes - card.l2_bytes)
    if moved / seconds > card.memory_rate * CLOCK_MARGIN:
        beyond = "" if cold else f" beyond the {card.l2_bytes / 2**20:,.0f} MiB of its L2 cache"
        raise TooManyBytes(
            f"{moved:,.0f} bytes{beyond} in {ms:.4g} ms are {moved / seconds / 1e9:,.0f} GB/s, and "
            f"the memory of {card.name} moves {card.memory_rate / 1e9:,.0f} at most. Was the "
            "device synchronised before the clock was stopped?"
        )


def check_product_rate(
    M: int, N: int, K: int, ms: float, card: Card, *, verdict: Any, cold: bool = False
) -> None:
    """`check_rate` for a product, which must have been checked.

    verdict: what helpers.check.check_product said of the result. With `cold` A and B come from
    memory; C may stay in the L2 cache. Raises Unchecked besides.
    """
    if verdict is None:
        raise Unchecked(
            f"the product of M={M}, N={N}, K={K} was timed but not checked: a kernel that computes "
            "nothing is the fastest of all; give check_product(C, A, B)"
        )
    if not verdict:
        raise Unchecked(f"the product of M={M}, N={N}, K={K} that was timed is wrong: {verdict}")
    nbytes = compulsory_bytes(M, N, K) - (FLOAT_BYTES * int(M) * int(N) if cold else 0)
    check_rate(flops_of(M, N, K), nbytes, ms, card, cold=cold)


def fills(M: int, N: int, card: Card) -> bool:
    """Whether a C of M x N has an element for every thread that the card can hold.

    2,048 threads a multiprocessor at most (CUDA C++ Programming Guide, technical specifications
    per compute capability).
    """
    return int(M) * int(N) >= 2048 * card.multiprocessors


def check_growth(
    times: Sequence[tuple[Size, float]], card: Card, tile: tuple[int, int] = (1, 1)
) -> None:
    """Refuse times of one kernel that do not grow with the work.

    times: (M, N, K) and milliseconds, in any order. tile: rows and columns of C that a block
    computes. Two sizes are compared where both fill the card, with a block for every
    multiprocessor too, and one is at least eight times the work of the other: it must take twice
    as long at least, since a full card cannot do four times as much in a second. Raises
    DoesNotGrow.
    """
    for size, ms in times:
        if not (isinstance(size, Sequence) and len(size) == 3):
            raise WrongType(f"size={size!r}: write ((M, N, K), milliseconds) for each time")
        if not ms > 0:
            raise Impossible(f"M, N, K = {_text(size)}: {ms} ms is no time")
    full = [
        (size, ms)
        for size, ms in times
        if fills(size[0], size[1], card)
        and -(-size[0] // tile[0]) * -(-size[1] // tile[1]) >= card.multiprocessors
    ]
    for small, short in full:
        for large, long in full:
            work = flops_of(*large) / flops_of(*small)
            if work >= EIGHTFOLD and long < GROWTH * short:
                raise DoesNotGrow(
                    f"M, N, K = {_text(large)} is {work:,.0f} times the work of {_text(small)}, "
                    f"which fills {card.name} already, and takes {long:.4g} ms after {short:.4g} "
                    f"ms: only {long / short:.2f} times as long. Does the clock see the kernel at "
                    "all, and does the kernel do all of its work?"
                )


class Watched:
    """Watches that an output array is written while the `with` block runs.

    The array is filled with a NaN of unusual bits before, and looked at after. Raises NeverWritten
    at the end of the block if all of it is still there, and says so if a part is.
    """

    def __init__(self, output: DeviceArray) -> None:
        if not isinstance(output, DeviceArray):
            raise WrongType(f"the output is a {type(output).__name__}: give the device's array "
                            "that the kernel writes to, from upload or allocate")  # fmt: skip
        if output.dtype != np.float32:
            raise WrongType(f"the output has dtype {output.dtype}: float32 arrays can be watched")
        self.output = output

    def __enter__(self) -> Watched:
        driver().memset_d32(self.output.gpudata, SENTINEL, self.output.size)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            return
        untouched = int((self.output.download().view(np.uint32) == SENTINEL).sum())
        if untouched == self.output.size:
            raise NeverWritten(
                f"all {untouched:,} elements of the output are as they were before the launches: "
                "the kernel was never launched, or writes to another array"
            )
        if untouched:
            raise NeverWritten(
                f"{untouched:,} of {self.output.size:,} elements of the output are as they were "
                "before the launches: the kernel leaves out a part of the work"
            )


def _text(size: Size) -> str:
    return ", ".join(map(str, size))
