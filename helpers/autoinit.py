"""What ``pycuda.autoinit`` does, on a GPU where there is one, else on the CPU driver.

``import helpers.autoinit`` comes before anything of pycuda.  It chooses the backend, initialises
CUDA, makes a context current until the program ends, and says in one line what it chose.  The
environment variable ``MATMUL_BACKEND`` (auto, gpu or cpu) forces the choice.

``device``: the pycuda.driver.Device; ``context``: its Context; ``backend``: "gpu" or "cpu".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass

from helpers import cpu_driver, toolkit

VARIABLE = "MATMUL_BACKEND"
CHOICES = ("auto", "gpu", "cpu")
#: nvcc 13 compiles for nothing older.
OLDEST_CARD = (7, 5)
#: The driver that loads what nvcc 13 makes is release 580.
CUDA_13 = 13000
#: Waking several GPUs up takes seconds each, where no persistence daemon runs.
PROBE_SECONDS = 60

#: Runs in a child process: once the real libcuda is in a process, PyCUDA binds to it.
_PROBE = """
import ctypes, json
def number(function, *arguments):
    out = ctypes.c_int()
    code = function(ctypes.byref(out), *arguments)
    if code:
        raise SystemExit(json.dumps({"failed": f"{function.__name__} returned {code}"}))
    return out.value
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    raise SystemExit(json.dumps({"failed": "no NVIDIA driver was found"}))
version = number(cuda.cuDriverGetVersion)
code = cuda.cuInit(0)
if code == 100:
    raise SystemExit(json.dumps({"failed": "the NVIDIA driver finds no GPU"}))
if code:
    raise SystemExit(json.dumps({"failed": f"the NVIDIA driver does not start (cuInit: {code})"}))
cards = [(number(cuda.cuDeviceGetAttribute, 75, i), number(cuda.cuDeviceGetAttribute, 76, i))
         for i in range(number(cuda.cuDeviceGetCount))]
print(json.dumps({"version": version, "cards": cards}))
"""


class BackendError(RuntimeError):
    """The backend asked for cannot be had; the text says why, and what to do."""


@dataclass(frozen=True)
class Choice:
    """Which backend to use, and why."""

    backend: str
    reason: str = ""


def choose(wanted: str | None = None) -> Choice:
    """The backend for `wanted` ("auto", "gpu", "cpu"; by default what MATMUL_BACKEND says).

    Raises BackendError for another word, and for "gpu" where no GPU can be used.
    """
    wanted = wanted or os.environ.get(VARIABLE) or "auto"
    if wanted not in CHOICES:
        raise BackendError(f"{VARIABLE} is {wanted!r}; it can be auto, gpu or cpu.")
    if cpu_driver.is_loaded():
        if wanted == "gpu":
            raise BackendError(f"{VARIABLE} is 'gpu', but this process runs on the CPU driver "
                               "already.")
        return Choice("cpu", "asked for")
    if wanted == "cpu":
        return Choice("cpu", f"asked for by {VARIABLE}")
    obstacle = why_no_gpu()
    if obstacle is None:
        return Choice("gpu")
    if wanted == "gpu":
        raise BackendError(f"{VARIABLE} is 'gpu', but {obstacle}. Without {VARIABLE}=gpu, the CPU "
                           "driver is used.")
    return Choice("cpu", obstacle)


def why_no_gpu() -> str | None:
    """What keeps PyCUDA from a GPU on this machine, or None if nothing does."""
    found = probe()
    if "failed" in found:
        return found["failed"]
    cards = [tuple(card) for card in found["cards"]]
    if not cards:
        return "the NVIDIA driver finds no GPU"
    if max(cards) < OLDEST_CARD:
        return ("the GPU is of compute capability {}.{}, and the lessons need 7.5 or "
                "later".format(*max(cards)))
    if found["version"] < CUDA_13:
        tools = toolkit.find_toolkit()
        if tools is None or not toolkit.fits_driver(tools.version):
            return ("the NVIDIA driver is for CUDA {}.{}, and no toolkit of that version is here "
                    "(driver 580 or later would do)".format(found["version"] // 1000,
                                                            found["version"] % 1000 // 10))
    return None


def probe() -> dict:
    """{"version": …, "cards": [(major, minor), …]} of the real driver, or {"failed": why}."""
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _PROBE], capture_output=True,
                              text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"the NVIDIA driver did not answer within {PROBE_SECONDS} seconds"}
    answer = done.stdout.strip() or done.stderr.strip()
    try:
        return json.loads(answer)
    except ValueError:
        return {"failed": f"the NVIDIA driver could not be asked (exit status {done.returncode})"}


def _find_nvcc() -> None:
    """Put the toolkit's nvcc first on PATH: a notebook's kernel does not have it there."""
    tools = toolkit.find_toolkit()
    if tools is not None:
        os.environ["PATH"] = os.pathsep.join((str(tools.nvcc.parent),
                                              os.environ.get("PATH", os.defpath)))


def _announce(choice: Choice) -> None:
    if choice.backend == "gpu":
        major, minor = device.compute_capability()
        print(f"Backend: GPU, {device.name()} (sm_{major}{minor}).", flush=True)
    else:
        print(f"Backend: CPU driver ({choice.reason}). Kernels run on this machine's CPU: times "
              "are CPU times, not GPU times.", flush=True)


_choice = choose()
backend = _choice.backend
if backend == "cpu":
    cpu_driver.load()
else:
    _find_nvcc()

try:
    from pycuda.autoinit import context, device  # noqa: F401 - binds to the driver chosen above
except ImportError as error:
    if backend == "cpu" or "libcuda" not in str(error) and "undefined symbol" not in str(error):
        raise
    raise BackendError(f"PyCUDA does not load on this NVIDIA driver ({error}). Run `make setup` "
                       f"again, or set {VARIABLE}=cpu.") from error

# What Python's collector finds in another thread than the context's, PyCUDA cannot free. It says so
# in the middle of whatever runs then, with the path of that; a reader can do nothing about it.
warnings.filterwarnings("ignore", r"\w+ in out-of-thread context could not be cleaned up")

_announce(_choice)
