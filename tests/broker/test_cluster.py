"""Three brokers, and a writer and a reader that go on while they are killed and frozen.

What is printed is the longest time between two acknowledgements: how long it takes to go on.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.cut import Cut
from eventlog.kafka.connection import open_client
from eventlog.kafka_log import KafkaLog
from eventlog.log import LogRecord
from tests.support.brokers import Broker, Cluster, running_cluster
from tests.support.scale import scaled
from tests.support.steady_writer import SteadyWriter
from tests.support.topic_truth import answers_of, judge_topic, read_topic

pytestmark = [pytest.mark.kafka, pytest.mark.brokers]

PARTITIONS = 2
KILLS = scaled(3, 5)
TRANSACTIONS = "__transaction_state"
SESSION_TIMEOUT_S = 3.0
"""Of brokers: one that is silent for so long is no broker any more."""

GAP_S_MAX = 20.0
"""The goal is 8 s; a machine that is busy with other things may need longer."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


class Follower:
    """A reader that follows the log in a thread of its own, with a mirror of its own."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.records: list[LogRecord] = []
        self.trouble: BaseException | None = None
        self._log = KafkaLog(bootstrap.split(","), topic, folder)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> "Follower":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._log.close()

    def _follow(self) -> None:
        cut = Cut.empty()
        try:
            while not self._stopping.wait(0.2):
                for record in self._log.tail_events(cut):
                    self.records.append(record)
                    cut = cut.merge(Cut({record.partition: record.offset + 1}))
        except BaseException as error:
            self.trouble = error
            raise


class Trial:
    """A topic in three copies, with somebody who writes to it and somebody who follows."""

    def __init__(
        self, cluster: Cluster, topic: str, writer: SteadyWriter, follower: Follower
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.writer = writer
        self.follower = follower
        self.began = time.monotonic()

    def leader(self) -> Broker:
        """The broker that leads the first partition."""
        return self.cluster.leader_of(self.topic, 0)

    def coordinator(self) -> Broker:
        """The broker that coordinates the writer's transactions."""
        with self.cluster.admin() as admin:
            (number,) = [
                broker
                for broker, listed in admin.list_transactions().items()
                if any(
                    each.transactional_id.startswith(f"steplog.{self.topic}.") for each in listed
                )
            ]
        return next(each for each in self.cluster.brokers if each.number == number)

    def judge(self) -> None:
        """Stop writing, and hold what is there against what was told."""
        ended = self.writer.stop()
        client = open_client(self.cluster.bootstrap.split(","), self.topic)
        records = read_topic(client)
        client.close()
        found = judge_topic(records, answers_of(self.writer.reports), PARTITIONS)
        assert not found.wrong, "\n".join(found.wrong[:20])
        assert (found.lost, found.twice) == (0, 0)
        # Whatever was sent was answered: the writer ended in peace.
        assert found.accepted == found.acknowledged
        print(
            f"{found.acknowledged} acknowledged in {time.monotonic() - self.began:.1f} s, "
            f"{found.uncommitted} records aborted, {ended['initialisations']} initialisations; "
            f"longest time without an acknowledgement {self.writer.longest_gap_s():.1f} s"
        )
        self._judge_follower(found.accepted)

    def _judge_follower(self, accepted: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.follower.records) < accepted and self.follower.trouble is None:
            assert time.monotonic() < deadline, f"{len(self.follower.records)} of {accepted}"
            time.sleep(0.1)
        assert self.follower.trouble is None
        assert len(self.follower.records) == accepted
        for session in {each.prefix.session_id for each in self.follower.records}:
            steps = [
                each.prefix.step
                for each in self.follower.records
                if each.prefix.session_id == session
            ]
            assert steps == list(range(len(steps)))


@pytest.fixture
def trial(cluster: Cluster, tmp_path: Path) -> Iterator[Trial]:
    topic = cluster.new_topic(PARTITIONS, {"min.insync.replicas": "2"})
    with (
        SteadyWriter(cluster.bootstrap, topic, tmp_path / "writer") as writer,
        Follower(cluster.bootstrap, topic, tmp_path / "follower") as follower,
    ):
        writer.require_progress()
        yield Trial(cluster, topic, writer, follower)
    cluster.delete_topics(topic)


def test_leaders_and_coordinators_are_killed(trial: Trial) -> None:
    chosen: list[Callable[[], Broker]] = [trial.leader, trial.coordinator]
    for number in range(KILLS):
        choose = chosen[number % 2]
        victim = choose()
        killed_at = time.monotonic()
        victim.kill()
        trial.writer.require_progress()
        gap_s = trial.writer.longest_gap_s(killed_at - 0.5)
        print(f"{choose.__name__} (broker {victim.number}) killed: {gap_s:.1f} s to go on")
        assert gap_s <= GAP_S_MAX
        victim.restart()
        wait_until_whole(trial)
    trial.judge()


def test_a_leader_is_frozen_and_goes_on(trial: Trial) -> None:
    for choose in (trial.leader, trial.coordinator):
        victim = choose()
        victim.freeze()
        try:
            trial.writer.require_progress()
        finally:
            victim.thaw()
        trial.writer.require_progress()
        wait_until_whole(trial)
    trial.judge()


def test_two_of_three_are_frozen_and_go_on(trial: Trial) -> None:
    """As many as are needed: nothing can be written, nor a leader be elected."""
    leader = trial.leader()
    other = next(each for each in trial.cluster.brokers if each is not leader)
    for each in (leader, other):
        each.freeze()
    time.sleep(2 * SESSION_TIMEOUT_S)
    for each in (other, leader):
        each.thaw()
    trial.writer.require_progress()
    wait_until_whole(trial)
    trial.judge()


def wait_until_whole(trial: Trial) -> None:
    """All copies are in sync again, also those of the brokers' own records of transactions."""
    trial.cluster.wait_until_in_sync(trial.topic)
    trial.cluster.wait_until_in_sync(TRANSACTIONS)
