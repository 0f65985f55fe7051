"""Transactions that go no usual way, made with kafka-python alone: aborted, or left open."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any


class RawTransaction:
    """One open transaction whose records are in the log already."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._is_open = True

    def commit(self) -> None:
        """End it: its records count."""
        self._is_open = False
        self._producer.commit_transaction()

    def abort(self) -> None:
        """End it: its records do not count."""
        self._is_open = False
        self._producer.abort_transaction()

    def forget(self) -> None:
        """Leave it to whoever has fenced it."""
        self._is_open = False

    def close(self) -> None:
        """Abort what is still open, and let go of the connection."""
        if self._is_open:
            self.abort()
        self._producer.close(timeout=1)


@contextmanager
def sent_transaction(
    bootstrap: str,
    topic: str,
    records: Sequence[tuple[int, bytes]],
    transactional_id: str | None = None,
    key: bytes = b"k",
) -> Iterator[RawTransaction]:
    """Send (partition, value) in a transaction that stays open; aborted at the end if still open.

    Each record has this key.
    """
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id or token_hex(8),
        transaction_timeout_ms=60_000,
        retry_backoff_ms=5,
        metrics_enabled=False,
    )
    producer.init_transactions()
    producer.begin_transaction()
    for partition, value in records:
        producer.send(
            topic, value, key, partition=partition, timestamp_ms=int(time.time() * 1000)
        ).get(timeout=30)
    transaction = RawTransaction(producer)
    try:
        yield transaction
    finally:
        transaction.close()


def aborted_transaction(bootstrap: str, topic: str, records: Sequence[tuple[int, bytes]]) -> None:
    """Send (partition, value) in a transaction that is aborted."""
    with sent_transaction(bootstrap, topic, records) as transaction:
        transaction.abort()
