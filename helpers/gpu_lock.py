"""One benchmark at a time on a GPU, whoever runs it: a lock that all users of the machine share.

    with gpu_lock(device.pci_bus_id(), "helpers.benchmark"):
        ...                                     # nobody else who asks for the lock measures now

The lock is a flock(2) on a file in /tmp. The kernel takes it back when its owner ends, killed or
not, so a lock is never left over; the file stays, and says who had it last. It is only an agreement
between benchmarks: other work on the GPU does not ask.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path("/tmp")
POLL_SECONDS = 0.2
_LONGEST_TEXT = 200
_held: set[tuple[Path, int, int]] = set()  # file, process and thread, of this process


class LockError(RuntimeError):
    """The lock's file cannot be used, or waiting took too long; the text says why."""


def lock_file(device: str, folder: Path = FOLDER) -> Path:
    """The lock's file of a device, which is named by its PCI bus id or UUID."""
    return folder / f"matmul-benchmark-{re.sub('[^A-Za-z0-9.-]', '_', device)}.lock"


@contextmanager
def gpu_lock(
    device: str,
    what: str = "a benchmark",
    *,
    timeout: float | None = None,
    folder: Path = FOLDER,
    say: Callable[[str], object] | None = None,
) -> Iterator[None]:
    """Hold the lock of `device` in the `with` block; wait for it if another process has it.

    what: what this process does with it, for others to read. timeout: seconds to wait, None for as
    long as it takes. say: called with a sentence whenever somebody has to be waited for, by default
    to write it to stderr.

    A thread that has the lock already does not wait for itself. Raises LockError.
    """
    file = lock_file(device, folder)
    holder = file, os.getpid(), threading.get_ident()
    if holder in _held:
        yield
        return
    descriptor = _open(file)
    try:
        _acquire(descriptor, file, device, timeout, say or _to_stderr)
        _held.add(holder)
        _sign(descriptor, what)
        yield
    finally:
        _held.discard(holder)
        os.close(descriptor)  # gives the lock back too


def _open(file: Path) -> int:
    """The file, made if it is not there, readable and writable by all.

    It is opened before it is made: in a folder like /tmp the kernel refuses O_CREAT for a file of
    another user (sysctl fs.protected_regular). Links are not followed, so that nobody can make this
    process open another file.
    """
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return _checked(_first([flags | os.O_RDWR, flags | os.O_RDONLY], file), file)
        except FileNotFoundError:
            pass
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise LockError(f"the lock's file {file} cannot be used: {reason}") from error
        try:
            descriptor = os.open(file, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)  # whatever the umask
            return descriptor
        except FileExistsError:
            continue  # made by another process just now
        except OSError as error:
            raise LockError(f"the lock's file {file} cannot be made: {error.strerror}") from error


def _first(flags: list[int], file: Path) -> int:
    """Opens the file; for reading only, where it may not be written to: flock needs no more."""
    try:
        return os.open(file, flags[0])
    except PermissionError:
        return os.open(file, flags[1])


def _checked(descriptor: int, file: Path) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LockError(f"the lock's file {file} cannot be used: it is no regular file")
    return descriptor


def _acquire(
    descriptor: int, file: Path, device: str, timeout: float | None, say: Callable[[str], object]
) -> None:
    end = None if timeout is None else time.monotonic() + timeout
    said = None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = _owner(descriptor)
        if owner != said:
            say(f"Waiting for {owner}, which measures on GPU {device} (lock: {file}).")
            said = owner
        if end is not None and time.monotonic() >= end:
            raise LockError(f"GPU {device} is still in use after {timeout:g} s, by {owner}")
        time.sleep(POLL_SECONDS)


def _sign(descriptor: int, what: str) -> None:
    """Write who has the lock. A file that cannot be written to stays as it is."""
    text = json.dumps({
        "user": _user(), "pid": os.getpid(), "what": what,
        "since": time.strftime("%H:%M:%S"),
    })  # fmt: skip
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError:
        pass


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for it
        return f"user {os.getuid()}"


def _owner(descriptor: int) -> str:
    """Who has the lock, in words. Anybody may have written the file, so nothing is taken on trust.

    The owner may not have signed yet, or may be one that could not.
    """
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        words = {key: _printable(told[key]) for key in ("user", "pid", "what", "since")}
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return "{what} of {user} (process {pid}, since {since})".format(**words)


def _printable(value: object) -> str:
    return "".join(c for c in str(value) if c.isprintable())[:_LONGEST_TEXT]


def _to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
