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
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol
from weakref import ReferenceType, WeakSet, ref

WAIT_S: Final = 10.0
"""How long a fork waits for uses to end: a signal handler may fork in the middle of one."""


class ConnectionHolder(Protocol):
    """Whoever keeps connections open between uses."""

    def let_go(self) -> None:
        """Close every connection that is not in use. Does not raise."""
        ...


class ForkGate:
    """Passed (`with gate.use():`) around every use of a connection, by any thread.

    Each thread has a lock of its own here, and a fork takes them all. A lock written in C cannot be
    left held, or lost, by a Ctrl-C that falls into the entering or leaving of its `with`.
    """

    def __init__(self) -> None:
        self._holders: WeakSet[ConnectionHolder] = WeakSet()
        self._fork_spoils = False
        self._reset()

    def _reset(self, *, spoilt: bool = False) -> None:
        self._mine = threading.local()
        self._locks: list[ReferenceType[Any]] = []
        self._adding = threading.RLock()
        self._held: list[Any] = []
        self._pid = os.getpid()
        self._spoilt = spoilt

    def add(self, holder: ConnectionHolder) -> None:
        """From now on the holder lets go before each fork."""
        self._holders.add(holder)

    @property
    def carried_over(self) -> bool:
        """Whether connections of a parent process may be open in this one: SQLite is of no use."""
        return self._spoilt or self._pid != os.getpid()

    def use(self) -> AbstractContextManager[bool]:
        """What this thread holds while it uses a connection; re-entrant."""
        lock: AbstractContextManager[bool] | None = getattr(self._mine, "lock", None)
        if lock is None:
            lock = threading.RLock()
            with self._adding:
                # Those of threads that have ended are gone with them.
                self._locks = [each for each in self._locks if each() is not None] + [ref(lock)]
                self._mine.lock = lock
        return lock

    def before_fork(self) -> None:
        """Close the gate, wait until nobody is inside, and close all connections."""
        deadline = time.monotonic() + WAIT_S
        self._fork_spoils = not self._take(self._adding, deadline)
        for each in self._locks:
            lock = each()
            if lock is not None and not self._take(lock, deadline):
                self._fork_spoils = True
        if not self._fork_spoils:
            for holder in list(self._holders):
                holder.let_go()

    def _take(self, lock: Any, deadline: float) -> bool:
        """Take a lock; False where it is not free in time, or this thread itself is inside."""
        if lock._is_owned() or not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._held.append(lock)
        return True

    def after_fork_in_parent(self) -> None:
        """Open the gate again."""
        while self._held:
            if self._held[-1]._is_owned():
                self._held[-1].release()
            self._held.pop()

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
