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
# Behind a verdict in white, readable from the last row in a light and a dark theme.
COLOURS = {"PASS": "#00704a", "FAIL": "#b8390e", "Not done yet": "#6b5900"}


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
        rest = self.heading.removeprefix(f"{self.verdict}: ")
        badge = (f'<span style="background: {COLOURS[self.verdict]}; color: white; '
                 f'padding: 2px 8px; border-radius: 4px">{self.verdict}</span>')  # fmt: skip
        parts = [f"<b>{badge} {html.escape(rest)}</b>"]
        parts += [html.escape(text).replace("\n", "<br>") for text in self.evidence]
        page = "<p>" + "<br>".join(parts) + "</p>" + self._marked(self.lines, "error")
        if self.hint:
            page += f"<p><b>Hint:</b> {html.escape(self.hint)}</p>"
        for note in self.notes:
            text = html.escape(f"{note.name}: {note.text}")
            page += f"<p><b>Note:</b> {text}</p>" + self._marked(note.lines, "note")
        return page

    def _marked(self, lines: tuple[int, ...], severity: str) -> str:
        if self._program is None:
            return ""
        return marked(lines, lambda n: self._program.line(self.file, n), severity)


def _with_transposed_b(text: str) -> str:
    """The text for a kernel that computes A·Bᵀ: what is A·B elsewhere is A·Bᵀ there."""
    for old, new in (
        ("A·Bᵀ, as if B were transposed", "A·\0"),
        ("A·B", "A·Bᵀ"),
        ("A·\0", "A·B, as if B were K x N"),
        ("B[k * N + col]", "B[col * K + k]"),
        ("B is K x N", "B is N x K"),
        ("columns of B", "rows of B"),
        ("* Bs[k][tx]", "* Bs[tx][k]"),
        ("tile of B has one k only in each column: threadIdx.x stands in the index where "
         "threadIdx.y belongs", "tile of B has one k only in each row: threadIdx.y stands in the "
         "index where threadIdx.x belongs"),
        ("Along a row of A, and down a column of B,", "Along a row of A, and of B,"),
        ("B[(k0 + ty) * N + col]", "B[b_row * K + k0 + tx]"),
        ("K, or N, floats", "K floats"),
    ):
        text = text.replace(old, new)
    return text


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
    b_transposed: bool = False,
) -> Result:
    """A diagnosis, or PASS with its own evidence. b_transposed: B is given as N x K."""
    file = program.file if program else ""
    if found is None:
        return Result(kernel, file, None, evidence, "", (), notes, launches, program)
    others = tuple(note for note in notes if note.name != found.name)
    said, hint = found.evidence, found.hint
    if b_transposed:
        said, hint = tuple(map(_with_transposed_b, said)), _with_transposed_b(hint)
    return Result(kernel, file, found.name, said, hint, found.lines, others, launches, program)
