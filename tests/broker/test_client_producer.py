"""A client's producer on a real broker: one transaction a commit, dead after a fault.

What must never be: an acknowledged record that is not there, an offset that is another's, a fenced
producer that goes on, and records of a given-up producer that appear later.
"""

import threading
import time
from collections.abc import Callable, Iterator
from secrets import token_hex

import pytest

from eventlog.kafka.client import TopicClient, TopicProducer
from eventlog.kafka.client_errors import (
    ProducerBroken,
    ProducerFenced,
    RecordsRefused,
    TopicMissing,
)
from tests.support.brokers import KafkaAddress
from tests.support.topic_clients import (
    LIBRARIES,
    S_MAX,
    opener,
    read_to_end,
    reading,
    ready_producer,
    record,
    thread_count,
    values_of,
)
from tests.support.transactions import sent_transaction

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]


@pytest.fixture(params=LIBRARIES)
def client(
    request: pytest.FixtureRequest, kafka_broker: KafkaAddress, new_topic: NewTopic
) -> Iterator[TopicClient]:
    opened = opener(request.param)(kafka_broker.bootstrap, new_topic(3))
    yield opened
    opened.close()


def test_offsets_are_where_the_records_lie(client: TopicClient) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0, 1: 0, 2: 0}) as reader:
        written: dict[tuple[int, int], bytes] = {}
        for turn in range(5):
            records = [record(n % 3, b"%d.%d" % (turn, n)) for n in range(turn * 7 + 1)]
            offsets = producer.commit(records, S_MAX)
            assert len(offsets) == len(records)
            written |= {(r.partition, o): r.value for r, o in zip(records, offsets, strict=True)}
        found = read_to_end(reader)
        assert {(each.partition, each.offset): each.value for each in found} == written
        for partition in range(3):
            offsets = [each.offset for each in found if each.partition == partition]
            assert offsets == sorted(offsets)


def test_key_value_and_time_stamp_come_back(client: TopicClient) -> None:
    with ready_producer(client) as producer, reading(client, {1: 0}) as reader:
        outgoing = record(1, b"\x00\xff" * 400, "süß".encode())
        (offset,) = producer.commit([outgoing], S_MAX)
        (found,) = read_to_end(reader)
        assert found == (1, offset, outgoing.timestamp_ms, outgoing.key, outgoing.value)


def test_the_largest_event_fits_and_a_large_transaction_too(client: TopicClient) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        large = [record(0, bytes([n]) * 320 * 1024) for n in range(6)]
        small = [record(0, b"%d" % n * 90) for n in range(1_200)]
        assert len(producer.commit([*large, *small], S_MAX)) == 1_206
        assert values_of(read_to_end(reader)) == [each.value for each in [*large, *small]]


def test_no_records_are_no_transaction(client: TopicClient) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        assert producer.commit([], S_MAX) == []
        assert reader.high_watermarks([0], S_MAX) == {0: 0}
        assert producer.commit([record()], S_MAX) == [0]


def test_too_large_a_record_is_refused_before_anything_is_sent(client: TopicClient) -> None:
    with ready_producer(client) as producer:
        with pytest.raises(RecordsRefused) as refused:
            producer.commit([record(), record(0, b"x" * 1024 * 1024)], S_MAX)
        assert not refused.value.sent
        assert client.topic in str(refused.value)
        with pytest.raises(ProducerBroken) as dead:
            producer.commit([record()], S_MAX)
        assert not dead.value.sent
    with ready_producer(client) as another, reading(client, {0: 0}, committed=False) as reader:
        assert another.commit([record()], S_MAX) == [0]
        assert len(read_to_end(reader)) == 1


def test_too_large_for_the_topic_alone_is_refused_and_never_seen(
    kafka_broker: KafkaAddress, new_topic: NewTopic
) -> None:
    topic = new_topic(1, {"max.message.bytes": "20000"})
    for library in LIBRARIES:
        client = opener(library)(kafka_broker.bootstrap, topic)
        name = token_hex(8)
        with ready_producer(client, name) as producer, pytest.raises(RecordsRefused):
            producer.commit([record(0, b"small"), record(0, b"x" * 30_000)], S_MAX)
        # The same id: what was left open holds up all readers until it is ended, or 10 s.
        with ready_producer(client, name) as another, reading(client, {0: 0}) as reader:
            another.commit([record(0, library.encode())], S_MAX)
            assert b"small" not in values_of(read_to_end(reader))
        client.close()


def test_a_partition_that_is_not_there_breaks_the_producer(client: TopicClient) -> None:
    with ready_producer(client) as producer, pytest.raises(ProducerBroken):
        producer.commit([record(0), record(7)], 3.0)
    with ready_producer(client) as another, reading(client, {0: 0}) as reader:
        another.commit([record(0, b"next")], S_MAX)
        assert values_of(read_to_end(reader)) == [b"next"]


def test_no_topic_is_told_as_such_and_none_is_made(
    kafka_broker: KafkaAddress, client: TopicClient, request: pytest.FixtureRequest
) -> None:
    name = f"test-{token_hex(8)}"
    missing = opener(request.node.callspec.params["client"])(kafka_broker.bootstrap, name)
    producer = missing.open_producer(token_hex(8))
    with pytest.raises(TopicMissing, match=name):
        producer.initialise(10.0)
    producer.abandon()
    with kafka_broker.admin() as admin:
        assert name not in admin.list_topics()
    missing.close()


def test_a_producer_before_and_after_its_life_sends_nothing(client: TopicClient) -> None:
    producer = client.open_producer(token_hex(8))
    with pytest.raises(ProducerBroken) as early:
        producer.commit([record()], S_MAX)
    assert not early.value.sent
    producer.initialise(S_MAX)
    producer.abandon()
    producer.abandon()
    with pytest.raises(ProducerBroken) as late:
        producer.commit([record()], S_MAX)
    assert not late.value.sent


def test_a_zombie_that_was_idle_is_fenced(client: TopicClient) -> None:
    with ready_producer(client, "idle" + token_hex(8)) as zombie:
        zombie.commit([record(0, b"before")], S_MAX)
        with ready_producer(client, zombie.transactional_id) as owner:
            owner.commit([record(0, b"owner")], S_MAX)
            _assert_fenced(zombie)
            owner.commit([record(0, b"owner still")], S_MAX)
    with reading(client, {0: 0}) as reader:
        assert values_of(read_to_end(reader)) == [b"before", b"owner", b"owner still"]


def test_a_zombie_that_was_fenced_just_now_is_fenced_for_good(client: TopicClient) -> None:
    # The library's own recovery (KIP-360) would initialise the id again, and fence the owner.
    transactional_id = "now" + token_hex(8)
    for turn in range(8):
        with ready_producer(client, transactional_id) as zombie:
            zombie.commit([record(turn % 3, b"zombie")], S_MAX)
            with ready_producer(client, transactional_id) as owner:
                _assert_fenced(zombie)
                time.sleep(0.01 * turn)
                assert len(owner.commit([record(turn % 3, b"owner")] * 3, S_MAX)) == 3


def test_a_zombie_in_the_middle_of_its_transactions_is_fenced(client: TopicClient) -> None:
    transactional_id = "mid" + token_hex(8)
    acknowledged: list[bytes] = []
    outcomes: list[Exception] = []

    with ready_producer(client, transactional_id) as zombie:

        def write_on() -> None:
            try:
                for number in range(100_000):
                    values = [b"z%d.%d" % (number, each) for each in range(20)]
                    zombie.commit([record(n % 3, each) for n, each in enumerate(values)], S_MAX)
                    acknowledged.extend(values)
            except (ProducerFenced, ProducerBroken) as fault:
                outcomes.append(fault)

        writer = threading.Thread(target=write_on)
        writer.start()
        time.sleep(0.2)
        with ready_producer(client, transactional_id) as owner:
            owner.commit([record(0, b"owner")], S_MAX)
            writer.join(S_MAX)
            # A broker 4.4 may also trip over its own fencing, and say that it does not know.
            assert [type(each) for each in outcomes] in ([ProducerFenced], [ProducerBroken])
            owner.commit([record(0, b"owner still")], S_MAX)
            _assert_dead(zombie)
            owner.commit([record(0, b"owner to the end")], S_MAX)
    with reading(client, {0: 0, 1: 0, 2: 0}) as reader:
        found = values_of(read_to_end(reader))
    assert {b"owner", b"owner still", b"owner to the end"} <= set(found)
    of_zombie = [each for each in found if each and each.startswith(b"z")]
    assert set(acknowledged) <= set(of_zombie)
    # The last may be committed without an answer, but whole, once, and before the owner's first.
    assert len(of_zombie) == len(set(of_zombie))
    assert len(of_zombie) - len(acknowledged) in (0, 20)


def test_initialising_ends_what_the_predecessor_left_open(
    client: TopicClient, kafka_broker: KafkaAddress
) -> None:
    transactional_id = "left" + token_hex(8)
    left = sent_transaction(
        kafka_broker.bootstrap, client.topic, [(0, b"left open")], transactional_id
    )
    # Its producer only tries to abort what another has aborted by then.
    with left as transaction, reading(client, {0: 0}) as reader:
        assert reader.high_watermarks([0], S_MAX) == {0: 1}
        with ready_producer(client, transactional_id) as owner:
            assert owner.commit([record(0, b"owner")], S_MAX) == [2]
            assert values_of(read_to_end(reader)) == [b"owner"]
        transaction.forget()


def test_two_ids_do_not_disturb_each_other(client: TopicClient) -> None:
    with ready_producer(client) as one, ready_producer(client) as two:
        for turn in range(5):
            one.commit([record(0, b"one%d" % turn)], S_MAX)
            two.commit([record(0, b"two%d" % turn)], S_MAX)
    with reading(client, {0: 0}) as reader:
        assert len(read_to_end(reader)) == 10


def test_threads_of_given_up_producers_end(client: TopicClient) -> None:
    before = thread_count()
    for _ in range(5):
        with ready_producer(client) as producer:
            producer.commit([record()], S_MAX)
    deadline = time.monotonic() + S_MAX
    while thread_count() > before:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.02)


def _assert_fenced(zombie: TopicProducer) -> None:
    with pytest.raises(ProducerFenced):
        zombie.commit([record(0, b"ZOMBIE")], S_MAX)
    _assert_dead(zombie)


def _assert_dead(zombie: TopicProducer) -> None:
    with pytest.raises(ProducerBroken) as dead:
        zombie.commit([record(0, b"ZOMBIE")], S_MAX)
    assert not dead.value.sent
