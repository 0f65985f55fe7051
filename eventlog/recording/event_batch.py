"""`EventBatch`: events that go on from a head one after the other, and are appended together.

For whoever writes a few events of a session at once and holds no recorder: forks too, by
`append_fork`.
"""

from collections.abc import Callable, Mapping

from eventlog.blob_store import BlobStore
from eventlog.codec import EncodedEvent, encode_event, fit_event
from eventlog.errors import AppendUncertainError
from eventlog.event import Body, Event, LineHead, SessionClosed, SessionForked
from eventlog.ids import mint_event_id
from eventlog.log import EventLog
from eventlog.merkle_root import MerkleRoot


class EventBatch:
    """Encoded events in order; `head` is where they end, `root` what a close would cover."""

    def __init__(
        self,
        head: LineHead,
        clock_us: Callable[[], int],
        *,
        root: MerkleRoot | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """`root` covers the session's own events up to `head`, none if None; it stays as it is.

        `blobs` takes what is too large for an event; without it an event must fit as it is.
        """
        self.events: list[EncodedEvent] = []
        self.head = head
        self.root = MerkleRoot() if root is None else root.copy()
        self._after_step = head.step
        self._clock_us = clock_us
        self._blobs = blobs

    def add(self, body: Body, actor: str) -> None:
        """The next event. Raises `EventTooLargeError`."""
        event = Event.following(
            self.head, body, event_id=mint_event_id(), time=self._clock_us(), actor=actor
        )
        blobs = self._blobs
        encoded = encode_event(event) if blobs is None else fit_event(event, blobs.put_blob)
        self.events.append(encoded)
        self.root.add(encoded.data)
        self.head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)

    def close(self, reason: str, actor: str = "system") -> None:
        """The session's close, with count and root over its own events before."""
        self.add(SessionClosed(reason, self.root.count, self.root.root()), actor)

    def append_to(self, log: EventLog, *, head: LineHead | None = None) -> None:
        """Append all or none; durable when it returns. `head` and errors: `EventLog.append_events`.

        An append of which it is not known whether it was written is settled first: that error is
        raised where it was not.
        """
        session_id, after = self.head.session_id, self._after_step
        try:
            log.append_events(session_id, self.events, expected_step=after, head=head)
        except AppendUncertainError:
            receipt = log.reconcile(session_id)
            if receipt is None or receipt.event_digest != self.head.digest:
                raise


def append_fork(
    log: EventLog,
    at: LineHead,
    parent: str,
    changes: Mapping[str, str],
    actor: str,
    clock_us: Callable[[], int],
) -> None:
    """Begin a branch of `parent`: `at` has its id, and the parent's step and event it goes on from.

    All or nothing, durable when it returns. Raises `SessionExistsError`, and as `append_to`.
    """
    batch = EventBatch(at, clock_us)
    batch.add(SessionForked(parent, at.step, None, dict(changes)), actor)
    batch.append_to(log)
