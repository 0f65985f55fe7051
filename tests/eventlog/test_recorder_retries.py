"""Retries under an idempotency key: how long a key is known, and what must not hide behind one."""

from collections import Counter
from collections.abc import Iterator

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.codec import decode_event
from eventlog.errors import ConfigError, StepConflictError
from eventlog.event import Event, SessionSeeded
from eventlog.log import EventLog
from eventlog.memory_log import MemoryLog
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from eventlog.recording import call_book
from eventlog.recording.call_book import CallBook

SEEDED = SessionSeeded(environment="test", reducer="captured")


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    with MemoryLog() as log:
        yield log


def begin(log: EventLog, state: object = NOT_GIVEN) -> SessionRecorder:
    return SessionRecorder.begin(log, MemoryBlobStore(), "s", SEEDED, state=state)


def events_of(log: EventLog) -> list[Event]:
    return [decode_event(record.data) for record in log.read_session("s")]


# How long a key is known.


def test_a_key_was_forgotten_after_1024_others(log: MemoryLog) -> None:
    session = begin(log)
    stays_open = session.record_tool_call("t", {}, idempotency_key="open")
    answered = session.record_tool_call("t", {}, idempotency_key="answered")
    answer = session.record_tool_return(answered, "x")
    for number in range(1_100):
        call = session.record_tool_call("t", {}, idempotency_key=f"other {number}")
        session.record_tool_return(call, "x")
    last = session.step
    assert session.record_tool_call("t", {}, idempotency_key="open") == stays_open
    assert session.record_tool_call("t", {}, idempotency_key="answered") == answered
    assert session.record_tool_return(answered, "y") == answer
    with session.call("t", {}, idempotency_key="answered") as retried:
        assert retried.return_step == answer
    assert session.step == last
    assert session.record_tool_return(stays_open, "late") == last + 1
    ids = Counter(event.event_id for event in events_of(log))
    assert max(ids.values()) == 1


def test_a_book_made_from_the_events_knows_every_key(log: MemoryLog) -> None:
    session = begin(log)
    for number in range(1_100):
        call = session.record_tool_call("t", {"n": number}, idempotency_key=f"{number}")
        session.record_tool_return(call, "x")
    book = CallBook()
    events = events_of(log)
    for event in events:
        book.note_event(event)
    for event in events:
        if event.kind == "tool_called":
            assert book.retried_call(event.body) == event.step  # type: ignore[arg-type]
            assert book.return_of(event.step) == event.step + 1


def test_one_key_too_many_is_refused(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_book, "KEYED_CALLS_MAX", 2)
    session = begin(log)
    first = session.record_tool_call("t", {}, idempotency_key="a")
    session.record_tool_call("t", {}, idempotency_key="b")
    with pytest.raises(ConfigError, match="2 calls with an idempotency key"):
        session.record_tool_call("t", {}, idempotency_key="c")
    assert session.record_tool_call("t", {}, idempotency_key="a") == first
    assert session.record_tool_call("t", {}) == 3


# What must not hide behind a key.


def test_another_call_under_a_known_key_was_swallowed(log: MemoryLog) -> None:
    state = {"n": 0}
    session = begin(log, state=lambda: state)
    with session.call("refund", {"order": "A1"}, idempotency_key="k") as call:
        call.result = "refunded"
    for tool, arguments in (("delete", {"order": "A1"}), ("refund", {"order": "A2"})):
        with pytest.raises(StepConflictError, match="another tool or other arguments"):
            session.record_tool_call(tool, arguments, idempotency_key="k")
        with pytest.raises(StepConflictError), session.call(tool, arguments, idempotency_key="k"):
            state["n"] += 100
    assert state == {"n": 0}
    assert session.step == 2
    assert session.record_tool_call("refund", {"order": "A1"}, idempotency_key="k") == 1


def test_large_arguments_in_a_blob_are_the_same_arguments(log: MemoryLog) -> None:
    session = begin(log)
    large = {"text": "x" * 400_000}
    step = session.record_tool_call("t", large, idempotency_key="k")
    session.flush()
    book = CallBook()
    for event in events_of(log):
        book.note_event(event)
    session._calls = book
    assert session.record_tool_call("t", large, idempotency_key="k") == step
    with pytest.raises(StepConflictError):
        session.record_tool_call("t", {"text": "y" * 400_000}, idempotency_key="k")
