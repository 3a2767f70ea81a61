"""The check of a product: what it accepts, what it rejects, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import fma_product

from helpers.check import MAX_K, check_product, gamma, lambda_for

Matrix = NDArray[np.float32]
RANDOM = np.random.default_rng(7)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before() -> None:
    RANDOM.bit_generator.state = START


def normal(*shape: int) -> Matrix:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def uniform(*shape: int) -> Matrix:
    return RANDOM.random(shape, dtype=np.float32)


def cauchy(*shape: int) -> Matrix:
    return RANDOM.standard_cauchy(shape).astype(np.float32)


def integers(*shape: int) -> Matrix:
    return RANDOM.integers(-9, 10, shape).astype(np.float32)


def huge_and_tiny(*shape: int) -> Matrix:
    return (RANDOM.standard_normal(shape) * np.exp2(RANDOM.integers(-60, 60, shape))).astype(
        np.float32
    )


def tf32(x: Matrix) -> Matrix:
    """Rounded to nearest even with 10 bits after the point, as TF32 inputs are."""
    bits = x.view(np.uint32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint32(0x1FFF)
    return rounded.astype(np.uint32).view(np.float32)


def forward(A: Matrix, B: Matrix) -> Matrix:
    """A product and a sum, each rounded, in order."""
    C = np.zeros((A.shape[0], B.shape[1]), np.float32)
    for k in range(A.shape[1]):
        C += A[:, k : k + 1] * B[k]
    return C


def backward(A: Matrix, B: Matrix) -> Matrix:
    return forward(A[:, ::-1], B[::-1])


def split_in_32(A: Matrix, B: Matrix) -> Matrix:
    parts = [forward(A[:, s::32], B[s::32]) for s in range(min(32, A.shape[1]))]
    return np.add.accumulate(np.array(parts))[-1]


def each_element(summed: Callable[[Matrix], np.float32]) -> Callable[[Matrix, Matrix], Matrix]:
    """A product that sums the terms of each element by `summed`."""

    def product(A: Matrix, B: Matrix) -> Matrix:
        rows = [[summed(row * column) for column in B.T] for row in A]
        return np.array(rows, np.float32)

    return product


ORDERS = {
    "fma": fma_product,
    "forward": forward,
    "backward": backward,
    "split in 32": split_in_32,
    "BLAS": lambda A, B: A @ B,
    "largest first": each_element(lambda t: np.add.accumulate(t[np.argsort(-abs(t))])[-1]),
    "smallest first": each_element(lambda t: np.add.accumulate(t[np.argsort(abs(t))])[-1]),
    "positive first": each_element(lambda t: np.add.accumulate(np.sort(t)[::-1])[-1]),
    "pairwise": each_element(lambda t: t.sum(dtype=np.float32)),
}
DATA = {f.__name__: f for f in (normal, uniform, cauchy, integers, huge_and_tiny)}


@pytest.mark.parametrize("K", [1, 2, 3, 10, 100, 1000, 4096])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_right_products_pass_in_any_order(
    order: Callable[[Matrix, Matrix], Matrix], data: Callable[..., Matrix], K: int
) -> None:
    A, B = data(8, K), data(K, 9)
    verdict = check_product(order(A, B), A, B)
    assert verdict, verdict
    assert verdict.random


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, 0.7, 1.1, -0.1])
@pytest.mark.parametrize("K", [100, 1024, 1500, 4096, 10000, 30000])
def test_right_products_of_constant_matrices_pass(value: float, K: int) -> None:
    A, B = np.full((2, K), value, np.float32), np.full((K, 3), value, np.float32)
    for order in (fma_product, forward, split_in_32):
        verdict = check_product(order(A, B), A, B)
        assert verdict, verdict


STRUCTURED: dict[str, Callable[[NDArray[np.int64]], NDArray[np.float64]]] = {
    "tenths": lambda i: i * 0 + 0.1,
    "steps": lambda i: i % 7 * 0.0096,
    "signs": lambda i: np.where(i % 2, 0.1, -0.1),
    "ramp": lambda i: i / i.size,
    "harmonic": lambda i: 1 / (1 + i),
    "waves": lambda i: np.sin(0.37 * i),
    "nearly constant": lambda i: 0.0016 + 1e-6 * np.cos(i * i),
    "large and small": lambda i: np.where(i % 97 == 0, 1e8, 1e-3),
}


@pytest.mark.parametrize("K", [777, 3000, 20000])
@pytest.mark.parametrize("first", STRUCTURED)
@pytest.mark.parametrize("second", STRUCTURED)
def test_right_products_of_structured_matrices_pass(first: str, second: str, K: int) -> None:
    A = STRUCTURED[first](np.arange(2 * K).reshape(2, K)).astype(np.float32)
    B = STRUCTURED[second](np.arange(2 * K).reshape(K, 2)).astype(np.float32)
    for name, order in ORDERS.items():
        if name != "fma" or K < 20000:  # the oracle is slow for long sums
            verdict = check_product(order(A, B), A, B)
            assert verdict, f"{name}: {verdict}"


def test_a_constant_matrix_is_judged_by_the_worst_case_and_the_verdict_says_so() -> None:
    A, B = np.full((2, 20000), 0.1, np.float32), np.full((20000, 3), 0.1, np.float32)
    verdict = check_product(forward(A, B), A, B)
    assert not verdict.random
    assert str(verdict) == "PASS: 6 elements within the worst-case rounding-error bound"


@pytest.mark.parametrize("K", [1, 2, 10, 100, 1000, 4096, 8192])
def test_inputs_rounded_to_tf32_are_rejected(K: int) -> None:
    A, B = normal(200, K), normal(K, 200)
    verdict = check_product(tf32(A) @ tf32(B), A, B)
    assert not verdict
    assert verdict.random
    assert "TF32" in str(verdict)


@pytest.mark.parametrize("K", [1, 2, 31, 1000, 4096, 8192])
def test_a_product_left_out_of_every_sum_is_rejected(K: int) -> None:
    A, B = normal(100, K), normal(K, 100)
    dropped = A @ B - A[:, -1:] * B[-1]
    assert not check_product(dropped, A, B)


@pytest.mark.parametrize("K", [1000, 2000, 4096])
def test_a_typical_product_left_out_of_one_sum_is_rejected(K: int) -> None:
    A, B = normal(100, K), normal(K, 100)
    C = A @ B
    terms = A[60] * B[:, 70]
    C[60, 70] -= np.median(np.abs(terms))  # about 0.4: half of the terms are larger
    verdict = check_product(C, A, B)
    assert (verdict.wrong, verdict.first) == (1, (60, 70))


def test_the_worst_case_alone_would_let_these_pass() -> None:
    A, B = normal(100, 4096), normal(4096, 100)
    worst = gamma(4096) * (np.abs(A).astype(float) @ np.abs(B).astype(float))
    exact = A.astype(float) @ B.astype(float)
    assert (np.abs(tf32(A) @ tf32(B) - exact) <= worst).all()
    assert (np.abs(A[:, 1:].astype(float) @ B[1:] - exact) <= worst).mean() > 0.5


def test_the_error_of_a_pass_is_far_from_the_bound_at_1024() -> None:
    A, B = normal(1024, 1024), normal(1024, 1024)
    verdict = check_product(A @ B, A, B)
    assert str(verdict) == "PASS: 1,048,576 elements within the rounding-error bound"
    assert verdict.largest < 0.1
    assert lambda_for(1024 * 1024) == pytest.approx(7.53, abs=0.01)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3.4e38])
def test_what_is_not_a_number_near_the_product_fails(value: float) -> None:
    A, B = normal(40, 50), normal(50, 60)
    C = A @ B
    C[7, 9] = value
    verdict = check_product(C, A, B)
    assert not verdict
    assert (verdict.wrong, verdict.first, verdict.elements) == (1, (7, 9), 2400)
    assert "FAIL: 1 of 2,400 elements" in str(verdict)
    assert f"row 7, column 9: got {np.float32(value):.9g}, expected" in str(verdict)


def test_zero_times_anything_is_zero_exactly() -> None:
    A, B = np.zeros((3, 5), np.float32), normal(5, 4)
    C = np.zeros((3, 4), np.float32)
    assert check_product(C, A, B)
    assert check_product(-C, A, B)
    C[1, 2] = 1e-30
    assert not check_product(C, A, B)


def test_underflow_is_no_error() -> None:
    A, B = normal(5, 40) * np.float32(1e-22), normal(40, 5) * np.float32(1e-22)
    assert check_product(fma_product(A, B), A, B)
    assert check_product(forward(A, B), A, B)


def test_the_first_wrong_element_is_the_first_in_row_order_and_all_are_located() -> None:
    A, B = normal(100, 20), normal(20, 100)
    C = A @ B
    C[30, 90] += 1
    C[31, 80] += 1
    C[96:, 95:] = np.nan
    text = str(check_product(C, A, B))
    assert text.startswith(
        "FAIL: 22 of 10,000 elements outside the rounding-error bound; the first"
    )
    assert "at row 30, column 90" in text
    assert "rows 30 to 99 and columns 80 to 99" in text
    assert "NaN in 20 of them" in text


def test_an_unwritten_and_a_zero_result_are_called_so() -> None:
    A, B = normal(10, 20), normal(20, 10)
    assert "was C written" in str(check_product(np.full((10, 10), np.nan, np.float32), A, B))
    assert "every element is zero" in str(check_product(np.zeros((10, 10), np.float32), A, B))


def test_a_transposed_result_is_called_so() -> None:
    A, B = normal(30, 20), normal(20, 30)
    assert "transpose" in str(check_product(np.ascontiguousarray((A @ B).T), A, B))
    symmetric = np.full((30, 20), 0.5, np.float32)
    wrong = np.full((30, 30), 5.5, np.float32)
    assert "transpose" not in str(check_product(wrong, symmetric, symmetric.T))


def test_panels_do_not_change_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = normal(50, 30), normal(30, 40)
    C = A @ B
    C[3, 4] = C[47, 1] = np.nan
    whole = check_product(C, A, B)
    monkeypatch.setattr("helpers.check._PANEL", 7 * 40)
    assert str(check_product(C, A, B)) == str(whole)


def test_the_memory_order_does_not_matter() -> None:
    A, B = normal(30, 20), normal(20, 30)
    assert check_product(np.asfortranarray(A @ B), A.T.copy().T, B[:, ::-1][:, ::-1])


@pytest.mark.parametrize(
    ("C", "A", "B", "error", "message"),
    [
        (normal(4, 4), normal(4, 3).astype(float), normal(3, 4), TypeError, "A has dtype float64"),
        (normal(4, 4).astype(int), normal(4, 3), normal(3, 4), TypeError, "C has dtype int64"),
        ([[1.0]], normal(1, 1), normal(1, 1), TypeError, "C is a list"),
        (normal(4), normal(4, 3), normal(3, 1), ValueError, r"C has shape \(4,\)"),
        (normal(4, 5), normal(4, 3), normal(3, 6), ValueError, r"C has shape \(4, 5\), A \* B has"),
        (normal(6, 4), normal(4, 3), normal(3, 6), ValueError, "transposed: write C.T"),
        (normal(4, 4), normal(4, 3), normal(2, 4), ValueError, "A has 3 columns and B has 2 rows"),
        (normal(0, 4), normal(0, 3), normal(3, 4), ValueError, "M, N and K must be at least 1"),
    ],
)
def test_arguments_that_cannot_be_compared_are_errors(
    C: Matrix, A: Matrix, B: Matrix, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_product(C, A, B)


def test_inputs_without_a_right_answer_are_errors() -> None:
    A, B, C = normal(4, 4), normal(4, 4), normal(4, 4)
    B[2, 1] = np.nan
    with pytest.raises(ValueError, match="B has nan at row 2, column 1"):
        check_product(C, A, B)
    with pytest.raises(ValueError, match="may overflow FP32"):
        check_product(C, np.full((4, 4), 1e20, np.float32), np.full((4, 4), 1e20, np.float32))
    A, B = np.ones((1, MAX_K + 1), np.float32), np.ones((MAX_K + 1, 1), np.float32)
    with pytest.raises(ValueError, match="K=4,194,305 is more than"):
        check_product(np.ones((1, 1), np.float32), A, B)
