"""A client's reader on a real broker: positions pass markers, and ends are the log's own.

"Caught up" is a position at the high watermark, never a record seen: behind the last record lie
markers, aborted records, and other writers' open transactions.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventlog.kafka.client import TopicClient, TopicReader
from eventlog.kafka.client_errors import OffsetOutOfRange, TopicMissing
from tests.support.brokers import KafkaAddress
from tests.support.topic_clients import (
    LIBRARIES,
    S_MAX,
    opener,
    read_to_end,
    reading,
    ready_producer,
    record,
    values_of,
)
from tests.support.transactions import aborted_transaction, sent_transaction

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]


@pytest.fixture(params=LIBRARIES)
def client(
    request: pytest.FixtureRequest, kafka_broker: KafkaAddress, new_topic: NewTopic
) -> Iterator[TopicClient]:
    opened = opener(request.param)(kafka_broker.bootstrap, new_topic(3))
    yield opened
    opened.close()


def commit(client: TopicClient, *values: bytes, partition: int = 0) -> list[int]:
    """Committed records, by a producer of their own."""
    with ready_producer(client) as producer:
        return producer.commit([record(partition, value) for value in values], S_MAX)


def repeat(call: Callable[[], object]) -> None:
    """Until it raises, or the time is up."""
    deadline = time.monotonic() + S_MAX
    while time.monotonic() < deadline:
        call()


def test_a_partition_with_nothing_but_aborted_records_is_read_to_its_end(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    aborted_transaction(kafka_broker.bootstrap, client.topic, [(0, b"a")] * 7)
    with reading(client, {0: 0}) as reader:
        assert read_to_end(reader) == []
        assert reader.positions() == {0: 8}
        assert reader.high_watermarks([0], S_MAX) == {0: 8}


def test_aborted_records_and_markers_at_the_end(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    commit(client, b"one", b"two")
    aborted_transaction(kafka_broker.bootstrap, client.topic, [(0, b"a")] * 2)
    commit(client, b"three")
    aborted_transaction(kafka_broker.bootstrap, client.topic, [(0, b"a")] * 3)
    with reading(client, {0: 0}) as reader, reading(client, {0: 0}, committed=False) as all_of_it:
        assert values_of(read_to_end(reader)) == [b"one", b"two", b"three"]
        assert reader.positions() == {0: 12} == reader.high_watermarks([0], S_MAX)
        assert len(read_to_end(all_of_it)) == 8
        assert all_of_it.positions() == {0: 12}


def test_the_end_lies_behind_another_s_open_transaction(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    commit(client, b"before")
    sent = sent_transaction(kafka_broker.bootstrap, client.topic, [(0, b"open")])
    with reading(client, {0: 0}) as reader, sent as transaction:
        assert commit(client, b"acknowledged") == [3]
        # Never the last stable offset, which is 2.
        assert reader.high_watermarks([0], S_MAX) == {0: 5}
        assert values_of(reader.fetch(5.0)) == [b"before"]
        assert reader.fetch(0.2) == []
        assert reader.positions() == {0: 2}
        transaction.abort()
        assert values_of(read_to_end(reader)) == [b"acknowledged"]
        assert reader.positions() == {0: 6}


def test_an_open_transaction_that_is_committed_comes_whole(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    sent = sent_transaction(kafka_broker.bootstrap, client.topic, [(0, b"a"), (1, b"b"), (0, b"c")])
    with reading(client, {0: 0, 1: 0}) as reader, sent as transaction:
        assert reader.fetch(0.2) == []
        transaction.commit()
        assert sorted(values_of(read_to_end(reader)), key=str) == [b"a", b"b", b"c"]
        assert reader.positions() == {0: 3, 1: 2}


def test_a_fetch_returns_when_only_a_marker_came(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    sent = sent_transaction(kafka_broker.bootstrap, client.topic, [(0, b"open")])
    with reading(client, {0: 0}) as reader, sent as transaction:
        assert reader.fetch(0.1) == []
        transaction.abort()
        began = time.monotonic()
        assert reader.fetch(2 * S_MAX) == []
        assert time.monotonic() - began < S_MAX
        assert reader.positions() == {0: 2}


def test_from_any_position_on_exactly_what_follows_comes(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    for turn in range(4):
        commit(client, b"%d.0" % turn, b"%d.1" % turn)
        aborted_transaction(kafka_broker.bootstrap, client.topic, [(0, b"a")])
    with reading(client, {0: 0}) as reader:
        whole = read_to_end(reader)
        (end,) = reader.positions().values()
        for start in range(end + 1):
            reader.seek({0: start})
            assert reader.positions() == {0: start}
            assert read_to_end(reader) == [each for each in whole if each.offset >= start]


def test_a_seek_changes_the_partitions_that_are_read(client: TopicClient) -> None:
    for partition in range(3):
        commit(client, b"p%d" % partition, partition=partition)
    with reading(client, {0: 0}) as reader:
        assert values_of(read_to_end(reader)) == [b"p0"]
        reader.seek({1: 0, 2: 0})
        assert sorted(values_of(read_to_end(reader)), key=str) == [b"p1", b"p2"]
        assert reader.positions() == {1: 2, 2: 2}
        reader.seek({0: 2, 1: 0})
        assert values_of(read_to_end(reader)) == [b"p1"]
        reader.seek({})
        assert reader.fetch(0.1) == []
        assert reader.positions() == {}


def test_waiting_for_new_records_is_prompt(client: TopicClient) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        waits = []
        for turn in range(20):
            producer.commit([record(0, b"%d" % turn)], S_MAX)
            began = time.monotonic()
            while not reader.fetch(5.0):
                pass
            waits.append(time.monotonic() - began)
        # Who waits for a timer waits every time; a machine that is busy, only now and then.
        assert sorted(waits)[3] < 0.1, waits


def test_many_records_come_in_order_over_many_fetches(client: TopicClient) -> None:
    with ready_producer(client) as producer:
        for turn in range(6):
            records = [record(n % 3, b"%06d" % (turn * 2_000 + n) * 60) for n in range(2_000)]
            producer.commit(records, S_MAX)
    with reading(client, {0: 0, 1: 0, 2: 0}) as reader:
        found = read_to_end(reader)
        assert len(found) == 12_000
        for partition in range(3):
            values = [each.value for each in found if each.partition == partition]
            assert values == [b"%06d" % n * 60 for n in range(12_000) if n % 2_000 % 3 == partition]


def test_a_position_before_or_behind_the_log_is_told_with_all_numbers(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    from kafka import TopicPartition

    commit(client, b"a", b"b", b"c")
    commit(client, b"d", partition=1)
    with kafka_broker.admin() as admin:
        admin.delete_records({TopicPartition(client.topic, 0): 2})
    with reading(client, {0: 0, 1: 0}) as reader:
        assert reader.log_starts([0, 1], S_MAX) == {0: 2, 1: 0}
        assert _out_of_range(reader) == (0, 0, 2, 4)
        # The reader is whole: it says so again, and goes on from elsewhere.
        assert _out_of_range(reader) == (0, 0, 2, 4)
        reader.seek({0: 2, 1: 0})
        assert sorted(values_of(read_to_end(reader)), key=str) == [b"c", b"d"]
        reader.seek({0: 9, 1: 2})
        assert _out_of_range(reader) == (0, 9, 2, 4)


def _out_of_range(reader: TopicReader) -> tuple[int, int, int, int]:
    with pytest.raises(OffsetOutOfRange) as caught:
        repeat(lambda: reader.fetch(1.0))
    fault = caught.value
    return fault.partition, fault.offset, fault.start, fault.end


def test_a_topic_that_is_gone_is_told_as_such(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    commit(client, b"a")
    with reading(client, {0: 0}) as reader:
        assert values_of(read_to_end(reader)) == [b"a"]
        kafka_broker.delete_topics(client.topic)
        with pytest.raises(TopicMissing, match=client.topic):
            repeat(lambda: reader.high_watermarks([0], 5.0))
        with pytest.raises(TopicMissing):
            client.describe()


def test_a_topic_made_anew_has_another_id_and_added_partitions_are_counted(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    commit(client, b"a")
    before = client.describe()
    assert (before.topic, before.partition_count) == (client.topic, 3)
    with kafka_broker.admin() as admin:
        admin.create_partitions({client.topic: 5})
    deadline = time.monotonic() + S_MAX
    while (found := client.describe()).partition_count != 5:
        assert time.monotonic() < deadline
    assert found.topic_id == before.topic_id
    with ready_producer(client) as producer, reading(client, {4: 0}) as reader:
        producer.commit([record(4, b"new")], S_MAX)
        assert values_of(read_to_end(reader)) == [b"new"]
    kafka_broker.delete_topics(client.topic)
    with kafka_broker.admin() as admin:
        wanted = {"num_partitions": 3, "replication_factor": 1}
        admin.create_topics({client.topic: wanted}, wait_for_metadata=True)
    again = client.describe()
    assert again.topic_id != before.topic_id
    assert again.partition_count == 3
    with reading(client, {0: 0}) as reader:
        assert reader.high_watermarks([0], S_MAX) == {0: 0}


def test_two_readers_of_one_client_do_not_disturb_each_other(client: TopicClient) -> None:
    commit(client, b"a", b"b")
    with reading(client, {0: 0}) as one, reading(client, {0: 1}, committed=False) as two:
        assert values_of(read_to_end(one)) == [b"a", b"b"]
        assert values_of(read_to_end(two)) == [b"b"]
        one.close()
        assert values_of(read_to_end(two)) == []


class Interrupted:
    """A library's consumer; a Ctrl-C comes when it moved on, and has not given the records yet."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._is_due = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def poll(self, **options: Any) -> Any:
        return self._once(self._consumer.poll(**options))

    def consume(self, *options: Any) -> Any:
        return self._once(self._consumer.consume(*options))

    def _once(self, found: Any) -> Any:
        if found and self._is_due:
            self._is_due = False
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("seeks", [False, True])
def test_records_that_ctrl_c_took_from_a_fetch_come_again(client: TopicClient, seeks: bool) -> None:
    commit(client, b"before")
    with reading(client, {0: 0}) as reader:
        read_to_end(reader)
        at = reader.positions()
        reader._consumer = Interrupted(reader._consumer)  # type: ignore[attr-defined]
        commit(client, b"acknowledged", b"too")
        with pytest.raises(KeyboardInterrupt):
            repeat(lambda: reader.fetch(1.0))
        assert reader.positions() == at
        if seeks:
            reader.seek(at)
        commit(client, b"later")
        assert values_of(read_to_end(reader)) == [b"acknowledged", b"too", b"later"]
