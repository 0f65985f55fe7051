"""Tracks of a folder: each with its own head, all over the same objects."""

import errno
import os
import random
import re
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_retention import (
    Removed,
    Retention,
    apply_retention,
)
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints import file_faults
from snapshots.checkpoints.manifest import CheckpointRef, check_id
from snapshots.checkpoints.survey import list_unfinished
from snapshots.checkpoints.tracks import (
    check_track,
    is_of_policies,
    is_of_training,
    pin_of_branch,
    track_of_policies,
    track_of_training,
)
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint

CHANCE = random.Random(5)
TENSORS = {"t": CHANCE.randbytes(90_000)}


def test_a_plain_name_is_its_own() -> None:
    assert track_of_training("run-1") == "trainings-run-1"
    assert track_of_policies("run-1") == "policies-run-1"
    assert track_of_training("x" * 64) == "trainings-" + "x" * 64


@pytest.mark.parametrize(
    ("session", "track"),
    [
        ("Run 1/a", r"trainings-run-1-a--[0-9a-f]{16}"),
        ("x" * 65, rf"trainings-{'x' * 40}--[0-9a-f]{{16}}"),
        ("..", r"trainings-x--[0-9a-f]{16}"),
        ("../../etc", r"trainings-etc--[0-9a-f]{16}"),
        ("läuft\udc80", r"trainings-l-uft--[0-9a-f]{16}"),
    ],
)
def test_any_other_is_cut_and_told_apart(session: str, track: str) -> None:
    assert re.fullmatch(track, track_of_training(session))


def test_a_track_says_what_it_holds() -> None:
    tracks = [track_of_training("Run 1"), track_of_policies("run-1"), "mine", None]
    assert [is_of_training(one) for one in tracks] == [True, False, False, False]
    assert [is_of_policies(one) for one in tracks] == [False, True, False, False]


def test_each_branch_has_a_pin_of_its_own() -> None:
    assert pin_of_branch("trial-1") == "branch-trial-1"
    names = ["a" * size for size in (1, 57, 58, 63, 64)] + ["Trial/1", "trial/1", "x" * 500, "ü"]
    pins = [check_id(pin_of_branch(name), "a pin's name") for name in names]
    assert len(set(pins)) == len(names)


@given(st.lists(st.text(max_size=80) | st.from_regex(r"[a-z0-9_-]{0,70}"), max_size=8))
@example(["A"])
def test_no_two_trainings_share_a_line(sessions: list[str]) -> None:
    # The track of each could be given as the id of the next.
    made = {track_of_training(one).removeprefix("trainings-") for one in sessions}
    asked = {*sessions, *made}
    tracks = {check_track(track_of_training(one)) for one in asked}
    assert len(tracks) == len(asked)
    assert tracks.isdisjoint(track_of_policies(one) for one in asked)


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "A", "a" * 129, "a\n"])
def test_a_line_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a track's name must match"):
        CheckpointStore(tmp_path, name)


def test_lines_share_objects_and_nothing_else(tmp_path: Path) -> None:
    stores = [CheckpointStore(tmp_path, track) for track in (None, "policies-a", "trainings-a")]
    assert stores[0].tracks() == []
    for step, store in reversed(list(enumerate(stores))):
        ref = write_checkpoint(store, step, TENSORS)
        store.pin("best", ref)
    assert len(list(stores[0].objects.list_objects())) == 1
    for step, store in enumerate(stores):
        (ref,) = store.list_checkpoints()
        assert ref.training_step == step
        assert store.head() == store.pins()["best"] == store.find_checkpoint() == ref
        assert read_checkpoint(store, ref) == TENSORS
        with pytest.raises(
            CheckpointIncompleteError, match=f"no committed .* in {store.track_folder}"
        ):
            store.find_checkpoint(step=step + 1)
    assert (tmp_path / "tracks" / "trainings-a" / "HEAD").exists()
    assert not (tmp_path / "tracks" / "trainings-a" / "objects").exists()
    for name in ("Foreign", ".hidden", "empty"):
        (tmp_path / "tracks" / name).mkdir()
    (tmp_path / "tracks" / "file").write_text("")
    assert [one.track for one in stores[1].tracks()] == [None, "policies-a", "trainings-a"]


def test_an_ancestor_is_looked_for_in_its_own_line(tmp_path: Path) -> None:
    first = write_checkpoint(CheckpointStore(tmp_path, "a"), 1, TENSORS)
    assert CheckpointStore(tmp_path, "a").read_manifest(first).id == first.id
    with pytest.raises(CheckpointIncompleteError, match="is missing"):
        CheckpointStore(tmp_path, "b").read_manifest(first)


def test_kept_is_not_yet_the_head(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, "a")
    first = write_checkpoint(store, 1, TENSORS)
    manifest = store.read_manifest(first)
    kept = store.keep_manifest(manifest._replace(id="kept", training_step=2))
    assert store.head() == first
    assert store.list_checkpoints() == [first, kept]
    assert store.move_head(kept, still=lambda: True)
    assert store.move_head(kept, still=lambda: True)  # As after a kill before what follows.
    assert store.head() == kept
    other = store.keep_manifest(manifest._replace(id="other", training_step=3))
    assert not store.move_head(other, still=lambda: False)
    assert store.head() == kept
    with pytest.raises(CheckpointIncompleteError, match="is missing"):
        store.move_head(other._replace(id="none"), still=lambda: True)


def test_what_a_log_is_told_of_a_checkpoint_is_in_place_then(tmp_path: Path) -> None:
    """Between the note that a training goes on from it and HEAD, retention took a set away."""
    store = CheckpointStore(tmp_path, "a")
    refs = [write_checkpoint(store, step, TENSORS) for step in range(4)]
    told: list[CheckpointRef | None] = []
    with ThreadPoolExecutor(1) as pool:

        def tell() -> None:
            clearing.append(pool.submit(apply_retention, store, Retention(2)))
            told.append(store.head())

        clearing: list[Future[Removed]] = []
        store.move_head(refs[0], told=tell)
        removed = clearing[0].result()
    assert told == [refs[3]]
    assert removed.checkpoints == (refs[1],)
    assert store.head() == refs[0]
    with pytest.raises(CheckpointIncompleteError, match="is missing"):
        store.move_head(refs[1], told=tell)
    assert told == [refs[3]], "nothing is told of what is gone"

    def refuse() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.move_head(refs[3], told=refuse)
    assert store.head() == refs[0]


def test_a_pin_never_names_what_was_taken_away_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked for before the lock: a branch was made, and its pin named nothing."""
    store = CheckpointStore(tmp_path, "a")
    refs = [write_checkpoint(store, step, TENSORS) for step in range(4)]
    locked = CheckpointStore.locked

    def late(self: CheckpointStore) -> AbstractContextManager[None]:
        monkeypatch.setattr(CheckpointStore, "locked", locked)
        apply_retention(store, Retention(2))
        return locked(self)

    monkeypatch.setattr(CheckpointStore, "locked", late)
    with pytest.raises(CheckpointIncompleteError, match="is missing"):
        store.pin("branch-x", refs[0])
    assert store.pins() == {}


def test_what_another_line_took_away_meanwhile_is_missed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    manifest = store.read_manifest(write_checkpoint(store, 1, TENSORS))
    for one in store.objects.list_objects():
        store.objects.object_path(one.digest).unlink()
    track = CheckpointStore(tmp_path, "a")
    with pytest.raises(CheckpointIncompleteError, match="of tensor 't' is missing"):
        track.keep_manifest(manifest)
    assert track.list_checkpoints() == []
    assert len(list_unfinished(track)) == 1


def test_two_lines_save_the_same_and_clear_away_at_once(tmp_path: Path) -> None:
    """A training's sets and its policy versions hold the same weights, and are saved at once."""
    weights = [{"w": CHANCE.randbytes(70_000), "s": bytes([number])} for number in range(4)]
    refused: list[CheckpointError] = []

    def save_and_clear(track: str, seed: int) -> None:
        store, chance = CheckpointStore(tmp_path, track), random.Random(seed)
        for step in range(40):
            try:
                write_checkpoint(store, step, chance.choice(weights))
            except CheckpointError as error:
                refused.append(error)
            apply_retention(store, Retention(2))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(save_and_clear, track, n) for n, track in enumerate("abc")]:
            done.result()
    tracks = CheckpointStore(tmp_path).tracks()
    assert [one.track for one in tracks] == ["a", "b", "c"]
    for store in tracks:
        refs = store.list_checkpoints()
        assert len(refs) == 2
        assert store.head() == refs[-1]
        assert all(read_checkpoint(store, ref) in weights for ref in refs)
    # What was taken away in the moment it was needed is missed and said, never lost in silence.
    assert all(isinstance(error, CheckpointIncompleteError) for error in refused)
    assert len(refused) < 12


def test_what_may_not_be_looked_at_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)
    write_checkpoint(store, 1, TENSORS)
    report: list[CheckpointError] = []

    def refused(path: object, **_rest: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(file_faults.os, "lstat", refused)
    assert store.list_checkpoints(report=report.append) == []
    assert len(report) == 1
    for look in (lambda: list_unfinished(store), store.tracks, store.head):
        with pytest.raises(CheckpointError, match="cannot be used: Permission denied"):
            look()
