"""`Event`: made only to follow, kinds pinned, contents listed, session ids bounded."""

import random

import pytest

from eventlog.content import Content
from eventlog.event import (
    BODY_OF_KIND,
    FIRST_ATTEMPT,
    KIND_OF_BODY,
    NO_PARENT,
    Event,
    GapObserved,
    LineHead,
    MessageAdded,
    StateChange,
    StateUnknown,
    session_id_problem,
)
from tests.support.events import KINDS, random_event

PINNED_KINDS = {
    "session_seeded", "tool_called", "tool_returned", "verified", "message_added",
    "effect_recorded", "state_changed", "annotated", "session_forked", "session_resumed",
    "session_released", "session_closed", "session_lost", "checkpoint_begun",
    "checkpoint_committed", "gap_observed", "subject_erased",
}  # fmt: skip


def test_kinds_are_pinned() -> None:
    """A kind once released is never renamed: this list only ever grows."""
    assert set(BODY_OF_KIND) == PINNED_KINDS
    assert {KIND_OF_BODY[body]: body for body in KIND_OF_BODY} == dict(BODY_OF_KIND)


def test_the_first_event_stands_on_nothing() -> None:
    head = LineHead.before_seed("s")
    event = Event.following(head, GapObserved("x"), event_id=bytes(16), time=7, actor="system")
    assert (event.session_id, event.step, event.attempt) == ("s", 0, FIRST_ATTEMPT)
    assert event.parent == NO_PARENT
    assert (event.kind, event.time, event.actor) == ("gap_observed", 7, "system")
    assert event.state_change is None
    assert event.trace is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_follows_the_head(kind: str) -> None:
    made = random_event(random.Random(kind), kind)
    head = LineHead("s", 41, 3, b"\x05" * 32)
    event = Event.following(
        head,
        made.body,
        event_id=made.event_id,
        time=made.time,
        actor=made.actor,
        state_change=made.state_change,
        trace=made.trace,
    )
    assert event == made._replace(session_id="s", step=42, attempt=3, parent=b"\x05" * 32)


def test_contents_are_all_listed_with_their_fields() -> None:
    note, patch = Content("text/plain", b"a"), Content("x/patch", b"b")
    event = Event.following(
        LineHead.before_seed("s"),
        MessageAdded("user", note, tokens=patch),
        event_id=bytes(16),
        time=0,
        actor="agent",
        state_change=StateChange(patch, bytes(32)),
    )
    assert list(event.contents()) == [
        ("state_change.patch", patch),
        ("body.content", note),
        ("body.tokens", patch),
    ]
    bare = event._replace(state_change=StateUnknown("lost"), body=GapObserved("x"))
    assert list(bare.contents()) == []


@pytest.mark.parametrize(
    "session_id", ["a", " ", "x" * 255, "é" * 127, "a/b@3~2", "\u2028", "\U0001f600"]
)
def test_good_session_ids(session_id: str) -> None:
    assert session_id_problem(session_id) is None


@pytest.mark.parametrize(
    ("session_id", "words"),
    [
        ("", "0 bytes"),
        ("x" * 256, "256 bytes"),
        ("é" * 128, "256 bytes"),
        ("a\x00", "control character at index 1"),
        ("a\nb", "control character at index 1"),
        ("\x7f", "control character at index 0"),
        ("\x9f", "control character at index 0"),
        ("a\ud800", "lone surrogate at index 1"),
    ],
)
def test_bad_session_ids(session_id: str, words: str) -> None:
    assert words in (session_id_problem(session_id) or "")
