"""Memory instructions: addresses, the quick check of a whole warp, loads, stores, atomics.

Global, local and generic addresses are host addresses. Shared ones are byte offsets from the
block's buffer; `cvta` adds or subtracts its host address.

Every access is checked. The quick check compares the warp's lowest and highest byte with the
bounds of the one allocation it is expected in: that of the pointer parameter which the address
was computed from. Where it fails, `runtime.CHECKER` looks at every active lane.

Processors gather and scatter only words of 4 and 8 bytes. For shorter ones LLVM makes a branch for
each lane: much code, so it is put into functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import ptx, runtime
from .emitter import Emitter, Lanes, bits, llvm_type, vector
from .flow import destinations
from .runtime import Context
from .shapes import LANES, ZERO

SPACES = ("global", "shared", "local", "const", "param")
_IGNORED = {
    "nc",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "weak",
    "cta",
    "gpu",
    "sys",
    "cluster",
    "ca",
    "cg",
    "cs",
    "cv",
    "lu",
    "wb",
    "wt",
    "mmio",
}
_VECTORS = ("v2", "v4")
NEAR = 4096  # bytes: scalars this near an active lane's can be read (memory.GUARD, runtime.SLACK)


@dataclass
class Access:
    """One memory instruction: its space ("generic" if none), PTX type and vector length."""

    space: str
    kind: str
    count: int
    address: ptx.Address

    @property
    def element(self) -> int:
        return ptx.SIZES[self.kind]

    @property
    def size(self) -> int:
        """Bytes each lane accesses."""
        return self.element * self.count


def parse(e: Emitter, i: ptx.Instruction) -> Access:
    """Reads the modifiers of an ld, st, atom or red."""
    space, count = "generic", 1
    operation = {"atom", "red"} & {i.opcode}
    for m in i.modifiers[:-1]:
        name = m.split("::")[0]
        if name in SPACES:
            space = name
        elif m in _VECTORS:
            count = int(m[1])
        elif name not in _IGNORED and not name.startswith(("L1", "L2", "evict")) and not operation:
            raise e.unsupported()
    kind = i.modifiers[-1]
    if kind not in ptx.SIZES or kind in ("b128", "pred") or count * ptx.SIZES[kind] > 16:
        raise e.unsupported()
    place = 0 if i.opcode in ("st", "red") else 1
    return Access(space, i.modifiers[-1], count, i.operands[place])


def size_of(i: ptx.Instruction) -> int:
    """Bytes each lane accesses by an ld, st, atom or red, a cp.async or an ldmatrix."""
    if i.opcode == "cp":
        return i.operands[2].value
    if i.opcode == "ldmatrix":
        return 16  # a row of a matrix
    return ptx.SIZES[i.modifiers[-1]] * next((int(m[1]) for m in i.modifiers if m in _VECTORS), 1)


def provenance(kernel: ptx.Kernel) -> dict[str, object]:
    """For each 64-bit register the parameter or variable its value was probably computed from.

    Only a guess at the allocation to compare with first, so one pass in program order will do.
    """
    offsets = parameter_offsets(kernel)
    found: dict[str, object] = {}
    for i in (x for x in kernel.body if isinstance(x, ptx.Instruction)):
        names = destinations(i)
        if len(names) != 1 or kernel.registers[names[0]] not in ("b64", "u64", "s64"):
            continue
        for operand in i.operands[1:]:
            if isinstance(operand, ptx.Address) and isinstance(operand.base, ptx.Symbol):
                key = operand.base.name
                if i.opcode == "ld" and key in offsets:
                    found.setdefault(
                        names[0], ("parameter", offsets[key] + operand.offset + operand.base.offset)
                    )
            elif isinstance(operand, ptx.Symbol):
                found.setdefault(names[0], ("symbol", operand.name))
            elif isinstance(operand, ptx.Register) and operand.name in found and i.opcode != "ld":
                found.setdefault(names[0], found[operand.name])
    return found


def parameter_offsets(kernel: ptx.Kernel) -> dict[str, int]:
    """Where each parameter lies in the parameter buffer (PTX ISA 5.1.6: natural alignment)."""
    at, offsets = 0, {}
    for p in kernel.parameters:
        at = -(-at // p.align) * p.align
        offsets[p.name] = at
        at += p.nbytes
    return offsets


class Checks:
    """Emits address checks. `context` names the values the kernel's entry provides."""

    def __init__(self, e: Emitter, layout):
        self.e, self.layout = e, layout

    # -- where an address is expected ----------------------------------------

    def bounds(self, access: Access, span: int, size: int) -> tuple[str, str]:
        """(start, n): offsets from start, rotated right by log2(size), must be below n.

        span: bytes from the warp's lowest to its highest. The rotation moves low bits that
        should be 0 to the top, so that one comparison checks alignment too.
        """
        e = self.e
        shift = size.bit_length() - 1
        start, nbytes, compute = self.allocation(access)
        e.declarations.add("declare i64 @llvm.usub.sat.i64(i64, i64)")
        more = compute(f"add i64 {nbytes}, {size}")
        room = compute(f"call i64 @llvm.usub.sat.i64(i64 {more}, i64 {span})")
        return start, compute(f"lshr i64 {room}, {shift}")

    def allocation(self, access: Access) -> tuple[str, str, Callable[[str], str]]:
        """Start and bytes of what an address is expected in, and how to compute with them."""
        e = self.e
        if access.space == "shared":
            return "0", "%shared_bytes", e.at_entry
        if access.space == "local":
            return "%local_start", str(self.layout.local_stride), e.at_entry
        compute = e.at_entry  # once for the whole function
        slot = self.layout.bounds_slot(access.address.base)
        if slot == 0:  # no idea: the allocation that was found last
            compute = e.op
            recent = runtime.offset(Context, "recent_start")
            pair = e.at_entry(f"getelementptr i8, ptr %cx, i64 {recent}")
        else:
            pair = e.at_entry(f"getelementptr i64, ptr %bounds, i64 {2 * slot}")
        start = compute(f"load i64, ptr {pair}")
        second = e.at_entry(f"getelementptr i64, ptr {pair}, i64 1")
        return start, compute(f"load i64, ptr {second}"), compute

    def rotated(self, offset: str, size: int, ty: str = "i64") -> str:
        if size == 1:
            return offset
        name = f"@llvm.fshr.{ty}" if ty == "i64" else f"@llvm.fshr.v{LANES}i64"
        self.e.declarations.add(f"declare {ty} {name}({ty}, {ty}, {ty})")
        shift = size.bit_length() - 1
        amount = str(shift) if ty == "i64" else f"splat (i64 {shift})"
        return self.e.op(f"call {ty} {name}({ty} {offset}, {ty} {offset}, {ty} {amount})")

    def quick(self, access: Access, address: Lanes, low: int, high: int, size: int) -> str | None:
        """An i1: all lanes' bytes [address + low, address + high) are good. None: cannot tell.

        address is i64 (an offset for shared memory); low and high are relative to lane 0's, and
        include the pattern.
        """
        e = self.e
        if address.pattern is not None:
            if any(p % size for p in address.pattern):
                return None
            start, n = self.bounds(access, high - low, size)
            first = e.op(f"add i64 {address.ssa}, {low}") if low else address.ssa
            offset = first if start == "0" else e.op(f"sub i64 {first}, {start}")
            return e.op(f"icmp ult i64 {self.rotated(offset, size)}, {n}")
        v = vector("i64")
        start, n = self.bounds(access, high - low, size)
        offset = address.ssa
        if low:
            offset = e.op(f"add {v} {offset}, splat (i64 {low})")
        if start != "0":
            offset = e.op(f"sub {v} {offset}, {e.splat('i64', start)}")
        good = e.op(f"icmp ult {v} {self.rotated(offset, size, v)}, {e.splat('i64', n)}")
        good = e.op(f"bitcast {vector('i1')} {good} to i32")
        if e.mask != "-1":
            good = e.op(f"or i32 {good}, {e.op(f'xor i32 {e.mask}, -1')}")
        return e.op(f"icmp eq i32 {good}, -1")

    def emit(
        self,
        access: Access,
        address: Lanes,
        low: int,
        high: int,
        size: int,
        members: list[tuple[int, int]],
    ) -> None:
        """Checks accesses of `size` bytes at address + offset: (offset, instruction id) pairs."""
        e = self.e
        if access.space == "local" and address.pattern is not None:
            steps = tuple(
                p - lane * self.layout.local_stride for lane, p in enumerate(address.pattern)
            )
            quick = None
            if set(steps) == {0}:
                quick = self.quick(access, Lanes("i64", address.ssa), low, high, size)
        elif access.space == "local":
            quick = None
        else:
            if address.pattern is not None:
                low, high = low + min(address.pattern), high + max(address.pattern)
            quick = self.quick(access, address, low, high, size)
        slow, after = e.fresh("slow")[1:], e.fresh("checked")[1:]
        if quick is None:
            e.line(f"br label %{slow}")
        else:
            e.line(f"br i1 {quick}, label %{after}, label %{slow}, !prof !0")
        e.label(slow)
        v = vector("i64")
        spread = e.spread(address)
        for offset, number in members:
            addresses = e.op(f"add {v} {spread}, splat (i64 {offset})") if offset else spread
            self.lanes(access, addresses, size, number)
        e.line(f"br label %{after}")
        e.label(after)

    def lanes(self, access: Access, addresses: str, size: int, number: int) -> None:
        """Looks at every active lane's address (a <32 x i64>); leaves for %fault if one is bad."""
        e, v = self.e, vector("i64")
        if access.space == "shared":
            addresses = e.op(f"add {v} {addresses}, {e.splat('i64', '%shared_address')}")
        e.line(f"store {v} {addresses}, ptr %scratch")
        spaces = {
            "shared": runtime.SHARED,
            "local": runtime.LOCAL,
            "generic": runtime.GENERIC,
        }.get(access.space, runtime.GLOBAL)
        bad = e.op(
            f"call i1 @check_lanes(ptr %cx, ptr %scratch, i32 {e.mask}, i32 %w, "
            f"i32 {size}, i32 {number}, i32 {spaces}, i64 {self.layout.local_stride})"
        )
        good = e.fresh("good")[1:]
        e.line(f"br i1 {bad}, label %fault, label %{good}")
        e.label(good)


class Memory:
    """Emits ld, st, atom and red.

    observers: what emits code of its own beside each access, by a method
    access(access, address, instruction, to, stored).
    """

    def __init__(self, e: Emitter, layout, observers: list):
        self.e, self.layout, self.observers = e, layout, observers
        self.checks = Checks(e, layout)
        self.checked: dict[int, bool] = {}  # instruction ids a merged check has covered

    def observed(
        self,
        access: Access,
        address: Lanes,
        i: ptx.Instruction,
        to: tuple[Access, Lanes] | None = None,
        stored: list[Lanes] | None = None,
        whole: bool = True,
    ) -> None:
        """Lets the observers emit code beside an access of the active lanes. to: of a copy, the
        access that its other half makes; stored: of a store, the values; whole: whether all
        bytes are accessed in every launch."""
        for observer in self.observers:
            if whole or observer.parts:
                observer.access(access, address, i, to, stored)

    def address(self, access: Access) -> Lanes:
        """base + 0 as i64 (the offset is added by the user of the address)."""
        e, base = self.e, access.address.base
        if isinstance(base, ptx.Immediate):
            return Lanes("i64", str(base.value))
        value = e.lanes(base, "b64" if access.space != "shared" else "u32")
        if access.space == "shared":
            value = self._widen(value)
        return value

    def _widen(self, value: Lanes) -> Lanes:
        """A 32-bit offset as a signed one of 64 bits.

        Offsets that are good are far below 2^31. So base + pattern is right in every lane whose
        offset is good, also where the base by itself, that of a lane that is not active, has
        wrapped below zero.
        """
        e = self.e
        if value.pattern is None:
            return Lanes("i64", e.op(f"sext {vector('i32')} {value.ssa} to {vector('i64')}"), None)
        return Lanes("i64", e.op(f"sext i32 {value.ssa} to i64"), value.pattern)

    def merged_checks(self, group: list[tuple[int, ptx.Instruction]]) -> None:
        """One quick check for unguarded accesses off one register (ids and instructions)."""
        accesses = [(n, parse(self.e, i)) for n, i in group]
        first = accesses[0][1]
        offsets = [(a.address.offset, n) for n, a in accesses]
        low, high = min(offsets)[0], max(o for o, _ in offsets) + first.size
        self.checks.emit(first, self.address(first), low, high, first.size, offsets)
        for n, _ in group:
            self.checked[n] = True

    def _check(self, access: Access, address: Lanes, number: int) -> None:
        if self.checked.pop(number, False):
            return
        offset = access.address.offset
        self.checks.emit(
            access, address, offset, offset + access.size, access.size, [(offset, number)]
        )

    # -- host pointers ----------------------------------------

    def pointer(self, access: Access, ssa: str, offset: int) -> str:
        """A host pointer for a scalar address plus offset."""
        e = self.e
        if access.space == "shared":
            p = e.op(f"getelementptr i8, ptr %shared, i64 {ssa}")
        else:
            p = e.op(f"inttoptr i64 {ssa} to ptr")
        return e.op(f"getelementptr i8, ptr {p}, i64 {offset}") if offset else p

    def pointers(self, access: Access, address: Lanes, offset: int) -> str:
        e, v = self.e, vector("i64")
        a = e.spread(address)
        if offset:
            a = e.op(f"add {v} {a}, splat (i64 {offset})")
        if access.space == "shared":
            return e.op(f"getelementptr i8, ptr %shared, {v} {a}")
        return e.op(f"inttoptr {v} {a} to {vector('ptr')}")

    # -- loads ----------------------------------------

    def load(self, i: ptx.Instruction, number: int) -> list[Lanes]:
        """The values an ld gives its destinations, as i8...i64, float or double."""
        e = self.e
        access = parse(e, i)
        if access.space == "param":
            return self._load_parameter(access)
        address = self.address(access)
        self._check(access, address, number)
        self.observed(access, address, i)
        ty, offset = llvm_type(access.kind), access.address.offset
        volatile = "volatile " if {"volatile", "relaxed", "acquire"} & set(i.modifiers) else ""
        if address.uniform:
            return [
                Lanes(
                    ty,
                    e.op(
                        f"load {volatile}{ty}, ptr "
                        f"{self.pointer(access, address.ssa, offset + k * access.element)}"
                        f", align {access.element}"
                    ),
                )
                for k in range(access.count)
            ]
        return self._load_lanes(access, address, ty)

    def _load_parameter(self, access: Access) -> list[Lanes]:
        e, base = self.e, access.address.base
        if not isinstance(base, ptx.Symbol):
            raise e.unsupported(e.instruction.text)
        at = self.layout.parameter_offset(base.name) + base.offset + access.address.offset
        ty = llvm_type(access.kind)
        out = []
        for k in range(access.count):
            p = e.op(f"getelementptr i8, ptr %parameters, i64 {at + k * access.element}")
            out.append(Lanes(ty, e.op(f"load {ty}, ptr {p}, align 1, !invariant.load !1")))
        return out

    def _load_lanes(self, access: Access, address: Lanes, ty: str) -> list[Lanes]:
        e, size, offset = self.e, access.element, access.address.offset
        pattern = address.pattern
        if pattern is not None and not any(p % size for p in pattern):
            places = [p // size for p in pattern]
            low, high = min(places), max(places) + access.count
            window = 1 << (high - low - 1).bit_length()
            if window <= 4 * LANES:
                p = self.pointer(access, address.ssa, offset + low * size)
                whole = e.op(f"load {vector(ty, window)}, ptr {p}, align {size}")
                return [
                    self._pick(ty, whole, window, [q - low + k for q in places])
                    for k in range(access.count)
                ]
            if len(set(places)) <= 4 and (max(places) - min(places)) * size <= NEAR:
                return [
                    self._load_few(access, address, ty, offset + k * size, places)
                    for k in range(access.count)
                ]
        return [
            Lanes(ty, self._gather(ty, self.pointers(access, address, offset + k * size)), None)
            for k in range(access.count)
        ]

    def _gather(self, ty: str, pointers: str) -> str:
        e, v, many, size = self.e, vector(ty), vector("ptr"), bits(ty) // 8
        name = f"@llvm.masked.gather.v{LANES}{_mangle(ty)}.v{LANES}p0"
        e.declarations.add(f"declare {v} {name}({many}, i32, {vector('i1')}, {v})")
        call = f"call {v} {name}({many} {{}}, i32 {size}, {vector('i1')} {{}}, {v} zeroinitializer)"
        if size >= 4:
            return e.op(call.format(pointers, e.lane_mask(e.mask)))
        e.function(
            f"gather.{ty}",
            f"{v} @gather.{ty}({many} %ps, i32 %mask) noinline",
            f"  %lanes = bitcast i32 %mask to {vector('i1')}\n"
            f"  %found = {call.format('%ps', '%lanes')}\n  ret {v} %found",
        )
        return e.op(f"call {v} @gather.{ty}({many} {pointers}, i32 {e.mask})")

    def _scatter(self, ty: str, values: str, pointers: str) -> None:
        e, v, many, size = self.e, vector(ty), vector("ptr"), bits(ty) // 8
        name = f"@llvm.masked.scatter.v{LANES}{_mangle(ty)}.v{LANES}p0"
        e.declarations.add(f"declare void {name}({v}, {many}, i32, {vector('i1')})")
        call = f"call void {name}({v} {{}}, {many} {{}}, i32 {size}, {vector('i1')} {{}})"
        if size >= 4:
            e.line(call.format(values, pointers, e.lane_mask(e.mask)))
            return
        e.function(
            f"scatter.{ty}",
            f"void @scatter.{ty}({v} %xs, {many} %ps, i32 %mask) noinline",
            f"  %lanes = bitcast i32 %mask to {vector('i1')}\n"
            f"  {call.format('%xs', '%ps', '%lanes')}\n  ret void",
        )
        e.line(f"call void @scatter.{ty}({v} {values}, {many} {pointers}, i32 {e.mask})")

    def _pick(self, ty: str, whole: str, window: int, places: list[int]) -> Lanes:
        if window == LANES and places == list(range(LANES)):
            return Lanes(ty, whole, None)
        index = self.e.pattern_constant("i32", places)
        return Lanes(
            ty,
            self.e.op(
                f"shufflevector {vector(ty, window)} {whole}, {vector(ty, window)} "
                f"poison, {vector('i32')} {index}"
            ),
            None,
        )

    def _load_few(self, access: Access, address: Lanes, ty: str, offset: int, places) -> Lanes:
        """Four or fewer different addresses: scalar loads, spread over the lanes."""
        e = self.e
        distinct = sorted(set(places))
        four = "poison"
        for k, place in enumerate(distinct):
            p = self.pointer(access, address.ssa, offset + place * access.element)
            one = e.op(f"load {ty}, ptr {p}, align {access.element}")
            four = e.op(f"insertelement {vector(ty, 4)} {four}, {ty} {one}, i32 {k}")
        return self._pick(ty, four, 4, [distinct.index(q) for q in places])

    # -- stores ----------------------------------------

    def store(self, i: ptx.Instruction, number: int) -> None:
        e = self.e
        access = parse(e, i)
        if access.space in ("param", "const"):
            raise e.unsupported()
        address = self.address(access)
        self._check(access, address, number)
        source = i.operands[1]
        parts = source.elements if isinstance(source, ptx.Vector) else [source]
        values = [e.lanes(p, access.kind) for p in parts]
        self.observed(access, address, i, stored=values)
        volatile = "volatile " if {"volatile", "relaxed", "release"} & set(i.modifiers) else ""
        for k, value in enumerate(values):
            self._store_lanes(
                access, address, value, access.address.offset + k * access.element, volatile
            )

    def _store_lanes(
        self, access: Access, address: Lanes, value: Lanes, offset: int, volatile: str
    ) -> None:
        e, size, ty = self.e, access.element, value.ty
        if address.uniform:
            ssa = value.ssa
            if value.pattern != ZERO:  # the highest active lane's value stays
                e.declarations.add("declare i32 @llvm.ctlz.i32(i32, i1)")
                zeros = e.op(f"call i32 @llvm.ctlz.i32(i32 {e.mask}, i1 true)")
                last = e.op(f"sub i32 31, {zeros}")
                ssa = e.op(f"extractelement {vector(ty)} {e.spread(value)}, i32 {last}")
            e.line(
                f"store {volatile}{ty} {ssa}, ptr {self.pointer(access, address.ssa, offset)}, "
                f"align {size}"
            )
            return
        v, spread = vector(ty), e.spread(value)
        if address.pattern == tuple(size * lane for lane in range(LANES)):
            p = self.pointer(access, address.ssa, offset)
            if e.mask == "-1":
                e.line(f"store {v} {spread}, ptr {p}, align {size}")
            else:
                name = f"@llvm.masked.store.v{LANES}{_mangle(ty)}.p0"
                e.declarations.add(f"declare void {name}({v}, ptr, i32, {vector('i1')})")
                e.line(
                    f"call void {name}({v} {spread}, ptr {p}, i32 {size}, "
                    f"{vector('i1')} {e.lane_mask(e.mask)})"
                )
            return
        self._scatter(ty, spread, self.pointers(access, address, offset))

    # -- atomics ----------------------------------------

    def atomic(self, i: ptx.Instruction, number: int) -> Lanes:
        """atom and red: lane after lane, from the lowest; the old values."""
        e = self.e
        access = parse(e, i)
        operation = next((m for m in i.modifiers if m in _ATOMIC), None)
        if operation is None or access.space in ("param", "const", "local") or access.count > 1:
            raise e.unsupported()
        if access.kind in ("f16", "bf16", "f16x2", "bf16x2", "b16"):
            raise e.unsupported()
        address = self.address(access)
        self._check(access, address, number)
        self.observed(access, address, i)
        pointers = self.pointers(access, address, access.address.offset)
        first = 1 if i.opcode == "red" else 2
        operands = [e.spread(e.lanes(o, access.kind)) for o in i.operands[first:]]
        ty = llvm_type(access.kind)
        if len(operands) == 1:
            operands.append(f"splat ({ty} {'0.0' if ty in ('float', 'double') else 0})")
        name = self._atomic_function(operation, access.kind, ty)
        v = vector(ty)
        return Lanes(
            ty,
            e.op(
                f"call {v} {name}({vector('ptr')} {pointers}, {v} {operands[0]}, "
                f"{v} {operands[1]}, i32 {e.mask})"
            ),
            None,
        )

    def _atomic_function(self, operation: str, kind: str, ty: str) -> str:
        """A function (pointers, a, b, mask) -> old values; one for each operation and type."""
        name = f"@atomic.{operation}.{kind}"
        if any(c.startswith(f"define internal {vector(ty)} {name}(") for c in self.e.constants):
            return name
        v = vector(ty)
        if operation == "cas":
            work = (
                f"  %pair = cmpxchg ptr %p, {ty} %x, {ty} %y seq_cst seq_cst\n"
                f"  %old = extractvalue {{{ty}, i1}} %pair, 0\n"
            )
        elif operation == "dec":  # 0 or above the limit: the limit
            work = f"  %old = atomicrmw udec_wrap ptr %p, {ty} %x seq_cst\n"
        else:
            verb = _ATOMIC[operation].format("" if kind[0] == "s" else "u")
            if ty in ("float", "double"):
                verb = {"add": "fadd", "xchg": "xchg"}.get(verb)
                if verb is None:
                    raise self.e.unsupported()
            work = f"  %old = atomicrmw {verb} ptr %p, {ty} %x seq_cst\n"
        arguments = f"{vector('ptr')} %ps, {v} %xs, {v} %ys, i32 %mask"
        self.e.constants.append(f"""define internal {v} {name}({arguments}) noinline {{
entry:
  br label %next
next:
  %left = phi i32 [ %mask, %entry ], [ %left1, %lane ]
  %olds = phi {v} [ zeroinitializer, %entry ], [ %olds1, %lane ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %finish, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %left1 = and i32 %left, %less
  %p = extractelement {vector("ptr")} %ps, i32 %l
  %x = extractelement {v} %xs, i32 %l
  %y = extractelement {v} %ys, i32 %l
{work}  %olds1 = insertelement {v} %olds, {ty} %old, i32 %l
  br label %next
finish:
  ret {v} %olds
}}""")
        return name


_ATOMIC = {
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "cas": "cas",
    "min": "{}min",
    "max": "{}max",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


def _mangle(ty: str) -> str:
    return {"float": "f32", "double": "f64"}.get(ty, ty)
