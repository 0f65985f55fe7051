"""The JSON form: each value has one form, each form one value, and any reader can read it."""

import collections
import datetime as dt
import json
import math
import random
import uuid
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from eventlog import canonical
from eventlog.canonical import ArrayValue, Registered
from eventlog.errors import ValueNotEncodableError
from eventlog.json_form import dumps, from_json_form, loads, to_json_form
from tests.support.data import data_path
from tests.support.golden_values import golden_lines, golden_value
from tests.support.scale import scaled
from tests.support.values import random_live_value, random_value, register_live_types

# Value, and its form as docs/formats.md has it.
FORMS: list[tuple[object, object]] = [
    (None, None),
    (True, True),
    (5, 5),
    (2**53, 2**53),
    (-(2**53), -(2**53)),
    (2**53 + 1, {"$int": "9007199254740993"}),
    (-(2**64), {"$int": "-18446744073709551616"}),
    (1.5, 1.5),
    (-1e-7, -1e-7),
    (1.0, {"$float": "1.0"}),
    (-0.0, {"$float": "-0.0"}),
    (1e300, {"$float": "1e+300"}),
    (math.nan, {"$float": "nan"}),
    (-math.inf, {"$float": "-inf"}),
    ("é🙂", "é🙂"),
    ("\ud800", {"$str": "7aCA"}),
    (b"\x00\xff", {"$bytes": "AP8="}),
    ([1, [2]], [1, [2]]),
    ({"b": 1, "a": 2}, {"b": 1, "a": 2}),
    ({"$a": 1}, {"$dict": [["$a", 1]]}),
    ({"a": 1, 2: "x"}, {"$dict": [["a", 1], [2, "x"]]}),
    ({"\ud800": 1}, {"$dict": [[{"$str": "7aCA"}, 1]]}),
    ((), {"$tuple": []}),
    ((1, (2,)), {"$tuple": [1, {"$tuple": [2]}]}),
    ({3, 1, 2}, {"$set": [1, 2, 3]}),
    (frozenset({"b", "a"}), {"$frozenset": ["a", "b"]}),
    (dt.datetime(2024, 5, 1, 10, 30), {"$datetime": ["2024-05-01T10:30:00", 0, None]}),
    (
        dt.datetime(2024, 5, 1, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        {"$datetime": ["2024-05-01T00:00:00", 1, "Europe/Berlin"]},
    ),
    (dt.date(2024, 5, 1), {"$date": "2024-05-01"}),
    (dt.time(1, 2, tzinfo=dt.UTC), {"$time": ["01:02:00", 0, 0]}),
    (dt.timedelta(days=-1, microseconds=5), {"$timedelta": [-1, 0, 5]}),
    (Decimal("1.00"), {"$decimal": "1.00"}),
    (uuid.UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
    (complex(1.5, -0.0), {"$complex": [1.5, {"$float": "-0.0"}]}),
    (ArrayValue("array", "|u1", (2,), b"\x01\x02"), {"$array": ["array", "|u1", [2], "AQI="]}),
    (Registered("t.x", 2, {"a": (1,)}), {"$type": ["t.x", 2, {"a": {"$tuple": [1]}}]}),
    (collections.deque([1.0], 5), {"$type": ["steplog.deque", 1, [5, [{"$float": "1.0"}]]]}),
]


def same_form(one: object, other: object) -> bool:
    """Equal also in the kinds of numbers: 1, True and 1.0 are not the same form."""
    return json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize(("value", "form"), FORMS, ids=lambda case: type(case).__name__)
def test_values_have_their_form(value: object, form: object) -> None:
    assert same_form(to_json_form(value), form)
    assert canonical.encode(from_json_form(form)) == canonical.encode(value)
    assert same_form(json.loads(dumps(value)), form)
    assert canonical.encode(loads(dumps(value))) == canonical.encode(value)


@pytest.mark.parametrize(
    "expression", [left for left, _ in golden_lines("canonical", "values.txt")]
)
def test_every_row_of_the_table_has_a_form(expression: str) -> None:
    value = golden_value(expression)
    assert canonical.encode(loads(dumps(value))) == canonical.encode(value)


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ({"a": [1, {"$odd": 1}]}, "$.a[1]"),
        ({"$": 1}, "$"),
        ({"$set": [1], "$tuple": [1]}, "$"),
        ({"$set": [1], "b": 1}, "$"),
        ({"a": {"\ud800": 1}}, "$.a"),
        ([2**53 + 1], "$[0]"),
        ([1.0], "$[0]"),
        ([-0.0], "$[0]"),
        ([math.nan], "$[0]"),
        (["\ud800"], "$[0]"),
        ({"$int": "5"}, "$"),
        ({"$int": 2**60}, "$"),
        ({"$int": "9_007_199_254_740_993"}, "$"),
        ({"$int": "+9007199254740993"}, "$"),
        ({"$int": "9007199254740993.0"}, "$"),
        ({"$float": "1.5"}, "$"),
        ({"$float": "1"}, "$"),
        ({"$float": "Infinity"}, "$"),
        ({"$float": 1.0}, "$"),
        ({"$str": "YQ=="}, "$"),
        ({"$str": "7aCA="}, "$"),
        ({"$bytes": "AP8"}, "$"),
        ({"$bytes": "A P8="}, "$"),
        ({"$bytes": [1]}, "$"),
        ({"$tuple": "ab"}, '$["$tuple"]'),
        ({"$set": [3, 1]}, "$"),
        ({"$set": [1, 1]}, "$"),
        ({"$set": [[1]]}, "$"),
        ({"$set": [{"$float": "nan"}]}, "$"),
        ({"$dict": [["a", 1]]}, "$"),
        ({"$dict": [[1, 2], [1, 3]]}, "$"),
        ({"$dict": [[1, 2], [True, 3]]}, "$"),
        ({"$dict": [[1, 2, 3]]}, "$"),
        ({"$dict": [[[1], 2]]}, "$"),
        ({"$dict": {}}, "$"),
        ({"$datetime": ["2024-05-01 10:30:00", 0, None]}, "$"),
        ({"$datetime": ["2024-05-01T10:30:00", 0, "No/Where"]}, "$"),
        ({"$datetime": "2024-05-01T10:30:00"}, "$"),
        ({"$date": "20240501"}, "$"),
        ({"$timedelta": [0, -1, 0]}, "$"),
        ({"$decimal": "1e5"}, "$"),
        ({"$decimal": "x"}, "$"),
        ({"$uuid": "00000000000000000000000000000001"}, "$"),
        ({"$complex": [1, 2.5]}, "$"),
        ({"$array": ["array", "<f8", [1], "AP8="]}, "$"),
        ({"$array": ["array", "|O", [1], ""]}, "$"),
        ({"$type": ["", 1, 2]}, "$"),
        ({"$type": ["a", "1", 2]}, "$"),
        ({"$type": ["a", 1, {"$odd": 2}]}, '$["$type"][2]'),
        ({"a": {"$tuple": [{"$odd": 1}]}}, '$.a["$tuple"][0]'),
        ({"a": b"x"}, "$.a"),
    ],
)
def test_forms_that_are_never_written_are_refused(form: object, path: str) -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        from_json_form(form)
    assert caught.value.path == path
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', "1.0", "[1", "[" * 9999],
)
def test_texts_that_are_no_json_form(text: str) -> None:
    with pytest.raises(ValueNotEncodableError):
        loads(text)


def test_random_values_come_back() -> None:
    for seed in range(scaled(1_000, 20_000)):
        rng = random.Random(seed)
        value = random_value(rng, rng.choice((1, 2, 3)))
        text = dumps(value)
        text.encode("utf-8")
        assert "\n" not in text
        restored = loads(text)
        assert canonical.encode(restored) == canonical.encode(value)
        assert dumps(restored) == text


def test_live_values_come_back_closed() -> None:
    register_live_types()
    for seed in range(scaled(300, 5_000)):
        value = random_live_value(random.Random(seed), 3)
        restored = loads(dumps(value))
        assert canonical.encode(restored) == canonical.encode(value)
        live = canonical.decode(canonical.encode(restored))
        assert canonical.encode(live) == canonical.encode(value)


def test_very_long_ints() -> None:
    for value in (10**5000, -(2**40_000)):
        assert loads(dumps([value])) == [value]


def test_naughty_strings() -> None:
    strings = json.loads(data_path("vectors", "strings", "naughty_strings.json").read_text("utf-8"))
    value = {"list": strings, "keys": {text: (text,) for text in strings}}
    assert loads(dumps(value)) == value


def test_refusals_name_the_path_in_the_value() -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        dumps({"a": [object()]})
    assert caught.value.path == "$.a[0]"
