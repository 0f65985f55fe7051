"""What others met when they read from Kafka, each named for what went wrong; what a log does here.

dpkp/kafka-python#2628, #1803; robinhood/faust#340; faust-streaming/faust#47, #155, #597, #651,
#176; quixio/quix-streams#1114, #1067, #1146.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.cut import Cut
from eventlog.errors import TopicChangedError
from eventlog.event import SessionSeeded
from eventlog.ids import mint_session_id
from eventlog.kafka.connection import open_client
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka_log import KafkaLog
from tests.support.brokers import KafkaAddress
from tests.support.events import EventChain
from tests.support.processes import python_script
from tests.support.recorded import append_all, data_of, seeded_chain
from tests.support.scale import scaled
from tests.support.transactions import aborted_transaction

pytestmark = pytest.mark.kafka

PARTITIONS = 4
CAUGHT_UP_WITHIN_S = 25.0
"""Less than the deadline of a question, which one that hangs would come to."""

KILLS = scaled(6, 60)

NewTopic = Callable[..., str]


class Place:
    """A topic, and the log in it as several machines have it."""

    def __init__(self, broker: KafkaAddress, topic: str, folder: Path) -> None:
        self.broker = broker
        self.topic = topic
        self.folder = folder
        self.opened: list[KafkaLog] = []

    def log(self, machine: str) -> KafkaLog:
        """A handle on one machine; those with its mirror there share that."""
        folder = self.folder / machine
        self.opened.append(KafkaLog(self.broker.bootstrap.split(","), self.topic, folder))
        return self.opened[-1]


@pytest.fixture
def place(kafka_broker: KafkaAddress, new_topic: NewTopic, tmp_path: Path) -> Iterator[Place]:
    made = Place(kafka_broker, new_topic(PARTITIONS), tmp_path)
    yield made
    for log in made.opened:
        log.close()


def test_2628_a_position_never_jumps_back(place: Place) -> None:
    """There a consumer that had committed 7,334 began at the earliest offset after a restart."""
    writer = place.log("writer")
    chain = seeded_chain(writer, mint_session_id(), calls=200)
    first = place.log("reader")
    cut = first.end_cut()
    assert len(list(first.tail_events(Cut.empty()))) == 401
    first.commit_cut("follower", cut)
    first.close()
    append_all(writer, [chain.call() for _ in range(3)])
    for _ in range(3):
        again = place.log("reader")
        assert again.committed_cut("follower") == cut
        assert data_of(again.tail_events(cut)) == [each.data for each in chain.events[-3:]]
        # What was mirrored before is not fetched again, but for the last record, to compare it.
        assert again.mirror.records_read <= 3 + 1
        again.commit_cut("follower", Cut.empty())
        again.close()


def test_1803_nothing_is_passed_over(place: Place) -> None:
    """There a consumer at `latest` skipped what was written while it was being set up."""
    writer = place.log("writer")
    chain = seeded_chain(writer, mint_session_id(), calls=0)
    for number in range(12):
        reader = place.log(f"reader-{number}")
        append_all(writer, [chain.call()])
        assert data_of(reader.read_session(chain.session_id)) == [e.data for e in chain.events]
        append_all(writer, [chain.call()])
        assert len(list(reader.tail_events(Cut.empty()))) == len(chain.events)
        reader.close()


PROJECTOR = """
import sys
from eventlog.kafka_log import KafkaLog
bootstrap, topic, folder = sys.argv[1:]
log = KafkaLog(bootstrap.split(","), topic, folder)
print("up", flush=True)
while True:
    log.refresh()
"""


def test_faust_340_a_projector_killed_at_any_moment_counts_exactly(place: Place) -> None:
    """There 299,356 of 300,000 were counted."""
    rng = random.Random(340)
    writer = place.log("writer")
    chains = [seeded_chain(writer, mint_session_id(), calls=0, seed=n) for n in range(8)]
    for _ in range(KILLS):
        projector = python_script(
            PROJECTOR, place.broker.bootstrap, place.topic, place.folder / "projector"
        )
        assert projector.stdout is not None
        projector.stdout.readline()
        until = time.monotonic() + rng.uniform(0.0, 0.3)
        while time.monotonic() < until:
            for chain in chains:
                append_all(writer, [chain.call() for _ in range(10)])
        projector.kill()
        projector.communicate()
    after = place.log("projector")
    count = sum(len(chain.events) for chain in chains)
    assert sum(info.step_count for info in after.list_sessions()) == count
    assert len(list(after.tail_events(Cut.empty()))) == count
    for chain in chains:
        assert data_of(after.read_session(chain.session_id)) == [e.data for e in chain.events]
    assert list(after.find_damage()) == []
    print(f"{KILLS} projectors killed: {count} events, each counted once")


def test_faust_s_recovery_hangs_markers_at_the_end_and_nothing_at_all(place: Place) -> None:
    """There recovery waited for a record at the last offset: a marker, or none, stood there."""
    writer = place.log("writer")
    chain = seeded_chain(writer, mint_session_id(), calls=3)
    part = partition_of(chain.session_id, PARTITIONS)
    empty = next(each for each in range(PARTITIONS) if each != part)
    emptied = next(each for each in range(PARTITIONS) if each not in (part, empty))
    for target in (part, emptied):
        for _ in range(3):
            sent = [(target, b"never committed")] * 4
            aborted_transaction(place.broker.bootstrap, place.topic, sent)
    for turn in range(5):
        if turn == 3:
            # All that it had was never committed, and is deleted now.
            _delete_before_end(place, emptied)
        log = place.log("writer" if turn == 2 else "new")
        began_at = time.monotonic()
        assert data_of(log.read_session(chain.session_id)) == [e.data for e in chain.events]
        assert time.monotonic() - began_at < CAUGHT_UP_WITHIN_S
        assert log.end_cut().end(empty) == 0
        log.close()


def test_quix_1114_a_position_below_the_log_s_start_is_named(place: Place) -> None:
    """There recovery was stuck when the committed offset was no longer in the topic."""
    writer = place.log("writer")
    chain = seeded_chain(writer, mint_session_id(), calls=3)
    reader = place.log("reader")
    assert len(list(reader.read_session(chain.session_id))) == 7
    reader.close()
    append_all(writer, [chain.call() for _ in range(4)])
    part = partition_of(chain.session_id, PARTITIONS)
    start = _delete_before_end(place, part)
    again = place.log("reader")
    with pytest.raises(TopicChangedError) as caught:
        again.end_cut()
    position = reader_position(place)
    for named in (f"partition {part}", place.topic, f"offset {start}", f"up to {position}"):
        assert named in caught.value.message
    assert "--allow-truncated" in str(caught.value)


def reader_position(place: Place) -> int:
    """How far the reader's mirror came: the offset after the first append's marker."""
    log = KafkaLog(
        place.broker.bootstrap.split(","), place.topic, place.folder / "reader", refreshes=False
    )
    with log:
        return max(log.end_cut().as_dict().values())


def _delete_before_end(place: Place, part: int) -> int:
    """Delete all records of a partition; where it begins now."""
    from kafka import TopicPartition

    with place.broker.admin() as admin:
        admin.delete_records({TopicPartition(place.topic, part): -1})
    client = open_client(place.broker.bootstrap.split(","), place.topic)
    reader = client.open_reader(committed=False)
    try:
        return reader.log_starts([part], 10.0)[part]
    finally:
        reader.close()
        client.close()


def test_a_seed_is_there_for_whoever_asks_next(place: Place) -> None:
    """Nothing is between an acknowledgement and any other machine's next look."""
    writer, reader = place.log("writer"), place.log("reader")
    for number in range(20):
        chain = EventChain(mint_session_id(), seed=number)
        chain.append(SessionSeeded("desk", writer=writer.writer_id))
        append_all(writer, chain.events)
        assert reader.session_info(chain.session_id).step_count == 1
