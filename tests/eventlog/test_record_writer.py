"""The compiled writer: exact types, paths to what does not fit, the bytes that fastavro writes."""

import json
import math
from collections import OrderedDict
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.avro.record_writer import Misfit, RecordWriters, long_bytes, text_bytes
from eventlog.schema import AvroSchema
from tests.support.data import data_path


class Inner(NamedTuple):
    number: int
    text: str


class Other(NamedTuple):
    flag: bool


class Outer(NamedTuple):
    """In another order than the schema's."""

    last: float
    mapping: Any
    items: Any = ()
    mode: str = "on"
    code: bytes = b"12"
    small: int = 0
    choice: Any = None
    inner: Any = None


SCHEMA = AvroSchema(
    {
        "type": "record",
        "name": "t.Outer",
        "fields": [
            {"name": "small", "type": "int"},
            {"name": "mode", "type": {"type": "enum", "name": "Mode", "symbols": ["off", "on"]}},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
            {"name": "mapping", "type": {"type": "map", "values": "long"}},
            {"name": "items", "type": {"type": "array", "items": "string"}},
            {
                "name": "inner",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Inner",
                        "fields": [
                            {"name": "number", "type": "long"},
                            {"name": "text", "type": "string"},
                        ],
                    },
                ],
            },
            {
                "name": "choice",
                "type": [
                    "null",
                    "bytes",
                    "Inner",
                    {
                        "type": "record",
                        "name": "Other",
                        "fields": [{"name": "flag", "type": "boolean"}],
                    },
                ],
            },
            {"name": "last", "type": "double"},
        ],
    }
)
CLASSES = {"t.Outer": Outer, "t.Inner": Inner, "t.Other": Other}
WRITE = RecordWriters(SCHEMA.types, CLASSES, {}).writer(SCHEMA.canonical)


def datum(value: Outer) -> dict[str, Any]:
    """For fastavro: dicts, and named branches."""
    plain: Any = value._asdict()
    if value.inner is not None:
        plain["inner"] = ("t.Inner", value.inner._asdict())
    if isinstance(value.choice, Inner | Other):
        plain["choice"] = (f"t.{type(value.choice).__name__}", value.choice._asdict())
    plain["mapping"] = {key: value.mapping[key] for key in sorted(value.mapping)}
    return dict(plain)


longs = st.integers(-(2**63), 2**63 - 1)
inners = st.builds(Inner, longs, st.text())
outers = st.builds(
    Outer,
    last=st.floats(),
    mapping=st.dictionaries(st.text(), longs),
    items=st.lists(st.text()).map(tuple),
    mode=st.sampled_from(["off", "on"]),
    code=st.binary(min_size=2, max_size=2),
    small=st.integers(-(2**31), 2**31 - 1),
    choice=st.none() | st.binary() | inners | st.builds(Other, st.booleans()),
    inner=st.none() | inners,
)


@given(outers)
def test_fastavro_writes_the_same(value: Outer) -> None:
    assert WRITE(value) == SCHEMA.write_datum(datum(value))


def test_avros_longs() -> None:
    text = data_path("vectors", "avro", "long_binary_encodings.json").read_text()
    for vector in json.loads(text):
        assert long_bytes(vector["long"]).hex() == vector["hex"]


@given(longs)
def test_longs_as_fastavro_has_them(number: int) -> None:
    assert long_bytes(number) == AvroSchema("long").write_datum(number)


@pytest.mark.parametrize("number", [-8193, -8192, -65, -64, 0, 63, 64, 8191, 8192, 2**63 - 1])
def test_longs_at_the_bounds_of_the_table(number: int) -> None:
    assert long_bytes(number) == AvroSchema("long").write_datum(number)


class Text(str):
    __slots__ = ()


GOOD = Outer(1.0, {})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (GOOD._replace(last=1), ".last"),
        (GOOD._replace(last=True), ".last"),
        (GOOD._replace(small=True), ".small"),
        (GOOD._replace(small=2**31), ".small"),
        (GOOD._replace(small=1.0), ".small"),
        (GOOD._replace(mode="half"), ".mode"),
        (GOOD._replace(mode=1), ".mode"),
        (GOOD._replace(mode=[]), ".mode"),
        (GOOD._replace(code=b"123"), ".code"),
        (GOOD._replace(code="12"), ".code"),
        (GOOD._replace(code=bytearray(b"12")), ".code"),
        (GOOD._replace(mapping=None), ".mapping"),
        (GOOD._replace(mapping={1: 1}), ".mapping"),
        (GOOD._replace(mapping={"a": 1, "b": "1"}), ".mapping['b']"),
        (GOOD._replace(mapping={"a": 2**63}), ".mapping['a']"),
        (GOOD._replace(mapping={Text("a"): 1}), ".mapping"),
        (GOOD._replace(items="ab"), ".items"),
        (GOOD._replace(items=("a", 1)), ".items[1]"),
        (GOOD._replace(inner=Other(True)), ".inner"),
        (GOOD._replace(inner=(1, "a")), ".inner"),
        (GOOD._replace(inner=Inner(1, Text("a"))), ".inner.text"),
        (GOOD._replace(inner=Inner(None, "a")), ".inner.number"),
        (GOOD._replace(choice=Other(1)), ".choice.flag"),
        (GOOD._replace(choice=Inner(1, "\ud800")), ".choice.text"),
        (GOOD._replace(choice="a"), ".choice"),
        ({"last": 1.0}, ""),
    ],
)
def test_what_does_not_fit_is_named(value: Any, path: str) -> None:
    with pytest.raises(Misfit) as caught:
        WRITE(value)
    assert "".join(caught.value.path) == path
    assert caught.value.lone == (value == GOOD._replace(choice=Inner(1, "\ud800")))


def test_any_mapping_goes_out_in_key_order() -> None:
    plain = WRITE(GOOD._replace(mapping={"a": 1, "b": 2, "\U00010000": 3, "\uffff": 4}))
    reverse = {"\uffff": 4, "\U00010000": 3, "b": 2, "a": 1}
    for other in (OrderedDict(reverse), MappingProxyType(reverse)):
        assert WRITE(GOOD._replace(mapping=other)) == plain


@pytest.mark.parametrize("text", ["", "a", "é" * 63, "é" * 64, "é" * 65, "x" * 10_000])
def test_texts_short_and_long(text: str) -> None:
    assert text_bytes(text) == AvroSchema("string").write_datum(text)


def test_a_nan_keeps_its_bits() -> None:
    assert WRITE(GOOD._replace(last=math.nan)) == SCHEMA.write_datum(
        datum(GOOD._replace(last=math.nan))
    )
