"""Claims that fence a line's owner, at every point where one may fail.

`log` owns the session `s`; `other`, whose producers follow the script `theirs`, claims it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from eventlog.codec import EncodedEvent
from eventlog.errors import (
    AppendUncertainError,
    ConfigError,
    FencedError,
    LogUnavailableError,
    StepConflictError,
)
from eventlog.kafka.client_errors import BrokersUnavailable, ProducerFenced
from eventlog.kafka_log import KafkaLog
from tests.support.events import EventChain
from tests.support.recorded import append_all, data_of, seeded_chain
from tests.support.scripted_producers import ScriptedClient, given_s
from tests.support.topic import FakeTopic

OpenLog = Callable[..., KafkaLog]


@pytest.fixture
def theirs(topic: FakeTopic, client: ScriptedClient) -> ScriptedClient:
    return ScriptedClient(topic, shared=client)


@pytest.fixture
def other(open_log: OpenLog, theirs: ScriptedClient) -> KafkaLog:
    return open_log(client=theirs)


@pytest.fixture
def hasty(open_log: OpenLog, theirs: ScriptedClient) -> KafkaLog:
    """As `other`, for what is given half a second."""
    return open_log(client=theirs)


@pytest.fixture
def chain(log: KafkaLog) -> EventChain:
    return seeded_chain(log, "s")


def take(claimant: KafkaLog, chain: EventChain) -> int:
    """Claim the whole line; the new attempt."""
    return claimant.take_over(["s"], stands_on={"s": chain.head.digest}, reason="test")["s"]


def require_claimed(claimant: KafkaLog, chain: EventChain, attempt: int, before: KafkaLog) -> None:
    """The line is the claimant's: it may write, and who had it may not."""
    info = claimant.session_info("s")
    assert (info.writer, info.attempt) == (claimant.writer_id, attempt)
    kept = data_of(claimant.read_session("s"))
    assert kept[:-1] == [each.data for each in chain.events]
    with pytest.raises(FencedError):
        append_all(before, [chain.call()])
    theirs = EventChain("s", seed=1)
    theirs.head = info.head
    append_all(claimant, [theirs.call()])
    assert data_of(before.read_session("s")) == [*kept, theirs.events[-1].data]


@pytest.mark.parametrize(
    "script",
    [
        [],
        ["broken, not sent"],
        ["broken, open"],
        ["broken, committed"],
        ["fenced"],
        ["broken, open", "fenced", "broken, committed"],
    ],
)
def test_a_claim_is_tried_until_it_is_certain(
    log: KafkaLog,
    other: KafkaLog,
    theirs: ScriptedClient,
    chain: EventChain,
    script: list[str],
) -> None:
    theirs.script += script
    theirs.initialisations += [BrokersUnavailable("down"), ProducerFenced("by another claimant")]
    require_claimed(other, chain, take(other, chain), log)


def test_a_claim_sent_in_vain_is_sent_again_above_it(
    other: KafkaLog, theirs: ScriptedClient, chain: EventChain
) -> None:
    """A reader of all records has seen the first: the second must come under a higher attempt."""
    theirs.script += ["broken, open"]
    assert take(other, chain) == 3


def own_claim(claimant: KafkaLog, chain: EventChain) -> list[EncodedEvent]:
    """A claim of the claimant's making, with an event behind it."""
    made = EventChain("s", seed=1)
    made.head = chain.head
    claim = made.resumed(attempt=claimant.next_attempt("s"), writer=claimant.writer_id)
    return [claim, made.call()]


@pytest.mark.parametrize("step", ["broken, not sent", "broken, open", "broken, committed"])
def test_a_claim_that_was_given_is_sent_again_as_it_is(
    other: KafkaLog, theirs: ScriptedClient, chain: EventChain, step: str
) -> None:
    events = own_claim(other, chain)
    theirs.script += [step]
    receipt = append_all(other, events)
    assert receipt.event_digest == events[-1].digest
    assert data_of(other.read_session("s"))[-2:] == [each.data for each in events]
    assert append_all(other, events) == receipt


def test_a_claim_that_is_refused_is_told_with_the_reason(
    log: KafkaLog, other: KafkaLog, theirs: ScriptedClient, chain: EventChain
) -> None:
    theirs.script += ["refused"]
    with pytest.raises(ConfigError, match="takes no such records"):
        take(other, chain)
    assert take(other, chain) == 2


def test_no_broker_answers_before_anything_was_sent(
    hasty: KafkaLog, theirs: ScriptedClient, chain: EventChain
) -> None:
    theirs.is_away = True
    began = time.monotonic()
    with given_s(hasty, 0.5), pytest.raises(LogUnavailableError, match="no answer"):
        take(hasty, chain)
    assert time.monotonic() - began < 20  # far above its half second
    theirs.is_away = False
    assert take(hasty, chain) == 2


@pytest.mark.parametrize("step", ["broken, open", "broken, committed"])
def test_at_the_deadline_a_claim_that_was_sent_is_unknown_until_it_is_reconciled(
    log: KafkaLog, hasty: KafkaLog, theirs: ScriptedClient, chain: EventChain, step: str
) -> None:
    hasty.session_info("s")
    theirs.go_away_with(step)
    with given_s(hasty, 0.5):
        with pytest.raises(AppendUncertainError, match="unknown"):
            take(hasty, chain)
        # The session is blocked, although no broker answered when this was noted.
        with pytest.raises(AppendUncertainError, match="an earlier append"):
            take(hasty, chain)
    theirs.is_away = False
    receipt = hasty.reconcile("s")
    assert (receipt is not None) == (step == "broken, committed")
    attempt = take(hasty, chain) if receipt is None else receipt.attempt
    require_claimed(hasty, chain, attempt, log)


def test_a_claim_that_is_made_is_no_failure_when_the_brokers_go_right_then(
    log: KafkaLog, hasty: KafkaLog, theirs: ScriptedClient, chain: EventChain
) -> None:
    """Its own producer was never needed, and cannot be had now."""
    hasty.session_info("s")

    theirs.go_away_with("committed")
    with given_s(hasty, 0.5):
        attempt = take(hasty, chain)
    theirs.is_away = False
    require_claimed(hasty, chain, attempt, log)


def test_a_claim_that_cannot_be_read_back_is_unknown(
    log: KafkaLog, hasty: KafkaLog, theirs: ScriptedClient, chain: EventChain, topic: FakeTopic
) -> None:
    def go_down(_: object) -> None:
        topic.before_fetch = down

    def down() -> None:
        topic.is_down = True

    theirs.script += [go_down]
    with given_s(hasty, 0.5), pytest.raises(AppendUncertainError, match="unknown"):
        take(hasty, chain)
    topic.before_fetch = lambda: None
    topic.is_down = False
    receipt = hasty.reconcile("s")
    assert receipt is not None
    require_claimed(hasty, chain, receipt.attempt, log)


def test_what_the_owner_wrote_meanwhile_is_not_set_aside_unseen(
    log: KafkaLog, other: KafkaLog, theirs: ScriptedClient, chain: EventChain
) -> None:
    head = log.session_info("s").head

    def write_on() -> None:
        append_all(log, [chain.call()])

    theirs.initialisations += [write_on]
    with pytest.raises(StepConflictError):
        other.take_over(["s"], stands_on={"s": head.digest}, heads={"s": head}, reason="test")
    assert log.session_info("s").writer == log.writer_id
    append_all(log, [chain.returned()])


def test_two_claimants_at_once_have_one_winner(
    log: KafkaLog, other: KafkaLog, theirs: ScriptedClient, chain: EventChain, open_log: OpenLog
) -> None:
    third = open_log(client=ScriptedClient(theirs.fake, shared=theirs))
    head = log.session_info("s").head

    def be_faster() -> None:
        third.take_over(["s"], stands_on={"s": head.digest}, heads={"s": head}, reason="test")

    theirs.initialisations += [be_faster]
    with pytest.raises((StepConflictError, FencedError)):
        other.take_over(["s"], stands_on={"s": head.digest}, heads={"s": head}, reason="test")
    assert other.session_info("s").writer == third.writer_id


def test_an_attempt_that_another_sent_in_vain_is_not_used_again(
    other: KafkaLog, theirs: ScriptedClient, chain: EventChain, open_log: OpenLog
) -> None:
    """A reader of all records has seen the other claim, and believes it."""
    events = own_claim(other, chain)
    script = ScriptedClient(theirs.fake, shared=theirs)
    third = open_log(client=script)
    third.session_info("s")
    script.go_away_with("broken, open")
    with given_s(third, 0.5), pytest.raises(AppendUncertainError):
        take(third, chain)
    script.time_out()
    with pytest.raises(FencedError, match="attempt 2 was used by another claim"):
        append_all(other, events)
    assert take(other, chain) == 3


def test_the_writer_s_thread_being_held_up_does_not_hide_that_a_claim_is_unknown(
    log: KafkaLog, hasty: KafkaLog, theirs: ScriptedClient, chain: EventChain
) -> None:
    """It stands still past every deadline; the session must be blocked all the same."""
    hasty.session_info("s")
    held = threading.Event()

    def be_held_up() -> None:
        with suppress(LogUnavailableError):
            hasty.ask(lambda _: held.wait(20))

    theirs.initialisations += [threading.Thread(target=be_held_up, daemon=True).start]
    theirs.go_away_with("broken, committed")
    with given_s(hasty, 0.5), pytest.raises(AppendUncertainError, match="unknown"):
        take(hasty, chain)
    held.set()
    theirs.is_away = False
    receipt = hasty.reconcile("s")
    assert receipt is not None
    require_claimed(hasty, chain, receipt.attempt, log)
