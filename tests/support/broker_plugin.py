"""The fixtures for tests that need Kafka, and the broker that a test run shares.

- `kafka_broker`: a broker that answers, shared by all tests and workers of the run: a
  `KafkaAddress` with `bootstrap` and `new_topic`. It is started when the first test asks for it.
- `new_topic`: makes topics on it that are deleted after the test.

A test that uses either is marked `kafka`. Which broker it is stands in the head of the report; how
it is chosen, in `tests/support/broker_sources.py`. The report of a test that failed has the last
lines of the brokers' logs. Brokers to be killed or frozen: `tests/support/brokers.py`.
"""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.support.broker_sources import (
    Run,
    Shared,
    find_source,
    shared_broker,
    stop_shared_broker,
)
from tests.support.brokers import REQUIRED, KafkaAddress, alive, skip_or_fail
from tests.support.local_kafka import local_kafka

RUN = "STEPLOG_TEST_RUN"
LOG_CHARS_SHOWN = 4000

run_of = pytest.StashKey[Run]()
shared_of = pytest.StashKey[Shared]()


def pytest_configure(config: pytest.Config) -> None:
    """Name the run, for this process and for the workers that it starts."""
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = str(Run.begin())
    config.stash[run_of] = Run.parse(os.environ[RUN])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the broker where the run began: its workers have ended by now."""
    if not hasattr(config, "workerinput"):
        stop_shared_broker(config.stash[run_of])


def pytest_report_header() -> str:
    """Name the broker that the tests will have."""
    source = find_source()
    without = "FAIL" if REQUIRED else "are SKIPPED"
    note = "" if source.start else f"; tests that need one {without}"
    return f"Kafka broker: {source.name}{note}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the broker, so that `-m 'not kafka'` leaves it out."""
    for item in items:
        if "kafka_broker" in getattr(item, "fixturenames", ()):
            item.add_marker("kafka")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the brokers logged to the report of a test that failed."""
    report = yield
    if report.failed:
        nodes = [broker.node for broker in alive.values()]
        if nodes:
            report.sections.append(("brokers", local_kafka.tail_of(nodes)))
        shared = item.config.stash.get(shared_of, None)
        if shared and shared.log and "kafka_broker" in getattr(item, "fixturenames", ()):
            log = Path(shared.log)
            text = log.read_text(errors="replace")[-LOG_CHARS_SHOWN:] if log.exists() else ""
            report.sections.append((f"kafka_broker {log}", text))
    return report


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> KafkaAddress:
    """A Kafka broker that answers, shared by the whole run."""
    shared = shared_broker(request.config.stash[run_of])
    request.config.stash[shared_of] = shared
    if shared.failed:
        pytest.fail(f"no Kafka broker: {shared.problem}", pytrace=False)
    if shared.bootstrap is None:
        skip_or_fail(f"{shared.problem}")
    return KafkaAddress(shared.bootstrap)


@pytest.fixture
def new_topic(kafka_broker: KafkaAddress) -> Iterator[Callable[..., str]]:
    """Makes a topic of a new name: `new_topic(partitions=1, settings={...})`; deleted after."""
    made: list[str] = []

    def make(partitions: int = 1, settings: dict[str, str] | None = None) -> str:
        made.append(kafka_broker.new_topic(partitions, settings))
        return made[-1]

    yield make
    if made:
        kafka_broker.delete_topics(*made)
