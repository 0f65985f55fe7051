"""First cut of the reference encoder and decoder (see FORMATS section 1)."""

import struct
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from typing import Final
from zoneinfo import ZoneInfo

from eventlog.errors import EventCorruptError, ValueNotEncodableError
from eventlog.opaque_values import ArrayValue, Registered

DEPTH_MAX: Final = 200
CANONICAL_NAN: Final = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
_DECIMAL = Context(capitals=1)


def _head(length: int, fix: int, fix_max: int, small: int | None, mid: int, big: int) -> bytes:
    if length <= fix_max:
        return bytes((fix | length,))
    if small is not None and length < 256:
        return bytes((small, length))
    if length < 65536:
        return bytes((mid,)) + length.to_bytes(2, "big")
    return bytes((big,)) + length.to_bytes(4, "big")


def _ext(code: int, data: bytes) -> bytes:
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(data))
    if fixed is not None:
        return bytes((fixed, code)) + data
    size = len(data)
    if size < 256:
        return bytes((0xC7, size, code)) + data
    if size < 65536:
        return b"\xc8" + size.to_bytes(2, "big") + bytes((code,)) + data
    return b"\xc9" + size.to_bytes(4, "big") + bytes((code,)) + data


def _int(value: int) -> bytes:
    if value >= 0:
        for limit, prefix, width in (
            (128, b"", 1), (256, b"\xcc", 1), (1 << 16, b"\xcd", 2), (1 << 32, b"\xce", 4), (1 << 64, b"\xcf", 8)
        ):
            if value < limit:
                return prefix + value.to_bytes(width, "big")
    else:
        if value >= -32:
            return bytes((256 + value,))
        for bits, prefix, width in ((7, b"\xd0", 1), (15, b"\xd1", 2), (31, b"\xd2", 4), (63, b"\xd3", 8)):
            if value >= -(1 << bits):
                return prefix + value.to_bytes(width, "big", signed=True)
    return _ext(1, value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True))


def _refuse(value: object, path: str, why: str = "has no canonical form") -> ValueNotEncodableError:
    return ValueNotEncodableError(
        f"{type(value).__name__} at {path} {why}",
        hint="store plain values, or register the type with steplog.register_type",
        path=path,
    )


def _array(items: "list[bytes]") -> bytes:
    return _head(len(items), 0x90, 15, None, 0xDC, 0xDD) + b"".join(items)


def _str(value: str) -> bytes:
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError:
        return _ext(2, value.encode("utf-8", "surrogatepass"))
    return _head(len(data), 0xA0, 31, 0xD9, 0xDA, 0xDB) + data


def _zone(zone: tzinfo | None, value: object, path: str) -> object:
    if zone is None:
        return None
    if type(zone) is timezone:
        return zone.utcoffset(None) // timedelta(microseconds=1)
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    raise _refuse(value, path, f"has the tzinfo {zone!r}")


def encode(value: object, path: str = "$", depth: int = 0) -> bytes:
    """Canonical bytes of `value`."""
    kind = type(value)
    if value is None:
        return b"\xc0"
    if value is True:
        return b"\xc3"
    if value is False:
        return b"\xc2"
    if kind is int:
        return _int(value)
    if kind is float:
        return CANONICAL_NAN if value != value else b"\xcb" + struct.pack(">d", value)
    if kind is str:
        return _str(value)
    if kind is bytes:
        return _head(len(value), 0, -1, 0xC4, 0xC5, 0xC6) + value
    if kind is Decimal:
        return _ext(8, encode(["decimal", _DECIMAL.to_sci_string(value)]))
    if kind is uuid.UUID:
        return _ext(8, encode(["uuid", value.bytes]))
    if kind is complex:
        return _ext(8, encode(["complex", value.real, value.imag]))
    if kind is datetime:
        plain = value.replace(tzinfo=None, fold=0)
        return _ext(7, encode(["datetime", plain.isoformat(), value.fold, _zone(value.tzinfo, value, path)]))
    if kind is date:
        return _ext(7, encode(["date", value.isoformat()]))
    if kind is time:
        plain = value.replace(tzinfo=None, fold=0)
        return _ext(7, encode(["time", plain.isoformat(), value.fold, _zone(value.tzinfo, value, path)]))
    if kind is timedelta:
        return _ext(7, encode(["timedelta", value.days, value.seconds, value.microseconds]))
    if depth >= DEPTH_MAX:
        raise _refuse(value, path, f"is nested deeper than {DEPTH_MAX}")
    deeper = depth + 1
    if kind is list:
        return _array([encode(item, f"{path}[{at}]", deeper) for at, item in enumerate(value)])
    if kind is tuple:
        return _ext(3, _array([encode(item, f"{path}[{at}]", deeper) for at, item in enumerate(value)]))
    if kind is set or kind is frozenset:
        items = sorted(encode(item, f"{path}{{{item!r}}}", deeper) for item in value)
        return _ext(4 if kind is set else 5, _array(items))
    if kind is dict:
        pairs = [
            (encode(key, f"{path} key {key!r}", deeper), encode(item, f"{path}[{key!r}]" if type(key) is not str else f"{path}.{key}", deeper))
            for key, item in value.items()
        ]
        if all(type(key) is str and not head[0].startswith((b"\xd4", b"\xd5", b"\xd6", b"\xd7", b"\xd8", b"\xc7", b"\xc8", b"\xc9")) for key, head in zip(value, pairs, strict=True)):
            return _head(len(pairs), 0x80, 15, None, 0xDE, 0xDF) + b"".join(key + item for key, item in pairs)
        return _ext(6, _array([b"\x92" + key + item for key, item in pairs]))
    if kind is Registered:
        return _ext(10, _array([encode(value.name), encode(value.version), encode(value.value, path, deeper)]))
    if kind is ArrayValue:
        return _ext(9, encode([value.family, value.dtype, list(value.shape), value.data]))
    raise _refuse(value, path)


def _corrupt(why: str) -> EventCorruptError:
    return EventCorruptError(f"not canonical bytes: {why}", hint="the stored bytes are damaged; run `steplog check`")


def decode(data: bytes) -> object:
    """The opaque value of canonical bytes; strict by encoding again."""
    try:
        value, end = _read(data, 0, 0)
    except (IndexError, struct.error, ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise _corrupt(str(error)) from error
    if end != len(data):
        raise _corrupt("bytes after the value")
    if encode(value) != data:
        raise _corrupt("not the shortest or not the ordered form")
    return value


_SIZES: dict[int, int] = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def _read(data: bytes, at: int, depth: int) -> tuple[object, int]:
    if depth > DEPTH_MAX + 50:
        raise _corrupt("nested too deep")
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head >= 0xE0:
        return head - 256, at
    if head in _SIZES:
        return int.from_bytes(_take(data, at, _SIZES[head]), "big", signed=head >= 0xD0), at + _SIZES[head]
    if head == 0xC0:
        return None, at
    if head in (0xC2, 0xC3):
        return head == 0xC3, at
    if head == 0xCB:
        return struct.unpack(">d", _take(data, at, 8))[0], at + 8
    if head >> 4 == 0x8 or head in (0xDE, 0xDF):
        count, at = (head & 15, at) if head < 0x90 else _length(data, at, 2 if head == 0xDE else 4)
        table: dict[object, object] = {}
        for _ in range(count):
            key, at = _read(data, at, depth + 1)
            table[key], at = _read(data, at, depth + 1)
        if len(table) != count:
            raise _corrupt("a key twice")
        return table, at
    if head >> 4 == 0x9 or head in (0xDC, 0xDD):
        count, at = (head & 15, at) if head < 0xA0 else _length(data, at, 2 if head == 0xDC else 4)
        items: list[object] = []
        for _ in range(count):
            item, at = _read(data, at, depth + 1)
            items.append(item)
        return items, at
    if head >> 5 == 0x5 or head in (0xD9, 0xDA, 0xDB):
        size, at = (head & 31, at) if head < 0xC0 else _length(data, at, 1 << (head - 0xD9))
        return _take(data, at, size).decode("utf-8"), at + size
    if head in (0xC4, 0xC5, 0xC6):
        size, at = _length(data, at, 1 << (head - 0xC4))
        return _take(data, at, size), at + size
    if 0xD4 <= head <= 0xD8:
        size = 1 << (head - 0xD4)
    elif head in (0xC7, 0xC8, 0xC9):
        size, at = _length(data, at, 1 << (head - 0xC7))
    else:
        raise _corrupt(f"the byte {head:#x}")
    code = data[at]
    return _open_ext(code, _take(data, at + 1, size), depth + 1), at + 1 + size


def _take(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise _corrupt("truncated")
    return piece


def _length(data: bytes, at: int, width: int) -> tuple[int, int]:
    return int.from_bytes(_take(data, at, width), "big"), at + width


def _open_ext(code: int, data: bytes, depth: int) -> object:
    if code == 1:
        return int.from_bytes(data, "big", signed=True)
    if code == 2:
        return data.decode("utf-8", "surrogatepass")
    inner, end = _read(data, 0, depth)
    if end != len(data) or type(inner) is not list:
        raise _corrupt(f"ext {code} does not hold one array")
    opener: Callable[[list[object]], object] | None = _OPENERS.get(code)
    if opener is None:
        raise _corrupt(f"unknown ext {code}")
    return opener(inner)


def _pairs(items: list[object]) -> object:
    table = dict(items)  # type: ignore[call-overload]
    if len(table) != len(items):
        raise _corrupt("a key twice")
    return table


def _tz(stored: object) -> tzinfo | None:
    if stored is None:
        return None
    if type(stored) is int:
        return timezone(timedelta(microseconds=stored))
    return ZoneInfo(stored)  # type: ignore[arg-type]


def _time(items: list[object]) -> object:
    match items:
        case ["datetime", str(iso), int(fold), zone]:
            return datetime.fromisoformat(iso).replace(fold=fold, tzinfo=_tz(zone))
        case ["date", str(iso)]:
            return date.fromisoformat(iso)
        case ["time", str(iso), int(fold), zone]:
            return time.fromisoformat(iso).replace(fold=fold, tzinfo=_tz(zone))
        case ["timedelta", int(days), int(seconds), int(micros)]:
            return timedelta(days, seconds, micros)
    raise _corrupt("ext 7")


def _number(items: list[object]) -> object:
    match items:
        case ["decimal", str(text)]:
            return Decimal(text)
        case ["uuid", bytes(raw)]:
            return uuid.UUID(bytes=raw)
        case ["complex", float(re), float(im)]:
            return complex(re, im)
    raise _corrupt("ext 8")


def _array_value(items: list[object]) -> object:
    family, dtype, shape, data = items
    return ArrayValue(family, dtype, tuple(shape), data)  # type: ignore[arg-type]


def _registered(items: list[object]) -> object:
    name, version, value = items
    return Registered(name, version, value)  # type: ignore[arg-type]


_OPENERS: dict[int, Callable[[list[object]], object]] = {
    3: tuple, 4: set, 5: frozenset, 6: _pairs, 7: _time, 8: _number, 9: _array_value, 10: _registered
}
