"""The keepers under test: how each is opened. A new one plugs in by an entry in `KEEPERS`."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from eventlog.log import EventLog
from eventlog.memory_log import MemoryLog
from eventlog.sqlite_log import SqliteLog

CLOCK_US = 1_800_000_000_000_000


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


KEEPERS: dict[str, Callable[[Path], Callable[[], EventLog]]] = {
    "memory": _memory_handles,
    "sqlite": _sqlite_handles,
}
