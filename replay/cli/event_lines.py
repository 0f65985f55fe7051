"""Events as lines: what `show --events` and `tail` print of each."""

from collections.abc import Mapping
from typing import Final

from eventlog.event import Event
from eventlog.log import LogRecord
from replay.cli.content_text import brief_content
from replay.cli.output import Columns, time_text
from replay.timeline import event_line
from replay.views import FetchContent

EVENT_COLUMNS: Final[Columns] = {
    "SESSION": lambda one: str(one["session"]),
    "STEP": lambda one: str(one["step"]),
    "ATTEMPT": lambda one: str(one["attempt"]),
    "KIND": lambda one: str(one["kind"]),
    "TIME": lambda one: str(one["time"]),
    "ACTOR": lambda one: str(one["actor"]),
    "DIGEST": lambda one: str(one["digest"]),
    "NAME": lambda one: str(one["name"]),
    "CONTENT": lambda one: str(one["content"]),
}

EVENT_MINOR: Final = ("DIGEST", "ATTEMPT", "ACTOR", "TIME", "NAME")


def event_cells(record: LogRecord, event: Event, fetch: FetchContent) -> Mapping[str, object]:
    """The cells of one event's line."""
    line = event_line(event)
    return {
        "session": event.session_id,
        "step": event.step,
        "attempt": event.attempt,
        "kind": event.kind,
        "time": time_text(event.time),
        "actor": event.actor,
        "digest": record.digest.hex()[:12],
        "name": line.name,
        "content": " -> ".join(brief_content(content, fetch) for content in line.contents),
    }
