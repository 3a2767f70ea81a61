"""A progress bar in a terminal, and nothing where stderr is not one."""

from __future__ import annotations

import sys
from typing import TextIO

WIDTH = 24


class Progress:
    """Shows how many of `total` steps have begun, and the name of the one that runs."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.done = total, 0
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty()

    def step(self, name: str) -> None:
        """The next step begins."""
        self._show(name)
        self.done += 1

    def _show(self, name: str) -> None:
        if self.shown:
            full = WIDTH * self.done // max(self.total, 1)
            bar = "#" * full + "." * (WIDTH - full)
            self.stream.write(f"\r\x1b[K[{bar}] {self.done}/{self.total} {name}")
            self.stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
