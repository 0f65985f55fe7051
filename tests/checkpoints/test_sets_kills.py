"""A training killed between any two promises of a set goes on from the old set or the new one.

Real processes and SIGKILL: tests/support/set_kills.py says what is compared after each. The log
decides which of the two it is, and the kill is where no luck is needed to hit it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import KafkaAddress
from tests.support.kafka_workspace import KafkaPlace, kafka_place
from tests.support.scale import FULL, scaled
from tests.support.scenarios import run_scenarios

pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

DEADLINE_S = scaled(570, 1800)
PROMISES = ["manifest", "note", "committed", "head", "retention"]
INSIDE = ["objects", "in_manifest", "in_retention"]


def run_rounds(folder: Path, world: int, points: list[str], *place: str) -> None:
    run_scenarios("set_kills", ",".join(points), folder, world, *place, deadline_s=DEADLINE_S)


@pytest.mark.parametrize(("world", "rounds"), [(1, scaled(7, 20)), (2, scaled(3, 20))])
def test_killed_between_promises_the_log_says_what_training_goes_on_from(
    tmp_path: Path, world: int, rounds: int
) -> None:
    """Each promise is cut from the next ten times, of both worlds together."""
    run_rounds(tmp_path, world, PROMISES * rounds + INSIDE * (rounds // 5))


@pytest.fixture
def place(kafka_broker: KafkaAddress, tmp_path: Path) -> Iterator[KafkaPlace]:
    with kafka_place(kafka_broker, tmp_path / "blobs") as made:
        yield made


@pytest.mark.parametrize("world", [1, 2] if FULL else [1])
def test_the_same_with_a_log_in_kafka(place: KafkaPlace, tmp_path: Path, world: int) -> None:
    """Every process has a copy of the log of its own."""
    blobs = place.url(tmp_path).partition("blobs=")[2]
    url = f"kafka://{place.broker.bootstrap}/{place.topic}?blobs={blobs}"
    points = PROMISES * 4 if FULL else ["note", "head", "committed"]
    run_rounds(tmp_path / "work", world, points, url)
