"""Real Kafka brokers for tests: one, or a cluster of three, to be killed, frozen and restarted.

    with running_broker(folder) as broker:
        topic = broker.new_topic(partitions=3)
        broker.freeze()  # SIGSTOP; thaw() goes on
        broker.kill()  # SIGKILL; restart() brings it back on the same data and port

    with running_cluster(folder) as cluster:
        cluster.leader_of(topic, 0).kill()

A broker is started from its jars, on free ports of 127.0.0.1, and ends with the process that
started it, even if that is killed. Tests that only need some broker use the fixture `kafka_broker`
(tests/support/broker_plugin.py). Where brokers cannot be started the test is skipped, loudly.
"""

import fcntl
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.local_kafka import local_kafka

REQUIRED = os.environ.get("STEPLOG_REQUIRE_KAFKA") == "1"
START_S_MAX = 90.0
"""For a loaded machine; an idle one takes 2 s for one broker."""

STOP_S_MAX = 15.0
PORTS = range(20_000, 32_000)
"""Below those that the system hands out for outgoing connections: a client that tries a dead
broker's port again and again must never meet itself there, nor a restarted broker find it taken."""

TRIES_MAX = 3

FOR_TESTS = {
    # One that was killed may come back, and another may lead, as soon as this has passed.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A transaction that its writer left behind is aborted soon after its time.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
}
FAST_FAILOVER = {
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "replica.lag.time.max.ms": "5000",
    # What a broker that stopped was asked by another (to end a transaction) is asked again so late.
    "request.timeout.ms": "4000",
}

reserved: dict[int, int] = {}
"""The ports that this process was given, each with the locked file that says so to others."""

alive: dict[Path, "Broker"] = {}
"""The brokers that this process has started and not yet stopped, by folder: for failure reports."""


class KafkaAddress:
    """Brokers that answer somewhere, and topics made there; `bootstrap` is HOST:PORT[,...]."""

    def __init__(self, bootstrap: str, *, copies: int = 1) -> None:
        self.bootstrap = bootstrap
        self.copies = copies

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """A plain kafka-python admin client."""
        from kafka import KafkaAdminClient

        client = KafkaAdminClient(
            bootstrap_servers=self.bootstrap.split(","), request_timeout_ms=10_000
        )
        try:
            yield client
        finally:
            client.close()

    def new_topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """Create a topic of a new name; every partition has its leader on return."""
        topic = f"test-{secrets.token_hex(8)}"
        wanted = {
            "num_partitions": partitions,
            "replication_factor": self.copies,
            # Tests' events are of years ago: the brokers' default would delete them as too old.
            "configs": {"retention.ms": "-1", **(settings or {})},
        }
        with self.admin() as admin:
            admin.create_topics({topic: wanted}, wait_for_metadata=True)
        return topic

    def delete_topics(self, *topics: str) -> None:
        """Delete those of these topics that are still there."""
        with self.admin() as admin:
            there = set(topics) & set(admin.list_topics())
            if there:
                admin.delete_topics(sorted(there))

    def partitions_of(self, topic: str) -> dict[int, dict[str, Any]]:
        """What the brokers say of each partition: leader_id, isr_nodes, replica_nodes."""
        from kafka.errors import KafkaError

        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                with self.admin() as admin:
                    (described,) = admin.describe_topics([topic])
                return {each["partition_index"]: each for each in described["partitions"]}
            except KafkaError:
                # The client asks any broker that it has heard of, be it dead since.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


class Broker(KafkaAddress):
    """One broker of ours. `pid` is its process; `log` holds its warnings and errors."""

    def __init__(
        self, node: Any, *, owner: int, copies: int = 1, remove: Path | None = None
    ) -> None:
        super().__init__(f"{local_kafka.HOST}:{node.port}", copies=copies)
        self.node = node
        self.number: int = node.number
        self.log: Path = node.log
        self._owner = owner
        self._launched = local_kafka.launch(node, owner, remove=remove)
        alive[node.folder] = self

    @property
    def pid(self) -> int:
        """The process id of the broker itself."""
        return int(self._launched.pid)

    @property
    def guard_pid(self) -> int:
        """The process id of its guard: one that gets SIGTERM ends the broker at once."""
        return int(self._launched.guard.pid)

    @property
    def is_running(self) -> bool:
        """Whether its process is there, frozen or not."""
        return self._launched.guard.poll() is None

    def wait_until_up(self, timeout_s: float = START_S_MAX) -> None:
        """Wait until it answers and knows itself. Fails the test, with the log, if it does not."""
        local_kafka.wait_until_up([self.node], lambda: self.is_running, timeout_s)

    def kill(self) -> None:
        """SIGKILL: it writes nothing more and says goodbye to nobody."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not end in time."""
        self.thaw()
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):  # It has ended by itself, its guard not yet.
                os.kill(self.pid, number)
            try:
                self._launched.guard.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                # The guard kills it.
                self._launched.guard.terminate()
                self._launched.guard.wait()
        alive.pop(self.node.folder, None)

    def hand_over(self) -> None:
        """Leave it to others to end it: this process neither waits for it nor reports its log."""
        alive.pop(self.node.folder, None)
        hand_over(self._launched.guard)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and are not answered. Returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        state = Path(f"/proc/{self.pid}/stat")
        while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.005)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, wait: bool = True) -> None:
        """Start it again after `kill` or `stop`, on the same data and the same ports."""
        assert not self.is_running, "it runs: kill or stop it first"
        self._launched = local_kafka.launch(self.node, self._owner)
        alive[self.node.folder] = self
        if wait:
            self.wait_until_up()


class Cluster(KafkaAddress):
    """Brokers that replicate: topics have as many copies as there are brokers, at most three."""

    def __init__(self, brokers: list[Broker]) -> None:
        addresses = ",".join(broker.bootstrap for broker in brokers)
        super().__init__(addresses, copies=min(3, len(brokers)))
        self.brokers = brokers

    def leader_of(self, topic: str, partition: int) -> Broker:
        """The broker that leads this partition, as the cluster has it now."""
        number = self.partitions_of(topic)[partition]["leader_id"]
        return next(broker for broker in self.brokers if broker.number == number)

    def wait_until_in_sync(self, topic: str, timeout_s: float = START_S_MAX) -> None:
        """Wait until every partition of the topic has all its copies in sync."""
        deadline = time.monotonic() + timeout_s
        while any(
            set(each["isr_nodes"]) != set(each["replica_nodes"])
            for each in self.partitions_of(topic).values()
        ):
            assert time.monotonic() < deadline, f"{topic} is not in sync after {timeout_s} s"
            time.sleep(0.2)


def hand_over(guard: "subprocess.Popen[str]") -> None:
    """Forget a guard that others will end, without the warning that it still runs."""
    guard.returncode = 0


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or fail it where STEPLOG_REQUIRE_KAFKA=1 says that brokers must be there."""
    if REQUIRED:
        pytest.fail(f"STEPLOG_REQUIRE_KAFKA=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def require_jars() -> None:
    """Skip or fail the test where no broker can be started from its jars."""
    try:
        local_kafka.fetch_jars()
        local_kafka.java()
    except local_kafka.KafkaMissingError as error:
        skip_or_fail(f"no broker can be started here: {error}")


@contextmanager
def running_broker(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """One broker with its data in `folder`; it is gone at the end."""
    with _brokers_for_a_test(folder, 1, settings) as brokers:
        yield brokers[0]


@contextmanager
def running_cluster(
    folder: Path, count: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster that elects new leaders within 3 to 7 s; it is gone at the end."""
    with _brokers_for_a_test(folder, count, {**FAST_FAILOVER, **(settings or {})}) as brokers:
        yield Cluster(brokers)


@contextmanager
def _brokers_for_a_test(
    folder: Path, count: int, settings: Mapping[str, str] | None
) -> Iterator[list[Broker]]:
    require_jars()
    brokers = start_brokers(folder, count, os.getpid(), settings or {})
    try:
        yield brokers
    except BaseException:
        print(local_kafka.tail_of([broker.node for broker in brokers]))
        raise
    finally:
        for broker in brokers:
            broker.kill()
            shutil.rmtree(broker.node.folder / "data", ignore_errors=True)


def start_brokers(
    folder: Path,
    count: int,
    owner: int,
    settings: Mapping[str, str],
    *,
    remove: Path | None = None,
) -> list[Broker]:
    """Start so many brokers on new data; they end with the process `owner`, if not before.

    If they end for that reason, the folder `remove` goes too. Raises local_kafka's
    BrokerFailedError with what they logged, and KafkaMissingError.
    """
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            return _start_brokers(folder, count, owner, settings, remove)
        except local_kafka.BrokerFailedError as error:
            # Another may have taken a port since it was found free.
            if not tries_left or "already in use" not in str(error):
                raise
            shutil.rmtree(folder)
    raise AssertionError("the last try returned or raised")


def _start_brokers(
    folder: Path, count: int, owner: int, settings: Mapping[str, str], remove: Path | None
) -> list[Broker]:
    ports = free_ports(2 * count)
    nodes = [
        local_kafka.Node(number + 1, folder / f"broker-{number + 1}", *ports[2 * number :][:2])
        for number in range(count)
    ]
    cluster_id = local_kafka.new_cluster_id()

    def prepare(node: Any) -> None:
        theirs = {**local_kafka.settings_of(node, nodes), **FOR_TESTS, **settings}
        local_kafka.prepare(node, theirs, cluster_id)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(prepare, nodes))
    copies = min(3, count)
    brokers = [Broker(node, owner=owner, copies=copies, remove=remove) for node in nodes]
    try:
        local_kafka.wait_until_up(
            nodes, lambda: all(broker.is_running for broker in brokers), START_S_MAX
        )
    except BaseException:
        for broker in brokers:
            broker.kill()
        raise
    return brokers


def free_ports(count: int) -> list[int]:
    """So many ports of 127.0.0.1 that nobody listens on now.

    They stay this process's until it ends: no other test run finds one free, also while what is to
    listen there has not yet begun, or was killed.
    """
    found: list[int] = []
    # Not from a seed: runs at the same time must not look in the same places.
    candidates = random.SystemRandom()
    while len(found) < count:
        port = candidates.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex((local_kafka.HOST, port)) != 0 and _is_reserved_for_us(port):
                found.append(port)
    return found


def _is_reserved_for_us(port: int) -> bool:
    """Reserve the port; False where it was given to somebody before, be it this process."""
    folder = Path(tempfile.gettempdir()) / f"steplog-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    held = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return False
    reserved[port] = held
    return True
