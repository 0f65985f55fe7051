"""Spans: where the parts of canonical bytes begin and end, found without building values.

Two values are equal exactly where their canonical bytes are, so differences can be looked for in
the bytes alone, and only what differs need be decoded. All here expects bytes that were made or
checked by `eventlog.canonical`; on others the answers mean nothing. Offsets and lengths are bytes.
Used by the part index and the state diff.
"""

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """What begins at an offset, as far as a patch can look into it. `ATOM`: it cannot."""

    MAP = "map"
    PAIRS = "pairs"
    ARRAY = "array"
    TEXT = "text"
    BINARY = "binary"
    REGISTERED = "registered"
    ATOM = "atom"


class Layout(NamedTuple):
    """A container's kind, how many entries it has, and the offset of the first.

    A registered type is a container of one entry, its value.
    """

    kind: Kind
    entry_count: int
    first: int


def _fixed_sizes() -> tuple[int, ...]:
    """Bytes of an item, head included, where its first byte alone tells; else 0."""
    sizes = [0] * 256
    for head in (*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3):
        sizes[head] = 1
    for length in range(32):
        sizes[0xA0 + length] = 1 + length
    for head, size in ((0xCA, 5), (0xCB, 9)):
        sizes[head] = size
    for power in range(4):
        sizes[0xCC + power] = sizes[0xD0 + power] = 1 + (1 << power)
    for power in range(5):
        sizes[0xD4 + power] = 2 + (1 << power)
    return tuple(sizes)


FIXED_SIZES: Final = _fixed_sizes()
# First byte -> (bytes of its length field, bytes of head beside that field): bin, ext, str.
_SIZED: Final = {
    **{0xC4 + power: (1 << power, 1) for power in range(3)},
    **{0xC7 + power: (1 << power, 2) for power in range(3)},
    **{0xD9 + power: (1 << power, 1) for power in range(3)},
}
# First byte -> (bytes of the count field, items per entry): large arrays and maps.
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_EXT_KINDS: Final = {2: Kind.TEXT, 6: Kind.PAIRS, 10: Kind.REGISTERED}


def _kinds() -> tuple[Kind | None, ...]:
    """The kind by first byte; None for the ext heads, whose code decides."""
    kinds: list[Kind | None] = [Kind.ATOM] * 256
    kinds[0x80:0x90] = [Kind.MAP] * 16
    kinds[0x90:0xA0] = [Kind.ARRAY] * 16
    kinds[0xA0:0xC0] = [Kind.TEXT] * 32
    kinds[0xC4:0xC7] = [Kind.BINARY] * 3
    kinds[0xC7:0xCA] = [None] * 3
    kinds[0xD4:0xD9] = [None] * 5
    kinds[0xD9:0xDC] = [Kind.TEXT] * 3
    kinds[0xDC:0xE0] = [Kind.ARRAY, Kind.ARRAY, Kind.MAP, Kind.MAP]
    return tuple(kinds)


_KINDS: Final = _kinds()


def end_of(data: bytes, at: int) -> int:
    """The offset behind the item that begins at `at`."""
    todo = 1
    while todo:
        head = data[at]
        size = FIXED_SIZES[head]
        if size:
            at += size
            todo -= 1
        elif head < 0x90:
            at += 1
            todo += 2 * (head & 15) - 1
        elif head < 0xA0:
            at += 1
            todo += (head & 15) - 1
        elif head in _SIZED:
            width, rest = _SIZED[head]
            at += width + rest + int.from_bytes(data[at + 1 : at + 1 + width], "big")
            todo -= 1
        else:
            width, items = _COUNTED[head]
            todo += items * int.from_bytes(data[at + 1 : at + 1 + width], "big") - 1
            at += 1 + width
    return at


def kind_at(data: bytes, at: int) -> Kind:
    """The kind of the item that begins at `at`."""
    kind = _KINDS[data[at]]
    if kind is not None:
        return kind
    return _EXT_KINDS.get(data[_payload_at(data, at) - 1], Kind.ATOM)


def layout_at(data: bytes, at: int) -> Layout | None:
    """How the container that begins at `at` is laid out; None for what a patch cannot look into."""
    kind = kind_at(data, at)
    if kind is Kind.REGISTERED:
        return Layout(kind, 1, end_of(data, end_of(data, _payload_at(data, at) + 1)))
    if kind is Kind.PAIRS:
        at = _payload_at(data, at)
    elif kind is not Kind.MAP and kind is not Kind.ARRAY:
        return None
    head = data[at]
    if head < 0xA0:
        return Layout(kind, head & 15, at + 1)
    width = _COUNTED[head][0]
    return Layout(kind, int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width)


def key_at(kind: Kind, entry: int) -> int:
    """Where the key of a map or pairs entry begins (a pair has one byte of head before it)."""
    return entry + 1 if kind is Kind.PAIRS else entry


def registered_name(data: bytes, at: int) -> bytes:
    """The name and version of the registered type at `at`, in canonical bytes."""
    name = _payload_at(data, at) + 1
    return data[name : end_of(data, end_of(data, name))]


def _payload_at(data: bytes, at: int) -> int:
    """Where an ext's payload begins; the byte before it is the ext's code."""
    head = data[at]
    return at + (2 if head >= 0xD4 else 2 + _SIZED[head][0])
