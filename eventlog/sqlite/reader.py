"""`SqliteReader`: reading a log through connections of its own, which never block the writer.

Each question takes one connection for as long as it runs, at most one page of rows; so no iterator
keeps a read transaction open, and the write-ahead log can always be begun anew. Pages fit together
because rows of events are never changed.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from eventlog.cut import Cut
from eventlog.errors import EventCorruptError, IntegrityError, SessionNotFoundError, StepGapError
from eventlog.keeping.fork_gate import gate
from eventlog.keeping.kept_records import checked_record
from eventlog.keeping.kept_rows import PARTITION, KeptSession, Mark, StoredEvent
from eventlog.keeping.line_checking import BlobUse
from eventlog.keeping.line_growth import read_line
from eventlog.keeping.session_match import passes
from eventlog.line_state import Claim, KnownEvent
from eventlog.log import LogRecord, SessionFilter, SessionInfo
from eventlog.sqlite.connection import FrozenConnection, open_reader
from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.head import checked_head, info_of, kept_of
from eventlog.sqlite.log_end import LogEnd, read_cuts, read_log_end
from eventlog.sqlite.paging import pages
from eventlog.sqlite.rows import SqliteRows, events_by_place, events_by_step
from eventlog.sqlite.schema import LOG_FORM, FileForm
from eventlog.sqlite.seal import damaged
from eventlog.training_facts import TrainingFacts, facts_of

IDLE_CONNECTIONS_MAX: Final = 8
"""Connections kept for the next question; more are opened when needed and closed after."""
LIST_PAGE: Final = 1_000
_NAMES_MAX: Final = 100_000


class SqliteReader:
    """Answers questions about one log; `kept_rows.LineSource` and `line_checking.CheckSource`.

    Thread-safe. Raises only our errors.
    """

    def __init__(self, path: Path, form: FileForm = LOG_FORM) -> None:
        self._path = path
        self._form = form
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        gate.add(self)
        # Opened at once, so that a file that cannot be read is refused when the log is opened.
        with self.connection():
            pass

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for one question; errors met with it leave as ours."""
        with errors_of(self._path), gate.use():
            with self._lock:
                db = self._idle.pop() if self._idle else None
            if db is None:
                db = open_reader(self._path, self._form)
            try:
                yield db
            except BaseException:
                # It may be in the middle of a statement, or have damaged pages in its cache.
                db.close()
                raise
            with self._lock:
                is_kept = not self._closed and not isinstance(db, FrozenConnection)
                if is_kept and len(self._idle) < IDLE_CONNECTIONS_MAX:
                    self._idle.append(db)
                    return
            db.close()

    def close(self) -> None:
        """Close what is idle; questions still running close theirs when they end."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            with errors_of(self._path), gate.use():
                db.close()

    def let_go(self) -> None:
        """Close what is idle, before a fork; questions open new connections."""
        while self._idle:
            self._idle.pop().close()

    def left_behind(self) -> Sequence[object]:
        """In a forked child: connections that are still there."""
        return tuple(self._idle)

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row; None where the log holds nothing of the session."""
        with self.connection() as db:
            return SqliteRows(db).find_session(session_id)

    def require_session(self, session_id: str) -> KeptSession:
        """The session's row. Raises `SessionNotFoundError`."""
        kept = self.find_session(session_id)
        if kept is None:
            raise no_session(session_id)
        return kept

    def claims_of(self, session_id: str) -> Sequence[Claim]:
        """Every accepted claim of the session, ascending by attempt."""
        with self.connection() as db:
            return SqliteRows(db).claims_of(session_id)

    def event_at(self, number: int, attempt: int, step: int) -> StoredEvent | None:
        """The event that the session wrote as `step` under `attempt`."""
        with self.connection() as db:
            return SqliteRows(db).event_at(number, attempt, step)

    def events_between(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> Iterator[StoredEvent]:
        """Events of steps [start_step, end_step) under `attempt`, in order, page by page."""

        def read(step: int) -> Sequence[StoredEvent]:
            with self.connection() as db:
                return SqliteRows(db).event_page(number, attempt, step, end_step)

        return events_by_step(read, start_step)

    def all_events(self, number: int) -> Iterator[StoredEvent]:
        """Every row of the session in log order, page by page."""

        def read(after: tuple[int, int]) -> Sequence[StoredEvent]:
            with self.connection() as db:
                return SqliteRows(db).own_page(number, after)

        return events_by_place(read)

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        """Where the session wrote the event of this digest."""
        with self.connection() as db:
            return SqliteRows(db).find_digest(number, digest)

    def mark_before(self, number: int, attempt: int, end_step: int) -> Mark | None:
        """The latest stored summary of `attempt` at a step below `end_step`."""
        with self.connection() as db:
            return SqliteRows(db).mark_before(number, attempt, end_step)

    def marks_of(self, number: int) -> Sequence[Mark]:
        """Every stored mark of the session."""
        with self.connection() as db:
            return SqliteRows(db).marks_of(number)

    def blob_uses(self, number: int) -> Sequence[BlobUse]:
        """Every stored blob reference of the session."""
        with self.connection() as db:
            return SqliteRows(db).blob_uses(number)

    def log_end(self) -> LogEnd:
        """The end of the log, checked against the last event."""
        with self.connection() as db:
            return read_log_end(db)

    def cut_of(self, group: str) -> Cut:
        """The cut committed by consumer `group`."""
        with self.connection() as db:
            return read_cuts(db).get(group, Cut.empty())

    def session_info(self, session_id: str) -> SessionInfo:
        """One session, its head held against the event it names."""
        with self.connection() as db:
            rows = SqliteRows(db)
            row = rows.head_row(session_id)
            if row is None:
                raise no_session(session_id)
            info = info_of(row)
            stored = rows.event_at(row[0], info.attempt, info.step_count - 1)
            if stored is None or stored.digest != info.head.digest:
                raise StepGapError(
                    "the event that the session's head names is missing",
                    hint="run `steplog check`; restore the log from a copy",
                    session_id=session_id,
                    step=info.step_count - 1,
                )
            return info

    def list_sessions(self, where: SessionFilter | None) -> Iterator[SessionInfo]:
        """Sessions that pass the filter, by number; a number that is missing is damage.

        Every row is read and checked, whatever the filter: in SQL a lost or damaged row would
        just not match.
        """
        end = self.log_end().sessions
        after = 0
        for page in self.head_pages():
            for row in page:
                checked_head(row)
                if row[0] != after + 1:
                    raise self._lost_head(after + 1)
                after = row[0]
                info = info_of(row)
                if passes(info, where, partial(self._facts_of, row)):
                    yield info
            if after >= end:
                return
        if after < end:
            raise self._lost_head(after + 1)

    def session_ids(self) -> Iterator[str]:
        """The ids in all head rows that are sound, by number."""
        for page in self.head_pages():
            yield from (str(row[1]) for row in page if _is_sound(row))

    def head_pages(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """All rows of `head` by number, not checked yet. Raises where they are not in order."""

        def read(after: int) -> Sequence[tuple[Any, ...]]:
            with self.connection() as db:
                return SqliteRows(db).head_rows(after, LIST_PAGE)

        return pages(read, itemgetter(0), 0, "head rows")

    def tail(self, start: int) -> Iterator[LogRecord]:
        """Every record from offset `start` to the present end of the log."""
        end = self.log_end().events
        names: dict[int, str] = {}
        while start < end:
            with self.connection() as db:
                page = SqliteRows(db).offset_page(start, end)
                if len(names) > _NAMES_MAX:
                    names.clear()
                for number in {number for number, _ in page} - names.keys():
                    names[number] = _name_of(db, number)
            for number, stored in page:
                if stored.offset != start:
                    break
                yield checked_record(stored, names[number])
                start += 1
            else:
                if page:
                    continue
            raise StepGapError(
                f"the event at offset {start} of partition {PARTITION} is missing from the log",
                hint="run `steplog check`; restore the log from a copy",
            )

    def _facts_of(self, row: tuple[Any, ...]) -> TrainingFacts:
        """What a session's events tell of training, where its row does not tell all."""
        return facts_of(read_line(self, kept_of(row)))

    def _lost_head(self, number: int) -> EventCorruptError:
        with self.connection() as db:
            record = SqliteRows(db).first_record(number)
        name = None if record is None else record.prefix.session_id
        return damaged(f"the head row of session number {number} is missing", session_id=name)


def _is_sound(row: tuple[Any, ...]) -> bool:
    """Whether a head row is as it was written."""
    try:
        checked_head(row)
    except IntegrityError:
        return False
    return type(row[1]) is str


def _name_of(db: sqlite3.Connection, number: int) -> str:
    name = SqliteRows(db).session_of_number(number)
    if name is None:
        raise damaged(f"events of session number {number} have no head row")
    return name


def no_session(session_id: str) -> SessionNotFoundError:
    """The error for a session that is not there."""
    return SessionNotFoundError(
        f"no session {session_id!r} in the log",
        hint="`steplog sessions` lists what is there",
        session_id=session_id,
    )
