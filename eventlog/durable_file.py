"""Writing and syncing files and folders so that what was written survives the operating system.

Used by whoever writes tmp + fsync + rename + fsync of the folder (blobs, snapshots).
"""

import errno
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

# On macOS fsync leaves data in the drive's cache; F_FULLFSYNC does not. Absent elsewhere.
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)

_HINTS: Final = MappingProxyType(
    {
        errno.ENOSPC: "the disk is full: free some space",
        errno.EDQUOT: "the disk quota is used up: free some space",
        errno.EFBIG: "the file size limit is reached (`ulimit -f`)",
        errno.EROFS: "the file system is read-only: mount it writable",
        errno.EACCES: "no permission: check the folder's owner and mode",
        errno.EPERM: "no permission: check the folder's owner and mode",
        errno.EMFILE: "the process has too many files open: close some, or raise `ulimit -n`",
        errno.ENFILE: "the system has too many files open: close some, or raise its limit",
    }
)


def sync_file(descriptor: int) -> None:
    """Return when the file's bytes and size are on stable storage. Raises `OSError`."""
    if _FULL_SYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def start_writing(descriptor: int, start: int, length: int) -> None:
    """Have the system write these bytes of the file, without waiting; no promise, only a hint.

    So the disk works while the next bytes are made, and `sync_file` has less to wait for.
    """
    if hasattr(os, "posix_fadvise"):  # macOS has none
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Return when the folder's entries (new names, renames) are durable. Raises `OSError`."""
    descriptor = os.open(Path(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Put a file of these bytes at `path`, whole or not at all; replaces what was there.

    tmp + fsync + rename; the caller syncs the folder. Safe with several writers of one path.
    Raises `OSError`, and then leaves nothing half-written behind.
    """
    # The name is fresh, so writers of the same file never share a half-written one.
    half = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        os.replace(half, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(half)
        raise


def hint_of(error: OSError) -> str:
    """What to do about a file system error: free space, close files, mend the permissions."""
    return _HINTS.get(error.errno or 0, "mend the folder, then try again")
