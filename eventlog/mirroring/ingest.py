"""`TopicIngest`: judges the records of a topic, and stores each with its verdict.

A topic's record is an event of the session that its key names, in that session's partition. Every
record is judged once, in the order of its partition; what is accepted goes where an append would
have put it, all else is kept with its verdict. A record of a newer schema, or of a kind that is not
known, stops its partition: nothing after it is read until a newer steplog comes.

Works inside one transaction of the mirror's file at a time; what it remembers of sessions between
two is believed as long as no other connection has written.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.codec import EVENT_BYTES_MAX, EncodedEvent, decode_event
from eventlog.errors import EventCorruptError, SchemaError
from eventlog.event import Event, SessionForked, session_id_problem
from eventlog.kafka.client import TopicRecord
from eventlog.kafka.partitioning import partition_of
from eventlog.keeping.line_growth import LineGrowth
from eventlog.line_state import Verdict, VerdictKind
from eventlog.mirroring.mirrored_session import MirroredSession
from eventlog.mirroring.orphans import adopt_orphans, note_if_orphan
from eventlog.mirroring.rows import UNREADABLE, Skipped, Span
from eventlog.mirroring.store import MirrorStore, MovedError
from eventlog.session_line import bounds_problem

SESSIONS_KEPT: Final = 4_096
"""Sessions whose line is remembered between transactions: about 2 KiB each."""


class Fetched(NamedTuple):
    """Records as they came, and each partition's position before and after them."""

    records: Sequence[TopicRecord]
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class _UnreadableError(Exception):
    """The record is no event, or does not belong where it lies."""


class TopicIngest:
    """Reads fetched records into one mirror. `store` is the mirror's, in a transaction."""

    def __init__(self, store: MirrorStore) -> None:
        self.store = store
        self._generation = store.generation
        self._sessions: OrderedDict[bytes, MirroredSession] = OrderedDict()
        self._touched: list[MirroredSession] = []
        self._spans: list[list[int]] = []
        self._counts: dict[int, list[int]] = {}

    def take(self, fetched: Fetched) -> dict[int, SchemaError]:
        """Judge and store the records; the partitions that one of them stopped, and by what.

        Raises `MovedError` where the mirror's positions lie before the fetched ones.
        """
        nexts = self._begin(fetched)
        stopped: dict[int, SchemaError] = {}
        for record in fetched.records:
            part, offset = record.partition, record.offset
            if offset < nexts[part] or part in stopped:
                continue  # judged before, by another mirror on this file; or not to be judged yet
            nexts[part] = offset + 1
            try:
                self._judge(record)
            except SchemaError as error:
                error.message = f"{error.message} (partition {part}, offset {offset})"
                stopped[part] = error
                nexts[part] = offset
            except _UnreadableError as problem:
                self._keep_unreadable(record, str(problem))
        for part, end in fetched.ends.items():
            if part not in stopped:
                nexts[part] = max(nexts[part], end)
        self._finish(nexts)
        return stopped

    def _begin(self, fetched: Fetched) -> dict[int, int]:
        store = self.store
        if store.generation != self._generation:
            self._sessions.clear()
            self._generation = store.generation
        nexts = {part: store.positions[part].next for part in fetched.starts}
        if any(start > nexts[part] for part, start in fetched.starts.items()):
            raise MovedError
        self._touched.clear()
        self._spans.clear()
        self._counts = {part: [0, 0] for part in nexts}
        return nexts

    def _judge(self, record: TopicRecord) -> None:
        part, offset, _, key, data = record
        session = self._sessions.get(key)  # type: ignore[arg-type]  # None is no key there
        if session is None:
            session = self._open(part, key)
        event = _event_in(data)
        if event.session_id != session.session_id or part != session.part:
            raise _UnreadableError(f"it holds an event of {event.session_id!r}: {_LOST}")
        digest = sha256(data).digest()  # type: ignore[arg-type]  # None is no event
        encoded = EncodedEvent(event, data, digest)  # type: ignore[arg-type]
        session.judged = encoded
        verdict = session.line.accept(event, digest)
        if not session.is_touched:
            session.is_touched = True
            self._touched.append(session)
        if verdict.kind is not _ACCEPTED:
            self._keep_skipped(record, session, encoded, verdict)
            return
        growth = session.growth
        if growth is None or verdict.claim is not None:
            growth = self._take_claim(session, encoded, verdict)
        else:
            growth.take((encoded,))
        session.last_offset = local = self.store.add_event(growth.number, encoded)
        self._counts[part][0] += 1
        spans = self._spans
        if spans:
            span = spans[-1]
            if span[1] == part and span[2] + span[3] == offset:
                span[3] += 1
                return
        spans.append([local, part, offset, 1])

    def _open(self, part: int, key: bytes | None) -> MirroredSession:
        """The session that the key names, from the mirror or new."""
        try:
            session_id = "" if key is None else key.decode("utf-8")
        except UnicodeDecodeError:
            session_id = ""
        if key is None or session_id_problem(session_id) is not None:
            raise _UnreadableError(f"its key {key!r:.100} is no session's id")
        store = self.store
        assert store.source is not None, "positions come with a source"
        if partition_of(session_id, store.source.partition_count) != part:
            raise _UnreadableError(f"its key is {session_id!r}: {_LOST}")
        kept = store.find_session(session_id)
        headless = None if kept is not None else store.headless_line(session_id)
        session = MirroredSession(store, key, session_id, part, kept, headless)
        self._sessions[key] = session
        return session

    def _take_claim(
        self, session: MirroredSession, encoded: EncodedEvent, verdict: Verdict
    ) -> LineGrowth:
        """Go on by an event that begins a session, or claims it."""
        store, growth = self.store, session.growth
        if growth is None:
            growth = LineGrowth(store, session.session_id, None)
            if isinstance(encoded.event.body, SessionForked):
                # It goes on from what its parent comes to, which may be in these records too.
                parent = self._sessions.get(encoded.event.body.parent_session.encode("utf-8"))
                if parent is not None and parent.is_touched:
                    self._store_session(parent)
            growth.take((encoded,))
            session.growth = growth
            session.last_offset = store.next_local
            growth.put(session.line.state, (), session.last_offset)
            if session.was_headless:
                store.drop_headless(session.session_id)
                session.was_headless = False
            note_if_orphan(store, growth)
        else:
            growth.take((encoded,))
        if verdict.claim is not None:
            store.put_claim(session.session_id, verdict.claim)
        return growth

    def _keep_skipped(
        self, record: TopicRecord, session: MirroredSession, encoded: EncodedEvent, verdict: Verdict
    ) -> None:
        event: Event = encoded.event
        detail = "" if verdict.error is None else str(verdict.error)
        self._skip(
            record,
            session.session_id,
            (event.step, event.attempt, event.kind),
            (str(verdict.kind), detail),
            encoded.digest,
        )
        session.note_skipped(encoded, verdict.kind)

    def _keep_unreadable(self, record: TopicRecord, problem: str) -> None:
        value = record.value or b""
        digest = sha256(value).digest()
        if len(value) > EVENT_BYTES_MAX:
            # The topic has it; here it would only be counted. A few KiB sent compressed may be many
            # MiB of these.
            record = record._replace(value=None)
        self._skip(record, None, (None, None, None), (UNREADABLE, problem), digest)

    def _skip(
        self,
        record: TopicRecord,
        session_id: str | None,
        place: tuple[int | None, int | None, str | None],
        outcome: tuple[str, str],
        digest: bytes,
    ) -> None:
        part = record.partition
        number = self.store.positions[part].skipped + self._counts[part][1]
        self._counts[part][1] += 1
        self.store.put_skipped(
            Skipped(part, record.offset, number, session_id, *place, *outcome, digest, record.value)
        )

    def _finish(self, nexts: Mapping[int, int]) -> None:
        store = self.store
        for session in self._touched:
            self._store_session(session)
        store.put_spans(self._counted_spans())
        for part, end in nexts.items():
            accepted, skipped = self._counts[part]
            store.advance(part, end, accepted=accepted, skipped=skipped)
        for session in self._touched:
            session.is_touched = False
            self._sessions.move_to_end(session.key)
        if store.source is not None and store.source.orphans:
            for adopted in adopt_orphans(store, [each.session_id for each in self._touched]):
                # What is remembered of it lacks its prefix.
                self._sessions.pop(adopted.encode("utf-8"), None)
        while len(self._sessions) > SESSIONS_KEPT:
            self._sessions.popitem(last=False)

    def _store_session(self, session: MirroredSession) -> None:
        """Store the session as it is now."""
        line = session.line.state
        if session.growth is not None:
            if not session.growth.summary.is_whole:
                session.growth.rebuild_stored(line)
            session.growth.put(line, (), session.last_offset)
        elif line.counts.stopped:
            new = not session.was_headless
            self.store.put_headless(session.session_id, session.part, line, new=new)
            session.was_headless = True

    def _counted_spans(self) -> list[Span]:
        before = {part: self.store.positions[part].accepted for part in self._counts}
        found = []
        for first, part, offset, length in self._spans:
            found.append(Span(first, part, offset, length, before[part]))
            before[part] += length
        return found


_ACCEPTED: Final = VerdictKind.ACCEPTED
_LOST: Final = "that session's events belong elsewhere"


def _event_in(data: bytes | None) -> Event:
    if data is None:
        raise _UnreadableError("it has no value")
    if len(data) > EVENT_BYTES_MAX:
        raise _UnreadableError(
            f"it has {len(data)} bytes, and an event {EVENT_BYTES_MAX} at most: not kept here"
        )
    try:
        event = decode_event(data)
    except EventCorruptError as error:
        raise _UnreadableError(error.message) from error
    beyond = bounds_problem(event)
    if beyond is not None:
        raise _UnreadableError(f"no log takes such an event: {beyond}")
    return event
