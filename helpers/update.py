"""Get the course's newest version and keep what the student has changed. `make update` runs this.

A file that was changed here and is new there as well would stop git. It is first copied to
mine/, which git ignores, under its own name or, if there is such a file already, with a
number. So nothing of the student's is lost or merged, and the update cannot come to a conflict.
What was changed here only stays as it is. A notebook that was run, but not edited, needs no copy.

Standard library only: it works before the set-up does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

KEPT = Path("mine")


class UpdateError(Exception):
    """The update cannot be made; the text says why and what to do. Nothing has been changed."""


def main(root: Path) -> int:
    """Update the checkout at `root`; the exit status."""
    try:
        kept, old, new = update(root)
    except UpdateError as error:
        print(f"Not updated: {error}", file=sys.stderr)
        return 1
    if old == new:
        print("This is the newest version already.")
        return 0
    print(f"Updated from {old[:7]} to {new[:7]}.")
    for original, copy in kept:
        there = (root / original).exists()
        print(f"  your {original} is now {copy}; "
              + (f"{original} is the new one" if there else "the course has it no longer"))
    return 0


def update(root: Path) -> tuple[list[tuple[str, str]], str, str]:
    """(original, copy) of each file that was copied, and the commits before and after.

    Raises UpdateError.
    """
    _check_state(root)
    upstream = _fetched(root)
    old, new = _git(root, "rev-parse", "HEAD"), _git(root, "rev-parse", upstream)
    if _is_ancestor(root, new, old):
        return [], old, old
    if not _is_ancestor(root, old, new):
        raise UpdateError(
            "you have commits of your own, or the course's were rewritten. Merge them yourself "
            "(git pull), or set them aside under another name first: "
            "git branch mine && git reset --keep @{upstream}"
        )
    changed_there = _names(root, "diff", "--name-only", "--no-renames", old, new)
    changed_here = _names(root, "diff", "--name-only", "--no-renames", old)
    untracked = [name for name in _names(root, "diff", "--name-only", "--no-renames",
                 "--diff-filter=A", old, new) if _is_there(root / name)]  # fmt: skip
    both = sorted({*changed_here, *untracked} & {*changed_there})
    folders = [name for name in both if (root / name).is_dir()]
    if folders:
        raise UpdateError(f"{folders[0]} is a folder here, and a file of the course: move it away")
    try:
        kept = [(name, _keep(root, name)) for name in both if _is_worth_keeping(root, name)]
    except OSError as error:
        raise UpdateError(f"{KEPT}/, where your files are kept, cannot be written to: "
                          f"{error.strerror}") from None
    restored = [name for name in both if name in changed_here and _is_in(root, old, name)]
    try:
        if restored:
            _git(root, "checkout", old, "--", *restored)
        for name in set(both) - set(restored):  # new there, in the way here
            _git(root, "rm", "--cached", "--quiet", "--ignore-unmatch", "--", name)
            (root / name).unlink(missing_ok=True)
        _git(root, "merge", "--ff-only", "--quiet", new)
    except UpdateError:
        for name, copy in kept:
            shutil.copyfile(root / copy, root / name)
        raise
    return [(name, str(copy)) for name, copy in kept], old, new


def _check_state(root: Path) -> None:
    """Raises UpdateError where there is no checkout, or one in which git waits for something."""
    if shutil.which("git") is None:
        raise UpdateError("git is not installed")
    if not (root / ".git").exists():
        raise UpdateError("this folder is no git checkout. Download the course again beside it, "
                          "and copy notebooks/ and cuda/ of yours to where you find them")
    for name, what in (("MERGE_HEAD", "merge"), ("rebase-merge", "rebase"), ("rebase-apply",
                       "rebase"), ("CHERRY_PICK_HEAD", "cherry-pick")):  # fmt: skip
        if (root / _git(root, "rev-parse", "--git-path", name)).exists():
            raise UpdateError(f"a {what} is not finished. Finish it, or give it up: "
                              f"git {what} --abort")  # fmt: skip
    if not _git(root, "branch", "--show-current"):
        raise UpdateError("no branch is checked out, but a single commit. Go back to the course's "
                          "branch first: git switch main")  # fmt: skip


def _fetched(root: Path) -> str:
    """The branch that this one follows, fetched."""
    try:
        upstream = _git(root, "rev-parse", "--abbrev-ref", "@{upstream}")
    except UpdateError:
        raise UpdateError("this branch follows none that could have a newer version "
                          "(git branch --set-upstream-to …)") from None
    branch = _git(root, "symbolic-ref", "--short", "HEAD")
    _git(root, "fetch", "--quiet", _git(root, "config", f"branch.{branch}.remote"))
    return upstream


def _is_worth_keeping(root: Path, name: str) -> bool:
    """Whether a changed file is there and has more that is new than the outputs of its cells."""
    path = root / name
    if not _is_there(path):
        return False
    if path.suffix != ".ipynb":
        return True
    try:
        committed = json.loads(_git(root, "show", f"HEAD:{name}"))
        return _sources(committed) != _sources(json.loads(path.read_text(encoding="utf-8")))
    except (UpdateError, ValueError, KeyError, TypeError):
        return True  # no notebook in HEAD, or none at all


def _sources(notebook: dict) -> list[tuple[str, str]]:
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def _keep(root: Path, name: str) -> Path:
    """Copies a file to mine/; returns where."""
    source = root / name
    (root / KEPT).mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        stem = source.stem + (f"-{number}" if number > 1 else "")
        target = KEPT / (stem + source.suffix)
        if not (root / target).exists():
            shutil.copyfile(source, root / target)
            return target
        if (root / target).read_bytes() == source.read_bytes():
            return target
        number += 1


def _is_there(path: Path) -> bool:
    return path.is_file() or path.is_symlink()


def _is_in(root: Path, commit: str, name: str) -> bool:
    return bool(_git(root, "ls-tree", "--name-only", commit, "--", name))


def _is_ancestor(root: Path, old: str, new: str) -> bool:
    """Whether `new` is `old` with more commits, or the same."""
    return not _git(root, "rev-list", "--max-count=1", f"{new}..{old}")


def _names(root: Path, *arguments: str) -> list[str]:
    return [name for name in _git(root, arguments[0], "-z", *arguments[1:]).split("\0") if name]


def _git(root: Path, *arguments: str) -> str:
    """What git says. Raises UpdateError with its words."""
    done = subprocess.run(["git", *arguments], cwd=root, text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, check=False)
    if done.returncode:
        raise UpdateError(f"git {arguments[0]} says: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
