"""`%%cuda`: a cell of CUDA C whose kernels become Python objects. `%load_ext helpers` loads it.

    %%cuda tiled --block 16,16 -D TILE=16
    __global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
    { … }

compiles the cell and binds `matmul` to a `helpers.bound.BoundKernel`. A copy of the cell is kept in
notebooks/work/tiled.cu, as it was run last; there, as in the cell, the first line is the one with
%%cuda, so line numbers are the same in both, and those of errors too.
"""

from __future__ import annotations

import argparse
import builtins
import keyword
import re
import shlex
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from helpers.bound import BoundKernel, NoKernel, bind_all
from helpers.errors import KernelInterrupted, WrongValue
from helpers.launch_shape import checked_shape, checked_shared
from helpers.sandbox import CompileFailed
from helpers.show import CUDA_FOLDER, ROOT, WORK_FOLDER

_NAME = re.compile(r"[A-Za-z_][\w-]{0,99}", re.ASCII)


class WrongOption(WrongValue):
    """What stands behind %%cuda cannot be used."""


def _sizes(most: int):
    """An argparse type: one to `most` integers with commas between them."""

    def read(text: str) -> tuple[int, ...]:
        parts = re.split(r"\s*[,x×]\s*", text.strip("() \t"))
        if not all(re.fullmatch(r"[1-9]\d*", part) for part in parts) or len(parts) > most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one to {most} integers >= 1 without spaces, like 32,8"
            )
        return tuple(map(int, parts))

    return read


@magics_class
class CudaMagics(Magics):
    """The cell magic `%%cuda`."""

    @magic_arguments()
    @argument("name", nargs="?", help="of the copy: notebooks/work/NAME.cu")
    @argument("--block", type=_sizes(3), metavar="X,Y,Z",
              help="threads of a block; launches need then not say it")  # fmt: skip
    @argument("--tile", type=_sizes(2), metavar="ROWS,COLUMNS",
              help="of C, that one block computes; by default one element for each thread")
    @argument("--shared", type=int, metavar="BYTES", default=0,
              help="dynamic shared memory of a block")
    @argument("--rows-on-x", action="store_true", help="blockIdx.x walks rows of C, not columns")
    @argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE",
              help="a macro, as nvcc has it")
    @argument("--nvcc", action="append", default=[], metavar="='OPTIONS'",
              help="more options for nvcc, e.g. --nvcc='-use_fast_math -maxrregcount 64'")
    @argument("--save", metavar="FILE.cu", help="once it compiles, write the cell there too")
    @cell_magic
    def cuda(self, line: str, cell: str) -> None:
        """Compile a cell of CUDA C and bind its kernels to their names."""
        chosen, options = _parsed(self.cuda, line)
        text = f"// %%cuda {line.strip().rstrip(chr(92))}\n{cell}"
        target = None if chosen.save is None else _save_target(chosen.save)
        copy = WORK_FOLDER / f"{chosen.name}.cu"
        _keep(copy, text)
        gone = self._unbind(copy)
        try:
            kernels, others, warnings = bind_all(
                text, copy, options=options, block=chosen.block, tile=chosen.tile,
                rows_on_x=chosen.rows_on_x, shared_bytes=chosen.shared,
            )  # fmt: skip
        except CompileFailed as error:
            if gone:
                raise CompileFailed(f"{error}\n({', '.join(gone)}: not bound any more, until this "
                                    "compiles)") from None  # fmt: skip
            raise
        except KeyboardInterrupt:
            raise KernelInterrupted(f"compiling {chosen.name}.cu was interrupted") from None
        self._check_names(kernels)
        if target:
            _save(target, text)
        for note in (*warnings, *others, *self._hidden(kernels)):
            print(note)
        missing = [name for name in gone if name not in kernels]
        if missing:
            print(f"note: {', '.join(missing)}, from {chosen.name}.cu as it was before, not bound "
                  "any more (two cells need two names)")  # fmt: skip
        if not kernels and others:
            raise NoKernel("no kernel of this cell can be bound")
        if not kernels:
            raise NoKernel("there is no kernel in this cell: write one as __global__ void "
                           "name(…) { … }")  # fmt: skip
        self.shell.push(dict(kernels))
        for kernel in kernels.values():
            print(f"{chosen.name}.cu: kernel {kernel.signature}")
            if kernel.signature.parameters is None:
                print("    (Its parameters could not be read: the types of arguments are not "
                      "checked.)")

    def _unbind(self, copy: Path) -> list[str]:
        """Takes away what this cell bound when it was run before: should it not compile now, a
        check of its kernel must not be one of the kernel before. Returns the names."""
        mine = [name for name, value in self.shell.user_ns.items()
                if isinstance(value, BoundKernel) and value.file == copy]  # fmt: skip
        for name in mine:
            del self.shell.user_ns[name]
        return mine

    def _check_names(self, kernels: dict[str, BoundKernel]) -> None:
        for name in kernels:
            whose = "Python" if keyword.iskeyword(name) else "IPython"
            if whose == "Python" or name in self.shell.user_ns_hidden:
                raise WrongValue(f"a kernel named {name} cannot be bound: that is a word of "
                                 f"{whose}; give it another name")  # fmt: skip

    def _hidden(self, kernels: dict[str, BoundKernel]) -> list[str]:
        """What the user had under the kernels' names."""
        notes = []
        for name in kernels:
            before = self.shell.user_ns.get(name, getattr(builtins, name, None))
            if before is not None and not isinstance(before, BoundKernel):
                notes.append(f"note: {name} was a {type(before).__name__}, and is the kernel now")
        return notes


def _parsed(magic: Any, line: str) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """What stands behind %%cuda, and the options for nvcc in it."""
    try:  # as a shell would split it: --nvcc='-a -b' is one word
        chosen = magic.parser.parse_args(shlex.split(line))
        words = [word for text in chosen.nvcc for word in shlex.split(text)]
    except (UsageError, ValueError) as error:
        said = str(error).removeprefix("argument ")
        if said == "--nvcc: expected one argument":
            said += ", with an equals sign: --nvcc='-use_fast_math -std=c++20'"
        raise WrongOption(f"%%cuda {line.strip()}: {said}. %%cuda? lists the options") from None
    if chosen.block:
        checked_shape("block", chosen.block)
    checked_shared(chosen.shared)
    if not chosen.name:
        raise WrongOption("%%cuda needs a name for its copy: write e.g. %%cuda tiled")
    chosen.name = chosen.name.removesuffix(".cu")
    if not _NAME.fullmatch(chosen.name):
        raise WrongOption(f"%%cuda {chosen.name}: the name is that of a file in notebooks/work, so "
                          "it has letters, digits, _ and - only, at most 100, and begins with a "
                          "letter")
    return chosen, (*(f"-D{define}" for define in chosen.defines), *words)


def _keep(copy: Path, text: str) -> None:
    """Write the copy. Where that cannot be, the cell is compiled all the same."""
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"note: no copy of the cell in notebooks/work: {error.strerror}")


def _save(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongOption(f"--save {target.name} cannot be written: {error.strerror}") from None


def _save_target(name: str) -> Path:
    """Where --save writes: never over a file of the course."""
    path = Path(name).expanduser()
    target = path.resolve()
    if target.suffix != ".cu":
        raise WrongOption(f"--save {name}: write the name of a .cu file")
    if target.is_relative_to(CUDA_FOLDER):
        raise WrongOption(f"--save {name}: the files of cuda/ are the course's own and stay as "
                          "they are; choose another folder, or edit that file itself")
    if target.is_relative_to(ROOT) and not target.is_relative_to(ROOT / "notebooks"):
        raise WrongOption(f"--save {name}: in this project's folder, only below notebooks/")
    if not target.parent.is_dir():
        raise WrongOption(f"--save {name}: there is no folder {path.parent}")
    return target
