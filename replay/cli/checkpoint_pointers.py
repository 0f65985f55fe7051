"""`steplog checkpoint pin`, `unpin` and `head`: what names a checkpoint.

Mounted on the verb's own app, in `checkpoint`.
"""

from typing import Annotated

import typer

from eventlog.errors import CheckpointError
from replay.checkpoint_views import pointer_row
from replay.cli.checkpoint_place import (
    REF_HELP,
    FolderOption,
    TrackOption,
    checkpoints_of,
    find_named,
    track_text,
)
from replay.cli.output import Output
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.inventory import HEAD
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.tracks import is_of_policies, is_of_training

RefArgument = Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)]

POINTER_COLUMNS = {
    "NAME": lambda one: str(one["name"]),
    "TRACK": lambda one: track_text(one["track"]),
    "STEP": lambda one: str(one["step"]),
    "ID": lambda one: str(one["id"]),
}


def pin(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pin's name.")],
    ref: RefArgument = HEAD,
    folder: FolderOption = None,
    track: TrackOption = None,
    move: Annotated[
        bool, typer.Option("--move", help="Also where the pin is on another checkpoint by now.")
    ] = False,
) -> None:
    """Keep a checkpoint under a name; retention never takes it.

    A pin of that name on another checkpoint of the track is moved only with --move. Without REF the
    head is pinned.

    JSON keys: name, track, id, step, manifest.
    """
    with checkpoints_of(context, folder, track) as place:
        store, found = find_named(place, ref)
        before = None if move else store.pins().get(name, found)
        if before is not None and before != found:
            raise typer.BadParameter(
                f"the pin {name!r} is on checkpoint {before.id} of step {before.training_step}: "
                "--move moves it"
            )
        try:
            store.pin(name, found)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        _print_pointer(context, name, store, found)


def unpin(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pin's name, or TRACK/NAME.")],
    folder: FolderOption = None,
    track: TrackOption = None,
) -> None:
    """Take a pin away; the checkpoint stays until retention or nothing keeps it.

    JSON keys: name, track, id, step, manifest.
    """
    with checkpoints_of(context, folder, track) as place:
        before, slash, last = name.rpartition("/")
        store, found = find_named(place, f"{before}{slash}pin:{last}")
        store.unpin(last)
        _print_pointer(context, last, store, found)


def head(
    context: typer.Context,
    ref: Annotated[
        str | None, typer.Argument(metavar="REF", help=REF_HELP + " Shows it without.")
    ] = None,
    folder: FolderOption = None,
    track: TrackOption = None,
) -> None:
    """Show what loading takes by itself, or go back to another checkpoint.

    Every object of it must be in place. A `ShardWriter` that saves at the same time fails then. In
    a track of a training the log decides: there only a damaged HEAD is mended.

    JSON keys: name, track, id, step, manifest.
    """
    output = Output.of(context)
    with checkpoints_of(context, folder, track) as place:
        if ref is not None:
            store, found = find_named(place, ref)
            _require_own_head(store, found)
            store.move_head(found)
            _print_pointer(context, HEAD, store, found)
            return
        heads = ((store, store.head()) for store in place.tracks)
        rows = (pointer_row(HEAD, store, found) for store, found in heads if found is not None)
        output.print_records(rows, POINTER_COLUMNS, f"no head in {place.root.folder}")


def _require_own_head(store: CheckpointStore, ref: CheckpointRef) -> None:
    """A usage error where HEAD only follows a log, unless it is to be mended."""
    if is_of_training(store.track):
        instead = f'run.restore("{ref.id}")'
    elif is_of_policies(store.track):
        instead = f"`steplog policy rollback {ref.training_step} --reason TEXT`"
    else:
        return
    try:
        head = store.head()
        if head is None:
            return
        store.read_manifest(head)
    except CheckpointError:
        return
    raise typer.BadParameter(
        f"in {store.track} the log decides what is gone on from, and HEAD follows: {instead} goes "
        "back"
    )


def _print_pointer(
    context: typer.Context, name: str, store: CheckpointStore, ref: CheckpointRef
) -> None:
    Output.of(context).print_records([pointer_row(name, store, ref)], POINTER_COLUMNS)
