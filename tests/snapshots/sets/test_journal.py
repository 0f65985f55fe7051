"""What the log is told of sets: whose are given up by the next trainer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.log import LogRecord
from eventlog.sqlite_log import SqliteLog
from replay.workspace import Workspace, open_workspace
from snapshots.sets.journal import (
    GIVEN_UP,
    begin_set,
    commit_set,
    give_up_open_sets,
    session_of_set,
)


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "ws") as opened:
        yield opened


def test_the_sets_that_a_training_left_open_are_given_up_and_no_others(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose they are is asked of the log's list: no event of another training's set is read."""
    cut = ws.log.end_cut()
    for id_, training in (("own1", "run-1"), ("theirs", "run-2"), ("own2", "run-1")):
        begin_set(ws.log, id_, training, 1, cut)
    commit_set(ws.log, begin_set(ws.log, "whole", "run-1", 1, cut), "0" * 64)
    read: list[str] = []
    real = SqliteLog.read_session

    def counted(log: SqliteLog, session_id: str, *more: Any, **named: Any) -> Iterator[LogRecord]:
        read.append(session_id)
        return real(log, session_id, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteLog, "read_session", counted)
        assert give_up_open_sets(ws.log, "run-1") == ["own1", "own2"]
        assert give_up_open_sets(ws.log, "run-1") == [], "the second time there is nothing left"
    assert read == [session_of_set("own1"), session_of_set("own2")]
    assert {info.session_id: info.status for info in ws.sessions()} == {
        "checkpoint/own1": "closed",
        "checkpoint/theirs": "open",
        "checkpoint/own2": "closed",
        "checkpoint/whole": "closed",
    }
    (*_, last) = ws.events(session_of_set("own1"))
    assert getattr(last.body, "reason", None) == GIVEN_UP
