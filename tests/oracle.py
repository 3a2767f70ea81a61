"""What the kernels must compute, bit for bit: a chain of FP32 fused multiply-adds, in NumPy.

Both kernels start each element of C at +0 and add the products A[i, k] * B[k, j] for k = 0, 1, … in
this order, each by one `fma.rn.f32`: the exact product plus the sum so far, rounded once (PTX ISA,
floating point instructions, fma).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROWS = 16  # rows of C at a time, so that the arrays stay in the cache


def fma(
    a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]
) -> NDArray[np.float32]:
    """a * b + c in FP32 with one rounding, to nearest even.

    The product of two FP32 numbers is exact in float64 (24 + 24 <= 53 bits). The sum there is
    rounded once, and going to FP32 rounds it again. That differs from rounding once only if the
    float64 sum is exactly halfway between two FP32 numbers and the exact sum is not. Such sums are
    rounded to odd first: of the two float64 neighbours of the exact sum the one whose last bit is 1
    is taken; the last rounding then goes the way of the exact sum (S. Boldo and G. Melquiond,
    Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, IEEE
    Trans. Computers 57 (2008) 462-471).
    """
    return _sum(a.astype(np.float64) * b.astype(np.float64), c)


def fma_product(A: NDArray[np.float32], B: NDArray[np.float32]) -> NDArray[np.float32]:
    """A * B, shapes (M, K) and (K, N), by the chain of fused multiply-adds of the kernels."""
    C = np.empty((A.shape[0], B.shape[1]), np.float32)
    wide_A, wide_B = A.astype(np.float64), B.astype(np.float64)
    for top in range(0, A.shape[0], _ROWS):
        rows = wide_A[top : top + _ROWS]
        total = np.zeros((len(rows), B.shape[1]), np.float32)
        for k in range(A.shape[1]):
            total = _sum(rows[:, k : k + 1] * wide_B[k], total)
        C[top : top + _ROWS] = total
    return C


def _sum(product: NDArray[np.float64], addend: NDArray[np.float32]) -> NDArray[np.float32]:
    """product + addend, rounded once to FP32."""
    total = product + addend
    low_bits = total.view(np.int64) & 0x1FFF_FFFF  # what FP32 has no room for
    hard = (low_bits == 0x1000_0000) | (np.abs(total) < 2.0**-125)  # FP32 subnormals have less room
    if hard.any():
        total[hard] = _odd_sum(product[hard], addend[hard].astype(np.float64))
    return total.astype(np.float32)


def _odd_sum(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """x + y rounded to odd."""
    total = x + y
    # TwoSum: the error of the rounded sum, exactly (D. E. Knuth, TAOCP vol. 2, 4.2.2, theorem B).
    part = total - x
    error = (x - (total - part)) + (y - part)
    bits = total.view(np.int64)
    # The bits of a float64, as an integer, grow with its magnitude.
    step = np.where((error > 0) == (total > 0), 1, -1)
    bits += np.where((error != 0) & (bits & 1 == 0), step, 0)
    return total
