"""What a GPU's clocks, power and temperature are now, from NVIDIA's management library (NVML).

    meter = Meter.of_context()         # of the device of the current context
    meter.read()                       # a Reading, or None; meter.obstacle says why there is none

NVML comes with the driver. Nothing is ever changed through it: only functions whose names begin
with nvmlDeviceGet or nvmlSystemGet are called, besides nvmlInit. (NVML API Reference Guide, "Device
Queries" and "Clocks Event Reasons".)
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Any

from helpers.memory import driver
from helpers.timing import backend

LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY = 1, 2  # nvmlClockType_t
_GPU_TEMPERATURE = 0  # nvmlTemperatureSensors_t

#: Bits of the reasons why clocks are below their highest (NVML, nvmlClocksEventReasons).
REASONS = {
    0x1: "idle",
    0x2: "application clocks setting",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks setting",
}
#: Not reasons to distrust a time: the GPU waits for work.
HARMLESS = ("idle",)


@dataclass(frozen=True)
class Reading:
    """One reading. None where the card does not say. throttle: why clocks are held back, if so.

    Power is the average of the last second on most cards since Ampere (nvmlDeviceGetPowerUsage).
    """

    sm_mhz: int | None
    memory_mhz: int | None
    highest_sm_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    throttle: tuple[str, ...] | None
    driver: str | None

    @property
    def throttled(self) -> bool:
        """Whether the clocks are held back by anything but a lack of work."""
        return any(reason not in HARMLESS for reason in self.throttle or ())

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        found = asdict(self)
        return found | {"throttle": None if self.throttle is None else list(self.throttle)}

    def __str__(self) -> str:
        held = "unknown" if self.throttle is None else ", ".join(self.throttle) or "nothing"
        return (
            f"{_of(self.sm_mhz, self.highest_sm_mhz, 'MHz')} clock, "
            f"memory {_text(self.memory_mhz)} MHz, {_of(self.power_w, self.power_limit_w, 'W')}, "
            f"{_text(self.temperature_c)} °C; held back by: {held}"
        )


class Meter:
    """Reads one GPU. `obstacle` says why there is nothing to read, "" if there is."""

    def __init__(self, pci_bus_id: str | None, library: Any = None, obstacle: str = "") -> None:
        """pci_bus_id: of the GPU; library: an NVML other than the driver's, for tests."""
        self.obstacle = obstacle
        self._library, self._device = library, ctypes.c_void_p()
        if pci_bus_id is None or obstacle:
            self.obstacle = obstacle or "no GPU"
            return
        try:
            self._library = library or ctypes.CDLL(LIBRARY)
            self._start(pci_bus_id)
        except OSError:
            self.obstacle = f"there is no {LIBRARY} here: clocks and power cannot be read"
        except (AttributeError, RuntimeError) as error:
            self.obstacle = f"NVML does not answer ({error}): clocks and power cannot be read"

    @classmethod
    def of_context(cls) -> Meter:
        """Of the device of the current context; one that reads nothing on the CPU driver."""
        cuda = driver()
        if backend() == "cpu":
            return cls(None, obstacle="the CPU driver has no GPU's clocks and power")
        return cls(cuda.Context.get_device().pci_bus_id())

    def read(self) -> Reading | None:
        """What the GPU says now; None where `obstacle` says why."""
        if self.obstacle:
            return None
        reasons = self._number(
            "nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong
        )  # the name since driver 535
        if reasons is None:
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        power = self._number("nvmlDeviceGetPowerUsage")
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit")
        return Reading(
            self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM),
            self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _MEMORY),
            self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM),
            None if power is None else power / 1e3,
            None if limit is None else limit / 1e3,
            self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _GPU_TEMPERATURE),
            None if reasons is None else _names(reasons),
            self._driver(),
        )

    def _start(self, pci_bus_id: str) -> None:
        for name, *arguments in (
            ("nvmlInit_v2",),
            ("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.encode(), ctypes.byref(self._device)),
        ):
            status = getattr(self._library, name)(*arguments)
            if status:
                raise RuntimeError(f"{name} returned {status}")

    def _number(self, name: str, kind: Any = ctypes.c_uint, *which: int) -> int | None:
        """What a query of the device says; None if this driver or card does not know it."""
        value = kind()
        query = getattr(self._library, name, None)
        if query is None or query(self._device, *which, ctypes.byref(value)):
            return None
        return value.value

    def _driver(self) -> str | None:
        text = ctypes.create_string_buffer(96)
        query = getattr(self._library, "nvmlSystemGetDriverVersion", None)
        if query is None or query(text, len(text)):
            return None
        return text.value.decode(errors="replace")


def _names(reasons: int) -> tuple[str, ...]:
    known = tuple(name for bit, name in REASONS.items() if reasons & bit)
    rest = reasons & ~sum(REASONS)
    return known + ((f"reason 0x{rest:x}",) if rest else ())


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _of(value: float | None, most: float | None, unit: str) -> str:
    return f"{_text(value)} of {_text(most)} {unit}"
