"""Checkpoints examined one by one: with their objects, and sets with their log and adopted folder.

Used by `steplog checkpoint check`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from eventlog.log import EventLog
from replay.checkpoint_set_check import compare_with_log
from snapshots.checkpoint_store import CheckpointStore, Report
from snapshots.checkpoints.check import CheckedCheckpoint, CheckpointChecker
from snapshots.checkpoints.inventory import ListedCheckpoint, list_track, no_manifest
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.parts import ancestry_of
from snapshots.sets.adopted_folder import require_unchanged
from snapshots.sets.journal import has_committed


class Target(NamedTuple):
    """A checkpoint that is to be examined, and its tensors' bytes."""

    store: CheckpointStore
    ref: CheckpointRef
    raw_bytes: int


def targets_in(
    tracks: Iterable[CheckpointStore], report: Report, log: EventLog | None = None
) -> tuple[list[Target], list[CheckedCheckpoint]]:
    """All checkpoints of these tracks; and, as found, those that cannot even be begun with.

    What is wrong with HEAD and pins goes to `report`. The `log`, where it is given, says of a
    folder without a manifest whether it was a committed set.
    """
    targets: list[Target] = []
    unread: list[CheckedCheckpoint] = []
    for store in tracks:
        for one in list_track(store, report):
            if one.ref is not None and one.manifest is not None:
                targets.append(Target(store, one.ref, one.manifest.raw_bytes))
                continue
            problem = one.problem or _lost(one, log) or no_manifest(one)
            unread.append(CheckedCheckpoint(one.track, one.training_step, one.id, 0, 0, (problem,)))
    return targets, unread


def _lost(one: ListedCheckpoint, log: EventLog | None) -> CheckpointError | None:
    if log is None or not has_committed(log, one.id):
        return None
    return CheckpointIncompleteError(
        f"set {one.id} is committed in the log, and its manifest.json is gone",
        hint="restore the file from a copy, or use another set",
        step=one.training_step,
    )


def targets_from(store: CheckpointStore, ref: CheckpointRef) -> list[Target]:
    """A checkpoint, and those that it rests on."""
    try:
        chain = ancestry_of(store, ref)
    except CheckpointError:
        return [Target(store, ref, 0)]  # Examining it says what is wrong.
    return [Target(store, one, store.read_manifest(one).raw_bytes) for one in chain]


def examine(
    target: Target, checker: CheckpointChecker, log: EventLog | None, *, trees: bool = False
) -> CheckedCheckpoint:
    """What is wrong with one; a set is compared with the `log` too, where that is given.

    Of an adopted set every file of the folder is hashed again. `trees` derives the log's Merkle
    trees anew.
    """
    store, ref, _raw_bytes = target
    checked = checker.check(store, ref)
    try:
        entry = store.read_manifest(ref).set
    except CheckpointError:
        return checked  # It was said.
    if entry is None:
        return checked
    more: list[CheckpointError] = []
    if entry.adopted is not None:
        try:
            require_unchanged(entry.adopted)
        except CheckpointError as error:
            more.append(error)
    if log is not None:
        more += compare_with_log(log, ref, entry, trees=trees)
    return checked._replace(problems=(*checked.problems, *more))
