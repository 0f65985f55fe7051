"""`fit_event`: the largest contents move to blobs; too much text is refused before any moves."""

import random
from hashlib import sha256

import pytest

from eventlog.codec import (
    EVENT_BYTES_MAX,
    TEXT_BYTES_MAX,
    EncodedEvent,
    decode_event,
    encode_event,
    fit_event,
)
from eventlog.content import BlobRef, Content
from eventlog.errors import EventTooLargeError, ValueNotEncodableError
from eventlog.event import (
    Event,
    LineHead,
    MessageAdded,
    SessionSeeded,
    StateChange,
    ToolCalled,
    ToolReturned,
    Verified,
)
from tests.support.events import random_event
from tests.support.scale import scaled

KB = 1024


class Blobs:
    """Keeps what was put, in order."""

    def __init__(self) -> None:
        self.put: list[bytes] = []

    def __call__(self, data: bytes) -> BlobRef:
        self.put.append(data)
        return BlobRef(sha256(data).digest(), len(data))


def text(size: int, letter: bytes = b"x") -> Content:
    return Content("text/plain", letter * size)


def event_of(body: object, **fields: object) -> Event:
    fields = {"event_id": bytes(16), "time": 0, "actor": "agent"} | fields
    return Event.following(LineHead("s", 6, 1, bytes(32)), body, **fields)  # type: ignore[arg-type]


def fit(event: Event) -> tuple[EncodedEvent, Blobs]:
    blobs = Blobs()
    return fit_event(event, blobs), blobs


def test_small_events_are_encoded_as_they_are() -> None:
    rng = random.Random(1)
    for _ in range(scaled(100, 5_000)):
        event = random_event(rng)
        fitted, blobs = fit(event)
        assert fitted == encode_event(event)
        assert blobs.put == []


def test_the_largest_content_moves_first() -> None:
    body = MessageAdded("assistant", text(100 * KB), tokens=text(200 * KB), logprobs=text(90 * KB))
    fitted, blobs = fit(event_of(body))
    assert [len(data) for data in blobs.put] == [200 * KB]
    assert fitted.event.body == body._replace(
        tokens=Content("text/plain", BlobRef(sha256(b"x" * 200 * KB).digest(), 200 * KB))
    )
    assert decode_event(fitted.data) == fitted.event
    assert len(fitted.data) <= EVENT_BYTES_MAX


def test_as_many_move_as_must() -> None:
    change = StateChange(text(300 * KB, b"p"), bytes(32))
    body = ToolReturned(6, "ok", text(257 * KB, b"r"))
    fitted, blobs = fit(event_of(body, state_change=change))
    assert [data[:1] for data in blobs.put] == [b"p", b"r"]
    assert len(fitted.data) < KB
    assert isinstance(fitted.event.state_change, StateChange)
    assert fitted.event.state_change.patch.media_type == "text/plain"


def test_equal_sizes_move_in_the_order_of_fields() -> None:
    body = MessageAdded("a", text(150 * KB, b"1"), tokens=text(150 * KB, b"2"))
    _, blobs = fit(event_of(body))
    assert [data[:1] for data in blobs.put] == [b"1"]


def around(limit: int) -> list[tuple[int, bool]]:
    """Sizes of a result whose event has `limit` bytes and one more, and whether it must move."""
    overhead = len(encode_event(event_of(ToolReturned(6, "ok", text(limit - 200)))).data)
    exact = limit - 200 + limit - overhead
    return [(exact, False), (exact + 1, True)]


@pytest.mark.parametrize(("size", "moves"), around(EVENT_BYTES_MAX))
def test_the_limit_is_exact(size: int, moves: bool) -> None:
    fitted, blobs = fit(event_of(ToolReturned(6, "ok", text(size))))
    assert bool(blobs.put) == moves
    assert moves == (len(fitted.data) != EVENT_BYTES_MAX)


def test_contents_that_are_blobs_already_stay() -> None:
    ref = Content("text/plain", BlobRef(bytes(32), 10 * 1024 * KB))
    fitted, blobs = fit(event_of(ToolCalled("t", ref)))
    assert fitted.event.body == ToolCalled("t", ref)
    assert blobs.put == []


@pytest.mark.parametrize(
    "body",
    [
        ToolCalled("t" * (TEXT_BYTES_MAX + 1), text(10)),
        ToolCalled("t" * (TEXT_BYTES_MAX + 1), text(1024 * KB)),
        ToolCalled("é" * (TEXT_BYTES_MAX // 2), text(300 * KB)),
        SessionSeeded("desk", metadata={str(n): "x" * 700 for n in range(100)}),
        Verified("v", components={f"{n:0100}": 0.0 for n in range(700)}),
        SessionSeeded("desk", excluded_paths=("x" * 100,) * 700),
    ],
)
def test_too_much_text_is_refused_before_any_blob(body: object) -> None:
    blobs = Blobs()
    with pytest.raises(EventTooLargeError) as caught:
        fit_event(event_of(body), blobs)
    assert blobs.put == []
    assert caught.value.event_bytes > caught.value.event_bytes_max == TEXT_BYTES_MAX
    assert (caught.value.session_id, caught.value.step) == ("s", 7)
    assert str(caught.value.event_bytes) in caught.value.message


def test_text_up_to_the_limit_stands_beside_large_contents() -> None:
    body = ToolCalled("t" * (TEXT_BYTES_MAX - 200), text(250 * KB))
    fitted, blobs = fit(event_of(body))
    assert len(blobs.put) == 1
    assert len(fitted.data) <= TEXT_BYTES_MAX


def test_wrong_types_are_refused_before_any_blob() -> None:
    blobs = Blobs()
    body = ToolReturned(6, "ok", text(300 * KB), reward=1)
    with pytest.raises(ValueNotEncodableError) as caught:
        fit_event(event_of(body), blobs)
    assert caught.value.path == "$.body.reward"
    assert blobs.put == []
