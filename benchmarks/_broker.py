"""A Kafka broker for benchmarks, and topics on it.

`STEPLOG_BENCH_BOOTSTRAP` names one that is there already; else one is started from its jars, as
the tests' are, with its data in a temporary folder, and ends with the benchmark. Where neither can
be had (no Java 17), the benchmark says so and measures nothing.
"""

import importlib.util
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import Any, Final, NamedTuple

from eventlog.kafka.client import TopicClient
from eventlog.kafka.connection import open_client

BOOTSTRAP_VARIABLE: Final = "STEPLOG_BENCH_BOOTSTRAP"
LOCAL_KAFKA: Final = Path(__file__).resolve().parents[1] / "docker/kafka-local/local_kafka.py"
START_S_MAX: Final = 90.0


class BrokerMissingError(Exception):
    """There is no broker, and none can be started here; the message says why."""


class BenchBroker(NamedTuple):
    """Where a broker answers; `pid` is its process, if it is this benchmark's own."""

    bootstrap: str
    pid: int | None

    def freeze(self) -> None:
        """SIGSTOP to one of our own: connections stay open, and nobody answers."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def topic(self, partitions: int, library: str = "kafka-python") -> Iterator[TopicClient]:
        """A client of a new topic with the settings of a log; deleted afterwards."""
        client = open_client(self.bootstrap.split(","), f"bench-{token_hex(8)}", client=library)
        client.create_topic(client.topic, partitions, 1, {"retention.ms": "-1"})
        try:
            yield client
        finally:
            client.delete_topic(client.topic)
            client.close()


@contextmanager
def bench_broker(*, own: bool = False) -> Iterator[BenchBroker]:
    """A broker to measure on; with `own` never one that others may use. `BrokerMissingError`."""
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given and not own:
        yield BenchBroker(given, None)
        return
    local_kafka = _local_kafka()
    place = os.environ.get("STEPLOG_BENCH_FOLDER")
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        try:
            node, launched = _start(local_kafka, Path(folder))
        except (local_kafka.KafkaMissingError, local_kafka.BrokerFailedError) as error:
            raise BrokerMissingError(str(error).partition("\n")[0]) from error
        try:
            yield BenchBroker(f"{local_kafka.HOST}:{node.port}", launched.pid)
        finally:
            os.kill(launched.pid, signal.SIGKILL)
            launched.guard.wait()


def _start(local_kafka: ModuleType, folder: Path) -> tuple[Any, Any]:
    port, controller_port = _free_port(), _free_port()
    node = local_kafka.Node(1, folder / "broker", port, controller_port)
    local_kafka.prepare(node, local_kafka.settings_of(node, [node]), local_kafka.new_cluster_id())
    launched = local_kafka.launch(node, os.getpid())
    local_kafka.wait_until_up([node], lambda: launched.guard.poll() is None, START_S_MAX)
    return node, launched


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _local_kafka() -> ModuleType:
    """No package holds it, so it comes from its file."""
    spec = importlib.util.spec_from_file_location("local_kafka", LOCAL_KAFKA)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["local_kafka"] = module
    spec.loader.exec_module(module)
    return module
