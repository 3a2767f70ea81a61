"""The lock under many processes, some of which are killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers import gpu_lock
from helpers.gpu_lock import LockError, lock_file

ROOT = Path(__file__).resolve().parent.parent
DEVICE = "0000:17:00.0"

# Takes the lock, writes "pid in" and "pid out" to the log around its stay there.
WORKER = """
import os, sys, time
from pathlib import Path
from helpers.gpu_lock import gpu_lock
folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with gpu_lock("0000:17:00.0", "a test", folder=folder, say=print):
    os.write(log, f"{os.getpid()} in\\n".encode())
    print("in", flush=True)
    time.sleep(seconds)
    os.write(log, f"{os.getpid()} out\\n".encode())
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(seconds)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def wait_until_in(worker: subprocess.Popen[str]) -> list[str]:
    said = []
    assert worker.stdout
    for line in worker.stdout:
        said.append(line.strip())
        if line.strip() == "in":
            return said
    raise AssertionError(f"it ended without the lock: {said}")


def refused_to_another(
    folder: Path, timeout: float = 0, say: Callable[[str], object] = lambda sentence: None
) -> str:
    """Why another thread of this process does not get the lock, "" if it does."""

    def ask() -> str:
        try:
            with gpu_lock.gpu_lock(DEVICE, folder=folder, timeout=timeout, say=say):
                return ""
        except LockError as error:
            return str(error)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result(10)


def test_ten_processes_of_which_three_are_killed_while_they_have_it(tmp_path: Path) -> None:
    """Those to be killed sleep for a minute each: only the kill lets the others go on."""
    doomed = [start(tmp_path, 60) for _ in range(3)]
    others = [start(tmp_path, 0.05) for _ in range(7)]
    killed: list[int] = []
    end = time.monotonic() + 50
    log = tmp_path / "log"
    try:
        while len(killed) < len(doomed) or any(worker.poll() is None for worker in others):
            assert time.monotonic() < end
            lines = log.read_text().splitlines() if log.exists() else []
            for worker in doomed:
                if lines and lines[-1] == f"{worker.pid} in" and worker.pid not in killed:
                    worker.send_signal(signal.SIGKILL)
                    worker.wait()
                    killed.append(worker.pid)
            time.sleep(0.01)
    finally:
        for worker in (*doomed, *others):
            worker.kill()
            worker.wait()
    assert all(worker.returncode == 0 for worker in others)
    inside = None
    done = []
    for line in log.read_text().splitlines():
        pid, what = line.split()
        if what == "in":
            assert inside is None or int(inside) in killed, "two had it at the same time"
            inside = pid
        else:
            assert inside == pid
            inside = None
            done.append(int(pid))
    assert sorted(done) == sorted(worker.pid for worker in others)


def test_who_waits_is_told_for_whom_and_since_when(tmp_path: Path) -> None:
    first = start(tmp_path, 60)
    wait_until_in(first)
    second = start(tmp_path, 0)
    assert second.stdout
    sentence = second.stdout.readline()
    first.kill()
    first.wait()
    assert wait_until_in(second)[-1] == "in"
    assert second.wait() == 0
    assert f"(process {first.pid}, since " in sentence
    assert sentence.startswith("Waiting for a test of ")
    assert f"GPU {DEVICE}" in sentence
    assert str(lock_file(DEVICE, tmp_path)) in sentence


def test_waiting_ends_with_the_timeout(tmp_path: Path) -> None:
    said: list[str] = []
    with gpu_lock.gpu_lock(DEVICE, "the first", folder=tmp_path):
        refusal = refused_to_another(tmp_path, 0.3, said.append)
    assert "still in use after 0.3 s, by the first of" in refusal
    assert len(said) == 1  # not once for each look


def test_gpus_have_locks_of_their_own(tmp_path: Path) -> None:
    with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
        with gpu_lock.gpu_lock("0000:18:00.0", folder=tmp_path, timeout=0):
            pass


def test_it_can_be_taken_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
            raise ZeroDivisionError
    with gpu_lock.gpu_lock(DEVICE, folder=tmp_path, timeout=0):
        pass


def test_the_file_is_for_all_users_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_file(DEVICE, tmp_path).stat().st_mode) == 0o666


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    lock_file(DEVICE, tmp_path).symlink_to(precious)
    with pytest.raises(LockError, match="it is a link"):
        with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
            raise AssertionError
    assert precious.read_text() == "mine"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    lock_file(DEVICE, tmp_path).mkdir()
    with pytest.raises(LockError, match="cannot be used"):
        with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
            raise AssertionError
    with pytest.raises(LockError, match="cannot be made"):
        with gpu_lock.gpu_lock(DEVICE, folder=tmp_path / "nowhere"):
            raise AssertionError


def test_a_file_that_may_only_be_read_locks_all_the_same(tmp_path: Path, monkeypatch) -> None:
    file = lock_file(DEVICE, tmp_path)
    file.write_text("")
    opened = os.open

    def refuse(path, flags, *mode):
        if path == file and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr(gpu_lock.os, "open", refuse)
    with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
        assert "by another process" in refused_to_another(tmp_path)


@pytest.mark.parametrize("content", ["", "not JSON", "[1]", '{"user": "x"}', '"text"'])
def test_whatever_is_in_the_file_does_no_harm(tmp_path: Path, content: str) -> None:
    said: list[str] = []
    with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
        lock_file(DEVICE, tmp_path).write_text(content)
        assert refused_to_another(tmp_path, say=said.append)
    assert said[0].startswith("Waiting for another process")


def test_control_characters_of_others_do_not_reach_the_terminal() -> None:
    assert gpu_lock._printable("a\x1b[31mb\nc") == "a[31mbc"
    assert len(gpu_lock._printable("x" * 10_000)) == 200


def test_a_thread_that_has_it_does_not_wait_for_itself(tmp_path: Path) -> None:
    said: list[str] = []
    with gpu_lock.gpu_lock(DEVICE, folder=tmp_path, say=said.append):
        with gpu_lock.gpu_lock(DEVICE, folder=tmp_path, say=said.append, timeout=0):
            pass
        with pytest.raises(ZeroDivisionError):
            with gpu_lock.gpu_lock(DEVICE, folder=tmp_path):
                raise ZeroDivisionError
        assert refused_to_another(tmp_path)  # the inner ones have not given it back
    assert said == []
    assert refused_to_another(tmp_path) == ""
