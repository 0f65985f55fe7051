"""`LogLock`: the lock file beside `log.db`, by which writing processes take turns.

SQLite's own lock is not fair: its waiters sleep and retry, and one of several busy processes can
wait for seconds, where waiters on a file lock are woken as soon as it is free. Nor is SQLite safe
between a writer and a checkpoint: before 3.51.3, which few Pythons have, a commit could be lost for
good (https://sqlite.org/wal.html, "the WAL-reset bug"). Ours write and checkpoint only under this
lock.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

_MARK: Final = b"a steplog log was begun here\n"


class LogLock:
    """An exclusive lock on `<log>.lock`. Used by one thread; dies with the process."""

    def __init__(self, log_path: Path) -> None:
        self._path = log_path.with_name(log_path.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Wait for the lock, as long as it takes. Raises `OSError` where there can be no file."""
        fcntl.flock(self._opened(), fcntl.LOCK_EX)

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Raises `OSError` as `acquire`."""
        try:
            fcntl.flock(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let the next process have it."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def mark(self) -> None:
        """Note in the lock file that a log was begun; call with the lock held. Durable."""
        os.pwrite(self._opened(), _MARK, 0)
        os.fsync(self._opened())

    def is_marked(self) -> bool:
        """Whether a log was ever begun here, even if its file is gone now."""
        return os.pread(self._opened(), len(_MARK), 0) == _MARK

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._descriptor

    def close(self) -> None:
        """Let go of the file. In a forked child this leaves the parent's lock as it is."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
