"""The linker, as far as one PTX file needs it (pycuda.compiler.DynamicSourceModule)."""

from __future__ import annotations

import ctypes
from pathlib import Path

from . import context, handles
from .errors import DriverError, Result

#: CUjitInputType
PTX, LIBRARY = 1, 4
#: Libraries that a program without dynamic parallelism names, but does not use.
UNUSED_LIBRARIES = ("libcudadevrt.a",)


class LinkState:
    """A CUlinkState: the PTX added so far, and the finished image."""

    def __init__(self) -> None:
        self.inputs: list[bytes] = []
        self.image: ctypes.Array | None = None


def create(_count: int, _options: ctypes._Pointer, _values: ctypes._Pointer,
           out: ctypes._Pointer) -> None:
    """cuLinkCreate."""
    context.current()
    for i in range(_count):
        if _options[i] in (4, 6):  # the sizes of the log buffers: nothing is written to them
            _values[i] = 0
    out[0] = handles.new(LinkState())


def add_data(handle: int, kind: int, data: int, size: int, _name: bytes, *_options: object) -> None:
    """cuLinkAddData."""
    _add(handles.get(handle, LinkState), kind, ctypes.string_at(data, size))


def add_file(handle: int, kind: int, path: bytes, *_options: object) -> None:
    """cuLinkAddFile."""
    state = handles.get(handle, LinkState)
    file = Path(path.decode())
    if kind == LIBRARY and file.name in UNUSED_LIBRARIES:
        return
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DriverError(Result.FILE_NOT_FOUND, str(error)) from None
    _add(state, kind, data)


def _add(state: LinkState, kind: int, data: bytes) -> None:
    if kind != PTX or state.inputs:
        raise DriverError(Result.NOT_SUPPORTED, "the CPU driver links one PTX file, no more")
    state.inputs.append(data.rstrip(b"\0"))


def complete(handle: int, image: ctypes._Pointer, size: ctypes._Pointer) -> None:
    """cuLinkComplete: the image stays until the state is destroyed."""
    state = handles.get(handle, LinkState)
    if not state.inputs:
        raise DriverError(Result.INVALID_VALUE, "nothing has been added to the linker")
    state.image = ctypes.create_string_buffer(state.inputs[0])
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
