"""Policy versions as texts and as numbers."""

import pytest

from eventlog.policy_order import is_in_range, label_parts, label_text, policy_text


@pytest.mark.parametrize(
    ("version", "least", "most", "expected"),
    [
        ("9", "8", "12", True),
        ("9", "10", None, False),
        ("100", None, "99", False),
        ("12~2", "12", "12", True),
        ("12~2", "12~3", None, False),
        ("12", "12~1", None, False),
        ("12", None, "12~1", True),
        ("13~1", None, "12", False),
        ("-1", "-2", "0", True),
        ("012", "12", "12", False),
        ("alpha", "alpha", "beta", True),
        ("alpha", "1", None, False),
        ("alpha", None, "1", False),
        ("12", "alpha", None, False),
        ("12", None, None, True),
        ("9" * 65, "1", None, False),
        ("", "", "", True),
    ],
)
def test_a_range_holds(version: str, least: str | None, most: str | None, expected: bool) -> None:
    assert is_in_range(version, least, most) is expected


@pytest.mark.parametrize(
    ("label", "parts"),
    [("0", (0, 0)), ("12", (12, 0)), ("12~3", (12, 3)), ("12~30", (12, 30)), ("-1", (-1, 0))],
)
def test_a_label_has_one_text(label: str, parts: tuple[int, int]) -> None:
    assert label_parts(label) == parts
    assert label_text(*parts) == label


@pytest.mark.parametrize(
    "text", ["", "012", "12~0", "12~03", "12~", "~3", "12~3~4", "12 ", "a", "\u0661", "9" * 65]
)
def test_what_is_nearly_a_label_is_none(text: str) -> None:
    assert label_parts(text) is None


def test_a_version_is_a_text_or_a_whole_number() -> None:
    assert [policy_text(each) for each in (None, "a", 12, -1)] == [None, "a", "12", "-1"]
    for wrong in (True, 1.0, b"1", ["1"]):
        with pytest.raises(TypeError, match="policy version"):
            policy_text(wrong)  # type: ignore[arg-type]


def test_a_number_of_numpy_is_a_number() -> None:
    numpy = pytest.importorskip("numpy")
    assert policy_text(numpy.int64(12)) == "12"
