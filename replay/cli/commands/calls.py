"""`steplog calls`: tool calls, each with its return, of one session or of all."""

from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from eventlog.call_view import CallRow
from eventlog.log import SessionFilter, SessionInfo
from replay.cli.content_text import brief_json
from replay.cli.opened import opened
from replay.cli.output import Output, duration_text, number_text
from replay.views import call_row
from replay.workspace import Workspace

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = {
    "SESSION": lambda one: str(one["session"]),
    "CALL": lambda one: str(one["call_step"]),
    "RETURN": lambda one: "-" if one["return_step"] is None else str(one["return_step"]),
    "TOOL": lambda one: str(one["tool"]),
    "STATUS": lambda one: str(one["status"]),
    "ARGUMENTS": lambda one: brief_json(one["arguments"]),
    "RESULT": lambda one: brief_json(one["result"]),
    "REWARD": lambda one: number_text(one["reward"]),
    "DURATION": lambda one: duration_text(one["duration_us"]),
}

MINOR = ("DURATION", "REWARD", "RETURN", "ARGUMENTS", "RESULT")


@app.command()
def calls(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="One session; all without it.")
    ] = None,
    tool: Annotated[str | None, typer.Option(help="Of this tool.")] = None,
    status: Annotated[
        Literal["open", "ok", "error", "timeout", "cancelled", "invalid", "interrupted"] | None,
        typer.Option(help="That ended so; `open` has no return yet."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Of sessions of this environment.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Of sessions of this task id.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Of sessions whose id begins so.")] = None,
) -> None:
    """List tool calls, one line for a call and its return.

    Rows come as the calls returned, then the open ones. Those of a branch include its parent's up
    to the fork, under the parent's id; over all sessions each call is listed once.

    JSON keys: session, call_step, return_step, tool, status, arguments, result, reward,
    duration_us, policy.
    """
    if session is not None and (environment, task, prefix) != (None, None, None):
        raise typer.BadParameter("--environment, --task and --prefix choose sessions: name none")
    where = SessionFilter(environment=environment, task_id=task, id_prefix=prefix)
    output = Output.of(context)
    with opened(context) as ws:
        found = _calls_of_all(ws, where) if session is None else ws.calls(session)
        wanted = (
            call_row(call, ws.read_content)
            for call in found
            if tool in (None, call.tool) and status in (None, call.status)
        )
        output.print_records(wanted, COLUMNS, "no such call", minor=MINOR)


def _calls_of_all(ws: Workspace, where: SessionFilter) -> Iterator[CallRow]:
    for info in ws.sessions(where):
        yield from (call for call in ws.calls(info.session_id) if _is_own(call, info))


def _is_own(call: CallRow, info: SessionInfo) -> bool:
    """Whether a branch's call is not just its parent's: called or answered after the fork."""
    last_step = call.call_step if call.return_step is None else call.return_step
    return info.parent_step is None or last_step > info.parent_step
