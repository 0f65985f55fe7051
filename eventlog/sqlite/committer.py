"""`Committer`: runs batches of requests, each batch as one transaction, and says what came of each.

Used by one thread, the writer's. Nothing comes out before COMMIT has returned. What a failed or
overdue COMMIT leaves unknown is remembered here, by session, until it is reconciled.
"""

import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eventlog.errors import AppendUncertainError, LogUnavailableError, SteplogError
from eventlog.keeping.fork_gate import gate
from eventlog.keeping.requests import BatchLimits, Failed, Outcomes, Request
from eventlog.log import Receipt
from eventlog.sqlite.connection import open_writer
from eventlog.sqlite.errors import as_ours, as_unavailable, surely_not_committed
from eventlog.sqlite.lock import LogLock
from eventlog.sqlite.schema import PAGE_BYTES
from eventlog.sqlite.store import SqliteStore, Written

CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
"""After about so many bytes the write-ahead log is copied into the file and begun anew."""
BATCH_REQUESTS_MAX: Final = 4_096
"""Requests in one commit: bounds how long other processes wait."""
_PAGES_PER_COMMIT: Final = 4

_logger = logging.getLogger("steplog.log")


class Committer:
    """Owns the writing connection and the lock file of one log in this process."""

    def __init__(self, path: Path) -> None:
        self.limits = BatchLimits(BATCH_REQUESTS_MAX, sys.maxsize)
        self.place = str(path)
        self.medium = "the disk"
        self.waits_for_lock = False
        self._path = path
        self._lock = LogLock(path)
        self._db: sqlite3.Connection | None = None
        self._store: SqliteStore | None = None
        self._identity: tuple[int, int] | None = None
        self._since_checkpoint_bytes = 0
        self._uncertain: dict[str, Written | None] = {}
        gate.add(self)

    def serve(
        self, take: Callable[[], Sequence[Request]], _give: Callable[[Outcomes], None], /
    ) -> Outcomes:
        """Run what `take` gives as one transaction; what each request came to.

        `take` is called when no other writer can come between; it hands over what waits then, each
        request begun. Then call `settle`, and `tidy`.
        """
        try:
            self._acquire()
        except OSError as error:
            return _all(take(), Failed(as_unavailable(error, self._path)))
        try:
            with gate.use():
                return self._serve_locked(take)
        finally:
            self._lock.release()

    def settle(self, outcomes: Outcomes, *, in_time: bool) -> None:
        """Block sessions whose outcome was told to be unknown; unblock those reconciled in time."""
        written = {} if self._store is None else self._store.written
        for request, result in outcomes:
            for session_id in request.session_ids:
                if in_time:
                    if request.reconciles and not isinstance(result, Failed):
                        self._uncertain.pop(session_id, None)
                elif request.reconciles or isinstance(result, Failed) or session_id not in written:
                    self._uncertain.setdefault(session_id, None)
                else:
                    self._uncertain[session_id] = written[session_id]

    def tidy(self) -> None:
        """Begin the write-ahead log anew where it has become long. Does not raise."""
        if self._since_checkpoint_bytes >= CHECKPOINT_BYTES:
            self._checkpoint()

    def reconcile(self, store: SqliteStore, session_id: str) -> Receipt | None:
        """Whether the session's uncertain append is in the log; to be run as a request.

        The transaction writes something: its commit overwrites, or comes after, what the failed one
        may have left, so that the answer stays true.
        """
        store.must_write()
        wished = self._uncertain.get(session_id)
        kept = store.find_session(session_id)
        if wished is None or kept is None:
            return None
        line = wished.kept.line
        stored = store.event_at(kept.number, line.attempt, line.next_step - 1)
        if stored is None or stored.digest != line.head:
            return None
        return Receipt(
            session_id,
            wished.first_step,
            stored.step,
            stored.attempt,
            stored.digest,
            stored.offset,
        )

    def close(self) -> None:
        """Copy the write-ahead log into the file, let go of it and of the lock file."""
        # A checkpoint only under the lock, here too: see `sqlite_lock`. Who is not alone leaves it
        # to the others.
        alone = self._db is not None and self._lock.try_acquire()
        with gate.use():
            if alone:
                self._copy_wal("TRUNCATE")
            self._disconnect()
        self._lock.close()

    def let_go(self) -> None:
        """Close the connection, before a fork; the next request opens another."""
        self._disconnect()

    def left_behind(self) -> Sequence[object]:
        """In a forked child: let go of the lock file; the connection, if it is still there."""
        self._lock.close()
        return () if self._db is None else (self._db,)

    def _acquire(self) -> None:
        if not self._lock.try_acquire():
            self.waits_for_lock = True
            try:
                self._lock.acquire()
            finally:
                self.waits_for_lock = False

    def _serve_locked(self, take: Callable[[], Sequence[Request]]) -> Outcomes:
        try:
            store = self._opened()
            store.begin()
        except (sqlite3.Error, OSError, SteplogError) as error:
            self._disconnect()
            return _all(take(), Failed(self._ours(error)))
        batch = list(take())
        answers: Outcomes = []
        while True:
            done, spoiler = self._run(store, batch)
            if spoiler is None:
                return [*answers, *self._commit(store, done)]
            # The transaction is spoilt, not the others' work: it is done again without this one.
            spoilt = batch.pop(len(done))
            answers.append((spoilt, Failed(self._ours(spoiler))))
            try:
                store.roll_back()
                store.begin()
            except (sqlite3.Error, SteplogError) as again:
                self._disconnect()
                return [*answers, *_all(batch, Failed(self._ours(again)))]

    def _run(
        self, store: SqliteStore, batch: Sequence[Request]
    ) -> tuple[Outcomes, BaseException | None]:
        """Run requests in order; where one spoils the transaction, those before it and its error.

        Our own errors are answers: they are raised before anything of the request is stored.
        """
        done: Outcomes = []
        for request in batch:
            try:
                self._require_certain(request)
                result = request.run(store)
            except SteplogError as error:
                result = Failed(error)
            except BaseException as error:  # noqa: BLE001 - answered; a writer must not die
                return done, error
            done.append((request, result))
        return done, None

    def _commit(self, store: SqliteStore, done: Outcomes) -> Outcomes:
        requests = [request for request, _ in done]
        try:
            store.write_rows()
            self._require_same_file()
        except (sqlite3.Error, OSError, SteplogError) as error:
            self._disconnect()
            return _all(requests, Failed(self._ours(error)))
        try:
            store.commit()
        except sqlite3.Error as error:
            self._disconnect()
            if surely_not_committed(error):
                return _all(requests, Failed(as_ours(error, self._path)))
            self._uncertain.update(store.written)
            return [(request, Failed(self._unknown(request, error))) for request in requests]
        size = sum(request.size_bytes for request in requests)
        self._since_checkpoint_bytes += size + PAGE_BYTES * _PAGES_PER_COMMIT
        return done

    def _unknown(self, request: Request, error: sqlite3.Error) -> SteplogError:
        session_id = next((each for each in request.session_ids if each in self._uncertain), None)
        if session_id is None:
            return as_ours(error, self._path)
        return AppendUncertainError(
            f"the commit to {self._path} failed ({error}): whether the events are there is unknown",
            hint="call reconcile for the session before anything else is appended to it",
            session_id=session_id,
        )

    def _require_certain(self, request: Request) -> None:
        if request.reconciles or not self._uncertain:
            return
        for session_id in request.session_ids:
            if session_id in self._uncertain:
                raise AppendUncertainError(
                    "an earlier append to the session has an unknown outcome",
                    hint="call reconcile for the session first",
                    session_id=session_id,
                )

    def _opened(self) -> SqliteStore:
        if self._db is None or self._store is None:
            self._require_same_file()
            self._db = open_writer(self._path)
            if not self._lock.is_marked():
                self._lock.mark()
            self._store = SqliteStore(self._db)
            self._require_same_file()
        return self._store

    def _require_same_file(self) -> None:
        """The file must still lie where it was opened, or the events would go to a ghost."""
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
                f"the log {self._path} was removed or replaced while it was in use",
                hint="put the file back, or open the workspace again",
            )

    def _disconnect(self) -> None:
        """Close the connection; whatever transaction it has is rolled back by that."""
        db, self._db, self._store = self._db, None, None
        if db is not None:
            try:
                db.close()
            except sqlite3.Error as error:
                _logger.warning("closing %s: %s", self._path, error)

    def _checkpoint(self) -> None:
        """Under the lock, so that no other writer adds to the log and it can be begun anew."""
        self._since_checkpoint_bytes = 0
        try:
            self._lock.acquire()
        except OSError as error:
            _logger.warning("no checkpoint: %s", as_unavailable(error, self._path))
            return
        try:
            with gate.use():
                if self._db is not None:
                    self._copy_wal("PASSIVE")
        finally:
            self._lock.release()

    def _copy_wal(self, mode: str) -> None:
        # Nothing is lost if this fails: the events stay in the write-ahead log.
        assert self._db is not None
        try:
            self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            _logger.warning("no checkpoint: %s", as_ours(error, self._path))

    def _ours(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error):
            return as_ours(error, self._path)
        return as_unavailable(error, self._path) if isinstance(error, OSError) else error


def _all(requests: Sequence[Request], result: Failed) -> Outcomes:
    return [(request, result) for request in requests]
