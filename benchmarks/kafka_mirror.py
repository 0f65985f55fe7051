"""What it costs to bring a mirror up to date when it nearly is: one new event, and none.

Every read of a log in Kafka asks that first. Reading a whole topic: `kafka_read`.
"""

import statistics
import tempfile
import time
from secrets import token_hex
from typing import Final

from benchmarks._broker import BenchBroker, BrokerMissingError, bench_broker
from benchmarks._kafka_sides import PARTITIONS, SESSIONS, TIMEOUT_S, Line
from benchmarks.harness import Row, percentile, report
from eventlog.kafka.client import OutgoingRecord
from eventlog.kafka.partitioning import partition_of
from eventlog.mirror import Mirror

REFRESHES: Final = 200


def rows_on(broker: BenchBroker) -> list[Row]:
    """A refresh with one new event, and with none."""
    new_ms: list[float] = []
    none_ms: list[float] = []
    lines = [Line(f"session-{number}") for number in range(SESSIONS)]
    with broker.topic(PARTITIONS) as client, tempfile.TemporaryDirectory() as folder:
        producer = client.open_producer(token_hex(8))
        producer.initialise(TIMEOUT_S)
        with Mirror(folder, client) as mirror:
            mirror.refresh(timeout_s=TIMEOUT_S)
            for number in range(REFRESHES):
                event, data, _ = lines[number % SESSIONS].make()
                key, part = event.session_id.encode(), partition_of(event.session_id, PARTITIONS)
                producer.commit([OutgoingRecord(part, event.time // 1_000, key, data)], TIMEOUT_S)
                for taken in (new_ms, none_ms):
                    start = time.perf_counter()
                    mirror.refresh()
                    taken.append((time.perf_counter() - start) * 1e3)
        producer.abandon()
    return [
        Row(
            what,
            "-",
            "-",
            f"p50 {statistics.median(taken):.1f} ms, p99 {percentile(taken, 99):.1f} ms",
            None,
        )
        for what, taken in (
            ("a mirror's refresh right after one event was acknowledged", new_ms),
            ("a mirror's refresh with nothing new", none_ms),
        )
    ]


def main() -> None:
    """Measure and print."""
    try:
        with bench_broker() as broker:
            report(rows_on(broker))
    except BrokerMissingError as missing:
        report([Row("a mirror's refresh", "-", "-", f"not measured: {missing}", None)])


if __name__ == "__main__":
    main()
