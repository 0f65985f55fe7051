"""`steplog sessions`: the sessions of the workspace, in the order they began."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

import typer

from eventlog.log import SessionFilter, SessionInfo
from eventlog.recording.session_writer import wall_clock_us
from replay.cli.exit_codes import ExitCode
from replay.cli.opened import opened
from replay.cli.output import NOTHING, Output, Record, number_text, time_text
from replay.cli.ranges import parse_policy_range, parse_step_range
from replay.cli.times import parse_duration, parse_time
from replay.ended_sessions import Place
from replay.views import session_row, voided_row
from replay.voiding import LEFT_OPEN, Voided, void_sessions
from snapshots.sets.members import is_own

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS: Final = {
    "SESSION": lambda one: str(one["session"]),
    "ENVIRONMENT": lambda one: str(one["environment"]),
    "STEPS": lambda one: str(one["step_count"]),
    "ATTEMPT": lambda one: str(one["attempt"]),
    "STATUS": lambda one: _status(one),
    "REWARD": lambda one: number_text(one["reward"]),
    "FROM": lambda one: str(one["reward_from"] or "-"),
    "LAST EVENT": lambda one: time_text(one["last_time"]),
    "TASK": lambda one: str(one["task_id"] or NOTHING),
    "POLICY": lambda one: _policies(one),
    "PARENT": lambda one: _parent(one),
}

MINOR: Final = (
    *("PARENT", "TASK", "FROM", "ATTEMPT", "POLICY", "LAST EVENT", "ENVIRONMENT", "REWARD"),
)

VOID_COLUMNS: Final = {
    "SESSION": lambda one: str(one["session"]),
    "VOIDED": lambda one: f"step {one['voided']}" if one["left"] is None else "left",
    "POLICY": lambda one: _policies(one),
    "WHY": lambda one: str(one["left"] or NOTHING),
}

_LEFT_OPEN: Final = LEFT_OPEN.replace("fence=True", "--fence")

_Status = Annotated[
    Literal["open", "closed", "lost", "released"] | None, typer.Option(help="In this status.")
]
_Policy = Annotated[
    str | None, typer.Option(metavar="V[..V]", help="That names a policy version in this range.")
]
_TrainingStep = Annotated[
    str | None, typer.Option(metavar="A[..B]", help="At a step of its training in this range.")
]
_Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Last event at or after: 2026-07-01T12:30 (UTC) or 2h."),
]
_Idle = Annotated[
    str | None, typer.Option(metavar="DURATION", help="No event for so long: 90s, 15m, 2h, 7d.")
]
_Voided = Annotated[bool | None, typer.Option("--voided/--not-voided", help="Voided, or not.")]
_All = Annotated[
    bool, typer.Option("--all", help="Also those in which steplog keeps its own books.")
]
_Fence = Annotated[
    bool, typer.Option("--fence", help="With --void: also open ones; their writers are fenced.")
]


@app.command()
def sessions(
    context: typer.Context,
    environment: Annotated[str | None, typer.Option(help="Of this environment.")] = None,
    status: _Status = None,
    task: Annotated[str | None, typer.Option(help="Of this task id.")] = None,
    sample: Annotated[str | None, typer.Option(help="Of this sample id.")] = None,
    group: Annotated[str | None, typer.Option(help="Of this group id.")] = None,
    policy: _Policy = None,
    training: Annotated[str | None, typer.Option(help="Recorded for this training.")] = None,
    training_step: _TrainingStep = None,
    voided: _Voided = None,
    writer: Annotated[str | None, typer.Option(help="Owned by this writer id.")] = None,
    reward_min: Annotated[float | None, typer.Option(help="With a reward from this on.")] = None,
    reward_max: Annotated[float | None, typer.Option(help="With a reward up to this.")] = None,
    since: _Since = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Last event at or before.")
    ] = None,
    idle: _Idle = None,
    prefix: Annotated[str | None, typer.Option(help="Whose id begins so.")] = None,
    all_: _All = False,
    void: Annotated[bool, typer.Option("--void", help="Void each of them.")] = False,
    reason: Annotated[str | None, typer.Option(help="With --void: why.")] = None,
    fence: _Fence = False,
) -> None:
    """List sessions in the order they began, or void them.

    Filters are combined: all must hold. `--status open --idle 1h` finds sessions whose process may
    be gone. `--policy 12..14 --void --reason TEXT` takes those that a bad policy version acted in
    out of what is trained on; open ones are left (exit code 6) without --fence. Those of trainings
    and checkpoints are listed with --all, or where --environment or --prefix names them.

    JSON keys: session, environment, step_count, attempt, status, reward, reward_from, first_time,
    last_time, task_id, sample_id, group_id, policy, policies, policies_more, training_session,
    training_step, voided, parent_session, parent_step. With --void: session, voided, policies,
    left.
    """
    where = SessionFilter(
        environment=environment,
        status=status,
        task_id=task,
        sample_id=sample,
        group_id=group,
        writer=writer,
        reward_min=reward_min,
        reward_max=reward_max,
        id_prefix=prefix,
        training_session=training,
        voided=voided,
    )
    where = _within(where, since, until, idle, policy, training_step)
    output = Output.of(context)
    if void or reason is not None or fence:
        _void(context, output, where, reason if void else None, fence=fence)
        return
    with opened(context) as ws:
        nothing = "no sessions yet" if where == SessionFilter() else "no session passes"
        count: Counter[str] = Counter()
        found = ws.sessions(where)
        if not (all_ or prefix or is_own(environment or "")):
            found = _of_users(found, count)
        output.print_records(map(session_row, found), COLUMNS, nothing, minor=MINOR)
    if count["own"]:
        many = f"{count['own']} session{'s' if count['own'] > 1 else ''}"
        output.note(f"left out: {many} in which steplog keeps its own books; --all lists them")


def _of_users(found: Iterable[SessionInfo], count: "Counter[str]") -> Iterator[SessionInfo]:
    for one in found:
        if is_own(one.environment):
            count["own"] += 1
        else:
            yield one


def _within(
    where: SessionFilter,
    since: str | None,
    until: str | None,
    idle: str | None,
    policy: str | None,
    training_step: str | None,
) -> SessionFilter:
    """The filter with its ranges. Raises a usage error."""
    now_us = time.time_ns() // 1_000
    latest = [] if until is None else [parse_time(until, now_us)]
    latest += [] if idle is None else [now_us - parse_duration(idle)]
    policy_min, policy_max = parse_policy_range(policy)
    step_min, step_max = parse_step_range(training_step)
    return where._replace(
        last_time_min=None if since is None else parse_time(since, now_us),
        last_time_max=min(latest, default=None),
        policy_min=policy_min,
        policy_max=policy_max,
        training_step_min=step_min,
        training_step_max=step_max,
    )


def _void(
    context: typer.Context,
    output: Output,
    where: SessionFilter,
    reason: str | None,
    *,
    fence: bool,
) -> None:
    if reason is None:
        raise typer.BadParameter("--void and --reason TEXT go together; --fence is for them")
    if where._replace(voided=None) == SessionFilter():
        raise typer.BadParameter("say which sessions: --void needs a filter, as --policy 12..14")
    count: Counter[str] = Counter()
    with opened(context) as ws:
        place = Place(ws.log, ws.blobs, wall_clock_us)
        found = void_sessions(place, where, reason=reason, fence=fence)
        output.print_as_they_come(map(voided_row, _counting(found, count)), VOID_COLUMNS)
    if not count:
        output.note("no session passes that is not voided yet")
    if count["left"]:
        output.note(f"voided {count['voided']}, left {count['left']}")
        raise typer.Exit(ExitCode.INCOMPLETE)


def _counting(found: Iterable[Voided], count: "Counter[str]") -> Iterator[Voided]:
    for one in found:
        count["voided" if one.left is None else "left"] += 1
        yield one._replace(left=_LEFT_OPEN) if one.left == LEFT_OPEN else one


def _status(one: Record) -> str:
    return f"{one['status']}{'' if one['voided'] is None else ' VOIDED'}"


def _policies(one: Record) -> str:
    named = one["policies"]
    assert isinstance(named, list)
    more = ["\u2026"] if one.get("policies_more") else []
    return ", ".join([*named, *more]) or NOTHING


def _parent(one: Record) -> str:
    if one["parent_session"] is None:
        return NOTHING
    return f"{one['parent_session']}@{one['parent_step']}"
