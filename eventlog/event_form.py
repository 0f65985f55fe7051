"""The compiled form of `steplog.Event`: one writer and one reader for each field of the envelope.

Beside the schema's types they hold the rules of FORMATS section 3 for the session id, the step and
the attempt. The codec joins them; nobody else needs them.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from eventlog.event import FIRST_ATTEMPT, session_id_problem
from eventlog.event_datum import RECORD_CLASSES
from eventlog.record_reader import Misread, Read, RecordReaders, read_long, read_text
from eventlog.record_writer import (
    INT_MAX,
    LONG_MAX,
    Misfit,
    RecordWriters,
    Write,
    long_bytes,
    text_bytes,
)
from eventlog.schema import SchemaRegistry, load_schema

EVENT_SCHEMA: Final = load_schema("eventlog", "event-v1.avsc")
EVENT_SCHEMAS: Final = SchemaRegistry([EVENT_SCHEMA])

_CACHED_SESSIONS_MAX: Final = 4096


def _session_id_bytes(value: object) -> bytes:
    if type(value) is not str:
        raise Misfit(f"must be a str, is {type(value).__name__}")
    return _checked_session_id(value)


@lru_cache(_CACHED_SESSIONS_MAX)
def _checked_session_id(session_id: str) -> bytes:
    problem = session_id_problem(session_id)
    if problem is not None:
        raise Misfit(problem)
    return text_bytes(session_id)


def _step_bytes(value: object) -> bytes:
    if type(value) is not int or not 0 <= value <= LONG_MAX:
        raise Misfit(f"must be an int of 0 to 2^63-1, is {value!r}")
    return long_bytes(value)


def _attempt_bytes(value: object) -> bytes:
    if type(value) is not int or not FIRST_ATTEMPT <= value <= INT_MAX:
        raise Misfit(f"must be an int of 1 to 2^31-1, is {value!r}")
    return long_bytes(value)


def _read_session_id(data: bytes, position: int) -> tuple[str, int]:
    session_id, end = read_text(data, position)
    try:
        _checked_session_id(session_id)
    except Misfit as misfit:
        raise Misread(f"the session id at byte {position} {misfit.reason}") from misfit
    return session_id, end


def _read_step(data: bytes, position: int) -> tuple[int, int]:
    step, end = read_long(data, position)
    if step < 0:
        raise Misread(f"a step of {step} at byte {position}")
    return step, end


def _read_attempt(data: bytes, position: int) -> tuple[int, int]:
    attempt, end = read_long(data, position)
    if not FIRST_ATTEMPT <= attempt <= INT_MAX:
        raise Misread(f"an attempt of {attempt} at byte {position}")
    return attempt, end


_FIELD_TYPES: Final = {each["name"]: each["type"] for each in EVENT_SCHEMA.canonical["fields"]}
_writers: Final = RecordWriters(EVENT_SCHEMA.types, RECORD_CLASSES)
_readers: Final = RecordReaders(EVENT_SCHEMA.types, RECORD_CLASSES)

FIELD_WRITERS: Final[Mapping[str, Write]] = {
    name: _writers.writer(kind) for name, kind in _FIELD_TYPES.items()
} | {"session_id": _session_id_bytes, "step": _step_bytes, "attempt": _attempt_bytes}
"""A writer for each field of an event, in the schema's order."""

FIELD_READERS: Final[Mapping[str, Read]] = {
    name: _readers.reader(kind) for name, kind in _FIELD_TYPES.items()
} | {"session_id": _read_session_id, "step": _read_step, "attempt": _read_attempt}
"""A reader for each field of an event, in the schema's order."""
