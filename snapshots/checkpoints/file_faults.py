"""What the files of a checkpoint folder may do to whoever reads or writes them, and how it is told.

Anyone may have changed them, or may have forbidden them. All of it leaves as `CheckpointError` that
names the path and the next step; only what is missing is `CheckpointIncompleteError`. Used wherever
such a folder, or one that is imported or exported, is touched.

A link that leads nowhere is not taken for an empty folder: most likely a disk is not mounted, and
what lies there is needed.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventlog.durable_file import hint_of
from eventlog.errors import CheckpointError, CheckpointIncompleteError, ConfigError
from eventlog.untrusted_file import UnfitFile, read_whole

OTHERS: Final = (
    '`steplog checkpoint list` has others: `run.restore("<id>")` goes on from a set, '
    '`ShardReader(folder, checkpoint="<id>")` reads any'
)
"""What to do where a checkpoint is damaged or gone."""

GONE_MEANWHILE: Final = (
    "something took it away meanwhile, as `steplog checkpoint gc` does whose `--grace` is shorter "
    "than a save takes: try again"
)
"""What to do where a file is gone that was there a moment ago."""


@contextmanager
def os_errors_told(path: Path) -> Iterator[None]:
    """Turn an `OSError` about `path` into the `CheckpointError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error


def is_there(path: Path, *, follow_links: bool = False) -> bool:
    """Whether anything has this name, be it a link to nothing. Raises `CheckpointError`.

    `follow_links`: whether what a link leads to is there. What may not be looked at, or lies in a
    folder that is a link to nothing, is not taken for absent: what it needs would be taken away.
    """
    try:
        os.stat(path) if follow_links else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        refuse_broken_link(path.parent)
        return False
    except OSError as error:
        raise unusable(path, error) from error
    return True


def is_folder(path: Path) -> bool:
    """Whether a folder, or a link to one, has this name. Raises `CheckpointError`."""
    with os_errors_told(path):
        if path.is_dir():
            return True
    refuse_broken_link(path)
    return False


def require_no_file(folder: Path) -> None:
    """Raise `ConfigError` where `folder`, or what it is to lie in, is there and is no folder."""
    for path in (folder, *folder.parents):
        if is_there(path, follow_links=True):
            if not is_folder(path):
                raise ConfigError(
                    f"{path} is not a folder", hint="name a folder, or one that is not there yet"
                )
            return


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where it is missing. Raises `CheckpointError`."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        refuse_broken_link(folder)
        return []
    except OSError as error:
        raise unusable(folder, error) from error


def read_file(path: Path, bytes_max: int) -> bytes:
    """All bytes of a plain file. Raises `CheckpointIncompleteError` where it is missing.

    `CheckpointError` where it is no file, larger, or cannot be read.
    """
    try:
        return read_whole(path, bytes_max=bytes_max)
    except (FileNotFoundError, NotADirectoryError):
        refuse_broken_link(path)
        raise CheckpointIncompleteError(
            f"{path} is missing", hint=f"the checkpoint was removed; {OTHERS}"
        ) from None
    except UnfitFile as error:
        raise damaged(path, str(error)) from None
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: Path, error: OSError) -> CheckpointError:
    """The error for a path that the operating system refuses."""
    broken = _broken_link(path)
    if broken is not None:
        return broken
    hint = GONE_MEANWHILE if isinstance(error, FileNotFoundError) else hint_of(error)
    return CheckpointError(f"{path} cannot be used: {error.strerror or error}", hint=hint)


def damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file that is not what was written there."""
    return CheckpointError(
        f"{path} is damaged: {what}",
        hint=f"{OTHERS}; `steplog checkpoint head` mends a damaged HEAD, and `pin --move` a pin",
    )


def refuse_broken_link(path: Path) -> None:
    """Raise `CheckpointError` where `path`, or a folder it lies in, is a link to nothing."""
    broken = _broken_link(path)
    if broken is not None:
        raise broken


def _broken_link(path: Path) -> CheckpointError | None:
    for one in (path, *path.parents):
        try:
            os.stat(one)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                return None
        else:
            return None
        try:
            target = os.readlink(one)
        except OSError:
            continue  # It is no link, or is not there.
        return CheckpointError(
            f"{one} is a link that leads nowhere: to {target}",
            hint="mount the disk that it leads to; only where that is gone for good, remove the "
            "link",
        )
    return None
