"""Resuming: what a recorder finds when it goes on, who may, and what an old one may no more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.canonical import encode
from eventlog.codec import decode_event
from eventlog.errors import (
    ConfigError,
    FencedError,
    LogUnavailableError,
    NotRestorableError,
    RecorderEndedError,
    SessionExistsError,
    SessionNotFoundError,
    StateError,
    StepConflictError,
    StepNotFoundError,
)
from eventlog.event import SessionClosed, SessionResumed, StateChange
from eventlog.recorder import SessionRecorder
from eventlog.sqlite_log import SqliteLog
from replay.workspace import Workspace, open_workspace
from snapshots.snapshot_policy import EveryN
from tests.support.desk import Desk, Told
from tests.support.events import merkle_root
from tests.support.imported import write_lines

Play = Callable[..., Told]


def begin(ws: Workspace, calls: int = 3, name: str = "s") -> tuple[Told, SessionRecorder]:
    """A session that is left open, as after a crash."""
    desk = Desk()
    told = Told(desk)
    session = ws.record(name, environment="desk", state=lambda: desk.state)
    told.play(session, calls)
    return told, session


def verdict(ws: Workspace, name: str = "s") -> str:
    (report,) = ws.check(name)
    return report.verdict


def assert_closes_verify(ws: Workspace, name: str) -> int:
    """Every close of the line holds count and root of the session's own events before it."""
    parent_step = ws.session(name).parent_step
    first_own = 0 if parent_step is None else parent_step + 1
    own: list[bytes] = []
    closes = 0
    for record in ws.log.read_session(name):
        if record.prefix.step < first_own:
            continue
        body = decode_event(record.data).body
        if isinstance(body, SessionClosed):
            assert (body.event_count, body.root) == (len(own), merkle_root(own))
            closes += 1
        own.append(record.data)
    return closes


def test_a_resumed_recorder_stands_where_the_session_stood(ws: Workspace) -> None:
    told, old = begin(ws)
    session = ws.resume("s", state=lambda: told.desk.state)
    assert (session.step, session.attempt) == (old.step + 1, 2)
    assert encode(session.state) == ws.replay("s", old.step).state_bytes
    claim = list(ws.events("s"))[-1]
    assert claim.body == SessionResumed(old.step, "resume", ws.log.writer_id)
    told.note(session)
    told.play(session, 3)
    session.close()
    assert [ws.replay("s", step).state_bytes for step in range(len(told.states))] == told.states
    assert assert_closes_verify(ws, "s") == 1
    assert verdict(ws) == "ok"


def test_after_an_outage_the_session_goes_on_by_a_resume_and_the_old_recorder_says_so(
    ws: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    """With the log long back a recorder answered "disk full, then try again" for ever."""
    state: dict[str, object] = {"n": 0}
    old = ws.record("s", environment="desk", state=lambda: state)
    with old.call("add", {}):
        state["n"] = 1
    assert isinstance(ws.log, SqliteLog)
    db = ws.log._own.writer.committer._db
    assert db is not None
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages + 1}")
    with pytest.raises(LogUnavailableError, match="full") as refused:
        fill(old, state)
    assert refused.value.hint.startswith("the disk is full: free some space; nothing after step ")
    last = ws.session("s").head.step
    # The writer has opened the file anew, without that limit: the disk has room again.
    for act in (lambda: old.annotate("note", 1), old.close):
        with pytest.raises(RecorderEndedError, match=f"ended at step {last}: LogUn") as ended:
            act()
        assert "`ws.resume('s')`" in ended.value.hint
        assert isinstance(ended.value.__cause__, LogUnavailableError)
    with ws.resume("s", state=lambda: state) as session:
        assert session.step == last + 1
        state.clear()
        state.update(session.state)  # type: ignore[call-overload]
        session.interrupt_open_calls()
        with session.call("add", {}):
            state["n"] = 2
    assert verdict(ws) == "ok"
    assert ws.session("s").status == "closed"
    ws.log._own.writer.report_unheard()
    assert not caplog.records, "what failed with the append that was told is told again at exit"


def fill(session: SessionRecorder, state: dict[str, object]) -> None:
    for number in range(10):
        session.record_tool_call("look", "x" * 20_000)
        with session.call("add", {"n": number}):
            state[f"text{number}"] = "x" * 20_000


def test_the_old_recorder_is_fenced(ws: Workspace) -> None:
    told, old = begin(ws)
    call = old.record_tool_call("open", {})
    old.flush()
    ws.resume("s", state=lambda: told.desk.state)
    for act in (
        lambda: old.record_tool_return(call, "too late"),
        lambda: old.record_message("user", "too late"),
        lambda: old.close(),
        lambda: old.release(),
    ):
        with pytest.raises(FencedError):
            act()
    assert verdict(ws) == "ok"


def test_open_calls_are_listed_and_may_be_answered_as_interrupted(ws: Workspace) -> None:
    told, old = begin(ws, calls=1)
    first = old.record_tool_call("refund", {"order": "o1"}, call_id="c", effects="external")
    second = old.record_tool_call("look", {}, call_id="c", effects="pure")
    third = old.record_tool_call("note", {}, idempotency_key="k")
    old.record_tool_return(second, "seen")
    session = ws.resume("s", state=lambda: told.desk.state)
    calls = session.open_calls
    assert [(call.step, call.tool, call.effects) for call in calls] == [
        (first, "refund", "external"),
        (third, "note", "unknown"),
    ]
    assert calls[1].idempotency_key == "k"
    assert session.record_tool_call("note", {}, idempotency_key="k") == third
    steps = session.interrupt_open_calls()
    assert session.open_calls == ()
    rows = {row.call_step: row for row in ws.calls("s")}
    assert [rows[step].status for step in (first, second, third)] == [
        "interrupted",
        "ok",
        "interrupted",
    ]
    assert rows[first].return_step == steps[0]
    assert rows[first].duration_us == 0


def test_a_session_may_be_rewound_to_an_earlier_step(ws: Workspace) -> None:
    told, old = begin(ws, calls=6)
    session = ws.resume("s", at_step=7, state=lambda: told.desk.state)
    assert session.step == 8
    assert encode(session.state) == ws.replay("s", 7).state_bytes
    assert [call.step for call in session.open_calls] == [7], "its answer is superseded"
    told.desk.state = session.state  # type: ignore[assignment]
    told.states = told.states[:8]
    told.note(session)
    told.play(session, 4)
    session.close()
    told.note(session)
    assert [ws.replay("s", step).state_bytes for step in range(len(told.states))] == told.states
    (report,) = ws.check("s")
    assert (report.verdict, report.events, report.superseded) == ("ok", len(told.states), 5)
    assert assert_closes_verify(ws, "s") == 1
    with pytest.raises(FencedError):
        old.record_message("user", "too late")


@pytest.mark.parametrize("step", [-1, 7, 100])
def test_a_step_that_is_not_there(ws: Workspace, step: int) -> None:
    begin(ws)
    with pytest.raises(StepNotFoundError):
        ws.resume("s", at_step=step)
    assert ws.session("s").attempt == 1, "nothing was claimed"


def test_a_session_that_is_not_there(ws: Workspace) -> None:
    with pytest.raises(SessionNotFoundError):
        ws.resume("nobody")


def test_a_closed_session_is_refused_unless_it_is_to_be_reopened(ws: Workspace, play: Play) -> None:
    told = play(calls=2)
    with pytest.raises(StepConflictError, match="closed"):
        ws.resume("s")
    with pytest.raises(StepConflictError, match="closed"):
        ws.record("s", environment="desk", if_exists="resume")
    assert ws.session("s").attempt == 1
    with ws.resume("s", state=lambda: told.desk.state, reopen=True) as session:
        assert ws.session("s").status == "open"
        told.play(session, 2)
    told.note(session)
    assert ws.session("s").status == "closed"
    assert assert_closes_verify(ws, "s") == 2
    assert [ws.replay("s", step).state_bytes for step in range(len(told.states))] == told.states
    assert verdict(ws) == "ok"


def test_a_released_session_is_resumed_without_fencing(ws: Workspace) -> None:
    told, old = begin(ws)
    old.release()
    assert ws.session("s").status == "released"
    session = ws.resume("s", state=lambda: told.desk.state)
    claim = list(ws.events("s"))[-1].body
    assert isinstance(claim, SessionResumed)
    assert claim.over_release
    told.note(session)
    told.play(session, 1)
    session.close()
    assert verdict(ws) == "ok"
    assert assert_closes_verify(ws, "s") == 1


def test_a_branch_counts_from_its_fork_event(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    ws.fork("s", 4, name="b")
    with pytest.raises(StepNotFoundError, match="5 to 5"):
        ws.resume("b", at_step=4)
    session = ws.resume("b", state=lambda: told.desk.state)
    told.desk.state = session.state  # type: ignore[assignment]
    own = Told(told.desk)
    own.states = told.states[:5]
    own.play(session, 2)
    session = ws.resume("b", at_step=7, state=lambda: told.desk.state)
    session.close()
    assert assert_closes_verify(ws, "b") == 1
    assert verdict(ws, "b") == "ok"
    assert [call.tool for call in session.open_calls] == [list(ws.events("b"))[7].body.tool]  # type: ignore[union-attr]


def test_a_branch_knows_the_calls_of_its_prefix(ws: Workspace) -> None:
    told, old = begin(ws, calls=0)
    call = old.record_tool_call("slow", {}, idempotency_key="k")
    old.flush()
    ws.fork("s", call, name="b")
    session = ws.resume("b", state=lambda: told.desk.state)
    assert [each.step for each in session.open_calls] == [call]
    assert session.record_tool_call("slow", {}, idempotency_key="k") == call
    session.record_tool_return(call, "answered in the branch")
    assert [row.result is not None for row in ws.calls("b")] == [True]
    assert [row.result for row in ws.calls("s")] == [None]


def test_the_state_must_be_given_anew_as_a_callable(ws: Workspace) -> None:
    begin(ws)
    with pytest.raises(ConfigError, match="callable"):
        ws.resume("s", state={"n": 0})
    session = ws.resume("s")
    session.record_tool_return(session.record_tool_call("a", {}), "x")
    with pytest.raises(NotRestorableError):
        _ = session.state


@pytest.mark.parametrize("state", [{"n": 1}, None, 7, [[1], "é"]])
def test_a_session_whose_state_was_never_known_goes_on_until_it_is(
    ws: Workspace, tmp_path: Path, state: object
) -> None:
    """A trace without an initial state could not be gone on with; before, its state was None."""
    steps = [{"turn": 0, "tool": t, "args": {}, "result": t, "state": {"t": t}} for t in "ab"]
    trace = write_lines(tmp_path / "t.jsonl", [{"id": "b", "user_turns": [["hi"]], "steps": steps}])
    (imported,) = ws.import_file(trace, format="bfcl")
    assert imported.session_id is not None
    for step in (0, 1, 2):
        with pytest.raises(NotRestorableError) as caught:
            ws.replay(imported.session_id, step)
        assert (caught.value.last_known, caught.value.next_known) == (None, 3)
    ws.fork(imported.session_id, 1, name="b")
    session = ws.resume("b")
    with pytest.raises(NotRestorableError):
        _ = session.state
    session.record_message("user", "go on")
    with pytest.raises(NotRestorableError):
        ws.replay("b")
    step = session.record_state("captured", state)
    change = list(ws.events("b"))[step].state_change
    assert isinstance(change, StateChange)
    assert change.patch.data == encode([["set", [], state]])
    assert session.state == state
    session.record_state("again", {"n": 2})
    session.close()
    assert ws.replay("b", step).state == state
    assert ws.replay("b").state == {"n": 2}
    assert verdict(ws, "b") == "ok"


def test_an_environment_that_was_not_set_back_does_not_act_unnoticed(ws: Workspace) -> None:
    with ws.record("n", environment="count", state=lambda: {"n": 7}) as session:
        session.release()
    fresh = {"n": 0}
    session = ws.resume("n", state=lambda: fresh)
    with pytest.raises(StateError, match="not the restored one"):
        session.call("add", {})
    with pytest.raises(StateError, match="not the restored one"):
        session.interrupt_open_calls()
    fresh.update(session.state)
    with session.call("add", {}):
        fresh["n"] += 1
    assert ws.replay("n").state == {"n": 8}
    session.release()
    accepted = {"n": 100}
    session = ws.resume("n", state=lambda: accepted)
    session.record_state("moved to another machine")
    with session.call("add", {}):
        accepted["n"] += 1
    assert ws.replay("n").state == {"n": 101}


def test_a_state_that_becomes_unknown_is_said_once(
    ws: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    with ws.record("n", environment="count", state={"n": 7}) as session:
        for _ in range(3):
            with session.call("add", {}):
                pass
        with session.call("add", {}) as call:
            call.state = {"n": 8}
    (warning,) = caplog.records
    assert "unknown from step 2 on" in warning.getMessage()
    assert ws.replay("n").state == {"n": 8}


def test_an_unknown_state_is_known_again_at_the_next_capture(ws: Workspace) -> None:
    session = ws.record("s", environment="desk", state={"n": 0})
    session.record_tool_return(session.record_tool_call("a", {}), "x", state={"n": 1})
    session.record_tool_return(session.record_tool_call("b", {}), "x")
    session = ws.resume("s", state=lambda: {"n": 5})
    with pytest.raises(NotRestorableError):
        _ = session.state
    session.record_tool_return(session.record_tool_call("c", {}), "x")
    assert session.state == {"n": 5}
    session.close()
    assert ws.replay("s").state == {"n": 5}
    with pytest.raises(NotRestorableError):
        ws.replay("s", 5)
    assert verdict(ws) == "ok"


def test_a_session_without_a_state_goes_on_without_one(ws: Workspace) -> None:
    session = ws.record("s", environment="desk")
    session.record_message("user", "hello")
    session = ws.resume("s")
    assert session.state is None
    session.close()
    assert verdict(ws) == "ok"


def test_a_session_of_a_users_reducer_goes_on_from_its_captured_state(ws: Workspace) -> None:
    """The next patch is made against what was captured, not against what a reducer made of it."""

    class Noted:
        name = "noted"
        version = "1"

        def begin(self, seed: object, fetch: object) -> object:
            return {"n": 0}

        def apply_event(self, state: object, event: object, fetch: object) -> object:
            assert isinstance(state, dict)
            return {"n": state["n"] + (event.kind == "tool_returned")}  # type: ignore[attr-defined]

    ws.reducers.register(Noted())
    session = ws.record("s", environment="desk", state={"n": 0}, reducer="noted")
    session.record_tool_return(session.record_tool_call("a", {}), "x", state={"n": 1})
    session.record_tool_return(session.record_tool_call("b", {}), "x")
    with open_workspace(ws.folder) as other:
        session = other.resume("s", state=lambda: {"n": 3})
        session.record_tool_return(session.record_tool_call("c", {}), "x")
        session.close()
    assert ws.replay("s").state == {"n": 3}
    assert ws.replay("s", reducer="captured").state == {"n": 3}


def test_what_was_resumed_takes_the_next_snapshot_when_it_is_due(ws: Workspace) -> None:
    """Counted from each resume, a session that crashed often never had one."""
    told, _ = begin(ws, calls=0)
    for _ in range(5):
        session = ws.resume("s", state=lambda: told.desk.state, snapshots=EveryN(16))
        told.note(session)
        told.play(session, 4)
    ws.replay("s")
    steps = [ref.step for ref in ws.snapshots.list_snapshots("s")]
    assert steps
    assert all(after - before <= 18 for before, after in zip([0, *steps], steps, strict=False))


# if_exists.


def test_an_existing_session_is_refused_resumed_or_left_beside(ws: Workspace) -> None:
    told, _ = begin(ws)
    with pytest.raises(SessionExistsError):
        ws.record("s", environment="desk")
    with pytest.raises(ConfigError, match="overwrite"):
        ws.record("s", environment="desk", if_exists="overwrite")  # type: ignore[arg-type]
    resumed = ws.record("s", environment="desk", state=lambda: told.desk.state, if_exists="resume")
    assert (resumed.session_id, resumed.attempt) == ("s", 2)
    names = [ws.record("s", environment="desk", if_exists="new").session_id for _ in range(3)]
    assert names == ["s~2", "s~3", "s~4"]
    assert ws.record("t", environment="desk", if_exists="new").session_id == "t"
    assert ws.record("u", environment="desk", if_exists="resume").attempt == 1
    assert ws.record(environment="desk", if_exists="new").session_id != "s"


@pytest.mark.parametrize(("if_exists", "name"), [("resume", "s"), ("new", "s~2")])
def test_a_session_that_another_begins_just_before(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, if_exists: str, name: str
) -> None:
    monkeypatch.setattr(SqliteLog, "holds_session", lambda _log, name: name == "s~3")
    with open_workspace(ws.folder) as other:
        other.record("s", environment="desk")
        session = ws.record("s", environment="desk", if_exists=if_exists)  # type: ignore[arg-type]
    assert session.session_id == name
