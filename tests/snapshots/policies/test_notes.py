"""`PolicyNotes`: the notes on policy versions, read once and then only what was added."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.recorder import SessionRecorder
from replay.workspace import Workspace, open_workspace
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.policies import notes as policy_notes
from snapshots.policies.notes import PolicyNotes, record_publication, record_rollback
from snapshots.sets.journal import RESTORED, begin_set, note_value
from tests.support.own_sessions import training_session

DIGEST = "0" * 64


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "runs") as ws:
        yield ws


def publish(run: SessionRecorder, version: int, label: str = "") -> None:
    ref = CheckpointRef(version, f"c{version}", DIGEST)
    record_publication(run, version, label or str(version), ref)


def test_a_publication_does_not_read_all_that_were_before(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read the whole training session three times: half a second at 5,000 versions."""
    run = training_session(ws, "run-1")
    for version in range(50):
        publish(run, version)
    notes = PolicyNotes(ws.log, "run-1")
    assert len(notes.history()) == 50
    read: list[object] = []
    decode = policy_notes.decode_record
    monkeypatch.setattr(policy_notes, "decode_record", lambda one: read.append(one) or decode(one))
    run.annotate("of the caller", 1)
    publish(run, 50)
    run.flush()
    assert [one.label for one in notes.history() if one.current] == ["50"]
    assert len(notes.history()) == 51
    assert len(read) == 2


def test_read_again_they_are_what_they_are_read_anew(ws: Workspace) -> None:
    """Whatever came between: a set restored, a claim of another trainer, one that went back."""
    run = training_session(ws, "run-1")
    notes = PolicyNotes(ws.log, "run-1")

    def restored() -> None:
        run.annotate(RESTORED, note_value(CheckpointRef(15, "set-a", DIGEST)))

    def gone_back() -> None:
        operator = PolicyNotes(ws.log, "run-1")
        record_rollback(operator, operator.history()[0], "it cheats", clock_us=lambda: 1)

    def rewound() -> None:
        (first,) = ws.log.read_session("run-1", 1, 2)
        ws.log.take_over(["run-1"], stands_on={"run-1": first.digest}, reason="resume")

    def claimed() -> None:
        nonlocal run
        run = training_session(ws, "run-1")

    steps: list[Callable[[], object]] = [
        lambda: publish(run, 1),
        lambda: begin_set(ws.log, "set-a", "run-1", 15, ws.log.end_cut()),
        lambda: publish(run, 2),
        gone_back,
        restored,
        lambda: publish(run, 2, "2~1"),
        claimed,
        lambda: publish(run, 3),
        rewound,
        claimed,
        lambda: publish(run, 3, "3~5"),
    ]
    for step in steps:
        step()
        run.flush()
        anew = PolicyNotes(ws.log, "run-1")
        assert notes.history() == anew.history()
        assert notes.published() == anew.published()
    assert [(one.label, one.standing) for one in notes.published()] == [
        ("1", True),
        ("2", False),
        ("2~1", False),
        ("3", False),
        ("3~5", True),
    ]


def test_what_was_published_while_they_were_read_is_read_the_next_time(ws: Workspace) -> None:
    """It was taken for one that does not stand: read after the line that it stands in."""
    run = training_session(ws, "run-1")
    publish(run, 1)
    run.flush()
    notes = PolicyNotes(ws.log, "run-1")
    records = ws.log.read_records

    def published_meanwhile(session_id: str) -> object:
        publish(run, 2)
        run.flush()
        return records(session_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ws.log, "read_records", published_meanwhile)
        assert [(one.label, one.standing) for one in notes.published()] == [("1", True)]
    assert [(one.label, one.standing) for one in notes.published()] == [("1", True), ("2", True)]
