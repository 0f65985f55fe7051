"""Opening and ending the library's consumers and admin clients, whatever the brokers do.

Both connect while they are made, run a thread from then on, and leave it behind when they cannot
connect; and a TLS handshake, or a look-up of a name, has no deadline there. So they are made in a
thread of ours, and what was opened for one that failed is closed.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from eventlog.kafka.client_errors import AccessDenied, BrokersUnavailable, ClientFault
from eventlog.kafka.deadline import DeadlinePassed, run_within
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_network import Network
from eventlog.kafka.kafka_python_setup import Endpoint

SLACK_S: Final = 0.1
"""For the library to end by itself, and tell why."""


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
    network = Network(topics)
    options = endpoint.options() | {
        "kafka_client": network.open,
        "bootstrap_timeout_ms": timeout_s * 1_000,
    }
    try:
        return run_within(
            timeout_s + SLACK_S,
            lambda: make(**options),
            faults=library_faults(),
            discard=lambda late: late.close(),
            look=lambda: network.require_access(endpoint.place),
        )
    except DeadlinePassed:
        fault: ClientFault = _unreached(endpoint, timeout_s, network)
    except library_faults() as error:
        fault = to_fault(error, endpoint.place)
        if isinstance(fault, BrokersUnavailable):
            fault = _unreached(endpoint, timeout_s, network)
    except AccessDenied as denied:
        fault = denied
    if network.client is not None:
        close_aside(network.client)
    raise fault


def _unreached(endpoint: Endpoint, timeout_s: float, network: Network) -> BrokersUnavailable:
    return BrokersUnavailable(
        f"{endpoint.place}: not reached within {timeout_s:.3g} s{network.trouble}"
    )
