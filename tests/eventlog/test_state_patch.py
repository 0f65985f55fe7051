"""Patches: `apply(diff(a, b), a)` has b's bytes, for all states; and what `apply` refuses."""

import random
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.canonical import ArrayValue, Registered, decode, encode
from eventlog.errors import EventCorruptError, SteplogError, ValueNotEncodableError
from eventlog.state_patch import apply, diff, diff_encoded, same
from tests.support.scale import scaled
from tests.support.state_pairs import copied, mutated, random_state
from tests.support.values import random_value

NAN = float("nan")
LARGE = {f"key{number}": "x" * 40 for number in range(30)}


def fresh(value: object) -> object:
    """The value as it comes out of storage: it shares nothing."""
    return decode(encode(value), opaque=True)


def patched(before: object, after: object, **options: object) -> list[object]:
    """Diff, check that the patch does what it must, and return it."""
    old, new = encode(before), encode(after)
    operations = diff(before, after, **options)  # type: ignore[arg-type]
    assert (encode(before), encode(after)) == (old, new), "diff changed its arguments"
    patch = encode(operations)
    assert encode(apply(decode(patch, opaque=True), decode(old, opaque=True))) == new
    assert (operations == []) == (old == new)
    if not options.get("close"):
        assert len(patch) <= len(encode([["set", [], after]]))
    return operations  # type: ignore[return-value]


def test_a_patch_gives_the_bytes_of_the_state_after_seeded() -> None:
    for seed in range(scaled(2_000, 26_000)):
        rng = random.Random(seed)
        before = random_state(rng)
        after = mutated(rng, before) if rng.random() < 0.8 else random_state(rng)
        old, new = encode(before), encode(after)
        operations = diff_encoded(old, new)
        result = encode(apply(fresh(operations), decode(old, opaque=True)))
        assert result == new, f"seed {seed}"
        assert (operations == []) == (old == new), f"seed {seed}"


def test_a_patch_of_decoded_states_is_that_of_their_bytes_seeded() -> None:
    for seed in range(scaled(300, 4_000)):
        rng = random.Random(f"decoded {seed}")
        before = fresh(random_state(rng))
        after = fresh(mutated(rng, before))
        operations = patched(before, after)
        assert same(operations, diff_encoded(encode(before), encode(after))), f"seed {seed}"
        patched(before, after, close=True)


def test_values_of_every_row_of_the_canonical_table_seeded() -> None:
    for seed in range(scaled(1_000, 14_000)):
        rng = random.Random(f"rows {seed}")
        before = random_value(rng)
        after = random_value(rng)
        if rng.random() < 0.7:
            before, after = {"kept": LARGE, "v": before}, {"kept": LARGE, "v": after}
        old, new = encode(before), encode(after)
        result = encode(apply(fresh(diff_encoded(old, new)), decode(old, opaque=True)))
        assert result == new, f"seed {seed}"


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.sampled_from((0, 0.0, -0.0, 1, 1.0, True, NAN)),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.tuples(st.sampled_from((1, True, 1.0))),
)
KEYS = st.one_of(st.text(max_size=3), st.sampled_from((0, False, 0.0, 1, True, 1.0, (1,), (True,))))
STATES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(KEYS, inner, max_size=6),
        st.builds(Registered, st.sampled_from(("a", "b")), st.integers(1, 2), inner),
    ),
    max_leaves=25,
)


@given(STATES, STATES)
def test_a_patch_gives_the_bytes_of_the_state_after(before: object, after: object) -> None:
    patched(before, after)
    patched(before, after, close=True)
    patched({"kept": LARGE, "state": before}, {"kept": LARGE, "state": after})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (0, False),
        ((1, 2), [1, 2]),
        ((1,), (True,)),
        ({1}, frozenset({1})),
        ({1}, {True}),
        ("a", b"a"),
        ({}, []),
        ([], ()),
        (None, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: "x"}, {True: "x"}),
        ({1: "x", 2: "y"}, {2: "y", True: "x"}),
        ({0: 1, "k": 2}, {False: 1, "k": 2}),
        ({0.0: 1}, {-0.0: 1}),
        ({(1,): 1}, {(True,): 1}),
        ({"\ud800": 1}, {"\ud801": 1}),
        ({"a": 1}, {"a": 1, 1: 1}),
        ({"a": 1, 1: 1}, {"a": 1}),
        (Registered("x", 1, [1]), Registered("x", 2, [1])),
        (Registered("x", 1, [1]), Registered("y", 1, [1])),
        (Registered("x", 1, "text"), Registered("x", 1, "texts")),
        (Registered("x", 1, "text"), "text"),
        (Registered("x", 1, Registered("y", 1, {"a": 1})), Registered("x", 1, {"a": 1})),
        (ArrayValue("array", "<f4", (1,), b"\0\0\0\0"), ArrayValue("array", "<i4", (1,), bytes(4))),
    ],
)
def test_what_python_takes_for_equal_or_alike_is_told_apart(before: object, after: object) -> None:
    for wrap in _WRAPS:
        assert not same(wrap(before), wrap(after))
        assert patched(wrap(before), wrap(after))
        assert patched(wrap(after), wrap(before))


_WRAPS: tuple[Callable[[object], object], ...] = (
    lambda value: value,
    lambda value: {"kept": LARGE, "value": value, "last": 1},
    lambda value: [LARGE, value, 1],
    lambda value: {1: LARGE, "value": value},
    lambda value: Registered("holder", 1, {"kept": LARGE, "value": value}),
)


@pytest.mark.parametrize("value", [NAN, [NAN], {"a": NAN}, (NAN,), Registered("x", 1, NAN), -0.0])
def test_nan_is_the_same_as_nan(value: object) -> None:
    for wrap in _WRAPS:
        assert patched(wrap(value), wrap(fresh(value))) == []


def test_a_context_trimmed_to_a_window_is_cut_not_sent_again() -> None:
    messages = [
        {"role": "user" if at % 2 else "tool", "content": f"message {at} " + "word " * 60}
        for at in range(80)
    ]
    before = {"messages": [messages[0], *messages[1:60]], "step": 3}
    after = {"messages": [messages[0], *messages[21:62]], "step": 3}
    operations = patched(before, after)
    assert operations == [
        ["cut", ["messages"], 60, 0, messages[60:62]],
        ["cut", ["messages"], 1, 20, []],
    ]


def test_one_record_of_a_table_costs_its_path_and_its_change() -> None:
    table = {f"R{number}": {"status": "open", "seats": [1, 2, 3]} for number in range(2_000)}
    after = copied(table)
    after["R1234"]["status"] = "cancelled"  # type: ignore[index]
    assert patched(table, after) == [["set", ["R1234", "status"], "cancelled"]]


def test_nothing_is_aliased_and_nothing_changed() -> None:
    before: dict[str, list[int]] = {"a": [1, 2], "b": [3]}
    after = {"a": [1, 2], "b": [3], "c": [4], "d": [5]}
    operations = diff(before, after)
    shown = encode(operations)
    after["c"].append(9)
    before["a"].append(9)
    assert encode(operations) == shown


def test_the_whole_state_is_set_where_nothing_is_smaller() -> None:
    assert patched([1], [2]) == [["set", [], [2]]]
    assert patched([1], [2], close=True) == [["set", [0], 2]]
    assert patched(list(range(500)), 7) == [["set", [], 7]]


def test_the_deepest_states_have_a_patch_or_are_refused() -> None:
    outcomes = set()
    for depth in range(185, 201):
        for wrap in (lambda value: [value], lambda value: Registered("r", 1, value)):
            before: object = 1
            after: object = True
            for _ in range(depth):
                before, after = wrap(before), wrap(after)
            try:
                patched(before, after)
                outcomes.add("patched")
            except ValueNotEncodableError:
                assert depth > 195
                outcomes.add("refused")
    assert outcomes == {"patched", "refused"}


def test_a_state_that_cannot_be_encoded_is_refused_by_both_sides() -> None:
    for before, after in (({"a": object()}, {}), ({}, {"a": object()})):
        with pytest.raises(ValueNotEncodableError):
            diff(before, after)


class TestTouched:
    """`touched` limits what is compared; the caller answers for the rest."""

    BEFORE: Final[dict[str, object]] = {
        "a": {"x": [1, 2], "y": 2},
        "b": [1, {"z": 1}],
        "big": LARGE,
    }

    def changed(self, **changes: object) -> dict[str, object]:
        after = copied(self.BEFORE)
        assert isinstance(after, dict)
        after.update(changes)
        return after

    def test_a_change_at_a_touched_path(self) -> None:
        after = self.changed(a={"x": [1, 2, 3], "y": 2})
        operations = patched(self.BEFORE, after, touched=[["a", "x"]])
        assert operations == [["set", ["a", "x"], [1, 2, 3]]]

    def test_paths_in_each_other_and_again_count_once(self) -> None:
        after = self.changed(a={"x": [7, 2], "y": 3}, b=[1, {"z": 5}])
        touched = [["b", 1, "z"], ["a", "x"], ["a"], ["a", "x", 0], ["b", 1]]
        patched(self.BEFORE, after, touched=touched)
        patched(self.BEFORE, after, touched=[[]])

    @pytest.mark.parametrize(
        ("after", "touched"),
        [
            ({"a": {"x": [1, 2], "y": 2}, "b": [1, {"z": 1}], "big": LARGE, "new": 1}, [["new"]]),
            ({"b": [1, {"z": 1}], "big": LARGE}, [["a", "x"]]),
            ({"a": {"x": [2], "y": 2}, "b": [1, {"z": 1}], "big": LARGE}, [["a", "x", 1]]),
            ({"a": [1], "b": [1, {"z": 1}], "big": LARGE}, [["a", "y"]]),
            ({"a": {"x": [1, 2], "y": 2}, "b": [{"z": 1}], "big": LARGE}, [["b", 1, "z"]]),
            ({"a": {"x": [1, 2], "y": 2}, "b": [1, {"z": 1}], "big": LARGE, 1: 2}, [[1]]),
        ],
    )
    def test_what_only_one_state_has_counts_as_its_parent(
        self, after: object, touched: list[list[object]]
    ) -> None:
        patched(self.BEFORE, after, touched=touched)

    def test_through_registered_types(self) -> None:
        before = Registered("s", 1, {"q": Registered("deque", 1, [1, 2, 3]), "big": LARGE})
        after = Registered("s", 1, {"q": Registered("deque", 1, [1, 2, 4]), "big": LARGE})
        assert patched(before, after, touched=[["q", 2]]) == [["set", ["q", 2], 4]]
        renamed = Registered("s", 1, {"q": Registered("list", 1, [1, 2, 4]), "big": LARGE})
        patched(before, renamed, touched=[["q", 2]])

    def test_a_twin_of_a_key_is_another_key(self) -> None:
        patched({1: "a", "big": LARGE}, {True: "b", "big": LARGE}, touched=[[1]])

    def test_what_is_not_touched_is_not_compared(self) -> None:
        after = self.changed(b=[])
        assert diff(self.BEFORE, after, touched=[["a"]]) == []
        assert diff(self.BEFORE, after, touched=[]) == []


def state() -> dict[object, object]:
    """A state to refuse operations on."""
    return {
        "n": 1,
        "list": [1, 2],
        "text": "abc",
        "raw": b"abc",
        "tuple": (1, [2]),
        "dict": {"a": 1, "b": 2},
        "typed": Registered("t", 1, {"in": "abc"}),
        5: "five",
    }


@pytest.mark.parametrize(
    "operation",
    [
        [],
        ["set"],
        ["set", ["n"]],
        ["set", ["n"], 1, 2],
        ["set", "n", 1],
        ["set", {"n": 1}, 1],
        ["set", ["absent", "n"], 1],
        ["set", ["n", "x"], 1],
        ["set", ["list", 2], 1],
        ["set", ["list", -1], 1],
        ["set", ["list", True], 1],
        ["set", ["list", 0.0], 1],
        ["set", ["list", "0"], 1],
        ["set", ["tuple", 0], 1],
        ["set", ["tuple", 1, 0], 1],
        ["set", ["text", 0], "x"],
        ["set", [[1]], 1],
        ["set", [{}], 1],
        ["set", [NAN], 1],
        ["set", [(NAN,)], 1],
        ["set", [5.0], 1],
        ["set", ["dict", "a", "x"], 1],
        ["put", ["n"], 1],
        [None, ["n"], 1],
        [["set"], ["n"], 1],
        ["SET", ["n"], 1],
        "set",
        ("set", ["n"], 1),
        {"set": 1},
        None,
        ["del", []],
        ["del", ["absent"]],
        ["del", ["list", 0]],
        ["del", ["n"], 1],
        ["del", [5.0]],
        ["del", ["typed", "absent"]],
        ["del", ["text", 0]],
        ["cut", ["list"], 0, 1],
        ["cut", ["list"], 0, 3, []],
        ["cut", ["list"], 3, 0, []],
        ["cut", ["list"], -1, 1, []],
        ["cut", ["list"], 0, -1, []],
        ["cut", ["list"], True, 1, []],
        ["cut", ["list"], 0, 1.0, []],
        ["cut", ["list"], 0, 1, ()],
        ["cut", ["list"], 0, 1, "x"],
        ["cut", ["text"], 0, 1, b"x"],
        ["cut", ["text"], 0, 4, "x"],
        ["cut", ["raw"], 0, 1, "x"],
        ["cut", ["tuple"], 0, 1, ()],
        ["cut", ["dict"], 0, 1, {}],
        ["cut", ["n"], 0, 0, 1],
        ["cut", ["typed"], 0, 0, []],
        ["cut", [], 0, 0, []],
        ["cut", ["absent"], 0, 0, []],
        ["ord", ["dict"]],
        ["ord", ["dict"], ["a", "a"]],
        ["ord", ["dict"], ["c"]],
        ["ord", ["dict"], ("a",)],
        ["ord", ["dict"], "ab"],
        ["ord", ["dict"], [["a"]]],
        ["ord", ["dict"], ["a"], 1],
        ["ord", ["list"], [0]],
        ["ord", [], [5.0]],
        ["ord", ["absent"], []],
    ],
)
def test_an_operation_that_does_not_apply_is_refused_by_its_index(operation: object) -> None:
    with pytest.raises(EventCorruptError, match="operation 1 of a state patch") as caught:
        apply([["set", ["n"], 2], operation], state())
    assert caught.value.hint


@pytest.mark.parametrize("operations", [None, {}, (), "set", ["set", [], 1], 5])
def test_what_is_no_list_of_operations_is_refused(operations: object) -> None:
    with pytest.raises(EventCorruptError, match="state patch"):
        apply(operations, state())


def test_what_applies() -> None:
    operations = [
        ["set", ["n"], 2],
        ["set", ["list", 1], 9],
        ["cut", ["list"], 2, 0, [10]],
        ["cut", ["text"], 1, 1, "XY"],
        ["cut", ["raw"], 3, 0, b"d"],
        ["del", ["dict", "a"]],
        ["cut", ["typed", "in"], 0, 1, ""],
        ["set", ["typed", "new"], []],
        ["ord", ["typed"], ["in"]],
        ["set", [5], "V"],
        ["set", [(1, 2)], None],
        ["ord", [], [5, "n"]],
    ]
    assert same(
        apply(operations, state()),
        {
            "list": [1, 9, 10],
            "text": "aXYc",
            "raw": b"abcd",
            "tuple": (1, [2]),
            "dict": {"b": 2},
            "typed": Registered("t", 1, {"new": [], "in": "bc"}),
            (1, 2): None,
            5: "V",
            "n": 2,
        },
    )


def test_a_text_in_registered_types_at_the_root_is_cut() -> None:
    root = Registered("a", 1, Registered("b", 2, "text"))
    after = apply([["cut", [], 4, 0, "s"]], root)
    assert after == Registered("a", 1, Registered("b", 2, "texts"))
    assert root == Registered("a", 1, Registered("b", 2, "text")), "registered values are immutable"


def test_damaged_patches_give_an_error_of_ours_or_another_state_never_anything_else() -> None:
    for seed in range(scaled(2_000, 20_000)):
        rng = random.Random(f"damage {seed}")
        before = random_state(rng)
        operations = diff(before, mutated(rng, before))
        damaged = mutated(rng, operations)
        try:
            damaged = fresh(damaged)
            apply(damaged, fresh(before))
        except SteplogError:
            continue


@pytest.mark.parametrize("value", ["abcd", b"abcd", [1, 2, 3, 4], "", b"", []])
def test_every_cut_of_every_range_against_slices(value: str) -> None:
    for start in range(6):
        for count in range(6):
            operation = [["cut", ["v"], start, count, value[:1]]]
            if start + count <= len(value):
                expected = value[:start] + value[:1] + value[start + count :]
                assert apply(operation, {"v": value[:]}) == {"v": expected}
            else:
                with pytest.raises(EventCorruptError, match="outside"):
                    apply(operation, {"v": value[:]})
