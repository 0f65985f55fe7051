"""`ImportWriter`: a checkpoint made of tensors that come from somewhere else than a save of ours.

Committed whole or not at all, as any checkpoint, with HEAD on it. Needs no torch. Used by the
imports of safetensors and of torch's folders.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex
from types import TracebackType
from typing import NamedTuple

from eventlog.canonical import encode
from eventlog.errors import CheckpointError, ValueNotEncodableError
from eventlog.training_facts import TRAINING_STEP_MAX
from eventlog.version import VERSION
from snapshots.checkpoint_retention import take_back
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.chunk_layout import Block, check_cover
from snapshots.checkpoints.fields import StatePath
from snapshots.checkpoints.fit_to_read import require_fit_name
from snapshots.checkpoints.limits import THREADS
from snapshots.checkpoints.manifest import (
    CheckpointRef,
    Chunk,
    Manifest,
    Part,
    TensorEntry,
    ValueEntry,
)
from snapshots.checkpoints.part_writer import PartWriter
from snapshots.checkpoints.parts import PartReader
from snapshots.interchange.safetensors_file import tensor_bytes


class Imported(NamedTuple):
    """The checkpoint that was made, and the names of the values that were left out of it."""

    checkpoint: CheckpointRef
    tensors: int
    tensor_bytes: int
    values: int
    left_out: tuple[str, ...] = ()


class ImportedTensor(NamedTuple):
    """A tensor to import: `dtype` by torch's short name, `path` in the nested state."""

    dtype: str
    shape: tuple[int, ...]
    path: StatePath


class ImportWriter:
    """Collects what is imported. Use as a context; only one thread may call it."""

    def __init__(self, store: CheckpointStore, *, step: int, versions: Mapping[str, str]) -> None:
        """`versions` are kept beside steplog's own. Raises `ValueError` for a step out of range,
        `CheckpointError` where the store cannot be read."""
        if not 0 <= step <= TRAINING_STEP_MAX:
            raise ValueError(f"step must be 0 to {TRAINING_STEP_MAX}, not {step}")
        self._store = store
        self._step = step
        self._versions = {"steplog": VERSION, **versions}
        self._head = store.head()
        known = None
        if self._head is not None:
            # What the head holds already is not stored again; an import does not fail for it.
            with suppress(CheckpointError):
                known = PartReader(store, store.read_manifest(self._head))
        self._writer = PartWriter(store, head=known, ancestor=None, threads=THREADS)
        self._tensors: dict[str, ImportedTensor] = {}
        self._chunks: dict[str, list[tuple[Block, list[Part | None]]]] = {}
        self._values: dict[str, ValueEntry] = {}

    def __enter__(self) -> "ImportWriter":
        self._writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, trace)
        if error is not None:
            take_back(self._store, self._writer.added)

    def add_tensor(self, name: str, tensor: ImportedTensor) -> None:
        """Begin a tensor, whose chunks follow. Raises `CheckpointError` for a name not fit."""
        self._check_name(name)
        self._tensors[name] = tensor
        self._chunks[name] = []

    def add_chunk(self, name: str, block: Block, raw: memoryview, item_bytes: int) -> None:
        """Begin to keep a chunk's bytes, which must not change until `commit`.

        Raises `CheckpointError` where they are not as many as the block needs, and what any earlier
        chunk met.
        """
        due = tensor_bytes(self._tensors[name].dtype, block[1])
        if len(raw) != due:
            raise CheckpointError(
                f"tensor {name!r}: its chunk at {block[0]} holds {len(raw)} bytes of {due}",
                hint="what is imported is damaged; import another copy",
                tensor=name,
            )
        self._chunks[name].append((block, self._writer.add_chunk(name, raw, item_bytes)))

    def add_value(self, name: str, value: object, path: StatePath) -> None:
        """Keep a value that is no tensor. Raises `CheckpointError` where it has no canonical form
        or a name that is not fit."""
        self._check_name(name)
        try:
            self._values[name] = ValueEntry(encode(value), path)
        except ValueNotEncodableError as error:
            raise CheckpointError(
                f"{name!r} is a {type(value).__name__}, which has no canonical form: "
                f"{error.message}",
                hint="leave it out: the tensors can be imported without such values",
                tensor=name,
            ) from error

    def commit(self, *, left_out: tuple[str, ...] = ()) -> Imported:
        """Write what is left, commit, and move HEAD. Raises `CheckpointError`; then it is not."""
        self._writer.finish()
        for name, tensor in self._tensors.items():
            check_cover(name, tensor.shape, [block for block, _parts in self._chunks[name]])
        manifest = Manifest(
            id=token_hex(8),
            training_step=self._step,
            world_size=1,
            created_ns=time.time_ns(),
            versions=self._versions,
            generation=0,
            ancestor=None,
            tensors={name: self._entry_of(name, one) for name, one in self._tensors.items()},
            values=self._values,
        )
        ref = self._store.commit_checkpoint(manifest, expected_head=self._head)
        return Imported(ref, len(self._tensors), manifest.raw_bytes, len(self._values), left_out)

    def _entry_of(self, name: str, tensor: ImportedTensor) -> TensorEntry:
        chunks = []
        for (offset, shape), parts in self._chunks[name]:
            chunks.append(Chunk(offset, shape, tuple(one for one in parts if one is not None)))
        return TensorEntry(tensor.dtype, tensor.shape, tuple(chunks), tensor.path)

    def _check_name(self, name: str) -> None:
        if require_fit_name(name) in self._tensors or name in self._values:
            raise CheckpointError(
                f"the name {name[:64]!r} stands there twice", hint="rename it", tensor=name
            )
