"""Whether arguments fit a kernel's parameters, and what to write where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.errors import WrongType, WrongValue
from helpers.memory import DeviceArray
from helpers.signature import Parameter, Signature


def checked_arguments(
    signature: Signature, arguments: Sequence[Any], *, host_arrays: bool = False
) -> list[Any]:
    """The arguments as PyCUDA takes them, if they fit.

    host_arrays: whether C-contiguous NumPy arrays may stand for pointers, as `profile` has it.
    Raises WrongType or WrongValue.
    """
    parameters = signature.parameters
    if parameters is None:
        return list(arguments)
    if len(arguments) != len(parameters):
        raise WrongType(_count(signature, len(arguments)))
    return [
        _Slot(signature.name, k, parameter).checked(argument, host_arrays)
        for k, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True))
    ]


def aligned(signature: Signature, arguments: Sequence[Any]) -> list[Any]:
    """The arguments with structures and vectors where C puts them. (PyCUDA lets such bytes follow
    those before them without a gap, as struct.pack does for "s".)"""
    found, end = [], 0
    for k, argument in enumerate(arguments):
        if isinstance(argument, (np.void, np.ndarray)):
            parameter = (signature.parameters or ())[k : k + 1]
            gap = bytes(-end % _alignment(parameter[0] if parameter else None, argument))
            argument = np.void(gap + argument.tobytes())
            end += argument.nbytes
        else:
            nbytes = argument.nbytes if isinstance(argument, np.generic) else 8
            end += -end % nbytes + nbytes
        found.append(argument)
    return found


def _alignment(parameter: Parameter | None, value: Any) -> int:
    """Bytes of which a multiple is the address of a value; for CUDA's vectors see the Programming
    Guide, "Alignment Requirements"."""
    if parameter is None or parameter.vector == 1:
        return value.dtype.alignment
    whole = parameter.vector in (2, 4)
    return min(16, parameter.dtype.itemsize * (parameter.vector if whole else 1))


def _count(signature: Signature, given: int) -> str:
    parameters = signature.parameters or ()
    told = f"kernel {signature} takes {len(parameters)} argument{'s' * (len(parameters) != 1)}, "
    told += f"{given} {'is' if given == 1 else 'are'} given: "
    if given < len(parameters):
        missing = ", ".join(p.text for p in parameters[given:])
        return f"{told}after the first {given}, {missing} is missing" if given else told + "none"
    return told + f"{given - len(parameters)} too many (grid, block, shared and stream have names)"


class _Slot:
    """One parameter, and what may be given for it."""

    def __init__(self, kernel: str, number: int, parameter: Parameter):
        self.parameter = parameter
        named = f" ({parameter.text})" if parameter.text else ""
        self.told = f"argument {number + 1} of kernel {kernel}{named}"
        self.called = parameter.name or f"x{number + 1}"

    def checked(self, argument: Any, host_arrays: bool) -> Any:
        return (self._pointer if self.parameter.pointer else self._number)(argument, host_arrays)

    # -- pointers ----------------------------------------

    def _pointer(self, argument: Any, host_arrays: bool) -> Any:
        if isinstance(argument, np.ndarray):
            if not host_arrays:
                raise WrongType(f"{self.told} is a NumPy array, in host memory, where a GPU does "
                                f"not look: write upload({self._converted(argument)}) "
                                "(helpers.memory), and give what that returns")  # fmt: skip
            self._check_array(argument, self.called)
            return argument
        if isinstance(argument, (bool, int, float, np.generic)):
            return self._as_address(argument)
        array = getattr(argument, "array", None)  # pycuda.driver.In, Out, InOut
        if isinstance(array, np.ndarray):
            self._check_array(array, self.called)
            return argument
        if isinstance(argument, DeviceArray) and argument.freed:
            raise WrongValue(f"{self.told} is {argument!r}: upload or allocate it again")
        if isinstance(argument, DeviceArray) or hasattr(argument, "gpudata"):
            self._check_array(argument, self.called)
            return argument
        if type(argument).__name__ in ("DeviceAllocation", "PooledDeviceAllocation"):
            return argument
        if hasattr(argument, "__cuda_array_interface__"):
            return argument
        raise WrongType(f"{self.told} is {_short(argument)}, which is no memory on the device: "
                        "write upload(…) or allocate(…) (helpers.memory)")  # fmt: skip

    def _as_address(self, argument: Any) -> Any:
        if isinstance(argument, np.integer) and argument.nbytes == 8:
            return argument
        if isinstance(argument, int) and not isinstance(argument, bool) and argument > 2**32:
            raise WrongType(f"{self.told} is the Python int {argument}: if that is an address, "
                            f"write np.uintp({argument})")  # fmt: skip
        raise WrongType(f"{self.told} is a pointer, and is given the number {argument!r}: is the "
                        "order of the arguments right?")  # fmt: skip

    def _check_array(self, array: Any, name: str) -> None:
        wanted, dtype = self.parameter.dtype, np.dtype(getattr(array, "dtype", None) or "V1")
        if dtype.kind == "c" and self.parameter.vector == 2:  # float2: real and imaginary part
            dtype = np.dtype(f"f{dtype.itemsize // 2}")
        if self.parameter.pointers > 1 and dtype.kind != "V" and not _same_bytes(dtype, wanted):
            raise WrongType(f"{self.told} has dtype {dtype}, and the kernel reads addresses there: "
                            "upload an array of them, e.g. np.array([x.gpudata, y.gpudata], "
                            "np.uint64)")  # fmt: skip
        if wanted is not None and dtype.kind != "V" and not _same_bytes(dtype, wanted):
            raise WrongType(f"{self.told} has dtype {dtype}, and the kernel reads its bytes as "
                            f"{wanted}: write {name}.astype(np.{wanted}), and upload that"
                            )  # fmt: skip
        flags = getattr(array, "flags", None)
        if flags is not None and not getattr(flags, "c_contiguous", True):
            order = "is in Fortran order" if getattr(flags, "f_contiguous", False) else "has gaps"
            host = name if isinstance(array, np.ndarray) else f"{name}.get()"  # of a GPUArray
            raise WrongValue(f"{self.told} of shape {tuple(array.shape)} {order}, strides "
                             f"{array.strides}, and the kernel reads rows without gaps: write "
                             f"np.ascontiguousarray({host}), and upload that")  # fmt: skip

    def _converted(self, array: np.ndarray) -> str:
        """The expression that makes of a host array what the kernel reads."""
        text, wanted = self.called, self.parameter.dtype
        if not array.flags.c_contiguous:
            text = f"np.ascontiguousarray({text})"
        if wanted is not None and not _same_bytes(array.dtype, wanted):
            text = f"{text}.astype(np.{wanted})"
        return text

    # -- numbers ----------------------------------------

    def _number(self, argument: Any, _host_arrays: bool) -> Any:
        wanted = self.parameter.dtype
        if self.parameter.vector > 1:
            return self._vector(argument)
        if not isinstance(argument, np.generic):
            if isinstance(argument, (bool, int, float)):
                raise WrongType(f"{self.told} is the Python {type(argument).__name__} {argument}, "
                                "which does not say how many bytes it has: "
                                f"{_as(wanted, argument)}")  # fmt: skip
            if wanted is None and isinstance(argument, np.ndarray):  # a structure
                return argument
            if wanted is None:
                raise WrongType(f"{self.told} is {_short(argument)}: write a structure as "
                                "np.array((…), dtype)[()], of a dtype with its fields, align=True"
                                )  # fmt: skip
            raise WrongType(f"{self.told} is a number, and is given {_short(argument)}: is the "
                            "order of the arguments right?")  # fmt: skip
        if wanted is None or wanted.kind == "V":
            return argument
        if not _same_bytes(argument.dtype, wanted):
            given = f"np.{type(argument).__name__}({argument}), "
            given += f"{argument.nbytes} byte{'s' * (argument.nbytes > 1)}"
            takes = f"{wanted.itemsize} bytes there ({wanted})"
            if argument.nbytes == wanted.itemsize:
                takes = f"them as {wanted}, which is another number"
            raise WrongType(f"{self.told} is {given}, and the kernel takes {takes}: "
                            f"{_as(wanted, argument.item())}")  # fmt: skip
        if wanted.kind in "iu" and argument.dtype.kind != wanted.kind:
            info = np.iinfo(wanted)
            if not info.min <= argument <= info.max:
                raise WrongValue(f"{self.told} is {argument}, outside of {info.min} to {info.max}")
        return np.uint8(argument) if argument.dtype.kind == "b" else argument

    def _vector(self, argument: Any) -> Any:
        """A float4 or the like, as a value."""
        wanted, count = self.parameter.dtype, self.parameter.vector
        nbytes = count * wanted.itemsize
        packed = isinstance(argument, (np.ndarray, np.void))
        if packed and argument.dtype.kind == "V" and argument.nbytes == nbytes:
            return argument
        parts = ", ".join("xyzw"[:count])
        raise WrongType(f"{self.told} is {_short(argument)}, and the kernel takes {count} numbers "
                        f"({wanted}) there: write pycuda.gpuarray.vec.make_{self.parameter.kind}"
                        f"({parts})")  # fmt: skip


def _same_bytes(given: np.dtype, wanted: np.dtype) -> bool:
    """Whether bytes of the one type mean the same as the other; signed or not is let pass."""
    kinds = {"i": "integer", "u": "integer", "b": "integer"}
    same = kinds.get(given.kind, given.kind) == kinds.get(wanted.kind, wanted.kind)
    return same and given.itemsize == wanted.itemsize and given.isnative


def _as(wanted: np.dtype | None, value: Any) -> str:
    """How to write a Python number as one of the type."""
    if wanted is None:
        return f"write np.int32({value}) or np.float32({value})"
    if wanted.kind not in "iu":
        return f"write np.{'bool_' if wanted.kind == 'b' else wanted}({value})"
    info = np.iinfo(wanted)
    if isinstance(value, complex) or not info.min <= value <= info.max:
        return f"{value} is no {wanted}, which is a whole number from {info.min} to {info.max}"
    whole = int(value)
    return f"write np.{wanted}({whole if whole == value else f'round({value})'})"


def _short(argument: Any) -> str:
    text = repr(argument)
    kind = type(argument).__name__
    plain = len(text) <= 60 and "\n" not in text and " at 0x" not in text
    return f"the {kind} {text}" if plain else f"a{'n' * (kind[0] in 'aeiouAEIOU')} {kind}"
