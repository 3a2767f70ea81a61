"""A device made of a clock, for tests of the timing: work is queued and takes the time it says."""

from __future__ import annotations

from types import SimpleNamespace


class FakeCuda:
    """What helpers.timing uses of pycuda.driver. Times are milliseconds of one common clock.

    A call costs the host `call_ms`; the device does one job after another, each no sooner than the
    host has queued it.
    """

    def __init__(self, kernel_ms: float = 1.0, call_ms: float = 0.0, l2: int = 1024) -> None:
        self.kernel_ms, self.call_ms = kernel_ms, call_ms
        self.host, self.device = 0.0, 0.0  # the host's clock, and when the device is done
        self.launches = self.flushes = self.waits = 0
        self.device_attribute = SimpleNamespace(L2_CACHE_SIZE=38)
        device = SimpleNamespace(get_attribute=lambda number: l2)
        self.Context = SimpleNamespace(synchronize=self.wait, get_device=lambda: device)

    def wait(self) -> None:
        self.waits += 1
        self.host = max(self.host, self.device)

    def work(self, ms: float) -> None:
        self.host += self.call_ms
        self.device = max(self.device, self.host) + ms

    def launch(self) -> None:
        self.launches += 1
        self.work(self.kernel_ms)

    def memset_d8(self, address: int, value: int, count: int) -> None:
        self.flushes += 1
        self.work(0.1)

    def perf_counter(self) -> float:
        return self.host * 1e-3

    def Event(self) -> FakeEvent:
        return FakeEvent(self)


class FakeEvent:
    """Remembers when the device came to it."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.at = cuda, 0.0

    def record(self, stream: object = None) -> None:
        self.at = max(self.cuda.device, self.cuda.host)

    def synchronize(self) -> None:
        self.cuda.host = max(self.cuda.host, self.at)

    def time_till(self, end: FakeEvent) -> float:
        return end.at - self.at
