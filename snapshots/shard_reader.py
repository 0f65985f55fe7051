"""`ShardReader`: torch's `dcp.load` from a folder of checkpoints, every hash compared.

    dcp.load(state, storage_reader=ShardReader("ckpt/"))

Reads the checkpoint at HEAD, or the one of a `step` or id, into any number of ranks: torch's
planners say which shard needs what. Nothing is unpickled. Imports torch, which steplog itself never
needs.
"""

# mypy: allow-subclassing-any
# (for a machine without torch, where its classes are of no known type)

import dataclasses
import math
import os
from collections import deque
from collections.abc import MutableMapping
from concurrent.futures import Future as PoolFuture
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from eventlog.canonical import decode
from eventlog.errors import CheckpointError, SteplogError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.limits import PENDING_PER_THREAD, THREADS, THREADS_MAX
from snapshots.checkpoints.manifest import (
    ITEM_BYTES,
    CheckpointRef,
    Chunk,
    Manifest,
    Part,
    TensorEntry,
    check_id,
)
from snapshots.checkpoints.parts import PartReader
from snapshots.shards.tensor_bytes import bytes_view, dtype_name, dtype_of


class _Begun(NamedTuple):
    """A chunk that is being read: the rows it was asked for, and where they go."""

    rows: torch.Tensor
    first_row: int
    items: list[ReadItem]
    parts: "list[PoolFuture[None]]"


class ShardReader(StorageReader):
    """A `StorageReader` for `torch.distributed.checkpoint.load`.

    Without `step` or `checkpoint` it reads HEAD. Which checkpoint that is, is settled when the
    reader is made; all ranks of one load must have settled on the same. `checkpoint` is an id, or
    all that a save answered: then just the manifest of that digest is read. A tensor of another
    dtype than the stored one is refused, unless `convert_dtype=True`.

    `dcp.load` raises torch's `CheckpointException` with the `CheckpointError` of each rank that
    failed; what was loaded until then is no state to go on with.
    """

    def __init__(
        self,
        folder: CheckpointStore | str | os.PathLike[str],
        *,
        step: int | None = None,
        checkpoint: str | CheckpointRef | None = None,
        convert_dtype: bool = False,
        threads: int = THREADS,
    ) -> None:
        """Read the manifest. Raises `CheckpointIncompleteError` where there is no such checkpoint,
        `CheckpointError` where its manifest, or one it rests on, is not what was committed, or it
        has a dtype that this torch has not yet."""
        if isinstance(checkpoint, CheckpointRef) and step not in (None, checkpoint.training_step):
            raise ValueError(f"step={step} is not that of the checkpoint: {checkpoint}")
        if not 1 <= threads <= THREADS_MAX:
            raise ValueError(f"threads must be 1 to {THREADS_MAX}, not {threads}")
        self._store = folder if isinstance(folder, CheckpointStore) else CheckpointStore(folder)
        self._convert_dtype = convert_dtype
        self._threads = threads
        if isinstance(checkpoint, CheckpointRef):
            self._open(checkpoint)
        else:
            self._open(self._store.find_checkpoint(step=step, checkpoint=checkpoint))

    @property
    def checkpoint(self) -> CheckpointRef:
        """The checkpoint that is read."""
        return self._ref

    @property
    def manifest(self) -> Manifest:
        """All that is known of it."""
        return self._parts.manifest

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this can be the id of a checkpoint."""
        try:
            check_id(os.fspath(checkpoint_id), "a checkpoint's id")
        except ValueError:
            return False
        return True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Read the checkpoint of this id, which `dcp.load(checkpoint_id=...)` names."""
        if checkpoint_id is not None:
            self._open(self._store.find_checkpoint(checkpoint=os.fspath(checkpoint_id)))

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002  (torch's)
        """What torch needs to plan the load: shapes, dtypes and where chunks begin."""
        manifest = self.manifest
        stored: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {
            name: _torch_metadata(entry, self._dtypes[name])
            for name, entry in manifest.tensors.items()
        }
        stored |= {name: BytesStorageMetadata() for name in manifest.values}
        paths = {name: entry.path for name, entry in manifest.tensors.items()}
        paths |= {name: entry.path for name, entry in manifest.values.items()}
        return Metadata(stored, planner_data=paths)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Nothing is left to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Tell rank 0 which checkpoint this rank reads."""
        return dataclasses.replace(plan, storage_data=self._ref)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On rank 0: raise `CheckpointError` where the ranks would read different checkpoints."""
        found = [plan.storage_data for plan in plans]
        if any(one != self._ref for one in found):
            raise CheckpointError(
                "the ranks would read different checkpoints: "
                f"{[getattr(one, 'id', None) for one in found]}",
                hint="give every rank the same step or checkpoint id",
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        """Read what this rank's plan asks for. Raises `CheckpointError`."""
        by_chunk: dict[tuple[str, tuple[int, ...]], list[ReadItem]] = {}
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                self._load_value(item, planner)
            else:
                place = (item.storage_index.fqn, tuple(item.storage_index.offset or ()))
                by_chunk.setdefault(place, []).append(item)
        begun: deque[_Begun] = deque()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="steplog-shard") as pool:
            try:
                for (name, offset), items in by_chunk.items():
                    begun.append(self._begin_chunk(name, offset, items, pool))
                    while sum(len(one.parts) for one in begun) > self._threads * PENDING_PER_THREAD:
                        self._end_chunk(begun.popleft(), planner)
                while begun:
                    self._end_chunk(begun.popleft(), planner)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _open(self, ref: CheckpointRef) -> None:
        self._ref = ref
        self._parts = PartReader(self._store, self._store.read_manifest(ref))
        # Here, not where torch asks: it takes an error then for a checkpoint of another kind.
        self._dtypes = {
            name: dtype_of(name, entry.dtype) for name, entry in self.manifest.tensors.items()
        }

    def _begin_chunk(
        self,
        name: str,
        offset: tuple[int, ...],
        items: list[ReadItem],
        pool: ThreadPoolExecutor,
    ) -> _Begun:
        """Begin to read the parts that hold the rows these items ask for."""
        entry = self.manifest.tensors[name]
        chunk = next((one for one in entry.chunks if one.offset == offset), None)
        if chunk is None:
            raise CheckpointError(
                f"tensor {name!r} has no chunk at {offset}", hint="load anew", tensor=name
            )
        item_bytes = ITEM_BYTES[entry.dtype]
        first, last = _rows_of(chunk, items)
        row_bytes = math.prod(chunk.shape[1:]) * item_bytes
        covering, start = _parts_over(chunk, first * row_bytes, last * row_bytes)
        # Into memory of its own, and from there when all of it was compared: a part that is
        # damaged never reaches the tensor. On the CPU, whatever device new tensors have by default.
        size = sum(part.raw_bytes for part in covering)
        buffer = torch.empty(size, dtype=torch.uint8, device="cpu")
        view = bytes_view(buffer)
        futures, at = [], 0
        for part in covering:
            place = view[at : at + part.raw_bytes]
            futures.append(pool.submit(self._read_into, name, part, item_bytes, place))
            at += part.raw_bytes
        rows = buffer[first * row_bytes - start : last * row_bytes - start]
        shape = (last - first, *chunk.shape[1:]) if chunk.shape else ()
        return _Begun(rows.view(self._dtypes[name]).reshape(shape), first, items, futures)

    def _read_into(self, name: str, part: Part, item_bytes: int, place: memoryview) -> None:
        place[:] = self._parts.read_part(name, part, item_bytes)

    def _end_chunk(self, begun: _Begun, planner: LoadPlanner) -> None:
        for future in begun.parts:
            future.result()
        for item in begun.items:
            source = begun.rows
            for axis, (start, length) in enumerate(
                zip(item.storage_offsets, item.lengths, strict=True)
            ):
                skipped = begun.first_row if axis == 0 else 0
                source = source.narrow(axis, start - skipped, length)
            target = planner.resolve_tensor(item).detach()
            self._check_target(item, source, target)
            target.copy_(source)
            planner.commit_tensor(item, target)

    def _check_target(self, item: ReadItem, source: torch.Tensor, target: torch.Tensor) -> None:
        name = item.storage_index.fqn
        if source.shape != target.shape:
            raise CheckpointError(
                f"tensor {name!r}: {tuple(source.shape)} do not go into {tuple(target.shape)}",
                hint="load into a state of the same shapes",
                tensor=name,
            )
        if source.dtype != target.dtype and not self._convert_dtype:
            raise CheckpointError(
                f"tensor {name!r} is kept as {dtype_name(source.dtype)}, "
                f"and is to be loaded into {dtype_name(target.dtype)}",
                hint="load into the same dtype, or give ShardReader convert_dtype=True",
                tensor=name,
            )

    def _load_value(self, item: ReadItem, planner: LoadPlanner) -> None:
        name = item.storage_index.fqn
        try:
            value = decode(self.manifest.values[name].data)
        except SteplogError as error:
            raise CheckpointError(
                f"value {name!r} cannot be read: {error.message}", hint=error.hint, tensor=name
            ) from error
        # Not `load_bytes`: that unpickles.
        if (
            not isinstance(planner, DefaultLoadPlanner)
            or type(planner).load_bytes is not DefaultLoadPlanner.load_bytes
        ):
            raise CheckpointError(
                f"{name!r} is no tensor, and {type(planner).__name__} takes it only as a pickle",
                hint="use a planner that leaves DefaultLoadPlanner.load_bytes as it is",
                tensor=name,
            )
        into = item.dest_index.fqn
        try:
            if planner.flatten_state_dict:
                _put_at(planner.original_state_dict, tuple(planner.mappings[into]), value)
            else:
                planner.state_dict[into] = value
        except (TypeError, KeyError, IndexError) as error:
            raise CheckpointError(
                f"{name!r} has no place in the state: {error}",
                hint="load into a state that is nested as the saved one was, of dicts and lists",
                tensor=name,
            ) from error


def _torch_metadata(entry: TensorEntry, dtype: torch.dtype) -> TensorStorageMetadata:
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype),
        size=torch.Size(entry.shape),
        chunks=[
            ChunkStorageMetadata(offsets=torch.Size(one.offset), sizes=torch.Size(one.shape))
            for one in entry.chunks
        ],
    )


def _rows_of(chunk: Chunk, items: list[ReadItem]) -> tuple[int, int]:
    """The rows of a chunk (along its first dimension) that hold all that is asked for."""
    if not chunk.shape:
        return 0, 1
    starts = [item.storage_offsets[0] for item in items]
    ends = [item.storage_offsets[0] + item.lengths[0] for item in items]
    return min(starts), max(ends)


def _parts_over(chunk: Chunk, start: int, end: int) -> tuple[list[Part], int]:
    """The parts that hold these bytes of a chunk, and where the first of them begins."""
    found: list[Part] = []
    at = begins = 0
    for part in chunk.parts:
        if at < end and at + part.raw_bytes > start:
            begins = at if not found else begins
            found.append(part)
        at += part.raw_bytes
    return found, begins if found else start


def _put_at(state: MutableMapping[str, Any], path: tuple[str | int, ...], value: object) -> None:
    place: Any = state
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
