"""Every keeper: what an append promises, and how it refuses."""

import pytest

from eventlog.codec import EVENT_BYTES_MAX, EncodedEvent, encode_event
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import (
    EventCorruptError,
    EventTooLargeError,
    LinkBrokenError,
    LogError,
    SessionExistsError,
    SessionNotFoundError,
    StepConflictError,
)
from eventlog.event import LineHead
from eventlog.log import EventLog, Receipt
from eventlog.session_line import ATTEMPT_MAX, STEP_MAX
from tests.support.events import EventChain
from tests.support.keepers import Keeper
from tests.support.recorded import append_all, data_of, seeded_chain


def test_a_receipt_names_the_steps_and_the_last_event(log: EventLog) -> None:
    chain = EventChain("s")
    chain.seed(writer=log.writer_id)
    chain.call()
    receipt = append_all(log, chain.events)
    assert receipt == Receipt("s", 0, 1, 1, chain.head.digest, receipt.offset)
    chain.returned()
    second = append_all(log, chain.events[2:])
    assert (second.first_step, second.last_step) == (2, 2)
    assert second.offset > receipt.offset


def test_what_was_appended_reads_back_byte_for_byte(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=20)
    assert data_of(log.read_session("s")) == [encoded.data for encoded in chain.events]


@pytest.mark.parametrize("session_id", ["a", "é" * 127, "x" * 255, "task-17/seed-3", "a'b\"%_\\"])
def test_any_valid_session_id_is_kept_exactly(log: EventLog, session_id: str) -> None:
    seeded_chain(log, session_id)
    assert [info.session_id for info in log.list_sessions()] == [session_id]
    assert next(log.read_session(session_id)).prefix.session_id == session_id


def test_an_append_is_there_whole_or_not_at_all(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    chain.closed()
    chain.call()  # Not allowed after the close, in the same batch.
    with pytest.raises(StepConflictError):
        append_all(log, chain.events[-2:])
    assert log.session_info("s").step_count == 5
    assert log.session_info("s").status == "open"


def test_futures_of_one_session_end_in_the_order_submitted(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=0)
    futures = []
    for _ in range(200):
        event = chain.call()
        futures.append(log.submit_events("s", [event], expected_step=event.event.step - 1))
    assert [future.result().last_step for future in futures] == list(range(1, 201))


def test_a_wrong_expected_step_is_a_conflict_naming_both(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    old = chain.call()
    append_all(log, [old])
    late = EventChain("s", seed=9)
    late.head = chain.head._replace(step=3, digest=chain.events[3].digest)
    with pytest.raises(StepConflictError) as caught:
        append_all(log, [late.call()])
    assert (caught.value.expected, caught.value.actual) == (3, 5)
    assert caught.value.session_id == "s"


def test_a_step_beyond_the_end_is_a_conflict(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    chain.call()
    skipped = chain.returned()
    with pytest.raises(StepConflictError) as caught:
        append_all(log, [skipped])
    assert (caught.value.expected, caught.value.actual) == (5, 4)


def test_another_parent_at_the_right_step_is_a_conflict(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    chain.head = chain.head._replace(digest=bytes(32))
    with pytest.raises(StepConflictError):
        append_all(log, [chain.call()])


def test_the_same_append_again_gives_the_first_receipt(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    first = append_all(log, [chain.call(), chain.returned()])
    append_all(log, [chain.call()])
    assert append_all(log, chain.events[5:7]) == first
    assert log.session_info("s").step_count == 8


def test_a_retry_far_back_gives_the_first_receipt(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    first = append_all(log, [chain.call()])
    append_all(log, [chain.call() for _ in range(3_000)])
    assert append_all(log, [chain.events[5]]) == first


def test_a_retry_after_the_close_gives_the_first_receipt(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    first = append_all(log, [chain.closed()])
    assert append_all(log, chain.events[-1:]) == first


def test_a_retry_by_a_fenced_writer_gives_the_first_receipt(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    first = append_all(keeper.log, [chain.call()])
    keeper.another_handle().take_over(["s"], stands_on={"s": chain.head.digest}, reason="test")
    assert append_all(keeper.log, chain.events[5:6]) == first


@pytest.mark.parametrize("kept", [1, 2])
def test_a_partial_overlap_is_a_conflict(log: EventLog, kept: int) -> None:
    chain = seeded_chain(log, "s")
    batch = [chain.call(), chain.returned(), chain.call()]
    append_all(log, batch[:kept])
    with pytest.raises(StepConflictError):
        append_all(log, batch)
    assert log.session_info("s").step_count == 5 + kept


def test_the_same_ids_at_a_later_place_are_the_first_receipt(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    first = append_all(log, [chain.call()])
    append_all(log, [chain.returned()])
    again = _with_id(chain, chain.events[5].event.event_id)
    assert append_all(log, [again]) == first
    assert log.session_info("s").step_count == 7


def test_one_known_id_among_new_ones_is_a_conflict(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.call()])
    known = chain.events[5].event.event_id
    batch = [chain.returned(), _with_id(chain, known)]
    with pytest.raises(StepConflictError):
        append_all(log, batch)


def test_ids_are_searched_among_the_last_1024_events(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=0)
    append_all(log, [chain.call() for _ in range(1_200)])
    recent = chain.events[-1_024].event.event_id
    older = chain.events[-1_025].event.event_id
    head = chain.head
    assert append_all(log, [_with_id(chain, recent)]).last_step == 1_200 - 1_023
    chain.head = head
    chain.events.pop()
    assert append_all(log, [_with_id(chain, older)]).last_step == 1_201


def test_an_id_that_was_superseded_is_free_again(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.call()])
    dropped = chain.events[5].event.event_id
    attempt = log.take_over(["s"], stands_on={"s": chain.events[4].digest}, reason="x")["s"]
    claim = list(log.read_session("s"))[-1]
    chain.head = chain.head._replace(step=5, attempt=attempt, digest=claim.digest)
    again = _with_id(chain, dropped)
    assert append_all(log, [again]).last_step == 6


def test_a_second_seed_is_refused_and_the_same_seed_is_not(log: EventLog) -> None:
    chain = EventChain("s")
    first = append_all(log, [chain.seed(writer=log.writer_id)])
    assert append_all(log, chain.events) == first
    with pytest.raises(SessionExistsError, match="'s'"):
        append_all(log, [EventChain("s", seed=1).seed(writer=log.writer_id)])


def test_a_fork_over_an_existing_session_is_refused(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    seeded_chain(log, "b")
    with pytest.raises(SessionExistsError):
        append_all(log, [EventChain("b", seed=1).forked(chain.head)])


def test_appending_to_no_session_says_so(log: EventLog) -> None:
    chain = EventChain("nobody")
    chain.seed()
    with pytest.raises(SessionNotFoundError, match="nobody"):
        append_all(log, [chain.call()])


def test_an_oversize_event_is_refused_before_anything_is_written(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    big = Content(OCTET_STREAM, bytes(EVENT_BYTES_MAX + 1))
    large = chain.call(arguments=big)
    with pytest.raises(EventTooLargeError) as caught:
        append_all(log, [large])
    assert caught.value.event_bytes == len(large.data)
    assert caught.value.event_bytes_max == EVENT_BYTES_MAX
    assert (caught.value.session_id, caught.value.step) == ("s", 5)
    assert log.session_info("s").step_count == 5


def test_an_event_at_the_limit_is_kept(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    rest = len(chain.call(arguments=Content(OCTET_STREAM, b"")).data)
    chain.events.pop()
    chain.head = chain.head._replace(step=4, digest=chain.events[-1].digest)
    content = Content(OCTET_STREAM, b"x" * (EVENT_BYTES_MAX - rest - 2))
    largest = chain.call(arguments=content)
    assert EVENT_BYTES_MAX - 4 <= len(largest.data) <= EVENT_BYTES_MAX
    append_all(log, [largest])
    assert next(iter(log.read_session("s", 5))).data == largest.data


@pytest.mark.parametrize("step", [STEP_MAX + 1, 2**62, 2**63 - 1])
def test_a_step_that_no_number_could_follow_is_refused_before_anything_is_written(
    log: EventLog, step: int
) -> None:
    seeded_chain(log, "s")
    branch = EventChain("branch")
    seed = branch.forked(LineHead("parent", step - 1, 1, b"p" * 32), writer=log.writer_id)
    with pytest.raises(LogError, match="between 0 and") as caught:
        append_all(log, [seed])
    assert caught.value.hint
    assert [info.session_id for info in log.list_sessions()] == ["s"]


def test_the_highest_step_there_is_is_kept_and_is_the_last(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    branch = EventChain("branch")
    place = LineHead("parent", STEP_MAX - 1, 1, b"p" * 32)
    append_all(log, [branch.forked(place, writer=log.writer_id)])
    with pytest.raises(LogError, match="between 0 and"):
        append_all(log, [branch.call()])
    append_all(log, [chain.call()])
    assert log.session_info("s").step_count == 6


def test_a_claim_of_an_attempt_that_none_could_follow_is_refused(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    claim = EventChain("s")
    claim.head = chain.head
    with pytest.raises(LogError, match="between 1 and"):
        append_all(log, [claim.resumed(attempt=ATTEMPT_MAX + 1, writer=log.writer_id)])
    append_all(log, [chain.resumed(attempt=ATTEMPT_MAX, writer=log.writer_id)])
    append_all(log, [chain.call()])
    with pytest.raises(LogError, match="between 1 and"):
        log.take_over(["s"], stands_on={"s": chain.head.digest}, reason="one too many")
    assert log.session_info("s").step_count == 7


def test_a_batch_that_is_no_chain_is_refused(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    first, second = chain.call(), chain.returned()
    swapped = second._replace(event=second.event._replace(parent=bytes(32)))
    with pytest.raises(LinkBrokenError):
        append_all(log, [first, swapped])
    with pytest.raises(StepConflictError):
        append_all(log, [first, first])
    with pytest.raises(ValueError, match="at least one"):
        log.append_events("s", [], expected_step=4)


def test_bytes_that_do_not_have_their_digest_are_refused(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    event = chain.call()
    altered = event._replace(data=event.data[:-1] + bytes([event.data[-1] ^ 1]))
    with pytest.raises(EventCorruptError):
        append_all(log, [altered])


def test_events_of_another_session_are_refused(log: EventLog) -> None:
    seeded_chain(log, "s")
    other = seeded_chain(log, "other")
    with pytest.raises(StepConflictError, match="other"):
        log.append_events("s", [other.call()], expected_step=4)


def test_a_closed_session_takes_only_late_words(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.closed()])
    append_all(log, [chain.verified(0.5)])
    with pytest.raises(StepConflictError, match="closed"):
        append_all(log, [chain.call()])
    info = log.session_info("s")
    assert (info.status, info.reward) == ("closed", 0.5)


def test_an_import_is_one_batch_that_nobody_owns(log: EventLog) -> None:
    chain = EventChain("import/1")
    chain.seed()
    chain.call()
    chain.closed("imported")
    first = append_all(log, chain.events)
    assert append_all(log, chain.events) == first
    info = log.session_info("import/1")
    assert (info.status, info.writer, info.step_count) == ("closed", None, 3)


def test_a_closed_handle_takes_no_more(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    log.close()
    log.close()
    with pytest.raises(LogError, match="closed"):
        append_all(log, [chain.call()])


def _with_id(chain: EventChain, event_id: bytes) -> EncodedEvent:
    """The next call of the chain, under an id given."""
    made = chain.call()
    encoded = encode_event(made.event._replace(event_id=event_id))
    chain.events[-1] = encoded
    chain.head = chain.head._replace(digest=encoded.digest)
    return encoded
