"""A `SessionFilter` as SQL conditions on `head`."""

from typing import Any

from eventlog.log import SessionFilter

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1


def conditions_of(where: SessionFilter | None) -> tuple[str, list[Any]]:
    """The conditions (each begins with AND; "" for none) and the values of their marks."""
    if where is None:
        return "", []
    terms: list[tuple[str, Any]] = [
        ("environment=?", where.environment),
        ("status=?", where.status),
        ("task_id=?", where.task_id),
        ("sample_id=?", where.sample_id),
        ("group_id=?", where.group_id),
        ("policy=?", where.policy),
        ("writer=?", where.writer),
        ("reward>=?", where.reward_min),
        ("reward<=?", where.reward_max),
        ("last_time>=?", where.last_time_min),
        ("last_time<=?", where.last_time_max),
    ]
    if where.id_prefix:
        terms += [("session>=?", where.id_prefix), ("session<?", end_of_prefix(where.id_prefix))]
    given = [(term, _storable(value)) for term, value in terms if value is not None]
    if any(value is None for _, value in given):
        return "AND 0 ", []
    return "".join(f"AND {term} " for term, _ in given), [value for _, value in given]


def _storable(value: Any) -> Any:
    """The value as SQLite can compare it; None for text that no row can hold."""
    if isinstance(value, int):
        return min(max(value, _INT_MIN), _INT_MAX)
    if isinstance(value, str) and any(ord(char) in _SURROGATES for char in value):
        return None
    return value


def end_of_prefix(prefix: str) -> str | None:
    """The lowest text above every text that begins with `prefix`, in code point order.

    None where there is none. SQLite compares UTF-8 bytes, whose order is that of code points.
    """
    while prefix:
        last = ord(prefix[-1])
        if last < _LAST_CODE_POINT:
            above = last + 1
            return prefix[:-1] + chr(_SURROGATES.stop if above in _SURROGATES else above)
        prefix = prefix[:-1]
    return None
