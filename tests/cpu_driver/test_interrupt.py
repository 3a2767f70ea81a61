"""Ctrl-C reaches the program as an ordinary KeyboardInterrupt, and leaves the driver usable."""

from __future__ import annotations

INTERRUPTS = """
import os, signal, threading, time

def interrupt_after(seconds):
    threading.Thread(target=lambda: (time.sleep(seconds), os.kill(os.getpid(), signal.SIGINT)),
                     daemon=True).start()

a = cuda.mem_alloc(4000)
cuda.memset_d8(a, 0, 4000)
"""


def test_a_kernel_that_never_ends_is_stopped(program):
    done = program(INTERRUPTS + """
module = SourceModule("__global__ void spin(volatile int *a) { while (*a == 0); }"
                      "__global__ void one(int *a) { *a = 1; }")
spin = module.get_function("spin")
interrupt_after(0.3)
start = time.time()
try:
    spin(a, block=(64, 1, 1), grid=(8, 1))
    raise AssertionError("the kernel ended")
except KeyboardInterrupt:
    assert time.time() - start < 1.5
module.get_function("one")(a, block=(1, 1, 1))
assert cuda.from_device(a, 1, np.int32)[0] == 1
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_uncaught_interrupt_ends_the_program_as_pythons_own(program):
    done = program(INTERRUPTS + """
spin = SourceModule("__global__ void f(volatile int *a) { while (*a == 0); }").get_function("f")
interrupt_after(0.3)
spin(a, block=(64, 1, 1))
""")
    assert done.returncode == -2  # SIGINT
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "helpers" not in done.stderr


def test_quick_calls_end_before_the_interrupt_is_raised(program):
    done = program(INTERRUPTS + """
data, seen = np.zeros(1000, np.float32), []
for k in range(60):
    try:
        interrupt_after(0.01 + k * 37e-6)
        while True:
            cuda.memcpy_htod(a, data)
            event = cuda.Event().record()
            block = cuda.mem_alloc(100)
            block.free()
    except BaseException as error:
        seen.append(repr(error))
assert set(seen) == {"KeyboardInterrupt()"}, set(seen)
assert cuda.mem_get_info()[0] > 1 << 20
""")
    assert done.returncode == 0, done.stderr


def test_quick_launches_are_stopped_or_done_and_leave_the_engine_whole(program):
    done = program(INTERRUPTS + """
one, seen = SourceModule("__global__ void one(int *a) { *a = 1; }").get_function("one"), []
for k in range(60):
    try:
        interrupt_after(0.01 + k * 37e-6)
        while True:
            one(a, block=(1, 1, 1))
    except BaseException as error:
        seen.append(repr(error))
assert set(seen) == {"KeyboardInterrupt()"}, set(seen)
one(a, block=(32, 1, 1))
assert cuda.from_device(a, 1, np.int32)[0] == 1
""")
    assert done.returncode == 0, done.stderr
