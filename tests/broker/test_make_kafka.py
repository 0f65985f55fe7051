"""`make kafka`: a broker for a person, who reads what to do next, and stops it with Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog.kafka.location import parse_kafka_url
from tests.support.brokers import KafkaAddress, free_ports, require_jars
from tests.support.data import ROOT
from tests.support.local_kafka import local_kafka

SCRIPT = ROOT / "docker/kafka-local/run.py"


def start(folder: Path, port: int) -> "subprocess.Popen[str]":
    """The script, as make runs it."""
    return subprocess.Popen(
        [sys.executable, SCRIPT, "start", "--folder", folder, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until_told(broker: "subprocess.Popen[str]") -> str:
    """What it says until it says how to stop it; all of it if it ends before."""
    assert broker.stdout is not None
    lines = []
    for line in broker.stdout:
        lines.append(line)
        if "stop:" in line:
            break
    return "".join(lines)


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def port() -> int:
    """One that is free together with the next one."""
    while True:
        (first,) = free_ports(1)
        if local_kafka.brokers_known_at(first + 1) == []:
            return first


def test_a_person_starts_uses_and_stops_it(tmp_path: Path, port: int) -> None:
    require_jars()
    broker = start(tmp_path / "data", port)
    told = read_until_told(broker)
    url = f"kafka://127.0.0.1:{port}/steplog"
    assert f"workspace: {url}\n" in told
    assert f"steplog -w {url} topic create\n" in told
    assert parse_kafka_url(url).bootstrap == (f"127.0.0.1:{port}",)
    topic = KafkaAddress(f"127.0.0.1:{port}").new_topic()

    # Another cannot have its folder, nor its port; neither disturbs it.
    refused = run("start", "--folder", tmp_path / "data", "--port", str(port))
    assert (refused.returncode, refused.stderr) == (
        1,
        f"a broker runs in {tmp_path / 'data'} already; `make kafka-stop` ends it\n",
    )
    refused = run("start", "--folder", tmp_path / "other", "--port", str(port))
    assert f"port {port} of 127.0.0.1 is taken" in refused.stderr

    # Ctrl-C reaches the script alone: the broker has a group of its own.
    broker.send_signal(signal.SIGINT)
    rest, _ = broker.communicate(timeout=60)
    assert (broker.returncode, rest) == (0, "stopping\n")
    assert local_kafka.brokers_known_at(port) == []

    broker = start(tmp_path / "data", port)
    read_until_told(broker)
    assert list(KafkaAddress(f"127.0.0.1:{port}").partitions_of(topic)) == [0]
    stopped = run("stop", "--folder", tmp_path / "data")
    assert stopped.stdout == f"stopped the broker in {tmp_path / 'data'}\n"
    assert broker.wait(60) == 0
    broker.communicate()
    assert local_kafka.brokers_known_at(port) == []
    stopped = run("stop", "--folder", tmp_path / "data")
    assert (stopped.returncode, stopped.stderr) == (1, f"no broker runs in {tmp_path / 'data'}\n")


def test_a_killed_script_leaves_no_broker(tmp_path: Path, port: int) -> None:
    require_jars()
    broker = start(tmp_path, port)
    read_until_told(broker)
    broker.kill()
    broker.communicate()
    # The port is free again once the broker has ended, as it does in good order.
    broker = start(tmp_path, port)
    while "is taken" in (told := read_until_told(broker)) or "already" in told:
        broker.communicate()
        broker = start(tmp_path, port)
    assert "workspace:" in told
    broker.terminate()
    assert broker.wait(60) == 0
    broker.communicate()


@pytest.mark.parametrize("option", ["-P", "-I"])
def test_it_runs_where_python_looks_for_no_module_beside_a_script(
    tmp_path: Path, option: str
) -> None:
    """README recommends `python -P`; the script ended with a ModuleNotFoundError."""
    stopped = subprocess.run(
        [sys.executable, option, SCRIPT, "stop", "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (stopped.returncode, stopped.stderr) == (1, f"no broker was started in {tmp_path}\n")


def test_a_folder_that_was_never_one_is_said_to_be_so(tmp_path: Path) -> None:
    stopped = run("stop", "--folder", tmp_path)
    assert (stopped.returncode, stopped.stderr) == (1, f"no broker was started in {tmp_path}\n")


@pytest.mark.parametrize("command", ["start", "fetch"])
def test_without_java_and_docker_it_says_what_to_install(tmp_path: Path, command: str) -> None:
    nothing = {"PATH": str(tmp_path), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path)}
    told = run(command, "--folder", tmp_path / "data", **nothing)
    assert told.returncode == 1
    assert "no Java 17 or later: no java on the PATH; install one" in told.stderr
    assert "or have Docker with its compose plugin running" in told.stderr
    assert not (tmp_path / "data").exists()
