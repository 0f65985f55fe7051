"""How the patch between two states is found: on their canonical bytes, never on Python values.

Python's `==` mixes 1, True and 1.0, and ignores the order of keys; bytes do not, so here two parts
are the same exactly where a restored state would be. Sizes are known too, so wherever edits are not
smaller than the whole part, the whole part is set. Operations are made as canonical bytes (FORMATS
section 2), without building any value but edited texts. Pure. Used by `state_patch` and
`encoded_state`.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from eventlog.canonical import decode, encode
from eventlog.canonical_spans import (
    Kind,
    array_head,
    end_of,
    key_at,
    kind_at,
    layout_at,
    registered_name,
)
from eventlog.part_index import INDEXED_BYTES_MIN, KEYED, PartIndex, follow_index, read_index
from eventlog.sequence_alignment import Gap, Symbols, common_prefix, common_suffix, gaps_between
from eventlog.text_cuts import text_cuts

# Deeper parts are set whole: the walk takes three Python frames a level, of 1,000 by default.
DEPTH_MAX: Final = 64

_SET: Final = b"\x93\xa3set"
_DEL: Final = b"\x92\xa3del"
_CUT: Final = b"\x95\xa3cut"
_ORD: Final = b"\x93\xa3ord"


class Path(NamedTuple):
    """A path as canonical bytes, but for the head of its array.

    `depth` counts the containers it leads through: a registered type is one, but no path element.
    """

    length: int
    elements: bytes
    depth: int

    def then(self, element: bytes) -> "Path":
        """This path and one more key or index, in canonical bytes."""
        return Path(self.length + 1, self.elements + element, self.depth + 1)

    def encoded(self) -> bytes:
        """The canonical array."""
        return array_head(self.length) + self.elements


ROOT: Final = Path(0, b"", 0)


class Part:
    """A value inside canonical bytes. `index` says where its entries are, if that is known."""

    __slots__ = ("_keep", "data", "end", "index", "start")

    def __init__(
        self,
        data: bytes,
        start: int,
        end: int,
        index: PartIndex | None = None,
        keep: tuple[PartIndex, int] | None = None,
    ) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.index = index
        self._keep = keep

    def encoded(self) -> bytes:
        """The canonical bytes of this part."""
        return self.data[self.start : self.end]

    def entries(self) -> PartIndex:
        """The places of its entries; only for a map, pairs or an array."""
        if self.index is None:
            layout = layout_at(self.data, self.start)
            assert layout is not None
            self.index = read_index(self.data, self.start, layout)
            if self._keep is not None and self.end - self.start >= INDEXED_BYTES_MIN:
                above, number = self._keep
                above.parts[number] = self.index
        return self.index

    def entry(self, number: int) -> bytes:
        """The bytes of one entry: an item, or a key and its value."""
        index = self.entries()
        return self.data[self.start + index.start(number) : self.start + index.ends[number]]

    def key(self, number: int) -> bytes:
        """The canonical key of one entry of a dict."""
        index = self.entries()
        start = self.start + key_at(index.kind, index.start(number))
        return self.data[start : end_of(self.data, start)]

    def value(self, number: int) -> "Part":
        """The value of one entry."""
        index = self.entries()
        start = self.start + index.value_start(self.data, self.start, number)
        end = self.start + index.ends[number]
        return Part(self.data, start, end, index.parts.get(number), (index, number))

    def values_between(self, start: int, end: int) -> bytes:
        """The bytes of consecutive items of an array."""
        index = self.entries()
        return self.data[self.start + index.start(start) : self.start + index.start(end)]


class Edits:
    """Operations that make one part into another, as canonical bytes, and their size."""

    __slots__ = ("operations", "size")

    def __init__(self, *operations: bytes) -> None:
        self.operations = list(operations)
        self.size = sum(map(len, operations))

    def add(self, operation: bytes) -> None:
        """Append one operation."""
        self.operations.append(operation)
        self.size += len(operation)

    def extend(self, other: "Edits") -> None:
        """Append the operations of another."""
        self.operations += other.operations
        self.size += other.size


class _Middle(NamedTuple):
    """What remains of two containers without their equal first and last entries.

    Half-open ranges of entries that begin at `start` in both.
    """

    start: int
    before_end: int
    after_end: int


def patch_between(
    before: bytes, after: bytes, index: PartIndex | None, path: Path = ROOT
) -> tuple[bytes, PartIndex | None]:
    """The canonical patch from one value's canonical bytes to another's, and the index of `after`.

    `index` is that of `before`, or None to read it as far as needed; so is the one returned.
    """
    if before == after:
        return array_head(0), index
    old = Part(before, 0, len(before), index)
    new = Part(after, 0, len(after))
    if index is not None:
        new.index, _ = follow_index(before, 0, index, after, 0)
    edits = _find_edits(old, new, path)
    return array_head(len(edits.operations)) + b"".join(edits.operations), new.index


def _find_edits(before: Part, after: Part, path: Path) -> Edits:
    """The smallest edits found that give the value at `path` the bytes of `after`; they differ."""
    head = _SET + path.encoded()
    inner = _inner_edits(before, after, path)
    if inner is None or inner.size >= len(head) + after.end - after.start:
        return Edits(head + after.encoded())
    return inner


def _inner_edits(before: Part, after: Part, path: Path) -> Edits | None:
    """Edits inside a part; None where a patch cannot look into it, or not from one to the other."""
    if path.depth >= DEPTH_MAX:
        return None
    kind = kind_at(before.data, before.start)
    other = kind_at(after.data, after.start)
    if kind in KEYED and other in KEYED:
        return _dict_edits(before, after, path)
    if kind is not other or kind is Kind.ATOM:
        return None
    if kind is Kind.ARRAY:
        return _list_edits(before, after, path)
    if kind is Kind.REGISTERED:
        name = registered_name(before.data, before.start)
        if name != registered_name(after.data, after.start):
            return None
        # Not `_find_edits`: what may be set at this path is the registered value, not its inside.
        return _inner_edits(before.value(0), after.value(0), path._replace(depth=path.depth + 1))
    old, new = decode(before.encoded()), decode(after.encoded())
    if isinstance(old, str) and isinstance(new, str):
        return _text_edits(old, new, path)
    if isinstance(old, bytes) and isinstance(new, bytes):
        return _text_edits(old, new, path)
    return None


def _dict_edits(before: Part, after: Part, path: Path) -> Edits:
    middle = _middle(before, after)
    edits = Edits()
    same_keys = _pairs_in_place(before, after, middle)
    if same_keys is not None:
        for number in same_keys:
            key = before.key(number)
            edits.extend(_find_edits(before.value(number), after.value(number), path.then(key)))
        return edits
    old = {before.key(number): number for number in range(middle.start, middle.before_end)}
    new = {after.key(number): number for number in range(middle.start, middle.after_end)}
    for key in old:
        if key not in new:
            edits.add(_DEL + path.then(key).encoded())
    added = []
    for key, number in new.items():
        value = after.value(number)
        if key not in old:
            added.append(_SET + path.then(key).encoded() + value.encoded())
            continue
        was = before.value(old[key])
        if was.encoded() != value.encoded():
            edits.extend(_find_edits(was, value, path.then(key)))
    for operation in added:
        edits.add(operation)
    moved = _first_moved(len(before.entries().ends), middle, old, new)
    if moved is not None:
        keys = [after.key(number) for number in range(moved, len(after.entries().ends))]
        edits.add(_ORD + path.encoded() + array_head(len(keys)) + b"".join(keys))
    return edits


def _pairs_in_place(before: Part, after: Part, middle: _Middle) -> list[int] | None:
    """The entries whose values differ, where both dicts have the same keys in the same order."""
    if middle.before_end != middle.after_end or before.entries().kind is not after.entries().kind:
        return None
    changed = []
    for number in range(middle.start, middle.before_end):
        if before.entry(number) != after.entry(number):
            if before.key(number) != after.key(number):
                return None
            changed.append(number)
    return changed


def _first_moved(
    count: int, middle: _Middle, old: dict[bytes, int], new: dict[bytes, int]
) -> int | None:
    """The first new entry from which on keys must be moved to the end; None if none.

    At that time the keys that stayed stand in their old order (`count` entries), the added ones
    behind them all. The keys before that entry must already stand in their new order.
    """
    last = -1
    for key, number in new.items():
        place = old.get(key, count + number)
        if place < last:
            return number
        last = place
    added_before_rest = last >= count and middle.before_end < count
    return middle.after_end if added_before_rest else None


def _list_edits(before: Part, after: Part, path: Path) -> Edits:
    start, before_end, after_end = _middle(before, after)
    if start in (before_end, after_end):
        gaps = [Gap(0, before_end - start, 0, after_end - start)]
    else:
        gaps = gaps_between(
            [before.entry(number) for number in range(start, before_end)],
            [after.entry(number) for number in range(start, after_end)],
        )
    edits = Edits()
    for gap in reversed(gaps):  # from the end on, so that places before stay as they were
        edits.extend(_gap_edits(before, after, Gap(*(start + place for place in gap)), path))
    return edits


def _gap_edits(before: Part, after: Part, gap: Gap, path: Path) -> Edits:
    """Edits for replaced items: one cut, or the items one by one and a cut of the rest."""
    removed, added = gap.before_end - gap.before_start, gap.after_end - gap.after_start
    whole = Edits(_list_cut(after, gap, path))
    paired = min(removed, added)
    if not paired:
        return whole
    edits = Edits()
    if removed != added:
        rest = gap._replace(
            before_start=gap.before_start + paired, after_start=gap.after_start + paired
        )
        edits.add(_list_cut(after, rest, path))
    for number in range(paired):
        was, value = before.value(gap.before_start + number), after.value(gap.after_start + number)
        if was.encoded() != value.encoded():
            edits.extend(_find_edits(was, value, path.then(encode(gap.before_start + number))))
        if edits.size >= whole.size:
            return whole
    return edits


def _list_cut(after: Part, gap: Gap, path: Path) -> bytes:
    inserted = array_head(gap.after_end - gap.after_start)
    inserted += after.values_between(gap.after_start, gap.after_end)
    return _cut(path, gap.before_start, gap.before_end - gap.before_start, inserted)


def _cut(path: Path, start: int, removed: int, inserted: bytes) -> bytes:
    return _CUT + path.encoded() + encode(start) + encode(removed) + inserted


def _middle(before: Part, after: Part) -> _Middle:
    """Strip the entries that are equal at both ends (none, where the kinds differ)."""
    old, new = before.entries(), after.entries()
    count, other = len(old.ends), len(new.ends)
    if old.kind is not new.kind:
        return _Middle(0, count, other)
    room = min(count, other)
    old_first, new_first = before.start + old.first, after.start + new.first
    limit = min(before.end - old_first, after.end - new_first)
    same = common_prefix(before.data, old_first, after.data, new_first, limit)
    start = min(bisect_right(old.ends, old.first + same), room)
    old_rest = before.end - before.start - old.start(start)
    new_rest = after.end - after.start - new.start(start)
    same = common_suffix(before.data, before.end, after.data, after.end, min(old_rest, new_rest))

    def stands(entries: int) -> bool:
        """Whether the last `entries` begin at one distance from the end, within the equal bytes.

        Then fewer do so too, because from there on both are read alike.
        """
        distance = before.end - before.start - old.start(count - entries)
        return distance <= same and distance == after.end - after.start - new.start(other - entries)

    last = bisect_left(range(1, room - start + 1), True, key=lambda entries: not stands(entries))
    return _Middle(start, count - last, other - last)


def _text_edits(before: Symbols, after: Symbols, path: Path) -> Edits:
    """Cuts of a str (in code points) or of bytes."""
    edits = Edits()
    for start, end, inserted in reversed(text_cuts(before, after)):
        edits.add(_cut(path, start, end - start, encode(inserted)))
    return edits
