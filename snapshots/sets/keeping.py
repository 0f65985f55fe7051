"""`SetKeeper`: what rank 0 of a training does to make a checkpoint a set, in an order that is the
promise.

Begun in the log; objects (the saver's work); manifest; the note in the training session, on which a
trainer that lost its claim fails; committed in the log; HEAD; what retention lets go. Needs no
torch.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from secrets import token_hex

from eventlog.cut import Cut
from eventlog.errors import SteplogError
from eventlog.log import EventLog
from eventlog.merkle_root import MerkleRoot
from eventlog.recorder import SessionRecorder
from eventlog.recording.event_batch import EventBatch
from eventlog.recording.session_writer import wall_clock_us
from snapshots.checkpoint_retention import Retention, apply_retention
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.after_commit import RetentionFaults, committed_all_the_same
from snapshots.checkpoints.manifest import CheckpointRef, Manifest
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.sets.journal import (
    ACTOR,
    GIVEN_UP,
    KEPT,
    BegunSet,
    begin_set,
    commit_set,
    has_committed,
    is_committed,
    note_value,
)
from snapshots.sets.members import Members
from snapshots.sets.positions import extended_trees
from snapshots.sets.save_rules import SetRequest


class SetKeeper:
    """Keeps one training's sets. `begin` and `commit` may run in different threads, in turn."""

    def __init__(
        self, log: EventLog, store: CheckpointStore, training: str, retention: Retention | None
    ) -> None:
        """`store` is the training's track; `retention` None keeps everything."""
        self._log = log
        self._store = store
        self._training = training
        self._retention = retention
        self._previous: str | None = None
        self._trees: dict[int, MerkleRoot] = {}
        self._covered = Cut.empty()
        self._members = Members(log, training)
        self._retention_faults = RetentionFaults()

    def remember_claim(self, attempt: int) -> None:
        """The training was claimed just now, under `attempt`; called before all else."""
        self._members.remember_claim(attempt)

    def go_on_from(self, set_id: str, entry: SetEntry) -> None:
        """The training goes on from this set: the trees of its cut need not be read again."""
        self._previous = set_id
        self._trees, self._covered = dict(entry.log), entry.cut

    def begin(self, recorder: SessionRecorder, request: SetRequest) -> tuple[BegunSet, SetEntry]:
        """Settle the cut and who stood where, and tell the log; durable when it returns."""
        recorder.flush()
        cut = self._log.end_cut()
        entry = SetEntry(
            training=self._training,
            attempt=recorder.attempt,
            step=recorder.step,
            event_digest=recorder.event_digest,
            cut=cut,
            log={},
            sessions=self._members.positions_at(cut, request.sessions),
            policy=request.policy,
            previous=self._previous,
            adopted=request.adopted,
        )
        return begin_set(self._log, token_hex(8), self._training, request.step, cut), entry

    def commit(
        self,
        recorder: SessionRecorder,
        begun: BegunSet,
        entry: SetEntry,
        manifest: Manifest,
    ) -> CheckpointRef:
        """Make the set of a manifest whose objects are all stored.

        Raises `FencedError` where another trainer has claimed the training: nothing is committed
        then. One that claims it later has HEAD, and takes away what it does not keep: both are
        left to it. What keeps HEAD from being moved, once the log has the set for committed, says
        so; what keeps older sets from being taken away is a warning.
        """
        trees = extended_trees(self._log, self._trees, self._covered, entry.cut)
        ref = self._store.keep_manifest(manifest._replace(set=entry._replace(log=trees)))
        recorder.annotate(KEPT, note_value(ref))
        commit_set(self._log, begun, ref.digest)
        self._trees, self._covered, self._previous = trees, entry.cut, ref.id
        still = partial(self._is_claimed_by, entry.attempt)
        with committed_all_the_same(
            ref, "HEAD could not be moved to it", "the training goes on from this set"
        ):
            self._store.move_head(ref, still=still)
        with self._retention_faults.warned(ref):
            self._let_go(still)
        return ref

    def give_up(self, begun: BegunSet) -> None:
        """End the set of a save that failed. Harmless where it was committed, or another did so.

        A log that cannot be written is no matter here: who claims the training next ends it.
        """
        batch = EventBatch(begun.head, wall_clock_us, root=begun.root)
        batch.close(GIVEN_UP, ACTOR)
        with suppress(SteplogError):
            batch.append_to(self._log)

    def _is_claimed_by(self, attempt: int) -> bool:
        return self._log.session_info(self._training).attempt == attempt

    def _let_go(self, still: Callable[[], bool]) -> None:
        if self._retention is None:
            return
        known = self._store.list_checkpoints()
        committed = {one.id for one in known if is_committed(self._log, one, self._training)}
        in_log = partial(has_committed, self._log)
        apply_retention(self._store, self._retention, counted=committed, still=still, in_log=in_log)
