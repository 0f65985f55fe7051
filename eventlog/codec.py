"""Events to bytes and back: Avro `steplog.Event` in single-object framing.

`encode_event` checks every type before a byte is written. `decode_event` is the only place that
trusts stored bytes: it accepts exactly what `encode_event` writes, so that an event has one
encoding, and answers anything else with an error of ours that names session and step as far as
they can be read. fastavro's reading and writing of the same schema is the reference for both
(`event_datum.py`).
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventlog.avro.event_form import (
    EVENT_SCHEMA,
    EVENT_SCHEMAS,
    read_event,
    read_prefix,
    read_session_id,
    write_event,
)
from eventlog.avro.record_reader import READ_ERRORS, read_long, read_text
from eventlog.avro.record_writer import Misfit, long_bytes
from eventlog.content import BlobRef, Content, escape_lone_surrogates
from eventlog.errors import (
    EventCorruptError,
    EventTooLargeError,
    SteplogError,
    UnknownKindError,
    UnknownSchemaError,
    ValueNotEncodableError,
)
from eventlog.event import (
    BODY_OF_KIND,
    DIGEST_BYTES,
    EVENT_ID_BYTES,
    KIND_OF_BODY,
    Body,
    CheckpointBegun,
    Event,
    SessionForked,
    SessionSeeded,
    StateChange,
    StateUnknown,
    ToolCalled,
    Verified,
)
from eventlog.schema import HEADER_BYTES, AvroDataError, describe_fingerprint

EVENT_BYTES_MAX: Final = 256 * 1024
"""An event of more bytes has its largest contents moved to blobs."""
TEXT_BYTES_MAX: Final = 64 * 1024
"""What may stand in an event beside its contents: strings, maps, ids."""

_SHOWN_CHARS_MAX: Final = 64
_LOG: Final = logging.getLogger(__name__)
_DAMAGED_HINT: Final = "the stored bytes are damaged; run `steplog check`"
_FOLLOWING_HINT: Final = "make events with `Event.following`"
_NEWER_HINT: Final = "a newer steplog wrote it; read it with that version"
_LONE_HINT: Final = "text that UTF-8 cannot encode can only stand in a content"
_SESSION_ID_HINT: Final = "give an id of 1 to 255 bytes of UTF-8, without control characters"


class EncodedEvent(NamedTuple):
    """An event, its exact stored bytes, and their SHA-256 (the event digest).

    `event` is what `decode_event(data)` gives: it shares nothing mutable with the caller.
    """

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
    """The event's single-object bytes and digest; every type is checked before.

    A call's tool name and id are stored with lone surrogates escaped, and a warning is logged.
    Raises `ValueNotEncodableError` naming the field, `UnknownKindError` where kind and body differ.
    """
    body = event.body
    if KIND_OF_BODY.get(type(body)) != event.kind:
        raise _kind_error(event, body, _FOLLOWING_HINT)
    if type(body) in _BODIES_WITH_COLLECTIONS:
        event = event._replace(body=_owned(body))
    try:
        data = _HEADER + write_event(event)
    except Misfit as misfit:
        return _encode_escaped(event, misfit)
    return EncodedEvent(event, data, hashlib.sha256(data).digest())


def fit_event(event: Event, put_blob: Callable[[bytes], BlobRef]) -> EncodedEvent:
    """Encode the event, its largest contents moved to blobs until it has at most 256 KiB.

    Which contents move depends on the event alone. Raises as `encode_event`; raises
    `EventTooLargeError`, before any blob is put, where all that is not content takes over 64 KiB.
    """
    inline = _inline_bytes(event)
    if inline <= EVENT_BYTES_MAX:
        encoded = encode_event(event)
        size = len(encoded.data)
        if size <= EVENT_BYTES_MAX and size - inline <= TEXT_BYTES_MAX:
            return encoded
    return _encode_with_blobs(event, put_blob)


def decode_event(data: bytes) -> Event:
    """The event that `data` is. The only place that trusts stored bytes.

    Raises `EventCorruptError` (not exactly one event of the schema), `UnknownSchemaError` (no
    shipped schema has its fingerprint) or `UnknownKindError` (kind not known, or not its body's).
    """
    if data[:HEADER_BYTES] != _HEADER:
        raise _header_error(data)
    try:
        event, end = read_event(data, HEADER_BYTES)
    except READ_ERRORS as error:
        raise _misread(data, error) from error
    if end != len(data):
        raise _damage(data, f"{len(data) - end} bytes are left over after the event")
    if KIND_OF_BODY[type(event.body)] != event.kind:
        raise _kind_error(event, event.body, _NEWER_HINT)
    return event


def decode_prefix(data: bytes) -> EventPrefix:
    """The first fields of an event; the bytes after them are not read. Raises as `decode_event`."""
    if data[:HEADER_BYTES] != _HEADER:
        raise _header_error(data)
    try:
        fields, _ = read_prefix(data, HEADER_BYTES)
    except READ_ERRORS as error:
        raise _misread(data, error) from error
    prefix = tuple.__new__(EventPrefix, fields)  # as _make does, at a third of its cost
    if prefix.kind not in _KINDS:
        raise _kind_error(prefix, None, _NEWER_HINT)
    return prefix


def _owned(body: Body) -> Body:
    """The body with its maps and lists as copies of our own, maps in key order: as decoded."""
    copies: dict[str, Any] = {}
    values: tuple[object, ...] = body
    for name, value in zip(body._fields, values, strict=True):
        if isinstance(value, Mapping):
            if all(type(key) is str for key in value):
                copies[name] = MappingProxyType({key: value[key] for key in sorted(value)})
        elif type(value) is list:
            copies[name] = tuple(value)
    return body._replace(**copies) if copies else body


def _encode_escaped(event: Event, misfit: Misfit) -> EncodedEvent:
    """Encode with a call's tool and id escaped, if that is all that is wrong; else raise."""
    body = event.body
    if misfit.lone and isinstance(body, ToolCalled):
        escaped = body._replace(tool=_escaped(body.tool), call_id=_escaped(body.call_id))
        if escaped != body:
            _LOG.warning(
                "session %r, step %s: tool or call id holds lone surrogates; stored escaped as %r",
                event.session_id,
                event.step,
                (escaped.tool, escaped.call_id),
            )
            return encode_event(event._replace(body=escaped))
    path = "$" + "".join(misfit.path)
    hint = _LONE_HINT if misfit.lone else "see `eventlog.event` for the type of each field"
    raise ValueNotEncodableError(
        f"{path} {misfit.reason}",
        hint=_SESSION_ID_HINT if path == "$.session_id" else hint,
        path=path,
        session_id=event.session_id if type(event.session_id) is str else None,
        step=event.step if not path.startswith("$.step") else None,
    ) from misfit


def _escaped(text: Any) -> Any:
    return escape_lone_surrogates(text) if type(text) is str else text


def _inline_bytes(event: Event) -> int:
    """The bytes of the contents that stand in the event. Types are not checked yet."""
    total = 0
    change = event.state_change
    if type(change) is StateChange:
        total = _inline_size(change.patch)
    body = event.body
    for index in _CONTENT_FIELDS.get(type(body), ()):
        total += _inline_size(body[index])
    return total


def _inline_size(content: object) -> int:
    if type(content) is Content and type(content.data) is bytes:
        return len(content.data)
    return 0


def _encode_with_blobs(event: Event, put_blob: Callable[[bytes], BlobRef]) -> EncodedEvent:
    if KIND_OF_BODY.get(type(event.body)) != event.kind:
        raise _kind_error(event, event.body, _FOLLOWING_HINT)
    inline = [
        (name, content, content.data)
        for name, content in event.contents()
        if isinstance(content.data, bytes)
    ]
    bare = event
    for name, content, _ in inline:
        bare = _with_content(bare, name, content._replace(data=b""))
    rest = len(encode_event(bare).data)
    if rest > TEXT_BYTES_MAX:
        raise EventTooLargeError(
            f"a {event.kind} event has {rest} bytes of strings and maps",
            hint=f"at most {TEXT_BYTES_MAX} are stored; put long text into a content",
            event_bytes=rest,
            event_bytes_max=TEXT_BYTES_MAX,
            session_id=event.session_id,
            step=event.step,
        )
    # An empty content and a reference to n bytes differ by 32 bytes and the length of n as written.
    size = rest + sum(len(data) + _length_bytes(data) for _, _, data in inline)
    for name, content, data in sorted(inline, key=lambda each: -len(each[2])):
        if size <= EVENT_BYTES_MAX:
            break
        event = _with_content(event, name, content._replace(data=put_blob(data)))
        size += DIGEST_BYTES - len(data)
    encoded = encode_event(event)
    assert len(encoded.data) == size
    return encoded


def _length_bytes(data: bytes) -> int:
    """By how many bytes the length of `data` is longer than that of an empty content."""
    return len(long_bytes(len(data))) - 1


def _with_content(event: Event, name: str, content: Content) -> Event:
    place, _, field = name.partition(".")
    if place == "body":
        changed: dict[str, Any] = {field: content}
        return event._replace(body=event.body._replace(**changed))
    assert isinstance(event.state_change, StateChange)
    return event._replace(state_change=event.state_change._replace(patch=content))


def _header_error(data: bytes) -> SteplogError:
    """Why the first bytes are not an event's: no header, or one of an unknown schema."""
    try:
        EVENT_SCHEMAS.find(data)
    except AvroDataError as error:
        return EventCorruptError(str(error), hint=_DAMAGED_HINT)
    except UnknownSchemaError as error:
        place = _place_of(data)
        kind = f"a {place.kind[:_SHOWN_CHARS_MAX]!r} event: " if place.kind is not None else ""
        return UnknownSchemaError(
            kind + error.message, hint=error.hint, session_id=place.session_id, step=place.step
        )
    raise AssertionError("a shipped schema that the codec does not read")


def _damage(data: bytes, detail: str) -> EventCorruptError:
    place = _place_of(data)
    return EventCorruptError(
        detail, hint=_DAMAGED_HINT, session_id=place.session_id, step=place.step
    )


def _misread(data: bytes, error: Exception) -> EventCorruptError:
    ends_early = f"the event ends early, after {len(data)} bytes"
    return _damage(data, ends_early if isinstance(error, IndexError) else str(error))


class _Place(NamedTuple):
    session_id: str | None = None
    step: int | None = None
    attempt: int | None = None
    kind: str | None = None


def _place_of(data: bytes) -> _Place:
    """Session, step and kind as far as they can be read: the prefix is the same in every schema."""
    known: list[Any] = []
    position = HEADER_BYTES + EVENT_ID_BYTES
    for read in (read_session_id, read_long, read_long, read_text):
        try:
            value, position = read(data, position)
        except READ_ERRORS:
            break
        known.append(value)
    place = _Place(*known)
    return place if place.step is None or place.step >= 0 else _Place(place.session_id)


def _kind_error(place: Event | EventPrefix, body: Body | None, hint: str) -> UnknownKindError:
    if body is not None and str(place.kind) in _KINDS:
        problem = f"kind {place.kind!r} does not fit its body, a {type(body).__name__}"
    else:
        problem = f"kind {str(place.kind)[:_SHOWN_CHARS_MAX]!r} is not known to this build"
    return UnknownKindError(
        f"{problem} (schema {describe_fingerprint(EVENT_SCHEMA.fingerprint)})",
        hint=hint,
        session_id=place.session_id,
        step=place.step,
    )


_HEADER: Final = EVENT_SCHEMA.header
_KINDS: Final = frozenset(BODY_OF_KIND)
_BODIES_WITH_COLLECTIONS: Final = frozenset(
    (SessionSeeded, Verified, SessionForked, CheckpointBegun)
)
_CONTENT_FIELDS: Final[Mapping[type[Body], tuple[int, ...]]] = {
    body: tuple(
        body._fields.index(field["name"])
        for field in EVENT_SCHEMA.types[f"steplog.{body.__name__}"]["fields"]
        if field["type"] in ("steplog.Content", ["null", "steplog.Content"])
    )
    for body in KIND_OF_BODY
}
