"""`steplog diff`: what differs between two states, or between two sessions."""

import json
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from replay.cli.address import Address
from replay.cli.event_text import event_at, print_event
from replay.cli.exit_codes import ExitCode
from replay.cli.opened import find_address, opened
from replay.cli.output import Output, Record, shortened
from replay.cli.value_text import value_text
from replay.difference import Difference
from replay.views import change_row, difference_row, event_row, readable_path
from replay.workspace import Workspace

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = {
    "OP": lambda one: str(one["op"]),
    "PATH": lambda one: str(one["readable"]),
    "BEFORE": lambda one: "" if one["op"] == "add" else _sides(one)[0],
    "AFTER": lambda one: "" if one["op"] == "remove" else _sides(one)[1],
}

VALUE_CHARS: Final = 100


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

    JSON keys: equal, first_step, changes.
    """
    output = Output.of(context)
    with opened(context) as ws:
        places = [find_address(ws, text) for text in (first, second)]
        sides = [
            place.session_id if place.step is None else (place.session_id, place.step)
            for place in places
        ]
        difference = ws.diff(*sides)
        if not output.as_json:
            _print_events(ws, output, places, difference)
    if output.as_json:
        output.print_json(difference_row(difference))
    elif difference.equal:
        output.note("no difference")
    else:
        _print_changes(output, difference)
    if not difference.equal:
        raise typer.Exit(ExitCode.FAILED)


def _print_events(
    ws: Workspace, output: Output, places: Sequence[Address], difference: Difference
) -> None:
    """The first event of each session that the other has not; nothing for two states."""
    steps = (difference.first_step, difference.other_step)
    if steps == (None, None):
        return
    output.note(
        f"first difference: {_place(steps[0])} of the first, {_place(steps[1])} of the second"
    )
    for place, step in zip(places, steps, strict=True):
        if step is not None:
            output.print_text(f"{place.session_id}@{step}:")
            row = event_row(*event_at(ws, place.session_id, step), ws.read_content)
            print_event(output, row)
            output.print_text("")


def _print_changes(output: Output, difference: Difference) -> None:
    output.print_records(
        (
            {**change_row(change), "readable": readable_path(change.path)}
            for change in difference.changes
        ),
        COLUMNS,
    )


def _sides(one: Record) -> tuple[str, str]:
    """Both values in brief; in the exact form where they would look alike, as 1.0 of two types."""
    before, after = one["before"], one["after"]
    told = value_text(before), value_text(after)
    if told[0] == told[1] or isinstance(before, str) != isinstance(after, str):
        told = _exact(before), _exact(after)
    elif isinstance(before, str) and isinstance(after, str):
        told = before, after
    return shortened(told[0], VALUE_CHARS), shortened(told[1], VALUE_CHARS)


def _exact(form: object) -> str:
    return json.dumps(form, ensure_ascii=False)


def _place(step: int | None) -> str:
    return "after the end" if step is None else f"step {step}"
