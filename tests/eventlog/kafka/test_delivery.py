"""What `KafkaCommitter` makes of transactions that fail, at every point where one may.

The topic is in memory, its producers follow a script. Truth is what a reader of committed records
finds there in the end.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import pytest

from eventlog.codec import EncodedEvent
from eventlog.errors import (
    AppendUncertainError,
    ConfigError,
    EventTooLargeError,
    FencedError,
    LogUnavailableError,
    StepConflictError,
)
from eventlog.kafka.client_errors import AccessDenied, BrokersUnavailable, ProducerFenced
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka_log import KafkaLog
from eventlog.log import Receipt
from tests.support.events import EventChain
from tests.support.recorded import append_all, data_of, seeded_chain
from tests.support.scripted_producers import ScriptedClient, given_s
from tests.support.topic import FakeTopic

PATIENCE_S = 20.0
"""Far above any deadline of these tests, and what a busy machine takes for anything."""


def submit(log: KafkaLog, *events: EncodedEvent) -> Future[Receipt]:
    first = events[0].event
    return log.submit_events(first.session_id, events, expected_step=first.step - 1)


def together(log: KafkaLog, batches: Sequence[Sequence[EncodedEvent]]) -> list[Future[Receipt]]:
    """Submit so that one transaction takes all: while the writer is busy with something else."""
    begun, go_on = threading.Event(), threading.Event()

    def be_busy(_: object) -> None:
        begun.set()
        go_on.wait(10)

    busy = threading.Thread(target=log.ask, args=(be_busy,))
    busy.start()
    begun.wait(10)
    answers = [submit(log, *batch) for batch in batches]
    go_on.set()
    busy.join()
    return answers


def committed_data(topic: FakeTopic, session_id: str) -> list[bytes]:
    """What a reader of committed records gets of the session."""
    records = topic.committed(topic.part_of(session_id))
    return [each.value or b"" for each in records if each.key == session_id.encode()]


def require_line(log: KafkaLog, topic: FakeTopic, chain: EventChain) -> None:
    """The session is these events, each committed once, and its own reader agrees."""
    expected = [each.data for each in chain.events]
    assert committed_data(topic, chain.session_id) == expected
    assert data_of(log.read_session(chain.session_id)) == expected


@pytest.mark.parametrize("step", ["broken, not sent", "broken, open", "broken, committed"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_lost_producer_is_replaced_and_nothing_is_sent_twice(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic, step: str, count: int
) -> None:
    chains = [seeded_chain(log, f"s{number}") for number in range(count)]
    client.script += [step]
    answers = together(log, [[chain.call(), chain.returned()] for chain in chains])
    for chain, answer in zip(chains, answers, strict=True):
        receipt = answer.result(10)
        assert (receipt.last_step, receipt.event_digest) == (chain.head.step, chain.head.digest)
        record = list(log.read_session(chain.session_id))[-1]
        assert record.offset == receipt.offset
        require_line(log, topic, chain)
        append_all(log, [chain.call()])
    assert log.initialisations == 2


@pytest.mark.parametrize("step", ["broken, open", "broken, committed"])
def test_a_new_session_s_first_append_is_settled_too(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic, step: str
) -> None:
    client.script += [step]
    chain = seeded_chain(log, "new")
    require_line(log, topic, chain)
    append_all(log, [chain.call()])
    require_line(log, topic, chain)


def test_what_follows_in_the_same_transaction_is_settled_with_it(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    chain = seeded_chain(log, "s")
    for step in ("broken, open", "broken, committed"):
        client.script += [step]
        answers = together(log, [[chain.call()], [chain.returned()], [chain.call()]])
        assert [answer.result(10).last_step for answer in answers] == [
            each.event.step for each in chain.events[-3:]
        ]
        require_line(log, topic, chain)


def test_it_is_tried_until_it_succeeds(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    chain = seeded_chain(log, "s")
    client.script += ["broken, open", "broken, not sent", "broken, open", "fenced", "broken, open"]
    client.initialisations += [BrokersUnavailable("down"), ProducerFenced("by nobody")]
    append_all(log, [chain.call()])
    require_line(log, topic, chain)


def test_brokers_that_are_away_before_anything_was_sent(log: KafkaLog, topic: FakeTopic) -> None:
    topic.is_down = True
    chain = EventChain("s")
    seed = chain.seed(writer=log.writer_id)
    began = time.monotonic()
    with given_s(log, 0.5), pytest.raises(LogUnavailableError, match="no broker answers"):
        append_all(log, [seed])
    assert 0.4 < time.monotonic() - began < PATIENCE_S
    topic.is_down = False
    append_all(log, [seed])
    require_line(log, topic, chain)


def test_what_cannot_be_mended_by_waiting_is_told_at_once(
    log: KafkaLog, client: ScriptedClient
) -> None:
    client.initialisations += [AccessDenied("no such password")]
    began = time.monotonic()
    with pytest.raises(ConfigError, match="no such password"):
        append_all(log, [EventChain("s").seed(writer=log.writer_id)])
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("step", ["broken, open", "broken, committed"])
def test_at_the_deadline_what_was_sent_is_unknown_until_it_is_reconciled(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic, step: str
) -> None:
    chain = seeded_chain(log, "s")
    before = len(chain.events)

    client.go_away_with(step)
    with given_s(log, 0.5):
        answers = together(log, [[chain.call()], [chain.returned()]])
        for answer in answers:
            error = answer.exception(PATIENCE_S)
            assert isinstance(error, AppendUncertainError)
            assert "whether the events are there is unknown" in error.message
        # The session is blocked, and no other.
        with pytest.raises(AppendUncertainError, match="an earlier append"):
            log.append_events("s", [chain.events[-1]], expected_step=chain.head.step - 1)
        with pytest.raises(LogUnavailableError):
            append_all(log, [EventChain("t").seed(writer=log.writer_id)])
        with pytest.raises(LogUnavailableError):
            log.reconcile("s")
    client.is_away = False
    receipt = log.reconcile("s")
    assert (receipt is not None) == (step == "broken, committed")
    if receipt is None:
        # Sent once and not committed: the same may be sent again, and nothing else in its place.
        other = EventChain("s", seed=1)
        other.head = log.session_info("s").head
        with pytest.raises(FencedError, match="another event was sent"):
            append_all(log, [other.call()])
        append_all(log, chain.events[before:])
    else:
        assert receipt.event_digest == chain.head.digest
    require_line(log, topic, chain)
    append_all(log, [chain.call()])
    require_line(log, topic, chain)


def test_a_broken_producer_that_surely_sent_nothing_leaves_no_doubt(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    chain = seeded_chain(log, "s")
    client.go_away_with("broken, not sent")
    with given_s(log, 0.5), pytest.raises(LogUnavailableError):
        append_all(log, [chain.call()])
    client.is_away = False
    append_all(log, chain.events[-1:])
    require_line(log, topic, chain)


def test_many_that_wait_are_answered_when_their_time_is_up(log: KafkaLog, topic: FakeTopic) -> None:
    """One try tells of the brokers for all that are due: not one try for each."""
    chains = [seeded_chain(log, f"s{number}") for number in range(8)]
    topic.is_down = True
    log._here().topic.close()
    lateness: list[float] = []

    def note(due: float) -> Callable[[object], None]:
        return lambda _: lateness.append(time.monotonic() - due)

    answers = []
    with given_s(log, 0.4):
        for number in range(4_000):
            chain = chains[number % len(chains)]
            due = time.monotonic() + 0.4
            answers.append(submit(log, chain.call()))
            answers[-1].add_done_callback(note(due))
    errors = {type(answer.exception(PATIENCE_S)) for answer in answers}
    assert errors == {LogUnavailableError}
    # One try for each would take minutes.
    assert max(lateness) < PATIENCE_S
    topic.is_down = False
    chain = EventChain("new")
    append_all(log, [chain.seed(writer=log.writer_id)])
    require_line(log, topic, chain)


def test_one_that_has_time_left_waits_on_when_another_s_is_up(
    log: KafkaLog, topic: FakeTopic
) -> None:
    chain, late = seeded_chain(log, "s"), seeded_chain(log, "late")
    topic.is_down = True
    log._here().topic.close()
    with given_s(log, 0.5):
        first = submit(log, chain.call())
        second = submit(log, late.call())
    third = submit(log, late.returned())
    assert isinstance(first.exception(PATIENCE_S), LogUnavailableError)
    assert isinstance(second.exception(PATIENCE_S), LogUnavailableError)
    assert not third.done()
    topic.is_down = False
    # It does not follow what is there; that it is judged at all is what it waited for.
    assert isinstance(third.exception(PATIENCE_S), StepConflictError)


def test_those_that_are_due_do_not_wait_for_one_that_has_time_left(
    log: KafkaLog, topic: FakeTopic
) -> None:
    """They were taken together, and it goes on waiting for the brokers."""
    chains = [seeded_chain(log, f"s{number}") for number in range(4)]
    topic.is_down = True
    log._here().topic.close()
    with given_s(log, 0.5):
        due = [submit(log, chain.call()) for chain in chains]
    late = submit(log, chains[0].returned())
    for answer in due:
        assert isinstance(answer.exception(PATIENCE_S), LogUnavailableError)
    assert not late.done()
    topic.is_down = False
    assert isinstance(late.exception(PATIENCE_S), StepConflictError)


def test_a_record_that_is_refused_takes_no_other_with_it(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    chains = [seeded_chain(log, f"s{number}") for number in range(4)]
    batches = [[chain.call(), chain.returned()] for chain in chains]
    bad = batches[2][0].data
    client.refuses = lambda record: record.value == bad
    answers = together(log, batches)
    for number, chain in enumerate(chains):
        if number == 2:
            with pytest.raises(ConfigError, match="takes no such records"):
                answers[2].result(10)
            del chain.events[-2:]
        else:
            assert answers[number].result(10).event_digest == chain.head.digest
        require_line(log, topic, chain)


def test_what_stood_on_a_refused_record_is_refused_too(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    """It would hang in the air: a reader stops at a gap."""
    chain, beside = seeded_chain(log, "s"), seeded_chain(log, "beside")
    refused, follows, fine = chain.call(), chain.returned(), beside.call()
    client.refuses = lambda record: record.value == refused.data
    answers = together(log, [[refused], [follows], [fine]])
    assert isinstance(answers[0].exception(10), ConfigError)
    assert isinstance(answers[1].exception(10), StepConflictError)
    assert answers[2].exception(10) is None
    del chain.events[-2:]
    require_line(log, topic, chain)
    require_line(log, topic, beside)


def test_a_claim_that_comes_between_a_refusal_and_the_rest_stands(
    log: KafkaLog, other: KafkaLog, client: ScriptedClient
) -> None:
    """The id is initialised once more, and so not fenced; but all was judged before the claim."""
    chain, bad = seeded_chain(log, "s"), seeded_chain(log, "bad")
    refused = bad.call()
    client.refuses = lambda record: record.value == refused.data

    def claim() -> None:
        other.take_over(["s"], stands_on={"s": chain.events[-2].digest}, reason="test")

    client.script += ["refused"]
    client.initialisations += [claim]
    answers = together(log, [[chain.call()], [refused]])
    assert isinstance(answers[0].exception(10), FencedError)
    assert isinstance(answers[1].exception(10), ConfigError)
    assert log.session_info("s").writer == other.writer_id


def test_a_larger_event_than_the_topic_takes_is_refused_before_it_is_sent(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    client.record_bytes_max = 1_500
    chain, large = seeded_chain(log, "s"), EventChain("s", seed=1)
    large.head = chain.head
    tries = len(client.sent)
    topic.is_down = True
    with pytest.raises(EventTooLargeError):
        append_all(log, [large.call("x" * 2_000)])
    topic.is_down = False
    assert len(client.sent) == tries
    append_all(log, [chain.call()])
    require_line(log, topic, chain)


def test_a_topic_that_takes_more_by_now_is_asked_again(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.record_bytes_max = 1_500
    chain = seeded_chain(log, "s")
    large = chain.call("x" * 2_000)
    client.record_bytes_max = 3_000
    with pytest.raises(EventTooLargeError, match="at most 988"):
        append_all(log, [large])
    monkeypatch.setattr(log._here().topic, "_limits_hold_until", 0.0)
    append_all(log, [large])
    require_line(log, topic, chain)


def test_a_topic_that_takes_less_by_now_says_so(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic
) -> None:
    chain = seeded_chain(log, "s")
    large = chain.call("x" * 2_000)
    client.record_bytes_max = 1_500
    client.refuses = lambda record: record.value == large.data
    with pytest.raises(EventTooLargeError, match="at most 988"):
        append_all(log, [large])
    chain.events.pop()
    require_line(log, topic, chain)


def test_a_fenced_writer_is_told_which_of_its_appends_came_too_late(
    log: KafkaLog, other: KafkaLog, topic: FakeTopic
) -> None:
    mine, lost = seeded_chain(log, "mine"), seeded_chain(log, "lost")
    other.take_over(["lost"], stands_on={"lost": lost.head.digest}, reason="test")
    line = [each.data for each in lost.events]
    answers = together(log, [[mine.call()], [lost.call()]])
    assert answers[0].result(10).last_step == mine.head.step
    assert isinstance(answers[1].exception(10), FencedError)
    require_line(log, topic, mine)
    assert data_of(log.read_session("lost"))[: len(line)] == line
    assert log.initialisations == 2


@pytest.mark.parametrize("step", ["broken, open", "broken, committed", "broken, not sent"])
def test_a_claim_over_a_release_is_settled_by_reading(
    log: KafkaLog, other: KafkaLog, client: ScriptedClient, step: str
) -> None:
    seeded_chain(other, "s")
    other.release("s")
    released = other.session_info("s").head
    log.append_events("t", [EventChain("t").seed(writer=log.writer_id)], expected_step=-1)
    client.script += [step]
    attempts = log.take_over(["s"], stands_on={"s": released.digest}, reason="test")
    info = log.session_info("s")
    assert (info.writer, info.attempt) == (log.writer_id, attempts["s"])


def test_a_lost_claim_that_the_mirror_cannot_look_for_is_unknown(
    log: KafkaLog, other: KafkaLog, client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To say that nothing was written would be wrong."""
    seeded_chain(log, "own")
    seeded_chain(other, "s")
    other.release("s")
    head = other.session_info("s").head.digest

    def fail(*_: object, **__: object) -> NoReturn:
        raise LogUnavailableError("not read in time", hint="try again")

    client.script += ["broken, committed"]
    client.initialisations += [lambda: monkeypatch.setattr(log.mirror, "refresh", fail)]
    with pytest.raises(AppendUncertainError, match="not read in time"):
        log.take_over(["s"], stands_on={"s": head}, reason="test")
    monkeypatch.undo()
    receipt = log.reconcile("s")
    assert receipt is not None
    assert log.session_info("s").writer == log.writer_id


def test_a_claim_that_another_made_first_is_no_receipt(
    log: KafkaLog, other: KafkaLog, client: ScriptedClient
) -> None:
    seeded_chain(log, "own")
    seeded_chain(other, "s")
    other.release("s")
    head = other.session_info("s").head.digest

    def be_faster(_: object) -> None:
        other.take_over(["s"], stands_on={"s": head}, reason="test")

    client.script += [be_faster]
    with pytest.raises(FencedError, match="claimed by another first"):
        log.take_over(["s"], stands_on={"s": head}, reason="test")
    assert log.session_info("s").writer == other.writer_id


def test_a_claim_that_cannot_be_read_back_in_time_is_unknown(
    log: KafkaLog, client: ScriptedClient, topic: FakeTopic, other: KafkaLog
) -> None:
    seeded_chain(log, "own")
    seeded_chain(other, "s")
    other.release("s")
    head = other.session_info("s").head.digest
    log.session_info("s")

    def before_fetch() -> None:
        topic.is_down = True

    def committed(_: object) -> None:
        topic.before_fetch = before_fetch

    client.script += [committed]
    with given_s(log, 0.5), pytest.raises(AppendUncertainError, match="unknown"):
        log.take_over(["s"], stands_on={"s": head}, reason="test")
    topic.before_fetch = lambda: None
    topic.is_down = False
    receipt = log.reconcile("s")
    assert receipt is not None
    assert log.session_info("s").writer == log.writer_id


def test_a_release_whose_answer_was_lost_is_settled(log: KafkaLog, client: ScriptedClient) -> None:
    chain = seeded_chain(log, "s")
    client.script += ["broken, committed"]
    assert log.release("s").last_step == chain.head.step + 1
    assert log.session_info("s").status == "released"


def test_many_refused_appends_to_a_long_line_do_not_hold_up_the_others(
    log: KafkaLog, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks whether its event stands already: the line's last events are read once for all."""
    reads: list[str] = []
    read_recent_ids = MirroredLines._read_recent_ids

    def counted(lines: MirroredLines, kept: Any) -> list[bytes]:
        reads.append(kept.session_id)
        return read_recent_ids(lines, kept)

    monkeypatch.setattr(MirroredLines, "_read_recent_ids", counted)
    chain, beside = seeded_chain(log, "s", calls=400), seeded_chain(log, "beside")
    foreign = EventChain("s", seed=1)
    foreign.head = chain.head._replace(step=chain.head.step + 5)
    refused = [submit(log, foreign.call()) for _ in range(400)]
    append_all(log, [beside.call()])
    assert {type(answer.exception(PATIENCE_S)) for answer in refused} == {StepConflictError}
    assert reads == ["s"]
    require_line(log, topic, beside)
