"""Show a kernel's source in a notebook: highlighted, with the line numbers that errors mention."""

import html
from dataclasses import dataclass
from pathlib import Path

from pygments.lexers import CudaLexer
from pygments.token import Comment, Keyword, Literal, Name, Token

CUDA_FOLDER = Path(__file__).resolve().parent.parent / "cuda"

# Colours with a contrast of at least 4.5 to 1 on white (WCAG 2.1, 1.4.3).
_COLORS = {
    Comment: "#4F6F52",
    Comment.Preproc: "#8A3B9A",
    Keyword: "#0050A4",
    Keyword.Type: "#0050A4",
    Name.Builtin: "#A33C00",
    Literal: "#8C5A00",
}
# JupyterLab would break long lines anywhere; this makes them scroll.
_PAGE = (
    "background: #FFFFFF; color: #222222; padding: 8px; line-height: 1.4; font-size: 13px; "
    "white-space: pre; overflow-x: auto"
)


@dataclass(frozen=True)
class Source:
    """A part of a source file, for display: `lines`, of which the first has number `first`."""

    file: str
    first: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        numbers = range(self.first, self.first + len(self.lines))
        text = [f"{n:4}  {line}".rstrip() for n, line in zip(numbers, self.lines, strict=True)]
        return "\n".join([f"cuda/{self.file}", *text])

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        rows = [f'<span style="color: #6B6B6B">cuda/{self.file}</span>']
        for number, line in enumerate(highlight("\n".join(self.lines)), self.first):
            rows.append(f'<span style="color: #6B6B6B">{number:4}</span>  {line}')
        return f'<pre style="{_PAGE}">' + "\n".join(rows) + "</pre>"


def show(file: str, function: str | None = None) -> Source:
    """A file of cuda/, or one function of it, to stand as the last line of a notebook cell.

    Raises FileNotFoundError for a file that is not there, ValueError for such a function.
    """
    lines = (CUDA_FOLDER / file).read_text(encoding="utf-8").splitlines()
    first, last = (0, len(lines)) if function is None else _find(lines, function, file)
    return Source(file, first + 1, tuple(lines[first:last]))


def _find(lines: list[str], function: str, file: str) -> tuple[int, int]:
    """Where the function starts and ends: from __global__ to the brace in the first column."""
    for first, line in enumerate(lines):
        if line.startswith("__global__") and f" {function}(" in line:
            return first, lines.index("}", first) + 1
    raise WrongValue(f"cuda/{file} has no function {function}")


def highlight(code: str) -> list[str]:
    """The code as lines of HTML, coloured by inline styles: JupyterLab keeps them, not classes."""
    pieces = []
    for token, text in CudaLexer(stripnl=False, ensurenl=False).get_tokens(code):
        color = _color(token)
        for i, part in enumerate(text.split("\n")):
            if i:
                pieces.append("\n")
            if part:
                part = html.escape(part)
                pieces.append(f'<span style="color: {color}">{part}</span>' if color else part)
    return "".join(pieces).split("\n")


def _color(token) -> str | None:
    while token is not Token:
        if token in _COLORS:
            return _COLORS[token]
        token = token.parent
    return None
