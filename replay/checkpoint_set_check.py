"""Whether the log a checkpoint set belongs to still says what the set says of it.

The set names its training, the cut, where each session stood and the log's Merkle trees; the log
has the set's own session. What is compared here is the log with the manifest; the manifest with its
objects is `snapshots.checkpoints.check`. Used by `steplog checkpoint check`.
"""

from collections.abc import Iterator

from eventlog.cut import Cut
from eventlog.errors import (
    CheckpointError,
    CheckpointIncompleteError,
    SessionNotFoundError,
    SteplogError,
)
from eventlog.event import CheckpointCommitted
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.sets.journal import is_committed, session_of_set
from snapshots.sets.positions import extended_trees
from snapshots.sets.record import SetRecord

_HINT = "restore the log from a copy that has it, or go on from another set"


def compare_with_log(
    log: EventLog, ref: CheckpointRef, record: SetRecord, *, trees: bool
) -> Iterator[CheckpointError]:
    """What the log says otherwise, or does not say; the set is sound where nothing comes.

    A set that the log has not committed is a `CheckpointIncompleteError`. `trees` reads the whole
    log below the cut, and derives its Merkle trees anew.
    """
    yield from _commitment(log, ref, record)
    places = {record.training: (record.step, record.event_digest)}
    places |= {name: (one.step, one.event_digest) for name, one in record.sessions.items()}
    for session, (step, digest) in places.items():
        problem = _misplaced(log, session, step, digest)
        if problem is not None:
            yield _refusal(ref, f"session {session!r} at step {step}: {problem}")
    if trees:
        yield from _compare_trees(log, ref, record)


def _commitment(log: EventLog, ref: CheckpointRef, record: SetRecord) -> Iterator[CheckpointError]:
    name = session_of_set(ref.id)
    try:
        if is_committed(log, ref, record.training):
            return
        events = [decode_record(one) for one in log.read_session(name)]
    except SessionNotFoundError:
        events = []
    except SteplogError as error:
        yield _refusal(ref, f"session {name!r} cannot be read: {error.message}")
        return
    told = [one.body for one in events if isinstance(one.body, CheckpointCommitted)]
    if not told:
        yield CheckpointIncompleteError(
            f"set {ref.id} is not committed: session {name!r} of the log does not say so",
            hint="it is passed over on a restore; use another set",
            step=ref.training_step,
        )
    elif told[-1].manifest.hex() != ref.digest:
        yield _refusal(ref, f"the log has committed the manifest {told[-1].manifest.hex()}")
    else:
        yield _refusal(ref, f"the log has committed it for another training or step ({name!r})")


def _misplaced(log: EventLog, session: str, step: int, digest: bytes) -> str | None:
    """What is wrong with the event at this step of the chain that ends in it; None: nothing."""
    try:
        record = next(iter(log.read_session(session, step, step + 1, through=digest)), None)
    except SteplogError as error:
        return error.message
    if record is None or record.digest != digest or record.prefix.step != step:
        return "the event there is another one"
    return None


def _compare_trees(
    log: EventLog, ref: CheckpointRef, record: SetRecord
) -> Iterator[CheckpointError]:
    try:
        found = extended_trees(log, {}, Cut.empty(), record.cut)
    except SteplogError as error:
        yield _refusal(ref, error.message)
        return
    for partition, tree in record.log.items():
        derived = found.get(partition)
        if derived is None or derived.count != tree.count:
            has = 0 if derived is None else derived.count
            yield _refusal(
                ref, f"partition {partition} has {has} records below the cut, not {tree.count}"
            )
        elif derived.root() != tree.root():
            yield _refusal(ref, f"partition {partition} has other records below the cut")


def _refusal(ref: CheckpointRef, what: str) -> CheckpointError:
    return CheckpointError(
        f"set {ref.id} and the log disagree: {what}", hint=_HINT, step=ref.training_step
    )
