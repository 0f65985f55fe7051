"""`KafkaPythonProducer`: transactions through kafka-python's `KafkaProducer`.

The library's producer dies for good on ordinary faults, waits without end for a commit, and flushes
when it is closed. Here each call has a deadline, any fault ends the instance at once, and what the
instance had not handed over by then is never sent.
"""

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from eventlog.kafka.client import OutgoingRecord, TopicProducer
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    RecordsRefused,
    TopicMissing,
)
from eventlog.kafka.inherited import watch
from eventlog.kafka.kafka_python_batches import SentBatch, send_together
from eventlog.kafka.kafka_python_faults import library_faults, to_fault, to_producer_fault
from eventlog.kafka.kafka_python_gate import Gate
from eventlog.kafka.kafka_python_inside import (
    commit_by,
    end_at_once,
    last_error,
    leave_exit_alone,
)
from eventlog.kafka.kafka_python_setup import Endpoint
from eventlog.kafka.unreached import BrokersUnreached, in_words

RETRY_BACKOFF_MS: Final = 2
"""Before a question is put again. A transaction that follows another within a millisecond is put
off by its coordinator once or twice: this is then its latency (10 ms: 13 at the 99th percentile)"""
BATCH_BYTES: Final = 512 * 1024
"""A transaction's records for one partition go in one request: each more costs a round trip."""
RECORD_BYTES_MAX: Final = 1024 * 1024 - 1024
"""Key, value and overhead. An event has at most 256 KiB, and a large head besides."""
RECORD_OVERHEAD_BYTES: Final = 128
TRANSACTION_TIMEOUT_MS: Final = 10_000
"""After which the brokers abort what this producer left open."""
_NEVER_MS: Final = 2**31 - 1
_LOOK_EVERY_S: Final = 0.05
TOPIC_KNOWN_WITHIN_S: Final = 2.0
"""Once brokers answer: a topic they do not know by then does not exist."""


class KafkaPythonProducer(TopicProducer):
    """One `KafkaProducer`, made when it is initialised, and its thread."""

    def __init__(self, endpoint: Endpoint, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._endpoint = endpoint
        self._gate = Gate(endpoint.topic)
        self._producer: Any = None
        self._is_ready = False
        self._pid = os.getpid()
        watch(self)

    def initialise(self, timeout_s: float) -> None:
        if self._producer is not None or not self._is_ours():
            raise RuntimeError("a producer is initialised once, by the process that opened it")
        began_at = time.monotonic()
        deadline = began_at + timeout_s
        try:
            self._producer = self._open()
            self._await_topic(deadline)
            self._await_producer_id(deadline)
        except library_faults() as error:
            if self._producer is None and self._gate.network.client is not None:
                self._gate.network.client.close()
            self.abandon()
            raise to_fault(error, self._place) from error
        except ClientFault as fault:
            self.abandon()
            if isinstance(fault, BrokersUnavailable):
                fault.waited_s = time.monotonic() - began_at
            raise
        self._endpoint.wait.end()
        self._is_ready = True

    def commit(self, records: Sequence[OutgoingRecord], timeout_s: float) -> list[int]:
        deadline = time.monotonic() + timeout_s
        self._require_sendable(records)
        if not records:
            return []
        self._gate.begin()
        producer, topic = self._producer, self._endpoint.topic
        sent: list[SentBatch] = []
        try:
            # Only waits where the topic's partitions have become unknown.
            producer.config["max_block_ms"] = timeout_s * 1_000
            producer.begin_transaction()
            sent += send_together(producer, topic, records)
            is_committed = commit_by(producer, deadline, self._tell_wait)
            if is_committed:
                self._endpoint.wait.end()
                offsets = [-1] * len(records)
                for batch in sent:
                    batch.note_offsets(offsets)
                if min(offsets) >= 0:
                    return offsets
        except library_faults() as error:
            failures = [each for batch in sent for each in batch.failures()]
            raise self._ended_by([error, *failures]) from error
        self.abandon()
        reason = (
            "the transaction is committed, but not at which offsets"
            if is_committed
            else f"the commit of {len(records)} records was not answered within {timeout_s:g} s"
            f"{in_words(self._gate.network.trouble)}"
        )
        raise ProducerBroken(f"{self._place}: {reason}", sent=self._gate.has_sent)

    def abandon(self) -> None:
        self._is_ready = False
        self._gate.shut()
        if self._producer is not None and self._is_ours():
            end_at_once(self._producer)

    def forget_inherited(self) -> Iterable[object]:
        """In a forked child: the parent goes on with its producer, the child has none."""
        inherited = [self._producer, self._gate]
        self._is_ready = False
        self._producer, self._gate = None, Gate(self._endpoint.topic)
        return inherited

    @property
    def _place(self) -> str:
        return f"producer {self.transactional_id!r} of {self._endpoint.place}"

    def _is_ours(self) -> bool:
        return self._pid == os.getpid()

    def _open(self) -> Any:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            **self._endpoint.options(),
            kafka_client=self._gate.open,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            # The last protocol without KIP-360: a producer whose epoch was refused must not ask for
            # another, and fence its successor. It also spares the library its wait for a broker.
            api_version=(2, 4),
            enable_idempotence=True,
            acks="all",
            max_in_flight_requests_per_connection=5,
            linger_ms=0,
            batch_size=BATCH_BYTES,
            max_request_size=RECORD_BYTES_MAX,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            # Our own deadline ends a commit. A batch that the library lets expire while it is
            # retried stops the producer without a word (batch futures never resolve).
            delivery_timeout_ms=_NEVER_MS,
            max_block_ms=_LOOK_EVERY_S * 1_000,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
        leave_exit_alone(producer)
        return producer

    def _await_topic(self, deadline: float) -> None:
        from kafka.errors import KafkaTimeoutError

        answered_at = None
        while True:
            try:
                self._producer.partitions_for(self._endpoint.topic)
            except KafkaTimeoutError:
                self._gate.network.require_access(self._place)
                now = time.monotonic()
                if answered_at is None and self._gate.network.client.cluster.brokers():
                    answered_at = now
                if answered_at is not None and now - answered_at > TOPIC_KNOWN_WITHIN_S:
                    raise TopicMissing.at(self._place) from None
                self._require_time(deadline)
            else:
                return

    def _await_producer_id(self, deadline: float) -> None:
        from kafka.errors import KafkaTimeoutError

        while True:
            try:
                # Called again, it goes on waiting for what was asked for first.
                self._producer.init_transactions()
            except KafkaTimeoutError:
                self._gate.network.require_access(self._place)
                self._require_time(deadline)
            else:
                return

    def _require_time(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            trouble = self._gate.network.trouble
            if trouble and not self._gate.network.client.cluster.brokers():
                raise BrokersUnreached(self._place, trouble) from None
            why = in_words(trouble)
            raise BrokersUnavailable(f"{self._place}: no answer in time{why}") from None
        self._tell_wait()
        self._producer.config["max_block_ms"] = min(left_s, _LOOK_EVERY_S) * 1_000

    def _tell_wait(self) -> None:
        self._endpoint.wait.go_on(self._gate.network.trouble)

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

    def _ended_by(self, causes: list[BaseException]) -> ClientFault:
        known = last_error(self._producer)
        self.abandon()
        if known is not None:
            causes.append(known)
        return to_producer_fault(causes, self._place, sent=self._gate.has_sent)
