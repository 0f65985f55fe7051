"""`steplog import`: others' traces into sessions."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from eventlog.errors import ImportFormatError
from eventlog.importers.import_file import ImportOutcome, import_file
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
    "OUTCOME": lambda one: "new" if one["events"] else "already there",
}

MINOR = ("STATE", "FORMAT")

ALIKE_MAX: Final = 5
"""So many records of one file with the same problem are told one by one; the others are counted."""


class _Tally:
    """What became of the records of all files."""

    def __init__(self) -> None:
        self.imported = 0
        self.new = 0
        self.failed = 0

    def summary(self) -> str:
        """How many sessions there are, how many of them are new, and how many records failed."""
        told = f"{self.imported} session{'' if self.imported == 1 else 's'}, {self.new} new"
        return told + (f", {self.failed} failed" if self.failed else "")


@app.command()
def import_files(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Trace files.")],
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

    State is what of it the trace has: full, partial or none.

    JSON keys: session, format, events, state, warnings.
    """
    _refuse_if_none_is_there(files)
    output = Output.of(context)
    tally = _Tally()
    with opened(context, create=True) as ws, output.progress("importing", _bytes(files)) as advance:
        outcomes = _outcomes(ws, output, files, format, inputs, tally)
        rows = (import_row(outcome) for outcome in _told(outcomes, tally, advance))
        output.print_records(rows, COLUMNS, minor=MINOR)
    if not output.as_json:
        output.note(tally.summary())
    if tally.failed:
        raise typer.Exit(ExitCode.INCOMPLETE if tally.imported else ExitCode.FAILED)


def _refuse_if_none_is_there(files: Sequence[Path]) -> None:
    # Before the workspace is made: a name typed wrong must leave nothing behind.
    folders = [file for file in files if file.is_dir()]
    if folders and len(folders) == len(files):
        raise ImportFormatError(
            f"{', '.join(map(str, folders))} is a folder",
            hint=f"name its files: {folders[0]}/*.jsonl",
        )
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
        problems: Counter[str] = Counter()
        try:
            # One by one, as they are durable: the workspace's own verb ends with the file.
            for outcome in import_file(file, ws.log, ws.blobs, format=format_name, inputs=inputs):
                yield outcome
                if outcome.problem is not None:
                    _tell_problem(output, file, outcome.problem, problems)
                for warning in outcome.warnings:
                    output.note(f"warning: {outcome.session_id or file}: {warning}")
        except ImportFormatError as error:
            tally.failed += 1
            hint = f"name its files: {file}/*.jsonl" if file.is_dir() else error.hint
            output.problem(error.message, hint)
        for what, count in problems.items():
            if count > ALIKE_MAX:
                output.problem(f"{file}: {count - ALIKE_MAX} more records: {what}")


def _tell_problem(output: Output, file: Path, problem: str, problems: Counter[str]) -> None:
    """Tell of a record's problem, unless so many before it in the file had the same."""
    _place, _, what = problem.partition(": ")
    problems[what] += 1
    if problems[what] <= ALIKE_MAX:
        output.problem(f"{file}: {problem}")


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
            tally.new += outcome.events > 0
            yield outcome
