"""What is shown of checkpoints: rows of stable keys, as `replay.views` has them. Pure.

A track without a name is null; digests are hex, sizes bytes, times microseconds since 1970 UTC.
"""

from hashlib import sha256
from typing import Final

from eventlog.canonical import decode
from eventlog.errors import CheckpointError, SteplogError
from eventlog.json_form import to_json_form
from replay.views import Row
from snapshots.checkpoint_retention import Removed
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.check import CheckedCheckpoint
from snapshots.checkpoints.difference import Changed
from snapshots.checkpoints.inventory import ListedCheckpoint
from snapshots.checkpoints.manifest import CheckpointRef, TensorEntry, ValueEntry

SHOWN_VALUE_BYTES_MAX: Final = 4096
"""A value of more canonical bytes is shown by digest and size."""


def checkpoint_row(one: ListedCheckpoint) -> Row:
    """A checkpoint as a list shows it; null where its manifest is not there or not readable.

    `stored_bytes` are those of the objects its own parts lie in, shared with others or not.
    """
    manifest, entry = one.manifest, None if one.manifest is None else one.manifest.set
    return {
        "track": one.track,
        "id": one.id,
        "step": one.training_step,
        "kind": one.kind,
        "status": one.status.value,
        "head": one.is_head,
        "pins": list(one.pins),
        "created": None if manifest is None else manifest.created_ns // 1_000,
        "world_size": None if manifest is None else manifest.world_size,
        "tensors": None if manifest is None else len(manifest.tensors),
        "raw_bytes": None if manifest is None else manifest.raw_bytes,
        "stored_bytes": None
        if manifest is None
        else sum(stored.size for stored in manifest.objects()),
        "ancestor": None if manifest is None or manifest.ancestor is None else manifest.ancestor.id,
        "training": None if entry is None else entry.training,
        "sessions": None if entry is None else len(entry.sessions),
        "adopted": None if entry is None or entry.adopted is None else entry.adopted.folder,
        "manifest": None if one.ref is None else one.ref.digest,
    }


def checked_row(one: CheckedCheckpoint) -> Row:
    """What a check found."""
    return {
        "track": one.track,
        "id": one.id,
        "step": one.training_step,
        "verdict": one.verdict.value,
        "parts": one.parts,
        "bytes": one.bytes,
        "problems": [_problem_row(each) for each in one.problems],
    }


def changed_row(one: Changed) -> Row:
    """A tensor or value that two checkpoints hold differently."""
    return {
        "name": one.name,
        "change": _change(one),
        "before": _side(one.before),
        "after": _side(one.after),
        "parts": one.parts,
        "parts_changed": one.parts_changed,
        "numbers": one.numbers,
        "numbers_changed": one.numbers_changed,
    }


def removed_row(removed: Removed, unfinished: list[str]) -> Row:
    """What was taken away, or would be; `unfinished` are paths as they are shown."""
    return {
        "objects": removed.objects,
        "bytes": removed.bytes,
        "unfinished": unfinished,
    }


def pointer_row(name: str, store: CheckpointStore, ref: CheckpointRef) -> Row:
    """What HEAD or a pin names."""
    return {
        "name": name,
        "track": store.track,
        "id": ref.id,
        "step": ref.training_step,
        "manifest": ref.digest,
    }


def _problem_row(error: CheckpointError) -> Row:
    return {"problem": error.message, "tensor": error.tensor, "object": error.object_digest}


def _change(one: Changed) -> str:
    if one.before is None:
        return "added"
    if one.after is None:
        return "removed"
    if isinstance(one.before, TensorEntry) and isinstance(one.after, TensorEntry):
        if one.before.dtype != one.after.dtype:
            return "dtype"
        return "shape" if one.before.shape != one.after.shape else "numbers"
    return "value" if type(one.before) is type(one.after) else "kind"


def _side(entry: TensorEntry | ValueEntry | None) -> object:
    if isinstance(entry, TensorEntry):
        return {"dtype": entry.dtype, "shape": list(entry.shape)}
    if entry is None:
        return None
    if len(entry.data) <= SHOWN_VALUE_BYTES_MAX:
        try:
            return {"value": to_json_form(decode(entry.data, opaque=True))}
        except SteplogError:
            pass  # Not canonical: told by what it is, byte for byte.
    return {"sha256": sha256(entry.data).hexdigest(), "bytes": len(entry.data)}
