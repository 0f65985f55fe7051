"""`steplog sessions`: the sessions of the workspace, in the order they began."""

import time
from typing import Annotated, Literal

import typer

from eventlog.log import SessionFilter
from replay.cli.opened import opened
from replay.cli.output import NOTHING, Output, Record, number_text, time_text
from replay.cli.times import parse_duration, parse_time
from replay.views import session_row

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = {
    "SESSION": lambda one: str(one["session"]),
    "ENVIRONMENT": lambda one: str(one["environment"]),
    "STEPS": lambda one: str(one["step_count"]),
    "ATTEMPT": lambda one: str(one["attempt"]),
    "STATUS": lambda one: str(one["status"]),
    "REWARD": lambda one: number_text(one["reward"]),
    "FROM": lambda one: str(one["reward_from"] or "-"),
    "LAST EVENT": lambda one: time_text(one["last_time"]),
    "TASK": lambda one: str(one["task_id"] or NOTHING),
    "PARENT": lambda one: _parent(one),
}

MINOR = ("PARENT", "TASK", "FROM", "ATTEMPT", "LAST EVENT", "ENVIRONMENT", "REWARD")


@app.command()
def sessions(
    context: typer.Context,
    environment: Annotated[str | None, typer.Option(help="Of this environment.")] = None,
    status: Annotated[
        Literal["open", "closed", "lost", "released"] | None, typer.Option(help="In this status.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Of this task id.")] = None,
    sample: Annotated[str | None, typer.Option(help="Of this sample id.")] = None,
    group: Annotated[str | None, typer.Option(help="Of this group id.")] = None,
    policy: Annotated[str | None, typer.Option(help="Of this policy version.")] = None,
    writer: Annotated[str | None, typer.Option(help="Owned by this writer id.")] = None,
    reward_min: Annotated[float | None, typer.Option(help="With a reward from this on.")] = None,
    reward_max: Annotated[float | None, typer.Option(help="With a reward up to this.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Last event at or after: 2026-07-01T12:30 (UTC) or 2h."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Last event at or before.")
    ] = None,
    idle: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="No event for so long: 90s, 15m, 2h, 7d."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Whose id begins so.")] = None,
) -> None:
    """List sessions, in the order they began.

    Filters are combined: all must hold. `--status open --idle 1h` finds sessions whose process may
    be gone.

    JSON keys: session, environment, step_count, attempt, status, reward, reward_from, first_time,
    last_time, task_id, sample_id, group_id, policy, parent_session, parent_step.
    """
    now_us = time.time_ns() // 1_000
    latest = [] if until is None else [parse_time(until, now_us)]
    latest += [] if idle is None else [now_us - parse_duration(idle)]
    where = SessionFilter(
        environment=environment,
        status=status,
        task_id=task,
        sample_id=sample,
        group_id=group,
        policy=policy,
        writer=writer,
        reward_min=reward_min,
        reward_max=reward_max,
        last_time_min=None if since is None else parse_time(since, now_us),
        last_time_max=min(latest, default=None),
        id_prefix=prefix,
    )
    output = Output.of(context)
    with opened(context) as ws:
        nothing = "no sessions yet" if where == SessionFilter() else "no session passes"
        output.print_records(map(session_row, ws.sessions(where)), COLUMNS, nothing, minor=MINOR)


def _parent(one: Record) -> str:
    if one["parent_session"] is None:
        return NOTHING
    return f"{one['parent_session']}@{one['parent_step']}"
