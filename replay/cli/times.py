"""Times and durations as people write them on the command line."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import typer

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_US: Final = {
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def parse_duration(text: str) -> int:
    """`90s`, `15m`, `2h` or `7d` in microseconds. Raises a usage error."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration: write 90s, 15m, 2h or 7d")
    return int(found[1]) * _UNITS_US[found[2]]


def parse_time(text: str, now_us: int) -> int:
    """A time in microseconds since 1970 UTC: an ISO date or time, or a duration before `now_us`.

    A time without an offset is UTC. Raises a usage error.
    """
    if re.fullmatch(r"[0-9]+[smhd]", text):
        return now_us - parse_duration(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: write 2026-07-01, 2026-07-01T12:30, or 2h for two hours ago"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
