"""Faults at an exact moment of a transaction: a process that stops or kills itself there.

Signals from outside hit such a moment by luck. Here the process itself takes the hit, with the same
signals, between two calls of kafka-python that `KafkaPythonProducer.commit` makes:

- `sent`: the brokers have all records of the transaction, and nobody has asked for its commit;
- `committed`: the brokers have committed it, and the writer does not know yet.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from eventlog.kafka import kafka_python_producer

MOMENTS = ("sent", "committed")
SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}
LIBRARY_WAIT_S = 20

_commit_by = kafka_python_producer.commit_by


class Arming:
    """At most one moment of this process's commits at which it stops or kills itself."""

    def __init__(self, tell: Callable[..., None]) -> None:
        """`tell` is told right before the signal, so that whoever watches knows that it came."""
        self._tell = tell
        self._lock = threading.Lock()
        self._armed: tuple[str, str, bool] | None = None
        kafka_python_producer.commit_by = self._commit_by

    def arm(self, moment: str, how: str, *, claims_only: bool = False) -> None:
        """Hit the next commit; of claims that fence somebody, where `claims_only`."""
        with self._lock:
            self._armed = (moment, how, claims_only)

    def _commit_by(self, producer: Any, deadline: float) -> bool:
        moment, how = self._take()
        if moment == "sent":
            producer.flush(LIBRARY_WAIT_S)
            self._hit(moment, how)
        is_committed = _commit_by(producer, deadline)
        if moment == "committed" and is_committed:
            self._hit(moment, how)
        return is_committed

    def _take(self) -> tuple[str, str]:
        with self._lock:
            if self._armed is None:
                return "", ""
            moment, how, claims_only = self._armed
            if claims_only and threading.current_thread().name == "steplog-writer":
                return "", ""
            self._armed = None
            return moment, how

    def _hit(self, moment: str, how: str) -> None:
        self._tell("hit", moment=moment, how=how)
        os.kill(os.getpid(), SIGNALS[how])
