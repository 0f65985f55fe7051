"""The checkpoints that a verb works on, and those that its arguments name.

`REF` is an id, `HEAD`, `pin:NAME` or `step:NUMBER`, with `LINE/` before it where several lines have
one of that name (`.` for the line without a name).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from eventlog.errors import CheckpointIncompleteError, ConfigError
from replay.cli.opened import opened
from replay.workspace import Workspace
from snapshots.checkpoint_inventory import lines_with
from snapshots.checkpoint_manifest import CheckpointRef
from snapshots.checkpoint_store import CheckpointStore

UNNAMED: Final = "."
"""How the line without a name is written: no line has this name."""

REF_HELP: Final = "An id, HEAD, pin:NAME or step:N; LINE/ before it where several lines have it."

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="A folder that dcp.save wrote to, in place of the workspace's checkpoints.",
    ),
]
LineOption = Annotated[
    str | None,
    typer.Option("--line", metavar="LINE", help="This line only; . is the one without a name."),
]


class CheckpointPlace(NamedTuple):
    """A folder of checkpoints: `root` is any line of it, `lines` those that were asked for.

    `workspace` is the open workspace it belongs to, None for a folder by itself.
    """

    root: CheckpointStore
    lines: list[CheckpointStore]
    workspace: Workspace | None


@contextmanager
def checkpoints_of(
    context: typer.Context, folder: Path | None, line: str | None = None
) -> Iterator[CheckpointPlace]:
    """The asked place, open while the block runs. Nothing is made where there is none."""
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(
                f"there is no folder {folder}", hint="name one that dcp.save wrote to"
            )
        root = CheckpointStore(folder)
        yield CheckpointPlace(root, _asked_lines(root, line), None)
        return
    with opened(context) as ws:
        root = ws.checkpoints
        yield CheckpointPlace(root, _asked_lines(root, line), ws)


def line_text(line: object) -> str:
    """A line as a table shows it and `--line` takes it."""
    return UNNAMED if line is None else str(line)


def find_named(place: CheckpointPlace, text: str) -> tuple[CheckpointStore, CheckpointRef]:
    """The checkpoint that `text` names. A usage error where several lines have one.

    Raises `CheckpointIncompleteError` where none has, and what is wrong with what is named.
    """
    line, slash, name = text.rpartition("/")
    lines = _of_line(place.lines, line) if slash else place.lines
    try:
        found = lines_with(lines, name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if len(found) > 1:
        told = " or ".join(f"{line_text(store.line)}/{name}" for store, _ref in found)
        raise typer.BadParameter(f"several lines have {name!r}: write {told}")
    if not found:
        raise CheckpointIncompleteError(
            f"no checkpoint {text!r} in {place.root.folder}",
            hint="`steplog checkpoint list` names those that are there",
        )
    return found[0]


def _asked_lines(root: CheckpointStore, line: str | None) -> list[CheckpointStore]:
    lines = root.lines()
    return lines if line is None else _of_line(lines, line)


def _of_line(lines: Sequence[CheckpointStore], line: str) -> list[CheckpointStore]:
    asked = None if line == UNNAMED else line
    found = [one for one in lines if one.line == asked]
    if not found:
        there = ", ".join(line_text(one.line) for one in lines) or "none"
        raise typer.BadParameter(f"there is no line {line!r}; there are: {there}")
    return found
