"""`Awaited`: the answer to a request whose caller does nothing but wait for it.

A `concurrent.futures.Future` can also be withdrawn, polled and shared between waiters; making and
waking one costs some ten microseconds, which is a good part of a commit shared by many.
"""

import threading
from typing import Generic, TypeVar, cast

T = TypeVar("T")


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
