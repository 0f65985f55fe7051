"""`CallRecorder`: what a retry is told, and what a call that fails half-way leaves behind."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.canonical import decode, digest, encode
from eventlog.codec import EncodedEvent, decode_event
from eventlog.errors import (
    ConfigError,
    FencedError,
    LogUnavailableError,
    RecorderEndedError,
    StateError,
    StepConflictError,
    StepNotFoundError,
    ValueNotEncodableError,
)
from eventlog.event import Body, SessionSeeded, StateChange, ToolReturned, Verified
from eventlog.log import EventLog, Receipt
from eventlog.memory_log import MemoryLog
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from eventlog.recording.recorded_call import RecordedCall
from eventlog.state_patch import apply, diff
from tests.support.keepers import KEEPERS, Keeper, open_keeper

SEEDED = SessionSeeded(environment="test", reducer="captured")


@pytest.fixture(params=KEEPERS)
def keeper(request: pytest.FixtureRequest) -> Iterator[Keeper]:
    with open_keeper(request) as opened:
        yield opened


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    with MemoryLog() as log:
        yield log


def begin(log: EventLog, state: object = NOT_GIVEN) -> SessionRecorder:
    return SessionRecorder.begin(log, MemoryBlobStore(), "s", SEEDED, state=state)


def bodies(log: EventLog) -> list[Body]:
    return [decode_event(record.data).body for record in log.read_session("s")]


def take_away(keeper: Keeper) -> None:
    """Another handle resumes the session."""
    head = keeper.log.session_info("s").head
    keeper.another_handle().take_over(["s"], stands_on={"s": head.digest}, reason="resume")


# A retry is told only of what is in the log.


def test_a_retry_was_told_of_a_call_that_was_never_written(keeper: Keeper) -> None:
    session = begin(keeper.log)
    take_away(keeper)
    for _ in range(3):
        with pytest.raises(FencedError):
            session.record_tool_call("pay", {}, idempotency_key="k", effects="external")
        with pytest.raises(FencedError):
            session.call("pay", {}, idempotency_key="k", effects="external")
    assert len(bodies(keeper.log)) == 2


def test_a_retry_was_told_of_an_answer_that_was_never_written(keeper: Keeper) -> None:
    session = begin(keeper.log)
    call = session.record_tool_call("pay", {}, idempotency_key="k", effects="external")
    take_away(keeper)
    for _ in range(3):
        with pytest.raises(FencedError):
            session.record_tool_return(call, "paid")
    assert not any(isinstance(body, ToolReturned) for body in bodies(keeper.log))


def test_a_retry_after_a_release_or_a_close_is_refused(keeper: Keeper) -> None:
    session = begin(keeper.log)
    call = session.record_tool_call("pay", {}, idempotency_key="k")
    session.record_tool_return(call, "paid")
    session.release()
    other = SessionRecorder.begin(keeper.log, MemoryBlobStore(), "t", SEEDED)
    call = other.record_tool_call("pay", {}, idempotency_key="k")
    other.record_tool_return(call, "paid")
    other.close()
    for recorder, refusal in ((session, FencedError), (other, StepConflictError)):
        with pytest.raises(refusal):
            recorder.record_tool_call("pay", {}, idempotency_key="k")
        with pytest.raises(refusal):
            recorder.record_tool_return(call, "paid")
        with pytest.raises(refusal):
            recorder.call("pay", {}, idempotency_key="k")


class SlowLog(MemoryLog):
    """A log whose answers to appends are held back until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Future[Receipt], Future[Receipt]]] | None = None

    def submit_events(
        self, session_id: str, events: Sequence[EncodedEvent], *, expected_step: int
    ) -> "Future[Receipt]":
        """As the log in memory, but not answered yet while `held` is a list."""
        done = super().submit_events(session_id, events, expected_step=expected_step)
        if self.held is None:
            return done
        waiting: Future[Receipt] = Future()
        self.held.append((waiting, done))
        return waiting


def test_a_retry_waits_until_its_call_is_durable() -> None:
    with SlowLog() as log:
        session = begin(log)
        log.held = []
        call = session.record_tool_call("pay", {}, idempotency_key="k")
        told: list[int] = []
        retry = threading.Thread(
            target=lambda: told.append(session.record_tool_call("pay", {}, idempotency_key="k"))
        )
        retry.start()
        retry.join(0.05)
        assert told == []
        ((waiting, done),) = log.held
        log.held = None
        waiting.set_result(done.result())
        retry.join(30)
        assert told == [call]


def test_a_retry_is_refused_once_its_call_has_failed() -> None:
    with SlowLog() as log:
        session = begin(log)
        log.held = []
        session.record_tool_call("pay", {}, idempotency_key="k")
        log.held[0][0].set_exception(LogUnavailableError("disk full", hint=""))
        for refusal in (LogUnavailableError, RecorderEndedError):
            with pytest.raises(refusal):
                session.record_tool_call("pay", {}, idempotency_key="k")


# A call whose tool raises.


def test_a_failed_capture_does_not_hide_the_tools_exception(log: MemoryLog) -> None:
    state: dict[str, object] = {"n": 0}
    session = begin(log, state=lambda: state)

    def fail() -> None:
        state["bad"] = object()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught, session.call("div", {}):
        fail()
    (note,) = caught.value.__notes__
    assert "call of step 1 stays open: ValueNotEncodableError: " in note
    assert "$.bad" in note
    assert [call.step for call in session.open_calls] == [1]
    del state["bad"]
    assert session.record_tool_return(1, "failed", status="error") == 2


def test_a_state_callable_that_raises_does_not_hide_the_tools_exception(log: MemoryLog) -> None:
    asked: list[int] = []

    def read_state() -> object:
        asked.append(1)
        if len(asked) > 1:
            raise LookupError("the database is gone")
        return {}

    session = begin(log, state=read_state)
    with pytest.raises(ZeroDivisionError) as caught, session.call("div", {}):
        _ = 1 / 0
    assert "LookupError: the database is gone" in caught.value.__notes__[0]
    with pytest.raises(LookupError), session.call("fine", {}):
        pass
    assert [call.tool for call in session.open_calls] == ["div", "fine"]


def test_a_log_that_is_lost_does_not_hide_the_tools_exception(keeper: Keeper) -> None:
    session = begin(keeper.log)

    def fail() -> None:
        take_away(keeper)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught, session, session.call("div", {}):
        fail()
    of_call, of_session = caught.value.__notes__
    assert "the call of step 1 was not answered: FencedError: the session is held by" in of_call
    assert "this recorder of 's' was fenced" in of_session
    assert "stays open" not in of_call + of_session


def test_a_reward_set_before_an_exception_was_lost(log: MemoryLog) -> None:
    def fail(call: RecordedCall) -> None:
        call.reward = 0.25
        raise ValueError("late")

    session = begin(log)
    with pytest.raises(ValueError, match="late"), session.call("t", {}) as call:
        fail(call)
    returned = bodies(log)[-1]
    assert isinstance(returned, ToolReturned)
    assert (returned.reward, returned.status) == (0.25, "error")


@pytest.mark.parametrize(
    ("status", "error", "recorded"),
    [
        ("invalid", None, "invalid"),
        ("timeout", None, "timeout"),
        ("invalid", ValueError("x"), "invalid"),
        ("ok", ValueError("x"), "error"),
        ("ok", TimeoutError("x"), "timeout"),
        ("cancelled", TimeoutError("x"), "cancelled"),
    ],
)
def test_a_status_set_by_hand_stands(
    log: MemoryLog, status: str, error: Exception | None, recorded: str
) -> None:
    session = begin(log)
    with suppress(ValueError, TimeoutError), session.call("t", {}) as call:
        call.status = status  # type: ignore[assignment]
        if error is not None:
            raise error
    returned = bodies(log)[-1]
    assert isinstance(returned, ToolReturned)
    assert returned.status == recorded


def test_a_cancelled_future_closed_the_session_with_an_error(log: MemoryLog) -> None:
    """`concurrent.futures.CancelledError` is an Exception; asyncio's is not."""
    cancelled: Future[None] = Future()
    cancelled.cancel()
    with pytest.raises(CancelledError), begin(log) as session, session.call("slow", {}):
        cancelled.result()
    assert log.session_info("s").status == "open"
    assert [call.tool for call in session.open_calls] == ["slow"]
    assert session.record_message("user", "go on") == 2


# Steps that events name.


@pytest.mark.parametrize("step", [-1, 3, 10**6])
def test_a_step_that_is_not_there_was_named(log: MemoryLog, step: int) -> None:
    session = begin(log)
    call = session.record_tool_call("t", {})
    first = session.record_tool_return(call, "x")
    again = session.record_tool_call("t", {})
    acts: list[Callable[[int], int]] = [
        lambda n: session.record_verification(1.0, verifier="v", about_step=n),
        lambda n: session.record_verification(1.0, verifier="v", supersedes_step=n),
        lambda n: session.annotate("note", "x", about_step=n),
        lambda n: session.record_tool_return(again, "x", duplicate_of=n),
    ]
    for act in acts:
        for wrong in (step, session.step + 1):
            if 0 <= wrong <= session.step:
                continue
            with pytest.raises(StepNotFoundError, match=f"={wrong} is no step"):
                act(wrong)
    assert [act(first) for act in acts] == [4, 5, 6, 7]
    returned, verified = bodies(log)[7], bodies(log)[4]
    assert isinstance(returned, ToolReturned)
    assert isinstance(verified, Verified)
    assert (returned.duplicate_of, verified.about_step) == (first, first)


# Patches that the environment knows.


def test_a_patch_of_the_environment_is_taken(log: MemoryLog) -> None:
    before, after = {"n": 0, "items": [1, 2]}, {"n": 1, "items": [1, 2, (3, 4)]}
    asked: list[int] = []

    def read_state() -> object:
        asked.append(1)
        return before

    session = begin(log, state=read_state)
    patch = diff(before, after)
    session.record_tool_return(session.record_tool_call("t", {}), "x", patch=patch)
    assert session.state == after
    event = decode_event(list(log.read_session("s"))[-1].data)
    assert isinstance(event.state_change, StateChange)
    assert event.state_change.digest == digest(after)
    assert event.state_change.patch.data == encode(patch)
    assert isinstance(event.state_change.patch.data, bytes)
    assert apply(decode(event.state_change.patch.data, opaque=True), before) == after
    with session.call("t", {}) as call:
        call.patch = [["set", ["n"], 2]]
    assert session.state == {**after, "n": 2}
    with session.call("t", {}) as call:
        call.patch = []
    assert decode_event(list(log.read_session("s"))[-1].data).state_change is None
    assert len(asked) == 1, "at the begin only"


def test_a_patch_that_does_not_fit_is_refused_and_changes_nothing(log: MemoryLog) -> None:
    session = begin(log, state={"n": 0})
    call = session.record_tool_call("t", {})
    for patch in ([["del", ["missing"]]], [["what", []]], {"n": 1}, "text"):
        with pytest.raises(StateError, match="does not fit"):
            session.record_tool_return(call, "x", patch=patch)
    with pytest.raises(ValueNotEncodableError):
        session.record_tool_return(call, "x", patch=[["set", ["n"], object()]])
    with pytest.raises(ConfigError, match="both"):
        session.record_tool_return(call, "x", patch=[], state={"n": 1})
    assert session.state == {"n": 0}
    session.record_tool_return(call, "x")
    call = session.record_tool_call("t", {})
    with pytest.raises(StateError, match="not known"):
        session.record_tool_return(call, "x", patch=[["set", ["n"], 1]])
    session.record_tool_return(call, "x", state={"n": 5})
    call = session.record_tool_call("t", {})
    session.record_tool_return(call, "x", patch=[["set", ["n"], 6]])
    assert session.state == {"n": 6}
    stateless = SessionRecorder.begin(log, MemoryBlobStore(), "t", SEEDED)
    call = stateless.record_tool_call("t", {})
    with pytest.raises(StepConflictError, match="without a state"):
        stateless.record_tool_return(call, "x", patch=[])
