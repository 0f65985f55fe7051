"""The rows of `log.db` as values of ours, and back. Reads; `sqlite_store` writes.

Every row that is not proven by its own content (an event's is, by its digest) carries a seal, and
is believed only if the seal fits. Works on one connection; whoever calls it decides about
transactions. Raises sqlite3's errors as they come, and `EventCorruptError` for what does not fit.
"""

import math
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from eventlog.canonical import decode, encode
from eventlog.errors import EventCorruptError
from eventlog.event import LineHead
from eventlog.kept_rows import KeptSession, Mark, StoredEvent
from eventlog.line_checking import BlobUse
from eventlog.line_state import Claim, KnownEvent, LineState
from eventlog.log import SessionInfo
from eventlog.session_summary import SessionSummary

PAGE_EVENTS: Final = 512
"""A read takes at most so many events at once ..."""
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""... and at most about so many bytes: no iterator holds a transaction, or much memory."""

_EVENT: Final = "SELECT offset, attempt, step, digest, data FROM events"

HEAD_FIELDS: Final = (
    *("number", "session", "step_count", "attempt", "digest", "writer", "first_step"),
    *("parent_session", "fork_parent", "closed", "lost", "released", "released_to", "accepted"),
    *("last_offset", "status", "environment", "task_id", "sample_id", "group_id", "policy"),
    *("reducer", "reducer_version", "state_coverage", "reward_bits", "reward_from"),
    *("first_time", "last_time", "summary", "seal", "reward"),
)
_HEAD: Final = f"SELECT {', '.join(HEAD_FIELDS)} FROM head"
_SEALED_HEAD: Final = slice(0, HEAD_FIELDS.index("seal"))


class LogEnd(NamedTuple):
    """The format, the end offset of the log and how many sessions began in it."""

    format: int
    events: int
    sessions: int


def seal_of(values: Sequence[Any]) -> int:
    """The checksum of a row: CRC-32 of the text that `ascii` gives for the tuple of its values.

    `ascii` because it is the same in every Python, and takes half the time of canonical bytes.
    """
    return crc32(ascii(tuple(values)).encode("ascii"))


def require_seal(seal: object, values: Sequence[Any], what: str, **place: Any) -> None:
    """Raise `EventCorruptError` naming `what` unless the seal is that of the values."""
    if seal != seal_of(values):
        raise damaged(f"the row of {what} is not what was written", **place)


def damaged(message: str, **place: Any) -> EventCorruptError:
    """An error for rows that cannot be believed."""
    return EventCorruptError(
        message, hint="run `steplog check`; restore the log from a copy", **place
    )


def read_log_end(db: sqlite3.Connection) -> LogEnd:
    """The log's end, checked against the last event there is."""
    # One statement, so that both are of one moment.
    row = db.execute(
        "SELECT format, events, sessions, seal, (SELECT max(offset) FROM events) "
        "FROM log_end WHERE id=1"
    ).fetchone()
    if row is None:
        raise damaged("the row of the log's end is missing")
    require_seal(row[3], row[:3], "the log's end")
    if (-1 if row[4] is None else row[4]) != row[1] - 1:
        raise damaged(f"the log ends at offset {row[1]}, but its last event is at {row[4]}")
    return LogEnd(*row[:3])


def write_log_end(db: sqlite3.Connection, end: LogEnd) -> None:
    """Store the log's end in its one row."""
    db.execute("INSERT OR REPLACE INTO log_end VALUES(1, ?, ?, ?, ?)", (*end, seal_of(end)))


def head_values(kept: KeptSession) -> tuple[Any, ...]:
    """The row of `head` for a session, in the order of `HEAD_FIELDS`."""
    line, summary = kept.line, kept.summary
    reward = summary.reward
    row = (
        kept.number,
        kept.session_id,
        line.next_step,
        line.attempt,
        line.head,
        line.writer,
        line.first_step,
        line.parent_session,
        line.fork_parent,
        line.closed,
        line.lost,
        int(line.released),
        line.released_to,
        line.accepted,
        kept.last_offset,
        line.status,
        *summary.seed,
        None if reward is None else struct.pack(">d", reward),
        summary.reward_from,
        summary.first_time,
        summary.last_time,
        encode(summary.to_value()),
    )
    return (*row, seal_of(row), reward)


def checked_head(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of `head`, its seal checked."""
    require_seal(row[_SEALED_HEAD.stop], row[_SEALED_HEAD], "a session", session_id=row[1])
    reward = row[-1]
    if row[24] is not None:
        # SQLite keeps NaN as NULL and the sign of zero not at all; the bits are the reward.
        exact = struct.unpack(">d", row[24])[0]
        if not (exact == reward or (math.isnan(exact) and reward is None)):
            raise damaged("the reward of a session is not what was written", session_id=row[1])
    return row


def info_of(row: tuple[Any, ...]) -> SessionInfo:
    """A checked row of `head` as what a listing shows."""
    return SessionInfo(
        row[1],
        row[16],
        row[17],
        row[18],
        row[19],
        row[20],
        row[21],
        row[22],
        row[23],
        row[2],
        row[3],
        row[15],
        row[5],
        None if row[24] is None else struct.unpack(">d", row[24])[0],
        row[25],
        row[26],
        row[27],
        LineHead(row[1], row[2] - 1, row[3], row[4]),
        row[7],
        None if row[7] is None else row[6] - 1,
        None,
    )


def kept_of(row: tuple[Any, ...]) -> KeptSession:
    """A checked row of `head` as what a writer goes on from."""
    line = LineState(
        next_step=row[2],
        head=row[4],
        attempt=row[3],
        writer=row[5],
        first_step=row[6],
        parent_session=row[7],
        fork_parent=row[8],
        closed=row[9],
        lost=row[10],
        released=bool(row[11]),
        released_to=row[12],
        accepted=row[13],
    )
    return KeptSession(row[0], row[1], line, _summary_of(row[28]), row[14])


def _summary_of(data: bytes) -> SessionSummary:
    value = decode(data)
    if not isinstance(value, list):
        raise damaged("a stored session summary is not one")
    return SessionSummary.from_value(value)


class SqliteRows:
    """`kept_rows.LineSource` and `line_checking.CheckSource` over one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def head_row(self, session_id: str) -> tuple[Any, ...] | None:
        """The session's row of `head`, checked; None where the log has nothing of it."""
        row = self._db.execute(f"{_HEAD} WHERE session=?", (session_id,)).fetchone()
        if row is not None:
            return checked_head(row)
        lost = self._db.execute("SELECT 1 FROM claims WHERE session=?", (session_id,)).fetchone()
        if lost is None:
            return None
        # Outside a transaction another process may seed the session between the two looks.
        row = self._db.execute(f"{_HEAD} WHERE session=?", (session_id,)).fetchone()
        if row is None:
            raise damaged("the session's head row is missing", session_id=session_id)
        return checked_head(row)

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row; None where the log holds nothing of the session."""
        row = self.head_row(session_id)
        return None if row is None else kept_of(row)

    def session_of_number(self, number: int) -> str | None:
        """The id of a session by its number."""
        row = self._db.execute(f"{_HEAD} WHERE number=?", (number,)).fetchone()
        return None if row is None else str(checked_head(row)[1])

    def head_rows(
        self, after: int, conditions: str, values: Sequence[Any], limit: int
    ) -> list[tuple[Any, ...]]:
        """Rows of `head` with a number above `after` that meet the SQL conditions, by number."""
        return self._db.execute(
            f"{_HEAD} WHERE number>? {conditions} ORDER BY number LIMIT ?",
            (after, *values, limit),
        ).fetchall()

    def claims_of(self, session_id: str) -> Sequence[Claim]:
        """Every accepted claim of the session, ascending by attempt."""
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
        while start_step < end_step:
            page = self.event_page(number, attempt, start_step, end_step)
            yield from page
            if not page:
                return
            start_step = page[-1].step + 1

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
        after = (-1, -1)
        while page := self.own_page(number, after):
            yield from page
            after = (page[-1].attempt, page[-1].step)

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        """Where the session wrote the event of this digest; newest first, in the end all rows."""
        row = self._db.execute(
            "SELECT step, attempt FROM events WHERE session=? AND digest=? "
            "ORDER BY attempt DESC, step DESC LIMIT 1",
            (number, digest),
        ).fetchone()
        return None if row is None else KnownEvent(*row)

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
        )
        return [BlobUse(*row) for row in rows.fetchall()]


def _mark_of(number: int, row: tuple[Any, ...]) -> Mark:
    require_seal(row[3], (number, *row[:3]), "a stored summary")
    return Mark(row[0], row[1], _summary_of(row[2]))


def _stored(row: tuple[Any, ...]) -> StoredEvent:
    """A row of `events`; a damaged one may hold values of any type."""
    stored = StoredEvent._make(row)
    if type(stored.data) is not bytes or type(stored.digest) is not bytes:
        raise damaged(f"the event's row at offset {stored.offset} does not hold bytes")
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
