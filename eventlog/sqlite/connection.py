"""Opening `log.db`: making it, checking that it is ours and whole enough to be used.

One place knows the pragmas. A connection made here never opens a transaction of its own accord.
"""

import os
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from eventlog.durable_file import sync_file, sync_folder
from eventlog.errors import (
    ConfigError,
    EventCorruptError,
    IncompatibleSchemaError,
    LogUnavailableError,
)
from eventlog.keeping.fork_gate import gate
from eventlog.sqlite.lock import LogLock
from eventlog.sqlite.log_end import LogEnd, read_log_end, write_log_end
from eventlog.sqlite.schema import APPLICATION_ID, FORMAT, PAGE_BYTES, TABLES

BUSY_TIMEOUT_S: Final = 10.0
"""How long a statement waits for another program's lock; ours take turns on the lock file."""

WRITER_CACHE_KIB: Final = 32 * 1024
READER_CACHE_KIB: Final = 4 * 1024


def create_log(path: Path) -> None:
    """Make an empty log at `path`, whole or not at all, unless there is a file already.

    Raises sqlite3's errors, `OSError`, `LogUnavailableError`, and `EventCorruptError` where there
    was a log before: one that is gone must not pass for one that is empty.
    """
    lock = LogLock(path)
    try:
        lock.acquire()
        if path.exists():
            return
        if lock.is_marked():
            raise EventCorruptError(
                f"the log {path} is gone: its lock file says that there was one",
                hint=f"restore it from a copy; to begin anew, remove {path.name}.lock as well",
            )
        half = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            _create_tables(half)
            with open(half, "rb+") as whole:
                sync_file(whole.fileno())
            os.replace(half, path)
            sync_folder(path.parent)
            lock.mark()
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(f"{half}{suffix}")
    finally:
        lock.release()
        lock.close()


def open_writer(path: Path) -> sqlite3.Connection:
    """The writer's connection to a log that is there. Raises as `require_ours`, and sqlite3's."""
    db = _connect(path, "mode=rw")
    try:
        _set_pragmas(db, WRITER_CACHE_KIB)
        db.execute("PRAGMA synchronous=FULL")
        # A no-op but on macOS, where a plain fsync leaves data in the drive's cache.
        db.execute("PRAGMA fullfsync=ON")
        # The writer checkpoints by itself, after it has answered.
        db.execute("PRAGMA wal_autocheckpoint=0")
        require_ours(db, path)
    except BaseException:
        db.close()
        raise
    return db


class FrozenConnection(sqlite3.Connection):
    """A connection that takes the file for unchanging: good for one question, not for the next."""


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads; never makes a log.

    Raises as `open_writer`. Where nothing can be written beside the file, a log in use can be read
    through the index that its writer keeps there; one not in use only on a file system that is
    itself mounted read-only. Elsewhere its owner may write at any time, unseen by such a reader.
    """
    try:
        return _open_reader(path, "mode=rw")
    except (sqlite3.OperationalError, LogUnavailableError) as error:
        folder = path.parent
        if os.access(folder, os.W_OK) or not os.access(path, os.R_OK):
            raise
        if not _is_mounted_read_only(folder):
            raise LogUnavailableError(
                f"the log {path} cannot be read safely: you may not write to its folder {folder}, "
                f"and SQLite must, beside a log that others write to ({error})",
                hint=f"give your group write permission on {folder} and its files, or read a copy",
            ) from error
        # If nobody left a write-ahead log there, the file itself is whole.
        if _has_wal(path):
            raise
        return _open_reader(path, "mode=ro&immutable=1", FrozenConnection)


def require_ours(db: sqlite3.Connection, path: Path) -> None:
    """Check that the database is a log of this format, by its marks and its exact table texts.

    Raises `IncompatibleSchemaError` (newer), `ConfigError` (another program's database) and
    `EventCorruptError` (damaged).
    """
    if path.stat().st_size == 0:
        raise EventCorruptError(
            f"the log {path} is empty: a log never is",
            hint=f"restore it from a copy; to begin anew, remove it and {path.name}.lock",
        )
    version = db.execute("PRAGMA user_version").fetchone()[0]
    found = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if not found.keys() & TABLES.keys():
        raise ConfigError(
            f"{path} is a SQLite database, but not a log of ours",
            hint="name another file or folder; nothing was changed",
        )
    if found.get("log_end") == TABLES["log_end"]:
        end = read_log_end(db)
        if end.format == version and version > FORMAT:
            raise IncompatibleSchemaError(
                f"{path} has log format {version}; this build knows up to {FORMAT}",
                hint="open it with a newer steplog",
            )
    wrong = [name for name, text in TABLES.items() if found.get(name) != text]
    if wrong or version != FORMAT:
        what = f"table text of {', '.join(sorted(wrong))}" if wrong else f"format {version}"
        raise EventCorruptError(
            f"the log {path} is damaged: {what} is not what was written",
            hint="run `steplog check`; restore the file from a copy",
        )


def _is_mounted_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _connect(
    path: Path, options: str, kind: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    if gate.carried_over:
        raise LogUnavailableError(
            f"{path} cannot be opened here: this process was forked in the middle of using a log",
            hint="start processes with spawn or forkserver, or fork before the log is used",
        )
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
    )


def _set_pragmas(db: sqlite3.Connection, cache_kib: int) -> None:
    db.execute(f"PRAGMA cache_size=-{cache_kib}")
    db.execute("PRAGMA cell_size_check=ON")
    db.execute("PRAGMA trusted_schema=OFF")


def _open_reader(
    path: Path, options: str, kind: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    db = _connect(path, options, kind)
    try:
        _set_pragmas(db, READER_CACHE_KIB)
        db.execute("PRAGMA query_only=ON")
        require_ours(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _has_wal(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def _create_tables(path: Path) -> None:
    db = _connect(path, "mode=rwc")
    try:
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
        mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise LogUnavailableError(
                f"{path.parent} cannot hold a log with a write-ahead log (journal mode {mode})",
                hint="keep log.db on a local disk that you may write to",
            )
        db.execute("BEGIN IMMEDIATE")
        for text in TABLES.values():
            db.execute(text)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={FORMAT}")
        write_log_end(db, LogEnd(FORMAT, 0, 0, 0))
        db.execute("COMMIT")
    finally:
        db.close()
