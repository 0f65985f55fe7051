"""Which Kafka broker a test run has, and the one that all its processes share.

In this order: STEPLOG_TEST_BOOTSTRAP; a broker started from its jars (Java 17 or later, and Maven
until the jars are in the cache); Docker with its compose plugin; else none, and the tests that
need one are skipped, or fail under STEPLOG_REQUIRE_KAFKA=1.

A run is one pytest with its xdist workers. The first of them that needs the broker starts it; the
others find it in the run's folder. It belongs to the run's first process: that one stops it, and if
that one is killed, the broker's guard does. Used by tests/support/broker_plugin.py.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.brokers import free_ports, hand_over, start_brokers
from tests.support.data import ROOT
from tests.support.local_kafka import local_kafka

COMPOSE = ROOT / "docker/compose.yaml"
DOCKER_START_S_MAX = 300.0
"""With the image to be fetched."""

STOP_S_MAX = 40.0
PATIENT = {"broker.session.timeout.ms": "30000"}
"""Nobody kills this one, so it need not be missed soon: a loaded machine may be slow."""

GIVEN_ANSWER_S_MAX = 5.0


class Source(NamedTuple):
    """Where the run's broker comes from; `start` makes it in a folder, for its owner."""

    name: str
    start: "Callable[[Path, int], Shared] | None"


class Shared(NamedTuple):
    """The run's broker, as the run's folder keeps it. Without a bootstrap, `problem` says why."""

    bootstrap: str | None
    problem: str | None = None
    failed: bool = False
    guard: int | None = None
    log: str | None = None
    compose_project: str | None = None


class Run(NamedTuple):
    """The process that the run began with, and the folder for what the run shares."""

    owner: int
    folder: Path

    @classmethod
    def begin(cls) -> "Run":
        """A new run of this process. Its folder is made when something is put there."""
        name = f"steplog-run-{os.getpid()}-{time.time_ns():x}"
        return cls(os.getpid(), Path(tempfile.gettempdir()) / name)

    @classmethod
    def parse(cls, text: str) -> "Run":
        """The run that another process has written with `str`."""
        owner, _, folder = text.partition(":")
        return cls(int(owner), Path(folder))

    def __str__(self) -> str:
        return f"{self.owner}:{self.folder}"


def find_source() -> Source:
    """What this machine has, in the order of the module's docstring. Starts and fetches nothing."""
    given = os.environ.get("STEPLOG_TEST_BOOTSTRAP")
    if given:
        return Source(f"at {given} (STEPLOG_TEST_BOOTSTRAP)", lambda *_: _given(given))
    try:
        java = local_kafka.java()[1]
        kept = local_kafka.jars_folder().exists()
        if not kept:
            local_kafka.maven()
        how = "cached" if kept else "to be fetched by Maven"
        name = f"{local_kafka.kafka_version()} on Java {java}, jars {how}"
        return Source(name, _start_from_jars)
    except local_kafka.KafkaMissingError as error:
        problem = str(error)
    if local_kafka.has_compose():
        return Source(f"in Docker ({problem})", _start_in_docker)
    return Source(f"none: {problem}; no Docker with its compose plugin answers here", None)


def shared_broker(run: Run) -> Shared:
    """The run's broker; the first that asks starts it, the others wait for that."""
    run.folder.mkdir(mode=0o700, exist_ok=True)
    told = run.folder / "broker.json"
    with (run.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            # A failure is kept too: the other workers must not each wait for the same one.
            told.write_text(json.dumps(_start(run)), encoding="utf-8")
        return Shared(*json.loads(told.read_text(encoding="utf-8")))


def _start(run: Run) -> Shared:
    source = find_source()
    if source.start is None:
        return Shared(None, f"Kafka broker: {source.name}")
    try:
        return source.start(run.folder, run.owner)
    except local_kafka.KafkaMissingError as error:
        if source.start is _start_from_jars and local_kafka.has_compose():
            return _start_in_docker(run.folder, run.owner)
        return Shared(None, f"Kafka broker: none: {error}")
    except local_kafka.BrokerFailedError as error:
        return Shared(None, str(error), failed=True)


def _given(bootstrap: str) -> Shared:
    for server in bootstrap.split(","):
        host, _, port = server.rpartition(":")
        if local_kafka.brokers_known_at(int(port), host=host, timeout_s=GIVEN_ANSWER_S_MAX):
            return Shared(bootstrap)
    return Shared(None, f"STEPLOG_TEST_BOOTSTRAP={bootstrap} does not answer", failed=True)


def _start_from_jars(folder: Path, owner: int) -> Shared:
    local_kafka.fetch_jars()
    (broker,) = start_brokers(folder / "kafka", 1, owner, PATIENT, remove=folder)
    broker.hand_over()
    return Shared(broker.bootstrap, guard=broker.guard_pid, log=str(broker.log))


def _start_in_docker(folder: Path, owner: int) -> Shared:
    (port,) = free_ports(1)
    project = f"steplog-test-{owner}-{port}"
    log = folder / "compose.log"
    command = ["docker", "compose", "--project-name", project, "--file", str(COMPOSE)]
    launched = local_kafka.launch_guarded(
        [*command, "up", "--no-color", "kafka"],
        owner,
        log=log,
        grace_s=30.0,
        remove=folder,
        environment={**os.environ, "STEPLOG_KAFKA_PORT": str(port)},
    )
    guard = launched.guard
    node = local_kafka.Node(1, folder, port, port)
    try:
        local_kafka.wait_until_up([node], lambda: guard.poll() is None, DOCKER_START_S_MAX)
    except local_kafka.BrokerFailedError as error:
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise local_kafka.BrokerFailedError(f"{error}\n{tail}") from error
    hand_over(guard)
    return Shared(
        f"{local_kafka.HOST}:{port}", guard=guard.pid, log=str(log), compose_project=project
    )


def stop_shared_broker(run: Run) -> None:
    """Stop the run's broker if it has one, wait for its end, and remove the run's folder."""
    told = run.folder / "broker.json"
    if told.exists():
        shared = Shared(*json.loads(told.read_text(encoding="utf-8")))
        if shared.guard is not None:
            _end(shared.guard)
        if shared.compose_project is not None:
            command = ["docker", "compose", "--project-name", shared.compose_project]
            subprocess.run([*command, "down", "--volumes"], capture_output=True, check=False)
    shutil.rmtree(run.folder, ignore_errors=True)


def _end(guard: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(guard, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S_MAX
        while time.monotonic() < deadline:
            # It may be a child of this process, which stays until somebody waits for it.
            with suppress(ChildProcessError):
                os.waitpid(guard, os.WNOHANG)
            os.kill(guard, 0)
            time.sleep(0.01)
