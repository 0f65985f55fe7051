"""The accelerated encoder, on ormsgpack: the same bytes as the reference, or nothing.

ormsgpack writes plain values as canonical bytes want them. What it does otherwise is guarded here
(docs/formats.md): it keeps a NaN's bits; it writes bytearray and memoryview as bytes, and objects
of its own `Ext` and `Fragment` as they are; its limit of nesting is 255. What it refuses, and what
a guard is not sure of, is taken apart: each part is tried again, and what cannot be taken apart
goes to the reference. So one odd leaf does not make a large state slow.

ormsgpack is given no `default` hook: it reads containers without holding on to what is in them, and
a hook lets other threads run. A tool's thread that changed the state meanwhile would bring the
process down (seen). Without one, each call is atomic; containers taken apart are copied first.
"""

import sys
from typing import Any, Final

import ormsgpack

from eventlog.values import canonical_reference as reference
from eventlog.values.encoding_guards import (
    BULKY_COUNT,
    holds_any,
    is_large,
    is_shallow,
    may_hold_bytes,
    may_hold_odd_nan,
)
from eventlog.values.extension_values import (
    DEPTH_MAX,
    EXT_DICT,
    EXT_REGISTERED,
    EXT_TUPLE,
    SIZE_BYTES_MAX,
    Refusal,
    is_utf8,
    registered_parts,
)
from eventlog.values.opaque_values import ArrayValue, Registered
from eventlog.values.registered_types import close_value, is_native

_pack = ormsgpack.packb
_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_PACK_DEPTH_MAX: Final = 255  # ormsgpack's own limit
_CHUNK_BYTES: Final = 6144  # where a guard is not sure, all of a chunk is looked at in Python
_FOREIGN: Final = frozenset((bytearray, memoryview, ormsgpack.Ext, ormsgpack.Fragment))
_EASY: Final = frozenset((str, int, bytes, bool, type(None)))
_FLAT: Final = _EASY | {float}
_KEYS_REMEMBERED_MAX: Final = 4096
_KEY_LENGTH_MAX: Final = 64

unpack = ormsgpack.unpackb  # for the decoder, as `walk_structure`


def walk_structure(data: bytes) -> None:
    """Raises ValueError where `data` is not one whole value; builds nothing. Exts stay closed."""
    ormsgpack.Fragment(data)


class Unsure(Exception):  # noqa: N818  (never leaves the accelerated modules)
    """What ormsgpack wrote, or would read, may not be canonical: ask the reference."""


class _MixedKeys(Exception):  # noqa: N818  (never leaves this module)
    """A dict has a key that is no plain text: it is no map."""


def encode(value: object) -> bytes:
    """The canonical bytes of `value`. Raises `ValueNotEncodableError` naming the path.

    Another thread may change the value meanwhile: what is written is then of some moments, each
    container as it was at one of them.
    """
    try:
        data = _any(value, 0, False)
    except (Refusal, RuntimeError):
        return reference.encode(value)  # it raises, with the path
    if len(data) > SIZE_BYTES_MAX:
        reference.check_size(len(data))
    return data


def encode_decoded(value: object) -> bytes:
    """As `encode`, of a value made of decoded ones: no guard need look at it."""
    try:
        return _within(value, DEPTH_MAX)
    except TypeError:
        return encode(value)


def is_encoding(value: object, data: bytes) -> bool:
    """Whether `data` is the encoding of a decoded value. Raises what `encode` handles."""
    if not may_hold_odd_nan(data):
        try:
            if len(data) <= DEPTH_MAX:  # too short to be nested too deep
                return _pack(value, None, _OPTIONS) == data
            return _within(value, DEPTH_MAX) == data
        except TypeError:
            pass
    return _any(value, 0, True) == data


# --- A value that stands inside `depth` containers. All raise `Refusal`. Where it was `decoded`,
# --- it cannot hold what only a live value does.


def _any(value: Any, depth: int, decoded: bool) -> bytes:
    return (
        b"".join(_chunks(value, depth, decoded))
        if is_large(value)
        else _part(value, depth, decoded)
    )


def _part(value: Any, depth: int, decoded: bool) -> bytes:
    """The encoding of a value of which all may be written at once."""
    kind = type(value)
    if kind is list or (kind is dict and type(next(iter(value), "")) is str):
        try:
            return _packed(value, depth, decoded)
        except (TypeError, Unsure):
            return _taken_apart(value, depth, decoded)
    if kind is tuple:
        return reference.ext(EXT_TUPLE, _items(list(value), depth, decoded))
    if kind is dict:
        return _taken_apart(value, depth, decoded)
    if kind in _EASY:
        if (kind is str or kind is bytes) and len(value) > SIZE_BYTES_MAX:
            reference.check_size(len(value), least=True)
        try:
            return _pack(value, None, _OPTIONS)
        except TypeError:  # a lone surrogate, an int beyond 64 bits
            return reference.encode_part(value, depth)
    if is_native(kind) and kind is not Registered:
        return reference.encode_part(value, depth)
    closed = value if kind is Registered else close_value(value)
    if isinstance(closed, ArrayValue):
        return reference.encode_part(closed, depth)
    name, version, inner = registered_parts(closed)
    head = reference.array_head(3) + _pack(name) + _pack(version)
    if depth >= DEPTH_MAX:
        return reference.encode_part(closed, depth)  # it refuses
    return reference.ext(EXT_REGISTERED, head + _any(inner, depth + 1, decoded))


def _items(value: list[Any], depth: int, decoded: bool) -> bytes:
    """The array that a tuple holds."""
    if depth < DEPTH_MAX and _FLAT.issuperset(map(type, value)):
        try:
            data = _pack(value, None, _OPTIONS)
        except TypeError:
            pass
        else:
            if not may_hold_odd_nan(data):
                return data
    return _any(value, depth, decoded)


def _taken_apart(value: Any, depth: int, decoded: bool) -> bytes:
    """The encoding of a dict or list in which something stands that ormsgpack must not write."""
    if depth >= DEPTH_MAX:
        return reference.encode_part(value, depth)  # it refuses
    if type(value) is list:
        items = value[:]
        pieces: list[bytes] = []
        size = 0
        for item in items:
            pieces.append(_any(item, depth + 1, decoded))
            size += len(pieces[-1])
            if size > SIZE_BYTES_MAX:
                reference.check_size(size, least=True)
        return b"".join((reference.array_head(len(items)), *pieces))
    entries = value.copy()
    try:
        pieces = _plain_entries(entries, depth, decoded)
    except _MixedKeys:
        return _mixed_dict(entries, depth, decoded)
    return b"".join((reference.map_head(len(entries)), *pieces))


def _plain_entries(entries: dict[Any, Any], depth: int, decoded: bool) -> list[bytes]:
    pieces: list[bytes] = []
    size = 0
    for key, item in entries.items():
        pieces += (_plain_key(key), _any(item, depth + 1, decoded))
        size += len(pieces[-1])
        if size > SIZE_BYTES_MAX:
            reference.check_size(size, least=True)
    return pieces


_known_keys: dict[str, bytes] = {}


def _plain_key(key: object) -> bytes:
    if type(key) is not str:
        raise _MixedKeys
    data = _known_keys.get(key)
    if data is None:
        if not is_utf8(key):
            raise _MixedKeys
        data = _pack(key)
        if len(key) <= _KEY_LENGTH_MAX:
            if len(_known_keys) >= _KEYS_REMEMBERED_MAX:
                _known_keys.clear()
            _known_keys[key] = data
    return data


def _mixed_dict(entries: dict[Any, Any], depth: int, decoded: bool) -> bytes:
    """A dict that is no map, inside fewer than the most containers."""
    easy_keys = _EASY.issuperset(map(type, entries))
    if easy_keys and _EASY.issuperset(map(type, entries.values())):
        try:
            # Pairs are arrays of two, which ormsgpack writes.
            return reference.ext(EXT_DICT, _pack(list(map(list, entries.items())), None, _OPTIONS))
        except TypeError:
            pass
    keys = [_part(key, depth + 1, decoded) for key in entries]
    if not easy_keys:
        reference.check_keys(entries, keys)
    pieces = [reference.array_head(len(keys))]
    for key, item in zip(keys, entries.values(), strict=True):
        pieces += (b"\x92", key, _any(item, depth + 1, decoded))
    return reference.ext(EXT_DICT, b"".join(pieces))


# --- A large value, a chunk at a time: no guard then looks at much at once.


def _chunks(value: Any, depth: int, decoded: bool) -> list[bytes]:
    """The encoding of a large dict or list, in pieces."""
    is_dict = type(value) is dict
    entries: list[Any] = list(value.items()) if is_dict else value[:]
    items: list[Any] = [entry[1] for entry in entries] if is_dict else entries
    kinds = set(map(type, items))
    if depth >= DEPTH_MAX or (dict not in kinds and list not in kinds):
        return [_part(value, depth, decoded)]
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
        return [_mixed_dict(dict(entries), depth, decoded)]
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
            data = _within(chunk, DEPTH_MAX - depth)
            _guard(chunk, data, decoded)
        except (TypeError, Unsure):
            if is_dict:
                pieces += _plain_entries(chunk, depth, decoded)
            else:
                pieces += [_any(item, depth + 1, decoded) for item in chunk]
        else:
            pieces.append(data[1 if len(chunk) < 16 else 3 :])  # without the chunk's own head
            count = max(1, min(4 * count, count * _CHUNK_BYTES // len(data)))
    return pieces


# --- What ormsgpack writes, and the guards over it.


def _packed(value: Any, depth: int, decoded: bool) -> bytes:
    """What ormsgpack writes for a dict or list. TypeError or `Unsure` where it is not canonical."""
    nesting_max = DEPTH_MAX - depth
    if len(value) > 6:
        data = _within(value, nesting_max)
    else:
        data = _pack(value, None, _OPTIONS)
        if len(data) > SIZE_BYTES_MAX:
            reference.check_size(len(data), least=True)
        if not is_shallow(data, nesting_max):
            data = _within(value, nesting_max)
    _guard(value, data, decoded)
    return data


# Nested one-element lists by how many containers they leave room for, to be used again: the
# innermost holds the value while it is packed.
_wrappers: dict[int, list[tuple[list[Any], list[Any]]]] = {}


def _within(value: object, nesting_max: int) -> bytes:
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
        data = _pack(outer, None, _OPTIONS)
        if len(data) > SIZE_BYTES_MAX + count:  # refused before it is copied and looked at
            reference.check_size(len(data) - count, least=True)
        return data[count:]
    finally:
        inner[0] = None
        pool.append((outer, inner))


def _guard(value: object, data: bytes, decoded: bool) -> None:
    """Raises `Unsure` where `data` may hold a NaN of other bits, or bytes that were not bytes."""
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


# The last line: references from modules that come later only make the guards look more closely.
_REFERENCES_AT_REST: Final = _ormsgpack_references()
