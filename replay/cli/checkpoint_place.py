"""The checkpoints that a verb works on, and those that its arguments name.

`REF` is an id, `HEAD`, `pin:NAME` or `step:NUMBER`, after `TRACK/` where several tracks have one
of that name (`.` for the track without a name).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from eventlog.errors import CheckpointIncompleteError, ConfigError
from replay.cli.opened import opened
from replay.workspace import Workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import is_folder, require_no_file
from snapshots.checkpoints.inventory import tracks_with
from snapshots.checkpoints.manifest import CheckpointRef

UNNAMED: Final = "."
"""How the track without a name is written: no track has this name."""

REF_HELP: Final = "An id, HEAD, pin:NAME or step:N; TRACK/ before it where several tracks have it."

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="A folder that dcp.save wrote to, in place of the workspace's checkpoints.",
    ),
]
TrackOption = Annotated[
    str | None,
    typer.Option("--track", metavar="TRACK", help="This track only; . is the one without a name."),
]


class CheckpointPlace(NamedTuple):
    """A folder of checkpoints: `root` is any track of it, `tracks` those that were asked for.

    `workspace` is the open workspace it belongs to, None for a folder by itself.
    """

    root: CheckpointStore
    tracks: list[CheckpointStore]
    workspace: Workspace | None


@contextmanager
def checkpoints_of(
    context: typer.Context, folder: Path | None, track: str | None = None
) -> Iterator[CheckpointPlace]:
    """The asked place, open while the block runs. Nothing is made where there is none."""
    if folder is not None:
        require_no_file(folder)
        if not is_folder(folder):
            raise ConfigError(
                f"there is no folder {folder}", hint="name one that dcp.save wrote to"
            )
        root = CheckpointStore(folder)
        yield CheckpointPlace(root, _asked_tracks(root, track), None)
        return
    with opened(context) as ws:
        root = ws.checkpoints
        yield CheckpointPlace(root, _asked_tracks(root, track), ws)


def track_text(track: object) -> str:
    """A track as a table shows it and `--track` takes it."""
    return UNNAMED if track is None else str(track)


def tracks_named(place: CheckpointPlace, text: str) -> tuple[list[CheckpointStore], str]:
    """The tracks that `text` may mean, and what is left of it without `TRACK/`.

    A usage error where there is no such track.
    """
    track, slash, name = text.rpartition("/")
    return (_of_track(place.tracks, track) if slash else place.tracks), name


def find_named(place: CheckpointPlace, text: str) -> tuple[CheckpointStore, CheckpointRef]:
    """The checkpoint that `text` names. A usage error where several tracks have one.

    Raises `CheckpointIncompleteError` where none has, and what is wrong with what is named.
    """
    tracks, name = tracks_named(place, text)
    try:
        found = tracks_with(tracks, name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if len(found) > 1:
        told = " or ".join(f"{track_text(store.track)}/{name}" for store, _ref in found)
        raise typer.BadParameter(f"several tracks have {name!r}: write {told}")
    if not found:
        raise CheckpointIncompleteError(
            f"no checkpoint {text!r} in {place.root.folder}",
            hint="`steplog checkpoint list` names those that are there",
        )
    return found[0]


def _asked_tracks(root: CheckpointStore, track: str | None) -> list[CheckpointStore]:
    tracks = root.tracks()
    return tracks if track is None else _of_track(tracks, track)


def _of_track(tracks: Sequence[CheckpointStore], track: str) -> list[CheckpointStore]:
    asked = None if track == UNNAMED else track
    found = [one for one in tracks if one.track == asked]
    if not found:
        there = ", ".join(track_text(one.track) for one in tracks) or "none"
        raise typer.BadParameter(f"there is no track {track!r}; there are: {there}")
    return found
