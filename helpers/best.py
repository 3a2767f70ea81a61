"""Constants of cuda/09_last_percent.cu, and which of them are the fastest for a size.

    chosen(4096, 4096, 4096)       # Constants, from the record that python -m helpers.tune made
    Constants(BM=64, BN=128, BK=32, SLICES=4).shared_bytes

helpers.kernels makes kernels of them: `last_percent(constants)`, and KERNELS["best"], which asks
`chosen` at each launch.

A record is of one card. On another one, and for what is not on record, SAFE is chosen, which fits
every card from compute capability 7.5 on.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import numbers
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.errors import WrongType, WrongValue
from helpers.sizes import checked_size

RECORD = Path(__file__).resolve().parent / "data" / "tuning.json"
MAX_THREADS = 1024
MAX_TILE = 1024  # rows or columns: a multiple of it behind MAX_SIZE is still an int
#: Dynamic shared memory of a block on compute capability 9.0 (CUDA Programming Guide, technical
#: specifications: 227 KiB), less what the kernel declares itself and its alignment.
MAX_SHARED = 227 * 1024 - 256


@dataclass(frozen=True)
class Constants:
    """What cuda/09_last_percent.cu is compiled with; the file says what each constant is. COPY_AT
    is counted from 0, and at least 1 here.

    Raises WrongValue for constants with which threads, warps or copies do not come out even,
    WrongType for what is no integer.
    """

    BM: int = 128
    BN: int = 256
    BK: int = 16
    TM: int = 16
    TN: int = 8
    LANES_M: int = 4
    STAGES: int = 4
    SLICES: int = 1
    RESIDENT: int = 1
    GROUP: int = 8
    COPY_AT: int | None = None  # half of the steps

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "COPY_AT":
                steps = self.BK // max(self.SLICES, 1)
                value = max(1, min(steps // 2, steps - 3))
            if not isinstance(value, numbers.Integral) or isinstance(value, bool):
                raise WrongType(f"{field.name}={value!r} is a {type(value).__name__}: give an "
                                "integer")  # fmt: skip
            object.__setattr__(self, field.name, int(value))  # of NumPy's, which JSON cannot hold
        problem = self._problem()
        if problem:
            raise WrongValue(f"{self}: {problem}")

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in dataclasses.asdict(self).items())

    @property
    def threads(self) -> int:
        """Threads of a block."""
        warps = (self.BM // (self.TM * self.LANES_M)) * (self.BN // (self.TN * self._lanes_n))
        return 32 * warps * self.SLICES

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: the stages, or later the sums of the slices."""
        stage = 4 * self.BK * (self.BM + 4 + self.BN)
        sums = 4 * self.BM * self.BN * self.SLICES if self.SLICES > 1 else 0
        return max(self.STAGES * stage, sums)

    def options(self, blocks: int) -> tuple[str, ...]:
        """nvcc's, for a grid of so many blocks."""
        values = dataclasses.asdict(self) | {"BLOCKS": blocks}
        return tuple(f"-D{name}={value}" for name, value in values.items())

    @property
    def _lanes_n(self) -> int:
        return 32 // self.LANES_M

    def _problem(self) -> str:
        """What the file's static assertions would say, in words, and what its indices and the
        tuner's card cannot hold; empty if all is well."""
        if any(value < 1 for value in dataclasses.astuple(self)):
            return "each must be at least 1"
        if self.BM > MAX_TILE or self.BN > MAX_TILE or self.GROUP > self.BN:
            return f"BM and BN are at most {MAX_TILE:,}, GROUP is at most BN"
        if self.LANES_M not in (2, 4, 8) or self.TM % 4 or self.TN % 4:
            return "LANES_M is 2, 4 or 8, TM and TN multiples of 4"
        if self.BM % (self.TM * self.LANES_M) or self.BN % (self.TN * self._lanes_n):
            return "whole warps must fill the block: BM a multiple of TM * LANES_M, BN of TN * " \
                   "32 / LANES_M"  # fmt: skip
        if self.BK % self.SLICES or self.BK // self.SLICES % 2 or self.BK // self.SLICES < 4:
            return "BK / SLICES must be even, and at least 4"
        if self.STAGES < 2:
            return "a pipeline has at least 2 stages"
        if self.COPY_AT > self.BK // self.SLICES - 3:
            return f"COPY_AT is at most {self.BK // self.SLICES - 3} with so many steps"
        if self.threads > MAX_THREADS:
            return f"a block of {self.threads} threads is more than {MAX_THREADS}"
        lanes = 8 if self.threads // 8 <= self.BM else self.threads // self.BM
        down = self.threads // lanes
        if self.threads % lanes or self.BM % down or self.BK % lanes:
            return f"{self.threads} threads cannot share the copies of A"
        for words, across in ((4, self.threads // self.BK), (1, math.gcd(self.BN, self.threads))):
            down = self.threads // max(across, 1)
            if across * down != self.threads or self.BK % down or self.BN % (across * words):
                return f"{self.threads} threads cannot share the copies of B"
        if self.shared_bytes > MAX_SHARED // self.RESIDENT:
            return f"{self.shared_bytes:,} bytes of shared memory are more than " \
                   f"{MAX_SHARED // self.RESIDENT:,}"  # fmt: skip
        return ""


SAFE = Constants(BM=128, BN=128, BK=8, TM=8, TN=8, STAGES=3, RESIDENT=2, COPY_AT=2)


def chosen(M: int, N: int, K: int, card: str | None = None) -> Constants:
    """The fastest constants on record for that size, or for the one on record that is most like it:
    the nearest in the logarithms of M, N and K, among those whose rows of B can be copied four
    words at a time, as this one's can or cannot.

    card: the GPU's name; None for the first on record (the CPU driver's choice).

    Raises WrongType or WrongValue for what is no size, and for a record that cannot be read.
    """
    M, N, K = (checked_size(*side) for side in (("M", M), ("N", N), ("K", K)))
    _check_card(card)
    found = _choices(card)
    alike = [c for c in found if (c[0][1] % 4 == 0) == (N % 4 == 0)] or found
    return min(alike, key=lambda c: _distance(c[0], (M, N, K)))[1] if alike else SAFE


def shares(card: str | None = None) -> dict[tuple[int, int, int], float]:
    """For each size on record the share of cuBLAS's speed that the chosen constants reached.

    Launches were queued back to back without the checks of helpers.kernels, which at 1024 and below
    take longer than the kernel itself.

    Raises WrongValue for a record that cannot be read, WrongType for a card that is no name.
    """
    _check_card(card)
    return {size: share for size, _, share in _rows(card) if share}


def _check_card(card: Any) -> None:
    if card is not None and not isinstance(card, str):
        raise WrongType(f"card={card!r} is no name: give the GPU's, as in 'NVIDIA H200', or None")


def _distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    return sum(math.log2(a / b) ** 2 for a, b in zip(one, other, strict=True))


@functools.cache
def _choices(card: str | None) -> list[tuple[tuple[int, int, int], Constants]]:
    """(size, constants) on record for a card."""
    return [(size, constants) for size, constants, _ in _rows(card)]


def _rows(card: str | None) -> list[tuple[tuple[int, int, int], Constants, float | None]]:
    """(size, constants, share of cuBLAS or None) on record for a card; None: the first one."""
    record = recorded()
    name = next(iter(record), "") if card is None else card
    found = []
    for choice in record[name]["chosen"] if name in record else []:
        try:
            M, N, K = choice["size"]
            if not min(M, N, K) >= 1:
                raise ValueError(f"size {choice['size']}")
            found.append(((M, N, K), Constants(**choice["constants"]), choice.get("share")))
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(RECORD, f"{error!r} in the row {choice!r}") from None
    return found


def recorded() -> dict[str, Any]:
    """The tuner's record, by card; empty if there is none. Raises WrongValue if it is broken."""
    return read_record(RECORD) if RECORD.exists() else {}


def read_record(file: Path) -> dict[str, Any]:
    """What helpers.tune has written to a file. Raises WrongValue for a file that holds something
    else."""
    try:
        records = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(file, str(error)) from None
    if not isinstance(records, dict):
        raise unreadable(file, f"it holds no records by card, but {records!r:.40}")
    for card, record in records.items():
        lists = ("left_out", "times", "chosen")
        whole = isinstance(record, dict) and all(isinstance(record.get(k), list) for k in lists)
        if not whole:
            raise unreadable(file, f"{card!r} has no lists {', '.join(lists)}")
    return records


def unreadable(file: Path, why: str) -> WrongValue:
    """What to raise for a file that is no record, or one with a row that is damaged."""
    return WrongValue(f"{file} is no record of helpers.tune: {why}; get the file again, or move it "
                      "away")  # fmt: skip
