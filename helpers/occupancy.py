"""How many blocks of a kernel a multiprocessor holds at a time, and what keeps it from more.

    o = occupancy(KERNELS["tiled"], (9, 0))
    print(o)            # 2 blocks, 64 of 64 warps (100%); limited by threads; 32 registers, …
    o.picture()         # in a notebook

A block comes to a multiprocessor as a whole and stays until it ends. It needs room for its threads,
its registers and its shared memory. The limits are those of the CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability"; the units in which registers and shared memory
are handed out are those of Nsight Compute's occupancy calculator and of cuda_occupancy.h in the
CUDA toolkit, whose rules are repeated here:

- registers are handed out to whole warps, 256 at a time, from the quarter of the multiprocessor
  where the warp lives, which has a quarter of the registers;
- shared memory is handed out to blocks, static and dynamic together with what the system keeps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.bound import BoundKernel
from helpers.cpu_driver import ptxas
from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS, Kernel
from helpers.launch_shape import checked_shape, checked_shared
from helpers.replica import Program, program_of
from helpers.toolkit import require_toolkit

if TYPE_CHECKING:
    from helpers.plots import Picture

WARP = 32
QUARTERS = 4
KIB = 1024


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor of a compute capability has."""

    threads: int
    blocks: int
    shared: int  # bytes
    shared_of_block: int  # the most that one block may have, bytes
    shared_unit: int  # bytes
    reserved: int  # bytes of each block that the system keeps for itself
    registers: int = 64 * KIB
    registers_of_block: int = 64 * KIB
    registers_of_thread: int = 255
    register_unit: int = 256  # registers of a warp
    threads_of_block: int = 1024

    @property
    def warps(self) -> int:
        """The most warps that a multiprocessor holds."""
        return self.threads // WARP


LIMITS = {
    (7, 5): Limits(1024, 16, 64 * KIB, 64 * KIB, 256, 0),
    (8, 0): Limits(2048, 32, 164 * KIB, 163 * KIB, 128, KIB),
    (8, 6): Limits(1536, 16, 100 * KIB, 99 * KIB, 128, KIB),
    (8, 7): Limits(1536, 16, 164 * KIB, 163 * KIB, 128, KIB),
    (8, 9): Limits(1536, 24, 100 * KIB, 99 * KIB, 128, KIB),
    (9, 0): Limits(2048, 32, 228 * KIB, 227 * KIB, 128, KIB),
    (10, 0): Limits(2048, 32, 228 * KIB, 227 * KIB, 128, KIB),
    (12, 0): Limits(1536, 24, 100 * KIB, 99 * KIB, 128, KIB),
}


@dataclass(frozen=True)
class Resources:
    """What ptxas says that a kernel needs."""

    registers: int  # of a thread
    shared: int  # static shared memory of a block, bytes
    local: int  # local memory of a thread, bytes: stack and spilled registers

    def __str__(self) -> str:
        spilled = f", {self.local} bytes of local memory" if self.local else ""
        return (
            f"{self.registers} registers a thread, {self.shared:,} bytes of shared memory a block"
            f"{spilled}"
        )


@dataclass(frozen=True)
class Occupancy:
    """What a multiprocessor holds of a kernel. `limits`: blocks that each resource has room for."""

    capability: tuple[int, int]
    threads: int  # of a block
    resources: Resources
    dynamic_shared: int  # bytes of a block
    limits: dict[str, int]

    @property
    def blocks(self) -> int:
        """Resident blocks of a multiprocessor; 0 if not even one fits."""
        return min(self.limits.values())

    @property
    def warps_of_block(self) -> int:
        """Warps of a block, the last one possibly in part."""
        return -(-self.threads // WARP)

    @property
    def warps(self) -> int:
        """Resident warps of a multiprocessor."""
        return self.blocks * self.warps_of_block

    @property
    def share(self) -> float:
        """Resident warps by the most that there can be: the occupancy."""
        return self.warps / LIMITS[self.capability].warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that have no room for another block."""
        return tuple(name for name, count in self.limits.items() if count == self.blocks)

    def __str__(self) -> str:
        most = LIMITS[self.capability].warps
        blocks = f"{self.blocks} block{'s' * (self.blocks != 1)}"
        dynamic = f" and {self.dynamic_shared:,} dynamic" if self.dynamic_shared else ""
        return (
            f"{blocks} of {self.threads} threads, {self.warps} of {most} warps ({self.share:.0%}); "
            f"limited by {' and '.join(self.limited_by)}; {self.resources}{dynamic} "
            f"(compute capability {self.capability[0]}.{self.capability[1]})"
        )

    def picture(self) -> Picture:
        """The warps of a multiprocessor, those of each resident block in one colour."""
        return _draw(self)


def occupancy(
    kernel: Any,
    capability: tuple[int, int] | None = None,
    *,
    block: int | Sequence[int] | None = None,
    shared: int | None = None,
) -> Occupancy:
    """The occupancy of a kernel.

    kernel: one of helpers.kernels or its name, `Resources`, a compiled PyCUDA function, or what
    helpers.replica.replica takes. block: its threads along x, y, z, those of a kernel of ours by
    default. shared: bytes of dynamic shared memory. capability: such as (9, 0); by default that of
    the current device.

    Raises ValueError for a capability that is not in LIMITS, and for a block no device can have.
    """
    capability = capability or _device_capability()
    limits = limits_of(capability)
    if isinstance(kernel, str) and kernel in KERNELS:
        kernel = KERNELS[kernel]
    if isinstance(kernel, (Kernel, BoundKernel)):
        block = kernel.block if block is None else block
        shared = kernel.shared_bytes if shared is None else shared
    if block is None:
        raise WrongType("the threads of a block are not known: write block=(32, 32)")
    threads = math.prod(checked_shape("block", block))
    shared = checked_shared(shared or 0)
    if not 1 <= threads <= limits.threads_of_block:
        raise WrongValue(f"block={block} has {threads:,} threads; it can be 1 to 1,024")
    needs = kernel if isinstance(kernel, Resources) else resources_of(kernel, capability)
    return Occupancy(capability, threads, needs, shared, _rooms(limits, needs, threads, shared))


def limits_of(capability: tuple[int, int]) -> Limits:
    """LIMITS of a compute capability; ValueError that names those that are known."""
    known = ", ".join(f"{major}.{minor}" for major, minor in LIMITS)
    if not isinstance(capability, Sequence) or isinstance(capability, str):
        raise WrongType(f"capability={capability!r}: write two integers, such as (9, 0)")
    if tuple(capability) not in LIMITS:
        raise WrongValue(f"the limits of compute capability {capability} are not known, only those "
                         f"of {known}")  # fmt: skip
    return LIMITS[tuple(capability)]


def _rooms(limits: Limits, needs: Resources, threads: int, dynamic: int) -> dict[str, int]:
    """For each resource, the blocks that it has room for."""
    warps = -(-threads // WARP)
    rooms = {"threads": limits.warps // warps, "blocks": limits.blocks}
    if needs.registers:
        of_warp = _up(needs.registers * WARP, limits.register_unit)
        in_quarter = limits.registers // QUARTERS // of_warp
        fits = of_warp * _up(warps, QUARTERS) <= limits.registers_of_block
        fits &= needs.registers <= limits.registers_of_thread
        rooms["registers"] = in_quarter * QUARTERS // warps if fits else 0
    wanted = needs.shared + dynamic
    if wanted:
        of_block = _up(wanted + limits.reserved, limits.shared_unit)
        rooms["shared memory"] = limits.shared // of_block
        if wanted > limits.shared_of_block:
            rooms["shared memory"] = 0
    return rooms


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def resources_of(kernel: Any, capability: tuple[int, int] | None = None) -> Resources:
    """ptxas's figures for a kernel.

    A compiled PyCUDA function says them itself, for the device that it was compiled for. Others are
    assembled for `capability`, by default the current device's. Raises RuntimeError where ptxas
    refuses.
    """
    if hasattr(kernel, "num_regs"):
        return Resources(kernel.num_regs, kernel.shared_size_bytes, kernel.local_size_bytes)
    program = kernel if isinstance(kernel, Program) else program_of(kernel)
    major, minor = capability or _device_capability()
    found = _assembled(program.ptx, f"sm_{major}{minor}")
    if program.entry not in found:
        raise RuntimeError(f"ptxas made no code for {program.entry}; it has {', '.join(found)}")
    needs = found[program.entry]
    return Resources(needs.registers, needs.shared_bytes, needs.stack_bytes)


@functools.lru_cache(maxsize=64)
def _assembled(ptx: str, arch: str) -> dict[str, ptxas.Resources]:
    """ptxas's report. PTX for a later architecture than `arch` is taken as if it were for that."""
    if arch == "sm_75":
        ptx = ptx.replace(".target sm_80", ".target sm_75")
    accepted, report = ptxas.assemble(require_toolkit().ptxas, ptx, arch)
    if not accepted:
        raise RuntimeError(f"ptxas refuses the kernel for {arch}: {_once(report)}")
    return ptxas.resources(report)


def _once(report: str) -> str:
    """What ptxas complains of, each thing once: "Feature 'cp.async' requires .target sm_80 …"."""
    said = [line.partition("error   : ")[2].strip() for line in report.splitlines()]
    return "; ".join(dict.fromkeys(filter(None, said))) or report.strip()


def _device_capability() -> tuple[int, int]:
    from helpers.memory import driver

    return driver().Context.get_device().compute_capability()


def _draw(found: Occupancy) -> Picture:
    from helpers import plots  # counts alone need no matplotlib

    limits = LIMITS[found.capability]
    across = limits.warps // QUARTERS
    figure = plots.blank_figure(10, 3.4)
    axes = figure.subplots()
    colours = (plots.SKY, plots.ORANGE, plots.GREEN, plots.BLUE)
    for warp in range(limits.warps):
        block = warp // found.warps_of_block
        taken = block < found.blocks
        row, column = divmod(warp, across)
        style = {} if taken else {"hatch": "//"}
        plots._cell(axes, row, column, colours[block % 4] if taken else plots.PAPER, **style)
        if taken:
            ink = plots.PAPER if colours[block % 4] == plots.BLUE else plots.INK
            plots._say(axes, row + 0.5, column + 0.5, str(block), fontsize=14, color=ink)
    plots._frame(axes, QUARTERS, across)
    rooms = ", ".join(f"{count} by {name}" for name, count in found.limits.items())
    plots._say(axes, -0.7, across / 2,
               f"{found.blocks} block{'s' * (found.blocks != 1)} of {found.warps_of_block} warps: "
               f"{found.warps} of {limits.warps} places for warps", fontsize=17)
    plots._say(axes, QUARTERS + 0.7, across / 2, f"blocks that fit: {rooms}", fontsize=15)
    plots._canvas(axes, QUARTERS + 1, across, top=1.2)
    alt = (f"The {limits.warps} places for warps of a multiprocessor, {found.warps} of them taken "
           f"by {found.blocks} blocks of {found.warps_of_block} warps each. Blocks that "
           f"fit: {rooms}.")
    return plots.Picture(figure, alt)
