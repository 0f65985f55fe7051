"""How the patch between two states is found: on their canonical bytes, never on Python values.

Python's `==` mixes 1, True and 1.0, and ignores the order of keys; bytes do not, so here two parts
are the same exactly where a restored state would be. Sizes are known too, so wherever edits are not
smaller than the whole part, the whole part is set. Operations are made as canonical bytes (see
docs/formats.md), without building any value but edited texts. Pure. Used by `state_patch` and
`encoded_state`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from eventlog.canonical import decode, encode
from eventlog.errors import EventCorruptError, ValueNotEncodableError
from eventlog.patches.canonical_spans import (
    Kind,
    kind_at,
    layout_at,
    registered_name,
)
from eventlog.patches.encoded_part import Part
from eventlog.patches.part_index import KEYED, PartIndex, follow_index
from eventlog.patches.sequence_alignment import (
    STEP_MAX,
    Gap,
    Symbols,
    common_prefix,
    common_suffix,
    gaps_between,
)
from eventlog.patches.text_cuts import text_cuts
from eventlog.values.canonical_reference import array_head

# Deeper parts are set whole: the walk takes three Python frames a level, of 1,000 by default.
DEPTH_MAX: Final = 64

TEXTS: Final = (Kind.TEXT, Kind.BINARY)

_SET: Final = b"\x93\xa3set"
_DEL: Final = b"\x92\xa3del"
_CUT: Final = b"\x95\xa3cut"
_ORD: Final = b"\x93\xa3ord"


class Path(NamedTuple):
    """A path as canonical bytes, but for the head of its array.

    `depth` counts the containers it leads through: a registered type is one, but no path element.
    `close` asks for edits inside containers even where setting the whole would be smaller.
    `omitted` says by path how many bytes of the value there were left out.
    """

    length: int
    elements: bytes
    depth: int
    close: bool = False
    omitted: Mapping[bytes, int] = MappingProxyType({})

    def then(self, element: bytes) -> "Path":
        """This path and one more key or index, in canonical bytes."""
        elements = self.elements + element
        return Path(self.length + 1, elements, self.depth + 1, self.close, self.omitted)

    def encoded(self) -> bytes:
        """The canonical array."""
        return array_head(self.length) + self.elements


ROOT: Final = Path(0, b"", 0)


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


class OmittedError(Exception):
    """A value has to be set of which something was left out: find the patch without `omitted`."""


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

    `index` is that of `before`; without it, and for what it leaves out, entries are read as far as
    needed. None is returned where there was no need for any. Raises `OmittedError`.
    """
    if before == after:
        return array_head(0), index
    old = Part(before, 0, len(before), index)
    new = Part(after, 0, len(after))
    if index is not None:
        new.index, _ = follow_index(before, 0, index, after, 0)
    edits = _find_edits(old, new, path)
    return array_head(len(edits.operations)) + b"".join(edits.operations), new.index


def read_patch(patch: bytes) -> list[list[object]]:
    """The operations of a patch just made.

    Raises `ValueNotEncodableError` where it cannot be read back: a patch nests its values three
    levels deeper than the state does, so the deepest states have none.
    """
    try:
        return cast("list[list[object]]", decode(patch, opaque=True))
    except EventCorruptError as error:
        raise ValueNotEncodableError(
            f"the state's change has no canonical form: {error.message}",
            hint="a state near the limits of nesting or size cannot be recorded; keep it flatter",
            path="$",
        ) from error


def _find_edits(before: Part, after: Part, path: Path) -> Edits:
    """The smallest edits found that give the value at `path` the bytes of `after`; they differ."""
    head = _SET + path.encoded()
    inner = _inner_edits(before, after, path)
    omitted = path.omitted.get(path.elements)
    if inner is not None:
        if inner.size < len(head) + after.end - after.start + (omitted or 0):
            return inner
        if path.close and kind_at(after.data, after.start) not in TEXTS:
            return inner
    if omitted is not None:
        raise OmittedError
    return Edits(head + after.encoded())


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
    in_place = _changed_in_place(before, after, middle)
    if in_place is not None:
        edits = Edits()
        for number in in_place:
            here = path.then(after.key(number))
            edits.extend(_find_edits(before.value(number), after.value(number), here))
        return edits
    old = before.slices(middle.start, middle.before_end)
    new = after.slices(middle.start, middle.after_end)
    numbers = dict(zip(old, range(middle.start, middle.before_end), strict=True))
    # Of each new entry its place in `before`; that of a changed or added one is filled in below.
    places: list[int | None] = list(map(numbers.get, new))
    gone = {
        before.key(number): number
        for number in sorted(numbers[entry] for entry in numbers.keys() - set(new))
    }
    changed = Edits()
    added = Edits()
    for at, place in enumerate(places):
        if place is not None:
            continue
        number = middle.start + at
        key, value = after.key(number), after.value(number)
        places[at] = place = gone.pop(key, None)
        if place is None:
            places[at] = before.count() + number  # behind all that stayed
            added.add(_SET + path.then(key).encoded() + value.encoded())
        else:
            changed.extend(_find_edits(before.value(place), value, path.then(key)))
    edits = Edits(*(_DEL + path.then(key).encoded() for key in gone))
    edits.extend(changed)
    edits.extend(added)
    moved = _first_moved(cast("list[int]", places), before.count(), middle)
    if moved is not None:
        keys = [after.key(number) for number in range(moved, after.count())]
        edits.add(_ORD + path.encoded() + array_head(len(keys)) + b"".join(keys))
    return edits


def _changed_in_place(before: Part, after: Part, middle: _Middle) -> list[int] | None:
    """The entries whose values differ; None where keys differ too."""
    if middle.before_end != middle.after_end or before.entries().kind is not after.entries().kind:
        return None
    old, new = before.data, after.data
    for number in (middle.start, middle.before_end - 1):
        if number >= middle.start and before.key(number) != after.key(number):
            return None
    starts = before.starts(middle.start, middle.before_end)
    other_starts = after.starts(middle.start, middle.after_end)
    changed = []
    for number, (start, end), (other, other_end) in zip(
        range(middle.start, middle.before_end),
        pairwise(starts),
        pairwise(other_starts),
        strict=True,
    ):
        size = end - start
        if other_end - other == size and (
            old[start:end] == new[other:other_end]
            if size < STEP_MAX
            else common_prefix(old, start, new, other, size) == size
        ):
            continue
        if before.key(number) != after.key(number):
            return None
        changed.append(number)
    return changed


def _first_moved(places: list[int], count: int, middle: _Middle) -> int | None:
    """The first new entry from which on keys must be moved to the end; None if none.

    When that is done, the keys that stayed stand in their old order (of `count` entries), the added
    ones behind them all, and those before this entry stand in their new order already.
    """
    for number, (place, following) in enumerate(pairwise(places), middle.start + 1):
        if following < place:
            return number
    added_before_rest = bool(places) and places[-1] >= count and middle.before_end < count
    return middle.after_end if added_before_rest else None


def _list_edits(before: Part, after: Part, path: Path) -> Edits:
    start, before_end, after_end = _middle(before, after)
    if start in (before_end, after_end) or start + 1 == before_end == after_end:
        gaps = [Gap(0, before_end - start, 0, after_end - start)]
    else:
        gaps = gaps_between(before.slices(start, before_end), after.slices(start, after_end))
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
    old = before.entries()
    layout = layout_at(after.data, after.start)
    if layout is None or layout.kind is not old.kind:
        return _Middle(0, before.count(), after.count())
    old_first = before.start + old.first
    limit = min(before.end - old_first, after.end - layout.first)
    same = common_prefix(before.data, old_first, after.data, layout.first, limit)
    count, other = len(old.ends), layout.entry_count
    room = min(count, other)
    start = min(bisect_right(old.ends, old.first + same), room)
    new = after.entries(old, start)
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
