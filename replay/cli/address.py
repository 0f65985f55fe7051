"""`S@N` on the command line: a session, and a step of it."""

import re
from collections.abc import Callable
from typing import NamedTuple


class Address(NamedTuple):
    """What a person named: a session, and a step or None."""

    session_id: str
    step: int | None


def parse_address(text: str, is_session: Callable[[str], bool]) -> Address:
    """Read `SESSION` or `SESSION@STEP`: the last `@` followed only by digits.

    A session may have such an id itself, so where the whole text is one (`is_session`, asked only
    if the text ends in `@digits`), it is taken as that.
    """
    found = re.fullmatch(r"(.+)@([0-9]+)", text, re.DOTALL)
    if found is None or is_session(text):
        return Address(text, None)
    return Address(found[1], int(found[2]))
