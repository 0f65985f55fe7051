"""Which client library speaks to the brokers: kafka-python, unless another is asked for."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from eventlog.errors import ConfigError
from eventlog.kafka.client import TopicClient
from eventlog.kafka.security import KafkaSecurity

CLIENTS: Final = ("kafka-python", "confluent")


def open_client(
    bootstrap: Sequence[str],
    topic: str,
    security: KafkaSecurity | None = None,
    *,
    client: str = "kafka-python",
) -> TopicClient:
    """A client for one topic. No network yet.

    Raises `ConfigError` for a client that we do not know, or that is not installed.
    """
    if client not in CLIENTS:
        raise ConfigError(
            f"{client!r} is no Kafka client library that this package can use",
            hint=f"choose one of {', '.join(CLIENTS)}",
        )
    if client == "confluent":
        if find_spec("confluent_kafka") is None:
            raise ConfigError(
                "the package confluent-kafka is not installed",
                hint="install steplog[confluent], or leave the client as it is by default",
            )
        from eventlog.kafka.confluent import ConfluentClient

        return ConfluentClient(tuple(bootstrap), topic, security)
    from eventlog.kafka.kafka_python import KafkaPythonClient

    return KafkaPythonClient(tuple(bootstrap), topic, security)
