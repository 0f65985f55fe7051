"""What others met when they wrote to Kafka, each named for what went wrong; what a log does here.

dpkp/kafka-python#2426, #841, #2083; confluentinc/confluent-kafka-python#1748. Outages are in
test_reports_of_outages.py, and dpkp/kafka-python#524 in test_exit_without_close.py.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.canonical import decode
from eventlog.codec import EncodedEvent
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import ConfigError, EventTooLargeError
from eventlog.ids import mint_session_id
from eventlog.kafka_log import KafkaLog
from replay.workspace import open_workspace
from tests.support.brokers import Broker, KafkaAddress, running_broker
from tests.support.events import EventChain
from tests.support.kafka_workspace import kafka_place
from tests.support.recorded import append_all, data_of, seeded_chain

pytestmark = pytest.mark.kafka

MISSING_TOLD_WITHIN_S = 10.0

NewTopic = Callable[..., str]


@pytest.fixture
def open_log(kafka_broker: KafkaAddress, tmp_path: Path) -> Iterator[Callable[[str], KafkaLog]]:
    """Opens the log in a topic; closed at the end."""
    opened: list[KafkaLog] = []

    def open_one(topic: str) -> KafkaLog:
        folder = tmp_path / f"mirror-{len(opened)}"
        opened.append(KafkaLog(kafka_broker.bootstrap.split(","), topic, folder))
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


def large_call(chain: EventChain, size: int) -> EncodedEvent:
    """A call whose arguments have so many bytes, all inline."""
    return chain.call(arguments=Content(OCTET_STREAM, b"x" * size))


@pytest.mark.parametrize("size", [300_000, 1_048_576, 5_000_000])
def test_2426_and_841_a_record_that_is_too_large_is_refused_before_anything_is_sent(
    open_log: Callable[[str], KafkaLog], new_topic: NewTopic, size: int
) -> None:
    """There it vanished, and the error sat in a future that nobody read."""
    log = open_log(new_topic(1))
    chain = seeded_chain(log, mint_session_id())
    head = chain.head
    refused = large_call(chain, size)
    for submit in (log.submit_events, log.append_events):
        with pytest.raises(EventTooLargeError) as caught:
            submit(chain.session_id, [refused], expected_step=head.step)
        assert (caught.value.session_id, caught.value.step) == (chain.session_id, head.step + 1)
        assert str(len(refused.data)) in caught.value.message
    chain.head = head
    after = append_all(log, [chain.call()])
    assert after.first_step == head.step + 1
    assert log.initialisations == 1


def test_2426_and_841_a_topic_that_takes_less_says_so_and_the_rest_is_written(
    open_log: Callable[[str], KafkaLog], new_topic: NewTopic
) -> None:
    """There the records before it failed with it, and every later one for ever."""
    log = open_log(new_topic(1, {"max.message.bytes": "20000"}))
    chain, other = (seeded_chain(log, mint_session_id(), seed=n) for n in (1, 2))
    before = [chain.call() for _ in range(5)]
    answers = [
        log.submit_events(chain.session_id, [each], expected_step=each.event.step - 1)
        for each in before
    ]
    head = chain.head
    refused = large_call(chain, 30_000)
    answer = log.submit_events(chain.session_id, [refused], expected_step=head.step)
    beside = log.submit_events(
        other.session_id, [one := other.call()], expected_step=one.event.step - 1
    )
    with pytest.raises(EventTooLargeError, match="the topic takes at most") as caught:
        answer.result()
    assert (caught.value.session_id, caught.value.step) == (chain.session_id, head.step + 1)
    assert [each.result().last_step for each in answers] == [each.event.step for each in before]
    assert beside.result().last_step == one.event.step
    chain.head = head
    append_all(log, [chain.call()])
    assert [each.prefix.step for each in log.read_session(chain.session_id)] == list(range(11))
    assert log.initialisations == 1


@pytest.mark.parametrize("size", [1_048_000, 1_048_576, 5_000_000])
def test_d2_a_tool_s_large_result_is_recorded_whole(
    kafka_broker: KafkaAddress, tmp_path: Path, size: int
) -> None:
    """Through a workspace it moves to a blob, and comes back byte for byte, here and elsewhere."""
    result = (bytes(range(256)) * (size // 256 + 1))[:size]
    with kafka_place(kafka_broker, tmp_path / "blobs") as place:
        with open_workspace(place.url(tmp_path / "here")) as ws:
            with ws.record("d2", environment="desk", state={"n": 0}) as session:
                for _ in range(2):
                    with session.call("download", {"of": "all"}) as call:
                        call.result, call.state = result, {"n": 1}
            steps = ws.log.session_info("d2").step_count
        with open_workspace(place.url(tmp_path / "elsewhere")) as ws:
            calls = list(ws.calls("d2"))
            assert [decode(ws.read_content(each.result)) for each in calls] == [result, result]
            found = [each.prefix.step for each in ws.log.read_session("d2")]
            assert found == list(range(steps))


def test_1748_a_topic_that_is_missing_is_named_at_once(
    open_log: Callable[[str], KafkaLog],
) -> None:
    """There one missing topic stalled the reading of all others, without a word."""
    log = open_log("no-such-topic-1748")
    chain = EventChain(mint_session_id())
    chain.seed(writer=log.writer_id)
    for ask in (
        log.end_cut,
        lambda: list(log.list_sessions()),
        lambda: append_all(log, chain.events),
        lambda: log.take_over(["s"], stands_on={"s": b"d" * 32}, reason="test"),
    ):
        began_at = time.monotonic()
        with pytest.raises(ConfigError, match="no-such-topic-1748") as caught:
            ask()
        assert "steplog topic create" in str(caught.value)
        assert time.monotonic() - began_at < MISSING_TOLD_WITHIN_S


@pytest.fixture(scope="module")
def creating_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that makes a topic of whatever name it is asked for."""
    folder = tmp_path_factory.mktemp("broker")
    with running_broker(folder, {"auto.create.topics.enable": "true"}) as broker:
        yield broker


@pytest.mark.brokers
def test_2083_nobody_who_only_asks_makes_a_topic(creating_broker: Broker, tmp_path: Path) -> None:
    """There a consumer made it, with one partition and the brokers' retention of seven days."""
    with KafkaLog([creating_broker.bootstrap], "asked-for-2083", tmp_path / "mirror") as log:
        chain = EventChain(mint_session_id())
        chain.seed(writer=log.writer_id)
        for ask in (
            log.end_cut,
            lambda: list(log.tail_events(log.committed_cut("follower"))),
            lambda: append_all(log, chain.events),
        ):
            with pytest.raises(ConfigError, match="asked-for-2083"):
                ask()
    with creating_broker.admin() as admin:
        assert "asked-for-2083" not in admin.list_topics()


def test_the_same_bytes_come_back(open_log: Callable[[str], KafkaLog], new_topic: NewTopic) -> None:
    """What was acknowledged at any size that fits is read back byte for byte."""
    topic = new_topic(2)
    log = open_log(topic)
    chain = seeded_chain(log, mint_session_id(), calls=0)
    for size in (0, 1, 4_095, 65_536, 131_072, 261_000):
        append_all(log, [large_call(chain, size)])
    elsewhere = open_log(topic)
    assert data_of(elsewhere.read_session(chain.session_id)) == [each.data for each in chain.events]
