"""Rows that an older steplog wrote: their summaries end before `training`, and are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import LineHead, MessageAdded
from eventlog.log import SessionFilter
from eventlog.session_summary import SessionSummary
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.recorded import append_all

OLDER_FIELDS = 16


@contextmanager
def older_rows() -> Iterator[None]:
    """While it holds, summaries are stored as an older steplog stored them."""
    now = SessionSummary.to_value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionSummary, "to_value", lambda self: now(self)[:OLDER_FIELDS])
        yield


def recorded(log: SqliteLog, name: str, calls: int) -> EventChain:
    chain = EventChain(name)
    chain.seed(policy="1", training_session="run-1", training_step=2, writer=log.writer_id)
    for number in range(calls):
        chain.call(policy=str(2 + number // 200))
        chain.returned()
    append_all(log, chain.events)
    return chain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def older(path: Path) -> EventChain:
    """A log of an older steplog, with one session of 601 events."""
    with older_rows(), SqliteLog(path) as log:
        return recorded(log, "s", calls=300)


def test_an_older_row_is_read_and_says_what_it_does_not_know(path: Path, older: EventChain) -> None:
    with SqliteLog(path) as log:
        info = log.session_info("s")
        assert (info.step_count, info.policy, info.head) == (601, "1", older.head)
        assert (info.policies, info.policies_more, info.training_known) == (("1",), True, False)
        assert (info.training_session, info.training_step, info.voided) == (None, None, None)
        assert list(log.list_sessions()) == [info]
        assert list(log.find_damage()) == []


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        (SessionFilter(training_session="run-1"), True),
        (SessionFilter(training_session="run-2"), False),
        (SessionFilter(training_step_min=2, training_step_max=2), True),
        (SessionFilter(policy_min="3"), True),
        (SessionFilter(policy_min="4"), False),
        (SessionFilter(policy_max="1"), True),
        (SessionFilter(voided=False), True),
        (SessionFilter(voided=True), False),
    ],
)
def test_filters_read_what_an_older_row_does_not_know(
    path: Path, older: EventChain, where: SessionFilter, passes: bool
) -> None:
    assert older.events
    with SqliteLog(path) as log:
        assert [info.session_id for info in log.list_sessions(where)] == ["s"] * passes


def test_once_something_is_added_all_is_known(path: Path, older: EventChain) -> None:
    with SqliteLog(path) as log:
        log.take_over(["s"], stands_on={"s": older.head.digest}, reason="x")
        info = log.session_info("s")
        assert (info.policies, info.training_step) == (("1", "2", "3"), 2)
        assert info.training_known
        assert list(log.find_damage()) == []
        # The older marks are of no use to it.
        log.take_over(["s"], stands_on={"s": older.events[400].digest}, reason="x")
        assert log.session_info("s").policies == ("1", "2")
        assert list(log.find_damage()) == []


def test_a_branch_of_an_older_session_knows_all(path: Path, older: EventChain) -> None:
    with SqliteLog(path) as log:
        for step in (600, 500, 3):
            branch = EventChain(f"b{step}", seed=1)
            branch.forked(LineHead("s", step, 1, older.events[step].digest))
            append_all(log, branch.events)
            info = log.session_info(f"b{step}")
            # A branch is of its parent's training only if its fork says so.
            assert (info.training_session, info.training_known) == (None, True)
            assert info.policies == (("1", "2", "3") if step > 400 else ("1", "2"))
        assert list(log.find_damage()) == []


def test_a_whole_row_in_a_younger_file_is_not_cut(path: Path) -> None:
    with SqliteLog(path) as log:
        chain = recorded(log, "s", calls=3)
        append_all(log, [chain.append(MessageAdded("assistant", Content(TEXT_PLAIN, b"x")))])
        assert log.session_info("s").policies == ("1", "2")
