"""What is known of a GPU: its units, clocks and memory, for ceilings, predictions and refusals.

    CARDS["A100"].flops             # 1.95e13, the most FP32 operations a second
    this_card()                     # the same of the device of the current context, from its driver

Public figures come from NVIDIA's data sheets and architecture white papers, each row with its own;
latencies from measurements that were published. A figure that nobody has published is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.errors import NotOnRecord
from helpers.memory import driver
from helpers.nvml import Meter

#: FP32 units of a multiprocessor (CUDA C++ Programming Guide, "Arithmetic Instructions", results
#: per clock cycle of 32-bit floating-point add, multiply, multiply-add).
FP32_UNITS = {(7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128, (9, 0): 128,
              (10, 0): 128, (12, 0): 128}  # fmt: skip
FLOPS_OF_FMA = 2


@dataclass(frozen=True)
class Card:
    """A GPU. Rates are the highest that its clocks allow; latencies in cycles of one load."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float  # the highest of the multiprocessors
    memory_rate: float  # bytes a second of device memory
    l2_bytes: int
    source: str  # of all the above
    l2_bytes_per_clock: float | None = None  # of the whole card
    l2_latency: float | None = None  # a load that the L2 cache serves
    memory_latency: float | None = None  # a load that device memory serves
    shared_latency: float | None = None  # a load from shared memory
    latency_source: str = ""

    @property
    def fp32_units(self) -> int:
        """FP32 units of one multiprocessor. KeyError for a capability that is not in the table."""
        return FP32_UNITS[self.capability]

    @property
    def flops(self) -> float:
        """FP32 operations a second with every unit doing an FMA in every cycle."""
        return self.multiprocessors * self.fp32_units * FLOPS_OF_FMA * self.clock_hz

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.multiprocessors} multiprocessors at {self.clock_hz / 1e6:,.0f} "
            f"MHz, {self.flops / 1e12:.1f} TFLOP/s, {self.memory_rate / 1e9:,.0f} GB/s"
        )


_HOPPER = "Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024, " \
          "arXiv:2402.13499, Table IV"  # fmt: skip
MIB = 1 << 20

_TABLE = (
    Card("H200", (9, 0), 132, 1.98e9, 4.8e12, 60 * MIB,
         "NVIDIA H200 data sheet (67 TFLOP/s FP32, 4.8 TB/s); clock, multiprocessors and L2 as the "
         "driver reports them",
         None, 263.0, 478.8, 29.0, _HOPPER + ", measured on an H800 PCIe, which has the same chip"),
    Card("H100", (9, 0), 132, 1.98e9, 3.35e12, 50 * MIB,
         "NVIDIA H100 SXM data sheet (67 TFLOP/s FP32, 3.35 TB/s); H100 white paper, Table 3 (132 "
         "multiprocessors, 50 MB L2); the clock is what makes the 67 TFLOP/s",
         None, 263.0, 478.8, 29.0, _HOPPER + ", measured on an H800 PCIe, which has the same chip"),
    Card("A100", (8, 0), 108, 1.41e9, 2.039e12, 40 * MIB,
         "NVIDIA A100 80 GB SXM data sheet (19.5 TFLOP/s FP32, 2,039 GB/s); A100 white paper, "
         "Table 4 (108 multiprocessors, 1410 MHz, 40 MB L2) and \"A100 L2 Cache\" (5,120 bytes a "
         "clock read)",
         5120.0, 261.5, 466.3, 29.0, _HOPPER + ", measured on an A100 PCIe"),
    Card("L4", (8, 9), 58, 2.04e9, 3.0e11, 48 * MIB,
         "NVIDIA L4 data sheet (30.3 TFLOP/s FP32, 300 GB/s); multiprocessors and clock as the "
         "driver reports them; Ada white paper (48 MB L2 of an AD104)"),
    Card("T4", (7, 5), 40, 1.59e9, 3.2e11, 4 * MIB,
         "NVIDIA T4 data sheet (8.1 TFLOP/s FP32); Turing white paper (40 multiprocessors, 1590 "
         "MHz, 320 GB/s, 4 MB L2)"),
    Card("RTX 3090", (8, 6), 82, 1.695e9, 9.36e11, 6 * MIB,
         "NVIDIA GA102 white paper (82 multiprocessors, 1695 MHz, 35.6 TFLOP/s FP32, 936 GB/s, "
         "6 MB L2)"),
    Card("RTX 4090", (8, 9), 128, 2.52e9, 1.008e12, 72 * MIB,
         "NVIDIA Ada white paper (128 multiprocessors, 2520 MHz, 82.6 TFLOP/s FP32, 1,008 GB/s, "
         "72 MB L2)",
         None, 273.0, 541.5, 30.1, _HOPPER),
)  # fmt: skip

#: The cards with public figures, by name.
CARDS: dict[str, Card] = {card.name: card for card in _TABLE}


def card(name: str) -> Card:
    """A card of the table. NotOnRecord, a KeyError that names them, for another."""
    if name not in CARDS:
        raise NotOnRecord(f"no figures of a card {name!r}: there are those of {', '.join(CARDS)}")
    return CARDS[name]


def this_card() -> Card:
    """The device of the current context, from what its driver reports.

    Clocks are the highest ones; that of the multiprocessors is NVML's where there is one, since
    GeForce cards run faster than their device attribute says. The rate of the memory is its clock
    times the width of its bus, twice, since data come on both edges. On the CPU driver that is the
    device class it stands for, not this machine. Raises RuntimeError for a device that does not
    report one of them.
    """
    cuda = driver()
    device, attribute = cuda.Context.get_device(), cuda.device_attribute
    kinds = {
        "multiprocessors": attribute.MULTIPROCESSOR_COUNT,
        "clock": attribute.CLOCK_RATE,
        "memory clock": attribute.MEMORY_CLOCK_RATE,
        "width of the memory's bus": attribute.GLOBAL_MEMORY_BUS_WIDTH,
        "L2 cache": attribute.L2_CACHE_SIZE,
    }
    found = {name: device.get_attribute(kind) for name, kind in kinds.items()}
    missing = [name for name, value in found.items() if value <= 0]
    if missing:
        raise RuntimeError(f"{device.name()} does not report its {', '.join(missing)}")
    multiprocessors, clock, memory_clock, width, l2 = found.values()
    reading = Meter.of_context().read()
    fastest = reading.highest_sm_mhz if reading else None
    return Card(
        device.name(),
        device.compute_capability(),
        multiprocessors,
        max(clock * 1e3, (fastest or 0) * 1e6),
        2 * memory_clock * 1e3 * width / 8,
        l2,
        "the driver's device attributes" + (" and NVML" if fastest else ""),
    )
