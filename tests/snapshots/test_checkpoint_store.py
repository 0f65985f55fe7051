"""The folder of checkpoints: committed whole or not at all, and never read without its hashes."""

import errno
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints import object_folder, part_writer
from snapshots.checkpoints.check import CheckpointChecker
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.object_folder import WrittenObject
from snapshots.checkpoints.object_keeper import WAITING_MAX, ObjectKeeper
from snapshots.checkpoints.part_writer import PACK_BYTES, PACKED_BYTES_MAX
from snapshots.checkpoints.parts import ancestry_of
from tests.support.checkpoint_parts import read_checkpoint, write_checkpoint

CHANCE = random.Random(3)
TENSORS = {
    "noise": CHANCE.randbytes(200_000),
    "zeros": bytes(300_000),
    "small": b"some bytes",
    "tied": b"some bytes",
    "empty": b"",
}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def stored_bytes(store: CheckpointStore) -> int:
    return sum(one.size for one in store.objects.list_objects())


def every_file(store: CheckpointStore) -> list[Path]:
    return sorted(path for path in store.folder.rglob("*") if path.is_file())


def problems_of(store: CheckpointStore, ref: CheckpointRef) -> list[CheckpointError]:
    return list(CheckpointChecker(lambda _bytes: None).check(store, ref).problems)


def test_what_was_committed_is_read(store: CheckpointStore) -> None:
    ref = write_checkpoint(store, 7, TENSORS, values={"lr": b"\xc0"})
    assert store.head() == ref
    assert store.list_checkpoints() == [ref]
    assert read_checkpoint(store, ref) == TENSORS
    assert store.read_manifest(ref).values["lr"].data == b"\xc0"
    assert problems_of(store, ref) == []


def test_the_folder_is_checked_by_any_tool(store: CheckpointStore) -> None:
    ref = write_checkpoint(store, 7, TENSORS)
    done = subprocess.run(
        ["sha256sum", "-c", "manifest.sha256"], cwd=store.set_folder(ref), check=False
    )
    assert done.returncode == 0
    assert store.set_folder(ref).name == f"000000000007-{ref.id}"
    for one in store.objects.list_objects():
        assert store.objects.object_path(one.digest).parent.name == one.digest[:2]


def test_small_parts_share_an_object_and_equal_ones_their_place(store: CheckpointStore) -> None:
    manifest = store.read_manifest(write_checkpoint(store, 1, TENSORS))
    stored = {one.tensor: one.part for one in manifest.parts()}
    assert stored["small"].stored == stored["zeros"].stored
    assert (stored["small"].start, stored["small"].length) == (
        stored["tied"].start,
        stored["tied"].length,
    )
    assert len(list(store.objects.list_objects())) == 2


def test_a_full_pack_is_written_and_another_begun(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "PACK_BYTES", PACKED_BYTES_MAX)
    tensors = {f"t{number:03}": CHANCE.randbytes(1000) for number in range(200)}
    ref = write_checkpoint(store, 1, tensors)
    assert 3 <= len(list(store.objects.list_objects())) <= 5
    assert PACK_BYTES > PACKED_BYTES_MAX
    assert read_checkpoint(store, ref) == tensors


def test_large_tensors_are_cut_into_parts(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "PART_BYTES", 70_000)
    ref = write_checkpoint(store, 1, TENSORS)
    parts = [one.part for one in store.read_manifest(ref).parts() if one.tensor == "noise"]
    assert [part.raw_bytes for part in parts] == [70_000, 70_000, 60_000]
    assert read_checkpoint(store, ref) == TENSORS


def test_what_did_not_change_is_not_stored_again(store: CheckpointStore) -> None:
    write_checkpoint(store, 1, TENSORS)
    before = stored_bytes(store)
    changed = TENSORS | {"small": b"other bytes"}
    ref = write_checkpoint(store, 2, changed)
    assert stored_bytes(store) - before < 100
    assert read_checkpoint(store, ref) == changed


@pytest.mark.parametrize("damage", ["gone", "short", "flipped"])
def test_what_never_changes_is_written_anew_once_it_is_damaged(
    store: CheckpointStore, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen weight, damaged once, would be missing in every later checkpoint."""
    monkeypatch.setattr(part_writer, "READ_ONE_IN", 1)
    first = write_checkpoint(store, 1, TENSORS)
    for one in store.objects.list_objects():
        path = store.objects.object_path(one.digest)
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if damage == "short" else b"?" + data[1:])
    second = write_checkpoint(store, 2, TENSORS)
    assert read_checkpoint(store, first) == read_checkpoint(store, second) == TENSORS


def test_some_of_what_is_used_again_is_read_in_each_save(store: CheckpointStore) -> None:
    tensors = {f"t{number}": CHANCE.randbytes(PACKED_BYTES_MAX) for number in range(64)}
    write_checkpoint(store, 1, tensors)
    for one in store.objects.list_objects():
        path = store.objects.object_path(one.digest)
        path.write_bytes(b"?" + path.read_bytes()[1:])
    for step in range(2, 400):
        write_checkpoint(store, step, tensors)
        if not problems_of(store, store.find_checkpoint()):
            break
    assert 8 <= step < 399


def test_differences_rest_on_ancestors_and_every_version_is_read(store: CheckpointStore) -> None:
    """Each version rests on the one before; nothing but hashes leads from one to the next."""
    weights = bytearray(CHANCE.randbytes(300_000))
    frozen = CHANCE.randbytes(100_000)
    versions = []
    above = None
    for number in range(6):
        for _ in range(20):
            weights[CHANCE.randrange(len(weights))] ^= 1
        versions.append({"weights": bytes(weights), "frozen": frozen})
        above = write_checkpoint(store, number, versions[-1], ancestor=above, generation=number)
    refs = store.list_checkpoints()
    assert [read_checkpoint(store, ref) for ref in refs] == versions
    assert stored_bytes(store) < 410_000
    assert ancestry_of(store, refs[-1]) == list(reversed(refs))


def test_a_base_that_is_gone_is_named(store: CheckpointStore) -> None:
    first = write_checkpoint(store, 1, {"t": bytes(CHANCE.randbytes(100_000))})
    raw = bytearray(read_checkpoint(store, first)["t"])
    raw[5] ^= 1
    second = write_checkpoint(store, 2, {"t": bytes(raw)}, ancestor=first, generation=1)
    for path in store.set_folder(first).iterdir():
        path.unlink()
    with pytest.raises(CheckpointIncompleteError, match=f"{second.id} rests on {first.id}"):
        read_checkpoint(store, second)


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_bit_is_found(store: CheckpointStore, seed: int) -> None:
    first = write_checkpoint(store, 1, TENSORS)
    later = TENSORS | {"noise": TENSORS["noise"][:-1] + b"?"}
    write_checkpoint(store, 2, later, ancestor=first, generation=1)
    chance = random.Random(seed)
    files = [path for path in every_file(store) if path.name != ".lock"]
    for _ in range(60):
        path = chance.choice(files)
        data = path.read_bytes()
        place = chance.randrange(len(data) * 8)
        altered = bytearray(data)
        altered[place // 8] ^= 1 << place % 8
        path.write_bytes(altered)
        report: list[CheckpointError] = []
        try:
            for ref in [*store.list_checkpoints(report=report.append), store.head()]:
                assert ref is not None
                report += problems_of(store, ref)
        except CheckpointError as error:
            report.append(error)
        path.write_bytes(data)
        assert report, path
        if path.parent.parent.name == "objects":
            assert {error.object_digest for error in report} == {path.name}
            assert all(error.tensor in TENSORS for error in report)


def test_a_missing_and_a_short_object_are_named(store: CheckpointStore) -> None:
    ref = write_checkpoint(store, 1, TENSORS)
    part = next(one.part for one in store.read_manifest(ref).parts() if one.tensor == "noise")
    path = store.objects.object_path(part.stored.digest)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="of tensor 'noise' is damaged"):
        read_checkpoint(store, ref)
    with pytest.raises(CheckpointError, match="of tensor 'noise' is damaged: it has another size"):
        store.move_head(ref)
    path.unlink()
    with pytest.raises(CheckpointIncompleteError, match="of tensor 'noise' is missing") as caught:
        read_checkpoint(store, ref)
    assert caught.value.object_digest == part.stored.digest
    assert store.head() == ref


def test_a_damaged_object_is_mended_by_writing_it_again(store: CheckpointStore) -> None:
    stored = store.objects.put_object([b"abc", b"def"])
    store.objects.object_path(stored.digest).write_bytes(b"abcdeF")
    assert store.objects.put_object([b"abcdef"]) == stored
    assert store.objects.get_object(stored) == b"abcdef"


def test_there_is_nothing_to_load_and_it_says_so(store: CheckpointStore) -> None:
    """A training that began from zero in silence lost days (public trackers of verl)."""
    with pytest.raises(CheckpointIncompleteError, match="no checkpoint was committed yet"):
        store.find_checkpoint()
    ref = write_checkpoint(store, 4, {})
    assert store.find_checkpoint() == store.find_checkpoint(step=4) == ref
    assert store.find_checkpoint(checkpoint=ref.id) == ref
    with pytest.raises(CheckpointIncompleteError, match="has step 5 in"):
        store.find_checkpoint(step=5)


def test_what_is_missing_or_damaged_says_what_to_load_instead(store: CheckpointStore) -> None:
    """Its hint was to begin from nothing, or to look at a folder that the user never named."""
    ref = write_checkpoint(store, 4, {})
    with pytest.raises(CheckpointIncompleteError, match="has id 'wrong'") as caught:
        store.find_checkpoint(checkpoint="wrong")
    assert "`steplog checkpoint list`" in caught.value.hint
    unknown = CheckpointStore(store.folder, "trainings-run-9")
    with pytest.raises(CheckpointIncompleteError, match="no training of this name") as caught:
        unknown.find_checkpoint(checkpoint=ref.id)
    assert "`steplog checkpoint list`" in caught.value.hint
    manifest = store.set_folder(ref) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-1] + b" ")
    for what in ("is damaged", "is missing"):
        with pytest.raises(CheckpointError, match=what) as refused:
            store.read_manifest(ref)
        for way in ("`steplog checkpoint list`", 'run.restore("<id>")', "ShardReader(folder,"):
            assert way in refused.value.hint
        manifest.unlink(missing_ok=True)
    with pytest.raises(CheckpointIncompleteError, match="has step 4 and id 'no'"):
        store.find_checkpoint(step=4, checkpoint="no")


def test_a_step_that_was_saved_again_is_the_later_one(store: CheckpointStore) -> None:
    write_checkpoint(store, 4, {"t": b"1"})
    later = write_checkpoint(store, 4, {"t": b"2"})
    write_checkpoint(store, 3, {"t": b"3"})
    assert store.find_checkpoint(step=4) == later


def test_a_folder_without_its_manifest_is_no_checkpoint(store: CheckpointStore) -> None:
    ref = write_checkpoint(store, 4, {"t": b"1"})
    (store.folder / "sets" / "000000000009-half").mkdir()
    (store.folder / "sets" / "000000000009-half" / "manifest.sha256").write_bytes(b"")
    (store.folder / "sets" / "stray").write_bytes(b"")
    assert store.list_checkpoints() == [ref]


def test_what_a_save_began_is_taken_away_and_no_checkpoint(store: CheckpointStore) -> None:
    kept = write_checkpoint(store, 1, TENSORS)
    assert store.begin_checkpoint(2, "half")
    assert not store.begin_checkpoint(2, "half"), "it was another save's"
    (store.set_folder(kept).with_name("000000000002-half") / "manifest.sha256").touch()
    for step, id_ in [(2, "half"), (2, "half"), (3, "never"), (1, kept.id)]:
        store.abandon_checkpoint(step, id_)
    assert os.listdir(store.folder / "sets") == [f"000000000001-{kept.id}"]
    assert read_checkpoint(store, kept) == TENSORS


def test_two_writers_never_take_the_head_from_each_other_in_silence(
    store: CheckpointStore,
) -> None:
    first = write_checkpoint(store, 1, {"t": b"1"})
    late = store.read_manifest(first)._replace(id="late", training_step=2)
    second = write_checkpoint(store, 2, {"t": b"2"})
    with pytest.raises(CheckpointError, match=f"another writer committed checkpoint {second.id}"):
        store.commit_checkpoint(late, expected_head=first)
    assert store.head() == second
    assert {ref.id for ref in store.list_checkpoints()} == {first.id, second.id, "late"}


def test_pins_and_the_head_point_at_what_is_there(store: CheckpointStore) -> None:
    first = write_checkpoint(store, 1, {"t": b"1"})
    second = write_checkpoint(store, 2, {"t": b"2"})
    store.pin("best", first)
    assert store.pins() == {"best": first}
    store.move_head(first)
    assert store.head() == first
    store.pin("best", second)
    store.unpin("best")
    store.unpin("best")
    assert store.pins() == {}
    with pytest.raises(ValueError, match="a pin's name must match"):
        store.pin("../up", first)
    with pytest.raises(CheckpointIncompleteError, match="is missing"):
        store.move_head(first._replace(id="other"))
    with pytest.raises(CheckpointError, match="its bytes do not have the hash"):
        store.move_head(first._replace(digest="0" * 64))
    (store.folder / "HEAD").write_text("../../etc 0\n")
    with pytest.raises(CheckpointError, match="it names no checkpoint"):
        store.head()


def test_an_object_that_cannot_be_written_leaves_nothing(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(object_folder, "sync_file", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        store.objects.put_object([b"abc"])
    assert every_file(store) == []


@pytest.mark.parametrize("failing", [0, 3, 11])
def test_an_object_that_cannot_be_synced_is_raised_and_none_is_left_open(
    store: CheckpointStore, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syncing goes on in a thread of its own, behind those that write."""
    tensors = {f"t{number}": CHANCE.randbytes(PACKED_BYTES_MAX * 2) for number in range(12)}
    before = write_checkpoint(store, 1, {"t0": b"old"})
    calls, open_before = iter(range(100)), len(os.listdir("/dev/fd"))

    def sync_file(_descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(object_folder, "sync_file", sync_file)
        with pytest.raises(CheckpointError, match="No space left on device"):
            write_checkpoint(store, 2, tensors, threads=4)
    assert store.list_checkpoints() == [before]
    assert not list(store.objects.folder.glob(".*"))
    assert len(os.listdir("/dev/fd")) == open_before


def test_more_objects_than_may_wait_are_kept(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, batches = store.objects.keep_objects, []

    def keep_objects(written: list[WrittenObject]) -> None:
        batches.append(len(written))
        keep(written)

    monkeypatch.setattr(store.objects, "keep_objects", keep_objects)
    keeper = ObjectKeeper(store.objects)
    kept = [keeper.put_object([b"%d" % number]) for number in range(3 * WAITING_MAX)]
    keeper.finish()
    keeper.close()
    assert [store.objects.get_object(one) for one in kept] == [b"%d" % n for n in range(len(kept))]
    assert sum(batches) == len(kept)
    assert max(batches) <= WAITING_MAX


@pytest.mark.parametrize("failing", range(4))
def test_an_error_in_any_thread_is_raised(
    store: CheckpointStore, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own writer lost these (pytorch #191391): the save said it was well."""
    tensors = {f"t{number}": CHANCE.randbytes(PACKED_BYTES_MAX * 2) for number in range(12)}
    before = write_checkpoint(store, 1, {"t0": b"old"})
    write, calls = store.objects.write_object, iter(range(100))

    def write_object(pieces: Iterator[bytes]) -> WrittenObject:
        if next(calls) == failing:
            raise CheckpointError("the disk is full", hint="")
        return write(pieces)

    monkeypatch.setattr(store.objects, "write_object", write_object)
    with pytest.raises(CheckpointError, match=re.escape("the disk is full")):
        write_checkpoint(store, 2, tensors, threads=4)
    assert store.list_checkpoints() == [before]
    assert store.head() == before
