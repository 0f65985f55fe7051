"""What the log asks of a Kafka client library, in our words; each library has one implementation.

Errors are those of `client_errors`. Every call that waits has a deadline: it returns or raises
within `timeout_s` + 0.5 s, whatever the brokers do.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class TopicRecord(NamedTuple):
    """A record that a reader got. `timestamp_ms` is the producer's, since the Unix epoch."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class OutgoingRecord(NamedTuple):
    """A record to be written. We choose the partition (`partitioning`), never the library."""

    partition: int
    timestamp_ms: int
    key: bytes
    value: bytes


class TopicIdentity(NamedTuple):
    """What never changes in the life of a topic that is a log."""

    topic_id: str
    partition_count: int


class TopicDescription(NamedTuple):
    """A topic as the brokers have it now. `topic_id` differs once it is deleted and made anew."""

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    settings: Mapping[str, str]
    """The topic's own settings and the brokers' defaults, by Kafka's names."""


class TopicProducer(ABC):
    """One transactional producer on one topic, used by one thread.

    After any call raised the instance is dead: `abandon` it, and open another.
    """

    transactional_id: str

    @abstractmethod
    def initialise(self, timeout_s: float) -> None:
        """Fence older producers of this transactional id; complete what they left unfinished.

        Once for each instance. Raises BrokersUnavailable, AccessDenied, TopicMissing,
        RequestRefused; and ProducerFenced if a newer one was faster.
        """

    @abstractmethod
    def commit(self, records: Sequence[OutgoingRecord], timeout_s: float) -> list[int]:
        """Write the records in one transaction; their offsets, in order, once it is committed.

        Each offset is where the record lies; between them may lie markers and others' records.
        Raises ProducerFenced, ProducerBroken.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Close without waiting and without sending anything. Any thread; idempotent."""


class TopicReader(ABC):
    """Reads one topic without a consumer group; used by one thread at a time.

    Only the questions about offsets may be put by any thread, also while another reads. Calls that
    wait raise BrokersUnavailable, AccessDenied, TopicMissing. After any of them the
    reader is still whole: the call can be repeated.
    """

    @abstractmethod
    def high_watermarks(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """The end of each partition as the log has it, never the last stable offset."""

    @abstractmethod
    def log_starts(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """The first offset that each partition still holds."""

    @abstractmethod
    def seek(self, positions: Mapping[int, int]) -> None:
        """Read exactly these partitions, from these offsets on. No network."""

    @abstractmethod
    def fetch(self, timeout_s: float) -> list[TopicRecord]:
        """Records that came, each partition in order of offset; empty if none came in time.

        Also returns early, and empty, when only a position moved (past markers or aborted
        records). Raises OffsetOutOfRange and RecordsCorrupt too, once all records before were
        given. BrokersUnavailable only after several seconds without any answer, over all calls.
        """

    @abstractmethod
    def positions(self) -> dict[int, int]:
        """The next offset of each partition read: past markers and aborted records too."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections for good: a later, or waiting, `fetch` raises ClientClosed.

        Any thread; idempotent.
        """


class TopicClient(ABC):
    """Opens readers and producers for one topic, and administers it. Thread-safe.

    Every call that asks the brokers raises BrokersUnavailable and AccessDenied.
    """

    topic: str

    @abstractmethod
    def open_reader(self, committed: bool) -> TopicReader:
        """A reader of committed records only, or of all that were ever written. No network."""

    @abstractmethod
    def open_producer(self, transactional_id: str) -> TopicProducer:
        """A producer that is still to be initialised. No network."""

    @abstractmethod
    def describe(self, timeout_s: float = 10.0) -> TopicDescription:
        """The topic as it is now, never from a cache. Raises TopicMissing."""

    def identity(self, timeout_s: float = 10.0) -> TopicIdentity:
        """Part of `describe`, which a client may get faster: asked with every batch of records."""
        found = self.describe(timeout_s)
        return TopicIdentity(found.topic_id, found.partition_count)

    @abstractmethod
    def group_offsets(self, group: str, timeout_s: float = 10.0) -> dict[int, int]:
        """The offsets that a consumer group committed for this topic, by partition."""

    @abstractmethod
    def put_group_offsets(
        self, group: str, ends: Mapping[int, int], timeout_s: float = 10.0
    ) -> None:
        """Commit offsets for a consumer group that has no members."""

    @abstractmethod
    def broker_count(self, timeout_s: float = 10.0) -> int:
        """The number of brokers that are up."""

    @abstractmethod
    def broker_settings(self, timeout_s: float = 10.0) -> Mapping[str, str]:
        """The settings of one broker, by Kafka's names."""

    @abstractmethod
    def create_topic(
        self,
        topic: str,
        partition_count: int,
        replication_factor: int,
        settings: Mapping[str, str],
        timeout_s: float = 30.0,
    ) -> bool:
        """Make a topic and wait until it can be used; False if it was there already.

        Raises RequestRefused, for example where there are fewer brokers than replicas.
        """

    @abstractmethod
    def delete_topic(self, topic: str, timeout_s: float = 30.0) -> None:
        """Delete a topic and all that is in it, and wait until it is gone. Raises TopicMissing."""

    @abstractmethod
    def publish(
        self, topic: str, records: Iterable[tuple[bytes, bytes | None]], timeout_s: float = 10.0
    ) -> None:
        """Write (key, value) to a small compacted topic; returns once all are acknowledged."""

    @abstractmethod
    def read_all(self, topic: str, timeout_s: float = 10.0) -> dict[bytes, bytes | None]:
        """The last value of each key of a small compacted topic. Raises TopicMissing."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the client itself keeps, for good; readers and producers stay open.

        Whatever asks the brokers later, or waits for them now, raises ClientClosed: also a reader's
        questions about offsets. Any thread; idempotent.
        """
