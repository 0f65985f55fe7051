"""A transaction's records as kafka-python's batches, made here: with one future for each batch.

The library's `send` makes a future for every record, locks for it three times, and writes it into a
debug message that nobody reads: three quarters of what a record costs. This leans on the library's
inside, as `kafka_python_inside` does, and a test checks that too.
"""

from collections.abc import Sequence
from typing import Any

from eventlog.kafka.client import OutgoingRecord


class SentBatch:
    """Records of one partition on their way, and where they lie once the transaction is committed.

    The library may split a batch that is too large for the topic: then it asks for the future of
    each record, as if it had made them, and gives it the half that the record went into.
    """

    def __init__(self, batch: Any, numbers: list[int]) -> None:
        """`numbers` are the records' places in the transaction."""
        self._future = batch.produce_future
        self._numbers = numbers
        self._moved: dict[int, tuple[Any, int]] = {}
        batch._record_futures = _Futures(self, len(numbers))

    def move(self, index: int, future: Any, place: int) -> None:
        """The record went into another batch, as the one at that place."""
        self._moved[index] = (future, place)

    def note_offsets(self, offsets: list[int]) -> None:
        """Write each record's offset at its place in the transaction; what is not known stays."""
        if not self._moved:
            first = _first_offset(self._future)
            if first >= 0:
                for index, number in enumerate(self._numbers):
                    offsets[number] = first + index
            return
        for index, number in enumerate(self._numbers):
            future, place = self._moved[index]
            first = _first_offset(future)
            if first >= 0:
                offsets[number] = first + place

    def failures(self) -> list[BaseException]:
        """Why its records failed, each reason once."""
        futures = {id(future): future for future, _ in self._moved.values()}
        found: dict[type, BaseException] = {}
        for future in futures.values() or [self._future]:
            for error in _errors_of(future, len(self._numbers)):
                found.setdefault(type(error), error)
        return list(found.values())


class _Futures:
    """What the library takes for the futures of a batch's records."""

    def __init__(self, batch: SentBatch, count: int) -> None:
        self._batch = batch
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> "_Future":
        return _Future(self._batch, index)


class _Future:
    """One record's, while its batch is split."""

    def __init__(self, batch: SentBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def rebind(self, future: Any, place: int) -> None:
        self._batch.move(self._index, future, place)


def send_together(producer: Any, topic: str, records: Sequence[OutgoingRecord]) -> list[SentBatch]:
    """Give all records to the producer's thread, as few batches as they fit into.

    Waits for the topic's partitions where they have become unknown, as `send` does. Raises what it
    raises.
    """
    from kafka.errors import IllegalStateError
    from kafka.structs import TopicPartition

    known = producer.partitions_for(topic)
    by_partition: dict[int, list[int]] = {}
    for number, record in enumerate(records):
        by_partition.setdefault(record.partition, []).append(number)
    sent: list[SentBatch] = []
    for partition, numbers in by_partition.items():
        if partition not in known:
            raise IllegalStateError(f"the topic has no partition {partition}")
        target = TopicPartition(topic, partition)
        producer._transaction_manager.maybe_add_partition_to_transaction(target)
        for batch, its in _batches_of(producer._accumulator, target, records, numbers):
            sent.append(SentBatch(batch, its))
            _enqueue(producer._accumulator, target, batch)
    producer._sender.wakeup()
    return sent


def _enqueue(accumulator: Any, target: Any, batch: Any) -> None:
    from kafka.errors import IllegalStateError

    # Whoever gives all batches up waits until nobody is about to add one.
    accumulator._appends_in_progress.increment()
    try:
        with accumulator._tp_lock(target):
            if accumulator._closed:
                raise IllegalStateError("the producer was given up")
            accumulator._batches[target].append(batch)
            accumulator._incomplete.add(batch)
    finally:
        accumulator._appends_in_progress.decrement()


def _batches_of(
    accumulator: Any, target: Any, records: Sequence[OutgoingRecord], numbers: list[int]
) -> list[tuple[Any, list[int]]]:
    """One partition's records in batches, each with the numbers of those that it holds."""
    batches: list[tuple[Any, list[int]]] = []
    batch = _new_batch(accumulator, target)
    its: list[int] = []
    for number in numbers:
        _, time_ms, key, value = records[number]
        if batch.records.append(time_ms, key, value, []) is None:
            batches.append((batch, its))
            batch, its = _new_batch(accumulator, target), []
            batch.records.append(time_ms, key, value, [])
        its.append(number)
    batches.append((batch, its))
    return batches


def _new_batch(accumulator: Any, target: Any) -> Any:
    from kafka.producer.producer_batch import ProducerBatch
    from kafka.record.memory_records import MemoryRecordsBuilder

    config = accumulator.config
    builder = MemoryRecordsBuilder(
        config["message_version"], config["compression_attrs"], config["batch_size"]
    )
    return ProducerBatch(target, builder)


def _first_offset(future: Any) -> int:
    if not future.is_done or future.exception is not None:
        return -1
    offset, _, refusals = future.value
    return -1 if refusals is not None else int(offset)


def _errors_of(future: Any, count: int) -> list[BaseException]:
    if not future.is_done:
        return []
    if future.exception is not None:
        return [future.exception]
    refusals = future.value[2]
    return [] if refusals is None else [refusals(index) for index in range(count)]
