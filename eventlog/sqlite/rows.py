"""The rows of `log.db` as values of ours, and back. Reads; `sqlite_store` writes.

Every row that is not proven by its own content (an event's is, by its digest) carries a seal, and
is believed only if the seal fits. Works on one connection; whoever calls it decides about
transactions. Raises sqlite3's errors as they come, and `EventCorruptError` for what does not fit.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from eventlog.errors import SteplogError
from eventlog.event import session_id_problem
from eventlog.keeping.kept_records import checked_record
from eventlog.keeping.kept_rows import KeptSession, Mark, StoredEvent
from eventlog.keeping.line_checking import BlobUse
from eventlog.line_state import Claim, KnownEvent
from eventlog.log import LogRecord
from eventlog.sqlite.head import SELECT_HEAD, checked_head, kept_of, summary_of
from eventlog.sqlite.log_end import heads_missing
from eventlog.sqlite.paging import pages
from eventlog.sqlite.seal import damaged, require_seal

PAGE_EVENTS: Final = 512
"""A read takes at most so many events at once ..."""
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""... and at most about so many bytes: no iterator holds a transaction, or much memory."""

_EVENT: Final = "SELECT offset, attempt, step, digest, data FROM events"


class SqliteRows:
    """`kept_rows.LineSource` and `line_checking.CheckSource` over one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def head_row(self, session_id: str) -> tuple[Any, ...] | None:
        """The session's row of `head`, checked; None where the log has nothing of it."""
        if session_id_problem(session_id) is not None:
            return None  # No session has it, and of lone surrogates SQLite makes no text.
        row = self._db.execute(f"{SELECT_HEAD} WHERE session=?", (session_id,)).fetchone()
        if row is not None:
            if row[1] != session_id:
                raise damaged("the index of sessions leads astray", session_id=session_id)
            return checked_head(row)
        lost = self._db.execute("SELECT 1 FROM claims WHERE session=?", (session_id,)).fetchone()
        if lost is None:
            missing = self.heads_missing()
            if missing:
                # Any of them may be its row: it is not known that there never was such a session.
                raise damaged(
                    f"the session is not found, but {missing} head rows are missing",
                    session_id=session_id,
                )
            return None
        # Outside a transaction another process may seed the session between the two looks.
        row = self._db.execute(f"{SELECT_HEAD} WHERE session=?", (session_id,)).fetchone()
        if row is None:
            raise damaged("the session's head row is missing", session_id=session_id)
        return checked_head(row)

    def heads_missing(self) -> int:
        """How many sessions of the log have no head row any more."""
        return heads_missing(self._db)

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row; None where the log holds nothing of the session."""
        row = self.head_row(session_id)
        return None if row is None else kept_of(row)

    def session_of_number(self, number: int) -> str | None:
        """The id of a session by its number."""
        row = self._db.execute(f"{SELECT_HEAD} WHERE number=?", (number,)).fetchone()
        if row is None:
            return None
        if row[0] != number:
            raise damaged(f"another session stands in the place of number {number}")
        return str(checked_head(row)[1])

    def head_rows(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Rows of `head` with a number above `after`, by number; not checked yet."""
        return self._db.execute(
            f"{SELECT_HEAD} WHERE number>? ORDER BY number LIMIT ?", (after, limit)
        ).fetchall()

    def first_record(self, number: int) -> LogRecord | None:
        """The first event of a session by its number; None where there is no whole one.

        It names its session, also where nothing else does any more.
        """
        query = f"{_EVENT} WHERE session=? ORDER BY attempt, step LIMIT 1"
        try:
            row = self._db.execute(query, (number,)).fetchone()
            return None if row is None else checked_record(_stored(row), None)
        except (sqlite3.Error, SteplogError):
            return None  # Asked for a name where damage is known already: this is more of it.

    def claims_of(self, session_id: str) -> Sequence[Claim]:
        """Every accepted claim of the session, ascending by attempt."""
        if session_id_problem(session_id) is not None:
            return []
        rows = self._db.execute(
            "SELECT attempt, first_step, parent_attempt, seal FROM claims WHERE session=? "
            "ORDER BY attempt",
            (session_id,),
        ).fetchall()
        for row in rows:
            require_seal(row[3], (session_id, *row[:3]), "a claim", session_id=session_id)
        return [Claim(*row[:3]) for row in rows]

    def event_at(self, number: int, attempt: int, step: int) -> StoredEvent | None:
        """The event that the session wrote as `step` under `attempt`."""
        row = self._db.execute(
            f"{_EVENT} WHERE session=? AND attempt=? AND step=?", (number, attempt, step)
        ).fetchone()
        return None if row is None else _stored(row)

    def event_page(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> list[StoredEvent]:
        """Some of the events of steps [start_step, end_step), from the first on; [] if none."""
        cursor = self._db.execute(
            f"{_EVENT} WHERE session=? AND attempt=? AND step>=? AND step<? ORDER BY step "
            f"LIMIT {PAGE_EVENTS}",
            (number, attempt, start_step, end_step),
        )
        return _page_of(cursor)

    def events_between(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> Iterator[StoredEvent]:
        """Events of steps [start_step, end_step) under `attempt`, in order, page by page."""
        return events_by_step(
            lambda step: self.event_page(number, attempt, step, end_step), start_step
        )

    def offset_page(self, start: int, end: int) -> list[tuple[int, StoredEvent]]:
        """Some of the events at offsets [start, end), each with its session's number."""
        cursor = self._db.execute(
            "SELECT offset, attempt, step, digest, data, session FROM events "
            f"WHERE offset>=? AND offset<? ORDER BY offset LIMIT {PAGE_EVENTS}",
            (start, end),
        )
        found: list[tuple[int, StoredEvent]] = []
        size = 0
        for row in cursor:
            stored = _stored(row[:5])
            if type(row[5]) is not int:
                raise damaged(f"the event's row at offset {stored.offset} names no session")
            found.append((row[5], stored))
            size += len(stored.data)
            if size >= PAGE_BYTES_MAX:
                break
        cursor.close()
        return found

    def own_page(self, number: int, after: tuple[int, int]) -> list[StoredEvent]:
        """Some of the session's events after (attempt, step), in log order."""
        cursor = self._db.execute(
            f"{_EVENT} WHERE session=? AND (attempt, step)>(?, ?) ORDER BY attempt, step "
            f"LIMIT {PAGE_EVENTS}",
            (number, *after),
        )
        return _page_of(cursor)

    def all_events(self, number: int) -> Iterator[StoredEvent]:
        """Every row of the session in log order: an attempt writes only while it is the last."""
        return events_by_place(lambda after: self.own_page(number, after))

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        """Where the session wrote the event of this digest; newest first, in the end all rows."""
        row = self._db.execute(
            f"{_EVENT} WHERE session=? AND digest=? ORDER BY attempt DESC, step DESC LIMIT 1",
            (number, digest),
        ).fetchone()
        if row is None:
            return None
        stored = _stored(row)
        return KnownEvent(stored.step, stored.attempt)

    def mark_before(self, number: int, attempt: int, end_step: int) -> Mark | None:
        """The latest stored summary of `attempt` at a step below `end_step`."""
        row = self._db.execute(
            "SELECT attempt, step, summary, seal FROM marks WHERE session=? AND attempt=? "
            "AND step<? ORDER BY step DESC LIMIT 1",
            (number, attempt, end_step),
        ).fetchone()
        return None if row is None else _mark_of(number, row)

    def marks_of(self, number: int) -> Sequence[Mark]:
        """Every stored mark of the session."""
        rows = self._db.execute(
            "SELECT attempt, step, summary, seal FROM marks WHERE session=?", (number,)
        )
        return [_mark_of(number, row) for row in rows.fetchall()]

    def blob_uses(self, number: int) -> Sequence[BlobUse]:
        """Every stored blob reference of the session."""
        rows = self._db.execute(
            "SELECT blob, attempt, step FROM blob_refs WHERE session=?", (number,)
        ).fetchall()
        if any(tuple(map(type, row)) != (bytes, int, int) for row in rows):
            raise damaged("a row of blob references does not hold what was written")
        return [BlobUse(*row) for row in rows]


def events_by_step(
    read: Callable[[int], Sequence[StoredEvent]], start_step: int
) -> Iterator[StoredEvent]:
    """Events in the order of their steps; `read` gives a page from a step on."""
    for page in pages(
        lambda step: read(step + 1), attrgetter("step"), start_step - 1, "events of a session"
    ):
        yield from page


def events_by_place(
    read: Callable[[tuple[int, int]], Sequence[StoredEvent]],
) -> Iterator[StoredEvent]:
    """Events in the order of attempt and step; `read` gives a page after such a place."""
    for page in pages(read, attrgetter("attempt", "step"), (-1, -1), "events of a session"):
        yield from page


def _mark_of(number: int, row: tuple[Any, ...]) -> Mark:
    require_seal(row[3], (number, *row[:3]), "a stored summary")
    return Mark(row[0], row[1], summary_of(row[2]))


def _stored(row: tuple[Any, ...]) -> StoredEvent:
    """A row of `events`; a damaged one may hold values of any type."""
    stored = StoredEvent._make(row)
    if (
        type(stored.data) is not bytes
        or type(stored.digest) is not bytes
        or type(stored.step) is not int
        or type(stored.attempt) is not int
    ):
        raise damaged(f"the event's row at offset {stored.offset} does not hold an event")
    return stored


def _page_of(cursor: sqlite3.Cursor) -> list[StoredEvent]:
    page: list[StoredEvent] = []
    size = 0
    for row in cursor:
        stored = _stored(row)
        page.append(stored)
        size += len(stored.data)
        if size >= PAGE_BYTES_MAX:
            break
    cursor.close()
    return page
