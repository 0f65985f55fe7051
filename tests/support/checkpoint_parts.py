"""Checkpoints made without torch: names and bytes in, a committed manifest out."""

import time
from collections.abc import Mapping
from secrets import token_hex

from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef, Chunk, Manifest, TensorEntry, ValueEntry
from snapshots.checkpoints.part_writer import PartWriter
from snapshots.checkpoints.parts import PartReader


def write_checkpoint(
    store: CheckpointStore,
    step: int,
    tensors: Mapping[str, bytes],
    *,
    ancestor: CheckpointRef | None = None,
    generation: int = 0,
    values: Mapping[str, bytes] | None = None,
    threads: int = 2,
) -> CheckpointRef:
    """Commit tensors of uint8; with `ancestor` as differences to its tensors."""
    head = store.head()
    above = None if ancestor is None else PartReader(store, store.read_manifest(ancestor))
    known = None if head is None else PartReader(store, store.read_manifest(head))
    with PartWriter(store, head=known, ancestor=above, threads=threads) as writer:
        begun = {}
        for name, data in tensors.items():
            entry = None if above is None else above.manifest.tensors.get(name)
            base = entry.chunks[0] if entry is not None else None
            begun[name] = writer.add_chunk(name, memoryview(data), 1, base)
        writer.finish()
    entries = {}
    for name, parts in begun.items():
        kept = tuple(part for part in parts if part is not None)
        assert len(kept) == len(parts)
        shape = (len(tensors[name]),)
        entries[name] = TensorEntry("uint8", shape, (Chunk((0,), shape, kept),), (name,))
    rests = any(part.base for entry in entries.values() for part in entry.chunks[0].parts)
    manifest = Manifest(
        id=token_hex(8),
        training_step=step,
        world_size=1,
        created_ns=time.time_ns(),
        versions={},
        generation=generation if rests else 0,
        ancestor=ancestor if rests else None,
        tensors=entries,
        values={name: ValueEntry(data, (name,)) for name, data in (values or {}).items()},
    )
    return store.commit_checkpoint(manifest, expected_head=head)


def read_checkpoint(store: CheckpointStore, ref: CheckpointRef) -> dict[str, bytes]:
    """The bytes of all its tensors."""
    reader = PartReader(store, store.read_manifest(ref))
    return {
        name: b"".join(
            bytes(reader.read_part(name, part, 1)) for chunk in entry.chunks for part in chunk.parts
        )
        for name, entry in reader.manifest.tensors.items()
    }
