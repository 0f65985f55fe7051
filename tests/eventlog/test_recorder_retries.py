"""Retries under an idempotency key: how long a key is known, and what must not hide behind one."""

from collections import Counter
from collections.abc import Iterator

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.canonical import digest
from eventlog.codec import decode_event
from eventlog.errors import ConfigError, StepConflictError
from eventlog.event import Event, SessionSeeded, StateChange, StateChanged
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


# A block that runs although its call was answered.


def require_rerun(log: EventLog, state: object) -> None:
    event = events_of(log)[-1]
    assert event.body == StateChanged("a retried call ran again")
    assert isinstance(event.state_change, StateChange)
    assert event.state_change.digest == digest(state)


@pytest.mark.parametrize("fails", [False, True])
def test_a_state_changed_by_a_rerun_was_lost(log: MemoryLog, fails: bool) -> None:
    state = {"n": 0}
    session = begin(log, state=lambda: state)

    def act() -> None:
        with session.call("t", {}, idempotency_key="k") as call:
            state["n"] += 1
            if fails:
                raise ZeroDivisionError
            call.result = "done"

    for times in (1, 2, 3):
        if fails:
            with pytest.raises(ZeroDivisionError):
                act()
        else:
            act()
        assert session.state == {"n": times}
        assert session.step == 1 + times
    require_rerun(log, {"n": 3})
    session.close()


def test_a_rerun_that_changes_nothing_records_nothing(log: MemoryLog) -> None:
    state = {"n": 0}
    session = begin(log, state=lambda: state)
    for _ in range(3):
        with session.call("t", {}, idempotency_key="k") as call:
            state["n"] = 1
    assert (call.return_step, session.step) == (2, 2)


def test_two_blocks_of_one_open_call_keep_both_changes(log: MemoryLog) -> None:
    state = {"n": 0}
    session = begin(log, state=lambda: state)
    first = session.call("t", {}, idempotency_key="k")
    second = session.call("t", {}, idempotency_key="k")
    for call in (first, second):
        with call:
            state["n"] += 1
    assert first.return_step == second.return_step == 2
    require_rerun(log, {"n": 2})


def test_a_state_or_patch_said_by_a_rerun_was_lost(log: MemoryLog) -> None:
    session = begin(log, state={"n": 0})
    with session.call("t", {}, idempotency_key="k") as call:
        call.state = {"n": 1}
    with session.call("t", {}, idempotency_key="k") as call:
        call.state = {"n": 2}
    require_rerun(log, {"n": 2})
    with session.call("t", {}, idempotency_key="k") as call:
        call.patch = [["set", ["n"], 3]]
    require_rerun(log, {"n": 3})
    with session.call("t", {}, idempotency_key="k"):
        pass
    assert session.state == {"n": 3}
    assert session.step == 4


def test_a_rerun_that_cannot_be_recorded_does_not_hide_the_tools_exception(log: MemoryLog) -> None:
    state: dict[str, object] = {"n": 0}
    session = begin(log, state=lambda: state)
    with session.call("t", {}, idempotency_key="k"):
        pass

    def fail() -> None:
        state["bad"] = object()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught, session.call("t", {}, idempotency_key="k"):
        fail()
    (note,) = caught.value.__notes__
    assert "call of step 1 ran again, unrecorded: ValueNotEncodableError: " in note
