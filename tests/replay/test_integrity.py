"""`check`: each verdict, and what makes it."""

import errno
import os
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from eventlog.canonical import digest, encode
from eventlog.content import STATE_PATCH, Content
from eventlog.errors import SessionNotFoundError
from eventlog.event import Annotated, LineHead, SessionClosed, StateChange
from eventlog.log import Finding
from replay.integrity import (
    EXIT_CODE_OF_VERDICT,
    LOG_ITSELF,
    VERDICTS,
    CheckReport,
    Expectation,
)
from replay.workspace import Workspace, open_workspace
from snapshots.snapshot import Snapshot
from snapshots.snapshot_policy import EveryN
from tests.support.desk import Told
from tests.support.events import EventChain
from tests.support.recorded import append_all

Play = Callable[..., Told]


def one(ws: Workspace, name: str = "s", *expect: Expectation) -> CheckReport:
    (report,) = ws.check(name, expect=expect)
    return report


def damage(ws: Workspace, sql: str, *values: object) -> None:
    """Change rows behind the log's back."""
    with sqlite3.connect(ws.folder / "log.db") as db:
        assert db.execute(sql, values).rowcount > 0
    db.close()


def test_a_sound_session_is_ok(ws: Workspace, play: Play) -> None:
    play(calls=5)
    assert one(ws) == CheckReport("s", "ok", 12, 0, 0, 0, 0, None, ())
    assert list(ws.check()) == [one(ws)]


def test_an_empty_workspace_has_nothing_to_report(ws: Workspace) -> None:
    assert list(ws.check()) == []
    with pytest.raises(SessionNotFoundError):
        list(ws.check("nobody"))


def test_every_verdict_has_an_exit_code_and_the_worst_is_last() -> None:
    assert set(VERDICTS) == set(EXIT_CODE_OF_VERDICT)
    assert [EXIT_CODE_OF_VERDICT[verdict] for verdict in VERDICTS] == [0, 6, 4, 4, 4]


def test_what_a_rewind_set_aside_is_counted_and_no_fault(ws: Workspace, play: Play) -> None:
    told = play(calls=5)
    ws.resume("s", at_step=4, reopen=True, state=lambda: told.desk.state).close()
    assert one(ws) == CheckReport("s", "ok", 7, 0, 0, 7, 0, None, ())


def test_a_branch_counts_its_own_events(ws: Workspace, play: Play) -> None:
    play(calls=5)
    ws.fork("s", 7, name="b")
    assert one(ws, "b") == CheckReport("b", "ok", 1, 0, 0, 0, 0, None, ())


def test_a_named_session_is_checked_at_the_call(
    ws: Workspace, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ws.check("s")` as a statement did nothing: the generator was never started."""
    play(calls=1)
    with pytest.raises(SessionNotFoundError):
        ws.check("nobody")
    looked: list[object] = []
    monkeypatch.setattr(ws.log, "find_damage", lambda names=None: looked.append(names) or [])
    ws.check("s")
    assert looked == [["s"]]


def test_what_came_after_the_close_is_told_and_no_fault(ws: Workspace, play: Play) -> None:
    """No root proves that it is all there was, and `check` did not say so."""
    told = play(calls=1)
    with ws.resume("s", reopen=True, state=lambda: told.desk.state) as session:
        pass
    assert one(ws).details == ()
    session.record_verification(1.0, verifier="late")
    assert one(ws) == CheckReport(
        "s", "ok", 7, 0, 0, 0, 0, None, ("after close, outside the closed root: step 6",)
    )
    session.annotate("seen", True)
    assert one(ws).details == ("after close, outside the closed root: steps 6 to 7",)
    ws.resume("s", reopen=True, state=lambda: told.desk.state).close()
    assert one(ws).details == (), "the new close covers them"


# Receipts.


def test_a_receipt_that_fits_and_ones_that_do_not(ws: Workspace, play: Play) -> None:
    play(calls=3)
    digests = [record.digest for record in ws.log.read_session("s")]
    for step in (0, 3, 7):
        assert one(ws, "s", Expectation("s", step, digests[step])).verdict == "ok"
    report = one(ws, "s", Expectation("s", 3, digests[4]), Expectation("s", 5, digests[5]))
    assert (report.verdict, report.first_bad) == ("damaged", 3)
    (detail,) = report.details
    assert detail.startswith(f"the event of step 3 has digest {digests[3].hex()}")
    assert digests[4].hex() in detail
    report = one(ws, "s", Expectation("s", 8, digests[7]))
    assert (report.verdict, report.first_bad) == ("damaged", 8)
    assert report.details[0].startswith("the event of step 8 is missing")


def test_a_receipt_of_a_session_that_is_gone(ws: Workspace, play: Play) -> None:
    """An old copy of the log put back shows only so."""
    play(calls=1)
    reports = list(ws.check(expect=(Expectation("lost", 4, bytes(32)),)))
    assert [(each.session, each.verdict, each.first_bad) for each in reports] == [
        ("s", "ok", None),
        ("lost", "damaged", 4),
    ]


def test_a_receipt_of_what_a_rewind_set_aside(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    digests = [record.digest for record in ws.log.read_session("s")]
    ws.resume("s", at_step=4, reopen=True, state=lambda: told.desk.state).close()
    report = one(ws, "s", Expectation("s", 6, digests[6]), Expectation("s", 3, digests[3]))
    assert (report.verdict, report.first_bad) == ("incomplete", 6)
    assert "superseded" in report.details[0]


# Damage.


def test_flipped_bytes_are_named_by_step(ws: Workspace, play: Play) -> None:
    play(calls=5)
    play("other", calls=2)
    data = bytearray(list(ws.log.read_records("s"))[4].data)
    data[-1] ^= 1
    damage(ws, "UPDATE events SET data = ? WHERE session = 1 AND step = 4", bytes(data))
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("damaged", 4)
    assert any("EventCorruptError" in detail for detail in report.details)
    assert [each.verdict for each in ws.check()] == ["damaged", "ok"]


def test_a_row_that_does_not_even_hold_bytes(ws: Workspace, play: Play) -> None:
    play(calls=5)
    damage(ws, "UPDATE events SET data = 'text' WHERE session = 1 AND step = 4")
    assert one(ws).verdict == "damaged"


def test_a_deleted_row_is_a_gap(ws: Workspace, play: Play) -> None:
    play(calls=5)
    damage(ws, "DELETE FROM events WHERE session = 1 AND step = 4")
    reports = {each.session: each for each in ws.check()}
    assert (reports["s"].verdict, reports["s"].first_bad) == ("damaged", 4)
    assert reports[LOG_ITSELF].verdict == "damaged"


def test_a_lost_head_row_does_not_end_the_check_of_the_rest(ws: Workspace, play: Play) -> None:
    """Listing sessions failed, and with it the whole check."""
    for name in ("a", "b", "c"):
        play(name, calls=2)
    damage(ws, "DELETE FROM head WHERE session = 'b'")
    with open_workspace(ws.folder) as again:
        reports = {each.session: each for each in again.check()}
    assert reports[LOG_ITSELF].verdict == "damaged"
    assert reports["a"].verdict == "ok"
    with open_workspace(ws.folder) as again:
        report = one(again, "b")
        assert report.verdict == "damaged"
        assert one(again, "c").verdict == "ok"


def test_a_missing_and_a_damaged_blob_are_named_by_step(ws: Workspace) -> None:
    with ws.record("s", environment="desk") as session:
        session.record_message("user", "a" * 400_000)
        session.record_message("user", "b" * 400_000)
        session.record_message("user", "a" * 400_000)
    assert one(ws).verdict == "ok"
    first = list(ws.events("s"))[1].body.content.data.digest.hex()  # type: ignore[union-attr]
    for blob in (ws.folder / "blobs").glob("*/*"):
        if blob.name == first:
            blob.unlink()
        else:
            blob.write_bytes(blob.read_bytes()[:-1])
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("damaged", 1)
    assert [detail.split(":")[0] for detail in report.details] == ["BlobCorruptError"] * 2


def seeded(ws: Workspace, **fields: object) -> EventChain:
    chain = EventChain("s")
    chain.seed(writer=ws.log.writer_id, reducer="captured", reducer_version="1", **fields)
    return chain


def test_a_state_that_diverges_is_damage(ws: Workspace) -> None:
    chain = seeded(ws, initial_state=Content.of_value({"n": 0}))
    patch = Content(STATE_PATCH, encode([["set", ["n"], 1]]))
    chain.append(
        Annotated("x", Content.of_value(1)), state_change=StateChange(patch, digest({"n": 2}))
    )
    append_all(ws.log, chain.events)
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("damaged", 1)
    assert "DivergenceError" in report.details[0]


@pytest.mark.parametrize("wrong", ["root", "count"])
def test_a_close_that_names_another_root_or_count(ws: Workspace, wrong: str) -> None:
    """The root in the close was written and never looked at."""
    chain = seeded(ws)
    right = chain.closed().event.body
    assert isinstance(right, SessionClosed)
    chain.events.pop()
    chain.head = LineHead("s", 0, 1, chain.events[0].digest)
    if wrong == "root":
        chain.append(right._replace(root=bytes(32)))
    else:
        chain.append(right._replace(event_count=2))
    append_all(ws.log, chain.events)
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("damaged", 1)
    assert "RootMismatchError" in report.details[0]


def test_a_state_nobody_recorded_is_incomplete(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        session.record_tool_return(session.record_tool_call("a", {}), "x")
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("incomplete", None)
    assert "NotRestorableError" in report.details[0]


def test_a_reducer_that_is_not_here_is_incomplete(ws: Workspace) -> None:
    append_all(ws.log, _of_reducer(ws).events)
    report = one(ws)
    assert report.verdict == "incomplete"
    assert "ReducerMissingError" in report.details[0]


def _of_reducer(ws: Workspace) -> EventChain:
    chain = EventChain("s")
    chain.seed(writer=ws.log.writer_id, reducer="nobody's", reducer_version="1")
    return chain


# Snapshots.


def test_a_damaged_snapshot_is_reported_and_costs_no_state(ws: Workspace, play: Play) -> None:
    told = play(calls=10, snapshots=EveryN(8))
    assert one(ws).verdict == "ok"
    file = min((ws.folder / "snapshots").glob("*/*/*.snap"))
    file.write_bytes(file.read_bytes()[:-3])
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("damaged", None)
    assert "SnapshotError" in report.details[0]
    assert [each.verdict for each in ws.check()] == ["damaged"]
    assert ws.replay("s").state_bytes == told.states[-1]


def put(ws: Workspace, step: int, state: object, event_digest: bytes, name: str = "s") -> None:
    data = encode(state)
    ws.snapshots.put_snapshot(
        Snapshot(name, step, event_digest, digest(state), "captured", "1", data)
    )


def test_a_snapshot_of_another_state_is_reported(ws: Workspace, play: Play) -> None:
    play(calls=4)
    event = next(ws.log.read_session("s", 5, 6))
    put(ws, 5, {"forged": True}, event.digest)
    report = one(ws)
    assert report.verdict == "damaged"
    assert report.details == ("snapshot of step 5: its state is not the recorded one",)


def test_a_snapshot_of_an_event_that_the_log_lacks(ws: Workspace, play: Play) -> None:
    """The newest commits are gone: an old copy of the log was put back."""
    play(calls=4)
    put(ws, 20, {"n": 1}, bytes(32))
    put(ws, 3, {"n": 1}, bytes([1]) * 32)
    assert one(ws).details == (
        "snapshot of step 3: it stands on an event that the log lacks",
        "snapshot of step 20: it stands on an event that the log lacks",
    )


def test_snapshots_of_a_session_that_the_log_lacks(ws: Workspace, play: Play) -> None:
    play(calls=1)
    put(ws, 3, {"n": 1}, bytes(32), name="lost")
    reports = list(ws.check())
    assert [(each.session, each.verdict) for each in reports] == [
        (LOG_ITSELF, "damaged"),
        ("s", "ok"),
    ]
    assert "'lost'" in reports[0].details[0]


def test_sound_sessions_after_a_lost_one_have_reports_of_their_own(ws: Workspace) -> None:
    """The list of sessions ended at the lost one, and with it what was checked."""
    for name in "wxyz":
        ws.record(name, environment="desk").close()
    damage(ws, "DELETE FROM head WHERE session='x'")
    verdicts = {report.session: report.verdict for report in ws.check()}
    assert verdicts == {LOG_ITSELF: "damaged", "w": "ok", "x": "damaged", "y": "ok", "z": "ok"}


def test_findings_that_name_no_session_or_step_by_their_type_are_of_the_log(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of a wrong type made `check` end in a TypeError."""
    ws.record("s", environment="desk").close()
    wrong: Any = [b"a", 7, None, 2.5]
    findings = [Finding(each, None, None, "EventCorruptError", f"of {each!r}") for each in wrong]
    steps: Any = ["x", b"\0", 1]
    findings += [Finding("s", step, None, "EventCorruptError", "a step") for step in steps]
    monkeypatch.setattr(ws.log, "find_damage", lambda _names=None: iter(findings))
    of_log, of_session = ws.check()
    assert of_log.session == LOG_ITSELF
    assert [detail.partition(": ")[2] for detail in of_log.details] == [
        f"of {each!r}" for each in wrong
    ]
    assert (of_session.session, of_session.first_bad) == ("s", 1)


@pytest.mark.parametrize("call", ["scandir", "open", "lstat"])
def test_snapshots_one_may_not_look_at_are_not_damage(
    ws: Workspace, play: Play, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    play(calls=5)
    ws.take_snapshot("s")
    real = getattr(os, call)

    def refuse(path: Any, *rest: Any, **named: Any) -> Any:
        if "snapshots" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *rest, **named)

    monkeypatch.setattr(os, call, refuse)
    report = one(ws)
    assert (report.verdict, report.first_bad) == ("incomplete", None)
    assert "Permission denied" in report.details[0]
