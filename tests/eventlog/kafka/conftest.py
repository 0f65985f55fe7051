"""Logs in a topic in memory, whose producers do as a script says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.kafka_log import KafkaLog
from tests.support.scripted_producers import ScriptedClient
from tests.support.topic import FakeTopic

OpenLog = Callable[..., KafkaLog]


@pytest.fixture
def topic() -> FakeTopic:
    return FakeTopic(2)


@pytest.fixture
def client(topic: FakeTopic) -> ScriptedClient:
    """The client of the first log opened, and its script."""
    return ScriptedClient(topic)


@pytest.fixture
def open_log(
    client: ScriptedClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenLog]:
    """Opens a log in the topic: `open_log(deadline_s=..., client=...)`; closed after the test."""
    opened: list[KafkaLog] = []

    def open_one(deadline_s: float = 60.0, client: ScriptedClient = client) -> KafkaLog:
        monkeypatch.setattr("eventlog.kafka_log.open_client", lambda *_, **__: client)
        folder = tmp_path / f"mirror-{len(opened)}"
        opened.append(KafkaLog(["memory:1"], "events", folder, append_deadline_s=deadline_s))
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


@pytest.fixture
def log(open_log: OpenLog) -> KafkaLog:
    return open_log()


@pytest.fixture
def other(open_log: OpenLog, client: ScriptedClient, topic: FakeTopic) -> KafkaLog:
    """Another machine's log in the same topic, with a script of its own."""
    return open_log(client=ScriptedClient(topic, shared=client))
