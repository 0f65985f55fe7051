"""`ShardWriter`: torch's `dcp.save` into a folder of checkpoints, whole or not at all.

    dcp.save(state, storage_writer=ShardWriter("ckpt/", step=7))

Every rank keeps the parts of its shards as immutable objects; rank 0 then writes the manifest, the
only thing that makes them a checkpoint, and moves HEAD. Values that are no tensors are kept in
canonical form: nothing is pickled. Imports torch, which steplog itself never needs.
"""

# mypy: allow-subclassing-any
# (for a machine without torch, where its classes are of no known type)

import dataclasses
import logging
import os
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final, NamedTuple, NoReturn

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from eventlog.canonical import encode
from eventlog.errors import CheckpointError, ValueNotEncodableError
from eventlog.training_facts import TRAINING_STEP_MAX
from eventlog.version import VERSION
from snapshots.checkpoint_retention import take_back
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.added_objects import AddedObjects
from snapshots.checkpoints.fit_to_read import require_fit_name
from snapshots.checkpoints.generations import WHOLE, next_rest
from snapshots.checkpoints.limits import THREADS, THREADS_MAX
from snapshots.checkpoints.manifest import (
    VALUE_BYTES_MAX,
    CheckpointRef,
    Chunk,
    Manifest,
    Part,
    TensorEntry,
    ValueEntry,
    check_id,
)
from snapshots.checkpoints.part_writer import PartWriter
from snapshots.checkpoints.parts import PartReader
from snapshots.save_handle import Commit
from snapshots.shards.tensor_bytes import bytes_of, dtype_name

_logger: Final = logging.getLogger("steplog.checkpoints")


class SaveTicket(NamedTuple):
    """What rank 0 decided for one save, and every rank follows."""

    id: str
    step: int
    world_size: int
    head: CheckpointRef | None
    ancestor: CheckpointRef | None
    generation: int


class _Announced(NamedTuple):
    """What a rank was asked to do; all ranks must agree."""

    step: int
    delta: bool


class _Written(NamedTuple):
    """What a rank kept for one item of its plan, under the ticket of this id."""

    ticket_id: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    value: bytes | None


class ShardWriter(StorageWriter):
    """A `StorageWriter` for `torch.distributed.checkpoint.save`; one for each save.

    `step` is the step in training, kept by value. `delta=True` stores what changed since an
    earlier one where that is smaller, as it is for successive versions of a policy. `threads`
    encode and write in each rank. `checkpoint` is the id, a new one if None; `commit` makes the
    checkpoint of the manifest once all it names is stored, `CheckpointStore.commit_checkpoint` if
    None: of both, rank 0's are used.

    `dcp.save` raises torch's `CheckpointException` with the `CheckpointError` of each rank that
    failed; then nothing was committed, and HEAD is where it was.
    """

    def __init__(
        self,
        folder: CheckpointStore | str | os.PathLike[str],
        *,
        step: int,
        delta: bool = False,
        threads: int = THREADS,
        checkpoint: str | None = None,
        commit: Commit | None = None,
    ) -> None:
        """Touches no file. Raises `ValueError` where an argument is out of range."""
        if not 0 <= step <= TRAINING_STEP_MAX:
            raise ValueError(f"step must be 0 to {TRAINING_STEP_MAX}, not {step}")
        if not 1 <= threads <= THREADS_MAX:
            raise ValueError(f"threads must be 1 to {THREADS_MAX}, not {threads}")
        self._store = folder if isinstance(folder, CheckpointStore) else CheckpointStore(folder)
        self._asked = _Announced(step, delta)
        self._threads = threads
        self._id = None if checkpoint is None else check_id(checkpoint, "a checkpoint's id")
        self._commit = commit
        self._ticket: SaveTicket | None = None
        self._committed: CheckpointRef | None = None
        self._has_made_folder = False
        self._added = AddedObjects()

    @property
    def step(self) -> int:
        """The step in training that is saved."""
        return self._asked.step

    @property
    def committed(self) -> CheckpointRef | None:
        """The checkpoint that rank 0 committed last with this writer; None on other ranks."""
        return self._committed

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a fit id for a checkpoint."""
        try:
            check_id(os.fspath(checkpoint_id), "a checkpoint's id")
        except ValueError:
            return False
        return True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Take the id that `dcp.save(checkpoint_id=...)` gives. Raises `ValueError`."""
        if checkpoint_id is not None:
            self._id = check_id(os.fspath(checkpoint_id), "a checkpoint's id")

    def set_up_storage_writer(
        self,
        is_coordinator: bool,  # noqa: ARG002  (torch's signature)
        *args: Any,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Begin a save. Raises `CheckpointError` for one without collectives."""
        if not kwargs.get("use_collectives", True):
            raise CheckpointError(
                "a save without collectives cannot be committed whole",
                hint="call dcp.save with use_collectives=True",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Tell rank 0 which step this rank saves. Raises for a name or a depth that is not kept."""
        paths = plan.planner_data if isinstance(plan.planner_data, Mapping) else {}
        for item in plan.items:
            require_fit_name(item.index.fqn, paths.get(item.index.fqn))
        return dataclasses.replace(plan, storage_data=self._asked)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On rank 0: decide id, head and ancestor for all. Raises where ranks do not agree."""
        asked = [plan.storage_data for plan in plans]
        if any(one != self._asked for one in asked):
            raise CheckpointError(
                f"the ranks do not save the same: {[tuple(one or ()) for one in asked]} "
                "(step, delta)",
                hint="give every rank's ShardWriter the same step and delta; "
                "plans must not be cached",
            )
        head = self._store.head()
        above = self._reader_of(head) if self._asked.delta else None
        rest = WHOLE
        if head is not None and above is not None:
            rest = next_rest(head, [above.manifest, *above.ancestors])
        self._ticket = SaveTicket(
            self._id or token_hex(8), self._asked.step, len(plans), head, *rest
        )
        # A save that is killed from here on is seen: a folder without a manifest.
        self._has_made_folder = self._store.begin_checkpoint(self._asked.step, self._ticket.id)
        return [dataclasses.replace(plan, storage_data=self._ticket) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        """Keep what this rank's plan holds, durably. Raises `CheckpointError`."""
        ticket = plan.storage_data
        if not isinstance(ticket, SaveTicket):
            raise CheckpointError(
                "the plan does not come from this save", hint="plans must not be cached"
            )
        self._ticket = ticket
        head = self._reader_of(ticket.head)
        ancestor = head if ticket.ancestor == ticket.head else self._reader_of(ticket.ancestor)
        parts = PartWriter(self._store, head=head, ancestor=ancestor, threads=self._threads)
        self._added = parts.added
        try:
            with parts as writer:
                begun = [(one, self._begin(one, planner, writer, ancestor)) for one in plan.items]
                writer.finish()
            results = [_result_of(item, ticket, *written) for item, written in begun]
        except BaseException:
            self.take_back()
            raise
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On rank 0: commit. Raises `CheckpointError`, and then nothing was committed."""
        ticket = self._ticket
        if ticket is None:
            raise CheckpointError("nothing was planned", hint="call dcp.save")
        written: dict[MetadataIndex, _Written] = {}
        for result in (one for rank in results for one in rank):
            if result.storage_data.ticket_id != ticket.id:
                raise CheckpointError(
                    f"{result.index.fqn!r} was written for another save",
                    hint="plans must not be cached",
                    tensor=result.index.fqn,
                )
            written[result.index] = result.storage_data
        manifest = _manifest_of(metadata, written, ticket)
        try:
            if self._commit is None:
                self._committed = self._store.commit_checkpoint(manifest, expected_head=ticket.head)
            else:
                self._committed = self._commit(manifest)
        except BaseException:
            self.take_back()
            raise
        if self._committed.id != ticket.id:  # `commit` found that one with the same in it
            self.abandon()
            self.take_back()

    def take_back(self) -> None:
        """Take away the objects that this rank has added, where no checkpoint names them.

        For a save that has failed on every rank: whoever might still commit it would miss them.
        """
        added, self._added = self._added, AddedObjects()
        take_back(self._store, added, self._is_kept)

    def _is_kept(self) -> bool:
        # Asked by name: a network disk may list the folder as it was before rank 0 kept it.
        ticket = self._ticket
        return ticket is not None and self._store.has_manifest(ticket.step, ticket.id)

    def abandon(self) -> None:
        """Take away the folder of a save that has ended and committed nothing.

        On the rank that made it; elsewhere, and of what was committed, nothing is done.
        """
        has_made_it, self._has_made_folder = self._has_made_folder, False
        if self._ticket is None or not has_made_it:
            return
        try:
            self._store.abandon_checkpoint(self._ticket.step, self._ticket.id)
        except CheckpointError as error:  # The save's own end is what its caller is to hear of.
            _logger.warning("the folder of a save that was given up stays: %s", error)

    def _reader_of(self, ref: CheckpointRef | None) -> PartReader | None:
        """What is stored already; None where it cannot be read: a save must not fail for that."""
        if ref is None:
            return None
        try:
            return PartReader(self._store, self._store.read_manifest(ref))
        except CheckpointError as error:
            _logger.warning("nothing of checkpoint %s is used again: %s", ref.id, error)
            return None

    def _begin(
        self,
        item: WriteItem,
        planner: SavePlanner,
        writer: PartWriter,
        ancestor: PartReader | None,
    ) -> tuple[tuple[int, ...], "list[Part | None]", bytes | None]:
        name = item.index.fqn
        if item.type is WriteItemType.BYTE_IO:
            return (), [], _canonical_value(name, item.index, planner)
        tensor = planner.resolve_data(item)
        if not isinstance(tensor, torch.Tensor):
            raise CheckpointError(
                f"{name!r} was planned as a tensor and is a {type(tensor).__name__}",
                hint="use a planner that gives tensors",
                tensor=name,
            )
        raw, item_bytes = bytes_of(name, tensor)
        base = None
        if ancestor is not None:
            base = _same_chunk(ancestor.manifest, item.index, tensor)
        return tuple(tensor.shape), writer.add_chunk(name, raw, item_bytes, base), None


def _canonical_value(name: str, index: MetadataIndex, planner: SavePlanner) -> bytes:
    # Not `resolve_data`: that pickles. The planner of torch, and all made from it, have this.
    lookup = getattr(planner, "lookup_object", None)
    if lookup is None:
        raise CheckpointError(
            f"{name!r} is no tensor, and {type(planner).__name__} gives it only as a pickle",
            hint="derive the planner from DefaultSavePlanner, or save tensors only",
            tensor=name,
        )
    value = lookup(index)
    try:
        data = encode(value)
    except ValueNotEncodableError as error:
        raise CheckpointError(
            f"{name!r} is a {type(value).__name__}, which has no canonical form: {error.message}",
            hint="save plain values, arrays and tensors; nothing is pickled",
            tensor=name,
        ) from error
    if len(data) > VALUE_BYTES_MAX:
        raise CheckpointError(
            f"{name!r} takes {len(data)} bytes; a value may take {VALUE_BYTES_MAX}",
            hint="save large data as a tensor",
            tensor=name,
        )
    return data


def _same_chunk(manifest: Manifest, index: MetadataIndex, tensor: torch.Tensor) -> Chunk | None:
    entry = manifest.tensors.get(index.fqn)
    if entry is None or entry.dtype != dtype_name(tensor.dtype):
        return None
    place = (tuple(index.offset or ()), tuple(tensor.shape))
    return next((one for one in entry.chunks if (one.offset, one.shape) == place), None)


def _result_of(
    item: WriteItem,
    ticket: SaveTicket,
    shape: tuple[int, ...],
    parts: "list[Part | None]",
    value: bytes | None,
) -> WriteResult:
    kept = tuple(part for part in parts if part is not None)
    if len(kept) != len(parts):
        raise CheckpointError(
            f"tensor {item.index.fqn!r} was not written whole",
            hint="save again",
            tensor=item.index.fqn,
        )
    size = len(value or b"") + sum(part.length for part in kept)
    return WriteResult(item.index, size, _Written(ticket.id, shape, kept, value))


def _manifest_of(
    metadata: Metadata, written: dict[MetadataIndex, _Written], ticket: SaveTicket
) -> Manifest:
    paths = metadata.planner_data if isinstance(metadata.planner_data, Mapping) else {}
    tensors: dict[str, TensorEntry] = {}
    values: dict[str, ValueEntry] = {}
    for name, stored in metadata.state_dict_metadata.items():
        path = tuple(paths.get(name, (name,)))
        if not isinstance(stored, TensorStorageMetadata):
            value = _written_at(written, MetadataIndex(name)).value
            values[name] = ValueEntry(value or b"", path)
            continue
        chunks = []
        for one in stored.chunks:
            found = _written_at(written, MetadataIndex(name, one.offsets))
            if found.shape != tuple(one.sizes):
                _refuse_gap(name)
            chunks.append(Chunk(tuple(one.offsets), found.shape, found.parts))
        tensors[name] = TensorEntry(
            dtype_name(stored.properties.dtype), tuple(stored.size), tuple(chunks), path
        )
    made = Manifest(
        id=ticket.id,
        training_step=ticket.step,
        world_size=ticket.world_size,
        created_ns=time.time_ns(),
        versions={"steplog": VERSION, "torch": str(torch.__version__)},
        generation=ticket.generation,
        ancestor=ticket.ancestor,
        tensors=tensors,
        values=values,
    )
    rests = any(one.part.base is not None for one in made.parts())
    return made if rests else made._replace(generation=0, ancestor=None)


def _written_at(written: dict[MetadataIndex, _Written], index: MetadataIndex) -> _Written:
    found = written.get(index)
    if found is None:
        _refuse_gap(index.fqn)
    return found


def _refuse_gap(name: str) -> NoReturn:
    raise CheckpointError(
        f"{name!r} was not written whole by the ranks", hint="save again", tensor=name
    )
