"""`steplog checkpoint export` and `import`: to and from files that others read or write.

Mounted on the verb's own app, in `checkpoint`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from eventlog.training_facts import TRAINING_STEP_MAX
from replay.cli.checkpoint_place import (
    REF_HELP,
    FolderOption,
    TrackOption,
    checkpoints_of,
    find_named,
)
from replay.cli.opened import opened
from replay.cli.output import Output
from replay.cli.value_text import bytes_text
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import is_there, require_no_file
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.interchange.export import Exported, export_checkpoint
from snapshots.interchange.import_writer import Imported
from snapshots.interchange.safetensors_import import import_safetensors
from snapshots.interchange.torch_import import import_dcp_folder

PREFIX = "model."
"""What is put before the names of safetensors: they load as `{"model": model.state_dict()}`."""

EXPORT_COLUMNS = {
    "STEP": lambda one: str(one["step"]),
    "ID": lambda one: str(one["id"]),
    "TENSORS": lambda one: str(one["tensors"]),
    "SIZE": lambda one: bytes_text(one["bytes"]),
    "FOLDER": lambda one: str(one["folder"]),
    "FILES": lambda one: str(len(one["files"])),
}
IMPORT_COLUMNS = {
    "STEP": lambda one: str(one["step"]),
    "ID": lambda one: str(one["id"]),
    "TENSORS": lambda one: str(one["tensors"]),
    "SIZE": lambda one: bytes_text(one["bytes"]),
    "VALUES": lambda one: str(one["values"]),
}


def export_files(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A folder that is not there yet, or empty.")
    ],
    layout: Annotated[
        Literal["safetensors", "huggingface"],
        typer.Option(help="One file; or as Hugging Face has it: files of up to 5 GB and an index."),
    ] = "safetensors",
    tensors: Annotated[
        list[str] | None,
        typer.Option(
            "--tensors",
            metavar="PATTERN",
            help="Only tensors whose whole name fits, as '*.weight'; may be repeated.",
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Only tensors whose name begins so, as 'model.'; it is taken off."
        ),
    ] = "",
    folder: FolderOption = None,
    track: TrackOption = None,
) -> None:
    """Write a checkpoint's tensors as safetensors.

    Every hash is compared. TARGET is there whole or not at all. Values that are no tensors are left
    out, and counted. torch is not needed.

    JSON keys: id, step, manifest, folder, files, tensors, bytes, tensors_left_out, values_left_out.
    """
    output = Output.of(context)
    with checkpoints_of(context, folder, track) as place:
        store, found = find_named(place, ref)
        done = export_checkpoint(
            store, found, target, prefix=prefix, layout=layout, tensors=tensors or ()
        )
    output.print_records([_exported_row(found, done)], EXPORT_COLUMNS, minor=("FILES",))
    if done.tensors_left_out or done.values_left_out:
        output.note(
            f"left out: {done.tensors_left_out} tensors that were not chosen, "
            f"{done.values_left_out} values that are no tensors"
        )


def import_files(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="A folder, or files of safetensors."),
    ],
    step: Annotated[
        int,
        typer.Option(min=0, max=TRAINING_STEP_MAX, metavar="N", help="The step of the training."),
    ],
    format: Annotated[
        Literal["auto", "safetensors", "dcp"],
        typer.Option(help="What it is; auto takes a folder with a .metadata for torch's dcp.save."),
    ] = "auto",
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help=f"Safetensors: what is put before the names ({PREFIX!r} without it).",
        ),
    ] = None,
    skip_values: Annotated[
        bool,
        typer.Option("--skip-values", help="dcp: leave out values that cannot be kept."),
    ] = False,
    folder: FolderOption = None,
) -> None:
    """Make a checkpoint of safetensors, or of a folder that torch's own dcp.save wrote.

    HEAD moves to it. Nothing that is read can run code. Makes the folder, or the workspace, if
    there is none. A missing file is named, and then nothing is committed.

    JSON keys: id, step, manifest, tensors, bytes, values, left_out.
    """
    output = Output.of(context)
    is_dcp = _is_dcp(paths, format)
    if is_dcp and (len(paths) > 1 or prefix is not None):
        raise typer.BadParameter("of torch's dcp.save one folder is imported, without a prefix")
    if skip_values and not is_dcp:
        raise typer.BadParameter("safetensors hold no values to skip")
    with _filled(context, folder) as store:
        if is_dcp:
            done = import_dcp_folder(store, paths[0], step=step, skip_values=skip_values)
        else:
            source = paths[0] if len(paths) == 1 else paths
            named = PREFIX if prefix is None else prefix
            done = import_safetensors(store, source, step=step, prefix=named)
    output.print_records([_imported_row(done)], IMPORT_COLUMNS)
    if done.left_out:
        output.note(f"left out, as no value that can be kept: {', '.join(done.left_out)}")


def _is_dcp(paths: Sequence[Path], format_name: str) -> bool:
    if format_name == "auto":
        return any(is_there(path / ".metadata", follow_links=True) for path in paths)
    return format_name == "dcp"


@contextmanager
def _filled(context: typer.Context, folder: Path | None) -> Iterator[CheckpointStore]:
    """The store that is imported into; made if missing."""
    if folder is not None:
        require_no_file(folder)
        yield CheckpointStore(folder)
        return
    with opened(context, create=True) as ws:
        yield ws.checkpoints


def _exported_row(ref: CheckpointRef, done: Exported) -> dict[str, object]:
    return {
        **_ref_row(ref),
        "folder": str(done.folder),
        "files": list(done.files),
        "tensors": done.tensors,
        "bytes": done.tensor_bytes,
        "tensors_left_out": done.tensors_left_out,
        "values_left_out": done.values_left_out,
    }


def _imported_row(done: Imported) -> dict[str, object]:
    return {
        **_ref_row(done.checkpoint),
        "tensors": done.tensors,
        "bytes": done.tensor_bytes,
        "values": done.values,
        "left_out": list(done.left_out),
    }


def _ref_row(ref: CheckpointRef) -> dict[str, object]:
    return {"id": ref.id, "step": ref.training_step, "manifest": ref.digest}
