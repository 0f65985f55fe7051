"""Opening and ending the library's consumers and admin clients, whatever the brokers do.

Both connect while they are made, run a thread from then on, and leave it behind when they cannot
connect; and a TLS handshake, or a look-up of a name, has no deadline there. So they are made in a
thread of ours, and what was opened for one that failed is closed.
"""

import threading
from collections.abc import Callable
from typing import Any

from eventlog.kafka.client_errors import AccessDenied, BrokersUnavailable
from eventlog.kafka.deadline import DeadlinePassed, run_within
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_setup import REQUEST_TIMEOUT_MS, Endpoint, network_client


def open_consumer(endpoint: Endpoint, timeout_s: float, **settings: Any) -> Any:
    """A `KafkaConsumer` that has reached a broker; no group, and it never commits."""

    def make(**options: Any) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            **options,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            check_crcs=True,
            **settings,
        )

    return _open(endpoint, timeout_s, make, [endpoint.topic])


def open_admin(endpoint: Endpoint, timeout_s: float) -> Any:
    """A `KafkaAdminClient` that has reached a broker."""

    def make(**options: Any) -> Any:
        from kafka.admin import KafkaAdminClient

        return KafkaAdminClient(**options)

    return _open(endpoint, timeout_s, make, [])


def close_aside(library_client: Any) -> None:
    """Close a consumer, an admin client or a network client without waiting for its thread."""
    threading.Thread(target=library_client.close, name="steplog-kafka-close", daemon=True).start()


def _open(endpoint: Endpoint, timeout_s: float, make: Callable[..., Any], topics: list[str]) -> Any:
    networks: list[Any] = []
    options = endpoint.options() | {
        "kafka_client": network_client(topics, networks.append),
        "bootstrap_timeout_ms": timeout_s * 1_000,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
    }
    try:
        return run_within(
            timeout_s + 0.1,
            lambda: make(**options),
            faults=library_faults(),
            discard=lambda late: late.close(),
        )
    except DeadlinePassed:
        _close_all(networks)
        raise _refused(endpoint) or BrokersUnavailable(
            f"{endpoint.place}: no answer within {timeout_s:g} s"
        ) from None
    except library_faults() as error:
        _close_all(networks)
        raise _refused(endpoint) or to_fault(error, endpoint.place) from error


def _refused(endpoint: Endpoint) -> AccessDenied | None:
    if endpoint.tls is None or endpoint.tls.refusal is None:
        return None
    return AccessDenied(f"{endpoint.place}: {endpoint.tls.refusal}")


def _close_all(networks: list[Any]) -> None:
    for network in networks:
        close_aside(network)
