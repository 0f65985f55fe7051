"""What a writer holds while its brokers are frozen, and 100,000 appends of ~1 KB are tried.

Each side in a process of its own, on one broker of this benchmark's that is stopped (SIGSTOP) once
the process has written something. Growth is the peak of resident memory since then. A library alone
takes what it is given until it has given itself a limit; ours holds 32 MiB and answers each try.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks._broker import BenchBroker, BrokerMissingError, bench_broker
from benchmarks._kafka_sides import (
    PARTITIONS,
    SESSIONS,
    TIMEOUT_S,
    ConfluentAlone,
    KafkaPythonAlone,
    Line,
    records_of,
)
from benchmarks.harness import NOT_INSTALLED, Row, peer_installed, report
from eventlog.errors import LogUnavailableError, SteplogError
from eventlog.kafka_log import KafkaLog

TRIES: Final = 100_000
DEADLINE_S: Final = 1.0
TAKEN_WITHIN_S: Final = 20.0
BAR_MB: Final = 64
MB: Final = 1024 * 1024


def memory(name: str) -> int:
    """A figure of this process in bytes: `VmRSS`, `VmHWM`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def flood(side: str, bootstrap: str, topic: str, folder: str) -> None:
    """The process: write once, say so, wait for a line, try it all, tell how it went."""
    attempt, close = SIDES[side](bootstrap, topic, folder)
    print("ready", flush=True)
    sys.stdin.readline()
    # From now on the peak counts.
    Path("/proc/self/clear_refs").write_text("5")
    before, began = memory("VmRSS"), time.perf_counter()
    answers = attempt(TRIES)
    taken = {
        "grown": memory("VmHWM") - before,
        "seconds": time.perf_counter() - began,
        "answers": answers,
    }
    print(json.dumps(taken), flush=True)
    sys.stdin.readline()
    close()


def our_side(bootstrap: str, topic: str, folder: str) -> tuple[Callable[[int], Any], Any]:
    """Appends to a log."""
    log = KafkaLog(bootstrap.split(","), topic, folder, append_deadline_s=DEADLINE_S)
    lines = [Line(f"session-{number}", log.writer_id) for number in range(64)]
    answers: Counter[str] = Counter()

    def note(answer: Any) -> None:
        error = answer.exception()
        answers["written" if error is None else type(error).__name__] += 1

    def attempt(count: int) -> dict[str, int]:
        answers.clear()
        for number in range(count):
            line = lines[number % 64]
            step = line.head.step
            event = line.make()
            try:
                log.submit_events(
                    event.event.session_id, [event], expected_step=step
                ).add_done_callback(note)
            except SteplogError as error:
                answers[type(error).__name__] += 1
        while answers.total() < count:
            time.sleep(0.01)
        return dict(answers)

    seed = lines[0].make()
    is_written = False
    while not is_written:  # On a busy machine the first may need more time than is given.
        with suppress(LogUnavailableError):
            log.append_events("session-0", [seed], expected_step=-1)
            is_written = True
    return attempt, log.close


def alone_side(
    make: Callable[[str, str], Any],
) -> Callable[[str, str, str], tuple[Callable[[int], Any], Any]]:
    """A library alone: tries are given to it, and nobody waits for them."""

    def side(bootstrap: str, topic: str, _: str) -> tuple[Callable[[int], Any], Any]:
        alone = make(bootstrap, topic)
        record = records_of(SESSIONS + 1)[-1]
        alone.write([record])

        def attempt(count: int) -> dict[str, int]:
            return dict(alone.give(record, count, TAKEN_WITHIN_S))

        return attempt, lambda: None

    return side


SIDES: Final[dict[str, Callable[[str, str, str], tuple[Callable[[int], Any], Any]]]] = {
    "ours": our_side,
    "kafka-python": alone_side(KafkaPythonAlone),
    "confluent-kafka": alone_side(ConfluentAlone),
}


def run_side(side: str, broker: BenchBroker, topic: str, folder: str) -> dict[str, Any]:
    """Run a side in its process; the broker is frozen while it tries."""
    command = [sys.executable, "-m", "benchmarks.kafka_memory", side, broker.bootstrap]
    process = subprocess.Popen(
        [*command, topic, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    broker.freeze()
    try:
        print("go", file=process.stdin, flush=True)
        found: dict[str, Any] = json.loads(process.stdout.readline())
    finally:
        broker.thaw()
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
    return found


def rows_on(broker: BenchBroker, folder: str) -> list[Row]:
    """Growth of each side."""
    sides = ["kafka-python", *(["confluent-kafka"] if peer_installed("confluent_kafka") else [])]
    with broker.topic(PARTITIONS) as client:
        ours = run_side("ours", broker, client.topic, folder)
        peers = {side: run_side(side, broker, client.topic, folder) for side in sides}
    told = [
        f"{side} +{found['grown'] / MB:,.0f} MB ({_in_words(found['answers'])})"
        for side, found in peers.items()
    ]
    if "confluent-kafka" not in peers:
        told.append(f"confluent-kafka {NOT_INSTALLED}")
    return [
        Row(
            f"brokers frozen, {TRIES:,} appends of ~1 KB tried",
            f"<= {BAR_MB} MB",
            "; ".join(told),
            f"+{ours['grown'] / MB:,.0f} MB in {ours['seconds']:.0f} s "
            f"({_in_words(ours['answers'])})",
            ours["grown"] <= BAR_MB * MB,
        )
    ]


def _in_words(answers: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in answers.items())


def main() -> None:
    """Measure and print."""
    if len(sys.argv) > 1:
        flood(*sys.argv[1:])
        return
    try:
        with bench_broker(own=True) as broker, tempfile.TemporaryDirectory() as folder:
            report(rows_on(broker, folder))
    except BrokerMissingError as missing:
        what = "memory while brokers are frozen"
        report([Row(what, f"<= {BAR_MB} MB", "-", f"not measured: {missing}", None)])


if __name__ == "__main__":
    main()
