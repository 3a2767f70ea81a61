"""Contexts: each thread's stack of them, the primary one, and what they own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from . import device, handles
from .errors import DriverError, Result

#: CUlimit -> its initial value: STACK_SIZE, PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE,
#: DEV_RUNTIME_PENDING_LAUNCH_COUNT, MAX_L2_FETCH_GRANULARITY.
LIMITS = {0: 1024, 1: 8 << 20, 2: 8 << 20, 4: 2048, 5: 64}
LAST_LIMIT = 9  # CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED
API_VERSION = 3020


class Context:
    """A context: created once, destroyed when its last user lets go of it."""

    def __init__(self, flags: int = 0):
        self.flags = flags
        self.users = 1
        self.alive = True
        self.limits = dict(LIMITS)
        self.cache_config = 0
        self.shared_config = 0
        self._owned: dict[object, Callable[[], None]] = {}
        self.handle = handles.new(self)

    def own(self, thing: object, release: Callable[[], None]) -> None:
        """`thing` goes when this context does, by `release`, unless it is disowned before."""
        self._owned[thing] = release

    def disown(self, thing: object) -> None:
        """`thing` has been released already."""
        self._owned.pop(thing, None)

    def destroy(self) -> None:
        """Release all that is still owned, newest first."""
        self.alive = False
        handles.drop(self.handle)
        while self._owned:
            _thing, release = self._owned.popitem()
            release()


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Context] = []

    def live(self) -> list[Context]:
        """The stack, without contexts that have been destroyed meanwhile."""
        if self.contexts and not all(context.alive for context in self.contexts):
            self.contexts[:] = [context for context in self.contexts if context.alive]
        return self.contexts


_stack = _Stack()
_primary: Context | None = None
_primary_lock = threading.Lock()


def current() -> Context:
    """The calling thread's current context; INVALID_CONTEXT if there is none."""
    contexts = _stack.contexts
    if contexts and contexts[-1].alive:
        return contexts[-1]
    if not _stack.live():
        device.memory()
        raise DriverError(Result.INVALID_CONTEXT, "no context is current in this thread (it has "
                          "been popped or destroyed, or belongs to another thread)")
    return _stack.contexts[-1]


def get(handle: int) -> Context:
    """The context that `handle` stands for; INVALID_CONTEXT if it is none."""
    try:
        return handles.get(handle, Context)
    except DriverError as error:
        raise DriverError(Result.INVALID_CONTEXT, str(error)) from None


def _create(out: ctypes._Pointer, flags: int, ordinal: int) -> None:
    device.check(ordinal)
    context = Context(flags)
    _stack.live().append(context)
    out[0] = context.handle


def create_v2(out: ctypes._Pointer, flags: int, ordinal: int) -> None:
    """cuCtxCreate_v2, of the CUDA 12 headers."""
    _create(out, flags, ordinal)


def create_v3(out: ctypes._Pointer, _affinity: int, _count: int, flags: int, ordinal: int) -> None:
    """cuCtxCreate_v3: the execution affinity is ignored."""
    _create(out, flags, ordinal)


def create_v4(out: ctypes._Pointer, _parameters: int, flags: int, ordinal: int) -> None:
    """cuCtxCreate_v4, of the CUDA 13 headers."""
    _create(out, flags, ordinal)


def attach(out: ctypes._Pointer, flags: int) -> None:
    """cuCtxAttach: one more user of the current context."""
    if flags:
        raise DriverError(Result.INVALID_VALUE, "cuCtxAttach: the flags must be 0")
    context = current()
    context.users += 1
    out[0] = context.handle


def detach(handle: int) -> None:
    """cuCtxDetach: one user less; the last one destroys the context."""
    context = get(handle)
    context.users -= 1
    if not context.users:
        destroy(handle)


def destroy(handle: int) -> None:
    """cuCtxDestroy.  A destroyed context is no longer current anywhere."""
    get(handle).destroy()
    _stack.live()


def push(handle: int) -> None:
    """cuCtxPushCurrent."""
    if not handle:
        raise DriverError(Result.INVALID_VALUE, "cuCtxPushCurrent: the context is NULL")
    _stack.live().append(get(handle))


def pop(out: ctypes._Pointer) -> None:
    """cuCtxPopCurrent."""
    context = current()
    _stack.contexts.pop()
    if out:
        out[0] = context.handle


def set_current(handle: int) -> None:
    """cuCtxSetCurrent: replace the top of the stack; 0 only takes it off."""
    context = get(handle) if handle else None
    if _stack.live():
        _stack.contexts.pop()
    if context:
        _stack.contexts.append(context)


def get_current(out: ctypes._Pointer) -> None:
    """cuCtxGetCurrent: 0 if there is none."""
    contexts = _stack.live()
    out[0] = contexts[-1].handle if contexts else 0


def get_device(out: ctypes._Pointer) -> None:
    """cuCtxGetDevice."""
    current()
    out[0] = 0


def get_api_version(handle: int, out: ctypes._Pointer) -> None:
    """cuCtxGetApiVersion."""
    if handle:
        get(handle)
    out[0] = API_VERSION


def synchronize() -> None:
    """cuCtxSynchronize: every launch and copy finishes before its call returns, so this waits for
    those of other threads only."""
    current()
    with device.LOCK:
        pass


def _limits(limit: int) -> dict[int, int]:
    """The current context's limits, if `limit` is one that is there."""
    limits = current().limits
    if limit not in limits:
        known = 0 <= limit <= LAST_LIMIT
        raise DriverError(Result.UNSUPPORTED_LIMIT if known else Result.INVALID_VALUE)
    return limits


def set_limit(limit: int, value: int) -> None:
    """cuCtxSetLimit: remembered; the engine's own limits do not change."""
    _limits(limit)[limit] = value


def get_limit(out: ctypes._Pointer, limit: int) -> None:
    """cuCtxGetLimit."""
    out[0] = _limits(limit)[limit]


def set_cache_config(value: int) -> None:
    """cuCtxSetCacheConfig: remembered, without effect."""
    current().cache_config = value


def get_cache_config(out: ctypes._Pointer) -> None:
    """cuCtxGetCacheConfig."""
    out[0] = current().cache_config


def set_shared_config(value: int) -> None:
    """cuCtxSetSharedMemConfig: remembered, without effect (as on all GPUs since sm_50)."""
    current().shared_config = value


def get_shared_config(out: ctypes._Pointer) -> None:
    """cuCtxGetSharedMemConfig."""
    out[0] = current().shared_config


def retain_primary(out: ctypes._Pointer, ordinal: int) -> None:
    """cuDevicePrimaryCtxRetain: made by its first user; not made current."""
    global _primary
    device.check(ordinal)
    with _primary_lock:
        if _primary is None:
            _primary = Context()
        else:
            _primary.users += 1
        out[0] = _primary.handle


def release_primary(ordinal: int) -> None:
    """cuDevicePrimaryCtxRelease: its last user destroys it."""
    global _primary
    device.check(ordinal)
    with _primary_lock:
        if _primary is None:
            raise DriverError(Result.INVALID_CONTEXT, "the primary context has no user to release")
        _primary.users -= 1
        if not _primary.users:
            context, _primary = _primary, None
            context.destroy()
            _stack.live()


FUNCTIONS = {
    "cuCtxCreate_v2": create_v2,
    "cuCtxCreate_v3": create_v3,
    "cuCtxCreate_v4": create_v4,
    "cuCtxDestroy_v2": destroy,
    "cuCtxAttach": attach,
    "cuCtxDetach": detach,
    "cuCtxPushCurrent_v2": push,
    "cuCtxPopCurrent_v2": pop,
    "cuCtxSetCurrent": set_current,
    "cuCtxGetCurrent": get_current,
    "cuCtxGetDevice": get_device,
    "cuCtxGetApiVersion": get_api_version,
    "cuCtxSynchronize": synchronize,
    "cuCtxSetLimit": set_limit,
    "cuCtxGetLimit": get_limit,
    "cuCtxSetCacheConfig": set_cache_config,
    "cuCtxGetCacheConfig": get_cache_config,
    "cuCtxSetSharedMemConfig": set_shared_config,
    "cuCtxGetSharedMemConfig": get_shared_config,
    "cuDevicePrimaryCtxRetain": retain_primary,
    "cuDevicePrimaryCtxRelease": release_primary,
    "cuDevicePrimaryCtxRelease_v2": release_primary,
}
