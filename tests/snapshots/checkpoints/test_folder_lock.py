"""The lock of a checkpoint folder: it ends with who holds it, and is not waited for for ever."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog.errors import CheckpointError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints import folder_lock
from snapshots.checkpoints.folder_lock import hold_lock
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.sources import ROOT

HOLD = """
import sys, time
from pathlib import Path
from snapshots.checkpoints.folder_lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / ".lock"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "WAIT_S", 0.3)


@contextmanager
def holder(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@contextmanager
def forked_child() -> Iterator[int]:
    """A child as a DataLoader's worker is one: forked now, it lives on for a while."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"x")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(told, 1)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)


@pytest.mark.usefixtures("short")
def test_a_child_forked_inside_the_lock_does_not_keep_it(path: Path) -> None:
    """A DataLoader's worker, forked beside a background save, hung every save for its whole life.

    The lock belongs to the open file, which the child inherits.
    """
    with hold_lock(path):
        forked = forked_child()
        forked.__enter__()
    try:
        with hold_lock(path):
            pass
    finally:
        forked.__exit__(None, None, None)


def test_a_child_does_not_keep_the_lock_of_a_parent_that_was_killed(path: Path) -> None:
    code = HOLD.replace(
        '    print("held"',
        '    import os\n    if os.fork() == 0: sys.stdin.read(), os._exit(0)\n    print("held"',
    )
    command = [sys.executable, "-c", code, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.wait()
        with hold_lock(path):
            process.stdin.close()
            assert process.stdout.read() == "", "until here the child was there"


@pytest.mark.usefixtures("short")
def test_a_child_that_leaves_the_block_does_not_let_its_parents_lock_go(path: Path) -> None:
    lock = hold_lock(path)
    lock.__enter__()
    child = os.fork()
    if child == 0:
        lock.__exit__(None, None, None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(CheckpointError, match="another thread of this process"), hold_lock(path):
        pass
    lock.__exit__(None, None, None)


@pytest.mark.usefixtures("short")
def test_a_lock_held_by_a_stopped_process_is_an_error_that_names_it(path: Path) -> None:
    """Who took over from a trainer that was stopped inside the lock hung without any limit."""
    with holder(path) as process:
        with pytest.raises(CheckpointError, match="nothing was done") as caught, hold_lock(path):
            pass
        assert str(path) in caught.value.message
        assert "then try again" in caught.value.hint
        if sys.platform == "linux" and str(process.pid) in caught.value.message:
            os.kill(process.pid, signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            store = CheckpointStore(path.parent)
            with pytest.raises(CheckpointError, match="which is stopped") as caught:
                write_checkpoint(store, 1, {})
            assert store.list_checkpoints() == []
            assert f"kill -CONT {process.pid}" in caught.value.hint
    with hold_lock(path):  # it ends with its process
        pass


def test_who_waits_has_it_as_soon_as_it_is_free(path: Path) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with hold_lock(path):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    threading.Timer(0.1, leave.set).start()
    with hold_lock(path):
        assert leave.is_set()
    thread.join()


@pytest.mark.usefixtures("short")
def test_an_error_inside_lets_it_go_and_leaves_no_file_open(path: Path) -> None:
    open_before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), hold_lock(path):
            raise KeyboardInterrupt
    assert len(os.listdir("/dev/fd")) == open_before


def test_a_folder_that_cannot_be_locked_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_file: object, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(CheckpointError, match=r"\.lock cannot be used: No locks"), hold_lock(path):
        pass
