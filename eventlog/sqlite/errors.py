"""sqlite3's errors as ours: every error of the library leaves the keeper through here."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventlog.durable_file import hint_of
from eventlog.errors import EventCorruptError, LogUnavailableError, SteplogError

_CORRUPT_HINT: Final = "run `steplog check` to see what is lost; restore the file from a copy"

# Primary result codes, https://sqlite.org/rescode.html.
_UNAVAILABLE: Final = {
    sqlite3.SQLITE_PERM: "no permission: check the file's owner and mode",
    sqlite3.SQLITE_BUSY: "another process holds the log locked: try again, or end that process",
    sqlite3.SQLITE_LOCKED: "another connection holds the log locked: try again",
    sqlite3.SQLITE_NOMEM: "the machine is out of memory",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable",
    sqlite3.SQLITE_INTERRUPT: "the request was interrupted: try again",
    sqlite3.SQLITE_IOERR: "the disk refuses: free some space, check `ulimit -f` and the disk",
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_CANTOPEN: "check that the folder exists, that you may write to it, and that the "
    "process may open more files (`ulimit -n`)",
    sqlite3.SQLITE_PROTOCOL: "another process holds the log locked: try again",
    sqlite3.SQLITE_NOLFS: "the file system takes no file of this size",
    sqlite3.SQLITE_AUTH: "no permission: check the file's owner and mode",
}
_DAMAGED_IO: Final = (sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)

# A COMMIT that failed with these wrote no whole commit record: nothing of it can come back.
_NOT_COMMITTED: Final = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_READONLY,
)


def as_ours(error: sqlite3.Error, path: Path) -> SteplogError:
    """The error of ours for a library error met while using the log at `path`.

    Damage is `EventCorruptError`; a place that cannot be used now is `LogUnavailableError`.
    """
    code = getattr(error, "sqlite_errorcode", None)
    hint = None if code is None else _UNAVAILABLE.get(code & 0xFF)
    if hint is None or code in _DAMAGED_IO:
        # What is left (malformed, not a database, no such table, not UTF-8, not unique) can only
        # be met where the file is not as we wrote it.
        return EventCorruptError(f"the log {path} is damaged: {error}", hint=_CORRUPT_HINT)
    return LogUnavailableError(f"the log {path} cannot be used: {error}", hint=hint)


def surely_not_committed(error: sqlite3.Error) -> bool:
    """Whether a COMMIT that raised this error has certainly written nothing that stays."""
    return getattr(error, "sqlite_errorcode", None) in _NOT_COMMITTED


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn sqlite3's and the file system's errors met inside into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_ours(error, path) from error
    except OSError as error:
        raise as_unavailable(error, path) from error


def as_unavailable(error: OSError, path: Path) -> LogUnavailableError:
    """A file system error at the log as ours, naming the log."""
    if error.errno == errno.ENOENT:
        hint = "the folder does not exist: make it, or name another"
    else:
        hint = hint_of(error)
    reason = os.strerror(error.errno) if error.errno else str(error)
    return LogUnavailableError(f"the log {path} cannot be used: {reason}", hint=hint)
