"""`MirrorReader`: a mirror read as a log, and where in the topic each record of it lies."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from eventlog.cut import Cut
from eventlog.errors import EventCorruptError, SessionNotFoundError, SteplogError
from eventlog.keeping.kept_records import read_kept
from eventlog.keeping.kept_rows import KeptSession
from eventlog.line_state import LineState
from eventlog.log import LogRecord, SessionInfo
from eventlog.mirroring.partition_reading import PartitionRows
from eventlog.mirroring.rows import (
    Aborted,
    Position,
    Skipped,
    Source,
    Span,
    aborted_in,
    headless_line,
    headless_lines,
    last_skipped,
    last_span,
    read_positions,
    read_source,
    require_headless_whole,
    require_unknown,
    session_skipped,
    skipped_record,
    span_events,
    span_of,
)
from eventlog.mirroring.schema import MIRROR_FORM
from eventlog.sqlite.reader import SqliteReader, no_session
from eventlog.sqlite.rows import SqliteRows
from eventlog.sqlite.seal import damaged

PLACED_MAX: Final = 64
"""So many records at most are read ahead to be given their places together."""


class MirrorReader(SqliteReader):
    """A `SqliteReader` on a mirror's file; its offsets are local unless a method says otherwise."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MIRROR_FORM)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for one question; damage is told with what mends a mirror."""
        try:
            with super().connection() as db:
                yield db
        except EventCorruptError as error:
            error.hint = f"remove {self._path}: the topic is mirrored again"
            raise

    @contextmanager
    def moment(self) -> Iterator[Connection]:
        """A connection whose answers are all of one moment."""
        with self.connection() as db:
            db.execute("BEGIN")
            yield db
            db.execute("COMMIT")

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row; None where the mirror holds nothing of the session.

        Raises the error that stopped a session before anything of it was accepted.
        """
        with self.moment() as db:
            kept = SqliteRows(db).find_session(session_id)
            if kept is not None:
                return kept
            line = _headless(db, session_id)
        if line is not None and line.error is not None:
            raise line.error.as_error(session_id)
        return None

    def session_info(self, session_id: str) -> SessionInfo:
        """One session, its head held against the event it names."""
        try:
            return super().session_info(session_id)
        except SessionNotFoundError:
            self.find_session(session_id)
            raise

    def source(self) -> Source | None:
        """What is mirrored; None before anything was read."""
        with self.connection() as db:
            return read_source(db)

    def positions(self) -> Mapping[int, Position]:
        """How far each partition was read; empty before anything was."""
        with self.connection() as db:
            return read_positions(db)

    def newest_time(self) -> int | None:
        """The time of the newest event of all sessions, in microseconds; None where there is none.

        Only for people to read: it is not held against the events.
        """
        with self.connection() as db:
            newest: int | None = db.execute("SELECT max(last_time) FROM head").fetchone()[0]
        return newest

    def headless(self) -> list[tuple[str, int, LineState]]:
        """Sessions of which nothing was ever accepted, each with its partition and line."""
        with self.connection() as db:
            return headless_lines(db)

    def place_of(self, local: int) -> tuple[int, int]:
        """The partition and offset in the topic of the accepted event at a local offset."""
        with self.connection() as db:
            span = span_of(db, local)
        return span.part, span.offset + local - span.first

    def last_record(self, part: int) -> tuple[int, bytes] | None:
        """The offset and digest of the partition's last committed record that was read."""
        with self.moment() as db:
            position = read_positions(db)[part]
            span = last_span(db, part, position.next)
            skipped = last_skipped(db, part, position.next)
            accepted = 0 if span is None else span.before + span.length
            refused = 0 if skipped is None else skipped.number + 1
            if (accepted, refused) != (position.accepted, position.skipped):
                raise damaged(f"the last rows of records of partition {part} are missing")
            found = None if skipped is None else (skipped.offset, skipped.digest)
            if span is not None and (found is None or span.offset > found[0]):
                local = span.first + span.length - 1
                _, stored = span_events(db, local, local + 1)[0]
                found = (span.offset + span.length - 1, stored.digest)
        return found

    def placed(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        """The same records, each with its partition, and its offset there."""
        span: Span | None = None
        for chunk in _chunks(records):
            found = []
            with self.connection() as db:
                for record in chunk:
                    local = record.offset
                    if span is None or not span.first <= local < span.first + span.length:
                        span = span_of(db, local)
                    offset = span.offset + local - span.first
                    found.append(
                        LogRecord(offset, record.digest, record.data, record.prefix, span.part)
                    )
            yield from found

    def find_line(self, session_id: str) -> LineState | None:
        """The session's line, also where nothing of it was ever accepted; None if unknown."""
        with self.moment() as db:
            kept = SqliteRows(db).find_session(session_id)
            return _headless(db, session_id) if kept is None else kept.line

    def line_of(self, session_id: str) -> LineState:
        """As `find_line`. Raises `SessionNotFoundError`."""
        line = self.find_line(session_id)
        if line is None:
            raise no_session(session_id)
        return line

    def aborted(self, session_id: str, part: int) -> Sequence[Aborted]:
        """The session's records that were sent and never commit, as far as its partition was read.

        There are few: all of the partition are looked through, and counted.
        """
        with self.moment() as db:
            found = aborted_in(db, part) if read_positions(db) else ()
        return [each for each in found if each.session_id == session_id]

    def session_records(self, session_id: str) -> Iterator[LogRecord]:
        """Every committed record of the session, accepted or not, in the topic's order."""
        line = self.line_of(session_id)
        skipped = map(skipped_record, self.skipped_events(session_id, line))
        if not line.begun:
            return skipped
        accepted = self.placed(read_kept(self, self.require_session(session_id)))
        return merge(accepted, skipped, key=attrgetter("offset"))

    def skipped_events(self, session_id: str, line: LineState) -> Iterator[Skipped]:
        """The session's records that were not accepted, as many as its line has counted."""
        count = sum(line.counts) - line.counts.after_close
        seen = 0
        for each in islice(session_skipped(self.moment, session_id), count):
            yield each
            seen += 1
        if seen < count:
            raise damaged("rows of skipped records are missing", session_id=session_id)

    def tail_between(self, cut: Cut, end: Cut) -> Iterator[LogRecord]:
        """Every committed record that is an event from `cut` to `end`, partition by partition."""
        for part in end.partitions():
            rows = PartitionRows(self.moment, part)
            yield from rows.records(cut.end(part), end.end(part))


def _chunks(records: Iterator[LogRecord]) -> Iterator[list[LogRecord]]:
    """The records a few at a time, and more when many are asked for; an error comes after them."""
    size = 1
    while True:
        chunk: list[LogRecord] = []
        try:
            chunk.extend(islice(records, size))
        except SteplogError:
            yield chunk
            raise
        yield chunk
        if len(chunk) < size:
            return
        size = min(size * 2, PLACED_MAX)


def _headless(db: Connection, session_id: str) -> LineState | None:
    line = headless_line(db, session_id)
    if line is None:
        require_headless_whole(db)
        require_unknown(db, session_id)
    return line
