"""Rules of writing to a log in Kafka, broken on purpose: each lost events in a prototype.

A test that a broken rule does not fail would prove nothing; so it is run with the rule broken too.
"""

from collections.abc import Callable, Collection

from eventlog.ids import mint_writer_id
from eventlog.kafka.claim_making import ClaimMaker
from eventlog.kafka.fencing import Fencing
from eventlog.kafka.kafka_python_offsets import OffsetWatch
from eventlog.kafka.line_judge import receipt_of
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.sent_events import SentEvents
from eventlog.kafka.topic_writer import writer_transactional_id
from eventlog.mirror import Mirror


def _claim_through_own_producer() -> None:
    """The claim is sent by a producer of the claimant's, not by the one that fenced the owner."""
    commit = Fencing._commit

    def through_own(self, fencing, claims):  # type: ignore[no-untyped-def]
        own = self._client.open_producer(
            writer_transactional_id(self._client.topic, mint_writer_id())
        )
        own.initialise(self._maker.left_s())
        try:
            commit(self, own, claims)
        finally:
            own.abandon()

    Fencing._commit = through_own  # type: ignore[method-assign]


def _read_to_last_stable_offset() -> None:
    """The end of a partition is where the first open transaction begins."""

    def ends(self: OffsetWatch, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=list(self._endpoint.bootstrap), isolation_level="read_committed"
        )
        try:
            wanted = [TopicPartition(self._endpoint.topic, each) for each in partitions]
            return {each.partition: end for each, end in consumer.end_offsets(wanted).items()}
        finally:
            consumer.close()

    OffsetWatch.ends = ends  # type: ignore[method-assign]
    # A claim that was committed is not seen then; that it stands was taken for granted.
    ClaimMaker.standing = lambda self, claims: [  # type: ignore[method-assign]
        receipt_of(claim.append, -1) for claim in claims
    ]


def _reuse_places() -> None:
    """A place that was sent once may be given to another event."""
    SentEvents.require_same = lambda self, append: None  # type: ignore[method-assign]


def _count_only_what_stands() -> None:
    """A claim's attempt is one above the last that was committed."""

    def highest(self: Mirror, session_id: str, partition: int, **_: object) -> int:
        return self.reader.claims_of(session_id)[-1].attempt

    Mirror.highest_attempt = highest  # type: ignore[method-assign]


def _believe_that_nobody_claimed() -> None:
    """An owner that was fenced asks only for lines that it holds whether they were claimed."""
    MirroredLines.aborted_claims = lambda self, kept, timeout_s: 0  # type: ignore[method-assign]


def _send_the_claim_again() -> None:
    """A claim that was sent, and did not commit, is sent again whatever was sent meanwhile."""
    ClaimMaker.is_contested = lambda self, claim: False  # type: ignore[method-assign]


_RULES: dict[str, Callable[[], None]] = {
    "claims through its own producer": _claim_through_own_producer,
    "reads to the last stable offset": _read_to_last_stable_offset,
    "reuses places": _reuse_places,
    "counts only what stands": _count_only_what_stands,
    "sends its claim again in any case": _send_the_claim_again,
    "believes that nobody claimed": _believe_that_nobody_claimed,
}


def break_rule(name: str) -> None:
    """Break the rule of this name in this process, for good; the empty name breaks none."""
    if name:
        _RULES[name]()
