"""PTX text -> a Module of kernels, each a flat list of instructions and labels.

The grammar is that of the PTX ISA manual, chapters 4 ("Syntax"), 5 ("State Spaces, Types, and
Variables") and 11 ("Directives"). Only names and shapes are read here; what an instruction means
is the business of `instructions`.
"""

from __future__ import annotations

import bisect
import functools
import math
import re
import struct
from dataclasses import dataclass, field, replace

from .errors import InvalidPtx

# -- operands ----------------------------------------


@dataclass(frozen=True)
class Register:
    name: str


@dataclass(frozen=True)
class Special:
    """A predefined, read-only register such as %tid.x (PTX ISA, chapter 10)."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal. For 0f... and 0d... literals `value` is the bit pattern and `kind` the width."""

    value: int
    kind: str = "int"  # "int", "f32", "f64"


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, or a parameter's place, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """[base + offset]; base is a Register, a Symbol or an Immediate."""

    base: object
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    elements: tuple


# -- statements ----------------------------------------


@dataclass
class Instruction:
    opcode: str  # "ld"
    modifiers: tuple[str, ...]  # ("global", "f32")
    operands: list
    guard: str | None = None  # name of the predicate register
    guard_negated: bool = False
    file: str = ""
    line: int = 0
    text: str = ""
    ptx_line: int = 0  # in the PTX text, from 1

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass
class Label:
    name: str


@dataclass
class Variable:
    """A module- or function-level variable or parameter."""

    name: str
    space: str  # "global", "const", "shared", "local", "param"
    align: int
    nbytes: int
    initial: bytes = b""
    pointers: tuple = ()  # (byte offset, Symbol) pairs to fill in once addresses are known
    external: bool = False


@dataclass
class Kernel:
    """An .entry, or a device function (.func), which has results as well."""

    name: str
    parameters: list[Variable]
    results: list[Variable] = field(default_factory=list)
    body: list = field(default_factory=list)  # Instruction | Label
    registers: dict[str, str] = field(default_factory=dict)  # name -> PTX type, e.g. "f32"
    variables: list[Variable] = field(default_factory=list)  # .shared, .local, .param of calls
    max_threads: int | None = None
    targets: dict[str, list[str]] = field(default_factory=dict)  # lists of labels for brx.idx
    functions: list[str] = field(default_factory=list)  # those whose code the body has (see stack)


@dataclass
class Module:
    kernels: dict[str, Kernel]
    functions: dict[str, Kernel]
    variables: list[Variable]
    target: str


SIZES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "b128": 16,
    "pred": 1,
}

# What names mean in a body: the innermost { } that declares one counts.
Scopes = list[dict[str, Register | Symbol]]

# No kernel a GPU could run has as many registers, or bytes of shared or local memory.
LARGEST = 1 << 20

_NAME = r"[A-Za-z_$%][\w$]*"
_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.S)
_LINE_DIRECTIVE = re.compile(r"^[ \t]*(\.(?:version|target|address_size|file|loc)\b[^\n;]*)$", re.M)
_SECTION = re.compile(r"\.section\s+\S+\s*\{.*?\}", re.S)
_LABEL = re.compile(rf"\s*({_NAME})\s*:(?!:)")
_VARIABLE = re.compile(
    r"(?:\.(?P<link>visible|extern|weak|common)\s+)?\.(?P<space>global|const|shared|local|param|reg)"
    r"\s+(?P<rest>.*)",
    re.S,
)
_TYPED_NAME = re.compile(
    rf"(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<vector>[24])\s+)?\.(?P<type>\w+)\s+"
    rf"(?:\.ptr\b(?:\s*\.\w+(?:\s+\d+)?)*\s*)?"
    rf"(?P<name>{_NAME})(?P<dims>(?:\s*\[[^\]]*\])*)",
    re.S,
)


def parse(text: str) -> Module:
    """Reads PTX text. Raises InvalidPtx if it is not PTX or uses a directive not understood."""
    return _Parser(text).module()


_BRACE = re.compile(r"\s*([{}])")


def _blank(text: str) -> str:
    """White space in place of `text`, of as many lines."""
    return "\n" * text.count("\n") or " "


@functools.cache
def _up_to(stops: str) -> re.Pattern:
    plain = f'[^"{re.escape(stops)}]*+'
    return re.compile(f'({plain}(?:"[^"]*"{plain})*+)[{re.escape(stops)}]')


class _Parser:
    def __init__(self, text: str):
        if ".version" not in text:
            raise InvalidPtx("not PTX: there is no .version directive")
        text = _COMMENTS.sub(lambda m: m.group(1) or _blank(m.group()), text)
        text = _SECTION.sub(lambda m: _blank(m.group()), text)
        # These end at the end of their line; a semicolon makes them like all other statements.
        self.text = _LINE_DIRECTIVE.sub(r"\1;", text)
        self.at = 0
        self.line_ends = [match.start() for match in re.finditer("\n", self.text)]
        self.files: dict[int, str] = {}
        self.result = Module({}, {}, [], "")

    def module(self) -> Module:
        while True:
            head = self._until("{;=")
            if head is None:
                self._name_files()
                return self.result
            stop = self.text[self.at - 1]
            words = head.split()
            if ".entry" in words or ".func" in words:
                self._function(head, stop)
            elif stop == ";":
                self._directive(head)
            elif stop == "=":
                self._variable(head, self._initialiser())
            else:
                raise InvalidPtx(f"cannot read the PTX near '{head.strip()[:60]}'")

    def _name_files(self) -> None:
        """nvcc writes its .file directives last: only now do file numbers have names."""
        for kernel in [*self.result.kernels.values(), *self.result.functions.values()]:
            for item in kernel.body:
                if isinstance(item, Instruction):
                    item.file = self.files.get(item.file, "")

    def _until(self, stops: str) -> str | None:
        """The text up to the next of `stops` outside quotes; None at the end of the input."""
        match = _up_to(stops).match(self.text, self.at)
        if match:
            self.at = match.end()
            return match.group(1)
        if self.text[self.at :].strip():
            raise InvalidPtx(f"the PTX ends in '{self.text[self.at :].strip()[:60]}'")
        return None

    # -- module level ----------------------------------------

    def _directive(self, head: str) -> None:
        words = head.split()
        if not words or words[0] in (".version", ".address_size", ".pragma", ".loc"):
            return
        if words[0] == ".target":
            self.result.target = words[1].rstrip(",")
        elif words[0] == ".file":
            self.files[int(words[1])] = re.search(r'"(.*)"', head).group(1)
        elif _VARIABLE.match(head.strip()):
            self._variable(head, None)
        elif words[0] not in (".alias",):
            raise InvalidPtx(f"unknown PTX directive '{words[0]}'")

    def _initialiser(self) -> str:
        """The text of `= {...};` or `= value;`."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            c = self.text[self.at]
            self.at += 1
            depth += (c == "{") - (c == "}")
            if c == ";" and depth == 0:
                return self.text[start : self.at - 1]
        raise InvalidPtx("an initialiser has no end")

    def _variable(self, head: str, initial: str | None) -> None:
        self.result.variables += _variables(head, initial)

    # -- functions ----------------------------------------

    def _function(self, head: str, stop: str) -> None:
        match = re.search(
            rf"\.(entry|func)\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>{_NAME})\s*"
            r"(?:\((?P<parameters>[^)]*)\))?(?P<tail>.*)",
            head,
            re.S,
        )
        if match is None:
            raise InvalidPtx(f"cannot read the function header '{head.strip()[:60]}'")
        parameters, results = (
            [v for p in _split(match.group(g) or "") for v in _variables(p, None)]
            for g in ("parameters", "results")
        )
        kernel = Kernel(match.group("name"), parameters, results)
        limit = re.search(r"\.maxntid\s+([\d,\s]+)", match.group("tail"))
        if limit:
            kernel.max_threads = math.prod(int(n) for n in limit.group(1).split(","))
        if stop == "{":
            self._body(kernel)
            is_kernel = match.group(1) == "entry"
            (self.result.kernels if is_kernel else self.result.functions)[kernel.name] = kernel

    def _body(self, kernel: Kernel) -> None:
        scopes: Scopes = [{}]
        file, line = 0, 0
        callers: dict[tuple[int, int], tuple[int, int]] = {}
        while scopes:
            label = _LABEL.match(self.text, self.at)
            if label:
                self.at = label.end()
                kernel.body.append(Label(label.group(1)))
                continue
            brace = _BRACE.match(self.text, self.at)
            if brace:
                self.at = brace.end()
                if brace.group(1) == "{":
                    scopes.append({})
                else:
                    scopes.pop()
                continue
            start = self.at
            statement = self._until(";")
            if statement is None:
                raise InvalidPtx(f"kernel {kernel.name} has no end")
            start += len(statement) - len(statement.lstrip())
            statement = statement.strip()
            words = statement.replace(",", " ").split()
            if words[:1] == [".loc"]:
                file, line = _place(words, file, line, callers)
            elif words[:1] == [".reg"]:
                self._registers(kernel, statement, scopes)
            elif words[:1] == [".param"]:  # an argument of a call, named anew in each
                (variable,) = _variables(statement, None)
                unique = f"{variable.name}#{len(kernel.variables)}"
                scopes[-1][variable.name] = Symbol(unique)
                kernel.variables.append(replace(variable, name=unique))
            elif statement.startswith("."):
                self._local_directive(kernel, statement)
            elif statement:
                instruction = _instruction(statement, scopes, file, line)
                instruction.ptx_line = bisect.bisect(self.line_ends, start) + 1
                kernel.body.append(_with_carry(instruction, kernel))

    def _registers(self, kernel: Kernel, statement: str, scopes: Scopes) -> None:
        match = re.match(r"\.reg\s+(?:\.v([24])\s+)?\.(\w+)\s+(.*)", statement, re.S)
        if match is None or match.group(1):
            raise InvalidPtx(f"cannot read '{statement[:60]}'")
        kind = match.group(2)
        for item in match.group(3).split(","):
            item = item.strip()
            many = re.match(rf"({_NAME})<(\d+)>$", item)
            if many and int(many.group(2)) > LARGEST:
                raise InvalidPtx(f"'{item}': more than {LARGEST:,} registers")
            names = [f"{many.group(1)}{i}" for i in range(int(many.group(2)))] if many else [item]
            for name in names:
                unique = name if len(scopes) == 1 else f"{name}#{len(kernel.registers)}"
                scopes[-1][name] = Register(unique)
                kernel.registers[unique] = kind

    def _local_directive(self, kernel: Kernel, statement: str) -> None:
        if statement.startswith((".shared", ".local")):
            kernel.variables += _variables(statement, None)
        elif statement.startswith(".branchtargets") and isinstance(kernel.body[-1], Label):
            kernel.targets[kernel.body[-1].name] = _split(statement.split(None, 1)[1])
        elif not statement.startswith((".pragma", ".file", ".callprototype", ".calltargets")):
            raise InvalidPtx(
                f"kernel {kernel.name}: the directive '{statement[:60]}' is not supported"
            )


def _place(words: list[str], file: int, line: int, callers: dict) -> tuple[int, int]:
    """(file number, line) of a .loc; line 0 is the compiler's own and stays at (file, line).

    Code inlined from another file than the kernel's first one, which is a header of the toolkit
    as a rule, counts as the line it was called from (PTX ISA 11.5.3). callers: what the places of
    a chain of such calls count as; each is named by a .loc before the ones called from it.
    """
    new = int(words[1]), int(words[2])
    if new[1] == 0:
        return file, line
    if "inlined_at" in words and file and new[0] != file:
        at = words.index("inlined_at")
        caller = int(words[at + 1]), int(words[at + 2])
        callers[new] = callers.get(caller, caller)
        return callers[new]
    return new


def _variables(head: str, initial: str | None) -> list[Variable]:
    match = _VARIABLE.match(head.strip())
    if match is None:
        raise InvalidPtx(f"cannot read the declaration '{head.strip()[:60]}'")
    typed = _TYPED_NAME.search(match.group("rest"))
    if typed is None or typed.group("type") not in SIZES:
        raise InvalidPtx(f"cannot read the declaration '{head.strip()[:60]}'")
    element = SIZES[typed.group("type")]
    count = int(typed.group("vector") or 1)
    for dimension in re.findall(r"\[([^\]]*)\]", typed.group("dims")):
        count *= int(dimension or 0)
    data, pointers = _initial_bytes(initial, typed.group("type"), element) if initial else (b"", ())
    space = match.group("space")
    if space in ("shared", "local", "param") and element * count > LARGEST:
        raise InvalidPtx(f"'{typed.group('name')}': more than {LARGEST:,} bytes of {space} memory")
    return [
        Variable(
            typed.group("name"),
            space,
            int(typed.group("align") or element),
            max(element * count, len(data)),
            data,
            pointers,
            match.group("link") == "extern",
        )
    ]


def _initial_bytes(text: str, kind: str, size: int) -> tuple[bytes, tuple]:
    data, pointers = b"", []
    for item in re.sub(r"[{}]", " ", text).split(","):
        item = item.strip()
        value = _literal(item) if item else Immediate(0)
        if value is None:
            name, _, offset = item.replace("generic(", "").replace(")", "").partition("+")
            pointers.append((len(data), Symbol(name.strip(), int(offset or "0", 0))))
            value = Immediate(0)
        if value.kind == "f64" and kind == "f32":
            value = Immediate(
                struct.unpack(
                    "<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", value.value))[0])
                )[0]
            )
        data += (value.value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return data, tuple(pointers)


# -- instructions ----------------------------------------


def _instruction(text: str, scopes: Scopes, file: int, line: int) -> Instruction:
    match = re.match(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:\.[\w:]+)*)\s*(.*)$", text, re.S)
    if match is None:
        raise InvalidPtx(f"cannot read the instruction '{text[:60]}'")
    negated, guard, opcode, modifiers, rest = match.groups()
    operands = [_operand(o, scopes) for o in _split(rest)]
    if guard and not isinstance(_lookup(guard, scopes), Register):
        raise InvalidPtx(f"the predicate {guard} is not declared")
    return Instruction(
        opcode,
        _modifiers(modifiers),
        operands,
        _lookup(guard, scopes).name if guard else None,
        negated == "!",
        file,
        line,
        " ".join(text.split()),
    )


def _modifiers(text: str) -> tuple[str, ...]:
    """The modifiers, the type last: ptxas takes ".f32.ftz" for ".ftz.f32", and cuRAND writes it."""
    words = text.split(".")[1:]
    if len(words) > 1 and words[-1] == "ftz":
        words[-2:] = "ftz", words[-2]
    return tuple(words)


def _with_carry(i: Instruction, kernel: Kernel) -> Instruction:
    """Makes the carry flag CC.CF, which add.cc, addc, ... use in secret (PTX ISA 9.7.2), an
    ordinary predicate register: a second destination of .cc, a last operand of addc and the like.
    """
    gives, takes = "cc" in i.modifiers, i.opcode in ("addc", "subc", "madc")
    if gives or takes:
        carry = Register("%carry#")
        kernel.registers[carry.name] = "pred"
        first = (i.operands[0], carry) if gives else i.operands[0]
        i.operands = [first, *i.operands[1:], *([carry] if takes else [])]
    return i


_BRACKET = re.compile(r"[\[{(]")


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    if not _BRACKET.search(text):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def _lookup(name: str, scopes: Scopes) -> Register | Symbol | None:
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    return None


@functools.lru_cache(maxsize=4096)
def _literal(text: str) -> Immediate | None:
    if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", text):
        return Immediate(int(text[2:], 16), "f32")
    if re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", text):
        return Immediate(int(text[2:], 16), "f64")
    if re.fullmatch(r"-?(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)U?", text):
        digits = text.rstrip("U")
        if re.fullmatch(r"-?0[0-7]+", digits):
            return Immediate(int(digits, 8))
        return Immediate(int(digits, 0))
    if re.fullmatch(r"-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)", text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")
    return None


def _operand(text: str, scopes: Scopes):
    if text.startswith("["):
        return _address(text[1:-1].strip(), scopes)
    if text.startswith(("{", "(")):
        return Vector(tuple(_operand(t, scopes) for t in _split(text[1:-1])))
    if text.startswith("%") and "|" not in text:
        return _lookup(text, scopes) or Special(text)
    literal = _literal(text)
    if literal is not None:
        return literal
    if text == "_":
        return Register("_")
    if text.startswith("!"):
        return ("not", _operand(text[1:].strip(), scopes))
    if "|" in text:
        return tuple(_operand(t.strip(), scopes) for t in text.split("|"))
    declared = _lookup(text, scopes)
    if declared is not None:
        return declared
    name, sign, offset = re.match(r"([^+-]+)\s*([+-]?)\s*(.*)$", text, re.S).groups()
    if not re.fullmatch(_NAME, name.strip()):
        raise InvalidPtx(f"cannot read the operand '{text[:60]}'")
    symbol = _lookup(name.strip(), scopes) or Symbol(name.strip())
    return Symbol(symbol.name, int(sign + offset, 0) if offset else 0)


def _address(text: str, scopes: Scopes) -> Address:
    match = re.match(r"([^+]+?)\s*(?:\+\s*(-?\s*\w+))?$", text)
    if match is None:
        raise InvalidPtx(f"cannot read the address '[{text[:60]}]'")
    base = _operand(match.group(1).strip(), scopes)
    offset = int(match.group(2).replace(" ", ""), 0) if match.group(2) else 0
    if isinstance(base, Symbol):
        return Address(Symbol(base.name), base.offset + offset)
    return Address(base, offset)
