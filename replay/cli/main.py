"""The command `steplog`: its verbs, its global options, and how errors become exit codes.

A verb's module is loaded when the verb is called; the list of verbs with their help stands here,
so that `steplog --help` loads none of them. (A test holds each text equal to its module's own.)
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from eventlog.errors import SteplogError
from eventlog.version import VERSION
from replay.cli.exit_codes import ExitCode
from replay.cli.invocation import (
    DEFAULT_WORKSPACE,
    WORKSPACE_VARIABLE,
    Invocation,
    hoist_global_options,
)
from replay.cli.output import printable
from replay.cli.plain_help import plain_arguments
from replay.cli.streams import Stdout, guarded_streams


class Verb(NamedTuple):
    """A verb of the command: its module under `replay.cli.commands`, and its line in the help."""

    module: str
    help: str


VERBS: Final = {
    "demo": Verb("demo", "Record, kill, resume, replay, fork and find damage: a story."),
    "import": Verb("import_files", "Import trace files: one session for each record, or none."),
    "sessions": Verb("sessions", "List sessions in the order they began, or void them."),
    "show": Verb("show", "Show a session, one line a call, or one event whole."),
    "calls": Verb("calls", "List tool calls, one line for a call and its return."),
    "tail": Verb("tail", "Print the last events of the whole log, and follow it."),
    "replay": Verb("replay", "Bring the state after a step back, proven against the log."),
    "diff": Verb("diff", "Show what differs between two states or two sessions."),
    "fork": Verb("fork", "Begin a branch after a step."),
    "check": Verb("check", "Re-hash, re-judge and re-fold what is stored."),
    "close": Verb("close", "Claim an open session whose writer is gone, and close it."),
    "snapshot": Verb("snapshot", "List the snapshots that are kept, or take one."),
    "checkpoint": Verb("checkpoint", "List, check, compare and name torch checkpoints."),
    "policy": Verb("policy", "List the policy versions of trainings, or go back to one."),
    "topic": Verb("topic", "Make a topic in Kafka that keeps what it is given."),
    "mirror": Verb("mirror", "Bring the local copy of a log in Kafka up to date."),
    "doctor": Verb("doctor", "Say what is wrong with the installation or the workspace."),
}


class VerbGroup(TyperGroup):
    """The root group: a verb that is called is loaded from its module; a listed one is not."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The called verb. An unknown one is a usage error that names the nearest."""
        name, listed, rest = super().resolve_command(ctx, args)
        return (name, listed, rest) if name is None else (name, load_verb(name), rest)


def load_verb(name: str) -> Any:
    """The verb's own command, from the `app` of its module."""
    verb = get_command(import_module(f"replay.cli.commands.{VERBS[name].module}").app)
    verb.name = name
    return plain_arguments(verb)


app = typer.Typer(
    cls=VerbGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: it says the same in a pipe, and [brackets] in it are brackets.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Global options may also stand after the verb. Data goes to stdout, all else to stderr.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"steplog {VERSION}")
        raise typer.Exit


@app.callback()
def begin(
    context: typer.Context,
    workspace: Annotated[
        str,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR_OR_URL",
            envvar=WORKSPACE_VARIABLE,
            help="Where log, blobs and snapshots are: a folder, or kafka://HOST:PORT/TOPIC.",
        ),
    ] = DEFAULT_WORKSPACE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: one object a line for lists.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no notes; errors remain.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="More notes, and an error's causes.")
    ] = False,
    no_refresh: Annotated[
        bool,
        typer.Option(
            "--no-refresh", help="Kafka: read what is mirrored here already; ask no server."
        ),
    ] = False,
    allow_truncated: Annotated[
        bool,
        typer.Option(
            "--allow-truncated", help="Kafka: read a topic whose oldest records are deleted."
        ),
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback answers and ends the run
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Every step logged; any step replayed."""
    context.obj = Invocation(
        workspace, as_json, quiet, verbose and not quiet, not no_refresh, allow_truncated
    )
    _prepare_streams(as_json=as_json)


def _listed() -> None: ...


for _name, _verb in VERBS.items():
    app.command(_name, help=_verb.help)(_listed)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code. `arguments` None: those of the process."""
    given = hoist_global_options(sys.argv[1:] if arguments is None else arguments)
    with guarded_streams() as stdout:
        if stdout is None:
            print("error: stdout is closed", file=sys.stderr)
            return ExitCode.FAILED
        return stdout.finish(_run(given, stdout))


def _run(given: list[str], stdout: Stdout) -> int:
    try:
        get_command(app)(given, prog_name="steplog")
    except SystemExit as done:  # How typer ends, in order or after a usage error it has printed.
        return done.code if isinstance(done.code, int) else ExitCode.FAILED
    except SteplogError as error:
        return _report(error, verbose=bool({"-v", "--verbose"} & set(given)))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError:
        if stdout.failure is None:
            raise
        return ExitCode.UNAVAILABLE
    return ExitCode.OK


def _report(error: SteplogError, *, verbose: bool) -> int:
    place = f" [{error.place}]" if error.place else ""
    lines = [f"error: {error.message}{place}"]
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    cause = error.__cause__
    while verbose and cause is not None:
        lines.append(f"  cause: {type(cause).__name__}: {cause}")
        cause = cause.__cause__
    for line in lines:
        print(printable(line), file=sys.stderr)
    return error.exit_code


def _prepare_streams(*, as_json: bool) -> None:
    # What a terminal cannot show is escaped, never an error in the middle of an answer. JSON is
    # UTF-8 everywhere; a lone surrogate's escape is what JSON itself has for it.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                encoding="utf-8" if as_json else stream.encoding, errors="backslashreplace"
            )
