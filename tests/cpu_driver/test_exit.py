"""A program's end: no message, the program's own exit status, whatever is still alive."""

from __future__ import annotations

import pytest

ENDINGS = {
    "live objects": ("""
        import pycuda.gpuarray as gpuarray
        a, e, s = cuda.mem_alloc(1000), cuda.Event(), cuda.Stream()
        host, array = cuda.pagelocked_empty(100, np.float32), gpuarray.to_gpu(np.zeros(10))
        module = SourceModule("__global__ void k() {}")
        k = module.get_function("k")
        k(block=(1, 1, 1))
        cycle = [a]
        cycle.append(cycle)
    """, 0),
    "sys.exit": ("""
        import sys
        a = cuda.mem_alloc(1000)
        sys.exit(7)
    """, 7),
    "objects in a function that exits": ("""
        def main():
            a, e = cuda.mem_alloc(1000), cuda.Event()
            raise SystemExit(3)
        main()
    """, 3),
    "an atexit function that uses the driver": ("""
        import atexit
        a = cuda.mem_alloc(1000)
        atexit.register(lambda: cuda.memcpy_htod(a, np.zeros(10)))
    """, 0),
    "os._exit": ("""
        import os
        a = cuda.mem_alloc(1000)
        os._exit(5)
    """, 5),
    "after a fault": ("""
        k = SourceModule("__global__ void k(int *a) { *a = 1; }").get_function("k")
        print(message(k, np.intp(0), block=(1, 1, 1)))
        a = cuda.mem_alloc(1000)
    """, 0),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_without_a_word(program, ending):
    text, status = ENDINGS[ending]
    done = program(text)
    assert (done.returncode, done.stderr) == (status, "")


def test_an_uncaught_error_is_pythons_and_only_that(program):
    done = program("""
        a = cuda.mem_alloc(1000)
        def f():
            b = cuda.mem_alloc(1000)
            cuda.memcpy_htod(0, b"12345")
        f()
    """)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.splitlines()[-1].startswith("pycuda._driver.LogicError: cuMemcpyHtoD failed")
    assert done.stderr.count("Error") == 1 and "helpers" not in done.stderr


def test_objects_freed_while_an_exception_is_under_way_leave_it_alone(passes):
    passes("""
        free = cuda.mem_get_info()[0]
        def f(*arguments):
            pass
        for _ in range(3):
            try:
                f(cuda.mem_alloc(1 << 20), cuda.Event(), cuda.Stream(), 1 / 0)
            except ZeroDivisionError as error:
                assert str(error) == "division by zero"
        assert cuda.mem_get_info()[0] == free
    """)


def test_a_forked_child_is_told_to_spawn(program):
    done = program("""
        import os, sys
        a = cuda.mem_alloc(1000)
        child = os.fork()
        if child == 0:
            print(message(cuda.mem_alloc, 10), flush=True)
            sys.exit(5)
        assert os.waitpid(child, 0)[1] >> 8 == 5
        cuda.mem_alloc(10)
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert "forked" in done.stdout and "spawn" in done.stdout
