"""`append_to_ended`: one more event in a session that nobody writes any more, by any process.

The session is claimed, the event added and the session closed, all in one append. So no crash
leaves it open, who adds something at the same time comes before or after, and the new close's count
and root cover everything before it. Used for late verifications and for voiding.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.errors import AppendUncertainError, FencedError, StepConflictError
from eventlog.event import Body, LineHead, SessionClosed, SessionResumed
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, SessionInfo
from eventlog.merkle_root import MerkleRoot
from eventlog.recording.event_batch import EventBatch

TRIES_MAX: Final = 16
"""How often a session that others add to meanwhile is read again before it is left to them."""


class Place(NamedTuple):
    """Where events are written: log, blobs and the wall clock (microseconds UTC)."""

    log: EventLog
    blobs: BlobStore
    clock_us: Callable[[], int]


class Addition(NamedTuple):
    """What is added: the reason of the claim, the event, its actor, and how a session is closed
    that was not closed before; one that was keeps the reason that it was closed for.
    """

    reason: str
    body: Body
    actor: str
    close: str


class Ended(NamedTuple):
    """A session as it was read: its head, its last close, and what a new one counts and covers."""

    head: LineHead
    close: SessionClosed | None
    root: MerkleRoot


def append_to_ended(
    place: Place,
    session_id: str,
    addition: Addition,
    may_append: Callable[[SessionInfo], bool],
) -> int | None:
    """Append claim, event and close, all or none; the event's step.

    `may_append` says of the session as it stands whether it still is to be done (None if not), or
    raises. Raises `SessionNotFoundError`; `StepConflictError` where others add to it all the while;
    what appending raises.
    """
    log = place.log
    tries = 0
    while True:
        info = log.session_info(session_id)
        if not may_append(info):
            return None
        batch = claimed_batch(place, read_ended(log, info), addition)
        try:
            batch.append_to(log, head=info.head)
            return batch.events[1].event.step
        except AppendUncertainError:
            tries += 1  # By now it is known that nothing was written.
            if tries == TRIES_MAX:
                raise
        except (StepConflictError, FencedError):
            tries += 1
            if tries == TRIES_MAX or log.session_info(session_id).head == info.head:
                raise


def read_ended(log: EventLog, info: SessionInfo) -> Ended:
    """What a new close needs of the session's own standing events."""
    first_own = 0 if info.parent_step is None else info.parent_step + 1
    root, close = MerkleRoot(), None
    for record in log.read_session(info.session_id, first_own, info.head.step + 1):
        root.add(record.data)
        if record.prefix.kind == "session_closed":
            body = decode_record(record).body
            assert isinstance(body, SessionClosed), "a body is of its kind"
            close = body
    # A session that was opened again after its close is open; that close stands no more.
    return Ended(info.head, close if info.status == "closed" else None, root)


def claimed_batch(place: Place, ended: Ended, addition: Addition) -> EventBatch:
    """Claim, event and close; the claim gets the next attempt, and fences who held the session."""
    log, head = place.log, ended.head
    ended = ended._replace(head=head._replace(attempt=log.next_attempt(head.session_id)))
    claim = SessionResumed(head.step, addition.reason, log.writer_id)
    return _batch(place, ended, addition, [(claim, "system")])


def closing_batch(place: Place, ended: Ended, addition: Addition) -> EventBatch:
    """Event and close, of who has claimed the session already."""
    return _batch(place, ended, addition, [])


def _batch(
    place: Place, ended: Ended, addition: Addition, before: list[tuple[Body, str]]
) -> EventBatch:
    batch = EventBatch(ended.head, place.clock_us, root=ended.root, blobs=place.blobs)
    for body, actor in (*before, (addition.body, addition.actor)):
        batch.add(body, actor)
    root = batch.root
    closing = SessionClosed(addition.close, 0, b"") if ended.close is None else ended.close
    batch.add(closing._replace(event_count=root.count, root=root.root()), "system")
    return batch
