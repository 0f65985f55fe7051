"""Forks: what a branch shares with its parent, and what it has of its own."""

from collections.abc import Callable

import pytest

from eventlog.content import Content
from eventlog.errors import (
    LinkBrokenError,
    SessionExistsError,
    SessionNotFoundError,
    SteplogError,
    StepNotFoundError,
)
from eventlog.event import LineHead, SessionForked
from replay.workspace import Workspace, open_workspace
from snapshots.snapshot_policy import EveryN
from tests.support.desk import Told
from tests.support.events import EventChain
from tests.support.recorded import append_all

Play = Callable[..., Told]


def go_on(ws: Workspace, branch: str, told: Told, step: int, calls: int) -> Told:
    """Resume a branch, with the desk set back to the state at the fork; what is true of it."""
    with ws.resume(branch, state=lambda: own.desk.state) as session:
        own = Told(told.desk)
        own.desk.state = session.state  # type: ignore[assignment]
        own.states = told.states[: step + 1]
        own.play(session, calls)
    own.note(session)
    return own


def assert_replays(ws: Workspace, name: str, told: Told) -> None:
    for step, state in enumerate(told.states):
        assert ws.replay(name, step).state_bytes == state, (name, step)
        assert ws.replay(name, step, use_snapshots=False).state_bytes == state, (name, step)
    assert ws.session(name).step_count == len(told.states)


def test_a_fork_is_one_event_that_says_where_it_stands(ws: Workspace, play: Play) -> None:
    play(calls=5)
    before = ws.log.end_cut().end(0)
    assert ws.fork("s", 4, name="b", changes={"temperature": "0.5"}) == "b"
    assert ws.log.end_cut().end(0) == before + 1
    fork = list(ws.events("b"))[-1]
    assert fork.body == SessionForked("s", 4, None, {"temperature": "0.5"})
    assert (fork.step, fork.parent) == (5, next(ws.log.read_session("s", 4, 5)).digest)
    info = ws.session("b")
    assert (info.parent_session, info.parent_step, info.step_count) == ("s", 4, 6)
    assert (info.environment, info.writer, info.status) == ("desk", None, "released")


def test_a_branch_replays_like_its_parent_up_to_the_fork_and_then_its_own_way(
    ws: Workspace, play: Play
) -> None:
    told = play(calls=10)
    ws.fork("s", 8, name="b")
    assert_replays(ws, "b", Told_of(told, 8, extra=1))
    own = go_on(ws, "b", told, 8, calls=6)
    assert_replays(ws, "b", own)
    assert_replays(ws, "s", told)
    assert own.states[9:] != told.states[9:]


def Told_of(told: Told, step: int, extra: int) -> Told:  # noqa: N802 - reads as the class it makes
    """The truth about a branch that has only its fork event."""
    cut = Told(told.desk)
    cut.states = told.states[: step + 1] + [told.states[step]] * extra
    return cut


def test_a_branch_may_stand_on_any_step(ws: Workspace, play: Play) -> None:
    told = play(calls=4)
    for step in range(len(told.states)):
        name = ws.fork("s", step)
        assert_replays(ws, name, Told_of(told, step, extra=1))


@pytest.mark.parametrize("step", [-1, 12, 100])
def test_a_fork_at_a_step_that_is_not_there(ws: Workspace, play: Play, step: int) -> None:
    play(calls=5)
    with pytest.raises(StepNotFoundError) as caught:
        ws.fork("s", step, name="b")
    assert caught.value.session_id == "s"
    with pytest.raises(SessionNotFoundError):
        ws.session("b")


def test_names_are_minted_or_given_once(ws: Workspace, play: Play) -> None:
    play(calls=1)
    first, second = ws.fork("s", 1), ws.fork("s", 1)
    assert first != second
    for taken in ("s", first):
        with pytest.raises(SessionExistsError):
            ws.fork("s", 1, name=taken)
    with pytest.raises(SessionNotFoundError):
        ws.fork("nobody", 0)
    for name in ("", "a\nb", "x" * 256):
        with pytest.raises(SteplogError):
            ws.fork("s", 1, name=name)


def test_a_branch_of_a_branch_of_a_branch(ws: Workspace, play: Play) -> None:
    told = play(calls=8)
    ws.fork("s", 6, name="b")
    b = go_on(ws, "b", told, 6, calls=5)
    ws.fork("b", 11, name="c")
    c = go_on(ws, "c", b, 11, calls=3)
    ws.fork("c", 4, name="d")  # a step that c has from its grandparent
    d = go_on(ws, "d", c, 4, calls=2)
    ws.fork("c", 9, name="e")  # a step that c has from its parent
    e = go_on(ws, "e", c, 9, calls=2)
    for name, truth in (("s", told), ("b", b), ("c", c), ("d", d), ("e", e)):
        assert_replays(ws, name, truth)
    assert [report.verdict for report in ws.check()] == ["ok"] * 5


def test_the_parents_snapshots_serve_a_branch(ws: Workspace, play: Play) -> None:
    told = play(calls=30, snapshots=EveryN(8))
    snapshots = [ref.step for ref in ws.snapshots.list_snapshots("s")]
    ws.fork("s", 27, name="b")
    go_on(ws, "b", told, 27, calls=1)
    for step in (10, 27, 28):
        used = ws.replay("b", step).from_snapshot
        assert used == max(each for each in snapshots if each <= min(step, 27))
    ws.fork("b", 20, name="c")
    replayed = ws.replay("c", 21)
    assert replayed.from_snapshot == max(each for each in snapshots if each <= 20)
    assert replayed.skipped == ()


def test_a_branch_stands_on_what_its_parent_was_and_not_on_what_it_became(
    ws: Workspace, play: Play
) -> None:
    told = play(calls=12, snapshots=EveryN(4))
    ws.fork("s", 18, name="b")
    own = go_on(ws, "b", told, 18, calls=3)
    with ws.resume("s", state=lambda: {"other": True}, at_step=5, reopen=True) as session:
        for _ in range(12):
            session.record_state("another way")
        session.record_tool_return(session.record_tool_call("x", {}), "y")
    assert ws.replay("s", 18).state == {"other": True}
    assert_replays(ws, "b", own)
    assert ws.session("b").reward is None
    ws.fork("s", 18, name="c")
    assert ws.replay("c").state == {"other": True}
    assert ws.fork("b", 10, name="d") == "d"
    assert ws.replay("d", 10).state_bytes == told.states[10]


def test_snapshots_of_a_superseded_line_are_passed_over(ws: Workspace, play: Play) -> None:
    told = play(calls=12, snapshots=EveryN(4))
    with ws.resume("s", state=lambda: {"other": True}, at_step=5, reopen=True) as session:
        for _ in range(25):
            session.record_state("another way")
    replayed = ws.replay("s", 20)
    assert replayed.state == {"other": True}
    assert any("another event" in why for why in replayed.skipped)
    assert ws.replay("s", 5).state_bytes == told.states[5]
    assert [report.verdict for report in ws.check()] == ["ok"]


def test_branches_forged_in_a_circle_are_told_and_not_followed(ws: Workspace) -> None:
    """Looking for snapshots of the parents went round for ever."""
    for name, parent in (("a", "b"), ("b", "a")):
        chain = EventChain(name)
        chain.forked(LineHead(parent, 4, 1, bytes(32)), writer=ws.log.writer_id)
        append_all(ws.log, chain.events)
    with pytest.raises(LinkBrokenError):
        ws.replay("a")
    assert [report.verdict for report in ws.check()] == ["damaged", "damaged"]


def test_a_branch_that_came_before_its_parent(ws: Workspace) -> None:
    """The log knows no reducer of it; a replay named the empty one as missing."""
    parent = EventChain("parent")
    parent.seed(
        writer=ws.log.writer_id, reducer="captured", initial_state=Content.of_value({"n": 1})
    )
    branch = EventChain("branch")
    branch.forked(parent.head, writer=ws.log.writer_id)
    append_all(ws.log, branch.events)
    with pytest.raises(LinkBrokenError):
        ws.replay("branch")
    append_all(ws.log, parent.events)
    assert ws.replay("branch").state == {"n": 1}


def test_a_branch_is_there_after_the_workspace_is_opened_again(ws: Workspace, play: Play) -> None:
    told = play(calls=4)
    ws.fork("s", 3, name="b")
    with open_workspace(ws.folder) as again:
        assert_replays(again, "b", Told_of(told, 3, extra=1))
        own = go_on(again, "b", told, 3, calls=2)
    assert_replays(ws, "b", own)
