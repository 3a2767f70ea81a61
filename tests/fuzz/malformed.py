"""PTX that is not quite PTX: kernels of the lessons and the tests with random mistakes in them.

The engine must refuse a mutant with one of its own errors or run it; any other exception, the end
of the process, or a kernel that cannot be stopped is a failure. ptxas is a second opinion.
"""

from __future__ import annotations

import functools
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[k]) for k in (1, 2)]

from engine import ptx_of  # noqa: E402

from helpers import simt  # noqa: E402
from helpers.simt import cache  # noqa: E402
from helpers.toolkit import require_toolkit  # noqa: E402

ROOT = Path(__file__).parents[2]
RUN_FOR = 2.0  # seconds after which a mutant that runs is stopped
STOP_WITHIN = 3.0  # more seconds it may take to stop
COMPILE_WITHIN = 60.0
ARRAY = 1 << 14  # bytes of the buffer each pointer argument points into
NUMBER = 5  # every other argument

TYPES = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 f32 f64 bf16 pred b128".split()
OPCODES = (
    "add sub mul mad fma div rem min max abs neg and or xor not shl shr cvt cvta mov ld st setp "
    "selp set popc clz brev bfe bfi prmt lop3 shfl vote activemask bar barrier red atom membar "
    "fence rcp sqrt rsqrt sin cos ex2 lg2 tanh copysign testp sad dp4a mul24 mad24 addc subc slct "
    "bra ret exit trap call brx nanosleep match redux prefetch isspacep cp mma wmma ldmatrix "
    "mbarrier createpolicy shf fns szext bmsk tex frobnicate wgmma"
).split()
MODIFIERS = (
    "rn rz rm rp ftz sat lo hi wide global shared local const param to v2 v4 sync eq ne lt gt ge "
    "approx full volatile relaxed acquire gpu cta nc cc uni aligned down idx all any ballot NaN "
    "rni rzi add exch cas m16n8k16 row col x4 trans bogus"
).split()
NUMBERS = (
    "0 1 -1 31 32 33 64 255 256 65535 65536 2147483647 2147483648 -2147483649 4294967295 "
    "4294967296 9223372036854775807 18446744073709551616 99999999999999999999999999 0x 0xfffffffff "
    "0f3F800000 0f3F8 0d3FF0000000000000 1.5 1e400 -0.0 0b2 077 08 1U -0x80000000"
).split()
_TOKEN = re.compile(r"\s+|[\w$%]+|.", re.S)


# -- texts to spoil ----------------------------------------


def single_kernels(text: str) -> list[str]:
    """A module's PTX as one text for each kernel, without what is only for debuggers."""
    text = re.sub(r", function_name [^,]+, inlined_at [\d ]+$", "", text, flags=re.M)
    starts = [m.start() for m in re.finditer(r"^\s*\.visible \.entry ", text, re.M)]
    pieces = []
    for at in starts:
        end = re.compile(r"^\}", re.M).search(text, at).end()
        pieces.append((at, end))
    rest, last = [], 0
    for at, end in pieces:
        rest.append(text[last:at])
        last = end
    rest.append(text[last:].split("\n\t.section")[0])
    found = []
    for k, (at, end) in enumerate(pieces):
        found.append("".join([*rest[: k + 1], text[at:end], *rest[k + 1 :]]))
    return found


@functools.cache
def lessons() -> list[str]:
    """The PTX of each kernel of the lessons."""
    texts = [ptx_of(p.read_text()) for p in sorted((ROOT / "cuda").glob("*.cu"))]
    return [k for t in texts for k in single_kernels(t)]


@functools.cache
def corpus() -> list[str]:
    """The PTX of each kernel of the lessons and of the engine's tests."""
    texts = []
    for path in sorted((ROOT / "tests" / "simt").glob("test_*.py")):
        for source in re.findall(r'^[A-Z_]+ = r"""(.*?)"""', path.read_text(), re.M | re.S):
            if "__global__" in source:
                texts.append(ptx_of(source))
    return lessons() + [k for t in texts for k in single_kernels(t) if len(k) < 20_000]


# -- mistakes ----------------------------------------


def _body(tokens: list[str]) -> int:
    """Where the first kernel's header begins: nine mistakes in ten belong behind it."""
    return tokens.index("entry") if "entry" in tokens else 0


def _some_token(r: random.Random, tokens: list[str], test) -> int | None:
    first = _body(tokens) if r.random() < 0.9 else 0
    places = [k for k in range(first, len(tokens)) if test(tokens[k])]
    return r.choice(places) if places else None


def _solid(token: str) -> bool:
    return not token.isspace()


def _delete_token(r, tokens):
    k = _some_token(r, tokens, _solid)
    del tokens[k]


def _double_token(r, tokens):
    k = _some_token(r, tokens, _solid)
    tokens.insert(k, tokens[k] + r.choice(["", " "]))


def _swap_tokens(r, tokens):
    a = _some_token(r, tokens, _solid)
    near = [k for k in range(max(0, a - 12), min(len(tokens), a + 13)) if _solid(tokens[k])]
    b = r.choice(near)
    tokens[a], tokens[b] = tokens[b], tokens[a]


def _another_register(r, tokens):
    k = _some_token(r, tokens, lambda t: t.startswith("%"))
    if k is not None:
        tokens[k] = r.choice([t for t in tokens if t.startswith("%")])


def _another_type(r, tokens):
    k = _some_token(r, tokens, lambda t: t in TYPES)
    if k is not None:
        tokens[k] = r.choice(TYPES)


def _another_opcode(r, tokens):
    k = _some_token(r, tokens, lambda t: t in OPCODES)
    if k is not None:
        tokens[k] = r.choice(OPCODES)


def _another_modifier(r, tokens):
    k = _some_token(r, tokens, lambda t: t in MODIFIERS or t in TYPES)
    if k is not None:
        tokens[k : k + 1] = r.choice(
            [[r.choice(MODIFIERS)], [tokens[k], ".", r.choice(MODIFIERS)], []]
        )


def _another_number(r, tokens):
    k = _some_token(r, tokens, lambda t: t[0].isdigit())
    if k is not None:
        tokens[k] = r.choice(NUMBERS)


def _number_for_operand(r, tokens):
    k = _some_token(r, tokens, lambda t: t.startswith("%"))
    if k is not None:
        tokens[k] = r.choice(NUMBERS)


def _one_operand_more_or_less(r, tokens):
    k = _some_token(r, tokens, lambda t: t == ",")
    if k is not None:
        extra = r.choice([t for t in tokens if t.startswith("%")] + NUMBERS)
        tokens[k : k + 1] = r.choice([[", ", extra, ","], []])


def _line(r, tokens):
    lines = "".join(tokens).split("\n")
    first = next((k for k, s in enumerate(lines) if ".entry" in s), 0)
    k, j = (r.randrange(first, len(lines)) for _ in range(2))
    what = r.randrange(4)
    if what == 0:
        del lines[k]
    elif what == 1:
        lines.insert(j, lines[k])
    elif what == 2:
        lines[k], lines[j] = lines[j], lines[k]
    else:
        lines[k] = "".join(r.sample(_TOKEN.findall(lines[k]), len(_TOKEN.findall(lines[k]))))
    tokens[:] = _TOKEN.findall("\n".join(lines))


def _label(r, tokens):
    k = _some_token(r, tokens, lambda t: t.startswith("$L"))
    if k is not None:
        tokens[k] = r.choice(["$nowhere", *(t for t in tokens if t.startswith("$L")), "%r1", "7"])


def _cut(r, tokens):
    first = _body(tokens)
    del tokens[r.randrange(first, len(tokens)) :]


def _noise(r, tokens):
    k = r.randrange(len(tokens))
    noise = ["".join(chr(r.randrange(256)) for _ in range(r.randrange(1, 6))), "é", "\0", "𝕏"]
    tokens.insert(k, r.choice([*noise, *'{};"([=|!\\@', "/*"]))


def _guard(r, tokens):
    k = _some_token(r, tokens, lambda t: t in OPCODES)
    if k is not None:
        registers = [t for t in tokens if t.startswith("%")]
        tokens.insert(k, f"@{r.choice(['', '!'])}{r.choice(registers)} ")


def _large_declaration(r, tokens):
    k = _some_token(r, tokens, lambda t: t == "reg")
    if k is not None and k + 1 < len(tokens):
        size = r.choice(["999999999", "1000000", "65536", "0", "-1", "x"])
        tokens[k - 1] = r.choice(
            [
                f".reg .b32 %big<{size}>; .",
                f".shared .align 4 .b8 big[{size}]; .",
                f".local .align {size} .b8 big[16]; .",
                ".reg .v4 .b32 %four; .",
                f".shared .b8 many[{size}][{size}]; .",
            ]
        )


_PLAIN = [
    _delete_token,
    _double_token,
    _swap_tokens,
    _another_register,
    _another_type,
    _another_opcode,
    _another_modifier,
    _another_number,
    _number_for_operand,
    _one_operand_more_or_less,
    _line,
    _label,
    _guard,
]
_WILD = [_cut, _noise, _large_declaration]


def mutant(seed: int, texts: list[str]) -> str:
    """One of the texts with one to three mistakes."""
    r = random.Random(seed)
    if r.random() < 0.005:
        return r.choice(["", " ", "\0", ".version", ".version 9.0\n", "\x7fELF\2\1\1", "{" * 5000])
    tokens = _TOKEN.findall(r.choice(texts))
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        if not any(map(_solid, tokens)):
            break
        r.choice(_PLAIN if r.random() < 0.85 else _WILD)(r, tokens)
    return "".join(tokens)


# -- running ----------------------------------------


class TimeUp(Exception):
    """The alarm rang."""


def _ring(_signal, _frame):
    raise TimeUp


def parameters(function: simt.Function, buffer: int) -> bytes:
    """Arguments for any kernel: pointers to different parts of one array, and small numbers."""
    packed = bytearray(function.parameter_bytes)
    for k, (_, at, nbytes) in enumerate(function.parameters):
        value = buffer + k % 4 * (ARRAY // 4) if nbytes == 8 else NUMBER
        packed[at : at + min(nbytes, 8)] = (value % 256**nbytes).to_bytes(nbytes, "little")[:8]
    return bytes(packed)


def run(text: str, keep: list | None = None) -> str:
    """What the engine makes of a text: "ran", "stopped", or the error it gives.

    Raises whatever else comes out. keep: gets the array's bytes as the kernel left them.
    """
    memory = simt.Memory(1 << 26)
    started = time.monotonic()
    try:
        module = simt.Module(text, memory)
        buffer = memory.allocate(ARRAY)
        words = np.frombuffer((np.ctypeslib.ctypes.c_char * ARRAY).from_address(buffer), np.uint32)
        words[:] = np.arange(len(words)) % 61
        for function in module.functions.values():
            block = (min(64, function.max_threads or 64), 1, 1)
            function.compiled(block)
            started = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, RUN_FOR)
            function.launch((2, 1, 1), block, parameters(function, buffer), 4096)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if keep is not None:
                keep.append(words.copy())
        return "ran"
    except TimeUp:
        took = time.monotonic() - started
        assert took < RUN_FOR + STOP_WITHIN, f"took {took:.1f} s to stop"
        return "stopped"
    except simt.SimtError as error:
        assert str(error), "an error without a text"
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.monotonic() - started
        assert took < COMPILE_WITHIN, f"took {took:.0f} s"


def ptxas_error(text: str) -> str:
    """ptxas' first complaint about a text; "" if it has none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.ptx")
        path.write_text(text, errors="surrogateescape")
        command = [require_toolkit().ptxas, "-arch=sm_80", path, "-o", Path(folder, "m.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode == 0:
            return ""
        lines = [s for s in (done.stderr + done.stdout).split("\n") if "error" in s or "fatal" in s]
        return lines[0].split(": ", 1)[-1] if lines else f"ended with {done.returncode}"


def try_mutants(seeds: list[int], texts: list[str], opinion: bool = True) -> list[str]:
    """Runs mutants; one line for each that fails. Prints what became of each."""
    signal.signal(signal.SIGALRM, _ring)
    cache.keep = lambda key, value: None  # nobody will want this code again
    problems = []
    for seed in seeds:
        text = mutant(seed, texts)
        print(f"running {seed}", flush=True)
        try:
            outcome = run(text)
        except Exception as problem:
            outcome = f"FAILED {seed}: {type(problem).__name__}: {problem}"[:300]
            problems.append(outcome)
        theirs = ptxas_error(text) if opinion else ""
        print(f"result {seed} | {theirs or 'accepted'} | {outcome}".replace("\n", " "), flush=True)
    return problems
