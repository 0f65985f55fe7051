"""`KafkaPythonClient`: the client contract on kafka-python, the default library.

`kafka_python_producer` writes, `kafka_python_reader` reads, `kafka_python_offsets` and
`kafka_python_admin` ask; `kafka_python_setup` and `kafka_python_opening` say how the library is set
up and opened, `kafka_python_inside` what of its inside is used.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from eventlog.kafka.client import (
    TopicClient,
    TopicDescription,
    TopicIdentity,
    TopicProducer,
    TopicReader,
)
from eventlog.kafka.client_errors import BrokersUnavailable
from eventlog.kafka.kafka_python_admin import Administration
from eventlog.kafka.kafka_python_offsets import OffsetWatch
from eventlog.kafka.kafka_python_producer import KafkaPythonProducer
from eventlog.kafka.kafka_python_publishing import publish_records
from eventlog.kafka.kafka_python_reader import KafkaPythonReader
from eventlog.kafka.kafka_python_setup import make_endpoint
from eventlog.kafka.security import KafkaSecurity

FETCH_S: Final = 0.5


class KafkaPythonClient(TopicClient):
    """Opens nothing before it is asked something. Thread-safe."""

    def __init__(
        self, bootstrap: tuple[str, ...], topic: str, security: KafkaSecurity | None
    ) -> None:
        self.topic = topic
        self._endpoint = make_endpoint(bootstrap, topic, security)
        self._offsets = OffsetWatch(self._endpoint)
        self._administration = Administration(self._endpoint)

    def open_reader(self, committed: bool) -> TopicReader:
        return KafkaPythonReader(self._endpoint, self._offsets, committed)

    def open_producer(self, transactional_id: str) -> TopicProducer:
        return KafkaPythonProducer(self._endpoint, transactional_id)

    def describe(self, timeout_s: float = 10.0) -> TopicDescription:
        return self._administration.describe(self.topic, timeout_s)

    def identity(self, timeout_s: float = 10.0) -> TopicIdentity:
        return self._administration.identity(self.topic, timeout_s)

    def group_offsets(self, group: str, timeout_s: float = 10.0) -> dict[int, int]:
        return self._administration.group_offsets(group, self.topic, timeout_s)

    def put_group_offsets(
        self, group: str, ends: Mapping[int, int], timeout_s: float = 10.0
    ) -> None:
        self._administration.put_group_offsets(group, self.topic, ends, timeout_s)

    def broker_count(self, timeout_s: float = 10.0) -> int:
        return self._administration.broker_count(timeout_s)

    def broker_settings(self, timeout_s: float = 10.0) -> Mapping[str, str]:
        return self._administration.broker_settings(timeout_s)

    def create_topic(
        self,
        topic: str,
        partition_count: int,
        replication_factor: int,
        settings: Mapping[str, str],
        timeout_s: float = 30.0,
    ) -> bool:
        return self._administration.create_topic(
            topic, partition_count, replication_factor, settings, timeout_s
        )

    def delete_topic(self, topic: str, timeout_s: float = 30.0) -> None:
        self._administration.delete_topic(topic, timeout_s)

    def publish(
        self, topic: str, records: Iterable[tuple[bytes, bytes | None]], timeout_s: float = 10.0
    ) -> None:
        deadline = time.monotonic() + timeout_s
        count = self._administration.describe(topic, timeout_s).partition_count
        publish_records(self._endpoint._replace(topic=topic), count, list(records), deadline)

    def read_all(self, topic: str, timeout_s: float = 10.0) -> dict[bytes, bytes | None]:
        deadline = time.monotonic() + timeout_s
        count = self._administration.describe(topic, timeout_s).partition_count
        endpoint = self._endpoint._replace(topic=topic)
        offsets = OffsetWatch(endpoint)
        reader = KafkaPythonReader(endpoint, offsets, committed=True)
        try:
            return _last_values(reader, count, deadline)
        finally:
            reader.close()
            offsets.close()

    def close(self) -> None:
        self._offsets.close()
        self._administration.close()


def _last_values(
    reader: TopicReader, partition_count: int, deadline: float
) -> dict[bytes, bytes | None]:
    partitions = range(partition_count)
    ends = reader.high_watermarks(partitions, deadline - time.monotonic())
    starts = reader.log_starts(partitions, deadline - time.monotonic())
    reader.seek({each: start for each, start in starts.items() if start < ends[each]})
    values: dict[bytes, bytes | None] = {}
    while behind := {
        each: ends[each] - at for each, at in reader.positions().items() if at < ends[each]
    }:
        if time.monotonic() >= deadline:
            raise BrokersUnavailable(f"not read to the end in time; records left: {behind}")
        for record in reader.fetch(min(FETCH_S, max(0.0, deadline - time.monotonic()))):
            if record.key is not None:
                values[record.key] = record.value
    return values
