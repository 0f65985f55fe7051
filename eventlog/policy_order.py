"""Policy versions as sessions name them: their label, and which lie in a range. Pure.

A version is a text. Those that are whole numbers are compared as such, `9` before `12`; a training
that went back and published a version again names it `12~2`, which lies in every range that `12`
lies in.
"""

import re
from typing import Final

from eventlog.whole_number import whole_number

_LABEL: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:~([1-9][0-9]*))?")
_DIGITS_MAX: Final = 64
"""A longer one is compared as a text: nobody counts so far."""


def policy_text(policy: str | int | None) -> str | None:
    """A version as events name it: `12` for the number 12. Raises `TypeError` for anything else."""
    if policy is None or type(policy) is str:
        return policy
    if isinstance(policy, str):
        return str(policy)
    number = whole_number(policy)
    if number is None:
        raise TypeError(f"a policy version is a str or an int, not {policy!r}")
    return str(number)


def label_parts(text: str) -> tuple[int, int] | None:
    """Number and attempt of a label: `12` is (12, 0), `12~3` is (12, 3); None for other texts.

    There is one text of each: no leading zeros, and no attempt 0.
    """
    found = _LABEL.fullmatch(text) if len(text) <= _DIGITS_MAX else None
    return None if found is None else (int(found[1]), int(found[2] or 0))


def label_text(version: int, attempt: int) -> str:
    """The label of a version that this attempt published again; 0 is the first time."""
    return f"{version}~{attempt}" if attempt else str(version)


def is_in_range(version: str, least: str | None, most: str | None) -> bool:
    """Whether `version` lies between the two, both included; None is no bound.

    Numbers are compared with numbers and other texts with other texts, by their characters; one
    of each does not compare, and is not in the range.
    """
    return (least is None or _reaches(version, least)) and (
        most is None or _stays_within(version, most)
    )


def _reaches(version: str, least: str) -> bool:
    number, bound = label_parts(version), label_parts(least)
    if number is None or bound is None:
        return number is None and bound is None and version >= least
    return number >= bound


def _stays_within(version: str, most: str) -> bool:
    number, bound = label_parts(version), label_parts(most)
    if number is None or bound is None:
        return number is None and bound is None and version <= most
    # Of a version without an attempt all attempts are meant.
    return number[0] <= bound[0] if bound[1] == 0 else number <= bound
