"""What the writer does with `log.db` inside one transaction: `kept_rows.LineStore` on SQLite.

Events are inserted at once; head rows and the log's end are written once per transaction, when it
commits, however many appends it took.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventlog.canonical import encode
from eventlog.codec import EncodedEvent
from eventlog.content import BlobRef
from eventlog.cut import Cut
from eventlog.errors import EventCorruptError, StepGapError
from eventlog.kept_rows import RECENT_EVENTS, KeptSession, Mark
from eventlog.line_state import Claim
from eventlog.recent_ids import RecentIds
from eventlog.sqlite_rows import (
    HEAD_FIELDS,
    LogEnd,
    SqliteRows,
    head_values,
    read_log_end,
    require_seal,
    seal_of,
    write_log_end,
)
from eventlog.standing_line import standing_ranges

RECENT_SESSIONS: Final = 1_024
"""For so many sessions the writer remembers which ids are recent; others are read again."""

_STATIC: Final = frozenset(
    {
        *("number", "session", "first_step", "parent_session", "fork_parent", "environment"),
        *("task_id", "sample_id", "group_id", "policy", "reducer", "reducer_version"),
        "state_coverage",
    }
)
_CHANGING: Final = tuple(
    (index, name) for index, name in enumerate(HEAD_FIELDS) if name not in _STATIC
)
_INSERT_HEAD: Final = (
    f"INSERT INTO head({', '.join(HEAD_FIELDS)}) VALUES({', '.join('?' * len(HEAD_FIELDS))})"
)
# Only what changes is set, so that no index of head is touched.
_UPDATE_HEAD: Final = (
    f"UPDATE head SET {', '.join(f'{name}=?' for _, name in _CHANGING)} WHERE number=?"
)


class Written(NamedTuple):
    """A session as it is after a transaction, and the first step of its last append there."""

    kept: KeptSession
    first_step: int


class SqliteStore(SqliteRows):
    """The rows as the writer sees and changes them between `begin` and `commit`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._end = LogEnd(0, 0, 0)
        self._first_end = self._end
        self._new: dict[str, KeptSession] = {}
        self._changed: dict[str, KeptSession] = {}
        self.written: dict[str, Written] = {}
        """The sessions that the transaction wrote to, as they are after it."""
        self._must_write = False
        self._first_step = 0
        self._recent: OrderedDict[int, RecentIds] = OrderedDict()

    def begin(self) -> None:
        """Begin a transaction that sees and blocks every other writer."""
        self._db.execute("BEGIN IMMEDIATE")
        self._end = self._first_end = read_log_end(self._db)
        self._new.clear()
        self._changed.clear()
        self.written.clear()
        self._must_write = False

    def write_heads(self) -> None:
        """Store the heads of the sessions that the transaction changed, and the log's end."""
        for kept in self._new.values():
            self._db.execute(_INSERT_HEAD, head_values(kept))
        for kept in self._changed.values():
            values = head_values(kept)
            changing = [values[index] for index, _ in _CHANGING]
            done = self._db.execute(_UPDATE_HEAD, (*changing, kept.number))
            if done.rowcount != 1:
                raise EventCorruptError(
                    "the session's head row vanished while it was written",
                    hint="run `steplog check`",
                    session_id=kept.session_id,
                )
        if self._end != self._first_end or self._must_write:
            write_log_end(self._db, self._end)

    def must_write(self) -> None:
        """Write in this transaction even if nothing changed, so that its COMMIT proves it."""
        self._must_write = True

    def commit(self) -> None:
        """COMMIT: when this returns, everything is on stable storage. Raises sqlite3's errors."""
        self._db.execute("COMMIT")

    def roll_back(self) -> None:
        """Forget the transaction; harmless where none is open."""
        self._recent.clear()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row, this transaction's changes included."""
        found = self._changed.get(session_id) or self._new.get(session_id)
        return super().find_session(session_id) if found is None else found

    def next_number(self) -> int:
        """The number of the next session; without holes, so that a lost row shows."""
        return self._end.sessions + 1

    def put_events(self, number: int, events: Sequence[EncodedEvent]) -> int:
        """Store events at the end of the log, with their blob references; the last one's offset."""
        start = self._end.events
        self._first_step = events[0].event.step
        self._db.executemany(
            "INSERT INTO events VALUES(?, ?, ?, ?, ?, ?)",
            [
                (offset, number, event.attempt, event.step, digest, data)
                for offset, (event, data, digest) in enumerate(events, start)
            ],
        )
        uses = [
            (number, event.attempt, event.step, content.data.digest)
            for event, _, _ in events
            for _, content in event.contents()
            if isinstance(content.data, BlobRef)
        ]
        if uses:
            self._db.executemany("INSERT OR IGNORE INTO blob_refs VALUES(?, ?, ?, ?)", uses)
        self._end = self._end._replace(events=start + len(events))
        self._note_recent(number, events)
        return start + len(events) - 1

    def put_session(self, kept: KeptSession) -> None:
        """Remember the session's row for the commit."""
        self.written[kept.session_id] = Written(kept, self._first_step)
        if kept.number > self._end.sessions:
            self._end = self._end._replace(sessions=kept.number)
            self._new[kept.session_id] = kept
        elif kept.session_id in self._new:
            self._new[kept.session_id] = kept
        else:
            self._changed[kept.session_id] = kept

    def put_claim(self, session_id: str, claim: Claim) -> None:
        """Store an accepted claim."""
        row = (session_id, *claim)
        self._db.execute("INSERT INTO claims VALUES(?, ?, ?, ?, ?)", (*row, seal_of(row)))

    def put_mark(self, number: int, mark: Mark) -> None:
        """Store a summary to go on from."""
        row = (number, mark.attempt, mark.step, encode(mark.summary.to_value()))
        self._db.execute("INSERT INTO marks VALUES(?, ?, ?, ?, ?)", (*row, seal_of(row)))

    def recent_step_of(self, kept: KeptSession, event_ids: Sequence[bytes]) -> int | None:
        """The lowest step among the line's last own `RECENT_EVENTS` with one of these ids."""
        recent = self._recent.get(kept.number)
        if recent is None or recent.head != (kept.line.attempt, kept.line.next_step - 1):
            recent = self._read_recent(kept)
        return recent.find(event_ids, kept.line.next_step)

    def put_cut(self, group: str, cut: Cut) -> None:
        """Move a consumer's cut forward; parts that are not further are left as they are."""
        for part, end in cut.as_dict().items():
            if end > self.cut_of(group).end(part):
                row = (group, part, end)
                self._db.execute(
                    "INSERT OR REPLACE INTO cursors VALUES(?, ?, ?, ?)", (*row, seal_of(row))
                )

    def cut_of(self, group: str) -> Cut:
        """The cut committed by a consumer; the empty one if none was."""
        return read_cut(self._db, group)

    def _note_recent(self, number: int, events: Sequence[EncodedEvent]) -> None:
        recent = self._recent.get(number)
        if recent is None:
            return
        if events[0].event.kind == "session_resumed":
            # The line may go on from another chain of events: to be read again.
            del self._recent[number]
            return
        for encoded in events:
            event = encoded.event
            recent.note(event.event_id, event.attempt, event.step)

    def _read_recent(self, kept: KeptSession) -> RecentIds:
        line = kept.line
        oldest = max(line.first_step, line.next_step - RECENT_EVENTS)
        recent = RecentIds(RECENT_EVENTS, oldest)
        for part in standing_ranges(
            self.claims_of(kept.session_id), line.attempt, line.next_step - 1
        ):
            for row in self._db.execute(
                "SELECT substr(data, 11, 16), attempt, step FROM events "
                "WHERE session=? AND attempt=? AND step>=? AND step<? ORDER BY step",
                (kept.number, part.attempt, max(oldest, part.first_step), part.end_step),
            ):
                if type(row[0]) is not bytes or row[2] != recent.next_step:
                    raise StepGapError(
                        "an event of the line is missing or damaged",
                        hint="run `steplog check`; the session takes no appends like this",
                        session_id=kept.session_id,
                        step=recent.next_step,
                    )
                recent.note(*row)
        self._recent[kept.number] = recent
        self._recent.move_to_end(kept.number)
        if len(self._recent) > RECENT_SESSIONS:
            self._recent.popitem(last=False)
        return recent


def read_cut(db: sqlite3.Connection, group: str) -> Cut:
    """The cut committed by consumer `group`; the empty one if none was."""
    ends: Mapping[int, int] = {}
    rows: list[Any] = db.execute(
        "SELECT part, next, seal FROM cursors WHERE consumer=?", (group,)
    ).fetchall()
    for part, end, seal in rows:
        require_seal(seal, (group, part, end), f"consumer {group!r}")
        ends = {**ends, part: end}
    return Cut(ends)
