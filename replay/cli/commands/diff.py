"""`steplog diff`: what differs between two states, or between two sessions."""

from typing import Annotated

import typer

from replay.cli.content_text import brief_json
from replay.cli.exit_codes import ExitCode
from replay.cli.opened import find_address, opened
from replay.cli.output import Output
from replay.difference import Difference
from replay.views import change_row, difference_row, readable_path

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = {
    "OP": lambda one: str(one["op"]),
    "PATH": lambda one: str(one["readable"]),
    "BEFORE": lambda one: "" if one["op"] == "add" else brief_json(one["before"], 100),
    "AFTER": lambda one: "" if one["op"] == "remove" else brief_json(one["after"], 100),
}


@app.command()
def diff(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A[@N]", help="A session, and a step of it.")],
    second: Annotated[str, typer.Argument(metavar="B[@M]", help="Another, or the same.")],
) -> None:
    """Show what differs between two states or two sessions.

    Exit code 1 where something does.
    With steps, the two states after them are compared (a session without a step beside one with
    a step means its last). Without steps, two sessions are compared event by event, in the order of
    issue, names and times ignored, up to the first step that differs.

    --json: {"equal","first_step","changes":[{"op","path","before","after"}]}; op is add, remove,
    replace, cut (items from an index on) or order; first_step is null for two states.
    """
    output = Output.of(context)
    with opened(context) as ws:
        places = [find_address(ws, text) for text in (first, second)]
        sides = [
            place.session_id if place.step is None else (place.session_id, place.step)
            for place in places
        ]
        difference = ws.diff(*sides)
    if output.as_json:
        output.print_json(difference_row(difference))
    elif difference.equal:
        output.note("no difference")
    else:
        _print_changes(output, difference)
    if not difference.equal:
        raise typer.Exit(ExitCode.FAILED)


def _print_changes(output: Output, difference: Difference) -> None:
    if difference.first_step is not None or difference.other_step is not None:
        output.note(
            f"first difference: {_place(difference.first_step)} of the first, "
            f"{_place(difference.other_step)} of the second"
        )
    output.print_records(
        (
            {**change_row(change), "readable": readable_path(change.path)}
            for change in difference.changes
        ),
        COLUMNS,
    )


def _place(step: int | None) -> str:
    return "after the end" if step is None else f"step {step}"
