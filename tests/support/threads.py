"""Which threads are there: for tests that must leave none behind."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

END_S_MAX = 30.0


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    """Every thread that was begun within has ended soon after.

    Threads of earlier tests may end meanwhile: a count would be lower, or hide one that stays.
    """
    before = set(threading.enumerate())
    yield
    give_up_at = time.monotonic() + END_S_MAX
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < give_up_at, left
        time.sleep(0.005)
