"""Syncing files and folders so that what was written survives the operating system.

Used by whoever writes tmp + fsync + rename + fsync of the folder (blobs, snapshots).
"""

import fcntl
import os
from pathlib import Path
from typing import Final

# On macOS fsync leaves data in the drive's cache; F_FULLFSYNC does not. Absent elsewhere.
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)


def sync_file(descriptor: int) -> None:
    """Return when the file's bytes and size are on stable storage. Raises `OSError`."""
    if _FULL_SYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Return when the folder's entries (new names, renames) are durable. Raises `OSError`."""
    descriptor = os.open(Path(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
