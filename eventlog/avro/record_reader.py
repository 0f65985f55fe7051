"""Avro bytes to records: a reader compiled once from a schema, which accepts no second form.

Every length, index and number is checked, so that damaged bytes give `Misread` and nothing else,
in memory bounded by the bytes themselves. What it accepts, `record_writer` writes back to the same
bytes: numbers in their shortest form, maps in one block in key order, nothing twice. (fastavro
takes negative lengths and enum indexes as Python slices do, and is half as fast for one event.)
"""

import struct
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from eventlog.avro.schema_walk import SchemaWalk

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""From the bytes and a position to the value and the position after it."""

_unpack_double: Final = struct.Struct("<d").unpack_from
_INT_BOUND: Final = 2**31
_VARINT_SHIFT_MAX: Final = 63


class Misread(ValueError):  # noqa: N818 - never leaves eventlog: the codec turns it into its error
    """Bytes are not of the schema they are read with."""


READ_ERRORS: Final = (IndexError, UnicodeDecodeError, Misread)
"""What a reader raises on bytes that are not of its schema; IndexError: they end early."""


class RecordReaders(SchemaWalk[Read]):
    """Compiles readers for the types of one schema."""

    def reader(self, definition: Any) -> Read:
        """A function that reads a value of this type; raises one of `READ_ERRORS`."""
        return self.compiled(definition)

    def primitive(self, name: str) -> Read | None:
        """A reader of a primitive type."""
        return _PRIMITIVES.get(name)

    def array(self, items: Read) -> Read:
        """A reader of arrays."""
        return _array_reader(items)

    def map(self, values: Read) -> Read:
        """A reader of maps."""
        return _map_reader(values)

    def enum(self, symbols: list[str]) -> Read:
        """A reader of enums."""
        return _enum_reader(symbols)

    def fixed(self, size: int) -> Read:
        """A reader of fixed bytes."""
        return _fixed_reader(size)

    def record(self, cls: type[Any], names: list[str], fields: list[Read]) -> Read:
        """A reader of records."""
        return record_reader(cls, names, fields)

    def union(self, branches: list[Any]) -> Read:
        """A union of null and one type, or of any types."""
        if len(branches) == 2 and branches[0] == "null":
            return _optional_reader(self.compiled(branches[1]))
        return _union_reader([self.compiled(branch) for branch in branches])


def record_reader(cls: type[Any], names: list[str], readers: list[Read]) -> Read:
    """A reader of `cls` from one reader for each of its fields, which come in the order given."""
    order = [names.index(name) for name in cls._fields]
    in_order = itemgetter(*order) if order != list(range(len(order))) else None
    new = tuple.__new__

    def read(data: bytes, position: int) -> tuple[Any, int]:
        values = []
        for read_field in readers:
            value, position = read_field(data, position)
            values.append(value)
        return new(cls, values if in_order is None else in_order(values)), position

    return read


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """An Avro long, in its shortest form only."""
    number = data[position]
    position += 1
    if number < 0x80:
        return (number >> 1) ^ -(number & 1), position
    number &= 0x7F
    shift = 7
    byte = data[position]
    while byte > 0x7F:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > _VARINT_SHIFT_MAX:
            raise Misread(f"a number of more than 64 bits at byte {position}")
        position += 1
        byte = data[position]
    number |= byte << shift
    if byte == 0 or number >> 64:
        raise Misread(f"a number not in its shortest form at byte {position}")
    return (number >> 1) ^ -(number & 1), position + 1


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Avro bytes: a length, then as many bytes."""
    # A length is not negative, so that its zigzag form is even: the short one is read right here.
    length = data[position] >> 1
    if data[position] & 0x81:
        length, position = read_long(data, position)
    else:
        position += 1
    end = position + length
    chunk = data[position:end]
    if len(chunk) != length:
        raise Misread(f"a length of {length} at byte {position} of {len(data)}")
    return chunk, end


def read_text(data: bytes, position: int) -> tuple[str, int]:
    """An Avro string; UTF-8 is strict."""
    chunk, end = read_bytes(data, position)
    return chunk.decode("utf-8"), end


def _read_null(_data: bytes, position: int) -> tuple[None, int]:
    return None, position


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    byte = data[position]
    if byte > 1:
        raise Misread(f"a boolean of {byte} at byte {position}")
    return byte == 1, position + 1


def _read_int(data: bytes, position: int) -> tuple[int, int]:
    number, end = read_long(data, position)
    if not -_INT_BOUND <= number < _INT_BOUND:
        raise Misread(f"an int of more than 32 bits at byte {position}")
    return number, end


def _read_double(data: bytes, position: int) -> tuple[float, int]:
    end = position + 8
    if end > len(data):
        raise Misread(f"a double at byte {position} of {len(data)}")
    return _unpack_double(data, position)[0], end


_PRIMITIVES: Final[Mapping[str, Read]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "double": _read_double,
    "bytes": read_bytes,
    "string": read_text,
}


def _fixed_reader(size: int) -> Read:
    def read(data: bytes, position: int) -> tuple[bytes, int]:
        end = position + size
        chunk = data[position:end]
        if len(chunk) != size:
            raise Misread(f"{size} bytes at byte {position} of {len(data)}")
        return chunk, end

    return read


def _enum_reader(symbols: list[str]) -> Read:
    by_code = {index << 1: symbol for index, symbol in enumerate(symbols)}

    def read(data: bytes, position: int) -> tuple[str, int]:
        symbol = by_code.get(data[position])
        if symbol is None:
            raise Misread(f"an enum has no such symbol at byte {position}")
        return symbol, position + 1

    return read


def _read_block(data: bytes, position: int) -> tuple[int, int]:
    """The count of an array's or map's only block; 0 where there is none."""
    count, end = read_long(data, position)
    # Every item takes a byte or more: a larger count is damage, and would only be read in vain.
    if not 0 <= count <= len(data) - end:
        raise Misread(f"a block of {count} items at byte {position} of {len(data)}")
    return count, end


def _read_block_end(data: bytes, position: int) -> int:
    if data[position] != 0:
        raise Misread(f"a second block at byte {position}")
    return position + 1


def _array_reader(read_item: Read) -> Read:
    def read(data: bytes, position: int) -> tuple[tuple[Any, ...], int]:
        count, position = _read_block(data, position)
        if count == 0:
            return (), position
        items = []
        for _ in range(count):
            item, position = read_item(data, position)
            items.append(item)
        return tuple(items), _read_block_end(data, position)

    return read


def _map_reader(read_value: Read) -> Read:
    def read(data: bytes, position: int) -> tuple[Mapping[str, Any], int]:
        count, position = _read_block(data, position)
        if count == 0:
            return EMPTY_MAP, position
        items: dict[str, Any] = {}
        last_key = None
        for _ in range(count):
            start = position
            key, position = read_text(data, position)
            if last_key is not None and key <= last_key:
                raise Misread(f"keys of a map out of order at byte {start}")
            last_key = key
            items[key], position = read_value(data, position)
        return MappingProxyType(items), _read_block_end(data, position)

    return read


EMPTY_MAP: Final[Mapping[str, Any]] = MappingProxyType({})


def _optional_reader(read_value: Read) -> Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        index = data[position]
        if index == 0:
            return None, position + 1
        if index != 2:
            raise Misread(f"a union has no such branch at byte {position}")
        return read_value(data, position + 1)

    return read


def _union_reader(readers: list[Read]) -> Read:
    by_code = {index << 1: read for index, read in enumerate(readers)}

    def read(data: bytes, position: int) -> tuple[Any, int]:
        read_branch = by_code.get(data[position])
        if read_branch is None:
            raise Misread(f"a union has no such branch at byte {position}")
        return read_branch(data, position + 1)

    return read
