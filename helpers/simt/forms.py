"""The operands that instructions of `warp`, `tensor` and `async_copy` take.

Letters of a form: d a destination; p a destination or two joined by |; v a value; q a predicate;
s a value or a predicate; a an address; g destinations in braces (or one);
h values in braces (or one); i an integer constant.
A ? after a letter: may be left out, at the end.
"""

from __future__ import annotations

from . import ptx
from .errors import InvalidPtx

FORMS = {
    "shfl": "p v v v v",
    "vote": "d q v",
    "activemask": "d",
    "match": "p v v",
    "redux": "d v v",
    "ldmatrix": "g a",
    "movmatrix": "d v",
    "mma": "g h h h",
    "wmma.load": "g a v?",
    "wmma.store": "a h v?",
    "wmma.mma": "g h h h",
    "cp.async.ca": "a a i s? v?",
    "cp.async.cg": "a a i s? v?",
    "cp.async.commit_group": "",
    "cp.async.wait_group": "i",
    "cp.async.wait_all": "",
    "cp.async.mbarrier": "a",
    "mbarrier.init": "a v",
    "mbarrier.inval": "a",
    "mbarrier.arrive": "d a v?",
    "mbarrier.arrive_drop": "d a v?",
    "mbarrier.test_wait": "d a v",
    "mbarrier.pending_count": "d v",
    "createpolicy.fractional": "d v?",
    "createpolicy.range": "d a v v",
    "createpolicy.cvt": "d v",
}


def _register(o) -> bool:
    return isinstance(o, ptx.Register)


def _value(o) -> bool:
    return isinstance(o, (ptx.Immediate, ptx.Special)) or _register(o) and o.name != "_"


def _registers(o, test) -> bool:
    return all(map(test, o.elements)) if isinstance(o, ptx.Vector) else test(o)


def _predicate(o) -> bool:
    return _value(o[1]) if isinstance(o, tuple) and o[0] == "not" else _value(o)


_TESTS = {
    "d": _register,
    "p": lambda o: all(map(_register, o)) if isinstance(o, tuple) else _register(o),
    "v": _value,
    "q": _predicate,
    "s": _predicate,
    "a": lambda o: isinstance(o, ptx.Address),
    "g": lambda o: _registers(o, _register),
    "h": lambda o: _registers(o, _value),
    "i": lambda o: isinstance(o, ptx.Immediate) and o.kind == "int",
}


def check(kernel: str, i: ptx.Instruction) -> None:
    """Raises InvalidPtx if the operands are not those that the instruction takes."""
    names = (".".join((i.opcode, *i.modifiers[:n])) for n in (2, 1, 0))
    form = next((FORMS[name] for name in names if name in FORMS), None)
    if form is None:
        return
    letters = form.split()
    least = sum(not x.endswith("?") for x in letters)
    good = least <= len(i.operands) <= len(letters) and all(
        _TESTS[letter[0]](o) for letter, o in zip(letters, i.operands, strict=False)
    )
    if not good:
        raise InvalidPtx(f"kernel {kernel}: the operands of '{i.text}' are not what it takes")
