"""The rows of `log_end` and `cursors`: how much is in the log, and how far its consumers are."""

import sqlite3
from typing import NamedTuple

from eventlog.cut import Cut
from eventlog.sqlite_seal import damaged, require_seal, seal_of


class LogEnd(NamedTuple):
    """The format, the end offset of the log, and how many sessions and cursors are in it."""

    format: int
    events: int
    sessions: int
    cursors: int


def read_log_end(db: sqlite3.Connection) -> LogEnd:
    """The log's end, checked against the last event there is."""
    # One statement, so that both are of one moment.
    row = db.execute(
        "SELECT format, events, sessions, cursors, seal, (SELECT max(offset) FROM events) "
        "FROM log_end WHERE id=1"
    ).fetchone()
    if row is None:
        raise damaged("the row of the log's end is missing")
    require_seal(row[4], row[:4], "the log's end")
    if (-1 if row[5] is None else row[5]) != row[1] - 1:
        raise damaged(f"the log ends at offset {row[1]}, but its last event is at {row[5]}")
    return LogEnd(*row[:4])


def write_log_end(db: sqlite3.Connection, end: LogEnd) -> None:
    """Store the log's end in its one row."""
    db.execute("INSERT OR REPLACE INTO log_end VALUES(1, ?, ?, ?, ?, ?)", (*end, seal_of(end)))


def read_cut(db: sqlite3.Connection, group: str) -> Cut:
    """The cut committed by consumer `group`; the empty one if none was."""
    rows = db.execute(
        "SELECT consumer, part, next, seal, "
        "(SELECT count(*) FROM cursors) = (SELECT cursors FROM log_end WHERE id=1) "
        "FROM (SELECT 1) LEFT JOIN cursors ON consumer=?",
        (group,),
    ).fetchall()
    if not all(row[4] for row in rows):
        raise damaged("rows of consumers' cuts are missing")
    ends = {}
    for name, part, end, seal, _ in rows:
        if name is not None:
            require_seal(seal, (group, part, end), f"consumer {group!r}")
            ends[part] = end
    return Cut(ends)
