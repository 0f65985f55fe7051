"""`steplog policy`: versions listed, one gone back to, and what a kill left completed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from replay.workspace import Workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.tracks import track_of_policies
from snapshots.policies.history import find_version
from snapshots.policies.notes import PolicyNotes, read_history, record_publication, record_rollback
from snapshots.sets.journal import RESTORED, begin_set, note_value
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.command import Command
from tests.support.own_sessions import training_session

KEYS = [
    *("training", "version", "label", "checkpoint", "training_step", "manifest"),
    *("published", "standing", "current", "head", "kept", "reason"),
]


def line_of(ws: Workspace, training: str = "run-1") -> CheckpointStore:
    return CheckpointStore(ws.folder / "checkpoints", track_of_policies(training))


@pytest.fixture
def versions(steplog: Command) -> Command:
    """Versions 1 to 3 of the training `run-1`."""
    with steplog.open() as ws, training_session(ws, "run-1") as run:
        for version in (1, 2, 3):
            kept = write_checkpoint(line_of(ws), version * 10, {"w": bytes([version]) * 500})
            record_publication(run, version, str(version), kept)
    return steplog


def listed(command: Command, *arguments: str) -> list[tuple[str, bool, bool, bool]]:
    return [
        (row["label"], row["current"], row["head"], row["kept"])
        for row in command.rows("policy", "list", *arguments)
    ]


def test_versions_are_listed_with_these_keys_and_no_other(versions: Command) -> None:
    rows = versions.rows("policy", "list")
    assert [list(row) for row in rows] == [KEYS] * 3
    first = rows[0]
    assert (first["training"], first["version"], first["training_step"]) == ("run-1", 1, 10)
    assert (first["standing"], first["reason"]) == (True, None)
    assert listed(versions, "run-1") == [
        ("1", False, False, True),
        ("2", False, False, True),
        ("3", True, True, True),
    ]
    headings, *lines = versions("policy", "list").lines
    assert headings[:5] == ["TRAINING", "VERSION", "STEP", "PUBLISHED", "STATUS"]
    assert [line[4] for line in lines] == ["-", "-", "current HEAD"]


def test_going_back_is_recorded_and_moves_head(versions: Command) -> None:
    row = versions.row("policy", "rollback", "2", "--reason", "it cheats")
    assert row | {"checkpoint": "", "manifest": "", "session": ""} == {
        "training": "run-1",
        "version": 2,
        "label": "2",
        "checkpoint": "",
        "training_step": 20,
        "manifest": "",
        "standing": True,
        "reason": "it cheats",
        "session": "",
        "moved": True,
    }
    assert versions.rows("sessions", "--prefix", row["session"])[0]["training_session"] == "run-1"
    assert listed(versions)[1:] == [("2", True, True, True), ("3", False, False, True)]
    again = versions.row("policy", "rollback", "2", "--reason", "it cheats")
    assert (again["session"], again["moved"]) == (None, False)
    assert versions("policy", "rollback", "2", "--reason", "r").out == (
        "run-1: version 2 was in use already (step 20)\n"
    )
    assert versions("policy", "rollback", "1", "--reason", "r", "--training", "run-1").out == (
        "run-1: version 1 is in use (step 10)\n"
    )


def test_going_back_to_a_version_that_is_given_up_says_so(steplog: Command) -> None:
    """It said `is in use` as of any other; the list alone told that a restore had given it up."""
    with steplog.open() as ws, training_session(ws, "run-1") as run:
        begin_set(ws.log, "set-a", "run-1", 5, ws.log.end_cut())
        kept = write_checkpoint(line_of(ws), 10, {"w": bytes(500)})
        record_publication(run, 1, "1", kept)
        run.annotate(RESTORED, note_value(CheckpointRef(5, "set-a", "0" * 64)))
    ran = steplog("policy", "rollback", "1", "--reason", "r")
    assert ran.out == (
        "run-1: version 1 is in use (step 10); "
        "it is given up: published after the set restored to\n"
    )
    assert steplog.row("policy", "rollback", "1", "--reason", "r")["standing"] is False


def test_what_a_kill_left_is_told_and_completed(versions: Command) -> None:
    with versions.open() as ws:
        target = find_version(read_history(ws.log, "run-1"), "1")
        record_rollback(
            PolicyNotes(ws.log, "run-1"), target, "r", clock_us=lambda: time.time_ns() // 1_000
        )
    ran = versions("--json", "policy", "list")
    assert ran.code == 0
    assert "version 1 is in use, and HEAD is not there" in ran.err
    assert "steplog policy rollback 1 --training run-1" in ran.err
    assert [(row["current"], row["head"]) for row in ran.rows] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    row = versions.row("policy", "rollback", "1", "--reason", "r")
    assert (row["session"], row["moved"]) == (None, True)
    assert listed(versions)[0] == ("1", True, True, True)


def test_versions_that_lie_outside_the_workspace_are_found_in_their_folder(
    steplog: Command, tmp_path: Path
) -> None:
    """`ws.training(checkpoints=DIR)`: shown as not kept, and none could be gone back to."""
    folder = tmp_path / "elsewhere"
    with steplog.open() as ws, training_session(ws, "run-1") as run:
        track = CheckpointStore(folder, track_of_policies("run-1"))
        for version in (1, 2):
            kept = write_checkpoint(track, version * 10, {"w": bytes([version]) * 500})
            record_publication(run, version, str(version), kept)
    there = ("--folder", str(folder))
    elsewhere = steplog("--json", "policy", "list")
    assert [row["kept"] for row in elsewhere.rows] == [False, False]
    assert [kept for *_, kept in listed(steplog, *there)] == [True, True]
    row = steplog.row("policy", "rollback", "1", "--reason", "r", *there)
    assert (row["label"], row["moved"]) == ("1", True)
    assert listed(steplog, *there)[0] == ("1", True, True, True)
    ran = steplog("policy", "list", "--folder", str(tmp_path / "nowhere"))
    assert (ran.code, ran.out) == (2, "")
    assert "ws.training was given as checkpoints=" in ran.err


def _none(command: Command) -> None:
    with command.open():
        pass


def _two(command: Command) -> None:
    with command.open() as ws:
        training_session(ws, "run-2")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["rollback", "9", "--reason", "r"], 2, "no policy version '9'"),
        (["rollback", "1"], 2, "--reason"),
        (["rollback", "1", "--reason", " "], 2, "a reason"),
        (["rollback", "1", "--reason", "r", "--training", "desk"], 5, "desk"),
        (["list", "desk"], 5, "desk"),
    ],
)
def test_what_is_not_there_is_said(
    versions: Command, arguments: list[str], code: int, told: str
) -> None:
    ran = versions("policy", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err


@pytest.mark.parametrize(("change", "told"), [(_two, "2 trainings"), (_none, "0 trainings")])
def test_one_of_several_trainings_is_to_be_named(
    steplog: Command, request: pytest.FixtureRequest, change: Callable[[Command], None], told: str
) -> None:
    if change is _two:
        request.getfixturevalue("versions")
    change(steplog)
    ran = steplog("policy", "rollback", "1", "--reason", "r")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_a_checkpoint_that_was_taken_away_is_not_kept(versions: Command) -> None:
    with versions.open() as ws:
        ref = CheckpointRef(*_ref_of(versions, "1"))
        (line_of(ws).set_folder(ref) / "manifest.json").unlink()
    assert listed(versions)[0] == ("1", False, False, False)
    ran = versions("policy", "rollback", "1", "--reason", "r")
    assert (ran.code, ran.out) == (6, "")
    assert listed(versions)[2] == ("3", True, True, True)


def _ref_of(command: Command, label: str) -> tuple[int, str, str]:
    (row,) = [row for row in command.rows("policy", "list") if row["label"] == label]
    return row["training_step"], row["checkpoint"], row["manifest"]


def test_none_is_said(steplog: Command) -> None:
    with steplog.open():
        pass
    ran = steplog("policy", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no policy version was published\n")
