"""Finding damage in a mirror: what a log's check finds, the mirror's own rows, and the verdicts.

Every verdict is made again, from the records in the topic's order. What the rule refused, and said
so, is no damage: `check` judges a session's records itself and lists conflicts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from eventlog.codec import decode_event
from eventlog.errors import IntegrityError, SchemaError, SessionNotFoundError, SteplogError
from eventlog.keeping.known_by_place import (
    JudgedRecord,
    SkippedEvent,
    SkippedEvents,
    stored_by_place,
)
from eventlog.keeping.line_checking import finding_of
from eventlog.line_state import KnownEvent, LineState, VerdictKind, needs_body
from eventlog.log import Finding, LogRecord
from eventlog.mirroring.partition_reading import PartitionRows
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.rows import UNREADABLE, Position, aborted_in, read_orphans
from eventlog.session_line import SessionLine
from eventlog.sqlite.damage import find_log_damage

_FINDINGS_MAX: Final = 100
"""Unreadable records that are listed one by one, for each partition."""


def find_mirror_damage(
    reader: MirrorReader, path: Path, session_ids: Sequence[str] | None
) -> Iterator[Finding]:
    """Everything wrong in these sessions, or in the whole mirror. Damage is never raised."""
    for finding in find_log_damage(reader, path, session_ids):
        yield _placed(reader, finding)
    if session_ids is not None:
        for session_id in session_ids:
            yield from _verdict_findings(reader, session_id)
        return
    try:
        positions = reader.positions()
        headless = reader.headless()
        with reader.connection() as db:
            read_orphans(db)
    except SteplogError as error:
        yield finding_of(error)
        return
    for position in positions.values():
        yield from _partition_findings(reader, position)
    for session_id, _, line in headless:
        if line.error is not None:
            yield finding_of(line.error.as_error(session_id))
    known = [each for each, _, _ in headless]
    with suppress(SteplogError):  # told above, as damage of the list of sessions
        known += reader.session_ids()
    for session_id in known:
        yield from _verdict_findings(reader, session_id)


def _placed(reader: MirrorReader, finding: Finding) -> Finding:
    """The finding with its event's place in the topic."""
    if type(finding.offset) is not int:
        return finding
    try:
        part, offset = reader.place_of(finding.offset)
    except SteplogError:
        return finding._replace(offset=None)
    return finding._replace(offset=offset, partition=part)


def _partition_findings(reader: MirrorReader, position: Position) -> Iterator[Finding]:
    """What can be seen only over all rows of a partition."""
    part = position.part
    if position.lost:
        what = f"{position.lost} offsets of partition {part} were deleted before they were mirrored"
        yield Finding(None, None, None, "StepGapError", what, part)
    rows = PartitionRows(reader.moment, part)
    try:
        for _ in rows.spans(0, position.next):
            pass
        unreadable = 0
        for each in rows.skipped(0, position.next):
            if each.verdict == UNREADABLE:
                unreadable += 1
                if unreadable <= _FINDINGS_MAX:
                    what = f"offset {each.offset} of partition {part}: {each.detail}"
                    yield Finding(None, None, each.offset, "EventCorruptError", what, part)
        if unreadable > _FINDINGS_MAX:
            what = f"and {unreadable - _FINDINGS_MAX} unreadable records more in partition {part}"
            yield Finding(None, None, None, "EventCorruptError", what, part)
        with reader.moment() as db:
            aborted_in(db, part)
    except SteplogError as error:
        yield finding_of(error)._replace(partition=part)


def _verdict_findings(reader: MirrorReader, session_id: str) -> Iterator[Finding]:
    try:
        yield from _Rejudged(reader, session_id).findings()
    except SessionNotFoundError:
        raise
    except (IntegrityError, SchemaError) as error:
        yield finding_of(error)._replace(session_id=session_id)


class _Rejudged:
    """Gives every record of a session to the rule once more, and compares with what is kept."""

    def __init__(self, reader: MirrorReader, session_id: str) -> None:
        self._reader = reader
        self._session_id = session_id
        self._kept = reader.line_of(session_id)
        begun = self._kept.begun
        self._number = reader.require_session(session_id).number if begun else None
        self._skipped = SkippedEvents()
        self._judged: JudgedRecord | None = None
        self._offset = 0
        self._line = SessionLine(session_id, self._known, skipped=self._skipped_as)

    def findings(self) -> Iterator[Finding]:
        """Where a verdict, or what they come to, is not what is kept."""
        verdicts = self._reader.skipped_events(self._session_id, self._kept)
        kept = next(verdicts, None)
        for record in self._reader.session_records(self._session_id):
            body = decode_event(record.data).body if needs_body(record.prefix.kind) else None
            self._judged = JudgedRecord(record.prefix, record.digest, body)
            self._offset = record.offset
            verdict = self._line.accept(record.prefix, record.digest, body)
            expected = str(VerdictKind.ACCEPTED)
            if kept is not None and kept.offset == record.offset:
                expected, kept = kept.verdict, next(verdicts, None)
            if verdict.kind != expected:
                yield self._differs(record, expected, verdict.kind)
                return
            if verdict.kind is not VerdictKind.ACCEPTED:
                prefix = record.prefix
                self._skipped.note(
                    record.digest, SkippedEvent(verdict.kind, prefix.attempt, prefix.step)
                )
        if _lasting(self._line.state) != _lasting(self._kept):
            what = "the session's line is not what its records give"
            yield Finding(self._session_id, None, None, "EventCorruptError", what)

    def _differs(self, record: LogRecord, kept: str, judged: str) -> Finding:
        what = f"the record was kept as {kept}, and the rule says {judged}"
        return Finding(
            self._session_id,
            record.prefix.step,
            record.offset,
            "EventCorruptError",
            what,
            record.partition,
        )

    def _known(self, digest: bytes) -> KnownEvent | None:
        if self._number is None or self._judged is None:
            return None
        skipped = self._skipped.find(digest)
        stored = stored_by_place(self._reader, self._number, self._judged, digest, skipped)
        if stored is None or self._reader.place_of(stored.offset)[1] >= self._offset:
            return None  # never accepted, or only later
        return KnownEvent(stored.step, stored.attempt)

    def _skipped_as(self, digest: bytes) -> VerdictKind | None:
        found = self._skipped.find(digest)
        return None if found is None else found.verdict


def _lasting(line: LineState) -> LineState:
    return line._replace(position=0, skipped=())
