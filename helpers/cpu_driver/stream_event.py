"""Streams and events.  The engine finishes each call before it returns, so a stream is always
done, and an event is the time at which it was recorded."""

from __future__ import annotations

import ctypes
import time

from . import context, device, handles
from .errors import DriverError, Result

#: CUstream values that are no handles: the default stream and its two explicit names (cuda.h).
DEFAULT_STREAMS = (0, 1, 2)
WAIT_EXTERNAL = 1  # CU_EVENT_WAIT_EXTERNAL
STREAM_FLAGS = 1  # CU_STREAM_NON_BLOCKING
#: CU_EVENT_BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS, the last with DISABLE_TIMING only.
EVENT_FLAGS, DISABLE_TIMING, INTERPROCESS = 7, 2, 4

#: The streams of the launches that run now (one, or none), the latest last.
running: list[int] = []


class Stream:
    """A CUstream of a context."""

    def __init__(self, owner: context.Context):
        self.owner = owner


class Event:
    """A CUevent of a context: `recorded` is nanoseconds of the monotonic clock, or None."""

    def __init__(self, flags: int, owner: context.Context):
        self.flags = flags
        self.owner = owner
        self.recorded: int | None = None


def check(stream: int) -> None:
    """INVALID_HANDLE unless `stream` is a stream that exists."""
    if stream not in DEFAULT_STREAMS:
        handles.get(stream, Stream)


def owner_of(stream: int) -> context.Context:
    """The context that the work in `stream` belongs to: the current one for the default stream."""
    if stream in DEFAULT_STREAMS:
        return context.current()
    return handles.get(stream, Stream).owner


def create_stream(out: ctypes._Pointer, flags: int) -> None:
    """cuStreamCreate."""
    context.current()
    if flags & ~STREAM_FLAGS:
        raise DriverError(Result.INVALID_VALUE, f"cuStreamCreate: there are no flags 0x{flags:x}")
    out[0] = handles.new(Stream(context.current()))


def destroy_stream(stream: int) -> None:
    """cuStreamDestroy."""
    handles.get(stream, Stream)
    handles.drop(stream)


def wait_event(stream: int, event: int, flags: int) -> None:
    """cuStreamWaitEvent: the event's work has finished already."""
    if flags == WAIT_EXTERNAL:
        raise DriverError(Result.ILLEGAL_STATE, "cuStreamWaitEvent: EXTERNAL is for streams that "
                          "are being captured")
    if flags:
        raise DriverError(Result.INVALID_VALUE, f"cuStreamWaitEvent: there are no flags {flags}")
    check(stream)
    handles.get(event, Event)


def create_event(out: ctypes._Pointer, flags: int) -> None:
    """cuEventCreate."""
    context.current()
    if flags & ~EVENT_FLAGS or (flags & INTERPROCESS and not flags & DISABLE_TIMING):
        raise DriverError(Result.INVALID_VALUE, f"cuEventCreate: the flags 0x{flags:x} are unknown "
                          "or INTERPROCESS without DISABLE_TIMING")
    out[0] = handles.new(Event(flags, context.current()))


def destroy_event(event: int) -> None:
    """cuEventDestroy."""
    handles.get(event, Event)
    handles.drop(event)


def record(event: int, stream: int) -> None:
    """cuEventRecord: now."""
    recorded = handles.get(event, Event)
    if recorded.owner is not owner_of(stream):
        raise DriverError(Result.INVALID_HANDLE, "the event belongs to another context than the "
                          "stream it is recorded in")
    with device.LOCK:  # after what another thread has launched before
        recorded.recorded = time.perf_counter_ns()


def query_stream(stream: int) -> None:
    """cuStreamQuery: NOT_READY while another thread's launch in it runs."""
    check(stream)
    if running and running[-1] == stream:
        raise DriverError(Result.NOT_READY)


def synchronize_stream(stream: int) -> None:
    """cuStreamSynchronize: waits for what other threads have launched."""
    check(stream)
    with device.LOCK:
        pass


def check_event(event: int) -> None:
    """cuEventQuery, cuEventSynchronize: done."""
    handles.get(event, Event)


def elapsed(out: ctypes._Pointer, start: int, end: int) -> None:
    """cuEventElapsedTime: milliseconds of the host's clock."""
    times, owners = [], set()
    for which, handle in (("start", start), ("end", end)):
        event = handles.get(handle, Event)
        if event.flags & DISABLE_TIMING:
            raise DriverError(Result.INVALID_HANDLE, f"the {which} event was made without timing")
        if event.recorded is None:
            raise DriverError(Result.INVALID_HANDLE, f"the {which} event has not been recorded")
        times.append(event.recorded)
        owners.add(event.owner)
    if len(owners) > 1:
        raise DriverError(Result.INVALID_HANDLE, "the events belong to two contexts")
    out[0] = (times[1] - times[0]) * 1e-6


FUNCTIONS = {
    "cuStreamCreate": create_stream,
    "cuStreamDestroy_v2": destroy_stream,
    "cuStreamQuery": query_stream,
    "cuStreamSynchronize": synchronize_stream,
    "cuStreamWaitEvent": wait_event,
    "cuEventCreate": create_event,
    "cuEventDestroy_v2": destroy_event,
    "cuEventRecord": record,
    "cuEventQuery": check_event,
    "cuEventSynchronize": check_event,
    "cuEventElapsedTime": elapsed,
    "cuEventElapsedTime_v2": elapsed,
}
