"""`SqliteWriter`: the one thread of a process that writes to a log, shared by all its handles.

Requests wait in a queue of bounded size; each commit takes all that wait, so that many writers
share one sync to disk and one alone never waits for a timer. A forked child has no writer: it makes
its own when it first writes, and never touches what it inherited.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eventlog.errors import LogError, LogUnavailableError
from eventlog.sqlite_committer import Committer, Failed, Request, give_answers

IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Events submitted and not answered yet; more must wait. One larger batch may go alone."""
DEADLINE_S: Final = 30.0
"""How long a submission waits for room, and a request for its turn to write."""
BATCH_REQUESTS_MAX: Final = 4_096
"""Requests in one commit: bounds how long other processes wait."""
_WATCH_EVERY_S: Final = 0.5


class SqliteWriter:
    """Queue and thread in front of one `Committer`. All methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.committer: Final = Committer(path, self._begin_watch)
        self._path = path
        self._waiting: deque[tuple[float, Request]] = deque()
        self._in_flight_bytes = 0
        self._stopping = False
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._watch: threading.Thread | None = None

    def submit(self, request: Request) -> None:
        """Queue a request. Raises `LogUnavailableError` where no room comes free in time."""
        size = request.size_bytes
        with self._work:
            if self._is_full(size):
                self._await_room(size)
            if self._stopping:
                raise LogError("this log handle is closed", hint="open the log again")
            self._in_flight_bytes += size
            self._waiting.append((time.monotonic() + DEADLINE_S, request))
            if self._thread is None:
                # A daemon: an interpreter that exits without a close is not held up by it.
                self._thread = threading.Thread(
                    target=self._serve, name="steplog-writer", daemon=True
                )
                self._thread.start()
            self._work.notify()

    def stop(self) -> None:
        """Serve what was submitted, then end the thread and close the connection.

        Where another process keeps the log locked, waiting ends at last: what was submitted has
        been answered by then.
        """
        with self._work:
            self._stopping = True
            self._work.notify_all()
            self._room.notify_all()
            thread = self._thread
        if thread is None:
            self.committer.close()
        else:
            thread.join(2 * DEADLINE_S)

    def _is_full(self, size: int) -> bool:
        in_flight = self._in_flight_bytes
        return in_flight > 0 and in_flight + size > IN_FLIGHT_BYTES_MAX

    def _await_room(self, size: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self._is_full(size) and not self._stopping:
            left = deadline - time.monotonic()
            if left <= 0 or not self._room.wait(left):
                raise LogUnavailableError(
                    f"{self._in_flight_bytes} bytes wait to be written to {self._path}; no room "
                    f"came free within {DEADLINE_S:g} s",
                    hint="check the disk; wait for what was submitted before submitting more",
                )

    def _serve(self) -> None:
        while True:
            with self._work:
                while not self._waiting and not self._stopping:
                    self._work.wait()
                if not self._waiting:
                    break
            taken: list[Request] = []
            self.committer.serve(lambda into=taken: self._take(into))  # type: ignore[misc]
            self._free(taken)
        self.committer.close()

    def _take(self, into: list[Request]) -> Sequence[Request]:
        with self._work:
            while self._waiting and len(into) < BATCH_REQUESTS_MAX:
                into.append(self._waiting.popleft()[1])
        return into

    def _free(self, requests: Sequence[Request]) -> None:
        with self._work:
            self._in_flight_bytes -= sum(request.size_bytes for request in requests)
            self._room.notify_all()

    def _begin_watch(self) -> None:
        """The lock file is held by another process: from now on somebody minds the deadlines."""
        if self._watch is None or not self._watch.is_alive():
            self._watch = threading.Thread(
                target=self._mind_deadlines, name="steplog-deadlines", daemon=True
            )
            self._watch.start()

    def _mind_deadlines(self) -> None:
        while self.committer.waits_for_lock:
            time.sleep(_WATCH_EVERY_S)
            late = self._take_late()
            error = LogUnavailableError(
                f"another process has held {self._path} locked for {DEADLINE_S:g} s",
                hint="end or continue that process (`lslocks` names it), then try again",
            )
            give_answers([(request, Failed(error)) for request in late])
            self._free(late)

    def _take_late(self) -> list[Request]:
        now = time.monotonic()
        late: list[Request] = []
        with self._work:
            while self._waiting and self._waiting[0][0] < now:
                late.append(self._waiting.popleft()[1])
        return late
