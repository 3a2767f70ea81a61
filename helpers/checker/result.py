"""What `check` has found, as text and for a notebook."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass, field

from helpers.marked_source import marked
from helpers.replica import Program

from .diagnosis import NOT_DONE, Diagnosis
from .traffic import Note

WIDTH = 96


@dataclass(frozen=True)
class Result:
    """A verdict. True in an `if` when the kernel passed; print it, or let a notebook show it.

    diagnosis: the name of what is wrong, or None; evidence: sentences; hint: what to do; lines: of
    the kernel's source; notes: what is not wrong, but could be better; launches: how many were
    made.
    """

    kernel: str
    file: str
    diagnosis: str | None
    evidence: tuple[str, ...]
    hint: str
    lines: tuple[int, ...]
    notes: tuple[Note, ...]
    launches: int
    _program: Program | None = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        return self.diagnosis is None

    def __bool__(self) -> bool:
        return self.passed

    @property
    def verdict(self) -> str:
        """ "PASS", "FAIL" or "Not done yet"."""
        if self.passed:
            return "PASS"
        return "Not done yet" if self.diagnosis in NOT_DONE else "FAIL"

    @property
    def heading(self) -> str:
        """The verdict and what it is about."""
        if self.passed:
            return f"PASS: {self.kernel}"
        places = " and ".join(map(str, self.lines[:3]))
        where = f" ({self.file}:{places})" if places else ""
        return f"{self.verdict}: {self.diagnosis}{where}"

    def __str__(self) -> str:
        parts = [self.heading]
        for sentence in self.evidence:
            parts += _wrapped(sentence)
        if self.hint:
            parts += _wrapped(f"Hint: {self.hint}")
        for note in self.notes:
            parts += _wrapped(str(note))
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        parts = [f"<b>{html.escape(self.heading)}</b>"]
        parts += [html.escape(text).replace("\n", "<br>") for text in self.evidence]
        page = "<p>" + "<br>".join(parts) + "</p>" + self._marked(self.lines, "error")
        if self.hint:
            page += f"<p><b>Hint:</b> {html.escape(self.hint)}</p>"
        for note in self.notes:
            page += f"<p>{html.escape(str(note))}</p>" + self._marked(note.lines, "note")
        return page

    def _marked(self, lines: tuple[int, ...], severity: str) -> str:
        if self._program is None:
            return ""
        return marked(lines, lambda n: self._program.line(self.file, n), severity)


def _wrapped(text: str) -> list[str]:
    """Indented lines; a text of several lines, which is a compiler's, is left as it is."""
    if "\n" in text:
        return ["  " + line for line in text.splitlines()]
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ",
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def result_of(
    kernel: str,
    found: Diagnosis | None,
    evidence: tuple[str, ...] = (),
    notes: tuple[Note, ...] = (),
    launches: int = 0,
    program: Program | None = None,
    file: str = "",
) -> Result:
    """A diagnosis, or PASS with its own evidence."""
    file = program.file if program else file
    if found is None:
        return Result(kernel, file, None, evidence, "", (), notes, launches, program)
    return Result(kernel, file, found.name, found.evidence, found.hint, found.lines, notes,
                  launches, program)  # fmt: skip
