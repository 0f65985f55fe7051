"""A writer holds what the brokers answer against what they had acknowledged before."""

import time
from typing import Any

import pytest

from eventlog.errors import TopicChangedError
from eventlog.kafka.client import OutgoingRecord
from eventlog.kafka.topic_writer import TopicWriter

RECORD = OutgoingRecord(0, 0, b"s", b"event")


class Producer:
    def __init__(self, offsets: list[int]) -> None:
        self.offsets = offsets

    def commit(self, records: list[OutgoingRecord], timeout_s: float) -> list[int]:
        del timeout_s
        return [self.offsets.pop(0) for _ in records]

    def abandon(self) -> None:
        pass


def writer(*offsets: int) -> TopicWriter:
    class Client:
        topic = "t"

    client: Any = Client()
    mirror: Any = object()
    made = TopicWriter(client, mirror, "w", "kafka://b/t")
    made._producer = Producer(list(offsets))  # type: ignore[assignment]
    made._next_look = time.monotonic() + 60
    return made


def test_an_offset_below_what_was_acknowledged_ends_the_writer() -> None:
    """The last segment of a broker was cut: events on top of lost ones would stand for nobody."""
    topic = writer(3, 4, 12, 9)
    deadline = time.monotonic() + 5
    assert topic.commit([RECORD, RECORD], deadline) == [3, 4]
    assert topic.commit([RECORD], deadline) == [12]
    assert topic.is_ready
    with pytest.raises(TopicChangedError, match="acknowledged up to offset 13"):
        topic.commit([RECORD], deadline)
    assert not topic.is_ready
    with pytest.raises(TopicChangedError):
        topic.make_ready(deadline, lambda: None)
