"""`S@N`: real session ids hold slashes, tildes and at signs."""

import pytest

from replay.cli.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task-17", Address("task-17", None)),
        ("task-17@0", Address("task-17", 0)),
        ("task@17@4", Address("task@17", 4)),
        ("task@b", Address("task@b", None)),
        ("task@", Address("task@", None)),
        ("@4", Address("@4", None)),
        ("task@-4", Address("task@-4", None)),
        ("task@4 ", Address("task@4 ", None)),
        ("task@٤", Address("task@٤", None)),
        ("two\nlines@4", Address("two\nlines", 4)),
    ],
)
def test_the_last_at_sign_followed_only_by_digits(text: str, expected: Address) -> None:
    assert parse_address(text, lambda session_id: False) == expected


def test_a_session_of_the_whole_name_comes_first() -> None:
    assert parse_address("task@4", lambda session_id: session_id == "task@4") == ("task@4", None)
    assert parse_address("task@4@2", lambda session_id: session_id == "task@4") == ("task@4", 2)
