"""Every keeper: what a session tells of its training, its policy versions and its voiding."""

from typing import Any

import pytest

from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import Annotated, LineHead, MessageAdded
from eventlog.log import POLICIES_KEPT_MAX, EventLog, SessionFilter, SessionInfo
from tests.support.events import EventChain
from tests.support.recorded import append_all

TEXT = Content(TEXT_PLAIN, b"x")
VOIDED = Annotated("session_voided", TEXT)


def chain_of(log: EventLog, name: str, *policies: str | None, **seed: Any) -> EventChain:
    """A session in the log whose calls name these versions."""
    chain = EventChain(name, seed=len(name))
    chain.seed(writer=log.writer_id, **seed)
    for policy in policies:
        chain.call(policy=policy)
        chain.returned()
    append_all(log, chain.events)
    return chain


def told(info: SessionInfo) -> tuple[object, ...]:
    return (
        info.training_session,
        info.training_step,
        info.policies,
        info.policies_more,
        info.voided,
    )


def test_a_session_that_names_nothing_tells_nothing(log: EventLog) -> None:
    chain_of(log, "s", None)
    assert told(log.session_info("s")) == (None, None, (), False, None)
    assert log.session_info("s").training_known


def test_versions_are_told_in_the_order_they_were_used_the_seeds_first(log: EventLog) -> None:
    chain = chain_of(
        log, "s", None, "13", "12", "13", policy="12", training_session="run-1", training_step=7
    )
    assert told(log.session_info("s")) == ("run-1", 7, ("12", "13"), False, None)
    append_all(log, [chain.append(MessageAdded("assistant", TEXT, policy_first="a"))])
    append_all(log, [chain.append(MessageAdded("user", TEXT, policy_first="12", policy_last="b"))])
    info = log.session_info("s")
    assert (info.policy, info.policies) == ("12", ("12", "13", "a", "b"))
    assert list(log.list_sessions()) == [info]


def test_only_what_stands_is_told(log: EventLog) -> None:
    chain = chain_of(log, "s", *[str(number // 100) for number in range(400)])
    append_all(log, [chain.append(VOIDED)])
    assert (log.session_info("s").policies, log.session_info("s").voided) == (
        ("0", "1", "2", "3"),
        801,
    )
    for step, policies in (
        (800, "0123"),
        (600, "012"),
        (512, "012"),
        (400, "01"),
        (2, "0"),
        (0, ""),
    ):
        log.take_over(["s"], stands_on={"s": chain.events[step].digest}, reason="x")
        assert told(log.session_info("s")) == (None, None, tuple(policies), False, None)
    assert list(log.find_damage()) == []


def test_a_branch_tells_of_its_parents_past_too(log: EventLog) -> None:
    parent = chain_of(log, "s", *"0123", policy="p", training_session="run-1", training_step=0)
    append_all(log, [parent.append(VOIDED)])
    for step, policies, voided in ((9, "p0123", 9), (8, "p0123", None), (3, "p01", None)):
        branch = EventChain(f"b{step}", seed=1)
        branch.forked(LineHead("s", step, 1, parent.events[step].digest))
        append_all(log, branch.events)
        assert told(log.session_info(f"b{step}")) == (None, None, tuple(policies), False, voided)
    assert list(log.find_damage()) == []


def test_a_branch_is_of_a_training_only_if_its_fork_says_so(log: EventLog) -> None:
    """A trial beside a training was taken for one of its sessions, and would have gone into its
    checkpoint sets and been rewound with them."""
    parent = chain_of(log, "s", *"01", training_session="run-1", training_step=0)
    for name, changes in (("trial", {}), ("arm", {"training_session": "run-2"})):
        branch = EventChain(name, seed=1)
        branch.forked(LineHead("s", 2, 1, parent.events[2].digest), changes=changes)
        append_all(log, branch.events)
    found = {
        training: [info.session_id for info in log.list_sessions(where)]
        for training in ("run-1", "run-2")
        for where in [SessionFilter(training_session=training)]
    }
    assert found == {"run-1": ["s"], "run-2": ["arm"]}
    assert list(log.find_damage()) == []


def test_the_first_voiding_is_told_also_after_the_close(log: EventLog) -> None:
    chain = chain_of(log, "s", "1")
    append_all(log, [chain.closed(), chain.append(VOIDED), chain.append(VOIDED)])
    assert (log.session_info("s").voided, log.session_info("s").status) == (4, "closed")


def test_many_versions_are_bounded_and_never_filtered_wrongly(log: EventLog) -> None:
    names = [f"{number}" for number in range(POLICIES_KEPT_MAX + 3)]
    chain_of(log, "s", *names[:POLICIES_KEPT_MAX])
    chain = chain_of(log, "many", *names, *names)
    info = log.session_info("many")
    assert info.policies == tuple(names[:POLICIES_KEPT_MAX])
    assert (info.policies_more, info.training_known) == (True, True)
    assert not log.session_info("s").policies_more

    def found(least: object, most: object) -> list[str]:
        where = SessionFilter(policy_min=least, policy_max=most)  # type: ignore[arg-type]
        return [each.session_id for each in log.list_sessions(where)]

    assert found("66", "70") == ["many"]
    assert found("67", None) == []
    assert found(None, "0") == ["s", "many"]
    log.take_over(["many"], stands_on={"many": chain.events[128].digest}, reason="x")
    assert not log.session_info("many").policies_more
    assert found("64", "70") == []
    assert list(log.find_damage()) == []


def _sessions(log: EventLog) -> None:
    chain_of(log, "s0")
    chain_of(log, "s1", "12~2", policy="12", training_session="run-1", training_step=3)
    chain_of(log, "s2", "13", policy="12", training_session="run-1", training_step=4)
    chain_of(log, "s3", "9", training_session="run-2", training_step=5)
    chain_of(log, "s4", policy="alpha")
    voided = chain_of(log, "s5", "14", policy="beta")
    append_all(log, [voided.append(VOIDED)])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (SessionFilter(training_session="run-1"), "12"),
        (SessionFilter(training_session="run"), ""),
        (SessionFilter(training_step_min=4), "23"),
        (SessionFilter(training_step_max=4), "12"),
        (SessionFilter(training_step_min=4, training_step_max=4), "2"),
        (SessionFilter(training_step_max=2**80), "123"),
        (SessionFilter(policy_min="12", policy_max="12"), "12"),
        (SessionFilter(policy_min=12, policy_max=12), "12"),
        (SessionFilter(policy_min="13"), "25"),
        (SessionFilter(policy_min="2", policy_max="10"), "3"),
        (SessionFilter(policy_max="11"), "3"),
        (SessionFilter(policy_min="12~1", policy_max="12~2"), "1"),
        (SessionFilter(policy_min="alpha", policy_max="alpha"), "4"),
        (SessionFilter(policy_min="alphas"), "5"),
        (SessionFilter(policy_min="\ud800"), ""),
        (SessionFilter(voided=True), "5"),
        (SessionFilter(voided=False), "01234"),
        (SessionFilter(voided=False, policy_min="14"), ""),
        (SessionFilter(training_session="run-1", policy_min=13, training_step_max=4), "2"),
    ],
)
def test_filters(log: EventLog, where: SessionFilter, expected: str) -> None:
    _sessions(log)
    found = [info.session_id for info in log.list_sessions(where.in_range())]
    assert found == [f"s{number}" for number in expected]
    assert found == [info.session_id for info in log.list_sessions(where)]
