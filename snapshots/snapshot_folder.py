"""Reading folders and files of snapshots without trust: no links, no pipes, bounded sizes.

What is not there is nothing; what cannot be read is a `SnapshotError` naming the path, raised for
one file and handed to a `Report` when listing. Used by the local snapshot store only.
"""

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from eventlog.errors import SnapshotError
from eventlog.untrusted_file import UnfitFile, open_untrusted, read_at_most, read_whole

Report: TypeAlias = Callable[[SnapshotError], None]


def folders_in(folder: Path, names: re.Pattern[str], report: Report) -> list[Path]:
    """The real folders of these names in `folder`, in order; all else there is reported."""
    found = []
    for entry in _entries_in(folder, report):
        path = folder / entry.name
        if names.fullmatch(entry.name) is not None and entry.is_dir(follow_symlinks=False):
            found.append(path)
        else:
            report(damaged(path, "it is not a folder of snapshots"))
    return found


def files_in(folder: Path, report: Report) -> list[str]:
    """The names of the plain files in `folder`, in order; all else is reported."""
    try:
        refuse_links(folder)
    except SnapshotError as error:
        report(error)
        return []
    found = []
    for entry in _entries_in(folder, report):
        if entry.is_file(follow_symlinks=False):
            found.append(entry.name)
        else:
            report(damaged(folder / entry.name, "it is not a file"))
    return found


def size_of(path: Path) -> int | None:
    """The size of a file in bytes, None where it is not there any more."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def read_file(path: Path, *, bytes_max: int) -> bytes:
    """All bytes of a plain file of at most `bytes_max`. Raises `SnapshotError`."""
    return _read(path, bytes_max, whole=True)


def read_front(path: Path, *, front_bytes: int) -> bytes:
    """The first bytes of a plain file, all of them if it is shorter. Raises `SnapshotError`."""
    return _read(path, front_bytes, whole=False)


def refuse_links(folder: Path) -> None:
    """Raise `SnapshotError` where a session's folder, or the one above it, is not a folder.

    Both may be missing. A link there would lead out of the store.
    """
    for path in (folder.parent, folder):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unusable(path, error.strerror or str(error), error) from error
        if not stat.S_ISDIR(mode):
            raise damaged(path, "it stands where a folder of snapshots belongs")


def is_denied(error: SnapshotError) -> bool:
    """Whether it was only the permission to look that was missing: then nothing is known bad."""
    return isinstance(error.__cause__, PermissionError)


def damaged(path: Path, what: str) -> SnapshotError:
    """The error for a path that holds no snapshot one can use."""
    return SnapshotError(
        f"snapshot {path}: {what}",
        hint="nothing is lost while the log is whole: remove it, and take the snapshot again",
    )


def _unusable(path: Path, what: str, error: OSError) -> SnapshotError:
    made = damaged(path, what)
    made.__cause__ = error
    if is_denied(made):
        made.hint = "mend its owner and mode; until then it is done without"
    return made


def _entries_in(folder: Path, report: Report) -> "list[os.DirEntry[str]]":
    """What lies in `folder`, in order of name; nothing where the folder is not there."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        report(_unusable(folder, f"it cannot be listed: {error.strerror or error}", error))
        return []


def _read(path: Path, bytes_max: int, *, whole: bool) -> bytes:
    refuse_links(path.parent)
    try:
        if whole:
            return read_whole(path, bytes_max=bytes_max, follow_links=False)
        with open_untrusted(path, follow_links=False) as (file, _size):
            return read_at_most(file, bytes_max)
    except UnfitFile as error:
        raise damaged(path, str(error)) from None
    except OSError as error:
        reason = "it is missing" if error.errno == errno.ENOENT else error.strerror or str(error)
        raise _unusable(path, reason, error) from error
