"""The accelerated encoder, on ormsgpack: the same bytes as the reference, or nothing.

ormsgpack writes plain values as canonical bytes want them, and its `default` hook hands us the
others. What it does otherwise is guarded here (FORMATS section 1): it keeps a NaN's bits; it writes
bytearray and memoryview as bytes, and objects of its own `Ext` and `Fragment` as they are; its
limit of nesting is 255, anew inside each ext. A value that a guard is not sure of goes to the
reference, part by part, so that one odd leaf does not make a large state slow.
"""

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import ormsgpack

from eventlog import canonical_reference as reference
from eventlog.encoding_guards import (
    BULKY_COUNT,
    holds_any,
    is_large,
    is_shallow,
    may_hold_bytes,
    may_hold_odd_nan,
)
from eventlog.extension_values import (
    DEPTH_MAX,
    EXT_ARRAY,
    EXT_DICT,
    EXT_FROZENSET,
    EXT_INT,
    EXT_NUMBER,
    EXT_REGISTERED,
    EXT_SET,
    EXT_TIME,
    EXT_TUPLE,
    SIZE_BYTES_MAX,
    Refusal,
    array_parts,
    int_payload,
    is_utf8,
    number_parts,
    registered_parts,
    time_parts,
)
from eventlog.opaque_values import ArrayValue, Registered
from eventlog.registered_types import close_value

_pack = ormsgpack.packb
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
# each other: parts begin at most 10 containers deep, go 130 down, and 50 more in up to 10 nested
# hooks (a set among them costs one more). What needs more is left to the reference, which counts.
_PACK_DEPTH_MAX: Final = 255  # ormsgpack's own limit
_PART_DEPTH_MAX: Final = 10
_PART_NESTING_MAX: Final = 130
_HOOK_NESTING_MAX: Final = (10, 8, 7, 6, 5, 4, 4, 3, 2, 1)

_CHUNK_BYTES: Final = 6144  # where a guard is not sure, all of a chunk is looked at in Python
_FOREIGN: Final = frozenset((bytearray, memoryview, ormsgpack.Ext, ormsgpack.Fragment))
_EASY_KEYS: Final = frozenset((str, int, bytes, bool, type(None)))

unpack = ormsgpack.unpackb  # for the decoder, as `walk_structure`


def walk_structure(data: bytes) -> None:
    """Raises ValueError where `data` is not one whole value; builds nothing. Exts stay closed."""
    ormsgpack.Fragment(data)


_Hook = Callable[[Any], ormsgpack.Ext]


class Unsure(Exception):  # noqa: N818  (never leaves the accelerated modules)
    """What ormsgpack wrote, or would read, may not be canonical: ask the reference."""


class _MixedKeys(Exception):  # noqa: N818  (never leaves this module)
    """A dict has a key that is no plain text: it is no map."""


def encode(value: object) -> bytes:
    """The canonical bytes of `value`. Raises `ValueNotEncodableError` naming the path."""
    try:
        data = b"".join(_chunks(value, 0)) if is_large(value) else _part(value, 0)
    except (Refusal, RuntimeError):
        return reference.encode(value)  # the judge: it raises with the path, or knows better
    if len(data) > SIZE_BYTES_MAX:
        reference.check_size(len(data))
    return data


def encode_decoded(value: object) -> bytes:
    """As `encode`, of a value made of decoded ones: no guard need look at it."""
    try:
        return _within(value, _PART_NESTING_MAX, _HOOKS[0])
    except (TypeError, Refusal, RuntimeError):
        raise_interrupt()
        return encode(value)


def is_encoding(value: object, data: bytes) -> bool:
    """Whether `data` is the encoding of a decoded value. Raises what `encode` handles."""
    if len(data) <= DEPTH_MAX:  # too short to be nested too deep
        return not may_hold_odd_nan(data) and _pack(value, _HOOKS[0], _OPTIONS) == data
    if not is_large(value):
        return _part(value, 0, decoded=True) == data
    at = 0
    for piece in _chunks(value, 0, decoded=True):
        if not data.startswith(piece, at):
            return False
        at += len(piece)
    return at == len(data)


# ormsgpack drops what a hook raises; an interrupt must not be lost that way.
_interrupts: list[BaseException] = []


def keep_interrupt(error: BaseException) -> None:
    """Called by a hook that fails: an interrupt is kept for `raise_interrupt`."""
    if not isinstance(error, Exception):
        _interrupts.append(error)


def raise_interrupt() -> None:
    """Raise the interrupt that a hook met, if one did."""
    if _interrupts:
        raise _interrupts.pop()


# --- Encoding: a value, a large value, a value in which something stands that needs the reference.


def _chunks(value: Any, depth: int, decoded: bool = False) -> list[bytes]:
    """The encoding of a large dict or list in pieces, so that no guard looks at much at once."""
    is_dict = type(value) is dict
    items: list[Any] = list(value.values()) if is_dict else value
    kinds = set(map(type, items))
    if depth >= _PART_DEPTH_MAX or (dict not in kinds and list not in kinds):
        return [_part(value, depth, decoded)]
    entries: list[Any] = list(value.items()) if is_dict else value
    few = len(items) < BULKY_COUNT
    pieces = [reference.map_head(len(items)) if is_dict else reference.array_head(len(items))]
    begin = 0
    try:
        for at in (*(at for at, item in enumerate(items) if _is_bulky(item, few)), len(items)):
            pieces += _run(entries[begin:at], is_dict, depth, decoded)
            if at < len(items):
                if is_dict:
                    pieces.append(_plain_key(entries[at][0]))
                pieces += _chunks(items[at], depth + 1, decoded)
            begin = at + 1
    except _MixedKeys:
        return [_mixed_dict(value, depth, decoded)]
    return pieces


def _is_bulky(item: Any, few: bool) -> bool:
    """Whether an entry is to be written in chunks of its own."""
    if type(item) is not dict and type(item) is not list:
        return False
    return len(item) >= BULKY_COUNT or (few and is_large(item))


def _run(entries: list[Any], is_dict: bool, depth: int, decoded: bool) -> list[bytes]:
    """Entries of the container that stands inside `depth` others, some at a time."""
    pieces: list[bytes] = []
    at, count = 0, 4  # the count follows from the size of the last chunk
    while at < len(entries):
        chunk: Any = entries[at : at + count]
        if is_dict:
            chunk = dict(chunk)
        at += count
        try:
            data = _within(chunk, _PART_NESTING_MAX, _HOOKS[0])
            _guard(chunk, data, decoded)
        except (TypeError, Unsure):
            raise_interrupt()
            if is_dict:
                pieces += _plain_entries(chunk, depth, decoded)
            else:
                pieces += [_part(item, depth + 1, decoded) for item in chunk]
        else:
            pieces.append(data[1 if len(chunk) < 16 else 3 :])  # without the chunk's own head
            count = max(1, min(4 * count, count * _CHUNK_BYTES // len(data)))
    return pieces


def _part(value: Any, depth: int, decoded: bool = False) -> bytes:
    """The encoding of a value that stands inside `depth` containers. Raises `Refusal`."""
    if depth > _PART_DEPTH_MAX:
        return reference.encode_part(value, depth)
    kind = type(value)
    if kind is not dict or not value or type(next(iter(value))) is str:
        try:
            return _segment(value, _PART_NESTING_MAX, _HOOKS[0], decoded)
        except (TypeError, Unsure):
            raise_interrupt()
    if kind is dict:
        try:
            pieces = _plain_entries(value, depth, decoded)
        except _MixedKeys:
            return _mixed_dict(value, depth, decoded)
        return b"".join((reference.map_head(len(value)), *pieces))
    if kind is list or kind is tuple:
        pieces = [_part(item, depth + 1, decoded) for item in value]
        data = b"".join((reference.array_head(len(value)), *pieces))
        return data if kind is list else reference.ext(EXT_TUPLE, data)
    return reference.encode_part(value, depth)


def _plain_entries(value: dict[Any, Any], depth: int, decoded: bool) -> list[bytes]:
    pieces: list[bytes] = []
    for key, item in value.items():
        pieces += (_plain_key(key), _part(item, depth + 1, decoded))
    return pieces


def _plain_key(key: object) -> bytes:
    if type(key) is not str or not is_utf8(key):
        raise _MixedKeys
    return _pack(key)


def _mixed_dict(value: dict[Any, Any], depth: int, decoded: bool) -> bytes:
    """A dict that is no map."""
    if not _EASY_KEYS.issuperset(map(type, value)):
        reference.check_keys(value, [reference.encode_part(key, depth + 1) for key in value])
    kinds = set(map(type, value.values()))
    if dict not in kinds and list not in kinds:
        # ormsgpack writes the pairs as arrays of two. They make nesting count one more than it
        # is, which can only ask for the reference.
        return reference.ext(EXT_DICT, _part(list(map(list, value.items())), depth, decoded))
    pieces = [reference.array_head(len(value))]
    for key, item in value.items():
        pieces += (b"\x92", _part(key, depth + 1, decoded))
        if is_large(item):
            pieces += _chunks(item, depth + 1, decoded)
        else:
            pieces.append(_part(item, depth + 1, decoded))
    return reference.ext(EXT_DICT, b"".join(pieces))


# --- What ormsgpack writes, and the guards over it.


def _segment(value: Any, nesting_max: int, hook: _Hook, decoded: bool) -> bytes:
    """What ormsgpack writes for `value`, where it is canonical and at most so deep.

    Raises TypeError or `Unsure` where it may not be.
    """
    if (type(value) is dict or type(value) is list) and len(value) > 6:
        data = _within(value, nesting_max, hook)
    else:
        data = _pack(value, hook, _OPTIONS)
        if not is_shallow(data, nesting_max):
            data = _within(value, nesting_max, hook)
    _guard(value, data, decoded)
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


def _guard(value: object, data: bytes, decoded: bool) -> None:
    """Raises `Unsure` where `data` may hold a NaN of other bits, or bytes that were not bytes.

    A value that was `decoded` holds no bytearray.
    """
    if may_hold_odd_nan(data):
        raise Unsure
    if decoded:
        return
    suspicious = may_hold_bytes(data) or _ormsgpack_references() != _REFERENCES_AT_REST
    if suspicious and holds_any(value, _FOREIGN):
        raise Unsure


def _ormsgpack_references() -> int:
    """Goes up with each object of ormsgpack's own types: what these write tells nothing of them."""
    return sys.getrefcount(ormsgpack.Ext) + sys.getrefcount(ormsgpack.Fragment)


# --- The hooks: values of an ext code.


def _make_hook(level: int) -> _Hook:
    def hook(value: Any) -> ormsgpack.Ext:
        try:
            if type(value) is tuple:
                return _Ext(EXT_TUPLE, _inside(list(value), level))
            writer = _WRITERS.get(type(value))
            if writer is None:
                value = close_value(value)
                writer = _WRITERS[type(value)]
            return _Ext(*writer(value, level))
        except BaseException as error:
            keep_interrupt(error)
            raise

    return hook


def _inside(value: Any, level: int) -> bytes:
    """What stands in an ext that a hook of `level` writes: guarded where that ext stands."""
    if level >= len(_HOOK_NESTING_MAX):
        raise Unsure
    data = _pack(value, _HOOKS[level + 1], _OPTIONS)
    nesting_max = _HOOK_NESTING_MAX[level]
    if len(data) > nesting_max and not is_shallow(data, nesting_max):
        return _within(value, nesting_max, _HOOKS[level + 1])
    return data


def _registered_payload(value: Registered, level: int) -> bytes:
    parts = registered_parts(value)
    data = _inside(parts, level)
    _guard(parts, data, decoded=False)  # the guard outside does not look into it
    return data


def _set_payload(value: Any, level: int) -> bytes:
    elements = [_inside(element, level) for element in value]
    if not _EASY_KEYS.issuperset(map(type, value)):
        reference.check_keys(value, elements)
    elements.sort()
    return b"".join((reference.array_head(len(elements)), *elements))


_HOOKS: Final = [_make_hook(level) for level in range(len(_HOOK_NESTING_MAX) + 1)]
_WRITERS: Final[dict[type, Callable[[Any, int], tuple[int, bytes]]]] = {
    int: lambda value, _level: (EXT_INT, int_payload(value)),
    set: lambda value, level: (EXT_SET, _set_payload(value, level)),
    frozenset: lambda value, level: (EXT_FROZENSET, _set_payload(value, level)),
    **dict.fromkeys((datetime, date), lambda value, _: (EXT_TIME, _pack(time_parts(value)))),
    **dict.fromkeys((time, timedelta), lambda value, _: (EXT_TIME, _pack(time_parts(value)))),
    **dict.fromkeys((Decimal, UUID), lambda value, _: (EXT_NUMBER, _pack(number_parts(value)))),
    complex: lambda value, level: (EXT_NUMBER, _inside(number_parts(value), level)),
    ArrayValue: lambda value, _level: (EXT_ARRAY, _pack(array_parts(value))),
    Registered: lambda value, level: (EXT_REGISTERED, _registered_payload(value, level)),
}
# The last line: references from modules that come later only make the guards look more closely.
_REFERENCES_AT_REST: Final = _ormsgpack_references()
