"""What two checkpoints hold differently, by the names of tensors and values.

Hashes in the manifests say most of it; parts are read only to count numbers, or where two saves cut
a tensor in different ways (other ranks). Used by `steplog checkpoint diff`.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from snapshots.checkpoints.chunk_layout import check_cover, runs_of
from snapshots.checkpoints.manifest import ITEM_BYTES, Chunk, Part, TensorEntry, ValueEntry
from snapshots.checkpoints.parts import PartReader
from snapshots.checkpoints.value_difference import changed_places


class Changed(NamedTuple):
    """One name that differs. A side is None where the name is not there.

    Of a training's own values the name goes on to the place in it, as `.groups[0].lr`.
    For a tensor of one dtype and shape whose bytes differ: of `parts`, `parts_changed` (both None
    where the two are not cut alike), and of `numbers`, `numbers_changed` where they were counted.
    """

    name: str
    before: TensorEntry | ValueEntry | None
    after: TensorEntry | ValueEntry | None
    parts: int | None = None
    parts_changed: int | None = None
    numbers: int | None = None
    numbers_changed: int | None = None


def compare_checkpoints(
    before: PartReader, after: PartReader, *, count_numbers: bool = False
) -> Iterator[Changed]:
    """What differs, by name. Raises `CheckpointError` where a part that is read is damaged.

    `count_numbers` reads every part that changed. A tensor that was cut in another way is held in
    memory whole.
    """
    lefts, rights = _entries(before), _entries(after)
    for name in sorted(lefts.keys() | rights.keys()):
        left, right = lefts.get(name), rights.get(name)
        if isinstance(left, TensorEntry) and isinstance(right, TensorEntry):
            if (left.dtype, left.shape) != (right.dtype, right.shape):
                yield Changed(name, left, right)
            elif _layout(left) == _layout(right):
                yield from _compare_parts(name, left, right, before, after, count_numbers)
            else:
                yield from _compare_bytes(name, left, right, before, after)
        elif isinstance(left, ValueEntry) and isinstance(right, ValueEntry):
            if left.data != right.data:
                yield from (Changed(*place) for place in changed_places(name, left, right))
        else:
            yield Changed(name, left, right)


def changed_numbers(left: bytes, right: bytes, item_bytes: int) -> int:
    """How many numbers of `item_bytes` differ in two runs of equal length; pure.

    >>> changed_numbers(b"\\0\\1\\0\\0", b"\\0\\0\\0\\0", 2)
    1
    """
    # Whole runs as one number each: that goes at the speed of memory without any package.
    differing = int.from_bytes(left, "little") ^ int.from_bytes(right, "little")
    xor = differing.to_bytes(len(left), "little")
    marks = 0
    for plane in range(item_bytes):
        marks |= int.from_bytes(xor[plane::item_bytes], "little")
    count = len(left) // item_bytes
    return count - marks.to_bytes(count, "little").count(0)


def _entries(reader: PartReader) -> dict[str, TensorEntry | ValueEntry]:
    return {**reader.manifest.tensors, **reader.manifest.values}


def _layout(tensor: TensorEntry) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    return [
        (chunk.offset, chunk.shape, tuple(part.raw_bytes for part in chunk.parts))
        for chunk in _chunks(tensor)
    ]


def _compare_parts(
    name: str,
    left: TensorEntry,
    right: TensorEntry,
    before: PartReader,
    after: PartReader,
    count_numbers: bool,
) -> Iterator[Changed]:
    pairs = list(zip(_parts(left), _parts(right), strict=True))
    changed = [(old, new) for old, new in pairs if old.digest != new.digest]
    if not changed:
        return
    item_bytes = ITEM_BYTES[left.dtype]
    numbers = None
    if count_numbers:
        numbers = sum(
            changed_numbers(
                bytes(before.read_part(name, old, item_bytes)),
                bytes(after.read_part(name, new, item_bytes)),
                item_bytes,
            )
            for old, new in changed
        )
    yield Changed(name, left, right, len(pairs), len(changed), math.prod(left.shape), numbers)


def _compare_bytes(
    name: str, left: TensorEntry, right: TensorEntry, before: PartReader, after: PartReader
) -> Iterator[Changed]:
    wholes = _bytes_of(name, left, before), _bytes_of(name, right, after)
    numbers = changed_numbers(*wholes, ITEM_BYTES[left.dtype])
    if numbers:
        yield Changed(name, left, right, numbers=math.prod(left.shape), numbers_changed=numbers)


def _bytes_of(name: str, tensor: TensorEntry, reader: PartReader) -> bytes:
    """The whole tensor in C order, its chunks put together."""
    check_cover(name, tensor.shape, [(one.offset, one.shape) for one in tensor.chunks])
    item_bytes = ITEM_BYTES[tensor.dtype]
    whole = bytearray(math.prod(tensor.shape) * item_bytes)
    for chunk in tensor.chunks:
        at = 0
        for part in chunk.parts:
            raw = memoryview(reader.read_part(name, part, item_bytes))
            first, count = at // item_bytes, len(raw) // item_bytes
            block = (chunk.offset, chunk.shape)
            for place, into, run in runs_of(tensor.shape, block, first, first + count):
                start = (place - first) * item_bytes
                whole[into * item_bytes : (into + run) * item_bytes] = raw[
                    start : start + run * item_bytes
                ]
            at += len(raw)
    return bytes(whole)


def _parts(tensor: TensorEntry) -> Iterator[Part]:
    return (part for chunk in _chunks(tensor) for part in chunk.parts)


def _chunks(tensor: TensorEntry) -> list[Chunk]:
    return sorted(tensor.chunks, key=lambda chunk: (chunk.offset, chunk.shape))
