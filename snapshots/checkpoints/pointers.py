"""The small files of a track of checkpoints: written whole, read as what anyone may have changed.

HEAD and pins name a folder in sets/ and its manifest's hash; manifest.sha256 in each of these names
the hash, as `sha256sum -c` reads it. What is refused leaves as `CheckpointError`.
"""

import os
import re
from pathlib import Path
from typing import Final

from eventlog.durable_file import sync_folder, write_whole
from eventlog.errors import CheckpointError, CheckpointIncompleteError
from eventlog.untrusted_file import UnfitFile, read_whole
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.object_folder import OTHERS, unusable, writing_to

SET_NAME: Final = re.compile(r"([0-9]{12})-([a-z0-9][a-z0-9_-]{0,63})")
"""The name of a checkpoint's folder in sets/: its step and its id."""

_POINTER: Final = re.compile(rf"{SET_NAME.pattern} ([0-9a-f]{{64}})\n")
_SUM: Final = re.compile(r"([0-9a-f]{64})  manifest\.json\n")
_POINTER_BYTES_MAX: Final = 256


def write_pointer(path: Path, ref: CheckpointRef) -> None:
    """Let `path` name this checkpoint; durable when this returns. Raises `CheckpointError`."""
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{ref.training_step:012}-{ref.id} {ref.digest}\n".encode())
        sync_folder(path.parent)


def read_pointer(path: Path) -> CheckpointRef | None:
    """The checkpoint that `path` names; None where it is missing. Raises `CheckpointError`."""
    if not is_there(path):
        return None
    found = _POINTER.fullmatch(read_file(path, _POINTER_BYTES_MAX).decode("ascii", "replace"))
    if found is None:
        raise damaged(path, "it names no checkpoint")
    return CheckpointRef(int(found[1]), found[2], found[3])


def write_sum(folder: Path, digest: str) -> None:
    """Write a checkpoint's manifest.sha256. Raises `OSError`."""
    write_whole(folder / "manifest.sha256", f"{digest}  manifest.json\n".encode())


def read_ref(folder: Path) -> CheckpointRef:
    """The checkpoint of a folder in sets/, by its name and its manifest.sha256.

    Raises `CheckpointError`.
    """
    path = folder / "manifest.sha256"
    found = _SUM.fullmatch(read_file(path, _POINTER_BYTES_MAX).decode("ascii", "replace"))
    if found is None:
        raise damaged(path, "it is no line of sha256sum")
    step, _, id_ = folder.name.partition("-")
    return CheckpointRef(int(step), id_, found[1])


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


def is_there(path: Path) -> bool:
    """Whether anything has this name, be it a link to nothing. Raises `CheckpointError`.

    What may not be looked at is not taken for absent: what it needs would be taken away.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unusable(path, error) from error
    return True


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where it is missing. Raises `CheckpointError`."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unusable(folder, error) from error


def damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file that is not what was written there."""
    return CheckpointError(
        f"{path} is damaged: {what}",
        hint=f"{OTHERS}; `steplog checkpoint head` mends a damaged HEAD",
    )
