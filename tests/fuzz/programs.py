"""Random CUDA C programs that also compile as C++ for the host, as their own oracle.

A program is a sequence of phases with a barrier, or an exchange between lanes, between any two.
Within a phase threads share nothing they write, so the host runs a phase thread after thread.
Values carry their range, so that no signed arithmetic overflows and array indices that are known
to be good are used without a mask: those are the ones the engine treats as affine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BITS = {"u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}
C_NAMES = {
    "u8": "unsigned char",
    "s16": "short",
    "u16": "unsigned short",
    "s32": "int",
    "u32": "unsigned",
    "s64": "long long",
    "u64": "unsigned long long",
    "f32": "float",
    "f64": "double",
}
FULL = {
    k: (-(1 << b - 1), (1 << b - 1) - 1) if k[0] == "s" else (0, (1 << b) - 1)
    for k, b in BITS.items()
}
FLOATS = ("f32", "f64")
RANKS = ("s32", "u32", "s64", "u64")
HALF = 2048  # data[-HALF ... HALF - 1] may be read

# What both compilers see before the programs. SHARED is the block's shared memory.
COMMON = r"""
typedef unsigned long long u64; typedef long long s64;
struct Params { int m; unsigned n; short s; long long big; float f; unsigned char c; };
struct State { unsigned a, b, c; int i, j; long long l; unsigned long long q; short h;
               unsigned short v; unsigned char u; float f; double d; };
struct Pair { int a; float b; long long c; };
struct Arrays { const unsigned *du; const int *di; const short *dh; const unsigned char *db;
                const long long *dl; const float *df; const float4 *d4; const int2 *d2;
                unsigned *bins; unsigned *scratch; };
HD int f2i(double f) { return f >= -1e9 && f <= 1e9 ? (int)f : 7; }
HD unsigned urem(unsigned a, unsigned b) { return a % b; }
"""

HOST = r"""
#include <cmath>
#include <vector>
#include <cstring>
#define HD static inline
#define FN static
#define TABLE static const int
#define GLOBAL static
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
static int __popc(unsigned a) { return __builtin_popcount(a); }
static int __clz(int a) { return a ? __builtin_clz(a) : 32; }
static int __ffs(int a) { return __builtin_ffs(a); }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static int __mulhi(int a, int b) { return (long long)a * b >> 32; }
static unsigned __brev(unsigned a) {
    unsigned r = 0; for (int k = 0; k < 32; ++k) r |= (a >> k & 1u) << (31 - k); return r; }
static unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
    s &= 31; return s ? hi << s | lo >> (32 - s) : hi; }
template <class T, class U> static void add(T *p, U v) { *p += v; }
"""

DEVICE = r"""
#define HD static __device__ __forceinline__
#define FN static __device__ __noinline__
#define TABLE __constant__ int
#define GLOBAL __device__
HD void add(unsigned *p, unsigned v) { atomicAdd(p, v); }
"""


@dataclass(frozen=True)
class Value:
    """An expression: its C text, its type, and the range of integers it can have."""

    text: str
    type: str
    low: int = 0
    high: int = 0

    @property
    def is_float(self) -> bool:
        return self.type in FLOATS


def value(text: str, kind: str, low: int, high: int) -> Value:
    """A value whose range is the whole type's if it could leave that."""
    least, most = FULL[kind]
    if low < least or high > most:
        low, high = least, most
    return Value(text, kind, low, high)


def cast(v: Value, kind: str) -> Value:
    if v.is_float:
        return (
            Value(f"({C_NAMES[kind]})({v.text})", kind) if kind in FLOATS else cast(to_int(v), kind)
        )
    if kind in FLOATS:
        return Value(f"({C_NAMES[kind]})({v.text})", kind)
    return value(f"({C_NAMES[kind]})({v.text})", kind, v.low, v.high)


def to_int(v: Value) -> Value:
    return Value(f"f2i({v.text})", "s32", -(10**9), 10**9) if v.is_float else v


def promoted(*values: Value) -> tuple[str, list[Value]]:
    """The type C computes in, and the operands' ranges in it."""
    kinds = [v.type if v.type in RANKS else "s32" for v in values]
    kind = RANKS[max(RANKS.index(k) for k in kinds)]
    return kind, [value(v.text, kind, v.low, v.high) for v in values]


def arithmetic(op: str, a: Value, b: Value) -> Value:
    """a op b for + - *, in unsigned arithmetic where the signed one could overflow."""
    kind, (x, y) = promoted(a, b)
    corners = [
        {"+": p + q, "-": p - q, "*": p * q}[op] for p in (x.low, x.high) for q in (y.low, y.high)
    ]
    low, high = min(corners), max(corners)
    least, most = FULL[kind]
    text = f"({a.text} {op} {b.text})"
    if kind[0] == "s" and (low < least or high > most):
        u, s = C_NAMES["u" + kind[1:]], C_NAMES[kind]
        text = f"(({s})(({u})({a.text}) {op} ({u})({b.text})))"
    return value(text, kind, low, high)


class Writer:
    """One program, made of a seed."""

    VARIABLES = {
        "a": "u32",
        "b": "u32",
        "c": "u32",
        "i": "s32",
        "j": "s32",
        "l": "s64",
        "q": "u64",
        "h": "s16",
        "v": "u16",
        "u": "u8",
        "f": "f32",
        "d": "f64",
    }

    def __init__(self, seed: int):
        self.seed, self.name = seed, f"f{seed}"
        self.random = random.Random(seed)
        r = self.random
        self.count = 0
        self.loops: list[str] = []
        self.early = r.random() < 0.4  # early returns, but no exchanges
        self.floats = r.random() < 0.5
        self.calls = r.random() < 0.35
        self.arrays = r.random() < 0.4
        self.simple = r.random() < 0.5  # little control flow, many indices
        self.names = r.sample(list(self.VARIABLES), r.randint(3, 8))
        if "a" not in self.names:
            self.names.append("a")
        if not self.floats:
            self.names = [n for n in self.names if n not in "fd"]

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # -- expressions ----------------------------------------

    def place(self) -> Value:
        """A leaf that says which thread this is."""
        return self.random.choice(
            [
                Value("t", "u32", 0, 1023),
                Value("t", "u32", 0, 1023),
                Value("x", "u32", 0, 1023),
                Value("x", "u32", 0, 1023),
                Value("y", "u32", 0, 1023),
                Value("z", "u32", 0, 63),
                Value("(int)t", "s32", 0, 1023),
                Value("(int)x", "s32", 0, 1023),
                Value("(long long)t", "s64", 0, 1023),
                Value("(unsigned short)x", "u16", 0, 1023),
                Value("(u64)x", "u64", 0, 1023),
                Value("(g * nx + x)", "u32", 0, 4096),
                Value("(int)(g * total + t)", "s32", 0, 4096),
            ]
        )

    def uniform(self) -> Value:
        r = self.random
        return r.choice(
            [
                Value("g", "u32", 0, 2),
                Value("nx", "u32", 1, 1024),
                Value("ny", "u32", 1, 1024),
                Value("(int)total", "s32", 1, 1024),
                Value("par.n", "u32", 1, 12),
                Value("par.m", "s32", -8, 8),
                Value("(1 - (int)nx)", "s32", -1023, 0),
                Value("par.s", "s16", -100, 100),
                Value("par.big", "s64", -(1 << 40), 1 << 40),
                Value("par.c", "u8", 0, 255),
                Value("w0", "u32", 0, 31),
                *[Value(k, "s32", 0, 7) for k in self.loops],
                *[Value(k, "s32", 0, 7) for k in self.loops],
            ]
        )

    def number(self) -> Value:
        r = self.random
        n = r.choice([0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 60, 64, 100, 255, 1023])
        kind = r.choice(["u32", "s32", "s32", "s64", "u64"])
        suffix = {"u32": "u", "s32": "", "s64": "ll", "u64": "ull"}[kind]
        if kind[0] == "s" and r.random() < 0.3:
            return Value(f"({-n}{suffix})", kind, -n, -n)
        return Value(f"{n}{suffix}", kind, n, n)

    def variable(self) -> Value:
        name = self.random.choice(self.names)
        kind = self.VARIABLES[name]
        low, high = FULL.get(kind, (0, 0))
        return Value(f"s.{name}", kind, low, high)

    def index(self, depth: int = 3) -> Value:
        """An integer made of thread indices and uniform values: often affine."""
        r = self.random
        if depth == 0:
            return r.choice([self.place, self.place, self.uniform, self.number])()
        kind = r.random()
        a = self.index(depth - 1)
        if kind < 0.45:
            return arithmetic(r.choice("++--*"), a, self.index(r.randint(0, depth - 1)))
        if kind < 0.6:
            return self.shifted(a)
        if kind < 0.75:
            return self.masked(a, r.choice([1, 3, 7, 12, 15, 28, 31, 63, 124, 224, 255, 1023]))
        if kind < 0.87:
            return self.divided(a)
        if kind < 0.95:
            return cast(a, r.choice(["s32", "u32", "s64", "u64", "s16", "u16", "u8"]))
        return arithmetic("-", Value("0", "s32", 0, 0), a)

    def masked(self, a: Value, mask: int) -> Value:
        return Value(f"({a.text} & {mask})", promoted(a)[0], 0, mask)

    def shifted(self, a: Value) -> Value:
        r, kind = self.random, promoted(a)[0]
        k = r.randint(0, 6) if r.random() < 0.8 else r.randint(0, BITS[kind] - 1)
        if r.random() < 0.5:
            return value(f"({a.text} >> {k})", kind, a.low >> k, a.high >> k)
        if kind[0] == "s":
            u = "u" + kind[1:]
            return value(
                f"(({C_NAMES[kind]})(({C_NAMES[u]})({a.text}) << {k}))",
                kind,
                a.low << k,
                a.high << k,
            )
        return value(f"({a.text} << {k})", kind, a.low << k, a.high << k)

    def divided(self, a: Value) -> Value:
        r, kind = self.random, promoted(a)[0]
        d = r.choice([1, 2, 3, 4, 5, 7, 8, 10, 16, 32, 64])
        by = f"{d}"
        if r.random() < 0.2:
            by, d = r.choice([("par.n", 0), ("nx", 0), ("((unsigned)(x & 3) + 1u)", 0)])
        if d == 0:
            low, high = FULL[promoted(a, Value(by, "u32"))[0]]
            return Value(
                f"({a.text} {r.choice('/%')} {by})", promoted(a, Value(by, "u32"))[0], low, high
            )
        if r.random() < 0.5:
            quotients = [int(abs(v) // d) * (1 if v >= 0 else -1) for v in (a.low, a.high)]
            return value(f"({a.text} / {by})", kind, *quotients)
        return value(f"({a.text} % {by})", kind, -(d - 1) if a.low < 0 else 0, d - 1)

    def expression(self, depth: int = 2) -> Value:
        r = self.random
        kind = r.random()
        if depth == 0 or kind < 0.15:
            return r.choice([self.variable, self.variable, self.place, self.uniform, self.number])()
        if kind < 0.35:
            return self.index(r.randint(1, 3))
        if kind < 0.5:
            return self.read()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        if a.is_float or b.is_float:
            return self.float_operation(a, b)
        if kind < 0.7:
            return arithmetic(r.choice("+-*"), a, b)
        if kind < 0.78:
            low, high = FULL[promoted(a, b)[0]]
            return Value(f"({a.text} {r.choice('&|^')} {b.text})", promoted(a, b)[0], low, high)
        if kind < 0.84:
            return r.choice([self.shifted, self.divided])(a)
        if kind < 0.9:
            return cast(a, r.choice(list(BITS)))
        if kind < 0.95:
            t, (x, y) = promoted(a, b)
            return Value(
                f"({self.condition(1)} ? {a.text} : {b.text})",
                t,
                min(x.low, y.low),
                max(x.high, y.high),
            )
        return self.intrinsic(a, b)

    def intrinsic(self, a: Value, b: Value) -> Value:
        r = self.random
        ua, ub = cast(a, "u32").text, cast(b, "u32").text
        full = FULL["u32"]
        return r.choice(
            [
                Value(f"__popc({ua})", "s32", 0, 32),
                Value(f"__clz((int){ua})", "s32", 0, 32),
                Value(f"__ffs((int){ua})", "s32", 0, 32),
                Value(f"__umulhi({ua}, {ub})", "u32", *full),
                Value(f"__mulhi((int){ua}, (int){ub})", "s32", *FULL["s32"]),
                Value(f"__brev({ua})", "u32", *full),
                Value(f"__funnelshift_l({ua}, {ub}, {ua})", "u32", *full),
                Value(f"({ua} << ({ub} & 31u))", "u32", *full),
                Value(f"((int){ua} >> ({ub} & 31u))", "s32", *FULL["s32"]),
                Value(f"((u64){ua} << ({ub} & 63u))", "u64", *FULL["u64"]),
            ]
        )

    def float_operation(self, a: Value, b: Value) -> Value:
        r = self.random
        kind = "f64" if "f64" in (a.type, b.type) else "f32"
        n = r.random()
        if n < 0.15:
            return to_int(Value(f"({a.text})", a.type)) if a.is_float else to_int(b)
        if n < 0.3:
            return Value(
                f"({a.text} {r.choice(['<', '>', '==', '!=', '>=', '<='])} {b.text})", "s32", 0, 1
            )
        if n < 0.4:
            sqrt = "sqrt" if kind == "f64" else "sqrtf"
            return Value(f"{sqrt}({C_NAMES[kind]}({(a if a.is_float else b).text}))", kind)
        return Value(f"({a.text} {r.choice('+-*/')} {b.text})", kind)

    def read(self) -> Value:
        """A read of one of the arrays."""
        r = self.random
        i = self.index(r.randint(1, 3)) if r.random() < 0.8 else to_int(self.expression(1))
        name, kind = r.choice(
            [("du", "u32"), ("di", "s32"), ("dh", "s16"), ("db", "u8"), ("dl", "s64")]
            + [("df", "f32"), ("d4", "f32"), ("d2", "s32"), ("table", "s32"), ("scratch", "u32")]
        )
        if name == "df" and not self.floats:
            name, kind = "du", "u32"
        low, high = FULL.get(kind, (0, 0))
        if name == "table":
            return Value(f"table[{self.inside(i, 0, 64)}]", kind, low, high)
        if name == "scratch":
            return Value(f"arr.scratch[(g * total + t) * 4u + ({i.text} & 3u)]", kind, low, high)
        if name in ("d4", "d2"):
            at = self.inside(i, -HALF // 4, HALF // 4)
            member = r.choice("xyzw" if name == "d4" else "xy")
            text = f"arr.{name}[{at}].{member}"
            return to_int(Value(text, "f32")) if name == "d4" else Value(text, kind, low, high)
        return Value(f"arr.{name}[{self.inside(i, -HALF, HALF)}]", kind, low, high)

    def inside(self, i: Value, low: int, high: int) -> str:
        """An index in [low, high): as it is where its range shows that, or masked."""
        if low <= i.low and i.high < high:
            return i.text
        size = 1 << (high.bit_length() - 1)
        if self.random.random() < 0.3:
            return f"((unsigned){i.text} % {self.random.choice([37, 60, 63])}u)"
        return f"({i.text} & {size - 1})"

    def condition(self, depth: int = 2) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.2:
            return f"(par.n & {1 << r.randint(0, 3)}u)"
        if kind < 0.4:
            a, b = self.index(1), self.index(1)
            text = f"({a.text} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {b.text})"
        else:
            a = to_int(self.expression(1))
            text = f"((unsigned){a.text} % {r.randint(2, 5)}u {r.choice(['==', '!=', '<'])} 1u)"
        if depth > 1 and r.random() < 0.25:
            text = f"({text} {r.choice(['&&', '||'])} {self.condition(1)})"
        return text

    # -- statements ----------------------------------------

    def assign(self, name: str, v: Value) -> str:
        kind = self.VARIABLES[name]
        if v.is_float and kind not in FLOATS:
            v = to_int(v)
        elif kind in FLOATS:
            return f"s.{name} = {C_NAMES[kind]}({v.text});"
        return (
            f"s.{name} {self.random.choice(['=', '+=', '^=', '+='])} {cast(v, kind).text};"
            if kind[0] == "u"
            else f"s.{name} = {cast(v, kind).text};"
        )

    def assignment(self) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.08:
            v = cast(to_int(self.expression(1)), "u32").text
            return f"add(arr.bins + ({self.index(2).text} & 15), {v});"
        if kind < 0.18:
            v = cast(to_int(self.expression(2)), "u32").text
            return f"arr.scratch[(g * total + t) * 4u + ({self.index(2).text} & 3u)] = {v};"
        if kind < 0.3:
            return self.guarded_read()
        if self.arrays and kind < 0.45:
            v = cast(to_int(self.expression(1)), "s32").text
            if r.random() < 0.5:
                return f"loc[{self.index(2).text} & 7] = {v};"
            return self.assign(
                r.choice(self.names), Value(f"loc[{self.index(2).text} & 7]", "s32", *FULL["s32"])
            )
        if self.calls and kind < 0.6:
            return self.call()
        return self.assign(r.choice(self.names), self.expression(r.randint(1, 3)))

    def call(self) -> str:
        r = self.random
        a, b = (cast(to_int(self.expression(1)), "u32").text for _ in "ab")
        k = r.random()
        target = r.choice(self.names)
        if k < 0.35:
            v = Value(f"{self.name}_deep({a} & 7u, {b})", "u32", *FULL["u32"])
        elif k < 0.7:
            v = Value(f"{self.name}_leaf({a}, (int){b}, arr, par)", "s64", *FULL["s64"])
        else:
            pair = f"{self.name}_pair(Pair{{(int){a}, 1.5f, (long long){b}}}, (short){b})"
            v = Value(f"{pair}.{r.choice('ac')}", "s32", *FULL["s32"])
            if v.text.endswith(".c"):
                v = Value(v.text, "s64", *FULL["s64"])
        return self.assign(target, v)

    def guarded_read(self) -> str:
        """A read whose index is good only behind a guard: unsigned ones wrap around below 0."""
        r = self.random
        k = r.randint(1, 40)
        base = r.choice(["t", "x", "y", "(t * 2u)", "(unsigned)(t + par.m)", "(x + par.n)"])
        i = self.fresh("w")
        wide = r.choice(["unsigned", "unsigned", "u64", "int", "s64"])
        use = f"s.c += {i} * 3;" if r.random() < 0.3 else ""
        array = r.choice(
            ["du", "di", "dh", "db", "dl", "df"] if self.floats else ["du", "di", "dh"]
        )
        v = f"f2i(arr.df[{i}])" if array == "df" else f"(unsigned)arr.{array}[{i}]"
        return (
            f"{{ {wide} {i} = {base} - {k}u; {use} if ({base} >= {k}u && {base} < 2000u) "
            f"s.a += {v}; }}"
        )

    def statements(self, depth: int, loop: bool) -> str:
        return " ".join(self.statement(depth, loop) for _ in range(self.random.randint(1, 4)))

    def statement(self, depth: int, loop: bool) -> str:
        r = self.random
        kind = r.random()
        if depth == 0 or kind < (0.65 if self.simple else 0.4):
            return self.assignment()
        if kind < 0.62:
            text = f"if ({self.condition()}) {{ {self.statements(depth - 1, loop)} }}"
            if r.random() < 0.5:
                text += f" else {{ {self.statements(depth - 1, loop)} }}"
            return text
        if kind < 0.78:
            return self.loop(depth)
        if kind < 0.86 and loop:
            return f"if ({self.condition()}) {r.choice(['break', 'continue'])};"
        if kind < 0.9:
            return self.jumps(depth, loop)
        if kind < 0.93 and self.early:
            return (
                f"if ({self.condition()}) {{ arr.scratch[(g * total + t) * 4u] = s.a; "
                f"return true; }}"
            )
        cases = " ".join(
            f"case {k}: {self.assignment()} {r.choice(['break;', ''])}"
            for k in range(r.randint(2, 7))
        )
        e = cast(to_int(self.expression(1)), "u32").text
        return f"switch ({e} & 7u) {{ {cases} default: {self.assignment()} }}"

    def loop(self, depth: int) -> str:
        r = self.random
        k = self.fresh("k")
        limit = r.choice(
            [
                "(int)(t & 7u)",
                "(int)(par.n & 7u)",
                "5",
                "(int)(s.a & 7u)",
                "(int)(x >> 3 & 3u)",
                "(int)(y & 3u)",
            ]
        )
        self.loops.append(k)
        body = self.statements(depth - 1, True)
        self.loops.pop()
        step = r.choice(["1", "1", "1", "2", "(int)(x & 1u) + 1"])
        form = r.random()
        if form < 0.6:
            return f"for (int {k} = 0; {k} < {limit}; {k} += {step}) {{ {body} }}"
        if form < 0.8:  # the count at the loop's head, so that continue counts too
            return f"{{ int {k} = -1; while (++{k} < {limit}) {{ {body} }} }}"
        return f"{{ int {k} = 0; do {{ {body} }} while (++{k} < {limit}); }}"

    def jumps(self, depth: int, loop: bool) -> str:
        r = self.random
        label, k = self.fresh("L"), self.fresh("k")
        one, two = self.statements(depth - 1, False), self.statements(depth - 1, False)
        kind = r.random()
        if kind < 0.4:
            return f"if ({self.condition()}) goto {label}; {{ {one} }} {label}: {{ {two} }}"
        if kind < 0.7:
            return (
                f"{{ int {k} = 0; {label}: {{ {one} }} if (++{k} < 5 && "
                f"{self.condition()}) goto {label}; {{ {two} }} }}"
            )
        return (  # into the middle of a loop
            f"{{ int {k} = 0; if ({self.condition()}) goto {label}; "
            f"while ({k} < 4) {{ {{ {one} }} {label}: {{ {two} }} ++{k}; }} }}"
        )

    # -- the program ----------------------------------------

    WHERE = (
        "unsigned t, unsigned x, unsigned y, unsigned z, unsigned g, unsigned "
        "nx, unsigned ny, unsigned total"
    )

    def phase(self, k: int, depth: int) -> str:
        self.count = 1000 * k
        arrays = (
            "int loc[8]; for (int e = 0; e < 8; ++e) loc[e] = e * par.m;" if self.arrays else ""
        )
        return (
            f"HD bool {self.name}_{k}(State &s, {self.WHERE}, const Params &par, const "
            f"Arrays &arr, "
            f"const unsigned *in, unsigned *into) {{ const unsigned w0 = t / 32u; "
            f"(void)w0; {arrays} "
            f"{self.body(k, depth)} return false; }}\n"
        )

    def body(self, k: int, depth: int) -> str:
        """Statements; then what the thread writes to its own place in shared memory."""
        r = self.random
        text = []
        if k:
            for _ in range(r.randint(1, 3)):
                i = self.index(2)
                text.append(f"s.a += in[{self.inside(i, 0, 2048)}];")
        text.append(self.statements(depth, False))
        slot = r.choice(
            ["t", "(total - 1u - t)", "((t / nx) * (nx + 1u) + x)", "(t ^ (total % 32u ? 0u : 5u))"]
        )
        text.append(f"into[{slot}] = {cast(to_int(self.expression(1)), 'u32').text};")
        return " ".join(text)

    def source(self) -> tuple[str, str, str]:
        """Functions for both compilers, the device's kernel, and the host's loops."""
        r = self.random
        phases = r.randint(1, 4)
        functions = "".join(self.phase(k, 3 if k == 0 else 2) for k in range(phases))
        if self.calls:
            functions = self.helpers() + functions
        between, repeat = [], r.randint(1, 3)
        for _ in range(phases):
            kind = r.choice(["barrier", "barrier", "exchange", "ballot", "nothing"])
            between.append("barrier" if kind not in ("barrier", "nothing") and self.early else kind)
        return functions, self.kernel(phases, between, repeat), self.host(phases, between, repeat)

    def helpers(self) -> str:
        r, n = self.random, self.name
        return (
            f"FN unsigned {n}_deep(unsigned k, unsigned a) {{ if (k == 0u) return a * 3u + 1u; "
            f"if ((a & {r.choice([1, 3, 4])}u) == 1u) return {n}_deep(k - 1u, a * 5u + k) ^ k; "
            f"return {n}_deep(k - 1u, a + 7u) + {n}_deep(k >> 1, a ^ k); }}\n"
            f"FN long long {n}_leaf(unsigned a, int b, const Arrays &arr, const Params &par) {{ "
            f"long long r = b; for (unsigned e = 0; e < (a & 3u); ++e) {{ r += arr.di[(a "
            f"+ e) & 255u]; "
            f"if (r & {r.choice([1, 2, 8])}) return r - par.m; }} return r * "
            f"{r.randint(2, 9)}; }}\n"
            f"FN Pair {n}_pair(Pair p, short h) {{ Pair o; o.a = (int)((unsigned)p.a ^ "
            f"(unsigned)h); "
            f"o.b = p.b + 1.0f; o.c = (long long)((u64)p.c * {r.randint(2, 99)}u + (u64)h); "
            f"if (h & 1) o.a = f2i(o.b) + h; return o; }}\n"
        )

    START = (
        "State s; s.a = t; s.b = par.n; s.c = 7u; s.i = (int)x - 3; s.j = par.m; s.l = "
        "-(long long)t; "
        "s.q = par.n; s.h = (short)t; s.v = (unsigned short)(t * 77u); s.u = (unsigned char)x; "
        "s.f = par.f * (float)(int)x; s.d = 0.5 * (double)t;"
    )

    def kernel(self, phases: int, between: list[str], repeat: int) -> str:
        pieces = []
        for k in range(phases):
            pieces.append(
                f"if ({self.name}_{k}(s, t, x, y, z, g, nx, ny, total, par, arr, "
                f"S + {(k + 1) % 2} * 2048, S + {k % 2} * 2048)) return;"
            )
            if between[k] == "barrier":
                pieces.append("__syncthreads();")
            elif between[k] == "exchange":
                pieces.append(
                    "s.a += __shfl_sync(mask, s.b, (lane * 5u + s.c) % lanes); "
                    "s.q ^= __shfl_sync(mask, s.q, (lane ^ 1u) < lanes ? lane ^ 1u : "
                    "lane); __syncthreads();"
                )
            elif between[k] == "ballot":
                pieces.append(
                    "s.c ^= __ballot_sync(mask, s.a & 1u); s.i ^= __any_sync(mask, s.b == "
                    "5u); __syncthreads();"
                )
            else:
                pieces.append("__syncthreads();")
        return f"""extern "C" __global__ void {self.name}(Params par, Arrays arr, State *out) {{
    __shared__ unsigned S[4096];
    unsigned x = threadIdx.x, y = threadIdx.y, z = threadIdx.z, nx = blockDim.x, ny = blockDim.y;
    unsigned total = nx * ny * blockDim.z, t = (z * ny + y) * nx + x, g = blockIdx.x;
    unsigned lane = t % 32u, lanes = total - (t - lane) < 32u ? total - (t - lane) : 32u;
    unsigned mask = lanes == 32u ? 0xffffffffu : (1u << lanes) - 1u; (void)mask;
    for (unsigned k = t; k < 4096u; k += total) S[k] = k * 7u;
    {self.START}
    __syncthreads();
    for (int again = 0; again < {repeat}; ++again) {{ {" ".join(pieces)} }}
    out[g * total + t] = s;
}}
"""

    def host(self, phases: int, between: list[str], repeat: int) -> str:
        pieces = []
        for k in range(phases):
            pieces.append(
                f"EACH if (!ended[t]) ended[t] = {self.name}_{k}(st[t], t, x, y, z, g, "
                f"nx, ny, total, par, "
                f"arr, S + {(k + 1) % 2} * 2048, S + {k % 2} * 2048);"
            )
            if between[k] == "exchange":
                pieces.append("exchange(st, total);")
            elif between[k] == "ballot":
                pieces.append("ballot(st, total);")
        return f"""extern "C" void {self.name}(const Params *pp, const Arrays *pa, State
*out, unsigned nx,
                                   unsigned ny, unsigned nz, unsigned blocks) {{
    const Params &par = *pp; const Arrays &arr = *pa; const unsigned total = nx * ny * nz;
    std::vector<unsigned> shared(4096); unsigned *S = shared.data();
    for (unsigned g = 0; g < blocks; ++g) {{
        for (unsigned k = 0; k < 4096; ++k) S[k] = k * 7u;
        std::vector<State> st(total); std::vector<char> ended(total);
        EACH {{ {self.START} memset((void *)&st[t], 0, sizeof s); st[t] = s; }}
        for (int again = 0; again < {repeat}; ++again) {{ {" ".join(pieces)} }}
        EACH if (!ended[t]) out[g * total + t] = st[t];
    }}
}}
"""


HOST_EXCHANGES = r"""
#define EACH for (unsigned t = 0, x, y, z; t < total && (x = t % nx, y = t / nx % ny, \
                  z = t / (nx * ny), true); ++t)
static unsigned lanes_of(unsigned t, unsigned total) {
    unsigned first = t - t % 32u; return total - first < 32u ? total - first : 32u; }
static void exchange(std::vector<State> &st, unsigned total) {
    auto old = st;
    for (unsigned t = 0; t < total; ++t) {
        unsigned lane = t % 32u, first = t - lane, lanes = lanes_of(t, total);
        st[t].a += old[first + (lane * 5u + old[t].c) % lanes].b;
        st[t].q ^= old[first + ((lane ^ 1u) < lanes ? lane ^ 1u : lane)].q;
    }
}
static void ballot(std::vector<State> &st, unsigned total) {
    auto old = st;
    for (unsigned t = 0; t < total; ++t) {
        unsigned first = t - t % 32u, lanes = lanes_of(t, total), votes = 0; bool any = false;
        for (unsigned k = 0; k < lanes; ++k) {
            votes |= (old[first + k].a & 1u) << k; any |= old[first + k].b == 5u; }
        st[t].c ^= votes; st[t].i ^= any ? 1 : 0;
    }
}
"""


def table() -> str:
    values = ", ".join(str((k * 2654435761) % 1000 - 500) for k in range(64))
    return f"TABLE table[64] = {{{values}}};\n"


def sources(seeds: list[int]) -> tuple[str, str]:
    """The device's and the host's source of some programs."""
    parts = [Writer(seed).source() for seed in seeds]
    device = [DEVICE, COMMON, table(), *(f + k for f, k, _ in parts)]
    host = [HOST, COMMON, table(), HOST_EXCHANGES, *(f + h for f, _, h in parts)]
    return "\n".join(device), "\n".join(host)
