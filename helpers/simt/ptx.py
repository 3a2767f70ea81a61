"""PTX text -> a Module of kernels, each a flat list of instructions and labels.

The grammar is that of the PTX ISA manual, chapters 4 ("Syntax"), 5 ("State Spaces, Types, and
Variables") and 11 ("Directives"). Only names and shapes are read here; what an instruction means
is the business of `instructions`.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import math
import re
import struct
from collections.abc import Callable
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

_ALIGNMENTS = {1 << k for k in range(13)}
# No kernel a GPU could run has as many bytes of shared or local memory, or as many registers.
LARGEST = 1 << 20
MOST_REGISTERS = 1 << 18

_NAME = r"[A-Za-z_$%][\w$]*"
_COUNT = r"[0-9]{1,12}"
_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.S)
_LINE_DIRECTIVE = re.compile(r"^[ \t]*(\.(?:version|target|address_size|file|loc)\b[^\n;]*)$", re.M)
_SECTION = re.compile(r"\.section\s+\S+\s*\{.*?\}", re.S)
_LABEL = re.compile(rf"\s*({_NAME})\s*:(?!:)")
_DIRECTIVE = re.compile(r"(?:\.\w+)?")  # .reg of ".reg.b32 r", as headers of the toolkit have it
_VARIABLE = re.compile(
    r"(?:\.(?P<link>visible|extern|weak|common)\s+)?\.(?P<space>global|const|shared|local|param|reg)\b"
    r"\s*(?P<rest>.*)",
    re.S,
)
_TYPED_NAME = re.compile(
    rf"(?:\.attribute\s*\([^)]*\)\s*)?(?:\.align\s+(?P<align>{_COUNT})\s*)?(?:\.v(?P<vector>[24])\s*)?\.(?P<type>\w+)\s+"
    rf"(?:\.ptr\b(?:\s*\.\w+(?:\s+\d+)?)*\s*)?"
    rf"(?P<name>{_NAME})(?P<dims>(?:\s*\[\s*(?:{_COUNT})?\s*\])*)\s*$",
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
        self.defined: set[str] = set()
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
            self.result.target = " ".join(words[1:]).split(",")[0]
        elif words[0] == ".file":
            file = re.match(r'\s*\.file\s+(\d+)\s+"(.*?)"', head, re.S)
            if file is None:
                raise InvalidPtx(f"cannot read '{head.strip()[:60]}'")
            self.files[int(file.group(1))] = file.group(2)
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
        (variable,) = _variables(head, initial)
        if not variable.external:
            if variable.name in self.defined:
                raise InvalidPtx(f"'{variable.name}' is defined twice")
            self.defined.add(variable.name)
        self.result.variables.append(variable)

    # -- functions ----------------------------------------

    def _function(self, head: str, stop: str) -> None:
        match = re.match(
            r"\s*(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\s*"
            rf"(?:\((?P<results>[^)]*)\))?\s*(?P<name>{_NAME})\s*"
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
        limit = re.search(rf"\.maxntid\s+({_COUNT}(?:\s*,\s*{_COUNT})*)", match.group("tail"))
        if limit:
            kernel.max_threads = math.prod(int(n) for n in limit.group(1).split(","))
        if stop == "{":
            if kernel.name in self.result.kernels or kernel.name in self.result.functions:
                raise InvalidPtx(f"{kernel.name} is defined twice")
            _Body(self, kernel).read()
            is_kernel = match.group(1) == "entry"
            (self.result.kernels if is_kernel else self.result.functions)[kernel.name] = kernel
        elif stop == "=":
            raise InvalidPtx(f"cannot read the function header '{head.strip()[:60]}'")


class _Body:
    """Reads the body of one function, which lies between { and the } that belongs to it."""

    def __init__(self, parser: _Parser, kernel: Kernel):
        self.parser, self.kernel = parser, kernel
        self.scopes: Scopes = [{}]
        # The labels of each open { }, and the places that name one: it may stand further down.
        self.labels: list[dict[str, str]] = [{}]
        self.uses: list[tuple[Callable[[Callable[[str], str]], None], tuple[dict, ...]]] = []
        self.names: set[str] = {v.name for v in (*kernel.parameters, *kernel.results)}
        self.file = self.line = 0
        self.callers: dict[tuple[int, int], tuple[int, int]] = {}

    def read(self) -> None:
        parser = self.parser
        while self.scopes:
            label = _LABEL.match(parser.text, parser.at)
            if label:
                parser.at = label.end()
                self._label(label.group(1))
                continue
            brace = _BRACE.match(parser.text, parser.at)
            if brace:
                parser.at = brace.end()
                if brace.group(1) == "{":
                    self.scopes.append({})
                    self.labels.append({})
                else:
                    self.scopes.pop()
                    self.labels.pop()
                continue
            start = parser.at
            statement = parser._until(";")
            if statement is None:
                raise InvalidPtx(f"kernel {self.kernel.name} has no end")
            start += len(statement) - len(statement.lstrip())
            self._statement(statement.strip(), bisect.bisect(parser.line_ends, start) + 1)
        self._resolve()
        self._drop_unused_registers()

    def _statement(self, statement: str, ptx_line: int) -> None:
        words = statement.replace(",", " ").split()
        directive = _DIRECTIVE.match(statement)[0]
        if directive == ".loc":
            self.file, self.line = _place(words, self.file, self.line, self.callers)
        elif directive == ".reg":
            self._registers(statement)
        elif directive == ".param":  # an argument of a call, named anew in each
            (variable,) = _variables(statement, None)
            unique = f"{variable.name}#{len(self.kernel.variables)}"
            self.scopes[-1][variable.name] = Symbol(unique)
            self.kernel.variables.append(replace(variable, name=unique))
        elif statement.startswith("."):
            self._directive(statement)
        elif statement:
            i = _instruction(statement, self.scopes, self.file, self.line)
            i.ptx_line = ptx_line
            if i.opcode in ("bra", "brx"):
                self._use(lambda find: self._name_labels(i, find))
            self.kernel.body.append(_with_carry(i, self.kernel))

    # -- labels: known in the { } around them (PTX ISA 4.3.2) -------------------

    def _label(self, name: str) -> None:
        if name in self.labels[-1]:
            raise InvalidPtx(f"kernel {self.kernel.name}: the label {name} is defined twice")
        unique = name if len(self.labels) == 1 else f"{name}#{len(self.kernel.body)}"
        self.labels[-1][name] = unique
        self.kernel.body.append(Label(unique))

    def _use(self, change: Callable[[Callable[[str], str]], None]) -> None:
        self.uses.append((change, tuple(reversed(self.labels))))

    def _resolve(self) -> None:
        """Gives every use of a label the label's own name."""
        for change, scopes in self.uses:
            change(lambda name, scopes=scopes: next((s[name] for s in scopes if name in s), name))

    @staticmethod
    def _name_labels(i: Instruction, find: Callable[[str], str]) -> None:
        i.operands = [Symbol(find(o.name)) if isinstance(o, Symbol) else o for o in i.operands]

    # -- declarations ----------------------------------------

    def _registers(self, statement: str) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)", statement, re.S)
        if match is None or match.group(1) not in SIZES:
            raise InvalidPtx(f"cannot read '{statement[:60]}'")
        for item in match.group(2).split(","):
            item = item.strip()
            many = re.fullmatch(rf"({_NAME})<({_COUNT})>", item)
            if not many and not re.fullmatch(_NAME, item):
                raise InvalidPtx(f"cannot read '{statement[:60]}'")
            count = int(many.group(2)) if many else 1
            if count + len(self.kernel.registers) > MOST_REGISTERS:
                raise InvalidPtx(f"'{item}': more than {MOST_REGISTERS:,} registers")
            names = [f"{many.group(1)}{i}" for i in range(count)] if many else [item]
            for name in names:
                if name in self.scopes[-1]:
                    raise InvalidPtx(f"'{name}' is declared twice")
                unique = name if len(self.scopes) == 1 else f"{name}#{len(self.kernel.registers)}"
                self.scopes[-1][name] = Register(unique)
                self.kernel.registers[unique] = match.group(1)

    def _directive(self, statement: str) -> None:
        kernel = self.kernel
        if statement.startswith((".shared", ".local")):
            for v in _variables(statement, None):
                if v.name in self.names:
                    raise InvalidPtx(f"'{v.name}' is declared twice")
                self.names.add(v.name)
                kernel.variables.append(v)
        elif statement.startswith(".branchtargets") and kernel.body[-1:] != []:
            table = kernel.body[-1]
            labels = _split(statement.removeprefix(".branchtargets"))
            if not isinstance(table, Label) or not labels:
                raise InvalidPtx(f"cannot read '{statement[:60]}'")
            kernel.targets[table.name] = labels
            self._use(lambda find: labels.__setitem__(slice(None), [find(n) for n in labels]))
        elif not statement.startswith((".pragma", ".file", ".callprototype", ".calltargets")):
            raise InvalidPtx(
                f"kernel {kernel.name}: the directive '{statement[:60]}' is not supported"
            )

    def _drop_unused_registers(self) -> None:
        """nvcc declares one more than it uses, hand-written code whole ranges."""
        used: set[str] = set()
        for i in self.kernel.body:
            if isinstance(i, Instruction):
                for o in i.operands:
                    _collect_registers(o, used)
                if i.guard:
                    used.add(i.guard)
        self.kernel.registers = {n: k for n, k in self.kernel.registers.items() if n in used}


def _collect_registers(operand, found: set[str]) -> None:
    if isinstance(operand, Register):
        found.add(operand.name)
    elif isinstance(operand, Address):
        _collect_registers(operand.base, found)
    elif isinstance(operand, (Vector, tuple)):
        for part in operand.elements if isinstance(operand, Vector) else operand:
            _collect_registers(part, found)


def _place(words: list[str], file: int, line: int, callers: dict) -> tuple[int, int]:
    """(file number, line) of a .loc; line 0 is the compiler's own and stays at (file, line).

    Code inlined from another file than the kernel's first one, which is a header of the toolkit
    as a rule, counts as the line it was called from (PTX ISA 11.5.3). callers: what the places of
    a chain of such calls count as; each is named by a .loc before the ones called from it.
    """
    new = _two_numbers(words, 1)
    if new[1] == 0:
        return file, line
    if "inlined_at" in words and file and new[0] != file:
        caller = _two_numbers(words, words.index("inlined_at") + 1)
        callers[new] = callers.get(caller, caller)
        return callers[new]
    return new


def _two_numbers(words: list[str], at: int) -> tuple[int, int]:
    if len(words) < at + 2 or not all(re.fullmatch(_COUNT, w) for w in words[at : at + 2]):
        raise InvalidPtx(f"cannot read '{' '.join(words)[:60]}'")
    return int(words[at]), int(words[at + 1])


def _variables(head: str, initial: str | None) -> list[Variable]:
    match = _VARIABLE.match(head.strip())
    if match is None:
        raise InvalidPtx(f"cannot read the declaration '{head.strip()[:60]}'")
    typed = _TYPED_NAME.match(match.group("rest"))
    if typed is None or typed.group("type") not in SIZES:
        raise InvalidPtx(f"cannot read the declaration '{head.strip()[:60]}'")
    element = SIZES[typed.group("type")]
    count = int(typed.group("vector") or 1)
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", typed.group("dims")):
        count *= int(dimension or 0)
    align = int(typed.group("align") or element)
    if align not in _ALIGNMENTS:
        raise InvalidPtx(f"'{typed.group('name')}': an alignment of {align} bytes is not possible")
    data, pointers = _initial_bytes(initial, typed.group("type"), element) if initial else (b"", ())
    space = match.group("space")
    if space in ("shared", "local", "param") and element * count > LARGEST:
        raise InvalidPtx(f"'{typed.group('name')}': more than {LARGEST:,} bytes of {space} memory")
    return [
        Variable(
            typed.group("name"),
            space,
            align,
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
            if size != 8 or not re.fullmatch(_NAME, name.strip()):
                raise InvalidPtx(f"cannot read '{item[:60]}' in an initialiser")
            pointers.append((len(data), Symbol(name.strip(), _integer(offset) if offset else 0)))
            value = Immediate(0)
        if value.kind == "f64" and kind == "f32":
            value = as_f32(value)
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
    gives = "cc" in i.modifiers and i.opcode in ("add", "sub", "mad", "addc", "subc", "madc")
    takes = i.opcode in ("addc", "subc", "madc")
    if not i.operands:
        return i
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
    if re.fullmatch(
        r"-?(?:0[xX][0-9A-Fa-f]{1,40}|0[bB][01]{1,80}|0[0-7]*|[1-9][0-9]{0,40})U?", text
    ):
        digits = text.rstrip("U")
        value = int(digits, 8 if re.fullmatch(r"-?0[0-7]+", digits) else 0)
        if not -(1 << 63) <= value < 1 << 64:
            raise InvalidPtx(f"{text} does not fit 64 bits")
        return Immediate(value)
    if re.fullmatch(r"-?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)", text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")
    return None


def _integer(text: str) -> int:
    """An integer in the text of an offset, which may have a sign and spaces behind it."""
    value = _literal(re.sub(r"^\s*([+-]?)\s*", r"\1", text.strip()).removeprefix("+"))
    if value is None or value.kind != "int":
        raise InvalidPtx(f"cannot read the offset '{text.strip()[:60]}'")
    return value.value


def as_f32(value: Immediate) -> Immediate:
    """A double literal where a float is expected: too large a one is infinite."""
    (number,) = struct.unpack("<d", struct.pack("<Q", value.value))
    return Immediate(struct.unpack("<I", ctypes.c_float(number))[0], "f32")


def _operand(text: str, scopes: Scopes):
    """Any operand: an address, a list in braces or parentheses, or a single one."""
    for first, last in ("[]", "{}", "()"):
        if text.startswith(first):
            if not text.endswith(last):
                raise InvalidPtx(f"cannot read the operand '{text[:60]}'")
            if first == "[":
                return _address(text[1:-1].strip(), scopes)
            return Vector(tuple(_single(t, scopes) for t in _split(text[1:-1])))
    if "|" in text:
        return tuple(_single(t.strip(), scopes) for t in text.split("|"))
    if text.startswith("!"):
        return ("not", _single(text[1:].strip(), scopes))
    return _single(text, scopes)


def _single(text: str, scopes: Scopes):
    """A register, a literal, or a name with an offset."""
    if text.startswith("%"):
        return _lookup(text, scopes) or Special(text)
    literal = _literal(text)
    if literal is not None:
        return literal
    if text == "_":
        return Register("_")
    if text == "WARP_SZ":  # PTX ISA 4.6.1
        return Immediate(32)
    declared = _lookup(text, scopes)
    if declared is not None:
        return declared
    match = re.fullmatch(rf"({_NAME})\s*([+-].*)?", text, re.S)
    if match is None:
        raise InvalidPtx(f"cannot read the operand '{text[:60]}'")
    symbol = _lookup(match.group(1), scopes) or Symbol(match.group(1))
    if not isinstance(symbol, Symbol):
        raise InvalidPtx(f"cannot read the operand '{text[:60]}'")
    return Symbol(symbol.name, _integer(match.group(2)) if match.group(2) else 0)


def _address(text: str, scopes: Scopes) -> Address:
    match = re.fullmatch(r"([^+]+?)\s*(?:\+\s*(-?\s*\w+))?", text)
    if match is None:
        raise InvalidPtx(f"cannot read the address '[{text[:60]}]'")
    base = _single(match.group(1).strip(), scopes)
    offset = _integer(match.group(2)) if match.group(2) else 0
    if isinstance(base, Special) or isinstance(base, Immediate) and base.kind != "int":
        raise InvalidPtx(f"cannot read the address '[{text[:60]}]'")
    if isinstance(base, Symbol):
        return Address(Symbol(base.name), base.offset + offset)
    return Address(base, offset)
