"""Which client library speaks to the brokers: kafka-python, unless another is asked for."""

from collections.abc import Sequence
from typing import Final

from eventlog.errors import ConfigError
from eventlog.kafka.client import TopicClient
from eventlog.kafka.security import KafkaSecurity

CLIENTS: Final = ("kafka-python",)


def open_client(
    bootstrap: Sequence[str],
    topic: str,
    security: KafkaSecurity | None = None,
    *,
    client: str = "kafka-python",
) -> TopicClient:
    """A client for one topic. No network yet. Raises `ConfigError` for a client we do not have."""
    if client not in CLIENTS:
        raise ConfigError(
            f"{client!r} is no Kafka client library that this package can use",
            hint=f"choose one of {', '.join(CLIENTS)}",
        )
    from eventlog.kafka.kafka_python import KafkaPythonClient

    return KafkaPythonClient(tuple(bootstrap), topic, security)
