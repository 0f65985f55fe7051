"""A checkpoint put out of the way of all others, where it can still be looked at.

One that cannot be read stops retention and `gc` of its whole folder, as nobody knows what it needs.
Its folder is moved from sets/ to aside/ of its track and never deleted; who has mended it moves it
back by hand. Used by `steplog checkpoint set-aside`.
"""

import os
from itertools import count
from pathlib import Path

from eventlog.durable_file import sync_folder
from eventlog.errors import CheckpointError
from snapshots.checkpoint_store import CheckpointStore, pass_over
from snapshots.checkpoints.file_faults import is_there, os_errors_told
from snapshots.checkpoints.inventory import HEAD, ListedCheckpoint, find_in_track, list_track
from snapshots.checkpoints.pointers import set_name


def named_in_track(store: CheckpointStore, name: str) -> list[ListedCheckpoint]:
    """Those of a track, whatever their state, that `name` may mean.

    An id, the name of a folder in sets/, `step:<number>`, `HEAD` or `pin:<name>`. Raises
    `CheckpointError` where HEAD or the pin cannot be read.
    """
    if name == HEAD or name.startswith("pin:"):
        ref = find_in_track(store, name)
        name = "" if ref is None else set_name(ref.training_step, ref.id)
    return [
        one
        for one in list_track(store, pass_over)
        if name in (one.id, folder_name(one), f"step:{one.training_step}")
    ]


def folder_name(one: ListedCheckpoint) -> str:
    """The name of its folder in sets/."""
    return set_name(one.training_step, one.id)


def set_aside(store: CheckpointStore, one: ListedCheckpoint) -> Path:
    """Move the checkpoint's folder out of sets/; where it is now. Takes the folder's lock.

    Raises `CheckpointError` where it cannot be moved, and where it is no longer as it was seen: a
    save may have ended since.
    """
    folder = store.track_folder / "sets" / folder_name(one)
    aside = store.track_folder / "aside"
    with store.locked(), os_errors_told(folder):
        _require_as_seen(store, one)
        aside.mkdir(exist_ok=True)
        names = (folder.name if number == 1 else f"{folder.name}.{number}" for number in count(1))
        target = next(path for path in (aside / name for name in names) if not is_there(path))
        os.rename(folder, target)
        for changed in (aside, folder.parent, store.track_folder):
            sync_folder(changed)
    return target


def _require_as_seen(store: CheckpointStore, one: ListedCheckpoint) -> None:
    now = next(iter(named_in_track(store, folder_name(one))), None)
    if now is None or now.status != one.status:
        raise CheckpointError(
            f"checkpoint {one.id} was {one.status} and is "
            f"{'not there' if now is None else now.status} by now; nothing was moved",
            hint="look again: `steplog checkpoint list`",
            step=one.training_step,
        )
