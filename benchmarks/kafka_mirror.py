"""Reading a topic into its mirror, beside the same client library that only reads.

Events have about 1 KB, in transactions of 500, from 64 sessions that take turns. Both read the same
topic in one run: the broker that `STEPLOG_TEST_BOOTSTRAP` names. The latency is that of a refresh
right after one event was acknowledged.
"""

import os
import statistics
import tempfile
import time
from secrets import token_hex
from typing import Final, NamedTuple

from benchmarks.harness import Row, percentile, report
from eventlog.codec import encode_event
from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import Event, LineHead, MessageAdded, SessionSeeded
from eventlog.ids import mint_event_id
from eventlog.kafka.client import OutgoingRecord, TopicClient
from eventlog.kafka.connection import open_client
from eventlog.kafka.partitioning import partition_of
from eventlog.mirror import Mirror

EVENTS: Final = 60_000
SESSIONS: Final = 64
PARTITIONS: Final = 4
TRANSACTION_EVENTS: Final = 500
ROUNDS: Final = 3
BAR: Final = 40_000
REFRESHES: Final = 200
TIMEOUT_S: Final = 120.0
TEXT: Final = Content(TEXT_PLAIN, b"w" * 850)


class Rate(NamedTuple):
    """Events per wall second, and CPU microseconds of this process for each."""

    events_per_s: float
    cpu_us: float


class Feed:
    """Makes the records of one session, each standing on the one before."""

    def __init__(self, session_id: str) -> None:
        self._head = LineHead.before_seed(session_id)

    def make(self) -> OutgoingRecord:
        """The next record."""
        head = self._head
        body = MessageAdded("user", TEXT) if head.step >= 0 else SessionSeeded("bench")
        now_us = time.time_ns() // 1_000
        event = Event.following(head, body, event_id=mint_event_id(), time=now_us, actor="agent")
        encoded = encode_event(event)
        self._head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)
        part = partition_of(event.session_id, PARTITIONS)
        return OutgoingRecord(part, now_us // 1_000, event.session_id.encode(), encoded.data)


def write(client: TopicClient, feeds: list[Feed], events: int) -> None:
    """Write so many events, the sessions taking turns."""
    producer = client.open_producer(token_hex(8))
    producer.initialise(TIMEOUT_S)
    for start in range(0, events, TRANSACTION_EVENTS):
        end = min(events, start + TRANSACTION_EVENTS)
        records = [feeds[number % len(feeds)].make() for number in range(start, end)]
        producer.commit(records, TIMEOUT_S)
    producer.abandon()


def read_raw(client: TopicClient) -> Rate:
    """Fetch every committed record, and do nothing with it."""
    reader = client.open_reader(committed=True)
    ends = reader.high_watermarks(range(PARTITIONS), TIMEOUT_S)
    reader.seek(dict.fromkeys(ends, 0))
    wall, cpu, count = time.perf_counter(), time.process_time(), 0
    while any(at < ends[part] for part, at in reader.positions().items()):
        count += len(reader.fetch(1.0))
    rate = rate_of(count, wall, cpu)
    reader.close()
    return rate


def read_mirror(client: TopicClient) -> Rate:
    """Bring a new mirror to the end of the topic."""
    place = os.environ.get("STEPLOG_BENCH_FOLDER")
    with tempfile.TemporaryDirectory(dir=place) as folder, Mirror(folder, client) as mirror:
        wall, cpu = time.perf_counter(), time.process_time()
        mirror.refresh(timeout_s=TIMEOUT_S)
        return rate_of(mirror.records_read, wall, cpu)


def rate_of(count: int, wall: float, cpu: float) -> Rate:
    """The rate since these two clocks."""
    return Rate(count / (time.perf_counter() - wall), (time.process_time() - cpu) / count * 1e6)


def ingest_row(client: TopicClient) -> Row:
    """Both, in turns; the best round of each counts."""
    raw: list[Rate] = []
    ours: list[Rate] = []
    for _ in range(ROUNDS):
        raw.append(read_raw(client))
        ours.append(read_mirror(client))
    best, fastest = max(ours), max(raw)
    return Row(
        "reading a topic into its mirror, events of ~1 KB",
        f">= {BAR:,} ev/s",
        f"kafka-python alone {fastest.events_per_s:,.0f} ev/s ({fastest.cpu_us:.1f} us CPU)",
        f"{best.events_per_s:,.0f} ev/s ({best.cpu_us:.1f} us CPU an event)",
        best.events_per_s >= BAR,
    )


def refresh_rows(client: TopicClient, feeds: list[Feed]) -> list[Row]:
    """A refresh with one new event, and with none."""
    new_ms: list[float] = []
    none_ms: list[float] = []
    producer = client.open_producer(token_hex(8))
    producer.initialise(TIMEOUT_S)
    with tempfile.TemporaryDirectory() as folder, Mirror(folder, client) as mirror:
        mirror.refresh(timeout_s=TIMEOUT_S)
        for number in range(REFRESHES):
            producer.commit([feeds[number % len(feeds)].make()], TIMEOUT_S)
            for taken in (new_ms, none_ms):
                start = time.perf_counter()
                mirror.refresh()
                taken.append((time.perf_counter() - start) * 1e3)
    producer.abandon()
    return [
        Row(
            what,
            "-",
            "-",
            f"p50 {statistics.median(taken):.1f} ms, p99 {percentile(taken, 99):.1f} ms",
            None,
        )
        for what, taken in (
            ("  refresh right after one event was acknowledged", new_ms),
            ("  refresh with nothing new", none_ms),
        )
    ]


def main() -> None:
    """Measure and print."""
    bootstrap = os.environ.get("STEPLOG_TEST_BOOTSTRAP")
    if not bootstrap:
        what = "reading a topic into its mirror"
        report([Row(what, f">= {BAR:,} ev/s", "-", "no broker: set STEPLOG_TEST_BOOTSTRAP", None)])
        return
    client = open_client(bootstrap.split(","), f"bench-{token_hex(8)}")
    client.create_topic(client.topic, PARTITIONS, 1, {"retention.ms": "-1"})
    try:
        feeds = [Feed(f"session-{number}") for number in range(SESSIONS)]
        write(client, feeds, EVENTS)
        report([ingest_row(client), *refresh_rows(client, feeds)])
    finally:
        client.delete_topic(client.topic)
        client.close()


if __name__ == "__main__":
    main()
