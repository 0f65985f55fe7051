"""`ObjectFolder`: immutable bytes under their SHA-256, shared by all checkpoints of a folder.

Reading always re-hashes. Files lie as in any blob store of steplog (`ab/<sha256>`), so what moves
and lists blobs serves these too. Used by the checkpoint store, and through it by whoever writes and
reads parts.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn

from eventlog.blob_store import LocalBlobStore
from eventlog.content import BlobRef
from eventlog.durable_file import hint_of, sync_file, sync_folder
from eventlog.errors import (
    BlobCorruptError,
    CheckpointError,
    CheckpointIncompleteError,
    LogUnavailableError,
)
from snapshots.checkpoint_manifest import StoredObject
from snapshots.compression import ReadableBuffer

_WRITE_BYTES: Final = 1 << 17  # smaller pieces are gathered to so many before they are written


class ObjectFolder:
    """The objects of one folder. Thread-safe; opening touches no file."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made when the first object is put."""
        self._objects = LocalBlobStore(folder)

    @property
    def folder(self) -> Path:
        """Where the objects lie."""
        return self._objects.folder

    def put_object(self, pieces: Iterable[ReadableBuffer]) -> StoredObject:
        """Keep the bytes of all `pieces` as one object; return where when they are synced.

        Each piece is hashed and written as it comes, so an object is never whole in memory. The
        entry of a new folder `ab` is synced when a checkpoint that names the object is committed.
        Idempotent: the same bytes are kept once, a damaged copy is replaced. Raises
        `CheckpointError` naming the place where it cannot be written; then nothing was kept.
        """
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            half = self.folder / f".{secrets.token_hex(8)}.tmp"
            try:
                stored = _write_half(half, pieces)
                path = self.object_path(stored.digest)
                path.parent.mkdir(exist_ok=True)
                os.replace(half, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(half)
                raise
            sync_folder(path.parent)
        return stored

    def get_object(self, stored: StoredObject, tensor: str | None = None) -> bytes:
        """An object's bytes, re-hashed; `tensor` is named in the error.

        Raises `CheckpointIncompleteError` where it is missing, `CheckpointError` where it is
        damaged or cannot be read.
        """
        try:
            return self._objects.get_blob(BlobRef(bytes.fromhex(stored.digest), stored.size))
        except (BlobCorruptError, LogUnavailableError) as error:
            self._refuse(stored, tensor, error)

    def object_path(self, digest: str) -> Path:
        """Where the object of this SHA-256 lies, or would."""
        return self.folder / digest[:2] / digest

    def verify_in_place(self, stored: StoredObject, tensor: str) -> None:
        """Return where the object is there with its size; does not re-hash. Raises as reading."""
        try:
            status = os.lstat(self.object_path(stored.digest))
        except OSError:
            self._refuse(stored, tensor, None)
        if status.st_size != stored.size:
            self._refuse(stored, tensor, None)

    def list_objects(self) -> Iterator[StoredObject]:
        """Every object, in order of digest. Does not re-hash."""
        for ref in self._objects.list_blobs():
            yield StoredObject(ref.digest.hex(), ref.size)

    def _refuse(
        self,
        stored: StoredObject,
        tensor: str | None,
        cause: BlobCorruptError | LogUnavailableError | None,
    ) -> NoReturn:
        path = self.object_path(stored.digest)
        whose = "" if tensor is None else f" of tensor {tensor!r}"
        if not path.exists():
            raise CheckpointIncompleteError(
                f"object {stored.digest}{whose} is missing: {path}",
                hint="restore the file from a copy, or load another checkpoint",
                tensor=tensor,
                object_digest=stored.digest,
            ) from cause
        what = "it has another size" if cause is None else cause.message
        raise CheckpointError(
            f"object {stored.digest}{whose} is damaged: {what}",
            hint="restore the file from a copy, or load another checkpoint",
            tensor=tensor,
            object_digest=stored.digest,
        ) from cause


def _write_half(half: Path, pieces: Iterable[ReadableBuffer]) -> StoredObject:
    """A synced file of these bytes at `half`, a name that nobody else uses."""
    digest, size = sha256(), 0
    with open(half, "xb", buffering=_WRITE_BYTES) as file:
        for piece in pieces:
            digest.update(piece)
            size += file.write(piece)
        file.flush()
        sync_file(file.fileno())
    return StoredObject(digest.hexdigest(), size)


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn an `OSError` about `path` into the `CheckpointError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: Path, error: OSError) -> CheckpointError:
    """The error for a path that the operating system refuses."""
    return CheckpointError(f"{path} cannot be used: {error.strerror or error}", hint=hint_of(error))
