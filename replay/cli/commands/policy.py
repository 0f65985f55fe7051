"""`steplog policy`: the policy versions that trainings published, and going back to one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from eventlog.errors import CheckpointError, ConfigError
from eventlog.log import SessionFilter
from eventlog.recording.session_writer import wall_clock_us
from replay.cli.opened import opened
from replay.cli.output import NOTHING, Output, time_text
from replay.views import Row, policy_row
from replay.workspace import Workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import is_folder
from snapshots.checkpoints.tracks import track_of_policies
from snapshots.policies.notes import PolicyNotes, read_history
from snapshots.policies.rollback import roll_back
from snapshots.sets.journal import TRAINING

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

COLUMNS: Final = {
    "TRAINING": lambda one: str(one["training"]),
    "VERSION": lambda one: str(one["label"]),
    "STEP": lambda one: str(one["training_step"]),
    "PUBLISHED": lambda one: time_text(one["published"]),
    "STATUS": lambda one: _status(one),
    "CHECKPOINT": lambda one: str(one["checkpoint"]),
    "KEPT": lambda one: "yes" if one["kept"] else "no",
    "WHY": lambda one: str(one["reason"] or NOTHING),
}

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="DIR", help="Where ws.training(checkpoints=DIR) keeps its checkpoints."
    ),
]

MINOR: Final = ("WHY", "KEPT", "CHECKPOINT", "PUBLISHED", "STEP", "TRAINING")


@app.callback()
def policy() -> None:
    """List the policy versions of trainings, or go back to one.

    Needs no torch.
    """


@app.command("list")
def list_versions(
    context: typer.Context,
    training: Annotated[
        str | None, typer.Argument(metavar="TRAINING", help="Of this training; all without it.")
    ] = None,
    folder: FolderOption = None,
) -> None:
    """List policy versions, in the order they were published.

    `current` is the one in use, as the log says; `head` the one that loads by itself. Where these
    differ, going back was broken off, which is told on stderr. One that does not stand was
    published after a set that the training was restored to.

    JSON keys: training, version, label, checkpoint, training_step, manifest, published, standing,
    current, head, kept, reason.
    """
    output = Output.of(context)
    with opened(context) as ws:
        names = _trainings(ws) if training is None else iter([training])
        rows = (row for name in names for row in _rows(ws, output, name, folder))
        output.print_records(rows, COLUMNS, "no policy version was published", minor=MINOR)


@app.command()
def rollback(
    context: typer.Context,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A label, as `12` or `12~2`.")],
    reason: Annotated[str, typer.Option(help="Why: kept in the log.")],
    training: Annotated[
        str | None, typer.Option(help="The training; not needed where there is only one.")
    ] = None,
    folder: FolderOption = None,
) -> None:
    """Put an earlier policy version in use again.

    Its checkpoint is verified first. Then the log is told, in a session of its own, so that no
    trainer is fenced; then HEAD of the training's policy track is moved. Run again after a crash it
    completes what is missing. The sessions that a bad version acted in are found and voided with
    `steplog sessions --policy V1..V2 --void`.

    JSON keys: training, version, label, checkpoint, training_step, manifest, standing, reason,
    session, moved.
    """
    if not reason.strip():
        raise typer.BadParameter("a reason is a text")
    output = Output.of(context)
    with opened(context) as ws:
        name = _only_training(ws) if training is None else training
        notes, store = PolicyNotes(ws.log, name), _store(ws, name, folder)
        went = roll_back(notes, store, version, reason, clock_us=wall_clock_us)
    found = went.version
    if output.as_json:
        output.print_json(
            {
                "training": name,
                "version": found.version,
                "label": found.label,
                "checkpoint": found.ref.id,
                "training_step": found.ref.training_step,
                "manifest": found.ref.digest,
                "standing": found.standing,
                "reason": found.reason,
                "session": went.session,
                "moved": went.moved,
            }
        )
        return
    done = "is in use" if went.session or went.moved else "was in use already"
    given_up = "" if found.standing else "; it is given up: published after the set restored to"
    output.print_text(
        f"{name}: version {found.label} {done} (step {found.ref.training_step}){given_up}"
    )


def _rows(ws: Workspace, output: Output, training: str, folder: Path | None) -> Iterator[Row]:
    store = _store(ws, training, folder)
    damage: list[CheckpointError] = []
    kept = set(store.list_checkpoints(report=damage.append))
    for error in damage:
        output.problem(error.message, error.hint)
    try:
        head = store.head()
    except CheckpointError as error:
        output.problem(error.message, error.hint)
        head = None
    for one in read_history(ws.log, training):
        if one.current and head != one.ref:
            output.problem(
                f"{training}: version {one.label} is in use, and HEAD is not there",
                f"steplog policy rollback {one.label} --training {training} --reason TEXT moves it",
            )
        yield policy_row(training, one, head=head == one.ref, kept=one.ref in kept)


def _store(ws: Workspace, training: str, folder: Path | None) -> CheckpointStore:
    if folder is None:
        return CheckpointStore(ws.checkpoints.folder, track_of_policies(training))
    if not is_folder(folder):
        raise ConfigError(
            f"there is no folder {folder}",
            hint="name the one that ws.training was given as checkpoints=",
        )
    return CheckpointStore(folder, track_of_policies(training))


def _trainings(ws: Workspace) -> Iterator[str]:
    return (info.session_id for info in ws.sessions(SessionFilter(environment=TRAINING)))


def _only_training(ws: Workspace) -> str:
    names = list(_trainings(ws))
    if len(names) == 1:
        return names[0]
    there = ", ".join(names[:8]) or "none"
    raise ConfigError(
        f"there are {len(names)} trainings here: {there}", hint="name one with --training"
    )


def _status(one: Row) -> str:
    words = [
        *(["current"] if one["current"] else []),
        *(["HEAD"] if one["head"] else []),
        *([] if one["standing"] else ["given up"]),
    ]
    return " ".join(words) or NOTHING
