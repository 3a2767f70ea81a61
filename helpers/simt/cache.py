"""Compiled kernels on disk, so that a kernel seen before needs neither LLVM nor our own passes.

An entry's key is made of everything it depends on: the PTX, the kernel, the block's shape, the
engine's own source text, LLVM's version and the processor. So an entry is never stale, and a
folder that cannot be read or written only costs time.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import re
import tempfile
from pathlib import Path

from . import jit

folder = Path(__file__).resolve().parents[2] / ".cache" / "simt"
LARGEST = 1 << 30  # bytes kept; beyond, the entries not used for longest are removed


@functools.cache
def _engine() -> bytes:
    """What else the machine code depends on."""
    digest = hashlib.sha256(jit.identity().encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.digest()


def key(text: str, kernel: str, block: tuple[int, int, int], instruments: object) -> str:
    """The key of a kernel's code for a block shape, and what the code does beside its work.

    Folders in .file directives do not count.
    """
    text = re.sub(r'(\.file\s+\d+\s+")[^"]*/', r"\1", text)
    return hashlib.sha256(
        _engine() + f"{kernel} {block} {instruments}\n{text}".encode()
    ).hexdigest()


def load(key: str) -> object | None:
    """What `keep` stored under a key, or None."""
    path = folder / key
    try:
        data = path.read_bytes()
        os.utime(path)
        return pickle.loads(data)
    except Exception:  # unreadable or damaged: pickle then raises nearly anything
        return None


def keep(key: str, value: object) -> None:
    """Stores a value in one step."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as f:
            f.write(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
        os.replace(temporary, folder / key)
        _prune()
    except OSError:
        return


def _prune() -> None:
    entries = [(e.stat().st_mtime, e.stat().st_size, e.path) for e in os.scandir(folder)]
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= LARGEST:
            return
        os.unlink(path)
        total -= size
