"""Where a kernel's data lies: known before code is made, needed by whoever launches it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import ptx
from .access import parameter_offsets, provenance
from .counting import Counters
from .errors import InvalidPtx
from .stack import function_address
from .whereabouts import Ahead

# Shared memory the system reserves in every block (PTX ISA 10.33), which cooperative groups use
# for tiles of several warps. Given only to kernels that ask for it.
RESERVED = [ptx.Special(f"%reserved_smem_offset_{n}") for n in ("1", "0", "begin")]
RESERVED_BYTES = 1024


@dataclass
class Layout:
    """The places of a kernel's variables and parameters, and what its code is numbered by."""

    kernel: ptx.Kernel
    shared_offsets: dict[str, int]
    shared_sizes: dict[str, int]  # of those whose size is known
    static_shared: int
    local_offsets: dict[str, int]
    local_stride: int  # bytes of local memory a lane has
    symbols: list[str]  # module-level variables, in the order of Launch.symbols
    parameters: dict[str, int]
    functions: dict[str, int]  # what the names of device functions stand for
    bounds: list = field(default_factory=lambda: [None])  # what each slot of Launch.bounds is about
    frame_bytes: int = 0
    sources: list[ptx.Instruction] = field(default_factory=list)  # by instruction id
    resumes: list[ptx.Instruction | None] = field(default_factory=list)  # by resume point - 1
    places: list[Ahead] = field(default_factory=list)  # of lanes that miss at a barrier
    counters: Counters | None = None  # of code that counts
    granule: int = 0  # of code that sanitizes; and the accesses that a fence may follow
    fences: set[int] = field(default_factory=set)
    # Offsets of parameters: of arrays that may be written (None: any), and others that are read.
    written: set[int] | None = None
    read_only: list[int] = field(default_factory=list)

    def for_launches(self) -> Layout:
        """Without what only code generation needs."""
        layout = replace(self, kernel=replace(self.kernel, body=[]))
        layout.origins = self.origins  # for messages
        return layout

    def is_reserved(self, offset: int) -> bool:
        """Whether a byte of shared memory is in what the system reserves."""
        start = self.shared_offsets.get(RESERVED[0].name)
        return start is not None and start <= offset < start + RESERVED_BYTES

    def is_array(self, offset: int) -> bool:
        """Whether a byte of a thread's local memory is in an array of the kernel's own."""
        before = [(at, name) for name, at in self.local_offsets.items() if at <= offset]
        return bool(before) and "__local_depot" in max(before)[1]

    def parameter_offset(self, name: str) -> int:
        if name not in self.parameters:
            raise InvalidPtx(f"kernel {self.kernel.name}: '{name}' is not a parameter")
        return self.parameters[name]

    def origin(self, base) -> object | None:
        """What an address was probably computed from: ("parameter", offset), ("symbol", name)."""
        if isinstance(base, ptx.Register):
            return self.origins.get(base.name)
        return ("symbol", base.name) if isinstance(base, ptx.Symbol) else None

    def bounds_slot(self, base) -> int:
        """The slot of the allocation an address is expected in; 0 if nothing is known."""
        key = self.origin(base)
        if key not in self.bounds:
            self.bounds.append(key)
        return self.bounds.index(key)

    def __post_init__(self):
        self.origins = provenance(self.kernel)


def layout_of(module: ptx.Module, kernel: ptx.Kernel) -> Layout:
    """Places the shared and local variables a kernel uses, each at its alignment."""
    used = {s.name for i in kernel.body if isinstance(i, ptx.Instruction) for s in _symbols(i)}
    declared = [*module.variables, *kernel.variables]
    shared = [
        v for v in declared if v.space == "shared" and (v.name in used or v in kernel.variables)
    ]
    if any(
        o in RESERVED for i in kernel.body if isinstance(i, ptx.Instruction) for o in i.operands
    ):
        shared.append(ptx.Variable(RESERVED[0].name, "shared", 16, RESERVED_BYTES))
    shared.sort(key=lambda v: v.external)  # what is sized at launch comes last
    offsets, total = _place([v for v in shared if not v.external])
    aligned = max((v.align for v in shared if v.external), default=1)
    total = -(-total // aligned) * aligned  # as ptxas reports it
    start = -(-total // 16) * 16
    offsets |= {v.name: start for v in shared if v.external}
    local, stride = _place([v for v in declared if v.space == "local"])
    symbols = [
        v.name for v in module.variables if v.space in ("global", "const") and v.name in used
    ]
    return Layout(
        kernel,
        offsets,
        {v.name: v.nbytes for v in shared if not v.external},
        total,
        local,
        -(-stride // 16) * 16,
        symbols,
        parameter_offsets(kernel),
        {name: function_address(module, name) for name in module.functions},
    )


def _place(variables: list[ptx.Variable]) -> tuple[dict[str, int], int]:
    at, offsets = 0, {}
    for v in variables:
        at = -(-at // v.align) * v.align
        offsets[v.name] = at
        at += v.nbytes
    return offsets, at


def _symbols(i: ptx.Instruction):
    stack = list(i.operands)
    while stack:
        o = stack.pop()
        if isinstance(o, ptx.Symbol):
            yield o
        elif isinstance(o, ptx.Address):
            stack.append(o.base)
        elif isinstance(o, ptx.Vector):
            stack += o.elements
        elif isinstance(o, tuple):
            stack += o
