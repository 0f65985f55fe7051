"""`EncodedState`: the patch of `diff`, in canonical bytes, and no more."""

import random

from eventlog.canonical import decode, encode
from eventlog.encoded_state import EncodedState
from eventlog.state_patch import diff
from tests.support.scale import scaled
from tests.support.state_pairs import mutated, random_state


def test_the_patch_is_that_of_diff_encoded_seeded() -> None:
    for seed in range(scaled(300, 3_000)):
        rng = random.Random(seed)
        before = random_state(rng)
        after = mutated(rng, before)
        patch, following = EncodedState(encode(before)).patch_to(encode(after))
        assert patch == encode(diff(before, after)), f"seed {seed}"
        assert following.data == encode(after)


def test_a_state_is_not_changed_by_what_follows_it() -> None:
    first = EncodedState(encode({"rows": [{"n": number} for number in range(5_000)]}))
    for number in (1, 2, 1):
        rows = [{"n": number} for number in range(5_000)]
        rows[77] = {"n": -number}
        patch, _ = first.patch_to(encode({"rows": rows}))
        assert decode(patch) == [["set", ["rows", 77, "n"], -number]]


def test_nothing_changed_is_an_empty_patch() -> None:
    state = EncodedState(encode({"a": 1}))
    patch, following = state.patch_to(encode({"a": 1}))
    assert decode(patch) == []
    assert following.data == state.data
