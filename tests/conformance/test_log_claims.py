"""Every keeper: who owns a session, how it is taken over, and who is fenced."""

import pytest

from eventlog.codec import EncodedEvent, decode_event
from eventlog.errors import (
    FencedError,
    SessionNotFoundError,
    StepConflictError,
    StepNotFoundError,
)
from eventlog.event import LineHead, Restore, SessionResumed
from eventlog.log import EventLog
from tests.support.events import EventChain
from tests.support.keepers import CLOCK_US, Keeper
from tests.support.recorded import append_all, data_of, seeded_chain


def claimed(log: EventLog, chain: EventChain, step: int | None = None) -> EventChain:
    """Take the session over after `step` (the head unless given); the chain goes on from there."""
    events = chain.events if step is None else chain.events[: step + 1]
    digest = events[-1].digest
    attempt = log.take_over([chain.session_id], stands_on={chain.session_id: digest}, reason="test")
    head = log.session_info(chain.session_id).head
    assert head.attempt == attempt[chain.session_id]
    claim = next(iter(log.read_session(chain.session_id, head.step)))
    chain.events = [*events, EncodedEvent(decode_event(claim.data), claim.data, claim.digest)]
    chain.head = head
    return chain


def test_every_handle_has_a_writer_id_of_its_own(keeper: Keeper) -> None:
    ids = {keeper.log.writer_id, *(keeper.another_handle().writer_id for _ in range(5))}
    assert len(ids) == 6
    assert keeper.log.writer_id in ids


def test_only_the_owner_appends(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    with pytest.raises(FencedError) as caught:
        append_all(keeper.another_handle(), [chain.call()])
    assert caught.value.session_id == "s"
    append_all(keeper.log, chain.events[-1:])


def test_a_take_over_fences_the_old_writer_and_lets_the_new_one_write(keeper: Keeper) -> None:
    old, new = keeper.log, keeper.another_handle()
    chain = seeded_chain(old, "s")
    late = EventChain("s", seed=5)
    late.head = chain.head
    claimed(new, chain)
    with pytest.raises(FencedError):
        append_all(old, [late.call()])
    append_all(new, [chain.call()])
    assert data_of(old.read_session("s")) == [encoded.data for encoded in chain.events]
    assert old.session_info("s").writer == new.writer_id


@pytest.mark.parametrize(
    ("after", "message", "hint"),
    [
        ("open", "is held by attempt 2 (writer W), not by this writer", "surely gone"),
        ("closed", "was closed by attempt 2 (writer W), not by this writer", "reopen=True"),
        ("released", "was released by attempt 2 (writer W): nobody holds it", "resume the session"),
    ],
)
def test_who_is_fenced_is_told_what_the_session_is_by_now(
    keeper: Keeper, after: str, message: str, hint: str
) -> None:
    """Of a session that its new owner had closed it was said that he holds it, and to resume it:
    that was refused, or took it from him again."""
    chain = seeded_chain(keeper.log, "s")
    late = EventChain("s", seed=5)
    late.head = chain.head
    new = keeper.another_handle()
    claimed(new, chain)
    if after == "closed":
        append_all(new, [chain.closed()])
    elif after == "released":
        new.release("s")
    with pytest.raises(FencedError) as caught:
        append_all(keeper.log, [late.call()])
    assert message.replace("W", new.writer_id) in caught.value.message
    assert hint in caught.value.hint
    assert ("stop here" in caught.value.hint) is (after != "released")


def test_the_claim_says_who_when_and_why(log: EventLog) -> None:
    chain = claimed(log, seeded_chain(log, "s"))
    event = chain.events[-1].event
    assert event.body == SessionResumed(4, "test", log.writer_id)
    assert (event.kind, event.attempt, event.step) == ("session_resumed", 2, 5)
    assert (event.time, event.actor) == (CLOCK_US, "system")


def test_attempts_count_up_from_the_highest_ever(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    for attempt in range(2, 7):
        claimed(keeper.another_handle(), chain, step=2)
        assert chain.head.attempt == attempt


def test_the_first_handle_is_fenced_also_when_it_owned_the_session_by_an_earlier_claim(
    log: EventLog,
) -> None:
    chain = seeded_chain(log, "s")
    late = EventChain("s", seed=5)
    late.head = chain.head
    claimed(log, chain)
    with pytest.raises(FencedError, match="attempt 1"):
        append_all(log, [late.call()])


def test_a_take_over_at_an_earlier_step_supersedes_what_came_after(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=4)
    dropped = [encoded.data for encoded in chain.events[4:]]
    claimed(log, chain, step=3)
    append_all(log, [chain.call()])
    assert data_of(log.read_session("s")) == [encoded.data for encoded in chain.events]
    assert set(dropped) < set(data_of(log.read_records("s")))
    assert log.session_info("s").step_count == 6


def test_a_take_over_may_stand_on_a_superseded_event(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=4)
    whole = list(chain.events)
    claimed(log, chain, step=2)
    append_all(log, [chain.call()])
    chain.events = whole
    claimed(log, chain, step=7)
    assert chain.head.step == 8
    assert data_of(log.read_session("s")) == [encoded.data for encoded in chain.events]


def test_several_sessions_are_claimed_together(keeper: Keeper) -> None:
    chains = {name: seeded_chain(keeper.log, name) for name in ("a", "b", "c")}
    new = keeper.another_handle()
    stands_on = {name: chain.head.digest for name, chain in chains.items()}
    assert new.take_over(["c", "a", "b", "a"], stands_on=stands_on, reason="x") == {
        "a": 2,
        "b": 2,
        "c": 2,
    }
    claims = [next(iter(new.read_session(name, 5))) for name in ("c", "a", "b")]
    places = sorted(claims, key=lambda claim: (claim.partition, claim.offset))
    assert places == sorted(claims, key=lambda claim: claim.partition)


def test_a_take_over_of_what_was_read_does_not_set_aside_what_came_after(keeper: Keeper) -> None:
    old, new = keeper.log, keeper.another_handle()
    chain = seeded_chain(old, "s")
    read = old.session_info("s").head
    append_all(old, [chain.call()])
    with pytest.raises(StepConflictError) as caught:
        new.take_over(["s"], stands_on={"s": read.digest}, heads={"s": read}, reason="x")
    assert (caught.value.expected, caught.value.actual) == (4, 5)
    assert data_of(old.read_session("s")) == [encoded.data for encoded in chain.events]
    head = old.session_info("s").head
    rewound = {"s": chain.events[2].digest}
    assert new.take_over(["s"], stands_on=rewound, heads={"s": head}, reason="x") == {"s": 2}
    assert new.session_info("s").step_count == 4


def test_a_claim_that_is_appended_may_name_the_head_it_was_made_at(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    read = log.session_info("s").head
    append_all(log, [chain.call()])
    rival = EventChain("s", seed=5)
    claim = rival.resumed(read, writer=log.writer_id)
    with pytest.raises(StepConflictError):
        log.append_events("s", [claim], expected_step=read.step, head=read)
    assert data_of(log.read_session("s")) == [encoded.data for encoded in chain.events]
    head = log.session_info("s").head
    claim = rival.resumed(head, writer=log.writer_id)
    log.append_events("s", [claim], expected_step=head.step, head=head)
    assert log.session_info("s").head.digest == claim.digest


def test_a_take_over_claims_all_or_none(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    stands_on = {"s": chain.head.digest, "nobody": bytes(32)}
    with pytest.raises(SessionNotFoundError, match="nobody"):
        log.take_over(["s", "nobody"], stands_on=stands_on, reason="x")
    with pytest.raises(StepNotFoundError):
        log.take_over(["s"], stands_on={"s": bytes(32)}, reason="x")
    with pytest.raises(StepNotFoundError):
        log.take_over(["s"], stands_on={}, reason="x")
    assert log.session_info("s").attempt == 1


def test_a_digest_of_another_session_is_not_known(log: EventLog) -> None:
    seeded_chain(log, "s")
    other = seeded_chain(log, "other")
    with pytest.raises(StepNotFoundError):
        log.take_over(["s"], stands_on={"s": other.head.digest}, reason="x")


def test_a_released_session_is_claimed_without_fencing(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    receipt = keeper.log.release("s", to_writer="next")
    assert (receipt.first_step, receipt.last_step) == (5, 5)
    assert keeper.log.session_info("s").status == "released"
    new = keeper.another_handle()
    attempt = new.take_over(["s"], stands_on={"s": receipt.event_digest}, reason="go on")
    assert attempt == {"s": 2}
    claim = decode_event(list(new.read_session("s"))[-1].data).body
    assert claim == SessionResumed(5, "go on", new.writer_id, over_release=True)
    assert new.session_info("s").status == "open"
    chain.head = new.session_info("s").head
    append_all(new, [chain.call()])


def test_a_released_session_taken_back_to_an_earlier_step_is_an_ordinary_claim(
    log: EventLog,
) -> None:
    chain = seeded_chain(log, "s")
    log.release("s")
    claimed(log, chain, step=2)
    body = chain.events[-1].event.body
    assert isinstance(body, SessionResumed)
    assert not body.over_release


def test_after_a_release_nobody_appends_without_a_claim(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    keeper.log.release("s")
    chain.head = keeper.log.session_info("s").head
    event = chain.call()
    for handle in (keeper.log, keeper.another_handle()):
        with pytest.raises(FencedError):
            append_all(handle, [event])
    with pytest.raises(FencedError):
        keeper.log.release("s")


def test_only_the_owner_releases(keeper: Keeper) -> None:
    seeded_chain(keeper.log, "s")
    with pytest.raises(FencedError):
        keeper.another_handle().release("s")
    with pytest.raises(SessionNotFoundError):
        keeper.log.release("nobody")
    assert keeper.log.session_info("s").status == "open"


def test_a_closed_session_cannot_be_released(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.closed()])
    with pytest.raises(StepConflictError, match="closed"):
        log.release("s")


def test_a_claim_reopens_a_closed_session(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.closed()])
    claimed(log, chain)
    assert log.session_info("s").status == "open"
    append_all(log, [chain.call()])


def test_a_batch_that_begins_with_a_claim_is_judged_by_the_rule(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    append_all(keeper.log, [chain.closed("done")])
    other = keeper.another_handle()
    batch = [
        chain.resumed(reason="late reward", writer=other.writer_id),
        chain.verified(0.25),
        chain.closed("done"),
    ]
    receipt = append_all(other, batch)
    assert receipt.attempt == 2
    info = keeper.log.session_info("s")
    assert (info.status, info.reward, info.attempt) == ("closed", 0.25, 2)
    assert append_all(other, batch) == receipt


def test_a_claim_that_comes_too_late_is_fenced(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    late = EventChain("s", seed=5)
    late.events, late.head = list(chain.events), chain.head
    claimed(keeper.another_handle(), chain)
    with pytest.raises(FencedError):
        append_all(keeper.log, [late.resumed(writer=keeper.log.writer_id)])


def test_a_claim_on_an_event_nobody_wrote_is_a_conflict(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    claim = chain.resumed(LineHead("s", 4, 1, bytes(32)), attempt=2)
    with pytest.raises(StepConflictError):
        append_all(log, [claim])
    ahead = chain.resumed(LineHead("s", 40, 1, bytes(32)), attempt=2)
    with pytest.raises(StepConflictError):
        append_all(log, [ahead])


def test_an_attempt_that_was_never_claimed_is_refused(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    chain.head = chain.head._replace(attempt=7)
    with pytest.raises(StepConflictError):
        append_all(log, [chain.call()])


def test_nobody_owns_an_imported_session_until_it_is_claimed(keeper: Keeper) -> None:
    chain = EventChain("s")
    batch = [chain.seed(), chain.call(), chain.closed("imported")]
    append_all(keeper.log, batch)
    with pytest.raises(FencedError):
        append_all(keeper.log, [chain.verified()])
    chain.events.pop()
    chain.head = LineHead("s", 2, 1, chain.events[-1].digest)
    claimed(keeper.log, chain)
    append_all(keeper.log, [chain.verified(0.5)])
    assert keeper.log.session_info("s").reward == 0.5


def test_reconcile_has_nothing_to_say_where_nothing_is_uncertain(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    assert log.reconcile("s") is None
    assert log.reconcile("nobody") is None
    append_all(log, [chain.call()])


def test_a_branch_with_no_writer_is_released_from_birth(keeper: Keeper) -> None:
    parent = seeded_chain(keeper.log, "s")
    branch = EventChain("b", seed=1)
    append_all(keeper.log, [branch.forked(parent.head)])
    info = keeper.log.session_info("b")
    assert (info.status, info.writer, info.step_count) == ("released", None, 6)
    with pytest.raises(FencedError):
        append_all(keeper.log, [branch.call()])
    other = keeper.another_handle()
    assert other.take_over(["b"], stands_on={"b": branch.events[0].digest}, reason="x") == {"b": 2}
    claim = decode_event(list(other.read_session("b"))[-1].data).body
    assert isinstance(claim, SessionResumed)
    assert claim.over_release


def test_a_branch_is_taken_over_at_its_fork_by_the_parents_event(log: EventLog) -> None:
    parent = seeded_chain(log, "s")
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(parent.head, writer=log.writer_id), branch.call()])
    log.take_over(["b"], stands_on={"b": parent.head.digest}, reason="x")
    kinds = [record.prefix.kind for record in log.read_session("b", 5)]
    assert kinds == ["session_forked", "session_resumed"]


def test_a_branch_is_not_taken_over_before_its_fork(log: EventLog) -> None:
    parent = seeded_chain(log, "s")
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(parent.head, writer=log.writer_id)])
    with pytest.raises(StepNotFoundError):
        log.take_over(["b"], stands_on={"b": parent.events[1].digest}, reason="x")


def test_a_claim_of_a_restore_says_so(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    restore = Restore("run-1", 3)
    log.take_over(["s"], stands_on={"s": chain.head.digest}, reason="restore", restore=restore)
    claim = decode_event(list(log.read_session("s"))[-1].data).body
    assert isinstance(claim, SessionResumed)
    assert claim.restore == restore


@pytest.mark.parametrize("then", ["nothing", "released", "resumed"])
def test_the_older_of_two_restores_of_one_training_gives_up(keeper: Keeper, then: str) -> None:
    """Two trainers bring the same training back at once: who claimed it first comes too late here,
    also when the sessions went on meanwhile."""
    chain = seeded_chain(keeper.log, "s", calls=3)
    at = chain.events[2].digest
    newer = keeper.another_handle()
    newer.take_over(["s"], stands_on={"s": at}, reason="r", restore=Restore("run-1", 6))
    if then != "nothing":
        released = newer.release("s").event_digest
        if then == "resumed":
            newer.take_over(["s"], stands_on={"s": released}, reason="environment")
    head = newer.session_info("s").head
    with pytest.raises(FencedError, match="attempt 6, this is 5") as caught:
        keeper.log.take_over(["s"], stands_on={"s": at}, reason="r", restore=Restore("run-1", 5))
    assert caught.value.session_id == "s"
    assert keeper.log.session_info("s").head == head
    # The same trainer once more, a later one, and another training are not in its way.
    for again in (Restore("run-1", 6), Restore("run-1", 7), Restore("run-2", 1)):
        keeper.another_handle().take_over(["s"], stands_on={"s": at}, reason="r", restore=again)
