"""`hold_lock`: one process at a time moves a HEAD or takes anything away from a checkpoint folder.

A lock on a file, which dies with its process. It belongs to the open file, which a forked child
has too: so it is let go by name before the file is closed, and a child closes what it inherited.
Waiting ends after `WAIT_S`, with who holds it: a process that was stopped holds it for ever.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import RLock
from typing import Final, NoReturn
from weakref import WeakSet

from eventlog.errors import CheckpointError
from snapshots.checkpoints.file_faults import os_errors_told

WAIT_S: Final = 30.0
"""How long the lock is waited for, as a log's writer waits for its log."""
POLL_S: Final = 0.001
"""The first wait between two tries; it doubles up to `POLL_MAX_S`."""
POLL_MAX_S: Final = 0.032
"""The longest wait between two tries."""

_HOLDER: Final = re.compile(r"\d+: FLOCK +ADVISORY +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ")


class _OpenLocks:
    """The lock files that this process has open: a forked child has them too, and closes them."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may fork while its own thread opens one.
        self._opening = RLock()
        self._files: WeakSet[FileIO] = WeakSet()

    def open(self, path: Path) -> FileIO:
        """The file at `path`, made where it is missing. Raises `OSError`."""
        with self._opening:  # no fork falls between the opening and knowing of it
            file = FileIO(str(path), "r+", opener=_open_or_make)
            self._files.add(file)
            return file

    def before_fork(self) -> None:
        """Wait until no file is being opened."""
        self._opening.acquire()

    def after_fork_in_parent(self) -> None:
        """Files may be opened again."""
        self._opening.release()

    def after_fork_in_child(self) -> None:
        """Close what is the parent's: its lock stays as it is, and does not outlive it here."""
        for file in list(self._files):
            file.close()
        self._files = WeakSet()
        self._opening.release()


_open_locks: Final = _OpenLocks()

os.register_at_fork(
    before=_open_locks.before_fork,
    after_in_parent=_open_locks.after_fork_in_parent,
    after_in_child=_open_locks.after_fork_in_child,
)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the folder whose lock file is `path`; made where it is missing.

    Not for a thread that holds it: that one would wait for itself. Raises `CheckpointError` where
    there can be no file, and where the lock is not free within `WAIT_S`: then nothing was done.
    """
    with os_errors_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _open_locks.open(path)
    try:
        _wait_for(file, path)
        yield
    finally:
        # In a child that was forked meanwhile it is closed already: the lock is its parent's.
        if not file.closed:
            with suppress(OSError):  # closing lets it go too, where no child has it
                fcntl.flock(file, fcntl.LOCK_UN)
            file.close()


def _open_or_make(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _wait_for(file: FileIO, path: Path) -> None:
    deadline, pause = time.monotonic() + WAIT_S, POLL_S
    while not _is_taken(file, path):
        if time.monotonic() >= deadline:
            _refuse_held(file, path)
        time.sleep(pause)
        pause = min(2 * pause, POLL_MAX_S)


def _is_taken(file: FileIO, path: Path) -> bool:
    """Whether the lock is ours now."""
    with os_errors_told(path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _refuse_held(file: FileIO, path: Path) -> NoReturn:
    holder = _holder_of(file)
    if holder is None:
        who, hint = "another process", "see who works on the folder (`fuser -v` on the lock file)"
    elif holder == os.getpid():
        who, hint = "another thread of this process", "see what it waits for"
    elif _is_stopped(holder):
        who = f"process {holder}, which is stopped,"
        hint = f"let it go on (`kill -CONT {holder}`) or end it (`kill -KILL {holder}`)"
    else:
        who = f"process {holder}"
        hint = f"see what process {holder} does, and end it where it hangs"
    raise CheckpointError(
        f"{who} has held the lock {path} of the checkpoint folder for more than {WAIT_S:g} s; "
        "nothing was done",
        hint=f"{hint}; then try again: the lock ends with whoever holds it",
    )


def _holder_of(file: FileIO) -> int | None:
    """The process that holds the lock, where the system tells (Linux, on the same machine)."""
    status = os.fstat(file.fileno())
    place = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        found = _HOLDER.match(line)
        if found is not None and place == (int(found[2], 16), int(found[3], 16), int(found[4])):
            return int(found[1]) or None  # 0: of another namespace
    return None


def _is_stopped(process: int) -> bool:
    try:
        # The state follows the name, which stands in parentheses and may hold any of them.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False
