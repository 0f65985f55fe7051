"""What a folder written by torch's `FileSystemWriter` holds: its `.metadata`, read as plain data.

torch reads that file with pickle, which runs what it says. Here it is read by `inert_pickle`, of
torch's own metadata classes only, and every field is looked at before it is believed. Needs no
torch. Used by the import of such folders.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from eventlog.untrusted_file import UnfitFile, read_whole
from snapshots.checkpoints.chunk_layout import Block, check_cover
from snapshots.checkpoints.fields import DIMENSIONS_MAX, StatePath
from snapshots.checkpoints.file_faults import os_errors_told
from snapshots.checkpoints.manifest import ITEM_BYTES
from snapshots.interchange.inert_pickle import Arguments, Global, Inert, Maker, inert, read_pickle

METADATA_BYTES_MAX: Final = 1 << 26
"""Largest `.metadata` that is read; a piece of a tensor takes about 190 bytes."""

_METADATA: Final = "torch.distributed.checkpoint.metadata"
_OLDER: Final = "torch.distributed._shard.sharded_tensor.metadata"  # before torch 2.3
_COUNT_MAX: Final = (1 << 63) - 1


class StoredItem(NamedTuple):
    """Where a tensor's piece, or a value, lies: `length` bytes from `start` of a file."""

    file: str
    start: int
    length: int


class StoredPiece(NamedTuple):
    """A piece of a tensor, and where it lies."""

    block: Block
    item: StoredItem


class FolderTensor(NamedTuple):
    """A tensor of the folder: `dtype` by torch's short name, `path` in the nested state."""

    dtype: str
    shape: tuple[int, ...]
    path: StatePath
    pieces: tuple[StoredPiece, ...]


class FolderValue(NamedTuple):
    """Anything that is no tensor."""

    path: StatePath
    item: StoredItem


class TorchFolder(NamedTuple):
    """What the folder holds, by name."""

    tensors: Mapping[str, FolderTensor]
    values: Mapping[str, FolderValue]


def sizes_of(arguments: Arguments) -> tuple[int, ...]:
    """What `torch.Size` makes of its arguments. Raises `ValueError`."""
    (sizes,) = arguments
    if not isinstance(sizes, tuple) or len(sizes) > DIMENSIONS_MAX:
        raise ValueError("a size is no tuple of at most 64")
    if any(type(one) is not int or not 0 <= one <= _COUNT_MAX for one in sizes):
        raise ValueError("a size holds what is no count")
    return sizes


DTYPES: Final[Mapping[Global, Maker | None]] = {Global("torch", one): None for one in ITEM_BYTES}
"""The dtypes that are kept: names that are data by themselves."""

NAMES: Final[Mapping[Global, Maker | None]] = {
    **DTYPES,
    Global("torch", "Size"): sizes_of,
    Global("torch.serialization", "_get_layout"): inert("layout"),
    Global(_METADATA, "Metadata"): inert("Metadata"),
    Global(_METADATA, "StorageMeta"): inert("StorageMeta"),
    Global(_METADATA, "MetadataIndex"): inert("MetadataIndex"),
    Global(_METADATA, "TensorStorageMetadata"): inert("TensorStorageMetadata"),
    Global(_METADATA, "BytesStorageMetadata"): inert("BytesStorageMetadata"),
    Global(_METADATA, "ChunkStorageMetadata"): inert("ChunkStorageMetadata"),
    Global(_METADATA, "TensorProperties"): inert("TensorProperties"),
    Global(_METADATA, "_MEM_FORMAT_ENCODING"): inert("memory format"),
    Global(_OLDER, "TensorProperties"): inert("TensorProperties"),
    Global(_OLDER, "MEM_FORMAT_ENCODING"): inert("memory format"),
    Global("torch.distributed.checkpoint.filesystem", "_StorageInfo"): inert("_StorageInfo"),
    # Where the folder stood when it was written; not looked at.
    Global("pathlib", "PosixPath"): inert("path"),
    Global("pathlib", "WindowsPath"): inert("path"),
    Global("pathlib._local", "PosixPath"): inert("path"),
    Global("pathlib._local", "WindowsPath"): inert("path"),
}
"""All that a `.metadata` may name."""


def read_torch_folder(folder: Path) -> TorchFolder:
    """What `folder` holds. Reads `.metadata` only; of the other files nothing is known yet.

    Raises `CheckpointIncompleteError` where there is no `.metadata`, `CheckpointError` where it
    cannot be read as plain data, does not describe every tensor whole, or names files outside.
    """
    path = folder / ".metadata"
    try:
        with os_errors_told(path):
            data = read_whole(path, bytes_max=METADATA_BYTES_MAX)
    except UnfitFile as error:
        _refuse(f"{path}: {error}")
    except CheckpointError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise CheckpointIncompleteError(
                f"{folder} has no file .metadata: it is no checkpoint of torch's dcp.save, or one "
                "that was not saved whole",
                hint="name the folder that dcp.save wrote to",
            ) from error
        raise
    try:
        read = read_pickle(data, NAMES)
    except CheckpointError as error:
        _refuse(f"{path}: {error.message}")
    return _folder_of(_fields(read, "Metadata"))


def _folder_of(fields: Mapping[str, object]) -> TorchFolder:
    version = fields.get("version")
    if version is not None and (type(version) is not str or not version.startswith("1.")):
        _refuse("its .metadata is of a version that is not known")
    paths = fields.get("planner_data")
    paths = paths if type(paths) is dict else {}
    places = _places_of(fields.get("storage_data"))
    described = fields.get("state_dict_metadata")
    if type(described) is not dict:
        _refuse("its .metadata does not say what it holds")
    tensors: dict[str, FolderTensor] = {}
    values: dict[str, FolderValue] = {}
    for name, one in described.items():
        if type(name) is not str:
            _refuse("its .metadata holds a name that is no text")
        path = _path(name, paths.get(name, (name,)))
        if isinstance(one, Inert) and one.kind == "BytesStorageMetadata":
            values[name] = FolderValue(path, _place(places, name, None))
        else:
            fields_of = _fields(one, "TensorStorageMetadata")
            tensors[name] = _tensor_of(name, fields_of, path, places)
    return TorchFolder(tensors, values)


_Places = dict[tuple[str, tuple[int, ...] | None], StoredItem]


def _places_of(read: object) -> _Places:
    if type(read) is not dict:
        _refuse("its .metadata does not say where anything lies")
    found: _Places = {}
    for key, one in read.items():
        index, info = _fields(key, "MetadataIndex"), _fields(one, "_StorageInfo")
        name, offset = index.get("fqn"), index.get("offset")
        if type(name) is not str or not (offset is None or isinstance(offset, tuple)):
            _refuse("its .metadata holds a place of no name")
        extensions = info.get("transform_descriptors")
        if extensions:
            named = extensions if isinstance(extensions, list | tuple) else []
            kinds = ", ".join(str(kind) for kind in named if type(kind) is str)
            _refuse(
                f"{name!r} was written through torch's experimental extension "
                f"{kinds[:100] or 'of no name'!r}, which is not read",
                name,
            )
        found[name, offset if offset is None else _sizes(name, offset)] = StoredItem(
            _file(name, info.get("relative_path")),
            _count(name, info.get("offset")),
            _count(name, info.get("length")),
        )
    return found


def _tensor_of(
    name: str,
    fields: Mapping[str, object],
    path: StatePath,
    places: _Places,
) -> FolderTensor:
    properties = _fields(fields.get("properties"), "TensorProperties")
    state = properties.get("state")
    dtype = state[0] if isinstance(state, tuple) and state else properties.get("dtype")
    if not isinstance(dtype, Global) or dtype not in DTYPES:
        _refuse(f"tensor {name!r} has no dtype that is kept", name)
    shape = _sizes(name, fields.get("size"))
    chunks = fields.get("chunks")
    if type(chunks) is not list:
        _refuse(f"tensor {name!r} has no pieces", name)
    pieces = []
    for chunk in chunks:
        one = _fields(chunk, "ChunkStorageMetadata")
        offset, size = _sizes(name, one.get("offsets")), _sizes(name, one.get("sizes"))
        pieces.append(StoredPiece((offset, size), _place(places, name, offset)))
    check_cover(name, shape, [piece.block for piece in pieces])
    return FolderTensor(dtype.name, shape, path, tuple(pieces))


def _place(places: _Places, name: str, offset: tuple[int, ...] | None) -> StoredItem:
    found = places.get((name, offset))
    if found is None:
        _refuse(f"of {name!r} at {offset} its .metadata does not say where it lies", name)
    return found


def _fields(read: object, kind: str) -> Mapping[str, object]:
    if not isinstance(read, Inert) or read.kind != kind:
        _refuse(f"its .metadata has something else where a {kind} belongs")
    return read.fields


def _sizes(name: str, read: object) -> tuple[int, ...]:
    try:
        return sizes_of((read,))
    except ValueError as error:
        _refuse(f"tensor {name!r}: {error}", name)


def _count(name: str, read: object) -> int:
    if type(read) is not int or not 0 <= read <= _COUNT_MAX:
        _refuse(f"{name!r} lies at no place of a file", name)
    return read


def _file(name: str, read: object) -> str:
    # Beside the .metadata, as torch writes them: it may come from anywhere.
    if type(read) is not str or Path(read).name != read or "\0" in read:
        _refuse(f"{name!r} is said to lie outside of the folder", name)
    return read


def _path(name: str, read: object) -> StatePath:
    if not isinstance(read, tuple) or not 0 < len(read) <= DIMENSIONS_MAX:
        _refuse(f"{name!r} has no fit path in the state", name)
    if any(type(one) not in (str, int) for one in read):
        _refuse(f"{name!r} has a path of what is neither text nor number", name)
    return read


def _refuse(what: str, tensor: str | None = None) -> NoReturn:
    raise CheckpointError(
        f"the folder cannot be imported: {what}",
        hint="it was not written by torch's own FileSystemWriter, or is damaged",
        tensor=tensor,
    )
