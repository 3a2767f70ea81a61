"""PyCUDA's own test suite on the CPU driver, compared with its outcome on an H200.

    make conformance                        all of it
    make conformance ARGS="-k curand"       further arguments are pytest's; only those tests count

The suite comes with PyCUDA's sources and is never committed: a pinned release is fetched into
``.cache/conformance``.  It needs a PyCUDA built with cuRAND, which the lessons do without, so that
is built here (once, kept in ``.cache/wheels``) and put, with NVIDIA's cuRAND, into a folder that
stands in front of the lessons' environment for the length of this run.

``h200.txt`` holds the outcome of each test on an H200, ``exceptions.toml`` the tests that passed
there and cannot pass here, with the reason.  Exit status: 0 when every other test that passed there
passes here, and none fails.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from helpers import bootstrap, toolkit
from helpers.cpu_driver.device import MEMORY_VARIABLE

HERE = Path(__file__).resolve().parent
CACHE = bootstrap.CACHE / "conformance"
SITE = CACHE / "site"
SDIST = "pycuda-2026.1"
SDIST_SHA256 = "759516160628ba06f32ce7e563e3f5b9214691dc9528a03ea99ea1073f4e14ba"
CURAND = "nvidia-curand==10.4.0.35"  # the release that is part of CUDA 13.0
#: GiB of the device.  Three tests skip on one with less than 4.5, by a check of their own; with
#: more, they take 26 GB of the host's memory besides.  MATMUL_CPU_MEMORY=5 runs them too.
DEVICE_MEMORY = "4"
#: Seconds after which the suite is ended as hanging.
TIME_LIMIT = 1800


class ConformanceError(Exception):
    """The suite cannot be run; the text says why."""


@dataclass
class Outcome:
    """What became of a test: "passed", "failed", "skipped" or "xfailed", and pytest's reason."""

    what: str
    reason: str = ""


def main(arguments: list[str]) -> int:
    """Set up what is missing, run the suite, compare."""
    CACHE.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        tests = fetch_suite()
        install_pycuda()
    except ConformanceError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    prepared = time.monotonic()
    report = CACHE / "outcomes.xml"
    report.unlink(missing_ok=True)
    finished = run_suite(tests, report, arguments)
    if not report.is_file():
        print("conformance: pytest came to no end that it could report", file=sys.stderr)
        return 2
    outcomes = read_outcomes(report)
    complaints = compare(outcomes, whole=not arguments)
    ended = time.monotonic()
    print(
        f"\nPyCUDA 2026.1's suite: {summary(outcomes)} "
        f"({prepared - started:.0f} s to set up, {ended - prepared:.0f} s to run)"
    )
    for complaint in complaints:
        print(f"  {complaint}")
    if complaints or not finished:
        print("It differs from the H200's outcome.")
        return 1
    print(
        "All that passed on an H200 passes here"
        + (", but for the exceptions listed above." if exceptions() else ".")
    )
    return 0


# ---------------------------------------------------------------------- set-up


def fetch_suite() -> Path:
    """The folder of the suite, unpacked from the pinned sources of PyCUDA."""
    archive = CACHE / f"{SDIST}.tar.gz"
    if not archive.is_file():
        print(f"Fetching {SDIST}'s sources ...", flush=True)
        _pip(
            "download",
            "--no-deps",
            "--no-binary",
            "pycuda",
            "--dest",
            CACHE,
            SDIST.replace("-", "=="),
        )
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SDIST_SHA256:
        raise ConformanceError(
            f"{archive} is not the {SDIST} that h200.txt is of: its SHA-256 is "
            f"{found}, expected {SDIST_SHA256}. Remove it to fetch it again."
        )
    folder = CACHE / SDIST
    if not (folder / "test").is_dir():
        with tarfile.open(archive) as file:
            file.extractall(CACHE, filter="data")
    return folder / "test"


def install_pycuda() -> None:
    """Put cuRAND and a PyCUDA built with it into SITE, unless they are there."""
    tools = toolkit.require_toolkit()
    house = bootstrap.WHEELHOUSE / (
        f"{SDIST}-curand-cp{sys.version_info[0]}{sys.version_info[1]}-cu{tools.version[0]}"
    )
    stamp = SITE / "complete"
    key = f"{house.name} {CURAND} {SDIST_SHA256}\n"
    if stamp.is_file() and stamp.read_text() == key:
        return
    shutil.rmtree(SITE, ignore_errors=True)
    print("Fetching cuRAND ...", flush=True)
    _pip("install", "--no-deps", "--target", SITE, CURAND)
    if not any(house.glob("pycuda-*.whl")):
        print("Building PyCUDA with cuRAND (a minute or two, only once) ...", flush=True)
        _build_pycuda(tools, house)
    _pip("install", "--no-deps", "--target", SITE, next(house.glob("pycuda-*.whl")))
    stamp.write_text(key)


def _build_pycuda(tools: toolkit.Toolkit, house: Path) -> None:
    curand = SITE / toolkit.WHEELS_FOLDER
    scratch = CACHE / "build"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    home = bootstrap.build_home(
        scratch,
        tools,
        {
            "CUDA_INC_DIR": [str(tools.include), str(curand / "include")],
            "CUDA_ENABLE_CURAND": True,
            "CURAND_LIB_DIR": [str(curand / "lib")],
            "CURAND_LIBNAME": [":libcurand.so.10"],  # the wheel has it under this name only
            "LDFLAGS": [f"-Wl,-rpath,$ORIGIN/../{toolkit.WHEELS_FOLDER}/lib"],
        },
    )
    environment = {
        "HOME": str(home),
        "CC": os.environ.get("CC", "gcc"),
        "CXX": os.environ.get("CXX", "g++"),
    }
    _pip(
        "wheel",
        "--no-deps",
        "--no-cache-dir",
        "--wheel-dir",
        scratch / "wheels",
        CACHE / f"{SDIST}.tar.gz",
        environment=environment,
    )
    shutil.rmtree(house, ignore_errors=True)
    house.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "wheels").rename(house)
    shutil.rmtree(scratch)


def _pip(*arguments: object, environment: dict[str, str] | None = None) -> None:
    """Run pip, its output into a log that is shown if it fails."""
    log = CACHE / "setup.log"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    with log.open("wb") as file:
        done = subprocess.run(
            command,
            env=os.environ | (environment or {}),
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode:
        tail = log.read_text(errors="replace").splitlines()[-25:]
        raise ConformanceError("this failed: " + " ".join(command) + "\n" + "\n".join(tail))


# ---------------------------------------------------------------------- run and compare


def run_suite(tests: Path, report: Path, arguments: list[str]) -> bool:
    """Run the suite on the CPU driver; whether it came to an end."""
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    curand = SITE / toolkit.WHEELS_FOLDER / "include"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "CPATH": os.pathsep.join([str(curand), *filter(None, [os.environ.get("CPATH")])]),
        MEMORY_VARIABLE: os.environ.get(MEMORY_VARIABLE) or DEVICE_MEMORY,
        "XDG_CACHE_HOME": str(CACHE / "cache"),  # PyCUDA's own, of compiled kernels
    }
    command = [
        sys.executable,
        "-m",
        "helpers.cpu_driver",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        str(HERE / "pytest.ini"),
        "--rootdir",
        str(tests),
        f"--junitxml={report}",
        "-o",
        "junit_family=xunit1",
        "-q",
        "--tb=short",
        "--durations=5",
        *arguments,
    ]
    try:
        subprocess.run(
            command,
            cwd=tests,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        print(f"conformance: ended after {TIME_LIMIT} s", file=sys.stderr)
        return False
    return True


def read_outcomes(report: Path) -> dict[str, Outcome]:
    """The outcome of each test in pytest's XML, by module.Class::test."""
    outcomes = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        outcomes[name] = Outcome("passed")
        for part in case:
            if part.tag in ("failure", "error"):
                outcomes[name] = Outcome("failed", part.get("message") or "")
            elif part.tag == "skipped":
                expected = part.get("type") == "pytest.xfail"
                outcomes[name] = Outcome(
                    "xfailed" if expected else "skipped", part.get("message") or ""
                )
    return outcomes


def h200() -> dict[str, str]:
    """The outcome of each test on an H200."""
    lines = (HERE / "h200.txt").read_text().splitlines()
    pairs = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {name: outcome for outcome, name in pairs}


def exceptions(table: str = "exceptions") -> dict[str, str]:
    """The tests of a table of exceptions.toml, with the reasons."""
    return tomllib.loads((HERE / "exceptions.toml").read_text())[table]


def compare(outcomes: dict[str, Outcome], whole: bool) -> list[str]:
    """What differs from the H200, a line each; `whole`: tests that were not run count too."""
    there, excused, may_skip = h200(), exceptions(), exceptions("may_skip")
    complaints = [
        f"{name}: listed as an exception, but it did not pass on an H200"
        for name in sorted({*excused, *may_skip})
        if there.get(name) != "passed"
    ]
    for name in sorted({*there, *outcomes}):
        here = outcomes.get(name)
        if here is None:
            if whole:
                complaints.append(f"{name}: {there[name]} on an H200, was not run here")
        elif name in excused:
            if here.what == "passed":
                complaints.append(f"{name}: passes, but is listed as an exception")
            else:
                print(f"  exception: {name} ({here.what}): {excused[name]}")
        elif here.what == "failed" or (
            there.get(name) == "passed"
            and here.what != "passed"
            and not (name in may_skip and here.what == "skipped")
        ):
            on_h200 = there.get(name, "unknown")
            reason = here.reason.splitlines()[0] if here.reason else ""
            complaints.append(f"{name}: {on_h200} on an H200, {here.what} here: {reason[:200]}")
    return complaints


def summary(outcomes: dict[str, Outcome]) -> str:
    """How many tests had each outcome, and on the H200."""
    here = Counter(outcome.what for outcome in outcomes.values())
    counts = ", ".join(f"{n} {what}" for what, n in sorted(here.items()))
    there = Counter(h200().values())
    return f"{counts}; on an H200 {', '.join(f'{n} {what}' for what, n in sorted(there.items()))}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
