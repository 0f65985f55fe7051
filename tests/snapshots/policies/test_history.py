"""Policy versions as the log has them: in use, given up, gone back to; and kills in between."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.errors import CheckpointError, CheckpointIncompleteError, ConfigError
from eventlog.event import Annotated, CheckpointBegun, SessionClosed, SessionSeeded
from eventlog.log import SessionFilter
from eventlog.recorder import SessionRecorder
from replay.workspace import Workspace, open_workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.tracks import track_of_policies
from snapshots.policies.history import (
    VERSION_MAX,
    PolicyVersion,
    Published,
    RolledBack,
    find_version,
    label_of,
    policy_history,
)
from snapshots.policies.notes import (
    POLICY,
    PolicyNotes,
    read_history,
    read_rolled_back,
    record_publication,
    record_rollback,
)
from snapshots.policies.rollback import WentBack, roll_back, settle_head
from snapshots.sets.journal import RESTORED, begin_set, note_value
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.own_sessions import own_session, training_session
from tests.support.processes import python_script
from tests.support.scale import scaled

KILLS = scaled(12, 60)
WEIGHTS = random.Random(3).randbytes(1_000)


def ref(number: int) -> CheckpointRef:
    return CheckpointRef(number, f"c{number}", f"{number:064x}")


def published(number: int, at: int, *, standing: bool = True, label: str = "") -> Published:
    return Published(number, label or str(number), ref(number + 100 * at), at, standing)


def back(one: Published, known: int, reason: str = "r", at: int = 0) -> RolledBack:
    """Somebody went back who knew of so many publications."""
    return RolledBack(one.ref, reason, at, known)


def current(history: list[PolicyVersion]) -> list[tuple[str, str | None]]:
    return [(one.label, one.reason) for one in history if one.current]


def test_the_last_published_is_in_use_until_one_goes_back_and_publishes_again() -> None:
    one, two, three = published(1, 10), published(2, 20), published(3, 30)
    assert current(policy_history([], [])) == []
    assert current(policy_history([one, two], [])) == [("2", None)]
    assert current(policy_history([one, two], [back(one, 2, "bad")])) == [("1", "bad")]
    assert current(policy_history([one, two, three], [back(one, 2)])) == [("3", None)]
    twice = [back(one, 3, "a"), back(two, 3, "b")]
    assert current(policy_history([one, two, three], twice)) == [("2", "b")]
    assert current(policy_history([one, two, three], twice[::-1])) == [("1", "a")]
    later = [back(two, 3, "b", at=9), back(one, 3, "a", at=8)]
    assert current(policy_history([one, two, three], later)) == [("2", "b")]


def test_clocks_do_not_say_what_came_first() -> None:
    """An operator's clock may be hours behind the trainer's, or before it."""
    one, two, three = published(1, 10), published(2, 20), published(3, 30)
    for at in (0, 15, 1000):
        assert current(policy_history([one, two], [back(one, 2, at=at)])) == [("1", "r")]
        assert current(policy_history([one, two, three], [back(one, 2, at=at)])) == [("3", None)]
    both = [back(one, 1, "a", at=1000), back(two, 2, "b", at=5)]
    assert current(policy_history([one, two], both)) == [("2", "b")]


def test_what_was_given_up_stays_listed_and_is_not_in_use_by_itself() -> None:
    one, lost = published(1, 10), published(2, 20, standing=False)
    history = policy_history([one, lost], [])
    assert [(each.label, each.standing, each.current) for each in history] == [
        ("1", True, True),
        ("2", False, False),
    ]
    # An operator may still go to it.
    assert current(policy_history([one, lost], [back(lost, 2)])) == [("2", "r")]


def test_the_same_checkpoint_published_again_is_one_version() -> None:
    lost = published(2, 20, standing=False)
    again = lost._replace(time=40, standing=True)
    (found,) = policy_history([lost, again], [])
    assert (found.time, found.standing, found.current) == (40, True, True)


def test_a_version_is_found_by_label_and_by_number() -> None:
    lost = published(2, 20, standing=False)
    again = published(2, 40, label="2~3")
    history = policy_history([published(1, 10), lost, again], [])
    assert find_version(history, "2~3").ref == again.ref
    assert find_version(history, 2).ref == again.ref
    assert find_version(policy_history([lost], []), 2).ref == lost.ref
    # A label is what sessions name, and always that one version.
    assert find_version(history, "2").ref == lost.ref
    with pytest.raises(ConfigError, match="a policy version is a number"):
        find_version(history, -1)
    with pytest.raises(ConfigError, match="no policy version '3'") as error:
        find_version(history, "3")
    assert "2~3" in error.value.hint


def test_a_label_is_the_number_and_later_ones_of_it_are_told_apart() -> None:
    first = published(2, 20)
    assert label_of([], 2, "a" * 64, 1) == "2"
    assert label_of([first], 2, first.ref.digest, 5) == "2"
    assert label_of([first], 2, "a" * 64, 5) == "2~5"
    second = published(2, 40, label="2~5")
    assert label_of([first, second], 2, "a" * 64, 5) == "2~6"
    assert label_of([first, second], 2, "a" * 64, 8) == "2~8"
    assert label_of([first, second], 3, "a" * 64, 8) == "3"
    for wrong in (-1, True, 1.0, "1", None, VERSION_MAX + 1):
        with pytest.raises(ConfigError, match="a policy version is a number"):
            label_of([], wrong, "a" * 64, 1)  # type: ignore[arg-type]


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "runs") as ws:
        yield ws


@pytest.fixture
def run(ws: Workspace) -> SessionRecorder:
    return training_session(ws, "run-1")


def line_of(ws: Workspace) -> CheckpointStore:
    return CheckpointStore(ws.folder / "checkpoints", track_of_policies("run-1"))


def publish(ws: Workspace, run: SessionRecorder, version: int) -> CheckpointRef:
    """A version as a trainer publishes it: checkpoint, note, HEAD."""
    weights = {"w": WEIGHTS + bytes([version])}
    kept = write_checkpoint(line_of(ws), version * 10, weights)
    label = label_of(PolicyNotes(ws.log, "run-1").published(), version, kept.digest, run.attempt)
    record_publication(run, version, label, kept)
    settle_head(PolicyNotes(ws.log, "run-1"), line_of(ws))
    return kept


def go_back(ws: Workspace, name: str, reason: str = "it cheats") -> WentBack:
    return roll_back(PolicyNotes(ws.log, "run-1"), line_of(ws), name, reason, clock_us=time_us)


def time_us() -> int:
    return time.time_ns() // 1_000


def test_going_back_is_a_session_of_its_own_that_fences_nobody(
    ws: Workspace, run: SessionRecorder
) -> None:
    kept = [publish(ws, run, version) for version in (1, 2, 3)]
    with open_workspace(ws.folder) as operator:
        went = go_back(operator, "2")
    assert (went.version.label, went.version.reason, went.moved) == ("2", "it cheats", True)
    assert went.session is not None
    assert line_of(ws).head() == kept[1]
    seed, note, close = (event.body for event in ws.events(went.session))
    assert isinstance(seed, SessionSeeded)
    assert (seed.environment, seed.training_session) == (POLICY, "run-1")
    assert isinstance(note, Annotated)
    assert ws.read_value(note.value) == {
        "training": "run-1",
        "version": 2,
        "label": "2",
        "checkpoint": kept[1].id,
        "manifest": kept[1].digest,
        "training_step": 20,
        "reason": "it cheats",
        "published": 3,
    }
    assert isinstance(close, SessionClosed)
    assert publish(ws, run, 4) == line_of(ws).head()
    assert current(read_history(ws.log, "run-1")) == [("4", None)]
    assert {report.verdict for report in ws.check()} == {"ok"}


def test_once_more_changes_nothing(ws: Workspace, run: SessionRecorder) -> None:
    publish(ws, run, 1)
    publish(ws, run, 2)
    assert go_back(ws, "2") == (go_back(ws, "2").version, None, False)
    first = go_back(ws, "1")
    assert go_back(ws, "1") == (first.version, None, False)
    assert len(read_rolled_back(ws.log, "run-1")) == 1


def test_killed_between_log_and_head_the_next_run_completes_it(
    ws: Workspace, run: SessionRecorder
) -> None:
    kept = [publish(ws, run, version) for version in (1, 2)]
    target = find_version(read_history(ws.log, "run-1"), "1")
    record_rollback(PolicyNotes(ws.log, "run-1"), target, "it cheats", clock_us=time_us)  # and dies
    assert line_of(ws).head() == kept[1]
    went = go_back(ws, "1")
    assert (went.session, went.moved) == (None, True)
    assert line_of(ws).head() == kept[0]
    assert len(read_rolled_back(ws.log, "run-1")) == 1


def test_a_checkpoint_that_is_not_there_is_not_gone_back_to(
    ws: Workspace, run: SessionRecorder
) -> None:
    kept = [publish(ws, run, version) for version in (1, 2)]
    manifest = line_of(ws).set_folder(kept[0]) / "manifest.json"
    data = manifest.read_bytes()
    manifest.write_bytes(data + b" ")
    with pytest.raises(CheckpointError, match="hash"):
        go_back(ws, "1")
    manifest.unlink()
    with pytest.raises(CheckpointIncompleteError):
        go_back(ws, "1")
    assert read_rolled_back(ws.log, "run-1") == []
    assert line_of(ws).head() == kept[1]


def test_a_restore_gives_up_what_was_published_after_its_set(
    ws: Workspace, run: SessionRecorder
) -> None:
    kept = publish(ws, run, 1)
    begin_set(ws.log, "set-a", "run-1", 15, ws.log.end_cut())
    lost = publish(ws, run, 2)
    run = training_session(ws, "run-1")
    run.annotate(RESTORED, note_value(CheckpointRef(15, "set-a", "0" * 64)))
    found = read_history(ws.log, "run-1")
    assert [(one.label, one.standing, one.current) for one in found] == [
        ("1", True, True),
        ("2", False, False),
    ]
    assert settle_head(PolicyNotes(ws.log, "run-1"), line_of(ws)) == (found[0], True)
    assert line_of(ws).head() == kept
    again = publish(ws, run, 2)
    assert [one.label for one in read_history(ws.log, "run-1")] == ["1", "2", "2~2"]
    assert line_of(ws).head() == again
    assert go_back(ws, "1").version.ref == kept
    assert go_back(ws, "2~2").version.ref == again
    assert PolicyNotes(ws.log, "run-1").published()[1].ref == lost


def test_a_publication_that_was_rewound_stands_no_more(ws: Workspace, run: SessionRecorder) -> None:
    publish(ws, run, 1)
    publish(ws, run, 2)
    (first,) = ws.log.read_session("run-1", 1, 2)
    ws.log.take_over(["run-1"], stands_on={"run-1": first.digest}, reason="resume")
    assert [one.standing for one in PolicyNotes(ws.log, "run-1").published()] == [True, False]


def test_what_is_no_training_and_no_note_of_ours_is_said(
    ws: Workspace, run: SessionRecorder
) -> None:
    ws.record("desk/1", environment="desk")
    with pytest.raises(ConfigError, match="no training"):
        read_history(ws.log, "desk/1")
    with pytest.raises(ConfigError, match="no reason"):
        go_back(ws, "1", " ")
    run.annotate("policy_published", {"version": "one"})
    with pytest.raises(CheckpointError, match="not one of ours") as error:
        read_history(ws.log, "run-1")
    assert (error.value.session_id, error.value.step) == ("run-1", 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"version": -1},
        {"version": True},
        {"label": "../1"},
        {"label": 1},
        {"checkpoint": "../x"},
        {"manifest": "0"},
        {"training_step": "7"},
    ],
)
def test_a_note_with_a_wrong_field_is_refused(
    ws: Workspace, run: SessionRecorder, changed: dict[str, Any]
) -> None:
    good = {
        "version": 1,
        "label": "1",
        "checkpoint": "c1",
        "manifest": "0" * 64,
        "training_step": 7,
    }
    run.annotate("policy_published", good)
    assert read_history(ws.log, "run-1")[0].label == "1"
    run.annotate("policy_published", good | changed)
    with pytest.raises(CheckpointError, match="not one of ours"):
        read_history(ws.log, "run-1")


@pytest.mark.parametrize("label", ["012", "12~0", "12~03", "13", "13~2", "-12", "12~", ""])
def test_a_label_that_no_range_of_versions_holds_is_refused(
    ws: Workspace, run: SessionRecorder, label: str
) -> None:
    """`012` was a label of 12 in a note, and no number for `--policy 1..20`: nobody found its
    sessions.
    """
    value = {"version": 12, "checkpoint": "c1", "manifest": "0" * 64, "training_step": 7}
    run.annotate("policy_published", {**value, "label": "12~3"})
    assert read_history(ws.log, "run-1")[0].label == "12~3"
    run.annotate("policy_published", {**value, "label": label})
    with pytest.raises(CheckpointError, match="is no label of version 12"):
        read_history(ws.log, "run-1")


def test_a_set_of_which_the_log_says_no_cut_is_said(ws: Workspace, run: SessionRecorder) -> None:
    own_session(ws, "checkpoint/set-a", "steplog.checkpoint").close()
    assert not any(isinstance(each.body, CheckpointBegun) for each in ws.events("checkpoint/set-a"))
    run.annotate(RESTORED, note_value(CheckpointRef(15, "set-a", "0" * 64)))
    with pytest.raises(CheckpointError, match="says no cut"):
        read_history(ws.log, "run-1")


ROLLER = """
import sys, time, steplog
from snapshots.checkpoint_store import CheckpointStore
from snapshots.policies.notes import PolicyNotes
from snapshots.policies.rollback import roll_back

ws = steplog.open_workspace(sys.argv[1])
store = CheckpointStore(ws.folder / "checkpoints", "policies-run-1")
notes = PolicyNotes(ws.log, "run-1")
print("go", flush=True)
for number in range(10_000):
    name = str(1 + number % 2)
    roll_back(notes, store, name, name, clock_us=lambda: time.time_ns() // 1_000)
"""


def test_killed_at_any_moment_the_log_is_right_and_head_follows(tmp_path: Path) -> None:
    rng = random.Random(7)
    folder = tmp_path / "runs"
    with open_workspace(folder) as ws:
        run = training_session(ws, "run-1")
        kept = {str(version): publish(ws, run, version) for version in (1, 2)}
        for _ in range(KILLS):
            with python_script(ROLLER, str(folder)) as roller:
                assert roller.stdout is not None
                roller.stdout.readline()
                time.sleep(rng.random() * 0.05)
                os.kill(roller.pid, signal.SIGKILL)
            (in_use,) = current(read_history(ws.log, "run-1"))
            went = go_back(ws, in_use[0])
            assert went.session is None
            assert line_of(ws).head() == kept[in_use[0]]
        where = SessionFilter(environment=POLICY)
        assert all(info.status == "closed" for info in ws.sessions(where))
        assert {report.verdict for report in ws.check()} == {"ok"}
