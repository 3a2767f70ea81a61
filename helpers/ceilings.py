"""What the current card can do at best, measured by the kernels of cuda/05_ceilings.cu.

    ceilings = measure_ceilings()
    print(ceilings)

A copy of an array much larger than the L2 cache gives the rate of the memory, one of an array that
fits gives that of the L2 cache; both count every byte twice, read and written. FMAs on registers
give the FLOP/s. A chase, each load at the address that the last one found, gives the latencies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from helpers.cards import this_card
from helpers.kernels import CUDA_FOLDER
from helpers.memory import allocate, driver, upload
from helpers.plausible import check_rate
from helpers.timing import L2Flush, backend, benchmark

FILE = CUDA_FOLDER / "05_ceilings.cu"
CHAINS = 8  # as in the file
BLOCK = 256
BLOCKS_A_MULTIPROCESSOR = 8
FMA_STEPS = 4096
L2_TIMES = 20  # copies in one launch: about 50 microseconds instead of 3
LINE = 128  # bytes: each load of a chase is of another line
SECONDS = 0.2


class WrongResult(RuntimeError):
    """A kernel of the ceilings did not do its work."""


@dataclass(frozen=True)
class Ceilings:
    """The best that was measured. Rates a second, latencies in cycles of one load."""

    flops: float  # FP32 operations
    memory_rate: float  # bytes read and written
    l2_rate: float  # bytes read and written in an array that fits
    l2_latency: float
    memory_latency: float
    backend: str

    def to_dict(self) -> dict[str, Any]:
        """As plain values, rates and latencies to five digits."""
        found = asdict(self)
        return {k: v if k == "backend" else float(f"{v:.5g}") for k, v in found.items()}

    def __str__(self) -> str:
        whose = "" if self.backend == "gpu" else " (of this CPU; they say nothing about a GPU)"
        return (
            f"{self.flops / 1e12:.1f} TFLOP/s FP32; {self.memory_rate / 1e9:,.0f} GB/s from memory "
            f"in {self.memory_latency:,.0f} cycles, {self.l2_rate / 1e9:,.0f} GB/s from the L2 "
            f"cache in {self.l2_latency:,.0f} cycles{whose}"
        )


def measure_ceilings(*, seconds: float = SECONDS) -> Ceilings:
    """Measure them all. On the CPU driver small arrays do: the figures are those of a CPU.

    Raises WrongResult where a kernel did not do its work, helpers.plausible.Impossible for a rate
    that the card cannot have.
    """
    gpu, card = backend() == "gpu", this_card()
    l2 = card.l2_bytes if gpu else 1 << 20
    memory_ms, memory_bytes = copy(8 * l2, 1, seconds)
    l2_ms, l2_bytes = copy(l2 // 4, L2_TIMES if gpu else 2, seconds)
    fma_ms, flops = fma(card.multiprocessors if gpu else 2, FMA_STEPS if gpu else 64, seconds)
    if gpu:
        check_rate(flops, 0, fma_ms, card)
        check_rate(0, memory_bytes, memory_ms, card)
    return Ceilings(
        flops / (fma_ms * 1e-3),
        memory_bytes / (memory_ms * 1e-3),
        l2_bytes / (l2_ms * 1e-3),
        chase(l2 // 4, l2 // LINE),
        chase(4 * l2, 50_000, cold=True),
        backend(),
    )


def copy(nbytes: int, times: int = 1, seconds: float = SECONDS) -> tuple[float, float]:
    """(milliseconds, bytes read and written) of a copy in that many bytes, a half of them each.

    times: how often the copy is made in one launch.
    """
    count = max(nbytes // 2 // 16, 1)  # float4s
    values = np.arange(4 * count, dtype=np.uint32).view(np.float32)
    with upload(values) as source, allocate((4 * count,)) as target:
        run = _function("ceiling_copy")
        blocks = min(-(-count // BLOCK), 64 * this_card().multiprocessors)

        def launch() -> None:
            run(source, target, np.int32(count), np.int32(times), block=(BLOCK, 1, 1),
                grid=(blocks, 1))  # fmt: skip

        timing = benchmark(launch, seconds=seconds, least=5)
        if not np.array_equal(target.download().view(np.uint32), values.view(np.uint32)):
            raise WrongResult("ceiling_copy: the copy differs from the original")
    return timing.median_ms, 2.0 * 16 * count * times


def fma(multiprocessors: int, steps: int = FMA_STEPS, seconds: float = SECONDS) -> tuple:
    """(milliseconds, FP32 operations) of FMAs on every multiprocessor."""
    x, y = 1.0, 0.5
    blocks = BLOCKS_A_MULTIPROCESSOR * multiprocessors
    with upload(np.array([x, y], np.float32)) as given, allocate((BLOCK,)) as out:
        run = _function("ceiling_fma")

        def launch() -> None:
            run(given, out, np.int32(steps), block=(BLOCK, 1, 1), grid=(blocks, 1))

        timing = benchmark(launch, seconds=seconds, least=5)
        got = float(out.download()[0])
        expected = sum(y * c + y * steps for c in range(CHAINS))  # of thread 0, exact in FP32
        if got != expected:
            raise WrongResult(f"ceiling_fma: the sum is {got}, not {expected}")
    return timing.median_ms, 2.0 * CHAINS * steps * BLOCK * blocks


def chase(nbytes: int, steps: int, *, cold: bool = False) -> float:
    """Cycles of a load that depends on the one before, in an array of that many bytes.

    The array is gone through in one cycle of random order, a load from each line of 128 bytes. It
    has been gone through once before it counts, so what fits in the L2 cache is found there; with
    `cold` the cache has been overwritten instead.
    """
    words = LINE // 4
    lines = max(nbytes // LINE, 2)
    order = np.random.default_rng(1).permutation(lines).astype(np.uint32)
    following = np.zeros((lines, words), np.uint32)
    following[order, 0] = np.roll(order, -1) * words
    run = _function("ceiling_chase")
    with upload(following) as array, allocate((2,), np.uint64, fill=0) as found:
        for count in (1 if cold else lines, steps):
            if cold:
                L2Flush(driver())()
            run(array, found, np.uint32(order[0] * words), np.int32(count), block=(1, 1, 1),
                grid=(1, 1))  # fmt: skip
            cycles, end = found.download()
            if end != order[count % lines] * words:
                raise WrongResult(f"ceiling_chase: it ended at {end}")
    return float(cycles) / steps


def _function(name: str) -> Callable[..., None]:
    from pycuda.compiler import SourceModule

    driver()
    text = f'#line 1 "{FILE.name}"\n' + FILE.read_text(encoding="utf-8")
    return SourceModule(text).get_function(name)
