"""What others met when brokers stopped answering, each named for what went wrong; what we do here.

dpkp/kafka-python#2092; aio-libs/aiokafka#1017; confluentinc/librdkafka#4134, #3584;
confluentinc/confluent-kafka-python#16, #781 (BufferError). On a broker of their own.
"""

import random
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.codec import EncodedEvent
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import (
    AppendUncertainError,
    FencedError,
    LogUnavailableError,
    RecorderEndedError,
)
from eventlog.event import SessionSeeded
from eventlog.ids import mint_session_id
from eventlog.kafka_log import KafkaLog
from eventlog.keeping.log_writer import IN_FLIGHT_BYTES_MAX
from eventlog.log import Receipt
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from replay.reducer import ReducerRegistry
from replay.replayer import Replayer
from replay.resumption import resume_session
from tests.support.brokers import Broker, running_broker
from tests.support.events import EventChain
from tests.support.memory_snapshots import MemorySnapshotStore
from tests.support.recorded import append_all, append_at_last, data_of, seeded_chain
from tests.support.scale import scaled

pytestmark = [pytest.mark.kafka, pytest.mark.brokers]

DEADLINE_S = 2.0
ANSWERED_WITHIN_S = DEADLINE_S + 1.0
WRITES_AGAIN_WITHIN_S = 5.0
SLACK_S = 10.0
"""A test machine that does much else is given so much more."""

FREEZES = scaled(4, 40)
KILLS = scaled(1, 6)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as one:
        yield one


@pytest.fixture
def log(broker: Broker, tmp_path: Path) -> Iterator[KafkaLog]:
    topic = broker.new_topic(2)
    with KafkaLog([broker.bootstrap], topic, tmp_path, append_deadline_s=DEADLINE_S) as opened:
        # Two seconds are too few for the first append to a broker that has only just begun.
        append_at_last(opened, [EventChain(mint_session_id()).seed(writer=opened.writer_id)])
        yield opened


def submit(log: KafkaLog, event: EncodedEvent) -> Future[Receipt]:
    """Submit one event after the one before it."""
    place = event.event
    return log.submit_events(place.session_id, [event], expected_step=place.step - 1)


def write_again(log: KafkaLog, chain: EventChain) -> float:
    """Append to the chain's session as soon as the log takes it; how long that took, in seconds.

    What was of unknown outcome is reconciled, and what another event was sent for is claimed anew.
    """
    began_at = time.monotonic()
    while True:
        try:
            log.reconcile(chain.session_id)
            chain.head = log.session_info(chain.session_id).head
            append_all(log, [chain.call()])
            return time.monotonic() - began_at
        except FencedError:
            head = log.session_info(chain.session_id).head
            log.take_over(
                [chain.session_id],
                stands_on={chain.session_id: head.digest},
                reason="after an outage",
            )
        except (LogUnavailableError, AppendUncertainError):
            assert time.monotonic() - began_at < 60


def test_2092_brokers_that_are_frozen_past_the_deadline(log: KafkaLog, broker: Broker) -> None:
    """There the batch that expired killed the producer: it never sent again, and 99,985 of
    100,000 futures never ended."""
    chain = seeded_chain(log, mint_session_id())
    broker.freeze()
    try:
        began_at = time.monotonic()
        answers = [submit(log, chain.call()) for _ in range(200)]
        errors = [answer.exception(60) for answer in answers]
        answered_s = time.monotonic() - began_at
        time.sleep(DEADLINE_S)
    finally:
        broker.thaw()
    assert answered_s < ANSWERED_WITHIN_S + SLACK_S
    assert {type(each) for each in errors} <= {AppendUncertainError, LogUnavailableError}
    assert write_again(log, chain) < WRITES_AGAIN_WITHIN_S + SLACK_S
    line = [each.prefix.step for each in log.read_session(chain.session_id)]
    assert line == list(range(len(line)))


def test_a_recorder_of_an_outage_says_that_it_ended_and_a_resume_goes_on(
    log: KafkaLog, broker: Broker
) -> None:
    """Ours: with the broker long back it said "retryable, then try again" to every call."""
    name, blobs = mint_session_id(), MemoryBlobStore()
    seeded = SessionSeeded("desk", reducer="captured")
    session = SessionRecorder.begin(log, blobs, name, seeded, state={"n": 0})
    broker.freeze()
    try:
        with pytest.raises((LogUnavailableError, AppendUncertainError), match=r"ws\.resume"):
            session.record_state("next", {"n": 1})
        time.sleep(DEADLINE_S)
    finally:
        broker.thaw()
    for act in (lambda: session.record_state("next", {"n": 2}), session.close):
        with pytest.raises(RecorderEndedError, match=r"at step 0: (LogUn|AppendUnc).*ws\.resume"):
            act()
    again = resumed(log, blobs, name)
    assert again.state in ({"n": 0}, {"n": 1})
    again.record_state("next", {"n": 3})
    again.close()
    assert log.session_info(name).status == "closed"


def resumed(log: KafkaLog, blobs: MemoryBlobStore, name: str) -> SessionRecorder:
    """The session resumed as soon as the log takes it."""
    began_at = time.monotonic()
    while True:
        try:
            return resume_session(
                log,
                blobs,
                Replayer(log, blobs, MemorySnapshotStore(), ReducerRegistry()),
                name,
                state=NOT_GIVEN,
                at_step=None,
                reopen=False,
                observer_for=lambda info, step: None,
            )
        except LogUnavailableError:
            assert time.monotonic() - began_at < 60


def test_1017_a_writer_goes_on_after_its_broker_was_killed_and_came_back(
    broker: Broker, tmp_path: Path
) -> None:
    """There the producer was dead until the process was restarted (OutOfOrderSequence)."""
    with KafkaLog([broker.bootstrap], broker.new_topic(2), tmp_path) as log:
        chains = [seeded_chain(log, mint_session_id(), seed=n) for n in range(3)]
        for _ in range(KILLS):
            answers = [submit(log, chain.call()) for _ in range(30) for chain in chains]
            broker.kill()
            answers += [submit(log, chain.call()) for _ in range(30) for chain in chains]
            broker.restart()
            assert [type(answer.exception(60)) for answer in answers] == [type(None)] * 180
        for chain in chains:
            append_all(log, [chain.call()])
            found = data_of(log.read_session(chain.session_id))
            assert found == [each.data for each in chain.events]


def test_4134_no_gap_after_freezing_and_thawing(log: KafkaLog, broker: Broker) -> None:
    """There records were missing between others that had been acknowledged."""
    rng = random.Random(4134)
    chains = [seeded_chain(log, mint_session_id(), seed=n) for n in range(3)]
    acknowledged: dict[str, list[bytes]] = {chain.session_id: [] for chain in chains}
    for _ in range(FREEZES):
        answers = []
        for number in range(40):
            if number == 10:
                broker.freeze()
                frozen_at = time.monotonic()
            for chain in chains:
                answers.append((event := chain.call(), submit(log, event)))
        time.sleep(
            max(0.0, rng.choice((0.1, 0.8, 1.5 * DEADLINE_S)) + frozen_at - time.monotonic())
        )
        broker.thaw()
        for event, answer in answers:
            if answer.exception(60) is None:
                acknowledged[event.event.session_id].append(event.digest)
        for chain in chains:
            write_again(log, chain)
    for session_id, digests in acknowledged.items():
        line = [(each.prefix.step, each.digest) for each in log.read_session(session_id)]
        assert [step for step, _ in line] == list(range(len(line)))
        places = [[digest for _, digest in line].index(each) for each in digests]
        assert places == sorted(set(places)), "each once, in order"
    assert list(log.find_damage()) == []


def test_16_and_781_a_full_queue_waits_and_then_says_so(log: KafkaLog, broker: Broker) -> None:
    """There `BufferError: Local: Queue full` came at once, or memory grew without a limit."""
    chain = seeded_chain(log, mint_session_id())
    body = Content(OCTET_STREAM, b"x" * 250_000)
    answers: list[Future[Receipt]] = []
    longest_s, most, refusals = 0.0, 0, set()
    broker.freeze()
    try:
        for _ in range(2 * IN_FLIGHT_BYTES_MAX // 250_000):
            event = chain.call(arguments=body)
            began_at = time.monotonic()
            try:
                answers.append(submit(log, event))
            except LogUnavailableError as error:
                refusals.add(error.message.partition("; ")[2][:21])
            longest_s = max(longest_s, time.monotonic() - began_at)
            most = max(most, sum(not answer.done() for answer in answers) * len(event.data))
        errors = [answer.exception(60) for answer in answers]
    finally:
        broker.thaw()
    assert refusals <= {"no room came free wit"}
    # Each event is held twice: as objects and as bytes.
    assert IN_FLIGHT_BYTES_MAX / 3 < most <= IN_FLIGHT_BYTES_MAX / 2
    assert 0.2 < longest_s < ANSWERED_WITHIN_S + SLACK_S
    assert {type(each) for each in errors} <= {AppendUncertainError, LogUnavailableError}
    assert write_again(log, chain) < WRITES_AGAIN_WITHIN_S + SLACK_S
