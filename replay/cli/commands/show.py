"""`steplog show`: a session as lines to read, its events, or one event whole."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer

from eventlog.codec import decode_event
from eventlog.event import BODY_OF_KIND, Event
from eventlog.log import LogRecord, SessionInfo
from replay.cli.content_text import brief_content
from replay.cli.event_lines import EVENT_COLUMNS, EVENT_MINOR, event_cells
from replay.cli.event_text import event_at, print_event
from replay.cli.opened import find_address, opened
from replay.cli.output import NOTHING, Output, duration_text, number_text
from replay.timeline import TimelineLine, timeline
from replay.views import FetchContent, event_row
from replay.workspace import Workspace

app = typer.Typer(add_completion=False, rich_markup_mode=None)

LINE_COLUMNS: Final = {
    "STEPS": lambda one: str(one["steps"]),
    "KIND": lambda one: str(one["kind"]),
    "NAME": lambda one: str(one["name"]),
    "CONTENT": lambda one: str(one["content"]),
    "STATUS": lambda one: str(one["status"]) or NOTHING,
    "REWARD": lambda one: number_text(one["reward"]),
    "DURATION": lambda one: duration_text(one["duration_us"]),
    "STATE": lambda one: str(one["state"]) or NOTHING,
}

LINE_MINOR: Final = ("DURATION", "REWARD", "STATE", "NAME")


@app.command()
def show(
    context: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="SESSION[@STEP]", help="A session, or one event of it.")
    ],
    events: Annotated[bool, typer.Option("--events", help="One line for each event.")] = False,
    kind: Annotated[str | None, typer.Option(help="Only events of this kind.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only events of this actor.")] = None,
    content: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Of SESSION@STEP: write one content's exact bytes, as `result`, and no more.",
        ),
    ] = None,
) -> None:
    """Show a session, one line a call, or one event whole.

    A session is shown one line for each call with its return and for each other event; a branch
    with its parent's events up to the fork. SESSION@STEP shows one event: envelope, body, and each
    content decoded (JSON, text and values). A content of over 4 MiB in the blob store is shown by
    its digest; --content writes any.

    With --json: events, one a line.

    JSON keys: session, step, attempt, kind, event_id, event_digest, parent, partition, offset,
    time, actor, state_change, trace, body.
    """
    if kind is not None and kind not in BODY_OF_KIND:
        raise typer.BadParameter(f"no kind {kind!r}; the kinds are {', '.join(BODY_OF_KIND)}")
    output = Output.of(context)
    with opened(context) as ws:
        name, step = find_address(ws, session)
        if content is not None:
            _write_content(ws, name, step, content)
        elif step is not None:
            _show_event(ws, output, name, step)
        else:
            _show_session(ws, output, name, events=events, kind=kind, actor=actor)


def _show_session(
    ws: Workspace, output: Output, name: str, *, events: bool, kind: str | None, actor: str | None
) -> None:
    wanted = (
        (record, event)
        for record, event in _records(ws, name)
        if kind in (None, event.kind) and actor in (None, event.actor)
    )
    if output.as_json:
        output.print_records((event_row(*each, ws.read_content) for each in wanted), {})
        return
    output.note(_headline(ws.session(name)))
    if events:
        output.print_records(
            (event_cells(*each, ws.read_content) for each in wanted),
            EVENT_COLUMNS,
            minor=EVENT_MINOR,
        )
    else:
        lines = timeline(event for _, event in wanted)
        output.print_records(
            (_cells(line, ws.read_content) for line in lines), LINE_COLUMNS, minor=LINE_MINOR
        )


def _show_event(ws: Workspace, output: Output, name: str, step: int) -> None:
    row = event_row(*event_at(ws, name, step), ws.read_content)
    if output.as_json:
        output.print_json(row)
    else:
        print_event(output, row)


def _records(ws: Workspace, name: str) -> Iterator[tuple[LogRecord, Event]]:
    for record in ws.log.read_session(name):
        yield record, decode_event(record.data)


def _headline(info: SessionInfo) -> str:
    parts = [
        f"{info.session_id}: {info.environment}",
        f"{info.step_count} step{'' if info.step_count == 1 else 's'}",
        info.status,
        f"reward {number_text(info.reward)}"
        + (f" ({info.reward_from})" if info.reward_from else ""),
        f"state {info.state_coverage}",
    ]
    if info.voided is not None:
        parts.append(f"VOIDED at step {info.voided}")
    if info.parent_session is not None:
        parts.append(f"branch of {info.parent_session}@{info.parent_step}")
    if info.error is not None:
        parts.append(f"stopped: {info.error}")
    return ", ".join(parts)


def _cells(line: TimelineLine, fetch: FetchContent) -> Mapping[str, object]:
    return {
        **line._asdict(),
        "steps": str(line.step) if line.step == line.last_step else f"{line.step}-{line.last_step}",
        "content": " -> ".join(brief_content(content, fetch) for content in line.contents),
    }


def _write_content(ws: Workspace, name: str, step: int | None, field: str) -> None:
    if step is None:
        raise typer.BadParameter(f"--content is of one event: name {name}@STEP")
    _, event = event_at(ws, name, step)
    found = {place.rpartition(".")[2]: content for place, content in event.contents()}
    if field not in found:
        has = ", ".join(found) or "none"
        raise typer.BadParameter(f"this {event.kind} has no content {field!r}; it has {has}")
    sys.stdout.flush()
    sys.stdout.buffer.write(ws.read_content(found[field]))
