"""Import of safetensors files into a checkpoint, as a folder of Hugging Face or others hold them.

Bytes go from the files into the checkpoint as they are. Needs neither torch nor the package
safetensors. Used by `steplog checkpoint import`.
"""

import json
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from eventlog.errors import CheckpointError, ConfigError
from eventlog.untrusted_file import UnfitFile, open_untrusted, read_whole
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import is_folder, is_there, names_in, os_errors_told
from snapshots.checkpoints.manifest import ITEM_BYTES
from snapshots.interchange.given_path import require_given
from snapshots.interchange.import_writer import Imported, ImportedTensor, ImportWriter
from snapshots.interchange.safetensors_file import SafetensorsHeader, read_header

INDEX_BYTES_MAX: Final = 1 << 26
"""Largest index of a folder that is read."""

# What torch's writer of sharded files says of them: they hold pieces of tensors.
_PIECES: Final = "DCP_SHARDING_INFO"
_OF_MANY: Final = re.compile(r"(.*-)([0-9]{5})(-of-)([0-9]{5})(\.safetensors)")
_HINT: Final = "give all files of one model, as they were published or exported"
_NUMBERED_MAX: Final = 1000  # shards that a file's name may promise

Source = str | os.PathLike[str]


def import_safetensors(
    store: CheckpointStore, source: Source | Sequence[Source], *, step: int, prefix: str = "model."
) -> Imported:
    """Commit the tensors of `source` as the checkpoint of training step `step`; HEAD moves to it.

    `source` is a file, several, or a folder: of a folder the files that its index
    (`*.safetensors.index.json`) names, or else all that end in `.safetensors`. Each tensor is named
    `prefix` and its name in the file; with "model." it loads as `{"model": model.state_dict()}`.

    Raises `CheckpointError` naming the file or tensor where one is missing, twice there, damaged or
    of a dtype that is not kept; then nothing is committed. `ConfigError` where `source` names what
    is not there, holds no safetensors, or is not all of the files that are there; `ValueError` for
    a step out of range.
    """
    files, index = _files_of(source)
    _refuse_gaps(files)
    with ImportWriter(store, step=step, versions={}) as writer:
        seen: dict[str, Path] = {}
        for file in files:
            _add_file(file, writer, prefix, seen, index)
        for name, named in (index or {}).items():
            if name not in seen:
                _refuse(named, f"tensor {name!r} is not in it, as the index says", name)
        return writer.commit()


def _files_of(source: Source | Sequence[Source]) -> tuple[list[Path], dict[str, Path] | None]:
    """The files, and where an index says so, which of them each tensor is in."""
    if not isinstance(source, str | os.PathLike):
        files = [Path(one) for one in source]
        for file in files:
            require_given(file)
            if is_folder(file):
                raise ConfigError(
                    f"{file} is a folder, and not all that is given",
                    hint="give files, or one folder",
                )
        return files, None
    path = Path(source)
    require_given(path)
    if not is_folder(path):
        return [path], None
    names = names_in(path)
    indexes = [name for name in names if name.endswith(".safetensors.index.json")]
    if len(indexes) > 1:
        _refuse(path, f"it has several indexes: {', '.join(indexes)}")
    if indexes:
        index = _read_index(path / indexes[0])
        return sorted(set(index.values())), index
    files = [path / name for name in names if name.endswith(".safetensors")]
    if not files:
        raise ConfigError(
            f"{path} has no file that ends in .safetensors",
            hint="name a folder of safetensors, or one that dcp.save wrote to",
        )
    return files, None


def _read_index(path: Path) -> dict[str, Path]:
    try:
        with os_errors_told(path):
            read = json.loads(read_whole(path, bytes_max=INDEX_BYTES_MAX))
    except (UnfitFile, ValueError, RecursionError) as error:
        _refuse(path, f"it is no index: {error}")
    found = read.get("weight_map") if isinstance(read, dict) else None
    if not isinstance(found, dict) or not found:
        _refuse(path, "it has no weight_map")
    for name, file in found.items():
        # Only files beside the index: it may come from anywhere.
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            _refuse(path, f"tensor {name!r} is said to be in {file!r}, no file beside it", name)
    return {name: path.parent / str(file) for name, file in found.items()}


def _refuse_gaps(files: Sequence[Path]) -> None:
    """Raise where a file's name says that there are more of them, and one is missing."""
    given = {file.absolute() for file in files}
    for file in files:
        found = _OF_MANY.fullmatch(file.name)
        count = int(found[4]) if found else 0
        for number in range(1, min(count, _NUMBERED_MAX) + 1):
            assert found is not None
            due = file.with_name(f"{found[1]}{number:05}{found[3]}{found[4]}{found[5]}")
            if due.absolute() not in given:
                if is_there(due, follow_links=True):
                    raise ConfigError(
                        f"{due} is not among the given files, and {file.name} says that there are "
                        f"{count}",
                        hint=_HINT,
                    )
                _refuse(due, f"it is missing, and {file.name} says that there are {count}")
        if not is_there(file, follow_links=True):
            _refuse(file, "it is missing")


def _add_file(
    file: Path,
    writer: ImportWriter,
    prefix: str,
    seen: dict[str, Path],
    index: Mapping[str, Path] | None,
) -> None:
    header, data = _open_file(file)
    if _PIECES in header.metadata:
        _refuse_pieces(file, header)
    for name, place in header.tensors.items():
        if name in seen:
            _refuse(file, f"tensor {name!r} is in {seen[name].name} too", name)
        if index is not None and index.get(name) != file:
            _refuse(file, f"the index does not say that tensor {name!r} is in it", name)
        seen[name] = file
        path = (prefix[:-1], name) if prefix.endswith(".") and prefix != "." else (prefix + name,)
        writer.add_tensor(prefix + name, ImportedTensor(place.dtype, place.shape, path))
        block = ((0,) * len(place.shape), place.shape)
        start = header.data_start
        raw = data[start + place.start : start + place.end]
        writer.add_chunk(prefix + name, block, raw, ITEM_BYTES[place.dtype])


def _open_file(path: Path) -> tuple[SafetensorsHeader, memoryview]:
    """The checked header, and the file's bytes, which come into memory as they are read."""
    try:
        with os_errors_told(path), open_untrusted(path, follow_links=True) as (file, size):
            header = read_header(file, size, path)
            return header, memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except UnfitFile as error:
        _refuse(path, str(error))


def _refuse_pieces(file: Path, header: SafetensorsHeader) -> None:
    """Raise where the file holds pieces of tensors: each would pass for a whole one."""
    try:
        pieces = json.loads(header.metadata[_PIECES])
        whole = all(not any(one["saved_offsets"]) for one in pieces.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        whole = False
    # The piece at the tensor's begin has no offset either; how large the whole is, nothing says.
    if not whole or _is_one_of_ranks(file):
        _refuse(file, "it holds pieces of tensors that ranks have saved")


def _is_one_of_ranks(file: Path) -> bool:
    return file.name.startswith("shard-")


def _refuse(path: Path, what: str, tensor: str | None = None) -> NoReturn:
    raise CheckpointError(
        f"{path} cannot be imported: {what}",
        hint=_HINT,
        tensor=tensor,
    )
