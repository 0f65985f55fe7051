"""A session as lines: calls with their returns, in the order of their first steps."""

import random
from collections.abc import Iterable

from eventlog.content import Content
from eventlog.event import (
    NO_PARENT,
    Body,
    Event,
    LineHead,
    MessageAdded,
    StateChange,
    StateUnknown,
    ToolCalled,
    ToolReturned,
)
from replay.timeline import HELD_LINES_MAX, event_line, timeline
from tests.support.events import KINDS, random_event

SOME_STATE = StateChange(Content.of_value([]), bytes(32))


def line_of(*bodies: Body) -> list[Event]:
    """Events of these bodies, from step 0 on."""
    return [
        Event.following(
            LineHead("s", step - 1, 1, NO_PARENT),
            body,
            event_id=bytes(16),
            time=step,
            actor="agent",
            state_change=SOME_STATE if isinstance(body, ToolReturned) else None,
        )
        for step, body in enumerate(bodies)
    ]


def call(tool: str) -> ToolCalled:
    """A call."""
    return ToolCalled(tool, Content.of_text(tool))


def answer(step: int, status: str = "ok") -> ToolReturned:
    """The return of the call of that step."""
    return ToolReturned(step, status, Content.of_text("done"), duration_us=7, reward=0.5)


def said(text: str) -> MessageAdded:
    """A message."""
    return MessageAdded("user", Content.of_text(text))


def told(events: Iterable[Event]) -> list[tuple[int, int, str, str]]:
    """Steps, kind and status of each line."""
    return [(one.step, one.last_step, one.kind, one.status) for one in timeline(events)]


def test_a_call_and_its_return_are_one_line() -> None:
    (line,) = timeline(line_of(call("add"), answer(0, "error")))
    assert line == (0, 1, "call", "add", line.contents, "error", 0.5, 7, "changed", 0)
    assert line.contents == (Content.of_text("add"), Content.of_text("done"))


def test_calls_at_once_come_in_the_order_made() -> None:
    events = line_of(
        *(call("a"), call("b"), said("x"), answer(1), call("c"), answer(0), answer(4), said("y"))
    )
    assert told(events) == [
        (0, 5, "call", "ok"),
        (1, 3, "call", "ok"),
        (2, 2, "message_added", ""),
        (4, 6, "call", "ok"),
        (7, 7, "message_added", ""),
    ]


def test_lines_come_as_soon_as_nothing_before_them_is_open() -> None:
    events = line_of(said("x"), call("a"), said("y"), answer(1), said("z"))
    read = 0

    def counted() -> Iterable[Event]:
        nonlocal read
        for event in events:
            read += 1
            yield event

    assert [(line.step, read) for line in timeline(counted())] == [(0, 1), (1, 4), (2, 4), (4, 5)]


def test_open_calls_stand_in_their_place() -> None:
    events = line_of(call("a"), said("x"), call("b"), answer(2))
    assert told(events) == [
        (0, 0, "call", "open"),
        (1, 1, "message_added", ""),
        (2, 3, "call", "ok"),
    ]


def test_a_call_open_for_long_holds_back_only_so_much() -> None:
    many = [said(str(number)) for number in range(HELD_LINES_MAX)]
    lines = told(line_of(call("a"), *many, answer(0), said("last")))
    assert lines[0] == (0, 0, "call", "open")
    assert lines[-2] == (HELD_LINES_MAX + 1, HELD_LINES_MAX + 1, "tool_returned", "ok")
    assert [line[0] for line in lines] == list(range(HELD_LINES_MAX + 3))


def test_a_return_whose_call_was_not_given_is_a_line_of_its_own() -> None:
    (line,) = timeline(line_of(said("x"), answer(0))[1:])
    assert (line.step, line.kind, line.name) == (1, "tool_returned", "of step 0")


def test_every_kind_has_a_line() -> None:
    rng = random.Random(5)
    for kind in KINDS:
        for _ in range(20):
            event = random_event(rng, kind)
            line = event_line(event)
            assert (line.step, line.kind) == (event.step, kind)
            assert isinstance(line.name, str)
            change = event.state_change
            expected = {StateChange: "changed", StateUnknown: "unknown"}.get(type(change), "")
            assert line.state == expected
