"""Joins several PTX texts into one, as the linker joins relocatable device code.

Each text is cut into its top-level statements.  A name that is seen from outside (``.visible``,
``.weak``, ``.common``) stays; one that is not is made unique if another text has it too; an
``.extern`` declaration goes once some text defines the name.  (PTX ISA 11.6, "Linking Directives".)
Debug sections are dropped; the lines of ``.loc`` stay, their files numbered anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: The PTX version of an empty image (7.0 brought sm_80).
OLDEST = (7, 0)
#: Functions without a body that the device's own run-time system has.
SYSTEM = {"vprintf", "__assertfail", "malloc", "free"}
#: The run-time system of dynamic parallelism (libcudadevrt), which nvcc calls by these names.
DEVICE_RUNTIME = re.compile(r"__cudaCDP2\w+|cuda[A-Z]\w+")

_NAME = r"[A-Za-z_$%][\w$]*"
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.S)
_LINE = re.compile(r"[ \t]*\.(version|target|address_size|file)\b([^\n;]*);?[ \t]*(?:\n|$)")
_FUNCTION = re.compile(rf"\.(?:entry|func)\b\s*(?:\([^)]*\))?\s*({_NAME})", re.S)
_VARIABLE = re.compile(rf"\.(?:b|u|s|f|bf)\d+(?:x2)?\s+(?:\.ptr[^,;]*?\s)?({_NAME})", re.S)
_TYPE_NAMES = re.compile(rf"({_NAME})")


class LinkError(Exception):
    """The texts do not fit together; the sentence names the symbol."""


@dataclass
class _Statement:
    text: str
    name: str = ""
    linkage: str = ""  # "visible", "extern", "weak", "common" or "" (only this text sees it)

    @property
    def defines(self) -> bool:
        return self.linkage != "extern"


@dataclass
class _Text:
    """One of the texts: its statements, and the files its lines are of."""

    title: str
    version: tuple[int, ...]
    statements: list[_Statement]
    files: dict[str, str]


def check(texts: list[tuple[str, str]]) -> None:
    """LinkError if a name is defined twice."""
    _definitions([_read(title, text) for title, text in texts])


def link(texts: list[tuple[str, str]], target: str, device_runtime: bool) -> str:
    """One PTX text for `target` ("sm_80") of the (title, text) pairs.

    device_runtime: whether libcudadevrt is linked too.  Raises LinkError for a name that is defined
    twice or nowhere.
    """
    parts = [_read(title, text) for title, text in texts]
    _make_private(parts)
    defined = _definitions(parts)
    files: dict[str, int] = {}
    out: list[str] = []
    declared: set[str] = set()
    for part in parts:
        numbers = {old: files.setdefault(rest, len(files) + 1) for old, rest in part.files.items()}
        for statement in part.statements:
            if statement.linkage == "extern":
                if statement.name in defined or statement.name in declared:
                    continue
                if not _is_dynamic_shared(statement) and not _of_system(statement, device_runtime):
                    raise LinkError(f"undefined reference to '{statement.name}' in "
                                    f"'{part.title}'")
                declared.add(statement.name)
            elif defined.get(statement.name, statement) is not statement:
                continue  # a weak definition that gave way
            out.append(_renumber(statement.text, numbers))
    version = ".".join(map(str, max((part.version for part in parts), default=OLDEST)))
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    tail = "".join(f".file\t{number} {rest}\n" for rest, number in files.items())
    return head + "\n".join(out) + "\n" + tail


def _read(title: str, text: str) -> _Text:
    text = _COMMENT.sub(lambda match: match[1] or " ", text)
    part = _Text(title, (0,), [], {})
    for piece in _pieces(text, part):
        words = piece.split()
        linkage = words[0][1:] if words[0] in (".visible", ".extern", ".weak", ".common") else ""
        part.statements.append(_Statement(piece, _name_of(piece), linkage))
    if part.version == (0,):
        raise LinkError(f"'{title}' is no PTX: it has no .version")
    return part


def _pieces(text: str, part: _Text) -> Iterator[str]:
    """The top-level statements; .version and .file go into `part`."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif line := _LINE.match(text, at):
            at = line.end()
            if line[1] == "version":
                part.version = tuple(int(number) for number in line[2].split("."))
            elif line[1] == "file":
                number, rest = line[2].split(None, 1)
                part.files[number] = rest.strip()
        else:
            start, at = at, _end_of_statement(text, at)
            piece = text[start:at].strip()
            if piece != ";" and not piece.startswith(".section"):
                yield piece


_MARKS = re.compile(r'"(?:\\.|[^"\\])*"|[{};=]')


def _end_of_statement(text: str, at: int) -> int:
    """Where the statement that starts at `at` ends: after its body, or after its semicolon."""
    depth, is_body = 0, True
    for mark in _MARKS.finditer(text, at):
        sign = mark[0]
        if sign == "=" and depth == 0:
            is_body = False  # what follows in braces is an initialiser
        elif sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth == 0 and is_body:
                return mark.end()
        elif sign == ";" and depth == 0:
            return mark.end()
    raise LinkError(f"the PTX ends in '{text[at:at + 60].strip()}'")


def _name_of(piece: str) -> str:
    """The name that a statement declares or defines; "" if it does neither."""
    head = re.split(r"[={]", piece, maxsplit=1)[0]
    found = (_FUNCTION if re.search(r"\.(?:entry|func)\b", head) else _VARIABLE).search(head)
    return found[1] if found else ""


def _make_private(parts: list[_Text]) -> None:
    """Rename what only one text sees and another text names too."""
    names = [{s.name for s in part.statements if s.name} for part in parts]
    for i, part in enumerate(parts):
        others = set().union(*names[:i], *names[i + 1:])
        own = {s.name for s in part.statements if s.name and not s.linkage} & others
        own -= {s.name for s in part.statements if s.linkage}  # declared first, defined later
        for statement in part.statements if own else ():
            statement.text = _TYPE_NAMES.sub(
                lambda match, own=own, i=i: f"{match[1]}$text{i}" if match[1] in own else match[1],
                statement.text)
            if statement.name in own:
                statement.name += f"$text{i}"


def _definitions(parts: list[_Text]) -> dict[str, _Statement]:
    """What defines each name; a strong definition goes before weak ones."""
    found: dict[str, tuple[_Statement, str]] = {}
    for part in parts:
        private = {s.name for s in part.statements if not s.linkage}
        private -= {s.name for s in part.statements if s.linkage}
        for statement in part.statements:
            if not statement.name or not statement.defines or statement.name in private:
                continue
            before = found.get(statement.name)
            if before is None or _is_declaration(before[0]):
                found[statement.name] = statement, part.title
            elif "weak" in (statement.linkage, before[0].linkage) or "common" in (
                    statement.linkage, before[0].linkage):
                if before[0].linkage != "visible":
                    found[statement.name] = statement, part.title
            elif not _is_declaration(statement):
                raise LinkError(f"multiple definition of '{statement.name}', first in "
                                f"'{before[1]}', then in '{part.title}'")
    return {name: statement for name, (statement, _title) in found.items()}


def _is_declaration(statement: _Statement) -> bool:
    """Whether a function is only announced here (its body follows in the same text)."""
    return bool(_FUNCTION.search(statement.text)) and not statement.text.endswith("}")


def _is_dynamic_shared(statement: _Statement) -> bool:
    return ".shared" in statement.text.split()


def _of_system(statement: _Statement, device_runtime: bool) -> bool:
    name = statement.name
    return name in SYSTEM or (device_runtime and bool(DEVICE_RUNTIME.fullmatch(name)))


def _renumber(text: str, numbers: dict[str, int]) -> str:
    """The statement with its .loc lines' files in the joined text's numbers."""
    text = re.sub(r"(\.loc\s+|inlined_at\s+)(\d+)",
                  lambda match: f"{match[1]}{numbers.get(match[2], match[2])}", text)
    return re.sub(r"function_name\s+[^,\n]+,\s*", "", text)
