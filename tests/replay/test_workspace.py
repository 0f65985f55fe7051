"""The workspace: opening, sharing, forking, and what it refuses."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steplog
from eventlog.content import JsonText
from eventlog.errors import (
    ConfigError,
    LogUnavailableError,
    SessionExistsError,
    SessionNotFoundError,
    StepConflictError,
    SteplogError,
)
from eventlog.log import SessionFilter
from eventlog.recorder import SessionRecorder
from eventlog.sqlite import connection as sqlite_connection
from eventlog.sqlite import network_mount
from eventlog.sqlite_log import SqliteLog
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Told
from tests.support.imported import chat_record, said, write_lines
from tests.support.processes import ROOT

Play = Callable[..., Told]
NOBODY = 65534


def in_child(act: Callable[[], object]) -> int:
    """Do something in a forked child; its exit code, 1 for any exception."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Opening.


def test_a_workspace_is_made_where_there_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "runs"
    with pytest.raises(ConfigError, match="no workspace"):
        open_workspace(folder, create=False)
    assert not folder.exists()
    with open_workspace(folder) as ws:
        assert ws.folder == folder
        assert list(ws.sessions()) == []
    with open_workspace(folder, create=False) as ws:
        assert list(ws.sessions()) == []


def test_places_are_paths_and_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for place, folder in (
        ("runs", tmp_path / "runs"),
        (tmp_path / "other", tmp_path / "other"),
        (f"file://{tmp_path}/url", tmp_path / "url"),
        ("~/mine", tmp_path / "me" / "mine"),
    ):
        with open_workspace(place) as ws:
            assert ws.folder == folder


@pytest.mark.parametrize("url", ["pulsar://broker/topic", "s3://bucket/runs", "https://host/x"])
def test_a_scheme_that_is_not_known_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown workspace scheme"):
        open_workspace(url)


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    open_workspace(tmp_path).close()
    settings = tmp_path / "steplog.toml"
    settings.write_text(settings.read_text().replace("format = 1", "format = 2"))
    with pytest.raises(ConfigError, match="format 2 is newer"):
        open_workspace(tmp_path)
    settings.write_text("nonsense = [")
    with pytest.raises(ConfigError, match="not TOML"):
        open_workspace(tmp_path)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    open_workspace(tmp_path).close()
    (tmp_path / "log.db").write_bytes(b"not a database, but somebody's file" * 100)
    with pytest.raises(SteplogError, match=r"log\.db"):
        open_workspace(tmp_path)


def test_a_folder_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/x {tmp_path}/far nfs4 rw 0 0\n")
    monkeypatch.setattr(network_mount, "_MOUNTS", mounts)
    with pytest.raises(ConfigError, match="nfs4"):
        open_workspace(tmp_path / "far" / "ws")
    open_workspace(tmp_path / "near" / "ws").close()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(SteplogError):
        open_workspace(tmp_path / "runs")
    assert (tmp_path / "runs").read_text() == "mine"


def test_a_read_only_file_system_can_be_read_and_not_written() -> None:
    with tempfile.TemporaryDirectory() as place:
        locked = Path(place)
        with open_workspace(locked / "ws") as ws:
            ws.record("s", environment="desk", state={"n": 1}).close()
            assert [report.verdict for report in ws.check()] == ["ok"]
        for path in (*locked.rglob("*"), locked):
            path.chmod(0o555)
        try:
            assert in_child(lambda: _look_into(locked)) == 0
        finally:
            for path in (locked, *locked.rglob("*")):
                path.chmod(0o755)


def _look_into(locked: Path) -> None:
    if os.geteuid() == 0:  # whom no mode stops
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with pytest.raises(LogUnavailableError, match="may not write to its folder"):
        open_workspace(locked / "ws")
    sqlite_connection._is_mounted_read_only = lambda folder: True
    with open_workspace(locked / "ws") as ws:
        assert ws.replay("s").state == {"n": 1}
        assert [report.verdict for report in ws.check()] == ["ok"]
        with pytest.raises(LogUnavailableError):
            ws.record("t", environment="desk")
        with pytest.raises(LogUnavailableError):
            ws.take_snapshot("s", 0)
    with pytest.raises(LogUnavailableError, match="new"):
        open_workspace(locked / "new")


# What it shows.


def test_sessions_are_listed_and_filtered(ws: Workspace, play: Play) -> None:
    play("a", calls=1, task_id="t1")
    play("b", calls=1, task_id="t2", policy="p")
    assert [info.session_id for info in ws.sessions()] == ["a", "b"]
    assert [info.session_id for info in ws.sessions(SessionFilter(task_id="t2"))] == ["b"]
    assert ws.session("b").policy == "p"
    with pytest.raises(SessionNotFoundError):
        ws.session("c")


def test_contents_are_read_from_wherever_they_are(ws: Workspace) -> None:
    with ws.record("s", environment="desk", request={"ask": 1}, tools='[{"name": "t"}]') as session:
        session.record_message("user", "x" * 300_000)
    seed, message, _ = ws.events("s")
    assert ws.read_content(message.body.content) == b"x" * 300_000  # type: ignore[union-attr]
    assert ws.read_content(seed.body.tools) == b'[{"name": "t"}]'  # type: ignore[union-attr]


def test_a_content_is_read_as_what_it_was(ws: Workspace) -> None:
    with ws.record("s", environment="desk") as session:
        session.record_tool_call("a", '{"n": 1.0}')
        session.record_tool_call("b", {"order": ("A1", 2)})
        session.record_message("user", "x" * 300_000)
    json_text, value, message = (
        ws.read_value(content) for event in ws.events("s", 1, 4) for _, content in event.contents()
    )
    assert (json_text, type(json_text)) == ('{"n": 1.0}', JsonText)
    assert value == {"order": ("A1", 2)}
    assert (message, type(message)) == ("x" * 300_000, str)


@pytest.mark.parametrize("step", ["2", 2.0, True, (2,)])
def test_a_step_that_is_no_whole_number_is_a_type_error(ws: Workspace, step: Any) -> None:
    ws.record("s", environment="desk").record_message("user", "hi")
    for act in (
        lambda: ws.replay("s", step=step),
        lambda: ws.fork("s", step),
        lambda: ws.resume("s", at_step=step),
        lambda: ws.diff(("s", step), ("s", 0)),
        lambda: ws.take_snapshot("s", step),
    ):
        with pytest.raises(TypeError, match="a step is an int, not"):
            act()
    assert ws.session("s").step_count == 2
    assert ws.replay("s", step=np.int64(1)).step == 1  # type: ignore[arg-type]


def test_a_step_in_the_id_is_answered_with_the_argument(ws: Workspace) -> None:
    ws.record("a", environment="desk")
    with pytest.raises(SessionNotFoundError) as raised:
        ws.replay("a@0")
    assert "'a', step=0" in raised.value.hint


def test_a_taken_id_is_answered_with_if_exists(ws: Workspace) -> None:
    ws.record("s", environment="desk")
    with pytest.raises(SessionExistsError) as raised:
        ws.record("s", environment="desk")
    assert "if_exists='resume'" in raised.value.hint
    with pytest.raises(ConfigError, match="if_exists='again' is unknown"):
        ws.record("s", environment="desk", if_exists="again")  # type: ignore[arg-type]


def test_a_closed_session_goes_on_only_if_it_is_reopened(ws: Workspace) -> None:
    def go_on(**fields: Any) -> SessionRecorder:
        return ws.record("s", environment="desk", state={"n": 0}, if_exists="resume", **fields)

    def fail() -> None:
        with go_on() as session:
            session.record_state("one", {"n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ws.session("s").status == "closed"
    with pytest.raises(StepConflictError, match="closed"):
        go_on()
    with go_on(reopen=True) as session:
        assert session.state == {"n": 1}
        session.record_state("two", {"n": 2})
    assert ws.replay("s").state == {"n": 2}
    with ws.record("new", environment="desk", if_exists="resume", reopen=True):
        pass
    assert ws.session("new").step_count == 2


def test_a_workspace_shows_its_folder(ws: Workspace) -> None:
    assert repr(ws) == f"Workspace({str(ws.folder)!r})"


def test_the_face_of_the_readme_works_as_it_says(tmp_path: Path) -> None:
    state = {"orders": {"A1": "paid"}}
    with steplog.open_workspace(tmp_path) as ws:
        with ws.record("t/1", environment="desk", state=lambda: state, seed=3) as session:
            with session.call("refund", {"order": "A1"}, call_id="c1") as call:
                state["orders"]["A1"] = "refunded"
                call.result = {"ok": True}
            step = session.record_tool_call("lookup", '{"order":"A1"}', call_id="c2")
            session.record_tool_return(step, "refunded", state=state)
            session.record_verification(1.0, verifier="desk-rules", components={"policy": 1.0})
        replayed = ws.replay("t/1", step=2)
        assert (replayed.kind, replayed.state) == ("tool_returned", state)
        ws.fork("t/1", step=2, name="t/1/B")
        assert ws.diff(("t/1", 2), ("t/1/B", 3)).equal
        assert not ws.diff("t/1", "t/1/B").equal
        assert [item.reward for item in ws.sessions()] == [1.0, None]


def test_a_process_that_ends_without_closing_loses_nothing_it_was_told(tmp_path: Path) -> None:
    script = (
        "import sys, steplog\n"
        "ws = steplog.open_workspace(sys.argv[1])\n"
        "session = ws.record('s', environment='desk', state={'n': 0})\n"
        "for number in range(5):\n"
        "    session.record_state('next', {'n': number})\n"
        "session.record_tool_call('t', {})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == 0
    with open_workspace(tmp_path) as ws:
        assert ws.replay("s").state == {"n": 4}
        assert ws.session("s").step_count == 7, "a call submitted before the end is written too"
        assert ws.session("s").status == "open"


def test_a_closed_workspace_says_so(ws: Workspace) -> None:
    session = ws.record("s", environment="desk")
    ws.close()
    ws.close()
    for act in (lambda: ws.replay("s"), lambda: session.record_message("user", "x")):
        with pytest.raises(SteplogError, match="closed"):
            act()
    assert isinstance(ws.log, SqliteLog)


def test_what_is_asked_of_one_session_or_file_is_done_at_the_call(
    ws: Workspace, tmp_path: Path
) -> None:
    """Generators that nobody iterated: nothing was imported, and a missing session not missed."""
    path = write_lines(tmp_path / "t.jsonl", [chat_record(1, said("user", "hi"))])
    ws.import_file(path)
    assert [info.task_id for info in ws.sessions()] == ["1"]
    for ask in (ws.events, ws.calls):
        with pytest.raises(SessionNotFoundError):
            ask("nobody")
