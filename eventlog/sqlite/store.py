"""What the writer does with `log.db` inside one transaction: `kept_rows.LineStore` on SQLite.

Rows are gathered and written together before the commit, however many appends it takes. What the
transaction before this one left is remembered, and believed while no other connection has written:
so an append to a session that was written here before reads nothing.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eventlog.canonical import encode
from eventlog.codec import EncodedEvent
from eventlog.cut import Cut
from eventlog.errors import EventCorruptError, StepGapError
from eventlog.keeping.kept_rows import RECENT_EVENTS, KeptSession, Mark, StoredEvent, blob_digests
from eventlog.keeping.recent_ids import RecentIds
from eventlog.line_state import Claim, KnownEvent
from eventlog.sqlite.head import HEAD_FIELDS, head_values
from eventlog.sqlite.log_end import LogEnd, read_cuts, read_log_end, write_log_end
from eventlog.sqlite.rows import SqliteRows
from eventlog.sqlite.seal import seal_of
from eventlog.standing_line import standing_ranges

SESSIONS_KEPT: Final = 1_024
"""For so many sessions the writer remembers head and recent ids (at most 33 KiB each)."""
ROWS_GATHERED: Final = 1_024
"""Events are inserted at the latest when so many were gathered."""

_STATIC: Final = frozenset(
    {
        *("number", "session", "first_step", "parent_session", "fork_parent", "environment"),
        *("task_id", "sample_id", "group_id", "policy", "reducer", "reducer_version"),
        "state_coverage",
    }
)
_CHANGING: Final = tuple(name for name in HEAD_FIELDS if name not in _STATIC)
_pick_changing: Final = itemgetter(*map(HEAD_FIELDS.index, (*_CHANGING, "number")))
_INSERT_HEAD: Final = (
    f"INSERT INTO head({', '.join(HEAD_FIELDS)}) VALUES({', '.join('?' * len(HEAD_FIELDS))})"
)
# Only what changes is set, so that no index of head is touched.
_UPDATE_HEAD: Final = (
    f"UPDATE head SET {', '.join(f'{name}=?' for name in _CHANGING)} WHERE number=?"
)


class Written(NamedTuple):
    """A session as it is after a transaction, and the first step of its last append there."""

    kept: KeptSession
    first_step: int


class SqliteStore(SqliteRows):
    """The rows as the writer sees and changes them between `begin` and `commit`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._version: int | None = None
        self._end = LogEnd(0, 0, 0, 0)
        self._first_end = self._end
        self._heads_counted = False
        self._gathered: list[tuple[Any, ...]] = []
        self._sessions: OrderedDict[str, KeptSession] = OrderedDict()
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
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            # Another connection has written: nothing that was remembered need be so any more.
            self._forget()
            self._end = read_log_end(self._db)
            self._version = version
        self._first_end = self._end
        self.written.clear()

    def write_rows(self) -> None:
        """Write what is still gathered: events, the heads that changed, and the log's end."""
        self._insert_gathered()
        if self._new:
            self._db.executemany(_INSERT_HEAD, map(self.row_of, self._new.values()))
        if self._changed:
            rows = map(self.row_of, self._changed.values())
            done = self._db.executemany(_UPDATE_HEAD, map(_pick_changing, rows))
            if done.rowcount != len(self._changed):
                raise EventCorruptError(
                    "a session's head row vanished while it was written",
                    hint="run `steplog check`; restore the log from a copy",
                )
        if self._end != self._first_end or self._must_write:
            write_log_end(self._db, self._end)

    def row_of(self, kept: KeptSession) -> tuple[Any, ...]:
        """The row of `head` for a session."""
        return head_values(kept)

    def must_write(self) -> None:
        """Write in this transaction even if nothing changed, so that its COMMIT proves it."""
        self._must_write = True

    def commit(self) -> None:
        """COMMIT: when this returns, everything is on stable storage. Raises sqlite3's errors."""
        self._db.execute("COMMIT")
        for changed in (self._new, self._changed):
            for session_id, kept in changed.items():
                self._sessions[session_id] = kept
                self._sessions.move_to_end(session_id)
            changed.clear()
        while len(self._sessions) > SESSIONS_KEPT:
            self._sessions.popitem(last=False)
        self._must_write = False

    def roll_back(self) -> None:
        """Forget the transaction; harmless where none is open."""
        self._forget()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row, this transaction's changes included."""
        for known in (self._changed, self._new, self._sessions):
            found = known.get(session_id)
            if found is not None:
                return found
        return super().find_session(session_id)

    def heads_missing(self) -> int:
        """How many sessions have no head row; counted once while no other connection writes."""
        if self._heads_counted:
            return 0
        # This transaction's own rows of `head` are written at its end.
        found = self._db.execute("SELECT count(*) FROM head").fetchone()[0]
        missing = abs(self._first_end.sessions - int(found))
        self._heads_counted = missing == 0
        return missing

    def event_at(self, number: int, attempt: int, step: int) -> StoredEvent | None:
        """The event that the session wrote as `step` under `attempt`."""
        self._insert_gathered()
        return super().event_at(number, attempt, step)

    def event_page(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> list[StoredEvent]:
        """Some of the events of steps [start_step, end_step), from the first on; [] if none."""
        self._insert_gathered()
        return super().event_page(number, attempt, start_step, end_step)

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        """Where the session wrote the event of this digest; newest first, in the end all rows."""
        self._insert_gathered()
        return super().find_digest(number, digest)

    def next_number(self) -> int:
        """The number of the next session; without holes, so that a lost row shows."""
        return self._end.sessions + 1

    def put_events(self, number: int, events: Sequence[EncodedEvent]) -> int:
        """Store events at the end of the log, with their blob references; the last one's offset."""
        start = self._end.events
        self._first_step = events[0].event.step
        self._gathered.extend(
            (offset, number, event.attempt, event.step, digest, data)
            for offset, (event, data, digest) in enumerate(events, start)
        )
        if len(self._gathered) >= ROWS_GATHERED:
            self._insert_gathered()
        uses = [
            (number, event.attempt, event.step, digest)
            for event, _, _ in events
            for digest in blob_digests(event)
        ]
        if uses:
            self._db.executemany("INSERT OR IGNORE INTO blob_refs VALUES(?, ?, ?, ?)", uses)
        end = self._end
        # Once for each request: `_replace` takes seven times as long.
        self._end = LogEnd(end.format, start + len(events), end.sessions, end.cursors)
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
        self._recent.move_to_end(kept.number)
        return recent.find(event_ids, kept.line.next_step)

    def put_cut(self, group: str, cut: Cut) -> None:
        """Move a consumer's cut forward; parts that are not further are left as they are."""
        known = read_cuts(self._db).get(group, Cut.empty())
        for part, end in cut.as_dict().items():
            if end > known.end(part):
                row = (group, part, end)
                self._db.execute(
                    "INSERT OR REPLACE INTO cursors VALUES(?, ?, ?, ?)", (*row, seal_of(row))
                )
                if known.end(part) == 0:
                    self._end = self._end._replace(cursors=self._end.cursors + 1)
                    # Written at once: the next look at cursors in this transaction compares.
                    write_log_end(self._db, self._end)

    def _insert_gathered(self) -> None:
        if self._gathered:
            self._db.executemany("INSERT INTO events VALUES(?, ?, ?, ?, ?, ?)", self._gathered)
            self._gathered.clear()

    def _forget(self) -> None:
        self._version = None
        self._must_write = False
        self._heads_counted = False
        self._gathered.clear()
        self._sessions.clear()
        self._recent.clear()
        self._new.clear()
        self._changed.clear()

    def _note_recent(self, number: int, events: Sequence[EncodedEvent]) -> None:
        recent = self._recent.get(number)
        if recent is None:
            return
        if events[0].event.kind == "session_resumed":
            # The line may go on from another chain of events: to be read again.
            del self._recent[number]
            return
        recent.note([encoded.event.event_id for encoded in events], events[0].event.attempt)

    def _read_recent(self, kept: KeptSession) -> RecentIds:
        self._insert_gathered()
        line = kept.line
        oldest = max(line.first_step, line.next_step - RECENT_EVENTS)
        recent = RecentIds(RECENT_EVENTS, oldest)
        for part in standing_ranges(
            self.claims_of(kept.session_id), line.attempt, line.next_step - 1
        ):
            start = max(oldest, part.first_step)
            if start >= part.end_step:
                continue
            rows = self._db.execute(
                "SELECT step, substr(data, 11, 16) FROM events "
                "WHERE session=? AND attempt=? AND step>=? AND step<? ORDER BY step",
                (kept.number, part.attempt, start, part.end_step),
            ).fetchall()
            ids = [event_id for _, event_id in rows if type(event_id) is bytes]
            steps = list(range(start, part.end_step))
            if [step for step, _ in rows] != steps or len(ids) != len(steps):
                raise StepGapError(
                    "events of the line are missing or damaged",
                    hint="run `steplog check`; the session takes no appends like this",
                    session_id=kept.session_id,
                    step=start,
                )
            recent.note(ids, part.attempt)
        self._recent[kept.number] = recent
        if len(self._recent) > SESSIONS_KEPT:
            self._recent.popitem(last=False)
        return recent
