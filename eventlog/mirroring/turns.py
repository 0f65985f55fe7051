"""Whose turn it is to fetch: one of the threads that want something, of the processes on a file.

Whoever has the turn fetches for all who want something in this process. Fetching twice what one
could do is only waste, never wrong: so nobody waits long for another who does not get on.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from eventlog.errors import LogError
from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.lock import LogLock

PATIENCE_S: Final = 0.5
"""Another process that fetches, but has not got on for so long, is not waited for any more."""

CLOSE_S: Final = 0.5
"""So long at most who closes waits for who is using it; then that one lets go of it at its end."""
_LOOK_EVERY_S: Final = 0.05


def handle_closed(path: Path) -> LogError:
    """The error for who uses a handle that is closed, or was closed meanwhile."""
    return LogError(f"this handle on {path} is closed", hint="open the workspace again")


class Turn:
    """A lock with a deadline that no interrupt (Ctrl-C) leaves taken.

    An interrupt may come between any two calls: also after a lock was acquired, and before anybody
    knows. So the turn is taken by a plain assignment, inside of what gives it back.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: object = None
        self._bell: SimpleQueue[None] = SimpleQueue()

    @contextmanager
    def taken(self, wait_s: float = math.inf) -> Iterator[bool]:
        """Whether this thread has the turn, after so long at most."""
        me, deadline = object(), time.monotonic() + wait_s
        try:
            while not self._take(me) and (left_s := deadline - time.monotonic()) > 0:
                with suppress(Empty):
                    self._bell.get(timeout=min(left_s, _LOOK_EVERY_S))
            yield self._holder is me
        finally:
            if self._holder is me:
                self._holder = None
            if self._bell.empty():
                self._bell.put(None)

    def _take(self, me: object) -> bool:
        with self._mutex:
            if self._holder is None:
                self._holder = me
            return self._holder is me


class FetchTurns:
    """The turn among a mirror's threads, and (`mirror.lock`) among processes with its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = Turn()
        self._asked = threading.Lock()
        self._wanted: dict[object, Collection[int]] = {}
        self.is_closed = False
        self._lock = LogLock(path.with_suffix(""))
        self._is_held = False
        self._seen: object = None
        self._seen_at = 0.0

    @contextmanager
    def wanting(self, parts: Collection[int]) -> Iterator[None]:
        """Inside, these partitions are among those to be fetched, whoever's turn it is.

        Raises `LogError` where the handle is closed.
        """
        me = object()
        try:
            with self._asked:
                self.require_open()
                self._wanted[me] = parts
            yield
        finally:
            with self._asked:
                self._wanted.pop(me, None)
                if not self._wanted:
                    self._is_held = False
                    self._lock.release()
                    if self.is_closed:
                        self._lock.close()

    def wanted(self) -> set[int]:
        """The partitions that threads of this process want now."""
        with self._asked:
            return {part for parts in self._wanted.values() for part in parts}

    def thread_turn(self, wait_s: float) -> AbstractContextManager[bool]:
        """Whether this thread has the turn, after so long at most."""
        return self._thread.taken(wait_s)

    def is_ours(self, progress: Callable[[], object]) -> bool:
        """Whether this process may fetch: no other does, or it does not get on by `progress`.

        To be asked again and again by the thread whose turn it is. Raises `LogError` where the
        handle was closed meanwhile.
        """
        with self._asked, errors_of(self._path):
            self.require_open()
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
        """Let go of the lock file: now, or when the last one who wants something has ended."""
        with self._asked:
            self.is_closed = True
            if not self._wanted:
                self._lock.close()

    def left_behind(self) -> None:
        """In a forked child: let go of the lock file, which leaves the parent's lock as it is."""
        self._lock.close()

    def require_open(self) -> None:
        """Raise `LogError` where the handle is closed."""
        if self.is_closed:
            raise handle_closed(self._path)
