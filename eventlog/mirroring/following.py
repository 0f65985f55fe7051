"""`follow_mirror`: brings a mirror up to the end of its log and keeps it there, as a service does.

It goes on through anything that passes by itself, servers that are away included, and stops at what
does not: a topic that was made anew, an event of a newer version.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError, SteplogError
from eventlog.kafka.client_errors import BrokersUnavailable
from eventlog.kafka.errors import as_ours
from eventlog.mirror import Mirror
from eventlog.mirroring.source_watch import FIRST_ANSWER_S

SLICE_S: Final = 2.0
"""So long at most until a wish to stop is seen, and until it is told how far it has come."""

POLL_S: Final = 0.25
"""How long to wait at the end before looking for new records."""

PATIENCE_S: Final = 30.0
"""Who wants to come to the end once gives up when nothing came for so long."""

Report = Callable[[int, LogUnavailableError | None], None]
"""Told how many records came since the last time, and what is in the way (None: nothing)."""


def follow_mirror(mirror: Mirror, *, once: bool, stop: threading.Event, report: Report) -> Cut:
    """Read until `stop`, or with `once` up to the present end; how far the mirror is then.

    Raises `LogUnavailableError` with `once` alone; what ends a mirror for good in any case.
    """
    counted = mirror.records_read
    moved_at = time.monotonic()
    while True:
        trouble = None
        try:
            mirror.refresh(timeout_s=SLICE_S)
        except LogUnavailableError as error:
            trouble = error
        came, counted = mirror.records_read - counted, mirror.records_read
        if came:
            moved_at = time.monotonic()
        elif trouble is not None and once:
            waited_s = time.monotonic() - moved_at
            if waited_s >= (PATIENCE_S if mirror.has_reached_brokers else FIRST_ANSWER_S):
                raise _after(trouble, waited_s)
        report(came, None if came else trouble)
        if stop.is_set() or (once and trouble is None):
            return mirror.cut()
        if not came:
            stop.wait(POLL_S)


def _after(trouble: LogUnavailableError, waited_s: float) -> SteplogError:
    """The error with the whole time that was waited, not the last slice's."""
    fault = trouble.__cause__
    if not isinstance(fault, BrokersUnavailable):
        return trouble
    fault.waited_s = waited_s
    error = as_ours(fault)
    error.__cause__ = fault
    return error
