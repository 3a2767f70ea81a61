"""`make setup` in a fresh folder with no CUDA toolkit: what works then."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

PROGRAM = '''
import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

module = SourceModule("""
__global__ void twice(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2.0f * x[i];
}
""")
x = np.arange(1000, dtype=np.float32)
expected = 2 * x
module.get_function("twice")(cuda.InOut(x), np.int32(1000), block=(256, 1, 1), grid=(4, 1))
print("doubled:", np.array_equal(x, expected))
'''


def test_the_toolkit_comes_from_the_wheels(fresh):
    stamp = json.loads((fresh.folder / ".venv/setup.json").read_text())
    assert "from the wheels" in stamp["toolkit"]
    assert (fresh.site_packages / "nvidia/cu13/bin/nvcc").is_file()


def test_nothing_is_left_beside_the_ignored_folders(fresh, copy):
    untouched = {path.name for path in copy("untouched").folder.iterdir()}
    made = {path.name for path in fresh.folder.iterdir()} - untouched
    assert made <= {".venv", ".cache", "build", ".pytest_cache", "cuda_matmul_lessons.egg-info"}


def test_a_pycuda_program_runs_on_the_cpu_driver(fresh):
    (fresh.folder / ".cache/program.py").write_text(PROGRAM)
    done = fresh.run(fresh.python, "-m", "helpers.cpu_driver", ".cache/program.py",
                     MATMUL_BACKEND="cpu")
    assert done.returncode == 0 and "doubled: True" in done.stdout, done.stdout


def test_a_second_setup_takes_about_a_second(fresh):
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        done = fresh.run("make", "setup")
        seconds.append(time.monotonic() - started)
        assert done.returncode == 0 and done.stdout.startswith("Set up: .venv"), done.stdout
    assert min(seconds) < 1.5


def test_make_standalone_links_with_the_wheels(fresh):
    done = fresh.run("make", "standalone")
    assert done.returncode == 0, done.stdout
    assert os.access(fresh.folder / "build/matmul_shared", os.X_OK)


def test_the_wheels_toolkit_is_too_new_for_an_old_driver_and_that_is_said(fresh, tmp_path):
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 12040; return 0; }\n")
    built = fresh.run("gcc", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1")
    assert built.returncode == 0, built.stdout
    done = fresh.run(fresh.python, "-m", "helpers.toolkit", LD_LIBRARY_PATH=str(tmp_path))
    assert "NVIDIA driver: CUDA 12.4" in done.stdout
    assert "cannot load what this nvcc compiles" in done.stdout


@pytest.mark.parametrize("kind", ["wrapper", "link", "wrapper of a link"])
def test_an_nvcc_that_is_not_the_compiler_itself_leads_to_its_home(fresh, tmp_path, kind):
    nvcc = fresh.site_packages / "nvidia/cu13/bin/nvcc"
    folder = tmp_path / "some where" / "bin"
    folder.mkdir(parents=True)
    if kind != "wrapper":
        (folder / "nvcc").symlink_to(nvcc)
        nvcc = folder / "nvcc"
    if kind != "link":
        folder = tmp_path / "wrapped"
        folder.mkdir()
        (folder / "nvcc").write_text(f'#!/bin/sh\nexec "{nvcc}" "$@"\n')
        (folder / "nvcc").chmod(0o755)
    look = "from helpers import toolkit; t = toolkit.find_toolkit(); print(t.source, t.nvcc)"
    path = f"{folder}{os.pathsep}{fresh.environment['PATH']}"
    done = fresh.run("python3", "-c", look, PATH=path, MATMUL_TOOLKIT="system")
    home = fresh.site_packages / "nvidia/cu13/bin/nvcc"
    assert done.stdout.strip() == f"system {home}"


def test_jupyterlab_starts_with_its_token_on_loopback_and_asks_nothing(fresh):
    port = _free_port()
    server = fresh.start("make", "lab", f"ARGS=--no-browser --port={port}")
    try:
        said, address = "", None
        while address is None:
            line = server.stdout.readline()
            assert line, said
            said += line
            address = re.search(rf"http://127\.0\.0\.1:{port}(/\S*)\?token=(\w+)", line)
        page, token = address.groups()
        assert page == "/lab/tree/notebooks"
        _wait_for(port)
        base = f"http://127.0.0.1:{port}"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            _get(f"{base}/api/contents/notebooks", "")
        assert json.loads(_get(f"{base}/api/contents/notebooks", token))["type"] == "directory"
        name = "@jupyterlab/apputils-extension:notification"
        settings = json.loads(_get(f"{base}/lab/api/settings/{name}", token))
        assert settings["schema"]["properties"]["fetchNews"]["default"] == "false"
        name = "@jupyterlab/notebook-extension:tracker"
        settings = json.loads(_get(f"{base}/lab/api/settings/{name}", token))
        assert settings["schema"]["properties"]["codeCellConfig"]["default"]["lineNumbers"]
        assert _listening_addresses(port) == {"0100007F"}
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _wait_for(port: int) -> None:
    """Until the server listens, which may be a moment after it says so."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


def _get(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=20) as answer:
        return answer.read().decode()


def _listening_addresses(port: int) -> set[str]:
    """The addresses, as /proc/net/tcp writes them, that listen on `port` (IPv4 and IPv6)."""
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.is_file() else ():
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and local.endswith(f":{port:04X}"):
                found.add(local.split(":")[0])
    return found


def test_a_killed_setup_is_made_whole_again_without_compiling_pycuda_twice(fresh):
    (fresh.site_packages / "numpy/version.py").unlink()  # as if killed while pip wrote
    with (fresh.folder / "requirements.txt").open("a") as file:
        file.write("# changed, so that there is something to do\n")
    setup = fresh.start("make", "setup")
    assert "Libraries" in setup.stdout.read(9)
    os.killpg(setup.pid, signal.SIGKILL)
    setup.wait()
    done = fresh.run("make", "setup")
    assert done.returncode == 0, done.stdout
    assert "PyCUDA (about a minute" not in done.stdout
    assert fresh.run(fresh.python, "-c", "import numpy.version, pytest").returncode == 0
