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

AT_ONCE = 10
PROMISES = ["manifest", "note", "committed", "head", "retention"]
INSIDE = ["objects", "in_manifest", "in_retention"]


def run_rounds(folder: Path, world: int, points: list[str], *place: str) -> None:
    run_scenarios("set_kills", ",".join(points), folder, world, *place)


def some_at_once(rounds: int) -> list[list[str]]:
    """The points of so many rounds, some for each test: all in one take too long on a busy machine.

    Each keeps its number: with it go the restore that is killed, and whether the save is awaited.
    """
    points = PROMISES * rounds + INSIDE * (rounds // 5)
    told = [f"{point}@{number}" for number, point in enumerate(points)]
    return [told[at : at + AT_ONCE] for at in range(0, len(told), AT_ONCE)]


CASES = [
    *(pytest.param(1, some, id=f"1-{some[0]}") for some in some_at_once(scaled(7, 20))),
    *(pytest.param(2, some, id=f"2-{some[0]}") for some in some_at_once(scaled(3, 20))),
]


@pytest.mark.parametrize(("world", "points"), CASES)
def test_killed_between_promises_the_log_says_what_training_goes_on_from(
    tmp_path: Path, world: int, points: list[str]
) -> None:
    """Each promise is cut from the next ten times, of both worlds together."""
    run_rounds(tmp_path, world, points)


@pytest.fixture
def place(kafka_broker: KafkaAddress, tmp_path: Path) -> Iterator[KafkaPlace]:
    with kafka_place(kafka_broker, tmp_path / "blobs") as made:
        yield made


IN_KAFKA = (
    [(world, some) for world in (1, 2) for some in some_at_once(4)]
    if FULL
    else [(1, ["note", "head", "committed"])]
)


@pytest.mark.parametrize(("world", "points"), IN_KAFKA, ids=str)
def test_the_same_with_a_log_in_kafka(
    place: KafkaPlace, tmp_path: Path, world: int, points: list[str]
) -> None:
    """Every process has a copy of the log of its own."""
    blobs = place.url(tmp_path).partition("blobs=")[2]
    url = f"kafka://{place.broker.bootstrap}/{place.topic}?blobs={blobs}"
    run_rounds(tmp_path / "work", world, points, url)
