"""Writing processes that share partitions leave each other alone, also when sessions change hands.

A transactional id is a writer's own: nobody is fenced but by a claim on a session that it holds.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.kafka.connection import open_client
from tests.support.brokers import KafkaAddress
from tests.support.log_workers import Worker, Workers, working
from tests.support.topic_truth import Judgement, answers_of, judge_topic, read_topic

pytestmark = pytest.mark.kafka

PARTITIONS = 4
SESSIONS_EACH = 64
APPENDS = 20
SESSIONS_OF_ONE = 256

NewTopic = Callable[..., str]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(PARTITIONS)


@pytest.fixture
def workers(kafka_broker: KafkaAddress, topic: str, tmp_path: Path) -> Iterator[Workers]:
    with working(kafka_broker.bootstrap, topic, tmp_path, event_bytes=200) as working_ones:
        yield working_ones


def judged(workers: Workers, bootstrap: str, topic: str) -> Judgement:
    """What the topic holds, once all have ended."""
    workers.finish()
    client = open_client(bootstrap.split(","), topic)
    try:
        records = read_topic(client)
    finally:
        client.close()
    found = judge_topic(records, answers_of(workers.reports), PARTITIONS)
    assert found.wrong == []
    assert found.uncommitted == 0, "nobody was fenced, so nothing was ever aborted"
    return found


def begin_sessions(workers: Workers, worker: Worker, count: int) -> list[str]:
    """So many sessions of the worker's."""
    numbers = [worker.order("seed", kind="minted") for _ in range(count)]
    workers.await_until(lambda: not worker.commands)
    done = {each.facts["number"]: each.facts for each in worker.reports if each.name == "done"}
    return [done[number]["session"] for number in numbers]


def test_two_writers_with_many_sessions_in_the_same_partitions(
    workers: Workers, kafka_broker: KafkaAddress, topic: str
) -> None:
    both = [workers.start(), workers.start()]
    sessions = [begin_sessions(workers, each, SESSIONS_EACH) for each in both]
    for worker, own in zip(both, sessions, strict=True):
        worker.order("append", sessions=own, batches=[1] * APPENDS)
    workers.await_until(lambda: not any(worker.commands for worker in both))
    for worker in both:
        assert worker.reports[-1].facts["written"] == [True] * SESSIONS_EACH
        assert workers.ask(worker, "count")["initialisations"] == 1
    found = judged(workers, kafka_broker.bootstrap, topic)
    assert found.acknowledged == found.accepted == 2 * SESSIONS_EACH * (1 + APPENDS)


def test_one_released_session_of_many_changes_hands_and_nobody_is_fenced(
    workers: Workers, kafka_broker: KafkaAddress, topic: str
) -> None:
    old, new = workers.start(), workers.start()
    sessions = begin_sessions(workers, old, SESSIONS_OF_ONE)
    given, kept = sessions[100], sessions[:100] + sessions[101:]
    old.order("append", sessions=kept, batches=[1, 1])
    workers.ask(old, "release", session=given)
    assert workers.ask(new, "claim", sessions=[given])["attempts"] == {given: 2}
    old.order("append", sessions=kept, batches=[1, 1])
    assert workers.ask(new, "append", sessions=[given], batches=[1, 1, 1])["written"] == [True]
    assert workers.ask(old, "append", sessions=kept, batches=[1])["written"] == [True] * len(kept)
    assert workers.ask(old, "append", sessions=[given], batches=[1])["written"] == [False]
    assert workers.ask(old, "count")["initialisations"] == 1
    assert workers.ask(new, "count")["initialisations"] == 1
    refused = [each.facts["error"] for each in old.reports if each.name == "refused"]
    assert refused == ["FencedError"]
    found = judged(workers, kafka_broker.bootstrap, topic)
    assert (found.lost_claims, found.sessions) == (0, SESSIONS_OF_ONE)
