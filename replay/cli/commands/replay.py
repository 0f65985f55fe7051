"""`steplog replay`: the state after a step, folded from the log and proven."""

from typing import Annotated, Final

import typer

from replay.cli.content_text import whole_json
from replay.cli.opened import find_address, opened
from replay.cli.output import Output
from replay.cli.state_part import find_part
from replay.views import replayed_row

app = typer.Typer(add_completion=False, rich_markup_mode=None)

LONG_FOLD_STEPS: Final = 20_000
"""From so many steps on a replay from the seed may take a second: worth a progress bar."""


@app.command()
def replay(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION[@STEP]", help="A session.")],
    step: Annotated[
        int | None, typer.Option(min=0, help="The state after this step; else the last.")
    ] = None,
    no_snapshots: Annotated[
        bool, typer.Option("--no-snapshots", help="Fold from the seed.")
    ] = False,
    reducer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With this reducer: captured, or transcript."),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Only this part of the state: orders.A1.price."),
    ] = None,
) -> None:
    """Bring the state after a step back, proven against the log.

    It is folded from the nearest snapshot and the events after it. Each recorded digest on the way
    is compared; the first that differs is exit code 3. A step whose state was not recorded is exit
    code 6 and names the nearest that was. No environment is run.

    JSON keys: session, step, kind, reducer, state, state_digest, event_digest, from_snapshot,
    folded.
    """
    output = Output.of(context)
    with opened(context) as ws:
        named = find_address(ws, session)
        if step is not None and named.step not in (None, step):
            raise typer.BadParameter(f"{session} and --step {step} name two steps")
        wanted = named.step if step is None else step
        is_long = ws.session(named.session_id).step_count > LONG_FOLD_STEPS
        with output.progress("replaying", shown=is_long):
            replayed = ws.replay(
                named.session_id, wanted, use_snapshots=not no_snapshots, reducer=reducer
            )
    # With a reducer of one's choice it is no wonder that others' snapshots do not serve.
    tell = output.note if reducer is None else output.detail
    for skipped in replayed.skipped:
        tell(f"snapshot not used: {skipped}")
    state = replayed.opaque_state
    row = replayed_row(replayed, state if path is None else find_part(state, path))
    if output.as_json:
        output.print_json(row)
        return
    shown = {name: value for name, value in row.items() if name != "state" and value is not None}
    output.print_fields({name: str(value) for name, value in shown.items()})
    for line in whole_json(row["state"]).split("\n"):
        output.print_text(line)
