"""What differs inside of a training's own values: an optimizer's settings, what a rank brought.

Those are bytes that hold canonical bytes of their own (docs/formats.md). They are decoded as plain
values only: nothing here builds what a registered type names. Used by `compare_checkpoints`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventlog.canonical import decode, encode_decoded
from eventlog.errors import SteplogError
from eventlog.values.value_path import path_step
from snapshots.checkpoints.manifest import ValueEntry
from snapshots.checkpoints.saved_parts import OPTIMIZER, RANK_STATES

ROWS_MAX: Final = 64
"""How many places of one value are told; of more it is told then that the whole differs."""

_HOLDS_CANONICAL: Final = re.compile(rf"{OPTIMIZER}\..+\.settings|{RANK_STATES}\.rank-[0-9]+")
_AS_A_WHOLE: Final = re.compile(rf"{RANK_STATES}\.rank-[0-9]+\.random")
"""Random states: thousands of words, of which nobody reads which changed."""


class ChangedPlace(NamedTuple):
    """A place inside of a value. A side is None where the place is not there."""

    name: str
    before: ValueEntry | None
    after: ValueEntry | None


def changed_places(name: str, before: ValueEntry, after: ValueEntry) -> Iterator[ChangedPlace]:
    """The innermost places that differ, or the whole value where what it holds is not known.

    After `ROWS_MAX` of them the whole value stands for the others.
    """
    whole = ChangedPlace(name, before, after)
    left, right = (_held(name, each.data) for each in (before, after))
    if left is None or right is None:
        yield whole
        return
    count = 0
    for place in _compare(name, left, right):
        count += 1
        if count > ROWS_MAX:
            break
        yield place
    if count == 0 or count > ROWS_MAX:  # Of none: only the order of keys differs.
        yield whole


def _held(name: str, data: bytes) -> dict[object, object] | None:
    """What the value holds; None where it is none of those whose bytes hold canonical bytes."""
    if not _HOLDS_CANONICAL.fullmatch(name):
        return None
    try:
        inner = decode(data, opaque=True)
        held = decode(inner, opaque=True) if isinstance(inner, bytes) else None
    except SteplogError:
        return None
    return held if isinstance(held, dict) else None


def _compare(name: str, left: object, right: object) -> Iterator[ChangedPlace]:
    if type(left) is type(right) and not _AS_A_WHOLE.fullmatch(name):
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _compare_keys(name, left, right)
            return
        if isinstance(left, list | tuple) and isinstance(right, list | tuple):
            yield from _compare_keys(name, _numbered(left), _numbered(right))
            return
    before, after = _entry(left), _entry(right)
    if before != after:
        yield ChangedPlace(name, before, after)


def _compare_keys(
    name: str, left: Mapping[object, object], right: Mapping[object, object]
) -> Iterator[ChangedPlace]:
    for key in [*left, *(key for key in right if key not in left)]:
        place = name + path_step(key)
        if key not in right:
            yield ChangedPlace(place, _entry(left[key]), None)
        elif key not in left:
            yield ChangedPlace(place, None, _entry(right[key]))
        else:
            yield from _compare(place, left[key], right[key])


def _numbered(items: Sequence[object]) -> dict[object, object]:
    return dict(enumerate(items))


def _entry(value: object) -> ValueEntry:
    return ValueEntry(encode_decoded(value), ())
