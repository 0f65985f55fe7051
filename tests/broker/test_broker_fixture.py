"""The brokers that tests stand on: they do what is done to them, and nothing is left behind.

The runs within these tests are other pytests, in other processes, that load the plugin.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import (
    START_S_MAX,
    Broker,
    KafkaAddress,
    free_ports,
    require_jars,
    running_broker,
    running_cluster,
)
from tests.support.data import ROOT
from tests.support.local_kafka import local_kafka
from tests.support.processes import finish, python_script

END_S_MAX = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


def write(broker: KafkaAddress, topic: str, value: bytes) -> int:
    """One record, acknowledged; its offset."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        return int(producer.send(topic, value, partition=0).get(timeout=30).offset)
    finally:
        producer.close()


def read_all(broker: KafkaAddress, topic: str) -> list[bytes]:
    """Every record of the topic's first partition."""
    from kafka import KafkaConsumer, TopicPartition

    first = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    try:
        consumer.assign([first])
        end = consumer.end_offsets([first])[first]
        found: list[bytes] = []
        while consumer.position(first) < end:
            for records in consumer.poll(1000).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or only its exit code."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + END_S_MAX
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, f"of {pids} some are still there"
        time.sleep(0.05)


def test_a_topic_is_made_and_written(broker: Broker) -> None:
    topic = broker.new_topic(partitions=3, settings={"retention.ms": "-1"})
    assert sorted(broker.partitions_of(topic)) == [0, 1, 2]
    assert write(broker, topic, b"one") == 0
    broker.delete_topics(topic, "never-made")
    with broker.admin() as admin:
        assert topic not in admin.list_topics()


def test_a_topic_is_never_made_by_mistake(broker: Broker) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, max_block_ms=500)
    with pytest.raises(KafkaTimeoutError):
        producer.send("never-made", b"lost")
    producer.close()


def test_a_frozen_broker_answers_when_it_is_thawed(broker: Broker) -> None:
    port = broker.node.port
    broker.freeze()
    assert broker.is_running
    assert local_kafka.brokers_known_at(port, timeout_s=0.3) == []
    broker.thaw()
    # Its controller was frozen with it, and may take it for gone at first.
    broker.wait_until_up()
    assert local_kafka.brokers_known_at(port, timeout_s=10) == [1]


@pytest.mark.parametrize("end", ["kill", "stop", "kill frozen"])
def test_what_was_acknowledged_is_there_after_a_restart(broker: Broker, end: str) -> None:
    topic = broker.new_topic()
    assert write(broker, topic, end.encode()) == 0
    pids = broker.pid, broker.guard_pid
    if end == "kill frozen":
        broker.freeze()
    if end == "stop":
        broker.stop()
    else:
        broker.kill()
    assert not broker.is_running
    assert is_gone(pids[0])
    assert local_kafka.brokers_known_at(broker.node.port) == []
    broker.restart()
    assert broker.pid != pids[0]
    assert read_all(broker, topic) == [end.encode()]
    assert write(broker, topic, b"more") == 1


def test_a_start_that_fails_says_what_the_broker_said(tmp_path: Path) -> None:
    require_jars()
    with (
        pytest.raises(local_kafka.BrokerFailedError, match=r"num\.io\.threads"),
        running_broker(tmp_path, {"num.io.threads": "none"}),
    ):
        pass


@pytest.mark.brokers
def test_another_leads_when_the_leader_is_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        topic = cluster.new_topic(settings={"min.insync.replicas": "2"})
        assert write(cluster, topic, b"before") == 0
        leader = cluster.leader_of(topic, 0)
        leader.kill()
        assert write(cluster, topic, b"after") == 1
        assert cluster.leader_of(topic, 0) is not leader
        leader.restart()
        cluster.wait_until_in_sync(topic)
        assert read_all(cluster, topic) == [b"before", b"after"]
        pids = [pid for broker in cluster.brokers for pid in (broker.pid, broker.guard_pid)]
    assert all(is_gone(pid) for pid in pids)
    assert not list(tmp_path.glob("*/data"))


# --- a killed owner --------------------------------------------------------------------------

OWNER = """
import sys, time
from pathlib import Path
from tests.support.brokers import running_broker

with running_broker(Path(sys.argv[1])) as broker:
    broker.freeze()
    print(broker.pid, broker.guard_pid, flush=True)
    time.sleep(600)
"""


def test_a_broker_ends_with_its_owner_even_if_frozen(tmp_path: Path) -> None:
    require_jars()
    owner = python_script(OWNER, tmp_path)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    owner.kill()
    owner.communicate()
    wait_until_gone(*pids)


# --- the run's shared broker -----------------------------------------------------------------

SHARING = """
import os, shutil, sys, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.mark.parametrize("number", range(4))
def test_shared(kafka_broker, new_topic, number):
    assert len(kafka_broker.partitions_of(new_topic(2))) == 2
    folder = os.environ["STEPLOG_TEST_RUN"].partition(":")[2]
    shutil.copy(f"{folder}/broker.json", HERE / f"told-{number}.json")
    while (HERE / "wait").exists():
        time.sleep(0.05)

def test_none():
    pass
"""


def start_run(folder: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """Another pytest on a file in `folder`, to which no broker is given."""
    (folder / "test_sharing.py").write_text(SHARING, encoding="utf-8")
    ours = {name: value for name, value in os.environ.items() if name[:8] != "STEPLOG_"}
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-rA"]
    command += ["--rootdir", str(folder), "-p", "tests.support.broker_plugin", *arguments]
    return subprocess.Popen(
        [*command, str(folder / "test_sharing.py")],
        cwd=ROOT,
        env={**ours, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish_run(run: "subprocess.Popen[str]", code: int = 0) -> str:
    """What it reported."""
    told, _ = run.communicate(timeout=300)
    assert run.returncode == code, told
    return told


def broker_told(folder: Path) -> tuple[str, int, Path]:
    """Address, guard and log of the one broker that all tests in `folder` had."""
    told = {path.read_text(encoding="utf-8") for path in folder.glob("told-*.json")}
    assert len(told) == 1, told
    bootstrap, _problem, _failed, guard, log, _project = json.loads(told.pop())
    return bootstrap, guard, Path(log)


def test_a_run_has_one_broker_and_leaves_none(tmp_path: Path) -> None:
    require_jars()
    told = finish_run(start_run(tmp_path, "-n", "2"))
    assert f"Kafka broker: {local_kafka.kafka_version()} on Java " in told
    assert len(list(tmp_path.glob("told-*.json"))) == 4
    _bootstrap, guard, log = broker_told(tmp_path)
    assert is_gone(guard)
    assert not log.exists()


def test_a_killed_run_leaves_no_broker(tmp_path: Path) -> None:
    require_jars()
    (tmp_path / "wait").touch()
    # The broker is started by the worker, and belongs to the process that is killed.
    run = start_run(tmp_path, "-n", "1")
    try:
        deadline = time.monotonic() + 2 * START_S_MAX
        while not list(tmp_path.glob("told-*.json")):
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        run.kill()
        (tmp_path / "wait").unlink()
        told, _ = run.communicate()
    bootstrap, guard, log = broker_told(tmp_path)
    wait_until_gone(guard)
    assert local_kafka.brokers_known_at(int(bootstrap.rpartition(":")[2])) == [], told
    assert not log.parents[2].exists(), "what the run had in a temporary folder"


def test_no_broker_is_started_where_no_test_needs_one(tmp_path: Path) -> None:
    assert "1 passed" in finish_run(start_run(tmp_path, "-k", "none"))
    told = finish_run(start_run(tmp_path, "-m", "not kafka"))
    assert "1 passed, 4 deselected" in told
    assert not list(tmp_path.glob("told-*.json"))


def path_without_java(folder: Path) -> dict[str, str]:
    """An environment that has neither Java nor Maven nor Docker, and no jars kept."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    return {"PATH": str(tools), "JAVA_HOME": "", "XDG_CACHE_HOME": str(folder / "cache")}


def test_without_a_broker_the_skips_are_told(tmp_path: Path) -> None:
    told = finish_run(start_run(tmp_path, **path_without_java(tmp_path)))
    assert "Kafka broker: none: no Java 17 or later: no java on the PATH" in told
    assert "tests that need one are SKIPPED" in told
    assert "1 passed, 4 skipped" in told


def test_where_a_broker_is_required_its_absence_fails(tmp_path: Path) -> None:
    environment = {**path_without_java(tmp_path), "STEPLOG_REQUIRE_KAFKA": "1"}
    told = finish_run(start_run(tmp_path, **environment), code=1)
    assert "tests that need one FAIL" in told
    assert "STEPLOG_REQUIRE_KAFKA=1, but Kafka broker: none: no Java 17 or later" in told
    assert "1 passed, 4 errors" in told


def test_a_given_broker_comes_first(tmp_path: Path, broker: Broker) -> None:
    environment = {**path_without_java(tmp_path), "STEPLOG_TEST_BOOTSTRAP": broker.bootstrap}
    told = finish_run(start_run(tmp_path, **environment))
    assert f"Kafka broker: at {broker.bootstrap} (STEPLOG_TEST_BOOTSTRAP)" in told
    assert "5 passed" in told
    assert broker.is_running


def test_a_given_broker_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    given = f"127.0.0.1:{port}"
    told = finish_run(start_run(tmp_path, STEPLOG_TEST_BOOTSTRAP=given), code=1)
    assert f"no Kafka broker: STEPLOG_TEST_BOOTSTRAP={given} does not answer" in told
    assert "1 passed, 4 errors" in told


DOCKER = """#!{python}
import os, sys
from pathlib import Path

here = Path(__file__).parent
with (here / "told").open("a") as told:
    print(*sys.argv[1:], file=told)
if "up" in sys.argv:
    # What the container would do, for as long as `docker compose up` is there.
    command = [sys.executable, str(here / "proxy.py"), os.environ["STEPLOG_KAFKA_PORT"]]
    os.execv(sys.executable, command)
"""

# Answers the one question that is asked here as a single broker does.
PROXY = """
import socket, struct, sys

answer = struct.pack(">ii", 0, 1) + struct.pack(">ih", 1, 1) + b"h" + struct.pack(">ih", 9092, -1)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        with server.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(struct.pack(">i", len(answer)) + answer)
"""


def test_docker_comes_where_there_is_no_java(tmp_path: Path) -> None:
    environment = path_without_java(tmp_path)
    docker = tmp_path / "tools/docker"
    docker.write_text(DOCKER.format(python=sys.executable), encoding="utf-8")
    docker.chmod(0o755)
    (tmp_path / "tools/proxy.py").write_text(PROXY, encoding="utf-8")
    told = finish_run(start_run(tmp_path, "--setup-plan", **environment))
    assert "Kafka broker: in Docker (no Java 17 or later" in told
    probe = "from tests.support.broker_sources import *; import os\n"
    probe += "run = Run.begin(); shared = shared_broker(run); print(shared.bootstrap)\n"
    probe += "stop_shared_broker(run)\n"
    script = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    port = int(script.stdout.rpartition(":")[2])
    assert local_kafka.brokers_known_at(port) == []
    commands = (tmp_path / "tools/told").read_text(encoding="utf-8").splitlines()
    (up,) = [each for each in commands if " up " in each]
    (down,) = [each for each in commands if " down " in each]
    project = up.split()[2]
    assert up.endswith("up --no-color kafka")
    assert str(ROOT / "docker/compose.yaml") in up
    assert down == f"compose --project-name {project} down --volumes"


def test_free_ports_are_free_and_not_those_for_outgoing_connections() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given_out.read_text().split()[0]) if given_out.exists() else 32_768
    assert all(1024 < port < first for port in ports)


RESERVING = """
import sys
from tests.support import brokers
brokers.PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + 9)
print(*brokers.free_ports(3))
"""


def test_a_port_is_given_to_one_process_alone() -> None:
    """Between the choice and a start, or a kill and a restart, nobody listens there."""
    (first,) = free_ports(1)
    given = finish(python_script(RESERVING, str(first))).split()
    assert len(set(given)) == 3
    assert str(first) not in given


def test_a_broker_ends_with_its_guard(broker: Broker) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux kills a child for its parent's end")
    pid = broker.pid
    os.kill(broker.guard_pid, signal.SIGKILL)
    wait_until_gone(pid)
    assert not broker.is_running
