"""A product kernel by whatever a reader has of it: its name, a Kernel, or that of a `%%cuda` cell.

    product("tiled_16")          # the Kernel of that name; with another tile, if its file has one
    product(my_kernel)           # a Kernel for the matmul of a %%cuda cell

Timing, prediction, occupancy and roofline take their kernels through it.
"""

from __future__ import annotations

from typing import Any

from helpers.bound import BoundKernel
from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS, MEASURED, Kernel, tiled


def product(kernel: Any) -> Kernel:
    """The Kernel. Raises WrongValue for a name that is none, WrongType for what is no product."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        return _named(kernel)
    if isinstance(kernel, BoundKernel):
        return _of_cell(kernel)
    raise WrongType(
        f"{kernel!r} is no kernel of a product: give a name such as 'tiled', one of "
        "helpers.kernels.KERNELS, or a kernel of a %%cuda cell"
    )


def _named(name: str) -> Kernel:
    found = (KERNELS | MEASURED).get(name)
    if found:
        return found
    base, _, tile = name.rpartition("_")
    if base in KERNELS and tile.isdecimal() and KERNELS[base].lesson in (2, 3):
        return tiled(int(tile), base)
    raise WrongValue(f"there is no kernel {name!r}: write {', '.join(KERNELS)}, or one with "
                     "another tile, such as tiled_16")  # fmt: skip


def _of_cell(kernel: BoundKernel) -> Kernel:
    if not kernel.signature.is_product:
        raise WrongType(f"kernel {kernel.name} is no product: its signature is not (const float "
                        "*A, const float *B, float *C, int M, int N, int K)")  # fmt: skip
    if kernel.block is None or kernel.tile is None:
        raise WrongType(f"kernel {kernel.name} has no block: write %%cuda … --block 32,32, and "
                        "--tile rows,columns if a thread computes several elements")  # fmt: skip
    try:
        current = kernel.file.read_text(encoding="utf-8")
    except OSError:
        current = None
    if current is None or not kernel.source.endswith(current):
        raise WrongValue(f"kernel {kernel.name}: {kernel.file.name} is not what was compiled: run "
                         "its cell again")  # fmt: skip
    return Kernel(
        kernel.name, kernel.file, kernel.entry, 0, kernel.block, kernel.tile, kernel.rows_on_x,
        kernel.shared_bytes, kernel.options,
    )  # fmt: skip
