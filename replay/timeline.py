"""A session as lines to read: one for each call with its return, one for each other event. Pure.

Lines come in the order of their first steps. A call that is still open holds back what comes after
it, so that its line can tell its answer; a call that stays open for long is told as open, and its
return on a line of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from eventlog.content import Content
from eventlog.event import Event, StateChange, ToolCalled, ToolReturned, Verified

HELD_LINES_MAX: Final = 1_000
"""Lines held back by one open call; beyond it the call is told as open."""

CALL: Final = "call"
"""The kind of a line that tells a call; its status is `open` until it returned."""

_Body = TypeVar("_Body")

# What names the event best, for each kind: the text of a field, or of several.
_NAMES: Final[dict[str, Callable[[Any], str]]] = {
    "session_seeded": lambda body: _joined(body.environment, body.task_id, seed=body.seed),
    "tool_called": lambda body: body.tool,
    "tool_returned": lambda body: f"of step {body.called_step}",
    "verified": lambda body: _joined(body.verifier, about_step=body.about_step),
    "message_added": lambda body: body.role,
    "effect_recorded": lambda body: _joined(body.effect, body.name),
    "state_changed": lambda body: body.reason,
    "annotated": lambda body: _joined(body.name, about_step=body.about_step),
    "session_forked": lambda body: f"{body.parent_session}@{body.parent_step}",
    "session_resumed": lambda body: _joined(body.reason, after_step=body.from_step),
    "session_released": lambda body: _joined("", to=body.to_writer),
    "session_closed": lambda body: _joined(body.reason, body.error_type),
    "session_lost": lambda body: body.reason,
    "checkpoint_begun": lambda body: _joined(body.training_session, step=body.training_step),
    "checkpoint_committed": lambda body: _joined("", step=body.training_step),
    "gap_observed": lambda body: body.detail,
    "subject_erased": lambda body: _joined(body.subject, body.reason),
}


class TimelineLine(NamedTuple):
    """One line. `last_step` is the return's step for a call that returned, else `step`.

    `name` says who or what (a tool, a role, a verifier); `contents` are what was said: a call's
    arguments and result, a message's text. `state` is `changed`, `unknown` or empty. Times in
    microseconds.
    """

    step: int
    last_step: int
    kind: str
    name: str
    contents: tuple[Content, ...]
    status: str
    reward: float | None
    duration_us: int | None
    state: str
    time: int


def timeline(events: Iterable[Event]) -> Iterator[TimelineLine]:
    """The lines of a session's events, which are given from the first step to show on."""
    held: dict[int, TimelineLine] = {}
    open_steps: set[int] = set()
    for event in events:
        body = event.body
        if isinstance(body, ToolReturned) and body.called_step in open_steps:
            open_steps.remove(body.called_step)
            held[body.called_step] = _answered(held[body.called_step], event, body)
        elif isinstance(body, ToolCalled):
            open_steps.add(event.step)
            held[event.step] = event_line(event)._replace(kind=CALL, status="open")
        else:
            held[event.step] = event_line(event)
        if len(held) > HELD_LINES_MAX:
            open_steps.discard(next(iter(held)))
        while held and (first := next(iter(held))) not in open_steps:
            yield held.pop(first)
    yield from held.values()


def event_line(event: Event) -> TimelineLine:
    """The line of one event by itself."""
    body = event.body
    change = event.state_change
    return TimelineLine(
        step=event.step,
        last_step=event.step,
        kind=event.kind,
        name=_NAMES[event.kind](body),
        contents=tuple(content for name, content in event.contents() if name in _TOLD_CONTENTS),
        status=body.status if isinstance(body, ToolReturned) else "",
        reward=body.reward if isinstance(body, ToolReturned | Verified) else None,
        duration_us=getattr(body, "duration_us", None),
        state="" if change is None else _state_word(change),
        time=event.time,
    )


_TOLD_CONTENTS: Final = frozenset(
    {"body.arguments", "body.result", "body.content", "body.value", "body.request", "body.output"}
)


def _answered(line: TimelineLine, event: Event, answer: ToolReturned) -> TimelineLine:
    told = event_line(event)
    return told._replace(
        step=line.step,
        kind=CALL,
        name=line.name,
        contents=line.contents + told.contents,
        status=answer.status,
        time=line.time,
    )


def _state_word(change: object) -> str:
    return "changed" if isinstance(change, StateChange) else "unknown"


def _joined(*parts: str | None, **named: object) -> str:
    told = [part for part in parts if part]
    told += [
        f"{name.replace('_', ' ')} {value}" for name, value in named.items() if value is not None
    ]
    return ", ".join(told)
