"""`record_late_verification`: a verdict on a closed session, brought by any process.

The session is claimed, judged and closed again in one append. So no crash leaves it open, whoever
judges at the same time comes before or after, and the new close's count and root cover everything
before it, the verdict too.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypedDict

from eventlog.blob_store import BlobStore
from eventlog.codec import EncodedEvent, fit_event
from eventlog.content import result_content
from eventlog.errors import AppendUncertainError, FencedError, StepConflictError
from eventlog.event import Body, Event, LineHead, SessionClosed, SessionResumed, Verified
from eventlog.ids import mint_event_id
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, SessionInfo
from eventlog.merkle_root import MerkleRoot
from eventlog.recording.given_numbers import component_numbers, require_duration, reward_number

REASON: Final = "late verification"
"""The reason that the claim gives."""

TRIES_MAX: Final = 16
"""How often a session that others add to meanwhile is read again before it is left to them."""


class VerificationFields(TypedDict, total=False):
    """What `SessionRecorder.record_verification` takes beside the reward and the verifier."""

    verifier_version: str
    components: Mapping[str, float] | None
    input: object
    output: object
    mask_sample: bool
    failure_kind: str | None
    about_step: int | None
    supersedes_step: int | None
    duration_us: int


class _Closed(NamedTuple):
    """A closed session as it was read: its last close, and what a later one counts and covers."""

    head: LineHead
    close: SessionClosed
    root: MerkleRoot


def verification_body(reward: float | None, verifier: str, fields: VerificationFields) -> Verified:
    """The judgement as an event's body; `input` and `output` as a tool's results are taken."""
    duration_us = fields.get("duration_us", 0)
    require_duration(duration_us)
    return Verified(
        verifier=verifier,
        verifier_version=fields.get("verifier_version", ""),
        reward=reward_number(reward),
        components=component_numbers(fields.get("components")),
        input=result_content(fields["input"]) if "input" in fields else None,
        output=result_content(fields["output"]) if "output" in fields else None,
        mask_sample=fields.get("mask_sample", False),
        failure_kind=fields.get("failure_kind"),
        about_step=fields.get("about_step"),
        supersedes_step=fields.get("supersedes_step"),
        duration_us=duration_us,
    )


def record_late_verification(
    log: EventLog,
    blobs: BlobStore,
    session_id: str,
    verified: Verified,
    *,
    clock_us: Callable[[], int],
) -> int:
    """Append claim, `verified` and the close again, all or none; the verification's step.

    Raises `SessionNotFoundError`; `StepConflictError` for a session that is not closed, or that
    others add to all the while; what appending raises.
    """
    tries = 0
    while True:
        info = log.session_info(session_id)
        _require_closed(info)
        batch = _batch(log, blobs, _read(log, info), verified, clock_us)
        try:
            log.append_events(session_id, batch, expected_step=info.head.step, head=info.head)
        except AppendUncertainError:
            receipt = log.reconcile(session_id)
            written = receipt is not None and receipt.event_digest == batch[-1].digest
            tries += 1
            if tries == TRIES_MAX and not written:
                raise
        except (StepConflictError, FencedError):
            written = False
            tries += 1
            if tries == TRIES_MAX or log.session_info(session_id).head == info.head:
                raise
        else:
            written = True
        if written:
            return batch[1].event.step


def _require_closed(info: SessionInfo) -> None:
    if info.status == "closed":
        return
    raise StepConflictError(
        f"the session is {info.status}: a late verification is for a closed one",
        hint="its recorder judges it with record_verification; else resume it and close it first",
        expected=info.head.step,
        actual=info.head.step,
        session_id=info.session_id,
    )


def _read(log: EventLog, info: SessionInfo) -> _Closed:
    first_own = 0 if info.parent_step is None else info.parent_step + 1
    root, close = MerkleRoot(), None
    for record in log.read_session(info.session_id, first_own, info.head.step + 1):
        root.add(record.data)
        if record.prefix.kind == "session_closed":
            close = decode_record(record).body
    assert isinstance(close, SessionClosed), "a closed line holds its close"
    return _Closed(info.head, close, root)


def _batch(
    log: EventLog,
    blobs: BlobStore,
    closed: _Closed,
    verified: Verified,
    clock_us: Callable[[], int],
) -> list[EncodedEvent]:
    head = closed.head._replace(attempt=log.next_attempt(closed.head.session_id))
    batch: list[EncodedEvent] = []

    def add(body: Body, actor: str) -> None:
        nonlocal head
        event = Event.following(head, body, event_id=mint_event_id(), time=clock_us(), actor=actor)
        encoded = fit_event(event, blobs.put_blob)
        batch.append(encoded)
        closed.root.add(encoded.data)
        head = LineHead(head.session_id, event.step, event.attempt, encoded.digest)

    add(SessionResumed(closed.head.step, REASON, log.writer_id), "system")
    add(verified, "verifier")
    count, root = closed.root.count, closed.root.root()
    add(closed.close._replace(event_count=count, root=root), "system")
    return batch
