"""Whose turn it is to fetch: one of the threads that ask at once, one of the processes on a file.

Fetching twice what one could do is only waste, never wrong: so nobody waits for a turn without end.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventlog.errors import LogUnavailableError
from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.lock import LogLock

PATIENCE_S: Final = 3.0
"""Another process that fetches, but does not get on for so long, is not waited for any more."""
_LOOK_EVERY_S: Final = 0.01

Wanted = frozenset[int] | None
"""Partitions; None for all of them."""


class SharedRounds:
    """Threads that want the same at once: one does it, for all who had asked before it began."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._asked = threading.Lock()
        self._waiting: list[Wanted] = []
        self._begun = 0
        self._done: tuple[int, Wanted] = (0, frozenset())

    def join(self, wanted: Wanted, deadline: float, run: Callable[[Wanted], None]) -> None:
        """Return once a `run` that began after this call has done what is wanted, or raise.

        `LogUnavailableError` where another thread is still at it at the deadline.
        """
        with self._asked:
            arrived = self._begun
            self._waiting.append(wanted)
        try:
            if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise LogUnavailableError(
                    "another thread is still bringing the mirror up to date",
                    hint="try again; the topic may be long: run `steplog mirror` beforehand",
                )
            try:
                number, done = self._done
                if number <= arrived or not _covers(done, wanted):
                    self._run(run)
            finally:
                self._turn.release()
        finally:
            with self._asked:
                self._waiting.remove(wanted)

    def _run(self, run: Callable[[Wanted], None]) -> None:
        with self._asked:
            self._begun += 1
            number, together = self._begun, _union(self._waiting)
        run(together)
        self._done = (number, together)


def _covers(done: Wanted, wanted: Wanted) -> bool:
    return done is None or (wanted is not None and wanted <= done)


def _union(all_wanted: Collection[Wanted]) -> Wanted:
    parts: set[int] = set()
    for each in all_wanted:
        if each is None:
            return None
        parts |= each
    return frozenset(parts)


class FetchTurn:
    """One process at a time fetches into a mirror: `mirror.lock` beside its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = LogLock(path.with_suffix(""))

    @contextmanager
    def taken(
        self, progress: Callable[[], object], is_done: Callable[[], bool], deadline: float
    ) -> Iterator[bool]:
        """True where it is our turn; False where another process has done it meanwhile.

        `progress` is compared to see whether the other one gets on. At the deadline it is our turn
        in any case: whoever has so little time left finds out what is missing.
        """
        held = False
        seen, since = progress(), time.monotonic()
        with errors_of(self._path):
            while not (held := self._lock.try_acquire()):
                if is_done():
                    yield False
                    return
                now = time.monotonic()
                if (found := progress()) != seen:
                    seen, since = found, now
                if now >= deadline or now - since >= PATIENCE_S:
                    break
                time.sleep(_LOOK_EVERY_S)
        try:
            yield True
        finally:
            if held:
                self._lock.release()

    def close(self) -> None:
        """Let go of the lock file; in a forked child this leaves the parent's lock as it is."""
        self._lock.close()
