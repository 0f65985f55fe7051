"""More than one who would own a session: one goes on, and nothing acknowledged is set aside."""

import threading
from collections.abc import Callable

import pytest

from eventlog.errors import (
    AppendUncertainError,
    FencedError,
    StepConflictError,
)
from eventlog.log import EventLog
from eventlog.recorder import SessionRecorder
from replay.resumption import CLAIM_TRIES_MAX, resume_session
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Desk, Told

Play = Callable[..., Told]


def begin(ws: Workspace, calls: int = 3, name: str = "s") -> tuple[Told, SessionRecorder]:
    """A session that is left open, as after a crash."""
    desk = Desk()
    told = Told(desk)
    session = ws.record(name, environment="desk", state=lambda: desk.state)
    told.play(session, calls)
    return told, session


class Meddled:
    """A log in which others do something just before each take-over."""

    def __init__(self, log: EventLog, meddle: Callable[[], object]) -> None:
        self._log = log
        self._meddle = meddle
        self.tries = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def take_over(self, *args: object, **kwargs: object) -> object:
        """Meddle first."""
        self.tries += 1
        self._meddle()
        return self._log.take_over(*args, **kwargs)  # type: ignore[arg-type]


def resume_meddled(ws: Workspace, log: Meddled, *, reopen: bool = False) -> SessionRecorder:
    return resume_session(
        log,  # type: ignore[arg-type]
        ws.blobs,
        ws._replayer,
        "s",
        state=lambda: {"n": 9},
        at_step=None,
        reopen=reopen,
        observer_for=lambda info, step: None,
    )


def test_what_a_live_writer_adds_while_it_is_fenced_is_kept(ws: Workspace) -> None:
    """Events acknowledged between the look at the session and the claim were set aside."""
    state = {"n": 0}
    old = ws.record("s", environment="desk", state=lambda: state)
    left = 3

    def go_on() -> None:
        nonlocal left
        if left:
            left -= 1
            state["n"] += 1
            old.record_tool_return(old.record_tool_call("add", {}), state["n"])

    log = Meddled(ws.log, go_on)
    session = resume_meddled(ws, log)
    assert (session.step, session.attempt) == (7, 2)
    assert session.state == {"n": 3}
    session.close()
    assert ws.replay("s").state == {"n": 3}
    (report,) = ws.check("s")
    assert (report.verdict, report.superseded) == ("ok", 0)
    with pytest.raises(FencedError):
        old.record_message("user", "too late")


def test_a_line_that_never_rests_is_left_to_its_owner(ws: Workspace) -> None:
    old = ws.record("s", environment="desk")
    log = Meddled(ws.log, lambda: old.record_message("user", "still here"))
    with pytest.raises(StepConflictError):
        resume_meddled(ws, log)
    assert log.tries == CLAIM_TRIES_MAX
    assert old.record_message("user", "and here") == CLAIM_TRIES_MAX + 1


def test_a_close_that_comes_just_before_the_claim_stands(ws: Workspace) -> None:
    """The claim opened again what its owner had closed."""
    old = ws.record("s", environment="desk")
    log = Meddled(ws.log, lambda: old.closed or old.close())
    with pytest.raises(StepConflictError, match="closed"):
        resume_meddled(ws, log)
    assert (ws.session("s").status, ws.session("s").attempt) == ("closed", 1)


def test_one_who_claims_first_keeps_the_session(ws: Workspace) -> None:
    ws.record("s", environment="desk")
    with open_workspace(ws.folder) as other:
        first: list[SessionRecorder] = []

        def claim() -> None:
            if not first:
                first.append(other.resume("s"))

        with pytest.raises(FencedError, match="at the same time"):
            resume_meddled(ws, Meddled(ws.log, claim))
        assert first[0].record_message("user", "mine") == 2


def test_a_verdict_added_while_another_judges_is_kept(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of a late verification set aside what the owner had added just before it."""
    session = ws.record("s", environment="desk")
    session.close()
    with open_workspace(ws.folder) as other:
        append = other.log.append_events
        left = 2

        def meddled(*args: object, **kwargs: object) -> object:
            nonlocal left
            if left:
                left -= 1
                session.record_verification(0.5, verifier=f"owner {left}")
            return append(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(other.log, "append_events", meddled)
        other.record_late_verification("s", 1.0, verifier="late")
    said = [each.body.verifier for each in ws.events("s") if each.kind == "verified"]  # type: ignore[union-attr]
    assert said == ["owner 1", "owner 0", "late"]
    (report,) = ws.check("s")
    assert (report.verdict, report.superseded) == ("ok", 0)
    assert ws.session("s").status == "closed"


def test_an_append_of_unknown_outcome_is_settled_by_the_resume(ws: Workspace) -> None:
    """The session stayed blocked until somebody called reconcile by hand."""
    ws.record("s", environment="desk")
    settled: list[str] = []

    class Uncertain:
        def __getattr__(self, name: str) -> object:
            return getattr(ws.log, name)

        def take_over(self, *args: object, **kwargs: object) -> object:
            if not settled:
                raise AppendUncertainError("the commit failed", hint="reconcile")
            return ws.log.take_over(*args, **kwargs)  # type: ignore[arg-type]

        def reconcile(self, session_id: str) -> None:
            settled.append(session_id)

    session = resume_meddled(ws, Uncertain())  # type: ignore[arg-type]
    assert settled == ["s"]
    assert session.attempt == 2


def test_many_resume_at_once_and_one_goes_on(ws: Workspace) -> None:
    told, _ = begin(ws)
    workspaces = [open_workspace(ws.folder) for _ in range(4)]
    barrier = threading.Barrier(4)
    outcomes: list[object] = []

    def resume(own: Workspace) -> None:
        barrier.wait()
        try:
            session = own.resume("s", state=lambda: told.desk.state)
            session.record_message("user", own.log.writer_id)
            outcomes.append(session)
        except (FencedError, StepConflictError) as error:
            outcomes.append(error)

    threads = [threading.Thread(target=resume, args=(own,)) for own in workspaces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    usable = []
    for outcome in outcomes:
        if isinstance(outcome, SessionRecorder):
            try:
                outcome.record_message("user", "still mine")
                usable.append(outcome)
            except FencedError:
                pass
    assert len(usable) == 1
    for own in workspaces:
        own.close()
    (report,) = ws.check("s")
    assert (report.verdict, report.superseded) == ("ok", 0)
    said = [event for event in ws.events("s") if event.kind == "message_added"]
    assert len(said) == 1 + sum(isinstance(each, SessionRecorder) for each in outcomes)
