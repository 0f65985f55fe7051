"""`PartReader`: the raw bytes of a checkpoint's parts, every hash on the way compared.

A part may be stored as the difference to bytes that an ancestor of the checkpoint holds. These are
found by their hash in the ancestors' manifests, nearest first, so a chain is followed upwards only
and ends. Used by the shard reader, by the shard writer for what it makes differences to, and by
whoever checks a checkpoint. Needs no torch.
"""

import threading
from collections import OrderedDict
from hashlib import sha256
from typing import Final, NoReturn

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import (
    CheckpointRef,
    Manifest,
    Part,
    StoredObject,
    TensorPart,
)
from snapshots.compression import ReadableBuffer
from snapshots.tensor_codec import Encoding, decode_part

CHAIN_MAX: Final = 8
"""Most ancestors a checkpoint rests on. The writer's own limit is lower (`shard_writer`)."""
SHARED_BYTES_MAX: Final = 1 << 26
"""Bytes of objects that hold several parts, kept in memory while one reader is used."""


class PartReader:
    """Reads parts of one checkpoint. Thread-safe."""

    def __init__(self, store: CheckpointStore, manifest: Manifest) -> None:
        """Reads the ancestors' manifests too. Raises `CheckpointError` where one is not usable."""
        self._store = store
        self._chain = [manifest, *_ancestors_of(store, manifest)]
        self._indexes: list[dict[str | None, TensorPart]] = [_index_of(one) for one in self._chain]
        self._shared: OrderedDict[StoredObject, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def ancestors(self) -> list[Manifest]:
        """The checkpoints this one rests on, the nearest first."""
        return self._chain[1:]

    @property
    def manifest(self) -> Manifest:
        """The checkpoint that is read."""
        return self._chain[0]

    def find_part(self, digest: str, item_bytes: int) -> Part | None:
        """A part of the checkpoint itself with these raw bytes, of numbers of this size."""
        known = self._indexes[0].get(digest)
        return known.part if known is not None and known.item_bytes == item_bytes else None

    def read_part(self, name: str, part: Part, item_bytes: int) -> ReadableBuffer:
        """The raw bytes of `part` of the tensor `name`, of numbers of `item_bytes`.

        Raises `CheckpointError` naming tensor and object where they are not what was stored.
        """
        raw = self._decode(TensorPart(name, part, item_bytes), above=0)
        # An object that is the part, byte for byte, was compared as it was read.
        is_object = (part.encoding, part.stored.digest) == (Encoding.RAW, part.digest)
        if not is_object and sha256(raw).hexdigest() != part.digest:
            _refuse(name, part, "its bytes do not have their hash")
        return raw

    def _decode(self, known: TensorPart, *, above: int) -> ReadableBuffer:
        name, part, item_bytes = known
        base = None
        if part.base is not None:
            found, at = self._find_base(name, part, above)
            # Its own hash is not compared: the whole's is, and it depends on every byte below.
            base = self._decode(found, above=at)
            if len(base) != part.raw_bytes:
                _refuse(name, part, "its base has another size")
        data = memoryview(self._object_of(name, part))[part.start : part.start + part.length]
        try:
            return decode_part(
                data, part.encoding, raw_bytes=part.raw_bytes, item_bytes=item_bytes, base=base
            )
        except CheckpointError as error:
            _refuse(name, part, error.message, error)

    def _find_base(self, name: str, part: Part, above: int) -> tuple[TensorPart, int]:
        held = (
            (index[part.base], above + 1 + up)
            for up, index in enumerate(self._indexes[above + 1 :])
            if part.base in index
        )
        found = next(held, None)
        if found is None:
            _refuse(name, part, f"no ancestor holds its base {part.base}")
        return found

    def _object_of(self, name: str, part: Part) -> bytes:
        if part.length == part.stored.size:
            return self._store.objects.get_object(part.stored, name)
        with self._lock:
            kept = self._shared.get(part.stored)
            if kept is not None:
                self._shared.move_to_end(part.stored)
                return kept
        data = self._store.objects.get_object(part.stored, name)
        with self._lock:
            self._shared[part.stored] = data
            while sum(map(len, self._shared.values())) > SHARED_BYTES_MAX:
                self._shared.popitem(last=False)
        return data


def ancestry_of(store: CheckpointStore, ref: CheckpointRef) -> list[CheckpointRef]:
    """A checkpoint and the ones it rests on, the nearest first. Raises `CheckpointError`."""
    manifest = store.read_manifest(ref)
    above = [one.ancestor for one in [manifest, *_ancestors_of(store, manifest)]]
    return [ref, *(one for one in above if one is not None)]


def _ancestors_of(store: CheckpointStore, manifest: Manifest) -> list[Manifest]:
    found: list[Manifest] = []
    below = manifest
    while below.ancestor is not None:
        if len(found) == CHAIN_MAX:
            raise CheckpointError(
                f"checkpoint {manifest.id} rests on more than {CHAIN_MAX} others",
                hint="it is damaged, or of another version of steplog; load an older checkpoint",
            )
        try:
            above = store.read_manifest(below.ancestor)
        except CheckpointIncompleteError as error:
            raise CheckpointIncompleteError(
                f"checkpoint {manifest.id} rests on {below.ancestor.id}: {error.message}",
                hint="restore it from a copy, or load another checkpoint",
            ) from error
        if above.generation >= below.generation:
            raise CheckpointError(
                f"checkpoint {below.id} rests on {above.id}, which is not before it",
                hint="it is damaged; load an older checkpoint",
            )
        found.append(above)
        below = above
    return found


def _index_of(manifest: Manifest) -> dict[str | None, TensorPart]:
    # Where several parts have the same bytes, one that stands alone is read with less work.
    index: dict[str | None, TensorPart] = {}
    for one in manifest.parts():
        if one.part.digest not in index or one.part.base is None:
            index[one.part.digest] = one
    return index


def _refuse(name: str, part: Part, what: str, cause: CheckpointError | None = None) -> NoReturn:
    raise CheckpointError(
        f"tensor {name!r}, object {part.stored.digest}: {what}",
        hint="restore the object from a copy, or load another checkpoint",
        tensor=name,
        object_digest=part.stored.digest,
    ) from cause
