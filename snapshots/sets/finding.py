"""`SetFinder`: which set a training goes on from, and the one of an id, by log and files together.

To begin from nothing, or from an older set, where there should be a newer one would be a silent
loss: it is refused. Used by trainings, on rank 0; needs no torch.
"""

from typing import Final

from eventlog.errors import CheckpointError, CheckpointIncompleteError, ConfigError
from eventlog.log import EventLog
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.inventory import checkpoints_in_place, find_in_track
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.sets.journal import RESTORED, is_committed, read_notes, session_of_set

OTHERS_NAMED_MAX: Final = 3
"""How many other sets the error names where the newest is not whole."""


class SetFinder:
    """Finds the sets of one training. Keeps nothing: each answer is that of the moment."""

    def __init__(self, log: EventLog, store: CheckpointStore, training: str) -> None:
        """`store` is the track of `training`, the training whose sets these are."""
        self._log = log
        self._store = store
        self._training = training

    def latest(self) -> CheckpointRef | None:
        """The set that was committed or restored last, by the log; None where none ever was.

        Raises `CheckpointIncompleteError` where the log holds one for committed whose files are
        gone, `CheckpointError` where the files have one that the log does not know.
        """
        self._refuse_unknown_sets()
        for note in reversed(list(read_notes(self._log, self._training))):
            if note.name == RESTORED or is_committed(self._log, note.ref, self._training):
                self._require_in_place(note.ref)
                return note.ref
        return None

    def find(self, named: str) -> CheckpointRef:
        """The committed set of this id, or under `pin:<name>` or `step:<number>`.

        Raises `CheckpointIncompleteError`; `ConfigError` for a step that is no number.
        """
        try:
            ref = find_in_track(self._store, named)
        except ValueError as error:
            raise ConfigError(str(error), hint="or give the set's id") from error
        if ref is None and ":" in named:
            raise CheckpointIncompleteError(
                f"training {self._training!r} has no set {named!r}",
                hint="`steplog checkpoint list` shows its sets and their pins",
            )
        if ref is None:
            ref = self._store.find_checkpoint(
                checkpoint=named
            )  # It raises, and says what is there.
        if not is_committed(self._log, ref, self._training):
            raise CheckpointIncompleteError(
                f"set {ref.id} of training {self._training!r} was never committed",
                hint="`steplog checkpoint list` shows those that were",
                step=ref.training_step,
            )
        return ref

    def _refuse_unknown_sets(self) -> None:
        for ref in self._store.list_checkpoints():
            # Each set is told to the log before its first object is stored.
            if self._log.holds_session(session_of_set(ref.id)):
                continue
            if self._store.read_manifest(ref).set is None:
                continue
            raise CheckpointError(
                f"set {ref.id} of training {self._training!r} (step {ref.training_step}) is not of "
                "this log: the log does not know it",
                hint="open the workspace that the set was made in; an older copy of a log lacks "
                "what it was given last",
                step=ref.training_step,
            )

    def _require_in_place(self, ref: CheckpointRef) -> None:
        """Of a newest set that is not whole, the error names the others: one is chosen, never
        taken in silence."""
        try:
            self._store.verify_in_place(self._store.read_manifest(ref))
        except CheckpointError as error:
            others = [
                f"{one.id} (step {one.training_step})"
                for one in checkpoints_in_place(self._store)
                if is_committed(self._log, one, self._training)
            ][:OTHERS_NAMED_MAX]
            hint = "restore it from a copy"
            if others:
                hint += f'; or go on from another, by run.restore("<id>"): {", ".join(others)}'
            raise type(error)(
                f"the training would go on from set {ref.id} (step {ref.training_step}), which is "
                f"not whole: {error.message}",
                hint=hint if others else f"{hint}; no other set of the training is whole",
                tensor=error.tensor,
                object_digest=error.object_digest,
                step=ref.training_step,
            ) from error
