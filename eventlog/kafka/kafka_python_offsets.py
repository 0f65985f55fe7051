"""`OffsetWatch`: where a topic's partitions begin and end, for all readers of one client.

A consumer of its own that reads nothing, and sees uncommitted records: one that reads only what is
committed is told the last stable offset, and events that were acknowledged may lie after it.
"""

import time
from collections.abc import Collection, Iterable
from typing import Any, Final

from eventlog.kafka.client_errors import AccessDenied, BrokersUnavailable, TopicMissing
from eventlog.kafka.deadline import DeadlinePassed, TimedLock
from eventlog.kafka.inherited import watch
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_inside import network_of
from eventlog.kafka.kafka_python_opening import Opening, consumer_maker
from eventlog.kafka.kafka_python_setup import Endpoint

_TURN_S: Final = 0.3
_LOOK_EVERY_S: Final = 0.002


class OffsetWatch:
    """Asks the leaders, one round trip each time. Thread-safe."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = TimedLock()
        self._opening = Opening(endpoint, consumer_maker(), [endpoint.topic])
        self._consumer: Any = None
        watch(self)

    def ends(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """The high watermarks. Raises BrokersUnavailable, AccessDenied."""
        return self._ask("end_offsets", partitions, timeout_s)

    def starts(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """The log starts. Raises BrokersUnavailable, AccessDenied."""
        return self._ask("beginning_offsets", partitions, timeout_s)

    def close(self) -> None:
        """Let go of the connection: whoever still waits, or asks later, meets ClientClosed.

        Does not wait; any thread.
        """
        self._opening.close()

    def forget_inherited(self) -> Iterable[object]:
        """In a forked child: it opens a consumer of its own."""
        inherited = [self._consumer, *self._opening.inherited()]
        self._consumer, self._lock = None, TimedLock()
        return inherited

    def _ask(self, question: str, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        if not partitions:
            return {}
        began_at = time.monotonic()
        deadline = began_at + timeout_s

        def answer() -> dict[int, int]:
            self._consumer = self._opening.object_within(deadline - time.monotonic())
            return self._offsets(question, partitions, deadline)

        try:
            offsets = self._lock.hold(timeout_s, answer)
        except DeadlinePassed:
            raise BrokersUnavailable(
                f"{self._endpoint.place}: no answer", waited_s=timeout_s
            ) from None
        except BrokersUnavailable as fault:
            fault.waited_s = time.monotonic() - began_at
            raise
        self._endpoint.wait.end()
        return offsets

    def _offsets(
        self, question: str, partitions: Collection[int], deadline: float
    ) -> dict[int, int]:
        from kafka import TopicPartition
        from kafka.errors import KafkaTimeoutError

        topic, consumer = self._endpoint.topic, self._consumer
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            # The one deadline that the question takes. The library asks again and again, without
            # a pause, where the topic is gone: so it is asked in turns.
            consumer.config["request_timeout_ms"] = min(left_s, _TURN_S) * 1_000
            try:
                offsets = getattr(consumer, question)(wanted)
                return {each.partition: offsets[each] for each in wanted}
            except KafkaTimeoutError as error:
                self._opening.require_open()
                self._endpoint.wait.go_on("")
                self._require_topic(min(left_s, _TURN_S))
                if deadline - time.monotonic() <= 0:
                    raise self._late(question) from error
            except library_faults() as error:
                self._opening.require_open()
                fault = to_fault(error, self._endpoint.place)
                is_out_of_reach = isinstance(fault, BrokersUnavailable)
                raise (self._late(question) if is_out_of_reach else fault) from error

    def _require_topic(self, timeout_s: float) -> None:
        """Raise what the brokers say against the topic; nothing where they say nothing."""
        update = network_of(self._consumer).cluster.request_update()
        deadline = time.monotonic() + timeout_s
        while not update.is_done and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        if update.failed():
            fault = to_fault(update.exception, self._endpoint.place)
            if isinstance(fault, TopicMissing | AccessDenied):
                raise fault

    def _late(self, question: str) -> BrokersUnavailable:
        what = "end" if question == "end_offsets" else "begin"
        return BrokersUnavailable(
            f"{self._endpoint.place}: the brokers did not say in time where its partitions {what}"
        )
