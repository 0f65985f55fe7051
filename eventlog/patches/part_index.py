"""`PartIndex`: where the entries of a large container lie in canonical bytes.

Reading a large state entry by entry costs more than encoding it, so the places of its entries are
kept from step to step: the index of the next bytes is drawn from the index of the last ones, and
only what differs is read. Offsets are relative to the container's first byte, so an entry that
moved keeps its own index. Used by the state diff; holds no values.
"""

from bisect import bisect_right
from typing import Final

from eventlog.patches.canonical_spans import (
    FIXED_SIZES,
    Kind,
    Layout,
    end_of,
    key_at,
    layout_at,
)
from eventlog.patches.sequence_alignment import common_prefix

# Smaller containers are read again when they differ: that costs less than 0.2 ms.
INDEXED_BYTES_MIN: Final = 16 * 1024
# Where the next key is looked for first: few keys are removed at a time.
_NEAR_ENTRIES: Final = 3
# Kinds whose entries have a key (a tuple: an Enum is slow to hash).
KEYED: Final = (Kind.MAP, Kind.PAIRS)
# Heads of arrays and maps of 16 entries and more: read for an index without knowing their size.
_MANY_ENTRIES_HEAD: Final = 0xDC
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


def read_index(
    data: bytes, base: int, layout: Layout, like: PartIndex | None = None, alike: int = 0
) -> PartIndex:
    """Read the places of all entries of the container at `base`.

    Its first `alike` entries have the same bytes as those of `like`, and are not read again.
    """
    at = layout.first
    ends: list[int] = []
    if like is not None and alike:
        shift = layout.first - base - like.first
        ends = [place + shift for place in like.ends[:alike]]
        at = base + ends[-1]
    pair = layout.kind is Kind.MAP
    for _ in range(alike, layout.entry_count):
        if pair:
            size = FIXED_SIZES[data[at]]
            at = at + size if size else end_of(data, at)
        size = FIXED_SIZES[data[at]]
        at = at + size if size else end_of(data, at)
        ends.append(at - base)
    return PartIndex(layout.kind, layout.first - base, ends)


def large_parts(data: bytes) -> PartIndex | None:
    """The index of canonical bytes, read at once; None where they are small or no container."""
    if len(data) < INDEXED_BYTES_MIN:
        return None
    return _read_parts_at(data, 0, LEVELS_MAX)[0]


def read_parts(
    data: bytes, base: int, layout: Layout, levels: int = LEVELS_MAX
) -> tuple[PartIndex, int]:
    """As `read_index`, of the container and of all large ones in it; and where it ends."""
    keyed, pair_head = layout.kind in KEYED, key_at(layout.kind, 0)
    at = layout.first
    ends: list[int] = []
    parts: dict[int, PartIndex] = {}
    for number in range(layout.entry_count):
        if keyed:
            at += pair_head
            size = FIXED_SIZES[data[at]]
            at = at + size if size else end_of(data, at)
        head = data[at]
        size = FIXED_SIZES[head]
        if size:
            at += size
        else:
            start, part = at, None
            if head >= _MANY_ENTRIES_HEAD and levels:
                part, at = _read_parts_at(data, start, levels - 1)
            else:
                at = end_of(data, start)
                if levels and at - start >= INDEXED_BYTES_MIN:
                    part, _ = _read_parts_at(data, start, levels - 1)
            if part is not None and at - start >= INDEXED_BYTES_MIN:
                parts[number] = part
        ends.append(at - base)
    return PartIndex(layout.kind, layout.first - base, ends, parts), at


def _read_parts_at(data: bytes, at: int, levels: int) -> tuple[PartIndex | None, int]:
    layout = layout_at(data, at)
    return read_parts(data, at, layout, levels) if layout else (None, end_of(data, at))


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
        self._passed_over: list[int] = []
        self._numbers: dict[bytes, int] | None = None

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
        kind, count = self._index.kind, len(self._index.ends)
        if kind not in KEYED:
            if not self._missed:
                self._missed = True
                return number if number < count else None
            if self._numbers is None:
                self._numbers = {self._entry(other): other for other in range(count)}
            return self._numbers.get(new[at : end_of(new, at)])
        start = key_at(kind, at)
        key = new[start : end_of(new, start)]
        for near in range(number, min(number + _NEAR_ENTRIES, count)):
            if self._key(near) == key:
                self._passed_over += range(number, near)
                return near
        if self._numbers is None:
            rest = (*self._passed_over, *range(number, count))
            self._numbers = {self._key(other): other for other in rest}
        return self._numbers.get(key)

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
