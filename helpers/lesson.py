"""What the lessons' Predict cells use: the answer beside the reader's prediction."""

from __future__ import annotations

from typing import Any

from helpers.recorded import h200


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
