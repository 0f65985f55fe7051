"""One event whole, as a person reads it: what `show SESSION@STEP` and `diff` print."""

from collections.abc import Mapping
from typing import Final

from eventlog.codec import decode_event
from eventlog.event import Event
from eventlog.log import LogRecord
from replay.cli.content_text import brief_json, whole_content
from replay.cli.output import Output, Record, time_text
from replay.workspace import Workspace

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


def event_at(ws: Workspace, session: str, step: int) -> tuple[LogRecord, Event]:
    """The standing event of a step. Raises `SessionNotFoundError`, `StepNotFoundError`."""
    record = next(ws.log.read_session(session, step, step + 1))
    return record, decode_event(record.data)


def print_event(output: Output, row: Record) -> None:
    """Print an event, given as its row: the envelope, the body's fields, each content decoded."""
    body, change = row["body"], row["state_change"]
    assert isinstance(body, dict)
    fields = {name: row[name] for name in _ENVELOPE} | {"time": time_text(row["time"])}
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
