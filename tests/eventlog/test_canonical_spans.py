"""Spans agree with the encoder: where items and entries of any canonical bytes begin and end."""

import random

from eventlog.canonical import Registered, encode
from eventlog.patches.canonical_spans import (
    Kind,
    end_of,
    key_at,
    kind_at,
    layout_at,
    registered_name,
)
from tests.support.scale import scaled
from tests.support.state_pairs import random_state
from tests.support.values import random_value


def test_every_value_ends_where_its_bytes_do_seeded() -> None:
    for seed in range(scaled(1_000, 10_000)):
        rng = random.Random(seed)
        data = encode(random_value(rng) if seed % 2 else random_state(rng))
        assert end_of(b"\xc0" + data + b"\xc1\xc1", 1) == 1 + len(data), f"seed {seed}"


def test_entries_are_the_encoded_keys_and_values_seeded() -> None:
    for seed in range(scaled(500, 5_000)):
        value = random_state(random.Random(seed))
        data = b"\xc0" + encode(value)
        assert spelled(data, 1) == [encode(part) for part in parts(value)], f"seed {seed}"


def parts(value: object) -> list[object]:
    """Keys and values, items, or the value inside: what a patch can reach in a value."""
    if type(value) is dict:
        return [part for pair in value.items() for part in pair]
    if type(value) is list:
        return value
    return [value.value] if type(value) is Registered else []


def spelled(data: bytes, base: int) -> list[bytes]:
    """The bytes of what stands in a container, one after the other, found by spans alone."""
    layout = layout_at(data, base)
    if layout is None:
        return []
    at, found = layout.first, []
    for _ in range(layout.entry_count):
        start = key_at(layout.kind, at)
        at = end_of(data, start)
        found.append(data[start:at])
        if layout.kind in (Kind.MAP, Kind.PAIRS):
            start, at = at, end_of(data, at)
            found.append(data[start:at])
    assert at == end_of(data, base)
    return found


def test_kinds() -> None:
    expected = {
        Kind.MAP: ({}, {"a": 1}, {str(key): 0 for key in range(70_000)}),
        Kind.PAIRS: ({1: 1}, {"\ud800": 1}, dict.fromkeys(range(70_000))),
        Kind.ARRAY: ([], [1], [0] * 70_000),
        Kind.TEXT: ("", "a" * 40, "a" * 300, "a" * 70_000, "\ud800", "\ud800" * 7),
        Kind.BINARY: (b"", b"a" * 300, b"a" * 70_000),
        Kind.REGISTERED: (Registered("a", 1, None), Registered("a" * 300, 1, [0] * 70_000)),
        Kind.ATOM: (None, True, 1, 2**63, 2**64, -(2**200), 1.0, (), (1,), {1}, frozenset()),
    }
    for kind, values in expected.items():
        for value in values:
            assert kind_at(encode(value), 0) is kind, value


def test_a_registered_type_is_named_by_name_and_version() -> None:
    data = encode(Registered("desk.Order", 7, {"a": 1}))
    assert registered_name(data, 0) == encode("desk.Order") + encode(7)
