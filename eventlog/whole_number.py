"""Whole numbers as callers give them: ints, and numpy's; never a bool, a float or a text. Pure."""

import operator
from typing import SupportsIndex


def whole_number(value: object) -> int | None:
    """The number that `value` is; None where it is none, so that the caller says what it is of."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # An array of several has the method too.
        return None
