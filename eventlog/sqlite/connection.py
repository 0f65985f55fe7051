"""Opening `log.db`, or a mirror: making it, checking that it is ours and whole enough to be used.

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
from eventlog.sqlite.schema import LOG_FORM, MIRROR_MARK, PAGE_BYTES, FileForm

BUSY_TIMEOUT_S: Final = 10.0
"""How long a statement waits for another program's lock; ours take turns on the lock file."""

WRITER_CACHE_KIB: Final = 32 * 1024
READER_CACHE_KIB: Final = 4 * 1024


def create_log(path: Path, form: FileForm = LOG_FORM) -> None:
    """Make an empty file of this form at `path`, whole or not at all, unless there is one already.

    Raises sqlite3's errors, `OSError`, `LogUnavailableError`, and `EventCorruptError` where there
    was a log before: one that is gone must not pass for one that is empty.
    """
    lock = LogLock(path)
    try:
        lock.acquire()
        if path.exists():
            return
        if lock.is_marked() and not form.is_copy:
            raise EventCorruptError(
                f"the log {path} is gone: its lock file says that there was one",
                hint=f"restore it from a copy; to begin anew, remove {path.name}.lock as well",
            )
        half = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            _create_tables(half, form)
            with open(half, "rb+") as whole:
                sync_file(whole.fileno())
            if form.is_copy:
                # SQLite would take what a removed file left behind for this one's.
                _remove_beside(path)
            os.replace(half, path)
            sync_folder(path.parent)
            lock.mark()
        finally:
            _remove_beside(half)
            with suppress(FileNotFoundError):
                os.unlink(half)
    finally:
        lock.release()
        lock.close()


def open_writer(path: Path, form: FileForm = LOG_FORM) -> sqlite3.Connection:
    """The writer's connection to a file that is there. Raises as `require_ours`, and sqlite3's."""
    db = _connect(path, "mode=rw")
    try:
        _set_pragmas(db, WRITER_CACHE_KIB)
        db.execute(f"PRAGMA synchronous={form.synchronous}")
        # A no-op but on macOS, where a plain fsync leaves data in the drive's cache.
        db.execute("PRAGMA fullfsync=ON")
        # The writer checkpoints by itself, after it has answered.
        db.execute("PRAGMA wal_autocheckpoint=0")
        require_ours(db, path, form)
    except BaseException:
        db.close()
        raise
    return db


class FrozenConnection(sqlite3.Connection):
    """A connection that takes the file for unchanging: good for one question, not for the next."""


def open_reader(path: Path, form: FileForm = LOG_FORM) -> sqlite3.Connection:
    """A connection that only reads; never makes a log.

    Raises as `open_writer`. Where nothing can be written beside the file, a log in use can be read
    through the index that its writer keeps there; one not in use only on a file system that is
    itself mounted read-only. Elsewhere its owner may write at any time, unseen by such a reader.
    """
    try:
        return _open_reader(path, form, "mode=rw")
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
        return _open_reader(path, form, "mode=ro&immutable=1", FrozenConnection)


def require_ours(db: sqlite3.Connection, path: Path, form: FileForm = LOG_FORM) -> None:
    """Check that the database is a file of this form, by its marks and its exact table texts.

    Raises `IncompatibleSchemaError` (newer), `ConfigError` (another program's database, or a mirror
    where a log is wanted) and `EventCorruptError` (damaged).
    """
    what = form.what
    if path.stat().st_size == 0:
        restore = f"restore it from a copy; to begin anew, remove it and {path.name}.lock"
        raise EventCorruptError(
            f"the {what} {path} is empty: a {what} never is",
            hint=form.mend if form.is_copy else restore,
        )
    version = db.execute("PRAGMA user_version").fetchone()[0]
    found = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if not found.keys() & form.tables.keys():
        raise ConfigError(
            f"{path} is a SQLite database, but not a {what} of ours",
            hint="name another file or folder; nothing was changed",
        )
    if MIRROR_MARK in found and MIRROR_MARK not in form.tables:
        raise ConfigError(
            f"{path} is the mirror of a Kafka topic, not a log",
            hint="open the workspace by its kafka:// URL",
        )
    if found.get("log_end") == form.tables["log_end"]:
        end = read_log_end(db)
        if end.format == version and version > form.format:
            raise IncompatibleSchemaError(
                f"{path} has {what} format {version}; this build knows up to {form.format}",
                hint="open it with a newer steplog",
            )
    wrong = [name for name, text in form.tables.items() if found.get(name) != text]
    if wrong or version != form.format:
        problem = f"table text of {', '.join(sorted(wrong))}" if wrong else f"format {version}"
        raise EventCorruptError(
            f"the {what} {path} is damaged: {problem} is not what was written", hint=form.mend
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
    path: Path,
    form: FileForm,
    options: str,
    kind: type[sqlite3.Connection] = sqlite3.Connection,
) -> sqlite3.Connection:
    db = _connect(path, options, kind)
    try:
        _set_pragmas(db, READER_CACHE_KIB)
        db.execute("PRAGMA query_only=ON")
        require_ours(db, path, form)
    except BaseException:
        db.close()
        raise
    return db


def _has_wal(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def _remove_beside(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _create_tables(path: Path, form: FileForm) -> None:
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
        for text in form.tables.values():
            db.execute(text)
        db.execute(f"PRAGMA application_id={form.application_id}")
        db.execute(f"PRAGMA user_version={form.format}")
        write_log_end(db, LogEnd(form.format, 0, 0, 0))
        db.execute("COMMIT")
    finally:
        db.close()
