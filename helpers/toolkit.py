"""Find the CUDA toolkit: a complete one on this machine, else the pinned wheels in ``.venv``.

Used by the set-up, by ``helpers.autoinit`` and by the CPU driver, so it needs the standard
library only.  ``python -m helpers.toolkit`` says what it finds and why, and
``python -m helpers.toolkit nvcc ARGUMENTS`` runs that toolkit's nvcc.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The wheels that together make a toolkit.  Pinned: with 13.0 and later releases mixed, nvcc writes
#: PTX that ptxas or a CUDA 13.0 driver rejects.
WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-profiler-api==13.0.85",
)
WHEELS_VERSION = (13, 0)
#: Where the wheels unpack to, below ``site-packages``.
WHEELS_FOLDER = Path("nvidia", "cu13")
#: Older toolkits lack what PyCUDA and the lessons need.
OLDEST = (12, 0)
#: Where NVIDIA's installers put toolkits.
LOCAL = Path("/usr/local")
#: ``auto`` (or unset), ``system`` or ``wheels``: which toolkits are looked at.
CHOICE_VARIABLE = "MATMUL_TOOLKIT"

_HEADERS = ("cuda.h", "cudaProfiler.h", "cuda_runtime.h", "crt/host_config.h")
_RUNTIME = "libcudart_static.a"


class ToolkitError(RuntimeError):
    """No usable CUDA toolkit; the text says what to do."""


@dataclass(frozen=True)
class Toolkit:
    """A complete CUDA toolkit.

    ``nvcc`` is the compiler itself, never a wrapper script or a link to it (PyCUDA and nvcc both
    look for the other parts beside it).
    """

    root: Path
    nvcc: Path
    version: tuple[int, int]
    include: Path
    lib: Path
    source: str  #: "system" or "wheels"

    @property
    def ptxas(self) -> Path:
        """The assembler, beside nvcc."""
        return self.nvcc.with_name("ptxas")

    def __str__(self) -> str:
        where = "from the wheels" if self.source == "wheels" else "of this machine"
        return f"CUDA {_dotted(self.version)} {where}, {self.root}"


def find_toolkit(site_packages: Path | None = None) -> Toolkit | None:
    """The toolkit to use, or None.

    Looked at in this order: ``CUDA_HOME``, ``CUDA_ROOT``, ``CUDA_PATH``; each nvcc on PATH;
    ``/usr/local/cuda*``; the wheels in `site_packages` (this environment's unless given).  The
    first one no newer than the NVIDIA driver wins, then the first of the driver's CUDA major
    version (whose cubins it loads: CUDA Compatibility, "Minor Version Compatibility"), then the
    first of all.  Without a driver the first of all wins.
    """
    found = list(_toolkits(site_packages))
    driver = driver_version()
    if driver is not None:
        found.sort(key=lambda toolkit: _misfit(toolkit.version, driver))  # a stable sort
    return found[0] if found else None


def require_toolkit(site_packages: Path | None = None) -> Toolkit:
    """Like :func:`find_toolkit`; raises :class:`ToolkitError` with the way out if there is none."""
    toolkit = find_toolkit(site_packages)
    if toolkit is None:
        raise ToolkitError("\n".join([
            "No complete CUDA toolkit was found. `make setup` in the project's folder installs one "
            "into .venv (no GPU, no root needed).",
            *(f"Passed over: {reason}" for reason in passed_over()),
        ]))
    return toolkit


def find_nvdisasm(toolkit: Toolkit, site_packages: Path | None = None) -> Path | None:
    """The disassembler to use with `toolkit`, or None.

    Many installations of the toolkit come without it; then the wheel's is used
    (requirements.txt), which reads what this and older toolkits' ptxas write, then PATH's.
    """
    wheels = (site_packages or Path(sysconfig.get_path("purelib"))) / WHEELS_FOLDER / "bin"
    for path in (toolkit.nvcc.with_name("nvdisasm"), wheels / "nvdisasm"):
        if path.is_file():
            return path
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def fits_driver(version: tuple[int, int]) -> bool:
    """Whether the NVIDIA driver loads what nvcc `version` compiles (True without a driver)."""
    driver = driver_version()
    return driver is None or _misfit(version, driver) < 2


def _misfit(version: tuple[int, int], driver: tuple[int, int]) -> int:
    """0: no newer than the driver; 1: newer, of the same major version; 2: not loadable."""
    return 0 if version <= driver else 1 if version[0] == driver[0] else 2


@functools.cache
def driver_version() -> tuple[int, int] | None:
    """The newest CUDA version the NVIDIA driver supports, such as (13, 0); None without a driver.

    Asked in a child process: once the real libcuda is loaded, PyCUDA would bind to it, and the CPU
    driver could no longer take its place.
    """
    question = (
        "import ctypes\n"
        "cuda, version = ctypes.CDLL('libcuda.so.1'), ctypes.c_int()\n"
        "print(version.value if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 else 0)\n"
    )
    answer = _run([sys.executable, "-I", "-S", "-c", question]).strip()
    number = int(answer) if answer.isdecimal() else 0
    return _version(number) if number else None


def passed_over() -> list[str]:
    """Why each nvcc that was found is not used, a sentence each."""
    reasons: list[str] = []
    list(_toolkits(None, reasons))
    return reasons


def _toolkits(site_packages: Path | None, reasons: list[str] | None = None) -> Iterator[Toolkit]:
    choice = os.environ.get(CHOICE_VARIABLE) or "auto"
    if choice not in ("auto", "system", "wheels"):
        raise ToolkitError(f"{CHOICE_VARIABLE} is {choice!r}; it can be auto, system or wheels.")
    wheels = (site_packages or Path(sysconfig.get_path("purelib"))) / WHEELS_FOLDER / "bin/nvcc"
    system = (nvcc for nvcc in _system_nvccs() if nvcc != wheels) if choice != "wheels" else ()
    candidates = [(nvcc, "system") for nvcc in system]
    if choice != "system" and wheels.is_file():
        candidates.append((wheels, "wheels"))
    homes = set()
    for nvcc, source in candidates:
        toolkit = _examine(nvcc, source, reasons if reasons is not None else [])
        if toolkit and toolkit.nvcc not in homes:
            homes.add(toolkit.nvcc)
            yield toolkit


def _system_nvccs() -> Iterator[Path]:
    """Every nvcc of this machine, most wanted first; wrappers and links as they are."""
    folders = [Path(os.environ[name], "bin") for name in ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH")
               if os.environ.get(name)]
    folders += [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep) if name]
    folders.append(LOCAL / "cuda/bin")
    folders += sorted(LOCAL.glob("cuda-*/bin"), key=_folder_version, reverse=True)
    seen = set()
    for folder in folders:
        nvcc = folder / "nvcc"
        if nvcc not in seen and os.access(nvcc, os.X_OK) and nvcc.is_file() and not _is_shim(nvcc):
            seen.add(nvcc)
            yield nvcc


def _folder_version(folder: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", folder.parent.name))


def _is_shim(nvcc: Path) -> bool:
    """Whether this is the CPU driver's own nvcc, which itself asks this module for the real one."""
    if "cpu_driver" in nvcc.parts:
        return True
    with nvcc.open("rb") as file:
        start = file.read(4096)
    return start.startswith(b"#!") and b"cpu_driver" in start


def _examine(nvcc: Path, source: str, reasons: list[str]) -> Toolkit | None:
    """The toolkit that `nvcc`, perhaps a wrapper or a link, belongs to, if it is usable."""
    # nvcc looks for its parts beside the name it was called by, so a link's target is asked first;
    # the link itself second, for a target that minds the name it is called by (ccache).
    answers = (_dryrun(path) for path in dict.fromkeys((nvcc.resolve(), nvcc)))
    settings = next((answer for answer in answers if "_HERE_" in answer), None)
    if settings is None:
        reasons.append(f"{nvcc} does not run (`nvcc --dryrun` says nothing of its home).")
        return None
    here = Path(settings["_HERE_"]).resolve()
    if (here / "nvcc").is_symlink():  # a wrapper of a link
        return _examine((here / "nvcc").resolve(), source, reasons)
    root = Path(settings.get("TOP", here.parent)).resolve()
    includes = [*_folders(settings, "INCLUDES", "-I"), root / "include", Path("/usr/include")]
    include = _first(includes, "cuda.h") or root / "include"
    libs = [*_folders(settings, "LIBRARIES", "-L"), root / "lib64", root / "lib"]
    lib = _first(libs, _RUNTIME) or root / "lib64"
    version = _header_version(include / "cuda.h")
    toolkit = Toolkit(root, here / "nvcc", version, include, lib, source)
    missing = _missing(toolkit, cicc=Path(settings.get("CICC_PATH", here), "cicc"))
    if missing:
        reasons.append(f"{nvcc} belongs to {root}, which lacks {', '.join(missing)}.")
    elif version < OLDEST:
        reasons.append(f"{nvcc} is of CUDA {_dotted(version)}; "
                       f"this project needs {_dotted(OLDEST)} or later.")
    else:
        return toolkit
    return None


def _missing(toolkit: Toolkit, cicc: Path) -> list[str]:
    """The parts that the build of PyCUDA or a compilation needs and `toolkit` lacks."""
    bin = toolkit.nvcc.parent
    needed = {name: [bin / name] for name in ("nvcc", "ptxas", "cudafe++", "fatbinary")}
    needed["cicc"] = [cicc, bin / "cicc"]
    needed |= {name: [toolkit.include / name] for name in _HEADERS}
    needed["nv/target"] = [toolkit.include / "cccl/nv/target", toolkit.include / "nv/target"]
    needed[_RUNTIME] = [toolkit.lib / _RUNTIME]
    return [name for name, places in needed.items() if not any(map(Path.is_file, places))]


def _dryrun(nvcc: Path) -> dict[str, str]:
    """What ``nvcc --dryrun`` says of its own parts, name by name; nothing is compiled."""
    said = _run([str(nvcc), "--dryrun", "--cubin", "-x", "cu", os.devnull, "-o", os.devnull])
    return dict(re.findall(r"^#\$ (\w+)=(.*)$", said, re.MULTILINE))


def _folders(settings: dict[str, str], name: str, flag: str) -> list[Path]:
    """The folders of ``-I`` or ``-L`` flags, quoted or not."""
    flags = re.findall(rf'"{flag}([^"]+)"|(?<!\S){flag}(\S+)', settings.get(name, ""))
    return [Path(quoted or bare).resolve() for quoted, bare in flags]


def _first(folders: list[Path], name: str) -> Path | None:
    return next((folder for folder in folders if (folder / name).is_file()), None)


def _header_version(header: Path) -> tuple[int, int]:
    """CUDA_VERSION of cuda.h: 13000 for 13.0; (0, 0) if the file is not there or does not say."""
    if not header.is_file():
        return 0, 0
    found = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header.read_text(errors="replace"))
    return _version(int(found[1])) if found else (0, 0)


def _version(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _run(command: list[str]) -> str:
    """What `command` prints, on either stream; an empty text if it cannot run."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _run_nvcc(arguments: list[str]) -> int:
    """Run nvcc with `arguments`; the wheels' libraries lie in lib/, which nvcc itself misses."""
    toolkit = require_toolkit()
    if shutil.which("g++") is None:
        raise ToolkitError("nvcc needs g++, which is not on PATH; `make setup` says how to get it.")
    return subprocess.run([toolkit.nvcc, f"-L{toolkit.lib}", *arguments], check=False).returncode


def main(arguments: list[str]) -> int:
    """The command line: report, or run nvcc."""
    try:
        if arguments[:1] == ["nvcc"]:
            return _run_nvcc(arguments[1:])
        toolkit = require_toolkit()
    except ToolkitError as error:
        print(error, file=sys.stderr)
        return 1
    driver = driver_version()
    print(toolkit)
    print(f"NVIDIA driver: CUDA {_dotted(driver)}" if driver else "NVIDIA driver: none")
    if not fits_driver(toolkit.version):
        print("This driver cannot load what this nvcc compiles: the lessons run on the CPU driver.")
    for reason in passed_over():
        print(f"Passed over: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
