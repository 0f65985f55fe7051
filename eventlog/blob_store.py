"""`BlobStore`: bytes kept under their SHA-256, for contents too large to stand inside an event.

A blob never changes: its name is the digest of its bytes. Putting the same bytes again is free and
harmless; getting always re-hashes, so a damaged blob is an error and never an answer. Used by the
recorder (before the event that refers to it is appended), by replay and by `check`.
"""

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from eventlog.content import BlobRef
from eventlog.durable_file import hint_of, sync_folder, write_whole
from eventlog.errors import BlobCorruptError, LogUnavailableError
from eventlog.untrusted_file import UnfitFile, open_untrusted, read_at_most

_BLOB_NAME: Final = re.compile(r"[0-9a-f]{64}")
_FAN_OUT_NAME: Final = re.compile(r"[0-9a-f]{2}")

# Something stands at the path, but nothing that gives its bytes: no matter of the whole store.
_DAMAGE_ERRNOS: Final = frozenset(
    (errno.EIO, errno.EISDIR, errno.EUCLEAN, errno.ELOOP, errno.ENXIO, errno.ENODEV)
)


class BlobStore(ABC):
    """Keeps immutable bytes by digest. Thread-safe; pickling carries only the place."""

    @abstractmethod
    def put_blob(self, data: bytes) -> BlobRef:
        """Keep `data`; return its reference only when it is durable.

        Idempotent: the same bytes are kept once; a damaged copy is replaced. Raises
        `LogUnavailableError` naming the place (full, read-only), and then nothing was kept.
        """

    @abstractmethod
    def get_blob(self, ref: BlobRef) -> bytes:
        """The exact bytes, re-hashed. Raises `BlobCorruptError` where missing or damaged."""

    @abstractmethod
    def has_blob(self, digest: bytes) -> bool:
        """Whether a blob is kept under `digest` (32 bytes). Does not re-hash."""

    @abstractmethod
    def list_blobs(self) -> Iterator[BlobRef]:
        """Every blob kept, in order of digest, with the size found. Does not re-hash."""


class MemoryBlobStore(BlobStore):
    """Blobs in a dict: for tests and for logs that need not outlive the process."""

    def __init__(self) -> None:
        self._blobs: dict[bytes, bytes] = {}

    def put_blob(self, data: bytes) -> BlobRef:
        """Keep `data`; durable as long as this object."""
        data = bytes(data)
        ref = BlobRef(sha256(data).digest(), len(data))
        self._blobs[ref.digest] = data
        return ref

    def get_blob(self, ref: BlobRef) -> bytes:
        """The exact bytes, re-hashed. Raises `BlobCorruptError` where missing or damaged."""
        data = self._blobs.get(ref.digest)
        if data is None:
            raise _missing(ref, "this memory store")
        return _checked(data, ref, "this memory store")

    def has_blob(self, digest: bytes) -> bool:
        """Whether a blob is kept under `digest`."""
        return digest in self._blobs

    def list_blobs(self) -> Iterator[BlobRef]:
        """Every blob kept, in order of digest."""
        for digest, data in sorted(self._blobs.items()):
            yield BlobRef(digest, len(data))


class LocalBlobStore(BlobStore):
    """Blobs as files `<folder>/ab/<sha256 in hex>`: tmp, fsync, rename, fsync of the folder."""

    def __init__(self, folder: str | os.PathLike[str], missing_hint: str = "") -> None:
        """`folder` is made when the first blob is put; opening touches no file.

        `missing_hint`: what else may be done where a blob is missing.
        """
        self._folder = Path(folder).absolute()
        self._missing_hint = missing_hint
        # Fan-out folders this object has synced into their parent; at most 256.
        self._synced: set[str] = set()

    @property
    def folder(self) -> Path:
        """Where the blobs lie."""
        return self._folder

    def __reduce__(self) -> tuple[type["LocalBlobStore"], tuple[str, str]]:
        return (type(self), (str(self._folder), self._missing_hint))

    def put_blob(self, data: bytes) -> BlobRef:
        """Keep `data`; return its reference when it and its folder entry are synced."""
        ref = BlobRef(sha256(data).digest(), len(data))
        path = self._path(ref.digest)
        try:
            self._make_folder(path.parent)
            if not _holds(path, ref):
                write_whole(path, data)
            # Also for a blob found there: who made it may not have come to its sync yet.
            sync_folder(path.parent)
        except OSError as error:
            raise _unavailable(path, error) from error
        return ref

    def get_blob(self, ref: BlobRef) -> bytes:
        """The exact bytes, re-hashed. Raises `BlobCorruptError` where missing or damaged."""
        path = self._path(ref.digest)
        try:
            data = _read(path, ref)
        except UnfitFile as error:
            raise _damaged(ref, str(path), str(error)) from None
        except (FileNotFoundError, NotADirectoryError):
            raise _missing(ref, str(path), self._missing_hint) from None
        except OSError as error:
            if error.errno in _DAMAGE_ERRNOS:
                raise BlobCorruptError(
                    f"blob {ref.digest.hex()} cannot be read from {path}: {error.strerror}",
                    hint="restore the file from a copy; `steplog check` lists what refers to it",
                ) from error
            raise _unavailable(path, error) from error
        return _checked(data, ref, str(path))

    def has_blob(self, digest: bytes) -> bool:
        """Whether a file is there under `digest`."""
        return self._path(digest).is_file()

    def list_blobs(self) -> Iterator[BlobRef]:
        """Every blob file, in order of digest; other files (half-written ones too) are left out."""
        try:
            fans = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable(self._folder, error) from error
        for fan in fans:
            if _FAN_OUT_NAME.fullmatch(fan):
                yield from _blobs_of_fan(self._folder / fan)

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._folder / name[:2] / name

    def _make_folder(self, fan: Path) -> None:
        if fan.name in self._synced and fan.is_dir():
            return
        missing = [fan]
        while not missing[-1].parent.is_dir():
            missing.append(missing[-1].parent)
        fan.mkdir(parents=True, exist_ok=True)
        for made in reversed(missing):
            sync_folder(made.parent)
        self._synced.add(fan.name)


def _blobs_of_fan(fan: Path) -> Iterator[BlobRef]:
    try:
        found = sorted(
            (entry.name, entry.stat().st_size)
            for entry in os.scandir(fan)
            if _BLOB_NAME.fullmatch(entry.name) and entry.name.startswith(fan.name)
        )
    except OSError as error:
        raise _unavailable(fan, error) from error
    for name, size in found:
        yield BlobRef(bytes.fromhex(name), size)


def _holds(path: Path, ref: BlobRef) -> bool:
    """Whether the file is there with the right bytes; a damaged one is to be written anew."""
    try:
        return sha256(_read(path, ref)).digest() == ref.digest
    except (OSError, UnfitFile):
        return False


def _read(path: Path, ref: BlobRef) -> bytes:
    """What the file holds, read only where it has the blob's size."""
    with open_untrusted(path, follow_links=True) as (file, size):
        if size != ref.size:
            raise UnfitFile(f"{size} bytes found, {ref.size} expected")
        return read_at_most(file, size + 1)


def _checked(data: bytes, ref: BlobRef, place: str) -> bytes:
    if len(data) != ref.size or sha256(data).digest() != ref.digest:
        found = f"{len(data)} bytes found, {ref.size} expected"
        raise _damaged(ref, place, f"{found}, and they do not have its SHA-256")
    return data


def _damaged(ref: BlobRef, place: str, what: str) -> BlobCorruptError:
    return BlobCorruptError(
        f"blob {ref.digest.hex()} in {place} is damaged: {what}",
        hint="restore the file from a copy; putting the same bytes again also mends it",
    )


def _missing(ref: BlobRef, place: str, hint: str = "") -> BlobCorruptError:
    return BlobCorruptError(
        f"blob {ref.digest.hex()} ({ref.size} bytes) is missing: {place}",
        hint="restore the file from a copy; `steplog check` lists what refers to it"
        + (f"; {hint}" if hint else ""),
    )


def _unavailable(path: Path, error: OSError) -> LogUnavailableError:
    return LogUnavailableError(
        f"blob file {path} cannot be used: {error.strerror or error}", hint=hint_of(error)
    )
