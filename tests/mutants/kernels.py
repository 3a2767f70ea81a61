"""The right kernels of right/, and how each is launched: its first line says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

RIGHT = Path(__file__).parent / "right"
LAUNCH = "// launch: "


@dataclass(frozen=True)
class Case:
    """A kernel and the arguments of `check`."""

    source: str
    arguments: dict[str, Any]
    options: tuple[str, ...] = ()
    entry: str = "matmul"

    @property
    def kernel(self) -> tuple[str, str, tuple[str, ...]]:
        return self.source, self.entry, self.options


def case_of(source: str) -> Case:
    """A kernel by its text."""
    first = source.partition("\n")[0]
    arguments = eval(f"dict({first.removeprefix(LAUNCH)})")
    options = arguments.pop("options", ())
    return Case(source, arguments, options)


def right(name: str) -> Case:
    """A right kernel by its file's name."""
    return case_of((RIGHT / f"{name}.cu").read_text(encoding="utf-8"))


NAMES = sorted(path.stem for path in RIGHT.glob("*.cu"))
