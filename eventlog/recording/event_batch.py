"""`EventBatch`: events that go on from a head one after the other, to be appended together.

For whoever writes a few events of a session at once and holds no recorder. Appends nothing itself.
"""

from collections.abc import Callable

from eventlog.blob_store import BlobStore
from eventlog.codec import EncodedEvent, encode_event, fit_event
from eventlog.errors import AppendUncertainError
from eventlog.event import Body, Event, LineHead, SessionClosed
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
        """`root` covers the session's own events up to `head`, none if None; it is changed.

        `blobs` takes what is too large for an event; without it an event must fit as it is.
        """
        self.events: list[EncodedEvent] = []
        self.head = head
        self.root = MerkleRoot() if root is None else root
        self._first_step = head.step
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

    def append_to(self, log: EventLog) -> None:
        """Append all or none; durable when it returns. Raises as `EventLog.append_events`.

        An append of which it is not known whether it was written is settled first.
        """
        session_id = self.head.session_id
        try:
            log.append_events(session_id, self.events, expected_step=self._first_step)
        except AppendUncertainError:
            receipt = log.reconcile(session_id)
            if receipt is None or receipt.event_digest != self.head.digest:
                raise
