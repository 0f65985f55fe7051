"""Times and durations as people write them."""

import pytest
import typer

from replay.cli.times import parse_duration, parse_time

NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * 1_000_000
    assert parse_time(text, NOW_US) == NOW_US - seconds * 1_000_000


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00", 86_400_000_000),
        ("1970-01-01T00:00:01.000001", 1_000_001),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.5", -500_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, time_us: int) -> None:
    assert parse_time(text, NOW_US) == time_us


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "1.5h", "1w", "99999999999s", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 90s, 15m, 2h or 7d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        parse_time(text, NOW_US)
