"""Narrowing: two states without what they share, so that little is left to look into.

For states at hand as values: their canonical bytes are made and compared some entries at a time,
and only the entries that differ go on to be read. Pure; used by `state_patch.diff`.
"""

from itertools import islice
from typing import Final, NamedTuple, cast

from eventlog.canonical import encode, encode_decoded
from eventlog.errors import ValueNotEncodableError
from eventlog.patches.state_diff import ROOT, Path
from eventlog.values.canonical_reference import array_head, map_head

# Dicts with fewer entries are left as they are: comparing their bytes costs no more.
ENTRIES_MIN: Final = 64
# Levels of dicts that are narrowed: tables of records, and a level of grouping above them.
LEVELS_MAX: Final = 3
# Entries compared at once: a few, since all are compared again one by one where one differs.
_CHUNK_ENTRIES: Final = 15

Table = dict[object, object]
_Pair = tuple[Table, Table]


class Narrowed(NamedTuple):
    """Two states without shared entries (or with None for their values, where keys have moved).

    `omitted` says by path, in canonical bytes, how many bytes less the dict there has.
    """

    before: object
    after: object
    omitted: dict[bytes, int]


def narrow(before: object, after: object) -> Narrowed | None:
    """Narrow two states in opaque form; None where it would not pay, or one cannot be encoded."""
    if type(before) is not dict or type(after) is not dict:
        return None
    if len(after) < ENTRIES_MIN and not any(
        type(item) is dict and len(item) >= ENTRIES_MIN for item in after.values()
    ):
        return None
    omitted: dict[bytes, int] = {}
    try:
        narrowed = _narrow(before, after, ROOT, omitted)
    except ValueNotEncodableError:  # its path would be that in a few entries: encode the whole
        return None
    return Narrowed(*narrowed, omitted)


def _narrow(before: Table, after: Table, path: Path, omitted: dict[bytes, int]) -> _Pair:
    if not set(map(type, before)) == set(map(type, after)) == {str}:
        return before, after
    tables: list[object] = []
    others: list[object] = []
    for key, value in after.items():
        if key in before:
            large = type(value) is dict and len(value) >= ENTRIES_MIN
            deeper = large and type(before[key]) is dict and path.depth < LEVELS_MAX
            (tables if deeper else others).append(key)
    shared, size = _shared(before, after, others)
    narrow_before, narrow_after = before.copy(), after.copy()
    if _keeps_order(before, after):
        for key in shared:
            del narrow_before[key], narrow_after[key]
        size += len(encode_decoded(shared)) - len(array_head(len(shared)))
        size += len(map_head(len(after))) - len(map_head(len(narrow_after)))
    else:
        nothing: Table = dict.fromkeys(shared)
        narrow_before |= nothing
        narrow_after |= nothing
        size -= len(shared)
    for key in tables:
        here = path.then(encode(key))
        was, value = cast(_Pair, (before[key], after[key]))
        narrow_before[key], narrow_after[key] = _narrow(was, value, here, omitted)
        size += omitted.get(here.elements, 0)
    omitted[path.elements] = size
    return narrow_before, narrow_after


def _shared(before: Table, after: Table, keys: list[object]) -> tuple[list[object], int]:
    """The keys under which both have the same bytes, and the bytes of these values."""
    shared: list[object] = []
    size = 0
    for start in range(0, len(keys), _CHUNK_ENTRIES):
        chunk = keys[start : start + _CHUNK_ENTRIES]
        data = encode_decoded([after[key] for key in chunk])
        if data == encode_decoded([before[key] for key in chunk]):
            shared += chunk
            size += len(data) - 1  # without the head
            continue
        for key in chunk:
            data = encode_decoded(after[key])
            if data == encode_decoded(before[key]):
                shared.append(key)
                size += len(data)
    return shared, size


def _keeps_order(before: Table, after: Table) -> bool:
    """Whether all keys that stay keep their order, and added ones stand behind them."""
    kept = [key for key in before if key in after]
    return kept == list(islice(after, len(kept)))
