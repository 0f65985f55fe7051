"""`TopicWriter`: the producer of one writer on one topic, made anew whenever it is lost.

A producer that raised is dead (`client`). The next one has the same transactional id: initialising
it aborts or completes whatever the last one left, so that afterwards it can be read what became of
it. Used by one thread, the writer's.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.codec import EncodedEvent, decode_event
from eventlog.errors import (
    LogUnavailableError,
    SessionNotFoundError,
    SteplogError,
    TopicChangedError,
)
from eventlog.event import session_id_problem
from eventlog.kafka.client import (
    OutgoingRecord,
    TopicClient,
    TopicDescription,
    TopicProducer,
    TopicRecord,
)
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    ProducerFenced,
)
from eventlog.kafka.errors import as_ours
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka.rereading import SeenEvent
from eventlog.mirror import Mirror

FENCED_WAIT_S: Final = 0.25
"""Before a fenced producer initialises its id again: the time for whoever fenced it to commit."""

INITIALISE_TRY_S: Final = 10.0
"""One attempt to initialise takes at most so long; others follow until the deadline."""

LOOK_EVERY_S: Final = 5.0
"""While it writes, the mirror is asked so often whether the topic is still the same."""
LOOK_SHARE: Final = 4
"""...and may take this part of what is left of the time: the rest is for the commit."""

PARTITIONS_KEPT_MAX: Final = 4_096
"""Of so many sessions the partition is remembered."""

FETCH_WAIT_S: Final = 0.2
"""A fetch waits so long for records that are still hidden by an open transaction."""

LIMITS_HOLD_S: Final = 10.0
"""What the topic takes is asked again for an event that is too large, but not within so long."""
LIMITS_ASKED_S: Final = 2.0
"""...and an answer is awaited for so long."""

COMMIT_MIN_S: Final = 0.25
"""A commit is given at least so long, also when its deadline is near: a shorter one is broken off,
and its outcome unknown, for nothing."""

_RETRY_S: Final = 0.05


def writer_transactional_id(topic: str, writer_id: str) -> str:
    """The transactional id of a writer: known to all who read its claims."""
    return f"steplog.{topic}.{writer_id}"


def unowned_transactional_id(topic: str, session_id: str) -> str:
    """The transactional id for claims on a session that no writer owns, and none released."""
    return f"steplog.{topic}.unowned.{sha256(session_id.encode()).hexdigest()[:32]}"


def require_session_name(session_id: str) -> None:
    """Raise `SessionNotFoundError` for an id that no session can have, and so no partition."""
    problem = session_id_problem(session_id)
    if problem is not None:
        raise SessionNotFoundError(
            f"no session {session_id!r} in the log: its id {problem}",
            hint="`steplog sessions` lists what is there",
            session_id=session_id,
        )


class Records(NamedTuple):
    """Records by session, in log order: those that were committed, and all that were sent.

    `deleted` are the partitions whose oldest records, from where they were to be read, are gone.
    """

    committed: Mapping[str, Sequence[SeenEvent]]
    sent: Mapping[str, Sequence[SeenEvent]]
    deleted: frozenset[int]


class TopicWriter:
    """One writer's way into a topic."""

    def __init__(self, client: TopicClient, mirror: Mirror, writer_id: str, place: str) -> None:
        self.place = place
        self.initialisations = 0
        """How often the producer was initialised: once, unless it was lost."""
        self.record_bytes_max = 0
        self._limits_hold_until = 0.0
        self._client = client
        self._mirror = mirror
        self._transactional_id = writer_transactional_id(client.topic, writer_id)
        self._producer: TopicProducer | None = None
        self._was_fenced = False
        self._deadline = 0.0
        self._next_look = 0.0
        self._partition_count = 0
        self._partitions: dict[str, int] = {}
        self._proved: dict[int, int] = {}
        self._gone: TopicChangedError | None = None
        """Set once the topic was seen to have lost what it had acknowledged."""

    @property
    def is_ready(self) -> bool:
        """Whether there is a producer that was not lost, and the topic was looked at lately."""
        return (
            self._producer is not None and self._gone is None and time.monotonic() < self._next_look
        )

    def partition_of(self, session_id: str) -> int:
        """The partition that the session's records go to. Raises `SessionNotFoundError`."""
        partition = self._partitions.get(session_id)
        if partition is None:
            require_session_name(session_id)
            if not self._partition_count:
                self._partition_count = self._mirror.partition_count(self._left_s())
            partition = partition_of(session_id, self._partition_count)
            if len(self._partitions) >= PARTITIONS_KEPT_MAX:
                self._partitions.clear()
            self._partitions[session_id] = partition
        return partition

    def make_ready(self, deadline: float, reread: Callable[[], None]) -> None:
        """Have an initialised producer; where the last one was lost, `reread` is called first.

        Raises what cannot be mended by waiting, and at the deadline whatever kept it: a
        `ClientFault`, or what `reread` raises.
        """
        if self._gone is not None:
            raise self._gone
        self._deadline = deadline
        self._require_same_topic()
        while self._producer is None:
            try:
                self._renew(deadline, reread)
            except (BrokersUnavailable, ProducerFenced, ProducerBroken) as fault:
                if time.monotonic() >= deadline:
                    raise as_ours(fault) from fault
                time.sleep(_RETRY_S)

    def commit(self, records: Sequence[OutgoingRecord], deadline: float) -> list[int]:
        """Write the records in one transaction; their offsets. After a fault it must be made ready.

        Raises `ClientFault`s as `TopicProducer.commit` does.
        """
        assert self._producer is not None, "make_ready comes first"
        try:
            offsets = self._producer.commit(records, max(COMMIT_MIN_S, deadline - time.monotonic()))
        except ClientFault as fault:
            self._was_fenced = isinstance(fault, ProducerFenced)
            self._producer.abandon()
            self._producer = None
            raise
        for record, offset in zip(records, offsets, strict=True):
            self._require_kept(record.partition, offset)
            self._proved[record.partition] = offset + 1
        return offsets

    def read_since(self, sessions: Mapping[str, int]) -> Records:
        """The sessions' records from an offset of each on, to the end.

        Nothing of a session is looked for before what this writer's own commits have proved.
        """
        since = {
            session_id: max(offset, self._proved[self.partition_of(session_id)])
            for session_id, offset in sessions.items()
        }
        positions: dict[int, int] = {}
        for session_id, offset in since.items():
            partition = self.partition_of(session_id)
            positions[partition] = min(offset, positions.get(partition, offset))
        deleted = self._pass_deleted(positions)
        committed, ends = self._read(positions, since, committed=True)
        sent, _ = self._read(positions, since, committed=False)
        self._proved.update(ends)
        return Records(committed, sent, deleted)

    def _pass_deleted(self, positions: dict[int, int]) -> frozenset[int]:
        """Move positions on to where their partitions begin now; those that were moved."""
        if not positions:
            return frozenset()
        reader = self._client.open_reader(committed=True)
        try:
            starts = reader.log_starts(positions, self._left_s())
        finally:
            reader.close()
        deleted = frozenset(part for part, at in positions.items() if at < starts[part])
        positions.update({part: starts[part] for part in deleted})
        return deleted

    def _require_kept(self, partition: int, end: int) -> None:
        """Raise `TopicChangedError` where the log ends before what it had acknowledged here.

        The brokers have lost records: what this writer adds would stand on events that are gone.
        """
        proved = self._proved.get(partition, 0)
        if end >= proved:
            return
        self._gone = TopicChangedError(
            f"partition {partition} of {self.place} goes on at offset {end}, but this writer was "
            f"acknowledged up to offset {proved}: the brokers have lost records",
            hint="stop; see what the brokers have lost, and begin anew with `resume` once you know",
        )
        raise self._gone

    def _read(
        self, positions: Mapping[int, int], since: Mapping[str, int], *, committed: bool
    ) -> tuple[dict[str, list[SeenEvent]], dict[int, int]]:
        """Records of these sessions from `since` on, and the high watermarks they were read to."""
        found: dict[str, list[SeenEvent]] = {}
        reader = self._client.open_reader(committed)
        try:
            ends = reader.high_watermarks(positions, self._left_s())
            for part, end in ends.items():
                self._require_kept(part, end)
            reader.seek({part: at for part, at in positions.items() if at < ends[part]})
            while any(at < ends[part] for part, at in reader.positions().items()):
                for record in reader.fetch(FETCH_WAIT_S):
                    name = (record.key or b"").decode("utf-8", "replace")
                    # What was written after the ends were asked for is left for the next look.
                    if (
                        since.get(name, ends[record.partition])
                        <= record.offset
                        < ends[record.partition]
                    ):
                        found.setdefault(name, []).extend(_seen(record))
                if self._left_s() <= _RETRY_S:
                    raise BrokersUnavailable(f"{self.place} was not read to its end in time")
        finally:
            reader.close()
        return found, ends

    def _left_s(self) -> float:
        return max(_RETRY_S, self._deadline - time.monotonic())

    def read_to_end(self, partitions: Collection[int], deadline: float) -> None:
        """Bring the mirror to the end of these partitions. Raises `LogUnavailableError`, ..."""
        self._mirror.refresh(partitions, timeout_s=max(_RETRY_S, deadline - time.monotonic()))

    def settle_other(self, transactional_id: str, deadline: float) -> None:
        """Abort or complete what was left under another id. Raises a `ClientFault`."""
        producer = self._client.open_producer(transactional_id)
        try:
            producer.initialise(max(_RETRY_S, deadline - time.monotonic()))
        finally:
            producer.abandon()

    def close(self) -> None:
        """Let the producer go."""
        if self._producer is not None:
            self._producer.abandon()
            self._producer = None

    def _require_same_topic(self) -> None:
        """Now and then: a topic that was deleted and made anew would be written to silently.

        Raises `TopicChangedError`.
        """
        if time.monotonic() < self._next_look:
            return
        # Brokers that do not answer will not commit either, and say so then.
        with suppress(LogUnavailableError):
            self._mirror.require_same_topic(self._left_s() / LOOK_SHARE)
        self._next_look = time.monotonic() + LOOK_EVERY_S

    def _renew(self, deadline: float, reread: Callable[[], None]) -> None:
        if self._was_fenced:
            time.sleep(FENCED_WAIT_S)
        producer = self._client.open_producer(self._transactional_id)
        try:
            left_s = max(_RETRY_S, deadline - time.monotonic())
            producer.initialise(min(INITIALISE_TRY_S, left_s))
            if self.initialisations:
                reread()
            else:
                self._learn_topic(left_s)
        except BaseException:
            producer.abandon()
            raise
        self.initialisations += 1
        self._was_fenced = False
        self._producer = producer

    def learn_limits(self, timeout_s: float) -> TopicDescription:
        """Ask what the topic takes. Raises a `ClientFault`."""
        topic = self._client.describe(max(_RETRY_S, timeout_s))
        self.record_bytes_max = int(topic.settings["max.message.bytes"])
        self._limits_hold_until = time.monotonic() + LIMITS_HOLD_S
        return topic

    def learn_limits_again(self, timeout_s: float) -> bool:
        """Ask what the topic takes, unless that was done lately; whether it takes more now."""
        known = self.record_bytes_max
        if time.monotonic() >= self._limits_hold_until:
            with suppress(BrokersUnavailable):
                self.learn_limits(min(LIMITS_ASKED_S, timeout_s))
        return self.record_bytes_max > known

    def _learn_topic(self, timeout_s: float) -> None:
        """What is asked once: the topic's limits, and where it ends before this writer begins."""
        topic = self.learn_limits(timeout_s)
        reader = self._client.open_reader(committed=False)
        try:
            self._proved = reader.high_watermarks(range(topic.partition_count), timeout_s)
        finally:
            reader.close()


def _seen(record: TopicRecord) -> list[SeenEvent]:
    """The record as an event; none where it is no event, as the mirror judges it too."""
    data = record.value or b""
    try:
        event = decode_event(data)
    except SteplogError:
        return []
    return [SeenEvent(record.offset, EncodedEvent(event, data, sha256(data).digest()))]
