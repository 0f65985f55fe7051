"""Sets of a training made without torch: a manifest, and a log that was told of it."""

from collections.abc import Callable
from typing import NamedTuple

from eventlog.cut import Cut
from replay.workspace import Workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.set_entry import SessionPosition, SetEntry
from snapshots.checkpoints.tracks import track_of_training
from snapshots.sets.journal import begin_set, commit_set
from snapshots.sets.positions import extended_trees, position_at
from tests.support.checkpoint_parts import write_checkpoint

TRAINING = "run-1"


class Kept(NamedTuple):
    """A set that was kept, and whether its log is told of it."""

    ref: CheckpointRef
    entry: SetEntry


def store_of(ws: Workspace) -> CheckpointStore:
    """The track that the training's sets lie in."""
    return CheckpointStore(ws.folder / "checkpoints", track_of_training(TRAINING))


def keep_set(
    ws: Workspace,
    id_: str = "set1",
    *,
    change: Callable[[SetEntry], SetEntry] = lambda entry: entry,
    commits: str | None = "",
    training: str = TRAINING,
) -> Kept:
    """A set at the log's present end. `commits`: the manifest the log is told of, None: of none."""
    store = store_of(ws)
    cut = ws.log.end_cut()
    positions: dict[str, SessionPosition] = {}
    for info in ws.sessions():
        found = position_at(ws.log, info, cut)
        if found is not None:
            positions[info.session_id] = found
    trainer = positions.pop(TRAINING)
    entry = change(
        SetEntry(
            TRAINING,
            1,
            trainer.step,
            trainer.event_digest,
            cut,
            extended_trees(ws.log, {}, Cut.empty(), cut),
            positions,
        )
    )
    begun = begin_set(ws.log, id_, training, 7, cut)
    made = store.read_manifest(write_checkpoint(store, 7, {"w": bytes(100)}))
    ref = store.keep_manifest(made._replace(id=id_, set=entry))
    if commits is not None:
        commit_set(ws.log, begun, commits or ref.digest)
    return Kept(ref, entry)
