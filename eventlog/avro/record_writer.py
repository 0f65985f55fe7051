"""Records to Avro bytes: a writer compiled once from a schema, which checks every value it writes.

A record is a NamedTuple, matched to the schema by names of fields. Types are exact: a bool is no
int, an int no float, a subclass of str no str. Written bytes are those that fastavro writes
(`tests/eventlog/test_record_writer.py` proves it), at less than half its cost: fastavro needs each
record as a dict first, takes over 10 us for one event, and checks no types.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import call, itemgetter
from typing import Any, Final, TypeAlias

from eventlog.avro.schema_walk import SchemaWalk

Write: TypeAlias = Callable[[Any], bytes]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# Two bytes write up to 8191: most lengths, steps and counts. Their bytes stand in a table.
_TABLE_END: Final = 8192
# Texts up to this size repeat (kinds, media types, tool names), so that their bytes are kept.
_CACHED_TEXT_CHARS_MAX: Final = 64
_CACHED_TEXTS_MAX: Final = 4096

_SHOWN_CHARS_MAX: Final = 64

_pack_double: Final = struct.Struct("<d").pack


class Misfit(Exception):  # noqa: N818 - never leaves eventlog: the codec turns it into its error
    """A value does not fit the schema. `path` leads to it, outermost place first.

    `lone`: the value is a text that UTF-8 cannot encode, for it holds lone surrogates.
    """

    def __init__(self, reason: str, *, lone: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lone = lone
        self.path: list[str] = []

    def inside(self, place: str) -> "Misfit":
        """The same misfit, seen from one level further out."""
        self.path.insert(0, place)
        return self


class RecordWriters(SchemaWalk[Write]):
    """Compiles writers for the types of one schema."""

    def writer(self, definition: Any) -> Write:
        """A function that checks a value of this type and gives its Avro bytes; raises `Misfit`."""
        return self.compiled(definition)

    def primitive(self, name: str) -> Write | None:
        """A writer of a primitive type."""
        return _PRIMITIVES.get(name)

    def array(self, items: Write) -> Write:
        """A writer of arrays."""
        return _array_writer(items)

    def map(self, values: Write) -> Write:
        """A writer of maps."""
        return _map_writer(values)

    def enum(self, symbols: list[str]) -> Write:
        """A writer of enums."""
        return _enum_writer(symbols)

    def fixed(self, size: int) -> Write:
        """A writer of fixed bytes."""
        return _fixed_writer(size)

    def record(self, cls: type[Any], names: list[str], fields: list[Write]) -> Write:
        """A writer of records."""
        return record_writer(cls, names, fields)

    def union(self, branches: list[Any]) -> Write:
        """A union of null and one type, or of types told apart by their Python class."""
        if len(branches) == 2 and branches[0] == "null":
            return _optional_writer(self.compiled(branches[1]))
        by_class: dict[type[Any], tuple[bytes, Write]] = {}
        for index, branch in enumerate(branches):
            by_class[self._class_of(branch)] = (long_bytes(index), self.compiled(branch))
        return _union_writer(by_class)

    def _class_of(self, branch: Any) -> type[Any]:
        name = branch if isinstance(branch, str) else branch["name"]
        return _PYTHON_TYPES[name] if name in _PYTHON_TYPES else self._classes[name]


def record_writer(cls: type[Any], names: list[str], writers: list[Write]) -> Write:
    """A writer of `cls` from one writer for each of its fields, which go out in the order given."""
    order = [cls._fields.index(name) for name in names]
    in_order = itemgetter(*order) if order != list(range(len(order))) else None

    def write(value: Any) -> bytes:
        if type(value) is not cls:
            raise _wrong_type(f"a {cls.__name__}", value)
        fields = value if in_order is None else in_order(value)
        try:
            return b"".join(map(call, writers, fields))
        except Misfit:
            return b"".join(_located(names, writers, fields))

    return write


def long_bytes(value: int) -> bytes:
    """The Avro form of an int or long: zigzag, then 7 bits a byte, lowest first. No range check."""
    if 0 <= value < _TABLE_END:
        return _TABLE[value]
    return _varint((value << 1) ^ (value >> 63))


def text_bytes(value: object) -> bytes:
    """The Avro form of a str; raises `Misfit` for other types and for lone surrogates."""
    if type(value) is not str:
        raise _wrong_type("a str", value)
    if len(value) <= _CACHED_TEXT_CHARS_MAX:
        return _cached_text(value)
    return _text(value)


def _varint(number: int) -> bytes:
    out = []
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_TABLE: Final = [
    *(bytes((number,)) for number in range(0, 0x80, 2)),
    *(bytes((number & 0x7F | 0x80, number >> 7)) for number in range(0x80, 2 * _TABLE_END, 2)),
]


def _text(value: str) -> bytes:
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Misfit(f"holds a lone surrogate at index {error.start}", lone=True) from error
    return long_bytes(len(data)) + data


_cached_text: Final = lru_cache(_CACHED_TEXTS_MAX)(_text)


def _wrong_type(wanted: str, value: object) -> Misfit:
    return Misfit(f"must be {wanted}, is {type(value).__name__}")


def _null(value: object) -> bytes:
    if value is not None:
        raise _wrong_type("None", value)
    return b""


def _boolean(value: object) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise _wrong_type("a bool", value)


def _int(value: object) -> bytes:
    if type(value) is not int:
        raise _wrong_type("an int", value)
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise Misfit("does not fit into 32 bits")
    return long_bytes(value)


def _long(value: object) -> bytes:
    if type(value) is not int:
        raise _wrong_type("an int", value)
    if not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise Misfit("does not fit into 64 bits")
    return long_bytes(value)


def _double(value: object) -> bytes:
    if type(value) is not float:
        raise _wrong_type("a float", value)
    return _pack_double(value)


def _bytes(value: object) -> bytes:
    if type(value) is not bytes:
        raise _wrong_type("bytes", value)
    return long_bytes(len(value)) + value


_PRIMITIVES: Final[Mapping[str, Write]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "double": _double,
    "bytes": _bytes,
    "string": text_bytes,
}
_PYTHON_TYPES: Final[Mapping[str, type[Any]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "double": float,
    "bytes": bytes,
    "string": str,
}


def _fixed_writer(size: int) -> Write:
    def write(value: object) -> bytes:
        if type(value) is not bytes:
            raise _wrong_type(f"{size} bytes", value)
        if len(value) != size:
            raise Misfit(f"must be {size} bytes, has {len(value)}")
        return value

    return write


def _enum_writer(symbols: list[str]) -> Write:
    codes = {symbol: long_bytes(index) for index, symbol in enumerate(symbols)}

    def write(value: object) -> bytes:
        if type(value) is not str:
            raise _wrong_type("a str", value)
        if value not in codes:
            raise Misfit(f"{value[:_SHOWN_CHARS_MAX]!r} is none of {', '.join(symbols)}")
        return codes[value]

    return write


def _array_writer(write_item: Write) -> Write:
    def write(value: object) -> bytes:
        if type(value) is not tuple and type(value) is not list:
            raise _wrong_type("a tuple", value)
        if not value:
            return b"\x00"
        parts = [long_bytes(len(value))]
        for index, item in enumerate(value):
            parts.append(_write_inside(write_item, item, f"[{index}]"))
        parts.append(b"\x00")
        return b"".join(parts)

    return write


def _map_writer(write_value: Write) -> Write:
    def write(value: object) -> bytes:
        if not isinstance(value, Mapping):
            raise _wrong_type("a mapping", value)
        if not value:
            return b"\x00"
        for key in value:
            if type(key) is not str:
                raise _wrong_type("a mapping with str keys only", key)
        parts = [long_bytes(len(value))]
        for key in sorted(value):
            parts.append(_write_inside(text_bytes, key, f"[{key!r}]"))
            parts.append(_write_inside(write_value, value[key], f"[{key!r}]"))
        parts.append(b"\x00")
        return b"".join(parts)

    return write


def _optional_writer(write_value: Write) -> Write:
    def write(value: object) -> bytes:
        return b"\x00" if value is None else b"\x02" + write_value(value)

    return write


def _union_writer(by_class: Mapping[type[Any], tuple[bytes, Write]]) -> Write:
    wanted = " or ".join(each.__name__ for each in by_class)

    def write(value: object) -> bytes:
        branch = by_class.get(type(value))
        if branch is None:
            raise _wrong_type(wanted, value)
        return branch[0] + branch[1](value)

    return write


def _located(names: list[str], writers: list[Write], fields: Iterable[object]) -> list[bytes]:
    """Write once more, field by field, so that the misfit knows its field."""
    return [
        _write_inside(write, value, f".{name}")
        for name, write, value in zip(names, writers, fields, strict=True)
    ]


def _write_inside(write: Write, value: object, place: str) -> bytes:
    try:
        return write(value)
    except Misfit as misfit:
        raise misfit.inside(place) from None
