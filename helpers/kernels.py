"""The kernels of the lessons, by name: what a kernel needs to be compiled and launched.

    C = KERNELS["tiled"](A, B)                               # NumPy arrays in, NumPy array out
    KERNELS["tiled"].launch(dA, dB, dC, M, N, K)             # device memory, asynchronous

All of them compute C = A * B for row-major FP32 matrices, A of M x K, B of K x N, C of M x N.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.best import Constants, chosen
from helpers.cards import CARDS
from helpers.errors import WrongType, WrongValue
from helpers.memory import allocate, driver, upload
from helpers.sizes import MAX_SIZE, checked_size
from helpers.timing import backend

CUDA_FOLDER = Path(__file__).resolve().parent.parent / "cuda"

# CUDA Programming Guide, technical specifications per compute capability: blocks along y. Along x
# there may be 2**31 - 1, more than any size here needs.
MAX_GRID_Y = 65535
DEFAULT_SHARED_BYTES = 48 * 1024  # a kernel must ask for more (the same guide)
STAGE_BYTES = 24_832  # of shared memory, for each stage of the kernel "pipelined"
H200_MULTIPROCESSORS = CARDS["H200"].multiprocessors


@dataclass(frozen=True)
class Kernel:
    """One matrix product: where its source is, and its launch shape."""

    name: str
    file: Path
    entry: str  # the function in `file`
    lesson: int
    block: tuple[int, int, int] = (32, 32, 1)  # threads of a block along x, y, z
    tile: tuple[int, int] = (32, 32)  # rows and columns of C that one block computes
    rows_on_x: bool = False  # whether blockIdx.x walks rows of C; else it walks columns
    shared_bytes: int = 0  # dynamic shared memory of a block, besides what the source declares
    options: tuple[str, ...] = ()  # for nvcc
    blocks: int = 0  # of the grid, where they share all tiles of C; 0: a block for each tile

    @property
    def source(self) -> str:
        """The file's text now, with a first line that makes the compiler call it by its name."""
        state = self.file.stat()
        return _source(self.file, state.st_mtime_ns, state.st_size)

    def grid(self, M: int, N: int) -> tuple[int, int, int]:
        """Blocks along x, y, z for a C of M x N.

        Raises TypeError or ValueError for what is no size, or more than the device can launch.
        """
        M, N = checked_size("M", M), checked_size("N", N)
        if self.blocks:
            return self.blocks, 1, 1
        rows, columns = -(-M // self.tile[0]), -(-N // self.tile[1])
        x, y = (rows, columns) if self.rows_on_x else (columns, rows)
        if y > MAX_GRID_Y:
            size, step = ("N", self.tile[1]) if self.rows_on_x else ("M", self.tile[0])
            raise WrongValue(
                f"kernel {self.name!r}: M={M}, N={N} needs {y:,} blocks along y, a grid has at "
                f"most {MAX_GRID_Y:,}: keep {size} <= {MAX_GRID_Y * step:,}, e.g. by computing C "
                "in parts"
            )
        return x, y, 1

    def at(self, M: int, N: int, K: int) -> Kernel:
        """The kernel that computes a product of that size: this one, but for KERNELS["best"]."""
        return self

    def function(self) -> Any:
        """The compiled `pycuda.driver.Function`, for the current context.

        Compiled on first use, and again when the file has changed. Raises
        `helpers.sandbox.CompileFailed` with the compiler's messages.
        """
        driver()
        return _compiler()(self.source, self.entry, self.options, self.shared_bytes)

    def launch(self, dA: Any, dB: Any, dC: Any, M: int, N: int, K: int, stream: Any = None) -> None:
        """Queue C = A * B on `stream` (None: the default stream) and return at once.

        dA, dB and dC are `DeviceArray`s, PyCUDA `GPUArray`s, `DeviceAllocation`s or addresses as
        integers. Where an array knows its shape and dtype they are checked; an address is trusted.
        Raises TypeError or ValueError that names the argument.
        """
        self.launcher(dA, dB, dC, M, N, K, stream)()

    def launcher(
        self, dA: Any, dB: Any, dC: Any, M: int, N: int, K: int, stream: Any = None
    ) -> Callable[[], None]:
        """What queues C = A * B each time it is called. All that `launch` does besides is done
        here, once: where launches follow each other faster than a hundred microseconds, the GPU
        would wait for it.

        Arguments, and what is raised, as for `launch`; the caller keeps the arrays.
        """
        grid = self.grid(M, N)
        M, N, K = int(M), int(N), checked_size("K", K)
        function = self.function()
        arguments = checked_addresses(dA, dB, dC, M, N, K) + [np.int32(n) for n in (M, N, K)]
        if stream is not None and not isinstance(stream, driver().Stream):
            raise WrongType(f"stream={stream!r} is no stream: give a pycuda.driver.Stream, or None")
        shape = {"block": self.block, "grid": grid, "shared": self.shared_bytes, "stream": stream}

        def queue() -> None:
            if self.blocks:
                _one_after_another(function, stream)
            function(*arguments, **shape)

        return queue

    def __call__(self, A: NDArray[np.float32], B: NDArray[np.float32]) -> NDArray[np.float32]:
        """C = A * B for C-contiguous float32 arrays of shapes (M, K) and (K, N).

        Raises TypeError or ValueError that names the argument, its value and what to write instead.
        """
        check_matrix("A", A)
        check_matrix("B", B)
        (M, K), N = A.shape, B.shape[1]
        if B.shape[0] != K:
            raise WrongValue(
                f"A has {K} columns and B has {B.shape[0]} rows (shapes {A.shape} and {B.shape}): "
                f"they must be equal; {_transpose_hint(A, B)}"
            )
        self.grid(M, N)  # before anything is copied
        with upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
            self.launch(dA, dB, dC, M, N, K)
            return dC.download()


@dataclass(frozen=True)
class Best(Kernel):
    """A kernel that is another one for each size: the fastest constants of cuda/09_last_percent.cu
    that helpers.best knows. As a Kernel itself it is the one with the file's own constants."""

    def at(self, M: int, N: int, K: int) -> Kernel:
        """The kernel with the constants for that size."""
        M, N, K = (checked_size(*size) for size in (("M", M), ("N", N), ("K", K)))
        return _best_at(M, N, K, *_card())

    def launcher(
        self, dA: Any, dB: Any, dC: Any, M: int, N: int, K: int, stream: Any = None
    ) -> Callable[[], None]:
        """As Kernel.launcher, with the constants for that size."""
        return self.at(M, N, K).launcher(dA, dB, dC, M, N, K, stream)


def last_percent(constants: Constants, blocks: int | None = None) -> Kernel:
    """The kernel of lesson 9 with these constants.

    blocks: of the grid; None: as many as the GPU runs at one time (on the CPU driver, the H200).
    Raises WrongType or WrongValue for what is neither.
    """
    if not isinstance(constants, Constants):
        raise WrongType(f"constants={constants!r}: give helpers.best.Constants(BM=128, BN=256, …), "
                        "or chosen(M, N, K)")  # fmt: skip
    if blocks is None:
        blocks = _card()[1] * constants.RESIDENT
    blocks = checked_size("blocks", blocks)
    return Kernel(
        f"best_{constants.BM}x{constants.BN}x{constants.BK}",
        CUDA_FOLDER / "09_last_percent.cu",
        "matmul_best",
        lesson=9,
        block=(constants.threads, 1, 1),
        tile=(constants.BM, constants.BN),
        shared_bytes=constants.shared_bytes,
        options=constants.options(blocks),
        blocks=blocks,
    )


@functools.lru_cache(maxsize=256)
def _best_at(M: int, N: int, K: int, card: str | None, multiprocessors: int) -> Kernel:
    constants = chosen(M, N, K, card)
    return last_percent(constants, multiprocessors * constants.RESIDENT)


def _card() -> tuple[str | None, int]:
    """The GPU's name and multiprocessors; without one None, for the first on record, and its."""
    if backend() != "gpu":
        return None, H200_MULTIPROCESSORS
    return _described(driver().Context.get_device())


@functools.cache
def _described(device: Any) -> tuple[str, int]:
    return device.name(), device.get_attribute(driver().device_attribute.MULTIPROCESSOR_COUNT)


#: The stream of the last launch of each function whose launches share memory on the device.
_last_streams: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _one_after_another(function: Any, stream: Any) -> None:
    """Let a launch on another stream than the last wait for that one: what a block leaves for the
    next lies in one place for all launches of a function."""
    before = _last_streams.get(function, stream)
    if before is not stream:
        event = driver().Event()
        event.record(before)
        if stream is None:
            event.synchronize()
        else:
            stream.wait_for_event(event)
    _last_streams[function] = stream


def check_by_tile(kernel: Kernel) -> None:
    """Raise WrongValue for a kernel whose blocks share the tiles of C: nothing models these."""
    if kernel.blocks:
        raise WrongValue(
            f"kernel {kernel.name!r}: its blocks share all tiles of C, and the model is of kernels "
            f"with a block for each tile: {', '.join(BY_TILE)}"
        )


def allow_shared(function: Any, nbytes: int) -> None:
    """Ask for that much dynamic shared memory for a kernel, if it is more than any kernel may have
    unasked."""
    if nbytes > DEFAULT_SHARED_BYTES:
        most = driver().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        function.set_attribute(most, nbytes)


def check_matrix(name: str, matrix: Any) -> None:
    """Raise unless `matrix` is what a kernel can read: 2-D, float32, C-contiguous, not empty."""
    if not isinstance(matrix, np.ndarray):
        raise WrongType(
            f"{name} is a {type(matrix).__name__}, not a NumPy array: "
            f"write np.array({name}, dtype=np.float32)"
        )
    if np.ma.isMaskedArray(matrix):
        raise WrongType(
            f"{name} is a masked array, and its mask would be lost: write {name}.filled(0)"
        )
    if matrix.dtype != np.float32:
        raise WrongType(
            f"{name} has dtype {matrix.dtype}, the kernel reads float32: "
            f"write {name}.astype(np.float32)"
        )
    if matrix.ndim != 2:
        raise WrongValue(
            f"{name} has shape {matrix.shape}, {matrix.ndim}-D instead of 2-D: write "
            f"{name}.reshape(rows, columns); {name}.reshape(1, -1) is one row"
        )
    if matrix.size == 0:
        raise WrongValue(
            f"{name} has shape {matrix.shape}: M, N and K must be at least 1; "
            "the product of empty matrices is np.zeros((M, N), np.float32)"
        )
    for size in matrix.shape:
        if size > MAX_SIZE:
            raise WrongValue(f"{name} has shape {matrix.shape}: a side is at most {MAX_SIZE:,}")
    if not matrix.flags.c_contiguous:
        order = "Fortran order (column-major)" if matrix.flags.f_contiguous else "gaps"
        raise WrongValue(
            f"{name} of shape {matrix.shape} has {order}, strides {matrix.strides}; the kernel "
            f"reads rows without gaps: write np.ascontiguousarray({name})"
        )


def checked_addresses(dA: Any, dB: Any, dC: Any, M: int, N: int, K: int) -> list[np.uintp]:
    """The device addresses of a product's matrices; TypeError or ValueError as `Kernel.launch`."""
    M, N, K = checked_size("M", M), checked_size("N", N), checked_size("K", K)
    addresses = [
        _checked_address(*argument)
        for argument in (("dA", dA, (M, K)), ("dB", dB, (K, N)), ("dC", dC, (M, N)))
    ]
    if addresses[2] in addresses[:2]:
        raise WrongValue(
            "dC is the same memory as dA or dB: the kernel would read what it has already "
            "overwritten; allocate C for itself"
        )
    return addresses


def tiled(tile: int, name: str = "tiled") -> Kernel:
    """A kernel with another tile, compiled with -DTILE=tile; a block has tile² threads.

    name: "tiled" or one of the kernels of lesson 3.
    """
    size = checked_size("tile", tile)
    if size > 32:
        raise WrongValue(f"tile={tile}: a block of {size}² threads is more than the 1024 allowed")
    return dataclasses.replace(
        KERNELS[name],
        name=f"{name}_{size}",
        block=(size, size, 1),
        tile=(size, size),
        options=(f"-DTILE={size}",),
    )


def register_tile(BM: int = 128, BN: int = 128, BK: int = 8, TM: int = 8, TN: int = 8) -> Kernel:
    """Lesson 6's tile with other constants: a block computes BM x BN elements of C and goes BK
    along K in a step, a thread computes TM x TN. Raises ValueError for what no block can be."""
    sizes = {"BM": BM, "BN": BN, "BK": BK, "TM": TM, "TN": TN}
    sizes = {name: checked_size(name, size) for name, size in sizes.items()}
    if BM % TM or BN % TN:
        raise WrongValue(f"BM={BM} and BN={BN} must be multiples of TM={TM} and TN={TN}")
    if BM // TM * (BN // TN) > 1024:
        raise WrongValue(f"BM={BM}, BN={BN}, TM={TM}, TN={TN}: a block of {BN // TN} x {BM // TM} "
                         "threads is more than the 1024 allowed")  # fmt: skip
    return dataclasses.replace(
        KERNELS["register_tile"],
        name=f"register_tile_{BM}x{BN}x{BK}_{TM}x{TN}",
        block=(BN // TN, BM // TM, 1),
        tile=(BM, BN),
        options=tuple(f"-D{name}={size}" for name, size in sizes.items()),
    )


def pipelined(stages: int) -> Kernel:
    """The kernel "pipelined" with another number of stages, compiled with -DSTAGES=stages."""
    count = checked_size("stages", stages)
    usual = KERNELS["pipelined"]
    if count < 2:
        raise WrongValue(f"stages={stages}: at least 2, one to compute with and one to be filled")
    return dataclasses.replace(
        usual,
        name=f"pipelined_{count}",
        shared_bytes=count * STAGE_BYTES,
        options=(f"-DSTAGES={count}",),
    )


@functools.lru_cache(maxsize=64)
def _source(file: Path, mtime_ns: int, size: int) -> str:
    """The text of `file`, read once for each state of the file: a launch should cost little."""
    return f'#line 1 "{file.name}"\n' + file.read_text(encoding="utf-8")


@functools.cache
def _compiler() -> Callable[[str, str, tuple[str, ...], int], Any]:
    """A function from (source, entry, nvcc options, dynamic shared memory) to a kernel; remembers
    them for each context.

    Made late, since PyCUDA can only be imported once a driver is loaded.
    """
    from pycuda.tools import context_dependent_memoize

    from helpers.compiling import compiled

    @context_dependent_memoize
    def module(source: str, options: tuple[str, ...]) -> Any:
        return compiled(source, options, cache=True)

    @context_dependent_memoize
    def function(source: str, entry: str, options: tuple[str, ...], shared_bytes: int) -> Any:
        found = module(source, options).function(entry)
        allow_shared(found, shared_bytes)
        return found

    return function


def _transpose_hint(A: NDArray[Any], B: NDArray[Any]) -> str:
    if B.shape[1] == A.shape[1]:
        return "for A times B transposed write np.ascontiguousarray(B.T)"
    if A.shape[0] == B.shape[0]:
        return "for A transposed times B write np.ascontiguousarray(A.T)"
    return "give A of shape (M, K) and B of shape (K, N)"


def _checked_address(name: str, memory: Any, shape: tuple[int, int]) -> np.uintp:
    if isinstance(memory, np.ndarray):
        raise WrongType(
            f"{name} is a NumPy array, which lives in host memory: write upload({name}) "
            "(helpers.memory), or call the kernel with the arrays A and B"
        )
    if hasattr(memory, "gpudata"):
        _check_device_array(name, memory, shape)
        memory = memory.gpudata
    try:
        address = int(memory)
    except (TypeError, ValueError):
        address = 0
    if address <= 0 or isinstance(memory, bool | float | str):
        raise WrongType(f"{name}={memory!r} is no device memory: write upload(…) or allocate(…)")
    return np.uintp(address)


def _check_device_array(name: str, array: Any, shape: tuple[int, int]) -> None:
    if array.dtype != np.float32:
        raise WrongType(f"{name} has dtype {array.dtype}, the kernel reads and writes float32")
    flat = len(array.shape) == 1 and array.size >= shape[0] * shape[1]
    if tuple(array.shape) != shape and not flat:
        raise WrongValue(
            f"{name} has shape {tuple(array.shape)}, but M, N, K make it {shape[0]} x {shape[1]}: "
            "check the order of the sizes (M, N, K)"
        )
    if not getattr(getattr(array, "flags", None), "c_contiguous", True):
        raise WrongValue(f"{name} is not C-contiguous: the kernel reads rows without gaps")


_TABLE = (
    Kernel("naive", CUDA_FOLDER / "01_naive.cu", "matmul_naive", lesson=1),
    Kernel(
        "naive_uncoalesced",
        CUDA_FOLDER / "01_naive.cu",
        "matmul_naive_uncoalesced",
        lesson=1,
        rows_on_x=True,
    ),
    Kernel("tiled", CUDA_FOLDER / "02_tiled.cu", "matmul_tiled", lesson=2),
    *(
        Kernel(name, CUDA_FOLDER / "03_bank_conflicts.cu", entry, lesson=3)
        for name, entry in (
            ("tiled_conflict", "matmul_tiled_conflict"),
            ("padded", "matmul_tiled_padded"),
            ("swizzled", "matmul_tiled_swizzled"),
        )
    ),
    *(
        Kernel(
            name, CUDA_FOLDER / file, f"matmul_{name}", int(file[:2]), block, tile,
            shared_bytes=shared,
        )
        for name, file, block, tile, shared in (
            ("register_column", "06_register_tile.cu", (64, 8, 1), (64, 64), 0),
            ("register_tile", "06_register_tile.cu", (16, 16, 1), (128, 128), 0),
            ("vectorized", "07_vectorized.cu", (16, 16, 1), (128, 128), 0),
            ("warp_tile", "07_vectorized.cu", (16, 16, 1), (128, 128), 0),
            ("double_buffered", "08_pipeline.cu", (256, 1, 1), (128, 128), 0),
            ("pipelined", "08_pipeline.cu", (256, 1, 1), (128, 256), 4 * STAGE_BYTES),
        )
    ),
    Best(**vars(last_percent(Constants(), H200_MULTIPROCESSORS)) | {"name": "best"}),
)  # fmt: skip

#: Every kernel by name, in the order of the lessons. A later lesson adds a row to the table.
KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in _TABLE}

#: Those with a block for each tile of C. helpers.predict, reuse and roofline have a model of these.
BY_TILE: dict[str, Kernel] = {
    name: kernel for name, kernel in KERNELS.items() if not kernel.blocks
}

#: What lessons show recorded times of besides: blocks of 16 x 16 with two barriers a step, and one;
#: that one with the usual tile, and with the loads ahead; and the pipeline with fewer stages.
MEASURED: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        tiled(16),
        *(
            Kernel(
                name,
                CUDA_FOLDER / "04_syncthreads.cu",
                "matmul_tiled_two_buffers",
                lesson=4,
                block=(tile, tile, 1),
                tile=(tile, tile),
                options=(f"-DTILE={tile}",),
            )
            for name, tile in (("two_buffers_16", 16), ("two_buffers", 32))
        ),
        Kernel(
            "tiled_double_buffered",
            CUDA_FOLDER / "08_tiled_pipeline.cu",
            "matmul_tiled_double_buffered",
            lesson=8,
        ),
        *(pipelined(stages) for stages in (2, 3)),
    )
}
