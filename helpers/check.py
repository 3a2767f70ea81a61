"""Is C the product A * B, as well as FP32 can compute it?

    print(check_product(C, A, B))     # PASS: 1,048,576 elements within the rounding-error bound

Each element of C is compared with the product in float64. It may differ by what rounding can do, in
any order of summation, with or without fused multiply-add; no more. Two bounds say what that is.
With u = 2^-24 and T = |A||B| (both exact up to float64):

1. Worst case. |C - AB| <= gamma_K T, gamma_K = K u / (1 - K u), for every order of summation
   (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 for inner
   products, section 3.5 for matrix products). Certain, but loose for large K: at K = 4096 the
   product of inputs rounded to TF32, or one with a term missing, would pass.

2. Probabilistic. Rounding errors of either sign cancel, so sqrt(K) takes the place of K
   (N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci.
   Comput. 41 (2019) A2815-A2835, Theorem 2.4 and section 3), if they are independent and of mean
   zero. That paper bounds every partial sum by T. A partial sum lies between the sum of the
   negative terms and the sum of the positive ones, so it is at most P = (T + |AB|) / 2. The error
   of an element is the sum of delta_i s_i over at most 2K roundings, |delta_i| <= u, where the s_i
   are products (their squares add up to at most 2 P^2) and K - 1 partial sums. By the
   Azuma-Hoeffding inequality (used in this way by I. C. F. Ipsen and H. Zhou, Probabilistic error
   analysis for inner products, SIAM J. Matrix Anal. Appl. 41 (2020) 1726-1741)

       |C - AB| <= lambda u sqrt(K + 1) P (1 + gamma_K)

   except with probability 2 exp(-lambda^2 / 2). lambda is chosen so that the M N exceptions
   together have probability 1e-6 (`FAILURE`): it is 7.5 for 1024 x 1024. Real rounding errors stay
   far inside, since most are smaller than u.

An element passes if it is within the smaller of the two. Where the second one decides against C,
the check makes sure that it may: in data such as a constant matrix all roundings of a sum can go
the same way, and then a right kernel passes it too. So the elements in question are summed again
in plain float32, in several orders. If that comes anywhere near the second bound, the rounding
errors are not random in this data, and the first bound alone decides; the verdict says so.

NaN and infinity in C never pass. A and B must be finite and their product far from overflow, else
there is no right answer to compare with: a ValueError. Underflow is allowed for: each operation may
lose half of the smallest subnormal, 2^-150. Flushing subnormals to zero is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.errors import WrongValue
from helpers.kernels import check_matrix

U = 2.0**-24  # unit roundoff of FP32, round to nearest
FAILURE = 1e-6  # probability that random rounding errors fail a right C
MAX_K = 2**22  # beyond it the bounds approach the size of the sums themselves
_U64 = 2.0**-53
_HALF_SUBNORMAL = 2.0**-150
_PANEL = 2**22  # elements of C compared at a time, to bound the memory
_WITNESSES = 256  # elements summed again to see whether rounding errors are random


def gamma(K: int) -> float:
    """Higham's gamma_K = K u / (1 - K u) for FP32, for K u < 1."""
    return K * U / (1 - K * U)


def lambda_for(elements: int, failure: float = FAILURE) -> float:
    """The lambda for which `elements` bounds all hold except with probability `failure`.

    Solves elements * 2 exp(-lambda^2 / 2) = failure.
    """
    return math.sqrt(2 * math.log(2 * elements / failure))


@dataclass(frozen=True, repr=False)
class Verdict:
    """What `check_product` found. True in an `if` when C passed; `print` it for one line."""

    passed: bool
    elements: int
    wrong: int  # elements outside the bound, NaN and infinity included
    largest: float  # the largest error as a fraction of its bound; infinite if not finite
    random: bool  # whether the probabilistic bound took part
    first: tuple[int, int] | None = None  # row and column of the first wrong element
    got: float | None = None  # there
    expected: float | None = None
    bound: float | None = None
    hints: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        bound = "the rounding-error bound" if self.random else "the worst-case rounding-error bound"
        if self.passed:
            return f"PASS: {self.elements:,} elements within {bound}"
        row, column = self.first or (0, 0)
        sentence = (
            f"FAIL: {self.wrong:,} of {self.elements:,} elements outside {bound}; the first at row "
            f"{row}, column {column}: got {self.got:.9g}, expected {self.expected:.9g} "
            f"± {self.bound:.2g}"
        )
        return "\n".join([sentence, *(f"  {hint}" for hint in self.hints)])

    __repr__ = __str__


def check_product(
    C: NDArray[np.float32], A: NDArray[np.float32], B: NDArray[np.float32]
) -> Verdict:
    """Compare C, shape (M, N), with the float64 product of A, (M, K), and B, (K, N); all float32.

    Raises TypeError or ValueError for arguments that cannot be compared: not float32 matrices,
    shapes that do not fit, A or B not finite, a product that overflows.
    """
    for name, matrix in (("C", C), ("A", A), ("B", B)):
        check_matrix(name, np.ascontiguousarray(matrix) if _is_matrix(matrix) else matrix)
    (M, K), N = A.shape, B.shape[1]
    if B.shape[0] != K:
        raise WrongValue(f"A has {K} columns and B has {B.shape[0]} rows: they must be equal")
    if C.shape != (M, N):
        turned = "; it looks transposed: write C.T" if C.shape == (N, M) else ""
        raise WrongValue(f"C has shape {C.shape}, A * B has shape {(M, N)}{turned}")
    if K > MAX_K:
        raise WrongValue(f"K={K:,} is more than {MAX_K:,}: no FP32 bound tells right from wrong")
    for name, matrix in (("A", A), ("B", B)):
        _check_finite(name, matrix)
    reference = _Reference(A, B)
    found = _compare(C, reference, random=True)
    if found.undecided and not _errors_are_random(A, B, reference, found.undecided):
        found = _compare(C, reference, random=False)
    return _verdict(C, A, B, reference, found)


class _Reference:
    """The float64 product and its bounds, a panel of rows at a time."""

    def __init__(self, A: NDArray[np.float32], B: NDArray[np.float32]) -> None:
        self.A = A
        self.B = B.astype(np.float64)
        self.absolute_B = np.abs(self.B)
        self.shape = (A.shape[0], B.shape[1])
        self.K = A.shape[1]
        self.lam = lambda_for(self.shape[0] * self.shape[1])
        self.rows = max(1, _PANEL // max(self.shape[1], self.K))

    def panel(self, top: int, bottom: int) -> tuple[NDArray[np.float64], ...]:
        """Rows top to bottom - 1 of the product, of T and of the two bounds, worst case first."""
        A = self.A[top:bottom].astype(np.float64)
        product = A @ self.B
        total = np.abs(A) @ self.absolute_B
        largest_sum = (total + np.abs(product)) / 2
        _check_overflow(largest_sum, top)
        # The reference's own error (products of two float32 are exact in float64), and underflow.
        slack = 2 * self.K * _U64 * total + 2 * self.K * _HALF_SUBNORMAL
        worst = gamma(self.K) * total + slack
        growth = self.lam * U * math.sqrt(self.K + 1) * (1 + gamma(self.K))
        return product, total, worst, growth * largest_sum + slack


@dataclass
class _Found:
    """Elements outside the bounds, over all panels."""

    wrong: int = 0
    largest: float = 0.0
    first: tuple[int, int] | None = None
    got: float = 0.0
    expected: float = 0.0
    bound: float = 0.0
    random: bool = True
    undecided: list[tuple[int, int]] = field(default_factory=list)  # between the two bounds
    rows: tuple[int, int] = (0, 0)  # first and last row and column with a wrong element
    columns: tuple[int, int] = (0, 0)
    relative: float = 0.0  # largest error as a fraction of T; infinite if not finite


def _compare(C: NDArray[np.float32], reference: _Reference, random: bool) -> _Found:
    found = _Found(random=random)
    for top in range(0, C.shape[0], reference.rows):
        rows = C[top : top + reference.rows].astype(np.float64)
        product, total, worst, probable = reference.panel(top, top + len(rows))
        bound = np.minimum(worst, probable) if random else worst
        error = np.abs(rows - product)
        outside = ~(error <= bound)  # so that NaN is outside
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(bound > 0, error / bound, np.where(error == 0, 0.0, math.inf))
        found.largest = max(found.largest, float(np.nan_to_num(ratio, nan=math.inf).max()))
        if outside.any():
            _note(found, top, rows, product, bound, outside)
            _note_sizes(found, top, error, total, outside, error <= worst)
    return found


def _note(
    found: _Found,
    top: int,
    rows: NDArray[np.float64],
    product: NDArray[np.float64],
    bound: NDArray[np.float64],
    outside: NDArray[np.bool_],
) -> None:
    """Add the wrong elements of one panel: how many, where, and the first of all."""
    where = np.argwhere(outside)
    row, column = (int(index) for index in where[0])
    low, high = where.min(axis=0), where.max(axis=0)
    if found.first is None:
        found.first = (top + row, column)
        found.got, found.expected = float(rows[row, column]), float(product[row, column])
        found.bound = float(bound[row, column])
        found.rows = (top + int(low[0]), 0)
        found.columns = (int(low[1]), int(high[1]))
    found.rows = (found.rows[0], top + int(high[0]))
    found.columns = (min(found.columns[0], int(low[1])), max(found.columns[1], int(high[1])))
    found.wrong += len(where)


def _note_sizes(
    found: _Found,
    top: int,
    error: NDArray[np.float64],
    total: NDArray[np.float64],
    outside: NDArray[np.bool_],
    possible: NDArray[np.bool_],
) -> None:
    """Add how wrong they are, and those that the worst case would still allow."""
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = error[outside] / total[outside]
    found.relative = max(found.relative, float(np.nan_to_num(relative, nan=math.inf).max()))
    room = _WITNESSES - len(found.undecided)
    undecided = np.argwhere(outside & possible)
    step = max(1, len(undecided) // max(1, room))
    found.undecided += [(top + int(r), int(c)) for r, c in undecided[::step][:room]]


def _errors_are_random(
    A: NDArray[np.float32],
    B: NDArray[np.float32],
    reference: _Reference,
    elements: list[tuple[int, int]],
) -> bool:
    """Whether plain float32 sums of these elements keep well inside the probabilistic bound.

    With random rounding errors they stay under a tenth of it or so; a quarter would be an event of
    eight standard deviations.
    """
    for row, column in elements:
        terms = A[row] * B[:, column]
        exact = float(A[row].astype(np.float64) @ reference.B[:, column])
        total = float(np.abs(A[row].astype(np.float64)) @ reference.absolute_B[:, column])
        bound = reference.lam * U * math.sqrt(reference.K + 1) * (total + abs(exact)) / 2
        if any(abs(value - exact) > bound / 4 for value in _plain_sums(terms)):
            return False
    return True


def _plain_sums(terms: NDArray[np.float32]) -> list[float]:
    """The sum of the terms in float32, in many orders: as they are, sorted, and in parts."""
    by_size = terms[np.argsort(np.abs(terms))]
    orders = (terms, terms[::-1], by_size, by_size[::-1], np.sort(terms))
    sums = [np.add.accumulate(ordered)[-1] for ordered in orders]
    for parts in (2, 4, 8, 16, 32):
        padded = np.zeros(-(-len(terms) // parts) * parts, np.float32)
        padded[: len(terms)] = terms
        sums.append(np.add.accumulate(np.add.accumulate(padded.reshape(-1, parts))[-1])[-1])
    return [float(value) for value in sums]


def _verdict(
    C: NDArray[np.float32],
    A: NDArray[np.float32],
    B: NDArray[np.float32],
    reference: _Reference,
    found: _Found,
) -> Verdict:
    passed = found.wrong == 0
    return Verdict(
        passed=passed,
        elements=C.size,
        wrong=found.wrong,
        largest=found.largest,
        random=found.random,
        first=found.first,
        got=None if passed else found.got,
        expected=None if passed else found.expected,
        bound=None if passed else found.bound,
        hints=() if passed else tuple(_hints(C, A, B, found)),
    )


def _hints(
    C: NDArray[np.float32], A: NDArray[np.float32], B: NDArray[np.float32], found: _Found
) -> list[str]:
    """What the wrong elements look like, where that points at a cause."""
    nan = int(np.isnan(C).sum())
    if nan == C.size:
        return ["every element is NaN: was C written at all? Fresh memory is filled with NaN"]
    if not C.any():
        return ["every element is zero: was C written, and was the right array copied back?"]
    hints = []
    if found.relative <= 2.0**-10:
        hints.append(
            "the errors are too large for FP32 rounding, but small: inputs rounded to TF32 or "
            "terms left out of the sums look like this"
        )
    if nan:
        hints.append(f"NaN in {nan:,} of them: fresh memory is filled with it until it is written")
    (top, bottom), (left, right) = found.rows, found.columns
    if (bottom - top + 1, right - left + 1) != C.shape:
        hints.append(f"all of them are in rows {top} to {bottom} and columns {left} to {right}")
    if 2 * found.wrong > C.size and _is_transposed(C, A, B):
        hints.append("C looks like the transpose of A * B: rows and columns are swapped somewhere")
    return hints


def _is_transposed(C: NDArray[np.float32], A: NDArray[np.float32], B: NDArray[np.float32]) -> bool:
    if C.shape[0] != C.shape[1]:
        return False
    expected = A.astype(np.float64) @ B.astype(np.float64)
    close = 1e-3 * float(np.abs(expected).max())
    symmetric = np.abs(expected - expected.T).max() <= close
    return not symmetric and bool(np.abs(C - expected.T).max() <= close)


def _is_matrix(matrix: Any) -> bool:
    """Whether only the memory order could be wrong, which does not matter for a comparison."""
    return isinstance(matrix, np.ndarray) and matrix.ndim == 2 and not np.ma.isMaskedArray(matrix)


def _check_finite(name: str, matrix: NDArray[np.float32]) -> None:
    finite = np.isfinite(matrix)
    if not finite.all():
        row, column = (int(index) for index in np.argwhere(~finite)[0])
        raise WrongValue(
            f"{name} has {matrix[row, column]} at row {row}, column {column}: there is no right "
            "product to compare with; make the inputs finite"
        )


def _check_overflow(largest_sum: NDArray[np.float64], top: int) -> None:
    most = float(np.finfo(np.float32).max) / 2
    if not largest_sum.max() <= most:
        row, column = (int(index) for index in np.argwhere(~(largest_sum <= most))[0])
        raise WrongValue(
            f"the sum for row {top + row}, column {column} may overflow FP32 (partial sums up to "
            f"{largest_sum[row, column]:.3g}): there is no right result to compare with; scale the "
            "inputs down"
        )
