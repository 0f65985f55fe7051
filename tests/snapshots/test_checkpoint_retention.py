"""Retention: what is kept, that it stays whole whatever happens meanwhile, and what goes."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CheckpointError
from snapshots.checkpoint_manifest import CheckpointRef
from snapshots.checkpoint_retention import (
    Retention,
    apply_retention,
    collect_garbage,
    kept_checkpoints,
)
from snapshots.checkpoint_store import CheckpointStore
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint

CHANCE = random.Random(8)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def tensors_at(step: int) -> dict[str, bytes]:
    chance = random.Random(step)
    return {"own": chance.randbytes(90_000), "shared": bytes(100), "small": chance.randbytes(20)}


def fill(store: CheckpointStore, steps: int) -> list[CheckpointRef]:
    return [write_checkpoint(store, step, tensors_at(step)) for step in range(steps)]


def ref_at(step: int) -> CheckpointRef:
    return CheckpointRef(step, f"id{step}", "0" * 64)


def test_the_newest_and_every_nth_and_what_is_pointed_at_stay(store: CheckpointStore) -> None:
    refs = fill(store, 11)
    store.pin("best", refs[3])
    store.move_head(refs[2])
    removed = apply_retention(store, Retention(2, every=5))
    assert [ref.training_step for ref in removed.checkpoints] == [1, 4, 6, 7, 8]
    left = store.list_checkpoints()
    assert [ref.training_step for ref in left] == [0, 2, 3, 5, 9, 10]
    for ref in left:
        assert read_checkpoint(store, ref) == tensors_at(ref.training_step)
    assert removed.objects == 10
    assert apply_retention(store, Retention(2, every=5)).checkpoints == ()
    named = {one for ref in left for one in store.read_manifest(ref).objects()}
    assert set(store.objects.list_objects()) == named


def test_what_a_kept_one_rests_on_stays(store: CheckpointStore) -> None:
    raw = bytearray(CHANCE.randbytes(100_000))
    versions, above = [], None
    for step in range(5):
        raw[step] ^= 1
        versions.append({"t": bytes(raw)})
        # 4 rests on 0 alone, the others each on the one before.
        base = store.list_checkpoints()[0] if step == 4 else above
        above = write_checkpoint(store, step, versions[-1], ancestor=base, generation=step)
    removed = apply_retention(store, Retention(2))
    assert removed.checkpoints == ()
    write_checkpoint(store, 5, versions[0])
    removed = apply_retention(store, Retention(2))
    assert [ref.training_step for ref in removed.checkpoints] == [1, 2, 3]
    for ref in store.list_checkpoints():
        assert read_checkpoint(store, ref) == versions[ref.training_step % 5]


@given(
    st.sets(st.integers(0, 40), min_size=1),
    st.integers(2, 6),
    st.none() | st.integers(1, 7),
    st.randoms(),
)
def test_the_plan_keeps_enough(
    steps: set[int], last_n: int, every: int | None, chance: random.Random
) -> None:
    refs = [ref_at(step) for step in sorted(steps)]
    lines = {
        ref: [ref, *(above for above in refs[:number] if chance.random() < 0.2)]
        for number, ref in enumerate(refs)
    }
    head = chance.choice(refs)
    kept = kept_checkpoints(Retention(last_n, every), lines, [head, ref_at(99)])
    assert kept <= set(refs)
    assert head in kept
    assert set(refs[-last_n:]) <= kept
    assert all(set(lines[ref]) <= kept or ref not in {*refs[-last_n:], head} for ref in kept)


def test_a_step_saved_again_counts_once(store: CheckpointStore) -> None:
    for step in (1, 2, 3, 3, 3):
        write_checkpoint(store, step, tensors_at(step))
    removed = apply_retention(store, Retention(2))
    assert [ref.training_step for ref in removed.checkpoints] == [1]


def test_killed_anywhere_the_kept_ones_are_whole(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one purged, the old one half gone: lost trainings in public (Lightning #1150)."""
    fill(store, 5)
    kept = {ref: read_checkpoint(store, ref) for ref in store.list_checkpoints()[-2:]}
    copy = store.folder.with_name("copy")
    shutil.copytree(store.folder, copy)
    done, unlink = False, os.unlink
    for allowed in range(40):
        left = iter(range(allowed))

        def counted(path: Any, *, dir_fd: int | None = None, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            unlink(path, dir_fd=dir_fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", counted)
            try:
                apply_retention(store, Retention(2))
                done = True
            except KeyboardInterrupt:
                pass
        assert store.head() == max(kept)
        assert {ref: read_checkpoint(store, ref) for ref in kept} == kept
        if done:
            break
        apply_retention(store, Retention(2))
        collect_garbage(store, grace_s=-1)
        assert store.list_checkpoints() == list(kept)
        named = {one for ref in kept for one in store.read_manifest(ref).objects()}
        assert set(store.objects.list_objects()) == named
        shutil.rmtree(store.folder)
        shutil.copytree(copy, store.folder)
    assert done


def test_nothing_goes_while_anything_cannot_be_read(store: CheckpointStore) -> None:
    refs = fill(store, 5)
    (store.set_folder(refs[1]) / "manifest.json").write_bytes(b"{}")
    before = sorted(store.folder.rglob("*"))
    for remove in (lambda: apply_retention(store, Retention(2)), lambda: collect_garbage(store)):
        with pytest.raises(CheckpointError, match="do not have the hash"):
            remove()
    (store.set_folder(refs[1]) / "manifest.sha256").write_bytes(b"")
    with pytest.raises(CheckpointError, match="no line of sha256sum"):
        apply_retention(store, Retention(2))
    assert sorted(store.folder.rglob("*")) == before


def test_nothing_goes_while_the_head_is_not_in_place(store: CheckpointStore) -> None:
    refs = fill(store, 5)
    stored = next(iter(store.read_manifest(refs[4]).objects()))
    store.objects.object_path(stored.digest).unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        apply_retention(store, Retention(2))
    assert store.list_checkpoints() == refs


def test_garbage_is_what_no_checkpoint_names(store: CheckpointStore) -> None:
    (ref,) = fill(store, 1)
    store.objects.put_object([b"of a save that was killed"])
    (store.objects.folder / ".half.tmp").write_bytes(b"x")
    (store.folder / "sets" / "000000000009-half").mkdir()
    assert collect_garbage(store).objects == 0
    removed = collect_garbage(store, grace_s=-1)
    assert (removed.objects, removed.bytes) == (1, 25)
    assert read_checkpoint(store, ref) == tensors_at(0)
    assert len(list((store.folder / "sets").iterdir())) == 1
    assert not list(store.objects.folder.glob(".*"))


def test_an_empty_store_has_nothing_to_take_away(store: CheckpointStore) -> None:
    assert apply_retention(store, Retention(2)).checkpoints == ()
    assert collect_garbage(store).objects == 0


@pytest.mark.parametrize("retention", [Retention(1), Retention(0), Retention(2, every=0)])
def test_fewer_than_two_are_never_kept(store: CheckpointStore, retention: Retention) -> None:
    with pytest.raises(ValueError, match="or more"):
        apply_retention(store, retention)
