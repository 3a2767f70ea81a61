"""Clocks and power: read where there is an NVML, None and said why where there is not."""

from __future__ import annotations

from typing import Any

import pytest

from helpers import nvml
from helpers.nvml import Meter, Reading

NUMBERS = {
    "nvmlDeviceGetPowerUsage": 312_400,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x1,
}


class FakeNvml:
    """An NVML of one GPU; it has no function that changes anything."""

    def __init__(self, numbers: dict[str, int] = NUMBERS, status: int = 0) -> None:
        self.numbers, self.status = numbers, status

    def __getattr__(self, name: str) -> Any:
        if name not in self.numbers:
            raise AttributeError(name)

        def query(device: Any, value: Any) -> int:
            assert device.value == 7
            value._obj.value = self.numbers[name]
            return 0

        return query

    def nvmlInit_v2(self) -> int:
        return self.status

    def nvmlDeviceGetHandleByPciBusId_v2(self, pci: bytes, device: Any) -> int:
        assert pci == b"0000:17:00.0"
        device._obj.value = 7
        return 0

    def nvmlDeviceGetClockInfo(self, device: Any, kind: int, value: Any) -> int:
        value._obj.value = {1: 1965, 2: 3201}[kind]
        return 0

    def nvmlDeviceGetMaxClockInfo(self, device: Any, kind: int, value: Any) -> int:
        value._obj.value = {1: 1980}[kind]
        return 0

    def nvmlDeviceGetTemperature(self, device: Any, sensor: int, value: Any) -> int:
        return 3  # not supported

    def nvmlSystemGetDriverVersion(self, text: Any, length: int) -> int:
        text.value = b"580.159.04"
        return 0


def test_a_reading() -> None:
    meter = Meter("0000:17:00.0", FakeNvml())
    found = meter.read()
    assert meter.obstacle == ""
    assert found == Reading(
        1965, 3201, 1980, 312.4, 700.0, None, ("idle", "power limit"), "580.159.04"
    )
    assert found.throttled
    assert found.to_dict()["throttle"] == ["idle", "power limit"]
    assert str(found) == (
        "1,965 of 1,980 MHz clock, memory 3,201 MHz, 312 of 700 W, unknown °C; "
        "held back by: idle, power limit"
    )


@pytest.mark.parametrize(
    ("bits", "names", "throttled"),
    [(0, (), False), (1, ("idle",), False), (0x48, ("hardware slowdown",
      "hardware thermal slowdown"), True), (1 << 40, ("reason 0x10000000000",), True)],
)  # fmt: skip
def test_reasons_have_names(bits: int, names: tuple[str, ...], throttled: bool) -> None:
    numbers = NUMBERS | {"nvmlDeviceGetCurrentClocksEventReasons": bits}
    found = Meter("0000:17:00.0", FakeNvml(numbers)).read()
    assert found and found.throttle == names
    assert found.throttled == throttled


def test_an_older_driver_calls_them_throttle_reasons() -> None:
    found = Meter(
        "0000:17:00.0", FakeNvml({"nvmlDeviceGetCurrentClocksThrottleReasons": 0x20})
    ).read()
    assert found and found.throttle == ("thermal limit",)
    assert found.power_w is None


def test_what_no_function_tells_is_none() -> None:
    found = Meter("0000:17:00.0", FakeNvml({})).read()
    assert found and found.throttle is None
    assert "held back by: unknown" in str(found)
    assert not found.throttled


def test_no_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml.so.not-there")
    meter = Meter("0000:17:00.0")
    assert meter.read() is None
    assert "there is no libnvidia-ml.so.not-there here" in meter.obstacle


def test_a_library_that_does_not_start_is_said() -> None:
    meter = Meter("0000:17:00.0", FakeNvml(status=9))
    assert meter.read() is None
    assert "nvmlInit_v2 returned 9" in meter.obstacle


def test_of_the_current_context(autoinit: Any) -> None:
    meter = Meter.of_context()
    if autoinit.backend == "cpu":
        assert meter.read() is None
        assert meter.obstacle == "the CPU driver has no GPU's clocks and power"
    else:
        found = meter.read()
        assert (found is None) == bool(meter.obstacle)
        assert found is None or (found.sm_mhz or 0) > 100
