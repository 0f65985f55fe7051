"""The end of an id prefix: the first text that sorts above every text with it."""

import random

import pytest

from eventlog.sqlite_filter import end_of_prefix


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a", "b"),
        ("task-1", "task-2"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("", None),
        ("\ud7ff", "\ue000"),
        ("é", "ê"),
    ],
)
def test_ends(prefix: str, end: str | None) -> None:
    assert end_of_prefix(prefix) == end


def test_it_parts_texts_with_the_prefix_from_those_after() -> None:
    rng = random.Random(5)
    letters = "ab\x7f\x80\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff"
    for _ in range(3_000):
        prefix = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 4)))
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 6)))
        end = end_of_prefix(prefix)
        above = end is not None and text.encode() >= end.encode()
        inside = text.encode() >= prefix.encode() and not above
        assert inside == text.startswith(prefix)
