"""A client while its broker is frozen, killed or not there: deadlines hold, and nothing is left.

The broker is this module's own. Slack of seconds: the machine may be busy with other tests.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex

import pytest

from eventlog.kafka import confluent_producer, kafka_python_producer
from eventlog.kafka.client import TopicClient, TopicProducer, TopicReader
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    RecordsCorrupt,
)
from tests.support.brokers import Broker, free_ports, running_broker
from tests.support.processes import python_script
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

pytestmark = [pytest.mark.kafka, pytest.mark.brokers]

SLACK_S = 8.0
"""A test machine that does much else is given so much more; without a limit it would be minutes."""

GIVEN_S = 0.5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(params=LIBRARIES)
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[TopicClient]:
    opened = opener(request.param)(broker.bootstrap, broker.new_topic(3))
    yield opened
    opened.close()


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """Within, the broker's connections stay open, and nobody answers."""
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


def fault_in_time(call: Callable[[float], object]) -> ClientFault:
    """What the call raises, given a second; it may not take much longer."""
    began = time.monotonic()
    with pytest.raises(ClientFault) as caught:
        call(GIVEN_S)
    assert time.monotonic() - began < GIVEN_S + SLACK_S
    return caught.value


def fetch_for_long(reader: TopicReader, found: list[bytes | None] | None = None) -> None:
    """For longer than a reader waits without any answer; what came is added to `found`."""
    for _ in range(20):
        values = values_of(reader.fetch(0.7))
        if found is not None:
            found += values


def test_every_call_ends_in_time_while_brokers_are_frozen(
    client: TopicClient, broker: Broker, request: pytest.FixtureRequest
) -> None:
    fresh = opener(request.node.callspec.params["client"])(broker.bootstrap, client.topic)
    asked = client.open_reader(committed=True)
    asked.high_watermarks([0], S_MAX)
    client.describe()
    calls: list[Callable[[float], object]] = [
        lambda s: client.open_producer(token_hex(8)).initialise(s),
        lambda s: fresh.open_producer(token_hex(8)).initialise(s),
        lambda s: asked.high_watermarks([0, 1], s),
        lambda s: asked.log_starts([0, 1], s),
        lambda s: fresh.open_reader(committed=False).high_watermarks([0], s),
        client.describe,
        fresh.describe,
        client.broker_count,
        client.broker_settings,
        lambda s: client.group_offsets("g", s),
        lambda s: client.put_group_offsets("g", {0: 1}, s),
        lambda s: client.create_topic(f"test-{token_hex(8)}", 1, 1, {}, s),
        lambda s: client.delete_topic(client.topic, s),
        lambda s: client.publish(client.topic, [(b"a", b"b")], s),
        lambda s: client.read_all(client.topic, s),
    ]
    with frozen(broker):
        for number, call in enumerate(calls):
            fault = fault_in_time(call)
            assert isinstance(fault, BrokersUnavailable), (number, fault)
            assert broker.bootstrap in str(fault)
    asked.close()
    fresh.close()
    # The topic is still there: what was asked for late must not have been done later.
    assert client.describe(S_MAX).partition_count == 3


def test_a_commit_that_cannot_end_is_given_up_and_never_happens(
    client: TopicClient, broker: Broker
) -> None:
    with ready_producer(client) as producer, ready_producer(client) as neighbour:
        producer.commit([record(0, b"before")], S_MAX)
        neighbour.commit([record(1, b"neighbour")], S_MAX)
        before = thread_count()
        with frozen(broker):
            broken = fault_in_time(lambda s: producer.commit([record(0, b"given up")] * 3, s))
            assert isinstance(broken, ProducerBroken)
            began = time.monotonic()
            producer.abandon()
            assert time.monotonic() - began < SLACK_S
        deadline = time.monotonic() + S_MAX
        while thread_count() >= before:
            assert time.monotonic() < deadline, threading.enumerate()
            time.sleep(0.02)
        # The other producer was not touched by this.
        neighbour.commit([record(1, b"neighbour still")], S_MAX)
        with ready_producer(client, producer.transactional_id) as successor:
            successor.commit([record(0, b"after")], S_MAX)
            with reading(client, {0: 0, 1: 0}) as reader:
                found = values_of(read_to_end(reader))
    expected = {b"before", b"after", b"neighbour", b"neighbour still"}
    assert set(found) - {b"given up"} == expected
    assert found.count(b"given up") in ((0, 3) if broken.sent else (0,))


def test_a_freeze_at_any_moment_of_a_commit_leaves_all_of_it_or_nothing(
    client: TopicClient, broker: Broker
) -> None:
    transactional_id = token_hex(8)
    acknowledged: set[bytes] = set()
    unknown: list[set[bytes]] = []
    unsent: set[bytes] = set()

    def write_until_broken(producer: TopicProducer, turn: int) -> None:
        number = 0
        while True:
            values = {b"%d.%d.%d" % (turn, number, each) for each in range(30)}
            records = [record(n % 3, value) for n, value in enumerate(sorted(values))]
            try:
                producer.commit(records, GIVEN_S)
            except ProducerBroken as broken:
                unknown.append(values) if broken.sent else unsent.update(values)
                return
            acknowledged.update(values)
            number += 1

    for turn in range(6):
        with ready_producer(client, transactional_id) as producer:
            writer = threading.Thread(target=write_until_broken, args=(producer, turn))
            writer.start()
            time.sleep(0.1 + 0.013 * turn)
            with frozen(broker):
                writer.join(S_MAX)
            assert not writer.is_alive()
    with ready_producer(client, transactional_id) as last:
        last.commit([record(0, b"last")], S_MAX)
    with reading(client, {0: 0, 1: 0, 2: 0}) as reader:
        found = values_of(read_to_end(reader))
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    assert not unsent & set(found)
    for values in unknown:
        assert len(values & set(found)) in (0, len(values))
    assert set(found) <= acknowledged | {b"last"}.union(*unknown)


@pytest.fixture
def long_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may be away for a minute: it takes so long to start where much else is done."""
    for producer in (confluent_producer, kafka_python_producer):
        monkeypatch.setattr(producer, "TRANSACTION_TIMEOUT_MS", 60_000)


@pytest.mark.usefixtures("long_transactions")
def test_a_commit_outlives_its_broker_s_kill_and_restart(
    client: TopicClient, broker: Broker
) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        producer.commit([record(0, b"before")], S_MAX)
        read_to_end(reader)
        broker.kill()
        restart = threading.Thread(target=broker.restart)
        restart.start()
        written = [b"before"]
        try:
            producer.commit([record(0, b"through")], 60.0)
            written.append(b"through")
        finally:
            restart.join()
        producer.commit([record(0, b"after")], S_MAX)
        assert [b"before", *values_of(read_to_end(reader))] == [*written, b"after"]
    assert client.describe(S_MAX).partition_count == 3


@pytest.mark.usefixtures("long_transactions")
def test_a_commit_outlives_a_stall_that_is_longer_than_a_request_may_take(
    client: TopicClient, broker: Broker
) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        producer.commit([record(0, b"before")], S_MAX)
        broker.freeze()
        thaw = threading.Timer(7.0, broker.thaw)
        thaw.start()
        try:
            producer.commit([record(0, b"through")], S_MAX)
        finally:
            thaw.join()
        producer.commit([record(0, b"after")], S_MAX)
        assert values_of(read_to_end(reader)) == [b"before", b"through", b"after"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_broker_at_all_is_told_in_time(library: str) -> None:
    (port,) = free_ports(1)
    client = opener(library)(f"127.0.0.1:{port}", "nowhere")
    reader = client.open_reader(committed=True)
    reader.seek({0: 0})
    for call in (
        lambda s: client.open_producer(token_hex(8)).initialise(s),
        client.describe,
        lambda s: reader.high_watermarks([0], s),
        lambda s: fetch_for_long(reader),
    ):
        began = time.monotonic()
        with pytest.raises(BrokersUnavailable, match=str(port)):
            call(GIVEN_S)
        assert time.monotonic() - began < 10 + SLACK_S
    reader.close()
    client.close()


def test_a_reader_goes_on_after_an_outage(client: TopicClient, broker: Broker) -> None:
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        producer.commit([record(0, b"one")], S_MAX)
        assert values_of(read_to_end(reader)) == [b"one"]
        with frozen(broker):
            assert reader.fetch(0.3) == []
            with pytest.raises(BrokersUnavailable):
                fetch_for_long(reader)
        with ready_producer(client) as another:
            another.commit([record(0, b"two")], S_MAX)
        assert values_of(read_to_end(reader)) == [b"two"]


EXIT = """
import sys
from tests.support.topic_clients import *
client = opener(sys.argv[1])(sys.argv[2], sys.argv[3])
producer = client.open_producer("exits"); producer.initialise(30)
producer.commit([record(0, b"a")], 30)
reader = client.open_reader(True); reader.seek({0: 0}); reader.fetch(5); client.describe()
print("ready", flush=True)
sys.stdin.readline()
try:
    producer.commit([record(0, b"b")] * 10, 1.0)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_process_ends_at_once_and_quietly_with_all_open(library: str, broker: Broker) -> None:
    topic = broker.new_topic(1)
    process = python_script(EXIT, library, broker.bootstrap, topic)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with frozen(broker):
        out, errors = process.communicate("go\n", timeout=20 + SLACK_S)
    assert (out, errors, process.returncode) == ("ProducerBroken\n", "", 0)


def test_a_damaged_record_is_told_every_time_and_never_passed_over(
    client: TopicClient, broker: Broker
) -> None:
    with ready_producer(client) as producer:
        producer.commit([record(0, b"sound")], S_MAX)
        producer.commit([record(0, b"to be damaged " * 20)], S_MAX)
        producer.commit([record(1, b"elsewhere")], S_MAX)
    broker.stop()
    (segment,) = (broker.node.folder / "data" / f"{client.topic}-0").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"to be damaged", b"to be DAMAGED"))
    broker.restart()
    for committed in (True, False):
        with reading(client, {0: 0, 1: 0}, committed=committed) as reader:
            found: list[bytes | None] = []
            for _ in range(3):
                with pytest.raises(RecordsCorrupt, match=client.topic):
                    fetch_for_long(reader, found)
            assert reader.positions()[0] in (1, 2)
            assert set(found) <= {b"sound", b"elsewhere"}
            assert found.count(b"sound") == 1
            reader.seek({1: 0})
            assert values_of(read_to_end(reader)) == [b"elsewhere"]
