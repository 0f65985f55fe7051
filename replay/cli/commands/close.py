"""`steplog close`: ends an open session whose process is gone."""

from typing import Annotated

import typer

from eventlog.errors import StepConflictError
from replay.cli.opened import opened
from replay.cli.output import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def close(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="An open session.")],
    reason: Annotated[str, typer.Option(help="Why, as the session's close says.")] = "abandoned",
) -> None:
    """Claim an open session whose writer is gone, and close it.

    A process that still writes it is fenced by the claim: its next append fails. To go on with the
    session instead, resume it. A closed session is refused (exit code 8).

    JSON keys: session, step, attempt, reason.
    """
    if not reason.isprintable():  # Before the session is claimed.
        raise typer.BadParameter("a reason is text on one line")
    output = Output.of(context)
    with opened(context) as ws:
        info = ws.session(session)
        if info.status == "closed":
            raise StepConflictError(
                "the session is closed already",
                hint=f"nothing is left to close; see how it ended: steplog show {session}",
                expected=info.head.step,
                actual=info.head.step,
                session_id=session,
            )
        recorder = ws.resume(session)
        unanswered = [f"{call.tool} (step {call.step})" for call in recorder.open_calls]
        step = recorder.close(reason)
    if output.as_json:
        output.print_json(
            {"session": session, "step": step, "attempt": recorder.attempt, "reason": reason}
        )
        return
    output.print_text(f"{session} closed at step {step}: {reason}")
    if unanswered:
        output.note(f"calls without a return: {', '.join(unanswered)}")
