"""What a log is told of checkpoint sets: begun, committed, and by which claim of which training.

Every set has a session of its own, `checkpoint/<id>`: seeded and begun before the first object is
stored, committed and closed after its manifest. Only a set whose manifest's hash stands there is
restored. The training session says in which order sets were kept and restored, and is what a
trainer that was fenced fails on. Used by trainings; needs no torch.
"""

import operator
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from eventlog.codec import EncodedEvent, encode_event
from eventlog.content import read_content
from eventlog.cut import Cut
from eventlog.errors import AppendUncertainError, CheckpointError, SessionNotFoundError
from eventlog.event import (
    Annotated,
    Body,
    CheckpointBegun,
    CheckpointCommitted,
    Event,
    LineHead,
    SessionClosed,
    SessionSeeded,
)
from eventlog.ids import mint_event_id
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, SessionFilter
from eventlog.merkle_root import MerkleRoot
from eventlog.recording.session_writer import wall_clock_us
from snapshots.checkpoint_manifest import CheckpointRef, check_id

TRAINING: Final = "steplog.training"
"""The environment of a training session."""
CHECKPOINT: Final = "steplog.checkpoint"
"""The environment of a checkpoint set's own session."""
KEPT: Final = "checkpoint_kept"
"""The note in the training session that a set's manifest is stored; `committed` follows it."""
RESTORED: Final = "checkpoint_restored"
"""The note in the training session that it goes on from a set."""

_PREFIX: Final = "checkpoint/"


class SetNote(NamedTuple):
    """A note on a set in its training's session."""

    name: str
    ref: CheckpointRef
    step: int
    """The step of the note in the training session's line."""


class BegunSet(NamedTuple):
    """A set that the log knows of, and does not hold for committed yet."""

    set_id: str
    training: str
    training_step: int
    cut: Cut
    head: LineHead
    root: MerkleRoot


def session_of_set(set_id: str) -> str:
    """The id of the set's own session."""
    return f"{_PREFIX}{set_id}"


def begin_set(log: EventLog, set_id: str, training: str, training_step: int, cut: Cut) -> BegunSet:
    """Tell the log that a set begins at `cut`; durable when it returns."""
    batch = _Batch(LineHead.before_seed(session_of_set(set_id)))
    batch.add(
        SessionSeeded(
            environment=CHECKPOINT,
            reducer="transcript",
            state_coverage="none",
            writer=log.writer_id,
            training_session=training,
            training_step=training_step,
        )
    )
    batch.add(CheckpointBegun(training, training_step, cut.as_names()))
    log.append_events(batch.head.session_id, batch.events, expected_step=-1)
    return BegunSet(set_id, training, training_step, cut, batch.head, batch.root)


def commit_set(log: EventLog, begun: BegunSet, manifest_digest: str) -> None:
    """Tell the log that the set of this manifest (SHA-256 in hex) is whole, and close its session.

    Raises `FencedError` where another trainer has given the set up meanwhile.
    """
    batch = _Batch(begun.head, begun.root.copy())
    batch.add(CheckpointCommitted(bytes.fromhex(manifest_digest), begun.training_step))
    batch.close("done")
    session_id = begun.head.session_id
    try:
        log.append_events(session_id, batch.events, expected_step=begun.head.step)
    except AppendUncertainError:
        receipt = log.reconcile(session_id)
        if receipt is None or receipt.event_digest != batch.head.digest:
            raise


def is_committed(log: EventLog, ref: CheckpointRef, training: str) -> bool:
    """Whether the log holds the checkpoint for a committed set of this training.

    Raises what reading raises; a set that the log does not know of is not committed.
    """
    try:
        events = [decode_record(one) for one in log.read_session(session_of_set(ref.id))]
    except SessionNotFoundError:
        return False
    seed, last = events[0].body, events[-1].body
    if not (isinstance(seed, SessionSeeded) and seed.environment == CHECKPOINT):
        return False
    if seed.training_session != training or not isinstance(last, SessionClosed):
        return False
    return any(
        isinstance(event.body, CheckpointCommitted)
        and event.body.manifest.hex() == ref.digest
        and event.body.training_step == ref.training_step
        for event in events
    )


def give_up_open_sets(log: EventLog, training: str) -> list[str]:
    """End the sets of this training that were begun and never committed; their ids.

    Who claimed the training does so before anything else: a trainer that is still about to commit
    one is fenced by it. Idempotent.
    """
    given_up = []
    for info in log.list_sessions(SessionFilter(environment=CHECKPOINT, status="open")):
        records = list(log.read_session(info.session_id))
        seed = decode_record(records[0]).body
        if not (isinstance(seed, SessionSeeded) and seed.training_session == training):
            continue
        head = records[-1].digest
        name = info.session_id
        log.take_over([name], stands_on={name: head}, reason="given up", heads={name: info.head})
        claimed = list(log.read_session(name))
        batch = _Batch(log.session_info(name).head, MerkleRoot(record.data for record in claimed))
        batch.close("given up")
        log.append_events(name, batch.events, expected_step=batch.head.step - 1)
        given_up.append(name.removeprefix(_PREFIX))
    return given_up


def note_value(ref: CheckpointRef) -> dict[str, object]:
    """What a note in the training session says of a set."""
    return {"id": ref.id, "training_step": ref.training_step, "manifest": ref.digest}


def read_notes(log: EventLog, training: str) -> Iterator[SetNote]:
    """The notes on sets in the training's session, in its order."""
    for record in log.read_session(training):
        if record.prefix.kind != "annotated":
            continue
        body = decode_record(record).body
        if isinstance(body, Annotated) and body.name in (KEPT, RESTORED):
            yield SetNote(
                body.name, _ref_in(training, record.prefix.step, body), record.prefix.step
            )


def _ref_in(training: str, step: int, body: Annotated) -> CheckpointRef:
    """The set that a note is on. The log is proven, but anyone may have written such a note."""
    data = body.value.data
    value = read_content(body.value.media_type, data) if isinstance(data, bytes) else None
    try:
        if isinstance(value, dict) and re.fullmatch("[0-9a-f]{64}", value["manifest"]):
            number = operator.index(value["training_step"])
            return CheckpointRef(number, check_id(value["id"], "an id"), value["manifest"])
    except (KeyError, TypeError, ValueError):
        pass
    raise CheckpointError(
        f"the note {body.name!r} names no set",
        hint="give notes of your own another name",
        session_id=training,
        step=step,
    )


class _Batch:
    """Events that go on from a head, to be appended together."""

    def __init__(self, head: LineHead, root: MerkleRoot | None = None) -> None:
        self.head = head
        self.root = MerkleRoot() if root is None else root
        self.events: list[EncodedEvent] = []

    def add(self, body: Body) -> None:
        event = Event.following(
            self.head, body, event_id=mint_event_id(), time=wall_clock_us(), actor="trainer"
        )
        encoded = encode_event(event)
        self.events.append(encoded)
        self.root.add(encoded.data)
        self.head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)

    def close(self, reason: str) -> None:
        self.add(SessionClosed(reason, self.root.count, self.root.root()))
