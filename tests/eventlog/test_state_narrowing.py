"""Narrowed states have the patch of the whole ones, whatever was left out."""

import random

import pytest

from eventlog.canonical import Registered, decode, encode
from eventlog.errors import ValueNotEncodableError
from eventlog.patches import state_narrowing
from eventlog.patches.state_narrowing import narrow
from eventlog.state_patch import apply, diff, diff_encoded, same
from tests.support.scale import scaled
from tests.support.state_pairs import copied, mutated, random_state

NAN = float("nan")


@pytest.fixture
def _all_dicts_are_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_narrowing, "ENTRIES_MIN", 1)


def checked(before: object, after: object) -> list[object]:
    """The patch of the values: that of their bytes, and it leads there."""
    operations = diff(before, after)
    old, new = encode(before), encode(after)
    assert same(operations, diff_encoded(old, new))
    stored = decode(encode(operations), opaque=True)
    assert encode(apply(stored, decode(old, opaque=True))) == new
    return operations  # type: ignore[return-value]


@pytest.mark.usefixtures("_all_dicts_are_narrowed")
def test_the_patch_is_that_of_the_whole_states_seeded() -> None:
    narrowed = 0
    for seed in range(scaled(600, 8_000)):
        rng = random.Random(f"narrow {seed}")
        before = {"state": random_state(rng), "kept": "x" * 99, "rows": random_state(rng, 2)}
        after = mutated(rng, before)
        narrowed += narrow(before, after) is not None
        checked(before, after)
    assert narrowed > 300


def table() -> dict[object, object]:
    """A table large enough to be narrowed as it is."""
    return {f"row{number}": {"id": number, "v": [number, None]} for number in range(200)}


def test_what_is_left_out_is_what_is_shared() -> None:
    before, after = {"a": table(), "b": 1}, {"a": table(), "b": 1}
    after["a"]["row7"]["id"] = True  # type: ignore[index]
    narrowed = narrow(before, after)
    assert narrowed is not None
    assert narrowed.before == {"a": {"row7": {"id": 7, "v": [7, None]}}}
    assert narrowed.after == {"a": {"row7": {"id": True, "v": [7, None]}}}
    left = len(encode(after)) - len(encode(narrowed.after))
    assert narrowed.omitted[b""] == left
    assert before == {"a": table(), "b": 1}, "narrowing changed its arguments"


@pytest.mark.parametrize(
    ("key", "value"),
    [("row1", 1), ("row1", {"v": [1, None], "id": 1}), ("row1", {"id": 1.0, "v": [1, None]})],
)
def test_twins_are_not_shared(key: str, value: object) -> None:
    before, after = table(), table()
    before["row1"], after["row1"] = {"id": 1, "v": [1, None]}, {"id": 1, "v": [1, None]}
    after[key] = value
    assert checked(before, after)


def test_rows_that_come_go_and_move() -> None:
    before = table()
    items = list(before.items())
    checked(before, dict(items[1:]))
    checked(before, dict([*items, ("new", 1)]))
    checked(before, dict([("new", 1), *items]))
    checked(before, dict([*items[1:], items[0]]))
    checked(before, dict(reversed(items)))
    checked(before, dict([*items[:50], ("row50", 5), *items[51:90], *items[95:], ("z", None)]))
    checked(before, {**dict(items[1:]), "row0": NAN})
    checked({**before, "nan": NAN}, {**before, "nan": NAN})


def test_keys_of_other_types_leave_a_dict_as_it_is() -> None:
    for keys in ((1, True), (0.0, -0.0), ((1,), (True,)), ("\ud800", "\ud801")):
        checked({keys[0]: 1, **table()}, {keys[1]: 1, **table()})
        checked({"t": {keys[0]: 1, **table()}}, {"t": {keys[1]: 1, **table()}})


def test_where_all_is_set_nothing_is_missing() -> None:
    small = {str(number): number % 2 for number in range(70)}
    other = {str(number): (number + 1) % 2 if number < 69 else 1 for number in range(70)}
    assert checked(small, other) == [["set", [], other]]
    setting = [["set", ["a"], other]]
    assert checked({"a": small}, {"a": other}) == setting
    assert checked({"a": small, "b": table()}, {"a": other, "b": table()}) == setting


def test_registered_and_other_roots_are_left_as_they_are() -> None:
    assert narrow(Registered("r", 1, table()), Registered("r", 1, {})) is None
    assert narrow([table()], [table()]) is None
    assert narrow({"a": 1}, {"a": 2}) is None


def test_what_cannot_be_encoded_is_refused_with_its_own_path() -> None:
    after = copied(table())
    assert isinstance(after, dict)
    after["row77"]["v"] = object()
    with pytest.raises(ValueNotEncodableError) as caught:
        diff(table(), after)
    assert "row77" in caught.value.path
