"""`ObjectKeeper`: makes written objects durable in a thread of its own, all that wait at a time.

Whoever encodes and writes the next part need not wait for the disk, and a file system syncs many
files in little more than the time of one. The first error, in any thread, is raised by whatever is
called next. Used by the part writer.
"""

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final

from snapshots.checkpoints.added_objects import AddedObjects
from snapshots.checkpoints.manifest import StoredObject
from snapshots.checkpoints.object_folder import ObjectFolder, WrittenObject
from snapshots.checkpoints.workers import Workers
from snapshots.compression import ReadableBuffer

WAITING_MAX: Final = 16
"""Objects that are written and not yet synced: bounds open files, and what the system holds."""


class ObjectKeeper:
    """Keeps the objects of one save. Thread-safe."""

    def __init__(self, objects: ObjectFolder) -> None:
        self._objects = objects
        self.added = AddedObjects()
        self._workers = Workers(1, "steplog-sync")
        self._lock = threading.Lock()
        self._room = threading.Semaphore(WAITING_MAX)
        self._waiting: list[WrittenObject] = []
        self._begun: deque[Future[None]] = deque()

    def put_object(self, pieces: Iterable[ReadableBuffer]) -> StoredObject:
        """Write an object; it is durable, and under its name, when `finish` has returned.

        Waits while too many others are not synced. Raises `CheckpointError` where it cannot be
        written, or an earlier one could not be synced.
        """
        with self._lock:
            while self._begun and self._begun[0].done():
                self._begun.popleft().result()
        self._room.acquire()
        try:
            written = self._objects.write_object(pieces)
        except BaseException:
            self._room.release()
            raise
        with self._lock:
            self._waiting.append(written._replace(added=self.added))
        keeping = self._workers.submit(self._keep_waiting)
        with self._lock:
            self._begun.append(keeping)
        return written.stored

    def finish(self) -> None:
        """Return when all that was put is durable. Raises `CheckpointError` where one is not."""
        while self._begun:
            self._begun.popleft().result()

    def close(self) -> None:
        """End the thread, when it has synced what waits."""
        self._workers.close()

    def _keep_waiting(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        if batch:
            try:
                self._objects.keep_objects(batch)
            finally:
                self._room.release(len(batch))
