"""Import of a folder that torch's `dcp.save` wrote with its own `FileSystemWriter`.

Nothing in the folder is run: its `.metadata` and items are read as plain data (`inert_pickle`), and
only what lies there in another order than C's needs torch at all. Used by `steplog checkpoint
import`.
"""

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from eventlog.errors import CheckpointError
from eventlog.untrusted_file import UnfitFile, open_untrusted
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import os_errors_told, require_no_file
from snapshots.checkpoints.manifest import ITEM_BYTES
from snapshots.interchange.given_path import require_given
from snapshots.interchange.import_writer import Imported, ImportedTensor, ImportWriter
from snapshots.interchange.torch_folder import (
    FolderTensor,
    StoredItem,
    StoredPiece,
    read_torch_folder,
)
from snapshots.interchange.torch_item import PICKLE_BYTES_MAX, ItemTensor, read_tensor, read_value


def import_dcp_folder(
    store: CheckpointStore,
    folder: str | os.PathLike[str],
    *,
    step: int,
    skip_values: bool = False,
) -> Imported:
    """Commit what torch's folder holds as the checkpoint of training step `step`; HEAD moves to it.

    It loads through `ShardReader` as the folder does through torch, into any number of ranks, bit
    for bit. With `skip_values`, values that are no tensors and have no canonical form are left out,
    and named in the answer; without it they are refused.

    Raises `CheckpointError` naming the tensor or value where anything is missing, damaged, of a
    kind that is not kept, or written through an extension; then nothing is committed. `ConfigError`
    where there is no such folder, `ValueError` for a step out of range.
    """
    path = Path(folder)
    require_given(path)
    require_no_file(path)
    found = read_torch_folder(path)
    files = _Files(path)
    left_out: list[str] = []
    with ImportWriter(store, step=step, versions={}) as writer:
        for name, value in found.values.items():
            try:
                read = read_value(name, files.bytes_at(name, value.item, PICKLE_BYTES_MAX))
                writer.add_value(name, read, value.path)
            except CheckpointError:
                if not skip_values:
                    raise
                left_out.append(name)
        for name, tensor in found.tensors.items():
            writer.add_tensor(name, ImportedTensor(tensor.dtype, tensor.shape, tensor.path))
        for name, tensor, piece in _as_they_lie(found.tensors):
            item = read_tensor(name, files.bytes_at(name, piece.item))
            if (item.dtype, item.shape) != (tensor.dtype, piece.block[1]):
                raise CheckpointError(
                    f"tensor {name!r}: {item.dtype} of {item.shape} lies in {piece.item.file}, "
                    f"where the folder says {tensor.dtype} of {piece.block[1]}",
                    hint="the folder holds files of several saves; import another copy",
                    tensor=name,
                )
            raw = _bytes_of(name, item)
            writer.add_chunk(name, piece.block, raw, ITEM_BYTES[tensor.dtype])
        return writer.commit(left_out=tuple(sorted(left_out)))


class _Files:
    """The folder's files, opened once each. Their bytes come into memory as they are read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[str, memoryview] = {}

    def bytes_at(self, name: str, item: StoredItem, bytes_max: int | None = None) -> memoryview:
        """The bytes of an item. Raises `CheckpointError` where they are not there."""
        held = self._opened.get(item.file)
        if held is None:
            held = self._opened[item.file] = self._open(name, self._folder / item.file)
        data = held[item.start : item.start + item.length]
        if len(data) != item.length or (bytes_max is not None and item.length > bytes_max):
            raise CheckpointError(
                f"{name!r} takes {item.length} bytes from {item.start} of "
                f"{self._folder / item.file}, which has {len(held)}",
                hint="the folder was not saved whole; import another copy",
                tensor=name,
            )
        return data

    def _open(self, name: str, path: Path) -> memoryview:
        try:
            with os_errors_told(path), open_untrusted(path, follow_links=True) as (file, size):
                if not size:
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
        except UnfitFile as error:
            raise CheckpointError(
                f"{path}, where {name!r} lies, cannot be used: {error}",
                hint="name the folder that dcp.save wrote to",
                tensor=name,
            ) from None


def _as_they_lie(
    tensors: Mapping[str, FolderTensor],
) -> Iterator[tuple[str, FolderTensor, StoredPiece]]:
    """Every piece, in the order of the files: they are read from begin to end."""
    pieces = [(name, one, piece) for name, one in tensors.items() for piece in one.pieces]
    yield from sorted(pieces, key=lambda each: (each[2].item.file, each[2].item.start))


def _bytes_of(name: str, item: ItemTensor) -> memoryview:
    if item.plain is not None:
        return item.plain
    try:
        from snapshots.shards.strided import arrange
    except ImportError as error:
        raise CheckpointError(
            f"tensor {name!r} does not lie in C order, and only torch can bring it there",
            hint="pip install 'steplog[torch]'",
            tensor=name,
        ) from error
    return arrange(
        name,
        item.memory,
        dtype=item.dtype,
        shape=item.shape,
        strides=item.strides,
        start=item.start,
        marks=item.marks,
    )
