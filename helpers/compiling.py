"""CUDA C to a PyCUDA module, with errors that a student can use.

It is PyCUDA's SourceModule that compiles. Added to it are three things: a source with headers or
templates is compiled without the extern "C" { } that PyCUDA puts around it, and its kernels are
found all the same; errors and warnings are told with the source's own lines; and PyCUDA's cache is
used only where it is asked for: it does not keep warnings, nor, with an #include, line numbers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers import nvcc_messages
from helpers.cpu_driver.ptxas import assemble
from helpers.errors import WrongValue
from helpers.memory import driver
from helpers.sandbox import CompileFailed, is_cpp, ptx_of, remember_ptx
from helpers.signature import blanked, signatures
from helpers.toolkit import require_toolkit

# nvcc's documentation, "Options for Specifying the Compilation Phase" and "File and Path
# Specifications": with these it makes something else, or elsewhere, or nothing.
_OTHER_RESULTS = re.compile(
    r"--?(ptx|cubin|fatbin|cuda|compile|preprocess|link|lib|run|device-c|device-w|device-link|dc|dw|"
    r"dlink|c|E|M+|generate-.*dependenc.*|version|V|help|h|dryrun|dry-run|keep|keep-dir|save-temps|"
    r"clean-targets|optix-ir|ltoir)(=.*)?|-(o|odir)(=.*)?|--output-(file|directory)(=.*)?"
)
# Kernels whose names the text does not show as they are in the module.
_HIDDEN = re.compile(r"#[ \t]*define\b[^\n]*\b__global__\b|\bstatic\b[^;{}()]*\b__global__\b|"
                     r"\b__global__\b[^;{}()]*\bstatic\b")  # fmt: skip
_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """A module in the current context. symbols: what its kernels are called in it, by name; a
    template has several."""

    module: Any
    symbols: dict[str, list[str]]
    warnings: tuple[str, ...]

    def function(self, name: str) -> Any:
        """The `pycuda.driver.Function` of that name."""
        symbols = self.symbols.get(name, [name])
        return self.module.get_function(symbols[0])


def compiled(source: str, options: Sequence[str] = (), *, cache: bool = False) -> Compiled:
    """The source, compiled for the current context's device.

    cache: whether what was compiled before will do. Raises CompileFailed, WrongValue for options.
    """
    driver()
    from pycuda.compiler import DEFAULT_NVCC_FLAGS, SourceModule
    from pycuda.driver import CompileError

    options = _checked_options(options)
    as_it_is = is_cpp(source)
    symbols: dict[str, list[str]] = {}
    if not as_it_is and not _HIDDEN.search(blanked(source)):
        symbols = {s.name: [s.name] for s in signatures(source, options)}
    else:
        for symbol in _ENTRY.findall(ptx_of(source, options)):
            symbols.setdefault(nvcc_messages.plain_name(symbol), []).append(symbol)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            module = SourceModule(
                source,
                options=[*DEFAULT_NVCC_FLAGS, *options],
                no_extern_c=as_it_is,
                cache_dir=None if cache and not as_it_is else False,
            )
        except CompileError as error:
            said = f"{error.stdout or ''}{error.stderr or ''}"
            raise CompileFailed(_errors(said, source, options)) from None
        except driver().Error as error:
            raise CompileFailed(f"nvcc has compiled it, and the driver does not load it: {error}"
                                ) from None  # fmt: skip
    found = Compiled(module, symbols, _warnings(told, source))
    _remember(found, source, options)
    return found


def _checked_options(options: Sequence[str]) -> tuple[str, ...]:
    for option in options:
        if _OTHER_RESULTS.fullmatch(option):
            raise WrongValue(f"nvcc's option {option} makes it write something else than a module "
                             "that can be loaded: leave it out")  # fmt: skip
    return tuple(options)


def _errors(said: str, source: str, options: tuple[str, ...]) -> str:
    """The errors in what nvcc said. Those of ptxas are about lines of the PTX; it is asked again
    for PTX that knows the source's lines."""
    if nvcc_messages.is_about_ptx(said):
        ptx = ptx_of(source, options)
        arch = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)[1]
        passed, report = assemble(require_toolkit().ptxas, ptx, arch)
        if not passed:
            return nvcc_messages.errors(report, source, ptx)
    return nvcc_messages.errors(said, source)


def _warnings(told: list[warnings.WarningMessage], source: str) -> tuple[str, ...]:
    said = "\n".join(str(w.message).partition("\n")[2] for w in told)
    return tuple(nvcc_messages.warnings(said, source))


def _remember(found: Compiled, source: str, options: tuple[str, ...]) -> None:
    """On the CPU driver the module is PTX: the engine need not have it compiled again."""
    from helpers.cpu_driver import is_loaded

    symbols = [symbol for each in found.symbols.values() for symbol in each]
    if is_loaded() and symbols:
        from helpers.cpu_driver import module

        try:
            function = found.module.get_function(symbols[0])
        except driver().LogicError:  # no such kernel: whoever asks for it is told so
            return
        remember_ptx(source, options, module.behind(function).ptx)
