"""Figures measured on an H200, for those who have none: "on an H200 this takes …".

    record = h200()
    record.ms("tiled", 1024)                      # median time of one launch in milliseconds
    record.speedup("tiled", "naive", 1024)        # how many times faster tiled is
    print(record)                                 # which card, when

They come from one run of `python -m helpers.benchmark --fingerprints --json helpers/data/h200.json`
on that card. Besides the times it holds a fingerprint of every kernel's result, so that any machine
can check that it computes the same bits (tests/test_recorded.py).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.errors import NotOnRecord, WrongValue
from helpers.timing import gflops

DATA_FOLDER = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Record:
    """The content of one data file; `record["card"]` and so on read it as it stands there."""

    content: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    @property
    def card(self) -> str:
        """Name of the GPU."""
        return self.content["card"]

    @property
    def date(self) -> str:
        """Day of the measurement, YYYY-MM-DD."""
        return self.content["date"]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels timed, in the order of the file."""
        return tuple(dict.fromkeys(row["kernel"] for row in self.content["times"]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The n of the n x n matrices timed."""
        rows = self.content["times"]
        return tuple(dict.fromkeys(row["M"] for row in rows if row["M"] == row["N"] == row["K"]))

    def row(self, kernel: str, size: int | Sequence[int], mode: str = "queued") -> Mapping:
        """All that is on record of a kernel at n, or at (M, N, K); NotOnRecord, which is a
        KeyError, if nothing is.

        mode: "queued" back to back, "alone" (one launch at a time) or "cold" (L2 flushed before).
        """
        M, N, K = (size,) * 3 if isinstance(size, (int, np.integer)) else size
        wanted = {"kernel": kernel, "M": M, "N": N, "K": K, "mode": mode}
        for row in self.content["times"]:
            if wanted.items() <= row.items():
                return row
        raise NotOnRecord(f"no time of kernel {kernel!r} {self._what_there_is(kernel, size, mode)}")

    def _what_there_is(self, kernel: str, size: int | Sequence[int], mode: str) -> str:
        """The end of the sentence that says what is not on record, and what is."""
        rows = [row for row in self.content["times"] if row["kernel"] == kernel]
        if not rows:
            return f"on record: there are those of {', '.join(self.kernels)}"
        modes = dict.fromkeys(row["mode"] for row in rows)
        if mode not in modes:
            return f"({mode}) on record: there are those {', '.join(modes)}"
        whole = isinstance(size, (int, np.integer))
        where = f"n={size}" if whole else "M={}, N={}, K={}".format(*size)
        way = "" if mode == "queued" else f" ({mode})"
        sizes = (f"{row['M']} x {row['N']} x {row['K']}" for row in rows if row["mode"] == mode)
        return f"at {where}{way} on record: there are those at {', '.join(dict.fromkeys(sizes))}"

    def ms(self, kernel: str, n: int | Sequence[int], mode: str = "queued") -> float:
        """Median time of one launch in milliseconds; n, mode, KeyError: see `row`."""
        return self.row(kernel, n, mode)["median_ms"]

    def has(self, *kernels: str) -> bool:
        """Whether there are times of all these kernels."""
        return set(kernels) <= set(self.kernels)

    def gflops(self, kernel: str, n: int) -> float:
        """The same as a rate, in GFLOP/s."""
        return gflops(n, n, n, self.ms(kernel, n))

    def speedup(self, kernel: str, over: str, n: int) -> float:
        """How many times faster `kernel` is than `over`."""
        return self.ms(over, n) / self.ms(kernel, n)

    def __str__(self) -> str:
        return f"{self.card}, {self.date}"


@functools.cache
def h200() -> Record:
    """The record of the H200. Raises WrongValue for a file that cannot be read as one."""
    file = DATA_FOLDER / "h200.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        content["card"], content["date"], content["times"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WrongValue(f"{file} is no record of helpers.benchmark: {error!r}; get the file again"
                         ) from None  # fmt: skip
    return Record(content)


def seeded_matrices(M: int, N: int, K: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A of (M, K) and B of (K, N): nearly normal random numbers, the same bits on every machine.

    Each number is the sum of twelve uniform ones less 6 (mean 0, variance 1), in exact arithmetic,
    from NumPy's legacy generator, whose stream is frozen (NEP 19).
    """
    random = np.random.RandomState([M, N, K])

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        total = np.zeros((rows, columns), np.int64)
        for _ in range(12):
            total += random.randint(0, 2**32, (rows, columns), dtype=np.uint32)
        return (total * 2.0**-32 - 6).astype(np.float32)

    return matrix(M, K), matrix(K, N)


def fingerprint(C: NDArray[np.float32]) -> str:
    """SHA-256 of the bits of C: row-major, FP32, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(C, "<f4").tobytes()).hexdigest()
