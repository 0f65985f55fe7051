"""`MirrorFile`: the connection by which a process writes to its mirror, one transaction at a time.

Whoever writes holds the file's lock, as writers of a log do (`sqlite.lock`). What fails leaves the
file as it was, and the next transaction begins with a new connection.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from eventlog.errors import LogUnavailableError
from eventlog.keeping.fork_gate import gate
from eventlog.mirroring.ingest import TopicIngest
from eventlog.mirroring.schema import MIRROR_FORM
from eventlog.mirroring.store import MirrorStore
from eventlog.mirroring.turns import Turn, handle_closed
from eventlog.sqlite.connection import open_writer
from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.lock import LogLock

CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
"""After about so many bytes the write-ahead log is copied into the file and begun anew."""
_LOOK_EVERY_S: Final = 0.005

_logger = logging.getLogger("steplog.log")


class MirrorFile:
    """Writes to one mirror's file. Thread-safe; not to be used in a forked child."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = Turn()
        self._is_closed = False
        self._lock = LogLock(path)
        self._db: sqlite3.Connection | None = None
        self._ingest: TopicIngest | None = None
        self._identity: tuple[int, int] | None = None
        gate.add(self)

    @contextmanager
    def transaction(self, deadline: float) -> Iterator[tuple[MirrorStore, TopicIngest]]:
        """One transaction, committed unless an error leaves it; and what reads records in.

        `deadline` is for the file's lock (`time.monotonic`): `LogUnavailableError` where another
        process or thread holds it for so long, `LogError` where this handle is closed.
        """
        with self._our_turn(deadline), gate.use(), errors_of(self._path):
            ingest = self._opened()
            store = ingest.store
            try:
                store.begin()
                yield store, ingest
                store.write_rows()
                self._require_same_file()
                store.commit()
            except BaseException:
                self._disconnect()
                raise
            self._checkpoint_if_due(store)

    def close(self) -> None:
        """Let go of the file; whoever is the last one leaves it whole, without a log beside it."""
        with self._turn.taken():
            self._is_closed = True
            with suppress(OSError), gate.use():
                if self._db is not None and self._lock.try_acquire():
                    self._copy_wal("TRUNCATE")
            with gate.use():
                self._disconnect()
            self._lock.close()

    def let_go(self) -> None:
        """Close the connection, before a fork."""
        self._disconnect()

    def left_behind(self) -> Sequence[object]:
        """In a forked child: let go of the lock file; the connection, if it is still there."""
        self._lock.close()
        return () if self._db is None else (self._db,)

    @contextmanager
    def _our_turn(self, deadline: float) -> Iterator[None]:
        with self._turn.taken(deadline - time.monotonic()) as is_ours:
            if not is_ours:
                raise self._held("another thread")
            if self._is_closed:
                raise handle_closed(self._path)
            try:
                with errors_of(self._path):
                    while not self._lock.try_acquire():
                        if time.monotonic() >= deadline:
                            raise self._held("another process")
                        time.sleep(_LOOK_EVERY_S)
                yield
            finally:
                self._lock.release()

    def _held(self, by: str) -> LogUnavailableError:
        return LogUnavailableError(
            f"{by} holds the mirror {self._path} locked",
            hint="end or continue that process (`lslocks` names it), then try again",
        )

    def _opened(self) -> TopicIngest:
        if self._db is None or self._ingest is None:
            self._require_same_file()
            self._db = open_writer(self._path, MIRROR_FORM)
            self._ingest = TopicIngest(MirrorStore(self._db))
            self._require_same_file()
        return self._ingest

    def _require_same_file(self) -> None:
        """The file must still lie where it was opened, or readers would look at another one."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            identity = None
        else:
            identity = (found.st_dev, found.st_ino)
        if self._identity is None:
            self._identity = identity
        if identity is None or identity != self._identity:
            raise LogUnavailableError(
                f"the mirror {self._path} was removed or replaced while it was in use",
                hint="open the workspace again: the topic is mirrored anew",
            )

    def _disconnect(self) -> None:
        db, self._db, self._ingest = self._db, None, None
        if db is not None:
            try:
                db.close()
            except sqlite3.Error as error:
                _logger.warning("closing %s: %s", self._path, error)

    def _checkpoint_if_due(self, store: MirrorStore) -> None:
        if store.since_checkpoint_bytes >= CHECKPOINT_BYTES:
            store.since_checkpoint_bytes = 0
            self._copy_wal("PASSIVE")

    def _copy_wal(self, mode: str) -> None:
        # Nothing is lost if this fails: the rows stay in the write-ahead log.
        assert self._db is not None
        try:
            self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            _logger.warning("no checkpoint of %s: %s", self._path, error)
