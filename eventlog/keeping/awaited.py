"""`Awaited`: the answer to a request whose caller does nothing but wait for it.

A `concurrent.futures.Future` can also be withdrawn, polled and shared between waiters; making and
waking one costs some ten microseconds, which is a good part of a commit shared by many.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")


class Hearing:
    """Whether anybody has asked for an error that was given as an answer."""

    __slots__ = ("is_heard",)

    def __init__(self) -> None:
        self.is_heard = False


_TURN_S: Final = 0.5


class Awaited(Generic[T]):
    """A value or an error, given once by one thread and waited for by one other.

    Waiting has no deadline of its own: who takes a request sees to it that it is answered.
    """

    __slots__ = ("_error", "_given", "_value")

    hearing: Hearing | None = None
    """Nobody needs to be told of its error: somebody waits for it."""

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
    And it is made only for who needs it (callbacks, `concurrent.futures.wait`): making one takes
    longer than judging an append.
    """

    # Thousands may be in flight: each holds as little as it can, and nothing for the garbage
    # collector to look through but itself.
    _state: str = PENDING
    _result: T | None = None
    _exception: BaseException | None = None
    _is_plain = True
    """Whether nobody has had a condition made, so that nobody waits by it or wants to be called."""
    _is_given = False
    _is_open = False
    hearing: Hearing | None = None
    """Of its error, where it has one."""

    def __init__(self) -> None:
        self._given = threading.Lock()
        self._given.acquire()

    def __getattr__(self, name: str) -> Any:
        if name == "_condition":
            with _condition_making:
                if self._is_plain:
                    self._condition = threading.Condition()
                    self._is_plain = False
                return self._condition
        if name in ("_waiters", "_done_callbacks"):
            # Asked for with the condition held: by one thread at a time.
            setattr(self, name, [])
            return getattr(self, name)
        raise AttributeError(name)

    def running(self) -> bool:
        """Whether it was begun and has no answer yet."""
        return self._state == RUNNING

    def done(self) -> bool:
        """Whether it was answered or withdrawn."""
        return self._is_given or self._state not in (PENDING, RUNNING)

    def set_running_or_notify_cancel(self) -> bool:
        """It is begun; False where it was withdrawn."""
        with _condition_making:
            if self._is_plain and self._state == PENDING:
                self._state = RUNNING
                return True
        return super().set_running_or_notify_cancel()

    def set_result(self, result: T) -> None:
        """Give the value."""
        if not self._finish(result, None):
            super().set_result(result)
        self._open()

    def set_exception(self, exception: BaseException | None) -> None:
        """Give the error."""
        self.hearing = Hearing()
        if not self._finish(None, exception):
            super().set_exception(exception)
        self._open()

    def result(self, timeout: float | None = None) -> T:
        """Wait for what is given, and return or raise it."""
        self._await(timeout)
        if self._state == FINISHED and self._exception is None:
            return cast(T, self._result)
        self._hear()
        return super().result(0 if timeout is not None else None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for what is given, and return it where it is an error."""
        self._await(timeout)
        self._hear()
        return super().exception(0 if timeout is not None else None)

    def cancel(self) -> bool:
        """Withdraw it, where it was not begun."""
        withdrawn = super().cancel()
        if withdrawn:
            self._open()
        return withdrawn

    def _finish(self, result: T | None, exception: BaseException | None) -> bool:
        """Take the answer, if nobody has had a condition made; False where somebody has."""
        with _condition_making:
            if not self._is_plain or self._state not in (PENDING, RUNNING):
                return False
            self._result, self._exception = result, exception
            self._state = FINISHED
            return True

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn` with this once it is answered or withdrawn."""
        super().add_done_callback(lambda _: self._call(fn))

    def _call(self, fn: Callable[[Future[T]], object]) -> None:
        # In the thread that answers, before it opens: the callback may ask for the answer.
        self._is_given = True
        fn(self)

    def _hear(self) -> None:
        if self.hearing is not None:
            self.hearing.is_heard = True

    def _open(self) -> None:
        self._is_given = True
        if not self._is_open:
            self._is_open = True
            self._given.release()

    def _await(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        # Callbacks run before the lock is opened, and may ask for the answer.
        while not self.done():
            # In short turns: one of several waiters may be interrupted while the lock is its own.
            turn = _TURN_S if deadline is None else min(_TURN_S, deadline - time.monotonic())
            if turn <= 0:
                return
            if self._given.acquire(timeout=turn):
                self._given.release()


_condition_making: Final = threading.Lock()
"""Between who has a condition made and who gives an answer without one. Held for a few lines."""
