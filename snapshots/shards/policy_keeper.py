"""`PolicyKeeper`: a training's policy versions, each stored as what changed since another.

They lie in a track of their own. The log is told of a version once its checkpoint is whole,
and HEAD of the track follows the log. Every rank makes one. Imports torch, which steplog itself
never needs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from eventlog.errors import CheckpointError, ConfigError
from eventlog.log import EventLog
from eventlog.recorder import SessionRecorder
from eventlog.recording.session_writer import wall_clock_us
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.difference import compare_checkpoints
from snapshots.checkpoints.manifest import CheckpointRef, Manifest
from snapshots.checkpoints.parts import PartReader
from snapshots.policies.history import (
    PolicyVersion,
    Published,
    find_version,
    label_of,
    require_version,
)
from snapshots.policies.notes import PolicyNotes, record_publication
from snapshots.policies.rollback import roll_back, settle_head
from snapshots.save_handle import SaveEnds
from snapshots.shard_reader import ShardReader
from snapshots.shard_saver import ShardSaver
from snapshots.shards.ranks import Ranks
from snapshots.shards.replicas import require_alike
from snapshots.shards.trained import Trained, Tree


class PolicyKeeper:
    """Publishes versions, restores them, goes back to one. All methods are collectives.

    Not thread-safe.
    """

    def __init__(
        self,
        log: EventLog,
        store: CheckpointStore,
        training: str,
        ranks: Ranks,
        require_begun: Callable[[], None],
        *,
        threads: int,
    ) -> None:
        """`store` is the training's track of policy versions; `require_begun` a collective that
        raises where weights are not to be published, as `SetSaver.require_begun`."""
        self._notes = PolicyNotes(log, training)
        self._store = store
        self._ranks = ranks
        self._require_begun = require_begun
        self._saver = ShardSaver(store, delta=True, threads=threads, ranks=ranks)

    def publish(self, version: int, model: object, recorder: SessionRecorder | None) -> str:
        """Keep the model as this version, and note it in the training session; its label.

        The same weights as an earlier checkpoint of the version are that checkpoint.
        """

        def weights() -> tuple[int, Trained, Tree]:
            number, trained = require_version(version), Trained.of(model, None, None)
            if not trained.models:
                raise ConfigError("no model was given", hint="publish_policy(version, model)")
            return number, trained, trained.to_tree()

        self._require_begun()
        number, trained, tree = self._ranks.agree(weights)
        require_alike(trained, tree, self._ranks)
        labels: list[str] = []

        def commit(manifest: Manifest) -> CheckpointRef:
            assert recorder is not None, "rank 0 has claimed the training"
            published = self._notes.published()
            ref = self._same_before(manifest, number, published)
            ref = self._store.keep_manifest(manifest) if ref is None else ref
            labels.append(label_of(published, number, ref.digest, recorder.attempt))
            record_publication(recorder, number, labels[0], ref)
            settle_head(self._notes, self._store)
            return ref

        self._saver.save(tree, step=number, ends=SaveEnds(commit))
        return self._ranks.ask(lambda: labels[0])

    def restore(
        self, name: int | str, model: object, putting_in: AbstractContextManager[None]
    ) -> PolicyVersion:
        """Load the version of this label or number into the model, which is changed in
        `putting_in` alone."""
        found = self._ranks.ask(lambda: find_version(self._notes.history(), name))
        trained = self._ranks.agree(lambda: Trained.of(model, None, None))
        reader = self._ranks.agree(lambda: ShardReader(self._store, checkpoint=found.ref))
        read = trained.read(reader, self._ranks)
        with putting_in:
            trained.put_in(read, self._ranks)
        return found

    def go_back(self, name: int | str, reason: str) -> PolicyVersion:
        """Make the version the one in use, for the log and for HEAD of the track."""

        def back() -> PolicyVersion:
            went = roll_back(self._notes, self._store, name, reason, clock_us=wall_clock_us)
            return went.version

        return self._ranks.ask(back)

    def label_in_use(self) -> str | None:
        """The label of the version that the log says is in use; HEAD of the track follows it."""

        def settle() -> str | None:
            current, _moved = settle_head(self._notes, self._store)
            return None if current is None else current.label

        return self._ranks.ask(settle)

    def close(self) -> None:
        """End the saver."""
        self._saver.close()

    def _same_before(
        self, manifest: Manifest, version: int, published: list[Published]
    ) -> CheckpointRef | None:
        """The checkpoint of an earlier publication of the version with the same weights.

        A training that was stopped publishes again what it had published: no new version.
        """
        for one in reversed(published):
            if one.version != version:
                continue
            try:
                earlier = self._store.read_manifest(one.ref)
                self._store.verify_in_place(earlier)
                # Saved by other ranks it is cut in another way: then the numbers are compared.
                sides = PartReader(self._store, earlier), PartReader(self._store, manifest)
                if not any(compare_checkpoints(*sides)):
                    return one.ref
            except CheckpointError:
                continue  # It is damaged: the new one takes its place.
        return None
