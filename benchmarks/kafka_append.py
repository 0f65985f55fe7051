"""Appends to a log in Kafka, beside the client libraries alone, on one broker in one run.

Ours is the whole way: an event is made, encoded, digested, judged against its line, written in a
transaction, and its receipt given. The libraries alone are given ready bytes, and write them
without transactions (tuned: linger 5 ms, 128 KiB, acks all, idempotent). All take turns, and the
median round of each counts. The latency is of one event every 50 ms, each side by itself.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks._broker import BenchBroker, BrokerMissingError, bench_broker
from benchmarks._kafka_sides import (
    PARTITIONS,
    SESSIONS,
    Clock,
    ConfluentAlone,
    KafkaPythonAlone,
    KafkaPythonTransactions,
    Line,
    Rate,
    records_of,
)
from benchmarks.harness import Row, peer_installed, percentile, report
from eventlog.kafka_log import KafkaLog
from eventlog.log import Receipt

EVENTS: Final = 16_000
"""Of one round of one side."""
BATCHES: Final = (1, 10, 100)
ROUNDS: Final = 3
BAR: Final = {"kafka-python": 15_000, "confluent": 60_000}
PACE_S: Final = 0.05
PACED: Final = 150
P50_MS: Final = 5.0
P99_MS: Final = 25.0


class Side(NamedTuple):
    """One way to write `EVENTS` events; `run` is what is timed, `prepare` comes before it."""

    name: str
    prepare: Callable[[], object]
    run: Callable[[], object]


class OurSide:
    """A log in Kafka, and the sessions that are written to it."""

    def __init__(self, log: KafkaLog) -> None:
        self.log = log
        name = f"{log.client_library}-{{}}".format
        self.lines = [Line(name(number), log.writer_id) for number in range(SESSIONS)]

    def write(self, batch: int) -> None:
        """`EVENTS` events in appends of `batch`, the sessions taking turns; all acknowledged."""
        answers: list[Future[Receipt]] = []
        for number in range(EVENTS // batch):
            line = self.lines[number % SESSIONS]
            step = line.head.step
            events = [line.make() for _ in range(batch)]
            answers.append(
                self.log.submit_events(events[0].event.session_id, events, expected_step=step)
            )
        for answer in answers:
            answer.result()

    def write_one(self, number: int) -> None:
        """One event, durably."""
        line = self.lines[number % SESSIONS]
        step = line.head.step
        event = line.make()
        self.log.append_events(event.event.session_id, [event], expected_step=step)


def measure(sides: list[Side]) -> dict[str, Rate]:
    """The median round of each side, by events per second, after one round that is not counted."""
    taken: dict[str, list[Rate]] = {side.name: [] for side in sides}
    for number in range(1 + ROUNDS):
        for side in sides:
            side.prepare()
            clock = Clock()
            side.run()
            if number > 0:
                taken[side.name].append(clock.rate_of(EVENTS))
    return {name: sorted(rates)[len(rates) // 2] for name, rates in taken.items()}


def alone_side(alone: KafkaPythonAlone | ConfluentAlone) -> Side:
    """A client library with ready bytes."""
    records = records_of(EVENTS)
    return Side(alone.name, lambda: None, lambda: alone.write(records))


def throughput_rows(libraries: list[str], ours: dict[str, OurSide], sides: list[Side]) -> list[Row]:
    """Single events and batches, through each library."""
    sides = list(sides)
    for library in libraries:
        for batch in BATCHES:
            run = lambda side=ours[library], batch=batch: side.write(batch)  # noqa: E731
            sides.append(Side(f"{library}/{batch}", lambda: None, run))
    rates = measure(sides)
    peers = "; ".join(f"{name} {rates[name]}" for name in rates if "/" not in name)
    rows = []
    for library in libraries:
        for batch in BATCHES:
            rate = rates[f"{library}/{batch}"]
            what = "append by append" if batch == 1 else f"in appends of {batch}"
            rows.append(
                Row(
                    f"events of ~1 KB, {what}, {SESSIONS} sessions, through {library}",
                    f">= {BAR[library]:,} ev/s",
                    peers,
                    str(rate),
                    rate.events_per_s >= BAR[library],
                )
            )
            peers = '"'
    return rows


def latency_row(ours: OurSide, alone: KafkaPythonTransactions) -> Row:
    """One durable append at a time, the broker idle between."""
    record = records_of(SESSIONS + 1)[-1]
    taken: dict[str, list[float]] = {"ours": [], "alone": []}
    sides = {"ours": ours.write_one, "alone": lambda _: alone.write(record)}
    for number in range(PACED):
        for name, write in sides.items():
            start = time.perf_counter()
            write(number)
            took = time.perf_counter() - start
            taken[name].append(took * 1e3)
            time.sleep(max(0.0, PACE_S - took))
    p50, p99 = statistics.median(taken["ours"]), percentile(taken["ours"], 99)
    theirs = taken["alone"]
    return Row(
        "one durable append, idle",
        f"p50 <= {P50_MS:.0f} ms, p99 <= {P99_MS:.0f} ms",
        f"{alone.name} p50 {statistics.median(theirs):.1f}, p99 {percentile(theirs, 99):.1f} ms",
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        p50 <= P50_MS and p99 <= P99_MS,
    )


def rows_on(broker: BenchBroker) -> list[Row]:
    """All figures, on one broker."""
    with ExitStack() as opened:
        topic = opened.enter_context(broker.topic(PARTITIONS)).topic
        raw = opened.enter_context(broker.topic(PARTITIONS)).topic
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        alone = KafkaPythonAlone(broker.bootstrap, raw)
        opened.callback(alone.close)
        sides = [alone_side(alone)]
        libraries = ["kafka-python"]
        if peer_installed("confluent_kafka"):
            confluent = ConfluentAlone(broker.bootstrap, raw)
            opened.callback(confluent.close)
            sides.append(alone_side(confluent))
            libraries.append("confluent")
        ours = {
            library: OurSide(
                opened.enter_context(
                    KafkaLog(
                        broker.bootstrap.split(","), topic, f"{folder}/{library}", client=library
                    )
                )
            )
            for library in libraries
        }
        transactions = KafkaPythonTransactions(broker.bootstrap, raw)
        opened.callback(transactions.close)
        return [
            *throughput_rows(libraries, ours, sides),
            latency_row(ours["kafka-python"], transactions),
        ]


def main() -> None:
    """Measure and print."""
    try:
        with bench_broker() as broker:
            report(rows_on(broker))
    except BrokerMissingError as missing:
        bar = f">= {BAR['kafka-python']:,} ev/s"
        report([Row("appends to a log in Kafka", bar, "-", f"not measured: {missing}", None)])


if __name__ == "__main__":
    main()
