"""The mirror's own rows as values: where each record of the topic is, and what it came to.

Reads; `store` writes. Works on one connection, as `sqlite.rows` does, and believes a row only if
its seal fits. What is counted through must be without holes: a row that a damaged page hides shows.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any, Final, NamedTuple

from eventlog.canonical import decode
from eventlog.codec import decode_prefix
from eventlog.event import session_id_problem
from eventlog.keeping.kept_rows import StoredEvent
from eventlog.line_state import LineState
from eventlog.log import LogRecord
from eventlog.sqlite.rows import PAGE_BYTES_MAX, PAGE_EVENTS
from eventlog.sqlite.seal import damaged, require_seal

UNREADABLE: Final = "unreadable"
"""The verdict on bytes that are no event, or one that does not belong where it lies."""


class Source(NamedTuple):
    """What is mirrored, and how many rows of sessions without a head, and without parents."""

    topic: str
    topic_id: str
    partition_count: int
    headless: int
    orphans: int


class Position(NamedTuple):
    """How far a partition was read: `next` is the offset to go on from, past markers.

    `accepted` and `skipped` count its records; `lost` the offsets that were gone before they were
    read. Below `scanned` it was read uncommitted too, which brought `aborted` records.
    """

    part: int
    next: int
    accepted: int = 0
    skipped: int = 0
    lost: int = 0
    scanned: int = 0
    aborted: int = 0


class Span(NamedTuple):
    """Local offsets from `first` on, `length` of them, are Kafka's from `offset` on of `part`.

    `before`: how many accepted records of the partition come before.
    """

    first: int
    part: int
    offset: int
    length: int
    before: int


class Skipped(NamedTuple):
    """A committed record that was not accepted, and why: `verdict`, and `detail` in words.

    `number` counts those of a partition. An `UNREADABLE` one has no session, and no data where it
    is larger than an event may be.
    """

    part: int
    offset: int
    number: int
    session_id: str | None
    step: int | None
    attempt: int | None
    kind: str | None
    verdict: str
    detail: str
    digest: bytes
    data: bytes | None


class Aborted(NamedTuple):
    """A record that was sent in a transaction which did not commit."""

    part: int
    offset: int
    number: int
    session_id: str
    step: int
    attempt: int
    kind: str


_SKIPPED: Final = (
    "SELECT part, offset, number, session, step, attempt, kind, verdict, detail, digest, data, "
    "seal FROM skipped"
)
_SPAN: Final = "SELECT first, part, offset, length, before, seal FROM spans"
_ABORTED: Final = "SELECT part, offset, number, session, step, attempt, kind, seal FROM aborted"


def read_source(db: sqlite3.Connection) -> Source | None:
    """What is mirrored; None before anything was read."""
    row = db.execute(
        "SELECT topic, topic_id, partition_count, headless, orphans, seal FROM source WHERE id=1"
    ).fetchone()
    if row is None:
        return None
    require_seal(row[5], row[:5], "the mirror's source")
    return Source(*row[:5])


def read_positions(db: sqlite3.Connection) -> dict[int, Position]:
    """How far each partition was read; empty before anything was."""
    # One statement, so that all are of one moment.
    rows = db.execute(
        "SELECT part, next, accepted, skipped, lost, scanned, aborted, positions.seal, events, "
        "partition_count FROM log_end LEFT JOIN positions ON 1 LEFT JOIN source ON source.id=1 "
        "WHERE log_end.id=1 ORDER BY part"
    ).fetchall()
    if not rows:
        raise damaged("the row of the mirror's end is missing")
    events, partition_count = rows[0][8:]
    found = {}
    for row in rows:
        if row[7] is not None:
            require_seal(row[7], row[:7], "a partition's position")
            found[row[0]] = Position(*row[:7])
    if list(found) != list(range(partition_count or 0)):
        raise damaged("rows of partitions' positions are missing")
    if sum(position.accepted for position in found.values()) != events:
        raise damaged("the partitions' positions are not those of the mirror's events")
    return found


def span_of(db: sqlite3.Connection, local: int) -> Span:
    """The span that holds a local offset."""
    row = db.execute(f"{_SPAN} WHERE first<=? ORDER BY first DESC LIMIT 1", (local,)).fetchone()
    span = None if row is None else _span(row)
    if span is None or not span.first <= local < span.first + span.length:
        raise damaged(f"where the event at local offset {local} comes from is not known any more")
    return span


def last_span(db: sqlite3.Connection, part: int, end: int) -> Span | None:
    """The partition's last span that begins below the offset `end`."""
    row = db.execute(
        f"{_SPAN} WHERE part=? AND offset<? ORDER BY offset DESC LIMIT 1", (part, end)
    ).fetchone()
    return None if row is None else _span(row)


def spans_at(db: sqlite3.Connection, part: int, start: int, limit: int) -> list[Span]:
    """The partition's spans that begin at the offset `start` or after it."""
    rows = db.execute(
        f"{_SPAN} WHERE part=? AND offset>=? ORDER BY offset LIMIT ?", (part, start, limit)
    ).fetchall()
    return [_span(row) for row in rows]


def span_events(db: sqlite3.Connection, first: int, end: int) -> list[tuple[int, StoredEvent]]:
    """Events at local offsets [first, end), each with its session's number; a page at most."""
    cursor = db.execute(
        "SELECT offset, attempt, step, digest, data, session FROM events "
        f"WHERE offset>=? AND offset<? ORDER BY offset LIMIT {PAGE_EVENTS}",
        (first, end),
    )
    found: list[tuple[int, StoredEvent]] = []
    size = 0
    for row in cursor:
        types = tuple(map(type, row))
        if types != (int, int, int, bytes, bytes, int) or row[0] != first + len(found):
            raise damaged(f"the event's row at local offset {first + len(found)} is missing")
        found.append((row[5], StoredEvent._make(row[:5])))
        size += len(row[4])
        if size >= PAGE_BYTES_MAX:
            break
    cursor.close()
    if not found:
        raise damaged(f"the event's row at local offset {first} is missing")
    return found


def last_skipped(db: sqlite3.Connection, part: int, end: int) -> Skipped | None:
    """The partition's last skipped record below the offset `end`."""
    row = db.execute(
        f"{_SKIPPED} WHERE part=? AND offset<? ORDER BY offset DESC LIMIT 1", (part, end)
    ).fetchone()
    return None if row is None else _skipped(row)


def skipped_at(db: sqlite3.Connection, part: int, start: int) -> list[Skipped]:
    """The partition's skipped records from the offset `start` on; a page at most."""
    return _skipped_page(
        db.execute(
            f"{_SKIPPED} WHERE part=? AND offset>=? ORDER BY offset LIMIT {PAGE_EVENTS}",
            (part, start),
        )
    )


def skipped_of(db: sqlite3.Connection, session_id: str, start: int) -> list[Skipped]:
    """The session's skipped records from the offset `start` on; a page at most."""
    return _skipped_page(
        db.execute(
            f"{_SKIPPED} WHERE session=? AND offset>=? ORDER BY offset LIMIT {PAGE_EVENTS}",
            (session_id, start),
        )
    )


def skipped_record(skipped: Skipped) -> LogRecord:
    """A skipped event as a record, its bytes proven to be what was stored."""
    data = skipped.data
    place = {"session_id": skipped.session_id, "step": skipped.step}
    if data is None or sha256(data).digest() != skipped.digest:
        raise damaged(
            f"the bytes of the skipped record at offset {skipped.offset} of partition "
            f"{skipped.part} do not have its digest",
            **place,
        )
    prefix = decode_prefix(data)
    return LogRecord(skipped.offset, skipped.digest, data, prefix, skipped.part)


def session_skipped(
    moment: Callable[[], AbstractContextManager[sqlite3.Connection]], session_id: str
) -> Iterator[Skipped]:
    """All of the session's skipped records by offset, page by page."""
    start = 0
    while True:
        with moment() as db:
            page = skipped_of(db, session_id, start)
        if not page:
            return
        yield from page
        start = page[-1].offset + 1


def aborted_in(db: sqlite3.Connection, part: int) -> Sequence[Aborted]:
    """The partition's aborted records, as far as it was scanned; none may be missing."""
    rows = db.execute(f"{_ABORTED} WHERE part=? ORDER BY offset", (part,)).fetchall()
    found = [_aborted(row) for row in rows]
    total = read_positions(db)[part].aborted
    if [each.number for each in found] != list(range(total)):
        raise damaged(f"rows of aborted records of partition {part} are missing")
    return found


def headless_line(db: sqlite3.Connection, session_id: str) -> LineState | None:
    """The line of a session of which nothing was ever accepted; None where there is none such."""
    if session_id_problem(session_id) is not None:
        return None
    row = db.execute(
        "SELECT session, part, line, seal FROM headless WHERE session=?", (session_id,)
    ).fetchone()
    return None if row is None else _headless(row)[2]


def headless_lines(db: sqlite3.Connection) -> list[tuple[str, int, LineState]]:
    """All sessions of which nothing was ever accepted, each with its partition and line."""
    # One statement, so that the count is of the same moment as the rows.
    rows = db.execute(
        "SELECT headless.session, part, line, headless.seal, source.headless FROM log_end "
        "LEFT JOIN source ON source.id=1 LEFT JOIN headless ON 1 WHERE log_end.id=1 "
        "ORDER BY headless.session"
    ).fetchall()
    found = [_headless(row[:4]) for row in rows if row[3] is not None]
    if not rows or len(found) != (rows[0][4] or 0):
        raise damaged("rows of sessions without a head are missing")
    return found


def require_headless_whole(db: sqlite3.Connection) -> None:
    """Raise where a row of a session without a head is missing."""
    total, found = db.execute(
        "SELECT (SELECT headless FROM source WHERE id=1), (SELECT count(*) FROM headless)"
    ).fetchone()
    if found != (total or 0):
        raise damaged("rows of sessions without a head are missing")


def require_unknown(db: sqlite3.Connection, session_id: str) -> None:
    """Before "there is no such session" is said: no record of it was ever read."""
    if session_id_problem(session_id) is None:
        known = db.execute("SELECT 1 FROM skipped WHERE session=? LIMIT 1", (session_id,))
        if known.fetchone() is not None:
            raise damaged("the session has records, but no row", session_id=session_id)


def read_orphans(db: sqlite3.Connection) -> dict[str, set[str]]:
    """The branches that wait, by the session whose events they wait for; none may be missing."""
    # One statement, so that the count is of the same moment as the rows.
    rows = db.execute(
        "SELECT waits_for, session, orphans.seal, source.orphans FROM log_end "
        "LEFT JOIN source ON source.id=1 LEFT JOIN orphans ON 1 WHERE log_end.id=1"
    ).fetchall()
    found: dict[str, set[str]] = {}
    count = 0
    for waits_for, session_id, seal, _ in rows:
        if seal is not None:
            require_seal(seal, (waits_for, session_id), "a branch that waits for its parent")
            found.setdefault(waits_for, set()).add(session_id)
            count += 1
    if not rows or count != (rows[0][3] or 0):
        raise damaged("rows of branches that wait for their parents are missing")
    return found


def _span(row: tuple[Any, ...]) -> Span:
    require_seal(row[5], row[:5], "a span of offsets")
    return Span(*row[:5])


def _skipped(row: tuple[Any, ...]) -> Skipped:
    # The data is proven by its digest, where it is read.
    require_seal(row[11], row[:10], "a skipped record")
    if row[10] is not None and type(row[10]) is not bytes:
        raise damaged("the row of a skipped record does not hold a record")
    return Skipped(*row[:11])


def _skipped_page(cursor: sqlite3.Cursor) -> list[Skipped]:
    found: list[Skipped] = []
    size = 0
    for row in cursor:
        found.append(_skipped(row))
        size += len(row[10] or b"")
        if size >= PAGE_BYTES_MAX:
            break
    cursor.close()
    return found


def _aborted(row: tuple[Any, ...]) -> Aborted:
    require_seal(row[7], row[:7], "an aborted record")
    return Aborted(*row[:7])


def _headless(row: tuple[Any, ...]) -> tuple[str, int, LineState]:
    require_seal(row[3], row[:3], "a session without a head")
    value = decode(row[2])
    if not isinstance(value, list):
        raise damaged("the line of a session without a head is not one")
    return row[0], row[1], LineState.from_value(value)
