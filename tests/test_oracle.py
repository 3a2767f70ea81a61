"""The oracle itself: is it a fused multiply-add, rounded once?"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import fma, fma_product

# 13264529 * 10610063 = 2^47 - 1; beside 2^71 + 2^48 that is one less than half a unit in the last
# place of FP32, and too little less for float64 to see.
A, B, C = 13264529.0, 10610063.0, 2.0**71 + 2.0**48


def fp32(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def exact(a: np.float32, b: np.float32, c: np.float32) -> Fraction:
    return Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))


def is_nearest(result: np.float32, value: Fraction) -> bool:
    """Whether FP32 `result` is the nearest to `value`, a tie going to the even last bit."""
    distance = abs(Fraction(float(result)) - value)
    for direction in (-np.inf, np.inf):
        other = abs(Fraction(float(np.nextafter(result, np.float32(direction)))) - value)
        even = int(result.view(np.uint32)) % 2 == 0
        if other < distance or (other == distance and not even):
            return False
    return True


@pytest.mark.parametrize(
    ("a", "c", "expected"),
    [(A, C, C), (-A, -C, -C), (-A, C, C), (A, -C, -C), (A, 2.0**71, 2.0**71)],
)
def test_rounds_once_where_float64_would_round_twice(a: float, c: float, expected: float) -> None:
    assert fma(fp32(a), fp32(B), fp32(c))[0] == np.float32(expected)


def test_the_case_above_is_one_that_float64_gets_wrong() -> None:
    assert np.float32(A * B + C) != np.float32(C)


def test_random_values_are_rounded_to_nearest() -> None:
    random = np.random.default_rng(1)
    scale = np.exp2(random.integers(-40, 40, (3, 3000)))
    a, b, c = (random.standard_normal((3, 3000)) * scale).astype(np.float32)
    for x, y, z, result in zip(a, b, c, fma(a, b, c), strict=True):
        assert is_nearest(result, exact(x, y, z)), (x, y, z, result)


def test_near_ties_are_rounded_to_nearest() -> None:
    random = np.random.default_rng(2)
    c = random.standard_normal(3000).astype(np.float32)
    a = (np.spacing(c) / 2).astype(np.float32)
    b = (1 + random.integers(-2, 3, 3000) * 2.0**-23).astype(np.float32)
    for x, y, z, result in zip(a, b, c, fma(a, b, c), strict=True):
        assert is_nearest(result, exact(x, y, z)), (x, y, z, result)


def test_subnormal_results_are_rounded_once_and_not_flushed() -> None:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((2, 3000)) * 1e-20).astype(np.float32)
    c = (random.standard_normal(3000) * 1e-42).astype(np.float32)
    results = fma(a, b, c)
    assert (results != 0).sum() > 2500
    for x, y, z, result in zip(a, b, c, results, strict=True):
        assert is_nearest(result, exact(x, y, z)), (x, y, z, result)


def test_the_product_is_the_chain_of_fmas_in_order() -> None:
    random = np.random.default_rng(4)
    A = random.standard_normal((19, 35)).astype(np.float32)
    B = random.standard_normal((35, 23)).astype(np.float32)
    C = np.zeros((19, 23), np.float32)
    for k in range(35):
        C = fma(A[:, k : k + 1], B[k : k + 1], C)
    assert np.array_equal(fma_product(A, B).view(np.uint32), C.view(np.uint32))


def test_the_order_matters_so_a_wrong_order_would_show() -> None:
    random = np.random.default_rng(5)
    A = random.standard_normal((32, 64)).astype(np.float32)
    B = random.standard_normal((64, 32)).astype(np.float32)
    backwards = fma_product(np.ascontiguousarray(A[:, ::-1]), np.ascontiguousarray(B[::-1]))
    assert not np.array_equal(fma_product(A, B), backwards)
