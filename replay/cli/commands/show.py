"""`steplog show`: a session as lines to read, its events, or one event whole."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer

from eventlog.codec import decode_event
from eventlog.event import BODY_OF_KIND, Event
from eventlog.log import LogRecord, SessionInfo
from replay.cli.content_text import brief_content, brief_json, whole_content
from replay.cli.event_lines import EVENT_COLUMNS, event_cells
from replay.cli.opened import find_address, opened
from replay.cli.output import NOTHING, Output, duration_text, number_text, time_text
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


_ENVELOPE: Final = (
    "session",
    "step",
    "attempt",
    "kind",
    "event_id",
    "event_digest",
    "parent",
    "time",
    "actor",
)

FIELD_CHARS: Final = 200
"""A field of a body that is longer is cut; `--json` has it whole."""


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

    --json: events, one a line: {"session","step","attempt","kind","event_id","event_digest",
    "parent","offset","time","actor","state_change","trace","body"}. A content is {"media_type",
    "size","blob","value"}: blob (SHA-256) where it stands in the blob store, no value over 4 MiB.
    """
    if kind is not None and kind not in BODY_OF_KIND:
        raise typer.BadParameter(f"no kind {kind!r}; the kinds are {', '.join(BODY_OF_KIND)}")
    output = Output.of(context)
    with opened(context) as ws:
        name, step = find_address(ws, session)
        if content is not None:
            _write_content(ws, name, step, content)
        elif step is not None:
            _show_event(ws, output, *_event_at(ws, name, step))
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
            (event_cells(*each, ws.read_content) for each in wanted), EVENT_COLUMNS
        )
    else:
        lines = timeline(event for _, event in wanted)
        output.print_records((_cells(line, ws.read_content) for line in lines), LINE_COLUMNS)


def _records(
    ws: Workspace, name: str, start_step: int = 0, end_step: int | None = None
) -> Iterator[tuple[LogRecord, Event]]:
    for record in ws.log.read_session(name, start_step, end_step):
        yield record, decode_event(record.data)


def _event_at(ws: Workspace, name: str, step: int) -> tuple[LogRecord, Event]:
    return next(_records(ws, name, step, step + 1))


def _headline(info: SessionInfo) -> str:
    parts = [
        f"{info.session_id}: {info.environment}",
        f"{info.step_count} steps",
        info.status,
        f"reward {number_text(info.reward)}"
        + (f" ({info.reward_from})" if info.reward_from else ""),
        f"state {info.state_coverage}",
    ]
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


def _show_event(ws: Workspace, output: Output, record: LogRecord, event: Event) -> None:
    row = event_row(record, event, ws.read_content)
    if output.as_json:
        output.print_json(row)
        return
    body, change = row["body"], row["state_change"]
    assert isinstance(body, dict)
    fields = {name: row[name] for name in _ENVELOPE} | {"time": time_text(event.time)}
    blocks = {name: value for name, value in body.items() if _is_content(value)}
    fields |= {name: value for name, value in body.items() if name not in blocks}
    if isinstance(change, dict):
        fields["state"] = f"unknown: {change['unknown']}" if "unknown" in change else "changed"
        if "patch" in change:
            fields["state_digest"] = change["state_digest"]
            blocks["state_change"] = change["patch"]
    told = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    output.print_fields({name: brief_json(value, FIELD_CHARS) for name, value in told.items()})
    for name, value in blocks.items():
        _print_block(output, name, value)


def _is_content(value: object) -> bool:
    return isinstance(value, dict) and "media_type" in value


def _print_block(output: Output, name: str, content: Mapping[str, object]) -> None:
    output.print_text(f"{name} ({content['media_type']}, {content['size']} bytes):")
    for line in whole_content(content).expandtabs().split("\n"):
        output.print_text(f"  {line}")


def _write_content(ws: Workspace, name: str, step: int | None, field: str) -> None:
    if step is None:
        raise typer.BadParameter(f"--content is of one event: name {name}@STEP")
    _, event = _event_at(ws, name, step)
    found = {place.rpartition(".")[2]: content for place, content in event.contents()}
    if field not in found:
        has = ", ".join(found) or "none"
        raise typer.BadParameter(f"this {event.kind} has no content {field!r}; it has {has}")
    sys.stdout.flush()
    sys.stdout.buffer.write(ws.read_content(found[field]))
