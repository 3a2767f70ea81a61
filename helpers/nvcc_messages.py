"""What nvcc says about a source, told with the source's own lines.

nvcc quotes a line after the preprocessor has been at it: macros replaced, white space shortened,
comments gone. Here each message gets the line as it was written, and a caret under the same place.
What nvcc finds below the source, where PyCUDA's extern "C" { ends, is told as of its last line or
of the brace that is the cause; what it finds in a header, with the line that uses it; and what
ptxas says of the PTX, with the line that this was made of.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from helpers.signature import blanked

FILE = "kernel.cu"  # what the compiler calls the source, unless it begins with a #line
MOST_ERRORS = 3  # told at once; later ones often follow from the first
WIDTH = 100  # characters of a line that are shown

DIRECTIVE = re.compile(r'\s*#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')
_KIND = r"(?P<kind>catastrophic error|fatal error|error|warning|remark|note)"
_FRONT_END = re.compile(rf"(?P<file>[^\s(][^()]*)\((?P<line>\d+)\): {_KIND}[^:]*: (?P<text>.*)")
_PREPROCESSOR = re.compile(
    rf"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? {_KIND}: (?P<text>.*)"
)
_OTHER = re.compile(
    r"(?P<tool>At end of source:|nvcc\b|ptxas\b)[^:;]*?(?:, line (?P<ptx>\d+); )?"
    r"\s*(?P<kind>fatal|error|warning|info)\s*: (?P<text>.*)"
)
_ABOUT_PTX = re.compile(r"^ptxas [^:;]*, line \d+; *(fatal|error) *:", re.MULTILINE)
_CARET = re.compile(r"[\s|]*\^[\s~^]*")
_USED_AT = re.compile(r'.* at line (?P<line>\d+) of "?(?P<file>[^"]+?)"?')
_OPERANDS = re.compile(r"\s+(operand types are: .*|argument types are: .*)")
_FOLDERS = re.compile(r"(?<![\w/.])/(?:[\w.+-]+/)+")
_NOISE = re.compile(
    r"Remark: The warnings can be suppressed|\d+ (catastrophic )?errors? detected in|"
    r"\d+ errors? and \d+ warning|compilation terminated|In file included from|\s+from .*:\d+[:,]$|"
    r"ptxas info|ptxas fatal\s*: Ptx assembly aborted|.*: note #\d+-D: (to match|because)"
)
_TOO_MUCH_SHARED = re.compile(
    r"Entry function '(\w+)' uses too much shared data \((0x\w+) bytes, (0x\w+) max\)"
)
_TOO_MUCH_CONSTANT = re.compile(
    r"uses too much global constant data \((0x\w+) bytes, (0x\w+) max\)"
)
_NOT_DEFINED = re.compile(r"Unresolved extern (function|variable) '(\w+)'")


def numbered(source: str) -> dict[tuple[str, int], str]:
    """The source's lines, by what the compiler calls them: a #line gives the next one a number and
    may give it a file."""
    return {(file, number): text for file, number, text in _numbered(source) if file}


def _numbered(source: str) -> Iterator[tuple[str, int, str]]:
    """Each line of the source with its file and number; a #line has none."""
    file, number = FILE, 1
    for text in source.split("\n"):
        directive = DIRECTIVE.match(text)
        if directive:
            number, file = int(directive[1]), PurePath(directive[2] or file).name
            yield "", 0, text
        else:
            yield file, number, text
            number += 1


@dataclass
class Message:
    """One message. file and line are empty where it is not about a line."""

    kind: str  # "error", "warning" or "note"
    text: str
    file: str = ""
    line: int = 0
    quoted: str = ""  # the line as nvcc quotes it
    column: int = -1  # in it, from 0
    ptx: int = 0  # the line of the PTX that it is about
    used_at: tuple[str, int] = ("", 0)  # the file and line outside of `file` that led there

    def told(self, lines: dict[tuple[str, int], str]) -> str:
        """The message, and below it the line it is about with a caret."""
        if not self.line:
            return f"{self.kind}: {self.text}"
        head = f"{self.file}({self.line}): {self.kind}: {self.text}"
        line = lines.get((self.file, self.line))
        user = lines.get(self.used_at)
        if line is None and user is not None:
            return f"{head}\nwhich {self.used_at[0]}({self.used_at[1]}) uses:\n    {user.strip()}"
        if line is None or not line.strip():
            return head
        return f"{head}\n{_shown(line, self._place(line))}"

    def _place(self, line: str) -> int | None:
        """Where in the line it is."""
        odd = _ODD.match(self.text)
        if odd and chr(int(odd[1], 16)) in line:
            return line.index(chr(int(odd[1], 16)))
        return place(line, self.quoted, self.column)


def _shown(line: str, at: int | None) -> str:
    """The line, or as much of it as there is room for, and a caret below the place."""
    if at is not None:
        at = len(line[:at].expandtabs(4))
    line = line.expandtabs(4).rstrip()
    first = len(line) - len(line.lstrip())
    if at is not None and at - first > WIDTH * 2 // 3:
        first = at - WIDTH // 2
    text = line[first : first + WIDTH]
    before = "…" if line[:first].strip() else ""
    after = "…" if first + WIDTH < len(line) else ""
    caret = "" if at is None else "\n    " + " " * (len(before) + at - first) + "^"
    return f"    {before}{text}{after}{caret}"


def messages(output: str) -> list[Message]:
    """The messages in nvcc's output, in order."""
    found: list[Message] = []
    before = ""
    for text in re.split(r"\r?\n", output):
        if not text.strip() or _NOISE.match(text):
            continue
        match = _FRONT_END.match(text) or _PREPROCESSOR.match(text) or _OTHER.match(text)
        if match:
            found.append(_message(match.groupdict()))
        elif found and _CARET.fullmatch(text):
            number = re.match(r"\s*\d+ \|", before)
            found[-1].quoted = before[number.end():] if number else before
            found[-1].column = text.index("^") - text.find("|") - 1
        elif found and (used := _USED_AT.fullmatch(text)):
            found[-1].used_at = PurePath(used["file"]).name, int(used["line"])
        elif found and (operands := _OPERANDS.fullmatch(text)):
            found[-1].text += f" {operands[1]}"
        before = text
    return found


def _message(parts: dict[str, str | None]) -> Message:
    kind = parts.get("kind") or "error"
    kind = "error" if "error" in kind or kind == "fatal" else kind.replace("remark", "note")
    text = _plain((parts["text"] or "").strip())
    if parts.get("file"):
        return Message(kind, text, PurePath(parts["file"]).name, int(parts["line"]))
    if "end" in parts["tool"]:
        return Message(kind, text + _END)
    return Message(kind, text, ptx=int(parts["ptx"] or 0))


_END = ", and here the source ends"
_CODE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))")
_ODD = re.compile(r"the character U\+(\w+)")


def _plain(text: str) -> str:
    """The text without folders and codes, and a few messages in words that say what to do."""
    text = _FOLDERS.sub("", text)
    text = _CODE.sub(_seen, text)
    odd = re.match(r"extended character (.) is not valid", text)
    if odd:
        name = unicodedata.name(odd[1], "it has no name").lower()
        text = f"the character U+{ord(odd[1]):04X} ({name}) cannot stand here"
        copied = unicodedata.category(odd[1])[0] in "ZPC"  # spaces, punctuation, invisible ones
        return text + (": texts have such ones, C has its own. Type it anew" if copied else "")
    constant = _TOO_MUCH_CONSTANT.search(text)
    if constant:
        used, most = (int(number, 16) for number in constant.groups())
        return (f"{used:,} bytes of __constant__ variables are declared, and at most {most:,} can "
                "be: make them smaller, or give the kernel a pointer")
    missing = _NOT_DEFINED.search(text)
    if missing:
        return (f"{missing[1]} {plain_name(missing[2])} is declared and used, but not defined: its "
                "definition must be in the same source")
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
    rest, before = (_solid(_CODE.sub(_seen, part)) for part in (quoted[column:], quoted[:column]))
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
    if same >= len(places):
        return None
    return places[same] - len(re.search(r"\w*\Z", bare[: places[same]])[0])


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


def _seen(code: re.Match) -> str:
    """The character that nvcc writes as a code, if one can see it."""
    character = chr(int(code[1] or code[2], 16))
    return character if character.isprintable() and not character.isspace() else code[0]


def is_about_ptx(output: str) -> bool:
    """Whether there are errors of ptxas's that are about lines of the PTX."""
    return bool(_ABOUT_PTX.search(output))


def errors(output: str, source: str, ptx: str = "") -> str:
    """The errors in nvcc's output, the first few; everything it said where none is recognised.

    ptx: the PTX, with .loc lines, that ptxas's errors are about.
    """
    lines = numbered(source)
    found = [m for m in messages(output) if m.kind == "error"]
    if not found:
        return _FOLDERS.sub("", output.strip())
    for message in found:
        if message.ptx and ptx:
            message.file, message.line = _origin(ptx, message.ptx)
        _keep_inside(message, source, lines)
    told = list(dict.fromkeys(m.told(lines) for m in found))
    more = len(told) - MOST_ERRORS
    return "\n".join(told[:MOST_ERRORS] + ([f"(and {more} more)"] if more > 0 else []))


def _origin(ptx: str, number: int) -> tuple[str, int]:
    """The file and line of the source that a line of PTX was made of (PTX ISA, .loc and .file)."""
    above = "\n".join(ptx.split("\n")[:number])
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx, re.MULTILINE))
    places = re.findall(r"^\s*\.loc\s+(\d+)\s+(\d+)", above, re.MULTILINE)
    if not places:
        return "", 0
    return PurePath(files.get(places[-1][0], FILE)).name, int(places[-1][1])


def _keep_inside(message: Message, source: str, lines: dict[tuple[str, int], str]) -> None:
    """Gives a message that is about what follows the source the line that is its cause."""
    file = next((name for name, _ in reversed(lines) if lines[name, _].strip()), FILE)
    last = max((number for name, number in lines if name == file and lines[name, number].strip()),
               default=1)  # fmt: skip
    at_the_end = not message.file and message.text.endswith(_END)
    below = message.file == file and message.line > last
    if not at_the_end and not below:
        return
    opened, closed = _unmatched(source)
    if closed and "expected a declaration" in message.text:
        message.text = 'this "}" closes nothing: there is no "{" for it'
        message.file, message.line, message.quoted, message.column = closed
    elif opened and at_the_end:
        message.text = 'this "{" is not closed: a "}" is missing below'
        message.file, message.line, message.quoted, message.column = opened
    else:
        message.file, message.line = file, last
        message.quoted, message.column = "", -1
        message.text = message.text.removesuffix(_END) + _END


Brace = tuple[str, int, str, int]  # file, line, its text, column from 0


def _unmatched(source: str) -> tuple[Brace | None, Brace | None]:
    """The last { that is not closed, and the first } that closes nothing."""
    opened: list[Brace] = []
    closed = None
    bare_lines = blanked(source).split("\n")
    for (file, number, text), bare in zip(_numbered(source), bare_lines, strict=True):
        for column, character in enumerate(bare):
            if character == "{":
                opened.append((file, number, text, column))
            elif character == "}" and opened:
                opened.pop()
            elif character == "}":
                closed = closed or (file, number, text, column)
    return (opened[-1] if opened else None), closed


def warnings(output: str, source: str) -> list[str]:
    """The warnings in nvcc's output."""
    lines = numbered(source)
    return _unique(m.told(lines) for m in messages(output) if m.kind == "warning")


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
