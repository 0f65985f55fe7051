"""`steplog doctor`: prints what `replay.diagnosis` finds."""

import sys
from pathlib import Path

import typer

from replay.cli.exit_codes import ExitCode
from replay.cli.invocation import Invocation
from replay.cli.output import Output
from replay.diagnosis import diagnose

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(context: typer.Context) -> None:
    """Say what is wrong with the installation or the workspace.

    Looks at the versions of Python, SQLite and the libraries, at who else owns the names of our
    packages, at files that hide them, and at the workspace's folder; for a workspace in Kafka at
    the servers, the topic's live settings and its schema topic. Exit code 1 if a check failed.

    JSON keys: check, verdict, found, hint.
    """
    found = list(diagnose(Invocation.of(context).workspace, [Path.cwd(), *sys.path]))
    Output.of(context).print_records(
        (one._asdict() for one in found),
        {
            "CHECK": lambda one: str(one["check"]),
            "VERDICT": lambda one: str(one["verdict"]),
            "FOUND": lambda one: str(one["found"]),
            "HINT": lambda one: str(one["hint"]),
        },
    )
    if any(one.verdict == "failed" for one in found):
        raise typer.Exit(ExitCode.FAILED)
