"""`steplog fork`: a branch that shares a session's past."""

from typing import Annotated

import typer

from replay.cli.opened import find_address, opened
from replay.cli.output import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def fork(
    context: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="SESSION@STEP", help="The last step that is shared.")
    ],
    name: Annotated[
        str | None, typer.Option(help="The branch's id; a new one is made without it.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="What is different there; may be repeated."),
    ] = None,
) -> None:
    """Begin a branch after a step.

    A branch costs one event and copies nothing. Nobody owns it until it is resumed with
    `ws.resume(branch)`.

    JSON keys: session, parent_session, parent_step.
    """
    changes = dict(_name_and_text(each) for each in change or ())
    output = Output.of(context)
    with opened(context) as ws:
        parent, step = find_address(ws, session)
        if step is None:
            raise typer.BadParameter(f"name the last shared step: {parent}@STEP")
        branch = ws.fork(parent, step, name=name, changes=changes)
    if output.as_json:
        output.print_json({"session": branch, "parent_session": parent, "parent_step": step})
    else:
        output.print_text(branch)


def _name_and_text(given: str) -> tuple[str, str]:
    name, separator, text = given.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"write NAME=TEXT, not {given!r}")
    return name, text
