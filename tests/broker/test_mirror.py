"""Mirrors of a real topic: transactions of all sorts, kills, two at once, topics that change."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from eventlog.codec import EncodedEvent
from eventlog.errors import LogUnavailableError, StepGapError, TopicChangedError
from eventlog.event import LineHead
from eventlog.kafka.client import OutgoingRecord, TopicClient
from eventlog.kafka.connection import open_client
from eventlog.kafka.partitioning import partition_of
from eventlog.mirror import Mirror
from replay.workspace import open_workspace
from tests.support.brokers import KafkaAddress
from tests.support.events import EventChain
from tests.support.mirror_truth import read_line, require_model
from tests.support.processes import python_script
from tests.support.scale import scaled
from tests.support.topic_clients import S_MAX, now_ms, read_to_end, ready_producer
from tests.support.topic_histories import TopicModel, encoded_history
from tests.support.transactions import RawTransaction, sent_transaction

KILLS = scaled(6, 40)
MakeTopic = Callable[..., str]

CHILD = """
import os, sys
from contextlib import suppress
from eventlog.errors import LogUnavailableError
from eventlog.kafka.connection import open_client
from eventlog.mirror import Mirror
from eventlog.mirroring import catching_up

bootstrap, topic, folder = sys.argv[1:]
catching_up.BATCH_RECORDS = 5
mirror = Mirror(folder, open_client(bootstrap.split(","), topic))
os.write(1, b"opened\\n")
while True:
    with suppress(LogUnavailableError):
        mirror.refresh(timeout_s=1.0)
"""


class Topic:
    """A real topic, with what writes to it and reads it in tests."""

    def __init__(self, kafka: KafkaAddress, name: str, partitions: int, folder: Path) -> None:
        self.kafka = kafka
        self.name = name
        self.partitions = partitions
        self.folder = folder
        self.client = self.open()
        self._mirrors = ExitStack()

    def open(self) -> TopicClient:
        """Another client."""
        return open_client(self.kafka.bootstrap.split(","), self.name)

    def mirror(self, folder: str = "mirror", *, allow_truncated: bool = False) -> Mirror:
        """A handle on a mirror."""
        mirror = Mirror(self.folder / folder, self.client, allow_truncated=allow_truncated)
        return self._mirrors.enter_context(mirror)

    def part_of(self, session_id: str) -> int:
        """The session's partition."""
        return partition_of(session_id, self.partitions)

    def record(self, session_id: str, data: bytes) -> OutgoingRecord:
        """An event's record."""
        return OutgoingRecord(self.part_of(session_id), now_ms(), session_id.encode(), data)

    def write(self, events: list[tuple[str, bytes]]) -> None:
        """One committed transaction."""
        with ready_producer(self.client) as producer:
            producer.commit([self.record(*each) for each in events], S_MAX)

    def write_chain(self, name: str, calls: int = 4) -> EventChain:
        """A session in one transaction."""
        chain = EventChain(name)
        chain.seed(writer="w")
        for _ in range(calls):
            chain.call()
        self.write([(name, each.data) for each in chain.events])
        return chain

    @contextmanager
    def sent(self, session_id: str, events: list[EncodedEvent]) -> Iterator[RawTransaction]:
        """A transaction that was sent and is open; aborted at the end unless it was ended."""
        records = [(self.part_of(session_id), each.data) for each in events]
        with sent_transaction(
            self.kafka.bootstrap, self.name, records, key=session_id.encode()
        ) as transaction:
            yield transaction

    def abort(self, session_id: str, events: list[EncodedEvent]) -> None:
        """An aborted transaction."""
        with self.sent(session_id, events):
            pass

    def model(self) -> TopicModel:
        """What a reader of committed records makes of the whole topic."""
        reader = self.client.open_reader(committed=True)
        try:
            reader.seek(reader.log_starts(range(self.partitions), S_MAX))
            return TopicModel(read_to_end(reader), self.partitions)
        finally:
            reader.close()

    def close(self) -> None:
        """Let go of mirrors and the client."""
        self._mirrors.close()
        self.client.close()


@pytest.fixture
def topic(kafka_broker: KafkaAddress, new_topic: MakeTopic, tmp_path: Path) -> Iterator[Topic]:
    """A topic of three partitions."""
    topic = Topic(kafka_broker, new_topic(3), 3, tmp_path)
    yield topic
    topic.close()


def write_histories(topic: Topic, rng: random.Random, sessions: int) -> Iterator[None]:
    """Random histories, a transaction at each step; some are sent and aborted before."""
    left = {f"s-{number}": encoded_history(rng, f"s-{number}") for number in range(sessions)}
    with ready_producer(topic.client) as producer:
        while left:
            batch: list[OutgoingRecord] = []
            for name in rng.sample(sorted(left), min(len(left), rng.randrange(1, 4))):
                take = rng.randrange(1, 6)
                events, left[name] = left[name][:take], left[name][take:]
                if rng.random() < 0.15:
                    topic.abort(name, events)
                batch += [topic.record(name, each.data) for each in events]
                if not left[name]:
                    del left[name]
            producer.commit(batch, S_MAX)
            yield


def test_random_histories_in_transactions_some_of_them_aborted(topic: Topic) -> None:
    rng = random.Random(51)
    mirror = topic.mirror()
    for _ in write_histories(topic, rng, 8):
        if rng.random() < 0.4:
            cut = mirror.refresh()
            ends = mirror.client.open_reader(committed=True).high_watermarks(range(3), S_MAX)
            assert cut.as_dict() == {part: end for part, end in ends.items() if end}
        if rng.random() < 0.1:
            mirror.close()
            mirror = topic.mirror()
    mirror.refresh()
    require_model(mirror, topic.model())


def test_a_killed_mirror_goes_on_and_two_at_once_do_not_disturb_each_other(topic: Topic) -> None:
    rng = random.Random(52)
    writing = write_histories(topic, rng, 30)
    for life in range(KILLS):
        arguments = (topic.kafka.bootstrap, topic.name, topic.folder / "mirror")
        children = [python_script(CHILD, *arguments) for _ in range(2)]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "opened\n", child.communicate()
        for _ in range(12):
            next(writing, None)
        time.sleep(rng.uniform(0.0, 0.3))
        if life % 2:
            # One of them goes on alone.
            os.kill(children[0].pid, signal.SIGKILL)
            for _ in range(6):
                next(writing, None)
        for child in children:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
            _, err = child.communicate()
            assert not err
    mirror = topic.mirror()
    assert mirror.cut().as_dict(), "the killed ones read something"
    mirror.refresh()
    require_model(mirror, topic.model())
    straight = topic.mirror("straight")
    straight.refresh()
    assert sorted(straight.reader.list_sessions(None)) == sorted(mirror.reader.list_sessions(None))


def test_control_records_at_the_end_are_read_past(topic: Topic) -> None:
    chain = topic.write_chain("s")
    mirror = topic.mirror()
    mirror.refresh()
    part = topic.part_of("s")
    assert mirror.cut().end(part) == 6
    topic.abort("s", [chain.call(), chain.call()])
    assert mirror.refresh(timeout_s=10).end(part) == 9
    assert topic.mirror("fresh").refresh(timeout_s=10).end(part) == 9


def test_an_open_transaction_is_told_at_the_deadline_and_its_attempt_counts(topic: Topic) -> None:
    chain = topic.write_chain("s")
    part, mirror = topic.part_of("s"), topic.mirror()
    mirror.refresh()
    with topic.sent("s", [chain.resumed(attempt=2, writer="x")]):
        with pytest.raises(LogUnavailableError, match=f"partition {part}.* offset 6 of 7"):
            mirror.refresh(timeout_s=0.5)
        assert mirror.highest_attempt("s", part) == 2
        assert mirror.aborted_claims("s", part, 0) == 0
    mirror.refresh()
    for each in (mirror, topic.mirror()):
        assert each.highest_attempt("s", part) == 2
        assert each.aborted_claims("s", part, 0) == 1
    assert len(read_line(mirror, "s")) == 5


def test_records_deleted_before_they_were_read(topic: Topic) -> None:
    from kafka import TopicPartition

    topic.write_chain("s", calls=5)
    topic.write_chain("s2", calls=5)
    early = topic.mirror("early")
    early.refresh()
    part = topic.part_of("s")
    with topic.kafka.admin() as admin:
        admin.delete_records({TopicPartition(topic.name, part): 3})
    # It has them: nothing is missing.
    early.refresh()
    assert len(read_line(early, "s")) == 6
    late = topic.mirror("late")
    with pytest.raises(TopicChangedError, match=f"partition {part}.*begins at offset 3"):
        late.refresh()
    truncated = topic.mirror("late", allow_truncated=True)
    truncated.refresh()
    require_model(truncated, topic.model())
    with pytest.raises(StepGapError, match="head missing"):
        read_line(truncated, "s")


def test_records_deleted_under_an_open_handle(topic: Topic) -> None:
    from kafka import TopicPartition

    chain = topic.write_chain("s")
    mirror = topic.mirror()
    mirror.refresh()
    topic.write([("s", chain.call().data) for _ in range(6)])
    part = topic.part_of("s")
    with topic.kafka.admin() as admin:
        admin.delete_records({TopicPartition(topic.name, part): 9})
    with pytest.raises(TopicChangedError, match="begins at offset 9"):
        mirror.refresh()
    assert len(read_line(mirror, "s")) == 5


def test_more_partitions(topic: Topic) -> None:
    chain = topic.write_chain("s")
    mirror = topic.mirror()
    mirror.refresh()
    with topic.kafka.admin() as admin:
        admin.create_partitions({topic.name: 5})
    topic.write([("s", chain.call().data)])
    for each in (mirror, topic.mirror()):
        with pytest.raises(TopicChangedError, match="had 3 partitions"):
            each.refresh()
    assert len(read_line(mirror, "s")) == 5


def test_a_topic_deleted_and_made_again_under_the_same_name(topic: Topic) -> None:
    topic.write_chain("s")
    mirror = topic.mirror()
    mirror.refresh()
    before = mirror.cut()
    topic.client.delete_topic(topic.name)
    topic.client.create_topic(topic.name, 3, 1, {"retention.ms": "-1"})
    for number in range(12):
        topic.write_chain(f"new-{number}", calls=8)
    for each in (mirror, topic.mirror()):
        with pytest.raises(TopicChangedError, match="made again"):
            each.refresh()
        assert each.cut() == before
        assert [info.session_id for info in each.reader.list_sessions(None)] == ["s"]


def test_reading_while_it_is_refreshed_and_written(topic: Topic) -> None:
    chains = [topic.write_chain(f"s-{number}", calls=20) for number in range(4)]
    mirror = topic.mirror()
    mirror.refresh()
    stop = threading.Event()
    problems: list[str] = []

    def read() -> None:
        while not stop.is_set():
            for chain in chains:
                found = [each.data for each in read_line(mirror, chain.session_id)]
                if found != [each.data for each in chain.events][: len(found)] or len(found) < 21:
                    problems.append(f"{chain.session_id}: {len(found)} events")

    def refresh() -> None:
        while not stop.is_set():
            mirror.refresh()

    threads = [threading.Thread(target=each) for each in (read, read, refresh)]
    for each in threads:
        each.start()
    with ready_producer(topic.client) as producer:
        for number in range(scaled(60, 300)):
            chain = chains[number % 4]
            data = chain.call().data
            producer.commit([topic.record(chain.session_id, data)], S_MAX)
            if number % 10 == 0:
                # What is acknowledged is read by a refresh that begins after it.
                mirror.refresh()
                assert len(read_line(mirror, chain.session_id)) == len(chain.events)
    stop.set()
    for each in threads:
        each.join()
    assert not problems
    mirror.refresh()
    require_model(mirror, topic.model())


def test_what_the_rule_refused_is_counted_and_named_by_check(topic: Topic) -> None:
    chain = topic.write_chain("s")
    again = EventChain("s", seed=1)
    again.head = LineHead("s", 1, 1, chain.events[1].digest)
    topic.write([("s", again.call().data), ("s", chain.events[3].data)])
    stopped = topic.write_chain("stopped", calls=1)
    stopped.call()
    topic.write([("stopped", stopped.call().data)])
    with topic.sent("s", [chain.call()]) as transaction:
        transaction.commit()
    topic.write([("not its key", chain.call().data)])
    url = f"kafka://{topic.kafka.bootstrap}/{topic.name}?folder={topic.folder / 'w'}"
    with open_workspace(url) as ws:
        reports = {report.session: report for report in ws.check()}
    assert reports["s"].verdict == "conflicts"
    counts = (reports["s"].events, reports["s"].conflicts, reports["s"].duplicates)
    assert counts == (6, 1, 1)
    assert reports["s"].first_bad == 2
    assert reports["stopped"].verdict == "stopped"
    assert any("step 2 is missing" in each for each in reports["stopped"].details)
    assert any("belong elsewhere" in each for each in reports["(log)"].details)
