"""Numbers and keys that the schema cannot hold are refused by name, before anything is written."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.errors import ValueNotEncodableError
from eventlog.event import SessionSeeded
from eventlog.memory_log import MemoryLog
from eventlog.recorder import SessionRecorder

HUGE = 10**400


@pytest.fixture
def session() -> Iterator[SessionRecorder]:
    with MemoryLog() as log:
        yield SessionRecorder.begin(
            log, MemoryBlobStore(), "s", SessionSeeded(environment="test", reducer="captured")
        )


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda s: s.record_verification(HUGE, verifier="v"), "$.reward"),
        (lambda s: s.record_verification(-HUGE, verifier="v"), "$.reward"),
        (lambda s: s.record_tool_return(1, "x", reward=HUGE), "$.reward"),
        (
            lambda s: s.record_verification(1, verifier="v", components={"a": 1, "b c": HUGE}),
            '$.components["b c"]',
        ),
    ],
)
def test_a_reward_beyond_every_float_was_an_overflow_error(
    session: SessionRecorder, act: Callable[[SessionRecorder], int], path: str
) -> None:
    session.record_tool_call("t", {})
    with pytest.raises(ValueNotEncodableError) as caught:
        act(session)
    assert caught.value.path == path
    assert session.step == 1
    assert session.record_tool_return(1, "x", reward=float("inf")) == 2


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.record_verification(1, verifier="v", duration_us=-5),
        lambda s: s.record_tool_return(1, "x", duration_us=-5),
        lambda s: s.record_message("user", "x", duration_us=-1),
    ],
)
def test_a_negative_duration_was_recorded(
    session: SessionRecorder, act: Callable[[SessionRecorder], int]
) -> None:
    session.record_tool_call("t", {})
    with pytest.raises(ValueNotEncodableError, match="0 microseconds or more"):
        act(session)
    assert session.step == 1
    assert [call.step for call in session.open_calls] == [1]


@pytest.mark.parametrize("key", [5, b"k", ("k",), False])
def test_a_key_that_is_no_str_was_an_attribute_error(session: SessionRecorder, key: Any) -> None:
    with pytest.raises(TypeError, match="an idempotency key is a str"):
        session.record_tool_call("t", {}, idempotency_key=key)
    with pytest.raises(TypeError, match="an idempotency key is a str"):
        session.call("t", {}, idempotency_key=key)
    assert session.record_tool_call("t", {}, idempotency_key="k") == 1
