"""The linker: cuLink…, for PTX (pycuda.driver.Linker, pycuda.compiler.DynamicModule)."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

from helpers import toolkit

from . import context, device, handles, module, ptx_link, ptxas
from .errors import DriverError, Result, explain

#: CUjitInputType
CUBIN, PTX, LIBRARY = 0, 1, 4
#: The library of dynamic parallelism, which the device has built in.
DEVICE_RUNTIME = "libcudadevrt.a"
TARGET = "sm_{}{}".format(*device.COMPUTE_CAPABILITY)


class LinkState:
    """A CUlinkState: what has been added so far, where errors are told, and the image."""

    def __init__(self, logs: module.Logs) -> None:
        self.logs = logs
        self.texts: list[tuple[str, str]] = []  # (title, PTX)
        self.reports: list[str] = []  # what ptxas says of each
        self.device_runtime = False
        self.broken = ""  # why nothing can be linked any more
        self.image: ctypes.Array | None = None

    def add(self, kind: int, title: str, data: bytes) -> None:
        """One more input.  A cubin of the CPU driver's own nvcc is PTX too."""
        if kind == LIBRARY and Path(title).name == DEVICE_RUNTIME:
            self.device_runtime = True
            return
        if kind not in (CUBIN, PTX):
            raise DriverError(Result.NOT_SUPPORTED, f"'{title}': the CPU driver links PTX, no "
                              "objects, archives or fatbins of machine code")
        text = module.text_of(data.rstrip(b"\0"))
        report = ptxas.report_in(text) or self._assemble(text)
        try:
            ptx_link.check([*self.texts, (title, text)])
        except ptx_link.LinkError as error:
            self.broken = str(error)
            raise DriverError(Result.UNKNOWN, self.broken) from None
        self.reports.append(report)
        self.texts.append((title, text))

    @staticmethod
    def _assemble(text: str) -> str:
        tools = toolkit.find_toolkit()
        if tools is None:
            return ""
        accepted, report = ptxas.assemble(tools.ptxas, text, TARGET, relocatable=True)
        if not accepted:
            raise DriverError(Result.INVALID_PTX, report.strip())
        return report

    def link(self) -> bytes:
        """The image of all that has been added; without anything, one that holds nothing."""
        if self.broken:
            raise DriverError(Result.UNKNOWN, self.broken)
        try:
            text = ptx_link.link(self.texts, TARGET, self.device_runtime)
        except ptx_link.LinkError as error:
            raise DriverError(Result.UNKNOWN, str(error)) from None
        return (text + ptxas.as_comments("".join(self.reports))).encode()


def create(count: int, options: ctypes._Pointer, values: ctypes._Pointer,
           out: ctypes._Pointer) -> None:
    """cuLinkCreate."""
    context.current()
    out[0] = handles.new(LinkState(module.Logs(count, options, values)))


@contextlib.contextmanager
def _logged(state: LinkState) -> Iterator[None]:
    """An error's sentence goes to the state's error log too (PyCUDA does not look there)."""
    try:
        yield
    except Exception as error:
        state.logs.write_error(explain(error)[1])
        raise


def _add(state: LinkState, kind: int, title: str, data: bytes) -> None:
    with _logged(state):
        state.add(kind, title, data)


def add_data(handle: int, kind: int, data: int, size: int, name: bytes, *_options: object) -> None:
    """cuLinkAddData."""
    _add(handles.get(handle, LinkState), kind, (name or b"").decode(errors="replace"),
         ctypes.string_at(data, size))


def add_file(handle: int, kind: int, path: bytes, *_options: object) -> None:
    """cuLinkAddFile."""
    state = handles.get(handle, LinkState)
    file = Path(path.decode(errors="replace"))
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DriverError(Result.FILE_NOT_FOUND, str(error)) from None
    _add(state, kind, str(file), data)


def complete(handle: int, image: ctypes._Pointer, size: ctypes._Pointer) -> None:
    """cuLinkComplete: the image stays until the state is destroyed."""
    state = handles.get(handle, LinkState)
    with _logged(state):
        data = state.link()
    state.image = ctypes.create_string_buffer(data)
    image[0] = ctypes.addressof(state.image)
    if size:
        size[0] = len(state.image)


def destroy(handle: int) -> None:
    """cuLinkDestroy."""
    handles.get(handle, LinkState)
    handles.drop(handle)


FUNCTIONS = {
    "cuLinkCreate_v2": create,
    "cuLinkAddData_v2": add_data,
    "cuLinkAddFile_v2": add_file,
    "cuLinkComplete": complete,
    "cuLinkDestroy": destroy,
}
