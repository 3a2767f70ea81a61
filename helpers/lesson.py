"""What the lessons' Predict cells use: the answer beside the reader's prediction."""

from __future__ import annotations

from typing import Any


def answer(prediction: Any, truth: Any) -> None:
    """Print the reader's prediction beside the right answer."""
    if prediction is None:
        print(f"Answer: {_text(truth)}. (You made no prediction.)")
    elif prediction == truth:
        print(f"Answer: {_text(truth)}, as you predicted.")
    else:
        print(f"Answer: {_text(truth)}. You predicted {_text(prediction)}.")


def _text(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else str(value)
