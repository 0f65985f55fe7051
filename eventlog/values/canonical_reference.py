"""The reference encoder of canonical values: pure Python, the judge of what the bytes are.

The accelerated encoder falls back on this one for every value it is not sure of, and for the error
that names the path of a value without a canonical form.
"""

import struct
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from eventlog.errors import ValueNotEncodableError
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
    Refusal,
    array_parts,
    int_payload,
    number_parts,
    registered_parts,
    time_parts,
)
from eventlog.values.opaque_values import ArrayValue, Registered
from eventlog.values.refusal_path import refusal_error
from eventlog.values.registered_types import close_value, holds_nan

NIL: Final = b"\xc0"
FALSE: Final = b"\xc2"
TRUE: Final = b"\xc3"
NAN_BYTES: Final = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
_TEXT_REMEMBERED_MAX: Final = 32  # code points; longer texts seldom come twice

_U8 = struct.Struct(">BB").pack
_U16 = struct.Struct(">BH").pack
_U32 = struct.Struct(">BI").pack
_U64 = struct.Struct(">BQ").pack
_S8 = struct.Struct(">Bb").pack
_S16 = struct.Struct(">Bh").pack
_S32 = struct.Struct(">Bi").pack
_S64 = struct.Struct(">Bq").pack
_FLOAT = struct.Struct(">Bd").pack
_SMALL_INTS: Final = [bytes((value & 0xFF,)) for value in range(-32, 128)]

_LARGE_BYTES: Final = 1 << 16  # from here on, the head of a part takes 32 bits


class _Texts(dict[str, bytes]):
    """The encodings of short texts seen in this call: keys come again and again.

    `large_bytes` adds up the large parts, so that they are refused before they fill the memory.
    """

    large_bytes = 0

    def add_large(self, size: int) -> None:
        self.large_bytes += size
        if self.large_bytes > SIZE_BYTES_MAX:
            check_size(self.large_bytes, least=True)


def encode(value: object) -> bytes:
    """The canonical bytes of `value`. Raises `ValueNotEncodableError` naming the path."""
    try:
        data = _one(value, 0, _Texts())
    except Refusal as refusal:
        raise refusal_error(value, refusal, encode_part) from refusal
    except RecursionError as error:
        raise ValueNotEncodableError(
            "the value is nested deeper than this process's recursion limit leaves room for",
            hint="flatten it, or encode it from a shallower call",
            path="$",
        ) from error
    except RuntimeError as error:
        raise ValueNotEncodableError(
            f"the value changed while it was encoded: {error}",
            hint="capture it in the thread that changes it, or copy it first",
            path="$",
        ) from error
    check_size(len(data))
    return data


def check_size(size: int, *, least: bool = False) -> None:
    """Raises `ValueNotEncodableError` where `size` bytes are over the limit of one value.

    `least`: so much is known before all of it is encoded.
    """
    if size > SIZE_BYTES_MAX:
        known = f"at least {size}" if least else f"{size}"
        raise ValueNotEncodableError(
            f"the value takes {known} bytes, over the limit of {SIZE_BYTES_MAX}",
            hint="keep large blobs outside the state and store their digest",
            path="$",
        )


def _write(values: Iterable[object], out: list[bytes], depth: int, texts: _Texts) -> None:
    """Append the encodings of `values`, which stand inside `depth` containers, to `out`."""
    append, known = out.append, texts.get
    value: Any
    for value in values:
        kind = type(value)
        if kind is str:
            append(known(value) or _text(value, texts))
        elif kind is int:
            append(_SMALL_INTS[value + 32] if -32 <= value <= 127 else _int(value))
        elif kind is dict:
            _write_dict(value, out, depth, texts)
        elif kind is list:
            _write_list(value, out, depth, texts)
        else:
            _write_rare(value, out, depth, texts)


def _write_list(value: list[Any], out: list[bytes], depth: int, texts: _Texts) -> None:
    # A copy, here and below: where another thread changes it, the head must fit what follows.
    items = value[:]
    count = len(items)
    out.append(_ARRAY_HEADS[count] if count < 16 else array_head(count))
    inside = _inside(depth)
    if count:
        _write(items, out, inside, texts)


def _write_dict(value: dict[Any, Any], out: list[bytes], depth: int, texts: _Texts) -> None:
    # The same dispatch as in `_write`, once more for speed: most of a state is dicts.
    append, known = out.append, texts.get
    inside = _inside(depth)
    begin = len(out)
    entries = value.copy()
    append(map_head(len(entries)))
    for key, item in entries.items():
        if type(key) is not str:
            break
        head = known(key)
        if head is None:
            head = _text(key, texts)
            if 0xC0 <= head[0] < 0xD9:
                break  # an ext: UTF-8 cannot encode this key
        append(head)
        kind = type(item)
        if kind is str:
            append(known(item) or _text(item, texts))
        elif kind is int:
            append(_SMALL_INTS[item + 32] if -32 <= item <= 127 else _int(item))
        elif kind is dict:
            _write_dict(item, out, inside, texts)
        elif kind is list:
            _write_list(item, out, inside, texts)
        else:
            _write_rare(item, out, inside, texts)
    else:
        return
    del out[begin:]
    keys = [_one(key, inside, texts) for key in entries]
    check_keys(entries, keys)
    pairs = [array_head(len(keys))]
    for head, item in zip(keys, entries.values(), strict=True):
        pairs += (b"\x92", head)
        _write((item,), pairs, inside, texts)
    append(ext(EXT_DICT, b"".join(pairs)))


def _write_rare(value: Any, out: list[bytes], depth: int, texts: _Texts) -> None:
    """All but str, int, list and dict. Few calls a level: 200 levels must fit in Python's stack."""
    kind = type(value)
    leaf = _LEAVES.get(kind)
    if leaf is not None:
        data = leaf(value)
        if len(data) >= _LARGE_BYTES:
            texts.add_large(len(data))
        out.append(data)
        return
    closed = value if kind in _CONTAINERS or kind in _CLOSED else close_value(value)
    if type(closed) is ArrayValue:
        out.append(ext(EXT_ARRAY, _parts(array_parts(closed))))
        return
    inside = _inside(depth)
    if kind is tuple:
        code, part = EXT_TUPLE, [array_head(len(value))]
        _write(value, part, inside, texts)
    elif kind is set or kind is frozenset:
        code = EXT_SET if kind is set else EXT_FROZENSET
        members, elements = list(value), []
        for member in members:
            part = []
            _write((member,), part, inside, texts)
            elements.append(b"".join(part))
        check_keys(members, elements)
        part = [array_head(len(elements)), *sorted(elements)]
    else:
        name, version, inner = registered_parts(closed)
        code, part = EXT_REGISTERED, [array_head(3)]
        _write((name, version), part, 0, texts)
        _write((inner,), part, inside, texts)
    out.append(ext(code, b"".join(part)))


def encode_part(value: object, depth: int) -> bytes:
    """The encoding of a value that stands inside `depth` containers. Raises `Refusal`."""
    return _one(value, depth, _Texts())


def _one(value: object, depth: int, texts: _Texts) -> bytes:
    out: list[bytes] = []
    _write((value,), out, depth, texts)
    return b"".join(out)


def _text(value: str, texts: _Texts) -> bytes:
    if len(value) > SIZE_BYTES_MAX:
        check_size(len(value), least=True)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        return ext(EXT_STR, value.encode("utf-8", "surrogatepass"))
    size = len(data)
    if size < 32:
        data = _STR_HEADS[size] + data
    elif size < 256:
        data = _U8(0xD9, size) + data
    elif size < 65536:
        data = _U16(0xDA, size) + data
    else:
        texts.add_large(size)
        data = _U32(0xDB, size) + data
    if len(value) <= _TEXT_REMEMBERED_MAX:
        texts[value] = data
    return data


_STR_HEADS: Final = [bytes((0xA0 | size,)) for size in range(32)]
_ARRAY_HEADS: Final = [bytes((0x90 | count,)) for count in range(16)]
_MAP_HEADS: Final = [bytes((0x80 | count,)) for count in range(16)]


def _int(value: int) -> bytes:
    """An int outside -32 .. 127, in the shortest form."""
    if value >= 0:
        if value < 1 << 8:
            return _U8(0xCC, value)
        if value < 1 << 16:
            return _U16(0xCD, value)
        if value < 1 << 32:
            return _U32(0xCE, value)
        if value < 1 << 64:
            return _U64(0xCF, value)
    elif value >= -(1 << 7):
        return _S8(0xD0, value)
    elif value >= -(1 << 15):
        return _S16(0xD1, value)
    elif value >= -(1 << 31):
        return _S32(0xD2, value)
    elif value >= -(1 << 63):
        return _S64(0xD3, value)
    return ext(EXT_INT, int_payload(value))


def _bytes(value: bytes) -> bytes:
    size = len(value)
    if size < 256:
        return _U8(0xC4, size) + value
    if size < 65536:
        return _U16(0xC5, size) + value
    return _head32(0xC6, size) + value


def ext(code: int, payload: bytes) -> bytes:
    """`payload` as ext `code`, with the shortest head."""
    size = len(payload)
    if size in _FIXED_EXT:
        return _U8(_FIXED_EXT[size], code) + payload
    if size < 256:
        return bytes((0xC7, size, code)) + payload
    if size < 65536:
        return _U16(0xC8, size) + bytes((code,)) + payload
    return _head32(0xC9, size) + bytes((code,)) + payload


_FIXED_EXT: Final = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


def array_head(count: int) -> bytes:
    """The head of an array of `count` items."""
    if count < 16:
        return _ARRAY_HEADS[count]
    return _U16(0xDC, count) if count < 65536 else _head32(0xDD, count)


def map_head(count: int) -> bytes:
    """The head of a map of `count` entries."""
    if count < 16:
        return _MAP_HEADS[count]
    return _U16(0xDE, count) if count < 65536 else _head32(0xDF, count)


def _head32(code: int, size: int) -> bytes:
    """A head with 32 bits for the size or count, each of which is a byte of the value at least."""
    check_size(size, least=True)
    return _U32(code, size)


def _inside(depth: int) -> int:
    """The depth inside one more container."""
    if depth >= DEPTH_MAX:
        raise Refusal(f"is nested in {DEPTH_MAX} containers, the limit", "flatten the value")
    return depth + 1


def check_keys(keys: Iterable[object], encoded: list[bytes]) -> None:
    """Refuse keys or elements that could not be told apart, or found again, once restored."""
    if any(map(holds_nan, keys)):
        raise Refusal("has NaN in a key or set element", "NaN equals nothing: use another key")
    if len(set(encoded)) != len(encoded):
        raise Refusal(
            "has two keys or set elements of the same canonical form",
            "make them differ in what is stored",
        )


def _parts(parts: list[object]) -> bytes:
    out = [array_head(len(parts))]
    _write(parts, out, 0, _Texts())
    return b"".join(out)


def _time(value: Any) -> bytes:
    return ext(EXT_TIME, _parts(time_parts(value)))


def _number(value: Any) -> bytes:
    return ext(EXT_NUMBER, _parts(number_parts(value)))


_LEAVES: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _value: NIL,
    bool: lambda value: TRUE if value else FALSE,
    float: lambda value: _FLOAT(0xCB, value) if value == value else NAN_BYTES,
    bytes: _bytes,
    **dict.fromkeys((datetime, date, time, timedelta), _time),
    **dict.fromkeys((Decimal, UUID, complex), _number),
}
_CONTAINERS: Final = frozenset((tuple, set, frozenset))
_CLOSED: Final = frozenset((Registered, ArrayValue))
