"""The reference decoder of canonical bytes: strict, in pure Python, naming the byte that is wrong.

It accepts exactly what the encoders write: `encode(decode(data)) == data` for all it accepts.
Ext 9 and ext 10 stay closed, so nothing that is read decides which code runs. The accelerated
decoder falls back on this one for bytes it does not accept.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from eventlog.canonical_reference import encode, ext
from eventlog.errors import EventCorruptError
from eventlog.extension_values import (
    DEPTH_MAX,
    EXT_ARRAY,
    EXT_DICT,
    EXT_FROZENSET,
    EXT_INT,
    EXT_NUMBER,
    EXT_REGISTERED,
    EXT_SET,
    EXT_STR,
    EXT_TIME,
    EXT_TUPLE,
    SIZE_BYTES_MAX,
    array_of,
    is_utf8,
    number_of,
    registered_of,
    time_of,
)
from eventlog.registered_types import holds_nan

_FLOAT = struct.Struct(">d").unpack_from
_CANONICAL_NAN: Final = bytes.fromhex("7ff8000000000000")
# By head: how many bytes the number takes, whether it is signed, and the range it is the
# shortest form for.
_INT_HEADS: Final = {
    0xCC: (1, False, 1 << 7, 1 << 8),
    0xCD: (2, False, 1 << 8, 1 << 16),
    0xCE: (4, False, 1 << 16, 1 << 32),
    0xCF: (8, False, 1 << 32, 1 << 64),
    0xD0: (1, True, -(1 << 7), -(1 << 5)),
    0xD1: (2, True, -(1 << 15), -(1 << 7)),
    0xD2: (4, True, -(1 << 31), -(1 << 15)),
    0xD3: (8, True, -(1 << 63), -(1 << 31)),
}
# By head: how many bytes the length takes, and the least length that needs this head.
_STR_HEADS: Final = {0xD9: (1, 32), 0xDA: (2, 1 << 8), 0xDB: (4, 1 << 16)}
_BIN_HEADS: Final = {0xC4: (1, 0), 0xC5: (2, 1 << 8), 0xC6: (4, 1 << 16)}
_ARRAY_HEADS: Final = {0xDC: (2, 16), 0xDD: (4, 1 << 16)}
_MAP_HEADS: Final = {0xDE: (2, 16), 0xDF: (4, 1 << 16)}
_EXT_HEADS: Final = {0xC7: (1, 0), 0xC8: (2, 1 << 8), 0xC9: (4, 1 << 16)}
_FIXED_EXT_SIZES: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class _Malformed(Exception):  # noqa: N818  (becomes EventCorruptError)
    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.why = why
        self.offset = offset


def decode(data: bytes) -> object:
    """The value of canonical bytes, ext 9 and ext 10 closed.

    Raises `EventCorruptError` naming the offset for bytes that are not the one encoding of a value,
    `ZoneMissing` for a time in a zone that this machine does not have.
    """
    if len(data) > SIZE_BYTES_MAX:
        raise _corrupt(f"{len(data)} bytes, over the limit of {SIZE_BYTES_MAX}", 0)
    try:
        value, end = _read(data, 0, 0)
    except _Malformed as error:
        raise _corrupt(error.why, error.offset) from error
    except RecursionError as error:
        raise _corrupt("nested too deep for this process's recursion limit", 0) from error
    if end != len(data):
        raise _corrupt("bytes after the value", end)
    return value


def _corrupt(why: str, offset: int) -> EventCorruptError:
    return EventCorruptError(
        f"not canonical bytes: {why}, at byte {offset}",
        hint="the stored bytes are damaged, or were not written by steplog; run `steplog check`",
    )


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """The value that begins at `at`, inside `depth` containers, and the offset after it."""
    if at >= len(data):
        raise _Malformed("truncated", at)
    head = data[at]
    if head < 0x80:
        return head, at + 1
    if head >= 0xE0:
        return head - 256, at + 1
    if 0xA0 <= head < 0xC0:
        return _text(data, at + 1, head & 31, at)
    if head < 0x90:
        return _map(data, at + 1, head & 15, depth, at)
    if head < 0xA0:
        return _array(data, at + 1, head & 15, depth, at)
    reader = _READERS.get(head)
    if reader is None:
        raise _Malformed(f"the head {head:#04x} is never written", at)
    return reader(data, at, depth)


def _length(data: bytes, at: int, heads: dict[int, tuple[int, int]]) -> tuple[int, int]:
    width, least = heads[data[at]]
    length = int.from_bytes(_take(data, at + 1, width, at), "big")
    if length < least:
        raise _Malformed("a length that is not in its shortest form", at)
    return length, at + 1 + width


def _take(data: bytes, at: int, size: int, head_at: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise _Malformed("truncated", head_at)
    return piece


def _read_constant(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    return {0xC0: None, 0xC2: False, 0xC3: True}[data[at]], at + 1


def _read_int(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    width, signed, least, beyond = _INT_HEADS[data[at]]
    value = int.from_bytes(_take(data, at + 1, width, at), "big", signed=signed)
    if not least <= value < beyond:
        raise _Malformed("an int that is not in its shortest form", at)
    return value, at + 1 + width


def _read_float(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    piece = _take(data, at + 1, 8, at)
    (value,) = _FLOAT(piece)
    if value != value and piece != _CANONICAL_NAN:
        raise _Malformed("a NaN of other bits", at)
    return value, at + 9


def _read_text(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    size, first = _length(data, at, _STR_HEADS)
    return _text(data, first, size, at)


def _text(data: bytes, first: int, size: int, head_at: int) -> tuple[Any, int]:
    try:
        return _take(data, first, size, head_at).decode("utf-8"), first + size
    except UnicodeDecodeError as error:
        raise _Malformed("a text that is not UTF-8", head_at) from error


def _read_bytes(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    size, first = _length(data, at, _BIN_HEADS)
    return _take(data, first, size, at), first + size


def _read_array(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    count, first = _length(data, at, _ARRAY_HEADS)
    return _array(data, first, count, depth, at)


def _array(data: bytes, at: int, count: int, depth: int, head_at: int) -> tuple[list[Any], int]:
    if depth >= DEPTH_MAX:
        raise _Malformed(f"nested deeper than {DEPTH_MAX} containers", head_at)
    if count > len(data) - at:
        raise _Malformed("truncated", head_at)
    items = []
    for _ in range(count):
        item, at = _read(data, at, depth + 1)
        items.append(item)
    return items, at


def _read_map(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    count, first = _length(data, at, _MAP_HEADS)
    return _map(data, first, count, depth, at)


def _map(data: bytes, at: int, count: int, depth: int, head_at: int) -> tuple[Any, int]:
    if depth >= DEPTH_MAX:
        raise _Malformed(f"nested deeper than {DEPTH_MAX} containers", head_at)
    entries: dict[str, Any] = {}
    for _ in range(count):
        key_at = at
        if not (data[at : at + 1] and 0xA0 <= data[at] < 0xC0) and data[at : at + 1] not in _TEXTS:
            raise _Malformed("a key of a map that is not text", at)
        key, at = _read(data, at, depth + 1)
        if key in entries:
            raise _Malformed(f"the key {key!r:.60} comes twice", key_at)
        entries[key], at = _read(data, at, depth + 1)
    return entries, at


_TEXTS: Final = frozenset(bytes((head,)) for head in _STR_HEADS)


def _read_ext(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    head = data[at]
    if head in _FIXED_EXT_SIZES:
        size, first = _FIXED_EXT_SIZES[head], at + 1
    else:
        size, first = _length(data, at, _EXT_HEADS)
        if size in _FIXED_EXT_SIZES.values():
            raise _Malformed("an ext length that is not in its shortest form", at)
    end = first + 1 + size
    if end > len(data):
        raise _Malformed("truncated", at)
    code = data[first]
    opener = _OPENERS.get(code)
    if opener is None:
        raise _Malformed(f"the ext code {code} is unknown", at)
    return opener(data, first + 1, end, depth, code), end


def _big_int(data: bytes, first: int, end: int, _depth: int, _code: int) -> object:
    value = int.from_bytes(data[first:end], "big", signed=True)
    if -(1 << 63) <= value < 1 << 64:
        raise _Malformed("an int of ext 1 that is not in its shortest form", first)
    if len(data[first:end]) != (value if value >= 0 else ~value).bit_length() // 8 + 1:
        raise _Malformed("an int of ext 1 that is not in its shortest form", first)
    return value


def _odd_text(data: bytes, first: int, end: int, _depth: int, _code: int) -> object:
    try:
        text = data[first:end].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _Malformed("a text of ext 2 that is not UTF-8 with surrogates", first) from error
    if is_utf8(text):
        raise _Malformed("a text of ext 2 without a lone surrogate", first)
    return text


def _count(data: bytes, first: int, end: int, depth: int) -> tuple[int, int]:
    """How many items the one array of an ext has, and where they begin."""
    if depth >= DEPTH_MAX:
        raise _Malformed(f"nested deeper than {DEPTH_MAX} containers", first)
    if first < end and 0x90 <= data[first] < 0xA0:
        return data[first] & 15, first + 1
    if first < end and data[first] in _ARRAY_HEADS:
        return _length(data, first, _ARRAY_HEADS)
    raise _Malformed("an ext that does not hold an array", first)


def _items(data: bytes, first: int, end: int, depth: int) -> list[Any]:
    """The items of the one array that an ext holds, which ends where the ext does."""
    count, at = _count(data, first, end, depth)
    items, at = _array(data, at, count, depth, first)
    if at != end:
        raise _Malformed("an ext that does not end with its array", first)
    return items


def _tuple(data: bytes, first: int, end: int, depth: int, _code: int) -> object:
    return tuple(_items(data, first, end, depth))


def _set(data: bytes, first: int, end: int, depth: int, code: int) -> object:
    items = _items(data, first, end, depth)
    _check_keys(items, first)
    encoded = [encode(item) for item in items]
    if encoded != sorted(encoded):
        raise _Malformed("set elements out of order", first)
    elements: Any = set(items) if code == EXT_SET else frozenset(items)
    if len(elements) != len(items):
        raise _Malformed("a set element comes twice", first)
    return elements


def _mixed_dict(data: bytes, first: int, end: int, depth: int, _code: int) -> object:
    count, at = _count(data, first, end, depth)
    keys, items = [], []
    for _ in range(count):
        if data[at : at + 1] != b"\x92":
            raise _Malformed("an entry of ext 6 that is not a pair", at)
        key, at = _read(data, at + 1, depth + 1)
        item, at = _read(data, at, depth + 1)
        keys.append(key)
        items.append(item)
    if at != end:
        raise _Malformed("an ext that does not end with its array", first)
    _check_keys(keys, first)
    entries = dict(zip(keys, items, strict=True))
    if len(entries) != count:
        raise _Malformed("a key of ext 6 comes twice", first)
    if all(type(key) is str and is_utf8(key) for key in entries):
        raise _Malformed("a dict of ext 6 that is a plain map", first)
    return entries


def _check_keys(keys: list[Any], first: int) -> None:
    for key in keys:
        try:
            hash(key)
        except TypeError as error:
            kind = type(key).__name__
            raise _Malformed(f"a key or set element that is a {kind}", first) from error
    if any(map(holds_nan, keys)):
        raise _Malformed("NaN in a key or set element", first)


def _build(build: Callable[[object], object], parts: list[Any], first: int) -> object:
    try:
        return build(parts)
    except (ValueError, OverflowError) as error:
        raise _Malformed(f"an ext whose parts fit nothing: {error}", first) from error


def _of_parts(build: Callable[[object], object]) -> Callable[..., object]:
    """An opener of a value without containers: what it is built from has one spelling only."""

    def opener(data: bytes, first: int, end: int, _depth: int, code: int) -> object:
        value = _build(build, _items(data, first, end, 0), first)
        if encode(value) != ext(code, data[first:end]):
            raise _Malformed(f"ext {code} is not in the form it is written in", first)
        return value

    return opener


_READERS: Final[dict[int, Callable[[bytes, int, int], tuple[Any, int]]]] = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), _read_constant),
    **dict.fromkeys(_INT_HEADS, _read_int),
    0xCB: _read_float,
    **dict.fromkeys(_STR_HEADS, _read_text),
    **dict.fromkeys(_BIN_HEADS, _read_bytes),
    **dict.fromkeys(_ARRAY_HEADS, _read_array),
    **dict.fromkeys(_MAP_HEADS, _read_map),
    **dict.fromkeys(_EXT_HEADS, _read_ext),
    **dict.fromkeys(_FIXED_EXT_SIZES, _read_ext),
}
_OPENERS: Final[dict[int, Callable[[bytes, int, int, int, int], object]]] = {
    EXT_INT: _big_int,
    EXT_STR: _odd_text,
    EXT_TUPLE: _tuple,
    EXT_SET: _set,
    EXT_FROZENSET: _set,
    EXT_DICT: _mixed_dict,
    EXT_TIME: _of_parts(time_of),
    EXT_NUMBER: _of_parts(number_of),
    EXT_ARRAY: _of_parts(array_of),
    EXT_REGISTERED: lambda data, first, end, depth, _code: _build(
        registered_of, _items(data, first, end, depth), first
    ),
}
