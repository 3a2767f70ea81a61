"""helpers.leaks: device memory that outlives a with block is told by its line, and nothing else."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from helpers.memory import allocate, driver, upload
from helpers.sanitize import leaks

X = np.zeros(1024, np.float32)


def line() -> int:
    """The number of the line this is called on."""
    return sys._getframe(1).f_lineno


def test_what_is_freed_is_no_leak(autoinit):
    from pycuda import gpuarray

    cuda = driver()
    with leaks() as found:
        with upload(X), allocate(10):
            pass
        upload(X).free()
        cuda.mem_alloc(100).free()
        cuda.to_device(X)  # goes with its last reference
        array = gpuarray.to_gpu(X)
        del array
        assert not found.ok and str(found) == "the block has not ended yet"
    assert found.ok and str(found) == "all device memory that was allocated is freed"


def test_lines_and_bytes_of_what_is_not_freed(autoinit):
    from pycuda import gpuarray

    cuda, kept = driver(), []
    with leaks() as found:
        first = line() + 1
        kept.append(upload(X))
        kept.append(cuda.mem_alloc(300))
        for _ in range(3):
            kept.append(allocate(50))
        kept.append(gpuarray.zeros(500, np.float64))
        upload(X).free()
    assert not found.ok
    assert [(one.nbytes, one.count, one.line) for one in found.leaks] == [
        (4096, 1, first), (4000, 1, first + 4), (600, 3, first + 3), (300, 1, first + 1),
    ]  # fmt: skip
    assert {one.file for one in found.leaks} == {__file__}
    assert str(found).splitlines()[:2] == [
        "6 allocations (8,996 bytes) are not freed:",
        f"    4,096 bytes, test_leaks.py:{first}: kept.append(upload(X))",
    ]


def test_managed_memory_and_rows(autoinit):
    cuda, kept = driver(), []
    with leaks() as found:
        kept.append(cuda.managed_zeros(16, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL))
        kept.append(cuda.mem_alloc_pitch(100, 4, 4))
        cuda.managed_empty(64, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
    _, pitch = kept[1]
    assert {one.nbytes for one in found.leaks} == {64, 4 * pitch}


def test_what_was_there_before_and_what_comes_after_is_no_matter(autoinit):
    before = upload(X)
    with leaks() as found:
        before.free()
    after = upload(X)
    assert found.ok
    after.free()


def test_a_place_that_is_allocated_again_after_the_block_was_freed(autoinit):
    cuda = driver()
    with leaks() as found:
        for _ in range(200):  # more than the driver keeps apart
            cuda.mem_alloc(512).free()
        kept = cuda.mem_alloc(512)
    assert [(one.count, one.nbytes) for one in found.leaks] == [(1, 512)]
    kept.free()


def test_an_exception_passes_through_and_the_report_is_made(autoinit):
    with pytest.raises(ZeroDivisionError), leaks() as found:
        kept = upload(X)
        1 / 0  # noqa: B018
    assert found.ended and len(found.leaks) == 1
    kept.free()


def test_blocks_in_blocks_and_everything_as_before(autoinit):
    from pycuda import gpuarray

    cuda = driver()
    before = cuda.mem_alloc, cuda.managed_empty, gpuarray.GPUArray.__init__
    with leaks() as outer:
        kept = upload(X)
        with leaks() as inner:
            other = cuda.mem_alloc(8)
            late = cuda.mem_alloc  # a name bound inside works afterwards
    assert (cuda.mem_alloc, cuda.managed_empty, gpuarray.GPUArray.__init__) == before
    assert [one.nbytes for one in inner.leaks] == [8]
    assert [one.nbytes for one in outer.leaks] == [4096, 8]
    late(16).free()
    kept.free()
    other.free()


def test_a_cell_of_a_notebook_is_told_by_its_line_alone(autoinit):
    source = "with leaks() as found:\n    kept = upload(X)\n"
    space = {"leaks": leaks, "upload": upload, "X": X}
    exec(compile(source, "/tmp/ipykernel_123/456.py", "exec"), space)
    assert str(space["found"]).endswith("    4,096 bytes, line 2")
    space["kept"].free()
