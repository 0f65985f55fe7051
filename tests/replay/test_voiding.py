"""Voiding: sessions of a bad policy version are found, marked and never trained on unnoticed."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog.content import read_content
from eventlog.errors import ConfigError, FencedError, StepConflictError
from eventlog.event import Annotated, LineHead, SessionClosed, SessionLost, SessionResumed
from eventlog.log import SessionFilter
from replay.voiding import Voided
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Told
from tests.support.own_sessions import own_session
from tests.support.processes import python_script
from tests.support.scale import scaled

Play = Callable[..., Told]
KILLS = scaled(10, 60)
EVERY = SessionFilter(environment="desk")


def closed(ws: Workspace, name: str, policy: str = "12", **fields: Any) -> None:
    with ws.record(name, environment="desk", policy=policy, **fields) as session:
        session.record_message("assistant", "hi")


def bodies(ws: Workspace, name: str) -> list[Any]:
    return [event.body for event in ws.events(name)]


def statuses(ws: Workspace) -> dict[str, str]:
    return {info.session: info.status for info in ws.sessions()}


def test_a_closed_session_is_voided_in_one_append_and_closed_for_what_it_was(
    ws: Workspace,
) -> None:
    with pytest.raises(ZeroDivisionError), ws.record("s", environment="desk", policy="12"):
        raise ZeroDivisionError
    assert ws.void_sessions(SessionFilter(policy_min=12), reason="it lied") == [
        Voided("s", 3, ("12",))
    ]
    claim, voided, close = bodies(ws, "s")[2:]
    assert isinstance(claim, SessionResumed)
    assert (claim.reason, claim.from_step) == ("voiding", 1)
    assert isinstance(voided, Annotated)
    assert voided.name == "session_voided"
    value = read_content(voided.value.media_type, ws.read_content(voided.value))
    assert value == {"reason": "it lied", "policies": ["12"]}
    assert (close.reason, close.error_type) == ("error", "ZeroDivisionError")
    info = ws.session("s")
    assert (info.voided, info.status, info.reward) == (3, "closed", None)
    assert [event.actor for event in ws.events("s", 2)] == ["system", "operator", "system"]
    assert [report.verdict for report in ws.check("s")] == ["ok"]


def test_only_what_passes_is_voided_and_only_once(ws: Workspace) -> None:
    for version in (10, 11, 12, 13):
        closed(ws, f"s{version}", str(version))
    where = SessionFilter(policy_min=11, policy_max=12)
    assert [one.session for one in ws.void_sessions(where, reason="r")] == ["s11", "s12"]
    counts = {info.session: info.step_count for info in ws.sessions()}
    assert ws.void_sessions(where, reason="r") == []
    assert {info.session: info.step_count for info in ws.sessions()} == counts
    passing = [info.session for info in ws.sessions(SessionFilter(voided=False))]
    assert passing == ["s10", "s13"]


def test_released_and_lost_sessions_are_closed_as_voided(ws: Workspace) -> None:
    ws.record("released", environment="desk", policy="12").release()
    lost = ws.record("lost", environment="desk", policy="12")
    lost._append(SessionLost("host gone"), actor="system")
    fork = ws.fork("released", 0, name="fork")
    found = ws.void_sessions(EVERY, reason="r")
    assert {one.session: one.left for one in found} == {"released": None, "lost": None, fork: None}
    for name in ("released", "lost", fork):
        assert isinstance(bodies(ws, name)[-1], SessionClosed)
        assert bodies(ws, name)[-1].reason == "voided"
        assert ws.session(name).voided is not None
    assert {report.verdict for report in ws.check()} == {"ok"}


def test_an_open_session_is_left_unless_its_writer_is_fenced(ws: Workspace, play: Play) -> None:
    with open_workspace(ws.folder) as other:
        session = other.record("s", environment="desk", policy="12")
        session.record_tool_call("add", {})
        session.flush()
        (left,) = ws.void_sessions(EVERY, reason="r")
        assert (left.session, left.step) == ("s", None)
        assert "writer may live; fence=True takes it" in str(left.left)
        assert ws.session("s").step_count == 2
        assert ws.void_sessions(EVERY, reason="r", fence=True) == [Voided("s", 3, ("12",))]
        assert [type(body) for body in bodies(ws, "s")[2:]] == [
            SessionResumed,
            Annotated,
            SessionClosed,
        ]
        with pytest.raises(FencedError):
            session.record_message("user", "hello")
    assert statuses(ws) == {"s": "closed"}
    assert [report.verdict for report in ws.check("s")] == ["ok"]


def test_a_branch_that_begins_after_the_voiding_is_voided_with_its_parent(ws: Workspace) -> None:
    closed(ws, "s")
    ws.void_sessions(EVERY, reason="r")
    before, after = ws.fork("s", 1, name="before"), ws.fork("s", 4, name="after")
    assert (ws.session(before).voided, ws.session(after).voided) == (None, 4)
    assert [one.session for one in ws.void_sessions(EVERY, reason="r")] == ["before"]


def test_a_voiding_that_is_rewound_stands_no_more(ws: Workspace) -> None:
    closed(ws, "s")
    ws.void_sessions(EVERY, reason="r")
    ws.resume("s", at_step=1, reopen=True).close()
    assert ws.session("s").voided is None
    assert [one.session for one in ws.void_sessions(EVERY, reason="r")] == ["s"]


def test_what_says_nothing_is_refused(ws: Workspace) -> None:
    closed(ws, "s")
    for where in (SessionFilter(), SessionFilter(voided=False), SessionFilter(voided=True)):
        with pytest.raises(ConfigError, match="no filter"):
            ws.void_sessions(where, reason="r")
    with pytest.raises(ConfigError, match="no reason"):
        ws.void_sessions(EVERY, reason=" ")
    assert ws.session("s").voided is None


def test_our_own_books_are_never_voided(ws: Workspace) -> None:
    for environment in ("steplog.training", "steplog.checkpoint", "steplog.policy"):
        own_session(ws, environment, environment, "run-1").close()
    closed(ws, "s", training="run-1")
    where = SessionFilter(training_session="run-1")
    assert [one.session for one in ws.void_sessions(where, reason="r")] == ["s"]


def test_a_session_that_is_opened_again_in_between_is_left(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(ws, "s")
    closed(ws, "t")
    append = ws.log.append_events

    def resumed_first(session_id: str, *given: Any, **fields: Any) -> Any:
        if session_id == "s":
            monkeypatch.undo()
            ws.resume("s", reopen=True).record_message("user", "one more")
        return append(session_id, *given, **fields)

    monkeypatch.setattr(ws.log, "append_events", resumed_first)
    left, voided = ws.void_sessions(EVERY, reason="r")
    assert (left.session, left.step, voided.session) == ("s", None, "t")
    assert "opened again" in str(left.left)
    assert statuses(ws) == {"s": "open", "t": "closed"}


def test_two_at_once_void_each_session_once(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        closed(ws, f"s{number}")
    ws.record("open", environment="desk")
    append = ws.log.append_events
    with open_workspace(ws.folder) as other:

        def other_first(*given: Any, **fields: Any) -> Any:
            monkeypatch.undo()
            other.void_sessions(EVERY, reason="r", fence=True)
            return append(*given, **fields)

        monkeypatch.setattr(ws.log, "append_events", other_first)
        assert ws.void_sessions(EVERY, reason="r", fence=True) == []
    for info in ws.sessions():
        kinds = [event.kind for event in ws.events(info.session)]
        assert kinds.count("annotated") == 1
        assert info.status == "closed"


def test_a_claim_of_a_voiding_that_was_killed_is_completed_without_fencing(ws: Workspace) -> None:
    session = ws.record("s", environment="desk", policy="12")
    head = LineHead("s", session.step, 1, session.event_digest)
    ws.log.take_over(
        ["s"], stands_on={"s": head.digest}, reason="voiding", heads={"s": head}
    )  # and here its process dies
    assert statuses(ws) == {"s": "open"}
    assert ws.void_sessions(EVERY, reason="r") == [Voided("s", 3, ("12",))]
    assert statuses(ws) == {"s": "closed"}


def test_where_nothing_may_follow_a_claim_over_a_release_it_takes_two_appends(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka, which refuses the one append."""
    ws.record("s", environment="desk", policy="12").release()
    append = ws.log.append_events

    def refused(session_id: str, events: Any, **fields: Any) -> Any:
        if isinstance(events[0].event.body, SessionResumed):
            raise FencedError("the session was released", hint="", session_id=session_id)
        return append(session_id, events, **fields)

    monkeypatch.setattr(ws.log, "append_events", refused)
    assert ws.void_sessions(EVERY, reason="r") == [Voided("s", 3, ("12",))]
    assert bodies(ws, "s")[2].over_release
    assert statuses(ws) == {"s": "closed"}


VOIDER = """
import sys, steplog
ws = steplog.open_workspace(sys.argv[1])
print("go", flush=True)
while True:
    ws.void_sessions(steplog.SessionFilter(environment="desk"), reason="r", fence=True)
"""


def test_killed_at_any_moment_the_next_voiding_completes_it(tmp_path: Path) -> None:
    rng = random.Random(5)
    folder = tmp_path / "runs"
    with open_workspace(folder) as ws:
        for attempt in range(KILLS):
            names = [f"{attempt}-{number}" for number in range(8)]
            for name in names[:4]:
                closed(ws, name)
            left_open = [ws.record(name, environment="desk", policy="12") for name in names[4:]]
            assert len(left_open) == 4
            with python_script(VOIDER, str(folder)) as voider:
                assert voider.stdout is not None
                voider.stdout.readline()
                time.sleep(rng.random() * 0.02)
                os.kill(voider.pid, signal.SIGKILL)
            found = ws.void_sessions(EVERY, reason="r", fence=True)
            assert [one for one in found if one.left] == []
            for name in names:
                info = ws.session(name)
                kinds = [event.kind for event in ws.events(name)]
                assert kinds.count("annotated") == 1, name
                assert (info.status, info.voided is None) == ("closed", False)
        assert {report.verdict for report in ws.check()} == {"ok"}


def test_a_conflict_is_ours_to_tell(ws: Workspace) -> None:
    """A writer that appends faster than a claim is read keeps its session."""
    session = ws.record("s", environment="desk")
    take_over = ws.log.take_over

    def busy(*given: Any, **fields: Any) -> Any:
        session.record_message("user", "x")
        return take_over(*given, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ws.log, "take_over", busy)
        (left,) = ws.void_sessions(EVERY, reason="r", fence=True)
    assert StepConflictError.__name__ in str(left.left)
    assert statuses(ws) == {"s": "open"}
