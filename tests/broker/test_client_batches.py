"""A transaction in batches of our own through kafka-python: where each record lies, or why not."""

from collections.abc import Callable, Iterator
from secrets import token_hex

import pytest

from eventlog.kafka.client import OutgoingRecord, TopicClient
from eventlog.kafka.client_errors import ProducerBroken, RecordsRefused
from eventlog.kafka.connection import open_client
from tests.support.brokers import KafkaAddress
from tests.support.topic_clients import S_MAX, now_ms, read_to_end, reading, ready_producer, record

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]


@pytest.fixture
def clients(kafka_broker: KafkaAddress) -> Iterator[list[TopicClient]]:
    opened: list[TopicClient] = []
    yield opened
    for client in opened:
        client.close()


def client_of(clients: list[TopicClient], broker: KafkaAddress, topic: str) -> TopicClient:
    clients.append(open_client(broker.bootstrap.split(","), topic))
    return clients[-1]


def test_each_record_is_where_it_is_said_to_be(
    clients: list[TopicClient], kafka_broker: KafkaAddress, new_topic: NewTopic
) -> None:
    """Three partitions, and more than one batch holds."""
    client = client_of(clients, kafka_broker, new_topic(3))
    records = [record(n % 3, b"%d." % n + b"x" * (n % 7) * 1_500) for n in range(1_200)]
    with ready_producer(client) as producer:
        placed = dict(zip(range(1_200), producer.commit(records, S_MAX), strict=True))
        again = producer.commit(records[:5], S_MAX)
    with reading(client, {0: 0, 1: 0, 2: 0}) as reader:
        found = {(each.partition, each.offset): each.value for each in read_to_end(reader)}
    for number, offset in placed.items():
        assert found.pop((number % 3, offset)) == records[number].value
    assert sorted(found) == sorted((n % 3, offset) for n, offset in enumerate(again))


def test_a_batch_that_the_broker_wants_smaller_is_split(
    clients: list[TopicClient], kafka_broker: KafkaAddress, new_topic: NewTopic
) -> None:
    """And the offsets are still right, though others' records may lie between the parts."""
    topic = new_topic(2, {"max.message.bytes": "20000"})
    client = client_of(clients, kafka_broker, topic)
    records = [record(n % 2, b"%d." % n + b"x" * 1_000) for n in range(120)]
    with ready_producer(client) as producer, ready_producer(client, token_hex(8)) as other:
        other.commit([record(0, b"other")], S_MAX)
        offsets = producer.commit(records, S_MAX)
    with reading(client, {0: 0, 1: 0}) as reader:
        found = {(each.partition, each.offset): each.value for each in read_to_end(reader)}
    for number, offset in enumerate(offsets):
        assert found.pop((number % 2, offset)) == records[number].value
    assert list(found.values()) == [b"other"]


def test_the_reason_of_a_refusal_is_told(
    clients: list[TopicClient], kafka_broker: KafkaAddress, new_topic: NewTopic
) -> None:
    topic = new_topic(1, {"message.timestamp.before.max.ms": "3600000"})
    client = client_of(clients, kafka_broker, topic)
    old = OutgoingRecord(0, now_ms() - 7_200_000, b"k", b"old")
    with (
        ready_producer(client) as producer,
        pytest.raises(RecordsRefused, match="InvalidTimestamp") as caught,
    ):
        producer.commit([record(), old, record()], S_MAX)
    assert caught.value.sent


def test_a_partition_that_is_not_there_is_an_error_at_once(
    clients: list[TopicClient], kafka_broker: KafkaAddress, new_topic: NewTopic
) -> None:
    client = client_of(clients, kafka_broker, new_topic(1))
    with (
        ready_producer(client) as producer,
        pytest.raises(ProducerBroken, match="no partition 7") as caught,
    ):
        producer.commit([record(7)], S_MAX)
    assert not caught.value.sent
