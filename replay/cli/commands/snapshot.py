"""`steplog snapshot list|take`: states kept so that a replay need not start at the seed."""

from typing import Annotated

import typer

from eventlog.errors import SnapshotError
from replay.cli.exit_codes import ExitCode
from replay.cli.opened import find_address, opened
from replay.cli.output import Output
from replay.views import snapshot_row

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

COLUMNS = {
    "SESSION": lambda one: str(one["session"]),
    "STEP": lambda one: str(one["step"]),
    "BYTES": lambda one: str(one["bytes"]),
    "FILE": lambda one: str(one["file"]),
}


@app.callback()
def snapshot() -> None:
    """List the snapshots that are kept, or take one.

    Snapshots only save time: none is ever trusted more than the log.
    """


@app.command("list")
def list_snapshots(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="One session; all without it.")
    ] = None,
) -> None:
    """List the snapshots that are kept.

    Exit code 6 where something that stands among them cannot be listed.

    JSON keys: session, step, file, bytes.
    """
    output = Output.of(context)
    damage: list[SnapshotError] = []
    with opened(context) as ws:
        if session is not None:
            ws.session(session)
        found = ws.snapshots.list_snapshots(session, report=damage.append)
        output.print_records(map(snapshot_row, found), COLUMNS, "no snapshots", minor=("BYTES",))
    for error in damage:
        output.problem(error.message)
    if damage:
        raise typer.Exit(ExitCode.INCOMPLETE)


@app.command()
def take(
    context: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="SESSION[@STEP]", help="After this step; else the last.")
    ],
) -> None:
    """Replay to a step and keep its state.

    JSON keys: session, step, file, bytes.
    """
    output = Output.of(context)
    with opened(context) as ws:
        row = snapshot_row(ws.take_snapshot(*find_address(ws, session)))
    output.print_records([row], COLUMNS)
