"""Workspaces in Kafka for tests: topics of their own, and a folder for each machine."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from eventlog.kafka.connection import open_client
from eventlog.kafka.schema_topic import schema_topic_of
from eventlog.kafka.topic import create_topic
from tests.support.brokers import KafkaAddress

PARTITIONS = 4


class KafkaPlace:
    """A topic, and the URL of its workspace as a machine has it; blobs are shared by all."""

    def __init__(self, broker: KafkaAddress, topic: str, shared: Path) -> None:
        self.broker = broker
        self.topic = topic
        self.shared = shared

    def url(self, folder: Path) -> str:
        """The workspace with its local part in `folder`."""
        stores = f"folder={quote(str(folder))}&blobs={quote(str(self.shared))}"
        return f"kafka://{self.broker.bootstrap}/{self.topic}?{stores}"

    def make(self, partitions: int = PARTITIONS) -> None:
        """Make the topic and its schema topic."""
        client = open_client(self.broker.bootstrap.split(","), self.topic)
        create_topic(client, partitions=partitions)
        client.close()


@contextmanager
def kafka_place(broker: KafkaAddress, shared: Path, *, make: bool = True) -> Iterator[KafkaPlace]:
    """A place with a topic of a new name (not made yet unless `make`), deleted afterwards."""
    place = KafkaPlace(broker, f"test-{secrets.token_hex(8)}", shared)
    try:
        if make:
            place.make()
        yield place
    finally:
        broker.delete_topics(place.topic, schema_topic_of(place.topic))
