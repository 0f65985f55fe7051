"""What a client asks and sets on a real broker besides writing and reading events."""

from collections.abc import Callable, Iterator
from secrets import token_hex

import pytest

from eventlog.kafka.client import TopicClient
from eventlog.kafka.client_errors import RequestRefused, TopicMissing
from tests.support.brokers import KafkaAddress
from tests.support.topic_clients import LIBRARIES, S_MAX, opener, ready_producer, record
from tests.support.transactions import aborted_transaction

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]


@pytest.fixture(params=LIBRARIES)
def client(request: pytest.FixtureRequest, kafka_broker: KafkaAddress) -> Iterator[TopicClient]:
    """Of a topic that is not there yet; deleted afterwards."""
    opened = opener(request.param)(kafka_broker.bootstrap, f"test-{token_hex(8)}")
    yield opened
    kafka_broker.delete_topics(opened.topic)
    opened.close()


def test_a_topic_is_made_once_and_described_as_made(client: TopicClient) -> None:
    with pytest.raises(TopicMissing, match=client.topic):
        client.describe()
    settings = {"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": "2000000"}
    assert client.create_topic(client.topic, 4, 1, settings)
    assert not client.create_topic(client.topic, 4, 1, settings)
    found = client.describe()
    assert (found.topic, found.partition_count, found.replication_factor) == (client.topic, 4, 1)
    assert len(found.topic_id) == 36
    assert settings.items() <= found.settings.items()
    assert found.settings["min.insync.replicas"]
    client.delete_topic(client.topic)
    with pytest.raises(TopicMissing):
        client.describe()
    with pytest.raises(TopicMissing):
        client.delete_topic(client.topic)


def test_what_the_brokers_cannot_make_is_refused_at_once(client: TopicClient) -> None:
    with pytest.raises(RequestRefused, match="Replication"):
        client.create_topic(client.topic, 1, 99, {})
    with pytest.raises(RequestRefused):
        client.create_topic(client.topic, 1, 1, {"no.such.setting": "1"})
    with pytest.raises(RequestRefused):
        client.create_topic("no topic!", 1, 1, {})


def test_a_topic_can_be_written_as_soon_as_it_is_made(client: TopicClient) -> None:
    client.create_topic(client.topic, 8, 1, {})
    with ready_producer(client) as producer:
        assert producer.commit([record(n) for n in range(8)], S_MAX) == [0] * 8


def test_brokers_and_their_settings(client: TopicClient) -> None:
    assert client.broker_count() >= 1
    settings = client.broker_settings()
    assert settings["auto.create.topics.enable"] in ("true", "false")
    assert int(settings["transaction.max.timeout.ms"]) > 0


def test_a_group_s_offsets_are_put_and_found(client: TopicClient) -> None:
    client.create_topic(client.topic, 3, 1, {})
    group = f"test-{token_hex(8)}"
    assert client.group_offsets(group) == {}
    client.put_group_offsets(group, {0: 5, 2: 0})
    assert client.group_offsets(group) == {0: 5, 2: 0}
    client.put_group_offsets(group, {0: 9})
    client.put_group_offsets(group, {})
    assert client.group_offsets(group) == {0: 9, 2: 0}


def test_a_compacted_topic_gives_the_last_value_of_each_key(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    with pytest.raises(TopicMissing):
        client.publish(client.topic, [(b"a", b"1")])
    with pytest.raises(TopicMissing):
        client.read_all(client.topic)
    client.create_topic(client.topic, 3, 1, {"cleanup.policy": "compact"})
    assert client.read_all(client.topic) == {}
    client.publish(client.topic, [])
    keys = [b"%d" % n for n in range(20)]
    client.publish(client.topic, [(key, b"old " + key) for key in keys])
    client.publish(client.topic, [(key, b"new " + key) for key in keys[::2]] + [(b"3", None)])
    aborted_transaction(kafka_broker.bootstrap, client.topic, [(0, b"never")])
    expected = {key: (b"old " if n % 2 else b"new ") + key for n, key in enumerate(keys)}
    assert client.read_all(client.topic) == {**expected, b"3": None}


def test_too_large_a_value_is_refused(client: TopicClient) -> None:
    client.create_topic(client.topic, 1, 1, {"max.message.bytes": "2000"})
    with pytest.raises(RequestRefused):
        client.publish(client.topic, [(b"a", b"x" * 3_000)])
    client.publish(client.topic, [(b"a", b"1")])
    assert client.read_all(client.topic) == {b"a": b"1"}
