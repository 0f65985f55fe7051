"""Run one Kafka broker on this machine, in the foreground: `make kafka`.

    python docker/kafka-local/run.py start [--folder kafka-data] [--port 9092]
    python docker/kafka-local/run.py stop [--folder kafka-data]
    python docker/kafka-local/run.py fetch

`start` needs Java 17 or later and Maven (local_kafka.py), else Docker with its compose plugin; it
prints the workspace's URL and what to do next. Ctrl-C, or `stop` in another terminal, ends the
broker; its data stays. `fetch` gets the jars and starts nothing.
"""

import argparse
import contextlib
import fcntl
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

if sys.flags.safe_path:  # `python -P` looks for no module beside the script.
    sys.path.append(str(Path(__file__).resolve().parent))

from local_kafka import (
    HERE,
    HOST,
    BrokerFailedError,
    KafkaMissingError,
    Node,
    fetch_jars,
    has_compose,
    java,
    kafka_version,
    launch,
    new_cluster_id,
    prepare,
    settings_of,
    tail_of,
    wait_until_up,
)

COMPOSE: Final = HERE.parent / "compose.yaml"
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0


class _ToldToStop(BaseException):
    """SIGTERM came, from `stop` or from elsewhere."""


def start(folder: Path, port: int) -> None:
    """Run one broker in the foreground until Ctrl-C or SIGTERM. Raises BrokerFailedError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "running").open("a+") as running:
        try:
            fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"a broker runs in {folder} already; `make kafka-stop` ends it")
        running.truncate(0)
        running.write(str(os.getpid()))
        running.flush()
        signal.signal(signal.SIGTERM, _be_told)
        # A shell gives what it starts in the background a SIGINT that is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _run_in_foreground(Node(1, folder.resolve(), port, port + 1), folder)


def _run_in_foreground(node: Node, folder: Path) -> None:
    for port in (node.port, node.controller_port):
        if not _is_free(port):
            sys.exit(f"port {port} of {HOST} is taken; name another: make kafka PORT=19092")
    prepare(node, settings_of(node, [node]), new_cluster_id())
    launched = launch(node, os.getpid(), heap_mb=512, grace_s=STOP_S_MAX)
    try:
        wait_until_up([node], lambda: launched.guard.poll() is None, START_S_MAX)
        print(f"it answers at {HOST}:{node.port}; data and log in {folder}")
        _tell_what_to_do(node.port)
        code = launched.guard.wait()
        sys.exit(f"the broker ended by itself (exit {code}):\n{tail_of([node])}")
    except (_ToldToStop, KeyboardInterrupt):
        print("stopping", flush=True)
    finally:
        # The guard passes it on, and sees to it that the broker ends.
        launched.guard.terminate()
        launched.guard.wait()


def _tell_what_to_do(port: int) -> None:
    url = f"kafka://{HOST}:{port}/steplog"
    print(f"  workspace: {url}")
    print(f"  next:      steplog -w {url} topic create")
    print("  stop:      Ctrl-C here", flush=True)


def _be_told(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _ToldToStop


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker will: what is left of an earlier one's connections is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def stop(folder: Path) -> None:
    """Stop the broker that runs in this folder, and wait for its end."""
    running = folder / "running"
    if not running.exists():
        sys.exit(f"no broker was started in {folder}")
    with running.open("r+") as held:
        # Whoever runs the broker holds the lock, so the number in it is a living process's.
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sys.exit(f"no broker runs in {folder}")
        os.kill(int(held.read()), signal.SIGTERM)
        fcntl.flock(held, fcntl.LOCK_EX)
    print(f"stopped the broker in {folder}")


def _start_here_or_in_docker(folder: Path, port: int) -> None:
    if _can_start_here():
        start(folder, port)
        return
    print("data in a volume of Docker's")
    _tell_what_to_do(port)
    os.environ["STEPLOG_KAFKA_PORT"] = str(port)
    os.execvp("docker", ["docker", "compose", "--file", str(COMPOSE), "up", "kafka"])


def _can_start_here() -> bool:
    """Fetches the jars. False where Docker has to run the broker; exits where it cannot either."""
    try:
        print(f"Kafka {kafka_version()} on Java {java()[1]}, jars in {fetch_jars()}", flush=True)
        return True
    except KafkaMissingError as error:
        if not has_compose():
            sys.exit(f"{error}\nor have Docker with its compose plugin running")
        print(f"{error}\nso Docker runs Kafka {kafka_version()}", flush=True)
        return False


def main() -> None:
    """Parse the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["start", "stop", "fetch"])
    parser.add_argument("--folder", type=Path, default=Path("kafka-data"), help="data and log")
    parser.add_argument("--port", type=int, default=9092, help="of 127.0.0.1; the next one too")
    arguments = parser.parse_args()
    try:
        if arguments.command == "start":
            _start_here_or_in_docker(arguments.folder, arguments.port)
        elif arguments.command == "stop":
            stop(arguments.folder)
        else:
            _can_start_here()
    except BrokerFailedError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
