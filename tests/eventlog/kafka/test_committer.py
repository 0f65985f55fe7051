"""`KafkaCommitter`, where no broker is needed: what it remembers of appends of unknown outcome."""

from concurrent.futures import Future
from typing import Any

from eventlog.errors import AppendUncertainError
from eventlog.kafka.committer import KafkaCommitter, Wished
from eventlog.keeping.claims import Claimant
from eventlog.keeping.requests import Failed, Request
from eventlog.log import Receipt

WISHED = Wished(3, 4, 1, b"d" * 32)
RECEIPT = Receipt("s", 3, 4, 1, b"d" * 32, 17)


class Topic:
    """A topic whose one session holds what was wished."""

    place = "kafka://here"
    is_ready = True

    def partition_of(self, session_id: str) -> int:
        return 0

    def read_to_end(self, partitions: object, deadline: float) -> None:
        return None


class Mirrored:
    def standing_receipt(self, session_id: str, *wished: object) -> Receipt | None:
        return RECEIPT if wished == WISHED[:4] else None


def committer() -> KafkaCommitter:
    topic: Any = Topic()
    mirrored: Any = Mirrored()
    return KafkaCommitter(topic, mirrored, Claimant("w", lambda: 0, lambda: b""), deadline_s=1.0)


def request(*, reconciles: bool = False) -> Request:
    return Request(lambda _: None, Future(), ("s",), reconciles=reconciles)


def test_what_was_wished_is_not_forgotten_where_the_answer_came_too_late() -> None:
    """The committer gave up, and the writer's watch had answered a moment before.

    The session is blocked in any case; to reconcile it by nothing would say that it was not there.
    """
    writer = committer()
    writer.note_uncertain({"s": WISHED})
    error = AppendUncertainError("it is not known", hint="reconcile", session_id="s")
    writer.settle([(request(), Failed(error))], in_time=False)
    assert writer.reconcile("s") == RECEIPT


def test_a_reconciliation_that_came_too_late_may_be_asked_for_again() -> None:
    writer = committer()
    writer.note_uncertain({"s": WISHED})
    writer.settle([(request(reconciles=True), RECEIPT)], in_time=False)
    assert writer.reconcile("s") == RECEIPT


def test_an_append_that_was_written_too_late_is_found() -> None:
    writer = committer()
    writer.settle([(request(), RECEIPT)], in_time=False)
    assert writer.reconcile("s") == RECEIPT


def test_a_session_is_free_once_it_was_reconciled_in_time() -> None:
    """And whoever asks for another of its appends that were in flight hears the same."""
    writer = committer()
    writer.note_uncertain({"s": WISHED})
    writer.settle([(request(reconciles=True), RECEIPT)], in_time=True)
    assert writer.reconcile("s") == RECEIPT
    assert writer.serve(lambda: [request()], lambda outcomes: None)[0][1] is None
    assert writer.reconcile("s") is None


def test_of_several_appends_in_flight_all_that_is_there_is_found() -> None:
    """Three were written by one transaction whose answer was lost: none may be told missing."""
    writer = committer()
    for wished in (WISHED._replace(first_step=1, last_step=2, digest=b"a" * 32), WISHED):
        writer.note_uncertain({"s": wished})
    found: list[tuple[object, ...]] = []

    def standing(session_id: str, *wished: object) -> Receipt | None:
        found.append(wished)
        return RECEIPT if wished[1:] == WISHED[1:4] else None

    writer._mirrored.standing_receipt = standing  # type: ignore[method-assign,assignment]
    assert writer.reconcile("s") == RECEIPT
    assert found == [(1, *WISHED[1:4])]
