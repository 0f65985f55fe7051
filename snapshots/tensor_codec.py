"""The stored form of a part of a tensor: raw, zstd on byte planes, or the XOR with a base's bytes.

Bytes in, bytes out: this module knows no tensor, file or hash. A weight's highest byte (sign and
exponent) takes few values, the lower ones are noise, so the bytes are first brought into planes:
plane k holds byte k of each item. A plane that does not compress is kept raw. Which form is used is
decided on a sample, so a part that gains nothing costs little. What is damaged leaves as
`CheckpointError`; the caller, who knows tensor and object, adds their names.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from types import ModuleType
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError, SnapshotError
from snapshots.compression import ReadableBuffer, read_bare, write_dense, write_sparse
from snapshots.sparse_items import (
    WIDTHS,
    SparseItems,
    change_items,
    find_items,
    gaps_bytes_max,
)

BLOCK_BYTES: Final = 1 << 20
"""Raw bytes whose planes are stored together: they stay in a processor's cache."""
PART_BYTES_MAX: Final = 1 << 26
"""Most raw bytes of one part; a reader allocates no more than this for one."""

_SAMPLE_BYTES: Final = 1 << 14  # of each place that is looked at
_SAMPLE_PLACES: Final = 4
_WORTH_IT: Final = 0.97  # a plane is compressed if it comes below this share of its bytes
_ENTRY_BYTES: Final = 4
_IS_FRAME: Final = 1 << 31

# Shifting whole items and cutting off the rest gives a plane at twice to four times the speed of
# taking every k-th byte; there are such items of these sizes only.
_SHIFTED: Final = frozenset((2, 4, 8))


class Encoding(StrEnum):
    """How a part is stored. The names stand in manifests and never change."""

    RAW = "raw"
    ZSTD = "zstd"
    PLANES = "planes+zstd"
    XOR = "xor+zstd"
    XOR_PLANES = "xor+planes+zstd"
    XOR_SPARSE = "xor+sparse+zstd"

    @property
    def needs_base(self) -> bool:
        """Whether only the base's bytes open it."""
        return self in _NEED_BASE


_NEED_BASE: Final = frozenset((Encoding.XOR, Encoding.XOR_PLANES, Encoding.XOR_SPARSE))


class EncodedPart(NamedTuple):
    """A part as it is stored: its bytes come in pieces, made as they are asked for."""

    encoding: Encoding
    pieces: Iterator[ReadableBuffer]


def encode_part(
    raw: ReadableBuffer, *, item_bytes: int, base: ReadableBuffer | None = None
) -> EncodedPart:
    """The smallest form of `raw`, as a sample of it shows.

    `item_bytes` is the size of one number. With `base`, of as many bytes, the difference to it is
    stored where that is smaller. `raw` and `base` must not change until the last piece was taken.
    Pure: the same arguments give the same bytes with the same zstd.
    """
    _check_sizes(len(raw), item_bytes, base)
    view = memoryview(raw).cast("B")
    best_bytes, best = _cheapest(view, item_bytes, (Encoding.PLANES, Encoding.ZSTD))
    source = view
    if base is not None and len(view):
        difference = memoryview(_xor(view, base))
        ways = [Encoding.XOR, Encoding.XOR_PLANES]
        if item_bytes in WIDTHS:
            ways.append(Encoding.XOR_SPARSE)
        xor_bytes, xor = _cheapest(difference, item_bytes, ways)
        if xor_bytes < best_bytes:
            best_bytes, best, source = xor_bytes, xor, difference
    if best_bytes >= _WORTH_IT * min(len(view), _SAMPLE_PLACES * _SAMPLE_BYTES):
        return EncodedPart(Encoding.RAW, iter((view,)))
    return EncodedPart(best, _WRITERS[best](source, item_bytes))


def decode_part(
    data: ReadableBuffer,
    encoding: Encoding,
    *,
    raw_bytes: int,
    item_bytes: int,
    base: ReadableBuffer | None = None,
) -> ReadableBuffer:
    """The `raw_bytes` bytes that `encode_part` was given; the caller compares their hash.

    `base` may be changed where it is a `bytearray`: the caller gives it away.

    Raises `CheckpointError` where the bytes are cut, altered or of another size, or where a base is
    needed and not given.
    """
    _check_sizes(raw_bytes, item_bytes, base)
    if raw_bytes > PART_BYTES_MAX:
        raise _damage(f"is said to hold {raw_bytes} bytes; at most {PART_BYTES_MAX} are read")
    if encoding.needs_base and base is None:
        raise _damage("needs a base that is not there")
    try:
        if encoding is Encoding.XOR_SPARSE and base is not None:
            return _read_sparse(memoryview(data), item_bytes, base)
        raw = _READERS[encoding](memoryview(data), raw_bytes, item_bytes)
    except SnapshotError as error:
        raise _damage(f"does not decode: {error.message}") from error
    if len(raw) != raw_bytes:
        raise _damage(f"holds {len(raw)} bytes; {raw_bytes} are expected")
    return _xor(raw, base) if encoding.needs_base and base is not None else raw


def _check_sizes(raw_bytes: int, item_bytes: int, base: ReadableBuffer | None) -> None:
    if item_bytes <= 0 or raw_bytes % item_bytes:
        raise ValueError(f"{raw_bytes} bytes are no whole number of items of {item_bytes}")
    if base is not None and len(base) != raw_bytes:
        raise ValueError(f"the base has {len(base)} bytes, not {raw_bytes}")


def _cheapest(
    view: memoryview, item_bytes: int, encodings: Sequence[Encoding]
) -> tuple[int, Encoding]:
    """The size that a sample has in the best of these forms, and that form; the first wins ties."""
    sample = _sample_of(view, item_bytes)
    sizes = [(sum(map(len, _WRITERS[one](sample, item_bytes))), one) for one in encodings]
    return min(sizes, key=lambda each: each[0])


def _sample_of(view: memoryview, item_bytes: int) -> memoryview:
    length = _SAMPLE_BYTES - _SAMPLE_BYTES % item_bytes
    if len(view) <= _SAMPLE_PLACES * length:
        return view
    items_apart = (len(view) - length) // (_SAMPLE_PLACES - 1) // item_bytes
    starts = [place * items_apart * item_bytes for place in range(_SAMPLE_PLACES)]
    return memoryview(b"".join(view[start : start + length] for start in starts))


def _write_zstd(view: memoryview, _item_bytes: int) -> Iterator[ReadableBuffer]:
    yield write_sparse(view)


def _write_planes(view: memoryview, item_bytes: int) -> Iterator[ReadableBuffer]:
    """Per block, per plane: a little-endian u32 of length and frame bit, then the plane's bytes."""
    # Numbers of one tensor are alike: a plane that did not compress in one block is not tried in
    # the next three, so noise costs a quarter of its compression.
    pause = [0] * item_bytes
    for block in _blocks_of(view):
        for index, plane in enumerate(_planes_of(block, item_bytes)):
            frame = None
            if pause[index]:
                pause[index] -= 1
            else:
                frame = _try_dense(plane)
                pause[index] = 3 if frame is None else 0
            data, flag = (plane, 0) if frame is None else (frame, _IS_FRAME)
            yield (len(data) | flag).to_bytes(_ENTRY_BYTES, "little")
            yield data


def _write_sparse_items(view: memoryview, item_bytes: int) -> Iterator[ReadableBuffer]:
    """u32 count, u32 bytes of gaps, the gaps as a plane, then each plane of the changed items."""
    found = find_items(view, item_bytes, _numpy())
    yield found.changed.to_bytes(_ENTRY_BYTES, "little")
    yield len(found.gaps).to_bytes(_ENTRY_BYTES, "little")
    for plane in (memoryview(found.gaps), *_planes_of(memoryview(found.items), item_bytes)):
        frame = _try_dense(plane)
        data, flag = (plane, 0) if frame is None else (frame, _IS_FRAME)
        yield (len(data) | flag).to_bytes(_ENTRY_BYTES, "little")
        yield data


def _try_dense(plane: memoryview) -> bytes | None:
    """The plane as a frame, None where its front already shows that it does not compress."""
    front = plane[: _SAMPLE_BYTES // 2]
    if len(front) < len(plane) and len(write_dense(front)) > len(front) * _WORTH_IT:
        return None
    frame = write_dense(plane)
    return frame if len(frame) <= len(plane) * _WORTH_IT else None


def _read_raw(data: memoryview, _raw_bytes: int, _item_bytes: int) -> ReadableBuffer:
    return data


def _read_zstd(data: memoryview, raw_bytes: int, _item_bytes: int) -> bytes:
    return read_bare(data, raw_bytes=raw_bytes)


def _read_planes(data: memoryview, raw_bytes: int, item_bytes: int) -> ReadableBuffer:
    out = bytearray(raw_bytes)
    view = memoryview(out)
    at = 0
    for block in _blocks_of(view):
        planes = []
        for _ in range(item_bytes):
            plane, at = _read_plane(data, at, len(block) // item_bytes)
            planes.append(plane)
        _join_planes(planes, block)
    if at != len(data):
        raise _damage(f"has {len(data)} bytes; its planes end at {at}")
    return out


def _read_sparse(data: memoryview, item_bytes: int, base: ReadableBuffer) -> bytearray:
    """The base's bytes with the changed items in place."""
    count = int.from_bytes(data[:_ENTRY_BYTES], "little")
    gaps_bytes = int.from_bytes(data[_ENTRY_BYTES : 2 * _ENTRY_BYTES], "little")
    among = len(base) // item_bytes
    if count > among or gaps_bytes > gaps_bytes_max(count, among):
        raise _damage(f"changes {count} numbers of {among}")
    gaps, at = _read_plane(data, 2 * _ENTRY_BYTES, gaps_bytes)
    planes = []
    for _ in range(item_bytes):
        plane, at = _read_plane(data, at, count)
        planes.append(plane)
    if at != len(data):
        raise _damage(f"has {len(data)} bytes; its planes end at {at}")
    items = bytearray(count * item_bytes)
    _join_planes(planes, memoryview(items))
    # In place where the base is the last difference's own result, which nobody else holds.
    out = base if isinstance(base, bytearray) else bytearray(base)
    if not change_items(out, SparseItems(count, gaps, items), item_bytes, _numpy()):
        raise _damage("changes numbers that are not there")
    return out


def _read_plane(data: memoryview, at: int, plane_bytes: int) -> tuple[ReadableBuffer, int]:
    start = at + _ENTRY_BYTES
    entry = int.from_bytes(data[at:start], "little")
    end = start + (entry & ~_IS_FRAME)
    if start > len(data) or end > len(data):
        raise _damage("is cut short")
    if entry & _IS_FRAME:
        return read_bare(data[start:end], raw_bytes=plane_bytes), end
    if end - start != plane_bytes:
        raise _damage(f"has a plane of {end - start} bytes; {plane_bytes} are expected")
    return data[start:end], end


def _blocks_of(view: memoryview) -> Iterator[memoryview]:
    # A block is a whole number of items of every size that tensors have (powers of two).
    for start in range(0, len(view), BLOCK_BYTES):
        yield view[start : start + BLOCK_BYTES]


def _planes_of(block: memoryview, item_bytes: int) -> list[memoryview]:
    if item_bytes == 1:
        return [block]
    numpy = _numpy()
    if numpy is None:
        data = bytes(block)
        return [memoryview(data[index::item_bytes]) for index in range(item_bytes)]
    if item_bytes in _SHIFTED:
        items = numpy.frombuffer(block, f"<u{item_bytes}")
        return [
            memoryview((items >> 8 * index if index else items).astype("u1"))
            for index in range(item_bytes)
        ]
    rows = numpy.frombuffer(block, "u1").reshape(-1, item_bytes)
    return [memoryview(numpy.ascontiguousarray(rows[:, index])) for index in range(item_bytes)]


def _join_planes(planes: list[ReadableBuffer], block: memoryview) -> None:
    """Write the items that these planes hold into `block`."""
    numpy = _numpy()
    if len(planes) == 1:
        block[:] = planes[0]
    elif numpy is None:
        items = bytearray(len(block))
        for index, plane in enumerate(planes):
            items[index :: len(planes)] = plane
        block[:] = items
    elif len(planes) in _SHIFTED:
        whole = numpy.frombuffer(block, f"<u{len(planes)}")
        whole[:] = numpy.frombuffer(planes[-1], "u1")
        for plane in reversed(planes[:-1]):
            whole <<= 8
            whole |= numpy.frombuffer(plane, "u1")
    else:
        rows = numpy.frombuffer(block, "u1").reshape(-1, len(planes))
        for index, plane in enumerate(planes):
            rows[:, index] = numpy.frombuffer(plane, "u1")


def _xor(left: ReadableBuffer, right: ReadableBuffer) -> ReadableBuffer:
    numpy = _numpy()
    if numpy is None:
        both = int.from_bytes(left, "little") ^ int.from_bytes(right, "little")
        return both.to_bytes(len(left), "little")
    # Eight bytes at a time, and what is left over singly.
    whole = len(left) & ~7
    out = bytearray(len(left))
    for start, end, kind in ((0, whole, "<u8"), (whole, len(left), "u1")):
        numpy.bitwise_xor(
            numpy.frombuffer(memoryview(left)[start:end], kind),
            numpy.frombuffer(memoryview(right)[start:end], kind),
            out=numpy.frombuffer(memoryview(out)[start:end], kind),
        )
    return out


def _numpy() -> ModuleType | None:
    """numpy where it is installed: the same bytes at several times the speed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _damage(what: str) -> CheckpointError:
    return CheckpointError(
        f"the stored part {what}",
        hint="the stored bytes are damaged or not steplog's; load an older checkpoint",
    )


_WRITERS: Final[dict[Encoding, Callable[[memoryview, int], Iterator[ReadableBuffer]]]] = {
    Encoding.ZSTD: _write_zstd,
    Encoding.PLANES: _write_planes,
    Encoding.XOR: _write_zstd,
    Encoding.XOR_PLANES: _write_planes,
    Encoding.XOR_SPARSE: _write_sparse_items,
}
_READERS: Final[dict[Encoding, Callable[[memoryview, int, int], ReadableBuffer]]] = {
    Encoding.RAW: _read_raw,
    Encoding.ZSTD: _read_zstd,
    Encoding.PLANES: _read_planes,
    Encoding.XOR: _read_zstd,
    Encoding.XOR_PLANES: _read_planes,
}
