"""A folder that is a link to a disk which is not mounted: never taken for an empty one.

It was: the pins in it protected nothing, and `gc` took what the manifests in it need.
"""

import os
from pathlib import Path

import pytest

from eventlog.errors import CheckpointError
from snapshots.checkpoint_retention import Retention, apply_retention, collect_garbage
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import is_folder
from snapshots.checkpoints.inventory import Status, list_track
from snapshots.checkpoints.manifest import CheckpointRef
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint

LINKED = "is a link that leads nowhere"


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", "b")


@pytest.fixture
def refs(store: CheckpointStore) -> list[CheckpointRef]:
    other = CheckpointStore(store.folder, "a")
    other.pin("kept", write_checkpoint(other, 1, {"w": b"another track"}))
    refs = [write_checkpoint(store, step, {"w": bytes([step]) * 99}) for step in range(4)]
    store.pin("best", refs[0])
    return refs


def link_away(path: Path, to: Path) -> None:
    path.rename(path.with_name(f"away-{path.name}"))
    path.symlink_to(to)


def mount(path: Path) -> None:
    path.unlink()
    path.with_name(f"away-{path.name}").rename(path)


def files_of(store: CheckpointStore) -> set[Path]:
    return {path for path in store.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize(
    "what", ["tracks", "tracks/a", "tracks/a/sets", "tracks/b/pins", "tracks/b/sets", "a manifest"]
)
def test_nothing_goes_while_a_link_leads_nowhere(
    store: CheckpointStore, refs: list[CheckpointRef], what: str, loop: bool, tmp_path: Path
) -> None:
    path = store.set_folder(refs[3]) if what == "a manifest" else store.folder / what
    link_away(path, path if loop else tmp_path / "not mounted" / "x")
    before = files_of(store)
    if what != "tracks/b/pins":
        with pytest.raises(CheckpointError, match=LINKED) as caught:
            collect_garbage(CheckpointStore(store.folder), grace_s=-1)
        assert str(path) in caught.value.message
        assert "mount" in caught.value.hint
    with pytest.raises(CheckpointError, match=LINKED):
        apply_retention(store, Retention(2))
    assert files_of(store) == before
    mount(path)
    assert read_checkpoint(store, store.pins()["best"]) == {"w": bytes(99)}
    assert collect_garbage(store, grace_s=-1).objects == 0


def test_a_folder_of_objects_that_leads_nowhere_is_told_with_the_tensor(
    store: CheckpointStore, refs: list[CheckpointRef], tmp_path: Path
) -> None:
    link_away(store.objects.folder, tmp_path / "not mounted")
    for act in (
        lambda: read_checkpoint(store, refs[0]),
        lambda: store.move_head(refs[0]),
        lambda: apply_retention(store, Retention(2)),
    ):
        with pytest.raises(CheckpointError, match=rf"of tensor 'w' cannot be read: .* {LINKED}"):
            act()
    for look in (
        lambda: collect_garbage(store, grace_s=-1),
        lambda: write_checkpoint(store, 9, {"w": b"new"}),
    ):
        with pytest.raises(CheckpointError, match=LINKED):
            look()


def test_a_save_says_what_to_mount(
    store: CheckpointStore, refs: list[CheckpointRef], tmp_path: Path
) -> None:
    link_away(store.track_folder / "sets", tmp_path / "not mounted")
    for act in (lambda: write_checkpoint(store, 9, {"w": b"new"}), store.list_checkpoints):
        with pytest.raises(CheckpointError, match=LINKED) as caught:
            act()
        assert "mount" in caught.value.hint
    assert not (tmp_path / "not mounted").exists()
    assert store.head() == refs[3]


@pytest.mark.parametrize("what", ["HEAD", "pins/best"])
def test_a_pointer_that_leads_nowhere_is_told(
    store: CheckpointStore, refs: list[CheckpointRef], what: str, tmp_path: Path
) -> None:
    link_away(store.track_folder / what, tmp_path / "not mounted")
    with pytest.raises(CheckpointError, match=LINKED):
        apply_retention(store, Retention(2))
    assert store.list_checkpoints() == refs


def test_a_pin_behind_such_a_link_is_not_called_taken_away(
    store: CheckpointStore, refs: list[CheckpointRef], tmp_path: Path
) -> None:
    pins = store.track_folder / "pins"
    link_away(pins, tmp_path / "not mounted")
    with pytest.raises(CheckpointError, match=LINKED):
        store.unpin("best")
    mount(pins)
    assert store.pins() == {"best": refs[0]}
    store.unpin("none")


def test_one_checkpoint_behind_such_a_link_hides_no_other(
    store: CheckpointStore, refs: list[CheckpointRef], tmp_path: Path
) -> None:
    link_away(store.set_folder(refs[1]), tmp_path / "not mounted")
    listed = list(list_track(store, lambda _damage: None))
    assert [one.status for one in listed].count(Status.DAMAGED) == 1
    problems = [one.problem for one in listed if one.problem is not None]
    assert LINKED in problems[0].message


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    os.symlink(tmp_path / "disk", tmp_path / "linked")
    linked = CheckpointStore(tmp_path / "linked")
    for look in (linked.tracks, linked.is_there, lambda: is_folder(linked.folder)):
        with pytest.raises(CheckpointError, match=LINKED):
            look()
    (tmp_path / "disk").mkdir()
    assert linked.tracks() == []
    ref = write_checkpoint(linked, 1, {"w": b"x"})
    assert read_checkpoint(linked, ref) == {"w": b"x"}
