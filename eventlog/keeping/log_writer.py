"""`LogWriter`: the one thread that writes to a log; everything else only submits requests to it.

Requests wait in a queue of bounded size; each commit takes all that wait, so that many writers
share one commit and one alone never waits for a timer. What a commit is, the keeper's `Committer`
knows. A forked child has no writer: it makes its own when it first writes, and never touches what
it inherited.

A Ctrl-C may end a submission at any point, and must not hold up the writer or those who submit
after it. So caller and writer share only what the interpreter does not interrupt: a plain lock used
by `with`, and a `SimpleQueue`; `Condition`, `Event` and `Thread.start` are Python code, which an
interrupt can leave with their lock held.
"""

import _thread
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from eventlog.errors import AppendUncertainError, LogError, LogUnavailableError, SteplogError
from eventlog.keeping.requests import Committer, Failed, Outcomes, Request, give_answers
from eventlog.keeping.unheard import UnheardErrors

CommitterT = TypeVar("CommitterT", bound=Committer)

IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Held by what was submitted and is not answered yet; more must wait. A larger batch goes alone."""
DEADLINE_S: Final = 30.0
"""How long a submission waits for room, and a request for its turn to write."""
COMMIT_DEADLINE_S: Final = 60.0
"""How long a commit may take: then its requests are answered, with their outcome unknown."""
_WATCH_EVERY_S: Final = 0.5
_ROOM_EVERY_S: Final = 0.005
_START_EVERY_S: Final = 0.0002

_logger = logging.getLogger("steplog.log")


class LogWriter(Generic[CommitterT]):
    """Queue and thread in front of one `Committer`. All methods may be called from any thread.

    A second thread minds deadlines: nobody waits for ever, for a disk, brokers or a process.
    """

    def __init__(
        self,
        committer: CommitterT,
        commit_deadline_s: float,
        *,
        wait_deadline_s: float | None = None,
    ) -> None:
        """`wait_deadline_s` is how long a request waits for its turn (default `DEADLINE_S`)."""
        self.committer: Final = committer
        self.commit_deadline_s = commit_deadline_s
        self._wait_deadline_s = wait_deadline_s
        self._waiting: deque[tuple[float, Request]] = deque()
        self._in_flight_bytes = 0
        self._stopping = False
        self._batch: list[Request] = []
        """What is with the committer and has no answer yet; used with the lock held."""
        self._taken_bytes = self._taken_held = 0
        self._is_overdue = False
        self._is_busy = False
        self._sleeps = False
        """Whether the thread waits for the bell: only then it is rung."""
        self._phase = 0
        """Counts what the thread comes to: work, a batch, its outcome."""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        """Rung before something is put into `_waiting`, so that it never lies there unseen."""
        self._is_started = False
        self._has_threads = False
        self._has_stopped = False
        self._unheard = UnheardErrors()
        self._stopped: SimpleQueue[None] = SimpleQueue()

    def submit(self, request: Request) -> None:
        """Queue a request. Raises `LogUnavailableError` where no room comes free in time."""
        size = request.held_bytes or request.size_bytes
        deadline = time.monotonic() + self.wait_deadline_s
        while not self._enqueue(request, size):
            if time.monotonic() >= deadline:
                raise _no_room(self.committer, self._in_flight_bytes, self.wait_deadline_s)
            time.sleep(_ROOM_EVERY_S)
        while not self._has_threads:
            # A process that ends right after its first submission can start none any more.
            time.sleep(_START_EVERY_S)

    @property
    def wait_deadline_s(self) -> float:
        """How long a submission waits for room, and a request for its turn, in seconds."""
        return DEADLINE_S if self._wait_deadline_s is None else self._wait_deadline_s

    def _enqueue(self, request: Request, size: int) -> bool:
        """Put the request among those that wait; False where there is no room for it now."""
        entry = (time.monotonic() + self.wait_deadline_s, request)
        with self._lock:
            if self._stopping:
                raise LogError("this log handle is closed", hint="open the log again")
            in_flight = self._in_flight_bytes
            if in_flight > 0 and in_flight + size > IN_FLIGHT_BYTES_MAX:
                return False
            if not self._is_started:
                self._start_soon()
            if self._sleeps:
                self._bell.put(None)
            # Nothing can come between these two; and an idle writer counts from nothing again.
            self._in_flight_bytes = in_flight + size
            self._waiting.append(entry)
            # It will look; until it can run, others need not ring as well.
            self._sleeps = False
            return True

    def _start_soon(self) -> None:
        """Start the threads, from a thread of its own: only the main thread is ever interrupted."""
        try:
            _thread.start_new_thread(self._start, ())
        except RuntimeError as error:
            raise LogUnavailableError(
                f"nothing can be written to {self.committer.place} any more: {error}",
                hint="submit what is to be written before the process ends",
            ) from error

    def _start(self) -> None:
        with self._lock:
            if self._is_started or (self._stopping and not self._waiting):
                return
            self._is_started = True
        try:
            # Daemons: an interpreter that exits without a close is not held up by them.
            threads = {"steplog-writer": self._serve, "steplog-deadlines": self._mind_deadlines}
            for name, target in threads.items():
                threading.Thread(target=target, name=name, daemon=True).start()
        finally:
            self._has_threads = True

    def shorten_deadline(self, commit_deadline_s: float) -> None:
        """A commit may take no longer than the most impatient handle allows."""
        self.commit_deadline_s = min(self.commit_deadline_s, commit_deadline_s)

    def stop(self) -> None:
        """Serve what was submitted, then end the thread and close the connection.

        Where the disk or another process keeps the log from being written, waiting ends at last:
        what was submitted has been answered by then.
        """
        with self._lock:
            self._stopping = True
            self._bell.put(None)
            is_used = self._is_started or bool(self._waiting)
        if not is_used:
            self.committer.close()
            return
        deadline = time.monotonic() + self.wait_deadline_s + self.commit_deadline_s
        while not self._has_stopped:
            if time.monotonic() >= deadline:
                _logger.warning(
                    "%s is let go of while a write to it is stuck", self.committer.place
                )
                return
            with suppress(Empty):
                self._stopped.get(timeout=_WATCH_EVERY_S)

    def report_unheard(self) -> None:
        """At exit: tell of what was not written, where nobody has asked what came of it."""
        self._unheard.report()

    def _answer(self, outcomes: Outcomes) -> None:
        """Let everyone know; remember errors until somebody asks for them."""
        give_answers(outcomes)
        self._unheard.note(outcomes)

    def _serve(self) -> None:
        while self._await_work():
            outcomes = self.committer.serve(self._take, self._give_early)
            self._give(outcomes, in_time=self._finish())
            self.committer.tidy()
        self.committer.close()
        self._ended.set()
        self._has_stopped = True
        self._stopped.put(None)

    def _give(self, outcomes: Outcomes, *, in_time: bool) -> None:
        self.committer.settle(outcomes, in_time=in_time)
        if in_time:
            self._answer(outcomes)

    def _give_early(self, outcomes: Outcomes) -> None:
        """These are through; the committer goes on with the rest of the batch."""
        gone = {id(request) for request, _ in outcomes}
        with self._lock:
            self._phase += 1
            in_time = not self._is_overdue
            self._batch = [each for each in self._batch if id(each) not in gone]
            held = sum(request.held_bytes or request.size_bytes for request, _ in outcomes)
            self._in_flight_bytes -= held
            self._taken_held -= held
        self._give(outcomes, in_time=in_time)

    def _await_work(self) -> bool:
        """Wait until something is there to be served; False where nothing will come any more."""
        while True:
            with self._lock:
                self._sleeps = False
                if self._waiting or self._stopping:
                    self._is_busy = True
                    self._phase += 1
                    return bool(self._waiting)
                self._is_busy = False
                self._in_flight_bytes = 0
                self._sleeps = True
            self._bell.get()

    def _take(self) -> Sequence[Request]:
        """What waits, each request begun; those that were withdrawn are left out."""
        limits = self.committer.limits
        with self._lock:
            self._phase += 1
            while (
                self._waiting
                and len(self._batch) < limits.requests_max
                and self._taken_bytes < limits.bytes_max
            ):
                request = self._waiting.popleft()[1]
                self._taken_bytes += request.size_bytes
                self._taken_held += request.held_bytes or request.size_bytes
                if request.answer.set_running_or_notify_cancel():
                    self._batch.append(request)
            return tuple(self._batch)

    def _finish(self) -> bool:
        """The batch is through. False where it was too late: its requests have been answered."""
        with self._lock:
            self._phase += 1
            in_time = not self._is_overdue
            self._is_overdue = False
            self._batch.clear()
            self._in_flight_bytes -= self._taken_held
            self._taken_bytes = self._taken_held = 0
            return in_time

    def _mind_deadlines(self) -> None:
        """Answer what waits too long, because the thread does not come on.

        Its standstill is counted in looks, not read from a clock: a process that was stopped for a
        while finds its deadlines where it left them.
        """
        phase, stuck_s = 0, 0.0
        look_s = min(_WATCH_EVERY_S, self.commit_deadline_s / 4)
        while not self._ended.wait(look_s):
            with self._lock:
                stands_still = self._is_busy and self._phase == phase
                phase = self._phase
            stuck_s = stuck_s + look_s if stands_still else 0.0
            if self.committer.waits_for_lock or stuck_s >= self.wait_deadline_s:
                self._refuse_late()
            if stuck_s >= self.commit_deadline_s:
                self._give_batch_up()
            look_s = min(_WATCH_EVERY_S, self.commit_deadline_s / 4)

    def _refuse_late(self) -> None:
        """Answer what has waited for its turn too long: nothing of it is written."""
        now = time.monotonic()
        late: list[Request] = []
        with self._lock:
            while self._waiting and self._waiting[0][0] < now:
                late.append(self._waiting.popleft()[1])
            self._in_flight_bytes -= sum(
                request.held_bytes or request.size_bytes for request in late
            )
        error = _stuck(self.committer, self.wait_deadline_s)
        self._answer([(request, Failed(error)) for request in late])

    def _give_batch_up(self) -> None:
        """Answer what is with the committer for too long: its outcome is unknown."""
        with self._lock:
            if not self._batch:
                return
            batch = self._batch.copy()
            self._batch.clear()
            self._is_overdue = True
        self._answer(
            [
                (request, Failed(_overdue(self.committer, self.commit_deadline_s, request)))
                for request in batch
            ]
        )


def _no_room(committer: Committer, in_flight: int, wait_deadline_s: float) -> LogUnavailableError:
    """What is said to a submission that found no room."""
    return LogUnavailableError(
        f"{in_flight} bytes wait to be written to {committer.place}; no room came free within "
        f"{wait_deadline_s:g} s",
        hint=f"check {committer.medium}; wait for what was submitted before submitting more",
    )


def _stuck(committer: Committer, wait_deadline_s: float) -> LogUnavailableError:
    """What is said to those whose turn did not come."""
    if committer.waits_for_lock:
        return LogUnavailableError(
            f"another process has held {committer.place} locked for {wait_deadline_s:g} s",
            hint="end or continue that process (`lslocks` names it), then try again",
        )
    return LogUnavailableError(
        f"a write to {committer.place} before this one has been stuck for {wait_deadline_s:g} s",
        hint=f"check {committer.medium}, then try again",
    )


def _overdue(committer: Committer, deadline_s: float, request: Request) -> SteplogError:
    what = f"{committer.place} did not answer for {deadline_s:g} s"
    if not request.session_ids:
        return LogUnavailableError(what, hint=f"check {committer.medium}, then try again")
    return AppendUncertainError(
        f"{what}: whether the events are there is unknown",
        hint=f"check {committer.medium}; call reconcile for the session before more is "
        "appended to it",
        session_id=request.session_ids[0],
    )
