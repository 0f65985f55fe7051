"""Late verifications: a closed session is judged by another process, and is never left open."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog.errors import (
    AppendUncertainError,
    SessionNotFoundError,
    StepConflictError,
    ValueNotEncodableError,
)
from eventlog.event import SessionClosed, SessionResumed, Verified
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Told
from tests.support.events import merkle_root
from tests.support.processes import python_script
from tests.support.scale import scaled

Play = Callable[..., Told]
KILLS = scaled(12, 100)


def bodies(ws: Workspace, name: str = "s") -> list[Any]:
    return [event.body for event in ws.events(name)]


def test_a_verdict_of_another_process_is_one_append_that_closes_again(
    ws: Workspace, play: Play
) -> None:
    told = play(calls=3)
    receipts_before = len(list(ws.log.read_records("s")))
    with open_workspace(ws.folder) as verifier:
        step = verifier.record_late_verification(
            "s", 1, verifier="judge", components={"policy": 1}, output={"why": "it paid"}
        )
    assert step == 9
    assert ws.session("s").status == "closed"
    assert (ws.session("s").reward, ws.session("s").reward_from) == (1.0, "verified")
    claim, verified, closed = bodies(ws)[8:]
    assert claim == SessionResumed(7, "late verification", claim.writer)
    assert claim.writer not in (None, ws.log.writer_id)
    assert isinstance(verified, Verified)
    assert ws.read_content(verified.output)  # type: ignore[arg-type]
    assert verified.components == {"policy": 1.0}
    data = [record.data for record in ws.log.read_session("s")]
    assert len(data) == receipts_before + 3
    assert closed == SessionClosed("done", 10, merkle_root(data[:10]))
    assert [event.attempt for event in ws.events("s", 7)] == [1, 2, 2, 2]
    assert [(one.verdict, one.details) for one in ws.check("s")] == [("ok", ())]
    assert ws.replay("s").state_bytes == told.states[-1]


def test_verdicts_follow_verdicts_and_the_last_stands(ws: Workspace, play: Play) -> None:
    play(calls=1)
    first = ws.record_late_verification("s", 0.5, verifier="judge")
    second = ws.record_late_verification("s", None, verifier="judge", failure_kind="timeout")
    third = ws.record_late_verification("s", 0.25, verifier="judge", supersedes_step=first)
    assert (first, second, third) == (5, 8, 11)
    assert (ws.session("s").reward, ws.session("s").attempt) == (0.25, 4)
    assert [one.verdict for one in ws.check("s")] == ["ok"]


def test_a_session_closed_by_an_error_stays_so(ws: Workspace) -> None:
    with pytest.raises(ZeroDivisionError), ws.record("s", environment="desk"):
        raise ZeroDivisionError
    ws.record_late_verification("s", 0.0, verifier="judge")
    closed = bodies(ws)[-1]
    assert (closed.reason, closed.error_type) == ("error", "ZeroDivisionError")


def test_a_branch_and_a_verdict_after_the_close_are_covered_too(ws: Workspace, play: Play) -> None:
    play(calls=3)
    ws.fork("s", 4, name="b")
    session = ws.resume("b")
    session.close("given up")
    session.record_verification(0.0, verifier="own")
    assert "outside the closed root: step 8" in ws.check("b")[0].details[0]
    ws.record_late_verification("b", 1.0, verifier="judge")
    assert bodies(ws, "b")[-1].event_count == 6
    assert bodies(ws, "b")[-1].reason == "given up"
    assert [(one.verdict, one.details) for one in ws.check("b")] == [("ok", ())]


def test_a_session_that_is_not_closed_is_refused(ws: Workspace) -> None:
    with pytest.raises(SessionNotFoundError):
        ws.record_late_verification("nobody", 1.0, verifier="judge")
    session = ws.record("s", environment="desk")
    with pytest.raises(StepConflictError, match="is open"):
        ws.record_late_verification("s", 1.0, verifier="judge")
    session.release()
    with pytest.raises(StepConflictError, match="is released"):
        ws.record_late_verification("s", 1.0, verifier="judge")
    assert ws.session("s").attempt == 1


def test_a_verdict_that_cannot_be_stored_leaves_nothing(ws: Workspace, play: Play) -> None:
    play(calls=1)
    with pytest.raises(ValueNotEncodableError):
        ws.record_late_verification("s", 1.0, verifier="judge", output=object())
    assert ws.session("s").step_count == 4


def test_an_answer_that_was_lost_is_not_given_twice(
    ws: Workspace, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(calls=1)
    real = ws.log.append_events
    reconciled = []

    def unanswered(session_id: str, events: Any, **place: Any) -> Any:
        receipt = real(session_id, events, **place)
        monkeypatch.setattr(ws.log, "reconcile", lambda name: reconciled.append(name) or receipt)
        raise AppendUncertainError("no answer", hint="reconcile", session_id=session_id)

    monkeypatch.setattr(ws.log, "append_events", unanswered)
    assert ws.record_late_verification("s", 1.0, verifier="judge") == 5
    assert reconciled == ["s"]
    assert sum(isinstance(body, Verified) for body in bodies(ws)) == 1


def test_verifiers_at_the_same_time_all_come_in(ws: Workspace, play: Play) -> None:
    play(calls=1)
    steps: list[int] = []

    def judge(number: int) -> None:
        with open_workspace(ws.folder) as own:
            steps.append(own.record_late_verification("s", number, verifier=f"v{number}"))

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(steps) == [5, 8, 11, 14, 17, 20]
    verifiers = {body.verifier for body in bodies(ws) if isinstance(body, Verified)}
    assert verifiers == {f"v{number}" for number in range(6)}
    assert [one.verdict for one in ws.check("s")] == ["ok"]


JUDGES = """
import os, sys
from replay.workspace import open_workspace
from tests.support.killed_recorder import die_at
die_at(sys.argv[2])
with open_workspace(sys.argv[1]) as ws:
    while True:
        text = os.urandom(4).hex() * 40_000
        step = ws.record_late_verification("s", 1.0, verifier="judge", output=text)
        os.write(1, b"%d\\n" % step)
"""


def test_a_verifier_killed_anywhere_leaves_no_session_open(tmp_path: Path) -> None:
    """Three appends left it open, or without its close, until somebody resumed it."""
    rng = random.Random(77)
    with open_workspace(tmp_path / "ws") as ws, ws.record("s", environment="desk") as session:
        session.record_message("user", "hi")
    told: list[int] = []
    for kill in range(KILLS):
        point = rng.choice(("commit", "committed", "blob")) if kill % 3 else "time"
        armed = point if point == "time" else f"{point}:{rng.randrange(1, 3)}"
        child = python_script(JUDGES, tmp_path / "ws", armed)
        if point == "time":
            assert child.stdout is not None
            first = os.read(child.stdout.fileno(), 100)
            time.sleep(rng.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            told += map(int, first.split()[:1])
        out, errors = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL, errors
        if point != "time":
            told += map(int, out.split())
        with open_workspace(tmp_path / "ws") as ws:
            assert ws.session("s").status == "closed"
            (report,) = ws.check("s")
            assert (report.verdict, report.details) == ("ok", ())
    with open_workspace(tmp_path / "ws") as ws:
        kinds = [event.kind for event in ws.events("s")]
        assert all(kinds[step] == "verified" for step in told)
        assert kinds[3:] == ["session_resumed", "verified", "session_closed"] * (
            len(kinds) // 3 - 1
        )
