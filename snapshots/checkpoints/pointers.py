"""The small files of a track of checkpoints: written whole, read as what anyone may have changed.

HEAD and pins name a folder in sets/ and its manifest's hash; manifest.sha256 in each of these names
the hash, as `sha256sum -c` reads it. What is refused leaves as `CheckpointError`.
"""

import re
from pathlib import Path
from typing import Final

from eventlog.durable_file import sync_folder, write_whole
from snapshots.checkpoints.file_faults import (
    damaged,
    is_there,
    names_in,
    os_errors_told,
    read_file,
)
from snapshots.checkpoints.manifest import ID_PATTERN, CheckpointRef

SET_NAME: Final = re.compile(rf"([0-9]{{12}})-({ID_PATTERN})")
"""The name of a checkpoint's folder in sets/: its step and its id."""

_POINTER: Final = re.compile(rf"{SET_NAME.pattern} ([0-9a-f]{{64}})\n")
_SUM: Final = re.compile(r"([0-9a-f]{64})  manifest\.json\n")
_POINTER_BYTES_MAX: Final = 256


def set_name(training_step: int, id_: str) -> str:
    """The name of the folder in sets/ of a checkpoint with this step and id."""
    return f"{training_step:012}-{id_}"


def set_folders(track_folder: Path) -> list[Path]:
    """The folders in sets/ of a track that are named as a checkpoint's, by step and id.

    Raises `CheckpointError` where they cannot be listed.
    """
    sets = track_folder / "sets"
    return [sets / name for name in names_in(sets) if SET_NAME.fullmatch(name)]


def write_pointer(path: Path, ref: CheckpointRef) -> None:
    """Let `path` name this checkpoint; durable when this returns. Raises `CheckpointError`."""
    with os_errors_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{set_name(ref.training_step, ref.id)} {ref.digest}\n".encode())
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
