"""What every blob store must do. A store plugs in by an entry in `STORES`."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest

from eventlog.blob_store import BlobStore, LocalBlobStore, MemoryBlobStore
from eventlog.content import BlobRef
from eventlog.errors import BlobCorruptError

STORES: dict[str, Callable[[Path], BlobStore]] = {
    "memory": lambda _folder: MemoryBlobStore(),
    "local": lambda folder: LocalBlobStore(folder / "blobs"),
}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return STORES[request.param](tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"text", bytes(range(256)) * 4096, b"x" * 5_000_000], ids=len
)
def test_what_was_put_comes_back_byte_for_byte(store: BlobStore, data: bytes) -> None:
    ref = store.put_blob(data)
    assert ref == BlobRef(sha256(data).digest(), len(data))
    assert store.get_blob(ref) == data
    assert store.has_blob(ref.digest)


def test_putting_twice_keeps_one(store: BlobStore) -> None:
    assert store.put_blob(b"same") == store.put_blob(b"same")
    assert list(store.list_blobs()) == [BlobRef(sha256(b"same").digest(), 4)]


def test_blobs_are_listed_in_order_of_digest(store: BlobStore) -> None:
    assert list(store.list_blobs()) == []
    refs = {store.put_blob(str(number).encode()) for number in range(200)}
    assert list(store.list_blobs()) == sorted(refs)


def test_an_unknown_blob_is_named(store: BlobStore) -> None:
    ref = BlobRef(sha256(b"never put").digest(), 9)
    assert not store.has_blob(ref.digest)
    with pytest.raises(BlobCorruptError, match=ref.digest.hex()):
        store.get_blob(ref)


def test_a_reference_with_another_size_is_refused(store: BlobStore) -> None:
    ref = store.put_blob(b"twelve bytes")
    with pytest.raises(BlobCorruptError, match=ref.digest.hex()):
        store.get_blob(BlobRef(ref.digest, 11))


def test_a_put_buffer_is_not_aliased(store: BlobStore) -> None:
    buffer = bytearray(b"before")
    ref = store.put_blob(bytes(buffer))
    buffer[:] = b"after!"
    assert store.get_blob(ref) == b"before"


def test_threads_may_put_the_same_blobs_at_once(store: BlobStore) -> None:
    bodies = [str(number).encode() * 100 for number in range(30)]
    threads = [Thread(target=lambda: [store.put_blob(body) for body in bodies]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.get_blob(ref) for ref in store.list_blobs()] == sorted(
        bodies, key=lambda body: sha256(body).digest()
    )
