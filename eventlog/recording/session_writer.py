"""`SessionWriter`: appends one session's events in order, under one claim.

What the recorder stands on: it makes each event follow the last one, keeps count and Merkle root of
the session's own events, and waits for durability. After a refused, uncertain or interrupted
append it is of no more use, because every later event would stand on one that is not there.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.codec import fit_event
from eventlog.errors import FencedError, RecorderEndedError, StepConflictError, SteplogError
from eventlog.event import (
    Annotated,
    Body,
    Event,
    LineHead,
    SessionClosed,
    StateChange,
    StateUnknown,
    SubjectErased,
    Verified,
)
from eventlog.ids import event_id_from_key, mint_event_id
from eventlog.log import EventLog, Receipt
from eventlog.merkle_root import MerkleRoot
from eventlog.recording.recorder_end import RecorderEnd

AFTER_CLOSE: Final = (Verified, Annotated, SubjectErased)
"""What may still be appended to a closed session (docs/formats.md, Which events stand)."""

SUBMITTED_MAX: Final = 1_024
"""Appends not yet known to be durable; before one more, those before it are waited for."""


def wall_clock_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def note_nothing(_step: int) -> None:
    """For an event that nothing in memory hangs on."""


class LinePosition(NamedTuple):
    """Where a line stands: its head, and count and root of the session's own standing events."""

    head: LineHead
    root: MerkleRoot
    own_count: int

    @classmethod
    def before_seed(cls, session_id: str) -> "LinePosition":
        """The position of a session that does not exist yet."""
        return cls(LineHead.before_seed(session_id), MerkleRoot(), 0)


class _Submitted(NamedTuple):
    """An append on its way: its future, and the head that the line has after it."""

    receipt: "Future[Receipt]"
    head: LineHead


def _hear(receipt: "Future[Receipt]") -> None:
    if not receipt.cancelled():
        receipt.exception()


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
        self.head = position.head
        self.closed = False
        self._closed_at = -1
        self.released = False
        self.end: RecorderEnd | None = None
        self.resume = f"`ws.resume({position.head.session_id!r})`"
        self._log = log
        self._blobs = blobs
        self._root = position.root
        self._own_count = position.own_count
        self._clock_us = clock_us
        self._submitted: list[_Submitted] = []
        self._durable = position.head
        self._half_done = False
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def in_this_process(self) -> bool:
        """Whether this is the process that made it, not a forked child."""
        return os.getpid() == self._pid

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """What makes several steps one: re-entrant. Raises `FencedError` in a forked child.

        There a thread that does not exist any more may hold it, and nothing answers what waits.
        """
        self._refuse_a_child()
        return self._lock

    def submit(
        self,
        body: Body,
        *,
        actor: str,
        state_change: StateChange | StateUnknown | None = None,
        key: str | None = None,
        on_taken: Callable[[int], None] = note_nothing,
    ) -> int:
        """Make the next event and give it to the log; returns its step, not yet durable.

        `on_taken` gets the step as soon as the log has the event, for all that must never be
        thought to have happened without it: an interrupt leaves either both or a dead writer.
        """
        with self.lock:
            self.refuse_if_unusable(body)
            if len(self._submitted) >= SUBMITTED_MAX:
                self.await_durable()
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
            self._half_done = True
            try:
                receipt = self._log.submit_events(
                    session_id, [encoded], expected_step=self.head.step
                )
            except SteplogError:
                self._half_done = False
                raise
            head = LineHead(session_id, step, self.head.attempt, encoded.digest)
            self._submitted.append(_Submitted(receipt, head))
            on_taken(step)
            self._root.add(encoded.data)
            self._own_count += 1
            self.head = head
            self._half_done = False
            return step

    def await_durable(self) -> None:
        """Return when everything submitted is durable; raises what its append raised.

        After that the recorder has ended: head and close are those that were acknowledged.
        """
        with self.lock:
            if self.end is not None:
                raise self.end.later
            try:
                while self._submitted:
                    # Taken off only when answered: an interrupted wait can be gone on with.
                    submitted = self._submitted[0]
                    self._require_own(submitted.head, submitted.receipt.result())
                    self._durable = submitted.head
                    del self._submitted[0]
            except SteplogError as failure:
                session_id, step = self.head.session_id, self._durable.step
                self.closed = self.closed and self._closed_at <= step
                self.head = self._durable
                self.end = RecorderEnd(session_id, step, self.closed, failure, self.resume)
                # The others stand on what failed. That is told; nobody needs to be told of them.
                for submitted in self._submitted:
                    submitted.receipt.add_done_callback(_hear)
                self._submitted.clear()
                raise self.end.first from failure.__cause__

    def submit_close(self, reason: str, error_type: str | None) -> int:
        """Submit the close, with count and root over the session's own events before it."""
        with self.lock:
            body = SessionClosed(reason, self._own_count, self._root.root(), error_type)
            return self.submit(body, actor="system", on_taken=self._note_closed)

    def release(self, to_writer: str | None) -> None:
        """Give the claim up. Raises `FencedError` where it is lost already."""
        with self.lock:
            self.refuse_if_unusable()
            self.await_durable()
            self._log.release(self.head.session_id, to_writer)
            self.released = True

    def refuse_if_unusable(self, body: Body | None = None) -> None:
        """Raise where nothing, or not this, can be appended any more."""
        self._refuse_a_child()
        if self.released:
            raise self._fenced(
                "this recorder released the session", "resume the session to record more"
            )
        if self.end is not None:
            raise self.end.later
        if self._half_done:
            raise RecorderEndedError(
                "an append of this recorder was interrupted half-way",
                hint="resume the session: what the log has taken is there",
                session_id=self.head.session_id,
            )
        if self.closed and not isinstance(body, AFTER_CLOSE):
            raise StepConflictError(
                "the session is closed",
                hint="fork it, or resume it with reopen=True",
                expected=self.head.step,
                actual=self.head.step,
                session_id=self.head.session_id,
            )

    def _refuse_a_child(self) -> None:
        if not self.in_this_process:
            raise self._fenced(
                "this recorder belongs to the process that made it",
                "open the workspace in the child and resume or record a session there",
            )

    def _note_closed(self, step: int) -> None:
        self.closed, self._closed_at = True, step

    def _require_own(self, submitted: LineHead, receipt: Receipt) -> None:
        if receipt.event_digest != submitted.digest:
            raise StepConflictError(
                f"the event was recorded at step {receipt.last_step} already, under the same id",
                hint="resume the session; give each call an idempotency key of its own",
                expected=submitted.step,
                actual=receipt.last_step,
                session_id=receipt.session_id,
                step=submitted.step,
            )

    def _fenced(self, message: str, hint: str) -> FencedError:
        return FencedError(message, hint=hint, session_id=self.head.session_id)
