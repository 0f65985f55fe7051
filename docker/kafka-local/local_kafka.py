"""Kafka brokers on this machine from their jars: fetched by Maven, started in KRaft mode.

Needs Java 17 or later, and Maven until the jars are in the cache. Used by run.py (`make kafka`) and
by the tests' brokers (tests/support/brokers.py). Standard library only: it serves a checkout that
has no environment yet. Raises KafkaMissingError and BrokerFailedError.
"""

import base64
import fcntl
import functools
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"
HOST: Final = "127.0.0.1"
JAVA_MAJOR_MIN: Final = 17
FETCH_S_MAX: Final = 300
LOG_LINES_SHOWN: Final = 30


class KafkaMissingError(Exception):
    """What a broker needs is not on this machine; the message says what, and what to do."""


class BrokerFailedError(Exception):
    """A broker did not come up; the message ends with the last lines of its log."""


class Node(NamedTuple):
    """One broker that is its own controller or one of several: a number, a folder, two ports."""

    number: int
    folder: Path
    port: int
    controller_port: int

    @property
    def log(self) -> Path:
        """Where its output goes: warnings and errors."""
        return self.folder / "broker.log"


class Launched(NamedTuple):
    """A broker's process and the guard that ends it when its owner is gone; see guard.py."""

    guard: "subprocess.Popen[str]"
    pid: int


# --- what a broker needs ---------------------------------------------------------------------


@functools.cache
def java() -> tuple[str, str]:
    """The path of a Java of 17 or later, and its version. JAVA_HOME comes before the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = []
    for path in [str(Path(home, "bin/java")) if home else None, shutil.which("java")]:
        if path is None or not os.access(path, os.X_OK):
            continue
        told = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "((\d+)[^"]*)"', told.stderr)
        if version and int(version[2]) >= JAVA_MAJOR_MIN:
            return path, version[1]
        found.append(f"{path} is {version[1] if version else 'of no version it tells'}")
    raise KafkaMissingError(
        f"no Java {JAVA_MAJOR_MIN} or later: {'; '.join(found) or 'no java on the PATH'}; "
        "install one (Debian, Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME"
    )


def maven() -> str:
    """The path of Maven."""
    found = shutil.which("mvn")
    if found is None:
        raise KafkaMissingError("no Maven: no mvn on the PATH; install it (Debian, Ubuntu: maven)")
    return found


def has_compose() -> bool:
    """Whether Docker answers here and knows `docker compose`."""
    if shutil.which("docker") is None:
        return False
    asked = (["docker", "compose", "version"], ["docker", "version"])
    return all(
        subprocess.run(command, capture_output=True, check=False).returncode == 0
        for command in asked
    )


def kafka_version() -> str:
    """The broker's version, as pom.xml has it."""
    found = re.search(r"<artifactId>kafka_2.13</artifactId>\s*<version>([^<]+)<", POM.read_text())
    assert found is not None
    return found[1]


def jars_folder() -> Path:
    """Where the jars of this pom.xml are kept, outside of any checkout; it may not exist yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return cache / "steplog/kafka-local" / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]


def fetch_jars() -> Path:
    """The folder of the jars, which are fetched if they are not there. Raises KafkaMissingError.

    What was half fetched is never used; two that fetch at once wait for each other.
    """
    folder = jars_folder()
    if folder.exists():
        return folder
    mvn = maven()
    java()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _fetch(mvn, folder, lock.fileno())
    except OSError as error:
        raise KafkaMissingError(f"the broker's jars cannot be kept: {error}") from error
    return folder


def _fetch(mvn: str, folder: Path, lock: int) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    print(f"fetching Kafka {kafka_version()} into {folder}", file=sys.stderr, flush=True)
    command = [mvn, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(POM)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        told = subprocess.run(
            [*command, f"-DoutputDirectory={partial}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_S_MAX,
            check=False,
            pass_fds=[lock],
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaMissingError(f"Maven did not end within {FETCH_S_MAX} s") from error
    if told.returncode != 0 or not list(partial.glob("kafka_2.13-*.jar")):
        raise KafkaMissingError(f"Maven could not fetch the broker:\n{told.stdout.strip()[-2000:]}")
    partial.rename(folder)


# --- settings, start, and the question whether it is up --------------------------------------


def new_cluster_id() -> str:
    """A random id as Kafka writes them; none starts with a dash, which would be an option."""
    while (found := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return found


def settings_of(node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    """The settings of one of these nodes: a cluster that keeps what it was given.

    Topics are only created on purpose: one that a typing error made would have the wrong settings.
    """
    copies = min(3, len(nodes))
    in_sync = max(1, copies - 1)
    voters = [f"{each.number}@{HOST}:{each.controller_port}" for each in nodes]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(node.folder / "data"),
        "auto.create.topics.enable": "false",
        "min.insync.replicas": str(in_sync),
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "2",
    }


def prepare(node: Node, settings: Mapping[str, str], cluster_id: str) -> None:
    """Write the node's settings, and format its data unless it has some."""
    node.folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    properties = node.folder / "server.properties"
    properties.write_text(text, encoding="utf-8")
    if (node.folder / "data/meta.properties").exists():
        return
    tool = [*_java_command(128), "kafka.tools.StorageTool", "format"]
    told = subprocess.run(
        [*tool, "--cluster-id", cluster_id, "--config", str(properties)],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode != 0:
        raise BrokerFailedError(f"{node.folder} cannot be formatted:\n{told.stdout}{told.stderr}")


def _java_command(heap_mb: int) -> list[str]:
    flags = [f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    flags += [f"-Dlog4j.configuration={(HERE / 'log4j.properties').as_uri()}"]
    # Kafka also loads a log4j 2 that is not used, and that complains of having no settings.
    flags += ["-Dlog4j2.StatusLogger.level=OFF"]
    return [java()[0], *flags, "-cp", f"{fetch_jars()}/*"]


def launch(
    node: Node,
    owner: int,
    *,
    heap_mb: int = 256,
    grace_s: float = 0.0,
    remove: Path | None = None,
) -> Launched:
    """Start the prepared node. It ends with the process `owner`, if not before."""
    broker = [*_java_command(heap_mb), "kafka.Kafka", str(node.folder / "server.properties")]
    return launch_guarded(broker, owner, log=node.log, grace_s=grace_s, remove=remove)


def launch_guarded(
    command: Sequence[str],
    owner: int,
    *,
    log: Path,
    grace_s: float,
    remove: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Launched:
    """Start a command that ends with the process `owner`, if not before; see guard.py.

    With `remove`, that folder goes when the owner is gone.
    """
    guard = [sys.executable, "-I", "-S", str(HERE / "guard.py"), "--while", str(owner)]
    if remove is not None:
        guard += ["--remove", str(remove)]
    started = subprocess.Popen(
        [*guard, "--grace", str(grace_s), "--log", str(log), "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        # Ctrl-C in a terminal goes to all processes of its group: a broker ends when it is told.
        start_new_session=True,
    )
    assert started.stdout is not None
    with started.stdout as told:
        line = told.readline()
    if not line:
        raise BrokerFailedError(f"guard.py could not start {command[0]}: exit {started.wait()}")
    return Launched(started, int(line))


def wait_until_up(nodes: Sequence[Node], is_alive: Callable[[], bool], timeout_s: float) -> None:
    """Wait until each of the nodes answers and knows all of them. Raises BrokerFailedError."""
    deadline = time.monotonic() + timeout_s
    for node in nodes:
        while len(brokers_known_at(node.port)) < len(nodes):
            if not is_alive():
                raise BrokerFailedError(f"a broker ended while it started:\n{tail_of(nodes)}")
            if time.monotonic() > deadline:
                raise BrokerFailedError(f"no broker after {timeout_s:.0f} s:\n{tail_of(nodes)}")
            time.sleep(0.05)


def tail_of(nodes: Sequence[Node]) -> str:
    """The last lines of each node's log, with its path."""
    parts = []
    for node in nodes:
        lines = node.log.read_text(errors="replace").splitlines() if node.log.exists() else []
        parts.append(f"{node.log}:\n" + "\n".join(lines[-LOG_LINES_SHOWN:]))
    return "\n".join(parts)


def brokers_known_at(port: int, *, host: str = HOST, timeout_s: float = 1.0) -> list[int]:
    """The ids of the brokers that the one at this port knows to be up; none if it is not.

    A Metadata request of version 1 for no topic, by hand: a script without packages must be able
    to ask, and a port that accepts a connection is not yet a broker that can be used.
    """
    body = struct.pack(">hhih", 3, 1, 0, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as answer:
                data = answer.read(*struct.unpack(">i", answer.read(4)))
        (count,) = struct.unpack_from(">i", data, 4)
        return list(_broker_ids(data, count))
    except (OSError, struct.error):
        return []


def _broker_ids(data: bytes, count: int) -> Iterator[int]:
    place = 8
    for _ in range(count):
        broker, host_bytes = struct.unpack_from(">ih", data, place)
        place += 6 + host_bytes + 4
        (rack_bytes,) = struct.unpack_from(">h", data, place)
        place += 2 + max(rack_bytes, 0)
        yield broker
