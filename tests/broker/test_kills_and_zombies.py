"""Writers that are killed, and writers that are stopped, robbed, and go on as if nothing was.

Each appends to its sessions without a pause. Another takes them over; a zombie that is continued
then must be told that it was fenced, at every session. At the end the topic is judged: nothing
that was acknowledged is lost, nothing stands twice, there are no gaps.
"""

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.kafka.connection import open_client
from tests.support.brokers import KafkaAddress
from tests.support.log_workers import Worker, Workers, working
from tests.support.scale import scaled
from tests.support.topic_truth import answers_of, judge_topic, read_topic

pytestmark = pytest.mark.kafka

KILLS = scaled(20, 100)
ZOMBIES = scaled(20, 100)
SESSIONS = 3
PARTITIONS = 2
MOMENTS = {1: signal.SIGUSR1, 2: signal.SIGUSR2}
"""Between send and commit; between commit and answer."""

TRANSACTION_TIMEOUT_MS = 500
"""What a writer left open holds readers up for so long (10 s by default)."""

WRITES_MIN = 4
"""So many appends a writer has had acknowledged before it is hit."""


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS)


@pytest.fixture
def workers(
    request: pytest.FixtureRequest, kafka_broker: KafkaAddress, topic: str, tmp_path: Path
) -> Iterator[Workers]:
    options = {
        "event_bytes": 100,
        "hit": "kill" if "killed" in request.node.name else "stop",
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
    }
    with working(kafka_broker.bootstrap, topic, tmp_path, **options) as working_ones:
        yield working_ones


def begin(workers: Workers) -> tuple[Worker, list[str]]:
    """A writer and its sessions, which it appends to."""
    writer = workers.start()
    sessions = [workers.ask(writer, "seed", kind="minted")["session"] for _ in range(SESSIONS)]
    writer.order("loop", sessions=sessions, batch=2)
    return writer, sessions


def take_over(worker: Worker, sessions: list[str]) -> None:
    """The worker claims the sessions and appends to them from then on."""
    worker.order("claim", sessions=sessions)
    worker.order("loop", sessions=sessions, batch=2)


def await_writes(workers: Workers, worker: Worker) -> None:
    """Until the worker has had some more appends acknowledged."""
    before = len(worker.reports)

    def has_written() -> bool:
        return sum(each.name == "written" for each in worker.reports[before:]) >= WRITES_MIN

    workers.await_until(has_written)


def judge(workers: Workers, bootstrap: str, topic: str, what: str) -> None:
    """Stop the last writer, and hold the topic against what all were told."""
    for worker in workers.all:
        if not worker.has_ended:
            workers.kill(worker)
    client = open_client(bootstrap.split(","), topic)
    try:
        writers = [writer for worker in workers.all for writer in worker.writers]
        records = read_topic(client, writers)
    finally:
        client.close()
    found = judge_topic(records, answers_of(workers.reports), PARTITIONS)
    print(f"{what}: {found}")
    assert found.wrong == []
    assert (found.lost, found.twice, found.rewound) == (0, 0, 0)


def test_writers_that_are_killed(workers: Workers, kafka_broker: KafkaAddress, topic: str) -> None:
    """At a random time, or between send and commit, or between commit and answer."""
    rng = random.Random(7)
    writer, sessions = begin(workers)
    for number in range(KILLS):
        spare = workers.start()
        await_writes(workers, writer)
        workers.pump(rng.uniform(0, 0.02))
        if number % 3 == 0:
            workers.kill(writer)
        else:
            writer.hit_at(MOMENTS[number % 3])
        workers.await_until(lambda each=writer: each.has_ended)  # type: ignore[misc]
        take_over(spare, sessions)
        writer = spare
    await_writes(workers, writer)
    judge(workers, kafka_broker.bootstrap, topic, f"{KILLS} writers killed")


def test_zombies(workers: Workers, kafka_broker: KafkaAddress, topic: str) -> None:
    """Stopped at a random time, or between send and commit, or between commit and answer."""
    rng = random.Random(8)
    writer, sessions = begin(workers)
    other = workers.start()
    for number in range(ZOMBIES):
        await_writes(workers, writer)
        workers.pump(rng.uniform(0, 0.02))
        if number % 3 == 0:
            writer.freeze()
        else:
            writer.hit_at(MOMENTS[number % 3])
            writer.await_stop()
        take_over(other, sessions)
        await_writes(workers, other)
        told = len(writer.reports)
        writer.thaw()
        workers.await_until(lambda each=writer: not each.commands)  # type: ignore[misc]
        require_fenced(writer, told, sessions)
        writer, other = other, writer
    judge(workers, kafka_broker.bootstrap, topic, f"{ZOMBIES} zombies")


def require_fenced(zombie: Worker, told: int, sessions: list[str]) -> None:
    """It was told so for each session, and of nothing else that went wrong."""
    errors: dict[str, set[str]] = {}
    for report in zombie.reports[told:]:
        if report.name in ("refused", "unsure"):
            session = report.facts["session"]
            errors.setdefault(session, set()).add(report.facts.get("error", "unsure"))
    assert errors == {session: {"FencedError"} for session in sessions}
