"""Reading a log in Kafka for replay, beside the client libraries that only fetch, in one run.

The topic is one of this benchmark's own: events of about 1 KB in transactions of 500, of 64
sessions that take turns, in four partitions. The libraries alone fetch every committed record and
look at nothing. Ours reads the topic into a new mirror (digests, links and claims checked, stored),
and then every session from the mirror. All take turns; the median round of each counts.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Final

from benchmarks._broker import BenchBroker, BrokerMissingError, bench_broker
from benchmarks._kafka_sides import PARTITIONS, SESSIONS, TIMEOUT_S, Clock, Line, Rate
from benchmarks.harness import NOT_INSTALLED, Row, peer_installed, report
from eventlog.kafka.client import OutgoingRecord, TopicClient
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka_log import KafkaLog

EVENTS: Final = 40_000
TRANSACTION_EVENTS: Final = 500
ROUNDS: Final = 3
FETCH_BYTES: Final = 8 * 1024 * 1024
BAR: Final = {"kafka-python": 40_000, "confluent": 150_000}


def write(client: TopicClient) -> None:
    """Write the topic, without a log's checks: they are not what is measured here."""
    lines = [Line(f"session-{number}") for number in range(SESSIONS)]
    producer = client.open_producer(token_hex(8))
    producer.initialise(TIMEOUT_S)
    for start in range(0, EVENTS, TRANSACTION_EVENTS):
        records = []
        for number in range(start, start + TRANSACTION_EVENTS):
            event, data, _ = lines[number % SESSIONS].make()
            part = partition_of(event.session_id, PARTITIONS)
            records.append(
                OutgoingRecord(part, event.time // 1_000, event.session_id.encode(), data)
            )
        producer.commit(records, TIMEOUT_S)
    producer.abandon()


def poll_kafka_python(bootstrap: str, topic: str) -> Rate:
    """kafka-python's consumer, tuned."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        isolation_level="read_committed",
        enable_auto_commit=False,
        max_poll_records=4_096,
        max_partition_fetch_bytes=FETCH_BYTES,
        metrics_enabled=False,
    )
    parts = [TopicPartition(topic, part) for part in range(PARTITIONS)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    rate = rate_after_first(lambda: sum(map(len, consumer.poll(1_000).values())))
    consumer.close()
    return rate


def poll_confluent(bootstrap: str, topic: str) -> Rate:
    """confluent-kafka's consumer, tuned."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": token_hex(8),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
    )
    consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in range(PARTITIONS)])
    rate = rate_after_first(lambda: len(consumer.consume(1_024, 0.02)))
    consumer.close()
    return rate


def rate_after_first(fetch: Callable[[], int]) -> Rate:
    """The rate at which the rest comes: connecting is not what is measured."""
    first = 0
    while not first:
        first = fetch()
    clock, count = Clock(), first
    while count < EVENTS:
        count += fetch()
    return clock.rate_of(count - first)


def read_ours(bootstrap: str, topic: str, library: str) -> tuple[Rate, Rate]:
    """A new mirror to the end of the topic; then every session, as a replay reads it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaLog(bootstrap.split(","), topic, Path(folder), client=library) as log,
    ):
        clock = Clock()
        log.mirror.refresh(timeout_s=TIMEOUT_S)
        ingest = clock.rate_of(log.mirror.records_read)
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaLog(bootstrap.split(","), topic, Path(folder), client=library) as log,
    ):
        log.mirror.refresh(timeout_s=TIMEOUT_S)
        names, clock, count = list(log.session_ids()), Clock(), 0
        for name in names:
            count += sum(1 for _ in log.read_session(name))
        return ingest, clock.rate_of(count)


def median_of(rates: list[Rate]) -> Rate:
    """The median round, by events per second."""
    return sorted(rates)[len(rates) // 2]


def rows_on(broker: BenchBroker) -> list[Row]:
    """All figures, on one broker."""
    libraries = ["kafka-python"]
    polls: dict[str, Callable[[str, str], Rate]] = {"kafka-python": poll_kafka_python}
    if peer_installed("confluent_kafka"):
        libraries.append("confluent")
        polls["confluent"] = poll_confluent
    taken: dict[str, list[Rate]] = {}
    with broker.topic(PARTITIONS) as client:
        write(client)
        for _ in range(ROUNDS):
            for library in libraries:
                alone = polls[library](broker.bootstrap, client.topic)
                ingest, read = read_ours(broker.bootstrap, client.topic, library)
                taken.setdefault(f"{library}, alone", []).append(alone)
                taken.setdefault(library, []).append(ingest)
                taken.setdefault("read", []).append(read)
    rows = []
    for library, bar in BAR.items():
        what = f"a topic into its mirror, events of ~1 KB, through {library}"
        if library not in libraries:
            rows.append(Row(what, f">= {bar:,} ev/s", NOT_INSTALLED, NOT_INSTALLED, None))
            continue
        rate = median_of(taken[library])
        peer = f"{library} alone {median_of(taken[f'{library}, alone'])}"
        rows.append(Row(what, f">= {bar:,} ev/s", peer, str(rate), rate.events_per_s >= bar))
    read = median_of(taken["read"])
    rows.append(Row("  then session by session from the mirror", "-", "-", str(read), None))
    return rows


def main() -> None:
    """Measure and print."""
    try:
        with bench_broker() as broker:
            report(rows_on(broker))
    except BrokerMissingError as missing:
        bar = f">= {BAR['kafka-python']:,} ev/s"
        report([Row("reading a log in Kafka", bar, "-", f"not measured: {missing}", None)])


if __name__ == "__main__":
    main()
