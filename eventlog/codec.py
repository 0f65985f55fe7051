"""Events to bytes and back: Avro `steplog.Event` in single-object framing.

`encode_event` checks every type before a byte is written; `decode_event` is the only place that
trusts stored bytes, and refuses what is not wholly one event of a shipped schema.
"""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from eventlog.content import BlobRef, Content
from eventlog.errors import EventCorruptError, EventTooLargeError, UnknownKindError
from eventlog.event import BODY_OF_KIND, Event, StateChange, StateUnknown
from eventlog.event_datum import datum_of_event, event_builder
from eventlog.schema import HEADER_BYTES, AvroDataError, SchemaRegistry, load_schema

EVENT_SCHEMA: Final = load_schema("eventlog", "event-v1.avsc")
EVENT_SCHEMAS: Final = SchemaRegistry([EVENT_SCHEMA])
_PREFIX: Final = EVENT_SCHEMA.cut_after("state_change")


EVENT_BYTES_MAX: Final = 256 * 1024
TEXT_BYTES_MAX: Final = 64 * 1024


class EncodedEvent(NamedTuple):
    """An event, its exact stored bytes, and their SHA-256 (the event digest)."""

    event: Event
    data: bytes
    digest: bytes


class EventPrefix(NamedTuple):
    """The fields that come first in the bytes: all that a fold needs of most events."""

    event_id: bytes
    session_id: str
    step: int
    attempt: int
    kind: str
    parent: bytes
    state_change: StateChange | StateUnknown | None


def encode_event(event: Event) -> EncodedEvent:
    """The event's single-object bytes and digest; every type is checked first.

    Raises `ValueNotEncodableError` naming the field, `UnknownKindError` where kind and body differ.
    """
    if BODY_OF_KIND.get(event.kind) is not type(event.body):
        raise UnknownKindError(
            f"kind {event.kind!r} does not fit a body of {type(event.body).__name__}",
            hint="make events with `Event.following`",
            session_id=event.session_id,
            step=event.step,
        )
    data = EVENT_SCHEMA.header + EVENT_SCHEMA.write_datum(
        datum_of_event(event, EVENT_SCHEMA.definition)
    )
    return EncodedEvent(event, data, hashlib.sha256(data).digest())


def fit_event(event: Event, put_blob: Callable[[bytes], BlobRef]) -> EncodedEvent:
    """Encode the event, its largest Contents moved to blobs until it has at most 256 KiB.

    Raises `EventTooLargeError` before any blob is put where the rest alone (other strings and
    maps) is over 64 KiB.
    """
    encoded = encode_event(event)
    if len(encoded.data) <= EVENT_BYTES_MAX:
        inline = sum(len(content.data) for _, content in event.contents() if type(content.data) is bytes)
        if len(encoded.data) - inline <= TEXT_BYTES_MAX:
            return encoded
    size = len(encoded.data)
    inline_contents = sorted(
        (
            (len(content.data), name, content)
            for name, content in event.contents()
            if isinstance(content.data, bytes)
        ),
        reverse=True,
    )
    rest = size - sum(length for length, _, _ in inline_contents)
    if rest > TEXT_BYTES_MAX:
        raise EventTooLargeError(
            f"strings and maps of a {event.kind} event take {rest} bytes, over {TEXT_BYTES_MAX}",
            hint="put long text into a content, not into a name or metadata",
            event_bytes=rest,
            event_bytes_max=TEXT_BYTES_MAX,
            session_id=event.session_id,
            step=event.step,
        )
    for length, name, content in inline_contents:
        if size <= EVENT_BYTES_MAX:
            break
        assert isinstance(content.data, bytes)
        event = _with_content(event, name, Content(content.media_type, put_blob(content.data)))
        size -= length - BLOB_REF_BYTES
    return encode_event(event)


BLOB_REF_BYTES: Final = 40


def _with_content(event: Event, name: str, content: Content) -> Event:
    place, _, field = name.partition(".")
    if place == "state_change":
        assert isinstance(event.state_change, StateChange)
        return event._replace(state_change=event.state_change._replace(patch=content))
    return event._replace(body=event.body._replace(**{field: content}))


def decode_event(data: bytes) -> Event:
    """The event that `data` is. The only place that trusts stored bytes.

    Raises `EventCorruptError`, `UnknownSchemaError` or `UnknownKindError`, each naming session and
    step as far as the bytes tell them.
    """
    EVENT_SCHEMAS.find(data)
    try:
        datum, end = EVENT_SCHEMA.read_datum(data, HEADER_BYTES)
    except AvroDataError as error:
        raise EventCorruptError(str(error), hint="run `steplog check`") from error
    if end != len(data):
        raise EventCorruptError(
            f"{len(data) - end} bytes are left over after the event", hint="run `steplog check`"
        )
    event = _build_event(datum)
    if BODY_OF_KIND.get(event.kind) is not type(event.body):
        raise UnknownKindError(
            f"kind {event.kind!r} does not fit a body of {type(event.body).__name__}",
            hint="a newer steplog wrote it",
            session_id=event.session_id,
            step=event.step,
        )
    return event


def decode_prefix(data: bytes) -> EventPrefix:
    """The first fields of an event, read without its body. Raises as `decode_event`."""
    EVENT_SCHEMAS.find(data)
    try:
        datum, _ = _PREFIX.read_datum(data, HEADER_BYTES)
    except AvroDataError as error:
        raise EventCorruptError(str(error), hint="run `steplog check`") from error
    return _build_prefix(datum)


_build_event = event_builder(EVENT_SCHEMA.definition)
_build_prefix = event_builder(_PREFIX.definition, EventPrefix)
