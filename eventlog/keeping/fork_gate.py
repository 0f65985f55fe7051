"""`ForkGate`: no SQLite connection is open while the process forks.

SQLite keeps one table of open files and locks for the whole process. A fork copies it: the child's
library then believes in locks that only its parent holds, and even a connection that the child
opens itself would read without a lock, or wait for ever (seen: "database is locked" for good where
the fork fell into a transaction of another thread). So every use of a connection passes this gate;
a fork waits until nobody uses one, closes all, and both sides open new ones when they need them.
"""

import os
import threading
import time
from types import TracebackType
from typing import Final, Protocol
from weakref import WeakSet

WAIT_S: Final = 10.0
"""How long a fork waits for uses to end: a signal handler may fork in the middle of one."""


class ConnectionHolder(Protocol):
    """Whoever keeps connections open between uses."""

    def let_go(self) -> None:
        """Close every connection that is not in use. Does not raise."""
        ...


class ForkGate:
    """Entered (`with gate:`) around every use of a connection, by any thread."""

    def __init__(self) -> None:
        self._holders: WeakSet[ConnectionHolder] = WeakSet()
        self._fork_spoils = False
        self._reset()

    def _reset(self, *, spoilt: bool = False) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._uses = 0
        self._forking = False
        self._pid = os.getpid()
        self._spoilt = spoilt

    def add(self, holder: ConnectionHolder) -> None:
        """From now on the holder lets go before each fork."""
        self._holders.add(holder)

    @property
    def carried_over(self) -> bool:
        """Whether connections of a parent process may be open in this one: SQLite is of no use."""
        return self._spoilt or self._pid != os.getpid()

    def __enter__(self) -> None:
        with self._changed:
            while self._forking:
                self._changed.wait()
            self._uses += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._uses -= 1
            if self._forking:
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Close the gate, wait until nobody is inside, and close all connections."""
        deadline = time.monotonic() + WAIT_S
        with self._changed:
            self._forking = True
            while self._uses and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._fork_spoils = self._uses > 0
        if not self._fork_spoils:
            for holder in list(self._holders):
                holder.let_go()

    def after_fork_in_parent(self) -> None:
        """Open the gate again."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        """Nobody is inside here: the parent's other threads do not exist."""
        self._reset(spoilt=self._spoilt or self._fork_spoils)


gate: Final = ForkGate()
"""The one gate of this process."""

os.register_at_fork(
    before=gate.before_fork,
    after_in_parent=gate.after_fork_in_parent,
    after_in_child=gate.after_fork_in_child,
)
