"""`FakeTopic`: a Kafka topic in memory, with the client that reads it.

It has what a reader must get right: transactions that are open, committed and aborted, their
markers (which take offsets), a log start that rises, more partitions, a topic made anew. Producers
are not part of it: `begin` gives a transaction to write with.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from secrets import token_hex
from typing import NamedTuple, NoReturn

from eventlog.kafka.client import (
    TopicClient,
    TopicDescription,
    TopicIdentity,
    TopicProducer,
    TopicReader,
    TopicRecord,
)
from eventlog.kafka.client_errors import BrokersUnavailable, OffsetOutOfRange, TopicMissing
from eventlog.kafka.partitioning import partition_of

TIME_MS = 1_700_000_000_000


class Entry(NamedTuple):
    """One offset of a partition: a record, or the marker that ends a transaction there."""

    transaction: "FakeTransaction | None"
    key: bytes | None
    value: bytes | None
    is_marker: bool = False


class FakeTransaction:
    """Records of one transaction; `state` is open, committed or aborted."""

    def __init__(self, topic: "FakeTopic") -> None:
        self._topic = topic
        self._parts: list[int] = []
        self.state = "open"

    def send(self, part: int, key: bytes | None, value: bytes | None) -> int:
        """Write a record; its offset."""
        if part not in self._parts:
            self._parts.append(part)
        return self._topic.put(part, Entry(self, key, value))

    def end(self, state: str) -> None:
        """Commit or abort: a marker in each partition written to."""
        self.state = state
        for part in self._parts:
            self._topic.put(part, Entry(self, None, None, is_marker=True))


class FakeTopic:
    """The topic. Thread-safe as far as reading while others write goes."""

    def __init__(self, partition_count: int = 1, name: str = "events") -> None:
        self.name = name
        self.lock = threading.RLock()
        self.fetches = 0
        self.questions = 0
        self.is_down = False
        self.before_fetch: Callable[[], None] = lambda: None
        self.make_anew(partition_count)

    def make_anew(self, partition_count: int) -> None:
        """Delete the topic, with all that is in it, and make it again."""
        self.topic_id = token_hex(8)
        self.is_missing = False
        self.parts: list[list[Entry]] = [[] for _ in range(partition_count)]
        self.starts = [0] * partition_count

    def add_partitions(self, count: int) -> None:
        """More partitions, as an admin may have them."""
        self.parts += [[] for _ in range(count)]
        self.starts += [0] * count

    def part_of(self, session_id: str) -> int:
        """The session's partition."""
        return partition_of(session_id, len(self.parts))

    def put(self, part: int, entry: Entry) -> int:
        """Add an entry; its offset."""
        with self.lock:
            self.parts[part].append(entry)
            return len(self.parts[part]) - 1

    def begin(self) -> FakeTransaction:
        """A transaction to write with."""
        return FakeTransaction(self)

    def write(self, records: Iterable[tuple[str, bytes]], state: str = "committed") -> list[int]:
        """Events of (session, bytes) in one transaction, each in its partition; their offsets."""
        transaction = self.begin()
        offsets = [
            transaction.send(self.part_of(session), session.encode(), data)
            for session, data in records
        ]
        if state != "open":
            transaction.end(state)
        return offsets

    def delete_before(self, part: int, offset: int) -> None:
        """Raise the log start."""
        self.starts[part] = offset

    def end(self, part: int) -> int:
        """The high watermark."""
        return len(self.parts[part])

    def stable_end(self, part: int) -> int:
        """The last stable offset: the first record of an open transaction, or the end."""
        entries = self.parts[part]
        for offset in range(self.starts[part], len(entries)):
            transaction = entries[offset].transaction
            if transaction is not None and transaction.state == "open":
                return offset
        return len(entries)

    def committed(self, part: int) -> list[TopicRecord]:
        """What a reader of committed records gets, from the beginning on."""
        return self.visible(part, self.starts[part], self.stable_end(part), committed=True)

    def visible(self, part: int, start: int, end: int, *, committed: bool) -> list[TopicRecord]:
        """The records at offsets [start, end) that a reader gets."""
        found = []
        for offset in range(start, end):
            entry = self.parts[part][offset]
            aborted = entry.transaction is not None and entry.transaction.state == "aborted"
            if not entry.is_marker and not (committed and aborted):
                found.append(TopicRecord(part, offset, TIME_MS, entry.key, entry.value))
        return found

    def client(self, records_max: int = 500) -> "FakeClient":
        """A client whose readers give at most so many records at once."""
        return FakeClient(self, records_max)

    def require_there(self) -> None:
        """Raise what a client raises where the brokers, or the topic, are not there."""
        if self.is_down:
            raise BrokersUnavailable("no broker answers")
        if self.is_missing:
            raise TopicMissing(f"topic {self.name!r}: the brokers know no such topic")


class FakeReader(TopicReader):
    """Reads a `FakeTopic`."""

    def __init__(self, topic: FakeTopic, committed: bool, records_max: int) -> None:
        self._topic = topic
        self._committed = committed
        self._records_max = records_max
        self._positions: dict[int, int] = {}

    def high_watermarks(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        self._topic.questions += 1
        self._topic.require_there()
        return {part: self._topic.end(part) for part in partitions}

    def log_starts(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        self._topic.require_there()
        return {part: self._topic.starts[part] for part in partitions}

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)

    def fetch(self, timeout_s: float) -> list[TopicRecord]:
        topic = self._topic
        topic.before_fetch()
        with topic.lock:
            topic.fetches += 1
            topic.require_there()
            found: list[TopicRecord] = []
            for part, at in self._positions.items():
                start, end = topic.starts[part], topic.end(part)
                if not start <= at <= end:
                    raise OffsetOutOfRange(part, at, start, end)
                until = topic.stable_end(part) if self._committed else end
                for offset in range(at, until):
                    if len(found) >= self._records_max:
                        return found
                    found += topic.visible(part, offset, offset + 1, committed=self._committed)
                    self._positions[part] = offset + 1
            return found

    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    def close(self) -> None:
        pass


class FakeClient(TopicClient):
    """Asks a `FakeTopic`; administers nothing."""

    def __init__(self, topic: FakeTopic, records_max: int) -> None:
        self.fake = topic
        self.topic = topic.name
        self.records_max = records_max

    def open_reader(self, committed: bool) -> TopicReader:
        return FakeReader(self.fake, committed, self.records_max)

    def describe(self, timeout_s: float = 10.0) -> TopicDescription:
        self.fake.require_there()
        return TopicDescription(self.topic, self.fake.topic_id, len(self.fake.parts), 1, {})

    def identity(self, timeout_s: float = 10.0) -> TopicIdentity:
        found = self.describe(timeout_s)
        return TopicIdentity(found.topic_id, found.partition_count)

    def close(self) -> None:
        pass

    def open_producer(self, transactional_id: str) -> TopicProducer:
        _not_here()

    def group_offsets(self, group: str, timeout_s: float = 10.0) -> dict[int, int]:
        _not_here()

    def put_group_offsets(
        self, group: str, ends: Mapping[int, int], timeout_s: float = 10.0
    ) -> None:
        _not_here()

    def broker_count(self, timeout_s: float = 10.0) -> int:
        _not_here()

    def broker_settings(self, timeout_s: float = 10.0) -> Mapping[str, str]:
        _not_here()

    def create_topic(
        self,
        topic: str,
        partition_count: int,
        replication_factor: int,
        settings: Mapping[str, str],
        timeout_s: float = 30.0,
    ) -> bool:
        _not_here()

    def delete_topic(self, topic: str, timeout_s: float = 30.0) -> None:
        _not_here()

    def publish(
        self, topic: str, records: Iterable[tuple[bytes, bytes | None]], timeout_s: float = 10.0
    ) -> None:
        _not_here()

    def read_all(self, topic: str, timeout_s: float = 10.0) -> dict[bytes, bytes | None]:
        _not_here()


def _not_here() -> NoReturn:
    raise AssertionError("a fake topic is only read")
