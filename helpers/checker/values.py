"""What a wrong C looks like: pure functions of the numbers, without the engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .diagnosis import Diagnosis
from .trial import Attempt, close, size

TILES = 4, 8, 16, 32, 64


def other_product(a: Attempt) -> Diagnosis | None:
    """C is another product of the factors, or its elements lie elsewhere."""
    M, N, K = a.shape
    A, B = a.A, a.B
    if M == N and close(a.C, A, B).mean() < 0.5 and close(a.C.T, A, B).all():
        return Diagnosis("transposed result", (f"With {size(a.shape)}, C[row, col] is the element "
                         "[col, row] of A·B, everywhere.",))  # fmt: skip
    flat = a.C.reshape(-1).reshape(N, M)
    if M != N and close(flat.T, A, B).all():
        return Diagnosis("transposed result", (f"With {size(a.shape)}, C holds A·B transposed, "
                         "with rows of M elements.",))  # fmt: skip
    for name, text, X, Y in _products(A, B):
        if X.shape[1] == Y.shape[0] and (X.shape[0], Y.shape[1]) == (M, N):
            if close(a.C, X, Y).all():
                return Diagnosis(name, (f"With {size(a.shape)}, every element of C is that of "
                                        f"{text}.",))  # fmt: skip
    return None


def tiles_of_a_factor(a: Attempt) -> Diagnosis | None:
    """C is the product with tiles of one factor that are not those they should be: transposed,
    always the first one, moving on by 1, or filled with one element for each row or column."""
    M, N, K = a.shape
    k, row, column = np.arange(K), np.arange(M)[:, None], np.arange(N)
    for tile in (1, *TILES):
        for name, X, Y in (("A", a.A[:, k % tile], a.B), ("B", a.A, a.B[k % tile])):
            if tile < K and close(a.C, X, Y).all():
                what = f"the first {tile} k" if tile > 1 else "k = 0"
                return Diagnosis("tile does not advance", (
                    f"With {size(a.shape)}, every element of C is that of a product in which "
                    f"{name} has only {what}, over and over.",))  # fmt: skip
        if M % tile or N % tile or K % tile or tile == 1:
            continue
        slow = k // tile + k % tile
        for name, X, Y in (("A", a.A[:, slow], a.B), ("B", a.A, a.B[slow])):
            if tile < K and close(a.C, X, Y).all():
                return Diagnosis("tile does not advance", (
                    f"With {size(a.shape)}, every element of C is that of a product in which the "
                    f"tile of {name} moves on by 1 k each step, not by {tile}.",))  # fmt: skip
        start = k // tile * tile
        for name, index, wanted, X, Y in (
            ("A", "threadIdx.y", "threadIdx.x", a.A[row, start + row % tile], a.B),
            ("B", "threadIdx.x", "threadIdx.y", a.A, a.B[start[:, None] + column % tile, column]),
        ):
            if close(a.C, X, Y).all():
                return Diagnosis("x and y mixed up in a load", (
                    f"With {size(a.shape)}, every element of C is that of a product in which each "
                    f"{tile} x {tile} tile of {name} has one k only in each "
                    f"{'row' if name == 'A' else 'column'}: {index} stands in the index where "
                    f"{wanted} belongs.",))  # fmt: skip
        for name, X, Y in (("A", _turned(a.A, tile), a.B), ("B", a.A, _turned(a.B, tile))):
            if close(a.C, X, Y).all():
                return Diagnosis("a factor is transposed", (
                    f"With {size(a.shape)}, every element of C is that of a product in which each "
                    f"{tile} x {tile} tile of {name} is transposed.",))  # fmt: skip
    return None


def rows_without_length(a: Attempt, transposed: bool) -> Diagnosis | None:
    """C is the product with A[row + k] for A[row * K + k], or B[k + col] for B[k * N + col].
    transposed: B is given as N x K."""
    M, N, K = a.shape
    k = np.arange(K)
    given = a.B.T if transposed else a.B
    A = a.A.reshape(-1)[np.minimum(np.arange(M)[:, None] + k, M * K - 1)]
    B = given.reshape(-1)[np.minimum(k[:, None] + np.arange(N), K * N - 1)]
    for what, X, Y in (
        ("A[row + k]", A, a.B), ("B[k + col]", a.A, B), ("A[row + k] and B[k + col]", A, B),
    ):  # fmt: skip
        if close(a.C, X, Y).all():
            return Diagnosis("row length forgotten", (f"With {size(a.shape)}, every element of C "
                             f"is that of a product with {what}.",))  # fmt: skip
    return None


def integers(a: Attempt) -> Diagnosis | None:
    """C has no fractions, though A·B has."""
    if (a.C != np.rint(a.C)).any() or len(np.unique(a.C)) < 3 or a.right:
        return None
    return Diagnosis("integer arithmetic", (f"With {size(a.shape)}, all elements of C are whole "
                     "numbers: sums, or products, are kept in an int.",))  # fmt: skip


def _turned(X: np.ndarray, tile: int) -> np.ndarray:
    """X with each of its tiles transposed."""
    rows, columns = X.shape
    parts = X.reshape(rows // tile, tile, columns // tile, tile)
    return parts.transpose(0, 3, 2, 1).reshape(rows, columns)


def _products(A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    yield "computes B·A", "B·A", B, A
    yield "a factor is transposed", "A·Bᵀ, as if B were transposed", A, B.T
    yield "a factor is transposed", "Aᵀ·B, as if A were transposed", A.T, B
    yield "computes B·A", "Bᵀ·Aᵀ, both read down the wrong way and exchanged", B.T, A.T
    yield "a factor is transposed", "Aᵀ·Bᵀ, both as if they were transposed", A.T, B.T
    yield "a factor is transposed", "B·Aᵀ", B, A.T
    yield "a factor is transposed", "Bᵀ·A", B.T, A


def part_of_the_sum(a: Attempt) -> Diagnosis | None:
    """C has the products of some k only, from the first or up to the last."""
    found = added(a)
    if found is None:
        return None
    first, last = found
    if first:
        return Diagnosis("K loop starts late", (_missing(a, 0, first),))
    return Diagnosis("K loop too short", (_missing(a, last, a.shape[2]),))


def added(a: Attempt) -> tuple[int, int] | None:
    """(first, last): C has the products of k = first to last - 1, and not all."""
    K = a.shape[2]
    if not a.wrong.any():
        return None
    row, column = (int(n) for n in np.argwhere(a.wrong)[0])
    terms = a.A[row].astype(np.float64) * a.B[:, column]
    sums = np.concatenate([[0.0], np.cumsum(terms)])
    slack = 1e-5 * np.abs(terms).sum() + 1e-30
    got = float(a.C[row, column])
    for last in range(K - 1, -1, -1):
        if abs(sums[last] - got) <= slack and close(a.C, a.A[:, :last], a.B[:last]).all():
            return 0, last
    for first in range(1, K):
        rest = sums[K] - sums[first]
        if abs(rest - got) <= slack and close(a.C, a.A[:, first:], a.B[first:]).all():
            return first, K
    return None


def not_loaded(a: Attempt) -> Diagnosis | None:
    """Threads outside C have not loaded their part of the tiles: in the last tiles of rows or
    columns, C has the products of some k of each step only."""
    M, N, K = a.shape
    k = np.arange(K)
    for tile in TILES:
        in_rows, in_columns = k % tile < (M % tile or tile), k % tile < (N % tile or tile)
        for which in ("rows", "columns", "rows and columns"):
            expected = a.product.copy()
            left = np.s_[M // tile * tile :, :], np.s_[:, N // tile * tile :]
            chosen = [(left[0], in_rows)] * ("rows" in which)
            chosen += [(left[1], in_columns)] * ("columns" in which)
            for place, mask in chosen:
                expected[place] = (a.A[:, mask].astype(np.float64) @ a.B[mask])[place]
            corner = np.s_[M // tile * tile :, N // tile * tile :]
            if len(chosen) == 2:
                both = in_rows & in_columns
                expected[corner] = (a.A[:, both].astype(np.float64) @ a.B[both])[corner]
            bound = 1e-5 * (np.abs(a.A).astype(np.float64) @ np.abs(a.B))
            if (np.abs(a.C - expected) <= bound).all():
                return Diagnosis("tile not completely loaded", (
                    f"With {size(a.shape)}, in the last, partial tile of {which} C lacks the "
                    "products of those k that threads outside C should have loaded.",))  # fmt: skip
    return None


def _missing(a: Attempt, first: int, last: int) -> str:
    K = a.shape[2]
    which = f"k = {first}" if last == first + 1 else f"k = {first} to {last - 1}"
    if last - first == K:
        return f"With {size(a.shape)}, every element of C is 0: no product has been added."
    rest = last - first
    tile = next((t for t in TILES[::-1] if last == K and rest == K % t), 0)
    why = f", the last {rest} of {K}" if last == K and rest > 1 else ""
    why = f", the K % {tile} = {rest} that are no whole tile" if tile and tile < K else why
    return (f"With {size(a.shape)}, every element of C lacks the products of {which}{why}, and "
            "nothing else.")  # fmt: skip


def more_than_the_sum(a: Attempt, transposed: bool) -> Diagnosis | None:
    """C has products beyond k = K - 1, of what follows A and B in memory (an extended attempt)."""
    M, N, K = a.shape
    A = np.concatenate([a.A.reshape(-1), a.beyond["A"]]).astype(np.float64)
    given = a.B.T if transposed else a.B
    B = np.concatenate([given.reshape(-1), a.beyond["B"]]).astype(np.float64)
    row, column = np.arange(M)[:, None], np.arange(N)
    total, bound = a.product.copy(), np.abs(a.A).astype(np.float64) @ np.abs(a.B)
    for more in range(1, TILES[-1] + 1):
        k = K + more - 1
        from_b = B[column * K + k] if transposed else B[k * N + column]
        total += A[row * K + k] * from_b
        bound += np.abs(A[row * K + k] * from_b)
        if (np.abs(a.C - total) <= 1e-5 * bound).all():
            which = f"k = K to K + {more - 1}" if more > 1 else "k = K"
            return Diagnosis("K loop too long", (f"With {size(a.shape)}, the sums go on: products "
                             f"of {which} are added, of what lies behind A's row and B.",))
    return None


def precision(a: Attempt) -> Diagnosis | None:
    """C is the product but for roundings to fewer bits than a float has."""
    total = np.abs(a.A).astype(np.float64) @ np.abs(a.B) + 1e-30
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.abs(a.C - a.product) / total
        typical, largest = float(np.median(relative)), float(relative.max())
        rounded = a.C.astype(np.float16).astype(np.float32) == a.C
    if _factor(a) or not np.isfinite(largest) or largest > a.shape[2] * 2.0**-8:
        return None
    told = (f"With {size(a.shape)}, the errors are up to {largest:.0e} of the sum of |A||B|: FP32, "
            f"with 24 bits, makes at most {a.shape[2] * 2.0**-24:.0e} of it.")  # fmt: skip
    if rounded.all():
        return Diagnosis("half precision", (told, "Every element of C is a number that FP16 can "
                                            "hold: the sums are kept in it."))  # fmt: skip
    for name, bits in (("FP16 or TF32", 11), ("BF16", 8)):
        if close(a.C, _rounded(a.A, bits), _rounded(a.B, bits)).all():
            return Diagnosis("half precision", (told, f"C is the product of A and B rounded to "
                                                f"{name}, {bits} bits."))  # fmt: skip
    # A random walk of roundings to 11 or 8 bits; missing products would make larger errors.
    if 2.0**-17 < typical and (relative > 0).mean() > 0.9 and largest < 2.0**-7:
        return Diagnosis("half precision", (told, "All elements are off by about as much, as if "
                                            "sums or products were FP16 for a while."))  # fmt: skip
    return None


def _rounded(X: np.ndarray, bits: int) -> np.ndarray:
    """Each element rounded to so many bits, as the conversions of a GPU do."""
    mantissa, exponent = np.frexp(X.astype(np.float64))
    return np.ldexp(np.rint(mantissa * 2.0**bits) * 2.0**-bits, exponent)


def pattern(mask: np.ndarray, tile: tuple[int, int]) -> str:
    """Where the elements of a mask are, in words: rows and columns, and which of each tile."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    M, N = mask.shape
    count = int(mask.sum())
    if count == M * N:
        return "all elements"
    words = []
    for what, found, extent, step in (
        ("row", rows, M, tile[0]),
        ("column", columns, N, tile[1]),
    ):
        if len(found) == extent:
            continue
        inside = sorted(set((found % step).tolist()))
        if len(found) == found[-1] - found[0] + 1:
            first, last = int(found[0]), int(found[-1])
            words.append(f"{what} {first}" if first == last else f"{what}s {first} to {last}")
        elif len(inside) < min(step, extent) and len(inside) <= 4:
            which = ", ".join(map(str, inside))
            words.append(f"{what}s with {what} % {step} = {which}")
        else:
            words.append(f"{len(found):,} of {extent:,} {what}s")
    where = " and ".join(words) or "scattered rows and columns"
    whole = int(mask[np.ix_(rows, columns)].sum()) == len(rows) * len(columns)
    return f"{'' if whole else f'{count:,} elements in '}{where}"


def wrong_result(a: Attempt, tile: tuple[int, int]) -> Diagnosis:
    """Nothing that has a name: the first wrong element, and where they are."""
    verdict = a.verdict
    row, column = verdict.first or (0, 0)
    where = pattern(a.wrong, tile) if a.wrong.any() else pattern(_first(a, row, column), tile)
    evidence = [
        f"With {size(a.shape)}, {verdict.wrong:,} of {verdict.elements:,} elements are wrong: "
        f"{where}.",
        f"C[{row}, {column}] is {_number(verdict.got)} instead of {_number(verdict.expected)}; "
        f"rounding explains ± {verdict.bound:.1e} there, a bound that grows with K.",
    ]
    factor = _factor(a)
    if factor:
        evidence.append(f"C is {factor:.6g} times A·B.")
    elif close(a.C, *_side_by_side(a)).all():
        evidence.append("C is the sum of A's row and B's column: + stands where * belongs.")
    elif not (a.C < 0).any() and close(a.C, a.A, a.B)[a.product > 0].all():
        evidence.append("Where A·B is negative, C is not: is there a maximum, or a test of signs?")
    return Diagnosis("wrong result", tuple(evidence))


def _side_by_side(a: Attempt) -> tuple[np.ndarray, np.ndarray]:
    """Two factors whose product is the sum of A's row and B's column."""
    M, N, _ = a.shape
    X = np.concatenate([a.A, np.ones_like(a.B.T, shape=(M, a.B.shape[0]))], axis=1)
    Y = np.concatenate([np.ones_like(a.A.T, shape=(a.A.shape[1], N)), a.B], axis=0)
    return X, Y


def _first(a: Attempt, row: int, column: int) -> np.ndarray:
    mask = np.zeros(a.C.shape, bool)
    mask[row, column] = True
    return mask


def _factor(a: Attempt) -> float:
    """What C is a multiple of A·B by; 0 if it is none."""
    at = np.unravel_index(np.abs(a.product).argmax(), a.product.shape)
    factor = float(a.C[at] / a.product[at])
    if abs(factor) < 1e-6 or abs(factor - 1) < 1e-6 or not np.isfinite(factor):
        return 0.0
    return factor if close(a.C, factor * a.A.astype(np.float64), a.B).all() else 0.0


def _number(value: float | None) -> str:
    return f"{value:.6g}"
