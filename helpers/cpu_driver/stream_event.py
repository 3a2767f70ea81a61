"""Streams and events.  The engine finishes each call before it returns, so a stream is always
done, and an event is the time at which it was recorded."""

from __future__ import annotations

import ctypes
import time

from . import context, handles
from .errors import DriverError, Result

#: CUstream values that are no handles: the default stream and its two explicit names (cuda.h).
DEFAULT_STREAMS = (0, 1, 2)
DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Stream:
    """A CUstream."""


class Event:
    """A CUevent: `recorded` is nanoseconds of the monotonic clock, or None."""

    def __init__(self, flags: int):
        self.flags = flags
        self.recorded: int | None = None


def check(stream: int) -> None:
    """INVALID_HANDLE unless `stream` is a stream that exists."""
    if stream not in DEFAULT_STREAMS:
        handles.get(stream, Stream)


def create_stream(out: ctypes._Pointer, _flags: int) -> None:
    """cuStreamCreate."""
    context.current()
    out[0] = handles.new(Stream())


def destroy_stream(stream: int) -> None:
    """cuStreamDestroy."""
    handles.get(stream, Stream)
    handles.drop(stream)


def wait_event(stream: int, event: int, _flags: int) -> None:
    """cuStreamWaitEvent: the event's work has finished already."""
    check(stream)
    handles.get(event, Event)


def create_event(out: ctypes._Pointer, flags: int) -> None:
    """cuEventCreate."""
    context.current()
    out[0] = handles.new(Event(flags))


def destroy_event(event: int) -> None:
    """cuEventDestroy."""
    handles.get(event, Event)
    handles.drop(event)


def record(event: int, stream: int) -> None:
    """cuEventRecord: now."""
    context.current()
    check(stream)
    handles.get(event, Event).recorded = time.perf_counter_ns()


def check_event(event: int) -> None:
    """cuEventQuery, cuEventSynchronize: done."""
    handles.get(event, Event)


def elapsed(out: ctypes._Pointer, start: int, end: int) -> None:
    """cuEventElapsedTime: milliseconds of the host's clock."""
    times = []
    for which, handle in (("start", start), ("end", end)):
        event = handles.get(handle, Event)
        if event.flags & DISABLE_TIMING:
            raise DriverError(Result.INVALID_HANDLE, f"the {which} event was made without timing")
        if event.recorded is None:
            raise DriverError(Result.INVALID_HANDLE, f"the {which} event has not been recorded")
        times.append(event.recorded)
    out[0] = (times[1] - times[0]) * 1e-6


FUNCTIONS = {
    "cuStreamCreate": create_stream,
    "cuStreamDestroy_v2": destroy_stream,
    "cuStreamQuery": check,
    "cuStreamSynchronize": check,
    "cuStreamWaitEvent": wait_event,
    "cuEventCreate": create_event,
    "cuEventDestroy_v2": destroy_event,
    "cuEventRecord": record,
    "cuEventQuery": check_event,
    "cuEventSynchronize": check_event,
    "cuEventElapsedTime": elapsed,
    "cuEventElapsedTime_v2": elapsed,
}
