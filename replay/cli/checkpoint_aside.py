"""`steplog checkpoint set-aside`: a damaged checkpoint is put out of the way of all others.

Mounted on the verb's own app, in `checkpoint`.
"""

from typing import Annotated

import typer

from eventlog.errors import CheckpointIncompleteError
from replay.cli.checkpoint_place import (
    REF_HELP,
    CheckpointPlace,
    FolderOption,
    TrackOption,
    checkpoints_of,
    track_text,
    tracks_named,
)
from replay.cli.output import Output
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.inventory import ListedCheckpoint, Status
from snapshots.checkpoints.setting_aside import folder_name, named_in_track, set_aside

ASIDE_COLUMNS = {
    "TRACK": lambda one: track_text(one["track"]),
    "STEP": lambda one: str(one["step"]),
    "ID": lambda one: str(one["id"]),
    "STATUS": lambda one: str(one["status"]),
    "FOLDER": lambda one: str(one["folder"]),
}
_WHY_NOT = {
    Status.COMMITTED: "it can be read, and is in nobody's way",
    Status.INCOMPLETE: "its save was killed, or is under way: `steplog checkpoint gc` takes away "
    "what a killed save left",
}


def set_checkpoint_aside(
    context: typer.Context,
    ref: Annotated[
        str, typer.Argument(metavar="REF", help=f"{REF_HELP} Or a folder's name in sets/.")
    ],
    folder: FolderOption = None,
    track: TrackOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that can be read, or is incomplete.")
    ] = False,
) -> None:
    """Put a damaged checkpoint out of the way of all others.

    While one cannot be read, retention and gc take nothing away. Its folder moves from sets/ to
    aside/ of its track; nothing is deleted. Objects that no other checkpoint needs go with a later
    gc. Move the folder back by hand once it is mended.

    JSON keys: track, id, step, status, folder.
    """
    output = Output.of(context)
    with checkpoints_of(context, folder, track) as place:
        store, one = _find(place, ref)
        if one.status is not Status.DAMAGED and not force:
            raise typer.BadParameter(
                f"checkpoint {one.id} is not set aside: {_WHY_NOT[one.status]} (--force does)"
            )
        moved = set_aside(store, one).relative_to(place.root.folder)
    row = {
        "track": one.track,
        "id": one.id,
        "step": one.training_step,
        "status": one.status.value,
        "folder": str(moved),
    }
    output.print_records([row], ASIDE_COLUMNS)
    output.note("objects that no other checkpoint needs go with a later gc")


def _find(place: CheckpointPlace, text: str) -> tuple[CheckpointStore, ListedCheckpoint]:
    tracks, name = tracks_named(place, text)
    found = [(store, one) for store in tracks for one in named_in_track(store, name)]
    if not found:
        raise CheckpointIncompleteError(
            f"no checkpoint {text!r} in {place.root.folder}",
            hint="`steplog checkpoint list` names those that are there",
        )
    if len(found) > 1:
        told = " or ".join(f"{track_text(one.track)}/{folder_name(one)}" for _store, one in found)
        raise typer.BadParameter(f"there are several {name!r}: write {told}")
    return found[0]
