"""`Workers`: a few threads for one piece of work, also where the program has come to its end.

`concurrent.futures` takes no work any more once the program ends, while a save in the background
that it waits for has still to write; and Python 3.12 begins no thread then: who submits does the
work. Whoever makes these threads ends them; left behind by an interrupt, they keep no program from
ending. Used by the part writer and the object keeper.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Task = tuple["Future[Any]", Callable[[], Any]]


def fulfil(future: "Future[T]", act: Callable[[], T]) -> None:
    """Give the future what `act()` gives or raises; do nothing where it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(act())
    except BaseException as error:  # noqa: BLE001  (whoever asks the future is told)
        future.set_exception(error)
        del future, act  # or the error and this frame would hold each other


class Workers:
    """Up to `count` threads, begun as there is work. Thread-safe, but for `close`."""

    def __init__(self, count: int, name: str) -> None:
        """Begins no thread. `name` is what all of them are called."""
        self._count = count
        self._name = name
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._waiting: SimpleQueue[_Task | None] = SimpleQueue()

    def submit(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have `act` done; the future has what it gives or raises.

        Where no thread can be begun it is done before this returns: hold no lock that `act` needs.
        """
        future: Future[T] = Future()
        task = future, partial(act, *args, **kwargs)
        if self._has_threads():
            self._waiting.put(task)
        else:
            fulfil(*task)
        return future

    def close(self, *, cancel: bool = False) -> None:
        """End the threads, once all that was submitted is done; `cancel`: what is begun is."""
        if cancel:
            with suppress(Empty):
                while True:
                    task = self._waiting.get_nowait()
                    if task is not None:
                        task[0].cancel()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _has_threads(self) -> bool:
        with self._lock:
            if len(self._threads) < self._count:
                thread = Thread(target=self._work, name=self._name, daemon=True)
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError:  # the program has come to its end, or may have no more
                    self._threads.remove(thread)
            return bool(self._threads)

    def _work(self) -> None:
        while (task := self._waiting.get()) is not None:
            fulfil(*task)
            del task  # what it holds must not wait for the next one
