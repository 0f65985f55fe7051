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
    LogUnavailableError,
    SessionNotFoundError,
    SteplogError,
)
from eventlog.event import CheckpointCommitted
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.sets.journal import is_committed, session_of_set
from snapshots.sets.positions import extended_trees, misplaced_sessions

_HINT = "restore the log from a copy that has it, or go on from another set"


def compare_with_log(
    log: EventLog, ref: CheckpointRef, entry: SetEntry, *, trees: bool
) -> Iterator[CheckpointError]:
    """What the log says otherwise, or does not say; the set is sound where nothing comes.

    A set that the log has not committed is a `CheckpointIncompleteError`. `trees` reads the whole
    log below the cut, and derives its Merkle trees anew. Raises `LogUnavailableError`.
    """
    for compare in (_compare_commitment, _compare_places, *([_compare_trees] if trees else [])):
        try:
            yield from compare(log, ref, entry)
        except LogUnavailableError:
            raise  # That says nothing of the set.
        except SteplogError as error:
            where = f" ({error.place})" if error.place else ""
            yield _refusal(ref, f"the log cannot be read{where}: {error.message}")


def _compare_commitment(
    log: EventLog, ref: CheckpointRef, entry: SetEntry
) -> Iterator[CheckpointError]:
    name = session_of_set(ref.id)
    try:
        if is_committed(log, ref, entry.training):
            return
        events = [decode_record(one) for one in log.read_session(name)]
    except SessionNotFoundError:
        events = []
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


def _compare_places(
    log: EventLog, ref: CheckpointRef, entry: SetEntry
) -> Iterator[CheckpointError]:
    for session_id, step, why, _error in misplaced_sessions(log, entry):
        yield _refusal(ref, f"session {session_id!r} at step {step}: {why}")


def _compare_trees(log: EventLog, ref: CheckpointRef, entry: SetEntry) -> Iterator[CheckpointError]:
    try:
        found = extended_trees(log, {}, Cut.empty(), entry.cut)
    except CheckpointError as error:
        yield _refusal(ref, error.message)
        return
    for partition, tree in entry.log.items():
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
