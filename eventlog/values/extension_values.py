"""Values that MessagePack has no type for: their ext codes, and their parts both ways.

Both encoders write the parts given here, and both decoders build from them, so the two cannot
differ in what a datetime is. Parts are plain lists of str, int, float, bytes and None. Building
from parts is lenient about spelling: a decoder compares the bytes of what it built.
"""

import re
import struct
import uuid
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from eventlog.values.opaque_values import ArrayValue, Registered

EXT_INT: Final = 1
EXT_STR: Final = 2
EXT_TUPLE: Final = 3
EXT_SET: Final = 4
EXT_FROZENSET: Final = 5
EXT_DICT: Final = 6
EXT_TIME: Final = 7
EXT_NUMBER: Final = 8
EXT_ARRAY: Final = 9
EXT_REGISTERED: Final = 10

DEPTH_MAX: Final = 200  # containers within containers; ext parts do not count
SIZE_BYTES_MAX: Final = 1 << 30
NAN: Final = float("nan")

_MICROSECOND: Final = timedelta(microseconds=1)
_SCIENTIFIC: Final = Context(capitals=1)
# A key of the tz database, and nothing that could name a file or a package outside it.
_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*")


class Refusal(Exception):  # noqa: N818  (never leaves the encoders; they raise our error from it)
    """A value has no canonical form.

    `why` completes the sentence "<type> at <path> ...", `hint` says what to do.
    """

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


class ZoneMissing(Exception):  # noqa: N818  (turned into CodecMissingError by the decoders' face)
    """The tz database of this machine lacks a zone that a stored time names."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def int_payload(value: int) -> bytes:
    """Two's complement, big-endian, of the least length: an int outside -2^63 .. 2^64-1."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def time_parts(value: datetime | date | time | timedelta) -> list[object]:
    """The parts of ext 7. Raises `Refusal` for a tzinfo that cannot be named."""
    if isinstance(value, datetime):
        plain = value.replace(tzinfo=None, fold=0).isoformat()
        return ["datetime", plain, value.fold, _zone_part(value.tzinfo)]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, time):
        plain = value.replace(tzinfo=None, fold=0).isoformat()
        return ["time", plain, value.fold, _zone_part(value.tzinfo)]
    return ["timedelta", value.days, value.seconds, value.microseconds]


def _zone_part(zone: tzinfo | None) -> int | str | None:
    if zone is None:
        return None
    hint = "use datetime.timezone(offset) without a name, or a ZoneInfo with its key"
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        if zone.tzname(None) != timezone(offset).tzname(None):
            raise Refusal(f"has a timezone with a name of its own ({zone.tzname(None)!r})", hint)
        return offset // _MICROSECOND
    if type(zone) is ZoneInfo:
        key = zone.key
        if isinstance(key, str) and _ZONE_KEY.fullmatch(key):
            try:
                ZoneInfo(key)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise Refusal(f"has the zone {key!r}, unknown to this machine", hint) from error
            return key
        raise Refusal(f"has a ZoneInfo without a usable key ({key!r})", hint)
    raise Refusal(f"has a tzinfo of {type(zone).__qualname__}", hint)


def _zone_of(part: object) -> tzinfo | None:
    if part is None:
        return None
    if type(part) is int:
        return timezone(timedelta(microseconds=part))
    if type(part) is str and _ZONE_KEY.fullmatch(part):
        try:
            return ZoneInfo(part)
        except (ZoneInfoNotFoundError, OSError) as error:
            raise ZoneMissing(part) from error
    raise ValueError(f"{part!r} is not a time zone")


def time_of(parts: object) -> datetime | date | time | timedelta:
    """The value of ext 7 parts. Raises ValueError, OverflowError or `ZoneMissing`."""
    match parts:
        case ["datetime", str(iso), int(fold), zone]:
            return datetime.fromisoformat(iso).replace(fold=fold, tzinfo=_zone_of(zone))
        case ["date", str(iso)]:
            return date.fromisoformat(iso)
        case ["time", str(iso), int(fold), zone]:
            return time.fromisoformat(iso).replace(fold=fold, tzinfo=_zone_of(zone))
        case ["timedelta", int(days), int(seconds), int(microseconds)]:
            return timedelta(days, seconds, microseconds)
    raise ValueError("ext 7 does not hold the parts of a time")


def number_parts(value: Decimal | uuid.UUID | complex) -> list[object]:
    """The parts of ext 8."""
    if isinstance(value, Decimal):
        return ["decimal", _SCIENTIFIC.to_sci_string(value)]
    if isinstance(value, uuid.UUID):
        return ["uuid", value.bytes]
    return ["complex", value.real, value.imag]


def number_of(parts: object) -> Decimal | uuid.UUID | complex:
    """The value of ext 8 parts. Raises ValueError."""
    match parts:
        case ["decimal", str(text)]:
            try:
                return Decimal(text)
            except InvalidOperation as error:
                raise ValueError(f"{text!r} is not a decimal") from error
        case ["uuid", bytes(raw)]:
            return uuid.UUID(bytes=raw)
        case ["complex", float(real), float(imaginary)]:
            return complex(real, imaginary)
    raise ValueError("ext 8 does not hold the parts of a number")


def array_parts(value: ArrayValue) -> list[object]:
    """The parts of ext 9. Raises `Refusal` where the fields do not fit each other."""
    try:
        check_array(value)
    except ValueError as error:
        raise Refusal(f"is not an array: {error}", "make it from an array") from error
    return [value.family, value.dtype, list(value.shape), value.data]


def array_of(parts: object) -> ArrayValue:
    """The closed value of ext 9 parts. Raises ValueError."""
    match parts:
        case [str(family), str(dtype), list(shape), bytes(data)]:
            value = ArrayValue(family, dtype, tuple(shape), data)
            check_array(value)
            return value
    raise ValueError("ext 9 does not hold the parts of an array")


# numpy's own spelling of little-endian and byte-wide dtypes; no longdouble (its bytes differ by
# machine), no structured or object dtype.
_NUMPY_DTYPE: Final = re.compile(
    r"[|](?P<byte>[biu])1|<(?P<wide>[iu])(?P<int>[248])|<f(?P<float>[248])|<c(?P<complex>8|16)"
    r"|[|]S(?P<bytes>0|[1-9]\d{0,8})|<U(?P<text>0|[1-9]\d{0,8})"
    r"|<[Mm]8(?:\[(?:[2-9]|[1-9]\d{1,8})?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
TORCH_ITEM_BYTES: Final = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


def item_bytes(family: str, dtype: str) -> int:
    """Bytes of one element. Raises ValueError for a dtype that has no canonical form."""
    if family == "tensor":
        size = TORCH_ITEM_BYTES.get(dtype)
        if size is not None:
            return size
    elif family in ("array", "scalar"):
        match = _NUMPY_DTYPE.fullmatch(dtype)
        if match is not None:
            return _numpy_item_bytes(match)
    raise ValueError(f"no canonical form for family {family!r} with dtype {dtype!r}")


def _numpy_item_bytes(match: re.Match[str]) -> int:
    if match["byte"]:
        return 1
    if match["text"]:
        return 4 * int(match["text"])
    width = match["int"] or match["float"] or match["complex"] or match["bytes"]
    return int(width) if width else 8


def check_array(value: ArrayValue) -> None:
    """Raises ValueError where family, dtype, shape and data do not fit each other."""
    shape, data = value.shape, value.data
    if type(value.family) is not str or type(value.dtype) is not str or type(data) is not bytes:
        raise ValueError("family and dtype are str, data is bytes")
    size = item_bytes(value.family, value.dtype)
    if any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"{shape!r} is not a shape")
    if value.family == "scalar" and shape:
        raise ValueError("a scalar has no axes")
    for axis in shape:
        size *= axis
    if size != len(data):
        raise ValueError(f"{len(data)} bytes of data where dtype and shape want {size}")


def registered_parts(value: Registered) -> list[object]:
    """The parts of ext 10. Raises `Refusal` for a name or version that is none."""
    if type(value.name) is not str or not value.name or not is_utf8(value.name):
        raise Refusal("has no name", "a registered name is a str that is not empty")
    if type(value.version) is not int or not 0 <= value.version < 1 << 32:
        raise Refusal("has no version", "a version is an int from 0 on")
    return [value.name, value.version, value.value]


def registered_of(parts: object) -> Registered:
    """The closed value of ext 10 parts. Raises ValueError."""
    match parts:
        case [str(name), int(version), value]:
            if not name or not is_utf8(name) or type(version) is not int:
                raise ValueError("ext 10 has no name or version")
            if not 0 <= version < 1 << 32:
                raise ValueError(f"{version} is not a version")
            return Registered(name, version, value)
    raise ValueError("ext 10 does not hold name, version and value")


def is_utf8(text: str) -> bool:
    """Whether the text has no lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def scalar_is_nan(value: ArrayValue) -> bool:
    """Whether a closed scalar is NaN or NaT, read from its bytes: numpy may be missing."""
    kind, data = value.dtype[1:2], value.data
    if kind in ("M", "m"):
        return data == b"\x00" * 7 + b"\x80"
    if kind == "c":
        half = len(data) // 2
        return _float_is_nan(data[:half]) or _float_is_nan(data[half:])
    return kind == "f" and _float_is_nan(data)


def _float_is_nan(data: bytes) -> bool:
    code = {2: "<e", 4: "<f", 8: "<d"}.get(len(data))
    if code is None:
        return False
    (number,) = struct.unpack(code, data)
    return bool(number != number)
