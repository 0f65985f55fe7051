"""`Awaited`: the answer to a request whose caller does nothing but wait for it.

A `concurrent.futures.Future` can also be withdrawn, polled and shared between waiters; making and
waking one costs some ten microseconds, which is a good part of a commit shared by many.
"""

import threading
import time
from concurrent.futures import Future
from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")

_TURN_S: Final = 0.5


class Awaited(Generic[T]):
    """A value or an error, given once by one thread and waited for by one other.

    Waiting has no deadline of its own: who takes a request sees to it that it is answered.
    """

    __slots__ = ("_error", "_given", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: BaseException | None = None
        self._given = threading.Lock()
        self._given.acquire()

    def running(self) -> bool:
        """Always: it cannot be withdrawn."""
        return True

    def set_running_or_notify_cancel(self) -> bool:
        """Always True: it cannot be withdrawn."""
        return True

    def set_result(self, result: T) -> None:
        """Give the value."""
        self._value = result
        self._given.release()

    def set_exception(self, exception: BaseException | None) -> None:
        """Give the error."""
        self._error = exception
        self._given.release()

    def result(self) -> T:
        """Wait for what is given, and return or raise it."""
        self._given.acquire()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


class Promised(Future[T]):
    """A `Future` whose waiter may be interrupted (Ctrl-C) without holding up who answers it.

    A `Future` is waited for by a `Condition`, which an interrupt can leave locked for good; the
    answering thread would then wait for ever. Here it is touched only when the answer is given.
    """

    def __init__(self) -> None:
        super().__init__()
        self._given = threading.Lock()
        self._given.acquire()
        self._is_given = False

    def set_result(self, result: T) -> None:
        """Give the value."""
        super().set_result(result)
        self._open()

    def set_exception(self, exception: BaseException | None) -> None:
        """Give the error."""
        super().set_exception(exception)
        self._open()

    def result(self, timeout: float | None = None) -> T:
        """Wait for what is given, and return or raise it."""
        self._await(timeout)
        return super().result(0 if timeout is not None else None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for what is given, and return it where it is an error."""
        self._await(timeout)
        return super().exception(0 if timeout is not None else None)

    def cancel(self) -> bool:
        """Withdraw it, where it was not begun."""
        withdrawn = super().cancel()
        if withdrawn:
            self._open()
        return withdrawn

    def _open(self) -> None:
        if not self._is_given:
            self._is_given = True
            self._given.release()

    def _await(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_given:
            # In short turns: one of several waiters may be interrupted while the lock is its own.
            turn = _TURN_S if deadline is None else min(_TURN_S, deadline - time.monotonic())
            if turn <= 0:
                return
            if self._given.acquire(timeout=turn):
                self._given.release()
