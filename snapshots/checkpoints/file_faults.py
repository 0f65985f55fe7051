"""What the files of a checkpoint folder may do to whoever reads or writes them, and how it is told.

Anyone may have changed them, or may have forbidden them. All of it leaves as `CheckpointError` that
names the path and the next step; only what is missing is `CheckpointIncompleteError`. Used wherever
such a folder, or one that is imported or exported, is touched.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventlog.durable_file import hint_of
from eventlog.errors import CheckpointError, CheckpointIncompleteError
from eventlog.untrusted_file import UnfitFile, read_whole

OTHERS: Final = (
    '`steplog checkpoint list` has others: `run.restore("<id>")` goes on from a set, '
    '`ShardReader(folder, checkpoint="<id>")` reads any'
)
"""What to do where a checkpoint is damaged or gone."""


@contextmanager
def os_errors_told(path: Path) -> Iterator[None]:
    """Turn an `OSError` about `path` into the `CheckpointError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error


def is_there(path: Path, *, follow_links: bool = False) -> bool:
    """Whether anything has this name, be it a link to nothing. Raises `CheckpointError`.

    `follow_links`: whether what a link leads to is there. What may not be looked at is not taken
    for absent: what it needs would be taken away.
    """
    try:
        os.stat(path) if follow_links else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unusable(path, error) from error
    return True


def is_folder(path: Path) -> bool:
    """Whether a folder, or a link to one, has this name. Raises `CheckpointError`."""
    with os_errors_told(path):
        return path.is_dir()


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where it is missing. Raises `CheckpointError`."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
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
        raise CheckpointIncompleteError(
            f"{path} is missing", hint=f"the checkpoint was removed; {OTHERS}"
        ) from None
    except UnfitFile as error:
        raise damaged(path, str(error)) from None
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: Path, error: OSError) -> CheckpointError:
    """The error for a path that the operating system refuses."""
    return CheckpointError(f"{path} cannot be used: {error.strerror or error}", hint=hint_of(error))


def damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file that is not what was written there."""
    return CheckpointError(
        f"{path} is damaged: {what}",
        hint=f"{OTHERS}; `steplog checkpoint head` mends a damaged HEAD",
    )
