"""Mutable objects reached twice: found with both paths; nothing else is."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import random
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pytest

from eventlog import canonical
from eventlog.canonical import find_shared, may_share_rngs, register_type
from tests.support.data import data_path


class Side(enum.Enum):
    LEFT = 1


class Cell(NamedTuple):
    inner: object


@dataclasses.dataclass
class Order:
    items: object


@dataclasses.dataclass(frozen=True)
class Place:
    inner: object


register_type(Side, "shared.side")
register_type(Cell, "shared.cell")
register_type(Order, "shared.order")
register_type(Place, "shared.place")

MUTABLE: list[Any] = [
    [1], {"a": 1}, {1}, collections.deque([1]), collections.OrderedDict(a=1),
    collections.defaultdict(list), collections.Counter("a"), random.Random(1), Order([1]),
    np.zeros(3),
]  # fmt: skip
IMMUTABLE: list[Any] = [
    "x" * 50, 2**80, 1.5, b"xy", None, True, (1, 2), frozenset({1}), dt.datetime(2024, 1, 1),
    Decimal("1.5"), PurePosixPath("a"), Side.LEFT, Cell(1), Place(1), np.float64(2), (),
    canonical.Registered("a", 1, 5),
]  # fmt: skip


@pytest.mark.parametrize("thing", MUTABLE, ids=lambda thing: type(thing).__name__)
def test_a_mutable_object_reached_twice(thing: Any) -> None:
    canonical.encode(thing)
    assert find_shared({"a": [thing], "b": {"c": (thing,)}}) == [("$.a[0]", "$.b.c[0]")]
    assert find_shared([thing, thing, thing]) == [("$[0]", "$[1]"), ("$[0]", "$[2]")]
    assert find_shared([thing]) == []


@pytest.mark.parametrize("thing", IMMUTABLE, ids=lambda thing: type(thing).__name__)
def test_immutable_objects_may_be_shared(thing: Any) -> None:
    assert find_shared([thing, {"a": thing, "b": (thing, thing)}]) == []


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: (inner,),
        lambda inner: {"k": inner},
        lambda inner: {7: inner},
        lambda inner: collections.deque([inner]),
        lambda inner: collections.OrderedDict(k=inner),
        lambda inner: collections.defaultdict(list, k=inner),
        Cell,
        Order,
        Place,
        lambda inner: canonical.Registered("a", 1, inner),
    ],
)
def test_what_containers_and_registered_types_hold(around: Any) -> None:
    thing: list[int] = []
    (found,) = find_shared({"one": around(thing), "two": around(thing)})
    assert found[0].startswith("$.one")
    assert found[1].startswith("$.two")


def test_generators_only() -> None:
    generator, rows = random.Random(1), [1]
    state = {"agents": [{"rng": generator, "rows": rows}, {"rng": generator, "rows": rows}]}
    assert find_shared(state, rngs_only=True) == [("$.agents[0].rng", "$.agents[1].rng")]
    assert len(find_shared(state)) == 2
    state["agents"][1]["rng"] = random.Random(1)
    assert find_shared(state, rngs_only=True) == []


def test_a_bounded_search_looks_nearest_to_the_root() -> None:
    shared: list[int] = []
    state = {"a": [[[shared]]], "b": [0] * 100, "c": shared}
    assert find_shared(state) == [("$.a[0][0][0]", "$.c")]
    assert find_shared(state, values_max=50) == []
    assert find_shared(state, values_max=200) == [("$.a[0][0][0]", "$.c")]
    assert find_shared({"b": [0] * 100, "a": shared, "c": shared}, values_max=3) != []


def test_bytes_tell_whether_generators_need_be_looked_for() -> None:
    assert not may_share_rngs(canonical.encode({"rng": random.Random(1), "n": [1, 2]}))
    assert may_share_rngs(canonical.encode([random.Random(1), {"r": random.Random(1)}]))


def test_value_that_contains_itself_ends() -> None:
    rows: list[object] = [1]
    rows.append({"again": rows})
    assert find_shared(rows) == [("$", "$[1].again")]


def test_real_states_share_nothing() -> None:
    path = data_path("states", "tau_bench_airline", "users.json")
    state = json.loads(path.read_text())
    assert find_shared(state) == []
    user = next(iter(state.values()))
    state["copy"] = {"deep": [user]}
    assert find_shared(state)[0][1] == "$.copy.deep[0]"
