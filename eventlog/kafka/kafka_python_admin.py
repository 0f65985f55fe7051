"""`Administration`: topics, settings, groups, through kafka-python's admin client.

Rare and slow questions: each runs within its time in a thread of its own, and is put again while
brokers cannot answer. A client that did not answer in time is given up.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from eventlog.kafka.client import TopicDescription, TopicIdentity
from eventlog.kafka.client_errors import BrokersUnavailable
from eventlog.kafka.deadline import DeadlinePassed, TimedLock, run_within
from eventlog.kafka.inherited import watch
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_opening import Opening, make_admin
from eventlog.kafka.kafka_python_setup import Endpoint

T = TypeVar("T")

RETRY_S: Final = 0.05


class Administration:
    """One admin client, opened when it is first needed. Thread-safe."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = TimedLock()
        self._opening = Opening(endpoint, make_admin, [])
        watch(self)

    def close(self) -> None:
        """Let go of the connection: whoever still waits, or asks later, meets ClientClosed.

        Does not wait; any thread.
        """
        self._opening.close()

    def forget_inherited(self) -> Iterable[object]:
        """In a forked child: it opens an admin client of its own."""
        self._lock = TimedLock()
        return self._opening.inherited()

    def describe(self, topic: str, timeout_s: float) -> TopicDescription:
        """What the brokers say of a topic now. Raises TopicMissing."""

        def ask(admin: Any) -> TopicDescription:
            from kafka.admin import ConfigResource, ConfigResourceType

            found = _found_topic(admin, topic)
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            configs = admin.describe_configs([resource], config_filter="all")
            partitions = found["partitions"]
            return TopicDescription(
                topic=topic,
                topic_id=str(found["topic_id"]),
                partition_count=len(partitions),
                replication_factor=min(len(each["replica_nodes"]) for each in partitions),
                settings=_values(configs["topic"][topic]),
            )

        return self._ask(ask, timeout_s, f"topic {topic!r}")

    def identity(self, topic: str, timeout_s: float) -> TopicIdentity:
        """The topic's id and its partitions' number now. Raises TopicMissing."""

        def ask(admin: Any) -> TopicIdentity:
            found = _found_topic(admin, topic)
            return TopicIdentity(str(found["topic_id"]), len(found["partitions"]))

        return self._ask(ask, timeout_s, f"topic {topic!r}")

    def broker_count(self, timeout_s: float) -> int:
        """The number of brokers that are up."""

        def ask(admin: Any) -> int:
            brokers = admin.describe_cluster()["brokers"]
            return sum(not broker.get("is_fenced", False) for broker in brokers)

        return self._ask(ask, timeout_s, "brokers")

    def broker_settings(self, timeout_s: float) -> Mapping[str, str]:
        """All settings of the broker with the lowest id."""

        def ask(admin: Any) -> Mapping[str, str]:
            from kafka.admin import ConfigResource, ConfigResourceType

            broker = min(each["broker_id"] for each in admin.describe_cluster()["brokers"])
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker))
            configs = admin.describe_configs([resource], config_filter="all")
            return _values(configs["broker"][str(broker)])

        return self._ask(ask, timeout_s, "broker settings")

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        """What a group committed for the topic."""

        def ask(admin: Any) -> dict[int, int]:
            offsets = admin.list_group_offsets({group: None})[group]
            return {
                each.partition: offset.offset
                for each, offset in offsets.items()
                if each.topic == topic and offset.offset >= 0
            }

        return self._ask(ask, timeout_s, f"group {group!r}")

    def put_group_offsets(
        self, group: str, topic: str, ends: Mapping[int, int], timeout_s: float
    ) -> None:
        """Commit for a group without members. Raises RequestRefused where it has some."""

        def ask(admin: Any) -> None:
            from kafka import TopicPartition
            from kafka.errors import NoError
            from kafka.structs import OffsetAndMetadata

            wanted = {
                TopicPartition(topic, partition): OffsetAndMetadata(end, "", -1)
                for partition, end in ends.items()
            }
            for answer in admin.alter_group_offsets(group, wanted).values():
                if answer is not NoError:
                    raise answer()

        self._ask(ask, timeout_s, f"group {group!r}")

    def create_topic(
        self,
        topic: str,
        partition_count: int,
        replication_factor: int,
        settings: Mapping[str, str],
        timeout_s: float,
    ) -> bool:
        """Make the topic, and wait until each partition has a leader; False if it was there."""
        deadline = time.monotonic() + timeout_s
        wanted = {
            "num_partitions": partition_count,
            "replication_factor": replication_factor,
            "configs": dict(settings),
        }

        def ask(admin: Any) -> bool:
            from kafka.errors import TopicAlreadyExistsError

            try:
                admin.create_topics({topic: wanted}, timeout_ms=int(timeout_s * 1_000))
            except TopicAlreadyExistsError:
                return False
            return True

        is_new = self._ask(ask, timeout_s, f"topic {topic!r}")
        self._await_leaders(topic, deadline)
        return is_new

    def delete_topic(self, topic: str, timeout_s: float) -> None:
        """Delete the topic, and wait until it is gone. Raises TopicMissing."""
        deadline = time.monotonic() + timeout_s

        def ask(admin: Any) -> None:
            admin.delete_topics([topic], timeout_ms=int(timeout_s * 1_000))

        def is_there(admin: Any) -> bool:
            return not any(each["error_code"] for each in admin.describe_topics([topic]))

        self._ask(ask, timeout_s, f"topic {topic!r}")
        # The brokers hear of it one after another.
        while self._ask(is_there, deadline - time.monotonic(), f"topic {topic!r}"):
            time.sleep(RETRY_S)

    def _await_leaders(self, topic: str, deadline: float) -> None:
        def ask(admin: Any) -> bool:
            found = admin.describe_topics([topic])
            return all(
                not topic_info["error_code"]
                and topic_info["partitions"]
                and all(
                    not each["error_code"] and each["leader_id"] >= 0
                    for each in topic_info["partitions"]
                )
                for topic_info in found
            )

        while not self._ask(ask, deadline - time.monotonic(), f"topic {topic!r}"):
            time.sleep(RETRY_S)

    def _ask(self, question: Callable[[Any], T], timeout_s: float, about: str) -> T:
        """The answer to a question, put again while there is time and brokers cannot answer."""
        began_at = time.monotonic()
        try:
            answer = self._answer(question, began_at + timeout_s, about)
        except BrokersUnavailable as fault:
            fault.waited_s = time.monotonic() - began_at
            raise
        self._endpoint.wait.end()
        return answer

    def _answer(self, question: Callable[[Any], T], deadline: float, about: str) -> T:
        place = f"{about} at {','.join(self._endpoint.bootstrap)}"
        while True:
            admin = self._opened(deadline)
            try:
                return run_within(
                    deadline - time.monotonic(),
                    partial(question, admin),
                    faults=library_faults(),
                    look=self._look,
                )
            except DeadlinePassed:
                self._opening.give_up()
                raise BrokersUnavailable(f"{place}: no answer") from None
            except library_faults() as error:
                self._opening.require_open()
                fault = to_fault(error, place)
                is_over = time.monotonic() + RETRY_S >= deadline
                if is_over or not isinstance(fault, BrokersUnavailable):
                    raise fault from error
                if isinstance(error, RuntimeError):
                    self._opening.give_up()  # The library's own thread has ended.
            time.sleep(RETRY_S)

    def _opened(self, deadline: float) -> Any:
        try:
            return self._lock.hold(
                deadline - time.monotonic(),
                lambda: self._opening.object_within(deadline - time.monotonic()),
            )
        except DeadlinePassed:
            raise BrokersUnavailable(f"{self._endpoint.place}: no answer") from None

    def _look(self) -> None:
        self._opening.require_open()
        self._endpoint.wait.go_on("")


def _values(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Settings with a value: secret ones come without."""
    return {name: each["value"] for name, each in configs.items() if each.get("value") is not None}


def _found_topic(admin: Any, topic: str) -> Any:
    """What the brokers' metadata says of the topic; raises the library's error if it says one."""
    from kafka import errors

    (found,) = admin.describe_topics([topic])
    error = errors.for_code(found["error_code"])
    if error is not errors.NoError:
        raise error()
    return found
