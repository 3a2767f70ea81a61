"""The driver: each exported function's callback, made of its implementation and one error path."""

from __future__ import annotations

from collections.abc import Callable

from . import (
    arrays,
    context,
    copies,
    device,
    interprocess,
    launch,
    linker,
    memory,
    module,
    stream_event,
)
from .errors import FUNCTIONS as TEXT_FUNCTIONS
from .errors import DriverError, Result, explain, forget, remember
from .signatures import LAUNCHES

#: Name -> implementation.  Every one of them returns nothing and raises what goes wrong.
IMPLEMENTATIONS: dict[str, Callable[..., None]] = {
    **device.FUNCTIONS, **context.FUNCTIONS, **memory.FUNCTIONS, **copies.FUNCTIONS,
    **arrays.FUNCTIONS, **module.FUNCTIONS, **linker.FUNCTIONS, **launch.FUNCTIONS,
    **stream_event.FUNCTIONS, **interprocess.FUNCTIONS,
}

#: What jump_table.c expects of a callback: the mark of a result, with the CUresult in its lower
#: bits; and that Ctrl-C came during the call.
MARK, INTERRUPTED = 0x2A000000, 0x00010000
_SUCCESS = MARK | Result.SUCCESS


def entry(name: str) -> Callable[..., int]:
    """What the exported function `name` calls."""
    if name in TEXT_FUNCTIONS:
        return _callback(name, TEXT_FUNCTIONS[name], settles=False)
    return _callback(name, IMPLEMENTATIONS.get(name) or _unsupported(name))


def _unsupported(name: str) -> Callable[..., None]:
    def function(*_arguments: object) -> None:
        raise DriverError(Result.NOT_SUPPORTED, f"the CPU driver does not support {name}")
    return function


def _callback(name: str, implementation: Callable[..., None],
              settles: bool = True) -> Callable[..., int]:
    """Runs `implementation`, and turns whatever it raises into a code and a text.

    `settles`: success makes the text of an earlier failure void.
    """
    def callback(*arguments: object) -> int:
        try:
            implementation(*arguments)
            if settles:
                forget()
            return _SUCCESS
        except KeyboardInterrupt:
            return _interrupted(name, implementation, arguments)
        except BaseException as error:  # nothing may leave a callback
            return _failed(error)
    return callback


def _failed(error: BaseException) -> int:
    try:
        code, text = explain(error)
    except BaseException as worse:
        code, text = Result.UNKNOWN, f"a defect of the CPU driver: {type(worse).__name__}"
    remember(code, text)
    return MARK | code


def _interrupted(name: str, implementation: Callable[..., None], arguments: tuple) -> int:
    """Ctrl-C came during a call: finish the call, unless it is a launch, which has been stopped.

    An exception cannot leave a ctypes callback, and an error code would reach the user as
    pycuda.driver.LogicError.  So the call succeeds, and jump_table.c raises the signal again when
    no line of this driver is left to run: the caller gets an ordinary KeyboardInterrupt, on the
    line that called.
    """
    try:
        if name not in LAUNCHES:
            implementation(*arguments)
    except DriverError:
        pass  # what it was to undo, the first attempt had undone
    except KeyboardInterrupt:  # once more: it waits for something that takes long
        return _failed(DriverError(Result.UNKNOWN, f"{name} was interrupted")) | INTERRUPTED
    except BaseException as error:
        return _failed(error) | INTERRUPTED
    return _SUCCESS | INTERRUPTED
