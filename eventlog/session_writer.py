"""`SessionWriter`: appends one session's events in order, under one claim.

What the recorder stands on: it makes each event follow the last one, keeps count and Merkle root of
the session's own events, and waits for durability. After a refused or uncertain append it is of no
more use, because every later event would stand on one that is not there.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.codec import fit_event
from eventlog.errors import FencedError, LogError
from eventlog.event import Body, Event, LineHead, SessionClosed, StateChange, StateUnknown
from eventlog.ids import event_id_from_key, mint_event_id
from eventlog.log import EventLog, Receipt
from eventlog.merkle_root import MerkleRoot


def wall_clock_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class LinePosition(NamedTuple):
    """Where a line stands: its head, and count and root of the session's own standing events."""

    head: LineHead
    root: MerkleRoot
    own_count: int

    @classmethod
    def before_seed(cls, session_id: str) -> "LinePosition":
        """The position of a session that does not exist yet."""
        return cls(LineHead.before_seed(session_id), MerkleRoot(), 0)


class SessionWriter:
    """The append side of one recorder. Thread-safe through `lock`; unusable in a forked child."""

    def __init__(
        self,
        log: EventLog,
        blobs: BlobStore,
        position: LinePosition,
        *,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self.lock = threading.RLock()
        self.head = position.head
        self.released = False
        self.failure: LogError | None = None
        self._log = log
        self._blobs = blobs
        self._root = position.root
        self._own_count = position.own_count
        self._clock_us = clock_us
        self._pending: list[Future[Receipt]] = []
        self._pid = os.getpid()

    @property
    def in_this_process(self) -> bool:
        """Whether this is the process that made it, not a forked child."""
        return os.getpid() == self._pid

    def submit(
        self,
        body: Body,
        *,
        actor: str,
        state_change: StateChange | StateUnknown | None = None,
        key: str | None = None,
    ) -> int:
        """Make the next event and give it to the log; returns its step, not yet durable."""
        with self.lock:
            self.refuse_if_unusable()
            session_id = self.head.session_id
            event = Event.following(
                self.head,
                body,
                event_id=mint_event_id() if key is None else event_id_from_key(session_id, key),
                time=self._clock_us(),
                actor=actor,
                state_change=state_change,
            )
            encoded = fit_event(event, self._blobs.put_blob)
            step = encoded.event.step
            self._pending.append(
                self._log.submit_events(session_id, [encoded], expected_step=self.head.step)
            )
            self.head = LineHead(session_id, step, self.head.attempt, encoded.digest)
            self._root.add(encoded.data)
            self._own_count += 1
            return step

    def await_durable(self) -> None:
        """Return when everything submitted is durable; raises what its append raised."""
        with self.lock:
            try:
                for pending in self._pending:
                    pending.result()
            except LogError as failure:
                self.failure = failure
                raise
            finally:
                self._pending.clear()

    def submit_close(self, reason: str, error_type: str | None) -> int:
        """Submit the close, with count and root over the session's own events before it."""
        with self.lock:
            body = SessionClosed(reason, self._own_count, self._root.root(), error_type)
            return self.submit(body, actor="system")

    def release(self, to_writer: str | None) -> None:
        """Give the claim up. Raises `FencedError` where it is lost already."""
        with self.lock:
            self.refuse_if_unusable()
            self.await_durable()
            self._log.release(self.head.session_id, to_writer)
            self.released = True

    def refuse_if_unusable(self) -> None:
        """Raise where nothing can be appended any more."""
        if not self.in_this_process:
            raise FencedError(
                "this recorder belongs to the process that made it",
                hint="open the workspace in the child and resume or record a session there",
                session_id=self.head.session_id,
            )
        if self.released:
            raise FencedError(
                "this recorder released the session",
                hint="resume the session to record more",
                session_id=self.head.session_id,
            )
        if self.failure is not None:
            raise self.failure
