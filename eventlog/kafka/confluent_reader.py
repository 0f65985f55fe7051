"""`ConfluentReader`: reads a topic through confluent-kafka's `Consumer`, without a group."""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from eventlog.kafka.client import TopicReader, TopicRecord
from eventlog.kafka.client_errors import BrokersUnavailable, ClientClosed
from eventlog.kafka.confluent_setup import (
    Troubles,
    exception_to_fault,
    library_faults,
    shared_settings,
    to_fault,
)
from eventlog.kafka.inherited import watch
from eventlog.kafka.kafka_python_offsets import OffsetWatch
from eventlog.kafka.kafka_python_reader import (
    FETCH_BYTES_MAX,
    PARTITION_FETCH_BYTES_MAX,
    PROBE_S,
    QUIET_S,
    RECORDS_MAX,
    out_of_range,
)
from eventlog.kafka.kafka_python_setup import Endpoint

QUEUED_KB_MAX: Final = 32 * 1024
"""The library reads ahead of who asks, at most so much."""
FETCH_WAIT_MS: Final = 20
"""How long a broker holds a question that finds nothing new. Only then does the library tell of the
marker behind the last record; and it always asks, also when nobody waits."""
_TURN_S: Final = 0.2


class ConfluentReader(TopicReader):
    """One `Consumer` of the library, made when it is first needed."""

    def __init__(self, endpoint: Endpoint, offsets: OffsetWatch, committed: bool) -> None:
        self._endpoint = endpoint
        self._offsets = offsets
        self._isolation = "read_committed" if committed else "read_uncommitted"
        self._troubles = Troubles()
        self._consumer: Any = None
        self._is_closed = False
        self._positions: dict[int, int] = {}
        self._assigned: dict[int, int] = {}
        """Where the library reads on: equal to the positions, unless they were set elsewhere. Empty
        while a call is under way: who was interrupted sets the library to the positions again."""
        self._quiet_s = 0.0
        watch(self)

    def high_watermarks(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        return self._offsets.ends(partitions, timeout_s)

    def log_starts(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        return self._offsets.starts(partitions, timeout_s)

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)

    def fetch(self, timeout_s: float) -> list[TopicRecord]:
        deadline = time.monotonic() + timeout_s
        self._require_open()
        if not self._positions:
            return []
        try:
            return self._records_by(self._move(), deadline)
        except library_faults() as error:
            self._assigned = {}
            self._require_open()
            raise exception_to_fault(error, self._place) from error

    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    def close(self) -> None:
        self._is_closed = True
        consumer, self._consumer, self._assigned = self._consumer, None, {}
        if consumer is not None:
            threading.Thread(target=consumer.close, name="steplog-kafka-close", daemon=True).start()

    def forget_inherited(self) -> Iterable[object]:
        """In a forked child: it goes on from the same positions with a consumer of its own."""
        inherited = [self._consumer]
        self._consumer, self._assigned = None, {}
        return inherited

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosed

    @property
    def _place(self) -> str:
        return f"reader of {self._endpoint.place}"

    def _open(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **shared_settings(self._endpoint, self._troubles),
                # The library wants a name; nothing is ever committed under it.
                "group.id": "steplog-no-group",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                "isolation.level": self._isolation,
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "fetch.max.bytes": FETCH_BYTES_MAX,
                "fetch.message.max.bytes": PARTITION_FETCH_BYTES_MAX,
                "queued.max.messages.kbytes": QUEUED_KB_MAX,
                "fetch.queue.backoff.ms": 10,
            }
        )

    def _move(self) -> dict[int, int]:
        """Where the library reads on: at our positions."""
        from confluent_kafka import TopicPartition

        if self._consumer is None:
            self._consumer = self._open()
            if self._is_closed:
                self.close()  # Closed between: who closed it has not seen this one.
                raise ClientClosed
        # The library moves on before we have its messages: an interrupt may lose them.
        at, self._assigned = self._assigned, {}
        if at != self._positions:
            topic = self._endpoint.topic
            self._consumer.assign(
                [TopicPartition(topic, each, at) for each, at in sorted(self._positions.items())]
            )
            at = dict(self._positions)
        return at

    def _records_by(self, at: dict[int, int], deadline: float) -> list[TopicRecord]:
        began_at = time.monotonic()
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            # By itself it waits until so many have come: so one is waited for, and the rest taken.
            messages = self._consumer.consume(1, min(left_s, _TURN_S))
            if messages:
                messages += self._consumer.consume(RECORDS_MAX - 1, 0)
            records, is_set = self._taken(messages, at)
            if records or not is_set or at != self._positions:
                self._quiet_s = 0.0
                self._troubles.forget()
                self._positions = dict(at)
                self._assigned = at if is_set else {}
                return records
            self._troubles.require_access(self._place)
            if left_s <= _TURN_S:
                self._quiet_s += time.monotonic() - began_at
                self._require_answers()
                self._assigned = at
                return []

    def _taken(
        self, messages: list[Any], positions: dict[int, int]
    ) -> tuple[list[TopicRecord], bool]:
        """Records, and whether the library still reads on behind them; `positions` move.

        Raises for the first that is wrong.
        """
        from confluent_kafka import KafkaError

        records: list[TopicRecord] = []
        for message in messages:
            error, partition = message.error(), message.partition()
            if partition not in positions and partition >= 0:
                continue  # Of where it read before it was moved.
            if error is None:
                offset = message.offset()
                positions[partition] = offset + 1
                records.append(
                    TopicRecord(
                        partition, offset, message.timestamp()[1], message.key(), message.value()
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                positions[partition] = max(positions[partition], message.offset())
            elif records or self._is_out_of_date(error, partition, positions.get(partition, 0)):
                # These first. Asked again from here, the library tells of it again.
                return records, False
        return records, True

    def _is_out_of_date(self, error: Any, partition: int, offset: int) -> bool:
        """Raise what the error stands for, unless it passes by itself.

        True if it spoke of another position than the reader's: it must be set there again.
        """
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            out = out_of_range(self._offsets, partition, offset)
            # It also says so of what it skipped, and of where it read before it was moved. But not
            # that the log was cut: it may have grown past us again, with other records.
            if _tells_of_a_cut(error) or not out.start <= offset <= out.end:
                raise out
            return True
        fault = to_fault(error, self._place)
        if not isinstance(fault, BrokersUnavailable):
            raise fault
        return False

    def _require_answers(self) -> None:
        """Nothing came: because there is nothing, or because nobody is there?"""
        if self._quiet_s >= QUIET_S:
            self._offsets.ends(self._positions, PROBE_S)
            self._quiet_s = 0.0


def _tells_of_a_cut(error: Any) -> bool:
    """The library has a code for it, which it only tells in words."""
    return "log truncation" in error.str()
