"""Retention: what is kept, that it stays whole whatever happens meanwhile, and what goes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CheckpointError
from snapshots.checkpoint_retention import (
    Retention,
    apply_retention,
    collect_garbage,
    kept_checkpoints,
)
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.survey import list_unfinished
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint
from tests.support.sources import ROOT

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
    assert [ref.training_step for ref in removed.checkpoints] == [4, 6, 7, 8]
    left = store.list_checkpoints()
    assert [ref.training_step for ref in left] == [0, 1, 2, 3, 5, 9, 10]
    for ref in left:
        assert read_checkpoint(store, ref) == tensors_at(ref.training_step)
    assert removed.objects == 8
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
    st.booleans(),
    st.randoms(),
)
def test_the_plan_keeps_enough_and_no_more(
    steps: set[int], last_n: int, every: int | None, by_log: bool, chance: random.Random
) -> None:
    refs = [ref_at(step) for step in sorted(steps)]
    chains = {
        ref: [ref, *(above for above in refs[:number] if chance.random() < 0.1)]
        for number, ref in enumerate(refs)
    }
    head, pin = chance.choice(refs), chance.choice(refs)
    counted = {ref.id for ref in refs if chance.random() < 0.6} if by_log else None
    plan = partial(kept_checkpoints, Retention(last_n, every), chains, head)
    kept = plan([pin, ref_at(99)], counted)
    counting = [ref for ref in refs if counted is None or ref.id in counted]
    up_to_head = [ref for ref in counting if ref.training_step <= head.training_step]
    wanted = {head, pin, *counting[-last_n:], *up_to_head[-last_n:]}
    wanted |= {ref for ref in counting if every and ref.training_step % every == 0}
    wanted |= {ref for ref in refs if ref not in counting and ref.training_step >= head[0]}
    assert kept == {above for ref in wanted for above in chains[ref]}
    # Once the rest is gone, nothing more goes.
    left = {ref: chains[ref] for ref in kept}
    assert kept_checkpoints(Retention(last_n, every), left, head, [pin], counted) == kept
    assert {head, pin} <= plan([pin], ())


def test_after_training_went_back_the_newest_are_its_own(store: CheckpointStore) -> None:
    """The newest may be the one found damaged; what was left behind is no help then."""
    for step in (10, 20, 30, 40):
        write_checkpoint(store, step, tensors_at(step))
    store.move_head(store.find_checkpoint(step=20))
    for step in (22, 24, 26):
        write_checkpoint(store, step, tensors_at(step))
        apply_retention(store, Retention(2))
    assert [ref.training_step for ref in store.list_checkpoints()] == [24, 26, 30, 40]


def test_whoever_no_longer_has_the_track_takes_nothing_away(store: CheckpointStore) -> None:
    """A trainer that was stopped here took away the set that its successor had gone back to."""
    refs = fill(store, 4)
    assert apply_retention(store, Retention(2), still=lambda: False).checkpoints == ()
    assert store.list_checkpoints() == refs
    assert apply_retention(store, Retention(2), still=lambda: True).checkpoints == (*refs[:2],)


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
    (store.objects.folder / ".0123456789abcdef.tmp").write_bytes(b"x")
    (store.folder / "sets" / "000000000009-half").mkdir()
    assert collect_garbage(store).objects == 0
    removed = collect_garbage(store, grace_s=-1)
    assert (removed.objects, removed.bytes) == (1, 25)
    assert read_checkpoint(store, ref) == tensors_at(0)
    assert len(list((store.folder / "sets").iterdir())) == 1
    assert not list(store.objects.folder.glob(".*"))


def test_of_sets_only_those_the_log_has_committed_count(store: CheckpointStore) -> None:
    """Two killed before the log was told: the two that were told of stay, however old."""
    refs = fill(store, 6)
    store.move_head(refs[3])
    counted = {refs[0].id, refs[1].id, refs[3].id}
    removed = apply_retention(store, Retention(2), counted=counted)
    assert removed.checkpoints == (refs[0], refs[2])
    assert store.list_checkpoints() == [refs[1], *refs[3:]]
    # Nothing of what is counted goes for those that are not; and HEAD stays where none is.
    assert apply_retention(store, Retention(2), counted=()).checkpoints == (refs[1],)
    assert store.head() == refs[3]


def test_what_another_line_needs_stays(store: CheckpointStore) -> None:
    policies = CheckpointStore(store.folder, "policies-a")
    refs = [write_checkpoint(policies, step, tensors_at(step)) for step in range(3)]
    fill(store, 5)
    removed = apply_retention(store, Retention(2))
    assert [ref.training_step for ref in removed.checkpoints] == [0, 1, 2]
    assert removed.objects == 0
    assert policies.list_checkpoints() == refs
    apply_retention(policies, Retention(2))
    for one in (store, policies):
        collect_garbage(one, grace_s=-1)
    assert policies.list_checkpoints() == refs[1:]
    for one in (store, policies):
        for ref in one.list_checkpoints():
            assert read_checkpoint(one, ref) == tensors_at(ref.training_step)
    named = {
        stored
        for one in store.tracks()
        for ref in one.list_checkpoints()
        for stored in one.read_manifest(ref).objects()
    }
    assert set(store.objects.list_objects()) == named


@pytest.mark.parametrize("hurt", ["flipped", "cut", "folder", "link", "sum"])
def test_damage_in_any_line_stops_removal_in_all(store: CheckpointStore, hurt: str) -> None:
    other = CheckpointStore(store.folder, "trainings-b")
    refs = [write_checkpoint(other, step, tensors_at(step)) for step in range(4)]
    fill(store, 5)
    apply_retention(store, Retention(4))  # It knows them all by now.
    path = other.set_folder(refs[1]) / ("manifest.sha256" if hurt == "sum" else "manifest.json")
    data = path.read_bytes()
    path.unlink()
    if hurt == "folder":
        path.mkdir()
    elif hurt == "link":
        path.symlink_to("nowhere")
    elif hurt != "sum":
        path.write_bytes(data[:-9] if hurt == "cut" else data.replace(b"1", b"2", 1))
    before = sorted(store.folder.rglob("*"))
    for one in (store, other):
        with pytest.raises(CheckpointError):
            apply_retention(one, Retention(2))
        with pytest.raises(CheckpointError):
            collect_garbage(one, grace_s=-1)
    assert sorted(store.folder.rglob("*")) == before


def test_what_a_save_of_another_line_wrote_again_is_spared(store: CheckpointStore) -> None:
    fill(store, 5)
    same = tensors_at(0)["own"]
    stored = store.objects.put_object([same])
    os.utime(store.objects.object_path(stored.digest), ns=(time.time_ns() + 10**9,) * 2)
    removed = apply_retention(store, Retention(2))
    assert [ref.training_step for ref in removed.checkpoints] == [0, 1, 2]
    assert stored in store.objects.list_objects()
    assert removed.objects == 4
    assert collect_garbage(store, grace_s=-10).objects == 1


def test_garbage_is_told_before_it_is_taken(store: CheckpointStore) -> None:
    (ref,) = fill(store, 1)
    store.objects.put_object([b"loose"])
    store.begin_checkpoint(7, "half")
    CheckpointStore(store.folder, "a").begin_checkpoint(8, "half")
    write_checkpoint(CheckpointStore(store.folder, "a"), 1, {})
    unfinished = [store.folder / ".HEAD.0123456789abcdef.tmp"]
    unfinished += [store.set_folder(ref) / ".manifest.json.0123456789abcdef.tmp"]
    for path in unfinished:
        path.write_bytes(b"x")
    strangers = [store.folder / name for name in ("README", "sets/notes", "tracks/B", ".x.tmp")]
    for path in strangers:
        path.write_bytes(b"x")
    before = sorted(store.folder.rglob("*"))
    told = collect_garbage(store, grace_s=-1, dry_run=True)
    assert sorted(store.folder.rglob("*")) == before
    assert collect_garbage(store, grace_s=-1) == told
    assert {*unfinished, store.folder / "sets" / "000000000007-half"} < set(told.unfinished)
    assert (len(told.unfinished), told.objects, told.bytes) == (4, 1, 5)
    assert all(path.exists() for path in strangers)
    assert list_unfinished(store) == []


def test_a_link_goes_and_never_what_it_leads_to(store: CheckpointStore, tmp_path: Path) -> None:
    refs = fill(store, 4)
    away = tmp_path / "away"
    store.set_folder(refs[0]).rename(away)
    store.set_folder(refs[0]).symlink_to(away)
    half = store.folder / "sets" / "000000000009-half"
    half.symlink_to(tmp_path)
    assert apply_retention(store, Retention(2)).checkpoints == (refs[0], refs[1])
    assert (away / "manifest.json").exists()
    collect_garbage(store, grace_s=-1)
    assert not half.is_symlink()
    assert away.exists()


def test_killed_after_the_first_object_the_head_is_an_older_one_and_whole(
    store: CheckpointStore,
) -> None:
    """`latest` moved and the old one purged before the data was durable (KempnerForge #102)."""
    refs = fill(store, 2)
    code = (
        "import os, signal, sys\n"
        "from snapshots.checkpoint_store import CheckpointStore\n"
        "from snapshots.checkpoint_retention import Retention, apply_retention\n"
        "store = CheckpointStore(sys.argv[1])\n"
        "store.begin_checkpoint(2, 'half')\n"
        "store.objects.put_object([b'first'])\n"
        "apply_retention(store, Retention(2))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, store.folder], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.head() == refs[1]
    assert store.list_checkpoints() == refs
    assert apply_retention(store, Retention(2)).checkpoints == ()
    for ref in refs:
        assert read_checkpoint(store, ref) == tensors_at(ref.training_step)
    assert [path.name for path in list_unfinished(store)] == ["000000000002-half"]
    collect_garbage(store)
    assert len(list_unfinished(store)) == 1, "it may still be under way"


def test_an_empty_store_has_nothing_to_take_away(store: CheckpointStore) -> None:
    assert apply_retention(store, Retention(2)).checkpoints == ()
    assert collect_garbage(store).objects == 0


@pytest.mark.parametrize("retention", [Retention(1), Retention(0), Retention(2, every=0)])
def test_fewer_than_two_are_never_kept(store: CheckpointStore, retention: Retention) -> None:
    with pytest.raises(ValueError, match="or more"):
        apply_retention(store, retention)


def test_a_save_that_gc_took_something_from_says_so(store: CheckpointStore) -> None:
    """The hint was to mend the folder, or to restore from a copy what was nowhere else."""
    ref = fill(store, 1)[0]
    manifest = store.read_manifest(ref)
    _remove_all(store, ref)
    with pytest.raises(CheckpointError, match="is missing") as missing:
        store.keep_manifest(manifest._replace(id="again"))
    written = store.objects.write_object([b"begun"])
    collect_garbage(store, grace_s=-1)
    with pytest.raises(CheckpointError, match="No such file") as gone:
        store.objects.keep_objects([written])
    for caught in (missing, gone):
        assert "checkpoint gc" in caught.value.hint
        assert "--grace" in caught.value.hint
        assert "mend" not in caught.value.hint


def _remove_all(store: CheckpointStore, ref: CheckpointRef) -> None:
    """As if the manifest was not written yet when `gc` came by."""
    shutil.rmtree(store.set_folder(ref))
    (store.folder / "HEAD").unlink()
    collect_garbage(store, grace_s=-1)
