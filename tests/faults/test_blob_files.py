"""Damage to the files of a local blob store: the exact bytes, or an error naming the blob."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.blob_store import LocalBlobStore
from eventlog.errors import BlobCorruptError
from tests.support.scale import scaled

FAULTS = scaled(300, 2_000)


def test_a_damaged_blob_is_never_given_out(tmp_path: Path) -> None:
    rng = random.Random(21)
    store = LocalBlobStore(tmp_path / "blobs")
    blobs = {store.put_blob(rng.randbytes(size)): size for size in (0, 1, 40, 5_000, 300_000)}
    for number in range(FAULTS):
        ref, size = rng.choice(list(blobs.items()))
        path = store.folder / ref.digest.hex()[:2] / ref.digest.hex()
        whole = path.read_bytes()
        kind = ("flip", "cut", "grown", "gone", "swapped")[number % 5]
        damaged = bytearray(whole)
        if kind == "grown" or not size:
            damaged += rng.randbytes(rng.randrange(1, 9))
        elif kind == "flip":
            damaged[rng.randrange(size)] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del damaged[rng.randrange(size) :]
        elif kind == "swapped":
            damaged[:] = rng.randbytes(size - 1) + bytes([whole[-1] ^ 1])
        path.unlink()
        if kind != "gone":
            path.write_bytes(damaged)
        with pytest.raises(BlobCorruptError, match=ref.digest.hex()):
            store.get_blob(ref)
        # Putting the right bytes again mends it.
        assert store.put_blob(whole) == ref
        assert store.get_blob(ref) == whole


SPARSE_BYTES = 60 << 30


def _grown(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE_BYTES)


@pytest.mark.parametrize(
    "stand_in",
    [
        _grown,
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path),
        lambda path: path.mkdir(),
    ],
    ids=["grown_past_memory", "pipe", "link_to_dev_zero", "link_to_itself", "folder"],
)
def test_what_stands_in_a_blobs_place_is_refused_before_it_is_read(
    tmp_path: Path, stand_in: Callable[[Path], None]
) -> None:
    store = LocalBlobStore(tmp_path / "blobs")
    ref = store.put_blob(b"x" * 1000)
    path = store.folder / ref.digest.hex()[:2] / ref.digest.hex()
    path.unlink()
    stand_in(path)
    with pytest.raises(BlobCorruptError, match=ref.digest.hex()):
        store.get_blob(ref)
    if not path.is_dir():
        assert store.put_blob(b"x" * 1000) == ref
        assert store.get_blob(ref) == b"x" * 1000
