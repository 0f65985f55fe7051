"""Which snapshots a replay goes on from: those that the log bears out, and no other."""

import shutil
from collections.abc import Callable

import pytest

from eventlog.canonical import digest, encode
from eventlog.errors import (
    NotRestorableError,
)
from replay.workspace import Workspace, open_workspace
from snapshots.snapshot import Snapshot
from snapshots.snapshot_policy import EveryN
from snapshots.snapshot_store import SnapshotRef
from tests.support.desk import Told

Play = Callable[..., Told]


def forge(ws: Workspace, step: int, state: object, **changes: object) -> SnapshotRef:
    """A sound file that claims another state, event or reducer than the log has."""
    data = encode(state)
    event = next(ws.log.read_session("s", step, step + 1))
    snapshot = Snapshot("s", step, event.digest, digest(state), "captured", "1", data)
    return ws.snapshots.put_snapshot(snapshot._replace(**changes))  # type: ignore[arg-type]


def test_a_sound_snapshot_of_another_state_is_not_believed(ws: Workspace, play: Play) -> None:
    """Its own digests fit: only the log knows that the state was another."""
    told = play(calls=10, snapshots=EveryN(8))
    for step in (9, 10, 11, 12):
        forge(ws, step, {"forged": step})
    for step in range(9, 22):
        replayed = ws.replay("s", step)
        assert replayed.state_bytes == told.states[step]
        assert any("not the recorded one" in why for why in replayed.skipped) or step > 15


def test_a_forged_snapshot_far_from_the_last_change_is_not_believed(ws: Workspace) -> None:
    state = {"n": 0}
    with ws.record("s", environment="desk", state=lambda: state) as session:
        state["n"] = 1
        session.record_state("begin")
        for _ in range(300):
            session.record_message("user", "nothing changes")
    forge(ws, 290, {"n": 2})
    forge(ws, 295, {"n": 1})
    assert ws.replay("s", 294).state == {"n": 1}
    assert ws.replay("s", 294).skipped == (
        "snapshot of step 290: its state is not the recorded one",
    )
    assert ws.replay("s", 296).from_snapshot == 295


def test_a_forged_snapshot_of_a_session_that_never_changed(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        for _ in range(40):
            session.record_message("user", "nothing changes")
    forge(ws, 30, {"n": 1})
    assert ws.replay("s", 33).state == {"n": 0}
    forge(ws, 31, {"n": 0})
    assert ws.replay("s", 33).from_snapshot == 31


def test_a_snapshot_where_the_state_was_not_recorded_is_not_believed(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        session.record_tool_return(session.record_tool_call("a", {}), "x")
        session.record_message("user", "hm")
    forge(ws, 3, {"n": 0})
    with pytest.raises(NotRestorableError):
        ws.replay("s", 3)


def test_snapshots_ahead_of_the_log_are_told(ws: Workspace, play: Play) -> None:
    """They were passed over in silence: nobody learned that the log had lost its end."""
    told = play(calls=10, snapshots=EveryN(1000))
    shutil.copytree(ws.folder, ws.folder.parent / "older")
    with ws.resume("s", reopen=True, state=lambda: told.desk.state) as session:
        told.play(session, 5)
    for step in (20, 25, 30):
        ws.take_snapshot("s", step)
    shutil.copytree(
        ws.folder / "snapshots", ws.folder.parent / "older" / "snapshots", dirs_exist_ok=True
    )
    with open_workspace(ws.folder.parent / "older") as older:
        replayed = older.replay("s")
        assert (replayed.step, replayed.from_snapshot) == (21, 20)
        ahead = [why for why in replayed.skipped if "ahead of the log" in why]
        assert [why.split(":")[0] for why in ahead] == [
            "snapshot of step 33",
            "snapshot of step 30",
            "snapshot of step 25",
        ]
        assert older.replay("s", 20).skipped == (), "those of later steps are not looked at"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"event_digest": bytes(32)}, "another event"),
        ({"reducer": "mine"}, "made by reducer"),
        ({"reducer_version": "2"}, "made by reducer"),
    ],
)
def test_a_snapshot_of_something_else_is_skipped(
    ws: Workspace, play: Play, changes: dict[str, object], why: str
) -> None:
    told = play(calls=10, snapshots=EveryN(1000))
    forge(ws, 12, ws.replay("s", 12).state, **changes)
    replayed = ws.replay("s", 13)
    assert replayed.state_bytes == told.states[13]
    assert why in replayed.skipped[0]
    assert replayed.from_snapshot is None


def test_a_damaged_snapshot_is_skipped_for_an_older_one(ws: Workspace, play: Play) -> None:
    told = play(calls=20, snapshots=EveryN(10))
    store = ws.snapshots
    refs = list(store.list_snapshots("s"))
    path = ws.folder / "snapshots"
    files = sorted(path.glob("*/*/*.snap"))
    assert len(files) == len(refs) == 4
    files[2].write_bytes(files[2].read_bytes()[:-1])
    replayed = ws.replay("s", refs[2].step + 1)
    assert replayed.state_bytes == told.states[refs[2].step + 1]
    assert replayed.from_snapshot == refs[1].step
    assert len(replayed.skipped) == 1
    for file in files:
        file.write_bytes(b"")
    replayed = ws.replay("s", 30)
    assert (replayed.state_bytes, replayed.from_snapshot) == (told.states[30], None)
    assert len(replayed.skipped) == 3, "those of later steps are not looked at"


def test_what_lies_among_the_snapshots_is_reported(ws: Workspace, play: Play) -> None:
    told = play(calls=2)
    folder = next((ws.folder / "snapshots").glob("*/*"))
    (folder / "notes.txt").write_text("mine")
    replayed = ws.replay("s")
    assert replayed.state_bytes == told.states[-1]
    assert any("notes.txt" in why for why in replayed.skipped)
