"""What is taken away is never what something that stays, or is about to, needs."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import snapshots.checkpoint_retention
from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_retention import (
    Retention,
    apply_retention,
    collect_garbage,
    take_back,
)
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.added_objects import AddedObjects
from snapshots.checkpoints.manifest import CheckpointRef, Manifest
from snapshots.checkpoints.object_keeper import ObjectKeeper
from snapshots.checkpoints.setting_aside import named_in_track, set_aside
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint

SOME = random.Random(1).randbytes(200_000)
ALL_AT_ONCE = -1.0  # as a grace: also what is younger than now


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def noise(seed: int) -> dict[str, bytes]:
    return {"t": random.Random(seed).randbytes(200_000)}


def with_change(at: int) -> dict[str, bytes]:
    return {"t": SOME[:at] + bytes([SOME[at] ^ 1]) + SOME[at + 1 :]}


def base_and_difference(store: CheckpointStore, step: int = 0) -> tuple[CheckpointRef, ...]:
    base = write_checkpoint(store, step, {"t": SOME})
    rest = write_checkpoint(store, step + 1, with_change(5), ancestor=base, generation=1)
    assert store.read_manifest(rest).ancestor == base
    return base, rest


def _set_base_aside(store: CheckpointStore, base: CheckpointRef) -> Callable[[], None]:
    moved = set_aside(store, named_in_track(store, base.id)[0])
    return lambda: os.rename(moved, store.set_folder(base))


def _lose_its_manifest(store: CheckpointStore, base: CheckpointRef) -> Callable[[], None]:
    path = store.set_folder(base) / "manifest.json"
    kept = path.read_bytes()
    path.unlink()
    return lambda: path.write_bytes(kept) and None


@pytest.mark.parametrize("lose", [_set_base_aside, _lose_its_manifest])
def test_gc_takes_nothing_while_what_a_checkpoint_rests_on_is_not_there(
    store: CheckpointStore, lose: Callable[[CheckpointStore, CheckpointRef], Callable[[], None]]
) -> None:
    base, rest = base_and_difference(store)
    bring_back = lose(store, base)
    with pytest.raises(CheckpointError, match="nothing is taken away"):
        collect_garbage(store, grace_s=ALL_AT_ONCE)
    bring_back()
    assert read_checkpoint(store, rest) == with_change(5)


def test_another_track_takes_nothing_that_a_lost_base_may_need(store: CheckpointStore) -> None:
    policies, sets = CheckpointStore(store.folder, "p"), CheckpointStore(store.folder, "t")
    base, rest = base_and_difference(policies)
    write_checkpoint(sets, 0, {"t": SOME})
    for step in (1, 2):
        write_checkpoint(sets, step, noise(step))
    bring_back = _set_base_aside(policies, base)
    with pytest.raises(CheckpointError, match="nothing is taken away"):
        apply_retention(sets, Retention(2))
    bring_back()
    assert read_checkpoint(policies, rest) == with_change(5)


def test_retention_that_was_broken_off_leaves_none_without_what_it_rests_on(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one went first; what rested on it then stopped retention for ever."""
    base_and_difference(store)
    for step in (2, 3):
        write_checkpoint(store, step, noise(step))
    real, taken = snapshots.checkpoint_retention._remove_set, []

    def broken_off(path: Path) -> None:
        if taken:
            raise KeyboardInterrupt
        taken.append(path)
        real(path)

    monkeypatch.setattr("snapshots.checkpoint_retention._remove_set", broken_off)
    with pytest.raises(KeyboardInterrupt):
        apply_retention(store, Retention(2))
    monkeypatch.undo()
    assert [ref.training_step for ref in store.list_checkpoints()] == [0, 2, 3]
    apply_retention(store, Retention(2))
    assert [ref.training_step for ref in store.list_checkpoints()] == [2, 3]


def test_a_save_whose_base_went_meanwhile_is_refused(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept, and could not be read."""
    base = write_checkpoint(store, 0, {"t": SOME})
    real = CheckpointStore.commit_checkpoint

    def too_late(
        self: CheckpointStore, manifest: Manifest, *, expected_head: CheckpointRef | None
    ) -> CheckpointRef:
        shutil.rmtree(store.set_folder(base))
        return real(self, manifest, expected_head=expected_head)

    monkeypatch.setattr(CheckpointStore, "commit_checkpoint", too_late)
    with pytest.raises(CheckpointIncompleteError):
        write_checkpoint(store, 1, with_change(5), ancestor=base, generation=1)
    assert store.list_checkpoints() == []


def test_retention_takes_nothing_while_what_the_head_rests_on_is_not_in_place(
    store: CheckpointStore,
) -> None:
    older = write_checkpoint(store, 0, noise(7))
    base, _ = base_and_difference(store, 1)
    write_checkpoint(store, 3, with_change(6), ancestor=base, generation=1)
    for one in store.read_manifest(base).objects():
        store.objects.object_path(one.digest).unlink()
    with pytest.raises(CheckpointIncompleteError, match="is missing"):
        apply_retention(store, Retention(2))
    assert read_checkpoint(store, older) == noise(7)


@pytest.mark.parametrize("pointer", ["HEAD", "pins/best"])
def test_gc_takes_nothing_while_a_pointer_names_what_is_not_there(
    store: CheckpointStore, pointer: str
) -> None:
    write_checkpoint(store, 0, noise(0))
    named = write_checkpoint(store, 1, noise(1))
    if pointer != "HEAD":
        store.pin("best", named)
        write_checkpoint(store, 2, noise(2))
    manifest = store.set_folder(named) / "manifest.json"
    kept = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(CheckpointIncompleteError, match=pointer.rpartition("/")[2]):
        collect_garbage(store, grace_s=ALL_AT_ONCE)
    manifest.write_bytes(kept)
    assert read_checkpoint(store, named) == noise(1)


def test_what_was_committed_since_it_was_looked_at_is_not_set_aside(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(store, 0, noise(0))
    real, seen = CheckpointStore.commit_checkpoint, []

    def commit(
        self: CheckpointStore, manifest: Manifest, *, expected_head: CheckpointRef | None
    ) -> CheckpointRef:
        self.begin_checkpoint(manifest.training_step, manifest.id)
        seen.extend(named_in_track(self, manifest.id))
        return real(self, manifest, expected_head=expected_head)

    monkeypatch.setattr(CheckpointStore, "commit_checkpoint", commit)
    head = write_checkpoint(store, 1, noise(1))
    with pytest.raises(CheckpointError, match="nothing was moved"):
        set_aside(store, seen[0])
    assert store.head() == head
    assert read_checkpoint(store, head) == noise(1)


def test_gc_spares_what_was_written_again_after_it_looked(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(store, 0, noise(0))
    stored = store.objects.put_object([SOME])
    path = store.objects.object_path(stored.digest)
    os.utime(path, (1, 1))
    real = snapshots.checkpoint_retention._unfinished_files

    def another_saves(*arguments: object) -> object:
        path.unlink()
        store.objects.put_object([SOME])
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("snapshots.checkpoint_retention._unfinished_files", another_saves)
    assert collect_garbage(store, grace_s=3600.0).objects == 0
    assert path.exists()


def test_a_failed_save_leaves_an_object_that_another_wrote_between_its_own_two(
    store: CheckpointStore,
) -> None:
    failing = ObjectKeeper(store.objects)
    failing.put_object([SOME])
    failing.finish()
    stored = store.objects.put_object([SOME])
    failing.put_object([SOME])
    failing.finish()
    failing.close()
    take_back(store, failing.added)
    assert store.objects.object_path(stored.digest).exists()


def test_a_save_that_was_kept_all_the_same_takes_nothing_back(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a rank's network disk lists the folder as it was before."""
    write_checkpoint(store, 0, noise(0))
    keeper = ObjectKeeper(store.objects)
    added: AddedObjects = keeper.added
    stored = keeper.put_object([SOME])
    keeper.finish()
    keeper.close()
    take_back(store, added, is_kept=lambda: True)
    assert store.objects.object_path(stored.digest).exists()
    take_back(store, added, is_kept=lambda: False)
    assert not store.objects.object_path(stored.digest).exists()
