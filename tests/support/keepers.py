"""The keepers under test: how each is opened. A new one plugs in by an entry in `KEEPERS`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest

from eventlog.kafka_log import KafkaLog
from eventlog.log import EventLog
from eventlog.memory_log import MemoryLog
from eventlog.sqlite_log import SqliteLog

CLOCK_US = 1_800_000_000_000_000
KAFKA_PARTITIONS = 4


class Keeper:
    """One log under test: `log` is the first handle, `another_handle` opens further ones."""

    def __init__(self, open_handle: Callable[[], EventLog], stack: ExitStack) -> None:
        self._open_handle = open_handle
        self._stack = stack
        self.log = self.another_handle()

    def another_handle(self) -> EventLog:
        """A further handle on the same log, with a writer id of its own."""
        return self._stack.enter_context(self._open_handle())


def _memory_handles(_folder: Path) -> Callable[[], EventLog]:
    first = MemoryLog(clock=lambda: CLOCK_US)
    return first.open_again


def _sqlite_handles(folder: Path) -> Callable[[], EventLog]:
    return lambda: SqliteLog(folder / "log.db", clock=lambda: CLOCK_US)


def _kafka_handles(bootstrap: str, topic: str, folder: Path) -> Callable[[], EventLog]:
    # Every handle has a mirror of its own, as if each were on another machine.
    folders = (folder / f"mirror-{number}" for number in count())
    return lambda: KafkaLog(
        bootstrap.split(","), topic, next(folders), clock=lambda: CLOCK_US, append_deadline_s=20.0
    )


LOCAL_KEEPERS: dict[str, Callable[[Path], Callable[[], EventLog]]] = {
    "memory": _memory_handles,
    "sqlite": _sqlite_handles,
}
KEEPERS = [*LOCAL_KEEPERS, pytest.param("kafka", marks=pytest.mark.kafka)]
"""What a fixture is parametrised by that opens keepers with `open_keeper`."""


@contextmanager
def open_keeper(request: pytest.FixtureRequest) -> Iterator[Keeper]:
    """A fresh, empty log of the kind that the requesting fixture's parameter names."""
    folder = request.getfixturevalue("tmp_path")
    with ExitStack() as stack:
        if request.param in LOCAL_KEEPERS:
            yield Keeper(LOCAL_KEEPERS[request.param](folder), stack)
        else:
            bootstrap = request.getfixturevalue("kafka_broker").bootstrap
            topic = request.getfixturevalue("new_topic")(KAFKA_PARTITIONS)
            yield Keeper(_kafka_handles(bootstrap, topic, folder), stack)
