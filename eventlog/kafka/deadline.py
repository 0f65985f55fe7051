"""Calls that may hang, with a deadline: `run_within`, and `LateCall` for one with several waits;
and `TimedLock`, a lock that is waited for with a deadline.

For what is rare (connecting, administration): the call runs in a daemon thread, which is left
behind when the time is up. Whoever leaves it must see to it that it ends.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LOOK_EVERY_S: Final = 0.05


class DeadlinePassed(Exception):  # noqa: N818  (never leaves the client implementations)
    """The call did not return in time."""


class LateCall(Generic[T]):
    """One call in a thread of its own, begun at once; waited for as often as needed."""

    def __init__(
        self,
        work: Callable[[], T],
        *,
        faults: tuple[type[Exception], ...],
        discard: Callable[[T], object] = lambda _: None,
    ) -> None:
        """`faults` are what `work` may raise; a result that nobody wants goes to `discard`."""
        self._work = work
        self._faults = faults
        self._discard = discard
        self._lock = threading.Lock()
        self._is_left = False
        self._ended = threading.Event()
        self._results: list[T] = []
        self._fault: Exception | None = None
        threading.Thread(target=self._run, name="steplog-kafka-call", daemon=True).start()

    def wait(self, timeout_s: float, look: Callable[[], object] = lambda: None) -> T:
        """What the call returns or raises, or `DeadlinePassed`.

        `look` is called now and then meanwhile; what it raises ends the wait too.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ended.wait(min(LOOK_EVERY_S, max(0.0, deadline - time.monotonic()))):
            look()
            if time.monotonic() >= deadline:
                raise DeadlinePassed
        if self._fault is not None:
            raise self._fault
        if not self._results:
            raise RuntimeError("a call ended without a result; its thread's own report says why")
        return self._results[0]

    def leave(self) -> None:
        """Nobody wants the result, whether it has come or not."""
        with self._lock:
            self._is_left = True
            results, self._results = self._results, []
        self._throw_away(results)

    def _run(self) -> None:
        try:
            result = self._work()
            with self._lock:
                if not self._is_left:
                    self._results.append(result)
                    return
            self._throw_away([result])
        except self._faults as fault:
            self._fault = fault
        finally:
            self._ended.set()

    def _throw_away(self, results: list[T]) -> None:
        for result in results:
            with suppress(*self._faults):
                self._discard(result)


class TimedLock:
    """Held by one thread at a time. Whenever a Ctrl-C comes, it is not held for good."""

    def __init__(self) -> None:
        # It knows who holds it: so whoever was interrupted just after it was acquired can tell.
        self._lock = threading.RLock()

    def hold(self, timeout_s: float, work: Callable[[], T]) -> T:
        """What `work` returns, done while the lock is held. Not to be nested.

        Raises `DeadlinePassed` if it was not free in time.
        """
        try:
            try:
                if not self._lock.acquire(timeout=max(0.0, timeout_s)):
                    raise DeadlinePassed
                return work()
            finally:
                self._let_go()
        finally:
            self._let_go()  # The one before may have been interrupted.

    def _let_go(self) -> None:
        with suppress(RuntimeError):  # It is not ours (any more).
            while True:
                self._lock.release()


def run_within(
    timeout_s: float,
    work: Callable[[], T],
    *,
    faults: tuple[type[Exception], ...],
    look: Callable[[], object] = lambda: None,
) -> T:
    """What `work` returns or raises (of the kinds `faults`), or `DeadlinePassed`.

    `look` is called now and then meanwhile.
    """
    return LateCall(work, faults=faults).wait(timeout_s, look)
