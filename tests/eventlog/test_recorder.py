"""`SessionRecorder`: what is recorded, what it stands on, and what it refuses."""

import itertools
import multiprocessing
import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.canonical import decode, digest
from eventlog.codec import decode_event
from eventlog.content import JsonText, read_content
from eventlog.errors import (
    EventTooLargeError,
    FencedError,
    NotRestorableError,
    SessionExistsError,
    StepConflictError,
    StepNotFoundError,
    ValueNotEncodableError,
)
from eventlog.event import (
    Event,
    MessageAdded,
    SessionClosed,
    SessionSeeded,
    StateChange,
    StateUnknown,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.memory_log import MemoryLog
from eventlog.merkle_root import MerkleRoot
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from eventlog.state_patch import apply

Begin = Callable[..., SessionRecorder]


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    with MemoryLog() as log:
        yield log


@pytest.fixture
def blobs() -> MemoryBlobStore:
    return MemoryBlobStore()


@pytest.fixture
def begin(log: MemoryLog, blobs: MemoryBlobStore) -> Begin:
    def begin(name: str = "s", state: object = NOT_GIVEN) -> SessionRecorder:
        seeded = SessionSeeded(environment="test", reducer="captured")
        return SessionRecorder.begin(log, blobs, name, seeded, state=state)

    return begin


def events_of(log: MemoryLog, name: str = "s") -> list[Event]:
    return [decode_event(record.data) for record in log.read_session(name)]


def test_each_record_gives_its_step_and_stands_on_the_one_before(
    log: MemoryLog, begin: Begin
) -> None:
    session = begin()
    call = session.record_tool_call("lookup", '{"order" : 1}', call_id="c1")
    assert (call, session.record_tool_return(call, "found")) == (1, 2)
    session.record_verification(1.0, verifier="rules", components={"policy": 1.0})
    session.close()
    records = list(log.read_session("s"))
    assert [record.prefix.step for record in records] == [0, 1, 2, 3, 4]
    for before, after in itertools.pairwise(records):
        assert after.prefix.parent == before.digest
    kinds = [event.kind for event in events_of(log)]
    assert kinds == ["session_seeded", "tool_called", "tool_returned", "verified", "session_closed"]


def test_the_close_holds_count_and_root_of_all_events_before_it(
    log: MemoryLog, begin: Begin
) -> None:
    session = begin()
    session.record_message("user", "hello")
    session.close()
    records = list(log.read_session("s"))
    root = MerkleRoot()
    for record in records[:-1]:
        root.add(record.data)
    closed = decode_event(records[-1].data).body
    assert isinstance(closed, SessionClosed)
    assert (closed.event_count, closed.root) == (2, root.root())


def test_a_callable_state_is_captured_at_every_return(log: MemoryLog, begin: Begin) -> None:
    state = {"count": 0}
    with begin(state=lambda: state) as session:
        for number in (1, 2):
            with session.call("add", {"n": number}) as call:
                state["count"] += number
                call.result = state["count"]
    changes = [event.state_change for event in events_of(log) if event.kind == "tool_returned"]
    assert [change.digest for change in changes if isinstance(change, StateChange)] == [
        digest({"count": 1}),
        digest({"count": 3}),
    ]


def test_a_pure_tool_leaves_the_state_alone(begin: Begin) -> None:
    asked: list[int] = []
    session = begin(state=lambda: asked.append(1) or {"n": 0})
    assert len(asked) == 1
    with session.call("peek", {}, effects="pure") as call:
        call.result = "ok"
    assert len(asked) == 1


def test_a_return_without_a_state_says_unknown_and_the_next_capture_ends_it(
    log: MemoryLog, begin: Begin
) -> None:
    session = begin(state={"n": 0})
    session.record_tool_return(session.record_tool_call("a", {}), "done")
    with pytest.raises(NotRestorableError):
        _ = session.state
    session.record_tool_return(session.record_tool_call("b", {}), "done", state={"n": 0})
    assert session.state == {"n": 0}
    changes = [event.state_change for event in events_of(log) if event.kind == "tool_returned"]
    assert isinstance(changes[0], StateUnknown)
    assert isinstance(changes[1], StateChange), "equal digest says: no drift"
    assert changes[1].digest == digest({"n": 0})


def test_a_session_without_state_refuses_one_later(begin: Begin) -> None:
    session = begin()
    call = session.record_tool_call("a", {})
    with pytest.raises(StepConflictError, match="without a state"):
        session.record_tool_return(call, "x", state={"n": 1})
    assert session.record_tool_return(call, "x") == 2


def test_an_exception_is_recorded_and_goes_on(log: MemoryLog, begin: Begin) -> None:
    with pytest.raises(ZeroDivisionError), begin() as session, session.call("div", {}):
        _ = 1 / 0
    returned, closed = events_of(log)[-2:]
    assert isinstance(returned.body, ToolReturned)
    assert (returned.body.status, returned.body.error_type) == ("error", "ZeroDivisionError")
    assert isinstance(closed.body, SessionClosed)
    assert (closed.body.reason, closed.body.error_type) == ("error", "ZeroDivisionError")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_leaves_call_and_session_open(
    log: MemoryLog, begin: Begin, interrupt: type[BaseException]
) -> None:
    with pytest.raises(interrupt), begin() as session, session.call("slow", {}):
        raise interrupt
    assert log.session_info("s").status == "open"
    assert [call.tool for call in session.open_calls] == ["slow"]


def test_a_timeout_has_a_status_of_its_own(log: MemoryLog, begin: Begin) -> None:
    session = begin()
    with pytest.raises(TimeoutError), session.call("slow", {}):
        raise TimeoutError("10 s")
    body = events_of(log)[-1].body
    assert isinstance(body, ToolReturned)
    assert body.status == "timeout"


def test_the_same_call_id_twice_is_two_calls(log: MemoryLog, begin: Begin) -> None:
    """D11: some servers reuse one id for every call."""
    session = begin()
    first = session.record_tool_call("a", {"n": 1}, call_id="same")
    second = session.record_tool_call("b", {"n": 2}, call_id="same")
    session.record_tool_return(second, "two")
    session.record_tool_return(first, "one")
    pairs = {
        event.body.called_step: event.body.result
        for event in events_of(log)
        if isinstance(event.body, ToolReturned)
    }
    assert {step: result.data for step, result in pairs.items() if result} == {
        first: b"one",
        second: b"two",
    }


def test_a_retry_with_the_same_key_is_recorded_once(log: MemoryLog, begin: Begin) -> None:
    session = begin()
    call = session.record_tool_call("pay", {}, idempotency_key="k1")
    returned = session.record_tool_return(call, "paid")
    assert session.record_tool_call("pay", {}, idempotency_key="k1") == call
    assert session.record_tool_return(call, "paid") == returned
    with session.call("pay", {}, idempotency_key="k1") as again:
        again.result = "paid twice?"
    assert (again.step, again.return_step) == (call, returned)
    assert len(events_of(log)) == 3


def test_a_second_answer_and_an_answer_to_nothing_are_refused(begin: Begin) -> None:
    session = begin()
    call = session.record_tool_call("a", {})
    session.record_tool_return(call, "x")
    with pytest.raises(StepConflictError, match="answered at step 2"):
        session.record_tool_return(call, "y")
    with pytest.raises(StepNotFoundError):
        session.record_tool_return(99, "y")


def test_arguments_and_results_keep_their_exact_text(log: MemoryLog, begin: Begin) -> None:
    session = begin()
    for arguments, media_type in (
        ('{"a":  1.0}', "application/json"),
        ("{not json", "text/plain"),
        ("NaN", "text/plain"),
        ({"a": (1, 2)}, "application/vnd.steplog.value"),
    ):
        session.record_tool_call("t", arguments)
        body = events_of(log)[-1].body
        assert isinstance(body, ToolCalled)
        assert body.arguments.media_type == media_type
        data = body.arguments.data
        assert isinstance(data, bytes)
        assert read_content(media_type, data) == arguments
    call = session.record_tool_call("t", "{}")
    session.record_tool_return(call, JsonText('{"b" : 2}'))
    result = events_of(log)[-1].body.result  # type: ignore[union-attr]
    assert result is not None
    assert result == ("application/json", b'{"b" : 2}')


@pytest.mark.parametrize("text", ["a\udc00b", "\ud83d", "split \ude00", "\U0001f600"])
def test_lone_surrogates_come_back_as_they_were(log: MemoryLog, begin: Begin, text: str) -> None:
    """D8: lone surrogates in model or tool text crash other log writers."""
    session = begin(state={"text": text})
    call = session.record_tool_call("t", {"text": text}, call_id=text)
    session.record_tool_return(call, text, state={"text": text + "!"})
    returned = events_of(log)[-1].body
    assert isinstance(returned, ToolReturned)
    assert returned.result is not None
    assert isinstance(returned.result.data, bytes)
    assert read_content(returned.result.media_type, returned.result.data) == text
    assert session.state == {"text": text + "!"}


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324])
def test_rewards_come_back_bit_for_bit(log: MemoryLog, begin: Begin, reward: float) -> None:
    """D9: one NaN metric makes the whole record unwritable elsewhere."""
    session = begin()
    session.record_verification(reward, verifier="v", components={"part": reward})
    body = events_of(log)[-1].body
    assert isinstance(body, Verified)
    assert body.reward is not None
    assert struct.pack(">d", body.reward) == struct.pack(">d", reward)
    assert struct.pack(">d", body.components["part"]) == struct.pack(">d", reward)


def test_the_callers_objects_are_neither_mutated_nor_aliased(begin: Begin) -> None:
    state = {"list": [1], "inner": {"a": 1}}
    session = begin(state=state)
    call = session.record_tool_call("t", state)
    state["list"].append(2)
    session.record_tool_return(call, state, state=state)
    state["inner"]["a"] = 99
    kept = session.state
    assert kept == {"list": [1, 2], "inner": {"a": 1}}
    assert isinstance(kept, dict)
    kept["list"].append("mine")
    assert session.state == {"list": [1, 2], "inner": {"a": 1}}
    assert state == {"list": [1, 2], "inner": {"a": 99}}


def test_one_object_reached_twice_is_refused_with_both_places(begin: Begin) -> None:
    shared: list[int] = []
    with pytest.raises(ValueNotEncodableError, match=r"a.*b"):
        begin(state={"a": shared, "b": shared})


def test_an_unencodable_state_leaves_the_call_open_and_the_session_usable(begin: Begin) -> None:
    session = begin(state={"n": 0})
    call = session.record_tool_call("t", {})
    with pytest.raises(ValueNotEncodableError) as caught:
        session.record_tool_return(call, "x", state={"n": object()})
    assert caught.value.path == "$.n"
    assert session.record_tool_return(call, "x", state={"n": 1}) == 2


def test_a_large_result_goes_to_a_blob_and_comes_back(
    log: MemoryLog, blobs: MemoryBlobStore, begin: Begin
) -> None:
    """D2 on this log: sizes around a broker's limits."""
    session = begin()
    for size in (1_048_000, 1_048_576, 5_000_000):
        call = session.record_tool_call("t", {})
        session.record_tool_return(call, "x" * size)
        result = events_of(log)[-1].body.result  # type: ignore[union-attr]
        assert result is not None
        assert not isinstance(result.data, bytes)
        assert blobs.get_blob(result.data) == b"x" * size


def test_a_refused_return_leaves_the_state_where_it_was(log: MemoryLog, begin: Begin) -> None:
    session = begin(state={"n": 0})
    call = session.record_tool_call("t", {})
    with pytest.raises(EventTooLargeError):
        session.record_tool_return(call, "x", state={"n": 1}, error_type="e" * 100_000)
    assert session.state == {"n": 0}
    session.record_tool_return(call, "x", state={"n": 2})
    change = events_of(log)[-1].state_change
    assert isinstance(change, StateChange)
    assert isinstance(change.patch.data, bytes)
    assert apply(decode(change.patch.data, opaque=True), {"n": 0}) == {"n": 2}


def test_an_id_is_never_used_again(begin: Begin) -> None:
    begin()
    with pytest.raises(SessionExistsError):
        begin()


def test_a_released_recorder_is_fenced_and_the_session_says_released(
    log: MemoryLog, begin: Begin
) -> None:
    session = begin()
    session.release()
    assert log.session_info("s").status == "released"
    with pytest.raises(FencedError):
        session.record_message("user", "hello")


def test_a_verification_may_follow_the_close(log: MemoryLog, begin: Begin) -> None:
    session = begin()
    session.close()
    session.record_verification(0.5, verifier="late")
    info = log.session_info("s")
    assert (info.status, info.reward) == ("closed", 0.5)


def _record_in_child(session: SessionRecorder, answers: "multiprocessing.Queue[str]") -> None:
    try:
        session.record_message("user", "from the child")
        answers.put("recorded")
    except FencedError:
        answers.put("fenced")


def test_a_forked_child_cannot_use_the_recorder(begin: Begin) -> None:
    session = begin()
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=_record_in_child, args=(session, answers))
    child.start()
    assert answers.get(timeout=30) == "fenced"
    child.join(30)


def test_the_seed_says_what_ran(log: MemoryLog, begin: Begin) -> None:
    begin(state={"n": 1})
    seed = events_of(log)[0].body
    assert isinstance(seed, SessionSeeded)
    assert (seed.environment, seed.state_coverage, seed.writer) == ("test", "full", log.writer_id)
    assert seed.initial_state is not None
    assert isinstance(seed.initial_state.data, bytes)
    assert decode(seed.initial_state.data) == {"n": 1}


def test_tokens_logprobs_and_mask_go_with_a_message(log: MemoryLog, begin: Begin) -> None:
    session = begin()
    tokens, mask = np.array([5, 6, 7]), [False, True, True]
    session.record_message(
        "assistant", "x", tokens=tokens, logprobs=[-0.5, -0.25, 0.0], token_mask=mask
    )
    body = events_of(log)[-1].body
    assert isinstance(body, MessageAdded)
    kept = [body.tokens, body.logprobs, body.token_mask]
    told = [read_content(*content) for content in kept if content is not None]  # type: ignore[arg-type]
    assert told == [[5, 6, 7], [-0.5, -0.25, 0.0], [0, 1, 1]]


def test_a_mask_or_tokens_that_do_not_fit_are_refused(log: MemoryLog, begin: Begin) -> None:
    session = begin()
    for fields, path in (
        ({"tokens": [1, 2], "token_mask": [1]}, "$.token_mask"),
        ({"tokens": [1, 2**40]}, "$.tokens[1]"),
        ({"logprobs": ["x"]}, "$.logprobs[0]"),
    ):
        with pytest.raises(ValueNotEncodableError) as caught:
            session.record_message("assistant", "x", **fields)  # type: ignore[arg-type]
        assert caught.value.path == path
    assert len(events_of(log)) == 1
