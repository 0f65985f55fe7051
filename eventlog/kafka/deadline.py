"""`run_within`: a call that may hang, with a deadline.

For what is rare (connecting, administration): the call runs in a daemon thread, which is left
behind when the time is up. Whoever leaves it must see to it that it ends.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LOOK_EVERY_S: Final = 0.05


class DeadlinePassed(Exception):  # noqa: N818  (never leaves the client implementations)
    """The call did not return in time."""


class _Call(Generic[T]):
    """One call in a thread of its own."""

    def __init__(
        self,
        work: Callable[[], T],
        faults: tuple[type[Exception], ...],
        discard: Callable[[T], object],
    ) -> None:
        self._work = work
        self._faults = faults
        self._discard = discard
        self._lock = threading.Lock()
        self._is_left = False
        self.ended = threading.Event()
        self.results: list[T] = []
        self.fault: Exception | None = None

    def run(self) -> None:
        try:
            result = self._work()
        except self._faults as fault:
            self.fault = fault
        else:
            with self._lock:
                self.results.append(result)
                is_late = self._is_left
            if is_late:
                self._discard(result)
        finally:
            self.ended.set()

    def leave(self) -> bool:
        """From now on nobody waits; False if the result has come after all."""
        with self._lock:
            self._is_left = not self.results
            return self._is_left


def run_within(
    timeout_s: float,
    work: Callable[[], T],
    *,
    faults: tuple[type[Exception], ...],
    discard: Callable[[T], object] = lambda _: None,
    look: Callable[[], object] = lambda: None,
) -> T:
    """What `work` returns or raises (of the kinds `faults`), or `DeadlinePassed`.

    A result that comes too late goes to `discard`, in the thread that was left behind. `look` is
    called now and then meanwhile; what it raises ends the wait too.
    """
    call = _Call(work, faults, discard)
    deadline = time.monotonic() + timeout_s
    threading.Thread(target=call.run, name="steplog-kafka-call", daemon=True).start()
    try:
        while not call.ended.wait(min(LOOK_EVERY_S, max(0.0, deadline - time.monotonic()))):
            look()
            if time.monotonic() >= deadline:
                raise DeadlinePassed
    except BaseException:
        if call.leave():
            raise
    if call.fault is not None:
        raise call.fault
    if not call.results:
        raise RuntimeError("the call ended without a result; the thread's own report says why")
    return call.results[0]
