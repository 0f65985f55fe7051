"""Seeded histories of writing processes on a real broker, with faults; then the topic is judged.

`STEPLOG_HISTORY_SEEDS=17,18` runs these seeds, each as `test_a_history_with_faults` does.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.kafka.connection import open_client
from eventlog.kafka_log import KafkaLog
from tests.support.brokers import Broker, KafkaAddress, running_broker
from tests.support.line_records import LineKeeper
from tests.support.log_workers import working
from tests.support.scale import scaled
from tests.support.seeded_history import History
from tests.support.topic_truth import SentRecord, answers_of, judge_topic, read_topic

pytestmark = pytest.mark.kafka

ACTS = 75
PARTITIONS = 2
FAULTS_MIN = 25
"""Of each history; all of a run together have over 100."""

FIRST_BROKER_SEED = 1_000
"""From here on a seed's history has a broker of its own, which is stopped now and then too."""

SEEDS_THAT_FAILED: tuple[int, ...] = ()
_default = (*SEEDS_THAT_FAILED, *range(scaled(3, 60)))
_with_broker = range(FIRST_BROKER_SEED, FIRST_BROKER_SEED + scaled(1, 12))
_chosen = os.environ.get("STEPLOG_HISTORY_SEEDS")
ALL_SEEDS = [int(each) for each in _chosen.split(",")] if _chosen else [*_default, *_with_broker]
SEEDS = [each for each in ALL_SEEDS if each < FIRST_BROKER_SEED]
BROKER_SEEDS = [each for each in ALL_SEEDS if each >= FIRST_BROKER_SEED]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_with_faults(
    kafka_broker: KafkaAddress, new_topic: Callable[..., str], tmp_path: Path, seed: int
) -> None:
    run_and_judge(kafka_broker.bootstrap, new_topic(PARTITIONS), tmp_path, seed)


@pytest.mark.brokers
@pytest.mark.parametrize("seed", BROKER_SEEDS)
def test_a_history_with_faults_and_a_broker_that_stops(
    own_broker: Broker, tmp_path: Path, seed: int
) -> None:
    run_and_judge(
        own_broker.bootstrap, own_broker.new_topic(PARTITIONS), tmp_path, seed, own_broker
    )


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that may be stopped without disturbing other tests."""
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def run_and_judge(
    bootstrap: str, topic: str, folder: Path, seed: int, broker: Broker | None = None
) -> None:
    """One history, and what its topic holds at the end."""
    with working(bootstrap, topic, folder / "workers") as workers:
        history = History(workers, seed, broker)
        try:
            history.run(ACTS, FAULTS_MIN)
            workers.finish()
            client = open_client(bootstrap.split(","), topic)
            writers = [writer for worker in workers.all for writer in worker.writers]
            records = read_topic(client, writers)
            client.close()
            found = judge_topic(records, answers_of(workers.reports), PARTITIONS)
            found.wrong += require_a_way_on(history, records)
            found.wrong += compare_mirror(bootstrap, topic, folder / "mirror", records)
        except BaseException:
            print(history.describe())
            raise
        finally:
            if broker is not None:
                broker.thaw()
        figures = {name: each for name, each in vars(found).items() if name != "wrong"}
        print(f"seed {seed}: {history.faults.total()} faults {dict(history.faults)}; {figures}")
        if found.wrong:
            wrong = "\n".join(found.wrong)
            again = f"STEPLOG_HISTORY_SEEDS={seed} python -m pytest {__file__}"
            pytest.fail(f"{wrong}\n\nagain: {again}\n\n{history.describe()}", pytrace=False)
    assert found.acknowledged > 20


def require_a_way_on(history: History, records: list[SentRecord]) -> list[str]:
    """Once all was calm, one worker claimed each session, and appended to those that were open."""
    begun = {each.session_id for each in records if each.is_committed}
    worker = history.live[-1]
    done = [each.facts for each in worker.reports if each.name == "done" and "error" in each.facts]
    return [f"no way on: {each}" for each in done if any(repr(one) in str(each) for one in begun)]


def compare_mirror(
    bootstrap: str, topic: str, folder: Path, records: list[SentRecord]
) -> list[str]:
    """A new handle reads the same lines, and finds nothing wrong in its copy."""
    wrong = []
    with KafkaLog(bootstrap.split(","), topic, folder) as log:
        for info in log.list_sessions():
            keeper = LineKeeper(info.session_id)
            for record in records:
                if record.is_committed and record.session_id == info.session_id:
                    keeper.accept(record)
            found = [each.digest for each in log.read_session(info.session_id)]
            line = [each.digest for each in keeper.standing()]
            if found[len(found) - len(line) :] != line:
                wrong.append(f"session {info.session_id}: its mirror has another line")
        wrong += [f"damage: {each}" for each in log.find_damage()]
    return wrong
