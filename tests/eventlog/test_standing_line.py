"""Ranges of a standing line, and chains of records across a fork."""

import random
from collections.abc import Sequence

import pytest

from eventlog.errors import LinkBrokenError, StepGapError
from eventlog.event import Body, SessionForked, StateChanged, ToolCalled
from eventlog.line_state import Claim
from eventlog.standing_line import StandingChain, StandingRange, standing_ranges
from tests.support.line_histories import TEXT, random_history
from tests.support.line_records import (
    LineKeeper,
    Record,
    claim_record,
    fork_record,
    record_of,
    seed_record,
)
from tests.support.scale import scaled

CLAIMS = [Claim(1, 0, 0), Claim(2, 4, 1), Claim(3, 6, 2), Claim(5, 3, 1)]


def test_the_line_is_read_from_the_heads_attempt_back() -> None:
    assert standing_ranges(CLAIMS, 3, 8) == [
        StandingRange(1, 0, 4),
        StandingRange(2, 4, 6),
        StandingRange(3, 6, 9),
    ]
    assert standing_ranges(CLAIMS, 5, 3) == [StandingRange(1, 0, 3), StandingRange(5, 3, 4)]


def test_a_superseded_event_has_its_own_line() -> None:
    assert standing_ranges(CLAIMS, 2, 4) == [StandingRange(1, 0, 4), StandingRange(2, 4, 5)]


def test_a_branch_begins_at_its_fork_event() -> None:
    assert standing_ranges([Claim(1, 7, 0)], 1, 9) == [StandingRange(1, 7, 10)]


@pytest.mark.parametrize(
    ("claims", "attempt", "step"),
    [
        ([], 1, 0),
        ([Claim(1, 0, 0)], 2, 5),
        ([Claim(2, 4, 1)], 2, 5),
        ([Claim(1, 0, 0), Claim(2, 4, 1)], 2, 3),
        ([Claim(2, 4, 2)], 2, 5),
        ([Claim(1, 0, 0), Claim(2, 4, 3), Claim(3, 5, 2)], 3, 6),
        ([Claim(1, 5, 0), Claim(2, 4, 1)], 2, 6),
        ([Claim(1, 0, 0)], 0, 3),
    ],
)
def test_claims_that_lead_nowhere_are_refused(claims: list[Claim], attempt: int, step: int) -> None:
    with pytest.raises(LinkBrokenError, match="missing or leads nowhere") as caught:
        standing_ranges(claims, attempt, step, session_id="s")
    assert caught.value.session_id == "s"


def test_the_ranges_are_the_chain_of_parents_of_any_event_ever_accepted() -> None:
    for seed in range(scaled(300, 5_000)):
        keeper = LineKeeper()
        for record in random_history(random.Random(seed)):
            keeper.accept(record)
        for event in keeper.events.values():
            ranges = standing_ranges(keeper.claims, event.attempt, event.step)
            read = [
                keeper.places[part.attempt, step]
                for part in ranges
                for step in range(part.first_step, part.end_step)
            ]
            assert read == chain_of_parents(keeper, event)


def chain_of_parents(keeper: LineKeeper, event: Record) -> list[Record]:
    chain = [event]
    while chain[-1].parent in keeper.events:
        chain.append(keeper.events[chain[-1].parent])
    return chain[::-1]


def grown(line: Sequence[Record], count: int, body: Body | None = None) -> list[Record]:
    """`line` with more ordinary events on it."""
    records = list(line)
    for _ in range(count):
        last = records[-1]
        records.append(
            record_of(
                body or ToolCalled("t", TEXT),
                step=last.step + 1,
                attempt=last.attempt,
                parent=last.digest,
                session_id=last.session_id,
            )
        )
    return records


def forked(parent: Record, session_id: str = "B", **facts: object) -> Record:
    """The fork event of a branch that stands on `parent`."""
    body = SessionForked(parent.session_id, parent.step)._replace(**facts)
    return record_of(
        body, step=parent.step + 1, attempt=1, parent=parent.digest, session_id=session_id
    )


def follow(records: Sequence[Record]) -> StandingChain:
    chain = StandingChain()
    for record in records:
        chain.follow(record, record.digest)
    return chain


def branch_of_branch() -> list[Record]:
    """A parent session, a branch claimed over its release, and a branch of that."""
    line = grown([seed_record()], 3)
    line += [claim_record(line[-1], 4)]
    line += [forked(line[-1])]
    fork = line[-1]
    claim = claim_record(fork, 2, over_release=True)
    line += [record_of(claim.body, step=claim.step, attempt=2, parent=fork.digest, session_id="B")]
    line = grown(line, 2)
    line += [forked(line[-1], "C", writer="w1")]
    return grown(line, 2)


def test_a_branch_is_followed_from_its_parents_events_from_any_step_on() -> None:
    line = branch_of_branch()
    assert [record.session_id for record in line] == ["s"] * 5 + ["B"] * 4 + ["C"] * 3
    for start in range(len(line)):
        chain = follow(line[start:])
        assert chain.head == ("C", line[-1].step, 1, line[-1].digest)
    assert StandingChain().head is None


@pytest.mark.parametrize("missing", range(1, 11))
def test_a_missing_record_is_found_wherever_it_was(missing: int) -> None:
    line = branch_of_branch()
    del line[missing]
    with pytest.raises((LinkBrokenError, StepGapError)) as caught:
        follow(line)
    assert caught.value.step == missing + 1


@pytest.mark.parametrize(
    "facts", [{"parent_session": "other"}, {"parent_step": 2}, {"parent_step": 4}]
)
def test_a_fork_must_stand_on_what_was_read_before_it(facts: dict[str, object]) -> None:
    line = grown([seed_record()], 3)
    with pytest.raises(LinkBrokenError, match="the fork stands on"):
        follow([*line, forked(line[-1], **facts)])


def test_a_fork_of_another_event_at_that_step_is_refused() -> None:
    line = grown([seed_record()], 3)
    other = grown(line[:-1], 1, StateChanged("another"))
    with pytest.raises(LinkBrokenError, match="or another event there"):
        follow([*line, forked(other[-1])])


def test_a_record_of_another_session_is_refused() -> None:
    line = grown([seed_record()], 1)
    stray = record_of(
        ToolCalled("t", TEXT), step=2, attempt=1, parent=line[-1].digest, session_id="x"
    )
    with pytest.raises(LinkBrokenError, match="another session follows"):
        follow([*line, stray])


def test_a_chain_that_begins_with_nonsense_is_refused() -> None:
    seed = seed_record()
    with pytest.raises(StepGapError):
        follow([record_of(seed.body, step=3, attempt=1, parent=seed.digest)])
    with pytest.raises(StepGapError):
        follow([claim_record(seed, 1)])
    with pytest.raises(StepGapError):
        follow([record_of(fork_record(3, b"p" * 32).body, step=9, attempt=1, parent=b"p" * 32)])


def test_what_a_line_would_only_skip_breaks_a_chain() -> None:
    line = grown([seed_record()], 2)
    with pytest.raises(LinkBrokenError, match="cannot stand here"):
        follow([*line, line[-1]])
