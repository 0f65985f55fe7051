"""`steplog import`: others' traces into sessions."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from eventlog.errors import ImportFormatError
from eventlog.importers.import_file import ImportOutcome
from replay.cli.exit_codes import ExitCode
from replay.cli.opened import opened
from replay.cli.output import Output
from replay.views import import_row
from replay.workspace import Workspace

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = {
    "SESSION": lambda one: str(one["session"]),
    "FORMAT": lambda one: str(one["format"]),
    "EVENTS": lambda one: str(one["events"]),
    "STATE": lambda one: str(one["state"]),
}


class _Tally:
    """What became of the records of all files."""

    def __init__(self) -> None:
        self.imported = 0
        self.failed = 0


@app.command()
def import_files(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Trace files.")],
    format: Annotated[
        Literal["auto", "gym-rollouts", "chat", "bfcl", "swe-agent"],
        typer.Option(help="What the files are; auto looks at what they hold."),
    ] = "auto",
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Task inputs of rollouts; without it the sibling *.inputs.jsonl, if any.",
        ),
    ] = None,
) -> None:
    """Import trace files: one session for each record, or none.

    A session is imported whole or not at all. Makes the workspace if there is none. Importing a
    file again adds nothing. A record that cannot be imported is told on stderr with its line and
    byte offset, and the others are imported: exit code 6; exit code 1 where nothing could be.

    --json: {"session","format","events","state","warnings"} a line; events is 0 where the session
    was there already; state is full, partial or none: what of the state the trace has.
    """
    _refuse_if_none_is_there(files)
    output = Output.of(context)
    tally = _Tally()
    with opened(context, create=True) as ws, output.progress("importing", _bytes(files)) as advance:
        outcomes = _outcomes(ws, output, files, format, inputs, tally)
        rows = (import_row(outcome) for outcome in _told(outcomes, tally, advance))
        output.print_records(rows, COLUMNS)
    if tally.failed:
        raise typer.Exit(ExitCode.INCOMPLETE if tally.imported else ExitCode.FAILED)


def _refuse_if_none_is_there(files: Sequence[Path]) -> None:
    # Before the workspace is made: a name typed wrong must leave nothing behind.
    if not any(file.exists() and not file.is_dir() for file in files):
        raise ImportFormatError(
            f"no such file: {', '.join(map(str, files))}", hint="check the path"
        )


def _bytes(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _outcomes(
    ws: Workspace,
    output: Output,
    files: Sequence[Path],
    format_name: str,
    inputs: Path | None,
    tally: _Tally,
) -> Iterator[ImportOutcome]:
    """The outcomes of every file; one that is no trace is told of, and the others go on."""
    for file in files:
        try:
            for outcome in ws.import_file(file, format=format_name, inputs=inputs):
                yield outcome
                if outcome.problem is not None:
                    output.problem(f"{file}: {outcome.problem}")
                for warning in outcome.warnings:
                    output.note(f"warning: {outcome.session_id or file}: {warning}")
        except ImportFormatError as error:
            tally.failed += 1
            output.problem(error.message, error.hint)


def _told(
    outcomes: Iterator[ImportOutcome], tally: _Tally, advance: Callable[[int], None]
) -> Iterator[ImportOutcome]:
    """The imported sessions among the outcomes; the others are counted."""
    for outcome in outcomes:
        advance(outcome.byte_count or 0)
        if outcome.failed:
            tally.failed += 1
        elif outcome.session_id is not None:
            tally.imported += 1
            yield outcome
