"""A PTX text as its users see it before any kernel runs: names, sizes, parameters, variables.

Reading PTX takes longer than loading the machine code of a kernel that has been compiled before. So
this is kept on disk as well (see cache), and the text itself is read only to compile.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from . import cache, ptx
from .errors import InvalidPtx, Unsupported
from .forms import Checker
from .layout import layout_of
from .stack import expand, function_address


@dataclass(frozen=True)
class Head:
    """What a launch must know of a kernel. problem: why it cannot run."""

    name: str
    parameters: tuple[tuple[str, int, int], ...]  # name, offset, bytes
    static_shared_bytes: int
    local_bytes: int  # of a lane
    max_threads: int | None
    problem: Unsupported | InvalidPtx | None = None


@dataclass(frozen=True)
class Image:
    """variables: those of .global and .const; functions: what the names of device functions stand
    for."""

    variables: tuple[ptx.Variable, ...]
    functions: dict[str, int]
    kernels: dict[str, Head]


class Source:
    """A PTX text, read when it is needed."""

    def __init__(self, text: str):
        self.text = text
        self._kernels: dict[str, ptx.Kernel] = {}

    @functools.cached_property
    def module(self) -> ptx.Module:
        """Raises InvalidPtx if the text, or a device function of it, is not PTX."""
        module = ptx.parse(self.text)
        for function in module.functions.values():
            Checker(module, function).check()
        return module

    def kernel(self, name: str) -> ptx.Kernel:
        """A kernel with its calls expanded. Raises Unsupported or InvalidPtx."""
        if name not in self._kernels:
            kernel = self.module.kernels[name]
            Checker(self.module, kernel).check()
            self._kernels[name] = expand(self.module, kernel)
        return self._kernels[name]

    def image(self) -> Image:
        """From the disk, or from the text. Raises InvalidPtx."""
        key = cache.key(self.text, "", (0, 0, 0), "image")
        image = cache.load(key)
        if not isinstance(image, Image):
            image = self._image()
            if not any(head.problem for head in image.kernels.values()):
                cache.keep(key, image)
        return image

    def _image(self) -> Image:
        module = self.module
        return Image(
            tuple(v for v in module.variables if v.space in ("global", "const")),
            {name: function_address(module, name) for name in module.functions},
            {name: self._head(name) for name in module.kernels},
        )

    def _head(self, name: str) -> Head:
        problem = None
        try:
            kernel = self.kernel(name)
        except (Unsupported, InvalidPtx) as found:  # other kernels of the module may be fine
            problem, kernel = found, replace(self.module.kernels[name], body=[])
        layout = layout_of(self.module, kernel)
        return Head(
            name,
            tuple((p.name, layout.parameters[p.name], p.nbytes) for p in kernel.parameters),
            layout.static_shared,
            layout.local_stride,
            kernel.max_threads,
            problem,
        )
