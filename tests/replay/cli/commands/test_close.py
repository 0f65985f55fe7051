"""`steplog close`: a session whose process is gone is ended; a writer that lives is fenced."""

import pytest

from eventlog.errors import FencedError
from tests.support.command import Command


def test_an_open_session_is_claimed_and_closed(steplog: Command) -> None:
    with steplog.open() as ws:
        lost = ws.record("s", environment="desk", state={"n": 1})
        step = lost.record_tool_call("add", {})
        lost.flush()
        assert steplog.row("close", "s", "--reason", "its machine died") == {
            "session": "s",
            "step": 3,
            "attempt": 2,
            "reason": "its machine died",
        }
        with pytest.raises(FencedError):
            lost.record_tool_return(step, "too late")
    row = steplog.row("sessions")
    assert (row["status"], row["attempt"], row["step_count"]) == ("closed", 2, 4)
    assert steplog.row("check")["verdict"] == "ok"
    assert steplog.row("show", "s@3")["body"]["reason"] == "its machine died"


def test_calls_without_a_return_are_told(steplog: Command) -> None:
    with steplog.open() as ws:
        ws.record("s", environment="desk").record_tool_call("add", {}, effects="external")
        ran = steplog("close", "s")
    assert ran.out == "s closed at step 3: abandoned\n"
    assert "calls without a return: add (step 1)" in ran.err


def test_a_released_session_is_closed_too(steplog: Command) -> None:
    with steplog.open() as ws:
        ws.record("s", environment="desk").release()
    assert steplog.row("close", "s")["attempt"] == 2


def test_a_closed_session_is_refused(desk: Command) -> None:
    ran = desk("close", "desk/1")
    assert (ran.code, ran.out) == (8, "")
    assert "closed already" in ran.err
    assert "steplog show desk/1" in ran.err
    assert "reopen" not in ran.err, "what only Python can do is no advice here"
    assert desk.row("sessions")["attempt"] == 1


def test_an_unknown_session(desk: Command) -> None:
    assert desk("close", "desk/2").code == 5
