"""The local blob store on a real folder: damage, leftovers, full and read-only places."""

import errno
import os
import pickle
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.blob_store import LocalBlobStore
from eventlog.content import BlobRef
from eventlog.errors import BlobCorruptError, LogUnavailableError


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobStore:
    return LocalBlobStore(tmp_path / "blobs")


def _file(store: LocalBlobStore, ref: BlobRef) -> Path:
    return store.folder / ref.digest.hex()[:2] / ref.digest.hex()


def test_a_blob_lies_where_the_format_says(store: LocalBlobStore) -> None:
    ref = store.put_blob(b"body")
    assert _file(store, ref).read_bytes() == b"body"
    assert [path.name for path in _file(store, ref).parent.iterdir()] == [ref.digest.hex()]


def test_opening_a_store_makes_no_folder(tmp_path: Path) -> None:
    assert list(LocalBlobStore(tmp_path / "none").list_blobs()) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "grown", "empty", "gone", "folder"])
def test_damage_is_found_and_named(store: LocalBlobStore, damage: str) -> None:
    ref = store.put_blob(bytes(range(200)))
    path = _file(store, ref)
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flip":
        data[100] ^= 4
    elif damage == "cut":
        del data[-1:]
    elif damage == "grown":
        data += b"\x00"
    elif damage == "empty":
        data.clear()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(data)
    with pytest.raises(BlobCorruptError, match=ref.digest.hex()):
        store.get_blob(ref)


def test_putting_again_mends_a_damaged_blob(store: LocalBlobStore) -> None:
    ref = store.put_blob(b"right bytes")
    _file(store, ref).write_bytes(b"wrong bytes")
    assert store.put_blob(b"right bytes") == ref
    assert store.get_blob(ref) == b"right bytes"


def test_half_written_files_are_never_blobs(store: LocalBlobStore) -> None:
    ref = store.put_blob(b"whole")
    fan = _file(store, ref).parent
    (fan / f".{ref.digest.hex()}.0011223344556677.tmp").write_bytes(b"who")
    (store.folder / "note.txt").write_text("not a blob")
    (fan / ("ff" * 32)).write_bytes(b"in the wrong fan-out folder")
    expected = {ref.digest}
    if fan.name == "ff":
        expected.add(b"\xff" * 32)
    assert {found.digest for found in store.list_blobs()} == expected


def test_pickling_carries_only_the_folder(store: LocalBlobStore) -> None:
    ref = store.put_blob(b"body")
    twin = pickle.loads(pickle.dumps(store))
    assert twin.folder == store.folder
    assert twin.get_blob(ref) == b"body"


@pytest.mark.skipif(os.geteuid() == 0, reason="root passes every permission check")
def test_a_read_only_folder_is_named(store: LocalBlobStore) -> None:
    store.put_blob(b"first")
    folders = [store.folder, *store.folder.iterdir()]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(LogUnavailableError, match="permission") as caught:
            store.put_blob(b"second")
        assert str(store.folder) in caught.value.message
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file")
    with pytest.raises(LogUnavailableError, match="blobs"):
        LocalBlobStore(tmp_path / "blobs").put_blob(b"body")


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """A limit on file size for this process: a write beyond it fails, also for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 64 * 1024
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_in_the_middle_keeps_nothing(
    store: LocalBlobStore, file_size_limit: int
) -> None:
    with pytest.raises(LogUnavailableError, match="blob file"):
        store.put_blob(b"x" * (file_size_limit + 1))
    assert list(store.list_blobs()) == []
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []
    ref = store.put_blob(b"small enough")
    assert store.get_blob(ref) == b"small enough"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_every_failing_write_is_our_error_naming_the_place(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def failing_write(_descriptor: int, _data: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("eventlog.blob_store.os.write", failing_write)
        with pytest.raises(LogUnavailableError, match=os.strerror(code)) as caught:
            store.put_blob(b"body")
    assert str(store.folder) in caught.value.message
    assert caught.value.retryable
    assert list(store.list_blobs()) == []
