"""Faults at an exact moment of a transaction: a process that stops or kills itself there.

Signals from outside hit such a moment by luck. Here the process itself takes the hit, with the same
signals, while `KafkaPythonProducer.commit` runs:

- `unsent`: it was called, and nothing has left yet;
- `sent`: the brokers have all records of the transaction, and nobody has asked for its commit;
- `committed`: the brokers have committed it, and the writer does not know yet.
"""

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from eventlog.kafka import kafka_python_producer
from eventlog.kafka.client import OutgoingRecord
from eventlog.kafka.kafka_python_producer import KafkaPythonProducer

SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}
LIBRARY_WAIT_S = 20

_commit = KafkaPythonProducer.commit
_commit_by = kafka_python_producer.commit_by


class Arming:
    """At most one moment of this process's commits at which it stops or kills itself."""

    def __init__(self, tell: Callable[..., None]) -> None:
        """`tell` is told right before the signal, so that whoever watches knows that it came."""
        self._tell = tell
        # Signals arm it too, in the midst of whatever the main thread does.
        self._lock = threading.RLock()
        self._armed: tuple[str, str, bool] | None = None
        kafka_python_producer.commit_by = self._commit_by

        def commit(
            producer: KafkaPythonProducer, records: Sequence[OutgoingRecord], timeout_s: float
        ) -> list[int]:
            self._hit_if_armed("unsent")
            return _commit(producer, records, timeout_s)

        KafkaPythonProducer.commit = commit  # type: ignore[method-assign]

    def arm(self, moment: str, how: str, *, claims_only: bool = False) -> None:
        """Hit the next commit; of claims that fence somebody, where `claims_only`."""
        with self._lock:
            self._armed = (moment, how, claims_only)

    def _commit_by(self, producer: Any, deadline: float, *more: Any) -> bool:
        if self._is_armed("sent"):
            producer.flush(LIBRARY_WAIT_S)
            self._hit_if_armed("sent")
        is_committed = _commit_by(producer, deadline, *more)
        if is_committed:
            self._hit_if_armed("committed")
        return is_committed

    def _is_armed(self, moment: str) -> bool:
        armed = self._armed
        is_claim = threading.current_thread().name != "steplog-writer"
        return armed is not None and armed[0] == moment and (is_claim or not armed[2])

    def _hit_if_armed(self, moment: str) -> None:
        with self._lock:
            if not self._is_armed(moment):
                return
            assert self._armed is not None
            how = self._armed[1]
            self._armed = None
        self._tell("hit", moment=moment, how=how)
        # To this thread: sent to the process, it takes effect when another one comes to run.
        signal.pthread_kill(threading.get_ident(), SIGNALS[how])
