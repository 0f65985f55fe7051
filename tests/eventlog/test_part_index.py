"""An index drawn from the last one is the index read anew, at every level."""

import random

import pytest

from eventlog import encoded_state
from eventlog.canonical import Registered, decode, encode
from eventlog.encoded_state import EncodedState
from eventlog.patches import canonical_spans, encoded_part, part_index
from eventlog.patches.canonical_spans import layout_at
from eventlog.patches.part_index import PartIndex, follow_index, read_index, read_parts
from eventlog.state_patch import apply, diff_encoded
from tests.support.scale import scaled
from tests.support.state_pairs import copied, mutated, random_state


@pytest.fixture
def _small_parts_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (part_index, encoded_part, encoded_state):
        monkeypatch.setattr(module, "INDEXED_BYTES_MIN", 48)


def checked(index: PartIndex | None, data: bytes, base: int = 0) -> int:
    """Compare an index with one read anew; the number of containers it covers."""
    if index is None:
        return 0
    layout = layout_at(data, base)
    assert layout is not None
    anew = read_index(data, base, layout)
    assert (index.kind, index.first, index.ends) == (anew.kind, anew.first, anew.ends)
    return 1 + sum(
        checked(part, data, base + index.value_start(data, base, number))
        for number, part in index.parts.items()
    )


@pytest.mark.usefixtures("_small_parts_are_indexed")
def test_indexes_stay_right_from_step_to_step_seeded() -> None:
    containers = 0
    for seed in range(scaled(300, 4_000)):
        rng = random.Random(seed)
        value = random_state(rng)
        state = EncodedState(encode(value))
        for step in range(5):
            after = mutated(rng, value)
            patch, following = state.patch_to(encode(after))
            containers += checked(state._index, state.data)
            containers += checked(following._index, following.data)
            assert following.data == encode(after)
            result = apply(decode(patch, opaque=True), decode(state.data, opaque=True))
            assert encode(result) == following.data, f"seed {seed}, step {step}"
            value, state = after, following
    assert containers > 10_000, "the states were too small to test anything"


@pytest.mark.usefixtures("_small_parts_are_indexed")
def test_all_large_parts_are_read_at_once_seeded() -> None:
    containers = 0
    for seed in range(scaled(500, 4_000)):
        data = encode(random_state(random.Random(seed)))
        layout = layout_at(data, 0)
        if layout is not None:
            index, end = read_parts(data, 0, layout)
            assert end == len(data), f"seed {seed}"
            containers += checked(index, data)
    assert containers > 2_000, "the states were too small to test anything"


@pytest.mark.usefixtures("_small_parts_are_indexed")
def test_an_index_of_another_value_is_followed_all_the_same_seeded() -> None:
    for seed in range(scaled(300, 3_000)):
        rng = random.Random(seed)
        old, new = encode(random_state(rng)), encode(random_state(rng))
        layout = layout_at(old, 0)
        if layout is not None:
            index, _ = read_parts(old, 0, layout)
            followed, end = follow_index(old, 0, index, new, 0)
            assert end == len(new), f"seed {seed}"
            checked(followed, new)


def airline(records: int) -> dict[str, object]:
    """A state as the large ones are: tables of records."""
    return {
        table: {
            f"{table}{number}": {"id": number, "rows": [{"v": row} for row in range(20)]}
            for number in range(records)
        }
        for table in ("flights", "reservations", "users")
    }


def test_only_what_differs_of_a_large_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    value = airline(300)
    state = EncodedState(encode(value))
    _, state = state.patch_to(encode({**value, "step": 1}))
    read: list[int] = []
    original = canonical_spans.end_of

    def counting(data: bytes, at: int) -> int:
        read.append(at)
        return original(data, at)

    monkeypatch.setattr(part_index, "end_of", counting)
    monkeypatch.setattr(encoded_part, "end_of", counting)
    after = copied(value)
    assert isinstance(after, dict)
    after["flights"]["flights7"]["id"] = -1
    after["users"]["users299"]["rows"].append(None)
    after["users"]["new"] = {}
    del after["reservations"]["reservations3"]
    patch, _ = state.patch_to(encode({**after, "step": 2}))
    assert decode(patch, opaque=True) == [
        ["set", ["flights", "flights7", "id"], -1],
        ["del", ["reservations", "reservations3"]],
        ["cut", ["users", "users299", "rows"], 20, 0, [None]],
        ["set", ["users", "new"], {}],
        ["set", ["step"], 2],
    ]
    assert len(read) < 1_200, "of 38,000 items"


def test_a_large_registered_root_keeps_its_index() -> None:
    value = airline(300)
    state = EncodedState(encode(Registered("desk.State", 1, value)))
    for step in range(3):
        after = copied(value)
        assert isinstance(after, dict)
        after["users"]["users5"]["id"] = step * 1000
        data = encode(Registered("desk.State", 1, after))
        patch, state = state.patch_to(data)
        assert decode(patch, opaque=True) == [["set", ["users", "users5", "id"], step * 1000]]
        assert checked(state._index, data) >= 3
        assert decode(patch, opaque=True) == diff_encoded(
            encode(Registered("desk.State", 1, value)), data
        )
        value = after


def test_a_state_that_shrinks_or_changes_its_kind_forgets_its_index() -> None:
    large, small = encode(airline(50)), encode({"a": 1})
    patch, state = EncodedState(large).patch_to(small)
    assert decode(patch, opaque=True) == [["set", [], {"a": 1}]]
    patch, state = state.patch_to(large)
    assert checked(state._index, large) in (0, 1, 4)
    _, state = state.patch_to(encode([airline(50)]))
    _, state = state.patch_to(encode({1: airline(50)}))
    checked(state._index, state.data)
