"""The example producer and consumer on a topic: the same programs as on a folder."""

from pathlib import Path

from tests.docs.test_examples import produce_and_consume
from tests.support.brokers import KafkaAddress
from tests.support.kafka_workspace import kafka_place


def test_the_producer_and_the_consumer(kafka_broker: KafkaAddress, tmp_path: Path) -> None:
    with kafka_place(kafka_broker, tmp_path / "blobs") as place:
        produce_and_consume(place.url(tmp_path / "here"), tmp_path)
