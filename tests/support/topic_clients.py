"""The client libraries on trial, and what each test of a client does all the time."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from eventlog.kafka.client import (
    OutgoingRecord,
    TopicClient,
    TopicProducer,
    TopicReader,
    TopicRecord,
)
from eventlog.kafka.connection import CLIENTS, open_client

LIBRARIES = CLIENTS
S_MAX = 30.0

OpenClient = Callable[..., TopicClient]
"""`open_client` for one library: (bootstrap, topic, security=None)."""


def opener(library: str) -> OpenClient:
    """`open_client` with one bootstrap server's text, for one library."""
    return lambda bootstrap, topic, security=None: open_client(
        bootstrap.split(","), topic, security, client=library
    )


def thread_count() -> int:
    """All threads of this process, those of C libraries too."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def now_ms() -> int:
    """A record's time stamp."""
    return int(time.time() * 1000)


def record(partition: int = 0, value: bytes = b"v", key: bytes = b"k") -> OutgoingRecord:
    """A record to be written now."""
    return OutgoingRecord(partition, now_ms(), key, value)


@contextmanager
def ready_producer(client: TopicClient, transactional_id: str = "") -> Iterator[TopicProducer]:
    """An initialised producer."""
    producer = client.open_producer(transactional_id or token_hex(8))
    try:
        producer.initialise(S_MAX)
        yield producer
    finally:
        producer.abandon()


@contextmanager
def reading(
    client: TopicClient, positions: Mapping[int, int], *, committed: bool = True
) -> Iterator[TopicReader]:
    """A reader at these positions."""
    reader = client.open_reader(committed)
    try:
        reader.seek(positions)
        yield reader
    finally:
        reader.close()


def read_to_end(reader: TopicReader) -> list[TopicRecord]:
    """All records up to the high watermarks, which every position must reach."""
    ends = reader.high_watermarks(list(reader.positions()), S_MAX)
    deadline = time.monotonic() + S_MAX
    found: list[TopicRecord] = []
    while any(position < ends[each] for each, position in reader.positions().items()):
        assert time.monotonic() < deadline, f"at {reader.positions()} of {ends}"
        found += reader.fetch(1.0)
    return found


def values_of(records: list[TopicRecord]) -> list[bytes | None]:
    """Their values, in order."""
    return [each.value for each in records]
