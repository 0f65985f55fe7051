"""What a log is told of checkpoint sets: begun, committed, and by which claim of which training.

Every set has a session of its own, `checkpoint/<id>`: seeded and begun before the first object is
stored, committed and closed after its manifest. Only a set whose manifest's hash stands there is
restored. The training session says in which order sets were kept and restored, and is what a
trainer that was fenced fails on. Used by trainings; needs no torch.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from eventlog.cut import Cut
from eventlog.errors import SessionNotFoundError, StepConflictError
from eventlog.event import (
    Annotated,
    CheckpointBegun,
    CheckpointCommitted,
    LineHead,
    SessionClosed,
    SessionSeeded,
)
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, SessionFilter
from eventlog.merkle_root import MerkleRoot
from eventlog.recording.event_batch import EventBatch
from eventlog.recording.session_writer import wall_clock_us
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.sets.note_fields import NoteFields

TRAINING: Final = "steplog.training"
"""The environment of a training session."""
CHECKPOINT: Final = "steplog.checkpoint"
"""The environment of a checkpoint set's own session."""
KEPT: Final = "checkpoint_kept"
"""The note in the training session that a set's manifest is stored; `committed` follows it."""
RESTORED: Final = "checkpoint_restored"
"""The note in the training session that it goes on from a set."""

GIVEN_UP: Final = "given up"
"""Why the session of a set that was begun and never committed is closed."""
ACTOR: Final = "trainer"
"""Who writes of sets."""

_PREFIX: Final = "checkpoint/"


class SetNote(NamedTuple):
    """A note on a set in its training's session."""

    name: str
    ref: CheckpointRef


class BegunSet(NamedTuple):
    """A set that the log knows of, and does not hold for committed yet."""

    set_id: str
    training_step: int
    head: LineHead
    root: MerkleRoot


def session_of_set(set_id: str) -> str:
    """The id of the set's own session."""
    return f"{_PREFIX}{set_id}"


def begin_set(log: EventLog, set_id: str, training: str, training_step: int, cut: Cut) -> BegunSet:
    """Tell the log that a set begins at `cut`; durable when it returns."""
    batch = EventBatch(LineHead.before_seed(session_of_set(set_id)), wall_clock_us)
    batch.add(
        SessionSeeded(
            environment=CHECKPOINT,
            reducer="transcript",
            state_coverage="none",
            writer=log.writer_id,
            training_session=training,
            training_step=training_step,
        ),
        ACTOR,
    )
    batch.add(CheckpointBegun(training, training_step, cut.as_names()), ACTOR)
    batch.append_to(log)
    return BegunSet(set_id, training_step, batch.head, batch.root)


def commit_set(log: EventLog, begun: BegunSet, manifest_digest: str) -> None:
    """Tell the log that the set of this manifest (SHA-256 in hex) is whole, and close its session.

    Raises `FencedError` where another trainer has given the set up meanwhile.
    """
    batch = EventBatch(begun.head, wall_clock_us, root=begun.root)
    batch.add(CheckpointCommitted(bytes.fromhex(manifest_digest), begun.training_step), ACTOR)
    batch.close("done", ACTOR)
    batch.append_to(log)


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


def has_committed(log: EventLog, set_id: str) -> bool:
    """Whether the log holds any set of this id for committed. Raises what reading raises."""
    try:
        events = [decode_record(one) for one in log.read_session(session_of_set(set_id))]
    except SessionNotFoundError:
        return False
    return any(isinstance(event.body, CheckpointCommitted) for event in events)


def give_up_open_sets(log: EventLog, training: str) -> list[str]:
    """End the sets of this training that were begun and never committed; their ids.

    Who claimed the training does so before anything else: a trainer that is still about to commit
    one is fenced by it. Idempotent.
    """
    begun = SessionFilter(environment=CHECKPOINT, status="open", training_session=training)
    names = [info.session_id for info in log.list_sessions(begun)]
    return [name.removeprefix(_PREFIX) for name in names if _give_up(log, name)]


def _give_up(log: EventLog, name: str) -> bool:
    info = log.session_info(name)
    if info.status != "open":
        return False
    head = info.head
    try:
        log.take_over([name], stands_on={name: head.digest}, reason=GIVEN_UP, heads={name: head})
    except StepConflictError:
        # Its trainer may have been quicker: then it is committed.
        if log.session_info(name).status == "open":
            raise
        return False
    root = MerkleRoot(record.data for record in log.read_session(name))
    batch = EventBatch(log.session_info(name).head, wall_clock_us, root=root)
    batch.close(GIVEN_UP, ACTOR)
    batch.append_to(log)
    return True


def note_value(ref: CheckpointRef) -> dict[str, object]:
    """What a note in the training session says of a set."""
    return {"id": ref.id, "training_step": ref.training_step, "manifest": ref.digest}


def read_notes(log: EventLog, training: str) -> Iterator[SetNote]:
    """The notes on sets in the training's session, in its order.

    Of a branch of a training its own ones: the sets before the fork are the other's.
    """
    for record in log.read_session(training):
        if record.prefix.kind != "annotated" or record.prefix.session_id != training:
            continue
        event = decode_record(record)
        if isinstance(event.body, Annotated) and event.body.name in (KEPT, RESTORED):
            yield SetNote(event.body.name, NoteFields(event).ref("id"))
