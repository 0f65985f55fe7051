"""`ConfluentProducer`: transactions through confluent-kafka's `Producer`."""

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from eventlog.kafka.client import OutgoingRecord, TopicProducer
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    ProducerFenced,
    RecordsRefused,
    TopicMissing,
)
from eventlog.kafka.confluent_setup import (
    Troubles,
    error_of,
    exception_to_fault,
    library_faults,
    shared_settings,
    to_fault,
    told,
)
from eventlog.kafka.inherited import watch
from eventlog.kafka.kafka_python_producer import (
    BATCH_BYTES,
    RECORD_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
    RETRY_BACKOFF_MS,
    TOPIC_KNOWN_WITHIN_S,
    TRANSACTION_TIMEOUT_MS,
)
from eventlog.kafka.kafka_python_setup import Endpoint
from eventlog.kafka.unreached import BrokersUnreached, in_words

_REPORTS_WITHIN_S: Final = 0.2
_TURN_S: Final = 0.2
"""The library tells of refused connections only between two calls."""


class ConfluentProducer(TopicProducer):
    """One `Producer` of the library, made when it is initialised."""

    def __init__(self, endpoint: Endpoint, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._endpoint = endpoint
        self._troubles = Troubles()
        self._producer: Any = None
        self._reports: list[tuple[Any, int, int]] = []
        self._given = 0
        """Records of this transaction that the library has taken."""
        self._is_used = False
        self._is_ready = False
        self._lock = threading.Lock()
        self._pid = os.getpid()
        watch(self)

    def initialise(self, timeout_s: float) -> None:
        if self._is_used or self._pid != os.getpid():
            raise RuntimeError("a producer is initialised once, by the process that opened it")
        self._is_used = True
        began_at = time.monotonic()
        deadline = began_at + timeout_s
        try:
            self._producer = self._open()
            self._await_topic(deadline)
            self._await_producer_id(deadline)
        except library_faults() as error:
            self.abandon()
            kafka_error = error_of(error)
            if kafka_error is not None and _is_fenced(kafka_error):
                raise ProducerFenced(f"{self._place}: {told(kafka_error)}") from error
            raise exception_to_fault(error, self._place) from error
        except ClientFault as fault:
            self.abandon()
            if isinstance(fault, BrokersUnavailable):
                fault.waited_s = time.monotonic() - began_at
            raise
        self._troubles.forget()
        self._endpoint.wait.end()
        self._is_ready = True

    def commit(self, records: Sequence[OutgoingRecord], timeout_s: float) -> list[int]:
        deadline = time.monotonic() + timeout_s
        self._require_sendable(records)
        if not records:
            return []
        self._reports = []
        try:
            self._write(records, deadline)
        except library_faults() as error:
            # Its frames keep the library's producer, and with it its threads.
            raise self._ended_by(error) from error.with_traceback(None)
        offsets = self._offsets_of(records)
        if offsets is None:
            self.abandon()
            raise ProducerBroken(
                f"{self._place}: the transaction is committed, but not at which offsets", sent=True
            )
        return offsets

    def abandon(self) -> None:
        self._is_ready = False
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None and self._pid == os.getpid():
            threading.Thread(
                target=_end, args=(producer,), name="steplog-kafka-close", daemon=True
            ).start()

    def forget_inherited(self) -> Iterable[object]:
        """In a forked child: the parent goes on with its producer, the child has none."""
        inherited = [self._producer]
        self._is_ready = False
        self._producer, self._lock = None, threading.Lock()
        return inherited

    @property
    def _place(self) -> str:
        return f"producer {self.transactional_id!r} of {self._endpoint.place}"

    def _open(self) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                **shared_settings(self._endpoint, self._troubles),
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "enable.idempotence": True,
                "acks": "all",
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 0,
                "batch.size": BATCH_BYTES,
                "batch.num.messages": 100_000,
                "message.max.bytes": RECORD_BYTES_MAX,
                "retry.backoff.ms": RETRY_BACKOFF_MS,
                # Of all the library's questions, the ones that a taken-over id waits for.
                "retry.backoff.max.ms": 100,
            }
        )

    def _await_topic(self, deadline: float) -> None:
        answered_at = None
        while True:
            now = time.monotonic()
            self._require_time(deadline)
            try:
                topics = self._producer.list_topics(
                    self._endpoint.topic, timeout=min(_TURN_S, max(0.001, deadline - now))
                ).topics
            except library_faults() as error:
                self._require_to_try_again(error)
                continue
            refusal = topics[self._endpoint.topic].error
            if refusal is None:
                return
            fault = to_fault(refusal, self._place)
            answered_at = answered_at or now
            is_over = now - answered_at > TOPIC_KNOWN_WITHIN_S
            if is_over or not isinstance(fault, TopicMissing | BrokersUnavailable):
                raise fault
            time.sleep(_TURN_S / 4)

    def _await_producer_id(self, deadline: float) -> None:
        while True:
            try:
                # Called again, it goes on waiting for what was asked for first.
                left_s = max(0.001, deadline - time.monotonic())
                self._producer.init_transactions(min(_TURN_S, left_s))
                return
            except library_faults() as error:
                self._require_to_try_again(error)
                self._require_time(deadline)

    def _require_to_try_again(self, error: Exception) -> None:
        self._producer.poll(0)
        self._troubles.require_access(self._place)
        kafka_error = error_of(error)
        if kafka_error is None or kafka_error.fatal():
            raise error
        fault = exception_to_fault(error, self._place)
        if not isinstance(fault, BrokersUnavailable):
            raise error

    def _require_time(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            if self._troubles.text:
                raise BrokersUnreached(self._place, self._troubles.text)
            raise BrokersUnavailable(f"{self._place}: no answer in time")
        self._endpoint.wait.go_on(self._troubles.text)

    def _require_sendable(self, records: Sequence[OutgoingRecord]) -> None:
        if not self._is_ready:
            raise ProducerBroken(f"{self._place} is not, or no longer, in use", sent=False)
        for record in records:
            size = len(record.key) + len(record.value) + RECORD_OVERHEAD_BYTES
            if size > RECORD_BYTES_MAX:
                self.abandon()
                raise RecordsRefused(
                    f"{self._place}: a record of {size} bytes; at most {RECORD_BYTES_MAX}",
                    sent=False,
                )

    def _write(self, records: Sequence[OutgoingRecord], deadline: float) -> None:
        producer, topic, report = self._producer, self._endpoint.topic, self._note_report
        self._given = 0
        producer.begin_transaction()
        produce = producer.produce
        for partition, timestamp_ms, key, value in records:
            produce(topic, value, key, partition, report, timestamp_ms)
            self._given += 1
        producer.commit_transaction(max(0.001, deadline - time.monotonic()))
        producer.poll(0)

    def _note_report(self, error: Any, message: Any) -> None:
        self._reports.append((error, message.partition(), message.offset()))

    def _offsets_of(self, records: Sequence[OutgoingRecord]) -> list[int] | None:
        """Each partition's records were written in order; reports come batch by batch."""
        offsets: defaultdict[int, deque[int]] = defaultdict(deque)
        for error, partition, offset in self._reports:
            if error is not None or offset is None or offset < 0:
                return None
            offsets[partition].append(offset)
        if len(self._reports) != len(records):
            return None
        return [offsets[record.partition].popleft() for record in records]

    def _ended_by(self, exception: Exception) -> ClientFault:
        from confluent_kafka import KafkaError

        self._is_ready = False
        producer = self._producer
        if producer is not None:  # Another thread may have abandoned it meanwhile.
            # What is still queued is not sent any more; each record's report says where it was.
            with suppress(*library_faults()):  # One that was fenced refuses even this.
                producer.purge(in_queue=True, in_flight=True, blocking=False)
            ends_at = time.monotonic() + _REPORTS_WITHIN_S
            while len(self._reports) < self._given and time.monotonic() < ends_at:
                producer.poll(0.01)
        reports = [error for error, _, _ in self._reports]
        unsent = sum(e is not None and e.code() == KafkaError._PURGE_QUEUE for e in reports)
        sent = unsent < self._given
        cause = error_of(exception)
        causes = [each for each in (cause, *reports) if each is not None]
        self.abandon()
        text = told(causes[0]) if causes else type(exception).__name__
        message = f"{self._place}: {text}{in_words(self._troubles.text)}"
        if any(_is_fenced(each) for each in causes):
            return ProducerFenced(message)
        if any(_are_records_refused(each) for each in causes):
            return RecordsRefused(message, sent=sent)
        return ProducerBroken(message, sent=sent)


def _end(producer: Any) -> None:
    """Forget it here, where nobody waits for its threads. Its own `close` would abort and wait."""
    with suppress(*library_faults()):
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.poll(0)


def _is_fenced(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )


def _are_records_refused(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
