"""A student's kernel as a Python object: it is called as a PyCUDA function is, and knows its types.

    matmul(dA, dB, dC, np.int32(M), np.int32(N), np.int32(K), grid=(8, 8), block=(32, 32))
    profile(matmul, ...)     sanitize(matmul, ...)     time_kernel(lambda: matmul(...))

`%%cuda` makes it (see `helpers.magics`), or `bind`. What it takes is read from the source, and an
argument that does not fit is refused with what to write instead, before the driver sees it. (PyCUDA
itself packs what it is given: a float64 array for a float *, or an int of 8 bytes for one of 4, and
the kernel computes nonsense.)

On a GPU, the first launch with given sizes is repeated in the engine before it: a bad access or an
endless loop is told there, where it does not cost the context. `function` is the bare PyCUDA
function, for whoever wants neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers import simt
from helpers.argument_types import aligned, checked_arguments
from helpers.compiling import Compiled, compiled
from helpers.errors import KernelInterrupted, LaunchFailed, TimeIsUp, Told, WrongType, WrongValue
from helpers.kernels import Kernel, check_matrix
from helpers.launch_shape import MOST_THREADS, Shape, checked_shape, checked_shared
from helpers.memory import allocate, driver, upload
from helpers.nvcc_messages import plain_name
from helpers.sandbox import time_limit
from helpers.signature import Signature, signatures
from helpers.timing import backend

PATIENCE = 10.0  # seconds that a launch may take in the engine before it goes to a GPU
KEPT = 256  # launches that need not be tried again
#: What a GPU's driver says when a kernel has taken the context with it (cuda.h, CUresult).
_LOST = ("illegal memory access", "unspecified launch failure", "misaligned address",
         "illegal instruction", "invalid program counter", "launch timed out", "device-side assert",
         "address space", "hardware stack error")  # fmt: skip
_ALLOCATION = re.compile(r"the ([\d,]+)-byte allocation at (0x[0-9a-f]+)")


class BoundKernel:
    """One `__global__` function of a source, compiled, with its signature and a launch shape.

    name and entry: the function's; source: the CUDA C, as it was compiled; file: where a copy of it
    is, or what it is called; block, tile, rows_on_x, shared_bytes, options: as those of
    `helpers.kernels.Kernel`. block is None where none was given.
    """

    def __init__(
        self,
        signature: Signature,
        source: str,
        file: Path,
        module: Compiled,
        *,
        block: Sequence[int] | None = None,
        tile: Sequence[int] | None = None,
        rows_on_x: bool = False,
        shared_bytes: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        self.name = self.entry = signature.name
        self.signature, self.source, self.file = signature, source, Path(file)
        self.block = None if block is None else checked_shape("block", block)
        self.tile = _checked_tile(tile, self.block)
        self._one_each = tile is None  # one element of C for each thread, whatever the block
        self.rows_on_x, self.shared_bytes = bool(rows_on_x), checked_shared(shared_bytes)
        self.options = tuple(options)
        self._module = module
        self._function: Any = None
        self._tried: set[tuple] = set()  # launches that the engine has had
        self._fit: set[tuple] = set()  # blocks and shared bytes that the device has room for

    def __repr__(self) -> str:
        shape = f", block {self.block}" if self.block else ""
        return f"kernel {self.signature}{shape}, from {self.file.name}"

    def function(self) -> Any:
        """The bare `pycuda.driver.Function`."""
        driver()
        if self._function is None:
            self._function = self._module.function(self.entry)
        return self._function

    def grid(self, M: int, N: int) -> Shape:
        """Blocks along x, y, z for a C of M x N, if each block computes one tile of it."""
        if self.tile is None:
            raise WrongType(f"kernel {self.name} has no tile: write grid=(…), or %%cuda … --tile "
                            "rows,columns")  # fmt: skip
        return self._grid(self.tile, M, N)

    def _grid(self, tile: tuple[int, int], M: int, N: int) -> Shape:
        shape = Kernel(self.name, self.file, self.entry, 0, tile=tile, rows_on_x=self.rows_on_x)
        return shape.grid(M, N)

    def checked(self, arguments: Sequence[Any], *, host_arrays: bool = False) -> list[Any]:
        """The arguments, if they fit the signature; see `helpers.argument_types`."""
        return checked_arguments(self.signature, arguments, host_arrays=host_arrays)

    def shape(
        self, arguments: Sequence[Any], grid: Any, block: Any, shared: Any
    ) -> tuple[Shape, Shape, int]:
        """The launch shape, with what is known of it filled in. Raises WrongType, WrongValue."""
        block = self.block if block is None else block
        if block is None:
            raise WrongType(f"kernel {self.name} has no block: write block=(32, 32, 1), the "
                            "threads of a block along x, y, z")  # fmt: skip
        block = checked_shape("block", block)
        if grid is None and self.signature.is_product and (not self._one_each or block[2] == 1):
            M, N = int(arguments[3]), int(arguments[4])
            grid = self._grid((block[1], block[0]) if self._one_each else self.tile, M, N)
        if grid is None:
            raise WrongType(f"kernel {self.name} has no grid: write grid=(-(-N // 32), …), the "
                            "blocks along x, y, z")  # fmt: skip
        shared = self.shared_bytes if shared is None else shared
        return checked_shape("grid", grid), block, checked_shared(shared)

    def __call__(
        self,
        *arguments: Any,
        grid: Any = None,
        block: Any = None,
        shared: int | None = None,
        stream: Any = None,
        check: bool = True,
    ) -> NDArray[np.float32] | None:
        """Queue the kernel, as a `pycuda.driver.Function` would.

        grid, block: one to three integers; block may be left out where `%%cuda` was given one, grid
        for a product C = A * B, which it has to cover. check: on a GPU, whether the first launch
        with these sizes is tried in the engine. A product is also called as `C = matmul(A, B)`.

        Raises WrongType or WrongValue for an argument or a shape that does not fit, LaunchFailed.
        """
        if self._is_whole_product(arguments):
            return self._product(*arguments, grid=grid, block=block, shared=shared, check=check)
        arguments = self.checked(arguments)
        grid, block, shared = self.shape(arguments, grid, block, shared)
        function = self.function()
        if (block, shared) not in self._fit:
            self._check_resources(function, block, shared)
            self._fit.add((block, shared))
        cuda = driver()
        if stream is not None and not isinstance(stream, cuda.Stream):
            raise WrongType(f"stream={stream!r}: write stream=pycuda.driver.Stream(), made before, "
                            "or leave it out")  # fmt: skip
        first = check and backend() == "gpu" and self._tries(arguments, grid, block, shared)
        try:
            function(*aligned(self.signature, arguments), grid=grid, block=block, shared=shared,
                     stream=stream)  # fmt: skip
            if first:
                cuda.Context.synchronize()
        except KeyboardInterrupt:
            raise KernelInterrupted(f"kernel {self.name} was interrupted") from None
        except cuda.Error as error:
            raise LaunchFailed(self._in_words(str(error), arguments)) from None
        except TypeError as error:  # where the type of a parameter is not known
            raise WrongType(f"kernel {self.name}: PyCUDA says {error}") from None
        return None

    def launch(self, *arguments: Any, stream: Any = None) -> None:
        """Queue the kernel with its own block, and a grid that covers C; see `__call__`."""
        self(*arguments, stream=stream)

    # -- a product of NumPy arrays ----------------------------------------

    def _is_whole_product(self, arguments: Sequence[Any]) -> bool:
        both = len(arguments) == 2 and all(isinstance(a, np.ndarray) for a in arguments)
        return both and self.signature.is_product

    def _product(self, A: np.ndarray, B: np.ndarray, **launch: Any) -> NDArray[np.float32]:
        """C = A * B of NumPy arrays, as `helpers.kernels.Kernel` does it."""
        check_matrix("A", A)
        check_matrix("B", B)
        if A.shape[1] != B.shape[0]:
            raise WrongValue(f"A has {A.shape[1]} columns and B has {B.shape[0]} rows (shapes "
                             f"{A.shape} and {B.shape}): they must be equal")  # fmt: skip
        M, N, K = (np.int32(size) for size in (A.shape[0], B.shape[1], A.shape[1]))
        with upload(A) as dA, upload(B) as dB, allocate((int(M), int(N))) as dC:
            self(dA, dB, dC, M, N, K, **launch)
            return dC.download()

    # -- what keeps a launch from going wrong ----------------------------------------

    def _check_resources(self, function: Any, block: Shape, shared: int) -> None:
        """What depends on the compiled kernel."""
        cuda = driver()
        attribute, most_of = cuda.function_attribute, cuda.device_attribute
        threads, most = math.prod(block), function.max_threads_per_block
        if threads > most and most < self._room(function.num_regs):
            raise LaunchFailed(
                f"kernel {self.name} is compiled for blocks of at most {most} threads, by its "
                f"__launch_bounds__, and block={block} has {threads:,}: take a smaller block, or "
                f"write __launch_bounds__({threads})"
            )
        if threads > most:
            raise LaunchFailed(
                f"kernel {self.name} uses {function.num_regs} registers a thread, which leaves "
                f"room for blocks of at most {most} threads, and block={block} has {threads:,} "
                "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES): take a smaller block, or write "
                f"__launch_bounds__({threads}) in front of the kernel's name, and the compiler "
                "makes do with fewer registers"
            )
        static = function.shared_size_bytes
        device = cuda.Context.get_device()
        usual = device.get_attribute(most_of.MAX_SHARED_MEMORY_PER_BLOCK)
        limit = device.get_attribute(most_of.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        if static + shared > limit:
            raise LaunchFailed(
                f"kernel {self.name}: shared={shared:,} bytes and {static:,} that it declares are "
                f"more than the {limit:,} that a block has on this device: take smaller tiles"
            )
        if shared and static + shared > usual:  # the device wants to be told that it is meant
            function.set_attribute(attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)

    @staticmethod
    def _room(registers: int) -> int:
        """The threads of the largest block that have as many registers each. A warp is given them
        in units of 256, 8 for each lane (CUDA's occupancy calculator)."""
        cuda = driver()
        most = cuda.Context.get_device().get_attribute(
            cuda.device_attribute.MAX_REGISTERS_PER_BLOCK
        )
        return min(MOST_THREADS, most // (max(1, -(-registers // 8)) * 256) * 32)

    def _tries(self, arguments: Sequence[Any], grid: Shape, block: Shape, shared: int) -> bool:
        """Tries a launch in the engine if it is the first with these sizes. Returns whether it was.

        Raises simt.Fault, LaunchFailed.
        """
        key = tuple(map(_what_decides, arguments)), grid, block, shared
        if key in self._tried:
            return False
        self._try(arguments, grid, block, shared)
        if len(self._tried) >= KEPT:
            self._tried.clear()
        self._tried.add(key)
        return True

    def _try(self, arguments: Sequence[Any], grid: Shape, block: Shape, shared: int) -> None:
        """Run the launch in the engine, on copies."""
        from helpers.replica import replica  # which knows bound kernels

        run = replica(self, *arguments, grid=grid, block=block, shared=shared).prepare()
        try:
            with time_limit(PATIENCE, self.name):
                run.function.launch(*run.launch)
        except simt.Unsupported:  # the engine cannot tell; a GPU can run it
            return
        except simt.Fault as fault:
            run.explain(fault)
            raise
        except TimeIsUp as stopped:
            raise LaunchFailed(
                f"{stopped} It was tried in the engine, and did not go to the GPU. If it is only "
                "large, run it once with smaller sizes, then give check=False."
            ) from None

    def _in_words(self, said: str, arguments: Sequence[Any]) -> str:
        """What the driver says of a launch, with the names of arguments for their addresses."""
        text = said.partition(" failed: ")[2] or said
        text = re.sub(r"\b_Z\w+", lambda symbol: plain_name(symbol[0]), text)
        pairs = zip(self.signature.parameters or (), arguments, strict=False)
        text = with_names(text, {_start_of(a): p.name for p, a in pairs if p.pointer and p.name})
        if self.name not in text:
            text = f"kernel {self.name}: {text}"
        if backend() == "gpu" and any(sign in text for sign in _LOST):
            text += (
                ". The GPU has given up this notebook's context, and everything in it: restart the "
                "notebook's kernel (Kernel > Restart Kernel). MATMUL_BACKEND=cpu in front of the "
                "command that starts Jupyter runs it where the line and thread are told."
            )
        return text


def bind(
    source: str, file: str | Path = "kernel.cu", *, options: Sequence[str] = (), **shape: Any
) -> dict[str, BoundKernel]:
    """The kernels of a source, compiled and bound, by name.

    shape: block, tile, rows_on_x, shared_bytes. Raises CompileFailed; Told for a source without a
    kernel.
    """
    found, others = bind_all(source, file, options=options, **shape)[:2]
    if not found:
        raise NoKernel("there is no kernel in it that can be bound: write one as __global__ void "
                       "name(…) { … }" + "".join(f". {why}" for why in others))  # fmt: skip
    return found


def bind_all(
    source: str, file: str | Path, *, options: Sequence[str] = (), **shape: Any
) -> tuple[dict[str, BoundKernel], list[str], tuple[str, ...]]:
    """As `bind`: the kernels by name, why others are not bound, and nvcc's warnings."""
    path = Path(file)
    text = source if source.startswith("#line") else f'#line 1 "{path.name}"\n{source}'
    module = compiled(text, options)
    written: dict[str, list[Signature]] = {}
    for signature in signatures(text, options):
        written.setdefault(signature.name, []).append(signature)
    for name in module.symbols:  # a macro has made it
        written.setdefault(name, [Signature(name, 0, None)])
    found, others = {}, []
    for name, versions in written.items():
        signature = versions[0]
        if len(versions) > 1:  # of an #if, probably: which of them it is, only nvcc knows
            signature = replace(signature, parameters=None)
        obstacle = _obstacle(signature, module)
        if obstacle:
            others.append(obstacle)
        else:
            found[name] = BoundKernel(signature, text, path, module, options=options, **shape)
    return found, others, module.warnings


def _obstacle(signature: Signature, module: Compiled) -> str | None:
    """Why a kernel cannot be bound."""
    name, count = signature.name, len(module.symbols.get(signature.name, ()))
    if count > 1:
        return (f"{name} is not bound: there are {count} of it, for different types. Give them "
                "different names")  # fmt: skip
    if signature.template and not count:
        return (f"{name} is not bound: it is a template, of which nvcc makes no kernel before it "
                f"is given its types, e.g. template __global__ void {name}<float>(…);")
    try:
        module.function(name)
    except driver().LogicError:
        return f"{name} is not bound: nvcc has made no kernel of it"
    return None


class NoKernel(Told, ValueError):
    """A source without a kernel that could be launched."""


def _checked_tile(tile: Any, block: Shape | None) -> tuple[int, int] | None:
    """Rows and columns of C for each block; by default one element for each thread."""
    if tile is None:
        return None if block is None or block[2] != 1 else (block[1], block[0])
    sizes = tuple(tile) if isinstance(tile, (tuple, list)) else (tile,)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sizes):
        raise WrongValue(f"tile={tile!r}: write the rows and columns of C that a block computes, "
                         "e.g. tile=(32, 32)")  # fmt: skip
    if len(sizes) not in (1, 2):
        raise WrongValue(f"tile={tile!r} has {len(sizes)} sizes: write rows and columns")
    return (sizes[0], sizes[-1])


def with_names(text: str, names: dict[int, str]) -> str:
    """What the engine says of an access, with the name of the argument for its address.

    names: by the address at which an argument's memory starts.
    """
    inside = _ALLOCATION.search(text)
    name = names.get(int(inside[2], 16)) if inside else None
    if not name:
        return text
    text = text.replace(inside[0], f"{name} ({inside[1]} bytes)")
    return re.sub(r" at 0x[0-9a-f]+,", ",", text)


def _start_of(argument: Any) -> int:
    """The address that an argument is."""
    try:
        return int(getattr(argument, "gpudata", argument))
    except (TypeError, ValueError):
        return 0


def _what_decides(argument: Any) -> Any:
    """What about an argument decides which accesses are inside its memory: a number's value; of
    memory, how much of its allocation there is before and after the address."""
    if hasattr(argument, "array"):  # pycuda.driver.In, Out, InOut
        return argument.array.nbytes
    if isinstance(argument, np.ndarray):
        return argument.tobytes()
    if isinstance(argument, np.generic) and argument.nbytes != 8:
        return argument.tobytes()
    cuda, address = driver(), _start_of(argument)
    try:
        start, nbytes = cuda.mem_get_address_range(address)
    except (cuda.Error, OverflowError, TypeError):  # a number of 64 bits
        return getattr(argument, "tobytes", argument.__repr__)()
    return address - int(start), int(nbytes)
