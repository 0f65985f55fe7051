"""`PartIndex`: where the entries of a large container lie in canonical bytes.

Reading a 2.5 MB state entry by entry costs more than encoding it, so the places of its entries are
kept from step to step: the index of the next bytes is drawn from the index of the last ones, and
only what differs is read. Offsets are relative to the container's first byte, so an entry that
moved keeps its own index. Used by the state diff; holds no values.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from eventlog.canonical import encode
from eventlog.canonical_spans import (
    FIXED_SIZES,
    Kind,
    Layout,
    array_head,
    end_of,
    key_at,
    layout_at,
    map_head,
)
from eventlog.sequence_alignment import common_prefix

# Smaller containers are read again when they differ: that costs less than 0.2 ms.
INDEXED_BYTES_MIN: Final = 16 * 1024
# Kinds whose entries have a key.
KEYED: Final = frozenset({Kind.MAP, Kind.PAIRS})
# A container with as many entries is taken to be large before its size is known.
_MANY_ENTRIES: Final = 32
_LOOK_AHEAD_LEVELS: Final = 3
# Levels of containers that may have an index; deeper ones are read again when they differ.
LEVELS_MAX: Final = 8


class PartIndex:
    """The entries of one container, from `first` on; `ends[n]` is where entry n ends.

    An entry of a dict is its key and its value. `parts` are the indexes of large values, by entry.
    """

    __slots__ = ("ends", "first", "kind", "parts")

    def __init__(
        self, kind: Kind, first: int, ends: list[int], parts: "dict[int, PartIndex] | None" = None
    ) -> None:
        self.kind = kind
        self.first = first
        self.ends = ends
        self.parts = {} if parts is None else parts

    def start(self, number: int) -> int:
        """Where entry `number` begins."""
        return self.ends[number - 1] if number else self.first

    def value_start(self, data: bytes, base: int, number: int) -> int:
        """Where the value of entry `number` begins, of the container at `base` in `data`."""
        start = self.start(number)
        if self.kind not in KEYED:
            return start
        return end_of(data, base + key_at(self.kind, start)) - base


def read_index(data: bytes, base: int, layout: Layout) -> PartIndex:
    """Read the places of all entries of the container at `base`."""
    at = layout.first
    ends = []
    pair = layout.kind is Kind.MAP
    for _ in range(layout.entry_count):
        if pair:
            size = FIXED_SIZES[data[at]]
            at = at + size if size else end_of(data, at)
        size = FIXED_SIZES[data[at]]
        at = at + size if size else end_of(data, at)
        ends.append(at - base)
    return PartIndex(layout.kind, layout.first - base, ends)


def encode_indexed(value: object, *, levels: int = LEVELS_MAX) -> tuple[bytes, PartIndex | None]:
    """The canonical bytes of a value in opaque form, and the index of its large containers.

    The same bytes as `encode`, at nearly its speed: a large container is put together from its
    entries, whose sizes are the index. None where the value is not a list or a plain dict.
    """
    items: Iterable[object]
    if type(value) is list:
        kind, head, items = Kind.ARRAY, array_head(len(value)), value
        keys: Iterable[bytes] = repeat(b"", len(value))
    elif type(value) is dict and _is_plain(value):
        kind, head, items = Kind.MAP, map_head(len(value)), value.values()
        keys = map(encode, value)
    else:
        return encode(value), None
    pieces = [head]
    ends: list[int] = []
    parts: dict[int, PartIndex] = {}
    at = len(head)
    look_ahead = 0 if len(items) >= _MANY_ENTRIES else _LOOK_AHEAD_LEVELS
    for key, item in zip(keys, items, strict=True):
        part = None
        piece = b"" if levels and _is_large(item, look_ahead) else encode(item)
        if levels and (not piece or len(piece) >= INDEXED_BYTES_MIN):
            piece, part = encode_indexed(item, levels=levels - 1)
        if part is not None and len(piece) >= INDEXED_BYTES_MIN:
            parts[len(ends)] = part
        pieces += (key, piece)
        at += len(key) + len(piece)
        ends.append(at)
    return b"".join(pieces), PartIndex(kind, len(head), ends, parts)


def _is_plain(value: dict[object, object]) -> bool:
    """Whether a dict is encoded as a map: its keys are str that UTF-8 can encode."""
    try:
        for key in value:
            if type(key) is not str:
                return False
            if not key.isascii():
                key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_large(value: object, levels: int) -> bool:
    """Guess, without encoding, whether a container is worth an index of its own."""
    items: Iterable[object]
    if type(value) is dict:
        items = value.values()
    elif type(value) is list:
        items = value
    else:
        return False
    if len(value) >= _MANY_ENTRIES:
        return True
    return levels > 0 and any(_is_large(item, levels - 1) for item in items)


def follow_index(
    old: bytes, old_base: int, index: PartIndex, new: bytes, base: int
) -> tuple[PartIndex | None, int]:
    """The index of the container at `base` in `new`, and where it ends, reading only what differs.

    Drawn from `index`, of the container at `old_base` in `old`; None where the new one is of
    another kind. Items are prefix-free: where all bytes of an old entry stand at a place at which a
    new entry begins, the new entry is that old one. So a run of equal bytes gives the ends of all
    its entries, wherever it moved to.
    """
    layout = layout_at(new, base)
    if layout is None or layout.kind is not index.kind:
        return None, end_of(new, base)
    found = PartIndex(layout.kind, layout.first - base, [])
    entries = _OldEntries(old, old_base, index)
    at, number = layout.first, 0
    while len(found.ends) < layout.entry_count:
        room = layout.entry_count - len(found.ends)
        run_end = entries.run_end(number, new, at, room)
        if run_end == number:
            match = entries.find(number, new, at)
            if match is not None and match != number:
                number = match
                run_end = entries.run_end(number, new, at, room)
        if run_end > number:
            entries.copy_run(number, run_end, found, at - base)
            number = run_end
            at = base + found.ends[-1]
            continue
        value_at = end_of(new, key_at(layout.kind, at)) if layout.kind in KEYED else at
        part = index.parts.get(number) if match is not None else None
        if part is None:
            at = end_of(new, value_at)
        else:
            was = old_base + index.value_start(old, old_base, number)
            part, at = follow_index(old, was, part, new, value_at)
            if part is not None:
                found.parts[len(found.ends)] = part
        found.ends.append(at - base)
        if match is not None:
            number += 1
    return found, at


class _OldEntries:
    """The entries of one old container, to be found again in new bytes."""

    def __init__(self, old: bytes, base: int, index: PartIndex) -> None:
        self._old = old
        self._base = base
        self._index = index
        self._missed = False
        self._numbers: dict[bytes, int] = {}

    def run_end(self, number: int, new: bytes, at: int, room: int) -> int:
        """Where the run of old entries that begins with `number` and stands at `at` ends.

        At most `room` entries; `number` itself if not even that entry stands there.
        """
        ends = self._index.ends
        if number >= len(ends):
            return number
        start = self._index.start(number)
        limit = min(ends[-1] - start, len(new) - at)
        same = common_prefix(self._old, self._base + start, new, at, limit)
        end = min(bisect_right(ends, start + same, number), number + room)
        if end > number:
            self._missed = False
        return end

    def find(self, number: int, new: bytes, at: int) -> int | None:
        """The old entry of which the new one at `at` is a change: `number` if it may be that one.

        Entries of a dict are known by their keys. In a list a first strange entry is taken for a
        change of the old one; after a second one, lists have moved, and equal bytes are looked for.
        """
        kind = self._index.kind
        if kind not in KEYED:
            if not self._missed:
                self._missed = True
                return number if number < len(self._index.ends) else None
            known = new[at : end_of(new, at)]
        else:
            start = key_at(kind, at)
            known = new[start : end_of(new, start)]
            if number < len(self._index.ends) and self._key(number) == known:
                return number
        if not self._numbers:
            name = self._key if kind in KEYED else self._entry
            self._numbers = {name(other): other for other in range(len(self._index.ends))}
        return self._numbers.get(known)

    def copy_run(self, number: int, end: int, found: PartIndex, at: int) -> None:
        """Add the run to `found`, whose next entry begins at `at`."""
        index = self._index
        shift = at - index.start(number)
        moved = len(found.ends) - number
        if shift:
            found.ends += [place + shift for place in index.ends[number:end]]
        else:
            found.ends += index.ends[number:end]
        for place, part in index.parts.items():
            if number <= place < end:
                found.parts[place + moved] = part

    def _entry(self, number: int) -> bytes:
        return self._old[
            self._base + self._index.start(number) : self._base + self._index.ends[number]
        ]

    def _key(self, number: int) -> bytes:
        start = self._base + key_at(self._index.kind, self._index.start(number))
        return self._old[start : end_of(self._old, start)]
