"""`MirrorStore`: what a mirror does with its file inside one transaction.

A `SqliteStore` for the accepted records, with the mirror's own rows beside them. Positions and
totals are remembered, like everything here, while no other connection has written.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from eventlog.canonical import encode
from eventlog.codec import EncodedEvent
from eventlog.keeping.kept_rows import KeptSession, StoredEvent, blob_digests
from eventlog.keeping.known_by_place import SkippedEvent
from eventlog.line_state import LineState, VerdictKind
from eventlog.mirroring.rows import (
    Aborted,
    Position,
    Skipped,
    Source,
    Span,
    headless_line,
    read_orphans,
    read_positions,
    read_source,
    require_headless_whole,
    require_unknown,
    skipped_of,
)
from eventlog.sqlite.head import head_values
from eventlog.sqlite.schema import PAGE_BYTES
from eventlog.sqlite.seal import damaged, seal_of
from eventlog.sqlite.store import SqliteStore

_PAGES_PER_COMMIT: Final = 8


class MovedError(Exception):
    """Another mirror on the same file read on meanwhile: what was fetched does not fit any more."""


class MirrorStore(SqliteStore):
    """The mirror's rows, between `begin` and `commit`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self.since_checkpoint_bytes = 0
        """About how much was written since the write-ahead log was last begun anew."""
        self.generation = 0
        """Counts how often all that was remembered was forgotten."""
        self.source: Source | None = None
        self.positions: dict[int, Position] = {}
        self.next_local = 0
        """The local offset of the next accepted event."""
        self._uses: list[tuple[int, int, int, bytes]] = []
        self._rewritten: set[str] = set()
        self._orphans: dict[str, set[str]] = {}
        self._before: dict[int, Position] = {}
        self._first_source: Source | None = None
        self._is_loaded = False

    def begin(self) -> None:
        """Begin a transaction that sees and blocks every other writer."""
        super().begin()
        if not self._is_loaded:
            self.source = read_source(self._db)
            self.positions = read_positions(self._db)
            require_headless_whole(self._db)
            self._orphans = read_orphans(self._db)
            self._is_loaded = True
        self.next_local = self._end.events
        self._before = dict(self.positions)
        self._first_source = self.source

    def write_rows(self) -> None:
        """Write what is still gathered. Raises `MovedError` where a position is not what it was."""
        for session_id in self._rewritten & self._changed.keys():
            kept = self._new[session_id] = self._changed.pop(session_id)
            self._db.execute("DELETE FROM head WHERE number=?", (kept.number,))
        self._rewritten.clear()
        super().write_rows()
        self.since_checkpoint_bytes += PAGE_BYTES * _PAGES_PER_COMMIT
        for part, position in self.positions.items():
            before = self._before.get(part)
            if position != before:
                self._write_position(position, before)
        if self.source is not None and self.source != self._first_source:
            self._db.execute(
                "INSERT OR REPLACE INTO source VALUES(1, ?, ?, ?, ?, ?, ?)",
                (*self.source, seal_of(self.source)),
            )

    def row_of(self, kept: KeptSession) -> tuple[Any, ...]:
        """The row of `head`, with what the line has beside its columns."""
        return head_values(kept, with_trouble=True)

    def begin_source(self, topic: str, topic_id: str, partition_count: int) -> None:
        """The first thing that is written: what this file mirrors."""
        self.source = Source(topic, topic_id, partition_count, 0, 0)
        self.positions = {part: Position(part, 0) for part in range(partition_count)}

    def advance(self, part: int, end: int, *, accepted: int = 0, skipped: int = 0) -> None:
        """The partition was read to the offset `end`, and so many records came of it."""
        found = self.positions[part]
        self.positions[part] = found._replace(
            next=end, accepted=found.accepted + accepted, skipped=found.skipped + skipped
        )

    def pass_over(self, part: int, start: int) -> None:
        """The offsets below `start` are not in the topic any more, and were never read."""
        found = self.positions[part]
        self.positions[part] = found._replace(next=start, lost=found.lost + start - found.next)

    def add_event(self, number: int, encoded: EncodedEvent) -> int:
        """Store an accepted event after all others; its local offset."""
        event, data, digest = encoded
        local = self.next_local
        self.next_local = local + 1
        # Plain values only: what held the events themselves would cost twice as much to collect.
        self._gathered.append((local, number, event.attempt, event.step, digest, data))
        for blob in blob_digests(event):
            self._uses.append((number, event.attempt, event.step, blob))
        return local

    def own_page(self, number: int, after: tuple[int, int]) -> list[StoredEvent]:
        """Some of the session's events after (attempt, step), in log order."""
        self._insert_gathered()
        return super().own_page(number, after)

    def put_spans(self, spans: Iterable[Span]) -> None:
        """Store where accepted events came from."""
        self._db.executemany(
            "INSERT INTO spans VALUES(?, ?, ?, ?, ?, ?)",
            [(*span, seal_of(span)) for span in spans],
        )

    def put_skipped(self, skipped: Skipped) -> None:
        """Store a record that was not accepted."""
        self.since_checkpoint_bytes += len(skipped.data or b"")
        self._db.execute(
            "INSERT INTO skipped VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*skipped, seal_of(skipped[:10])),
        )

    def put_aborted(self, part: int, scanned: int, aborted: Sequence[Aborted]) -> None:
        """The partition was scanned to the offset `scanned`, and these records never committed."""
        self._db.executemany(
            "INSERT INTO aborted VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            [(*each, seal_of(each)) for each in aborted],
        )
        found = self.positions[part]
        self.positions[part] = found._replace(scanned=scanned, aborted=found.aborted + len(aborted))

    def headless_line(self, session_id: str) -> LineState | None:
        """The line of a session that was met before, but of which nothing was accepted."""
        found = headless_line(self._db, session_id)
        if found is None:
            require_unknown(self._db, session_id)
        return found

    def put_headless(self, session_id: str, part: int, line: LineState, *, new: bool) -> None:
        """Store the line of a session of which nothing was accepted yet."""
        row = (session_id, part, encode(line._replace(position=0, skipped=()).to_value()))
        self._db.execute("INSERT OR REPLACE INTO headless VALUES(?, ?, ?, ?)", (*row, seal_of(row)))
        self._count(headless=int(new))

    def drop_headless(self, session_id: str) -> None:
        """The session has begun after all."""
        done = self._db.execute("DELETE FROM headless WHERE session=?", (session_id,))
        if done.rowcount != 1:
            raise damaged("the row of a session without a head vanished", session_id=session_id)
        self._count(headless=-1)

    def skipped_events(self, session_id: str, count: int) -> Iterator[tuple[bytes, SkippedEvent]]:
        """The session's skipped events by digest, in log order; there must be `count` of them."""
        start = seen = 0
        while page := skipped_of(self._db, session_id, start):
            seen += len(page)
            start = page[-1].offset + 1
            for each in page:
                assert each.attempt is not None, "a record of a session is an event"
                assert each.step is not None, "a record of a session is an event"
                kind = VerdictKind(each.verdict)
                yield each.digest, SkippedEvent(kind, each.attempt, each.step)
        if seen != count:
            raise damaged("rows of skipped records are missing", session_id=session_id)

    def orphans_of(self, waits_for: str) -> list[str]:
        """The branches that wait for events of this session."""
        return sorted(self._orphans.get(waits_for, ()))

    def put_orphan(self, waits_for: str, session_id: str) -> None:
        """A branch's summary lacks its prefix, until events of another session are read."""
        row = (waits_for, session_id)
        self._db.execute("INSERT INTO orphans VALUES(?, ?, ?)", (*row, seal_of(row)))
        self._orphans.setdefault(waits_for, set()).add(session_id)
        self._count(orphans=1)

    def drop_orphan(self, waits_for: str, session_id: str) -> None:
        """The branch waits for this session no more."""
        self._db.execute(
            "DELETE FROM orphans WHERE waits_for=? AND session=?", (waits_for, session_id)
        )
        self._orphans[waits_for].remove(session_id)
        if not self._orphans[waits_for]:
            del self._orphans[waits_for]
        self._count(orphans=-1)

    def forget_summary(self, kept: KeptSession) -> None:
        """A branch's stored summary and marks lack its prefix: all of them are made anew.

        Its row is written whole at the end: what comes of the seed never changes otherwise.
        """
        self._db.execute("DELETE FROM marks WHERE session=?", (kept.number,))
        self._rewritten.add(kept.session_id)

    def _insert_gathered(self) -> None:
        if self._uses:
            self._db.executemany("INSERT OR IGNORE INTO blob_refs VALUES(?, ?, ?, ?)", self._uses)
            self._uses.clear()
        self.since_checkpoint_bytes += sum(len(row[5]) for row in self._gathered)
        self._end = self._end._replace(events=self.next_local)
        super()._insert_gathered()

    def _count(self, *, headless: int = 0, orphans: int = 0) -> None:
        assert self.source is not None, "a source is begun before anything is stored"
        self.source = self.source._replace(
            headless=self.source.headless + headless, orphans=self.source.orphans + orphans
        )

    def _write_position(self, position: Position, before: Position | None) -> None:
        row = (*position, seal_of(position))
        if before is None:
            self._db.execute("INSERT INTO positions VALUES(?, ?, ?, ?, ?, ?, ?, ?)", row)
            return
        done = self._db.execute(
            "UPDATE positions SET next=?, accepted=?, skipped=?, lost=?, scanned=?, aborted=?, "
            "seal=? WHERE part=? AND next=? AND scanned=?",
            (*row[1:], position.part, before.next, before.scanned),
        )
        if done.rowcount != 1:
            raise MovedError

    def _forget(self) -> None:
        super()._forget()
        self._uses.clear()
        self._rewritten.clear()
        self.generation += 1
        self._is_loaded = False
