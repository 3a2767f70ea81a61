"""Run a PyCUDA program on the CPU driver, as python itself would run it::

    python -m helpers.cpu_driver SCRIPT.py [ARGUMENTS]
    python -m helpers.cpu_driver -m MODULE [ARGUMENTS]
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
import types
from collections.abc import Callable
from types import TracebackType

from . import load

USAGE = "usage: python -m helpers.cpu_driver (SCRIPT.py | -m MODULE) [ARGUMENTS]"


def main(arguments: list[str]) -> None:
    """Run what `arguments` name, with the rest of them as its sys.argv."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        sys.exit(USAGE)
    load()
    sys.excepthook = functools.partial(_show_uncaught, sys.excepthook)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.modules["__main__"] = types.ModuleType("__main__")
        runpy._run_module_as_main(arguments[1])  # what python -m itself runs
    elif os.path.isdir(arguments[0]) or not _is_source(arguments[0]):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        run_script(arguments)


def _is_source(path: str) -> bool:
    """Whether `path` is a script, rather than byte code or a zip file."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        print(f"{sys.executable}: can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] "
              f"{error.strerror}", file=sys.stderr)
        sys.exit(2)
    return not start.startswith((b"PK\3\4", importlib.util.MAGIC_NUMBER))


def run_script(arguments: list[str]) -> None:
    """Make the script this process's ``__main__``, and run it to its end."""
    script = os.path.abspath(arguments[0])
    sys.argv = arguments
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    main_module = types.ModuleType("__main__")
    main_module.__file__ = script
    main_module.__cached__ = None
    main_module.__builtins__ = __builtins__
    main_module.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    sys.modules["__main__"] = main_module
    with io.open_code(script) as file:
        code = compile(file.read(), script, "exec")
    exec(code, main_module.__dict__)


def _show_uncaught(hook: Callable[..., None], kind: type[BaseException], error: BaseException,
                   trace: TracebackType | None) -> None:
    """Let `hook` print an uncaught exception, without the frames up to this file's last."""
    shown = trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == __file__:
            shown = trace.tb_next
        trace = trace.tb_next
    hook(kind, error.with_traceback(shown), shown)


if __name__ == "__main__":
    main(sys.argv[1:])
