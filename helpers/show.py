"""Show a kernel's source in a notebook, highlighted, with the line numbers that errors mention; and
what is different between two."""

from __future__ import annotations

import difflib
import html
import re
from dataclasses import dataclass
from pathlib import Path

from pygments.lexers import CudaLexer
from pygments.token import Comment, Keyword, Literal, Name, Token

from helpers.errors import NoSuchFile, WrongType, WrongValue
from helpers.signature import blanked, closing

ROOT = Path(__file__).resolve().parent.parent
CUDA_FOLDER = ROOT / "cuda"
WORK_FOLDER = ROOT / "notebooks" / "work"  # where %%cuda keeps its copies

# Colours with a contrast of at least 4.5 to 1 on white (WCAG 2.1, 1.4.3).
_COLORS = {
    Comment: "#4F6F52",
    Comment.Preproc: "#8A3B9A",
    Keyword: "#0050A4",
    Keyword.Type: "#0050A4",
    Name.Builtin: "#A33C00",
    Literal: "#8C5A00",
}
_GREY = "#5F5F5F"
# JupyterLab would break long lines anywhere; this makes them scroll.
_PAGE = (
    "background: #FFFFFF; color: #222222; padding: 8px; line-height: 1.4; font-size: 13px; "
    "white-space: pre; overflow-x: auto"
)
MOST_LINES = 5000  # of what is shown: a browser must cope with it, and `diff` compare it
_CONTEXT = 2  # lines around what is different
_GONE, _NEW = "background: #FBE3DC", "background: #DDEEFF"  # Tell-apart for the colour-blind too.


@dataclass(frozen=True)
class Source:
    """A part of a source file, for display: `lines`, of which the first has number `first`."""

    file: str
    first: int
    lines: tuple[str, ...]
    folder: str = "cuda"

    @property
    def title(self) -> str:
        """The file, with its folder."""
        return f"{self.folder}/{self.file}"

    def __str__(self) -> str:
        numbers = range(self.first, self.first + len(self.lines))
        text = [f"{n:4}  {line}".rstrip() for n, line in zip(numbers, self.lines, strict=True)]
        return "\n".join([self.title, *text])

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        rows = [f'<span style="color: #6B6B6B">{html.escape(self.title)}</span>']
        for number, line in enumerate(highlight("\n".join(self.lines)), self.first):
            rows.append(f'<span style="color: #6B6B6B">{number:4}</span>  {line}')
        return f'<pre style="{_PAGE}">' + "\n".join(rows) + "</pre>"


def show(file: str, function: str | None = None) -> Source:
    """A file of cuda/ or work/, or one function of it, to stand as the last line of a cell.

    Raises FileNotFoundError for a file that is not there, ValueError for such a function and for a
    file that is no text or too long to be shown, TypeError for what is no name.
    """
    for name in (file, *([] if function is None else [function])):
        if not isinstance(name, (str, Path)):
            raise WrongType(f"a {type(name).__name__} is no name: write that of a file, and of a "
                            'function in it, like show("02_tiled.cu", "matmul_tiled")'
                            )  # fmt: skip
    path, folder = _find_file(file)
    lines = _lines(path)
    first, last = (0, len(lines)) if function is None else _find(lines, function, path.name)
    if last - first > MOST_LINES:
        raise WrongValue(f"{path.name} has {last - first:,} lines, too many to be shown: name a "
                         "function of it")  # fmt: skip
    return Source(path.name, first + 1, tuple(lines[first:last]), folder)


def _lines(path: Path) -> list[str]:
    """The lines of a file as the compiler counts them, with a sign for what cannot be shown."""
    text = path.read_bytes().decode("utf-8", "replace")
    if "\0" in text:
        raise WrongValue(f"{path.name} is no text")
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return [re.sub(r"[^\t\x20-\x7e\x80-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", x) for x in lines]


def _find_file(file: str) -> tuple[Path, str]:
    """The file of that name in one of the two folders, cuda/ first."""
    name = Path(file).name
    folders = {"cuda": CUDA_FOLDER, "work": WORK_FOLDER}
    named = Path(file).parent.name
    for folder, path in folders.items():
        if named in ("", folder) and (path / name).is_file():
            return path / name, folder
    there = sorted(p.name for path in folders.values() for p in path.glob("*.cu"))
    near = difflib.get_close_matches(name, there, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"
    raise NoSuchFile(f"there is no file {file} in cuda/ or notebooks/work/; {hint}")


def _find(lines: list[str], function: str, file: str) -> tuple[int, int]:
    """The first line of a function's definition, from 0, and the one after its last."""
    code = blanked("\n".join(lines))
    code = re.sub(r"^[ \t]*#.*$", lambda m: " " * (len(m[0]) - 1) + ";", code, flags=re.MULTILINE)
    defined = []
    for match in re.finditer(r"\b(?!(?:if|for|while|switch)\b)([A-Za-z_]\w*)\s*\(", code):
        end = closing(code, match.end() - 1)
        opened = re.compile(r"\s*\{").match(code, end + 1) if end is not None else None
        last = closing(code, opened.end() - 1, "{}") if opened else None
        if last is None:
            continue
        defined.append(match[1])
        if match[1] != function:
            continue
        before = max(code.rfind(c, 0, match.start()) for c in ";{}")
        start = re.compile(r"\s*").match(code, before + 1).end()
        return code.count("\n", 0, start), code.count("\n", 0, last) + 1
    near = difflib.get_close_matches(function, defined, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(defined) or 'none'}"
    raise WrongValue(f"{file} has no function {function}; {hint}")


@dataclass(frozen=True)
class Difference:
    """Two sources, line against line. rows: (number in the first or 0, number in the second or 0,
    text); a line that both have has both numbers; None stands for lines left out."""

    old: Source
    new: Source
    rows: tuple[tuple[int, int, str] | None, ...]

    def __str__(self) -> str:
        text = [f"- {self.old.title}", f"+ {self.new.title}"]
        text += ["       ⋮" if row is None else _numbers(row) + row[2] for row in self.rows]
        if not self.rows:
            text.append("(no difference)")
        return "\n".join(line.rstrip() for line in text)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        olds, news = (dict(enumerate(highlight("\n".join(s.lines)), s.first))
                      for s in (self.old, self.new))
        rows = [f'<span style="{_GONE}">- {html.escape(self.old.title)}</span>',
                f'<span style="{_NEW}">+ {html.escape(self.new.title)}</span>']
        for row in self.rows:
            if row is None:
                rows.append(f'<span style="color: {_GREY}">       ⋮</span>')
                continue
            old, new, _ = row
            line = news[new] if new else olds[old]
            back = "" if old and new else f"; {_NEW if new else _GONE}; display: inline-block; " \
                                          "min-width: 100%"
            numbers = f'<span style="color: {_GREY}">{_numbers(row)}</span>'
            rows.append(f'<span style="color: #222222{back}">{numbers}{line}</span>')
        if not self.rows:
            rows.append("(no difference)")
        return f'<pre style="{_PAGE}">' + "\n".join(rows) + "</pre>"


def diff(
    old: str, new: str, old_function: str | None = None, new_function: str | None = None
) -> Difference:
    """What is different between two files of cuda/ or work/, or between a function of each.

    With one function given, it is that of both. Raises what `show` raises.
    """
    before, after = show(old, old_function), show(new, new_function or old_function)
    a, b = ([line.rstrip() for line in source.lines] for source in (before, after))
    rows: list[tuple[int, int, str] | None] = []
    groups = difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(_CONTEXT)
    for group in groups:
        if rows:
            rows.append(None)
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                rows += [(before.first + i + k, after.first + j + k, a[i + k])
                         for k in range(i_end - i)]
                continue
            rows += [(before.first + k, 0, a[k]) for k in range(i, i_end)]
            rows += [(0, after.first + k, b[k]) for k in range(j, j_end)]
    return Difference(before, after, tuple(rows))


def _numbers(row: tuple[int, int, str]) -> str:
    old, new, _ = row
    sign = " " if old and new else "+" if new else "-"
    return f"{old or '':>4} {new or '':>4} {sign} "


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
