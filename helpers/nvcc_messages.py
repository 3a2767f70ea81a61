"""What nvcc says about a source, told with the source's own lines.

nvcc quotes a line after the preprocessor has been at it: macros replaced, white space shortened,
comments gone. Here each message gets the line as it was written, and a caret under the same place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

FILE = "kernel.cu"  # what the compiler calls the source, unless it begins with a #line
MOST_ERRORS = 3  # told at once; later ones often follow from the first

DIRECTIVE = re.compile(r'\s*#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')
_KIND = r"(?P<kind>catastrophic error|fatal error|error|warning|remark|note)"
_FRONT_END = re.compile(rf"(?P<file>[^\s(][^()]*)\((?P<line>\d+)\): {_KIND}[^:]*: (?P<text>.*)")
_PREPROCESSOR = re.compile(
    rf"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? {_KIND}: (?P<text>.*)"
)
_OTHER = re.compile(
    r"(?P<tool>At end of source:|nvcc\b|ptxas\b)[^:;]*?(?:, line (?P<line>\d+); )?"
    r"\s*(?P<kind>fatal|error|warning|info)\s*: (?P<text>.*)"
)
_NOISE = re.compile(
    r"Remark: The warnings can be suppressed|\d+ (catastrophic )?errors? detected in|"
    r"\d+ errors? and \d+ warning|compilation terminated|In file included from|\s+from .*:\d+[:,]$|"
    r"ptxas info|ptxas fatal\s*: Ptx assembly aborted|.*: note #\d+-D: (to match|because)"
)
_TOO_MUCH_SHARED = re.compile(
    r"Entry function '(\w+)' uses too much shared data \((0x\w+) bytes, (0x\w+) max\)"
)


def numbered(source: str) -> dict[tuple[str, int], str]:
    """The source's lines, by what the compiler calls them: a #line gives the next one a number and
    may give it a file."""
    found, file, number = {}, FILE, 1
    for text in source.split("\n"):
        directive = DIRECTIVE.match(text)
        if directive:
            number, file = int(directive[1]), PurePath(directive[2] or file).name
        else:
            found[file, number] = text
            number += 1
    return found


@dataclass
class Message:
    """One message. file and line are empty where it is not about a line."""

    kind: str  # "error", "warning" or "note"
    text: str
    file: str = ""
    line: int = 0
    quoted: str = ""  # the line as nvcc quotes it
    column: int = -1  # in it, from 0

    def told(self, lines: dict[tuple[str, int], str]) -> str:
        """The message, and below it the line it is about with a caret."""
        if not self.line:
            return f"{self.kind}: {self.text}"
        head = f"{self.file}({self.line}): {self.kind}: {self.text}"
        line = lines.get((self.file, self.line))
        if line is None or not line.strip():
            return head
        line = line.expandtabs(4)
        at = place(line, self.quoted, self.column)
        return f"{head}\n    {line.strip()}" + (
            "" if at is None else "\n    " + " " * (at - (len(line) - len(line.lstrip()))) + "^"
        )


def messages(output: str) -> list[Message]:
    """The messages in nvcc's output, in order."""
    found: list[Message] = []
    for text in output.splitlines():
        if not text.strip() or _NOISE.match(text):
            continue
        match = _FRONT_END.match(text) or _PREPROCESSOR.match(text) or _OTHER.match(text)
        if match:
            found.append(_message(match.groupdict()))
        elif found and text.strip(" |~") == "^":
            found[-1].column = text.index("^") - text.find("|") - 1
        elif found and not found[-1].quoted and text.startswith(" "):
            number = re.match(r"\s*\d+ \|", text)
            found[-1].quoted = text[number.end():] if number else text
        elif found and text.strip(" |~^") == "":
            found[-1].column = text.index("^") - text.find("|") - 1 if "^" in text else -1
    return found


def _message(parts: dict[str, str | None]) -> Message:
    kind = parts.get("kind") or "error"
    kind = "error" if "error" in kind or kind == "fatal" else kind.replace("remark", "note")
    text = _plain((parts["text"] or "").strip())
    if parts.get("file"):
        return Message(kind, text, PurePath(parts["file"]).name, int(parts["line"]))
    return Message(kind, text + (", and here the source ends" if "end" in parts["tool"] else ""))


def _plain(text: str) -> str:
    """A few of ptxas's messages in words that say what to do."""
    shared = _TOO_MUCH_SHARED.search(text)
    if shared:
        name, used, most = plain_name(shared[1]), int(shared[2], 16), int(shared[3], 16)
        return (f"kernel {name} declares {used:,} bytes of __shared__ arrays, and at most {most:,} "
                "can be declared: make them smaller. (More is possible as extern __shared__, with "
                "its bytes given at the launch: shared=…)")
    return re.sub(r"_Z\d+\w+", lambda name: plain_name(name[0]), text)


def place(line: str, quoted: str, column: int) -> int | None:
    """Where in `line` is what stands at `column` of the line as nvcc quotes it; None if unknown."""
    if not 0 <= column < len(quoted):
        return None
    bare = re.sub(r"//.*|/\*.*?\*/", lambda comment: " " * len(comment[0]), line)
    rest, before = _solid(quoted[column:]), _solid(quoted[:column])
    places = [i for i, c in enumerate(bare) if not c.isspace()]
    for i in places:
        if _solid(bare[i:]) == rest:
            return i
    for i in places:
        if _solid(bare[:i]) == before:
            return i
    word = re.match(r"\w+|.", quoted[column:])[0]
    nth = len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", quoted[:column]))
    found = [m.start() for m in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", bare)]
    if nth < len(found):
        return found[nth]
    same = len(os.path.commonprefix([_solid(bare), _solid(quoted)]))  # a macro begins there
    return places[same] if same < len(places) else None


def plain_name(symbol: str) -> str:
    """The name of a function whose C++ symbol this is (Itanium C++ ABI, section 5.1.3)."""
    found = re.match(r"_ZN?(?:L)?((?:\d+\w+))", symbol)
    rest, name = found[1] if found else "", symbol
    while length := re.match(r"\d+", rest):  # each part of a nested name has its length before it
        start, size = length.end(), int(length[0])
        name, rest = rest[start : start + size], rest[start + size :]
        if not symbol.startswith("_ZN"):
            break
    return name


def _solid(text: str) -> str:
    return "".join(text.split())


def errors(output: str, source: str) -> str:
    """The errors in nvcc's output, the first few; everything it said where none is recognised."""
    lines = numbered(source)
    found = [m for m in messages(output) if m.kind == "error"]
    if not found:
        return output.strip()
    told = list(dict.fromkeys(m.told(lines) for m in found))
    more = len(told) - MOST_ERRORS
    return "\n".join(told[:MOST_ERRORS] + ([f"(and {more} more)"] if more > 0 else []))


def warnings(output: str, source: str) -> list[str]:
    """The warnings in nvcc's output."""
    lines = numbered(source)
    return _unique(m.told(lines) for m in messages(output) if m.kind == "warning")


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
