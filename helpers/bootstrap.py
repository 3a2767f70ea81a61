"""Make ``.venv``: the environment the lessons and the tests run in.  `make setup` runs this.

Everything is made inside the checkout: the environment in ``.venv``, the compiled PyCUDA in
``.cache/wheels``, the log in ``.cache/setup.log``.  A second run compares a stamp and is done.  A
set-up that was interrupted starts over, keeping what pip and ``.cache`` hold.

Standard library only.  The top of this file also loads on an old Python, to say what is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helpers import prerequisites

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CACHE = ROOT / ".cache"
WHEELHOUSE = CACHE / "wheels"
LOG = CACHE / "setup.log"
STAMP = VENV / "setup.json"
UNFINISHED = CACHE / "setup-unfinished"  # a set-up is at work, or was killed

#: Files whose change means that the set-up has to run again.
INPUTS = ("requirements.txt", "pyproject.toml", "helpers/bootstrap.py", "helpers/toolkit.py")
PYCUDA = "pycuda==2026.1"

JUPYTERLAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {
        "codeCellConfig": {"lineNumbers": True, "lineWrap": False},
    },
}


class SetupError(Exception):
    """The set-up cannot go on; the text says why and what to do."""


def main() -> int:
    """Set up, or find that nothing is to be done."""
    if not sys.platform.startswith("linux"):
        print("These lessons run on Linux, on Windows inside WSL2; there is no CUDA compiler for "
              f"this system ({sys.platform}). README.md says what else you can do.",
              file=sys.stderr)
        return 1
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler)
    wanted = os.environ.get("PYTHON") or None
    python = prerequisites.choose_python(wanted, _candidates())
    lacks = prerequisites.missing(python)
    if lacks or python is None:
        print(prerequisites.explain(lacks, python, wanted), file=sys.stderr)
        return 1
    if sys.version_info[:2] < prerequisites.OLDEST:  # the rest of this file needs a newer Python
        os.chdir(ROOT)
        os.execv(python["executable"], [python["executable"], "-m", "helpers.bootstrap"])
    try:
        with _lock() as lock:
            Setup(python, lock).run()
    except (SetupError, OSError) as error:
        print(f"\nSet-up stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up interrupted; the next make takes it up again.", file=sys.stderr)
        return 130
    return 0


def _candidates() -> list[str]:
    """Interpreters to try, most wanted first: a finished .venv's, this one, others on PATH."""
    own = [str(PYTHON)] if STAMP.is_file() else []
    return [*own, sys.executable, "python3.13", "python3.12", "python3.11"]


@contextlib.contextmanager
def _lock():
    """Let one set-up at a time work in this checkout; yields the lock's file descriptor.

    The commands the set-up starts inherit it, so one that outlives a killed set-up still holds it.
    """
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "setup.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is at work in this folder; waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


class Setup:
    """One run of the set-up with the interpreter `python` (as prerequisites.probe describes it)."""

    def __init__(self, python: dict, lock: int) -> None:
        from helpers import toolkit  # needs the newer Python that main() made sure of

        self.toolkits = toolkit
        self.python = python
        self.lock = lock
        self.stamp = _read_stamp()
        self.site_packages = (
            VENV / "lib" / "python{}.{}".format(*python["version"]) / "site-packages"
        )

    def run(self) -> None:
        """Do what is left to do."""
        if self._is_done():
            print(f"Set up: .venv, Python {self._dotted_version()}, {self._find_toolkit()}")
            return
        started = time.monotonic()
        LOG.write_text("")
        venv_is_sound = self._venv_is_sound()
        STAMP.unlink(missing_ok=True)
        UNFINISHED.touch()
        try:
            if not venv_is_sound:
                self._make_venv()
            toolkit = self._settle_toolkit()
            self._check_compiler(toolkit)
            self._install(toolkit)
        except SetupError:
            UNFINISHED.unlink()  # stopped between two whole steps: what is there is sound
            raise
        _write_lab_settings()
        _write_whole(STAMP, json.dumps(self._state(toolkit), indent=1) + "\n")
        UNFINISHED.unlink()
        print(f"Set up in {time.monotonic() - started:.0f} s: .venv, "
              f"Python {self._dotted_version()}, {toolkit}")
        self._mind_driver(toolkit)

    # --- what is there -------------------------------------------------------------------------

    def _dotted_version(self) -> str:
        return ".".join(map(str, self.python["version"]))

    def _find_toolkit(self):
        try:
            return self.toolkits.find_toolkit(self.site_packages)
        except self.toolkits.ToolkitError as error:
            raise SetupError(str(error)) from None

    def _state(self, toolkit) -> dict[str, str]:
        """What a finished set-up depends on; the stamp holds it."""
        digest = hashlib.sha256()
        for name in INPUTS:
            digest.update((ROOT / name).read_bytes())
        return {"checkout": str(ROOT), "python": self._dotted_version(),
                "inputs": digest.hexdigest(), "toolkit": str(toolkit),
                "pycuda": self._pycuda_key(toolkit)}

    def _is_done(self) -> bool:
        toolkit = self._find_toolkit()
        if toolkit is None or self.stamp != self._state(toolkit):
            return False
        return _modules_are_there()

    # --- the steps -----------------------------------------------------------------------------

    def _make_venv(self) -> None:
        """Make .venv, in place of what may be there."""
        with _step(f"Environment .venv with Python {self._dotted_version()}"):
            base = self.python["base"]
            if VENV.is_symlink():
                raise SetupError(f"{VENV} is a link; remove it and run make again.")
            shutil.rmtree(VENV, ignore_errors=True)
            if self.python["venv"]:
                self._execute([base, "-m", "venv", VENV])
            else:
                self._execute(["uv", "venv", "--seed", "--python", base, VENV])

    def _venv_is_sound(self) -> bool:
        """Whether .venv is whole, of the wanted Python, and was made in this folder."""
        found = prerequisites.probe(str(PYTHON))
        moved = self.stamp.get("checkout", str(ROOT)) != str(ROOT)
        spoilt = self.stamp and not _modules_are_there()
        if found is None or moved or spoilt or UNFINISHED.exists():
            return False
        same = found["version"] == self.python["version"]
        return same and _venv_python_succeeds("-m", "pip", "--version")

    def _settle_toolkit(self):
        """The toolkit to use; the wheels' one is installed if the machine has none that fits."""
        toolkit, driver = self._find_toolkit(), self.toolkits.driver_version()
        if toolkit and (driver is None or toolkit.version <= driver):
            return toolkit
        wheels_help = driver is None or self.toolkits.WHEELS_VERSION <= driver
        if toolkit and not wheels_help:
            return toolkit  # nothing fits: the CPU driver will do, see _mind_driver
        if os.environ.get(self.toolkits.CHOICE_VARIABLE) == "system":
            if toolkit:
                return toolkit
            raise SetupError("\n".join(["this machine has no complete CUDA toolkit.",
                                        *self.toolkits.passed_over()]))
        for reason in self.toolkits.passed_over():
            print(f"Passed over: {reason}")
        with _step("CUDA compiler from wheels (105 MB)"):
            self._pip_install("--no-deps", *self.toolkits.WHEELS)
        toolkit = self._find_toolkit()
        if toolkit is None:
            raise SetupError("the CUDA wheels were installed but make no complete toolkit for "
                             f"{platform.machine()}:\n" + "\n".join(self.toolkits.passed_over()))
        return toolkit

    def _install(self, toolkit) -> None:
        """The libraries and PyCUDA, which compiles, if it has to, while the others are fetched."""
        key = self._pycuda_key(toolkit)
        if self.stamp.get("pycuda", key) == key and self._pycuda_loads():
            self._install_libraries()
            return
        house = WHEELHOUSE / key
        if any(house.glob("pycuda-*.whl")):
            self._install_libraries()
            self._pip_install_pycuda(house)
            if self._pycuda_loads():
                return
            print("The PyCUDA kept in .cache/wheels does not load here; compiling it anew.")
            shutil.rmtree(house)
        with PycudaBuild(self.lock, toolkit, house) as build:
            self._install_libraries("Libraries; PyCUDA compiles meanwhile")
            with _step("PyCUDA (about a minute, only once)"):
                build.finish()
                self._pip_install_pycuda(house)
        if not self._pycuda_loads():
            raise SetupError(f"PyCUDA was built but does not load; see {LOG}.")

    def _install_libraries(self, title: str = "Libraries") -> None:
        with _step(title):
            self._pip_install(*_requirements(), "-e", ".")

    def _pycuda_key(self, toolkit) -> str:
        """Which PyCUDA a set-up needs; also the name of its wheel's folder in the wheelhouse."""
        python = "cp{}{}".format(*self.python["version"])
        return f"{PYCUDA}-{python}-cu{toolkit.version[0]}-{platform.machine()}".replace("==", "-")

    def _pycuda_loads(self) -> bool:
        """Whether PyCUDA's extension finds every symbol it needs in the CPU driver's library."""
        look = ("import ctypes; from helpers.cpu_driver import library; "
                "ctypes.CDLL(str(library.build())); import pycuda.driver")
        return self._execute([PYTHON, "-c", look], check=False) == 0

    def _check_compiler(self, toolkit) -> None:
        """Compile a kernel: an nvcc and a g++ that do not fit each other show here."""
        with tempfile.TemporaryDirectory(dir=VENV) as folder:
            source = Path(folder, "probe.cu")
            source.write_text("__global__ void probe(float *x) { x[threadIdx.x] = 1.0f; }\n")
            command = [toolkit.nvcc, "--cubin", "-arch=sm_80", source, "-o", source.with_suffix("")]
            if self._execute(command, check=False) == 0:
                return
        advice = (f" Install an older g++, or use the CUDA wheels: "
                  f"{self.toolkits.CHOICE_VARIABLE}=wheels make setup"
                  if toolkit.source == "system" else "")
        raise SetupError(f"{toolkit.nvcc} cannot compile with this machine's g++.{advice}\n"
                         + _log_tail(6))

    def _mind_driver(self, toolkit) -> None:
        if not self.toolkits.fits_driver(toolkit.version):
            driver = ".".join(map(str, self.toolkits.driver_version()))
            print(f"The NVIDIA driver here supports CUDA {driver} and cannot load what this newer "
                  "nvcc compiles, so the lessons run on the CPU driver. Update the NVIDIA driver "
                  f"or install a CUDA {driver} toolkit to use the GPU.")

    # --- running commands ----------------------------------------------------------------------

    def _pip_install_pycuda(self, house: Path) -> None:
        wheel = next(house.glob("pycuda-*.whl"))
        self._pip_install("--force-reinstall", "--no-deps", wheel)  # whatever is there already
        self._pip_install(wheel)  # what it depends on

    def _pip_install(self, *arguments) -> None:
        """Install with uv where there is one, else (or if uv fails) with pip."""
        arguments = ("install", *arguments)
        if shutil.which("uv"):
            uv = ["--reinstall" if a == "--force-reinstall" else a for a in arguments]
            if self._execute(["uv", "pip", *uv, "--python", PYTHON], check=False) == 0:
                return
        self._execute([PYTHON, "-m", "pip", *arguments])

    def _execute(self, command: list, check: bool = True) -> int:
        """Run `command` in the checkout, its output into the log."""
        with LOG.open("ab") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            code = subprocess.run(command, cwd=ROOT, env=_environment(), stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log, pass_fds=(self.lock,), check=False,
                                  ).returncode
        if check and code != 0:
            raise _failure(command, LOG)
        return code


class PycudaBuild:
    """PyCUDA's wheel in the making, in a process of its own."""

    def __init__(self, lock: int, toolkit, house: Path) -> None:
        self.house = house
        self.folder = Path(tempfile.mkdtemp(dir=VENV, prefix="pycuda-"))
        self.log = CACHE / "pycuda-build.log"
        environment = _environment() | {"HOME": str(build_home(self.folder, toolkit))}
        environment.setdefault("CC", "gcc")  # some Pythons name a compiler of their maker's
        environment.setdefault("CXX", "g++")
        self.command = [PYTHON, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir",
                        "--wheel-dir", self.folder / "wheels", PYCUDA]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, pass_fds=(lock,))

    def __enter__(self) -> PycudaBuild:
        return self

    def finish(self) -> None:
        """Wait for the wheel and keep it in the wheelhouse."""
        if self.process.wait() != 0:
            raise _failure(self.command, self.log)
        shutil.rmtree(self.house, ignore_errors=True)
        self.house.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "wheels").rename(self.house)

    def __exit__(self, *_) -> None:
        """End the build if it still runs, and remove what it leaves."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # at which pip cleans up after itself
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def build_home(folder: Path, toolkit, changes: dict[str, object] | None = None) -> Path:
    """A HOME for PyCUDA's build: PyCUDA reads its options from ``~/.aksetup-defaults.py``.

    changes: options (of PyCUDA's setup.py) that differ from those of the lessons' PyCUDA.

    Links keep what pip itself reads at home (its settings, passwords for an index).
    """
    from helpers.cpu_driver import library  # like helpers.toolkit, needs the newer Python

    home, stub = folder / "home", folder / "stub"
    home.mkdir()
    stub.mkdir()
    for name in (".config", ".pip", ".netrc", ".cache"):
        if (Path.home() / name).exists():
            (home / name).symlink_to(Path.home() / name)
    # Linked against by the name that the NVIDIA driver's library has too.  It must define what
    # PyCUDA uses: with an empty library --as-needed would drop the name from PyCUDA's extension.
    try:
        library.build(stub).rename(stub / "libcuda.so")
    except library.BuildError as error:
        raise SetupError(str(error)) from None
    options = {
        "CUDA_ROOT": str(toolkit.root),
        "CUDA_INC_DIR": [str(toolkit.include)],
        "CUDA_ENABLE_CURAND": False,
        "CUDADRV_LIB_DIR": [str(stub)],
        "CXXFLAGS": ["-O1", "-g0"],  # -O1 builds in two thirds of the time; nothing here is hot
    }
    options |= changes or {}
    lines = [f"{name} = {value!r}\n" for name, value in options.items()]
    (home / ".aksetup-defaults.py").write_text("".join(lines))
    return home


def _modules_are_there() -> bool:
    """Whether .venv's Python finds what was installed; nothing is imported."""
    required = [re.match(r"\w+", line)[0] for line in _requirements()]  # named as their modules
    names = ["helpers", "pycuda.driver", *required]
    look = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {names})))"
    return _venv_python_succeeds("-c", look)


def _venv_python_succeeds(*arguments: str) -> bool:
    try:
        done = subprocess.run([PYTHON, *arguments], cwd="/", env=_environment(), check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return done.returncode == 0


def _requirements() -> list[str]:
    """The lines of requirements.txt that pip gets as they are: all but PyCUDA and the project."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements.txt").open())
    return [line for line in lines if line and not line.startswith(("-", "pycuda"))]


def _environment() -> dict[str, str]:
    """This environment, less what would send pip or Python elsewhere."""
    unwanted = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


@contextlib.contextmanager
def _step(title: str):
    """Say what is being done, and how long it took."""
    print(f"{title} ...", end=" ", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print("not done", flush=True)
        raise
    print(f"{time.monotonic() - started:.0f} s", flush=True)


_NO_NETWORK = ("NewConnectionError", "Name or service not known", "name resolution",
               "Network is unreachable", "ConnectTimeout", "Connection refused", "dns error")


def _failure(command: list, log: Path) -> SetupError:
    """What to say when `command` failed: the network, or the end of its output."""
    said = log.read_text(errors="replace")
    if any(sign in said for sign in _NO_NETWORK):
        return SetupError("the Python package index cannot be reached. Is this machine online, and "
                          "behind a proxy that pip knows of? Run make again then; what is done "
                          f"is kept. (The whole output: {log})")
    return SetupError(f"this failed: {' '.join(map(str, command))}\n{_log_tail(25, log)}\n"
                      f"(The whole output: {log})")


def _log_tail(lines: int, log: Path = LOG) -> str:
    text = log.read_text(errors="replace").splitlines()
    return "\n".join("  " + line for line in text[-lines:])


def _read_stamp() -> dict[str, str]:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def _write_lab_settings() -> None:
    """JupyterLab's defaults in this environment: no question about news at the first start, and
    the line numbers in cells that errors of kernels mention."""
    settings = VENV / "share/jupyter/lab/settings/overrides.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(settings, json.dumps(JUPYTERLAB_SETTINGS, indent=1) + "\n")


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that it is never seen half written."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
