"""Export of a checkpoint's tensors as safetensors, in one file or as Hugging Face lays them out.

Part by part: the memory it takes is that of a few parts, however large the model is, and every hash
on the way is compared. The folder is there whole or not at all. Needs neither torch nor the package
safetensors. Used by `steplog checkpoint export`.
"""

import json
import os
import secrets
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple

from eventlog.durable_file import sync_file, sync_folder
from eventlog.errors import ConfigError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.chunk_layout import Block, check_cover, runs_of, spacing_of
from snapshots.checkpoints.file_faults import os_errors_told, require_no_file
from snapshots.checkpoints.limits import PENDING_PER_THREAD, THREADS
from snapshots.checkpoints.manifest import (
    ITEM_BYTES,
    CheckpointRef,
    Manifest,
    Part,
    TensorEntry,
)
from snapshots.checkpoints.parts import PartReader
from snapshots.interchange.placed_file import PlacedFile
from snapshots.interchange.safetensors_file import lay_out, tensor_bytes

Layout = Literal["safetensors", "huggingface"]

SHARD_BYTES_MAX: Final = 5_000_000_000
"""Bytes of tensors in one file of the layout huggingface; a larger tensor has a file of its own."""
INDEX_NAME: Final = "model.safetensors.index.json"
"""Where the layout huggingface says which tensor is in which file."""
ONE_FILE_NAME: Final = "model.safetensors"
"""The file's name where there is only one."""


class Exported(NamedTuple):
    """What was written to `folder`, and how much of the checkpoint was left out."""

    folder: Path
    files: tuple[str, ...]
    tensors: int
    tensor_bytes: int
    tensors_left_out: int
    values_left_out: int


class _Piece(NamedTuple):
    """A part, the block of the tensor it belongs to, and where in the block it begins (bytes)."""

    part: Part
    block: Block
    start: int


def export_checkpoint(
    store: CheckpointStore,
    ref: CheckpointRef,
    folder: str | os.PathLike[str],
    *,
    prefix: str = "",
    layout: Layout = "safetensors",
    shard_bytes_max: int = SHARD_BYTES_MAX,
    tensors: Sequence[str] = (),
) -> Exported:
    """Write the tensors whose names begin with `prefix`, without it, to `folder`.

    `tensors` are patterns as of a shell (`*.weight`), of whole names: where any is given, only
    tensors that one of them fits are written. `layout` "safetensors" is one file,
    `model.safetensors`; "huggingface" is so too where all fit into `shard_bytes_max` bytes, and
    else `model-00001-of-00003.safetensors` and so on, with `model.safetensors.index.json`. Each
    file says in its metadata which checkpoint it comes from. The same checkpoint and arguments give
    the same bytes. Tied tensors are written under each of their names; values that are no tensors
    are left out, and counted.

    `folder` must be missing or empty: `ConfigError` where it is not, or where no tensor is chosen.
    Raises `CheckpointError` where one has a dtype that safetensors does not have, where anything
    stored is damaged, or where the folder cannot be written; then nothing is left in it. Raises
    `ValueError` for an unknown layout or `shard_bytes_max` below 1.
    """
    if layout not in ("safetensors", "huggingface") or shard_bytes_max < 1:
        raise ValueError(f"there is no layout {layout!r} of at most {shard_bytes_max} bytes a file")
    target = Path(folder).absolute()
    _refuse_used(target)
    reader = PartReader(store, store.read_manifest(ref))
    chosen = _choose(reader.manifest, prefix, tensors)
    files = _files_of(chosen, shard_bytes_max if layout == "huggingface" else None)
    metadata = {
        "format": "pt",  # Hugging Face's loaders ask for it.
        "steplog.checkpoint": ref.id,
        "steplog.manifest_sha256": ref.digest,
        "steplog.training_step": str(ref.training_step),
    }
    half = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os_errors_told(target):
            half.mkdir(parents=True)
            for file, names in files.items():
                held = {name: chosen[name] for name in names}
                _write_file(half / file, held, reader, prefix, metadata)
            if len(files) > 1:
                _write_index(half / INDEX_NAME, files, chosen)
            sync_folder(half)
            os.rename(half, target)  # Over an empty folder it may go, over others not.
            sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
    manifest = reader.manifest
    return Exported(
        target,
        (*files, *([INDEX_NAME] if len(files) > 1 else [])),
        len(chosen),
        sum(tensor_bytes(one.dtype, one.shape) for one in chosen.values()),
        len(manifest.tensors) - len(chosen),
        len(manifest.values),
    )


def _refuse_used(target: Path) -> None:
    with os_errors_told(target):
        is_used = os.path.lexists(target) and (
            target.is_symlink() or not target.is_dir() or any(target.iterdir())
        )
    if is_used:
        raise ConfigError(
            f"{target} is there already, and is no empty folder",
            hint="name a folder that is not there yet",
        )
    require_no_file(target)


def _choose(manifest: Manifest, prefix: str, patterns: Sequence[str]) -> dict[str, TensorEntry]:
    """The chosen tensors, by their names in the files."""
    chosen = {
        name.removeprefix(prefix): entry
        for name, entry in sorted(manifest.tensors.items())
        if name.startswith(prefix)
        and (not patterns or any(fnmatchcase(name, one) for one in patterns))
    }
    if not chosen:
        adopted = None if manifest.set is None else manifest.set.adopted
        if adopted is not None:
            raise ConfigError(
                f"set {manifest.id} has no weights to export: they are in the adopted folder "
                f"{adopted.folder}",
                hint="load or convert that folder as its own framework does; "
                "`steplog checkpoint import` takes torch's and safetensors",
            )
        first = ", ".join(map(repr, sorted(manifest.tensors)[:3]))
        raise ConfigError(
            f"no tensor of checkpoint {manifest.id} is chosen: "
            f"it has {len(manifest.tensors)}{f', as {first}' if first else ''}",
            hint="choose another prefix or other patterns",
        )
    if "" in chosen:
        raise ConfigError(
            f"of the name {prefix!r} nothing is left without the prefix",
            hint="give a shorter prefix",
        )
    for name, entry in chosen.items():
        check_cover(prefix + name, entry.shape, [(one.offset, one.shape) for one in entry.chunks])
    lay_out({name: (entry.dtype, entry.shape) for name, entry in chosen.items()}, {})
    return chosen


def _files_of(chosen: Mapping[str, TensorEntry], bytes_max: int | None) -> dict[str, list[str]]:
    """The names of the tensors in each file, in order."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, entry in chosen.items():
        taken = tensor_bytes(entry.dtype, entry.shape)
        if bytes_max is not None and groups[-1] and size + taken > bytes_max:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += taken
    if len(groups) == 1:
        return {ONE_FILE_NAME: groups[0]}
    return {
        f"model-{number:05}-of-{len(groups):05}.safetensors": group
        for number, group in enumerate(groups, 1)
    }


def _write_index(
    path: Path, files: Mapping[str, list[str]], chosen: Mapping[str, TensorEntry]
) -> None:
    total = sum(tensor_bytes(one.dtype, one.shape) for one in chosen.values())
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: file for file, names in files.items() for name in names},
    }
    text = json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False)
    with open(path, "xb") as file:
        file.write(f"{text}\n".encode())
        file.flush()
        sync_file(file.fileno())


def _write_file(
    path: Path,
    held: Mapping[str, TensorEntry],
    reader: PartReader,
    prefix: str,
    metadata: Mapping[str, str],
) -> None:
    """One synced file of these tensors."""
    front, header = lay_out(
        {name: (entry.dtype, entry.shape) for name, entry in held.items()}, metadata
    )
    with open(path, "x+b") as file:
        file.write(front)
        file.truncate(len(front) + header.data_bytes)
        file.flush()
        target = PlacedFile(file.fileno())
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(THREADS, thread_name_prefix="steplog-export") as pool:
            try:
                for name, place in header.tensors.items():
                    at = header.data_start + place.start
                    for piece in _pieces_of(held[name]):
                        while len(pending) >= THREADS * PENDING_PER_THREAD:
                            pending.popleft().result()
                        pending.append(
                            pool.submit(
                                _write_piece,
                                *(target, at, reader, prefix + name, held[name], piece),
                            )
                        )
                while pending:
                    pending.popleft().result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        sync_file(file.fileno())


def _pieces_of(entry: TensorEntry) -> Iterator[_Piece]:
    for chunk in entry.chunks:
        start = 0
        for part in chunk.parts:
            yield _Piece(part, (chunk.offset, chunk.shape), start)
            start += part.raw_bytes


def _write_piece(
    target: PlacedFile, at: int, reader: PartReader, name: str, entry: TensorEntry, piece: _Piece
) -> None:
    """Write a part's numbers to where they lie in the tensor that begins `at` in the file."""
    width = ITEM_BYTES[entry.dtype]
    raw = memoryview(reader.read_part(name, piece.part, width)).cast("B")
    first = piece.start // width
    last = first + len(raw) // width
    run, apart, in_turn = spacing_of(entry.shape, piece.block)
    begin = first
    while begin < last:
        _number, place, count = next(runs_of(entry.shape, piece.block, begin, last))
        number, within = divmod(begin, run) if run else (0, 0)
        # As many whole runs as follow one another evenly.
        runs = min(in_turn - number % in_turn, (last - begin) // run) if not within else 0
        count = max(count, runs * run)
        data = raw[(begin - first) * width : (begin - first + count) * width]
        target.write_runs(data, at + place * width, max(runs, 1), apart * width)
        begin += count
