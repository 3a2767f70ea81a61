"""The driver: each exported function's callback, made of its implementation and one error path."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from . import arrays, context, copies, device, launch, linker, memory, module, stream_event
from .errors import FUNCTIONS as TEXT_FUNCTIONS
from .errors import DriverError, Result, explain, forget, remember

#: Name -> implementation.  Every one of them returns nothing and raises what goes wrong.
IMPLEMENTATIONS: dict[str, Callable[..., None]] = {
    **device.FUNCTIONS, **context.FUNCTIONS, **memory.FUNCTIONS, **copies.FUNCTIONS,
    **arrays.FUNCTIONS, **module.FUNCTIONS, **linker.FUNCTIONS, **launch.FUNCTIONS,
    **stream_event.FUNCTIONS,
}

#: A launch is not started again when Ctrl-C stops it; everything else is quick, and is.
LAUNCHES = frozenset({"cuLaunchKernel", "cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync"})


class _ThenInterrupt(int):
    """A result whose disposal, when the callback has ended, interrupts its caller.

    An exception cannot leave a ctypes callback, and an error code would reach the user as
    pycuda.driver.LogicError.  So the call succeeds, and the signal is raised again once the last
    line of this driver has run: the caller's next step is then an ordinary KeyboardInterrupt, on
    the line that called.  (__del__ is a C function: no Python code here can meet the signal.)
    """

    __del__ = _thread.interrupt_main


def entry(name: str) -> Callable[..., int]:
    """What the exported function `name` calls."""
    if name in TEXT_FUNCTIONS:
        return _guarded(name, TEXT_FUNCTIONS[name], settles=False)
    return _guarded(name, IMPLEMENTATIONS.get(name) or _unsupported(name))


def _unsupported(name: str) -> Callable[..., None]:
    def function(*_arguments: object) -> None:
        raise DriverError(Result.NOT_SUPPORTED, f"the CPU driver does not support {name}")
    return function


def _guarded(name: str, implementation: Callable[..., None],
             settles: bool = True) -> Callable[..., int]:
    """A callback: runs `implementation`, and turns whatever it raises into a code and a text.

    `settles`: success makes the text of an earlier failure void.
    """
    def callback(*arguments: object) -> int:
        try:
            implementation(*arguments)
            if settles:
                forget()
            return 0
        except KeyboardInterrupt:
            return _interrupted(name, implementation, arguments)
        except BaseException as error:  # noqa: BLE001 - nothing may leave a callback
            return _failed(error)
    return callback


def _failed(error: BaseException) -> int:
    try:
        code, text = explain(error)
    except BaseException as worse:  # noqa: BLE001
        code, text = Result.UNKNOWN, f"a defect of the CPU driver: {type(worse).__name__}"
    remember(code, text)
    return int(code)


def _interrupted(name: str, implementation: Callable[..., None], arguments: tuple) -> int:
    """Ctrl-C came during a call: finish it, unless it is a launch, then let the caller know."""
    try:
        if name not in LAUNCHES:
            implementation(*arguments)
    except DriverError:
        pass  # what it was to undo or to make, the first attempt had undone or made
    except BaseException as error:  # noqa: BLE001
        return _failed(error)
    return _ThenInterrupt(0)
