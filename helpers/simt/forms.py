"""The operands that instructions take: how many, of what kind, and of which types.

All of a module is checked before anything else looks at its instructions, so that nothing past
this point meets an operand it does not expect. Types must agree as PTX ISA 9.2 ("Type Information
for Instructions and Operands") says. An opcode without a form here is left to `codegen`, which
refuses what it does not know.

A form has a letter for each operand: d a destination; p a destination or two joined by |, the
second a predicate; v a value (a register or a literal); m a value, or a special register;
y those, or a variable's or function's address; q a predicate; s a value or a predicate;
a an address; g destinations in braces (or one); h values in braces (or one); i an integer
constant; l a label; c the carry flag.
A letter may be followed by : and a type. T, which is also what d, p, v, m, g and h have without,
is the last modifier; S the one before it; W is T of twice the width; * anything but a predicate.
t and s are T and S where those need not be types that registers have (tf32), and then *.
After those may come + where registers may be wider than the type (9.4.1), and ? where the operand
may be left out, at the end.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from . import ptx
from .errors import InvalidPtx

_GROUPS = {
    "d v": "abs neg not cnot brev rcp sqrt rsqrt sin cos ex2 lg2 tanh",
    "d v v": "add sub mul div rem min max and or xor copysign bmsk",
    "d v v c": "addc subc",
    "d v v v": "mad fma sad",
    "d v v v c": "madc",
    "d v v:u32": "shl shr",
    "d:u32 v": "popc clz bfind",
    "d:b32 v:b32 v:b32 v:b32": "shf prmt fns dp2a dp4a vabsdiff2 vabsdiff4",
    "": "ret exit trap brkpt membar fence",
}
FORMS = {opcode: form for form, opcodes in _GROUPS.items() for opcode in opcodes.split()} | {
    "mul.wide": "d:W v v",
    "mad.wide": "d:W v v v:W",
    "mul24": "d v v",
    "mad24": "d v v v",
    "bfe": "d v v:u32 v:u32",
    "bfi": "d v v v:u32 v:u32",
    "szext": "d v v:u32",
    "lop3": "d v v v i",
    "lop3.and": "p v v v i q",
    "lop3.or": "p v v v i q",
    "testp": "d:pred v",
    "setp": "p:pred v v q?",
    "set": "d:S v v q?",
    "selp": "d v v q",
    "slct": "d:S v:S v:S v:T",
    "isspacep": "d:pred v:u64",
    "cvta": "d y",
    "cvt": "d:s+ m:t+ m:t+? v:*?",
    "cvt.pack": "d:b32 v:b32 v:b32 v:b32?",
    "ld": "g:T+ a v:u64?",
    "ldu": "g:T+ a",
    "st": "a h:T+ v:u64?",
    "atom": "d a h h:*? v:u64?",
    "red": "a h h:*? v:u64?",
    "bra": "l",
    "brx": "v:u32 l",
    "nanosleep": "v",
    "prefetch": "a",
    "prefetchu": "a",
    "bar.sync": "v:u32 v:u32?",
    "bar.arrive": "v:u32 v:u32",
    "bar.red": "d v:u32 s q?",
    "bar.warp": "v:u32",
    "barrier.sync": "v:u32 v:u32?",
    "barrier.arrive": "v:u32 v:u32",
    "barrier.red": "d v:u32 s q?",
    "barrier.cta": "s:* s:*? s:*? s:*?",
    # of `warp`, `tensor` and `async_copy`
    "shfl": "p:b32 v:b32 v:b32 v:b32 v:b32",
    "vote": "d q v:b32",
    "activemask": "d",
    "match": "p:b32 v v:b32",
    "redux": "d v v:b32",
    "ldmatrix": "g:b32 a",
    "movmatrix": "d:b32 v:b32",
    "mma": "g:* h:* h:* h:*",
    "wmma.load": "g:* a v:b32?",
    "wmma.store": "a h:* v:b32?",
    "wmma.mma": "g:* h:* h:* h:*",
    "cp.async.ca": "a a i s:*? v:b64?",
    "cp.async.cg": "a a i s:*? v:b64?",
    "cp.async.commit_group": "",
    "cp.async.wait_group": "i",
    "cp.async.wait_all": "",
    "cp.async.mbarrier": "a",
    "mbarrier.init": "a v:b32",
    "mbarrier.inval": "a",
    "mbarrier.arrive": "d:b64 a v:b32?",
    "mbarrier.arrive_drop": "d:b64 a v:b32?",
    "mbarrier.test_wait": "d:pred a v:*",
    "mbarrier.pending_count": "d:b32 v:b64",
    "createpolicy.fractional": "d:b64 v:f32?",
    "createpolicy.range": "d:b64 a v:b32 v:b32",
    "createpolicy.cvt": "d:b64 v:b64",
}
_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyzw]|"
    r"%(laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|"
    r"cluster_nctarank|lanemask_(eq|le|lt|ge|gt)|clock(_hi|64)?|pm[0-7](_64)?|"
    r"globaltimer(_lo|_hi)?|reserved_smem_offset_(begin|end|cap|[01])|total_smem_size|"
    r"aggr_smem_size|dynamic_smem_size|current_graph_exec|envreg([12]?\d|3[01]))"
)
_LONG_SPECIAL = re.compile(r"%(clock64|globaltimer|gridid|pm[0-7]_64|current_graph_exec)")
_WIDER = {"16": "32", "32": "64", "64": "128"}
_NEAR = (("b32", "u32", "s32"), ())  # what may hold the address of a shared or local variable
_BARRIERS = {"sync", "arrive", "red"}
_SPACES = ("global", "const", "shared", "local", "param")


@dataclass(frozen=True)
class _Operand:
    """What one operand of an instruction must be."""

    letter: str
    kind: str  # a PTX type; "*": any but pred
    wider: bool
    optional: bool


def _kind(code: str, modifiers: tuple[str, ...]) -> str:
    """What a code of a form means; "" if the instruction names no such type."""
    kind = modifiers[-1] if modifiers else ""
    if code in ("S", "s"):
        kind = modifiers[-2] if len(modifiers) > 1 else ""
    elif code == "W":
        kind = kind[:1] + _WIDER.get(kind[1:], "")
    elif code not in ("T", "t"):
        return code
    return kind if kind in ptx.SIZES else "*" if kind and code.islower() else ""


@functools.lru_cache(maxsize=4096)
def _form(opcode: str, modifiers: tuple[str, ...]) -> tuple[_Operand, ...] | None:
    names = (".".join((opcode, *modifiers[:n])) for n in (2, 1, 0))
    form = next((FORMS[name] for name in names if name in FORMS), None)
    if form is None:
        return None
    operands = []
    for word in form.split():
        match = re.fullmatch(r"(\w)(?::([\w*]+))?(\+?)(\??)", word)
        letter, code, wider, optional = match.groups()
        kind = {"q": "pred", "a": "*", "i": "*", "l": "*", "c": "*"}.get(letter)
        kind = kind or _kind(code or "T", modifiers)
        operands.append(_Operand(letter, kind, bool(wider), bool(optional)))
    return tuple(operands)


# -- types ----------------------------------------


def _fits(register: str, kind: str, wider: bool) -> bool:
    """Whether a register of a type may be an operand of type `kind`."""
    if kind == "*" or "pred" in (register, kind):
        return (register == "pred") == (kind == "pred")
    size, needed = ptx.SIZES[register], ptx.SIZES[kind]
    if size != needed and not (size > needed and (wider or needed == 1)):
        return False
    of_register, of_kind = _family(register), _family(kind)
    if "bits" in (of_register, of_kind) or of_register == of_kind == "integer":
        return True
    return register == kind


def _family(kind: str) -> str:
    if kind.startswith(("f", "bf")):
        return "float"
    return "bits" if kind[0] == "b" else "integer"


def _literal_fits(value: ptx.Immediate, kind: str) -> bool:
    if kind in ("*", "pred") or _family(kind) == "bits":
        return True
    return (value.kind != "int") == (_family(kind) == "float")


# -- checking ----------------------------------------


class Checker:
    """Checks the instructions of one kernel or function of a module."""

    def __init__(self, module: ptx.Module, function: ptx.Kernel):
        self.module, self.function = module, function
        self.spaces = {v.name: v.space for v in (*module.variables, *function.variables)}
        self.spaces |= {v.name: "param" for v in (*function.parameters, *function.results)}
        self.labels = {item.name for item in function.body if isinstance(item, ptx.Label)}

    def check(self) -> None:
        """Raises InvalidPtx for the first instruction that is not as its form says."""
        for item in self.function.body:
            if isinstance(item, ptx.Instruction):
                self._instruction(item)
        for labels in self.function.targets.values():
            for label in labels:
                self._label(label)

    def _instruction(self, i: ptx.Instruction) -> None:
        if i.guard and self.function.registers[i.guard] != "pred":
            raise self._invalid(i)
        for o in i.operands:
            self._names(i, o)
        if i.opcode == "call":
            self._call(i)
            return
        if i.opcode == "mov":
            self._move(i)
            return
        form = _form(i.opcode, i.modifiers)
        if form is None and i.opcode in ("bar", "barrier"):
            raise self._invalid(i, f"'{i.text[:100]}' is no kind of barrier")
        if form is None:
            return
        if any(not o.kind for o in form):
            raise self._invalid(i, f"'{i.text[:100]}' names no type that it takes")
        operands = list(i.operands)
        if "cc" in i.modifiers and isinstance(operands[0], tuple):  # with the carry flag, see ptx
            operands[0] = operands[0][0]
        least = sum(not o.optional for o in form)
        if not least <= len(operands) <= len(form):
            raise self._invalid(i)
        for expected, operand in zip(form, operands, strict=False):
            if not getattr(self, "_is_" + expected.letter)(operand, expected):
                raise self._invalid(i)
        if i.opcode in ("ld", "ldu", "st", "atom", "red"):
            self._memory(i)
        elif i.opcode in ("bar", "barrier"):
            self._barrier(i)
        elif i.opcode == "cvt" and "pack" not in i.modifiers:
            if len(i.operands) > 2 and not i.modifiers[-2].endswith("x2"):
                raise self._invalid(i)
        elif i.opcode in ("setp", "set"):
            if (len(i.operands) == 4) != bool({"and", "or", "xor"} & set(i.modifiers)):
                raise self._invalid(i)

    def _invalid(self, i: ptx.Instruction, why: str = "") -> InvalidPtx:
        place = f"kernel {self.function.name}"
        if i.line:
            place += f" ({i.file.rsplit('/', 1)[-1]}:{i.line})"
        why = why or f"the operands of '{i.text[:100]}' are not what it takes"
        return InvalidPtx(f"{place}: {why}")

    # -- kinds of operands ----------------------------------------

    def _register(self, o, kind: str, wider: bool = False) -> bool:
        return (
            isinstance(o, ptx.Register)
            and o.name != "_"
            and _fits(self.function.registers[o.name], kind, wider)
        )

    def _is_d(self, o, e: _Operand) -> bool:
        return o == ptx.Register("_") or self._register(o, e.kind, e.wider)

    def _is_p(self, o, e: _Operand) -> bool:
        if not isinstance(o, tuple):
            return self._is_d(o, e)
        second = _Operand("d", "pred", False, False)
        return len(o) == 2 and self._is_d(o[0], e) and self._is_d(o[1], second)

    def _is_v(self, o, e: _Operand) -> bool:
        if e.kind == "pred" and isinstance(o, tuple):
            return self._is_q(o, e)
        if isinstance(o, ptx.Immediate):
            return _literal_fits(o, e.kind)
        return self._register(o, e.kind, e.wider)

    def _is_m(self, o, e: _Operand) -> bool:
        if isinstance(o, ptx.Special):
            return (ptx.SIZES.get(e.kind) == 8) == bool(_LONG_SPECIAL.fullmatch(o.name))
        return self._is_v(o, e)

    def _is_y(self, o, e: _Operand) -> bool:
        return isinstance(o, ptx.Symbol) or self._is_m(o, e)

    def _is_q(self, o, e: _Operand) -> bool:
        if isinstance(o, tuple):
            return len(o) == 2 and o[0] == "not" and self._register(o[1], "pred")
        return self._is_v(o, e)

    def _is_s(self, o, e: _Operand) -> bool:
        pred = _Operand("q", "pred", False, False)
        return self._is_q(o, pred) or self._is_v(o, _Operand("v", "*", False, False))

    def _is_a(self, o, e: _Operand) -> bool:
        return isinstance(o, ptx.Address)

    def _each(self, o, test, e: _Operand) -> bool:
        if isinstance(o, ptx.Vector):
            return bool(o.elements) and all(test(x, e) for x in o.elements)
        return test(o, e)

    def _is_g(self, o, e: _Operand) -> bool:
        return self._each(o, self._is_d, e)

    def _is_h(self, o, e: _Operand) -> bool:
        return self._each(o, self._is_v, e)

    def _is_i(self, o, e: _Operand) -> bool:
        return isinstance(o, ptx.Immediate) and o.kind == "int"

    def _is_l(self, o, e: _Operand) -> bool:
        return isinstance(o, ptx.Symbol) and o.offset == 0

    def _is_c(self, o, e: _Operand) -> bool:
        return True

    # -- names ----------------------------------------

    def _names(self, i: ptx.Instruction, o) -> None:
        """Special registers must exist; variables, functions and labels must be declared."""
        if isinstance(o, ptx.Special) and not _SPECIAL.fullmatch(o.name):
            raise self._invalid(i, f"'{o.name}' in '{i.text[:100]}' is not declared")
        if isinstance(o, ptx.Symbol):
            if i.opcode in ("bra", "brx"):
                self._label(o.name, i)
            elif o.name not in self.spaces and not self._is_function(i, o.name):
                raise self._invalid(i, f"'{o.name}' in '{i.text[:100]}' is not declared")
        elif isinstance(o, ptx.Address):
            self._names(i, o.base)
            if isinstance(o.base, ptx.Register) and not (
                self._register(o.base, "u64") or self._register(o.base, "u32")
            ):
                raise self._invalid(i)
        elif isinstance(o, (tuple, ptx.Vector)):
            for part in o.elements if isinstance(o, ptx.Vector) else o:
                if not isinstance(part, str):
                    self._names(i, part)

    def _is_function(self, i: ptx.Instruction, name: str) -> bool:
        return i.opcode == "call" or name in self.module.functions or name in self.module.kernels

    def _label(self, name: str, i: ptx.Instruction | None = None) -> None:
        tables = self.function.targets if i is not None and i.opcode == "brx" else {}
        if name not in self.labels and name not in tables:
            raise InvalidPtx(
                f"kernel {self.function.name}: the label {name.split('#')[0]} is not defined"
            )
        if i is not None and i.opcode == "brx" and name not in tables:
            raise self._invalid(i)

    # -- single instructions ----------------------------------------

    def _barrier(self, i: ptx.Instruction) -> None:
        """There are 16 barriers, and whole warps take part (9.7.13.1)."""
        if "warp" in i.modifiers:
            return
        reduces = "red" in i.modifiers
        if (
            not _BARRIERS & set(i.modifiers)
            or reduces
            and (
                ("popc" in i.modifiers) != (i.modifiers[-1] == "u32")
                or not {"popc", "and", "or"} & set(i.modifiers)
            )
        ):
            raise self._invalid(i, f"'{i.text[:100]}' is no kind of barrier")
        number, *count = i.operands[1:-1] if reduces else i.operands
        if isinstance(number, ptx.Immediate) and not 0 <= number.value < 16:
            raise self._invalid(i, f"'{i.text[:100]}': barriers are numbered from 0 to 15")
        if count and isinstance(count[0], ptx.Immediate) and count[0].value % 32:
            raise self._invalid(i, f"'{i.text[:100]}': not a number of whole warps")

    def _memory(self, i: ptx.Instruction) -> None:
        """The space of a variable, and as many registers as the vector has elements."""
        store = i.opcode in ("st", "red")
        address, values = (i.operands[0], i.operands[1]) if store else i.operands[1::-1]
        count = int(next((m[1] for m in i.modifiers if re.fullmatch(r"v\d", m)), 1))
        given = len(values.elements) if isinstance(values, ptx.Vector) else 1
        if given != count and i.opcode in ("ld", "ldu", "st"):
            raise self._invalid(i)
        plain = {"ld": 2, "ldu": 2, "st": 2, "atom": 3, "red": 2}[i.opcode] + ("cas" in i.modifiers)
        if len(i.operands) != plain + any("cache_hint" in m for m in i.modifiers):
            raise self._invalid(i)
        spaces = [m.split("::")[0] for m in i.modifiers if m.split("::")[0] in _SPACES]
        if len(spaces) > 1:
            raise self._invalid(i)
        if isinstance(address.base, ptx.Symbol):
            space = self.spaces.get(address.base.name)
            if space is None or spaces and space != spaces[0]:
                raise self._invalid(i, f"'{i.text[:100]}': {address.base.name} is in {space} space")
        elif spaces in ([], ["global"], ["const"]) and isinstance(address.base, ptx.Register):
            if not self._register(address.base, "u64"):
                raise self._invalid(i)

    def _move(self, i: ptx.Instruction) -> None:
        kind = i.modifiers[-1] if i.modifiers else ""
        if len(i.operands) != 2 or len(i.modifiers) != 1 or kind not in ptx.SIZES:
            raise self._invalid(i)
        to, of = i.operands
        vectors = [o for o in (to, of) if isinstance(o, ptx.Vector)]
        if not vectors:
            expected = _Operand("m", kind, False, False)
            if isinstance(of, ptx.Special) and kind in ("u16", "b16", "s16"):
                good = self._is_d(to, expected)
            elif isinstance(of, ptx.Symbol):
                far = self.spaces.get(of.name) not in ("shared", "local")
                good = self._is_d(to, expected) and kind in ("b64", "u64", "s64", *_NEAR[far])
            elif isinstance(of, ptx.Special):
                good = self._is_d(to, expected) and self._is_m(of, expected)
                good = good and _family(kind) != "float"
            elif kind == "pred":
                good = self._is_d(to, expected) and self._is_q(of, expected)
            else:
                good = self._is_d(to, expected) and self._is_m(of, expected)
        else:
            (parts, *more) = vectors
            size, n = 8 * ptx.SIZES[kind], len(parts.elements)
            part = f"b{size // n}" if n in (2, 4) else ""
            good = not more and kind[:1] == "b" and part in ptx.SIZES and part != "b8"
            if good:
                test = self._is_d if parts is to else self._is_v
                good = all(test(x, _Operand("v", part, False, False)) for x in parts.elements)
                whole = _Operand("v", kind, False, False)
                good = good and (self._is_v(of, whole) if parts is to else self._is_d(to, whole))
        if not good:
            raise self._invalid(i)

    def _call(self, i: ptx.Instruction) -> None:
        """call (results), function, (arguments), prototype; each variable in .param space."""
        operands = list(i.operands)
        results = arguments = ptx.Vector(())
        if operands and isinstance(operands[0], ptx.Vector):
            results = operands.pop(0)
        target = operands.pop(0) if operands else None
        if operands and isinstance(operands[0], ptx.Vector):
            arguments = operands.pop(0)
        if len(operands) > 1 or not all(isinstance(o, ptx.Symbol) for o in operands):
            raise self._invalid(i)
        for o in (*results.elements, *arguments.elements):
            if not isinstance(o, ptx.Symbol) or self.spaces.get(o.name) != "param":
                raise self._invalid(i)
        if not isinstance(target, ptx.Symbol):
            if not self._register(target, "b64"):
                raise self._invalid(i)
            return
        function = self.module.functions.get(target.name)
        if function is None:
            return
        sizes = {v.name: v.nbytes for v in self.function.variables}
        for given, wanted in ((results, function.results), (arguments, function.parameters)):
            if [sizes.get(o.name) for o in given.elements] != [v.nbytes for v in wanted]:
                raise self._invalid(i)
