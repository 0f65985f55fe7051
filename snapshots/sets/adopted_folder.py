"""Folders that somebody else's save has finished: hashed when they join a set, compared before use.

The files stay where they are; the set's manifest holds their sizes and hashes.
"""

import os
from hashlib import file_digest
from pathlib import Path
from typing import Final

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoints.file_faults import is_there
from snapshots.checkpoints.set_entry import FILES_MAX, AdoptedFile, AdoptedFolder

_PUT_BACK: Final = "put the files back as they were, or restore another set"
_NAMED_MAX: Final = 4


def hash_folder(folder: str | os.PathLike[str]) -> AdoptedFolder:
    """Every file below `folder`, by its path. Raises `CheckpointError` where one cannot be read.

    Links and special files are refused: what they lead to is not in the folder.
    """
    root = Path(folder).absolute()
    try:
        return AdoptedFolder(str(root), _hashed_files(root))
    except _UnfitError as error:
        raise CheckpointError(
            f"the folder {root} cannot be adopted: {error}",
            hint="adopt a folder whose save has ended",
        ) from error


def require_unchanged(adopted: AdoptedFolder) -> None:
    """Raise `CheckpointError` naming a file of the folder that is not what was adopted.

    `CheckpointIncompleteError` where the folder is gone.
    """
    root = Path(adopted.folder)
    if not is_there(root, follow_links=True):
        raise CheckpointIncompleteError(
            f"the adopted folder {root} is gone: the set's weights are in it",
            hint="put it back, or restore another set",
        )
    try:
        found = _hashed_files(root)
    except _UnfitError as error:
        raise CheckpointError(
            f"the adopted folder {root} cannot be compared with what was adopted: {error}",
            hint=_PUT_BACK,
        ) from error
    if found != adopted.files:
        changed = sorted({one.path for one in set(found) ^ set(adopted.files)})
        raise CheckpointError(
            f"the adopted folder {root} has changed: {', '.join(changed[:_NAMED_MAX])}",
            hint=_PUT_BACK,
        )


class _UnfitError(Exception):
    """What in a folder cannot be hashed."""


def _hashed_files(root: Path) -> tuple[AdoptedFile, ...]:
    try:
        paths = sorted(_files_below(root))
        if not paths:
            raise _UnfitError("it holds no file")
        return tuple(_hashed(root, path) for path in paths)
    except OSError as error:
        raise _UnfitError(f"{type(error).__name__}: {error}") from error


def _files_below(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, files in os.walk(root, onerror=_raise):
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise _UnfitError(f"{path} is a link or no file")
        found += [Path(folder) / name for name in files]
        if len(found) > FILES_MAX:
            raise _UnfitError(f"it holds more than {FILES_MAX} files")
    return found


def _hashed(root: Path, path: Path) -> AdoptedFile:
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    return AdoptedFile(path.relative_to(root).as_posix(), size, digest)


def _raise(error: OSError) -> None:
    raise error
