"""`SnapshotTaker`: takes due snapshots off the append path, in one thread of its own.

A snapshot only saves time, so one that cannot be taken (the queue is full, the disk is full) is
counted and logged, and recording goes on.

The recording thread and the taking one share a plain lock and a `SimpleQueue` only: a Ctrl-C can
leave a `Condition`, and so a `ThreadPoolExecutor`, locked for good.
"""

import _thread
import logging
import os
import threading
from queue import SimpleQueue
from typing import Final, NamedTuple

from eventlog.canonical import digest_of
from eventlog.errors import LogUnavailableError, SnapshotError
from eventlog.keeping.awaited import Promised
from eventlog.recording.state_capture import Recorded, StateObserver
from replay.reducer import CapturedReducer
from replay.replayer import Replayed
from snapshots.snapshot import Snapshot
from snapshots.snapshot_policy import AtEnd, EveryN, Moment, SnapshotPolicy
from snapshots.snapshot_store import SnapshotRef, SnapshotStore

DEFAULT_POLICY: Final = EveryN(256) | AtEnd()
# States waiting to be stored; beyond this a due snapshot is passed over rather than awaited.
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024

_logger = logging.getLogger("steplog.snapshots")


def require_policy(policy: object) -> None:
    """Raise `TypeError` for what is neither None nor can say when a snapshot is due."""
    if policy is not None and not callable(getattr(policy, "is_due", None)):
        raise TypeError(f"snapshots takes a SnapshotPolicy, as EveryN(64), not {policy!r}")


class _Due(NamedTuple):
    """A snapshot to be stored, and who waits for it; no snapshot: the thread is to end."""

    done: Promised[None]
    snapshot: Snapshot | None


class SnapshotTaker:
    """Stores snapshots of recorded sessions. `passed_over` counts the due ones not taken."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.passed_over = 0
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[Promised[None], int] = {}
        self._queue: SimpleQueue[_Due] | None = None

    def _leave_parent(self) -> None:
        # In a forked child the worker is not there, its futures never end, the lock may be held.
        if os.getpid() != self._pid:
            self._begin()

    def observer(
        self, policy: SnapshotPolicy | None, reducer: str, snapshot_step: int | None = None
    ) -> StateObserver | None:
        """What a recorder tells of each durable event; None where states are not captured.

        `snapshot_step` is the step the last snapshot was taken at, or the step resumed from.
        Raises `TypeError` for what is no policy.
        """
        require_policy(policy)
        # A user's reducer may differ from the captured states; only its own fold may be kept.
        if reducer != CapturedReducer.name:
            return None
        chosen = DEFAULT_POLICY if policy is None else policy
        last_taken = snapshot_step

        def observe(recorded: Recorded) -> None:
            nonlocal last_taken
            head, state = recorded.head, recorded.state_bytes
            moment = Moment(head.step, last_taken, recorded.at_end)
            if state is None or not self._is_due(chosen, moment, head.session_id):
                return
            last_taken = head.step
            self._store_later(
                Snapshot(
                    head.session_id,
                    head.step,
                    head.digest,
                    b"",  # the digest is computed in the worker, off the append path
                    CapturedReducer.name,
                    CapturedReducer.version,
                    state,
                )
            )

        return observe

    def take(self, replayed: Replayed) -> SnapshotRef:
        """Store a replayed state now. Raises `SnapshotError`, `LogUnavailableError`."""
        return self._store.put_snapshot(
            Snapshot(
                replayed.session_id,
                replayed.step,
                replayed.event_digest,
                replayed.state_digest,
                replayed.reducer,
                replayed.reducer_version,
                replayed.state_bytes,
            )
        )

    def wait(self) -> None:
        """Return when every snapshot that was due is stored or given up."""
        self._leave_parent()
        with self._lock:
            waiting = list(self._waiting)
        for future in waiting:
            future.result()

    def close(self) -> None:
        """Wait, then end the thread. Idempotent."""
        self._leave_parent()
        with self._lock:
            queue, self._queue = self._queue, None
        if queue is not None:
            ended = _Due(Promised(), None)
            queue.put(ended)
            ended.done.result()

    def _is_due(self, policy: SnapshotPolicy, moment: Moment, session_id: str) -> bool:
        try:
            return bool(policy.is_due(moment))
        except Exception as error:  # noqa: BLE001 - a user's policy; told in the log, below
            # The event is durable already: a raise would tell its recorder that it is not.
            with self._lock:
                self.passed_over += 1
            _logger.warning(
                "session %r: snapshot of step %d not taken, since %r raised %s: %s",
                session_id,
                moment.step,
                type(policy).__qualname__,
                type(error).__qualname__,
                error,
            )
            return False

    def _store_later(self, snapshot: Snapshot) -> None:
        self._leave_parent()
        with self._lock:
            if sum(self._waiting.values()) + len(snapshot.state) > WAITING_BYTES_MAX:
                self.passed_over += 1
                return
            try:
                queue = self._started_queue()
            except RuntimeError as error:  # no thread to be had, or the interpreter is ending
                self._give_up(error)
                return
            due = _Due(Promised(), snapshot)
            self._waiting[due.done] = len(snapshot.state)
            queue.put(due)

    def _started_queue(self) -> "SimpleQueue[_Due]":
        if self._queue is None:
            queue: SimpleQueue[_Due] = SimpleQueue()
            # Not `Thread.start`, which waits by an `Event` that an interrupt can leave locked.
            _thread.start_new_thread(self._serve, (queue,))
            self._queue = queue
        return self._queue

    def _serve(self, queue: "SimpleQueue[_Due]") -> None:
        while (due := queue.get()).snapshot is not None:
            failure: Exception | None = None
            try:
                self._store_now(due.snapshot)
            except Exception as error:  # noqa: BLE001 - raised again in who waits
                failure = error
            with self._lock:
                self._waiting.pop(due.done, None)
            if failure is None:
                due.done.set_result(None)
            else:
                due.done.set_exception(failure)
        due.done.set_result(None)

    def _store_now(self, snapshot: Snapshot) -> None:
        try:
            self._store.put_snapshot(snapshot._replace(state_digest=digest_of(snapshot.state)))
        except (SnapshotError, LogUnavailableError) as error:
            with self._lock:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.passed_over += 1
        _logger.warning("snapshot not taken: %s", error)
