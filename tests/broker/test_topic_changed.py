"""A topic that is deleted and made anew under a writer is not written to any more."""

from pathlib import Path

import pytest

from eventlog.errors import TopicChangedError
from eventlog.kafka import topic_writer
from eventlog.kafka.connection import open_client
from eventlog.kafka_log import KafkaLog
from tests.support.brokers import KafkaAddress
from tests.support.recorded import append_all, seeded_chain


def test_the_writer_looks_at_the_topic_now_and_then(
    kafka_broker: KafkaAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_writer, "LOOK_EVERY_S", 0.0)
    topic = kafka_broker.new_topic()
    bootstrap = kafka_broker.bootstrap.split(",")
    client = open_client(bootstrap, topic)
    try:
        with KafkaLog(bootstrap, topic, tmp_path, append_deadline_s=20.0) as log:
            chain = seeded_chain(log, "s")
            append_all(log, [chain.call()])
            client.delete_topic(topic)
            client.create_topic(topic, 1, 1, {})
            with pytest.raises(TopicChangedError, match=topic):
                append_all(log, [chain.returned()])
    finally:
        kafka_broker.delete_topics(topic)
        client.close()
