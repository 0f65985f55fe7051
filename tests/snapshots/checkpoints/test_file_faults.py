"""Files of a checkpoint folder that may not be read: told as what they are, never as damaged.

Called damaged, they were to be restored from copies; some left as a bare `PermissionError`, past
whoever passes over a checkpoint that cannot be used.
"""

import errno
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.durable_file import hint_of
from eventlog.errors import CheckpointError, CheckpointIncompleteError
from replay.checkpoint_examination import examine, targets_in
from snapshots.checkpoint_retention import Retention, apply_retention, collect_garbage
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints import part_writer
from snapshots.checkpoints.check import CheckpointChecker
from snapshots.checkpoints.inventory import checkpoints_in_place, list_track
from snapshots.checkpoints.manifest import CheckpointRef, StoredObject
from snapshots.interchange.safetensors_import import import_safetensors
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint
from tests.support.forbidden_paths import forbid
from tests.support.safetensors_files import write_file

WEIGHTS = {"w": random.Random(5).randbytes(200_000)}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def ref(store: CheckpointStore) -> CheckpointRef:
    return write_checkpoint(store, 1, WEIGHTS)


def object_of(store: CheckpointStore, ref: CheckpointRef) -> tuple[StoredObject, Path]:
    (stored,) = store.read_manifest(ref).objects()
    return stored, store.objects.object_path(stored.digest)


@pytest.mark.parametrize("whole_folder", [False, True])
def test_an_object_that_may_not_be_read_is_not_called_damaged(
    store: CheckpointStore, ref: CheckpointRef, whole_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, path = object_of(store, ref)
    forbid(monkeypatch, path.parent if whole_folder else path)
    looks: list[Callable[[], object]] = [lambda: read_checkpoint(store, ref)]
    if whole_folder:
        looks.append(lambda: store.move_head(ref))
    for look in looks:
        with pytest.raises(CheckpointError, match="of tensor 'w' cannot be read") as caught:
            look()
        assert "Permission denied" in caught.value.message
        assert str(path) in caught.value.message
        assert "damaged" not in caught.value.message
        assert "permission" in caught.value.hint
        assert "copy" not in caught.value.hint
        assert not isinstance(caught.value, CheckpointIncompleteError)
        assert (caught.value.tensor, caught.value.object_digest) == ("w", stored.digest)


def test_a_check_tells_of_every_checkpoint_though_one_may_not_be_read(
    store: CheckpointStore, ref: CheckpointRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_checkpoint(store, 2, {"w": random.Random(6).randbytes(200_000)})
    forbid(monkeypatch, object_of(store, ref)[1].parent)
    damage: list[CheckpointError] = []
    targets, unread = targets_in([store], damage.append)
    assert not damage
    assert not unread
    found = [examine(one, CheckpointChecker(lambda _bytes: None), None) for one in targets]
    assert [len(one.problems) for one in found] == [1, 0]
    assert list(checkpoints_in_place(store)) == [other]


def test_a_save_writes_anew_what_may_not_be_read(
    store: CheckpointStore, ref: CheckpointRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "READ_ONE_IN", 1)
    _stored, path = object_of(store, ref)
    first = path.stat().st_ino
    with monkeypatch.context() as patched:
        forbid(patched, path)
        second = write_checkpoint(store, 2, WEIGHTS)
    assert path.stat().st_ino != first
    assert read_checkpoint(store, second) == WEIGHTS


def test_a_save_that_cannot_use_the_folder_of_an_object_says_so(
    store: CheckpointStore, ref: CheckpointRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, object_of(store, ref)[1].parent)
    with pytest.raises(CheckpointError, match="cannot be used: Permission denied"):
        write_checkpoint(store, 2, WEIGHTS)
    assert store.head() == ref


def test_pins_that_cannot_be_listed_are_told(
    store: CheckpointStore, ref: CheckpointRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pin("best", ref)
    forbid(monkeypatch, store.folder / "pins")
    damage: list[CheckpointError] = []
    assert [one.ref for one in list_track(store, damage.append)] == [ref]
    assert [one.message for one in damage] == [
        f"{store.folder / 'pins'} cannot be used: Permission denied"
    ]
    with pytest.raises(CheckpointError, match="pins cannot be used"):
        store.pins()


@pytest.mark.parametrize("what", ["pins", "objects", "an object's folder", "sets"])
def test_nothing_goes_while_a_folder_may_not_be_read(
    store: CheckpointStore, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [write_checkpoint(store, step, {"w": bytes([step])}) for step in range(4)]
    store.pin("best", refs[0])
    loose = store.objects.put_object([b"loose"])
    path = store.objects.object_path(loose.digest)
    with monkeypatch.context() as patched:
        forbid(patched, path.parent if what == "an object's folder" else store.folder / what)
        if what != "an object's folder":
            with pytest.raises(CheckpointError, match="Permission denied"):
                apply_retention(store, Retention(2))
        if what != "pins":
            with pytest.raises(CheckpointError, match="Permission denied"):
                collect_garbage(store, grace_s=-1)
    assert store.list_checkpoints() == refs
    assert path.exists()


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_is_imported_and_may_not_be_looked_at_is_not_called_missing(
    store: CheckpointStore, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "closed"
    (folder / "model").mkdir(parents=True)
    write_file(folder / "model" / "model.safetensors", {"w": ("uint8", (1,), b"x")}, {})
    source = folder / "model" if what == "folder" else folder / "model" / "model.safetensors"
    forbid(monkeypatch, folder)
    with pytest.raises(CheckpointError, match="cannot be used: Permission denied"):
        import_safetensors(store, source, step=1)


def test_too_many_open_files_are_no_fault_of_the_folder(
    store: CheckpointStore, ref: CheckpointRef
) -> None:
    """The hint was to mend the folder, where it is the process that may open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(CheckpointError, match="Too many open files") as error:
            store.read_manifest(ref)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "`ulimit -n`" in error.value.hint
    assert "too many files open" in hint_of(OSError(errno.ENFILE, "of the whole system"))
