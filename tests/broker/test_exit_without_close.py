"""A process that ends without closing its log: what it was told is there, the rest is told.

dpkp/kafka-python#524: 79 of 100 records that were sent before an exit were lost, without a word.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.kafka.connection import open_client
from tests.support.brokers import Broker, KafkaAddress, running_broker
from tests.support.processes import ROOT, WARNINGS
from tests.support.topic_truth import read_topic

pytestmark = pytest.mark.kafka

CODE = "from tests.support.exiting_writer import main; main()"
DEFAULTS = {
    "sessions": 4,
    "events": 250,
    "deadline_s": 30.0,
    "end": "return",
    "tells": True,
    "waits": True,
    "freeze": False,
    "heard": 0,
    "sleep_s": 0.0,
}
DEADLINE_S = 3.0
EXIT_S_MAX = 60.0

NewTopic = Callable[..., str]


class Exiting:
    """A process that ends without a close."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, **options: Any) -> None:
        self.options = {
            **DEFAULTS,
            "bootstrap": bootstrap,
            "topic": topic,
            "folder": str(folder),
            **options,
        }
        self.process = subprocess.Popen(
            [sys.executable, *WARNINGS, "-c", CODE, json.dumps(self.options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.bootstrap, self.topic = bootstrap, topic

    def await_ready(self) -> list[str]:
        """The sessions that it has begun; from now on its broker may stop answering."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            pytest.fail(self.finish()[2])
        sessions: list[str] = json.loads(line)["ready"]
        return sessions

    def finish(self) -> tuple[int, list[str], str]:
        """Its exit code, the digests that were acknowledged, what it wrote to standard error."""
        out, err = self.process.communicate("\n", timeout=EXIT_S_MAX)
        facts = [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, [f["written"][2] for f in facts if "written" in f], err

    def committed(self) -> list[str]:
        """The digests of all committed events of the topic."""
        client = open_client(self.bootstrap.split(","), self.topic)
        try:
            return [each.digest.hex() for each in read_topic(client) if each.is_committed]
        finally:
            client.close()


@pytest.mark.parametrize(("end", "code"), [("return", 0), ("exit", 3), ("raise", 1)])
def test_524_what_was_submitted_is_written(
    kafka_broker: KafkaAddress, new_topic: NewTopic, tmp_path: Path, end: str, code: int
) -> None:
    exiting = Exiting(kafka_broker.bootstrap, new_topic(2), tmp_path, end=end)
    returncode, acknowledged, err = exiting.finish()
    assert returncode == code, err
    assert ("of the caller's" in err) == (end == "raise")
    assert "not acknowledged" not in err
    assert len(acknowledged) == 1_000
    committed = exiting.committed()
    assert sorted(committed) == sorted(acknowledged), "all, and once each"


def test_524_a_process_that_ends_before_its_writer_has_begun(
    kafka_broker: KafkaAddress, new_topic: NewTopic, tmp_path: Path
) -> None:
    """It is written all the same, or told of: Python 3.12 starts no thread any more by then."""
    exiting = Exiting(
        kafka_broker.bootstrap,
        new_topic(2),
        tmp_path,
        sessions=1,
        events=5,
        waits=False,
        tells=False,
    )
    returncode, _, err = exiting.finish()
    assert returncode == 0, err
    if err:
        assert "5 submissions to session" in err
        assert exiting.committed() == []
    else:
        assert len(exiting.committed()) == 5


def test_524_a_process_that_goes_at_once_leaves_what_it_was_told(
    kafka_broker: KafkaAddress, new_topic: NewTopic, tmp_path: Path
) -> None:
    """`os._exit`: nothing more runs, and nothing is told."""
    exiting = Exiting(kafka_broker.bootstrap, new_topic(2), tmp_path, end="now", heard=100)
    returncode, acknowledged, _ = exiting.finish()
    assert returncode == 5
    assert len(acknowledged) >= 100
    committed = exiting.committed()
    assert set(acknowledged) <= set(committed)
    assert len(set(committed)) == len(committed)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.brokers
@pytest.mark.parametrize("sleep_s", [0.0, 1.5 * DEADLINE_S])
def test_524_what_was_not_written_is_told(
    own_broker: Broker, tmp_path: Path, sleep_s: float
) -> None:
    """The broker stops answering: whether that is found out before the end, or at the end."""
    exiting = Exiting(
        own_broker.bootstrap,
        own_broker.new_topic(2),
        tmp_path,
        freeze=True,
        deadline_s=DEADLINE_S,
        events=20,
        sleep_s=sleep_s,
        tells=False,
    )
    sessions = exiting.await_ready()
    own_broker.freeze()
    began_at = time.monotonic()
    try:
        returncode, _, err = exiting.finish()
    finally:
        own_broker.thaw()
    assert returncode == 0, err
    assert time.monotonic() - began_at < sleep_s + EXIT_S_MAX / 2
    lines = [line for line in err.splitlines() if "not acknowledged" in line]
    assert len(lines) == len(sessions) == 4, err
    for session in sessions:
        (line,) = [line for line in lines if session in line]
        assert line.startswith("19 submissions to session ")
        assert "AppendUncertainError" in line or "LogUnavailableError" in line


@pytest.mark.brokers
def test_an_error_that_was_asked_for_is_not_told_again(own_broker: Broker, tmp_path: Path) -> None:
    exiting = Exiting(
        own_broker.bootstrap,
        own_broker.new_topic(2),
        tmp_path,
        freeze=True,
        deadline_s=DEADLINE_S,
        events=20,
        heard=80,
        tells=False,
    )
    exiting.await_ready()
    own_broker.freeze()
    try:
        returncode, _, err = exiting.finish()
    finally:
        own_broker.thaw()
    assert (returncode, err) == (0, "")
