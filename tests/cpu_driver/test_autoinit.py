"""helpers.autoinit: which backend it chooses, and what it says."""

from __future__ import annotations

import subprocess

import pytest

USE = "import helpers.autoinit as a; print(a.backend, a.device.name(), a.context is not None)"

#: A libcuda.so.1 whose answers the test chooses; enough for the questions asked, not for PyCUDA.
FAKE = """
int cuInit(unsigned flags) { %(init)s }
int cuDriverGetVersion(int *out) { *out = %(version)d; return 0; }
int cuDeviceGetCount(int *out) { *out = %(count)d; return 0; }
int cuDeviceGetAttribute(int *out, int attribute, int device)
{ *out = attribute == 75 ? %(major)d : %(minor)d; return 0; }
"""


@pytest.fixture
def with_driver(tmp_path):
    """The variables that put a fake NVIDIA driver in a program's way."""
    def make(init="return 0;", version=13000, count=1, major=9, minor=0) -> dict[str, str]:
        folder = tmp_path / "driver"
        folder.mkdir(exist_ok=True)
        (folder / "fake.c").write_text(FAKE % locals())
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o",
                        folder / "libcuda.so.1", folder / "fake.c"], check=True)
        return {"LD_LIBRARY_PATH": str(folder)}
    return make


def test_forced_to_the_cpu_driver_it_says_so_in_one_line(python):
    done = python("-c", USE, MATMUL_BACKEND="cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Backend: CPU driver (asked for by MATMUL_BACKEND). Kernels run on this machine's CPU: "
        "times are CPU times, not GPU times.", "cpu CPU driver (sm_80) True"]


def test_a_second_import_says_nothing(python):
    done = python("-c", "import helpers.autoinit\nimport pycuda.autoinit\nimport helpers.autoinit\n"
                        "assert helpers.autoinit.context == pycuda.autoinit.context",
                  MATMUL_BACKEND="cpu")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


@pytest.mark.parametrize(("driver", "reason"), [
    ({"init": "return 100;"}, "finds no GPU"),
    ({"count": 0}, "finds no GPU"),
    ({"init": "return 804;"}, "does not start (cuInit: 804)"),
    ({"init": "__builtin_trap(); return 0;"}, "could not be asked (exit status -"),
    ({"major": 7, "minor": 0}, "compute capability 7.0, and the lessons need 7.5"),
    ({"version": 11040}, "is for CUDA 11.4, and no toolkit of that version is here"),
])
def test_a_driver_that_cannot_be_used_gives_way_and_the_reason_is_told(
        python, with_driver, driver, reason):
    variables = with_driver(**driver)
    done = python("-c", USE, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Backend: CPU driver (") and reason in done.stdout
    done = python("-c", USE, MATMUL_BACKEND="gpu", **variables)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "BackendError: MATMUL_BACKEND is 'gpu', but " in last and reason in last


def test_a_driver_that_can_be_used_is(python, with_driver):
    done = python("-c", USE, **with_driver())
    # The fake has too few functions for PyCUDA, so this is as far as it comes.
    assert done.returncode == 1
    assert "BackendError: PyCUDA does not load on this NVIDIA driver" in done.stderr
    assert "MATMUL_BACKEND=cpu" in done.stderr


def test_a_driver_that_hangs_is_not_waited_for(python, with_driver):
    done = python("-c", "import helpers.autoinit as a; a.PROBE_SECONDS = 1; print(a.probe())",
                  MATMUL_BACKEND="cpu", **with_driver(init="for (;;) {} return 0;"))
    assert "did not answer within 1 seconds" in done.stdout


def test_an_unknown_backend_is_refused(python):
    done = python("-c", USE, MATMUL_BACKEND="tpu")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "MATMUL_BACKEND is 'tpu'; it can be auto, gpu or cpu.")


def test_pycuda_imported_first_is_an_error_that_says_so(python, tmp_path):
    from helpers.cpu_driver import library

    folder = library.build(tmp_path / "real").parent  # stands for an NVIDIA driver
    done = python("-c", "import pycuda.driver\nimport helpers.autoinit", MATMUL_BACKEND="cpu",
                  LD_LIBRARY_PATH=str(folder))
    assert done.returncode == 1
    assert "PyCUDA has been imported already" in done.stderr.splitlines()[-1]


def test_another_librarys_driver_is_an_error_that_says_so(python, with_driver):
    done = python("-c", "import ctypes; ctypes.CDLL('libcuda.so.1')\nimport helpers.autoinit",
                  MATMUL_BACKEND="cpu", **with_driver())
    assert done.returncode == 1
    assert "is loaded in this process already" in done.stderr.splitlines()[-1]


def test_nvcc_is_found_without_a_path(python):
    done = python("-c", "import helpers.autoinit\nfrom pycuda.compiler import SourceModule\n"
                        "SourceModule('__global__ void k() {}').get_function('k')",
                  MATMUL_BACKEND="cpu", PATH="/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")
