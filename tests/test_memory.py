"""Device memory: what goes up comes down, and what was freed cannot be used."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.memory import DeviceArray, allocate, upload

ROOT = Path(__file__).resolve().parent.parent
needs_device = pytest.mark.usefixtures("autoinit")


@needs_device
class TestRoundTrip:
    @pytest.mark.parametrize("dtype", "float32 float64 int8 int32 uint64 bool complex64".split())
    @pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 4)])
    def test_an_array_comes_back_as_it_went(self, shape: tuple[int, ...], dtype: str) -> None:
        array = (np.arange(np.prod(shape)).reshape(shape) % 2 * 3).astype(dtype)
        with upload(array) as device_array:
            assert (device_array.shape, device_array.dtype) == (shape, np.dtype(dtype))
            assert device_array.size == array.size
            assert device_array.nbytes == array.nbytes
            back = device_array.download()
        assert back.dtype == array.dtype
        assert np.array_equal(back, array)

    def test_every_bit_of_a_nan_survives(self) -> None:
        bits = np.array([0x7FC0_0001, 0xFFFF_FFFF, 0x7F80_0001, 0x8000_0000], np.uint32)
        with upload(bits.view(np.float32)) as array:
            assert np.array_equal(array.download().view(np.uint32), bits)

    def test_upload_copies(self) -> None:
        host = np.zeros(4, np.float32)
        with upload(host) as array:
            host[:] = 1
            assert not array.download().any()

    def test_download_into_and_copy_from(self) -> None:
        with allocate((2, 3)) as array:
            array.copy_from(np.arange(6, dtype=np.float32).reshape(2, 3))
            host = np.empty((2, 3), np.float32)
            assert array.download_into(host) is host
            assert host.ravel().tolist() == [0, 1, 2, 3, 4, 5]


@needs_device
class TestFill:
    def test_memory_is_nan_unless_asked_otherwise(self) -> None:
        with allocate((33, 7)) as array:
            assert array.dtype == np.float32
            assert np.isnan(array.download()).all()

    @pytest.mark.parametrize(
        ("dtype", "fill"),
        [("float32", 1.5), ("float32", -0.0), ("float64", 0.1), ("float64", np.nan), ("int32", -7)]
        + [("int8", -1), ("uint8", 255), ("int64", 2**40), ("bool", True), ("float16", np.inf)],
    )
    def test_any_value_of_the_dtype(self, dtype: str, fill: float) -> None:
        with allocate(37, dtype, fill=fill) as array:
            expected = np.full(37, fill, dtype)
            assert array.download().tobytes() == expected.tobytes()

    def test_none_leaves_the_memory_alone(self) -> None:
        with allocate(5, fill=None) as array:
            assert array.download().shape == (5,)

    def test_an_array_can_be_filled_again(self) -> None:
        with upload(np.arange(4, dtype=np.float32)) as array:
            assert array.fill(0).download().tolist() == [0, 0, 0, 0]

    @pytest.mark.parametrize(
        ("dtype", "fill"),
        [("int32", np.nan), ("int32", 0.5), ("uint8", 256), ("uint8", -1), ("float32", "x")]
        + [("float32", [1.0, 2.0]), ("int32", None.__class__), ("float32", 1e39)],
    )
    def test_a_value_that_the_dtype_lacks_is_an_error(self, dtype: str, fill: Any) -> None:
        with pytest.raises(ValueError, match="is no .* value"):
            allocate(3, dtype, fill=fill)


@needs_device
class TestLifetime:
    def test_a_freed_array_says_so(self) -> None:
        array = upload(np.ones((2, 3), np.float32))
        assert not array.freed
        array.free()
        assert array.freed
        array.free()  # a second time does nothing
        for use in (
            array.download,
            lambda: array.gpudata,
            lambda: int(array),
            lambda: array.fill(0),
            lambda: array.copy_from(np.ones((2, 3), np.float32)),
            array.__enter__,
        ):
            with pytest.raises(ValueError, match=r"DeviceArray of shape \(2, 3\) was freed"):
                use()
        assert "freed" in repr(array)

    def test_the_end_of_a_with_block_frees(self) -> None:
        with allocate(3) as array:
            assert f"0x{array.gpudata:x}" in repr(array)
        assert array.freed

    def test_an_error_in_a_with_block_frees_and_is_not_hidden(self) -> None:
        with pytest.raises(ZeroDivisionError), allocate(3) as array:
            1 / 0  # noqa: B018
        assert array.freed

    def test_memory_is_freed_with_the_object(self) -> None:
        import pycuda.driver as cuda

        before = cuda.mem_get_info()[0]
        array = DeviceArray(64 << 20, "uint8")
        assert cuda.mem_get_info()[0] < before
        gone = weakref.ref(array)
        del array
        gc.collect()
        assert gone() is None
        assert cuda.mem_get_info()[0] >= before

    def test_hundreds_of_large_arrays_in_turn_fit(self) -> None:
        for _ in range(300):
            allocate(256 << 20, "uint8", fill=None)

    def test_no_room_is_an_error_that_says_how_much_there_is(self) -> None:
        with pytest.raises(MemoryError, match=r"no room on the device for 4,611,.* are free"):
            allocate(1 << 60, np.float32, fill=None)


@needs_device
class TestRefusals:
    @pytest.mark.parametrize(
        ("array", "error", "message"),
        [
            ([1.0, 2.0], TypeError, r"array is a list.*np\.array"),
            (3.0, TypeError, "array is a float"),
            (np.ones((4, 4))[:, ::2], ValueError, r"not C-contiguous.*np\.ascontiguousarray"),
            (np.asfortranarray(np.ones((4, 4))), ValueError, "not C-contiguous"),
            (np.ones((0, 4)), ValueError, r"shape \(0, 4\): there is nothing"),
            (np.array(["a"]), TypeError, "cannot live in device memory"),
            (np.array([None]), TypeError, "cannot live in device memory"),
            (np.ones(3, ">f4"), TypeError, "cannot live in device memory"),
            (np.ma.masked_array(np.ones(3)), TypeError, "masked array"),
        ],
    )
    def test_what_cannot_be_uploaded(
        self, array: Any, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            upload(array)

    @pytest.mark.parametrize(
        "shape", [0, -1, (3, 0), (3, -1), (3, 2.0), (True,), (), ("3",), 2.5, None]
    )
    def test_what_is_no_shape(self, shape: Any) -> None:
        with pytest.raises(ValueError, match="shape"):
            allocate(shape)

    def test_download_into_another_shape_dtype_or_order(self) -> None:
        with allocate((2, 3)) as array:
            for host in (np.empty((3, 2), np.float32), np.empty((2, 3)), np.empty(6, np.float32)):
                with pytest.raises(ValueError, match="must be the same"):
                    array.download_into(host)
            with pytest.raises(ValueError, match="not C-contiguous"):
                array.download_into(np.empty((3, 2), np.float32).T)
            host = np.empty((2, 3), np.float32)
            host.flags.writeable = False
            with pytest.raises(ValueError, match="read-only"):
                array.download_into(host)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_arrays_alive_at_exit_end_without_a_word() -> None:
    done = run("""
        import helpers.autoinit
        import numpy as np
        from helpers.kernels import KERNELS
        from helpers.memory import allocate, upload
        kept = [allocate(1000) for _ in range(10)]
        class Cycle: pass
        cycle = Cycle(); cycle.me, cycle.array = cycle, upload(np.ones(5, np.float32))
        KERNELS["naive"](np.ones((3, 3), np.float32), np.ones((3, 3), np.float32))
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_context_is_made_when_first_needed() -> None:
    done = run("""
        import numpy as np
        from helpers.memory import upload
        from helpers.timing import backend
        print(upload(np.ones(3, np.float32)).download().sum(), backend() in ("gpu", "cpu"))
    """)
    assert done.stdout.splitlines()[-1] == "3.0 True", done.stderr


def test_a_thread_without_the_context_is_told_so() -> None:
    done = run("""
        import threading
        import helpers.autoinit
        from helpers.memory import allocate
        def work():
            try:
                allocate(3)
            except RuntimeError as error:
                print(error)
            helpers.autoinit.context.push()
            print(allocate(3).size)
            helpers.autoinit.context.pop()
        helpers.autoinit.context.pop()
        thread = threading.Thread(target=work); thread.start(); thread.join()
        helpers.autoinit.context.push()
    """)
    assert "no CUDA context is current in this thread" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "3"


def test_an_array_that_another_thread_collects_is_freed_by_the_next_one(autoinit):
    """Python's collector runs in whichever thread it likes; there is no context there."""
    import pycuda.driver as cuda

    before, _ = cuda.mem_get_info()
    arrays = [allocate(2**20)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()
    assert not told
    allocate(1).free()
    assert cuda.mem_get_info()[0] >= before
