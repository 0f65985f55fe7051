"""Cheap questions about a value and its bytes: what may the accelerated encoder trust?

Each may answer "perhaps" for a value that is in order, never "no" for one that is not: what is not
sure is encoded by the reference. All are pure.
"""

import re
from collections.abc import Set
from itertools import chain
from typing import Any, Final

BULKY_COUNT: Final = 128  # entries from which a container is written in chunks
_FEW_COUNT: Final = 8  # up to here, entries of entries are looked at too
_HEADS_COUNTED_BYTES: Final = 1024  # up to here, counting heads is cheaper than packing again

_NOT_CONTAINER_HEADS: Final = bytes(
    byte for byte in range(256) if not (0x80 <= byte < 0xA0 or 0xDC <= byte <= 0xDF)
)
_NAN_OR_INFINITY: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff].{6}", re.DOTALL)
_KNOWN_NAN_OR_INFINITY: Final = frozenset(
    map(bytes.fromhex, ("cb7ff8000000000000", "cb7ff0000000000000", "cbfff0000000000000"))
)
# Head of bytes, how many bytes its length takes, and the least length it is written for.
_BYTES_HEADS: Final = ((b"\xc4", 1, 0), (b"\xc5", 2, 1 << 8), (b"\xc6", 4, 1 << 16))
_CONTAINERS: Final = frozenset((dict, list, tuple, set, frozenset))


def is_large(value: object, levels: int = 3) -> bool:
    """Whether a value has a container of many entries near its top. Only a guess, for speed."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return False
    entries: Any = value
    count = len(entries)
    if count >= BULKY_COUNT:
        return True
    if kind is dict:
        entries = entries.values()
    deeper = levels - 1 if count <= _FEW_COUNT else 0
    for part in entries:
        kind = type(part)
        if (kind is dict or kind is list) and (
            len(part) >= BULKY_COUNT or (deeper and is_large(part, deeper))
        ):
            return True
    return False


def is_shallow(data: bytes, nesting_max: int) -> bool:
    """Whether it is plain to see that `data` has at most `nesting_max` containers in each other.

    Each container takes a head of at least a byte: few bytes that could be heads, little nesting.
    """
    size = len(data)
    return size <= nesting_max or (
        size <= _HEADS_COUNTED_BYTES
        and len(data.translate(None, _NOT_CONTAINER_HEADS)) <= nesting_max
    )


def may_hold_odd_nan(data: bytes) -> bool:
    """Whether MessagePack bytes may hold a NaN of other bits than the canonical ones."""
    if b"\xcb" not in data:
        return False
    found = _NAN_OR_INFINITY.findall(data)
    return bool(found) and not _KNOWN_NAN_OR_INFINITY.issuperset(found)


def may_hold_bytes(data: bytes) -> bool:
    """Whether MessagePack bytes may hold a value that is written as bytes."""
    for head, width, least in _BYTES_HEADS:
        at = data.find(head)
        while at >= 0:
            first = at + 1 + width
            if least <= int.from_bytes(data[at + 1 : first], "big") <= len(data) - first:
                return True
            at = data.find(head, at + 1)
    return False


def holds_any(value: object, kinds: Set[type]) -> bool:
    """Whether the value, or anything in its built-in containers but dict keys, is of `kinds`."""
    groups: list[Any] = [(value,)]
    while groups:
        found = set(map(type, chain.from_iterable(groups)))
        if not kinds.isdisjoint(found):
            return True
        if _CONTAINERS.isdisjoint(found):
            return False
        inner = [part for part in chain.from_iterable(groups) if type(part) in _CONTAINERS]
        groups = [part.values() if type(part) is dict else part for part in inner]
    return False
