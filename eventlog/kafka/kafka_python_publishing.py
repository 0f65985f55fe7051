"""Writing a few records to a small compacted topic, through a producer made for it alone.

Idempotent, not transactional: whoever may write to the topic needs no right to an id of its own,
and records that are written twice do no harm there.
"""

import time
from collections.abc import Sequence
from typing import Any

from eventlog.kafka.client_errors import BrokersUnavailable
from eventlog.kafka.deadline import DeadlinePassed, run_within
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_inside import end_at_once, leave_exit_alone
from eventlog.kafka.kafka_python_network import METADATA_BACKOFF_MS, Network
from eventlog.kafka.kafka_python_setup import Endpoint
from eventlog.kafka.partitioning import partition_of_key
from eventlog.kafka.unreached import in_words


def publish_records(
    endpoint: Endpoint,
    partition_count: int,
    records: Sequence[tuple[bytes, bytes | None]],
    deadline: float,
) -> None:
    """Write (key, value), each to its key's partition; returns once all are acknowledged.

    Raises BrokersUnavailable, AccessDenied, RequestRefused; some may then be written.
    """
    network = Network([endpoint.topic])
    producers: list[Any] = []

    def write() -> None:
        producer = _open(endpoint, network, deadline)
        producers.append(producer)
        sent = [
            producer.send(endpoint.topic, value, key, None, partition_of_key(key, partition_count))
            for key, value in records
        ]
        for each in sent:
            each.get(timeout=max(0.0, deadline - time.monotonic()))

    try:
        run_within(deadline - time.monotonic(), write, faults=library_faults())
    except DeadlinePassed:
        why = in_words(network.trouble)
        raise BrokersUnavailable(f"{endpoint.place}: not written in time{why}") from None
    except library_faults() as error:
        raise to_fault(error, endpoint.place) from error
    finally:
        for producer in producers:
            end_at_once(producer)
        if not producers and network.client is not None:
            network.client.close()


def _open(endpoint: Endpoint, network: Network, deadline: float) -> Any:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        **endpoint.options(),
        kafka_client=network.open,
        # So that it is made without a wait: the thread that may be left behind then has it.
        api_version=(2, 4),
        enable_idempotence=True,
        acks="all",
        retry_backoff_ms=METADATA_BACKOFF_MS,
        max_block_ms=max(1.0, (deadline - time.monotonic()) * 1_000),
        allow_auto_create_topics=False,
        metrics_enabled=False,
    )
    leave_exit_alone(producer)
    return producer
