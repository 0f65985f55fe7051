"""The reference decoder of canonical bytes: strict, in pure Python, naming the byte that is wrong.

It accepts exactly what the encoders write: `encode(decode(data)) == data` for all it accepts.
Ext 9 and ext 10 stay closed, so nothing that is read decides which code runs. The accelerated
decoder falls back on this one for bytes it does not accept.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from eventlog.errors import EventCorruptError
from eventlog.values.canonical_reference import encode, ext
from eventlog.values.extension_values import (
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
    int_payload,
    is_utf8,
    number_of,
    registered_of,
    time_of,
)
from eventlog.values.registered_types import holds_nan

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
    """Few calls a level: 200 levels must fit in Python's stack."""
    head = data[at]
    if head in _FIXED_EXT_SIZES:
        size, first = _FIXED_EXT_SIZES[head], at + 2
    else:
        size, first = _length(data, at, _EXT_HEADS)
        first += 1
        if size in _FIXED_EXT_SIZES.values():
            raise _Malformed("an ext length that is not in its shortest form", at)
    end = first + size
    if end > len(data):
        raise _Malformed("truncated", at)
    code = data[first - 1]
    if code in _TEXT_LIKE:
        return _TEXT_LIKE[code](data[first:end], first), end
    if code not in _MAKERS:
        raise _Malformed(f"the ext code {code} is unknown", at)
    inside = depth + 1 if code in _NESTING else 0
    if inside > DEPTH_MAX:
        raise _Malformed(f"nested deeper than {DEPTH_MAX} containers", at)
    count, at = _count(data, first, end)
    keys: list[Any] = []
    items: list[Any] = []
    for _ in range(count):
        if code == EXT_DICT:
            if data[at : at + 1] != b"\x92":
                raise _Malformed("an entry of ext 6 that is not a pair", at)
            key, at = _read(data, at + 1, inside)
            keys.append(key)
        item, at = _read(data, at, inside)
        items.append(item)
    if at != end:
        raise _Malformed("an ext that does not end with its array", first)
    if code == EXT_DICT:
        return _mixed_dict(keys, items, first), end
    value = _made(_MAKERS[code], items, first)
    if code not in _NESTING and encode(value) != ext(code, data[first:end]):
        raise _Malformed(f"ext {code} is not in the form it is written in", first)
    return value, end


def _count(data: bytes, first: int, end: int) -> tuple[int, int]:
    """How many items the one array of an ext has, and where they begin."""
    if first < end and 0x90 <= data[first] < 0xA0:
        return data[first] & 15, first + 1
    if first < end and data[first] in _ARRAY_HEADS:
        return _length(data, first, _ARRAY_HEADS)
    raise _Malformed("an ext that does not hold an array", first)


def _made(maker: Callable[[Any], object], items: list[Any], first: int) -> object:
    try:
        return maker(items)
    except (ValueError, OverflowError) as error:
        raise _Malformed(f"an ext whose parts fit nothing: {error}", first) from error
    except _Misfit as error:
        raise _Malformed(error.why, first) from error


class _Misfit(Exception):  # noqa: N818  (becomes _Malformed, with the offset)
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _big_int(payload: bytes, first: int) -> object:
    value = int.from_bytes(payload, "big", signed=True)
    if -(1 << 63) <= value < 1 << 64 or payload != int_payload(value):
        raise _Malformed("an int of ext 1 that is not in its shortest form", first)
    return value


def _odd_text(payload: bytes, first: int) -> object:
    try:
        text = payload.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _Malformed("a text of ext 2 that is not UTF-8 with surrogates", first) from error
    if is_utf8(text):
        raise _Malformed("a text of ext 2 without a lone surrogate", first)
    return text


def _elements(items: list[Any]) -> set[Any]:
    _check_keys(items)
    encoded = [encode(item) for item in items]
    if encoded != sorted(encoded):
        raise _Misfit("set elements out of order")
    elements = set(items)
    if len(elements) != len(items):
        raise _Misfit("a set element comes twice")
    return elements


def _mixed_dict(keys: list[Any], items: list[Any], first: int) -> object:
    try:
        _check_keys(keys)
    except _Misfit as error:
        raise _Malformed(error.why, first) from error
    entries = dict(zip(keys, items, strict=True))
    if len(entries) != len(keys):
        raise _Malformed("a key of ext 6 comes twice", first)
    if all(type(key) is str and is_utf8(key) for key in entries):
        raise _Malformed("a dict of ext 6 that is a plain map", first)
    return entries


def _check_keys(keys: list[Any]) -> None:
    for key in keys:
        try:
            hash(key)
        except TypeError as error:
            raise _Misfit(f"a key or set element that is a {type(key).__name__}") from error
    if any(map(holds_nan, keys)):
        raise _Misfit("NaN in a key or set element")


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
_TEXT_LIKE: Final = {EXT_INT: _big_int, EXT_STR: _odd_text}
_NESTING: Final = frozenset((EXT_TUPLE, EXT_SET, EXT_FROZENSET, EXT_DICT, EXT_REGISTERED))
# What makes a value of the items of an ext's array; a dict is made of keys and items.
_MAKERS: Final[dict[int, Callable[[Any], object]]] = {
    EXT_TUPLE: tuple,
    EXT_SET: _elements,
    EXT_FROZENSET: lambda items: frozenset(_elements(items)),
    EXT_DICT: dict,
    EXT_TIME: time_of,
    EXT_NUMBER: number_of,
    EXT_ARRAY: array_of,
    EXT_REGISTERED: registered_of,
}
