"""Rows of what is shown: strict JSON of every kind of event, and what stands in blobs."""

import json
import math
import random
from typing import Any
from uuid import UUID

import pytest

from eventlog.codec import encode_event
from eventlog.content import (
    APPLICATION_JSON,
    CANONICAL_VALUE,
    OCTET_STREAM,
    TEXT_PLAIN,
    BlobRef,
    Content,
)
from eventlog.event import BODY_OF_KIND, Event
from eventlog.json_form import from_json_form
from eventlog.log import LogRecord
from replay.views import (
    SHOWN_BLOB_BYTES_MAX,
    content_row,
    content_value,
    event_row,
    json_number,
    readable_path,
)
from tests.support.command import strict_json
from tests.support.events import KINDS, random_event

DIGEST = bytes(range(32))


def record_of(event: Event) -> LogRecord:
    """The event as a log would keep it."""
    encoded = encode_event(event)
    return LogRecord(7, encoded.digest, encoded.data, None)  # type: ignore[arg-type]


def no_blob(content: Content) -> bytes:
    """A store that is asked for nothing but inline contents."""
    assert isinstance(content.data, bytes), "a blob over the limit must not be fetched"
    return content.data


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_is_strict_json_with_its_schemas_fields(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(30):
        event = readable(random_event(rng, kind))
        row: Any = event_row(record_of(event), event, no_blob)
        again = strict_json(json.dumps(row, allow_nan=False))
        assert again == row
        assert list(row["body"]) == list(BODY_OF_KIND[kind]._fields)
        assert UUID(row["event_id"]).bytes == event.event_id
        assert bytes.fromhex(row["parent"]) == event.parent
        assert (row["offset"], row["step"], row["time"]) == (7, event.step, event.time)
        from_json_form(row["body"])


def readable(event: Event) -> Event:
    """The event with contents that are what their media types say, inline or far too large."""
    body: Any = event.body
    contents = {
        name: Content(TEXT_PLAIN, BlobRef(DIGEST, SHOWN_BLOB_BYTES_MAX + 1))
        if isinstance(value.data, BlobRef)
        else Content.of_value({"n": [1.0, "\ud800"]})
        for name, value in body._asdict().items()
        if isinstance(value, Content)
    }
    change = event.state_change
    if hasattr(change, "patch"):
        change = change._replace(patch=Content("application/vnd.steplog.patch", b"\x90"))
    return event._replace(body=body._replace(**contents), state_change=change)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (Content(TEXT_PLAIN, b"plain"), "plain"),
        (Content(APPLICATION_JSON, b'{"a": [1, 1.5]}'), {"a": [1, 1.5]}),
        (Content(APPLICATION_JSON, b'{"a": 1.0}'), {"a": {"$float": "1.0"}}),
        (Content(APPLICATION_JSON, b'{"$int": "1"}'), {"$dict": [["$int", "1"]]}),
        (Content(APPLICATION_JSON, b'{"a":1,"a":2}'), '{"a":1,"a":2}'),
        (Content(APPLICATION_JSON, b"1e400"), "1e400"),
        (Content(APPLICATION_JSON + ";redacted=x", b"[1]"), [1]),
        (Content(APPLICATION_JSON, b'"\\ud83d"'), {"$str": "7aC9"}),
        (Content(APPLICATION_JSON, b'"text"'), "text"),
        (Content(CANONICAL_VALUE, b"\xc4\x01\x00"), {"$bytes": "AA=="}),
        (Content(OCTET_STREAM, b"\x00"), {"$bytes": "AA=="}),
        (Content("image/png", b"\x00"), {"$bytes": "AA=="}),
    ],
)
def test_contents(content: Content, value: object) -> None:
    assert content_value(content, no_blob) == value
    assert isinstance(content.data, bytes)
    assert content_row(content, no_blob) == {
        "media_type": content.media_type,
        "size": len(content.data),
        "value": value,
    }


def test_a_blob_is_fetched_up_to_the_limit() -> None:
    data = b"[1]"
    small = Content(APPLICATION_JSON, BlobRef(DIGEST, len(data)))
    assert content_value(small, lambda content: data) == [1]
    assert content_row(small, lambda content: data) == {
        "media_type": APPLICATION_JSON,
        "size": 3,
        "blob": DIGEST.hex(),
        "value": [1],
    }
    large = Content(APPLICATION_JSON, BlobRef(DIGEST, SHOWN_BLOB_BYTES_MAX + 1))
    assert content_value(large, no_blob) == {
        "blob": DIGEST.hex(),
        "size": SHOWN_BLOB_BYTES_MAX + 1,
    }
    assert "value" not in content_row(large, no_blob)


def test_numbers_and_paths() -> None:
    assert [json_number(one) for one in (None, 1.0, 0.5)] == [None, 1.0, 0.5]
    assert json_number(-math.inf) == {"$float": "-inf"}
    assert readable_path(()) == "$"
    assert readable_path(("orders", 3, "a.b", (1, 2))) == '$.orders[3]["a.b"][(1, 2)]'
