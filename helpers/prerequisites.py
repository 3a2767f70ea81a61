"""What `make setup` needs of the machine, found before anything else is done, all at once.

Runs on any Python from 3.7 on, so that a machine with an old one gets a plain answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

OLDEST, NEWEST = (3, 11), (3, 13)
SUPPORTED = "Python 3.11, 3.12 or 3.13"

_NAMES = {
    "python": SUPPORTED,
    "venv": "Python's venv module",
    "headers": "the Python headers (Python.h)",
    "compiler": "the C++ compiler (g++)",
}

#: Package manager -> its install command and the package for each missing thing.
_MANAGERS = {
    "apt-get": ("apt-get install -y", {
        "python": "{python} {python}-venv {python}-dev", "venv": "{python}-venv",
        "headers": "{python}-dev", "compiler": "g++"}),
    "dnf": ("dnf install -y", {
        "python": "{python} {python}-devel", "venv": "{python}",
        "headers": "{python}-devel", "compiler": "gcc-c++"}),
    "zypper": ("zypper install -y", {
        "python": "{python} {python}-devel", "venv": "{python}",
        "headers": "{python}-devel", "compiler": "gcc-c++"}),
    "pacman": ("pacman -S --needed --noconfirm", {
        "python": "python", "venv": "python", "headers": "python", "compiler": "gcc"}),
}

_PROBE = """
import importlib.util, json, os, sys, sysconfig
places = [sysconfig.get_path("include"), sysconfig.get_config_var("INCLUDEPY")]
print(json.dumps({
    "executable": sys.executable,
    "base": os.path.realpath(sys.executable),
    "version": list(sys.version_info[:3]),
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
    "headers": any(place and os.path.isfile(os.path.join(place, "Python.h")) for place in places),
}))
"""


def probe(python: str) -> dict | None:
    """What the interpreter `python` says of itself; None if it does not run."""
    try:
        done = subprocess.run([python, "-c", _PROBE], stdin=subprocess.DEVNULL, timeout=30,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        return json.loads(done.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def supported(found: dict | None) -> bool:
    """Whether a probed interpreter's version is one this project is tested with."""
    return found is not None and OLDEST <= tuple(found["version"][:2]) <= NEWEST


def choose_python(wanted: str | None, candidates: list[str]) -> dict | None:
    """The interpreter to use: `wanted` or none, if given; else the first supported candidate."""
    for python in [wanted] if wanted else candidates:
        found = probe(python)
        if supported(found):
            return found
    return None


def missing(python: dict | None) -> list[str]:
    """What the machine lacks: "python", "venv", "headers", "compiler"."""
    lacks = []
    if python is None:
        lacks.append("python")
    else:
        # uv makes environments without Python's own ensurepip
        lacks += ["venv"] if not python["venv"] and not shutil.which("uv") else []
        lacks += ["headers"] if not python["headers"] else []
    return lacks + ([] if shutil.which("g++") else ["compiler"])


def explain(lacks: list[str], python: dict | None, wanted: str | None = None) -> str:
    """Name what is missing and give one line to paste."""
    names = ", ".join(_NAMES[name] for name in lacks)
    lines = [f"Missing on this machine: {names}."]
    if "python" in lacks and wanted:
        found = probe(wanted)
        version = "version {}.{}.{}".format(*found["version"]) if found else "no Python that runs"
        lines.append(f"PYTHON={wanted} is {version}.")
    package = _python_package(python)
    manager = next((name for name in _MANAGERS if shutil.which(name)), None)
    if "python" in lacks and package is None:
        lines.append("This system's packages hold none of them. Install one of them another way "
                     "(pyenv, uv, conda), then run: PYTHON=/path/to/python3.12 make setup")
        lacks = [name for name in lacks if name != "python"]
    if lacks and manager is None:
        lines.append("Install what is named above with this system's package manager, "
                     "then run make again.")
    elif lacks and manager:
        lines += ["Paste this line, then run make again:",
                  "  " + _paste_line(manager, lacks, package or "python3")]
    return "\n".join(lines)


def _paste_line(manager: str, lacks: list[str], package: str) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    command, packages = _MANAGERS[manager]
    names = " ".join(packages[name].format(python=package) for name in lacks)
    names = " ".join(dict.fromkeys(names.split()))
    update = f"{sudo}apt-get update && " if manager == "apt-get" else ""
    return f"{update}{sudo}{command} {names}"


def _python_package(python: dict | None) -> str | None:
    """The package the interpreter is of ("python3" for the system's own); None if there is none."""
    if python is not None:
        own = probe("/usr/bin/python3")
        is_own = own is not None and own["base"] == python["base"]
        return "python3" if is_own else "python{}.{}".format(*python["version"])
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        name = f"python3.{minor}"
        for query in (["apt-cache", "show", name], ["dnf", "-q", "info", name],
                      ["zypper", "-q", "info", name]):
            if shutil.which(query[0]) and _succeeds(query):
                return name
    return "python3" if shutil.which("pacman") else None


def _succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
