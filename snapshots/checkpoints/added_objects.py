"""`AddedObjects`: the objects that one save has added to a folder, should they have to go again.

What was there before is not among them: another save may have written it, and be about to name it.
Used by the part writer, and by retention, which takes them away where the save has failed.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from snapshots.checkpoints.manifest import StoredObject


class _File(NamedTuple):
    """Which file it is: another save that writes the same bytes puts another one in its place."""

    device: int
    number: int
    changed_ns: int


class AddedObjects:
    """Objects by what they are, and the files that were made for them. Thread-safe."""

    def __init__(self) -> None:
        self._files: dict[StoredObject, _File] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[StoredObject]:
        return iter(list(self._files))

    def note(self, stored: StoredObject, descriptor: int, path: Path) -> None:
        """Note the object whose written file, open as `descriptor`, is to be at `path` next."""
        with self._lock:
            if self.is_in_place(stored, path) or not os.path.lexists(path):
                self._files[stored] = _file_of(os.fstat(descriptor))
            else:  # somebody else's by now
                self._files.pop(stored, None)

    def is_in_place(self, stored: StoredObject, path: Path) -> bool:
        """Whether the file at `path` is still the one that was made for it."""
        try:
            return _file_of(os.lstat(path)) == self._files.get(stored)
        except OSError:
            return False


def _file_of(status: os.stat_result) -> _File:
    return _File(status.st_dev, status.st_ino, status.st_mtime_ns)
