"""Whose turn it is to fetch: one of the threads that want something, of the processes on a file.

Whoever has the turn fetches for all who want something in this process. Fetching twice what one
could do is only waste, never wrong: so nobody waits long for another who does not get on.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.lock import LogLock

PATIENCE_S: Final = 0.5
"""Another process that fetches, but has not got on for so long, is not waited for any more."""


class FetchTurns:
    """The turn among a mirror's threads, and (`mirror.lock`) among processes with its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.Lock()
        self._asked = threading.Lock()
        self._wanted: Counter[int] = Counter()
        self._lock = LogLock(path.with_suffix(""))
        self._is_held = False
        self._seen: object = None
        self._seen_at = 0.0

    @contextmanager
    def wanting(self, parts: Collection[int]) -> Iterator[None]:
        """Inside, these partitions are among those to be fetched, whoever's turn it is."""
        with self._asked:
            self._wanted.update(parts)
        try:
            yield
        finally:
            with self._asked:
                self._wanted.subtract(parts)
                self._wanted += Counter()  # drops those that nobody wants
                if not self._wanted and self._is_held:
                    self._is_held = False
                    self._lock.release()

    def wanted(self) -> set[int]:
        """The partitions that threads of this process want now."""
        with self._asked:
            return set(self._wanted)

    @contextmanager
    def thread_turn(self, wait_s: float) -> Iterator[bool]:
        """Whether this thread has the turn, after so long at most."""
        if not self._thread.acquire(timeout=max(0.0, wait_s)):
            yield False
            return
        try:
            yield True
        finally:
            self._thread.release()

    def is_ours(self, progress: Callable[[], object]) -> bool:
        """Whether this process may fetch: no other does, or it does not get on by `progress`.

        To be asked again and again by the thread whose turn it is.
        """
        with self._asked, errors_of(self._path):
            if not self._is_held and self._wanted:
                self._is_held = self._lock.try_acquire()
            if self._is_held:
                self._seen = None
                return True
        now = time.monotonic()
        found = progress()
        if found != self._seen:
            self._seen, self._seen_at = found, now
        return now - self._seen_at >= PATIENCE_S

    def note_own(self, progress: Callable[[], object]) -> None:
        """What changed just now was this process's own doing."""
        self._seen = progress()

    def close(self) -> None:
        """Let go of the lock file; in a forked child this leaves the parent's lock as it is."""
        self._lock.close()
