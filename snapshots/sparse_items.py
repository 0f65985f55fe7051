"""Few changed numbers among many: where they are, as gaps, and what they became.

After one RL step 1 to 5 of 100 numbers of a policy have changed. A gap is the count of unchanged
numbers before the next changed one; it is written as one byte below 255, after as many bytes 255 as
255 goes into it: those say 255 unchanged numbers and no change. So gaps need no width of their own,
and compress to little more than chance itself. Used by the tensor codec.
"""

import re
from types import ModuleType
from typing import Final, NamedTuple

from snapshots.compression import ReadableBuffer

WIDTHS: Final = frozenset((1, 2, 4, 8))
"""Sizes of numbers, in bytes, that this is for."""

_SKIP: Final = 255
_NONZERO: Final = re.compile(rb"[^\0]")


class SparseItems(NamedTuple):
    """The `changed` items that are not zero: their gaps, and their bytes one after the other."""

    changed: int
    gaps: ReadableBuffer
    items: ReadableBuffer


def find_items(data: ReadableBuffer, width: int, numpy: ModuleType | None) -> SparseItems:
    """What of `data`, numbers of `width` bytes, is not zero."""
    if numpy is None:
        raw = bytes(data)
        places = list(dict.fromkeys(found.start() // width for found in _NONZERO.finditer(raw)))
        kept = b"".join(raw[place * width : (place + 1) * width] for place in places)
        gaps = bytearray()
        for before, place in zip([-1, *places], places, strict=False):
            skips, rest = divmod(place - before - 1, _SKIP)
            gaps += bytes([_SKIP]) * skips + bytes([rest])
        return SparseItems(len(places), bytes(gaps), kept)
    items = numpy.frombuffer(data, f"<u{width}")
    places = numpy.flatnonzero(items)
    skips, rest = numpy.divmod(numpy.diff(places, prepend=-1) - 1, _SKIP)
    ends = numpy.cumsum(skips + 1)
    gaps = numpy.full(int(ends[-1]) if len(ends) else 0, _SKIP, "u1")
    gaps[ends - 1] = rest
    return SparseItems(len(places), _bytes_of(gaps), _bytes_of(items[places].view("u1")))


def gaps_bytes_max(count: int, among: int) -> int:
    """Most bytes that the gaps of `count` items take among so many."""
    return count + among // _SKIP + 1


def change_items(into: bytearray, found: SparseItems, width: int, numpy: ModuleType | None) -> bool:
    """XOR the items into `into`; False where they do not fit, and then nothing was changed."""
    among = len(into) // width
    if numpy is None:
        places, at = [], -1
        for gap in bytes(found.gaps):
            at += gap if gap == _SKIP else gap + 1
            if gap != _SKIP:
                places.append(at)
        if len(places) != found.changed or (places and places[-1] >= among):
            return False
        items = bytes(found.items)
        for number, place in enumerate(places):
            for byte in range(width):
                into[place * width + byte] ^= items[number * width + byte]
        return True
    gaps = numpy.frombuffer(found.gaps, "u1")
    is_item = gaps != _SKIP
    # A gap of g moves by g + 1, a skip by 255.
    kept = numpy.add(gaps, is_item, dtype="i8").cumsum()[is_item] - 1
    if len(kept) != found.changed or (len(kept) and int(kept[-1]) >= among):
        return False
    whole = numpy.frombuffer(into, f"<u{width}")
    whole[kept] ^= numpy.frombuffer(found.items, f"<u{width}")
    return True


def _bytes_of(array: object) -> ReadableBuffer:
    return memoryview(array.tobytes())  # type: ignore[attr-defined]
