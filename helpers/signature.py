"""The kernels in a piece of CUDA C and what they take, read from its text.

Only what is needed to tell a wrong argument is understood: the number of parameters, which of them
are pointers and to what, and the sizes of numbers. A type that is not known here (a structure, a
name from a header) is taken as it comes; nothing is then checked but what the driver checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# CUDA C++ Programming Guide, built-in vector types; the sizes of C's types are those of Linux,
# x86-64 (System V ABI, figure 3.1), which nvcc takes over for the device.
_TYPES = {
    "bool": "?", "char": "i1", "signed char": "i1", "unsigned char": "u1",
    "short": "i2", "unsigned short": "u2", "int": "i4", "unsigned": "u4", "unsigned int": "u4",
    "long": "i8", "unsigned long": "u8", "long long": "i8", "unsigned long long": "u8",
    "float": "f4", "double": "f8", "half": "f2", "__half": "f2",
    "size_t": "u8", "ptrdiff_t": "i8", "intptr_t": "i8", "uintptr_t": "u8",
    "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2",
    "int32_t": "i4", "uint32_t": "u4", "int64_t": "i8", "uint64_t": "u8",
    "uchar": "u1", "ushort": "u2", "uint": "u4", "ulong": "u8",
}  # fmt: skip
_VECTORS = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
            "long": "i8", "ulong": "u8", "longlong": "i8", "ulonglong": "u8", "float": "f4",
            "double": "f8"}  # fmt: skip
_VECTOR = re.compile(rf"({'|'.join(_VECTORS)})([1-4])")
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict__", "__restrict", "struct", "register",
               "__grid_constant__", "typename", "std"}  # fmt: skip
_WORDS = {"signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool"}
_TOKEN = re.compile(r"\w+|::|\S")
_ATTRIBUTES = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__", "__align__",
               "__block_size__"}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One parameter. dtype is that of the number, or of what the pointer points to; None for a type
    that is not known. `vector` numbers of it make one element (float4: 4). pointers: how many
    there are one behind the other (float **: 2)."""

    name: str  # may be empty
    text: str  # as in the source, on one line: "const float *A"
    pointer: bool = False
    dtype: np.dtype | None = None
    vector: int = 1
    pointers: int = 0
    kind: str = ""  # the words of its type, without const and the like


@dataclass(frozen=True)
class Signature:
    """A `__global__` function. parameters is None where they could not be understood."""

    name: str
    line: int  # of the text, from 1
    parameters: tuple[Parameter, ...] | None
    template: bool = False

    def __str__(self) -> str:
        if self.parameters is None:
            return f"{self.name}(…)"
        return f"{self.name}({', '.join(p.text for p in self.parameters)})"

    @property
    def is_product(self) -> bool:
        """Whether it is (float *, float *, float *, int, int, int), as all products here."""
        kinds = [(p.pointer, p.dtype) for p in self.parameters or ()]
        return kinds == [(True, np.float32)] * 3 + [(False, np.int32)] * 3


def signatures(source: str, options: Sequence[str] = ()) -> list[Signature]:
    """The `__global__` functions that are defined in the source, in order.

    options: nvcc's; its -D count as macros.
    """
    text = blanked(source)
    names = _Names(text, options)
    code = re.sub(r"^[ \t]*#.*$", lambda line: " " * len(line[0]), text, flags=re.MULTILINE)
    found = []
    for match in re.finditer(r"\b__global__\b", code):
        head = _head(code, match.end())
        if head is None:
            continue
        name, opened, closed = names.expanded(head[0]), *head[1:]
        after = code[closed + 1 :].lstrip()[:1]
        if after != "{":
            continue  # a declaration, or an instance of a template
        before = re.split(r"[;{}]", code[: match.start()])[-1]
        parameters = _parameters(code[opened + 1 : closed], names)
        line = code.count("\n", 0, match.start()) + 1
        found.append(Signature(name, line, parameters, bool(re.search(r"\btemplate\b", before))))
    return found


def blanked(source: str) -> str:
    """The source with white space in place of comments and of what is in quotes, lines kept."""
    pattern = r"//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"

    def blank(match: re.Match) -> str:
        quote = match[0][0] if match[0][0] in "\"'" else " "
        inside = re.sub(r"[^\n]", " ", match[0])
        return quote + inside[1:-1] + quote if len(inside) > 1 else inside

    text = re.sub(pattern, blank, source, flags=re.DOTALL)
    return text.replace("\\\n", " \n") if "#" not in text else _joined(text)


def _joined(text: str) -> str:
    """Directives that go on over several lines, on one; the lines after it stay where they are."""
    return re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)+[^\n]*",
        lambda m: m[0].replace("\\\n", " ") + "\n" * m[0].count("\\\n"),
        text,
        flags=re.MULTILINE,
    )


def _head(code: str, start: int) -> tuple[str, int, int] | None:
    """The name of the function whose head goes on at `start`, and where its parentheses are."""
    word, at = "", start
    while at < len(code):
        token = _TOKEN.search(code, at)
        if token is None:
            return None
        at = token.end()
        if token[0] == "(":
            closed = closing(code, token.start())
            if closed is None:
                return None
            if word not in _ATTRIBUTES:
                return (word, token.start(), closed) if re.match(r"[A-Za-z_]", word) else None
            at = closed + 1
        elif token[0] in ";{}":
            return None
        word = token[0]
    return None


def closing(code: str, opened: int, pair: str = "()") -> int | None:
    """Where the bracket at `opened` is closed, in blanked code; None if it is not."""
    depth = 0
    for at in range(opened, len(code)):
        depth += (code[at] == pair[0]) - (code[at] == pair[1])
        if not depth:
            return at
    return None


class _Names:
    """What `#define`, `typedef`, `using` and -D give other names to."""

    def __init__(self, text: str, options: Sequence[str]):
        self.of: dict[str, str] = {}
        self.functions: set[str] = set(re.findall(r"#[ \t]*define[ \t]+(\w+)\(", text))
        joined = " ".join(options)
        for name, value in re.findall(r"(?:^|\s)-D\s*(\w+)(?:=(\S*))?", joined):
            self.of[name] = value or "1"
        for name, value in re.findall(r"#[ \t]*define[ \t]+(\w+)(?!\()[ \t]+([^\n]*)", text):
            self.of.setdefault(name, value.strip())
        for value, name in re.findall(r"\btypedef\s+([^;{}()]+?)\s*\b(\w+)\s*;", text):
            self.of.setdefault(name, value)
        for name, value in re.findall(r"\busing\s+(\w+)\s*=\s*([^;]+);", text):
            self.of.setdefault(name, value)

    def expanded(self, text: str) -> str:
        for _ in range(8):  # one may be made of another
            more = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: self.of.get(word[0], word[0]), text)
            if more == text:
                break
            text = more
        return text


def _parameters(text: str, names: _Names) -> tuple[Parameter, ...] | None:
    """The parameters in a parenthesis; None if that is not what it looks like."""
    as_written = list(_split(text))
    found = []
    for written in as_written:
        whole = names.expanded(written)
        parts = list(_split(whole)) if whole != written else [whole]
        if set(re.findall(r"(\w+)\s*\(", written)) & names.functions:
            return None
        shown = [written] if len(parts) == 1 else parts  # a macro may stand for several
        found += [_parameter(part, label) for part, label in zip(parts, shown, strict=True)]
    if [p.text for p in found] == ["void"]:
        return ()
    return None if any("(" in p.text for p in found) else tuple(found)


def _split(text: str) -> Iterator[str]:
    """The text at its outer commas, each part on one line."""
    depth, start = 0, 0
    for at, character in enumerate(text + ","):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and not depth:
            part = " ".join(text[start:at].split())
            if part:
                yield part
            start = at + 1


def _parameter(text: str, shown: str) -> Parameter:
    """One parameter, of its expanded text; `shown` is how it is told."""
    declared = re.sub(r"=.*", "", text)
    label = re.sub(r"\s*=.*", "", shown)
    label = re.sub(r"([*&])\s+(?=[*&\w])", r"\1", re.sub(r"(?<=\w)([*&])", r" \1", label))
    pointer = bool(re.search(r"[*\[]", declared)) or "&" in declared
    pointers = len(re.findall(r"[*\[]", declared))
    words = [w for w in re.findall(r"\w+", re.sub(r"\[.*", "", declared)) if w not in _QUALIFIERS]
    kind, name = words, ""
    if len(words) > 1 and words[-1] not in _WORDS:
        kind, name = words[:-1], words[-1]
    dtype, vector = _type(kind)
    if pointers > 1 or "<" in declared:
        dtype = np.dtype("u8") if pointers > 1 else None
    return Parameter(name, label, pointer, dtype, vector, pointers, " ".join(kind))


def _type(words: list[str]) -> tuple[np.dtype | None, int]:
    """The NumPy type that C's words mean, and of how many numbers an element is made."""
    if set(words) <= _WORDS and len(words) > 1:
        sign = "unsigned " if "unsigned" in words else ""
        signed = "signed " if "signed" in words and "char" in words else ""
        rest = [w for w in words if w not in ("unsigned", "signed")]
        if len(rest) > 1 and set(rest) != {"long", "double"}:
            rest = [w for w in rest if w != "int"]
        words = [(sign + signed + " ".join(rest)).strip() or "int"]
    name = " ".join(words)
    vector = _VECTOR.fullmatch(name)
    if vector:
        return np.dtype(_VECTORS[vector[1]]), int(vector[2])
    code = _TYPES.get("int" if name == "signed" else name)
    return (np.dtype(code) if code else None), 1
