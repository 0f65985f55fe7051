"""Rows of events as proven records: what is read is what was stored, at the place it was stored.

Used by whoever reads rows of a keeper; the links between records are `line_reading`'s.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Final

from eventlog.codec import decode_event, decode_prefix
from eventlog.errors import EventCorruptError, StepGapError, SteplogError
from eventlog.event import Event
from eventlog.keeping.kept_rows import KeptSession, RecordSource, StoredEvent
from eventlog.log import LogRecord

CHECK_HINT: Final = "run `steplog check`; restore the log from a copy, or fork before this step"


def checked_record(stored: StoredEvent, session_id: str | None) -> LogRecord:
    """The stored row as a record, its bytes proven to be what was stored at this place.

    `session_id` None: any session. Raises `EventCorruptError`, or what decoding raises, naming
    session, step and offset.
    """
    digest = sha256(stored.data).digest()
    if digest != stored.digest:
        raise EventCorruptError(
            f"the bytes of the event at offset {stored.offset} do not have its digest",
            hint=CHECK_HINT,
            session_id=session_id,
            step=stored.step,
        )
    try:
        prefix = decode_prefix(stored.data)
    except SteplogError as error:
        error.message = f"{error.message} (offset {stored.offset})"
        if error.session_id is None:
            error.session_id = session_id
        if error.step is None:
            error.step = stored.step
        raise
    if (
        prefix.step != stored.step
        or prefix.attempt != stored.attempt
        or (session_id is not None and prefix.session_id != session_id)
    ):
        raise EventCorruptError(
            f"the row at offset {stored.offset} holds step {prefix.step} (attempt "
            f"{prefix.attempt}) of session {prefix.session_id!r}",
            hint=CHECK_HINT,
            session_id=session_id,
            step=stored.step,
        )
    return LogRecord(stored.offset, digest, stored.data, prefix)


def decode_record(record: LogRecord) -> Event:
    """The whole event of a record. Raises what decoding raises, naming the offset too."""
    try:
        return decode_event(record.data)
    except SteplogError as error:
        error.message = f"{error.message} (offset {record.offset})"
        raise


def read_kept(source: RecordSource, kept: KeptSession) -> Iterator[LogRecord]:
    """Every record that the session's own line ever accepted, in log order; none may be missing.

    An attempt writes only while it is the last one, so log order is that of (attempt, step).
    """
    return _all_kept(source, kept, islice(source.all_events(kept.number), kept.line.accepted))


def _all_kept(
    source: RecordSource, kept: KeptSession, rows: Iterator[StoredEvent]
) -> Iterator[LogRecord]:
    session_id = kept.session_id
    first_steps = {claim.attempt: claim.first_step for claim in source.claims_of(session_id)}
    count, attempt, step, parent = 0, 0, 0, b""
    for stored in rows:
        record = checked_record(stored, session_id)
        if stored.attempt != attempt:
            attempt, step = stored.attempt, first_steps.get(stored.attempt, -1)
            parent = record.prefix.parent
        if stored.step != step or record.prefix.parent != parent:
            raise missing_event(session_id, step)
        yield record
        count, step, parent = count + 1, step + 1, record.digest
    if count != kept.line.accepted:
        raise missing_event(session_id, step)


def missing_event(session_id: str, step: int) -> StepGapError:
    """The error for a step of a line that is not among the rows."""
    return StepGapError(
        "the event is missing from the log", hint=CHECK_HINT, session_id=session_id, step=step
    )
