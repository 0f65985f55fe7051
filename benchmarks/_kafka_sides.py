"""The client libraries that a log in Kafka is measured beside, used as one would who knows them."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from eventlog.codec import EncodedEvent, encode_event
from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import Event, LineHead, MessageAdded, SessionSeeded
from eventlog.ids import mint_event_id
from eventlog.kafka.client import OutgoingRecord
from eventlog.kafka.partitioning import partition_of

PARTITIONS: Final = 4
SESSIONS: Final = 64
TIMEOUT_S: Final = 120.0
TEXT: Final = b"w" * 850
LINGER_MS: Final = 5
BATCH_BYTES: Final = 128 * 1024


class Rate(NamedTuple):
    """Events per wall second, and CPU microseconds of this process for each."""

    events_per_s: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.events_per_s:,.0f} ev/s, {self.cpu_us:.1f} us CPU"


class Clock:
    """Wall and CPU time of this process, from when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rate_of(self, count: int) -> Rate:
        """The rate of `count` events since then."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Rate(count / wall, cpu / count * 1e6)


class Line:
    """Makes a session's events of about 1 KB, each standing on the one before."""

    def __init__(self, session_id: str, writer: str | None = None) -> None:
        self.head = LineHead.before_seed(session_id)
        self._writer = writer

    def make(self) -> EncodedEvent:
        """The next event."""
        head = self.head
        body = (
            MessageAdded("user", Content(TEXT_PLAIN, bytes(bytearray(TEXT))))
            if head.step >= 0
            else SessionSeeded("bench", writer=self._writer)
        )
        event = Event.following(
            head, body, event_id=mint_event_id(), time=time.time_ns() // 1_000, actor="agent"
        )
        encoded = encode_event(event)
        self.head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)
        return encoded


def records_of(count: int) -> list[OutgoingRecord]:
    """Ready bytes for a client library alone, of `SESSIONS` sessions that take turns."""
    lines = [Line(f"raw-{number}") for number in range(SESSIONS)]
    now_ms = time.time_ns() // 1_000_000
    records = []
    for number in range(count):
        session = f"raw-{number % SESSIONS}"
        data = lines[number % SESSIONS].make().data
        records.append(
            OutgoingRecord(partition_of(session, PARTITIONS), now_ms, session.encode(), data)
        )
    return records


class KafkaPythonAlone:
    """kafka-python's idempotent producer, tuned; it is given ready bytes."""

    name = "kafka-python"

    def __init__(self, bootstrap: str, topic: str) -> None:
        from kafka import KafkaProducer

        self.topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            batch_size=BATCH_BYTES,
        )

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        """Send all, and wait until each is acknowledged."""
        send, topic = self._producer.send, self.topic
        futures = [
            send(topic, value, key, None, partition, at) for partition, at, key, value in records
        ]
        for future in futures:
            future.get(TIMEOUT_S)

    def give(self, record: OutgoingRecord, count: int, seconds: float) -> Counter[str]:
        """Send the value so often, as long as that takes no longer; what came of the tries."""
        ends_at, answers = time.monotonic() + seconds, Counter[str]()
        for number in range(count):
            if time.monotonic() >= ends_at:
                answers["not tried in time"] = count - number
                break
            # Each try has bytes of its own, as events have.
            self._producer.send(self.topic, bytes(bytearray(record.value)), record.key)
            answers["taken"] += 1
        return answers

    def close(self) -> None:
        """Let go of it."""
        self._producer.close()


class ConfluentAlone:
    """confluent-kafka's idempotent producer, tuned; it is given ready bytes."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self._acknowledged = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "batch.size": BATCH_BYTES,
            }
        )

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        """Send all, and wait until each is acknowledged."""
        self._acknowledged = 0
        produce, topic, note = self._producer.produce, self.topic, self._note
        for partition, at, key, value in records:
            produce(topic, value, key, partition, note, at)
            self._producer.poll(0)
        self._producer.flush(TIMEOUT_S)
        assert self._acknowledged == len(records)

    def give(self, record: OutgoingRecord, count: int, seconds: float) -> Counter[str]:
        """Send the value so often, as long as that takes no longer; what came of the tries."""
        ends_at, answers = time.monotonic() + seconds, Counter[str]()
        for number in range(count):
            if time.monotonic() >= ends_at:
                answers["not tried in time"] = count - number
                break
            try:
                self._producer.produce(self.topic, bytes(bytearray(record.value)), record.key)
                answers["taken"] += 1
            except BufferError:
                answers["BufferError"] += 1
        return answers

    def _note(self, error: Any, _: Any) -> None:
        assert error is None, error
        self._acknowledged += 1

    def close(self) -> None:
        """Let go of it."""
        self._producer.flush(TIMEOUT_S)


class KafkaPythonTransactions:
    """kafka-python's transactional producer, one record a transaction."""

    name = "kafka-python, one transaction"

    def __init__(self, bootstrap: str, topic: str) -> None:
        from kafka import KafkaProducer

        self.topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            transactional_id=f"{topic}-alone",
            # The library's own 100 ms would be the latency of every second transaction.
            retry_backoff_ms=10,
        )
        self._producer.init_transactions()

    def write(self, record: OutgoingRecord) -> None:
        """One transaction."""
        self._producer.begin_transaction()
        self._producer.send(
            self.topic, record.value, record.key, None, record.partition, record.timestamp_ms
        )
        self._producer.commit_transaction()

    def close(self) -> None:
        """Let go of it."""
        self._producer.close()
