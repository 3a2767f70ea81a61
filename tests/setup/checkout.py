"""A copy of the project, and an environment in which no CUDA toolkit is to be found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = Path(sys.executable).resolve()  # below .venv's
CUDA_FOLDERS = [str(folder) for folder in Path("/usr/local").glob("cuda*")
                if folder.is_dir() and not folder.is_symlink()]
# In a mount namespace of its own, empty file systems cover the machine's toolkits.
HIDE = ["unshare", "-rm", "sh", "-c",
        'n=$1; shift; while [ "$n" -gt 0 ]; do mount -t tmpfs none "$1" || exit 99; shift; '
        'n=$((n - 1)); done; exec "$@"', "sh", str(len(CUDA_FOLDERS)), *CUDA_FOLDERS]


def copy_of_the_project(folder: Path) -> Path:
    """Copy what git has or would take: no .venv, no caches."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT,
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def path_without(folder: Path, *names: str) -> str:
    """A PATH, a folder of links, with every program of this one's but `names`."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        if ".venv" in Path(place).parts or not os.path.isdir(place):
            continue
        for program in Path(place).iterdir():
            link = folder / program.name
            if program.name not in names and not link.is_symlink():
                link.symlink_to(program)
    python = folder / "python3"  # this one: a version manager's python3 may be a script
    python.unlink(missing_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{SYSTEM_PYTHON}" "$@"\n')
    python.chmod(0o755)
    return str(folder)


@dataclass
class Checkout:
    """A copy of the project and the environment its commands run in."""

    folder: Path
    environment: dict[str, str]
    prefix: list[str]

    @property
    def python(self) -> Path:
        return self.folder / ".venv/bin/python"

    @property
    def site_packages(self) -> Path:
        return next(self.folder.glob(".venv/lib/python3*/site-packages"))

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy; its output is one text."""
        return subprocess.run([*self.prefix, *map(str, command)], cwd=self.folder, text=True,
                              env=self.environment | environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """Start a command in the copy, as a process group of its own."""
        return subprocess.Popen([*self.prefix, *map(str, command)], cwd=self.folder, text=True,
                                env=self.environment, stdin=subprocess.DEVNULL, bufsize=1,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                start_new_session=True)
