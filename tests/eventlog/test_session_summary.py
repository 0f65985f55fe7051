"""The running summary against what the whole standing line says, read anew."""

import math
import random
import struct
from collections.abc import Sequence

import pytest

from eventlog.canonical import decode, encode
from eventlog.content import TEXT_PLAIN, Content
from eventlog.errors import EventCorruptError
from eventlog.event import (
    Annotated,
    Event,
    MessageAdded,
    SessionSeeded,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.line_state import LineState
from eventlog.log import SessionInfo
from eventlog.session_line import SessionLine, nothing_known
from eventlog.session_summary import JUDGEMENTS_KEPT_MAX, SessionSummary, describe_session
from eventlog.training_facts import facts_of
from tests.support.events import EventChain
from tests.support.scale import scaled

TEXT = Content(TEXT_PLAIN, b"x")
REWARDS = (0.0, -0.0, 1.0, 0.1, 0.2, 1e16, -1e16, 5e-324, math.inf, -math.inf, math.nan)


def events_of(chain: EventChain) -> list[Event]:
    return [encoded.event for encoded in chain.events]


def running(events: Sequence[Event], start: SessionSummary | None = None) -> SessionSummary:
    summary = SessionSummary() if start is None else start
    for event in events:
        summary = summary.accept(event)
    return summary


def bits(reward: float | None) -> bytes | None:
    return None if reward is None else struct.pack(">d", reward)


def reward_by_the_rule(events: Sequence[Event]) -> tuple[float | None, str | None]:
    """The reward rule of docs/formats.md, read off the whole line."""
    verified = [(event.step, event.body) for event in events if isinstance(event.body, Verified)]
    for step, body in reversed(verified):
        superseded = any(later.supersedes_step == step for at, later in verified if at > step)
        if superseded or body.about_step is not None or body.mask_sample:
            continue
        if body.reward is not None:
            return body.reward, "verified"
    total, found = 0.0, False
    for event in events:
        body = event.body
        if not isinstance(body, ToolReturned) or body.duplicate_of is not None:
            continue
        if body.reward is not None:
            total, found = total + body.reward, True
    return (total, "steps") if found else (None, None)


def random_line(rng: random.Random) -> list[Event]:
    """A line with many rewards: late, corrected, about one step, masked, not a number, none."""
    chain = EventChain("s", rng.randrange(2**30))
    chain.seed()
    for _ in range(rng.randrange(60)):
        reward = rng.choice((None, None, *REWARDS))
        kind = rng.random()
        steps = range(chain.head.step + 1)
        policy = rng.choice((None, None, "11", "12", "13"))
        if kind < 0.3:
            chain.call(policy=policy)
        elif kind < 0.6:
            status = rng.choice(("ok", "ok", "error", "timeout"))
            duplicate_of = rng.choice((None, None, None, 1))
            chain.returned(rng.choice(steps), status, reward=reward, duplicate_of=duplicate_of)
        elif kind < 0.9:
            verified = [event.step for event in events_of(chain) if event.kind == "verified"]
            chain.verified(
                reward,
                about_step=rng.choice((None, None, 1)),
                mask_sample=rng.random() < 0.2,
                supersedes_step=rng.choice((None, None, rng.choice(steps), *verified[-2:])),
            )
        elif kind < 0.95:
            chain.append(MessageAdded("user", TEXT, policy_first=policy, policy_last="14"))
        else:
            chain.append(Annotated(rng.choice(("note", "session_voided")), TEXT))
    if rng.random() < 0.5:
        chain.closed()
        chain.verified(rng.choice(REWARDS))
    return events_of(chain)


def test_every_summary_on_the_way_is_what_the_line_so_far_says() -> None:
    kinds = set()
    for seed in range(scaled(400, 8_000)):
        events = random_line(random.Random(seed))
        summary = SessionSummary()
        for i, event in enumerate(events):
            summary = summary.accept(event)
            reward, reward_from = reward_by_the_rule(events[: i + 1])
            assert bits(summary.reward) == bits(reward), f"seed {seed}, step {i}"
            assert summary.reward_from == reward_from
        check_counts(summary, events)
        kinds.add(summary.reward_from)
    assert kinds == {"verified", "steps", None}


def check_counts(summary: SessionSummary, events: Sequence[Event]) -> None:
    returns = [event.body for event in events if isinstance(event.body, ToolReturned)]
    open_calls = [
        event.step
        for event in events
        if isinstance(event.body, ToolCalled)
        and not any(
            isinstance(later.body, ToolReturned) and later.body.called_step == event.step
            for later in events[event.step :]
        )
    ]
    assert summary.step_count == len(events)
    assert (summary.first_time, summary.last_time) == (events[0].time, events[-1].time)
    assert summary.calls == sum(event.kind == "tool_called" for event in events)
    assert summary.returns == len(returns)
    assert summary.errors == sum(answer.status != "ok" for answer in returns)
    assert summary.verifications == sum(event.kind == "verified" for event in events)
    assert summary.messages == sum(event.kind == "message_added" for event in events)
    assert summary.open_calls == tuple(open_calls)
    assert summary.training == facts_of(events)


def test_stored_and_gone_on_from_is_the_same_as_never_stored() -> None:
    for seed in range(scaled(200, 4_000)):
        rng = random.Random(seed)
        events = random_line(rng)
        cut = rng.randrange(len(events) + 1)
        stored = running(events[:cut]).to_value()
        read_back = SessionSummary.from_value(decode(encode(stored)))
        gone_on = running(events[cut:], read_back)
        assert encode(gone_on.to_value()) == encode(running(events).to_value())


def test_built_from_the_whole_line_is_the_same_as_built_on_the_way() -> None:
    for seed in range(scaled(200, 4_000)):
        rng = random.Random(seed)
        events = random_line(rng)
        cut = rng.randrange(len(events) + 1)
        expected = encode(running(events).to_value())
        assert encode(SessionSummary.of_line(events).to_value()) == expected
        later = SessionSummary.of_line(events[cut:], running(events[:cut]))
        assert encode(later.to_value()) == expected


def test_step_rewards_are_added_in_step_order() -> None:
    chain = EventChain("s")
    chain.seed()
    for reward in (1e16, 1.0, -1e16, 0.1):
        chain.call()
        chain.returned(reward=reward)
    assert running(events_of(chain)).reward == ((1e16 + 1.0) - 1e16) + 0.1


def test_a_late_verification_counts_and_a_correction_replaces_it() -> None:
    chain = EventChain("s")
    chain.seed()
    chain.verified(0.25)
    chain.closed()
    late = chain.verified(0.5).event.step
    assert running(events_of(chain)).reward == 0.5
    chain.verified(None, supersedes_step=late)
    assert running(events_of(chain)).reward == 0.25


def test_a_superseded_correction_does_not_bring_the_first_one_back() -> None:
    chain = EventChain("s")
    chain.seed()
    first = chain.verified(0.25).event.step
    second = chain.verified(0.5, supersedes_step=first).event.step
    chain.verified(None, supersedes_step=second)
    summary = running(events_of(chain))
    assert (summary.reward, summary.reward_from) == (None, None)


def test_a_nan_reward_is_a_reward() -> None:
    chain = EventChain("s")
    chain.seed()
    chain.verified(1.0)
    chain.verified(math.nan)
    summary = running(events_of(chain))
    assert summary.reward is not None
    assert math.isnan(summary.reward)
    assert summary.reward_from == "verified"


def many_rewards(count: int) -> tuple[EventChain, list[int]]:
    chain = EventChain("s")
    chain.seed()
    return chain, [chain.verified(float(i)).event.step for i in range(count)]


def test_the_kept_rewards_are_bounded_and_what_was_let_go_is_not_guessed() -> None:
    chain, steps = many_rewards(JUDGEMENTS_KEPT_MAX + 3)
    summary = running(events_of(chain))
    assert len(summary.judgements) == JUDGEMENTS_KEPT_MAX
    assert summary.judgements_let_go == 3
    assert not summary.must_rebuild
    for step in reversed(steps[3:]):
        chain.verified(None, supersedes_step=step)
    summary = running(events_of(chain))
    assert summary.must_rebuild
    for ask in (lambda: summary.reward, lambda: summary.reward_from):
        with pytest.raises(ValueError, match="rebuild"):
            ask()
    rebuilt = SessionSummary.of_line(events_of(chain))
    assert (rebuilt.reward, rebuilt.must_rebuild) == (2.0, False)


def test_a_summary_hangs_on_its_line_alone_even_where_rewards_are_let_go() -> None:
    for seed in range(scaled(20, 300)):
        rng = random.Random(seed)
        chain, steps = many_rewards(JUDGEMENTS_KEPT_MAX + rng.randrange(-3, 4))
        for _ in range(rng.randrange(12)):
            superseded = rng.choice((None, 0, rng.choice(steps), *steps[:3], *steps[-3:]))
            reward = rng.choice((None, 1.0))
            steps.append(chain.verified(reward, supersedes_step=superseded).event.step)
        events = events_of(chain)
        whole = SessionSummary.of_line(events)
        assert not whole.must_rebuild
        cut = rng.randrange(len(events))
        for summary in (
            rebuilt_where_due(events),
            SessionSummary.of_line(events[cut:], SessionSummary.of_line(events[:cut])),
            running(events),
        ):
            assert summary.must_rebuild or summary == whole


def rebuilt_where_due(events: Sequence[Event]) -> SessionSummary:
    summary = SessionSummary()
    for i, event in enumerate(events):
        summary = summary.accept(event)
        if summary.must_rebuild:
            summary = SessionSummary.of_line(events[: i + 1])
    return summary


def test_a_branch_goes_on_from_its_parents_summary_at_the_fork() -> None:
    parent = EventChain("s")
    parent.seed("desk", task_id="task-17")
    parent.call()
    parent.returned(reward=0.5)
    prefix = running(events_of(parent))
    branch = EventChain("s/B")
    branch.forked(parent.head)
    branch.call()
    branch.returned(reward=0.25)
    summary = running(events_of(branch), prefix)
    assert (summary.seed.task_id, summary.seeded) == ("task-17", True)
    assert (summary.step_count, summary.calls, summary.reward) == (6, 2, 0.75)
    assert summary.first_time == parent.events[0].event.time
    assert not running(events_of(branch)).seeded


def test_a_session_is_described_by_its_line_and_its_summary() -> None:
    chain = EventChain("s")
    chain.seed(
        "desk",
        task_id="t",
        sample_id="m",
        group_id="g",
        policy="p",
        writer="w1",
        reducer="captured",
        reducer_version="1",
        state_coverage="partial",
    )
    chain.verified(0.5)
    chain.closed("done")
    line = SessionLine("s", nothing_known)
    for encoded in chain.events:
        line.accept(encoded.event, encoded.digest)
    assert describe_session("s", line.state, running(events_of(chain))) == SessionInfo(
        session_id="s",
        environment="desk",
        task_id="t",
        sample_id="m",
        group_id="g",
        policy="p",
        reducer="captured",
        reducer_version="1",
        state_coverage="partial",
        step_count=3,
        attempt=1,
        status="closed",
        writer="w1",
        reward=0.5,
        reward_from="verified",
        first_time=chain.events[0].event.time,
        last_time=chain.events[-1].event.time,
        head=chain.head,
        parent_session=None,
        parent_step=None,
        error=None,
        policies=("p",),
    )


def test_a_stopped_line_is_described_with_its_error() -> None:
    chain = EventChain("s")
    for _ in range(3):
        chain.append(SessionSeeded("desk"))
    line = SessionLine("s", nothing_known)
    for encoded in (chain.events[0], chain.events[2]):
        line.accept(encoded.event._replace(kind="annotated"), encoded.digest, encoded.event.body)
    info = describe_session("s", line.state, SessionSummary())
    assert info.error is not None
    assert info.error.startswith("StepGapError: ")


def test_nothing_is_described_before_the_first_event() -> None:
    info = describe_session("s", LineState(), SessionSummary())
    assert (info.step_count, info.reward, info.head.step) == (0, None, -1)


PLAIN = SessionSummary().to_value()
NO_FACTS = (
    None,
    [],
    [None, None, [], False],
    [None, None, [], False, None, None],
    [1, None, [], False, None],
    [None, True, [], False, None],
    [None, None, "p", False, None],
    [None, None, [1], False, None],
    [None, None, [], 0, None],
    [None, None, ["p"], True, None],
    [None, None, ["p"] * 65, True, None],
    [None, None, [], False, "4"],
)


@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        [0] * len(PLAIN),
        [1, 2],
        [*PLAIN, 0],
        PLAIN[:-2],
        [*PLAIN[:-3], ["x"], *PLAIN[-2:]],
        [*PLAIN[:-5], [[1]], *PLAIN[-4:]],
        [-1, ["only"], *PLAIN[2:]],
        *([*PLAIN[:-1], facts] for facts in NO_FACTS),
    ],
)
def test_a_stored_summary_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(EventCorruptError, match="session summary"):
        SessionSummary.from_value(value)  # type: ignore[arg-type]
