"""Topics made and examined on a real broker."""

import io
import json
import random
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader

from eventlog.codec import encode_event
from eventlog.errors import ConfigError, LogUnavailableError
from eventlog.kafka import topic
from eventlog.kafka.client import TopicClient
from eventlog.kafka.connection import open_client
from eventlog.kafka.schema_topic import schema_topic_of
from eventlog.kafka.security import KafkaSecurity
from eventlog.kafka.topic import Creation, create_topic, examine_security, examine_topic
from eventlog.kafka.topic_settings import TopicFinding, plan_topic
from tests.support.brokers import KafkaAddress
from tests.support.events import random_event


@pytest.fixture
def client(kafka_broker: KafkaAddress) -> Iterator[TopicClient]:
    """A client for a topic that is not there yet; what is made is deleted."""
    client = open_client(kafka_broker.bootstrap.split(","), f"test-{secrets.token_hex(8)}")
    yield client
    client.close()
    kafka_broker.delete_topics(client.topic, schema_topic_of(client.topic))


def findings(client: TopicClient) -> dict[str, TopicFinding]:
    """What is found, by name."""
    return {one.name: one for one in examine_topic(client)}


def failed(client: TopicClient) -> list[str]:
    """The names of the findings that failed."""
    return [name for name, one in findings(client).items() if one.verdict == "failed"]


def test_a_topic_is_made_as_planned_and_only_once(client: TopicClient) -> None:
    made = create_topic(client, partitions=3, settings={"flush.messages": "1"})
    assert made == Creation(client.topic, True, 3, min(3, client.broker_count()), 1)
    again = create_topic(client, partitions=3, settings={"flush.messages": "1"})
    assert again == made._replace(created=False, schemas_written=0)
    found = client.describe().settings
    wanted = plan_topic(made.replication_factor).settings
    assert {name: found[name] for name in wanted} == dict(wanted)
    assert found["flush.messages"] == "1"
    assert failed(client) == []


def test_each_finding_stands_once_and_says_what_it_saw(client: TopicClient) -> None:
    create_topic(client, partitions=2)
    found = list(examine_topic(client))
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert one.found
        assert one.fix or one.verdict == "ok"
    assert {"schemas", "transactions", "first records", "rights"} <= {one.name for one in found}


def test_a_topic_that_is_there_is_examined_and_not_changed(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    client.create_topic(
        client.topic, 2, 1, {"retention.ms": "1000000", "cleanup.policy": "compact"}
    )
    assert not create_topic(client).created
    assert client.describe().settings["retention.ms"] == "1000000"
    assert {"retention.ms", "cleanup.policy"} <= {*failed(client)}


def test_schemas_that_were_lost_are_written_again(client: TopicClient) -> None:
    create_topic(client, partitions=1)
    client.delete_topic(schema_topic_of(client.topic))
    assert findings(client)["schemas"].verdict == "warning"
    assert create_topic(client).schemas_written == 1
    assert findings(client)["schemas"].verdict == "ok"


def test_other_tools_read_events_with_what_stands_in_the_schema_topic(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    from kafka import KafkaConsumer, TopicPartition

    create_topic(client, partitions=1)
    place = TopicPartition(schema_topic_of(client.topic), 0)
    consumer: Any = KafkaConsumer(
        bootstrap_servers=kafka_broker.bootstrap.split(","), auto_offset_reset="earliest"
    )
    try:
        consumer.assign([place])
        records = consumer.poll(timeout_ms=10_000)[place]
    finally:
        consumer.close()
    schemas = {record.key: parse_schema(json.loads(record.value)) for record in records}
    value = encode_event(random_event(random.Random(0), "session_seeded")).data
    event = schemaless_reader(io.BytesIO(value[10:]), schemas[value[2:10]], None)
    assert event["kind"] == "session_seeded"  # type: ignore[index, call-overload]


def test_no_topic_is_found_out(client: TopicClient) -> None:
    assert failed(client) == ["topic"]
    assert "steplog topic create" in findings(client)["topic"].fix


def test_records_that_were_deleted_are_missed(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    from kafka import TopicPartition

    create_topic(client, partitions=2)
    client.publish(client.topic, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    with kafka_broker.admin() as admin:
        places = [TopicPartition(client.topic, partition) for partition in (0, 1)]
        admin.delete_records(dict.fromkeys(places, -1))
    one = findings(client)["first records"]
    assert one.verdict == "failed"
    assert "begins at" in one.found


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda client: create_topic(client, partitions=0), "partitions is 0"),
        (lambda client: create_topic(client, partitions=4097), "partitions is 4097"),
        (lambda client: create_topic(client, replication_factor=99), "99 copies"),
        (lambda client: create_topic(client, settings={"foo": "1"}), "Unknown topic config name"),
        (lambda client: create_topic(client, settings={"retention.ms": "x"}), "Invalid value x"),
    ],
)
def test_a_topic_that_cannot_be(
    client: TopicClient, make: Callable[[TopicClient], object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        make(client)
    assert failed(client) == ["topic"]


def test_servers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "ANSWER_S", 0.5)
    client = open_client(["127.0.0.1:1"], "t")
    try:
        with pytest.raises(LogUnavailableError, match=r"127\.0\.0\.1:1"):
            create_topic(client)
        with pytest.raises(LogUnavailableError):
            list(examine_topic(client))
    finally:
        client.close()


@pytest.mark.parametrize(
    ("servers", "security", "verdict"),
    [
        (["127.0.0.1:9092", "[::1]:9092", "localhost:1"], KafkaSecurity(), "ok"),
        (["127.0.0.1:9092", "b:9092"], KafkaSecurity(), "warning"),
        (["b:9092"], KafkaSecurity(security_protocol="SSL"), "ok"),
        (["b:9092"], KafkaSecurity(security_protocol="SSL", ssl_check_hostname=False), "warning"),
    ],
)
def test_the_way_to_the_servers(servers: list[str], security: KafkaSecurity, verdict: str) -> None:
    assert examine_security(servers, security).verdict == verdict


def test_a_password_in_clear_is_warned_of_and_not_told() -> None:
    security = KafkaSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password="hunter2",
    )
    one = examine_security(["b:9092"], security)
    assert (one.verdict, "the password included" in one.found) == ("warning", True)
    assert "hunter2" not in repr(one)
