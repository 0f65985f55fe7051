"""Random histories of a whole topic: many sessions, transactions of all sorts, and rubbish.

Each session's records are a random history of the reader's rule (`line_histories`), made into real
events. They go into transactions that overlap; some are aborted and sent again, or not; some stay
open for a while. `TopicModel` says what a reader of committed records makes of it, in memory.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256

from eventlog.codec import EncodedEvent, decode_event, decode_prefix, encode_event
from eventlog.errors import EventCorruptError, SteplogError
from eventlog.event import Event
from eventlog.kafka.client import TopicRecord
from eventlog.kafka.partitioning import partition_of
from eventlog.line_state import KnownEvent, LineState, VerdictKind
from eventlog.session_line import SessionLine
from eventlog.standing_line import standing_ranges
from tests.support.line_histories import random_history
from tests.support.line_records import Record
from tests.support.topic import FakeTopic, FakeTransaction

ANOTHER = "another"


def encoded_history(rng: random.Random, session_id: str) -> list[EncodedEvent]:
    """A random history of one session as events, in log order."""
    records = random_history(rng)
    by_digest = {record.digest: record for record in records}
    made: dict[bytes, EncodedEvent | None] = {}

    def encode(record: Record) -> EncodedEvent | None:
        if record.digest not in made:
            parent = by_digest.get(record.parent)
            stands_on = None if parent is None else encode(parent)
            event = Event(
                event_id=record.digest[:16],
                session_id=session_id if record.session_id == "s" else ANOTHER,
                step=record.step,
                attempt=record.attempt,
                kind=record.kind,
                parent=record.parent if stands_on is None else stands_on.digest,
                state_change=None,
                time=1_700_000_000_000_000 + record.nonce,
                actor="system",
                trace=None,
                body=record.body,
            )
            try:
                made[record.digest] = encode_event(event)
            except SteplogError:
                made[record.digest] = None  # no event can have it
        return made[record.digest]

    return [encoded for record in records if (encoded := encode(record)) is not None]


class TopicHistory:
    """Writes random histories of sessions into a topic, some records at each `write_some`."""

    def __init__(self, rng: random.Random, topic: FakeTopic, sessions: int) -> None:
        self.rng = rng
        self.topic = topic
        self.names = [f"session-{number}" for number in range(sessions)]
        self._left = {name: encoded_history(rng, name) for name in self.names}
        self._open: list[tuple[FakeTransaction, list[tuple[str, EncodedEvent]]]] = []
        self.sent: dict[str, list[Event]] = {name: [] for name in self.names}
        """Every event that was ever sent under its session's key, committed or not."""

    @property
    def is_over(self) -> bool:
        """Whether everything was written, and every transaction has ended."""
        return not self._open and not any(self._left.values())

    def aborted(self, name: str) -> list[tuple[int, int]]:
        """Offset and attempt of the session's events that were sent and aborted."""
        entries = enumerate(self.topic.parts[self.topic.part_of(name)])
        found = []
        for offset, entry in entries:
            was_aborted = entry.transaction is not None and entry.transaction.state == "aborted"
            if was_aborted and not entry.is_marker and entry.key == name.encode():
                try:
                    event = decode_prefix(entry.value or b"")
                except EventCorruptError:
                    continue
                if event.session_id == name:
                    found.append((offset, event.attempt))
        return found

    def write_some(self, count: int) -> None:
        """So many acts: records sent, transactions begun and ended."""
        for _ in range(count):
            if self.is_over:
                return
            self._act()

    def finish(self) -> None:
        """Write all that is left."""
        while not self.is_over:
            self._act()

    def _act(self) -> None:
        rng = self.rng
        pending = [name for name, left in self._left.items() if left]
        if self._open and (rng.random() < 0.3 or not pending):
            self._end(self._open.pop(rng.randrange(len(self._open))))
            return
        if not self._open or rng.random() < 0.2:
            self._open.append((self.topic.begin(), []))
        transaction, events = rng.choice(self._open)
        if rng.random() < 0.04:
            self._send_rubbish(transaction)
        name = rng.choice(pending)
        for _ in range(rng.randrange(1, 4)):
            if self._left[name]:
                encoded = self._left[name].pop(0)
                events.append((name, encoded))
                self._send(transaction, name, encoded)

    def _send(self, transaction: FakeTransaction, name: str, encoded: EncodedEvent) -> None:
        part = self.topic.part_of(name)
        transaction.send(part, name.encode(), encoded.data)
        if encoded.event.session_id == name:
            self.sent[name].append(encoded.event)

    def _end(self, opened: tuple[FakeTransaction, list[tuple[str, EncodedEvent]]]) -> None:
        transaction, events = opened
        aborted = self.rng.random() < 0.25
        transaction.end("aborted" if aborted else "committed")
        if not aborted and self.rng.random() < 0.9:
            return
        if self.rng.random() < 0.8:
            # Sent again, in the same bytes: what was aborted, or what was committed already.
            again = self.topic.begin()
            for name, encoded in events:
                self._send(again, name, encoded)
            again.end("committed")

    def _send_rubbish(self, transaction: FakeTransaction) -> None:
        rng = self.rng
        part = rng.randrange(len(self.topic.parts))
        keys = [None, b"", b"\xff\xfe", b"a\nb", rng.choice(self.names).encode()]
        event = encoded_history(rng, rng.choice(self.names))[0].data
        values = [None, b"", b"rubbish", rng.randbytes(80), event[:-1], event + b"\0", event]
        transaction.send(part, rng.choice(keys), rng.choice(values))


class ModelSession:
    """What the rule makes of one session's committed records, in memory."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.verdicts: dict[int, VerdictKind] = {}
        self.records: dict[int, EncodedEvent] = {}
        self.accepted: dict[bytes, EncodedEvent] = {}
        self.claims = []  # type: ignore[var-annotated]
        self._skipped: dict[bytes, VerdictKind] = {}
        self.line = SessionLine(session_id, self._known, skipped=self._skipped.get)

    @property
    def state(self) -> LineState:
        """The line now."""
        return self.line.state

    def judge(self, offset: int, encoded: EncodedEvent) -> None:
        """The next committed record."""
        verdict = self.line.accept(encoded.event, encoded.digest)
        self.verdicts[offset] = verdict.kind
        self.records[offset] = encoded
        if verdict.kind is VerdictKind.ACCEPTED:
            self.accepted[encoded.digest] = encoded
        elif verdict.kind in (VerdictKind.LOST_CLAIM, VerdictKind.CONFLICT):
            self._skipped[encoded.digest] = verdict.kind
        if verdict.claim is not None:
            self.claims.append(verdict.claim)

    def standing(self) -> list[EncodedEvent]:
        """The session's own standing events."""
        state = self.state
        if not state.begun:
            return []
        places = {(each.event.attempt, each.event.step): each for each in self.accepted.values()}
        return [
            places[part.attempt, step]
            for part in standing_ranges(self.claims, state.attempt, state.next_step - 1)
            for step in range(part.first_step, part.end_step)
        ]

    def _known(self, digest: bytes) -> KnownEvent | None:
        found = self.accepted.get(digest)
        return None if found is None else KnownEvent(found.event.step, found.event.attempt)


class TopicModel:
    """What is in a topic, read from the beginning up to its stable ends."""

    def __init__(self, records: Iterable[TopicRecord], partition_count: int) -> None:
        self.sessions: dict[str, ModelSession] = {}
        self.unreadable: list[tuple[int, int]] = []
        self.events: list[tuple[int, int, bytes]] = []
        """(partition, offset, bytes) of every committed record that is an event in its place."""
        for part, offset, _, key, value in sorted(records):
            try:
                event = decode_event(value or b"")
            except EventCorruptError:
                self.unreadable.append((part, offset))
                continue
            name = event.session_id
            if name.encode() != key or partition_of(name, partition_count) != part:
                self.unreadable.append((part, offset))
                continue
            assert value is not None
            encoded = EncodedEvent(event, value, sha256(value).digest())
            self.sessions.setdefault(name, ModelSession(name)).judge(offset, encoded)
            self.events.append((part, offset, value))

    @classmethod
    def of_topic(cls, topic: FakeTopic, ends: Mapping[int, int]) -> "TopicModel":
        """The model of a topic's committed records below these ends."""
        parts = range(len(topic.parts))
        records = [
            record
            for part in parts
            for record in topic.visible(part, topic.starts[part], ends[part], committed=True)
        ]
        return cls(records, len(parts))

    def begun(self) -> Iterator[ModelSession]:
        """Sessions of which something was accepted."""
        return (each for each in self.sessions.values() if each.state.begun)
