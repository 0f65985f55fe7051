"""Folders that somebody else's save has finished: hashed when they join a set, compared before use.

The files stay where they are; the set's manifest holds their sizes and hashes.
"""

import os
from hashlib import file_digest
from pathlib import Path

from eventlog.errors import CheckpointError
from snapshots.checkpoints.set_entry import FILES_MAX, AdoptedFile, AdoptedFolder


def hash_folder(folder: str | os.PathLike[str]) -> AdoptedFolder:
    """Every file below `folder`, by its path. Raises `CheckpointError` where one cannot be read.

    Links and special files are refused: what they lead to is not in the folder.
    """
    root = Path(folder).absolute()
    try:
        paths = sorted(_files_below(root))
        if not paths:
            raise _unfit(root, "it holds no file")
        return AdoptedFolder(str(root), tuple(_hashed(root, path) for path in paths))
    except OSError as error:
        raise _unfit(root, f"{type(error).__name__}: {error}") from error


def require_unchanged(adopted: AdoptedFolder) -> None:
    """Raise `CheckpointError` naming a file of the folder that is not what was adopted."""
    found = hash_folder(adopted.folder)
    if found.files != adopted.files:
        changed = sorted({one.path for one in set(found.files) ^ set(adopted.files)})
        raise CheckpointError(
            f"the adopted folder {adopted.folder} has changed: {', '.join(changed[:4])}",
            hint="put the files back as they were, or restore another set",
        )


def _files_below(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, files in os.walk(root, onerror=_raise):
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise _unfit(root, f"{path} is a link or no file")
        found += [Path(folder) / name for name in files]
        if len(found) > FILES_MAX:
            raise _unfit(root, f"it holds more than {FILES_MAX} files")
    return found


def _hashed(root: Path, path: Path) -> AdoptedFile:
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    return AdoptedFile(path.relative_to(root).as_posix(), size, digest)


def _raise(error: OSError) -> None:
    raise error


def _unfit(root: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"the folder {root} cannot be adopted: {what}",
        hint="adopt a folder whose save has ended",
    )
