"""`steplog demo`: the main job, told while it happens."""

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from eventlog.errors import ConfigError
from replay.cli.called_as import command_name
from replay.cli.demo.story import tell
from replay.cli.output import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def demo(
    context: typer.Context,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the workspace there, in a new or empty folder."),
    ] = None,
) -> None:
    """Record, kill, resume, replay, fork and find damage: a story.

    A small environment is recorded; a recording process is killed with SIGKILL and its session
    resumed; states are replayed and compared; a session is forked; a flipped bit is found. Takes a
    few seconds and needs nothing. The workspace is made in a temporary folder, or kept with --keep.

    With --json the story goes to stderr.

    JSON keys: workspace, sessions, resumed, branch, found.
    """
    output = Output.of(context)

    def say(text: str) -> None:
        for line in text.split("\n"):
            (output.note if output.as_json else output.print_text)(line)

    if keep is None:
        with tempfile.TemporaryDirectory(prefix="steplog-demo-") as folder:
            ending = tell(Path(folder) / "desk", say)
    else:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise ConfigError(f"{keep} is there and not empty", hint="name a new folder")
        ending = tell(keep, say)
    if output.as_json:
        output.print_json({"workspace": None if keep is None else str(keep), **ending._asdict()})
        return
    say("\nWhat to try next:")
    if keep is None:
        say(f"  {command_name()} demo --keep desk     # the same, in a folder that stays; then:")
    place = f"{command_name()} --workspace {'desk' if keep is None else shlex.quote(str(keep))}"
    for line in ending.things_to_try():
        say(f"  {place} {line}")
