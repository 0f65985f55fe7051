"""Closed values: immutable, and equal exactly where their canonical bytes are."""

import copy
import datetime as dt
import math
import pickle
import random
from decimal import Decimal
from itertools import combinations

import pytest

from eventlog import canonical
from eventlog.canonical import ArrayValue, Registered
from eventlog.values.restoring import may_hold_closed
from tests.support.values import random_value

ALIKE_IN_PYTHON = [
    1, True, 1.0, Decimal(1), Decimal("1.0"), 0.0, -0.0, 0, [1], (1,), [True], {"a": 1}, None,
    {"a": True}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {1}, frozenset({1}), {True}, math.nan,
    [math.nan], dt.time(1), dt.time(1, fold=1), dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))), 1j, complex(-0.0, 1.0),
    ArrayValue("scalar", "|i1", (), b"\x01"), ArrayValue("array", "|i1", (), b"\x01"), "1",
    Registered("t", 1, 1), Registered("t", 2, 1), Registered("u", 1, 1), Registered("t", 1, True),
]  # fmt: skip


def test_equal_exactly_where_the_bytes_are() -> None:
    closed = [Registered("t", 1, value) for value in ALIKE_IN_PYTHON]
    for one, other in combinations(closed, 2):
        assert one != other, (one, other)
    for one in closed:
        again = canonical.decode(canonical.encode(one), opaque=True)
        assert again == one
        assert hash(again) == hash(one)
    assert len(set(closed)) == len(closed)


def test_random_values_are_equal_to_themselves_read_back() -> None:
    for seed in range(500):
        value = Registered("t", 1, random_value(random.Random(seed), 2))
        again = canonical.decode(canonical.encode(value), opaque=True)
        assert again == value
        assert hash(again) == hash(value)


def test_as_keys_they_stay_apart() -> None:
    table = {
        Registered("t", 1, 1): "a",
        Registered("t", 1, True): "b",
        Registered("t", 1, [1]): "c",
    }
    data = canonical.encode(table)
    assert canonical.decode(data, opaque=True) == table


@pytest.mark.parametrize(
    "value", [Registered("t", 1, [2]), ArrayValue("array", "|i1", (1,), b"\x01")]
)
def test_immutable_and_copied_whole(value: object) -> None:
    for name in (*type(value).__slots__, "other"):  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
        with pytest.raises(AttributeError):
            delattr(value, name)
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert again is not value
    assert value != "other"


def test_bytes_tell_that_nothing_is_closed() -> None:
    closed = [ArrayValue("array", "|u1", (n,), bytes(n)) for n in (0, 1, 300, 70_000)]
    closed += [Registered("t", 1, "x" * n) for n in (0, 2, 10, 300, 70_000)]
    for value in closed:
        for around in (value, [value], {"a": (value,)}, {1: "\n" * 9, 2: value}):
            assert may_hold_closed(canonical.encode(around))
    for value in (9, 10, [9, 10, "a\nb\tc"], {"n": 9, "t": "\n" * 300}, ["x" * 9, "y" * 10]):
        assert not may_hold_closed(canonical.encode(value))
