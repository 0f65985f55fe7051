"""The compiled reader: what the writer writes and nothing else, in bounded memory."""

import json
import random
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.avro.record_reader import READ_ERRORS, RecordReaders, read_bytes, read_long, read_text
from eventlog.avro.record_writer import RecordWriters, long_bytes, text_bytes
from eventlog.schema import AvroSchema
from tests.support.data import data_path
from tests.support.scale import scaled


class Flat(NamedTuple):
    """In another order than the schema's."""

    number: int
    flag: bool
    names: Any
    counts: Any
    mode: str
    code: bytes
    blob: Any
    half: float


SCHEMA = AvroSchema(
    {
        "type": "record",
        "name": "t.Flat",
        "fields": [
            {"name": "mode", "type": {"type": "enum", "name": "Mode", "symbols": ["off", "on"]}},
            {"name": "number", "type": "int"},
            {"name": "flag", "type": "boolean"},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {"name": "names", "type": {"type": "array", "items": "string"}},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
            {"name": "blob", "type": ["null", "bytes", "string"]},
            {"name": "half", "type": "double"},
        ],
    }
)
READ = RecordReaders(SCHEMA.types, {"t.Flat": Flat}, {}).reader(SCHEMA.canonical)
WRITE = RecordWriters(SCHEMA.types, {"t.Flat": Flat}, {}).writer(SCHEMA.canonical)

flats = st.builds(
    Flat,
    number=st.integers(-(2**31), 2**31 - 1),
    flag=st.booleans(),
    names=st.lists(st.text(max_size=5)).map(tuple),
    counts=st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1)),
    mode=st.sampled_from(["off", "on"]),
    code=st.binary(min_size=2, max_size=2),
    blob=st.none() | st.binary() | st.text(),
    half=st.floats(allow_nan=False),
)


@given(flats)
def test_what_is_written_is_read(value: Flat) -> None:
    data = WRITE(value)
    assert READ(b"--" + data, 2) == (value, 2 + len(data))


@given(flats)
def test_fastavro_reads_the_same(value: Flat) -> None:
    datum, _ = SCHEMA.read_datum(WRITE(value))
    read, _ = READ(WRITE(value), 0)
    assert datum == read._asdict() | {"names": list(read.names), "counts": dict(read.counts)}


def accepted_only_as_written(data: bytes) -> None:
    try:
        value, end = READ(data, 0)
    except READ_ERRORS:
        return
    assert WRITE(value) == data[:end]


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    accepted_only_as_written(data)


@given(flats, st.randoms(use_true_random=False))
def test_damaged_bytes(value: Flat, rng: random.Random) -> None:
    data = bytearray(WRITE(value))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    accepted_only_as_written(bytes(data))
    accepted_only_as_written(bytes(data[: rng.randrange(len(data))]))


def test_avros_longs() -> None:
    text = data_path("vectors", "avro", "long_binary_encodings.json").read_text()
    for vector in json.loads(text):
        data = bytes.fromhex(vector["hex"])
        assert read_long(data, 0) == (vector["long"], len(data))


def test_longs_of_every_length() -> None:
    rng = random.Random(5)
    for _ in range(scaled(5_000, 200_000)):
        number = rng.getrandbits(rng.randrange(1, 64)) * rng.choice((1, -1))
        assert read_long(long_bytes(number), 0) == (number, len(long_bytes(number)))


LONGEST = long_bytes(2**63 - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x00",  # zero in two bytes
        b"\xff\x80\x00",
        b"\xff" * 10 + b"\x01",  # 11 bytes
        b"\xff" * 9 + b"\x02",  # 65 bits
        b"\xff" * 9 + b"\x7f",
        b"\x80" * 100_000,
    ],
)
def test_longs_in_another_form_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="number"):
        read_long(data, 0)


@pytest.mark.parametrize("read", [read_bytes, read_text])
@pytest.mark.parametrize("length", [-1, -64, -65, -(2**63), 4, 65, 2**31, 2**62, 2**63 - 1])
def test_lengths_that_are_not_there(read: Callable[[bytes, int], Any], length: int) -> None:
    with pytest.raises(ValueError, match=f"length of {length}"):
        read(long_bytes(length) + b"abc", 0)


def test_text_is_strict_utf8() -> None:
    for data in (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x98"):
        with pytest.raises(UnicodeDecodeError):
            read_text(long_bytes(len(data)) + data, 0)


def reader_of(definition: Any) -> Callable[[bytes, int], Any]:
    return RecordReaders({}, {}, {}).reader(definition)


READ_MAP = reader_of({"type": "map", "values": "long"})
READ_ARRAY = reader_of({"type": "array", "items": "string"})


@pytest.mark.parametrize(
    "data",
    [
        long_bytes(2) + text_bytes("b") + b"\0" + text_bytes("a") + b"\0\0",  # out of order
        long_bytes(2) + text_bytes("a") + b"\0" + text_bytes("a") + b"\0\0",  # twice
        long_bytes(1) + text_bytes("a") + b"\0" + long_bytes(1) + text_bytes("b") + b"\0\0",
        long_bytes(-1) + long_bytes(3) + text_bytes("a") + b"\0\0",  # a block with its size
        long_bytes(2**62) + text_bytes("a") + b"\0\0",
        long_bytes(-(2**62)) + text_bytes("a") + b"\0\0",
        long_bytes(5) + text_bytes("a") + b"\0\0",
    ],
)
def test_maps_in_another_form_are_refused(data: bytes) -> None:
    with pytest.raises(READ_ERRORS):
        READ_MAP(data, 0)


@pytest.mark.parametrize("count", [2, 1000, 2**31, 2**62, -1, -(2**63)])
def test_arrays_that_are_not_there(count: int) -> None:
    with pytest.raises(READ_ERRORS):
        READ_ARRAY(long_bytes(count) + text_bytes("a") + b"\0", 0)


def test_memory_is_bounded_by_the_bytes() -> None:
    claims = [long_bytes(2**40), long_bytes(2**62), long_bytes(-(2**40))]
    tracemalloc.start()
    try:
        for claim in claims:
            for read in (READ_MAP, READ_ARRAY, read_bytes, read_text):
                with pytest.raises(READ_ERRORS):
                    read(claim + b"\x02a" * 100, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    ("definition", "data"),
    [
        ("boolean", b"\x02"),
        ("int", long_bytes(2**31)),
        ("int", long_bytes(-(2**31) - 1)),
        ("double", b"1234567"),
        (["null", "long"], b"\x04"),
        (["null", "long"], b"\x01"),
        (["null", "bytes", "string"], b"\x06"),
        (["null", "bytes", "string"], b"\x01"),
    ],
)
def test_values_that_are_none(definition: Any, data: bytes) -> None:
    with pytest.raises(READ_ERRORS):
        reader_of(definition)(data, 0)


@pytest.mark.parametrize("code", [b"\x01", b"\x04", b"\x03", b"\x80\x00", b"\xff"])
def test_enum_symbols_that_are_none(code: bytes) -> None:
    """-1 among them, which a Python index would take for the last symbol."""
    good = WRITE(Flat(0, True, (), {}, "on", b"12", None, 0.0))
    with pytest.raises(READ_ERRORS):
        READ(code + good[1:], 0)
