"""`ObjectFolder`: immutable bytes under their SHA-256, shared by all checkpoints of a folder.

Reading always re-hashes. Files lie as in any blob store of steplog (`ab/<sha256>`), so what moves
and lists blobs serves these too. Used by the checkpoint store, and through it by whoever writes and
reads parts.
"""

import os
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from eventlog.blob_store import LocalBlobStore
from eventlog.content import BlobRef
from eventlog.durable_file import start_writing, sync_file, sync_folder
from eventlog.errors import (
    BlobCorruptError,
    CheckpointError,
    CheckpointIncompleteError,
    LogUnavailableError,
    SteplogError,
)
from snapshots.checkpoints.added_objects import AddedObjects
from snapshots.checkpoints.file_faults import (
    OTHERS,
    is_there,
    names_in,
    os_errors_told,
    refuse_broken_link,
    unusable,
)
from snapshots.checkpoints.manifest import StoredObject
from snapshots.compression import ReadableBuffer

_FAN_OUT_CHARACTERS: Final = 2
_WRITE_BYTES: Final = 1 << 19  # pieces are gathered to so many before they are written
_PIECES_MAX: Final = 512  # of one call to the system; it takes 1,024


class WrittenObject(NamedTuple):
    """A file that was written to `path` and is not synced; its open `descriptor` is the owner's.

    `added`: where it is noted once it becomes an object that was not there.
    """

    stored: StoredObject
    path: Path
    descriptor: int
    added: AddedObjects | None = None


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
        """Keep the bytes of all `pieces` as one object; return where when it is durable.

        Idempotent: the same bytes are kept once, a damaged copy is replaced. Raises
        `CheckpointError` naming the place where it cannot be written; then nothing was kept.
        """
        written = self.write_object(pieces)
        self.keep_objects([written])
        return written.stored

    def write_object(self, pieces: Iterable[ReadableBuffer]) -> WrittenObject:
        """Write the bytes of all `pieces` to a file that `keep_objects` makes an object.

        Each piece is hashed and written as it comes, so an object is never whole in memory. Raises
        as `put_object`, and then leaves nothing behind.
        """
        with os_errors_told(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            return _write_unfinished(self.folder / f".{secrets.token_hex(8)}.tmp", pieces)

    def keep_objects(self, written: Iterable[WrittenObject]) -> None:
        """Sync these files, then give them their names; return when all are durable.

        The entry of a new folder `ab` is synced when a checkpoint that names the object is
        committed. Raises as `put_object`: those that have no name by then are removed.
        """
        left = deque(written)
        made: set[Path] = set()
        try:
            with os_errors_told(self.folder):
                for one in left:
                    sync_file(one.descriptor)
                while left:
                    path = self.object_path(left[0].stored.digest)
                    path.parent.mkdir(exist_ok=True)
                    if left[0].added is not None:
                        left[0].added.note(left[0].stored, left[0].descriptor, path)
                    os.replace(left[0].path, path)
                    os.close(left.popleft().descriptor)
                    made.add(path.parent)
                for folder in made:
                    sync_folder(folder)
        finally:
            for one in left:
                os.close(one.descriptor)
                with suppress(OSError):
                    os.unlink(one.path)

    def get_object(self, stored: StoredObject, tensor: str | None = None) -> bytes:
        """An object's bytes, re-hashed; `tensor` is named in the error.

        Raises `CheckpointIncompleteError` where it is missing, `CheckpointError` where it is
        damaged or cannot be read.
        """
        try:
            return self._objects.get_blob(BlobRef(bytes.fromhex(stored.digest), stored.size))
        except BlobCorruptError as error:
            self._refuse(stored, tensor, error.message, error)
        except LogUnavailableError as error:
            raise _unreadable(stored, tensor, error) from error

    def object_path(self, digest: str) -> Path:
        """Where the object of this SHA-256 lies, or would."""
        return self.folder / digest[:_FAN_OUT_CHARACTERS] / digest

    def verify_in_place(self, stored: StoredObject, tensor: str) -> None:
        """Return where the object is there with its size; does not re-hash. Raises as reading."""
        path = self.object_path(stored.digest)
        try:
            size = os.lstat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            size = None
        except OSError as error:
            raise _unreadable(stored, tensor, unusable(path, error)) from error
        if size != stored.size:
            self._refuse(stored, tensor, "it has another size")

    def list_objects(self) -> Iterator[StoredObject]:
        """Every object, in order of digest. Does not re-hash.

        Raises `CheckpointError` where a folder of them cannot be listed.
        """
        for name in names_in(self.folder):
            if len(name) == _FAN_OUT_CHARACTERS:
                refuse_broken_link(self.folder / name)
        try:
            for ref in self._objects.list_blobs():
                yield StoredObject(ref.digest.hex(), ref.size)
        except LogUnavailableError as error:
            raise CheckpointError(error.message, hint=error.hint) from error

    def _refuse(
        self,
        stored: StoredObject,
        tensor: str | None,
        what: str,
        cause: BlobCorruptError | None = None,
    ) -> NoReturn:
        """Raise that the object is missing or else, in the words of `what`, damaged."""
        path = self.object_path(stored.digest)
        try:
            found = is_there(path, follow_links=True)
        except CheckpointError as error:
            raise _unreadable(stored, tensor, error) from cause
        if not found:
            raise CheckpointIncompleteError(
                f"{_named(stored, tensor)} is missing: {path}",
                hint=f"restore the file from a copy, or load another checkpoint; {OTHERS}",
                tensor=tensor,
                object_digest=stored.digest,
            ) from cause
        raise CheckpointError(
            f"{_named(stored, tensor)} is damaged: {what}",
            hint=f"restore the file from a copy, or load another checkpoint; {OTHERS}",
            tensor=tensor,
            object_digest=stored.digest,
        ) from cause


def _unreadable(stored: StoredObject, tensor: str | None, error: SteplogError) -> CheckpointError:
    """The error for an object that the operating system refuses; nothing is known of its bytes."""
    return CheckpointError(
        f"{_named(stored, tensor)} cannot be read: {error.message}",
        hint=error.hint,
        tensor=tensor,
        object_digest=stored.digest,
    )


def _named(stored: StoredObject, tensor: str | None) -> str:
    return f"object {stored.digest}" + ("" if tensor is None else f" of tensor {tensor!r}")


def _write_unfinished(path: Path, pieces: Iterable[ReadableBuffer]) -> WrittenObject:
    """These bytes at `path`, a name that nobody else uses; not synced."""
    digest, size = sha256(), 0
    gathered: list[ReadableBuffer] = []
    waiting = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for piece in pieces:
            digest.update(piece)
            gathered.append(piece)
            waiting += len(piece)
            if waiting >= _WRITE_BYTES or len(gathered) == _PIECES_MAX:
                _write_gathered(descriptor, gathered, waiting)
                start_writing(descriptor, size, waiting)
                size += waiting
                gathered, waiting = [], 0
        _write_gathered(descriptor, gathered, waiting)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)
        raise
    return WrittenObject(StoredObject(digest.hexdigest(), size + waiting), path, descriptor)


def _write_gathered(descriptor: int, pieces: list[ReadableBuffer], total: int) -> None:
    written = os.writev(descriptor, pieces)
    if written < total:  # as when the disk is full: the next write says why
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
