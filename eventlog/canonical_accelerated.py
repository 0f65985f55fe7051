"""The accelerated encoder and decoder, on ormsgpack: the same bytes as the reference, or nothing.

ormsgpack writes plain values as canonical bytes want them, and its `default` hook hands us the
others. What it does otherwise is guarded here (FORMATS section 1): it keeps a NaN's bits; it writes
bytearray and memoryview as bytes, and objects of its own `Ext` and `Fragment` as they are; its
limit of nesting is 255, anew inside each ext; it decodes trailing bytes, duplicate keys and lengths
that are not the shortest, and believes the length of an array before it has seen the items.
A value that a guard is not sure of goes to the reference, part by part, so that one odd leaf
does not make a large state slow.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final
from uuid import UUID

import ormsgpack

from eventlog import canonical_reference as reference
from eventlog import canonical_reference_decoder as reference_decoder
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
    NAN,
    SIZE_BYTES_MAX,
    Refusal,
    array_of,
    array_parts,
    int_payload,
    is_utf8,
    number_of,
    number_parts,
    registered_of,
    registered_parts,
    time_of,
    time_parts,
)
from eventlog.opaque_values import ArrayValue, Registered
from eventlog.registered_types import close_value

_pack = ormsgpack.packb
_unpack = ormsgpack.unpackb
_Ext = ormsgpack.Ext
_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# Nesting is shared out so that the sum stays within DEPTH_MAX (200) however parts are put into
# each other: parts begin at most 20 containers deep, go 70 down, and 100 more in up to 10 nested
# hooks (a set among them costs one more). What needs more is left to the reference, which counts.
_PACK_DEPTH_MAX: Final = 255  # ormsgpack's own limit
_PART_DEPTH_MAX: Final = 20
_PART_NESTING_MAX: Final = 70
_HOOK_NESTING_MAX: Final = (20, 16, 14, 12, 10, 8, 6, 5, 5, 4)

_BULKY_COUNT: Final = 64  # entries from which a container is written in chunks
_PROBE_COUNT: Final = 24  # entries looked at to tell whether a value is large
_CHUNK_BYTES: Final = 4096  # what a guard is not sure of is looked at in Python, so keep it small
_HEADS_COUNTED_BYTES: Final = 1024  # up to here, counting heads is cheaper than packing again

_NOT_CONTAINER_HEADS: Final = bytes(
    byte for byte in range(256) if not (0x80 <= byte < 0xA0 or 0xDC <= byte <= 0xDF)
)
_NAN_OR_INFINITY: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff].{6}", re.DOTALL)
_KNOWN_NAN_OR_INFINITY: Final = frozenset(
    reference.encode_part(value, 0) for value in (NAN, float("inf"), float("-inf"))
)
_FOREIGN: Final = frozenset((bytearray, memoryview, ormsgpack.Ext, ormsgpack.Fragment))
_EASY_KEYS: Final = frozenset((str, int, bytes, bool, type(None)))

# ormsgpack drops what a hook raises; an interrupt must not be lost that way.
_interrupts: list[BaseException] = []
_Hook = Callable[[Any], ormsgpack.Ext]


class _Unsure(Exception):  # noqa: N818  (never leaves this module)
    """What ormsgpack wrote, or would read, may not be canonical: ask the reference."""


class _MixedKeys(Exception):  # noqa: N818  (never leaves this module)
    """A dict has a key that is no plain text: it is no map."""


def encode(value: object) -> bytes:
    """The canonical bytes of `value`. Raises `ValueNotEncodableError` naming the path."""
    try:
        data = b"".join(_chunks(value, 0)) if _is_large(value) else _part(value, 0)
    except (Refusal, RuntimeError):
        return reference.encode(value)  # the judge: it raises with the path, or knows better
    if len(data) > SIZE_BYTES_MAX:
        reference.check_size(len(data))
    return data


def decode(data: bytes) -> object:
    """The value of canonical bytes, ext 9 and ext 10 closed.

    Raises `EventCorruptError` naming the offset for bytes that are not the one encoding of a value.
    """
    try:
        value = _unpacked(data)
        # Encoding again finds all that ormsgpack is lenient about, but keeps the bits of a NaN.
        if not _has_odd_nan(data) and _is_encoding(value, data):
            return value
    except (TypeError, ValueError, RuntimeError, Refusal, _Unsure):
        _raise_interrupt()
    return reference_decoder.decode(data)


# --- Encoding: a value, a large value, a value in which something stands that needs the reference.


def _is_large(value: object) -> bool:
    """Whether a value has a container of many entries near its top. Only a guess, for speed."""
    if type(value) is not dict and type(value) is not list:
        return False
    entries_left = _PROBE_COUNT
    containers: list[Any] = [value]
    for container in containers:
        entries_left -= len(container)
        if len(container) >= _BULKY_COUNT:
            return True
        if entries_left < 0:
            return False
        entries = container.values() if type(container) is dict else container
        containers += [part for part in entries if type(part) is dict or type(part) is list]
    return False


def _chunks(value: Any, depth: int, guarded: bool = True) -> list[bytes]:
    """The encoding of a large dict or list in pieces, so that no guard looks at much at once."""
    is_dict = type(value) is dict
    kinds = set(map(type, value.values() if is_dict else value))
    if depth >= _PART_DEPTH_MAX or (dict not in kinds and list not in kinds):
        return [_part(value, depth, guarded)]
    few = len(value) < _BULKY_COUNT
    count_max = 4  # entries in a chunk; follows from the size of the last one
    pieces = [reference.map_head(len(value)) if is_dict else reference.array_head(len(value))]
    chunk: list[Any] = []
    try:
        for entry in value.items() if is_dict else value:
            item = entry[1] if is_dict else entry
            kind = type(item)
            if (kind is dict or kind is list) and (
                len(item) >= _BULKY_COUNT or (few and _is_large(item))
            ):
                pieces += _chunk_pieces(chunk, is_dict, depth, guarded)
                chunk = []
                if is_dict:
                    pieces.append(_plain_key(entry[0]))
                pieces += _chunks(item, depth + 1, guarded)
                continue
            chunk.append(entry)
            if len(chunk) >= count_max:
                written = _chunk_pieces(chunk, is_dict, depth, guarded)
                pieces += written
                size = sum(map(len, written))
                count_max = max(1, min(4 * len(chunk), len(chunk) * _CHUNK_BYTES // (size + 1)))
                chunk = []
        pieces += _chunk_pieces(chunk, is_dict, depth, guarded)
    except _MixedKeys:
        return [_mixed_dict(value, depth, guarded)]
    return pieces


def _chunk_pieces(entries: list[Any], is_dict: bool, depth: int, guarded: bool) -> list[bytes]:
    """Some entries of the container that stands inside `depth` others."""
    if not entries:
        return []
    chunk: Any = dict(entries) if is_dict else entries
    try:
        data = _within(chunk, _PART_NESTING_MAX, _HOOKS[0])
        if guarded:
            _guard(chunk, data)
    except (TypeError, _Unsure):
        _raise_interrupt()
        if is_dict:
            return _plain_entries(chunk, depth, guarded)
        return [_part(item, depth + 1, guarded) for item in entries]
    return [data[1 if len(entries) < 16 else 3 :]]  # without the head of the chunk


def _part(value: Any, depth: int, guarded: bool = True) -> bytes:
    """The encoding of a value that stands inside `depth` containers. Raises `Refusal`."""
    if depth > _PART_DEPTH_MAX:
        return reference.encode_part(value, depth)
    try:
        return _segment(value, _PART_NESTING_MAX, _HOOKS[0], guarded)
    except (TypeError, _Unsure):
        _raise_interrupt()
    kind = type(value)
    if kind is dict:
        try:
            pieces = _plain_entries(value, depth, guarded)
        except _MixedKeys:
            return _mixed_dict(value, depth, guarded)
        return b"".join((reference.map_head(len(value)), *pieces))
    if kind is list or kind is tuple:
        pieces = [_part(item, depth + 1, guarded) for item in value]
        data = b"".join((reference.array_head(len(value)), *pieces))
        return data if kind is list else reference.ext(EXT_TUPLE, data)
    return reference.encode_part(value, depth)


def _plain_entries(value: dict[Any, Any], depth: int, guarded: bool) -> list[bytes]:
    pieces: list[bytes] = []
    for key, item in value.items():
        pieces += (_plain_key(key), _part(item, depth + 1, guarded))
    return pieces


def _plain_key(key: object) -> bytes:
    if type(key) is not str or not is_utf8(key):
        raise _MixedKeys
    return _pack(key)


def _mixed_dict(value: dict[Any, Any], depth: int, guarded: bool) -> bytes:
    """A dict that is no map: pairs, which ormsgpack writes as arrays of two.

    The pairs make nesting count one more than it is: that can only ask for the reference.
    """
    if not _EASY_KEYS.issuperset(map(type, value)):
        reference.check_keys(value, [reference.encode_part(key, depth + 1) for key in value])
    pairs = list(map(list, value.items()))
    return reference.ext(EXT_DICT, b"".join(_chunks(pairs, depth, guarded)))


# --- What ormsgpack writes, and the guards over it.


def _segment(value: Any, nesting_max: int, hook: _Hook, guarded: bool = True) -> bytes:
    """What ormsgpack writes for `value`, where it is canonical and at most so deep.

    Raises TypeError or `_Unsure` where it may not be.
    """
    if (type(value) is dict or type(value) is list) and len(value) > 6:
        data = _within(value, nesting_max, hook)
    else:
        data = _pack(value, hook, _OPTIONS)
        size = len(data)
        # Each container takes a head of a byte at least: few heads, little nesting.
        if size > nesting_max and (
            size > _HEADS_COUNTED_BYTES
            or len(data.translate(None, _NOT_CONTAINER_HEADS)) > nesting_max
        ):
            data = _within(value, nesting_max, hook)
    if guarded:
        _guard(value, data)
    return data


# Nested one-element lists by how many containers they leave room for, to be used again: the
# innermost holds the value while it is packed.
_wrappers: dict[int, list[tuple[list[Any], list[Any]]]] = {}


def _within(value: object, nesting_max: int, hook: _Hook) -> bytes:
    """What ormsgpack writes for `value`; TypeError where it is nested deeper than `nesting_max`."""
    count = _PACK_DEPTH_MAX - nesting_max
    pool = _wrappers.setdefault(nesting_max, [])
    try:
        outer, inner = pool.pop()
    except IndexError:
        outer = inner = [None]
        for _ in range(count - 1):
            outer = [outer]
    inner[0] = value
    try:
        return _pack(outer, hook, _OPTIONS)[count:]
    finally:
        inner[0] = None
        pool.append((outer, inner))


def _guard(value: object, data: bytes) -> None:
    """Raises `_Unsure` where `data` may hold a NaN of other bits, or bytes that were not bytes."""
    if _has_odd_nan(data):
        raise _Unsure
    if b"\xc4" in data or b"\xc5" in data or b"\xc6" in data:
        _refuse_foreign(value)


def _has_odd_nan(data: bytes) -> bool:
    if b"\xcb" not in data:
        return False
    found = _NAN_OR_INFINITY.findall(data)
    return bool(found) and not _KNOWN_NAN_OR_INFINITY.issuperset(found)


def _refuse_foreign(value: object) -> None:
    """Raises `_Unsure` where a dict or list has in it what ormsgpack should not have written."""
    level: list[Any] = [value]
    while level:
        kinds = set(map(type, level))
        if not kinds.isdisjoint(_FOREIGN):
            raise _Unsure
        dicts = [part for part in level if type(part) is dict] if dict in kinds else []
        lists = [part for part in level if type(part) is list] if list in kinds else []
        level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]


def _raise_interrupt() -> None:
    if _interrupts:
        raise _interrupts.pop()


# --- The hooks: values of an ext code.


def _make_hook(level: int) -> _Hook:
    def hook(value: Any) -> ormsgpack.Ext:
        try:
            kind = type(value)
            writer = _WRITERS.get(kind)
            if writer is None:
                value = close_value(value)
                writer = _WRITERS[type(value)]
            code, payload = writer(value, level)
            return _Ext(code, payload)
        except Exception:
            raise
        except BaseException as interrupt:
            _interrupts.append(interrupt)
            raise

    return hook


def _inside(value: Any, level: int) -> bytes:
    """What stands in an ext that a hook of `level` writes."""
    if level >= len(_HOOK_NESTING_MAX):
        raise _Unsure
    return _segment(value, _HOOK_NESTING_MAX[level], _HOOKS[level + 1])


def _set_payload(value: Any, level: int) -> bytes:
    elements = [_inside(element, level) for element in value]
    if not _EASY_KEYS.issuperset(map(type, value)):
        reference.check_keys(value, elements)
    elements.sort()
    return b"".join((reference.array_head(len(elements)), *elements))


_HOOKS: Final = [_make_hook(level) for level in range(len(_HOOK_NESTING_MAX) + 1)]
_WRITERS: Final[dict[type, Callable[[Any, int], tuple[int, bytes]]]] = {
    int: lambda value, _level: (EXT_INT, int_payload(value)),
    tuple: lambda value, level: (EXT_TUPLE, _inside(list(value), level)),
    set: lambda value, level: (EXT_SET, _set_payload(value, level)),
    frozenset: lambda value, level: (EXT_FROZENSET, _set_payload(value, level)),
    **dict.fromkeys(
        (datetime, date, time, timedelta),
        lambda value, _level: (EXT_TIME, _pack(time_parts(value))),
    ),
    Decimal: lambda value, _level: (EXT_NUMBER, _pack(number_parts(value))),
    UUID: lambda value, _level: (EXT_NUMBER, _pack(number_parts(value))),
    complex: lambda value, level: (EXT_NUMBER, _inside(number_parts(value), level)),
    ArrayValue: lambda value, _level: (EXT_ARRAY, _pack(array_parts(value))),
    Registered: lambda value, level: (EXT_REGISTERED, _inside(registered_parts(value), level)),
}


# --- Decoding.


def _unpacked(data: bytes) -> Any:
    # ormsgpack makes a list as long as a head says before it has seen an item, and does not free
    # it on an error: where there may be such a head, the structure is walked first.
    if b"\xdc" in data or b"\xdd" in data:
        ormsgpack.Fragment(data)
    return _unpack(data, ext_hook=_open_ext)


def _is_encoding(value: Any, data: bytes) -> bool:
    if len(data) <= DEPTH_MAX:  # too short to be nested too deep
        return _pack(value, _HOOKS[0], _OPTIONS) == data
    if _is_large(value):
        return b"".join(_chunks(value, 0, guarded=False)) == data
    return _part(value, 0, guarded=False) == data


def _open_ext(code: int, payload: bytes) -> object:
    try:
        return _OPENERS[code](payload)
    except Exception:
        raise
    except BaseException as interrupt:
        _interrupts.append(interrupt)
        raise


def _items(payload: bytes) -> list[Any]:
    items = _unpacked(payload)
    if type(items) is not list:
        raise _Unsure
    return items


def _all_items(made: Any, items: list[Any]) -> Any:
    """`made` from `items`, if none was lost to being equal to another."""
    if len(made) != len(items):
        raise _Unsure
    return made


def _dict_of(payload: bytes) -> dict[Any, Any]:
    pairs = _items(payload)
    return _all_items(dict(pairs), pairs)  # type: ignore[no-any-return]


def _set_of(payload: bytes) -> set[Any]:
    items = _items(payload)
    return _all_items(set(items), items)  # type: ignore[no-any-return]


_OPENERS: Final[dict[int, Callable[[bytes], object]]] = {
    EXT_INT: lambda payload: int.from_bytes(payload, "big", signed=True),
    EXT_STR: lambda payload: payload.decode("utf-8", "surrogatepass"),
    EXT_TUPLE: lambda payload: tuple(_items(payload)),
    EXT_SET: _set_of,
    EXT_FROZENSET: lambda payload: frozenset(_set_of(payload)),
    EXT_DICT: _dict_of,
    EXT_TIME: lambda payload: time_of(_unpacked(payload)),
    EXT_NUMBER: lambda payload: number_of(_unpacked(payload)),
    EXT_ARRAY: lambda payload: array_of(_unpacked(payload)),
    EXT_REGISTERED: lambda payload: registered_of(_unpacked(payload)),
}
