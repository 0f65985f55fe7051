"""`KafkaPythonReader`: reads a topic through kafka-python's `KafkaConsumer`, without a group.

The library's position moves before its records are handed out. So a Ctrl-C within a call may leave
it behind records that nobody got: whenever a call did not end, its consumer is not used again, and
another one begins at our positions.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from eventlog.kafka.client import TopicReader, TopicRecord
from eventlog.kafka.client_errors import BrokersUnavailable, ClientFault, OffsetOutOfRange
from eventlog.kafka.inherited import watch
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_inside import (
    never_spin,
    partition_in_hand,
    positions_of,
    set_fetch_wait,
)
from eventlog.kafka.kafka_python_offsets import OffsetWatch
from eventlog.kafka.kafka_python_opening import Make, Opening, consumer_maker
from eventlog.kafka.kafka_python_setup import Endpoint

FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
PARTITION_FETCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""One answer holds at most these, and at least one batch."""
RECORDS_MAX: Final = 5_000
"""Given by one `fetch`."""
FETCH_WAIT_MS: Final = 25
"""How long a broker holds a question that finds nothing new. New records answer it at once; but a
reader that was moved elsewhere first waits for the answer to what it asked before."""
IDLE_FETCH_WAIT_MS: Final = 250
IDLE_AFTER_S: Final = 1.0
"""A reader that has waited so long for new records asks less often: it costs 1 ms each time."""
RETRY_BACKOFF_MS: Final = 20
FIRST_TURN_S: Final = 0.002
LAST_TURN_S: Final = 0.1
"""The library does not return when only a position moved: it is asked in turns of these lengths."""
QUIET_S: Final = 5.0
"""Nothing came in so much time of fetching: see whether anybody is there."""
PROBE_S: Final = 0.4


class KafkaPythonReader(TopicReader):
    """One `KafkaConsumer`, made when it is first needed."""

    def __init__(self, endpoint: Endpoint, offsets: OffsetWatch, committed: bool) -> None:
        self._endpoint = endpoint
        self._offsets = offsets
        self._opening = Opening(endpoint, _maker(committed), [endpoint.topic])
        self._consumer: Any = None
        self._is_astray = False
        """Whether the consumer is in the middle of something, or was when we were interrupted."""
        self._positions: dict[int, int] = {}
        self._quiet_s = 0.0
        self._is_idle = False
        watch(self)

    def high_watermarks(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        return self._offsets.ends(partitions, timeout_s)

    def log_starts(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        return self._offsets.starts(partitions, timeout_s)

    def seek(self, positions: Mapping[int, int]) -> None:
        was_astray, self._is_astray = self._is_astray, True
        self._positions = dict(positions)
        if was_astray:
            self._renew()
        elif self._consumer is not None and positions:
            self._move()
        self._is_astray = False

    def fetch(self, timeout_s: float) -> list[TopicRecord]:
        deadline = time.monotonic() + timeout_s
        self._opening.require_open()
        if not self._positions:
            return []
        # Not in `except` or `finally`: an interrupt may come before either is reached.
        was_astray, self._is_astray = self._is_astray, True
        if was_astray:
            self._renew()
        try:
            found, positions = self._records_by(deadline)
        except BrokersUnavailable:
            self._is_astray = False
            raise
        except library_faults() as error:
            self._opening.require_open()
            fault = self._fault(error)
            if isinstance(error, _out_of_range_error()):
                self._is_astray = False
            else:
                # After damaged records the library's consumer would run in a circle for ever.
                self._renew()
            if fault is None:
                return []
            raise fault from error
        self._positions = positions
        self._is_astray = False
        return found

    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    def close(self) -> None:
        self._opening.close()
        self._consumer = None

    def _renew(self) -> None:
        self._opening.give_up()
        self._consumer = None

    def forget_inherited(self) -> Iterable[object]:
        """In a forked child: it goes on from the same positions with a consumer of its own."""
        inherited = [self._consumer, *self._opening.inherited()]
        self._consumer = None
        return inherited

    def _is_open_within(self, timeout_s: float) -> bool:
        """Raises BrokersUnavailable once brokers were waited for long enough, over all calls."""
        began_at = time.monotonic()
        try:
            self._consumer = self._opening.object_within(timeout_s)
        except BrokersUnavailable:
            self._quiet_s += time.monotonic() - began_at
            if self._quiet_s >= QUIET_S:
                raise
            return False
        self._quiet_s, self._is_idle = 0.0, False
        never_spin(self._consumer)
        self._move()
        return True

    def _move(self) -> None:
        from kafka import TopicPartition

        consumer, topic = self._consumer, self._endpoint.topic
        # What is read on from where it is keeps what has come for it already.
        at = dict(positions_of(consumer))
        if at.keys() != self._positions.keys():
            consumer.assign([TopicPartition(topic, each) for each in sorted(self._positions)])
            at = dict(positions_of(consumer))
        for partition, offset in self._positions.items():
            if at.get(partition) != offset:
                consumer.seek(TopicPartition(topic, partition), offset)

    def _records_by(self, deadline: float) -> tuple[list[TopicRecord], dict[int, int]]:
        """What came, and the positions behind it."""
        if self._consumer is None and not self._is_open_within(deadline - time.monotonic()):
            return [], self._positions
        consumer, turn_s = self._consumer, FIRST_TURN_S
        began_at = time.monotonic()
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            found = consumer.poll(timeout_ms=min(turn_s, left_s) * 1_000)
            positions = dict(positions_of(consumer))
            if found or positions != self._positions:
                self._note_sound()
                came = [
                    TopicRecord(each.partition, each.offset, each.timestamp, each.key, each.value)
                    for records in found.values()
                    for each in records
                ]
                return came, positions
            if left_s <= turn_s:
                self._quiet_s += time.monotonic() - began_at
                self._require_answers()
                return [], positions
            turn_s = min(turn_s * 2, LAST_TURN_S)
            if not self._is_idle and self._quiet_s + time.monotonic() - began_at > IDLE_AFTER_S:
                self._is_idle = True
                set_fetch_wait(consumer, IDLE_FETCH_WAIT_MS)

    def _note_sound(self) -> None:
        self._quiet_s = 0.0
        if self._is_idle:
            self._is_idle = False
            set_fetch_wait(self._consumer, FETCH_WAIT_MS)

    def _require_answers(self) -> None:
        """Nothing came: because there is nothing, or because nobody is there?"""
        if self._quiet_s >= QUIET_S:
            self._offsets.ends(self._positions, PROBE_S)
            self._quiet_s = 0.0

    def _fault(self, error: Exception) -> ClientFault | None:
        """What an exception comes to; None if it holds no more."""
        from kafka.errors import LogTruncationError, OffsetOutOfRangeError, UnsupportedCodecError

        if isinstance(error, UnsupportedCodecError):
            part = partition_in_hand(self._consumer)
            where = "" if part is None else f": partition {part}"
            return to_fault(error, f"{self._endpoint.place}{where}")
        if isinstance(error, OffsetOutOfRangeError) and error.args:
            wrong = {each.partition: offset for each, offset in error.args[0].items()}
        elif isinstance(error, LogTruncationError):
            # The log was cut, and may have grown past the position again: with other records.
            cut = [each.partition for each in error.divergent_offsets]
            wrong = {each: self._positions[each] for each in cut if each in self._positions}
            if not wrong:
                return None  # Of what is not read any more.
        else:
            return to_fault(error, f"reader of {self._endpoint.place}")
        partition, offset = min(wrong.items())
        fault = out_of_range(self._offsets, partition, offset)
        # A broker that has just begun to lead may not know yet how far its log goes.
        is_passing = isinstance(error, OffsetOutOfRangeError) and fault.start <= offset <= fault.end
        return None if is_passing else fault


def _out_of_range_error() -> type[Exception]:
    """After it the consumer goes on; after any other it is made anew."""
    from kafka.errors import OffsetOutOfRangeError

    found: type[Exception] = OffsetOutOfRangeError
    return found


def out_of_range(offsets: OffsetWatch, partition: int, offset: int) -> OffsetOutOfRange:
    """The fault with all its numbers; `offset` may be within them by now."""
    start = offsets.starts([partition], PROBE_S)[partition]
    end = offsets.ends([partition], PROBE_S)[partition]
    return OffsetOutOfRange(partition, offset, start, end)


def _maker(committed: bool) -> Make:
    return consumer_maker(
        isolation_level="read_committed" if committed else "read_uncommitted",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        fetch_min_bytes=1,
        fetch_max_bytes=FETCH_BYTES_MAX,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES_MAX,
        max_poll_records=RECORDS_MAX,
        retry_backoff_ms=RETRY_BACKOFF_MS,
    )
